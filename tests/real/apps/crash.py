"""Kills the gateway or the cluster agent at random moments while workspaces are made, stopped, started and terminated, and sees
that what was acknowledged happens all the same: everything converges, nothing is left over, nothing of others is touched.

    crash.py --kills 200 --cluster NAME --gateway COMMAND… --agent COMMAND…     COMMAND as one JSON list each
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time

from workspaces import LABEL, Cluster, Gateway, Process, ask, ask_once, check, note, spread, until

arguments = argparse.ArgumentParser()
arguments.add_argument("--kills", type=int, default=200)
arguments.add_argument("--seed", type=int, default=int(time.time()))
arguments.add_argument("--slots", type=int, default=6)
arguments.add_argument("--lease-seconds", type=float, default=20)
arguments.add_argument("--take-overs", type=float, default=0.1, help="share of the agent's kills after which its lease runs out")
arguments.add_argument("--cluster", required=True)
arguments.add_argument("--namespace", help="shared mode: where all of them are")
arguments.add_argument("--logs", required=True)
arguments.add_argument("--gateway", required=True, type=json.loads)
arguments.add_argument("--agent", required=True, type=json.loads)
options = arguments.parse_args()
roll = random.Random(options.seed)
note(f"seed {options.seed}")
gateway, cluster = Gateway(), Cluster()
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{os.environ['REAL_AGENT_HOME']}/leases"

KINDS = {
    "Deployment": "/apis/apps/v1/deployments",
    "Service": "/api/v1/services",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "ServiceAccount": "/api/v1/serviceaccounts",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/networkpolicies",
    "ConfigMap": "/api/v1/configmaps",
    "Secret": "/api/v1/secrets",
}


programs = {name: Process(command, os.path.join(options.logs, f"{name}.log")) for name, command in (("gateway", options.gateway), ("agent", options.agent))}
acknowledged = {}  # what each workspace is to be, as the gateway said yes to
serial = 0
ended_by_itself = []
take_overs = []  # how long each took, in seconds
not_taken_over = []


def create():
    global serial
    serial += 1
    name = f"crash-{serial}"
    ask_once(lambda: gateway.create(options.cluster, name))
    acknowledged[name] = "Running"


def change():
    """One more step in the life of one of them; new ones where there is room."""
    alive = [name for name, state in acknowledged.items() if state != "Terminated"]
    if len(alive) < 2 or (len(alive) < options.slots and roll.random() < 0.4):
        return create()
    name = roll.choice(alive)
    wanted = roll.choice(["Terminated", "Terminated", "Stopped", "Running", "RestartRequested"])
    ask(lambda: gateway.desire(name, wanted))
    acknowledged[name] = "Running" if wanted == "RestartRequested" else wanted


def kill(which):
    program = programs[which]
    ended = program.kill()
    if ended is not None:
        ended_by_itself.append(f"{which} had ended with {ended}")
    if which == "gateway":
        program.start()
    elif not take_overs and not not_taken_over or roll.random() < options.take_overs:
        take_over(program)
    else:
        # Its lease would have to run out each time, which takes as long as a hundred kills: it does for some of them.
        for path in leases():
            cluster.call("DELETE", path)
        program.start()


def leases():
    """The agent's leases by path, with who holds them."""
    found = cluster.call("GET", f"{LEASES}?limit=10")["items"]
    return {f"{LEASES}/{lease['metadata']['name']}": lease["spec"].get("holderIdentity") for lease in found}


def take_over(program):
    """The next agent has to wait until the dead one's lease has run out, as the one that stands by does; intents come meanwhile."""
    before, began = leases(), time.monotonic()
    program.start()
    for _ in range(2):
        change()
    taken = until(options.lease_seconds * 3, lambda: any(holder and holder != before.get(path) for path, holder in leases().items()))
    took = time.monotonic() - began
    if not taken:
        not_taken_over.append(f"{before} became {leases()} in {took:.0f} s")
    elif not before:
        not_taken_over.append("it was killed before it led")
    else:
        take_overs.append(took)


