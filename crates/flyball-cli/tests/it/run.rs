//! `flyball run`.

use crate::dev::LineReader;
use crate::{CommandOutput, Home};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::Duration;

/// Returns the program of `examples/operator.rs`.
pub(crate) fn operator() -> String {
    example("operator")
}

/// Returns the program of an example, which `cargo test` builds by default.
pub(crate) fn example(name: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_flyball")).with_file_name("examples").join(name);
    assert!(program.exists(), "build it first: cargo build -p flyball-cli --example {name}");
    program.display().to_string()
}

/// Runs an operator for a while and stops it.
#[expect(clippy::disallowed_methods, reason = "another process is given its time")]
fn for_a_while(running: Child) -> CommandOutput {
    thread::sleep(Duration::from_secs(2));
    let pid = rustix::process::Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    CommandOutput::of(&running.wait_with_output().unwrap())
}

pub(crate) const SAMPLE: &str = "apiVersion: apps.flyball.dev/v1alpha1
kind: MyApp
metadata: {name: shop}
spec: {images: registry.example.com/shop, version: '1.0'}
---
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Secret, metadata: {name: greeting}, stringData: {GREETING: good morning}}
";

#[test]
fn operator_gets_other_ports_if_the_default_ones_are_in_use() {
    let home = Home::new("run-ports");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let program = home.0.join("op");
    let script = "#!/bin/sh\ncase $1 in\nmanifests) echo '{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": []}';;\n\
                  run) echo \"metrics=$FLYBALL_METRICS_ADDR health=$FLYBALL_HEALTH_ADDR.\";;\nesac\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    // The port may be used by this test or another process.
    let _taken = TcpListener::bind("127.0.0.1:8080");
    let output = home.run(&["run", "--program=./op", "--", "--health-addr=0"]).ok();
    let message = "127.0.0.1:8080 is in use: metrics are at http://";
    let address = output.out.split(message).nth(1).and_then(|rest| rest.split("/metrics").next());
    let address = address.unwrap_or_else(|| panic!("{output:?}"));
    assert!(output.out.contains(&format!("metrics={address} health=.")), "{output:?}");
    let output = home.run(&["run", "--program=./op", "--", "--health-addr=0", "--metrics-addr", "127.0.0.1:8080"]).ok();
    assert!(output.out.contains("metrics= health=.") && !output.out.contains("is in use"), "{output:?}");
}

#[test]
fn operators_that_start_at_once_get_different_ports() {
    let home = Home::new("run-ports-at-once");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let program = home.0.join("op");
    // It has not bound its ports yet.
    let script = "#!/bin/sh\ncase $1 in\nmanifests) echo '{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": []}';;\n\
                  run) echo \"ports=$FLYBALL_METRICS_ADDR $FLYBALL_HEALTH_ADDR;\"; touch started; exec sleep 600;;\nesac\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    // Other tests and processes may use the ports.
    let are_free = || ["127.0.0.1:8080", "127.0.0.1:8081"].iter().all(|port| TcpListener::bind(port).is_ok());
    let were_free = are_free();
    let first = home.spawn(&["run", "--program=./op"]);
    wait_for(&home.0.join("started"));
    let are_free = were_free && are_free();
    let second = for_a_while(home.spawn(&["run", "--program=./op"])).ok();
    let first = for_a_while(first).ok();
    for message in ["127.0.0.1:8080 is in use: metrics are at", "127.0.0.1:8081 is in use: health is at"] {
        assert!(second.out.contains(message), "{first:?} {second:?}");
        assert!(!are_free || !first.out.contains("is in use"), "{first:?}");
    }
    let ports = |output: &CommandOutput| {
        let line = output.out.split("ports=").nth(1).and_then(|rest| rest.split(';').next()?.split_once(' '));
        let (metrics, health) = line.unwrap_or_else(|| panic!("{output:?}"));
        [metrics.to_owned(), health.to_owned()]
    };
    for (one, other) in ports(&first).iter().zip(ports(&second)) {
        assert_ne!(*one, other, "{first:?} {second:?}");
    }
}

