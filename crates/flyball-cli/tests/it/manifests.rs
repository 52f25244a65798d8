//! `flyball manifests` and `flyball render`.

use crate::{CommandOutput, Home};
use flyball::policy::Policy;
use flyball::policy::Rule;
use flyball::webhook::{AdmissionRequest, Verdict, Webhook};
use flyball::{Controller, LeaderElection, MetricsServer, Operator};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::CustomResourceExt;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use vmgroup::api::vmgroup_v1alpha1::VmGroup;
use vmgroup::controllers::vmgroup::{VmGroupReconciler, deferred_controller};
use vmgroup::vsphere::Client;

const HEADER: &str =
    "# Made by `flyball manifests` from what the operator's program says. Without this line, the file is yours.\n";

fn vm_controller() -> Controller<VmGroupReconciler<Client>> {
    deferred_controller(|| Err("it is not run here"))
}

/// The operator of the talk, as it is after `--metrics-secure`, `--leader-elect` and `--operator-namespace`.
pub(crate) fn vm_operator() -> Operator {
    operator("vm-operator").crd(VmGroup::crd()).controller(vm_controller())
}

fn operator(name: &str) -> Operator {
    let home = format!("{name}-system");
    let metrics = MetricsServer { secure: true, ..MetricsServer::default() };
    Operator::new(name).namespace(home).metrics_server(metrics).leader_election(LeaderElection::default())
}

/// Writes a program that prints the description of this operator, for any flags.
pub(crate) fn program(home: &Home, operator: &Operator) -> String {
    let items = operator.manifests();
    write_program(home, &json!(operator.describe()), items)
}

