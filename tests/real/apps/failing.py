#!/usr/bin/env python3
"""Apps that fail, each in a way of its own, on ports of 127.0.0.1.

    failing.py CLOSING NONSENSE SILENT ALERT FULL

CLOSING hangs up after a request's head, NONSENSE answers no HTTP, SILENT never answers, ALERT answers with an alert of TLS (RFC 8446,
section 6), and FULL accepts no connection any more.
"""
import selectors
import socket
import sys
import threading


def listen(port, backlog=64):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(backlog)
    return listener


def serve(port, answer):
    def each(connection):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(4096)
            if not piece:
                return connection.close()
            data += piece
        answer(connection)

    listener = listen(port)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=each, args=(connection,), daemon=True).start()


def full(port):
    """Listens with a short backlog and fills it."""
    listener = listen(port, 0)
    waiting, selector = [], selectors.DefaultSelector()
    while True:
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", port))
        waiting.append(filler)
        selector.register(filler, selectors.EVENT_WRITE)
        if not selector.select(0.3):
            break
        selector.unregister(filler)
    return listener, waiting


def nonsense(connection):
    connection.sendall(b"220 smtp.example ESMTP\r\n")


def alert(connection):
    connection.sendall(b"\x15\x03\x03\x00\x02\x02\x28")


def silent(connection):
    connection.recv(1)


closing_port, nonsense_port, silent_port, alert_port, full_port = map(int, sys.argv[1:])
kept = full(full_port)
for port, answer in [(nonsense_port, nonsense), (silent_port, silent), (alert_port, alert)]:
    threading.Thread(target=serve, args=(port, answer), daemon=True).start()
serve(closing_port, lambda connection: connection.close())
