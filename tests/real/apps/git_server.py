"""A git server that wants a credential: git's own `git http-backend` behind HTTP basic, and a small token endpoint of OAuth.

    git_server.py FOLDER ADDRESS KIND PORT [KIND PORT …]

KIND is `open` (no credential), `basic` (user `ann`, password of the variable BASIC_PASSWORD) or `oauth` (user `oauth2`, an access token as password). The token
endpoint of the latter is /oauth/token: it exchanges each refresh token once, for an access token that is good for ACCESS_SECONDS and a
new refresh token, and ends everything if one comes twice. POST /oauth/end ends the present one. What happens is on standard output,
without secrets.
"""

import base64
import http.server
import json
import os
import secrets
import subprocess
import sys
import threading
import time
import urllib.parse

CLIENT = ("gateway", os.environ.get("CLIENT_SECRET", ""))
ACCESS_SECONDS = int(os.environ.get("ACCESS_SECONDS", "8"))

lock = threading.Lock()
refresh = os.environ.get("REFRESH_TOKEN")
used = set()
access = {}


def say(*words):
    print(*words, flush=True)


def exchange(form):
    """Answers the token endpoint: a status and a document."""
    global refresh
    if (form.get("client_id"), form.get("client_secret")) != CLIENT:
        return 401, {"error": "invalid_client"}
    with lock:
        given = form.get("refresh_token")
        if given in used:
            say("REUSED")
            refresh = None
            access.clear()
        if refresh is None or given != refresh:
            say("exchange refused")
            return 400, {"error": "invalid_grant"}
        used.add(given)
        refresh = "refresh-" + secrets.token_hex(12)
        token = "access-" + secrets.token_hex(12)
        access[token] = time.monotonic() + ACCESS_SECONDS
        say("exchanged")
        return 200, {"access_token": token, "refresh_token": refresh, "token_type": "Bearer", "expires_in": ACCESS_SECONDS}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def allowed(self):
        if self.server.kind == "open":
            return True
        words = self.headers.get("Authorization", "").split(" ")
        if len(words) != 2 or words[0] != "Basic":
            return False
        user, _, password = base64.b64decode(words[1]).decode().partition(":")
        if self.server.kind == "basic":
            return (user, password) == ("ann", os.environ["BASIC_PASSWORD"])
        with lock:
            return user == "oauth2" and access.get(password, 0) > time.monotonic()

    def answer(self, status, body, kind="text/plain", more=()):
        self.send_response(status)
        for name, value in [("Content-Type", kind), ("Content-Length", str(len(body))), *more]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def read(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while length := int(self.rfile.readline(), 16):
                body += self.rfile.read(length)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def do_POST(self):
        global refresh
        body = self.read()
        if self.path == "/oauth/token" and self.server.kind == "oauth":
            status, document = exchange(dict(urllib.parse.parse_qsl(body.decode())))
            return self.answer(status, json.dumps(document).encode(), "application/json")
        if self.path == "/oauth/end" and self.server.kind == "oauth":
            with lock:
                refresh = None
                access.clear()
            return self.answer(200, b"")
        return self.backend(body)

    def do_GET(self):
        self.backend(b"")

    def backend(self, body):
        if not self.allowed():
            say(self.server.kind, "401")
            return self.answer(401, b"who are you?\n", more=[("WWW-Authenticate", 'Basic realm="git"')])
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": sys.argv[1],
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "someone",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, stdout=subprocess.PIPE, check=False)
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        status, kind, more = 200, "text/plain", []
        for line in head.decode().splitlines():
            name, _, value = line.partition(": ")
            if name.lower() == "status":
                status = int(value.split()[0])
            elif name.lower() == "content-type":
                kind = value
            elif name.lower() not in ("content-length", "connection"):
                more.append((name, value))
        self.answer(status, rest, kind, more)


def main():
    pairs = list(zip(sys.argv[3::2], sys.argv[4::2]))
    for kind, port in pairs:
        server = http.server.ThreadingHTTPServer((sys.argv[2], int(port)), Handler)
        server.kind = kind
        threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Event().wait()


main()
