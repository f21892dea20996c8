"""A workspace's agent that speaks the tunnel by hand, and a user who asks it and does not read: how much memory do they cost the
gateway, and how much of that does it count?

  hostile_agent.py SHAPE LANES   prints `ok TEXT` and `FAIL TEXT`, one line for each check

  padded    Data frames with a large field that nobody knows behind a small payload
  pings     small payloads, and in the same HTTP/2 frame a padded ping
  beside    small payloads in HTTP/2 frames of their own, between large ones that HTTP/2 does not know
  gone      payloads of medium size, between large ones for a channel that was reset
  cut       padded Data frames, each cut over two HTTP/2 frames
  heads     requests with heads of 60 KiB, each refused and none ever acknowledged

From the environment: PUBLIC, AGENTS, ADMIN (ports), GATEWAY_PID, HOST (the authority of the workspace's port), USER_TOKEN,
AGENT_TOKEN_FILE, STREAMS (users who do not read), REQUESTS (of `heads`).
"""

import os
import random
import socket
import sys
import threading
import time
import urllib.request

from tunnel_by_hand import END_HEADERS, END_STREAM, MIB, PAYLOAD, End, Http2, check, fields, message, num, resident, text


# --- the agent --------------------------------------------------------------------------------------------------------

INSTANCE = random.getrandbits(60)


class Link(End):
    """One link of the agent: a session's first, or a lane that joins it."""

    def __init__(self, shape, lanes=1, join=None):
        self.shape = shape
        self.credit = {}
        self.due = threading.Condition()
        self.welcome = None
        self.welcomed = threading.Event()
        self.opened = 0
        self.sent = 0
        super().__init__(int(os.environ["AGENTS"]), (1 << 31) - 1)
        token = open(os.environ["AGENT_TOKEN_FILE"], "rb").read().strip()
        self.headers(1, [
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/tunnel.v1.Tunnel/Connect"), (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"), (b"te", b"trailers"), (b"authorization", b"Bearer " + token),
        ])
        hello = num(1, 1) + num(2, 1) + text(3, b"resume") + text(3, b"lanes") + text(4, b"0.0.0") + text(5, b"workspace")
        hello += num(6, INSTANCE) + num(8, 16384) + num(12, lanes)
        if join:
            hello += text(11, num(1, join[0]) + text(2, join[1]))
        self.data(1, message(text(3, hello)))
        assert self.welcomed.wait(20), "no welcome came"
        threading.Thread(target=self.fill, daemon=True).start()

    def gone(self):
        with self.due:
            self.due.notify_all()

    def observe(self, field, value):
        if field == 4:
            self.welcome = dict(fields(value))
            self.welcomed.set()
        elif field == 5:
            said = dict(fields(value))
            self.opened += 1
            if self.shape == "heads":
                self.say(9, num(1, said[1]) + num(2, 2))
                return
            with self.due:
                self.credit[said[1]] = said.get(3, 0)
                self.due.notify_all()
        elif field == 10:
            with self.due:
                for _, grant in fields(value):
                    grant = dict(fields(grant))
                    if grant[1] in self.credit:
                        self.credit[grant[1]] += grant[2]
                self.due.notify_all()

    def fill(self):
        """Sends into every window as much as there is credit for, in the worst shape."""
        begun = set()
        junk = None
        while not self.over:
            with self.due:
                ready = [(channel, credit) for channel, credit in self.credit.items() if credit >= 16000]
                if not ready:
                    self.due.wait(1)
                    continue
            for channel, credit in ready:
                try:
                    if self.shape == "gone" and junk is None:
                        # The first channel is given up; what still comes for it is late and not wrong.
                        junk = channel
                        self.say(9, num(1, channel) + num(2, 2))
                        with self.due:
                            del self.credit[channel]
                        continue
                    if channel not in begun:
                        begun.add(channel)
                        head = b"HTTP/1.1 200 OK\r\ncontent-length: 1099511627776\r\n\r\n"
                        self.say(6, num(1, channel))
                        self.say(7, num(1, channel) + text(2, head))
                        credit -= len(head)
                        with self.due:
                            self.credit[channel] -= len(head)
                    length = 16000 if self.shape == "gone" else PAYLOAD
                    while credit >= length:
                        self.one(channel, length, junk)
                        credit -= length
                        with self.due:
                            self.credit[channel] -= length
                except OSError:
                    return

    def one(self, channel, length, junk):
        if self.shape == "gone":
            with self.numbering:
                self.pieces(self.numbered(7, num(1, junk) + text(2, bytes(40_000))))
        self.payload(self.shape, channel, length)
        self.sent += length


