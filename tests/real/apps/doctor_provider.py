"""Servers whose clock is ten minutes late, or whose program is of another version.

    doctor_provider.py provider PORT     an OpenID provider, as far as a gateway asks it without a user
    doctor_provider.py gateway PORT      the listener for the operator of a gateway of version 0.0.9
"""

import email.utils
import http.server
import json
import sys
import time

LATE = 600
ROLE, PORT = sys.argv[1], int(sys.argv[2])
ISSUER = f"http://127.0.0.1:{PORT}"
DOCUMENTS = {
    "/.well-known/openid-configuration": {
        "issuer": ISSUER,
        "jwks_uri": f"{ISSUER}/jwks",
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
    },
    "/jwks": {"keys": []},
    "/debug/sessions": [{"workspace": "old", "agent_version": "0.0.9"}],
}
METRICS = 'gateway_build_info{version="0.0.9"} 1\nprocess_max_fds 20000\n'


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate(time.time() - (LATE if ROLE == "provider" else 0), usegmt=True)

    def reply(self, status, text):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        if self.path == "/metrics":
            self.reply(200, METRICS)
        elif self.path in DOCUMENTS:
            self.reply(200, json.dumps(DOCUMENTS[self.path]))
        else:
            self.reply(404, "{}")

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.reply(400, json.dumps({"error": "invalid_grant"}))


http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
