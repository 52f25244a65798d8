//! `flyball deploy`, `undeploy`, `install`, `uninstall` and `logs`.

use crate::manifests::{vm_operator, write_program};
use crate::operators::on_cluster;
use crate::{Home, manifests};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::sleep;

/// Returns a program of `examples`, which `cargo test` builds by default.
fn example(name: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_flyball")).with_file_name(format!("examples/{name}"));
    assert!(program.exists(), "build it first: cargo build -p flyball-cli --examples");
    program.display().to_string()
}

/// A program that runs until the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // `flyball run` forwards this signal to the operator, unlike SIGKILL.
        let pid = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        let _ = rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

const OBJECTS: &str = "Namespace myapp-operator-system
CustomResourceDefinition myapps.apps.flyball.dev
ServiceAccount myapp-operator-system/myapp-operator-controller-manager
ClusterRole myapp-operator-metrics-auth-role
ClusterRole myapp-operator-manager-role
ClusterRole myapp-operator-metrics-reader
ClusterRole myapp-operator-myapp-admin-role
ClusterRole myapp-operator-myapp-editor-role
ClusterRole myapp-operator-myapp-viewer-role
Role myapp-operator-system/myapp-operator-leader-election-role
ClusterRoleBinding myapp-operator-metrics-auth-rolebinding
ClusterRoleBinding myapp-operator-manager-rolebinding
RoleBinding myapp-operator-system/myapp-operator-leader-election-rolebinding
ValidatingAdmissionPolicy myapp-operator-myapps.apps.flyball.dev
ValidatingAdmissionPolicyBinding myapp-operator-myapps.apps.flyball.dev
Service myapp-operator-system/myapp-operator-metrics
Deployment myapp-operator-system/myapp-operator-controller-manager
NetworkPolicy myapp-operator-system/myapp-operator-controller-manager
";

const READY: &str = "alerts and dashboard skipped: the cluster has no Prometheus operator
Deployment myapp-operator-system/myapp-operator-controller-manager ready 1/1
";

const SHOP: &str =
    "{apiVersion: apps.flyball.dev/v1alpha1, kind: MyApp, metadata: {name: shop, finalizers: [example.com/hold]},
spec: {images: a, version: '1.0'}}";

/// Returns the expected output: each object with its result.
fn each(word: &str) -> String {
    OBJECTS.lines().map(|line| format!("{line} {word}\n")).collect()
}

