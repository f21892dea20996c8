"""A gRPC server on grpcio with raw bytes instead of generated code: one method of each kind, and ways to fail.

    grpc_server.py PORT [CALLS_AT_ONCE]
"""

import json
import sys
import threading
import time
from concurrent import futures

import grpc

# What became of calls of Sleep, by the name that the client gave them: "sleeps", or after how many seconds the server learned that the
# client had gone, or nothing if it never did.
SLEEPERS = {}
LOCK = threading.Lock()
# Set as soon as a client has seen the first message of a stream.
FIRST_SEEN = threading.Event()


def metadata(context):
    return {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}


def unary(request, context):
    context.send_initial_metadata((("app-initial", "early"),))
    context.set_trailing_metadata((("app-trailer", "late"), ("app-bytes-bin", b"\x00\xff\x80")))
    return request[::-1]


def seen(_request, context):
    """What arrived besides the message: metadata and the time that is left."""
    return json.dumps({"metadata": metadata(context), "remaining": context.time_remaining()}).encode()


def count_up(request, context):
    """Server streaming: as many messages as asked for, `size` bytes each; `held`: none behind the first before that was seen."""
    wish = json.loads(request)
    for number in range(wish["count"]):
        if number == 1 and wish.get("held") and not FIRST_SEEN.wait(30):
            return
        yield number.to_bytes(4, "big") + b"x" * (wish.get("size", 4) - 4)


def first_seen(_request, _context):
    FIRST_SEEN.set()
    return b""


def add_up(requests, context):
    """Client streaming: the number of messages and of bytes."""
    count = size = 0
    for request in requests:
        count += 1
        size += len(request)
    return json.dumps({"count": count, "size": size}).encode()


def echo(requests, context):
    """Bidirectional: each message is answered before the next one is read."""
    for request in requests:
        yield b"re:" + request


def refuse(_request, context):
    context.set_trailing_metadata((("app-trailer", "why"), ("grpc-status-details-bin", b"\x08\x09\x12\x03why")))
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now: déjà vu, 100% sure\nsecond line")


def refuse_midway(_request, context):
    yield b"one"
    yield b"two"
    context.set_trailing_metadata((("app-trailer", "midway"),))
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "after two messages")


def sleep(request, context):
    """Waits until the client has gone or ten seconds have passed; remembers how long after the start it was told."""
    name, started, gone = request.decode(), time.monotonic(), threading.Event()
    context.add_callback(gone.set)
    with LOCK:
        SLEEPERS[name] = "sleeps"
    gone.wait(10)
    with LOCK:
        SLEEPERS[name] = time.monotonic() - started if gone.is_set() else None
    return b"slept"


def slept(request, _context):
    with LOCK:
        return json.dumps(SLEEPERS.get(request.decode(), "unknown")).encode()


METHODS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Seen": grpc.unary_unary_rpc_method_handler(seen),
    "CountUp": grpc.unary_stream_rpc_method_handler(count_up),
    "FirstSeen": grpc.unary_unary_rpc_method_handler(first_seen),
    "AddUp": grpc.stream_unary_rpc_method_handler(add_up),
    "Echo": grpc.stream_stream_rpc_method_handler(echo),
    "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
    "RefuseMidway": grpc.unary_stream_rpc_method_handler(refuse_midway),
    "Sleep": grpc.unary_unary_rpc_method_handler(sleep),
    "Slept": grpc.unary_unary_rpc_method_handler(slept),
}


def main():
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=int(sys.argv[2]) if len(sys.argv) > 2 else 64),
        options=[("grpc.max_receive_message_length", 64 << 20), ("grpc.so_reuseport", 0)],
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("real.Parts", METHODS),))
    if server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}") == 0:
        sys.exit("the port is taken")
    server.start()
    server.wait_for_termination()


main()