pub(crate) fn write_program(home: &Home, described: &Value, items: Vec<Value>) -> String {
    let name = described["name"].as_str().unwrap();
    let path = home.0.join(name);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    fs::write(home.0.join(format!("{name}.describe")), described.to_string()).unwrap();
    fs::write(home.0.join(format!("{name}.manifests")), list.to_string()).unwrap();
    fs::write(&path, format!("#!/bin/sh\nexec /bin/cat {}.$1\n", path.display())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

impl Home {
    fn manifests(&self, program: &str, flags: &[&str]) -> CommandOutput {
        self.run(&[&["manifests", "--program", program], flags].concat())
    }

    fn file(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn yaml(&self, path: &str) -> Value {
        serde_saphyr::from_str(&self.file(path)).unwrap()
    }

    fn render(&self, program: &str, flags: &[&str]) -> Vec<Value> {
        let flags = [&["render", "--program", program, "-o", "json"], flags].concat();
        let list: Value = serde_json::from_str(&self.run(&flags).ok().out).unwrap();
        list["items"].as_array().unwrap().clone()
    }
}

#[test]
fn metrics_certificate_is_verified_as_documented() {
    let home = Home::new("metrics-certificate");
    let vm = program(&home, &vm_operator());
    home.manifests(&vm, &[]).ok();
    let file = home.file("config/prometheus/monitor.yaml");
    assert!(
        file.starts_with(&format!("{HEADER}# Each pod of the operator serves metrics with a self-signed")),
        "{file}"
    );
    let tls = |flags: &[&str]| {
        let objects = home.render(&vm, &[&["--monitoring"], flags].concat());
        let monitor = objects.iter().find(|object| object["kind"] == "ServiceMonitor").unwrap();
        let container = objects.iter().find_map(|object| object.pointer("/spec/template/spec/containers/0")).unwrap();
        (monitor["spec"]["endpoints"][0]["tlsConfig"].clone(), container["env"].to_string())
    };
    assert_eq!(tls(&[]).0, json!({"insecureSkipVerify": true}));
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deploy.md")).unwrap();
    let section = guide.split("## Certificate of the metrics").nth(1).unwrap();
    let patch = section.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    fs::write(home.0.join("patch.yaml"), patch).unwrap();
    let (config, variables) = tls(&["--patch", "patch.yaml"]);
    let ca = json!({"secret": {"name": "site-operator-metrics", "key": "ca.crt"}});
    assert_eq!(config, json!({"ca": ca, "serverName": "site-operator-metrics.site-operator-system.svc"}));
    assert!(variables.contains("FLYBALL_METRICS_CERT_DIR"), "{variables}");
}

#[test]
fn manifests_match_the_program_and_are_stable() {
    let home = Home::new("manifests");
    let vm = program(&home, &vm_operator());
    let output = home.manifests(&vm, &[]).ok();
    let files: Vec<&str> = output.out.lines().filter_map(|line| line.strip_suffix(" written")).collect();
    assert_eq!(
        files,
        [
            "config/crd/kustomization.yaml",
            "config/crd/vm.codeconnect.vmworld.com_vmgroups.yaml",
            "config/default/kustomization.yaml",
            "config/default/references.yaml",
            "config/manager/kustomization.yaml",
            "config/manager/manager.yaml",
            "config/manager/metrics_service.yaml",
            "config/manager/namespace.yaml",
            "config/network-policy/kustomization.yaml",
            "config/network-policy/network_policy.yaml",
            "config/prometheus/alerts.yaml",
            "config/prometheus/dashboard.yaml",
            "config/prometheus/kustomization.yaml",
            "config/prometheus/monitor.yaml",
            "config/rbac/kustomization.yaml",
            "config/rbac/leader_election_role.yaml",
            "config/rbac/leader_election_role_binding.yaml",
            "config/rbac/metrics_auth_role.yaml",
            "config/rbac/metrics_auth_role_binding.yaml",
            "config/rbac/metrics_reader_role.yaml",
            "config/rbac/role.yaml",
            "config/rbac/role_binding.yaml",
            "config/rbac/service_account.yaml",
            "config/rbac/vmgroup_admin_role.yaml",
            "config/rbac/vmgroup_editor_role.yaml",
            "config/rbac/vmgroup_viewer_role.yaml",
            "config/samples/kustomization.yaml",
            "config/samples/vm_v1alpha1_vmgroup.yaml",
        ]
    );
    assert_eq!(home.manifests(&vm, &["--check"]).ok().out, "");
    assert_eq!(home.manifests(&vm, &[]).ok().out, "28 files unchanged\n");
    assert_eq!(home.run(&["generate", "--program", &vm]).ok().out, "28 files unchanged\n");
    let old = home.run(&["generate", "openapi"]);
    assert!(old.code == Some(2) && old.err.contains("flyball manifests: schemas"), "{old:?}");
    assert_eq!(
        home.file("config/default/kustomization.yaml"),
        format!(
            "{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: vm-operator-system
configurations:
- references.yaml
namePrefix: vm-operator-
resources:
- ../crd
- ../rbac
- ../manager
- ../network-policy
"
        )
    );
    assert_eq!(
        home.file("config/samples/vm_v1alpha1_vmgroup.yaml"),
        format!(
            "{HEADER}apiVersion: vm.codeconnect.vmworld.com/v1alpha1
kind: VmGroup
metadata:
  name: vmgroup-sample
spec:
  cpu: 1
  memory: 1
  replicas: 1
  template: template
"
        )
    );

    // A file without the header belongs to the user, and so does a sample of a kind.
    let own = home.file("config/rbac/metrics_reader_role.yaml").replace(HEADER, "# ours\n");
    fs::write(home.0.join("config/rbac/metrics_reader_role.yaml"), own).unwrap();
    fs::write(home.0.join("config/rbac/more.yaml"), "kind: Role\n").unwrap();
    fs::write(home.0.join("config/rbac/old.yaml"), format!("{HEADER}kind: Role\n")).unwrap();
    fs::write(home.0.join("config/samples/vg-1.yaml"), "kind: VmGroup\n").unwrap();
    let service = home.file("config/manager/metrics_service.yaml").replace("8443", "443");
    fs::write(home.0.join("config/manager/metrics_service.yaml"), service).unwrap();

    let checked = home.manifests(&vm, &["--check"]);
    checked.fails_with(&["4 files are out of date", "flyball manifests"]);
    assert_eq!(
        checked.out,
        format!(
            "--- config/manager/metrics_service.yaml
+++ config/manager/metrics_service.yaml
@@ -10,8 +10,8 @@
 spec:
   ports:
   - name: https
-    port: 443
+    port: 8443
     protocol: TCP
-    targetPort: 443
+    targetPort: 8443
   selector:
     app.kubernetes.io/name: vm-operator
--- config/rbac/old.yaml
+++ config/rbac/old.yaml
@@ -1,2 +0,0 @@
-{HEADER}-kind: Role
--- config/samples/kustomization.yaml
+++ config/samples/kustomization.yaml
@@ -2,4 +2,4 @@
 apiVersion: kustomize.config.k8s.io/v1beta1
 kind: Kustomization
 resources:
-- vm_v1alpha1_vmgroup.yaml
+- vg-1.yaml
--- config/samples/vm_v1alpha1_vmgroup.yaml
+++ config/samples/vm_v1alpha1_vmgroup.yaml
@@ -1,10 +0,0 @@
-{HEADER}-apiVersion: vm.codeconnect.vmworld.com/v1alpha1
-kind: VmGroup
-metadata:
-  name: vmgroup-sample
-spec:
-  cpu: 1
-  memory: 1
-  replicas: 1
-  template: template
"
        )
    );
}

#[test]
fn changed_files_are_rewritten_and_obsolete_ones_removed() {
    let home = Home::new("drift");
    let vm = program(&home, &vm_operator());
    home.manifests(&vm, &["--out", "deploy"]).ok();
    fs::write(home.0.join("deploy/rbac/old.yaml"), format!("{HEADER}kind: Role\n")).unwrap();
    fs::write(home.0.join("deploy/rbac/mine.yaml"), "kind: Role\n").unwrap();
    fs::write(home.0.join("deploy/rbac/role.yaml"), "kind: ClusterRole\n").unwrap();
    fs::remove_file(home.0.join("deploy/manager/manager.yaml")).unwrap();
    assert_eq!(
        home.manifests(&vm, &["--out", "deploy"]).ok().out,
        "deploy/manager/manager.yaml written
deploy/rbac/old.yaml removed
deploy/rbac/role.yaml kept: not generated by flyball
26 files unchanged
"
    );
    let json: Value = serde_json::from_str(&home.manifests(&vm, &["--out", "deploy", "-o", "json"]).ok().out).unwrap();
    assert_eq!(json[0], json!({"file": "deploy/crd/kustomization.yaml", "outcome": "unchanged"}));
    assert!(home.0.join("deploy/rbac/mine.yaml").exists());

    fs::write(home.0.join("file"), "").unwrap();
    home.manifests(&vm, &["--out", "file/config"]).fails_with(&["file/config"]);
    home.manifests("./nothing", &[]).fails_with(&["cannot run `./nothing describe`"]);
    home.manifests("/bin/echo", &[])
        .fails_with(&["`/bin/echo describe` did not print JSON on standard output", "Operator::main"]);
    assert_eq!(home.manifests(&vm, &["--name-prefix", "Team_"]).code, Some(2));
    let odd = program(&home, &operator("Odd"));
    home.manifests(&odd, &[]).fails_with(&["\"Odd\" cannot begin the names of objects", "--name-prefix my-operator-"]);
}

/// Removes intended differences to controller-gen: descriptions, and the required `spec`.
fn bare(mut definition: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.remove("description");
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut definition);
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema.as_object_mut().unwrap().remove("required");
    definition
}

#[test]
fn definition_matches_controller_gen() {
    let home = Home::new("golden");
    let vm = program(&home, &vm_operator());
    home.manifests(&vm, &[]).ok();
    let generated = home.yaml("config/crd/vm.codeconnect.vmworld.com_vmgroups.yaml");
    let expected: Value = serde_saphyr::from_str(include_str!("data/vmgroups.yaml")).unwrap();
    assert_eq!(bare(generated), expected);
}

#[test]
fn role_matches_the_markers() {
    let home = Home::new("role");
    let rule = |resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec!["vm.codeconnect.vmworld.com".into()]),
        resources: Some(vec![resource.into()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    // The rules of the markers, in their order.
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let marked =
        vm_controller().allows(rule("vmgroups", &verbs)).allows(rule("vmgroups/status", &["get", "update", "patch"]));
    let vm = program(&home, &operator("vm-operator").crd(VmGroup::crd()).controller(marked));
    home.manifests(&vm, &[]).ok();
    let documents: Vec<Value> = serde_saphyr::from_multiple(include_str!("data/role.yaml")).unwrap();
    let generated = home.yaml("config/rbac/role.yaml");
    let ours = |rule: &&Value| rule["apiGroups"][0] == "vm.codeconnect.vmworld.com";
    let rules: Vec<&Value> = generated["rules"].as_array().unwrap().iter().filter(ours).collect();
    assert_eq!(
        (&generated["kind"], &generated["metadata"]["name"]),
        (&documents[0]["kind"], &documents[0]["metadata"]["name"])
    );
    assert_eq!(json!(rules), documents[0]["rules"]);
    // It runs as its own service account, not as the default one.
    let binding = home.yaml("config/rbac/role_binding.yaml");
    assert_eq!(binding["metadata"]["name"], documents[1]["metadata"]["name"]);
    assert_eq!(binding["roleRef"], documents[1]["roleRef"]);
    assert_eq!(
        binding["subjects"],
        json!([{"kind": "ServiceAccount", "name": "controller-manager", "namespace": "system"}])
    );

    // The derived permissions are fewer.
    let derived = program(&home, &vm_operator());
    home.manifests(&derived, &[]).ok();
    let derived = home.yaml("config/rbac/role.yaml");
    for rule in derived["rules"].as_array().unwrap().iter().filter(ours) {
        let marked = rules.iter().find(|marked| marked["resources"] == rule["resources"]);
        let allowed = |verb: &Value| marked.is_some_and(|marked| marked["verbs"].as_array().unwrap().contains(verb));
        let all = rule["verbs"].as_array().unwrap().iter().all(allowed);
        assert!(all || rule["resources"] == json!(["vmgroups/finalizers"]), "{rule}");
    }
}

/// Builds a folder with kubectl, if it is installed.
#[expect(clippy::print_stderr, reason = "the output reports skipped checks")]
fn kustomized(home: &Home, folder: &str) -> Option<Vec<Value>> {
    let kubectl = Path::new("/usr/bin/kubectl");
    if !kubectl.exists() {
        eprintln!("skipped: there is no kubectl");
        return None;
    }
    let built = Command::new(kubectl).args(["kustomize", folder]).current_dir(&home.0).output().unwrap();
    let output = CommandOutput::of(&built).ok();
    Some(serde_saphyr::from_multiple(&output.out).unwrap())
}

fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_key(|object| format!("{} {}", object["kind"], object["metadata"]));
    objects
}

/// Takes the definitions in the program's list as ones that a webhook converts.
fn converted(mut items: Vec<Value>, name: &str) -> Vec<Value> {
    for item in items.iter_mut().filter(|item| item["kind"] == "CustomResourceDefinition") {
        let service = json!({"name": format!("{name}-webhook"), "namespace": format!("{name}-system"), "path": "/convert", "port": 443});
        item["spec"]["conversion"] = json!({"strategy": "Webhook",
            "webhook": {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}});
    }
    items
}

#[test]
fn kustomize_build_matches_render() {
    let home = Home::new("kustomize");
    let webhook = || {
        Webhook::<ConfigMap>::new()
            .defaults(|_: &mut ConfigMap, _: &AdmissionRequest<ConfigMap>| Ok(()))
            .validates(|_: &AdmissionRequest<ConfigMap>| Ok(Verdict::allow()))
    };
    let policy = || Policy::<VmGroup>::new().defaults("spec.cpu", "1").validates(Rule::new("true", "never"));
    let operators = [
        vm_operator(),
        operator("hook-operator").crd(VmGroup::crd()).webhook(webhook()),
        operator("policy-operator").crd(VmGroup::crd()).webhook(webhook()).policy(policy()),
        operator("narrow-operator").crd(VmGroup::crd()).controller(vm_controller()).namespaces(["a", "b"]),
    ];
    for operator in operators {
        let described = json!(operator.describe());
        let name = described["name"].as_str().unwrap();
        let items = match name {
            "hook-operator" => converted(operator.manifests(), name),
            _ => operator.manifests(),
        };
        let file = write_program(&home, &described, items);
        let _ = fs::remove_dir_all(home.0.join("config"));
        home.manifests(&file, &[]).ok();
        let Some(built) = kustomized(&home, "config/default") else { return };
        assert_eq!(sorted(built), sorted(home.render(&file, &[])), "{name}");
        let mut all = kustomized(&home, "config/default").unwrap();
        all.extend(kustomized(&home, "config/prometheus").unwrap());
        assert_eq!(sorted(all), sorted(home.render(&file, &["--monitoring"])), "{name}");
        assert!(!kustomized(&home, "config/samples").unwrap().is_empty());
    }
}

#[test]
fn rendered_objects_follow_the_flags() {
    let home = Home::new("render");
    let vm = program(&home, &vm_operator());
    let find = |objects: &[Value], kind: &str, name: &str| {
        let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.cloned().unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let patches = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: controller-manager}
spec:
  replicas: 2
  template:
    spec:
      containers:
      - name: manager
        envFrom: [{secretRef: {name: vc-creds}}]
---
target: {kind: Deployment}
patch:
- {op: add, path: /spec/template/spec/containers/0/args/-, value: --resync=10s}
---
$patch: delete
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: vm-operator-controller-manager}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: metrics}
spec: {selector: null, jobLabel: app}
";
    fs::write(home.0.join("patch.yaml"), patches).unwrap();
    let image = "registry.example.com/vm-operator:1.0";
    let objects =
        home.render(&vm, &["--monitoring", "--patch", "patch.yaml", "--set-image", &format!("controller={image}")]);
    let pod = &find(&objects, "Deployment", "vm-operator-controller-manager")["spec"];
    let container = &pod["template"]["spec"]["containers"][0];
    assert_eq!((&pod["replicas"], &container["image"]), (&json!(2), &json!(image)));
    assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "vc-creds"}}]));
    let args = ["--metrics-addr=:8443", "--metrics-secure", "--health-addr=:8081", "--leader-elect", "--resync=10s"];
    assert_eq!(container["args"], json!(args));
    assert!(!objects.iter().any(|object| object["kind"] == "NetworkPolicy"));
    assert_eq!(find(&objects, "ServiceMonitor", "vm-operator-metrics")["spec"]["selector"], Value::Null);

    let output = home.run(&["render", "--program", &vm, "--namespace", "vms", "--name-prefix", "team-a-"]).ok().out;
    assert!(output.starts_with("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: vms\n"), "{output}");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&output).unwrap();
    let binding = find(&objects, "ClusterRoleBinding", "team-a-metrics-auth-rolebinding");
    assert_eq!(
        binding["subjects"][0],
        json!({"kind": "ServiceAccount", "name": "team-a-controller-manager", "namespace": "vms"})
    );
    let deployment = find(&objects, "Deployment", "team-a-controller-manager");
    assert!(
        deployment["spec"]["template"]["spec"]["containers"][0]["args"]
            .as_array()
            .unwrap()
            .contains(&json!("--installed-as=team-a"))
    );

    let render = |flags: &[&str]| home.run(&[&["render", "--program", &vm], flags].concat());
    assert_eq!(render(&["--image", "Not an image"]).code, Some(2));
    assert!(render(&["--image", "a:"]).err.contains("is not a tag"));
    render(&["--set-image", "web=a"])
        .fails_with(&["no container has the name or image web", "available: manager (controller)"]);
    fs::write(home.0.join("none.yaml"), "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}").unwrap();
    render(&["--patch", "none.yaml"]).fails_with(&[
        "the patch in none.yaml matches no object: no Deployment web",
        "available: Deployment vm-operator-controller-manager",
    ]);
    fs::write(home.0.join("ops.yaml"), "{target: {kind: Deployment}, patch: [{op: remove, path: /spec/none}]}")
        .unwrap();
    render(&["--patch", "ops.yaml"])
        .fails_with(&["cannot apply the patch in ops.yaml to Deployment vm-operator-controller-manager"]);
    fs::write(home.0.join("odd.yaml"), "- {op: remove, path: /spec}").unwrap();
    render(&["--patch", "odd.yaml"]).fails_with(&["odd.yaml", "target"]);
    let typo = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: controller-manager}, spec: {replica: 2}}";
    fs::write(home.0.join("typo.yaml"), typo).unwrap();
    render(&["--patch", "typo.yaml"]).fails_with(&["typo.yaml", "replica"]);
    render(&["--patch", "missing.yaml"]).fails_with(&["cannot read missing.yaml"]);
}

