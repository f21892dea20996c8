"""Many jobs at once, and kills in the middle, for environments on a real cluster.

    environments.py race  --cluster NAME --audit FILE
    environments.py crash --cluster NAME --audit FILE --kills 20 --logs DIR --gateway COMMAND --agent COMMAND    COMMAND as one JSON list each
"""

import argparse
import http.client
import json
import os
import random
import sys
import threading
import time
import urllib.parse

import audit
from workspaces import Caller, Cluster, Process, Refused, ask, check, note, percentile, until

arguments = argparse.ArgumentParser()
arguments.add_argument("what", choices=["race", "crash"])
arguments.add_argument("--cluster", required=True)
arguments.add_argument("--audit", required=True)
arguments.add_argument("--kills", type=int, default=20)
arguments.add_argument("--seed", type=int, default=int(time.time()))
arguments.add_argument("--logs")
arguments.add_argument("--gateway", type=json.loads)
arguments.add_argument("--agent", type=json.loads)
options = arguments.parse_args()
PORT = int(os.environ["REAL_PUBLIC_PORT"])
PROJECT = {"project_id": 42, "project_path": "group/shop", "user_id": 12, "username": "ann", "pipeline_id": 700, "is_ref_protected": True}
KINDS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/serviceaccounts",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/rolebindings",
}


def caller(token):
    make = lambda: http.client.HTTPConnection("127.0.0.1", PORT, timeout=180)
    return Caller(make, {"authorization": f"Bearer {token}", "host": f"localhost:{PORT}"})


call = caller(os.environ["REAL_USER_TOKEN"])
cluster = Cluster()


def complete(job, environment, template):
    """An operator says what a job is: the same call as the job's own."""
    facts = {**PROJECT, "job_id": job, "environment": environment, "tier": "development", "action": "start"}
    body = {"agent": options.cluster, "template": template, "job": facts}
    return call("POST", "/api/v1/environments/complete", body)


def record(environment):
    query = urllib.parse.urlencode({"agent": options.cluster, "project_id": PROJECT["project_id"], "name": environment})
    found = call("GET", f"/api/v1/environments?{query}")["environments"]
    return found[0] if found else None


def objects_of(key):
    """What is in the cluster of an environment, as KIND/NAME, but what is on its way out."""
    found = set()
    for kind, path in KINDS.items():
        for one in cluster.list(path, f"agent.gitlab.com/env-{key}"):
            if not one["metadata"].get("deletionTimestamp"):
                found.add(f"{kind}/{one['metadata']['name']}")
    return found


def wanted(environment, template):
    """What the templates `small` and `large` of the suite have for it."""
    names = {"small": ["a"], "large": ["a", "b", "c"]}[template]
    return {f"Namespace/crowd-{environment}", f"RoleBinding/of-job"} | {f"ServiceAccount/{name}" for name in names}


def at_once(count, action):
    """Runs it in so many threads that begin together; what each of them returned, or raised."""
    barrier, results = threading.Barrier(count), [None] * count

    def run(index):
        barrier.wait()
        try:
            results[index] = action(index)
        except Exception as error:  # noqa: BLE001, shown by the check
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def lines(path):
    with open(path, encoding="utf-8") as log:
        return sum(1 for _ in log)


def applied(first, space):
    """How often each object in a namespace, and the namespace, was written since a line of the audit log."""
    counts = {}
    for one in audit.requests(options.audit, first):
        in_it = one["namespace"] == space or (one["resource"] == "namespaces" and one["name"] == space)
        if in_it and one["verb"] in ("create", "patch", "update") and one["status"] in ("200", "201"):
            counts[f"{one['resource']}/{one['name']}"] = counts.get(f"{one['resource']}/{one['name']}", 0) + 1
    return counts


def race():
    first = lines(options.audit) + 1
    began = time.monotonic()
    # Half of them as the job, half as an operator who says which job it is.
    as_job, body = caller(os.environ["REAL_JOB_TOKEN"]), {"agent": options.cluster, "template": "large"}
    job = lambda: as_job("POST", "/api/v1/environments/complete", body)
    results = at_once(50, lambda index: job() if index % 2 else complete(8001, "first", "large"))
    took = time.monotonic() - began
    good = [one for one in results if isinstance(one, dict) and one["outcome"] == "completed"]
    check("50 calls at once for one job are all answered well", len(good) == 50, next((str(one) for one in results if not isinstance(one, dict)), "not completed"))
    check("all with the same objects", len({json.dumps(one["objects"], sort_keys=True) for one in good}) == 1, "they differ")
    counts = applied(first, "crowd-first")
    check("each object was written once", counts and set(counts.values()) == {1}, counts)
    check("and all five of them", len(counts) == 5, counts)
    note(f"50 calls for one job: {took * 1000:.0f} ms for all")

    # 10 jobs of one environment, with two templates, five callers each.
    first = lines(options.audit) + 1
    results = at_once(50, lambda index: complete(8100 + index % 10, "contested", ["small", "large"][index % 2]))
    bad = [str(one) for one in results if not isinstance(one, dict)]
    check("ten jobs of one environment, with two templates, are all prepared", not bad, bad[:2])
    found = objects_of(record("contested")["key"])
    check("and leave what one of the templates says, whole", found in (wanted("contested", "small"), wanted("contested", "large")), found)
    counts = applied(first, "crowd-contested")
    check("no object was written more often than there were jobs", counts and max(counts.values()) <= 10, counts)

    results = at_once(20, lambda index: complete(8200 + index, f"wide-{index}", "large"))
    bad = [str(one) for one in results if not isinstance(one, dict)]
    check("twenty environments at once are all prepared", not bad, bad[:2])
    missing = [index for index in range(20) if objects_of(record(f"wide-{index}")["key"]) != wanted(f"wide-{index}", "large")]
    check("each with its own objects", not missing, missing)

    # Stopping and starting at the same time: whichever came last counts, and nothing is half there.
    at_once(10, lambda index: call("PATCH", f"/api/v1/environments/{record('first')['id']}", {"state": "stopped"}) if index % 2 else complete(8300 + index, "first", "small"))
    complete(8400, "first", "large")
    check("after stops and starts at once, the next job has what it needs", objects_of(record("first")["key"]) == wanted("first", "large"), objects_of(record("first")["key"]))
    check("in an available environment", record("first")["state"] == "available", record("first"))
    remove([row["name"] for row in rows()])


