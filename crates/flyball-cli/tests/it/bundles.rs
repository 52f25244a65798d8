//! `flyball bundle`: bundles of operators in Rust, of charts and of roles.

use crate::manifests::{program, vm_operator};
use crate::olm::until;
use crate::{CommandOutput, Home};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const CSV: &str = r#"
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: site.v1.0.0
  annotations:
    alm-examples: '[{"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "a"}, "spec": {"pages": 1}}]'
spec:
  displayName: Site
  version: 1.0.0
  provider: {name: Acme}
  customresourcedefinitions:
    owned: [{name: sites.example.com, kind: Site, version: v1, description: A site.}]
  installModes: [{type: AllNamespaces, supported: true}]
  install:
    strategy: deployment
    spec:
      deployments:
      - name: site
        spec:
          selector: {matchLabels: {app: site}}
          template:
            metadata: {labels: {app: site}}
            spec: {serviceAccountName: site, containers: [{name: manager, image: quay.io/acme/site:1}]}
"#;
const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Site, plural: sites, singular: site, listKind: SiteList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {pages: {type: integer, maximum: 5}}}}
";
const ANNOTATIONS: &str = "
annotations:
  operators.operatorframework.io.bundle.mediatype.v1: registry+v1
  operators.operatorframework.io.bundle.manifests.v1: manifests/
  operators.operatorframework.io.bundle.metadata.v1: metadata/
  operators.operatorframework.io.bundle.package.v1: site
  operators.operatorframework.io.bundle.channels.v1: stable
";