#[expect(clippy::disallowed_methods, reason = "another process is given its time")]
fn wait_for(file: &Path) {
    for _ in 0..1000 {
        if file.exists() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{} is not created", file.display());
}

#[test]
fn failing_description_has_a_fitting_hint() {
    let home = Home::new("run-hint");
    let cases = [
        (
            "- {group: a.io, version: v1, kind: Site, chart: nowhere}\n",
            "entry 1 (Site): chart: no chart directory or archive at",
        ),
        ("- {group: a.io, version: v1, kind: Site, role: nowhere}\n", "entry 1 (Site): role: role nowhere not found"),
        (
            "- {group: a.io, version: v1, kind: Site, role: ., vars: 3}\n",
            "entry 1 (Site): vars: must be a mapping, not a number",
        ),
        ("- Site\n", "entry 1: must be a mapping, not a string"),
        ("kind: Site\n", "watches.yaml: must be a list of entries"),
        ("- {kind: [\n", "watches.yaml"),
    ];
    for (watches, message) in cases {
        fs::write(home.0.join("watches.yaml"), watches).unwrap();
        for line in [&["describe", "operator", "./watches.yaml"][..], &["manifests", "--program=watches.yaml"]] {
            let output = home.run(line);
            output.fails_with(&["watches.yaml", message]);
            assert!(!output.err.contains("Operator::main"), "{output:?}");
            assert_eq!(output.err.contains("hint:"), output.err.contains("hint: begin each entry with"), "{output:?}");
        }
    }
    home.run(&["describe", "operator", "/bin/false"]).fails_with(&["Operator::main", "--token x"]);
}

#[test]
fn operator_prints_its_own_help_without_a_cluster() {
    let home = Home::new("run-help");
    for command in ["run", "dev"] {
        let output = home.run(&[command, "--program", &operator(), "--", "--help"]).ok();
        assert!(output.out.contains("--leader-elect") && output.out.contains("FLYBALL_METRICS_ADDR"), "{output:?}");
    }
    fs::create_dir_all(home.0.join("roles/site/tasks")).unwrap();
    fs::write(home.0.join("roles/site/tasks/main.yml"), "- debug: {msg: hello}\n").unwrap();
    fs::write(home.0.join("watches.yaml"), "- {group: a.io, version: v1, kind: Site, role: site}\n").unwrap();
    assert!(home.run(&["run", "--", "-h"]).ok().out.contains("--leader-elect"));
}

#[test]
fn output_of_a_failing_program_is_part_of_the_error() {
    let home = Home::new("run-failing");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let program = home.0.join("op");
    let run = |script: &str| {
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let output = home.run(&["run", "--program=./op", "--", "--size", "3"]);
        assert_eq!(output.code, Some(1), "{output:?}");
        let (error, hint) = output.err.split_once("\nhint: ").unwrap_or_else(|| panic!("{output:?}"));
        assert!(hint.starts_with("the program must call Operator::main") && hint.ends_with("--token x\n"), "{hint}");
        error.to_owned()
    };
    assert_eq!(run(""), "error: `./op manifests --size 3` printed nothing on standard output; JSON is expected");
    assert_eq!(
        run("echo 'error: no token' >&2; exit 3"),
        "error: `./op manifests --size 3` failed with exit status: 3: no token"
    );
    assert_eq!(
        run("echo one >&2; echo two >&2; echo three"),
        "error: `./op manifests --size 3` did not print JSON on standard output (expected ident at line 1 column 2); \
         it printed on standard error:\n  one\n  two"
    );
    // The error of a watches.yaml is complete.
    fs::write(home.0.join("watches.yaml"), "- group: a.io\n  kind Site\n").unwrap();
    assert_eq!(
        home.run(&["run"]).err,
        "error: cannot create the operator: watches.yaml: invalid YAML: simple key expected ':' at line 2, column 3\n"
    );
}

#[test]
fn operator_runs_with_its_samples() {
    let home = Home::new("run");
    home.run(&["cluster", "up", "--quiet"]).ok();
    fs::create_dir(home.0.join("samples")).unwrap();
    fs::write(home.0.join("samples/shop.yaml"), SAMPLE).unwrap();
    let program = operator();
    let flags = ["--", "--metrics-addr=0", "--health-addr=0"];
    let run = |more: &[&str]| for_a_while(home.spawn(&[&["run", "--program", &program], more, &flags].concat())).ok();

    let output = run(&["--samples"]);
    for line in [
        "CustomResourceDefinition myapps.apps.flyball.dev",
        "ValidatingAdmissionPolicy myapp-operator-myapps.apps.flyball.dev",
        "ValidatingAdmissionPolicyBinding myapp-operator-myapps.apps.flyball.dev",
        "MyApp default/shop",
        "Secret default/greeting",
    ] {
        assert!(output.out.contains(&format!("applied {line}\n")), "{output:?}");
    }
    assert!(output.err.contains("reconciled outcome=Success writes="), "{output:?}");
    // Once for the manifests, once for the run.
    assert_eq!(output.err.matches("hello\n").count(), 2, "{output:?}");

    // The operator has started by then, and stops.
    fs::write(home.0.join("samples/wrong.yaml"), "{apiVersion: v1, kind: ConfigMap, metadata: {name: No!}}").unwrap();
    fs::write(home.0.join("samples/kustomization.yaml"), "resources: [shop.yaml]").unwrap();
    let output = home.run(&[&["run", "--program", &program, "--samples"], &flags[..]].concat());
    output.fails_with(&["error: cannot apply ConfigMap default/No!", "metadata.name"]);

    let output = run(&["--env-from=secret/greeting"]);
    assert_eq!(output.err.matches("good morning\n").count(), 2, "{output:?}");
    home.run(&["run", "--program", &program, "--env-from=secret/other"])
        .fails_with(&["cannot read Secret default/other", "not found"]);
}

/// Applies a pod until the response contains this text, or until it is accepted if the text is empty.
#[expect(clippy::disallowed_methods, reason = "another process is given its time")]
fn until_pods(home: &Home, words: &str) {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: [{name: a, image: a}]}}";
    fs::write(home.0.join("pod.yaml"), pod).unwrap();
    let mut output = home.run(&["apply", "-f", "pod.yaml", "-n", "kube-public"]);
    for _ in 0..300 {
        if !words.is_empty() && output.err.contains(words) {
            return;
        }
        thread::sleep(Duration::from_millis(100));
        output = home.run(&["apply", "-f", "pod.yaml", "-n", "kube-public"]);
    }
    panic!("{output:?}");
}

