"""What a kubelet does with a frozen config, as far as local processes need it.

    kubelet.py lay CONFIG DIR          the files of its scripts, below DIR/scripts
    kubelet.py words CONFIG CONTAINER command|hook|env|workspace    what runs in a container, each word ended by a NUL

The variables of `env` are NAME=VALUE; references to others ($(NAME)) are put in as Kubernetes does.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "lib"))
import expansion


def main():
    action, config, *rest = sys.argv[1:]
    objects = json.loads(pathlib.Path(config).read_text())
    if action == "lay":
        lay(objects, pathlib.Path(rest[0]))
    else:
        name, what = rest
        for word in words(objects, name, what):
            sys.stdout.buffer.write(word.encode(errors="surrogateescape") + b"\0")


def one(objects, kind, ending=""):
    return next(entry for entry in objects if entry["kind"] == kind and entry["metadata"]["name"].endswith(ending))


def lay(objects, folder):
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    volume = next(volume for volume in pod["volumes"] if "configMap" in volume)["configMap"]
    scripts = one(objects, "ConfigMap", volume["name"])
    (folder / "scripts").mkdir(parents=True)
    for name, text in scripts["data"].items():
        path = folder / "scripts" / name
        path.write_bytes(text.encode())
        path.chmod(volume["defaultMode"])


def words(objects, name, what):
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    container = next(entry for entry in pod["initContainers"] + pod["containers"] if entry["name"] == name)
    variables = expansion.environment(container, {})
    if what == "workspace":
        return [one(objects, "Deployment")["metadata"]["name"]]
    if what == "hook":
        # Kubernetes puts nothing into a hook's command.
        return container["lifecycle"]["postStart"]["exec"]["command"]
    if what == "env":
        return [f"{key}={value}" for key, value in variables.items()]
    return expansion.command(container, variables)


main()