impl Home {
    pub(crate) fn write_bundle(&self, folder: &str) {
        for (path, text) in
            [("manifests/csv.yaml", CSV), ("manifests/crd.yaml", CRD), ("metadata/annotations.yaml", ANNOTATIONS)]
        {
            let path = self.0.join(folder).join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
}

fn json_of(output: &CommandOutput) -> Value {
    serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn bundles_of_rust_operators_are_valid() {
    let home = Home::new("bundlecreate");
    let program = program(&home, &vm_operator());
    fs::write(home.0.join("logo.svg"), "<svg xmlns='http://www.w3.org/2000/svg'/>").unwrap();
    let flags = [
        "bundle",
        "create",
        "--program",
        &program,
        "--image",
        "quay.io/acme/vm-operator:1.2.0",
        "--bundle-version",
        "1.2.0",
        "--provider",
        "Acme",
        "--maintainer",
        "Ann <ann@example.com>",
        "--link",
        "Source=https://example.com",
        "--icon",
        "logo.svg",
        "--keyword",
        "vm",
        "--level",
        "3",
        "--category",
        "Cloud Provider",
        "--min-kube-version",
        "1.28.0",
        "--replaces",
        "vm-operator.v1.1.0",
        "--skip-range",
        ">=1.0.0 <1.2.0",
        "--channel",
        "stable",
        "--channel",
        "candidate",
    ];
    let output = home.run(&[&flags[..], &["-o", "json"]].concat()).ok();
    let report = json_of(&output);
    assert_eq!(
        (&report["name"], &report["folder"]),
        (&json!("vm-operator.v1.2.0"), &json!("operators/vm-operator/1.2.0"))
    );
    let errors: Vec<_> =
        report["findings"].as_array().unwrap().iter().filter(|finding| finding["severity"] == "error").collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let folder = home.0.join("operators/vm-operator/1.2.0");
    let csv = yaml(&folder.join("manifests/vm-operator.clusterserviceversion.yaml"));
    let spec = &csv["spec"];
    assert_eq!(csv["metadata"]["annotations"]["capabilities"], "Full Lifecycle");
    assert_eq!(csv["metadata"]["annotations"]["olm.skipRange"], ">=1.0.0 <1.2.0");
    assert_eq!((&spec["version"], &spec["replaces"]), (&json!("1.2.0"), &json!("vm-operator.v1.1.0")));
    assert_eq!((&spec["displayName"], &spec["icon"][0]["mediatype"]), (&json!("Vm Operator"), &json!("image/svg+xml")));
    let owned = &spec["customresourcedefinitions"]["owned"][0];
    assert_eq!((&owned["kind"], &owned["name"]), (&json!("VmGroup"), &json!("vmgroups.vm.codeconnect.vmworld.com")));
    assert!(owned["specDescriptors"].as_array().is_some_and(|descriptors| !descriptors.is_empty()));
    let deployment = &spec["install"]["spec"]["deployments"][0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "quay.io/acme/vm-operator:1.2.0");
    assert_eq!(container["env"][0]["name"], "WATCH_NAMESPACE");
    let account = &deployment["spec"]["template"]["spec"]["serviceAccountName"];
    for list in ["permissions", "clusterPermissions"] {
        assert_eq!(&spec["install"]["spec"][list][0]["serviceAccountName"], account, "{list}");
    }
    assert!(spec["installModes"].as_array().unwrap().iter().all(|mode| mode["supported"] == true));
    let examples: Value =
        serde_json::from_str(csv["metadata"]["annotations"]["alm-examples"].as_str().unwrap()).unwrap();
    assert_eq!(examples[0]["kind"], "VmGroup");
    let annotations = yaml(&folder.join("metadata/annotations.yaml"));
    assert_eq!(annotations["annotations"]["operators.operatorframework.io.bundle.channels.v1"], "stable,candidate");
    assert!(!folder.join("manifests").join("vm-operator-controller-manager_serviceaccount.yaml").exists());
    home.run(&["bundle", "validate", "operators/vm-operator/1.2.0"]).ok();
    let again = home.run(&flags).ok();
    assert!(again.out.contains("annotations.yaml unchanged"), "{again:?}");
    home.run(&["bundle", "create", "--program", &program, "--image", "a", "--install-mode", "Sideways"]).usage();
    let flags =
        ["bundle", "create", "--program", &program, "--image", "a", "--bundle-version", "1.0.0", "--out", "bad"];
    home.run(&flags).fails_with(&["bundle vm-operator.v1.0.0 has 1 error", "the files are written"]);
}

#[test]
fn bundles_of_charts_and_roles_are_valid() {
    let home = Home::new("bundlesamples");
    for sample in ["memcached-helm", "memcached-ansible"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples").join(sample);
        let out = home.0.join(sample).display().to_string();
        let flags = [
            "bundle",
            "create",
            "--image",
            "quay.io/acme/memcached-operator:1.0.0",
            "--bundle-version",
            "1.0.0",
            "--provider",
            "Acme",
            "--out",
            &out,
            "-o",
            "json",
        ];
        let output = CommandOutput::of(&home.command(&flags).current_dir(folder).output().unwrap()).ok();
        let report = json_of(&output);
        let findings = report["findings"].as_array().unwrap();
        let errors: Vec<_> = findings.iter().filter(|finding| finding["severity"] == "error").collect();
        assert!(errors.is_empty(), "{sample}: {errors:#?}");
        home.run(&["bundle", "validate", report["folder"].as_str().unwrap()]).ok();
    }
}

#[test]
fn findings_come_from_rules_and_from_the_api_server() {
    let home = Home::new("bundlevalidate");
    home.write_bundle("site");
    let output = home.run(&["bundle", "validate", "site"]).ok();
    assert!(output.out.contains("warning: spec.description: it is missing\n  hint: describe"), "{output:?}");
    assert!(output.out.contains("valid site.v1.0.0, 0 errors"), "{output:?}");
    home.run(&["bundle", "validate", "site", "--strict"]).fails_with(&["bundle site.v1.0.0 has 0 errors"]);
    let csv = home.0.join("site/manifests/csv.yaml");
    fs::write(&csv, CSV.replace("\"pages\": 1", "\"pages\": 9").replace("provider: {name: Acme}", "provider: {}"))
        .unwrap();
    let output = home.run(&["bundle", "validate", "site", "-o", "json"]);
    output.fails_with(&["bundle site.v1.0.0 has 2 errors"]);
    let fields: Vec<_> =
        json_of(&output)["findings"].as_array().unwrap().iter().map(|finding| finding["field"].clone()).collect();
    assert_eq!(fields[..2], [json!("spec.provider.name"), json!("metadata.annotations[alm-examples][0]")]);
    home.run(&["bundle", "validate", "."]).fails_with(&["is not a bundle", "flyball bundle create"]);
}

#[test]
fn published_bundles_do_not_change() {
    let home = Home::new("bundlepublish");
    home.write_bundle("site");
    home.run(&["bundle", "publish", "site"]).usage();
    home.run(&["bundle", "publish", "site", "--to", "."]).fails_with(&["has no folder operators", "clone your fork"]);
    fs::create_dir_all(home.0.join("community/operators")).unwrap();
    let publish = |more: &[&str]| {
        home.run(
            &[&["bundle", "publish", "site", "--to", "community", "--reviewer", "ann", "-o", "json"], more].concat(),
        )
    };
    let report = json_of(&publish(&["--dry-run"]).ok());
    assert_eq!(report["files"].as_array().unwrap().len(), 4);
    assert!(!home.0.join("community/operators/site").exists());
    publish(&[]).ok();
    let ci = fs::read_to_string(home.0.join("community/operators/site/ci.yaml")).unwrap();
    assert_eq!(ci, "---\nupdateGraph: replaces-mode\nreviewers:\n  - ann\n");
    assert!(home.0.join("community/operators/site/1.0.0/manifests/csv.yaml").is_file());
    assert_eq!(json_of(&publish(&[]).ok())["files"], json!([]));
    let csv = home.0.join("site/manifests/csv.yaml");
    fs::write(&csv, CSV.replace("displayName: Site", "displayName: Other")).unwrap();
    publish(&[]).fails_with(&["is published with another content", "higher version"]);
    let next = CSV.replace("1.0.0", "1.1.0").replace("  displayName", "  replaces: site.v0.9.0\n  displayName");
    fs::write(&csv, &next).unwrap();
    publish(&[]).fails_with(&["spec.replaces names site.v0.9.0", "published: site.v1.0.0"]);
    fs::write(&csv, next.replace("site.v0.9.0", "site.v1.0.0")).unwrap();
    publish(&[]).ok();
}

#[test]
fn packages_with_another_folder_are_not_published() {
    let home = Home::new("bundletraversal");
    home.write_bundle("site");
    fs::create_dir_all(home.0.join("community/operators")).unwrap();
    let annotations = home.0.join("site/metadata/annotations.yaml");
    fs::write(&annotations, ANNOTATIONS.replace("package.v1: site", "package.v1: ../../elsewhere")).unwrap();
    home.run(&["bundle", "publish", "site", "--to", "community"])
        .fails_with(&["the package \"../../elsewhere\" is not a DNS name"]);
    assert!(!home.0.join("elsewhere").exists());
}

#[test]
fn bundles_run_on_a_cluster_and_are_upgraded() {
    let home = Home::new("bundlerun");
    home.write_bundle("one");
    let permissions = "      permissions:\n      - serviceAccountName: site\n        \
                       rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n      deployments:";
    let first = CSV.replace("      deployments:", permissions);
    fs::write(home.0.join("one/manifests/csv.yaml"), &first).unwrap();
    home.write_bundle("two");
    fs::write(home.0.join("two/manifests/csv.yaml"), first.replace("1.0.0", "1.1.0")).unwrap();
    home.run(&["cluster", "up", "--nodes", "1", "--quiet"]).ok();
    home.run(&["bundle", "run", "one"]).fails_with(&["the cluster has no lifecycle manager", "flyball olm install"]);
    home.run(&["olm", "install", "--quiet"]).ok();

    home.run(&["bundle", "run", "one", "-n", "none"])
        .fails_with(&["namespace none does not exist", "kubectl create namespace none"]);
    let run = |folder: &str| home.run(&["bundle", "run", folder, "-o", "json", "--timeout", "60s"]);
    let report = json_of(&run("one").ok());
    assert_eq!((&report["replaced"], &report["installed"]), (&json!(""), &json!("site.v1.0.0")));
    let again = home.run(&["bundle", "run", "one"]).ok();
    assert!(again.out.starts_with("site.v1.0.0 runs in namespace default\n"), "{again:?}");
    let report = json_of(&run("two").ok());
    assert_eq!((&report["replaced"], &report["installed"]), (&json!("site.v1.0.0"), &json!("site.v1.1.0")));
    until(&home, "olm status -n default -o json", |output| json_of(output)["csvs"].as_array().unwrap().len() == 1);
    // The way back needs no catalog image either.
    home.run(&["olm", "rollback", "site"]).ok();

    fs::write(home.0.join("two/manifests/csv.yaml"), first.replace("1.0.0", "1.1.0").replace("[get]", "[list]"))
        .unwrap();
    home.run(&["bundle", "run", "two"])
        .fails_with(&["site.v1.1.0 was installed with another content", "--bundle-version"]);
    home.run(&["bundle", "run", "one", "--install-mode", "sideways"]).usage();
    let listed = home.run(&["olm", "uninstall", "--dry-run"]).ok();
    for object in ["Operator site.default", "InstallPlan default/", "OperatorCondition default/site.v1.0.0"] {
        assert!(listed.out.contains(object), "no {object}: {listed:?}");
    }
    home.run(&["olm", "uninstall", "--yes"]).ok();
    until(&home, "get configmap site-bundles -o json", |output| output.code == Some(1));
}
