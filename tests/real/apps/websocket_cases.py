"""Runs cases of the Autobahn testsuite as a client, against one WebSocket echo; for Python 2.7. Into a folder go its reports, and
answers.json: how many bytes followed the handshake in each case, and their SHA-256.

    websocket_cases.py PACKAGES OUT_FOLDER URL PORT CASES

It connects to PORT of this machine, whatever host the URL names. The user's token is read from REAL_USER_TOKEN.
"""

import hashlib
import json
import os
import site
import sys
import types
import warnings

warnings.simplefilter("ignore")
packages, out, url, port, cases = sys.argv[1:]
# pip's --target leaves the namespace of zope to the files that Python reads in such folders only.
site.addsitedir(packages)
# The package's own command line brings in parts that are about other protocols, with packages of theirs.
sys.modules["autobahntestsuite.wstest"] = types.ModuleType("wstest")

from autobahntestsuite import fuzzing  # noqa: E402
from twisted.internet import reactor  # noqa: E402

token = os.environ.get("REAL_USER_TOKEN")
connect = reactor.connectTCP
reactor.connectTCP = lambda _host, _port, *more: connect("127.0.0.1", int(port), *more)
answers = {}
# Its own limits are a second, which this machine may sleep through; a case ends before them if all is well. The longer waits within
# cases stay as they are.
PATIENCE = 20


class Answer:
    """What came in one case, behind the handshake."""

    def __init__(self):
        self.head = b""
        self.length = 0
        self.hash = hashlib.sha256()

    def add(self, data):
        if self.head is not None:
            self.head, end, data = (self.head + data).partition(b"\r\n\r\n")
            if not end:
                return
            self.head = None
        self.length += len(data)
        self.hash.update(data)


def patient(limit):
    return lambda delay: limit(delay * PATIENCE)


class Client(fuzzing.FuzzingClientFactory):
    def setSessionParameters(self, *first, **more):
        if token and "url" in more:
            more["headers"] = {"gateway-authorization": "Bearer " + token}
        fuzzing.FuzzingClientFactory.setSessionParameters(self, *first, **more)

    def buildProtocol(self, address):
        protocol = fuzzing.FuzzingClientFactory.buildProtocol(self, address)
        answer = answers[self.currentCaseId] = Answer()
        take = protocol.dataReceived

        def received(data):
            answer.add(data)
            take(data)

        protocol.dataReceived = received
        for limit in ("killAfter", "closeAfter"):
            setattr(protocol, limit, patient(getattr(protocol, limit)))
        return protocol


Client(
    {
        "outdir": out,
        "options": {"openHandshakeTimeout": 60, "closeHandshakeTimeout": 30, "serverConnectionDropTimeout": 30},
        "servers": [{"agent": "app", "url": url}],
        "cases": json.loads(cases),
        "exclude-cases": [],
        "exclude-agent-cases": {},
    }
)
reactor.run()
with open(os.path.join(out, "answers.json"), "w") as file:
    json.dump({case: [answer.length, answer.hash.hexdigest()] for case, answer in answers.items()}, file)