def wrong():
    """What is not yet as it is to be; empty once all is."""
    shown = gateway.all()
    found = []
    for name, wanted in acknowledged.items():
        row = shown.get(name)
        actual = (row or {}).get("actual")
        if actual != wanted and not (row is None and wanted == "Terminated"):
            found.append(f"{name} is {actual}, not {wanted}")
    return found


def leftovers():
    """Objects of workspaces that are terminated, and what is missing of those that are not."""
    found = []
    alive = {name for name, state in acknowledged.items() if state != "Terminated"}
    for kind, path in KINDS.items():
        items = cluster.list(path)
        owners = [item["metadata"]["labels"][LABEL] for item in items]
        found += [f"{kind} of {owner} is left" for owner in owners if owner not in alive]
        found += [f"no {kind} of {name}" for name in alive if name not in owners]
        if kind == "Deployment":
            for item in items:
                name, wanted = item["metadata"]["name"], acknowledged.get(item["metadata"]["name"])
                if wanted and item["spec"]["replicas"] != (1 if wanted == "Running" else 0):
                    found.append(f"{name} has {item['spec']['replicas']} replicas, and is to be {wanted}")
    homes = {item["metadata"]["labels"][LABEL] for item in cluster.list("/api/v1/namespaces")}
    found += [f"the namespace of {owner} is left" for owner in homes - alive]
    return found


def settle(seconds):
    """Waits until all is as it is to be; returns how long it took, and what is wrong still."""
    began = time.monotonic()
    until(seconds, lambda: not wrong() and not leftovers(), 0.25)
    return time.monotonic() - began, wrong() + leftovers()


for program in programs.values():
    program.start()
ask(gateway.all)
for _ in range(3):
    create()
took, problems = settle(90)
if not check("before the first kill, workspaces run", not problems, "; ".join(problems[:3])):
    sys.exit(0)
settling, kills, stuck = [], {"gateway": 0, "agent": 0}, []
while sum(kills.values()) < options.kills and not stuck:
    # A few kills in a row, each at its own moment of what the last intents set in motion; then a look at all of it.
    for _ in range(roll.randint(3, 8)):
        for _ in range(roll.randint(1, 3)):
            change()
        time.sleep(roll.choice([0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8]) * roll.uniform(0.5, 1.5))
        which = roll.choice(["gateway", "agent"])
        kill(which)
        kills[which] += 1
    took, problems = settle(120)
    settling.append(took)
    if problems:
        stuck = problems
    print(f"{sum(kills.values())} kills, {len(acknowledged)} workspaces, at rest after {took:.1f} s")
total = sum(kills.values())
check(f"{total} kills ({kills['gateway']} of the gateway, {kills['agent']} of the agent) while {len(acknowledged)} workspaces lived: all converges", not stuck, "; ".join(stuck[:5]))
check(f"{len(take_overs)} of the agent's kills ended with a lease that ran out, and another agent took over", take_overs, "; ".join(not_taken_over[:3]))
note(f"until another agent led: {spread(take_overs)}")
# One that is killed before it ever led leaves no lease to wait for.
stuck_leases = [why for why in not_taken_over if "before it led" not in why]
check("no lease stayed with the dead", not stuck_leases, "; ".join(stuck_leases[:3]))
check("no program ended by itself", not ended_by_itself, "; ".join(ended_by_itself[:3]))
note(f"at rest after a series of kills: {spread(settling)}")
for name, state in list(acknowledged.items()):
    if state != "Terminated":
        ask(lambda: gateway.desire(name, "Terminated"))
        acknowledged[name] = "Terminated"
took, problems = settle(120)
check("all of them terminate", not problems, "; ".join(problems[:5]))
for program in programs.values():
    program.child.send_signal(signal.SIGTERM)
for name, program in programs.items():
    try:
        status = program.child.wait(20)
    except subprocess.TimeoutExpired:
        program.kill()
        status = "nothing within 20 s"
    check(f"SIGTERM ends the {name}", status == 0, f"status {status}")
