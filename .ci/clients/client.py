"""Tests the Python `kubernetes` client: typed and dynamic objects, lists, resumed watches and leases."""

import datetime
import threading
import time

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.rest import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

config.load_kube_config()
core = client.CoreV1Api()
dynamic_client = dynamic.DynamicClient(client.ApiClient())
NAMESPACE = "python"
GROUP, VERSION = "example.com", "v1"


def expect_error(code, call, *args, **kwargs):
    """Makes a request that must fail with a status code, and returns the error."""
    try:
        call(*args, **kwargs)
    except ApiException as error:
        assert error.status == code, error
        return error
    raise AssertionError(f"{call} succeeded")


def typed_objects():
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    for i in range(25):
        core.create_namespaced_config_map(
            NAMESPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name=f"cm-{i:02}", labels={"odd": str(i % 2)}), data={"n": str(i)})
        )
    assert len(core.list_namespaced_config_map(NAMESPACE, label_selector="odd=1").items) == 12
    pages, token = [], None
    while token != "":
        page = core.list_namespaced_config_map(NAMESPACE, label_selector="odd", limit=10, _continue=token)
        pages.append(len(page.items))
        token = page.metadata._continue or ""
    assert pages == [10, 10, 5], pages
    pod = client.V1Pod(
        metadata=client.V1ObjectMeta(name="pod"), spec=client.V1PodSpec(containers=[client.V1Container(name="a", image="a:1")])
    )
    core.create_namespaced_pod(NAMESPACE, pod)
    core.patch_namespaced_pod_status("pod", NAMESPACE, {"status": {"phase": "Running", "podIP": "10.1.2.3"}})
    assert core.read_namespaced_pod("pod", NAMESPACE).status.pod_ip == "10.1.2.3"
    assert core.list_pod_for_all_namespaces(field_selector="status.phase=Running").items[0].metadata.name == "pod"
    expect_error(409, core.create_namespaced_pod, NAMESPACE, pod)
    expect_error(404, core.read_namespaced_pod, "none", NAMESPACE)
    pod.metadata.name = "Pod"
    assert "metadata.name" in expect_error(422, core.create_namespaced_pod, NAMESPACE, pod).body
    config_map = core.read_namespaced_config_map("cm-00", NAMESPACE)
    stale = core.read_namespaced_config_map("cm-00", NAMESPACE)
    config_map.data["n"] = "new"
    core.replace_namespaced_config_map("cm-00", NAMESPACE, config_map)
    expect_error(409, core.replace_namespaced_config_map, "cm-00", NAMESPACE, stale)
    utils.create_from_dict(
        client.ApiClient(), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": NAMESPACE}, "stringData": {"a": "b"}}
    )
    assert core.read_namespaced_secret("s", NAMESPACE).data == {"a": "Yg=="}
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="odd=0")
    assert client.VersionApi().get_code().minor == "36"


def watches():
    """Lists, watches, disconnects and resumes from the last resource version, as an informer does."""
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    received = []

    def receive(version, count):
        for event in watch.Watch().stream(
            core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=20, allow_watch_bookmarks=True
        ):
            if event["type"] != "BOOKMARK":
                received.append((event["type"], event["object"].metadata.name))
                count -= 1
                version = event["object"].metadata.resource_version
            if count == 0:
                return version
        raise AssertionError(f"the watch ended after {received}")

    writer = threading.Thread(target=write_config_map)
    writer.start()
    version = receive(version, 2)
    writer.join()
    receive(version, 2)
    assert received == [("ADDED", "w"), ("MODIFIED", "w"), ("MODIFIED", "w"), ("DELETED", "w")], received
    started = time.monotonic()
    list(watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, timeout_seconds=1))
    assert 0.9 < time.monotonic() - started < 5


def write_config_map():
    core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="w")))
    for i in range(2):
        core.patch_namespaced_config_map("w", NAMESPACE, {"data": {"i": str(i)}})
    core.delete_namespaced_config_map("w", NAMESPACE)


