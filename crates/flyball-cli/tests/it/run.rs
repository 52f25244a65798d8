//! `flyball run`.

use crate::{Home, Said};
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

/// Returns the program of an example, which `cargo test` builds unless it is told what to build.
pub(crate) fn example(name: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_flyball")).with_file_name("examples").join(name);
    assert!(program.exists(), "build it first: cargo build -p flyball-cli --example {name}");
    program.display().to_string()
}

/// Lets an operator run for a while and stops it.
#[expect(clippy::disallowed_methods, reason = "another process is given its time")]
fn for_a_while(running: Child) -> Said {
    thread::sleep(Duration::from_secs(2));
    let pid = rustix::process::Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    Said::of(&running.wait_with_output().unwrap())
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
fn an_operator_whose_usual_ports_are_taken_gets_others() {
    let home = Home::new("run-ports");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let program = home.0.join("op");
    let script = "#!/bin/sh\ncase $1 in\nmanifests) echo '{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": []}';;\n\
                  run) echo \"metrics=$FLYBALL_METRICS_ADDR health=$FLYBALL_HEALTH_ADDR.\";;\nesac\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    // Whether it is this test or somebody else who has it.
    let _taken = TcpListener::bind("127.0.0.1:8080");
    let said = home.run(&["run", "--program=./op", "--", "--health-addr=0"]).ok();
    let told = "127.0.0.1:8080 is in use: metrics are at http://";
    let address = said.out.split(told).nth(1).and_then(|rest| rest.split("/metrics").next());
    let address = address.unwrap_or_else(|| panic!("{said:?}"));
    assert!(said.out.contains(&format!("metrics={address} health=.")), "{said:?}");
    let said = home.run(&["run", "--program=./op", "--", "--health-addr=0", "--metrics-addr", "127.0.0.1:8080"]).ok();
    assert!(said.out.contains("metrics= health=.") && !said.out.contains("is in use"), "{said:?}");
}

#[test]
fn what_does_not_describe_itself_gets_a_hint_that_fits_it() {
    let home = Home::new("run-hint");
    fs::write(home.0.join("watches.yaml"), "- {group: a.io, version: v1, kind: Site, chart: nowhere}\n").unwrap();
    for line in [&["describe", "operator", "./watches.yaml"][..], &["manifests", "--program=watches.yaml"]] {
        let said = home.run(line);
        said.fails_with(&["names the chart, role or playbook of each kind"]);
        assert!(!said.err.contains("Operator::main"), "{said:?}");
    }
    home.run(&["describe", "operator", "/bin/false"]).fails_with(&["Operator::main", "--token x"]);
}

#[test]
fn an_operator_runs_with_its_samples() {
    let home = Home::new("run");
    home.run(&["cluster", "up", "--quiet"]).ok();
    fs::create_dir(home.0.join("samples")).unwrap();
    fs::write(home.0.join("samples/shop.yaml"), SAMPLE).unwrap();
    let program = operator();
    let flags = ["--", "--metrics-addr=0", "--health-addr=0"];
    let run = |more: &[&str]| for_a_while(home.spawn(&[&["run", "--program", &program], more, &flags].concat())).ok();

    let said = run(&["--samples"]);
    for line in [
        "CustomResourceDefinition myapps.apps.flyball.dev",
        "ValidatingAdmissionPolicy myapp-operator-myapps.apps.flyball.dev",
        "ValidatingAdmissionPolicyBinding myapp-operator-myapps.apps.flyball.dev",
        "MyApp default/shop",
        "Secret default/greeting",
    ] {
        assert!(said.out.contains(&format!("applied {line}\n")), "{said:?}");
    }
    assert!(said.err.contains("reconciled outcome=Success writes="), "{said:?}");
    // Once for the manifests, once for the run.
    assert_eq!(said.err.matches("hello\n").count(), 2, "{said:?}");

    let said = run(&["--env-from=secret/greeting"]);
    assert_eq!(said.err.matches("good morning\n").count(), 2, "{said:?}");
    home.run(&["run", "--program", &program, "--env-from=secret/other"])
        .fails_with(&["cannot read Secret default/other", "not found"]);
}

#[test]
fn what_cannot_be_run_is_named() {
    let home = Home::new("norun");
    home.run(&["run", "--program", "nothing"]).fails_with(&["there is no cluster to connect to", "flyball cluster up"]);
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.run(&["run", "--program", "./nothing"]).fails_with(&["cannot run ./nothing manifests"]);
    home.run(&["run", "--program", "/bin/echo"]).fails_with(&["/bin/echo is no operator"]);
    home.run(&["run", "--samples"]).fails_with(&["neither a folder samples nor config/samples", "--samples=PATH"]);
    home.run(&["run", "--samples=none.yaml"]).fails_with(&["cannot read none.yaml"]);
    assert_eq!(home.run(&["run", "--env-from", "pod/a"]).code, Some(2));
}
