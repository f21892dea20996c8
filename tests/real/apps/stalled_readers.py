"""An app that never ends its answer, and users who ask for it, read a little and then nothing; after a while they leave.

  stalled_readers.py PORT COUNT SECONDS   prints `stalled` when nothing moves any more, and ends when they have left

From the environment: PUBLIC, HOST (the authority of the app's port), USER_TOKEN.
"""

import asyncio
import os
import sys

PORT, COUNT, SECONDS = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
SENT = 0


async def endless(reader, writer):
    global SENT
    try:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1099511627776\r\n\r\n")
        while True:
            writer.write(bytes(64 * 1024))
            await writer.drain()
            SENT += 64 * 1024
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def user():
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["PUBLIC"]), limit=1024)
    writer.write(f"GET / HTTP/1.1\r\nhost: {os.environ['HOST']}\r\ngateway-authorization: Bearer {os.environ['USER_TOKEN']}\r\n\r\n".encode())
    status = await reader.readline()
    assert b" 200 " in status, status
    writer.transport.pause_reading()
    return writer


async def main():
    await asyncio.start_server(endless, "127.0.0.1", PORT, backlog=4096)
    users = []
    for _ in range(0, COUNT, 50):
        users += await asyncio.gather(*(user() for _ in range(min(50, COUNT - len(users)))))
    before, calm = -1, 0
    while calm < 3:
        await asyncio.sleep(1)
        calm = calm + 1 if SENT == before else 0
        before = SENT
    print(f"stalled after {SENT // 2**20} MiB", flush=True)
    await asyncio.sleep(SECONDS)
    # All of them at once.
    os._exit(0)


asyncio.run(main())
