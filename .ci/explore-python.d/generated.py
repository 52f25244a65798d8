"""Creates a child under a generated name and records the name afterwards: a crash in between leaves two."""

import kopf
from client import call


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.posting.enabled = False


@kopf.on.create("example.com", "v1", "sites", backoff=0.5)
def create(spec, name, namespace, **_):
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"title": spec["title"]}}
    kopf.adopt(child)
    child["metadata"] |= {"name": None, "generateName": name + "-"}
    made = call("POST", f"/api/v1/namespaces/{namespace}/configmaps", child)
    return {"configMap": made["metadata"]["name"]}
