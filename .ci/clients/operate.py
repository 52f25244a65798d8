"""Runs the operator of exercise.py and checks the results of its handlers."""

import time

import kopf.testing
from kubernetes import client, config

config.load_kube_config()
core, custom = client.CoreV1Api(), client.CustomObjectsApi()
EXERCISES = {"group": "example.com", "version": "v1", "namespace": "default", "plural": "exercises"}


# KopfRunner captures the standard output while the operator runs.
passed = []


def wait_until(condition, check):
    started = time.monotonic()
    while time.monotonic() - started < 30:
        try:
            if check():
                passed.append(f"kopf: {condition} ({time.monotonic() - started:.1f} s)")
                return
        except KeyError:
            pass  # not set yet
        except client.ApiException as error:
            if error.status != 404:
                raise
        time.sleep(0.05)
    raise AssertionError(f"timeout: {condition}")


def log():
    return core.read_namespaced_config_map("one-log", "default").data or {}


def exercise():
    return custom.get_namespaced_custom_object(**EXERCISES, name="one")


client.ApiextensionsV1Api().create_custom_resource_definition(
    {
        "metadata": {"name": "exercises.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Exercise", "plural": "exercises", "singular": "exercise", "shortNames": ["ex"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            },
                        }
                    },
                }
            ],
        },
    }
)
with kopf.testing.KopfRunner(["run", "-n", "default", "exercise.py"], timeout=120) as operator:
    custom.create_namespaced_custom_object(**EXERCISES, body={"apiVersion": "example.com/v1", "kind": "Exercise", "metadata": {"name": "one"}, "spec": {"repeat": 2}})
    wait_until("the finalizer is set", lambda: exercise()["metadata"].get("finalizers") == ["example.com/exercised"])
    wait_until("on.create has run", lambda: log().get("created") == "2" and exercise()["status"]["phase"] == "Running")
    wait_until("a failed handler is retried", lambda: "retried" in log())
    wait_until("the status contains the result of the handler", lambda: exercise()["status"]["create"] == {"repeat": 2})
    wait_until("the event is recorded", lambda: [e for e in core.list_namespaced_event("default").items if e.reason == "Started"])
    custom.patch_namespaced_custom_object(**EXERCISES, name="one", body={"spec": {"repeat": 5}})
    wait_until("on.update has run", lambda: "from-2-to-5" in log())
    wait_until("the timer has run twice", lambda: "ticked" in log())
    custom.delete_namespaced_custom_object(**EXERCISES, name="one")
    wait_until("on.delete has run", lambda: core.read_namespaced_config_map("one-deleted", "default"))
    wait_until("the exercise is deleted", lambda: not custom.list_namespaced_custom_object(**EXERCISES)["items"])
    wait_until("its dependents are deleted", lambda: not [m for m in core.list_namespaced_config_map("default").items if m.metadata.name == "one-log"])
assert operator.exit_code == 0, operator.output
assert operator.exception is None, operator.exception
print(*passed, sep="\n")
