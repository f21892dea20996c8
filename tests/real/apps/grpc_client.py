"""Calls every method of grpc_server.py and prints a check a line. With --direct, the same calls also go straight to the
server, and what a client sees must be the same both ways.

    grpc_client.py --target 127.0.0.1:8080 --authority 50051-demo.localhost:8080 --token-env USER_TOKEN --direct 127.0.0.1:50051
"""

import argparse
import json
import os
import sys
import threading
import time

import grpc

FAILED = 0


def check(text, holds, otherwise=""):
    global FAILED
    if holds:
        print(f"ok {text}", flush=True)
    else:
        FAILED += 1
        said = " ".join(str(otherwise).split())[:300]
        print(f"FAIL {text}: {said}", flush=True)


class Peer:
    """One way to the server."""

    def __init__(self, target, authority=None, token=None):
        options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.enable_http_proxy", 0)]
        if authority:
            options.append(("grpc.default_authority", authority))
        self.channel = grpc.insecure_channel(target, options=options)
        self.metadata = (("gateway-authorization", f"Bearer {token}"),) if token else ()

    def _call(self, kind, method, request, timeout=20, metadata=()):
        return getattr(self.channel, kind)(f"/real.Parts/{method}")(
            request, timeout=timeout, metadata=self.metadata + tuple(metadata)
        )

    def unary(self, method, request=b"", **more):
        return self._call("unary_unary", method, request, **more)

    def future(self, method, request=b"", timeout=20):
        return self.channel.unary_unary(f"/real.Parts/{method}").future(request, timeout=timeout, metadata=self.metadata)

    def server_stream(self, method, request=b"", **more):
        return self._call("unary_stream", method, request, **more)

    def client_stream(self, method, requests, **more):
        return self._call("stream_unary", method, requests, **more)

    def both(self, method, requests, **more):
        return self._call("stream_stream", method, requests, **more)


def pairs(metadata):
    """Metadata that the app chose; what a stack adds on its own is not compared."""
    return sorted((key, value if isinstance(value, str) else value.hex()) for key, value in metadata or () if key.startswith(("app-", "grpc-status-details")))


def failure(error):
    return {"code": error.code().name, "details": error.details(), "trailers": pairs(error.trailing_metadata())}


def unary(peer):
    reply, call = peer.channel.unary_unary("/real.Parts/Unary").with_call(b"abc" * 100, timeout=20, metadata=peer.metadata)
    return {"reply": reply.hex(), "initial": pairs(call.initial_metadata()), "trailers": pairs(call.trailing_metadata()), "code": call.code().name}


def empty(peer):
    return peer.unary("Unary", b"").hex()


def large(peer):
    body = os.urandom(1 << 20) * 3
    return peer.unary("Unary", body) == body[::-1]


def server_streaming(peer):
    got = list(peer.server_stream("CountUp", json.dumps({"count": 1000, "size": 10_000}).encode()))
    return {"count": len(got), "in_order": all(int.from_bytes(m[:4], "big") == at for at, m in enumerate(got)), "sizes": sorted({len(m) for m in got})}


def client_streaming(peer):
    return json.loads(peer.client_stream("AddUp", (b"y" * 5_000 for _ in range(1000))))


def ping_pong(peer):
    """Each message waits for the answer to the one before: only a tunnel that carries both ways at once gets through."""
    answered = threading.Semaphore(1)

    def requests():
        for number in range(100):
            if not answered.acquire(timeout=10):
                return
            yield str(number).encode()

    got = []
    for message in peer.both("Echo", requests()):
        got.append(message)
        answered.release()
    return got == [f"re:{number}".encode() for number in range(100)] or len(got)


def error_status(peer):
    try:
        peer.unary("Refuse")
    except grpc.RpcError as error:
        return failure(error)
    return "no error"


def error_midway(peer):
    got = []
    try:
        for message in peer.server_stream("RefuseMidway"):
            got.append(message.decode())
    except grpc.RpcError as error:
        return {"got": got, **failure(error)}
    return "no error"


def no_such_method(peer):
    try:
        peer.unary("Nothing")
    except grpc.RpcError as error:
        return {"code": error.code().name}
    return "no error"


def interleaved(peer):
    """Forty calls at once on one connection."""
    calls = [peer.future("Unary", str(number).encode() * 1000) for number in range(40)]
    return all(call.result() == str(number).encode()[::-1] * 1000 for number, call in enumerate(calls))