#[test]
fn operator_is_deployed_once_and_undeployed() {
    let home = Home::new("deploy");
    home.run(&["cluster", "up", "--nodes", "1", "--quiet"]).ok();
    let program = example("operator");
    let deploy = |flags: &[&str]| home.run(&[&["deploy", "--program", &program, "--image", "myapp:1"], flags].concat());
    let without = "alerts and dashboard skipped: the cluster has no Prometheus operator\n";
    assert_eq!(deploy(&["--dry-run"]).ok().out, each("created (dry run)") + without);
    assert_eq!(deploy(&[]).ok().out, each("created") + READY);
    assert_eq!(deploy(&[]).ok().out, each("unchanged") + READY);
    let output = deploy(&["-o", "json"]).ok();
    assert!(
        output.err.contains("note: all nodes of the cluster are simulated") && output.err.contains("flyball run"),
        "{output:?}"
    );
    let output: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((&output["operator"], &output["ready"]), (&json!("myapp-operator"), &json!(true)));
    assert_eq!(output["objects"][0], json!({"object": "Namespace myapp-operator-system", "outcome": "unchanged"}));
    let changed = deploy(&["--set-image", "manager=myapp:2"]).ok();
    let changes: Vec<&str> = changed.out.lines().filter(|line| line.ends_with(" changed")).collect();
    assert_eq!(changes, ["Deployment myapp-operator-system/myapp-operator-controller-manager changed"]);

    // Objects that are no longer needed are removed.
    fs::write(
        home.0.join("old.yaml"),
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: myapp-operator-old-role,
          labels: {app.kubernetes.io/managed-by: flyball, app.kubernetes.io/name: myapp-operator}}}",
    )
    .unwrap();
    home.run(&["apply", "-f", "old.yaml"]).ok();
    assert!(
        deploy(&["--dry-run"])
            .ok()
            .out
            .ends_with("ClusterRole myapp-operator-old-role deleted: no longer needed (dry run)\n")
    );
    assert!(deploy(&[]).ok().out.ends_with("ClusterRole myapp-operator-old-role deleted: no longer needed\n"));

    // A copy under another name has everything but the definitions for itself.
    let copy = deploy(&["--name-prefix", "b-", "--namespace", "default"]).ok().out;
    assert!(
        copy.contains("Deployment default/b-controller-manager ready 1/1") && !copy.contains("Namespace"),
        "{copy}"
    );

    home.run(&["logs"]).fails_with(&["2 operators deployed", "deployment/b-controller-manager -n default"]);
    home.run(&["logs", "deployment/b-controller-manager"]).fails_with(&["runs no containers", "flyball run"]);
    home.run(&["logs", "nothing", "-f", "--since", "10m", "-c", "web"]).fails_with(&["pods \"nothing\" not found"]);
    home.run(&["logs", "service/web"]).fails_with(&["error: \"service\" has no logs\n"]);
    assert_eq!(home.run(&["logs", "--since", "x"]).code, Some(2));

    let undeploy = |flags: &[&str]| home.run(&[&["undeploy", "--program", &program], flags].concat());
    let output = undeploy(&["--name-prefix", "b-", "-n", "default", "--keep-crds", "--yes"]).ok().out;
    assert!(output.ends_with("ServiceAccount default/b-controller-manager deleted\n"), "{output}");

    fs::write(home.0.join("shop.yaml"), SHOP).unwrap();
    home.run(&["apply", "-f", "shop.yaml"]).ok();
    let preview = undeploy(&["--dry-run"]).ok().out;
    let mut deleted_lines: Vec<&str> = OBJECTS.lines().skip(2).collect();
    deleted_lines.reverse();
    let rest = "  Namespace myapp-operator-system, with everything in it\n  CustomResourceDefinition myapps.apps.flyball.dev\n";
    let objects: String = deleted_lines.iter().map(|line| format!("  {line}\n")).collect();
    assert_eq!(preview, format!("To be removed:\n  1 MyApp and its children\n{objects}{rest}"));
    undeploy(&[]).fails_with(&["nothing was removed", "--yes"]);
    let words = [
        "timed out after 1 s with 1 MyApp left:\n  MyApp default/shop has finalizer example.com/hold\n",
        "operator is left",
    ];
    undeploy(&["--yes", "--timeout", "1s"]).fails_with(&words);
    assert!(home.run(&["get", "deployments", "-n", "myapp-operator-system"]).ok().out.contains("1/1"));

    on_cluster(&home, async |client| {
        let path = "/apis/apps.flyball.dev/v1alpha1/namespaces/default/myapps/shop";
        let patch = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        let body = br#"{"metadata": {"finalizers": null}}"#.to_vec();
        client.request::<Value>(patch.body(body).unwrap()).await.unwrap();
    });
    let deleted: String = deleted_lines.iter().map(|line| format!("{line} deleted\n")).collect();
    let rest = "Namespace myapp-operator-system deleted\nCustomResourceDefinition myapps.apps.flyball.dev deleted\n";
    let output = undeploy(&["--yes"]).ok().out;
    assert!(output.ends_with(&format!("{deleted}{rest}")), "{output}");
    assert_eq!(undeploy(&["--yes"]).ok().out, "nothing to remove\n");
    home.run(&["logs"]).fails_with(&["no operator deployed", "flyball deploy"]);
}

