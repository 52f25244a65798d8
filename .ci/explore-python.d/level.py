"""Restores the child again and again, and creates it only if the resource still exists."""

import urllib.error

import kopf
from client import call


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.posting.enabled = False
    # By default, the end of a timer that runs is awaited for a minute.
    settings.background.cancellation_polling = 0.5


def read(path):
    """Reads an object itself: after a restart, lists and watches may show an old state."""
    try:
        return call("GET", path)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


@kopf.on.create("example.com", "v1", "sites", backoff=0.5)
@kopf.on.update("example.com", "v1", "sites", backoff=0.5)
@kopf.timer("example.com", "v1", "sites", interval=0.7)
def ensure(spec, name, namespace, uid, **_):
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"title": spec["title"]}}
    kopf.adopt(child)
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    found = read(f"{collection}/{name}")
    if found is None:
        site = read(f"/apis/example.com/v1/namespaces/{namespace}/sites/{name}")
        if site and site["metadata"]["uid"] == uid and "deletionTimestamp" not in site["metadata"]:
            call("POST", collection, child)
        return
    owners = child["metadata"]["ownerReferences"]
    if found["data"] != child["data"] or found["metadata"].get("ownerReferences") != owners:
        change = {"metadata": {"ownerReferences": owners}, "data": child["data"]}
        call("PATCH", f"{collection}/{name}", change, "application/merge-patch+json")