#[test]
fn lint_checks_the_rules_for_operators() {
    let home = Home::new("lint");
    let vm = program(&home, &vm_operator());
    let lint = |flags: &[&str]| home.run(&[&["lint", "--program", &vm], flags].concat());
    assert_eq!(
        lint(&[]).ok().out,
        "RULE                                       OUTCOME
one Deployment                             passed
one controller per kind                    passed
no wildcard permissions                    passed
leader election with several replicas      passed
probes and memory limits                   passed
no root user                               passed
the chaos suite exists and passes          not checked   --program has no tests; run without it in the project's directory
an outage of ten minutes changes nothing   not checked   --program has no tests; run without it in the project's directory
"
    );
    let patch =
        "{target: {kind: Deployment}, patch: [{op: remove, path: /spec/template/spec/containers/0/livenessProbe},
        {op: replace, path: /spec/template/spec/securityContext/runAsNonRoot, value: false}]}";
    fs::write(home.0.join("patch.yaml"), patch).unwrap();
    let output = lint(&["--patch", "patch.yaml"]);
    output.fails_with(&["2 of 8 rules violated"]);
    assert!(output.out.contains("violated      container manager has no livenessProbe\n"), "{output:?}");
    let json: Value = serde_json::from_str(&lint(&["-o", "json"]).ok().out).unwrap();
    assert_eq!(json[0], json!({"rule": "one Deployment", "passed": true}));
    assert_eq!(json[6]["passed"], Value::Null);
}

