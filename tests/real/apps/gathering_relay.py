"""Passes on what a client sends only when it has been quiet for a moment, and then all of it at once; what comes back goes on as it
comes. A server behind it sees frames together that were written one after the other, and not the first of them alone.

  gathering_relay.py LISTEN TARGET MILLISECONDS   ports of this machine
"""

import asyncio
import sys

LISTEN, TARGET, QUIET = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) / 1000


async def gathered(reader, writer):
    held = b""
    while True:
        data = None
        # In ten turns, so that a machine that stood still for a moment is not taken for a client that is quiet.
        for _ in range(10):
            try:
                data = await asyncio.wait_for(reader.read(65536), QUIET / 10 if held else None)
                break
            except TimeoutError:
                pass
        if data:
            held += data
            continue
        writer.write(held)
        held = b""
        await writer.drain()
        if data == b"":
            break
    writer.write_eof()


async def as_it_comes(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def relay(reader, writer):
    try:
        from_target, to_target = await asyncio.open_connection("127.0.0.1", TARGET)
    except OSError:
        writer.close()
        return
    ways = (gathered(reader, to_target), as_it_comes(from_target, writer))
    # A connection that is reset in one direction is over in both.
    ways = [asyncio.create_task(way) for way in ways]
    await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
    for way in ways:
        way.cancel()
    await asyncio.gather(*ways, return_exceptions=True)
    to_target.close()
    writer.close()


async def main():
    server = await asyncio.start_server(relay, "127.0.0.1", LISTEN)
    await server.serve_forever()


asyncio.run(main())
