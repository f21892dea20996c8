"""A DNS server with views: for each file N of a folder it answers at 127.0.53.N, out of that file alone.

    doctor_dns.py FOLDER

A line of a file is `NAME ADDRESS`; a name `*.ZONE` is for every name below the zone that has no line of its own. Names without a
line do not exist; there are no IPv6 addresses.
"""

import pathlib
import select
import socket
import struct
import sys

A = 1


def records(path):
    return dict(line.split() for line in path.read_text().splitlines() if line.strip())


def address_of(found, name):
    if name in found:
        return found[name]
    return found.get("*." + name.partition(".")[2])


def answer(query, found):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode().lower())
        at += 1 + query[at]
    question = query[12 : at + 5]
    (kind,) = struct.unpack(">H", query[at + 1 : at + 3])
    address = address_of(found, ".".join(labels))
    records = b""
    if address and kind == A:
        records = b"\xc0\x0c" + struct.pack(">HHIH", A, 1, 1, 4) + socket.inet_aton(address)
    # Authoritative; with the code for a name that does not exist.
    flags = 0x8580 | (0 if address else 3)
    return query[:2] + struct.pack(">HHHHH", flags, 1, 1 if records else 0, 0, 0) + question + records


def main():
    sockets = {}
    for path in pathlib.Path(sys.argv[1]).iterdir():
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind((f"127.0.53.{path.name}", 53))
        sockets[listener] = path
    print("ready", flush=True)
    while True:
        for listener in select.select(list(sockets), [], [])[0]:
            query, client = listener.recvfrom(512)
            listener.sendto(answer(query, records(sockets[listener])), client)


main()