#[test]
fn reasons_for_an_unready_deployment_are_reported() {
    let home = Home::new("refused");
    let program = example("operator");
    let deploy = |flags: &[&str]| home.run(&[&["deploy", "--program", &program, "--image", "a"], flags].concat());
    deploy(&[]).fails_with(&["no cluster to connect to", "flyball cluster up"]);
    home.run(&["cluster", "up", "--quiet"]).ok();
    assert_eq!(deploy(&["--image", "UPPER"]).code, Some(2));
    assert_eq!(home.run(&["deploy", "--program", &program]).code, Some(2));
    deploy(&["--timeout", "1s"]).fails_with(&[
        "it is not ready after 1 s",
        "pod myapp-operator-controller-manager-",
        "cluster node add",
    ]);
    let narrow = vm_operator().namespaces(["team-a"]);
    let narrow = manifests::program(&home, &narrow);
    let output = home.run(&["deploy", "--program", &narrow, "--image", "a"]);
    output.fails_with(&["namespaces \"team-a\" not found", "limited to a namespace, create that namespace first"]);

    // A user with read permissions only.
    let kubeconfig = on_cluster(&home, async |client| {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]});
        post(&client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &role).await;
        kubeconfig_of(&home, &client, "default", "default").await
    });
    let output = deploy(&["--kubeconfig", &kubeconfig, "--namespace", "default"]);
    output.fails_with(&["cannot", "system:serviceaccount:default:default", "forbidden"]);

    let mut big = vm_definition();
    big["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "long ".repeat(400_000).into();
    let big = write_program(&home, &json!({"name": "big-operator"}), vec![big]);
    let output = home.run(&["install", "--program", &big]);
    output.fails_with(&["vmgroups.vm.codeconnect.vmworld.com has 20", "at most 1572864", "drop descriptions"]);
    let nothing = write_program(&home, &json!({"name": "none-operator"}), Vec::new());
    home.run(&["install", "--program", &nothing]).fails_with(&["none-operator has no CustomResourceDefinitions"]);
}

#[test]
fn forbidden_reads_are_not_reported_as_absence() {
    let home = Home::new("blind");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let program = example("operator");
    let run = |words: &str| {
        let (command, flags) = words.split_once(' ').unwrap_or((words, ""));
        let flags: Vec<&str> = flags.split_whitespace().collect();
        home.run(&[&[command, "--program", &program], &flags[..]].concat())
    };
    run("deploy --image a --timeout 0s").ok();
    // An account without any role.
    let kubeconfig = on_cluster(&home, async |client| kubeconfig_of(&home, &client, "default", "default").await);
    for (words, read) in [
        ("deploy --image a", "cannot read Namespace myapp-operator-system"),
        ("install", "cannot read CustomResourceDefinition myapps.apps.flyball.dev"),
        ("undeploy --yes", "cannot read Namespace myapp-operator-system"),
        ("undeploy --yes --namespace default", "cannot read Namespace default"),
        ("uninstall --yes", "cannot read CustomResourceDefinition myapps.apps.flyball.dev"),
    ] {
        let output = run(&format!("{words} --kubeconfig {kubeconfig}"));
        output.fails_with(&[read, "system:serviceaccount:default:default", "forbidden"]);
        assert_eq!(output.out, "", "{words}");
    }
    assert_eq!(run("deploy --image a --timeout 0s").ok().out.matches(" unchanged\n").count(), OBJECTS.lines().count());
}

#[test]
fn namespace_flag_is_accepted_only_where_applicable() {
    let home = Home::new("namespaceless");
    for command in ["install", "uninstall", "crd migrate sites.example.com", "doctor"] {
        let words: Vec<&str> = command.split(' ').chain(["-n", "a"]).collect();
        let output = home.run(&words);
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.err.contains("unexpected argument '-n'"), "{output:?}");
    }
    for command in ["deploy", "undeploy", "render"] {
        let output = home.run(&[command, "--help"]).ok().out;
        assert!(
            output.contains("Namespace of the operator; defaults to the name prefix followed by `system`"),
            "{output}"
        );
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "another process is given its time")]
fn operator_with_pod_webhook_starts_and_reviews_other_pods() {
    let home = Home::new("pod-gate");
    home.run(&["cluster", "up", "--nodes", "1", "--quiet"]).ok();
    let gate = example("pod_gate");
    let deploy = |image: &str| home.run(&["deploy", "--program", &gate, "--image", image]).ok().out;
    let output = deploy("gate:1");
    let place = |words: &str| output.find(words).unwrap_or_else(|| panic!("no {words} in {output}"));
    let ready = place("Deployment pod-gate-system/pod-gate-controller-manager ready 1/1");
    assert!(ready < place("ValidatingWebhookConfiguration pod-gate-webhook created"), "{output}");
    // The webhook no longer responds, but its own pod can still be replaced.
    assert!(deploy("gate:2").contains("ready 1/1"));
    home.run(&["lint", "--program", &gate, "--no-tests"]).ok();

    let pod = |name: &str, namespace: &str| {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {namespace}}},
              spec: {{containers: [{{name: a, image: a}}]}}}}"
        );
        fs::write(home.0.join("pod.yaml"), text).unwrap();
        home.run(&["apply", "-f", "pod.yaml"])
    };
    pod("good", "default").fails_with(&["failed calling webhook", "validate.pods.core.k8s.io"]);
    pod("good", "kube-system").ok();
    // Here its own namespace is default.
    let _running = Running(home.spawn(&["run", "--program", &gate, "--", "--metrics-addr=0", "--health-addr=0"]));
    let mut output = pod("bad", "kube-public");
    for _ in 0..200 {
        if output.err.contains("no pod is called bad") {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        output = pod("bad", "kube-public");
    }
    output.fails_with(&["no pod is called bad"]);
    pod("good", "kube-public").ok();
}

