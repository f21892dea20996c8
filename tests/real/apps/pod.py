"""Runs a workspace's pod as local processes: its Deployment, Secrets and ConfigMaps come from the cluster, each container gets a
root of its own with the volumes mounted where it wants them, its own processes, and this machine's network and programs. What a
kubelet would do is done in its order: init containers to their end, then the containers, and their hooks behind the start.

    pod.py --namespace N --name W --work DIR --bind IMAGE_PATH=HERE…     until it is told to end; as root
"""

import argparse
import base64
import os
import pathlib
import signal
import subprocess
import sys
import time

import expansion
from workspaces import Cluster

arguments = argparse.ArgumentParser()
arguments.add_argument("--namespace", required=True)
arguments.add_argument("--name", required=True)
arguments.add_argument("--work", required=True, type=pathlib.Path)
arguments.add_argument("--bind", action="append", default=[], help="what an image has at a path, and where that is here")
options = arguments.parse_args()
cluster = Cluster()
# Of this machine, in place of the images.
SYSTEM = [path for path in ("/bin", "/sbin", "/lib", "/lib64", "/usr", "/etc", "/dev") if os.path.exists(path)]


def get(kind, name):
    return cluster.call("GET", f"/api/v1/namespaces/{options.namespace}/{kind}/{name}")


pod = cluster.call("GET", f"/apis/apps/v1/namespaces/{options.namespace}/deployments/{options.name}")["spec"]["template"]["spec"]
group = pod.get("securityContext", {}).get("fsGroup", 0)


def files_of(kind, name):
    found = get(kind, name).get("data") or {}
    return {key: base64.b64decode(value) if kind == "secrets" else value.encode() for key, value in found.items()}


def volume(spec):
    """Makes a folder with what the volume has."""
    home = options.work / "volumes" / spec["name"]
    home.mkdir(parents=True, exist_ok=True)
    parts = spec["projected"]["sources"] if "projected" in spec else [spec]
    mode = next((part["defaultMode"] for part in [spec.get(kind, {}) for kind in ("projected", "configMap", "secret")] if "defaultMode" in part), 0o644)
    for part in parts:
        files = {}
        if "configMap" in part:
            files = files_of("configmaps", part["configMap"]["name"])
        elif "secret" in part:
            files = files_of("secrets", part["secret"].get("secretName") or part["secret"]["name"])
        for key, content in files.items():
            (home / key).write_bytes(content)
            os.chmod(home / key, mode | 0o440)
            os.chown(home / key, 0, group)
    # As a kubelet does for fsGroup.
    os.chown(home, 0, group)
    os.chmod(home, 0o2775)
    return home


volumes = {spec["name"]: volume(spec) for spec in pod.get("volumes", [])}


def environment(container):
    found = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": options.name}
    for source in container.get("envFrom", []):
        kind = "secrets" if "secretRef" in source else "configmaps"
        found.update({key: value.decode() for key, value in files_of(kind, source["secretRef" if kind == "secrets" else "configMapRef"]["name"]).items()})
    return expansion.environment(container, found)


def root(container):
    """Makes the folders of a root, and the shell lines that mount what is in it."""
    home = options.work / "roots" / container["name"]
    lines = []

    def mount(source, target):
        place = home / target.lstrip("/")
        make = f"mkdir -p '{place}'" if os.path.isdir(source) else f"mkdir -p '{place.parent}'; touch '{place}'"
        lines.append(f"{make}; mount --rbind '{source}' '{place}'")

    # First: what is mounted below `/tmp` would be hidden.
    for name in ("proc", "tmp"):
        (home / name).mkdir(parents=True, exist_ok=True)
    lines += [f"mount -t proc proc '{home}/proc'", f"mount -t tmpfs -o mode=1777 tmpfs '{home}/tmp'"]
    for path in SYSTEM:
        if os.path.islink(path):
            if not (home / path[1:]).is_symlink():
                (home / path[1:]).symlink_to(os.readlink(path))
        else:
            mount(path, path)
    for one in container.get("volumeMounts", []):
        source = volumes[one["name"]] / one.get("subPath", "")
        if "subPath" in one and not source.exists():
            source.mkdir(parents=True)
            os.chown(source, 0, group)
            os.chmod(source, 0o2775)
        mount(str(source), one["mountPath"])
    for one in options.bind:
        inside, here = one.split("=", 1)
        mount(here, inside)
    return home, lines


def user(container):
    wanted = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
    return f"{wanted.get('runAsUser', 0)}:{wanted.get('runAsGroup', group)}"


def start(container):
    """Starts a container: its command becomes the first process of its own processes."""
    home, lines = root(container)
    variables = environment(container)
    command = expansion.command(container, variables)
    folder = container.get("workingDir", "/")
    script = "set -e; mount --make-rprivate /; " + "; ".join(lines) + f'; exec chroot --userspec={user(container)} --groups={group} "{home}" /usr/bin/env -C "{folder}" -- "$@"'
    log = open(options.work / f"{container['name']}.log", "ab")
    return subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", *command],
                            env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def first_process(child):
    """The process that is number 1 in there: the child of `unshare`."""
    for _ in range(200):
        with open(f"/proc/{child.pid}/task/{child.pid}/children") as children:
            found = children.read().split()
        if found:
            return found[0]
        time.sleep(0.01)
    sys.exit("a container has no process")


def hook(container, child):
    """Runs the hook behind the start, inside the container."""
    command = container.get("lifecycle", {}).get("postStart", {}).get("exec", {}).get("command")
    if not command:
        return
    # In the root of the container, which is there as soon as its own command runs.
    home = options.work / "roots" / container["name"]
    pid = first_process(child)
    for _ in range(500):
        if os.readlink(f"/proc/{pid}/root") == str(home):
            break
        time.sleep(0.01)
    status = subprocess.run(["nsenter", f"--target={pid}", "--mount", "--pid", "--", "chroot", f"--userspec={user(container)}", f"--groups={group}", str(home), *command],
                            env=environment(container), stdin=subprocess.DEVNULL).returncode
    print(f"the hook of {container['name']} ended with status {status}", flush=True)


for container in pod.get("initContainers", []):
    status = start(container).wait()
    print(f"{container['name']} ended with status {status}", flush=True)
    if status:
        sys.exit(1)
running = {}
for container in pod["containers"]:
    running[container["name"]] = child = start(container)
    hook(container, child)
print("running", flush=True)
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
while not told and all(child.poll() is None for child in running.values()):
    time.sleep(0.1)
for name, child in running.items():
    if child.poll() is None:
        os.kill(int(first_process(child)), signal.SIGTERM)
for name, child in running.items():
    try:
        print(f"{name} ended with status {child.wait(30)}", flush=True)
    except subprocess.TimeoutExpired:
        child.kill()
        print(f"{name} did not end within 30 s", flush=True)
