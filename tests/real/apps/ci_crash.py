"""Kills the gateway, the supervisor of a job, its program, its processes and its agent at random moments while workspaces are made,
stopped, started, restarted and terminated, and sees that each of them becomes what it is to be, that no workspace ever has two jobs at
once, and that nothing is left in the end.

    ci_crash.py --kills 40 --jobs FOLDER --logs FOLDER --gateway COMMAND     COMMAND as one JSON list
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

from workspaces import Gateway, ask, ask_once, check, note, spread, until

arguments = argparse.ArgumentParser()
arguments.add_argument("--kills", type=int, default=40)
arguments.add_argument("--seed", type=int, default=int(time.time()))
arguments.add_argument("--slots", type=int, default=3)
arguments.add_argument("--jobs", required=True)
arguments.add_argument("--logs", required=True)
arguments.add_argument("--gateway", required=True, type=json.loads)
options = arguments.parse_args()
roll = random.Random(options.seed)
note(f"seed {options.seed}")
gateway = Gateway()

DEVFILE = """schemaVersion: 2.2.0
components:
  - name: main
    attributes: {gateway/inject-editor: true}
    container: {image: example.net/tools:1}
"""
# A workspace whose jobs were killed more often waits for minutes until the next one: it makes way for another.
HURTS_MAX = 2
SETTLE_SECONDS = 330

acknowledged = {}  # what each workspace is to be, as the gateway said yes to
hurts = {}
serial = 0
log = open(os.path.join(options.logs, "gateway.log"), "ab")
program = None
ended_by_itself = []


def start():
    global program
    program = subprocess.Popen(options.gateway, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


class Process:
    """One of a job's: where it is, which run it belongs to, and what it is."""

    def __init__(self, pid):
        place = f"/proc/{pid}"
        self.pid = int(pid)
        self.folder = os.readlink(f"{place}/cwd").removeprefix(options.jobs + "/").split("/")[0].removesuffix(" (deleted)")
        with open(f"{place}/environ", "rb") as environ:
            marks = dict(entry.split(b"=", 1) for entry in environ.read().split(b"\0") if b"=" in entry)
        self.run = marks.get(b"WORKSPACE_GATEWAY_RUN")
        self.mark = marks.get(b"GW_RUN_MARK")
        with open(f"{place}/cmdline", "rb") as cmdline:
            words = cmdline.read().decode(errors="replace").split("\0")
        name = os.path.basename(words[0])
        if "ci-run" in words and "--program-of" not in words:
            self.kind = "supervisor"
        elif "gitlab-ci-local" in " ".join(words[:3]):
            self.kind = "program"
        elif name == "workspace-agent":
            self.kind = "agent"
        else:
            self.kind = "process"


