"""Has the gateway render the templates of a folder, and compares with what Go makes of them. A check a line.

    environment_templates.py --examples FOLDER --go PROGRAM --out DIR --agent NAME

`examples/` are rendered alike, `differences/` as it is recorded beside them and not as Go does, `refused/` not at all.
"""

import argparse
import copy
import http.client
import json
import os
import pathlib
import subprocess

from workspaces import Caller, Refused, check, note

arguments = argparse.ArgumentParser()
arguments.add_argument("--examples", required=True, type=pathlib.Path)
arguments.add_argument("--go", required=True)
arguments.add_argument("--out", required=True, type=pathlib.Path)
arguments.add_argument("--agent", required=True)
options = arguments.parse_args()
PORT = int(os.environ["REAL_PUBLIC_PORT"])
call = Caller(
    lambda: http.client.HTTPConnection("127.0.0.1", PORT, timeout=20),
    {"authorization": f"Bearer {os.environ['REAL_USER_TOKEN']}", "host": f"localhost:{PORT}"},
)
# What an agent is called and where it is shown is the gateway's own to say.
OWN_URL = f"http://localhost:{PORT}/api/v1/agents/{options.agent}"


def facts_of(name):
    """What is put into the templates of a folder, as a file."""
    facts = json.loads((options.examples / name / "facts.json").read_text())
    facts["agent"]["url"] = OWN_URL
    path = options.out / f"{name}.facts.json"
    path.write_text(json.dumps(facts))
    return path


FACTS = json.loads(facts_of("examples").read_text())