#[test]
fn webhooks_are_removed_when_the_operator_ends() {
    let home = Home::new("run-webhooks");
    home.run(&["cluster", "up", "--nodes=1", "--quiet"]).ok();
    let flags = ["run", "--program", &example("pod_gate"), "--", "--metrics-addr=0", "--health-addr=0"];
    let configurations = || home.run(&["get", "validatingwebhookconfigurations", "-o=name"]).ok().out;
    let pod = || home.run(&["apply", "-f", "pod.yaml", "-n", "kube-public"]);
    let signal = |running: &Child, signal| {
        let pid = rustix::process::Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    };
    let running = home.spawn(&flags);
    until_pods(&home, "no pod is called bad");
    signal(&running, rustix::process::Signal::TERM);
    let output = CommandOutput::of(&running.wait_with_output().unwrap()).ok();
    assert!(output.out.ends_with("deleted ValidatingWebhookConfiguration pod-gate-webhook\n"), "{output:?}");
    assert_eq!(configurations(), "");
    pod().ok();
    home.run(&["apply", "-f", "pod.yaml"]).ok();

    // Objects that were deployed meanwhile are kept.
    let running = home.spawn(&flags);
    until_pods(&home, "no pod is called bad");
    home.run(&["deploy", "--program", &example("pod_gate"), "--image=a"]).ok();
    let redeployed = configurations();
    signal(&running, rustix::process::Signal::TERM);
    CommandOutput::of(&running.wait_with_output().unwrap()).ok();
    assert_eq!(configurations(), redeployed);
    assert!(!redeployed.is_empty());
    home.run(&["undeploy", "--program", &example("pod_gate"), "--yes"]).ok();

    // One that is killed has no time for that.
    let mut running = home.spawn(&flags);
    until_pods(&home, "no pod is called bad");
    signal(&running, rustix::process::Signal::KILL);
    running.wait().unwrap();
    until_pods(&home, "failed calling webhook");
    let uninstall = |how| home.run(&["uninstall", "--program", &example("pod_gate"), how]).ok().out;
    let object = "ValidatingWebhookConfiguration pod-gate-webhook";
    assert_eq!(uninstall("--dry-run"), format!("To be removed:\n  {object}\n"));
    assert!(uninstall("--yes").ends_with(&format!("{object} deleted\n")));
    pod().ok();
}

