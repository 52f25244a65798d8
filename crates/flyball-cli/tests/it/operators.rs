//! `flyball describe`, `flyball crd` and `flyball why --timeline`.

use crate::Home;
use flyball::{LeaderElection, Operator};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, CustomResourceExt};
use myapp::controllers::myapp::policy;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use vmgroup::api::vmgroup_v1alpha1::VmGroup;

#[test]
fn operator_is_described_by_its_program() {
    let home = Home::new("describe");
    let operator = Operator::new("vm-operator").version("1.2.3").crd(VmGroup::crd()).policy(policy());
    let described = operator.leader_election(LeaderElection::default()).describe();
    fs::write(home.0.join("described.json"), serde_json::to_vec(&described).unwrap()).unwrap();
    let program = home.0.join("operator");
    let script =
        "#!/bin/sh\n[ \"$1\" = describe ] || { echo \"what is $1?\" >&2; exit 2; }\nexec /bin/cat described.json\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();

    let output = home.run(&["describe", "operator", "./operator"]).ok().out;
    for words in [
        "vm-operator 1.2.3\n",
        "leader election: lease vm-operator, duration 15 s\n",
        "KIND      CRD",
        "vmgroups.vm.codeconnect.vmworld.com",
        "v1alpha1 (stored)",
        "POLICY",
        "myapps.v1alpha1.apps.flyball.dev   oldObject == null || ",
        "events.events.k8s.io",
    ] {
        assert!(output.contains(words), "no {words:?} in\n{output}");
    }
    assert!(!output.contains("WEBHOOK"), "absent parts are omitted\n{output}");
    let json: Value =
        serde_json::from_str(&home.run(&["describe", "operator", "./operator", "-o", "json"]).ok().out).unwrap();
    assert_eq!(json["definitions"][0]["versions"][0]["columns"][0], "Phase");
    home.run(&["describe", "operator", "./nothing"]).fails_with(&["cannot run `./nothing describe`"]);
    fs::write(&program, "#!/bin/sh\necho sideways >&2\nexit 2\n").unwrap();
    home.run(&["describe", "operator", "./operator"])
        .fails_with(&["`./operator describe` failed with exit status: 2: sideways\n", "hint"]);
}

/// Works on the cluster of a home.
pub(crate) fn on_cluster<T>(home: &Home, work: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Kubeconfig::read_from(home.0.join(".kube/config")).unwrap();
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        work(Client::try_from(config).unwrap()).await
    })
}

#[test]
fn role_is_found_by_name_and_by_relative_path() {
    let home = Home::new("role-path");
    fs::create_dir_all(home.0.join("p/roles/site/tasks")).unwrap();
    fs::write(home.0.join("p/roles/site/tasks/main.yml"), "- debug: {msg: hello}\n").unwrap();
    let describe = |role: &str| {
        let watches = format!("- {{group: a.io, version: v1, kind: Site, role: {role}}}\n");
        fs::write(home.0.join("p/watches.yaml"), watches).unwrap();
        home.run(&["describe", "operator", "p/watches.yaml"])
    };
    for role in ["site", "roles/site"] {
        assert!(describe(role).ok().out.contains("sites.v1.a.io"), "{role}");
    }
    assert!(home.run(&["describe", "operator", "p"]).ok().out.contains("sites.v1.a.io"), "by its directory");
    let output = home.run(&["manifests", "--program", "p/roles"]);
    assert!(output.code == Some(2) && output.err.contains("the directory has no watches.yaml"), "{output:?}");
    describe("roles/none").fails_with(&["entry 1 (Site): role: role roles/none not found"]);
}

fn definition(storage: &str) -> CustomResourceDefinition {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let names = json!({"plural": "gears", "singular": "gear", "kind": "Gear", "listKind": "GearList"});
    let spec = json!({"group": "example.com", "names": names, "scope": "Namespaced",
        "versions": [version("v1"), version("v1beta1")]});
    serde_json::from_value(json!({"metadata": {"name": "gears.example.com"}, "spec": spec})).unwrap()
}

