//! `flyball scorecard`.

use crate::run::{SAMPLE, example, operator};
use crate::{CommandOutput, Home};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn good_operator_passes_all_checks() {
    let home = Home::new("scorecard");
    fs::create_dir(home.0.join("samples")).unwrap();
    fs::write(home.0.join("samples/shop.yaml"), SAMPLE).unwrap();
    let output = home.run(&["scorecard", "--program", &operator()]).ok();
    let checks: Vec<&str> = output.out.lines().collect();
    assert_eq!(checks.len(), 12, "{output:?}");
    assert!(checks[1..].iter().all(|check| check.ends_with("   passed")), "{output:?}");
    let remaining: Vec<_> = fs::read_dir(&home.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!remaining.iter().any(|name| name.to_string_lossy().starts_with("flyball-scorecard")), "{remaining:?}");
}

/// Finds the result of a check in JSON.
fn outcome(output: &CommandOutput, name: &str) -> Value {
    let checks: Vec<Value> = serde_json::from_str(&output.out).unwrap();
    checks.into_iter().find(|check| check["name"] == name).unwrap()
}

/// Asserts that these checks failed, each with these texts in its problem and remedy.
fn has_failed(output: &CommandOutput, expected: &[(&str, &str, &str)]) {
    for (name, why, remedy) in expected {
        let check = outcome(output, name);
        let text = |field: &str| check[field].as_str().unwrap_or_default();
        assert_eq!(text("outcome"), "failed", "{check}");
        assert!(text("why").contains(why) && text("remedy").contains(remedy), "{check}");
    }
}

const GADGETS: &str = "apiVersion: bad.flyball.dev/v1
kind: Gadget
metadata: {name: lamp}
spec: {size: 3}
---
apiVersion: bad.flyball.dev/v1
kind: Gadget
metadata: {name: nothing}
spec: {size: 0}
";

#[test]
fn bad_operator_fails_all_checks() {
    let home = Home::new("worstscorecard");
    fs::write(home.0.join("gadgets.yaml"), GADGETS).unwrap();
    let program = example("bad");
    let args = ["scorecard", "--program", &program, "--samples=gadgets.yaml", "--timeout=5s", "-o=json"];
    let output = home.run(&args);
    output.fails_with(&["10 of 11 checks failed"]);
    assert_eq!(outcome(&output, "the operator starts")["outcome"], "passed");
    has_failed(
        &output,
        &[
            ("each kind has a sample", "a spec for Spare", "config/samples"),
            (
                "each field has a type and a description",
                "spec.size of Gadget v1 has no description",
                "doc comment to the field",
            ),
            ("samples are accepted", "cannot apply Gadget default/nothing: ", "fix the samples"),
            ("each sample gets a status", "Gadget lamp has no conditions", "cx.set_status"),
            ("the operator converges", "after 5 s still writing to Gadget default/lamp", "write only changes"),
            ("a crash changes nothing", "ConfigMap default/lamp-parts was replaced", "cx.apply"),
            ("deleted samples leave nothing behind", "these still exist: ConfigMap default/lamp-parts", "finalize"),
            ("metrics are served", "/metrics is not served: cannot reach 127.0.0.1:", "Operator::main"),
            ("the operator stops on SIGTERM", "still running 5 s after SIGTERM", "Operator::grace"),
            ("the roles permit all requests", "denied: list secrets", "Controller::owns"),
        ],
    );
    let output = CommandOutput::of(&home.command(&args).env("BAD_START", "1").output().unwrap());
    output.fails_with(&["3 of 11 checks failed"]);
    let last = "exited with exit status: 3; last output: bad: the moon is not full";
    has_failed(&output, &[("the operator starts", last, "-v")]);
}

#[test]
fn failed_checks_are_named_with_their_remedy() {
    let home = Home::new("badscorecard");
    let program = home.0.join("op");
    // It has no permission for its owned objects, and its fields have no descriptions.
    let script = format!(
        "#!/bin/sh\nif [ $1 = manifests ]; then {0} \"$@\" | /bin/sed -e 's/\"deployments\"/\"daemonsets\"/' \
         -e 's/\"description\": \".*\"/\"description\": \"\"/'; else exec {0} \"$@\"; fi\n",
        operator()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let scorecard = |flags: &[&str]| home.run(&[&["scorecard", "--program=./op", "--timeout=2s"], flags].concat());

    let output = scorecard(&["-o", "json"]);
    output.fails_with(&["4 of 11 checks failed"]);
    has_failed(
        &output,
        &[
            ("each kind has a sample", "no sample with a spec for MyApp", "--samples PATH"),
            (
                "each field has a type and a description",
                "spec.images of MyApp v1alpha1 has no description",
                "doc comment to the field",
            ),
            (
                "the operator starts",
                "/readyz did not report ready within 2 s: watch deployments.apps failed: not listed yet, failing for ",
                "-v",
            ),
            ("the roles permit all requests", "deployments.apps", "Controller::owns"),
        ],
    );
    assert_eq!(outcome(&output, "the operator converges")["outcome"], "skipped");
    let output = scorecard(&["-o", "junit"]);
    assert!(output.out.contains("tests=\"11\" failures=\"4\" errors=\"0\" skipped=\"7\""), "{output:?}");

    home.run(&["scorecard", "--program=/bin/echo"]).fails_with(&["did not print JSON on standard output"]);
    home.run(&["scorecard", "--program=./op", "--samples=none"]).fails_with(&["cannot read none"]);
    assert_eq!(home.run(&["scorecard", "--timeout=soon"]).code, Some(2));
}
