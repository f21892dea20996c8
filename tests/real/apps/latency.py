"""From intent to applied: stops and starts workspaces in turn, and takes the time from the call of the gateway's API to the changed
Deployment in the cluster, as a watch of it tells.

    latency.py --changes 60 --bound-ms 1000 NAME…      workspaces that run
"""

import argparse
import queue
import time

from workspaces import Cluster, Gateway, check, note, percentile, spread, until

arguments = argparse.ArgumentParser()
arguments.add_argument("--changes", type=int, default=60)
arguments.add_argument("--bound-ms", type=float, default=1000)
arguments.add_argument("workspaces", nargs="+")
options = arguments.parse_args()

gateway, cluster = Gateway(), Cluster()
changed = queue.Queue()
cluster.watch("/apis/apps/v1/deployments", lambda kind, object: changed.put((time.monotonic(), object["metadata"]["name"], object["spec"]["replicas"])))
applied, told, missing = [], [], 0
for number in range(options.changes):
    name = options.workspaces[number % len(options.workspaces)]
    wanted = "Stopped" if gateway.state(name)["desired"] == "Running" else "Running"
    replicas = 0 if wanted == "Stopped" else 1
    began = time.monotonic()
    gateway.desire(name, wanted)
    answered = time.monotonic()
    try:
        while True:
            at, who, count = changed.get(timeout=began + 20 - time.monotonic())
            if at > began and (who, count) == (name, replicas):
                break
        applied.append(at - began)
    except (queue.Empty, ValueError):
        missing += 1
        continue
    if until(20, lambda: gateway.state(name)["actual"] == wanted, 0.01):
        told.append(time.monotonic() - began)
check(f"{options.changes} changes of intent reach the cluster", not missing, f"{missing} did not within 20 s")
check("and are reported back", len(told) == len(applied), f"{len(applied) - len(told)} were not within 20 s")
note(f"from intent to applied, {len(applied)} changes: {spread(applied)}")
note(f"from intent to its state reported, {len(told)} changes: {spread(told)}")
slowest = percentile(applied, 0.99) * 1000
check(f"p99 from intent to applied is under {options.bound_ms:.0f} ms", slowest < options.bound_ms, f"{slowest:.0f} ms")
