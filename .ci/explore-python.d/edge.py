"""Reacts to the creation of a resource only, without a look whether it still exists."""

import kopf
from client import call


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.posting.enabled = False


@kopf.on.create("example.com", "v1", "sites", backoff=0.5)
def create(spec, name, namespace, **_):
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"title": spec["title"]}}
    kopf.adopt(child)
    path = f"/api/v1/namespaces/{namespace}/configmaps/{name}?fieldManager=site&force=true"
    call("PATCH", path, child, "application/apply-patch+yaml")
