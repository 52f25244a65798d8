//! `flyball olm` with the permissions of a namespace's administrator.

use crate::olm::{CATALOG, Catalog, apply, is_succeeded, json_of, kubeconfig_of, until};
use crate::{CommandOutput, Home};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// The administrator of namespace `demo`, on another machine: nothing about the control plane is known there.
struct Admin<'h> {
    home: &'h Home,
    kubeconfig: PathBuf,
}

impl Admin<'_> {
    fn run(&self, args: &[&str]) -> CommandOutput {
        let elsewhere = self.home.0.join("elsewhere");
        fs::create_dir_all(&elsewhere).unwrap();
        let mut command = self.home.command(args);
        command.env("HOME", elsewhere).env("KUBECONFIG", &self.kubeconfig);
        CommandOutput::of(&command.output().unwrap())
    }
}

fn object(version: &str, kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    let metadata = json!({"name": name, "namespace": namespace});
    json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
}

/// Creates a namespace with an OperatorGroup and an administrator, and a catalog that all namespaces see.
fn prepare<'h>(home: &'h Home, catalog: &Catalog) -> Admin<'h> {
    let api = "operators.coreos.com";
    let rbac = "rbac.authorization.k8s.io";
    let source = json!({"sourceType": "grpc", "address": catalog.address});
    let metadata = json!({"name": "admin", "namespace": "demo"});
    apply(
        home,
        &[
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}),
            object(&format!("{api}/v1alpha1"), "CatalogSource", "olm", "demo", source),
            object(&format!("{api}/v1"), "OperatorGroup", "demo", "group", json!({"targetNamespaces": ["demo"]})),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "admin", "namespace": "demo"}]}),
        ],
    );
    Admin { home, kubeconfig: kubeconfig_of(home, "demo", "admin") }
}

#[test]
fn administrator_of_a_namespace_uses_all_commands() {
    let home = Home::new("olm-users");
    home.run(&["cluster", "up", "--nodes", "1", "--quiet"]).ok();
    home.run(&["olm", "install", "--quiet"]).ok();
    let catalog = Catalog::serve(&home);
    let admin = prepare(&home, &catalog);
    let spec = json!({"name": "memo", "source": "demo", "sourceNamespace": "olm", "channel": "stable",
        "startingCSV": "memo.v1.0.0", "installPlanApproval": "Manual"});
    let subscription = object("operators.coreos.com/v1alpha1", "Subscription", "demo", "memo", spec);
    fs::write(home.0.join("memo.json"), subscription.to_string()).unwrap();
    admin.run(&["apply", "-f", "memo.json"]).ok();
    let group = object("operators.coreos.com/v1", "OperatorGroup", "demo", "own", json!({}));
    fs::write(home.0.join("group.json"), group.to_string()).unwrap();
    admin.run(&["apply", "-f", "group.json"]).fails_with(&["forbidden"]);
    until(&home, "olm why memo -n demo", |output| output.out.contains("waits for approval"));

    let why = admin.run(&["olm", "why", "memo", "-n", "demo"]).ok();
    for text in
        ["waits for approval", "not permitted to read the CatalogSources in namespace olm", "--catalog demo=REF"]
    {
        assert!(why.out.contains(text), "no {text:?}: {why:?}");
    }
    let override_ = format!("--catalog=demo={CATALOG}");
    let why = admin.run(&["olm", "why", "memo", "-n", "demo", &override_, "-o", "json"]).ok();
    assert_eq!(json_of(&why)["selection"]["next"]["name"], "memo.v1.0.0", "{why:?}");
    let status = admin.run(&["olm", "status", "-n", "demo"]).ok();
    assert!(status.out.starts_with("lifecycle manager: unknown\n"), "{status:?}");
    assert!(status.out.contains("not permitted to read the Deployment of the lifecycle manager"), "{status:?}");
    admin.run(&["olm", "status"]).fails_with(&["forbidden", "-n NAMESPACE"]);
    admin.run(&["get", "packagemanifests.packages.operators.coreos.com", "-n", "demo"]).ok();

    admin.run(&["olm", "approve", "memo", "-n", "demo"]).ok();
    until(&home, "olm status -n demo -o json", |output| is_succeeded(output, "memo.v1.0.0"));
    until(&home, "olm why memo -n demo", |output| output.out.contains("waits for approval to install memo.v1.1.0"));
    admin.run(&["olm", "rehearse", "memo", "-n", "demo"]).fails_with(&["not permitted to read", "--catalog demo=REF"]);
    let played = admin.run(&["olm", "rehearse", "memo", "-n", "demo", &override_]).ok();
    let verdict = "the upgrade from memo.v1.0.0 to memo.v1.1.0 works, as far as you may read the cluster\n";
    assert!(played.out.contains(verdict), "{played:?}");
    assert!(played.out.contains("not permitted to read CRDs of other operators"), "{played:?}");
    admin
        .run(&["olm", "rehearse", "memo", "-n", "demo", &override_, "--to", "memo.v1.0.0"])
        .fails_with(&["memo.v1.0.0 is installed: there is nothing to rehearse"]);
    admin
        .run(&["olm", "rehearse", "memo", "-n", "demo", &override_, "--to", "memo.v9"])
        .fails_with(&["package memo of the catalog has no memo.v9", "it has memo.v1.0.0"]);
    admin.run(&["olm", "approve", "memo", "-n", "demo", "--quiet"]).ok();
    until(&home, "olm status -n demo -o json", |output| is_succeeded(output, "memo.v1.1.0"));
    let back = admin.run(&["olm", "rollback", "memo", "-n", "demo", &override_]).ok();
    assert!(back.out.contains("rolled back from memo.v1.1.0 to memo.v1.0.0"), "{back:?}");
    assert!(back.out.contains("not permitted to read custom resources of other namespaces"), "{back:?}");

    // Custom resources elsewhere, which only the manager may read, prevent another one.
    let elsewhere = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}});
    let diary = object("demo.flyball.dev/v1", "Memo", "elsewhere", "diary", json!({"text": "a long text"}));
    apply(&home, &[elsewhere, diary]);
    let refused = admin.run(&["olm", "rollback", "memo", "-n", "demo", &override_, "--to", "memo.v1.9.0"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(!refused.err.contains("did not succeed after"), "it ends before the timeout: {refused:?}");
    refused.fails_with(&[
        "memo.v1.9.0 cannot be installed: InstallPlan ",
        "outside of namespace \"demo\"",
        "flyball olm pin memo -n demo --remove",
    ]);
    admin.run(&["olm", "pin", "memo", "--remove", "-n", "demo"]).ok();
}
