"""The tunnel by hand: protobuf, HPACK and HTTP/2 as plain bytes, so that an end of it can break every rule but the windows; and what
that costs the other end. For hostile_agent.py and hostile_gateway.py."""

import socket
import struct
import sys
import threading

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, UNKNOWN = 0, 1, 3, 4, 6, 7, 8, 0xFE
END_STREAM, END_HEADERS, ACK = 1, 4, 1
MIB = 1024 * 1024
PAYLOAD = 4000
PADDING = 100_000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


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
    """A connection that keeps to the windows and leaves everything else to its user: a client's to `port`, or a server's on
    `accepted`."""

    def __init__(self, port, window, accepted=None):
        self.socket = accepted or socket.create_connection(("127.0.0.1", port))
        self.skip = len(PREFACE) if accepted else 0
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.writing = threading.Lock()
        self.changed = threading.Condition()
        self.windows = {0: 65535}
        self.initial = 65535
        self.frame_max = 16384
        self.over = False
        self.ready = threading.Event()
        settings = struct.pack(">HIHI", 4, window, 2, 0)
        self.write((b"" if accepted else PREFACE) + self.head(SETTINGS, 0, 0, settings))
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
            stream.read(self.skip)
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


# --- frames -----------------------------------------------------------------------------------------------------------

class End(Http2):
    """One end of a session on one link, in stream 1. Each frame that comes is given to `observe`, but for pings."""

    def __init__(self, port, window, accepted=None):
        self.unread = bytearray()
        self.sequence = 0
        self.numbering = threading.Lock()
        super().__init__(port, window, accepted)

    def received(self, stream, data):
        self.unread += data
        while len(self.unread) >= 5:
            length = int.from_bytes(self.unread[1:5], "big")
            if len(self.unread) < 5 + length:
                return
            frame = bytes(self.unread[5:5 + length])
            del self.unread[:5 + length]
            for field, value in fields(frame):
                if field == 11:
                    # Not between the parts of a message that is cut, and not here: what makes room for them is read here.
                    threading.Thread(target=self.answer, args=(message(text(12, value)),), daemon=True).start()
                else:
                    self.observe(field, value)

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

    def pieces(self, data):
        while data:
            self.data(1, data[:self.frame_max])
            data = data[self.frame_max:]

    def payload(self, shape, channel, length):
        """Sends so much payload in a shape that costs its reader more than that."""
        body = num(1, channel) + text(2, bytes(length))
        room = self.frame_max - 64
        with self.numbering:
            if shape == "padded":
                self.pieces(self.numbered(7, body, min(PADDING, room - length - 64)))
            elif shape == "pings":
                ping = message(text(11, num(1, 7)) + text(100, bytes(room - length - 128)))
                self.pieces(self.numbered(7, body) + ping)
            elif shape == "beside":
                self.write(self.head(UNKNOWN, 0, 0, bytes(room)))
                self.pieces(self.numbered(7, body))
            elif shape == "cut":
                whole = self.numbered(7, body, PADDING)
                self.pieces(whole[:len(whole) - room])
                self.pieces(whole[len(whole) - room:])
            else:
                self.pieces(self.numbered(7, body))


# --- what it costs ----------------------------------------------------------------------------------------------------

def resident(pid):
    """Returns the resident memory of a process, in bytes."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def check(holds, what):
    print(("ok " if holds else "FAIL ") + what, flush=True)
