"""Many workspaces on one cluster agent: makes them, has the agent begin anew, and says what that costs.

    scale.py --count 2000 --cluster NAME --step make|round|end --gateway-pid PID --agent-pid PID --admin PORT
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
arguments.add_argument("--limit", type=float, default=900)
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


def rounds():
    """The agent was started anew: its full round applies everything again, and finds nothing to do."""
    before = {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in cluster.list("/apis/apps/v1/deployments")}
    began = time.monotonic()
    last = {"at": began, "bytes": 0}

    # At rest: the session has carried next to nothing for two seconds.
    def at_rest():
        row = session()
        if not row:
            return False
        total = row["bytes_sent"] + row["bytes_received"]
        if total - last["bytes"] > 20_000:
            last.update(at=time.monotonic(), bytes=total)
        return last["bytes"] > 500 * options.count and time.monotonic() - last["at"] > 3

    check("the full round comes to its end", until(options.limit, at_rest, 0.2), f"{last['bytes']} bytes until now")
    row = session() or {}
    note(f"full round of {options.count} workspaces: {last['at'] - began:.1f} s, "
         f"{row.get('bytes_sent', 0) / 1e6:.2f} MB down ({row.get('bytes_sent', 0) / options.count:.0f} bytes each), "
         f"{row.get('bytes_received', 0) / 1e6:.2f} MB up ({row.get('bytes_received', 0) / options.count:.0f} bytes each)")
    after = {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in cluster.list("/apis/apps/v1/deployments")}
    changed = sum(1 for uid, version in before.items() if after.get(uid) != version)
    check("it changed no Deployment", not changed, f"{changed} of {len(before)}")
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