#[test]
fn objects_in_old_versions_are_migrated() {
    let home = Home::new("migrate");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Gear"));
    on_cluster(&home, async |client| {
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        definitions.create(&PostParams::default(), &definition("v1beta1")).await.unwrap();
        let gears: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
        while gears.list(&Default::default()).await.is_err() {
            tokio::task::yield_now().await;
        }
        for name in ["a", "b", "c"] {
            let object = DynamicObject::new(name, &resource).data(json!({"teeth": 12345678901234567890u64}));
            gears.create(&PostParams::default(), &object).await.unwrap();
        }
        let patch = Patch::Merge(json!({"spec": definition("v1").spec}));
        definitions.patch("gears.example.com", &PatchParams::default(), &patch).await.unwrap();
    });
    let migrate = |flags: &[&str]| home.run(&[&["crd", "migrate", "gears.example.com"], flags].concat());
    let json = |flags: &[&str]| -> Value { serde_json::from_str(&migrate(flags).ok().out).unwrap() };

    let dry = json(&["--dry-run", "-o", "json"]);
    assert_eq!((&dry["storedVersions"], &dry["dryRun"]), (&json!(["v1beta1", "v1"]), &json!(true)));
    let rest = json(&["--dry-run", "-o", "json", "--after", "default/b"]);
    assert_eq!((&dry["checked"], &rest["checked"]), (&json!(3), &json!(1)));
    let done = json(&["-o", "json", "--page", "2"]);
    let stored = done["rewritten"].as_u64().unwrap();
    assert_eq!((stored, &done["storedVersions"]), (3, &json!(["v1"])), "{done}");
    assert!(migrate(&[]).ok().out.contains("nothing to do"));
    let migrated = on_cluster(&home, async |client| {
        let gears: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
        gears.get("a").await.unwrap()
    });
    assert_eq!(migrated.data["teeth"], json!(12345678901234567890u64));
    home.run(&["crd", "migrate", "nothing.example.com"])
        .fails_with(&["CustomResourceDefinition nothing.example.com not found"]);
}

#[test]
fn timeline_shows_all_effects_of_an_object() {
    let home = Home::new("timeline");
    home.run(&["cluster", "up", "--quiet"]).ok();
    on_cluster(&home, async |client| {
        let template =
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}});
        let deployment = json!({"metadata": {"name": "web"}, "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
        let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = Api::default_namespaced(client.clone());
        let stored =
            deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
        let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": stored.metadata.uid}]);
        let map = json!({"metadata": {"name": "page", "ownerReferences": owner}});
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    });
    let timeline = |object: &str| -> Value {
        let output = home.run(&["why", object, "--timeline", "-o", "json"]).ok().out;
        serde_json::from_str(&output).unwrap()
    };
    let pods = |tree: &Value| {
        let sets = tree["children"].as_array().unwrap().iter().filter(|child| child["kind"] == "ReplicaSet");
        sets.flat_map(|set| set["children"].as_array().cloned().unwrap_or_default()).collect::<Vec<_>>()
    };
    let mut tree = timeline("deploy/web");
    for _ in 0..100 {
        if pods(&tree).len() == 2 {
            break;
        }
        tree = timeline("deploy/web");
    }
    assert_eq!(pods(&tree).len(), 2, "{tree:#}");
    assert!(tree["children"].as_array().unwrap().iter().any(|child| child["kind"] == "ConfigMap"));
    let steps = tree["steps"].as_array().unwrap();
    assert_eq!(steps[0]["what"], "created");
    assert!(steps.iter().any(|step| step["what"].as_str().unwrap().starts_with("ScalingReplicaSet")), "{steps:#?}");

    // From a pod, only the path up to the first cause is shown.
    let pod = pods(&tree)[0]["name"].as_str().unwrap().to_owned();
    let chain = timeline(&format!("pod/{pod}"));
    assert_eq!((&chain["kind"], pods(&chain).len()), (&json!("Deployment"), 1));
    let output = home.run(&["why", "deployment/web", "--timeline"]).ok().out;
    assert!(output.starts_with("Deployment/web") && output.contains("└─ "), "{output}");
    assert!(home.run(&["why", "deployment", "web", "--timeline"]).ok().out.starts_with("Deployment/web"));
    home.run(&["why", "gadget/web", "--timeline"]).fails_with(&["no kind \"gadget\""]);
    home.run(&["why", "deployment/none", "--timeline"]).fails_with(&["none"]);
    home.run(&["why", "web", "--timeline"]).usage_with(&["does not name an object", "kind/name"]);
    home.run(&["why", "deployment/web", "spec.replicas", "--timeline"]).usage_with(&["--timeline is about an object"]);
    home.run(&["why", "deployment/web", "--timeline", "--not"]).usage_with(&["--not"]);
    home.run(&["trace", "deployment/web"]).usage_with(&["no such command", "flyball why deployment/web --timeline"]);
}
