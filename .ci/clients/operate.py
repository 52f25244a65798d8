"""Runs the operator of exercise.py, and sees its handlers do what they should."""

import time

import kopf.testing
from kubernetes import client, config

config.load_kube_config()
core, custom = client.CoreV1Api(), client.CustomObjectsApi()
PLACE = {"group": "example.com", "version": "v1", "namespace": "default", "plural": "exercises"}


# While the operator runs, what is printed goes to it.
done = []


def until(what, check):
    started = time.monotonic()
    while time.monotonic() - started < 30:
        try:
            if check():
                done.append(f"kopf: {what} ({time.monotonic() - started:.1f} s)")
                return
        except KeyError:
            pass  # not there yet
        except client.ApiException as error:
            if error.status != 404:
                raise
        time.sleep(0.05)
    raise AssertionError(what)


def log():
    return core.read_namespaced_config_map("one-log", "default").data or {}


def one():
    return custom.get_namespaced_custom_object(**PLACE, name="one")


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
    custom.create_namespaced_custom_object(**PLACE, body={"apiVersion": "example.com/v1", "kind": "Exercise", "metadata": {"name": "one"}, "spec": {"repeat": 2}})
    until("the finalizer is set", lambda: one()["metadata"].get("finalizers") == ["example.com/exercised"])
    until("on.create has run", lambda: log().get("created") == "2" and one()["status"]["phase"] == "Running")
    until("a handler that failed is called again", lambda: "retried" in log())
    until("its result is in the status", lambda: one()["status"]["create"] == {"repeat": 2})
    until("the event is posted", lambda: [e for e in core.list_namespaced_event("default").items if e.reason == "Begun"])
    custom.patch_namespaced_custom_object(**PLACE, name="one", body={"spec": {"repeat": 5}})
    until("on.update has run", lambda: "from-2-to-5" in log())
    until("the timer has run twice", lambda: "ticked" in log())
    custom.delete_namespaced_custom_object(**PLACE, name="one")
    until("on.delete has run", lambda: core.read_namespaced_config_map("one-over", "default"))
    until("the exercise is gone", lambda: not custom.list_namespaced_custom_object(**PLACE)["items"])
    until("what it owned is gone", lambda: not [m for m in core.list_namespaced_config_map("default").items if m.metadata.name == "one-log"])
assert operator.exit_code == 0, operator.output
assert operator.exception is None, operator.exception
print(*done, sep="\n")
