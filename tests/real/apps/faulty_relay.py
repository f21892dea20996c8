"""Carries connections to 127.0.0.1:TARGET, well or badly, as the file MODE says at the time:

    pass   everything
    drop   nothing, and nobody is told: what is said on connections of that time is lost, and they stay silent for ever
    slow   what the target says, five seconds late
    late   the same, a tenth of a second
    mute   what is said to the target; what it says is lost, and is missing for ever
    deaf   the other way round

    faulty_relay.py LISTEN TARGET MODE
"""

import asyncio
import sys

LATE = {"slow": 5, "late": 0.1}


def mode():
    with open(sys.argv[3], encoding="ascii") as file:
        return file.read().strip()


class Carried:
    """One connection. Bytes that were dropped are missing, so that nothing after them may come."""

    def __init__(self):
        self.silent = {True: False, False: False}

    async def pump(self, reader, writer, of_target):
        while data := await reader.read(65536):
            now = mode()
            if now == "drop":
                self.silent = {True: True, False: True}
            if now in ("mute", "deaf"):
                self.silent[now == "mute"] = True
            if self.silent[of_target]:
                continue
            if of_target and now in LATE:
                await asyncio.sleep(LATE[now])
            writer.write(data)
            await writer.drain()
        if not self.silent[of_target]:
            writer.close()


async def carry(near_in, near_out, target):
    carried = Carried()
    try:
        far_in, far_out = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(carried.pump(near_in, far_out, False), carried.pump(far_in, near_out, True))
    except OSError:
        near_out.close()


async def main():
    listen, target = int(sys.argv[1]), int(sys.argv[2])
    server = await asyncio.start_server(lambda *ends: carry(*ends, target), "127.0.0.1", listen)
    await server.serve_forever()


asyncio.run(main())