def go(*words):
    """What the Go program says of each file: the value, or a text that begins with `!`."""
    said = subprocess.run([options.go, *map(str, words)], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in said.splitlines():
        name, text = line.split("\t", 1)
        found[name] = text if text.startswith("!") else json.loads(text)
    return found


def render(name, data, facts):
    """The gateway's rendering as text; a refusal as its problem document."""
    try:
        body = {"agent": options.agent, "template": {"name": name, "data": data}, "info": facts}
        return call("POST", "/api/v1/environments/render", body)["data"]
    except Refused as refusal:
        return json.loads(refusal.body)


def folder(name):
    """The templates of a folder, and what is put into them."""
    place = options.examples / name
    return sorted(place.glob("*.yaml")), facts_of(name) if (place / "facts.json").exists() else None


def read_back(texts):
    """What Go reads in the gateway's texts, by name."""
    place = options.out / "rendered"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    paths = []
    for name, text in texts.items():
        paths.append(place / f"{name}.yaml")
        paths[-1].write_text(text)
    return go("read", *paths) if paths else {}


def life(tree):
    """The same with what a template means that does not say when its objects come and go."""
    return {"apply_resources": "on_start", "delete_resources": "on_stop", **tree} if isinstance(tree, dict) else tree


def rendered(paths, facts):
    """Both ways: what Go makes of each, and what the gateway does."""
    ours = {path.stem: render(path.stem, path.read_text(), facts) for path in paths}
    read = read_back({name: text for name, text in ours.items() if isinstance(text, str)})
    return {name: read.get(name, said) for name, said in ours.items()}


def examples():
    paths, facts = folder("examples")
    theirs, ours = go("render", facts, *paths), rendered(paths, json.loads(facts.read_text()))
    check("there are enough examples", len(paths) >= 12, len(paths))
    for path in paths:
        want, got = life(theirs[path.stem]), life(ours[path.stem])
        check(f"{path.stem}: rendered as Go renders it", got == want, f"want {json.dumps(want)[:300]}, got {json.dumps(got)[:300]}")
    path = options.out / "built-in.yaml"
    path.write_text(call("GET", "/api/v1/environment-templates/default")["data"])
    built_in = rendered([path], json.loads(facts.read_text()))["built-in"]
    check("the built-in template too", life(built_in) == life(go("render", facts, path)["built-in"]), built_in)


def differences():
    paths, facts = folder("differences")
    theirs, ours = go("render", facts, *paths), rendered(paths, json.loads(facts.read_text()))
    check("there are differences, each with an example", len(paths) >= 3, len(paths))
    for path in paths:
        recorded = json.loads(path.with_suffix(".json").read_text())
        check(f"{path.stem}: rendered as it is recorded", life(ours[path.stem]) == life(recorded), str(ours[path.stem])[:300])
        check(f"{path.stem}: which Go does not", life(theirs[path.stem]) != life(recorded), "it does")


def refused():
    paths, _ = folder("refused")
    for path in paths:
        said = render(path.stem, path.read_text(), FACTS)
        named = isinstance(said, dict) and said.get("code") == "template_invalid"
        check(f"{path.stem}: is refused", named, str(said)[:300])
        places = [problem for problem in said.get("problems", []) if problem.get("line")] if named else []
        check(f"{path.stem}: with line and column", any(problem.get("column") for problem in places), str(said)[:300])


HOSTILE = {
    "an action": "{{ .user.id }}",
    "the end of an action": "}} {{",
    "a mapping": "a: b",
    "a flow mapping": "{a: b, c: [d]}",
    "quotes": "'\"`",
    "the end of a single-quoted text": "x', injected: 'y",
    "the end of a double-quoted text": 'x", injected: "y',
    "a comment": "a # b",
    "an anchor": "&a *a",
    "a tag": "!!binary aGVsbG8=",
    "a document's end": "--- ...",
    "a number": "012",
    "a yes": "yes",
    "nothing": "null",
    "a merge": "<<: *x",
    "a block": "| >-",
    "a percent": "%YAML 1.1",
    "backslashes": "\\n\\u0000\\x41",
    "dollars": "$(id) ${HOME} `id`",
    "other letters": "ümläut \u2028 \U0001f600",
}
PLACES = {
    "annotations": "objects:\n  - apiVersion: v1\n    kind: Namespace\n    metadata:\n      name: fixed\n      annotations:\n"
    "        single: '{{ .environment.name }}'\n        double: \"{{ .environment.name }}\"\n        plain: {{ .environment.name }}\n"
    "        inside: a {{ .environment.name }} b\n        flow: {x: {{ .environment.name }}, y: z}\n"
    "        block: |\n          a {{ .environment.name }}\n        folded: >-\n          {{ .environment.name }} b\n        '{{ .environment.name }}': key\n",
}


def hostile():
    """Whatever a value is, the rendering is the one of a plain value with that value put in its place."""
    plain = copy.deepcopy(FACTS)
    plain["environment"]["name"] = "PLAIN"
    template = PLACES["annotations"]
    base = read_back({"base": render("base", template, plain)})["base"]

    def put(value, text):
        if isinstance(value, dict):
            return {name.replace("PLAIN", text): put(inner, text) for name, inner in value.items()}
        if isinstance(value, list):
            return [put(inner, text) for inner in value]
        return value.replace("PLAIN", text) if isinstance(value, str) else value

    for what, text in HOSTILE.items():
        facts = copy.deepcopy(FACTS)
        facts["environment"]["name"] = text
        said = render("hostile", template, facts)
        got = read_back({"hostile": said})["hostile"] if isinstance(said, str) else said
        check(f"{what} in a value stays a value", got == put(base, text), f"{said!r}"[:400])
    for what, text in {"a line's end": "a\nb: c", "a null byte": "a\0b", "an escape": "a\x1b[31mb", "a tab": "a\tb"}.items():
        facts = copy.deepcopy(FACTS)
        facts["environment"]["name"] = text
        said = render("hostile", template, facts)
        check(f"{what} in a value is refused by name", isinstance(said, dict) and said.get("code") == "facts_invalid", str(said)[:300])


def bounds():
    long = "https://example.org/" + "x" * 2000
    facts = copy.deepcopy(FACTS)
    facts["environment"]["url"] = long
    one = "objects:\n  - {apiVersion: v1, kind: Namespace, metadata: {name: a, annotations: {b: '%s'}}}\n"
    many = "objects:\n" + "".join(f"  - {{apiVersion: v1, kind: Namespace, metadata: {{name: a{index}, annotations: {{b: '{'{{ .environment.url }}' * 20}'}}}}}}\n" for index in range(20))
    objects = "objects:\n" + "".join(f"  - {{apiVersion: v1, kind: Namespace, metadata: {{name: a{index}}}}}\n" for index in range(101))
    for what, data in {
        "one value beyond its bound": one % ("{{ .environment.url }}" * 40),
        "a whole beyond its bound": many,
        "more objects than there may be": objects,
        "a template beyond its bound": one % ("x" * 70000),
        "aliases that grow": "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(f"{chr(98 + index)}: &{chr(98 + index)} [{', '.join(['*' + chr(97 + index)] * 9)}]\n" for index in range(9)) + "objects: []\n",
        "nesting without end": "objects: " + "[" * 20000 + "]" * 20000 + "\n",
        "characters that are only for us": one % "\U000f0000",
    }.items():
        said = render("bounds", data, facts)
        named = isinstance(said, dict) and said.get("code") in ("template_invalid", "too_large", "objects_refused", "invalid")
        check(f"{what} is refused by name", named, str(said)[:300])
        note(f"{what}: {str(said.get('problems') or said)[:160]}" if isinstance(said, dict) else f"{what}: rendered")


examples()
differences()
refused()
hostile()
bounds()