fn vm_definition() -> Value {
    vm_operator().manifests().into_iter().find(|object| object["kind"] == "CustomResourceDefinition").unwrap()
}

async fn post(client: &Client, path: &str, body: &Value) {
    let request = http::Request::post(path).header("content-type", "application/json");
    client.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap();
}

/// Writes a kubeconfig with which one is a service account.
async fn kubeconfig_of(home: &Home, client: &Client, namespace: &str, account: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let spec = Some(TokenRequestSpec::default());
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let mut response = accounts.create_token_request(account, &PostParams::default(), &request).await;
    for _ in 0..100 {
        // The service account of a namespace is created shortly after it.
        if response.is_ok() {
            break;
        }
        sleep(Duration::from_millis(20)).await;
        response = accounts.create_token_request(account, &PostParams::default(), &request).await;
    }
    let token = response.unwrap().status.unwrap().token;
    let text = fs::read_to_string(home.0.join(".kube/config")).unwrap();
    let mut config: Value = serde_saphyr::from_str(&text).unwrap();
    config["users"][0]["user"] = json!({"token": token});
    let path = home.0.join(format!("{account}.kubeconfig"));
    fs::write(&path, config.to_string()).unwrap();
    path.display().to_string()
}

/// Finds a free port.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Reads the metrics of an operator, as soon as they are available.
async fn metrics(port: u16, until: &str) -> String {
    let mut text = String::new();
    for _ in 0..200 {
        text.clear();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            let _ = stream.read_to_string(&mut text);
        }
        if text.contains(until) {
            return text;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("no {until} in\n{text}");
}

/// Returns the names of all series in alerts and dashboard of an operator.
fn used_series(home: &Home, program: &str) -> BTreeSet<String> {
    let output = home.run(&["render", "--program", program, "--monitoring", "-o", "json"]).ok().out;
    let list: Value = serde_json::from_str(&output).unwrap();
    let objects = list["items"].as_array().unwrap();
    let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let dashboard = of("ConfigMap")["data"].as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut expressions = Vec::new();
    for rule in of("PrometheusRule")["spec"]["groups"][0]["rules"].as_array().unwrap() {
        expressions.push(rule["expr"].as_str().unwrap().to_owned());
    }
    for panel in dashboard["panels"].as_array().unwrap() {
        expressions.extend(panel["targets"].as_array().unwrap().iter().map(|t| t["expr"].as_str().unwrap().to_owned()));
    }
    let name = |before: &str| {
        let start = before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        before[start..].to_owned()
    };
    let in_one = |text: &String| text.match_indices('{').map(|(at, _)| name(&text[..at])).collect::<Vec<_>>();
    expressions.iter().flat_map(in_one).collect()
}

#[test]
fn deployed_operator_runs_with_the_permissions_of_its_role() {
    let home = Home::new("account");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let (program, gate) = (example("operator"), example("gate"));
    home.run(&["deploy", "--program", &program, "--image", "myapp:1", "--timeout", "0s"]).ok();
    fs::write(home.0.join("shop.yaml"), SHOP.replace("finalizers: [example.com/hold]", "labels: {a: b}")).unwrap();
    let group = "{apiVersion: vm.codeconnect.vmworld.com/v1alpha1, kind: VmGroup, metadata: {name: vg-1}, \
                 spec: {cpu: 1, memory: 1, replicas: 3, template: vm}}";
    fs::write(home.0.join("group.yaml"), group).unwrap();
    on_cluster(&home, async |client| {
        let account = "myapp-operator-controller-manager";
        let kubeconfig = kubeconfig_of(&home, &client, "myapp-operator-system", account).await;
        let log = home.0.join("log");
        let port = free_port();
        let mut command = Command::new(&program);
        command.args(["--kubeconfig", &kubeconfig, "--operator-namespace=myapp-operator-system", "--leader-elect"]);
        command.arg(format!("--metrics-addr=127.0.0.1:{port}")).arg("--health-addr=0");
        command.stderr(fs::File::create(&log).unwrap()).stdout(Stdio::null());
        let _running = Running(command.spawn().unwrap());
        home.run(&["apply", "-f", "shop.yaml"]).ok();
        let services: Api<Service> = Api::namespaced(client.clone(), "default");
        let find_service =
            async || {
                services.list(&ListParams::default()).await.unwrap().items.into_iter().find(|service| {
                    service.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "MyApp")
                })
            };
        let mut service = None;
        for _ in 0..200 {
            service = find_service().await;
            if service.is_some() {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        let output = fs::read_to_string(&log).unwrap();
        let service = service.unwrap_or_else(|| panic!("no Service was created\n{output}"));
        assert!(!output.contains("forbidden"), "{output}");

        // All series in alerts and dashboards are exported by running operators.
        let mut metrics_text = metrics(port, "flyball_apply_total{").await;
        let gate_port = free_port();
        let address = format!("--metrics-addr=127.0.0.1:{gate_port}");
        let gated = ["run", "--program", &gate, "--", &address, "--health-addr=0"];
        let running_gate = Running(home.spawn(&gated));
        metrics(gate_port, "rest_client_requests_total{").await;
        let mut applied = home.run(&["apply", "-f", "group.yaml"]);
        for _ in 0..100 {
            if applied.code == Some(0) {
                break;
            }
            sleep(Duration::from_millis(50)).await;
            applied = home.run(&["apply", "-f", "group.yaml"]);
        }
        applied.ok();
        metrics_text += &metrics(gate_port, "controller_runtime_webhook_requests_total{").await;
        for series in used_series(&home, &program).union(&used_series(&home, &gate)) {
            assert!(metrics_text.contains(&format!("\n{series}{{")), "no {series} in\n{metrics_text}");
        }

        // One that ran here can be deployed, and is then called there.
        drop(running_gate);
        home.run(&["deploy", "--program", &gate, "--image", "gate:1", "--timeout", "0s"]).ok();
        let configuration = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gate-webhook";
        let configuration: Value =
            client.request(http::Request::get(configuration).body(Vec::new()).unwrap()).await.unwrap();
        let reached = &configuration["webhooks"][0]["clientConfig"];
        assert_eq!((&reached["service"]["namespace"], &reached["url"]), (&json!("gate-system"), &Value::Null));

        // Without one verb, the log names the verb and the resource.
        let roles: Api<ClusterRole> = Api::all(client.clone());
        let name = "myapp-operator-manager-role";
        let mut role = roles.get(name).await.unwrap();
        for rule in role.rules.iter_mut().flatten().filter(|rule| rule.resources == Some(vec!["services".to_owned()])) {
            rule.verbs.retain(|verb| verb != "create");
        }
        let patch = json!({"rules": role.rules});
        roles.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        let service = service.metadata.name.unwrap();
        services.delete(&service, &DeleteParams::default()).await.unwrap();
        let expected = "cannot create resource \"services\" in API group \"\" in the namespace \"default\"";
        let mut output = String::new();
        for _ in 0..200 {
            output = fs::read_to_string(&log).unwrap();
            if output.contains(expected) {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        assert!(output.contains(expected), "{output}");
        // With the generated role it continues.
        home.run(&["deploy", "--program", &program, "--image", "myapp:1", "--timeout", "0s", "--force-conflicts"]).ok();
        for _ in 0..400 {
            if find_service().await.is_some() {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("no Service came back\n{}", fs::read_to_string(&log).unwrap());
    });
}

/// Creates a definition of sites with this schema of their `spec`.
fn sites(spec: &Value) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "sites.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "sites", "singular": "site", "kind": "Site"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

#[test]
fn harmful_definitions_are_rejected() {
    let home = Home::new("safety");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let install = |definition: &Value, flags: &[&str]| {
        let program = write_program(&home, &json!({"name": "site-operator"}), vec![definition.clone()]);
        home.run(&[&["install", "--program", &program], flags].concat())
    };
    let spec = json!({"type": "object", "properties": {"title": {"type": "string"}, "size": {"type": "integer"}}});
    let first = sites(&spec);
    assert_eq!(
        install(&first, &["--dry-run"]).ok().out,
        "CustomResourceDefinition sites.example.com created (dry run)\n"
    );
    assert_eq!(install(&first, &[]).ok().out, "CustomResourceDefinition sites.example.com created\n");
    assert_eq!(install(&first, &[]).ok().out, "CustomResourceDefinition sites.example.com unchanged\n");
    let site = |name: &str, spec: &str| {
        format!("---\n{{apiVersion: example.com/v1, kind: Site, metadata: {{name: {name}}}, spec: {spec}}}\n")
    };
    fs::write(home.0.join("sites.yaml"), site("a", "{title: A, size: 3}") + &site("b", "{size: 12}")).unwrap();
    home.run(&["apply", "-f", "sites.yaml"]).ok();

    let mut strict = spec.clone();
    strict["properties"]["size"]["maximum"] = json!(9);
    strict["required"] = json!(["title"]);
    let output = install(&sites(&strict), &[]);
    output.fails_with(&[]);
    assert_eq!(
        output.err,
        "error: the change would break stored objects:
  sites.example.com default/b: spec.size would become invalid: Invalid value: 12: spec.size in body should be less than or equal to 9
  sites.example.com default/b: spec.title would become invalid: Required value
hint: change the objects first, or add the schema as a new version; override with --force
"
    );
    let mut without = spec.clone();
    without["properties"].as_object_mut().unwrap().remove("title");
    install(&sites(&without), &[])
        .fails_with(&["sites.example.com default/a: spec.title would be lost: v1 no longer has this field"]);
    let mut ruled = spec.clone();
    ruled["x-kubernetes-validations"] = json!([{"rule": "self.size < 10", "message": "too large"}]);
    install(&sites(&ruled), &[]).fails_with(&["sites.example.com default/b: spec would become invalid", "too large"]);
    let mut renamed = sites(&spec);
    renamed["spec"]["versions"][0]["name"] = "v2".into();
    install(&renamed, &[])
        .fails_with(&["spec.versions no longer has the storage version v1", "flyball crd migrate sites.example.com"]);
    let mut moved = sites(&spec);
    moved["spec"]["scope"] = "Cluster".into();
    install(&moved, &[]).fails_with(&["sites.example.com: spec.scope changes from Namespaced to Cluster"]);
    // A second version takes over the lease of the first one.
    let mut second = sites(&spec);
    let mut version = sites(&strict)["spec"]["versions"][0].clone();
    (version["name"], version["storage"]) = ("v2".into(), false.into());
    second["spec"]["versions"].as_array_mut().unwrap().push(version);
    install(&second, &[]).fails_with(&["default/b: spec.title"]);

    assert_eq!(install(&sites(&strict), &["--force"]).ok().out, "CustomResourceDefinition sites.example.com changed\n");
    let program = write_program(&home, &json!({"name": "site-operator"}), vec![sites(&strict)]);
    let uninstall = |flags: &[&str]| home.run(&[&["uninstall", "--program", &program], flags].concat());
    assert_eq!(
        uninstall(&["--dry-run"]).ok().out,
        "To be removed:\n  2 Site and their children\n  CustomResourceDefinition sites.example.com\n"
    );
    uninstall(&[]).fails_with(&["nothing was removed"]);
    assert!(
        uninstall(&["--yes"])
            .ok()
            .out
            .ends_with("2 Site deleted\nCustomResourceDefinition sites.example.com deleted\n")
    );
}

#[test]
fn columns_match_the_talk() {
    let home = Home::new("columns");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let program = manifests::program(&home, &vm_operator());
    home.run(&["install", "--program", &program]).ok();
    home.run(&["manifests", "--program", &program]).ok();
    home.run(&["apply", "-f", "config/samples/vm_v1alpha1_vmgroup.yaml"]).ok();
    let output = home.run(&["get", "vg"]).ok().out;
    let words: Vec<&str> = output.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(words, ["NAME", "PHASE", "CURRENT", "DESIRED", "CPU", "MEMORY", "TEMPLATE", "LAST_MESSAGE"]);
    let row: Vec<&str> = output.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[0], "vmgroup-sample");
}
