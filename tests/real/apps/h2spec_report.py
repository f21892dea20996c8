"""Runs h2spec against a listener, and compares what failed with the list of failures that the listener may have.

    h2spec_report.py LISTENER ACCEPTED LEAST REPORT COMMAND…

COMMAND is h2spec with its arguments; REPORT is where it is to write what came of it. Some cases send a frame that is wrong and take
the next frame that comes for the answer to it, though that may be on its way already: whatever failed and may not is run twice
more, and fails when it fails each time. A line `FAIL` for each of those, and one `ok` if there is none and at least LEAST cases passed.
"""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree

listener, accepted, least, report, command = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5:]


def reasons():
    """What the listener may fail, by the name of the case."""
    found = {}
    with open(accepted, encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                listeners, case, reason = line.split(maxsplit=2)
                if listener in listeners.split(","):
                    found[case] = reason.strip()
    return found


def run(*cases):
    """Runs some cases, or all. Returns for each its name, what it does, and what was wrong: None if nothing was."""
    subprocess.run([*command, *cases, "-j", report], check=False)
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        for number, case in enumerate(suite.iter("testcase"), 1):
            found = {child.tag: " ".join("".join(child.itertext()).split()) for child in case}
            wrong = found.get("failure", found.get("error", "skipped" if "skipped" in found else None))
            yield cases[0] if cases else f"{case.get('package')}/{number}", case.get("classname"), wrong


may_fail = reasons()
passed, allowed, skipped, failed = 0, 0, 0, 0
for name, title, wrong in list(run()):
    if wrong == "skipped":
        skipped += 1
    elif wrong is None:
        passed += 1
    elif name in may_fail:
        allowed += 1
        print(f"note {listener}: {name} ({title}): {may_fail[name]}")
    elif any(again is None for _ in range(2) for _, _, again in run(name)):
        passed += 1
        print(f"note {listener}: {name} ({title}) passed when it was run again; at first: {wrong[:200]}")
    else:
        failed += 1
        print(f"FAIL {listener}: {name} {title}: {wrong[:200]}")

counts = f"{passed} cases of h2spec pass, {allowed} failures are accepted, {skipped} do not apply"
if passed < least:
    print(f"FAIL {listener}: {counts}; there should be {least} that pass")
elif failed == 0:
    print(f"ok {listener}: {counts}")