def agent(shape, lanes):
    first = Link(shape, lanes)
    links = [first]
    for _ in range(lanes - 1):
        links.append(Link(shape, 1, (first.welcome[3], first.welcome[13])))
    return links


# --- users ------------------------------------------------------------------------------------------------------------

def stalled(streams):
    """Asks so often, over connections of HTTP/2 whose streams may not send anything."""
    connections = []
    for number in range(streams):
        if number % 64 == 0:
            connections.append(Http2(int(os.environ["PUBLIC"]), 0))
        connections[-1].headers(2 * (number % 64) + 1, [
            (b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", os.environ["HOST"].encode()),
            (b"gateway-authorization", b"Bearer " + os.environ["USER_TOKEN"].encode()),
        ], END_HEADERS | END_STREAM)
    return connections


def large_heads(count, said):
    """Asks one thing after the other with a head of 60 KiB, and counts the answers by status and failure."""
    own = "".join(f"x-{number}: {chr(97 + number) * 4000}\r\n" for number in range(15))
    head = f"GET / HTTP/1.1\r\nhost: {os.environ['HOST']}\r\ngateway-authorization: Bearer {os.environ['USER_TOKEN']}\r\n{own}\r\n"
    connection = None
    for _ in range(count):
        try:
            if connection is None:
                connection = socket.create_connection(("127.0.0.1", int(os.environ["PUBLIC"])))
                answers = connection.makefile("rb")
            connection.sendall(head.encode())
            status = answers.readline().split(b" ")[1].decode()
            length, code, close = 0, "", False
            while (line := answers.readline()) not in (b"\r\n", b""):
                name, _, value = line.decode().strip().partition(": ")
                name = name.lower()
                length = int(value) if name == "content-length" else length
                code = value if name == "gateway-error" else code
                close = close or (name == "connection" and value == "close")
            answers.read(length)
            if close:
                connection = None
        except (OSError, IndexError):
            status, code, connection = "cut", "", None
        key = f"{status} {code}".strip()
        said[key] = said.get(key, 0) + 1


# --- what it costs ----------------------------------------------------------------------------------------------------

def counted():
    """What the gateway says that it holds for the tunnel. What is kept for a resume is part of what is promised."""
    with urllib.request.urlopen(f"http://127.0.0.1:{os.environ['ADMIN']}/metrics") as answer:
        rows = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    return sum(int(float(rows[f"gateway_tunnel_{name}_bytes"])) for name in ("window", "queued"))


def main():
    shape, lanes = sys.argv[1], int(sys.argv[2])
    gateway = os.environ["GATEWAY_PID"]
    before = resident(gateway)
    links = agent(shape, lanes)
    told = f"{shape}, {lanes} lane{'s' if lanes > 1 else ''}"
    users = []
    most = 0
    if shape == "heads":
        said = {}
        requests = int(os.environ.get("REQUESTS", 4000))
        threads = [threading.Thread(target=large_heads, args=(requests // 8, said)) for _ in range(8)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most = max(most, resident(gateway) - before - 2 * counted())
            time.sleep(0.1)
        print(f"{told}: {said}", file=sys.stderr)
        check(said.get("503 overloaded", 0) > 0, f"{told}: what cannot be kept is refused by name ({said})")
    else:
        streams = int(os.environ.get("STREAMS", 48))
        users = stalled(streams)
        deadline = time.monotonic() + 120
        calm, sent = 0, -1
        # Nothing is sent any more when every window is full.
        while calm < 15 and time.monotonic() < deadline:
            now = sum(link.sent for link in links)
            calm = calm + 1 if now == sent and now > 0 else 0
            sent = now
            most = max(most, resident(gateway) - before - 2 * counted())
            time.sleep(0.1)
        opened = sum(link.opened for link in links)
        check(opened >= streams and sent > streams * 16_000, f"{told}: {sent // 1024} KiB of payload in {opened} channels")
    grown, counts = resident(gateway) - before, counted()
    figures = f"{grown / MIB:.0f} MiB more resident, {counts / MIB:.0f} MiB counted, at most {most / MIB:.0f} MiB beyond twice that"
    check(most <= 32 * MIB, f"{told}: at most twice what is counted and 32 MiB ({figures})")
    for connection in users + links:
        connection.close()


main()
