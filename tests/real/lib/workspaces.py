"""What the programs of the Kubernetes suites share: the gateway's API, the cluster's API, checks. Standard library only."""

import http.client
import json
import os
import signal
import ssl
import subprocess
import threading
import time

LABEL = "workspace-gateway.dev/workspace"
DEVFILE = """schemaVersion: 2.2.0
components:
  - name: main
    attributes: {gateway/inject-editor: true}
    container:
      image: example.net/ready:1
"""


def check(text, good, why=""):
    print(f"ok {text}" if good else f"FAIL {text}: {why}")
    return good


def note(text):
    print(f"note {text}")


class Process:
    """A program that is killed and started again; what it says is kept in a log."""

    def __init__(self, command, log):
        self.command, self.child = command, None
        self.log = open(log, "ab")

    def start(self):
        self.child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def kill(self):
        """Kills it; what it had ended with by itself, if it had."""
        ended = self.child.poll()
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        return ended


class Refused(Exception):
    """An answer other than 2xx."""

    def __init__(self, status, body):
        super().__init__(f"{status} {body[:300]!r}")
        self.status, self.body = status, body


class Caller:
    """JSON over one connection for each thread, which is made again when it broke."""

    def __init__(self, make, headers):
        self.make, self.headers, self.local = make, headers, threading.local()

    def __call__(self, method, path, body=None, content="application/json"):
        data = None if body is None else json.dumps(body)
        headers = dict(self.headers)
        if data is not None:
            headers["content-type"] = content
        try:
            try:
                answer, text = self.send(method, path, data, headers)
            except (http.client.RemoteDisconnected, ConnectionError):
                # A server closes a connection that was idle for long, as this is asked for.
                if self.local.is_new or method not in ("GET", "DELETE"):
                    raise
                self.local.connection.close()
                self.local.connection = None
                answer, text = self.send(method, path, data, headers)
        except (OSError, http.client.HTTPException):
            connection = getattr(self.local, "connection", None)
            self.local.connection = None
            if connection:
                connection.close()
            raise
        if not 200 <= answer.status < 300:
            raise Refused(answer.status, text)
        return json.loads(text) if text else None

    def send(self, method, path, data, headers):
        connection = getattr(self.local, "connection", None)
        self.local.is_new = connection is None
        if connection is None:
            connection = self.local.connection = self.make()
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        return answer, answer.read()


class Gateway:
    """The gateway's API as a user."""

    def __init__(self, port=None, token=None):
        port = int(port or os.environ["REAL_PUBLIC_PORT"])
        headers = {"authorization": f"Bearer {token or os.environ['REAL_USER_TOKEN']}", "host": f"localhost:{port}"}
        call = Caller(lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=20), headers)
        self.call = lambda method, path, body=None: call(method, f"/api/v1{path}", body)

    def create(self, cluster, name, devfile=DEVFILE):
        return self.call("POST", "/workspaces", {"name": name, "executor": "kubernetes", "agent": cluster, "devfile": devfile})

    def desire(self, name, state):
        return self.call("PATCH", f"/workspaces/{name}", {"desired_state": state})

    def state(self, name):
        return self.call("GET", f"/workspaces/{name}")["state"]

    def all(self):
        """The state of every workspace of the user by name, page by page."""
        found, cursor = {}, ""
        while cursor is not None:
            page = self.call("GET", f"/workspaces?limit=100{'&cursor=' + cursor if cursor else ''}")
            found.update({row["name"]: row["state"] or {} for row in page["workspaces"]})
            cursor = page["next_cursor"]
        return found


def ask(action):
    """Until the gateway answers: it may be gone now. A refusal is an answer."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return action()
        except Refused as refusal:
            if refusal.status not in (502, 503, 504) or time.monotonic() > deadline:
                raise
        except Exception:  # no connection, or one that was cut in the middle of an answer
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def ask_once(action):
    """Until the gateway answers, for what can be done once: what was done before a kill is refused with 409, and was done by us."""
    try:
        ask(action)
    except Refused as refusal:
        if refusal.status != 409:
            raise


class Cluster:
    """The API server as the cluster's administrator."""

    def __init__(self):
        host, port = os.environ["REAL_CLUSTER_URL"].removeprefix("https://").split(":")
        trust = ssl.create_default_context(cafile=os.environ["REAL_CLUSTER_CA"])
        self.headers = {"authorization": f"Bearer {os.environ['REAL_CLUSTER_TOKEN']}"}
        self.make = lambda timeout=20: http.client.HTTPSConnection(host, int(port), timeout=timeout, context=trust)
        self.call = Caller(self.make, self.headers)

    def list(self, path, selector=LABEL):
        return self.call("GET", f"{path}?labelSelector={selector}")["items"]

    def watch(self, path, seen, selector=LABEL):
        """Calls `seen(kind, object)` from a thread of its own with every event from now on."""
        version = self.call("GET", f"{path}?labelSelector={selector}&limit=1")["metadata"]["resourceVersion"]
        connection = self.make(None)
        connection.request("GET", f"{path}?labelSelector={selector}&watch=1&resourceVersion={version}", headers=self.headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise Refused(answer.status, answer.read())

        def read():
            for line in answer:
                event = json.loads(line)
                seen(event["type"], event["object"])

        threading.Thread(target=read, daemon=True).start()


def until(seconds, good, pause=0.05):
    """Asks until the answer is true; returns it, or the last one that was not."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer = good()
        except (OSError, http.client.HTTPException, Refused) as error:
            answer = None
            if time.monotonic() > deadline:
                print("the last try:", error)
        if answer or time.monotonic() > deadline:
            return answer
        time.sleep(pause)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))] if ordered else float("nan")


def spread(values):
    """Milliseconds, for people."""
    return ", ".join(f"{name} {percentile(values, share) * 1000:.0f} ms" for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1)))
