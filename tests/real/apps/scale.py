r"""Many workspaces on one cluster agent: makes them, has the agent begin anew, and says what that costs.

    scale.py --count 2000 --cluster NAME --step make|round|end --gateway-pid PID --agent-pid PID --admin PORT \
        --agent-log FILE --versions FILE
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import time
import urllib.request

from workspaces import Cluster, Gateway, Refused, check, note, until

arguments = argparse.ArgumentParser()
arguments.add_argument("--count", type=int, default=2000)
arguments.add_argument("--cluster", required=True)
arguments.add_argument("--step", choices=["make", "round", "end"], required=True)
arguments.add_argument("--gateway-pid", type=int)
arguments.add_argument("--agent-pid", type=int)
arguments.add_argument("--admin", type=int)
arguments.add_argument("--agent-log", required=True)
arguments.add_argument("--versions", required=True, help="file for what make left, which round compares with")
arguments.add_argument("--limit", type=float, default=1700)
options = arguments.parse_args()
gateway, cluster = Gateway(), Cluster()
names = [f"many-{number:04}" for number in range(options.count)]


def memory(pid):
    """Resident now and at most, in MiB."""
    with open(f"/proc/{pid}/status") as lines:
        fields = dict(line.split(":", 1) for line in lines)
    return [int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")]


def tell_memory(when):
    for name, pid in (("gateway", options.gateway_pid), ("agent", options.agent_pid)):
        if pid:
            now, most = memory(pid)
            note(f"memory of the {name} {when}: {now:.0f} MiB now, {most:.0f} MiB at most")


def session():
    """The session of the cluster's agent, as the gateway has it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{options.admin}/debug/sessions", timeout=20) as answer:
        rows = json.load(answer)
    rows = rows.get("sessions", rows) if isinstance(rows, dict) else rows
    return next((row for row in rows if options.cluster in (row.get("cluster"), row.get("workspace"))), None)


def count(state):
    return sum(1 for name, row in gateway.all().items() if name.startswith("many-") and row.get("actual") == state)


def each(action, workers=8):
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return list(pool.map(action, names))


def make():
    began = time.monotonic()

    def create(name):
        """Until it is taken: the gateway reads few devfiles of one user at once, and says so to the others."""
        for _ in range(200):
            try:
                return gateway.create(options.cluster, name) and None
            except Refused as refusal:
                why = str(refusal)
                if refusal.status == 409:
                    return None
                if refusal.status not in (429, 503):
                    return why
            except (OSError, http.client.HTTPException) as error:
                why = repr(error)
            time.sleep(0.1)
        return why

    refused = [why for why in each(create, 4) if why]
    note(f"{options.count} workspaces asked for in {time.monotonic() - began:.1f} s")
    check(f"{options.count} workspaces are taken", not refused, "; ".join(refused[:2]))
    done = until(options.limit, lambda: count("Running") == options.count, 2)
    check("all of them run", done, f"{count('Running')} do")
    note(f"{options.count} workspaces made and running after {time.monotonic() - began:.1f} s")
    tell_memory("with all of them running")
    with open(options.versions, "w", encoding="utf-8") as file:
        json.dump(versions(), file)


KINDS = ("/apis/apps/v1/deployments", "/api/v1/services", "/api/v1/persistentvolumeclaims", "/api/v1/serviceaccounts",
         "/api/v1/secrets", "/api/v1/configmaps", "/apis/networking.k8s.io/v1/networkpolicies")


def versions():
    """What is of the gateway in the cluster, each with its resource version. A Deployment's status changes its version at any
    time, so of these it is the generation, which counts changes of what is wanted."""
    found = {}
    for kind in KINDS:
        for item in cluster.list(kind):
            metadata = item["metadata"]
            if "many-" in metadata["name"]:
                found[metadata["uid"]] = metadata.get("generation") or metadata["resourceVersion"]
    return found


def applied():
    """How many workspaces the agent has applied since it was started last."""
    with open(options.agent_log, encoding="utf-8") as lines:
        text = lines.read()
    return text[text.rfind("reconciling workspaces"):].count("applied workspace=")


def rounds():
    """The agent was started anew: its full round applies everything again, and finds nothing to do."""
    began = time.monotonic() - (session() or {}).get("up_seconds", 0)
    done = until(options.limit, lambda: applied() >= options.count, 0.2)
    check("the full round comes to its end", done, f"{applied()} applied")
    took = time.monotonic() - began
    row = session() or {}
    note(f"full round of {options.count} workspaces: {took:.1f} s, "
         f"{row.get('bytes_sent', 0) / 1e6:.2f} MB down ({row.get('bytes_sent', 0) / options.count:.0f} bytes each), "
         f"{row.get('bytes_received', 0) / 1e6:.2f} MB up ({row.get('bytes_received', 0) / options.count:.0f} bytes each)")
    with open(options.versions, encoding="utf-8") as file:
        before = json.load(file)
    after = versions()
    changed = sum(1 for uid, version in before.items() if after.get(uid) != version)
    check(f"it changed none of {len(before)} objects", before and not changed, f"{changed} changed")
    tell_memory("behind the full round")


def end():
    began = time.monotonic()
    each(lambda name: gateway.desire(name, "Terminated"))
    note(f"{options.count} terminations asked for in {time.monotonic() - began:.1f} s")
    done = until(options.limit, lambda: count("Terminated") == options.count, 2)
    check("all of them terminate", done, f"{count('Terminated')} did")
    left = [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in cluster.list("/api/v1/configmaps")]
    check("and no inventory is left", not left, ", ".join(left[:3]))
    note(f"{options.count} workspaces terminated after {time.monotonic() - began:.1f} s")
    tell_memory("in the end")


{"make": make, "round": rounds, "end": end}[options.step]()
