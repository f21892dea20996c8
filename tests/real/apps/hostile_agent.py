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
import struct
import sys
import threading
import time
import urllib.request

MIB = 1024 * 1024
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, UNKNOWN = 0, 1, 3, 4, 6, 7, 8, 0xFE
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PAYLOAD = 4000
PADDING = 100_000


# --- protobuf ---------------------------------------------------------------------------------------------------------

def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def num(field, number):
    return varint(field << 3) + varint(number)


def text(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def fields(data):
    """Yields (number, value) for each field; nested messages are bytes."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
        else:
            length = number()
            yield tag >> 3, data[at:at + length]
            at += length


def message(body):
    return b"\0" + struct.pack(">I", len(body)) + body


# --- HTTP/2 -----------------------------------------------------------------------------------------------------------

def block(pairs):
    """HPACK, literals without a table."""
    def string(value):
        length = len(value)
        return (bytes([length]) if length < 127 else b"\x7f" + varint(length - 127)) + value
    return b"".join(b"\0" + string(name) + string(value) for name, value in pairs)


class Http2:
    """A client's connection that keeps to the windows and leaves everything else to who uses it."""

    def __init__(self, port, window):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.writing = threading.Lock()
        self.changed = threading.Condition()
        self.windows = {0: 65535}
        self.initial = 65535
        self.frame_max = 16384
        self.over = False
        self.ready = threading.Event()
        settings = struct.pack(">HIHI", 4, window, 2, 0)
        self.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.head(SETTINGS, 0, 0, settings))
        if window:
            self.write(self.head(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - 1 - 65535)))
        threading.Thread(target=self.read, daemon=True).start()
        assert self.ready.wait(20), "no settings came"

    @staticmethod
    def head(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def write(self, data):
        with self.writing:
            self.socket.sendall(data)

    def headers(self, stream, pairs, flags=END_HEADERS):
        with self.changed:
            self.windows[stream] = self.initial
        self.write(self.head(HEADERS, flags, stream, block(pairs)))

    def data(self, stream, data):
        """Sends one DATA frame, when the windows have room for all of it."""
        with self.changed:
            while min(self.windows[0], self.windows[stream]) < len(data):
                if self.over:
                    raise OSError("the connection is over")
                self.changed.wait(1)
            self.windows[0] -= len(data)
            self.windows[stream] -= len(data)
        self.write(self.head(DATA, 0, stream, data))

    def received(self, stream, data):
        pass

    def read(self):
        stream = self.socket.makefile("rb", 256 * 1024)
        try:
            while True:
                head = stream.read(9)
                if len(head) < 9:
                    break
                length = int.from_bytes(head[:3], "big")
                kind, flags = head[3], head[4]
                number = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
                payload = stream.read(length)
                if kind == SETTINGS and not flags & ACK:
                    with self.changed:
                        for at in range(0, length, 6):
                            name, value = struct.unpack(">HI", payload[at:at + 6])
                            if name == 4:
                                for each in self.windows:
                                    self.windows[each] += value - self.initial if each else 0
                                self.initial = value
                            elif name == 5:
                                self.frame_max = value
                    self.write(self.head(SETTINGS, ACK, 0, b""))
                    self.ready.set()
                elif kind == PING and not flags & ACK:
                    self.write(self.head(PING, ACK, 0, payload))
                elif kind == WINDOW_UPDATE:
                    with self.changed:
                        if number in self.windows:
                            self.windows[number] += int.from_bytes(payload, "big")
                        self.changed.notify_all()
                elif kind == GOAWAY:
                    print(f"GOAWAY {payload[4:8].hex()} {payload[8:].decode(errors='replace')}", file=sys.stderr)
                elif kind == DATA:
                    self.received(number, payload)
        except OSError:
            pass
        with self.changed:
            self.over = True
            self.changed.notify_all()
        self.gone()

    def gone(self):
        pass

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()


# --- the agent --------------------------------------------------------------------------------------------------------

INSTANCE = random.getrandbits(60)


class Link(Http2):
    """One link of the agent: a session's first, or a lane that joins it."""

    def __init__(self, shape, lanes=1, join=None):
        self.shape = shape
        self.unread = bytearray()
        self.sequence = 0
        self.numbering = threading.Lock()
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

    def received(self, stream, data):
        self.unread += data
        while len(self.unread) >= 5:
            length = int.from_bytes(self.unread[1:5], "big")
            if len(self.unread) < 5 + length:
                return
            frame = bytes(self.unread[5:5 + length])
            del self.unread[:5 + length]
            for field, value in fields(frame):
                self.heard(field, value)

    def heard(self, field, value):
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
        elif field == 11:
            # Not between the parts of a message that is cut, and not here: what makes room for them is read here.
            threading.Thread(target=self.answer, args=(message(text(12, value)),), daemon=True).start()

    def answer(self, pong):
        try:
            with self.numbering:
                self.data(1, pong)
        except OSError:
            pass

    def numbered(self, field, body, padding=0):
        self.sequence += 1
        return message(num(1, self.sequence) + text(field, body) + (text(100, bytes(padding)) if padding else b""))

    def say(self, field, body):
        with self.numbering:
            self.data(1, self.numbered(field, body))

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
        body = num(1, channel) + text(2, bytes(length))
        room = self.frame_max - 64
        with self.numbering:
            if self.shape == "padded":
                self.pieces(self.numbered(7, body, min(PADDING, room - length - 64)))
            elif self.shape == "pings":
                ping = message(text(11, num(1, 7)) + text(100, bytes(room - length - 128)))
                self.pieces(self.numbered(7, body) + ping)
            elif self.shape == "beside":
                self.write(self.head(UNKNOWN, 0, 0, bytes(room)))
                self.pieces(self.numbered(7, body))
            elif self.shape == "gone":
                self.pieces(self.numbered(7, num(1, junk) + text(2, bytes(40_000))))
                self.pieces(self.numbered(7, body))
            elif self.shape == "cut":
                whole = self.numbered(7, body, PADDING)
                self.pieces(whole[:len(whole) - room])
                self.pieces(whole[len(whole) - room:])
        self.sent += length

    def pieces(self, data):
        while data:
            self.data(1, data[:self.frame_max])
            data = data[self.frame_max:]


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

def resident():
    with open(f"/proc/{os.environ['GATEWAY_PID']}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def counted():
    """What the gateway says that it holds for the tunnel. What is kept for a resume is part of what is promised."""
    with urllib.request.urlopen(f"http://127.0.0.1:{os.environ['ADMIN']}/metrics") as answer:
        rows = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    return sum(int(float(rows[f"gateway_tunnel_{name}_bytes"])) for name in ("window", "queued"))


def check(holds, what):
    print(("ok " if holds else "FAIL ") + what, flush=True)


def main():
    shape, lanes = sys.argv[1], int(sys.argv[2])
    before = resident()
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
            most = max(most, resident() - before - 2 * counted())
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
            most = max(most, resident() - before - 2 * counted())
            time.sleep(0.1)
        opened = sum(link.opened for link in links)
        check(opened >= streams and sent > streams * 16_000, f"{told}: {sent // 1024} KiB of payload in {opened} channels")
    grown, counts = resident() - before, counted()
    figures = f"{grown / MIB:.0f} MiB more resident, {counts / MIB:.0f} MiB counted"
    check(most <= 32 * MIB, f"{told}: at most twice what is counted and 32 MiB ({figures})")
    for connection in users + links:
        connection.close()


main()