SAME = {
    "a unary call with initial metadata and trailers": (unary, None),
    "an empty message": (empty, ""),
    "a message of 3 MiB each way": (large, True),
    "server streaming: 1000 messages in order": (server_streaming, {"count": 1000, "in_order": True, "sizes": [10_000]}),
    "client streaming: 1000 messages": (client_streaming, {"count": 1000, "size": 5_000_000}),
    "bidirectional ping-pong, 100 messages": (ping_pong, True),
    "an error status with details and trailers": (error_status, None),
    "an error in the middle of a stream": (error_midway, None),
    "a method that does not exist": (no_such_method, {"code": "UNIMPLEMENTED"}),
    "forty calls at once": (interleaved, True),
}


def attempt(story, peer):
    try:
        return story(peer)
    except grpc.RpcError as error:
        return f"{error.code()} {error.details()}"


def compare(peer, direct):
    for text, (story, want) in SAME.items():
        got = attempt(story, peer)
        reference = attempt(story, direct) if direct else got
        if got != reference:
            check(text, False, f"direct {reference!r}, here {got!r}")
        else:
            check(text, want is None and not isinstance(got, str) or got == want, repr(got))


def first_message_is_not_held_back(peer):
    """The server sends no second message before it hears that the first one was seen."""
    stream = peer.server_stream("CountUp", json.dumps({"count": 4, "held": True}).encode(), timeout=60)
    try:
        next(stream)
        peer.unary("FirstSeen")
        got = 1 + len(list(stream))
    except grpc.RpcError as error:
        got = error.code().name
    check("streamed messages arrive one by one", got == 4, got)


def becomes(peer, name, *passing):
    """What became of a sleeping call, once it is none of what passes."""
    for _ in range(300):
        answer = json.loads(peer.unary("Slept", name.encode()))
        if answer not in passing:
            return answer
        time.sleep(0.1)
    return f"for ever {answer}"


# A call that nothing ends sleeps for 10 s.
AWAKE = 8


def deadline(peer):
    began = time.monotonic()
    try:
        # Long enough to get there.
        peer.unary("Sleep", b"deadline", timeout=3)
        code = "OK"
    except grpc.RpcError as error:
        code = error.code().name
    took = time.monotonic() - began
    check("a deadline ends the call in time", code == "DEADLINE_EXCEEDED" and took < AWAKE, f"{code} after {took:.2f} s")
    after = becomes(peer, "deadline", "sleeps")
    check("the server learns of the deadline", isinstance(after, float) and after < AWAKE, after)


def cancel(peer):
    call = peer.future("Sleep", b"cancel")
    begun = becomes(peer, "cancel", "unknown")
    call.cancel()
    after = becomes(peer, "cancel", "sleeps")
    check("the server learns of a cancelled call", begun == "sleeps" and isinstance(after, float) and after < AWAKE, f"{begun}, then {after}")


def arrives(peer, authority, token):
    got = json.loads(peer.unary("Seen", timeout=60, metadata=(("app-key", "value"),)))
    check("the deadline reaches the server", got["remaining"] is not None and 30 < got["remaining"] < 60.2, got["remaining"])
    check("the app's metadata reaches the server", got["metadata"].get("app-key") == "value", got)
    leaked = [key for key, value in got["metadata"].items() if key == "gateway-authorization" or (token and token in value)]
    check("the gateway's token does not reach the server", not leaked, leaked)


def strangers(target, authority):
    """Without a token: a refusal that a gRPC client understands, not a web page."""
    try:
        Peer(target, authority).unary("Unary", b"x", timeout=5)
        got = "OK"
    except grpc.RpcError as error:
        got = error.code().name
    check("without a token a gRPC client is told UNAUTHENTICATED", got == "UNAUTHENTICATED", got)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--authority")
    parser.add_argument("--token-env")
    parser.add_argument("--direct")
    arguments = parser.parse_args()
    token = os.environ.get(arguments.token_env) if arguments.token_env else None
    peer = Peer(arguments.target, arguments.authority, token)
    compare(peer, Peer(arguments.direct) if arguments.direct else None)
    first_message_is_not_held_back(peer)
    arrives(peer, arguments.authority, token)
    deadline(peer)
    cancel(peer)
    check("the connection is still good afterwards", attempt(empty, peer) == "", attempt(empty, peer))
    if token:
        strangers(arguments.target, arguments.authority)
    sys.exit(1 if FAILED else 0)


main()