def processes():
    """What runs now, of all jobs."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd").startswith(options.jobs + "/"):
                found.append(Process(pid))
        except (OSError, ValueError):
            pass  # it ended meanwhile, or is of another user
    return found


doubles = []
looks = 0
stopped = threading.Event()


def watch():
    """No workspace has processes of two runs. A supervisor has said that its run is over when it ends itself, so it is left out."""
    global looks
    while not stopped.wait(0.02):
        looks += 1
        for member in ("run", "mark"):
            runs = {}
            for one in processes():
                value = getattr(one, member)
                if one.kind != "supervisor" and value:
                    runs.setdefault(one.folder, set()).add(value)
            doubles.extend(f"{folder}: {found}" for folder, found in runs.items() if len(found) > 1)


def create():
    global serial
    serial += 1
    name = f"crash-{serial}"
    body = {"name": name, "executor": "ci", "agent": "local", "devfile": DEVFILE}
    ask_once(lambda: gateway.call("POST", "/workspaces", body))
    acknowledged[name] = "Running"
    hurts[name] = 0


def desire(name, wanted):
    ask(lambda: gateway.desire(name, wanted))
    acknowledged[name] = "Running" if wanted == "RestartRequested" else wanted


def change():
    """One more step in the life of one of them; new ones where there is room."""
    alive = [name for name, state in acknowledged.items() if state != "Terminated"]
    worn = [name for name in alive if hurts[name] > HURTS_MAX]
    if worn:
        return desire(worn[0], "Terminated")
    if len(alive) < 2 or (len(alive) < options.slots and roll.random() < 0.5):
        return create()
    desire(roll.choice(alive), roll.choice(["Terminated", "Stopped", "Running", "Running", "RestartRequested"]))


def kill(which):
    """Kills one; returns whether there was any."""
    if which == "gateway":
        if program.poll() is not None:
            ended_by_itself.append(f"the gateway had ended with {program.returncode}")
        program.kill()
        program.wait()
        start()
        return True
    there = [one for one in processes() if one.kind == which]
    if not there:
        return False
    one = roll.choice(there)
    try:
        os.kill(one.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    # Which workspace it was is not known from outside: all that are to run may wait longer now.
    for name, state in acknowledged.items():
        if state == "Running":
            hurts[name] += 1 / max(1, sum(state == "Running" for state in acknowledged.values()))
    return True


def wrong():
    """What is not yet as it is to be; empty once all is."""
    shown = gateway.all()
    found = []
    for name, wanted in acknowledged.items():
        row = shown.get(name)
        actual = (row or {}).get("actual")
        if actual != wanted and not (row is None and wanted == "Terminated"):
            found.append(f"{name} is {actual}, not {wanted}: {(row or {}).get('reason')}")
    there = processes()
    running = sum(state == "Running" for state in acknowledged.values())
    for kind in ("supervisor", "agent"):
        count = sum(one.kind == kind for one in there)
        if count != running:
            found.append(f"{count} of the kind {kind} for {running} workspaces that are to run")
    alive = sum(state != "Terminated" for state in acknowledged.values())
    # One that was terminated before its first run never had any.
    if len(os.listdir(options.jobs)) > alive:
        found.append(f"{len(os.listdir(options.jobs))} folders of {alive} workspaces")
    return found


def settle():
    """Waits until all is as it is to be; returns how long it took, and what is wrong still."""
    began = time.monotonic()
    until(SETTLE_SECONDS, lambda: not ask(wrong), 0.5)
    return time.monotonic() - began, ask(wrong)


os.makedirs(options.jobs, mode=0o700, exist_ok=True)
start()
ask(gateway.all)
watcher = threading.Thread(target=watch)
watcher.start()
create()
create()
took, problems = settle()
KINDS = ["gateway", "gateway", "supervisor", "program", "process", "agent"]
kills, settling, stuck = dict.fromkeys(KINDS, 0), [], []
if check("before the first kill, workspaces run", not problems, "; ".join(problems[:3])):
    while sum(kills.values()) < options.kills and not stuck:
        for _ in range(roll.randint(2, 5)):
            for _ in range(roll.randint(0, 2)):
                change()
            time.sleep(roll.choice([0, 0.05, 0.2, 0.5, 1, 2, 4, 8]) * roll.uniform(0.5, 1.5))
            which = roll.choice(KINDS)
            kills[which] += kill(which)
        took, problems = settle()
        settling.append(took)
        stuck = problems
        print(f"{kills}, {len(acknowledged)} workspaces, at rest after {took:.1f} s")
    counts = ", ".join(f"{count} of the kind {kind}" for kind, count in kills.items())
    check(f"{sum(kills.values())} kills ({counts}) while {len(acknowledged)} workspaces lived: all converges", not stuck, "; ".join(stuck[:5]))
    note(f"at rest after a series of kills: {spread(settling)}")
check("no gateway ended by itself", not ended_by_itself, "; ".join(ended_by_itself[:3]))
for name, state in list(acknowledged.items()):
    if state != "Terminated":
        desire(name, "Terminated")
took, problems = settle()
check("all of them terminate, and nothing of them is left", not problems, "; ".join(problems[:5]))
stopped.set()
watcher.join()
check(f"in {looks} looks, no workspace had two jobs at once", not doubles, "; ".join(doubles[:3]))
program.send_signal(signal.SIGTERM)
try:
    status = program.wait(20)
except subprocess.TimeoutExpired:
    program.kill()
    status = "nothing within 20 s"
check("SIGTERM ends the gateway", status == 0, f"status {status}")
sys.exit(0)