def custom_resources():
    definitions = client.ApiextensionsV1Api()
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer", "maximum": 9}, "text": {"type": "string"}}},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    definitions.create_custom_resource_definition(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"things.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
                "versions": [
                    {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
                ],
            },
        }
    )
    for _ in range(100):
        try:
            things = dynamic_client.resources.get(api_version=f"{GROUP}/{VERSION}", kind="Thing")
            break
        except dynamic.exceptions.ResourceNotFoundError:
            dynamic_client.resources.invalidate_cache()
            time.sleep(0.1)
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 1}}
    created = things.create(body=body, namespace=NAMESPACE)
    assert created.spec.size == 1 and created.metadata.generation == 1
    try:
        things.create(body={**body, "metadata": {"name": "b"}, "spec": {"size": 10}}, namespace=NAMESPACE)
        raise AssertionError("spec.size 10 is accepted")
    except dynamic.exceptions.UnprocessibleEntityError as error:
        assert "spec.size" in str(error.body)
    patched = things.patch(body={"spec": {"text": "t"}}, name="a", namespace=NAMESPACE, content_type="application/merge-patch+json")
    assert patched.spec.text == "t" and patched.metadata.generation == 2
    applied = things.server_side_apply(body={**body, "spec": {"size": 2}}, namespace=NAMESPACE, field_manager="py", force_conflicts=True)
    assert applied.spec.size == 2 and applied.spec.text == "t"
    try:
        things.server_side_apply(body={**body, "spec": {"size": 3}}, namespace=NAMESPACE, field_manager="other")
        raise AssertionError("the conflict is not reported")
    except ConflictError as error:
        assert "conflict with" in str(error.body) and ".spec.size" in str(error.body)
    status = things.status.patch(
        body={"status": {"phase": "Ready"}, "spec": {"size": 9}}, name="a", namespace=NAMESPACE, content_type="application/merge-patch+json"
    )
    assert status.status.phase == "Ready" and status.spec.size == 2
    assert [thing.metadata.name for thing in things.get(namespace=NAMESPACE).items] == ["a"]
    events = []
    threading.Timer(0.5, lambda: things.delete(name="a", namespace=NAMESPACE)).start()
    for event in things.watch(namespace=NAMESPACE, timeout=15):
        events.append(event["type"])
        if event["type"] == "DELETED":
            break
    assert events == ["ADDED", "DELETED"], events
    try:
        things.get(name="a", namespace=NAMESPACE)
        raise AssertionError("thing a still exists")
    except NotFoundError:
        pass
    definitions.delete_custom_resource_definition(f"things.{GROUP}")


def leases():
    """Of two clients that acquire a lease at the same resource version, one gets a conflict."""
    leases = client.CoordinationV1Api()
    now = datetime.datetime.now(datetime.timezone.utc)
    lease = leases.create_namespaced_lease(
        NAMESPACE,
        client.V1Lease(metadata=client.V1ObjectMeta(name="leader"), spec=client.V1LeaseSpec(holder_identity="a", lease_duration_seconds=1, renew_time=now)),
    )
    lease.spec.holder_identity = "b"
    leases.replace_namespaced_lease("leader", NAMESPACE, lease)
    lease.spec.holder_identity = "c"
    expect_error(409, leases.replace_namespaced_lease, "leader", NAMESPACE, lease)


def namespace_deletion():
    core.delete_namespace(NAMESPACE)
    for _ in range(100):
        if not [n for n in core.list_namespace().items if n.metadata.name == NAMESPACE]:
            return
        time.sleep(0.1)
    raise AssertionError("the namespace still exists")


for step in (typed_objects, watches, custom_resources, leases, namespace_deletion):
    started = time.monotonic()
    step()
    print(f"kubernetes: {step.__name__} ({time.monotonic() - started:.1f} s)")
