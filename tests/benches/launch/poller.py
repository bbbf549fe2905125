"""A launcher as they are often written by hand: token Secret, then Pod, then a
GET every two seconds until the host's container runs; both are deleted when
that fails. Standard library alone.

In: JSON on standard input (server, ca, token, namespace, secret, pod).
"""

import base64
import json
import ssl
import sys
import time
import urllib.request

asked = json.load(sys.stdin)
context = ssl.create_default_context(cadata=base64.b64decode(asked["ca"]).decode())
base = f"{asked['server']}/api/v1/namespaces/{asked['namespace']}"


def call(method, path, body=None):
    request = urllib.request.Request(
        base + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": "Bearer " + asked["token"],
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, context=context, timeout=10) as answer:
        return json.load(answer)


secret = call("POST", "/secrets", asked["secret"])["metadata"]["name"]
try:
    name = call("POST", "/pods", asked["pod"])["metadata"]["name"]
    try:
        while True:
            status = call("GET", "/pods/" + name).get("status", {})
            hosts = [c for c in status.get("containerStatuses", []) if c["name"] == "host"]
            if hosts and "running" in hosts[0]["state"]:
                break
            time.sleep(2)
    except Exception:
        call("DELETE", "/pods/" + name)
        raise
except Exception:
    call("DELETE", "/secrets/" + secret)
    raise