#[test]
fn chaos_suite_is_judged_by_its_report() {
    let home = Home::new("chaos");
    let vm = program(&home, &vm_operator());
    fs::write(home.0.join("Cargo.toml"), "").unwrap();
    let cargo = home.0.join("cargo");
    // Builds the program, and runs tests that report this.
    let lint = |test: &str, report: &str, code: u8| {
        let script = format!(
            "#!/bin/sh\nif [ $1 = build ]; then echo '{{\"executable\": \"{vm}\", \"package_id\": \"vm\"}}'; exit; fi\n\
             echo \"$*\" > args; printf '{report}' > $FLYBALL_TEST_CHAOS\n\
             printf 'running 1 test\\n{test}\\n\\ntest result: ok.\\n'; exit {code}\n"
        );
        fs::write(&cargo, script).unwrap();
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
        let output = CommandOutput::of(&home.command(&["lint", "-o", "json"]).env("CARGO", &cargo).output().unwrap());
        let found: Value = serde_json::from_str(&output.out).unwrap();
        let why = |at: usize| found[at]["why"].as_str().unwrap_or_default().to_owned();
        (output.code.unwrap(), why(6), why(7))
    };
    let (good, crashes) = ("test a::chaos_b ... ok", r#"{"operator": "vm", "done": {"crashes": 9}, "passed": true}"#);
    let outage = |seconds: u64, passed: bool| {
        let outage = json!({"operator": "vm", "done": {"outage": {"seconds": seconds, "pods": 3}}, "passed": passed});
        format!("{crashes}\\n{outage}\\n")
    };
    assert_eq!(lint(good, &outage(600, true), 0), (0, String::new(), String::new()));
    assert_eq!(home.file("args"), "test --no-fail-fast --tests -- chaos_\n");
    for (test, report, code, missing, harmful) in [
        (good, outage(60, true), 0, "", "test is 60 s"),
        (good, crashes.into(), 0, "", "test is 0 s"),
        ("test chaos_b ... FAILED", outage(600, false), 101, "chaos_b failed", "an outage of 600 s changed objects"),
        ("test my_chaos_b ... ok", outage(600, true), 0, "no test has a name that begins with chaos_", ""),
        ("test chaos_b ... ignored", String::new(), 0, "no test has a name that begins with chaos_", "test is 0 s"),
        (good, String::new(), 0, "inject no fault: call explore_crashes", "test is 0 s"),
        ("test a ... ok", String::new(), 101, "cannot run the tests", "test is 0 s"),
    ] {
        let (code, found, harm) = lint(test, &report, code);
        assert_eq!(
            (code, found.is_empty(), harm.is_empty()),
            (1, missing.is_empty(), harmful.is_empty()),
            "{test} {report}"
        );
        assert!(found.contains(missing) && harm.contains(harmful), "{test} {report}: {found} {harm}");
    }
    let output = CommandOutput::of(&home.command(&["lint", "--no-tests"]).env("CARGO", &cargo).output().unwrap()).ok();
    assert!(output.out.contains("not checked   skipped by --no-tests"), "{output:?}");
}
