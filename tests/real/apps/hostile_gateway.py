"""A gateway that speaks the tunnel by hand, and apps that do not read or never stop to write: how much memory do they cost the agent of
a workspace, and how much has it been allowed?

  hostile_gateway.py SHAPE   prints `ok TEXT` and `FAIL TEXT`, one line for each check

  padded, pings, beside, cut    payload for apps that do not read, as in hostile_agent.py
  opens                         channels with a full first payload each, and no end of them
  kept                          credit without end for what apps write, and nothing acknowledged
  queued                        no credit at all for what apps write

From the environment: AGENT (the program), AGENT_TOKEN_FILE, BUDGET (of the agent, in MiB), CHANNELS.
"""

import os
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time

from tunnel_by_hand import MIB, PAYLOAD, End, check, fields, message, num, resident, text

OPEN_CREDIT = 16 * 1024
# Larger than any that an agent lets itself be told.
CHANNELS_ANNOUNCED = 1 << 20
CREDIT_MAX = (1 << 31) - 1
OVERLOADED = 6


class Gateway(End):
    """The gateway's end of one link."""

    def __init__(self, accepted):
        self.due = threading.Condition()
        self.hello = threading.Event()
        self.accepted = 0
        self.refused = {}
        self.credit = {}
        self.sent = self.came = 0
        super().__init__(None, CREDIT_MAX, accepted)

    def welcome(self):
        self.headers(1, [(b":status", b"200"), (b"content-type", b"application/grpc")])
        assert self.hello.wait(20), "no hello came"
        limits = num(1, CHANNELS_ANNOUNCED) + num(2, 65536)
        said = num(1, 1) + text(2, b"resume") + num(3, 1) + num(4, 1) + text(5, limits) + num(6, 600_000) + num(7, 600_000)
        said += text(8, bytes(32)) + text(9, b"mine") + num(10, 30_000)
        self.data(1, message(text(4, said)))

    def observe(self, field, value):
        with self.due:
            if field == 3:
                self.hello.set()
            elif field == 6:
                said = dict(fields(value))
                self.accepted += 1
                self.credit[said[1]] = self.credit.get(said[1], 0) + said.get(2, 0)
            elif field == 7:
                self.came += len(dict(fields(value)).get(2, b""))
            elif field == 9:
                said = dict(fields(value))
                reason = said.get(2, 0)
                self.refused[reason] = self.refused.get(reason, 0) + 1
                self.credit.pop(said[1], None)
            elif field == 10:
                for _, grant in fields(value):
                    grant = dict(fields(grant))
                    if grant[1] in self.credit:
                        self.credit[grant[1]] += grant[2]
            self.due.notify_all()

    def open(self, channel, port, credit, payload=b""):
        self.say(5, num(1, channel) + num(2, port) + num(3, credit) + (text(4, payload) if payload else b""))

    def fill(self, shape):
        """Sends into every window as much as there is credit for."""
        while not self.over:
            with self.due:
                ready = [(channel, credit) for channel, credit in self.credit.items() if credit >= PAYLOAD]
                if not ready:
                    self.due.wait(1)
                    continue
            for channel, credit in ready:
                try:
                    for _ in range(credit // PAYLOAD):
                        self.payload(shape, channel, PAYLOAD)
                        self.sent += PAYLOAD
                        with self.due:
                            self.credit[channel] -= PAYLOAD
                except (OSError, KeyError):
                    break


# --- apps -------------------------------------------------------------------------------------------------------------

def app(writes):
    """Takes every connection and never reads; one that writes does not stop. Returns its port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)

    def serve():
        chosen = selectors.DefaultSelector()
        chosen.register(listener, selectors.EVENT_READ)
        held = []
        while True:
            for key, _ in chosen.select():
                try:
                    if key.fileobj is not listener:
                        key.fileobj.send(bytes(16 * 1024))
                        continue
                    connection, _ = listener.accept()
                    held.append(connection)
                    connection.setblocking(False)
                    if writes:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
                        chosen.register(connection, selectors.EVENT_WRITE)
                except BlockingIOError:
                    pass
                except OSError:
                    chosen.unregister(key.fileobj)

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def main():
    shape, budget, channels = sys.argv[1], int(os.environ["BUDGET"]) * MIB, int(os.environ["CHANNELS"])
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    port = app(shape in ("kept", "queued"))
    listener = socket.create_server(("127.0.0.1", 0))
    command = [os.environ["AGENT"], "run", "--gateway", f"http://127.0.0.1:{listener.getsockname()[1]}", "--lanes", "1",
               "--token-file", os.environ["AGENT_TOKEN_FILE"], "--memory-budget", f"{budget // MIB}MiB"]
    agent = subprocess.Popen(command, stdout=sys.stderr)
    try:
        listener.settimeout(20)
        gateway = Gateway(listener.accept()[0])
        gateway.welcome()
        time.sleep(1)
        before, most = resident(agent.pid), 0
        credit = CREDIT_MAX if shape == "kept" else 0
        first = bytes(OPEN_CREDIT) if shape == "opens" else b""

        def work():
            try:
                for channel in range(1, channels + 1):
                    gateway.open(channel, port, credit, first)
                if shape in ("padded", "pings", "beside", "cut"):
                    gateway.fill(shape)
            except OSError as error:
                print(f"{shape}: {error}", file=sys.stderr)

        threading.Thread(target=work, daemon=True).start()
        deadline, calm, last = time.monotonic() + 60, 0, None
        while calm < 20 and time.monotonic() < deadline and agent.poll() is None:
            now = (gateway.sent, gateway.came, gateway.accepted, sum(gateway.refused.values()))
            calm = calm + 1 if now == last and any(now) else 0
            last = now
            most = max(most, resident(agent.pid) - before)
            time.sleep(0.1)
        check(agent.poll() is None and not gateway.over, f"agent, {shape}: it is up, and so is its session")
        figures = (f"{gateway.accepted} channels, refused {gateway.refused}, {gateway.sent // 1024} KiB sent, {gateway.came // 1024} KiB came, "
                   f"{most / MIB:.0f} MiB more resident")
        check(gateway.accepted > 0 and set(gateway.refused) <= {OVERLOADED}, f"agent, {shape}: what cannot be kept is refused by name ({figures})")
        check(most <= 2 * budget + 32 * MIB, f"agent, {shape}: at most twice the budget and 32 MiB ({figures})")
    finally:
        agent.terminate()
        agent.wait(20)


main()
