"""Carries connections to 127.0.0.1:TARGET. SIGUSR1 breaks all that there are: both ends see a reset.

    relay.py LISTEN TARGET
"""

import asyncio
import signal
import socket
import struct
import sys

LINGER = struct.pack("ii", 1, 0)
open_now = set()


async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def carry(near_in, near_out, target):
    far_in, far_out = await asyncio.open_connection("127.0.0.1", target)
    both = (near_out, far_out)
    for writer in both:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    open_now.add(both)
    try:
        await asyncio.gather(pump(near_in, far_out), pump(far_in, near_out))
    except OSError:
        pass
    finally:
        open_now.discard(both)
        for writer in both:
            writer.close()


def cut():
    for both in list(open_now):
        for writer in both:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
            writer.transport.abort()


async def main():
    listen, target = int(sys.argv[1]), int(sys.argv[2])
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, cut)
    server = await asyncio.start_server(lambda *ends: carry(*ends, target), "127.0.0.1", listen)
    await server.serve_forever()


asyncio.run(main())
