"""Runs h2spec against a listener, and compares what failed with the list of failures that the listener may have.

    h2spec_report.py LISTENER ACCEPTED LEAST REPORT COMMAND…

COMMAND is h2spec with its arguments; REPORT is where it is to write what came of it. A line `FAIL` for each case that failed and may not,
and one `ok` if there is none and at least LEAST cases passed.
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


def run():
    """Runs all cases. Returns for each its name, what it does, and what was wrong: None if nothing was."""
    subprocess.run([*command, "-j", report], check=False)
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        for number, case in enumerate(suite.iter("testcase"), 1):
            found = {child.tag: " ".join("".join(child.itertext()).split()) for child in case}
            wrong = found.get("failure", found.get("error", "skipped" if "skipped" in found else None))
            yield f"{case.get('package')}/{number}", case.get("classname"), wrong


may_fail = reasons()
passed, allowed, skipped, failed = 0, 0, 0, 0
for name, title, wrong in run():
    if wrong == "skipped":
        skipped += 1
    elif wrong is None:
        passed += 1
    elif name in may_fail:
        allowed += 1
        print(f"note {listener}: {name} ({title}): {may_fail[name]}")
    else:
        failed += 1
        print(f"FAIL {listener}: {name} {title}: {wrong[:200]}")

counts = f"{passed} cases of h2spec pass, {allowed} failures are accepted, {skipped} do not apply"
if passed < least:
    print(f"FAIL {listener}: {counts}; there should be {least} that pass")
elif failed == 0:
    print(f"ok {listener}: {counts}")
