"""Operator of the Exercise kind. It records the called handlers in a ConfigMap."""

import kopf
from kubernetes import client, config


@kopf.on.startup()
def start(settings: kopf.OperatorSettings, **_):
    config.load_kube_config()
    settings.posting.level = 20
    settings.persistence.finalizer = "example.com/exercised"
    settings.watching.server_timeout = 20


def record(namespace, name, key):
    client.CoreV1Api().patch_namespaced_config_map(f"{name}-log", namespace, {"data": {key: "yes"}})


@kopf.on.create("example.com", "v1", "exercises")
def create(body, spec, name, namespace, patch, **_):
    log = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-log"}, "data": {"created": str(spec["repeat"])}}
    kopf.adopt(log)
    client.CoreV1Api().create_namespaced_config_map(namespace, log)
    kopf.info(body, reason="Started", message="exercise started")
    patch.status["phase"] = "Running"
    return {"repeat": spec["repeat"]}


@kopf.on.create("example.com", "v1", "exercises")
def second_attempt(retry, name, namespace, **_):
    if retry == 0:
        raise kopf.TemporaryError("not yet", delay=0.3)
    record(namespace, name, "retried")


@kopf.on.update("example.com", "v1", "exercises", field="spec.repeat")
def update(old, new, name, namespace, **_):
    record(namespace, name, f"from-{old}-to-{new}")


@kopf.timer("example.com", "v1", "exercises", interval=0.5)
def tick(name, namespace, memo, **_):
    memo.ticks = memo.get("ticks", 0) + 1
    if memo.ticks == 2:
        record(namespace, name, "ticked")


@kopf.on.delete("example.com", "v1", "exercises")
def delete(name, namespace, **_):
    client.CoreV1Api().create_namespaced_config_map(namespace, {"metadata": {"name": f"{name}-deleted"}})