#[test]
fn conversion_webhooks_are_removed_when_the_operator_ends() {
    let home = Home::new("run-conversion");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let version = |name: &str, storage: bool| {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        json!({"name": name, "served": true, "storage": storage, "schema": schema})
    };
    let definition = |client: &Value| {
        let webhook = json!({"clientConfig": client, "conversionReviewVersions": ["v1"]});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "sites.a.io"},
            "spec": {
                "group": "a.io", "scope": "Namespaced", "names": {"kind": "Site", "plural": "sites"},
                "versions": [version("v1", false), version("v2", true)],
                "conversion": {"strategy": "Webhook", "webhook": webhook},
            },
        })
    };
    // An operator that points its definition at itself, and ends.
    let service = definition(&json!({"service": {"name": "a", "namespace": "default", "path": "/convert"}}));
    fs::write(
        home.0.join("manifests.json"),
        json!({"apiVersion": "v1", "kind": "List", "items": [service]}).to_string(),
    )
    .unwrap();
    fs::write(home.0.join("aimed.json"), definition(&json!({"url": "https://127.0.0.1:1/convert"})).to_string())
        .unwrap();
    let script = format!(
        "#!/bin/sh\ncase $1 in\nmanifests) cat manifests.json;;\nrun) exec {} apply -f aimed.json;;\nesac\n",
        env!("CARGO_BIN_EXE_flyball")
    );
    fs::write(home.0.join("op"), script).unwrap();
    fs::set_permissions(home.0.join("op"), fs::Permissions::from_mode(0o755)).unwrap();
    let output = home.run(&["run", "--program=./op"]).ok();
    assert!(output.out.contains("CustomResourceDefinition sites.a.io changed"), "{output:?}");
    assert!(
        output.out.ends_with("removed the conversion webhook of CustomResourceDefinition sites.a.io\n"),
        "{output:?}"
    );
    let found = home.run(&["get", "crd", "sites.a.io", "-o=json"]).ok().out;
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["spec"]["conversion"], json!({"strategy": "None"}));
    // Nobody owns the field: another manager sets it without a conflict.
    let deployed = home.run(&["apply", "-f", "manifests.json"]).ok();
    assert_eq!(deployed.out, "CustomResourceDefinition sites.a.io changed\n");
}

#[test]
fn missing_kind_is_named() {
    let home = Home::new("run-no-kind");
    home.run(&["cluster", "up", "--quiet"]).ok();
    fs::create_dir_all(home.0.join("roles/site/tasks")).unwrap();
    fs::write(home.0.join("roles/site/tasks/main.yml"), "- debug: {msg: hello}\n").unwrap();
    fs::write(home.0.join("watches.yaml"), "- {group: a.io, version: v1, kind: Site, role: site}\n").unwrap();
    home.run(&["run"]).fails_with(&[
        "error: no matches for kind: the cluster does not serve sites of a.io/v1, which watches.yaml names\n",
        "hint: add its CustomResourceDefinition to config/crd/bases, or apply it to the cluster first\n",
    ]);
    // This one waits for a file to be saved.
    let mut dev = LineReader::new(home.command(&["dev", "--no-cluster"]));
    dev.until("error: no matches for kind: the cluster does not serve sites of a.io/v1");
    dev.stop();
}

#[test]
fn unusable_programs_are_named() {
    let home = Home::new("norun");
    let output = home.run(&["run", "--program", "nothing"]);
    output.fails_with(&["no cluster to connect to: cannot read kubeconfig /", "flyball cluster up"]);
    assert!(!output.err.contains('"') && !output.err.contains("os error"), "{output:?}");
    let output = home.run(&["get", "pods", "--kubeconfig", "/nowhere/at all"]);
    let message = "error: cannot read kubeconfig /nowhere/at all: No such file or directory\nhint: ";
    assert!(output.code == Some(1) && output.err.starts_with(message), "{output:?}");
    // The directory is checked before the connection to the cluster.
    for command in ["run", "manifests"] {
        home.run(&[command])
            .fails_with(&["error: no project here: no Cargo.toml or watches.yaml found in /", "--program FILE"]);
    }
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.run(&["run", "--program", "./nothing"]).fails_with(&["cannot run `./nothing manifests`"]);
    home.run(&["run", "--program", "/bin/echo"])
        .fails_with(&["`/bin/echo manifests` did not print JSON on standard output", "Operator::main"]);
    home.run(&["run", "--samples"]).fails_with(&["no samples or config/samples directory found", "--samples=PATH"]);
    home.run(&["run", "--samples=none.yaml"]).fails_with(&["cannot read none.yaml"]);
    assert_eq!(home.run(&["run", "--env-from", "pod/a"]).code, Some(2));
    home.run(&["cluster", "down"]).ok();
    home.run(&["get", "pods"]).fails_with(&["no cluster to connect to: no current context\n"]);
    home.run(&["get", "pods", "--context", "far"]).fails_with(&["context \"far\" not found"]);
}