def rows():
    return call("GET", f"/api/v1/environments?agent={options.cluster}&limit=100")["environments"]


def remove(names):
    for name in names:
        ask(lambda name=name: call("PATCH", f"/api/v1/environments/{record(name)['id']}", {"state": "stopped"}))
    left = until(120, lambda: not any(record(name)["removal_due"] for name in names), 0.5)
    check("stopped, they all go", left, [(row["name"], row["failure"], row["left"]) for row in rows() if row["removal_due"]])
    spaces = [one["metadata"]["name"] for one in cluster.call("GET", "/api/v1/namespaces")["items"] if one["metadata"]["name"].startswith("crowd-")]
    check("with nothing left in the cluster", not spaces, spaces)


def release_leases():
    """A killed agent's lease would have to run out each time."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{os.environ['REAL_AGENT_HOME']}/leases"
    for lease in cluster.call("GET", path)["items"]:
        cluster.call("DELETE", f"{path}/{lease['metadata']['name']}")


def crash():
    roll = random.Random(options.seed)
    note(f"seed {options.seed}")
    programs = {name: Process(command, os.path.join(options.logs, f"{name}.log")) for name, command in (("gateway", options.gateway), ("agent", options.agent))}
    for program in programs.values():
        program.start()
    over, last, wrong, done = threading.Event(), {}, [], []
    numbers = iter(range(9000, 10**6))

    def live(name, roll):
        """One environment's life: jobs and stops, each again until it is answered."""
        while not over.is_set():
            try:
                if name in last and roll.random() < 0.35:
                    ask(lambda: call("PATCH", f"/api/v1/environments/{record(name)['id']}", {"state": "stopped"}))
                    last[name] = None
                else:
                    job, template = next(numbers), roll.choice(["small", "large"])
                    ask(lambda: complete(job, name, template))
                    last[name] = template
                done.append(name)
            except Exception as error:  # noqa: BLE001, shown by the check
                wrong.append(f"{name}: {error}")
                return

    names = [f"life-{number}" for number in range(5)]
    lives = [threading.Thread(target=live, args=(name, random.Random(roll.random()))) for name in names]
    try:
        for thread in lives:
            thread.start()
        ended = []
        for number in range(options.kills):
            # Every other one waits for a call to be answered, so that what is killed had time for some on a slow machine too.
            if number % 2:
                until(60, lambda: len(done) > number / 2)
            time.sleep(roll.uniform(0.3, 2.5))
            which = roll.choice(["gateway", "agent"])
            said = programs[which].kill()
            if said is not None:
                ended.append(f"{which} had ended with {said}")
            if which == "agent":
                release_leases()
            programs[which].start()
        over.set()
        for thread in lives:
            thread.join(150)
        check("no program ended by itself", not ended, ended)
        check("every call was answered in the end", not wrong and not any(thread.is_alive() for thread in lives), wrong[:2] or "still waiting")
        check("and there were many", len(done) >= options.kills / 2, len(done))
        note(f"{len(done)} jobs and stops over {options.kills} kills")
        for name in names:
            want = wanted(name, last[name]) if last.get(name) else set()

            def is_so(name=name, want=want):
                row = ask(lambda: record(name))
                return not row["removal_due"] and objects_of(row["key"]) == want

            converged = until(120, is_so, 0.5)
            row = record(name)
            check(f"{name} is what was asked for last ({last.get(name) or 'stopped'})", converged, f"{objects_of(row['key'])} {row['state']} {row['failure']}")
            check(f"{name} says so", row["state"] == ("available" if last.get(name) else "stopped"), row["state"])
        remove(names)
    finally:
        for program in programs.values():
            program.child.kill()
            program.child.wait()


{"race": race, "crash": crash}[options.what]()
sys.stdout.flush()
os._exit(0)
