"""What an API server's audit log says that cluster agents wrote, one request a line: verb, resource, namespace/name, status, the
account, and as whom it did. AUDIT_FROM is the first line that counts.

    audit.py FILE [verb=patch resource=namespaces namespace=a name=b status=201 as=gitlab:ci_job:7]
"""

import json
import os
import sys

KINDS = {"namespaces", "serviceaccounts", "rolebindings", "gitrepositories", "kustomizations", "clusterroles", "clusterrolebindings", "secrets"}


def requests(path, first=1):
    """The requests that came to an end, from that line on."""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if number < first:
                continue
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line, half written
            about = event.get("objectRef") or {}
            if event.get("stage") != "ResponseComplete" or about.get("resource") not in KINDS:
                continue
            if ":cluster-agent" not in event["user"]["username"]:
                continue
            yield {
                "verb": event["verb"],
                "resource": about["resource"],
                "namespace": about.get("namespace", ""),
                "name": about.get("name", ""),
                "status": str(event.get("responseStatus", {}).get("code", "")),
                "user": event["user"]["username"],
                "as": (event.get("impersonatedUser") or {}).get("username", ""),
                "impersonated": event.get("impersonatedUser") or {},
            }


if __name__ == "__main__":
    wanted = dict(one.split("=", 1) for one in sys.argv[2:])
    for one in requests(sys.argv[1], int(os.environ.get("AUDIT_FROM", "1"))):
        if all(one[name] == value for name, value in wanted.items()):
            print(one["verb"], one["resource"], f"{one['namespace']}/{one['name']}", one["status"], one["user"], one["as"], json.dumps(one["impersonated"], sort_keys=True))
