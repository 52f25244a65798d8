"""An operator with a ConfigMap for each Site, of Python's standard library only.

With BUG=generated, it creates the ConfigMap under a generated name, and records the name afterwards: after a crash in
between, it creates another one.
"""

import json
import os
import time
import urllib.error
import urllib.request

with open(os.environ["KUBECONFIG"]) as file:
    config = json.load(file)
server = config["clusters"][0]["cluster"]["server"]
token = config["users"][0]["user"]["token"]


def call(method, path, body=None, content_type="application/json"):
    headers = {"Authorization": "Bearer " + token, "Content-Type": content_type}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=5) as response:
        return json.load(response)


def patch(path, body):
    return call("PATCH", path, body, "application/merge-patch+json")


def desired(site):
    meta = site["metadata"]
    owner = {"apiVersion": "example.com/v1", "kind": "Site", "name": meta["name"], "uid": meta["uid"], "controller": True}
    return {"metadata": {"ownerReferences": [owner]}, "data": {"title": site["spec"]["title"]}}


def read(path):
    try:
        return call("GET", path)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return None


def ensure(collection, site, content):
    name = site["metadata"]["name"]
    found = read(f"{collection}/{name}")
    if found is None:
        # The Site may be gone since it was listed.
        live = read(f"/apis/example.com/v1/namespaces/{site['metadata']['namespace']}/sites/{name}")
        if live is None or live["metadata"]["uid"] != site["metadata"]["uid"] or "deletionTimestamp" in live["metadata"]:
            return
        content["metadata"]["name"] = name
        call("POST", collection, content)
        return
    if found["data"] != content["data"] or found["metadata"].get("ownerReferences") != content["metadata"]["ownerReferences"]:
        patch(f"{collection}/{name}", content)


def reconcile(site):
    meta = site["metadata"]
    if "deletionTimestamp" in meta:
        return
    collection = f"/api/v1/namespaces/{meta['namespace']}/configmaps"
    status = site.get("status", {})
    content = desired(site)
    if os.environ.get("BUG") == "generated":
        if "configMap" in status:
            return
        content["metadata"]["generateName"] = meta["name"] + "-"
        name = call("POST", collection, content)["metadata"]["name"]
    else:
        name = meta["name"]
        ensure(collection, site, content)
    if status != {"configMap": name, "ready": True}:
        path = f"/apis/example.com/v1/namespaces/{meta['namespace']}/sites/{meta['name']}/status"
        patch(path, {"status": {"configMap": name, "ready": True}})


while True:
    try:
        for site in call("GET", "/apis/example.com/v1/sites")["items"]:
            reconcile(site)
    except Exception as error:
        print("retry:", error, flush=True)
    time.sleep(0.05)
