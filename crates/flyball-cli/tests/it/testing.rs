//! `flyball test` and `flyball man`, with a program in cargo's place.

use crate::run::{SAMPLE, operator};
use crate::{CommandOutput, Home};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Runs `flyball test` with something else for cargo.
fn test(home: &Home, cargo: &str, args: &[&str]) -> CommandOutput {
    fs::write(home.0.join("Cargo.toml"), "").unwrap();
    let program = home.0.join("cargo");
    fs::write(&program, format!("#!/bin/sh\n{cargo}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = home.command(&[&["test"], args].concat());
    CommandOutput::of(&command.env("CARGO", &program).output().unwrap())
}

const GOOD: &str = "echo \"args: $*\"; echo '     Running tests/it.rs (target/debug/deps/it-0123)' >&2
echo 'running 2 tests'; echo 'test scale ... ok'; echo 'test heal ... ignored'; echo
echo 'test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.50s'";

#[test]
fn tests_are_reported_as_junit_and_json() {
    let home = Home::new("test");
    let output = test(&home, GOOD, &["--junit", "out/junit.xml", "--", "scale"]).ok();
    assert!(output.out.starts_with("args: test --no-fail-fast scale\n     Running tests/it.rs"), "{output:?}");
    let junit = fs::read_to_string(home.0.join("out/junit.xml")).unwrap();
    assert_eq!(
        junit,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites name=\"flyball test\" tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"1\" time=\"0.500\">\n\
         \x20 <testsuite name=\"it (tests/it.rs)\" tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"1\" time=\"0.500\">\n\
         \x20   <testcase name=\"scale\" classname=\"cluster: it (tests/it.rs)\"/>\n\
         \x20   <testcase name=\"heal\" classname=\"cluster: it (tests/it.rs)\"><skipped/></testcase>\n\
         \x20 </testsuite>\n</testsuites>\n"
    );
    let json: Value = serde_json::from_str(&test(&home, GOOD, &["-o", "json"]).ok().out).unwrap();
    assert_eq!((&json["passed"], &json["ignored"]), (&1.into(), &1.into()));
    assert_eq!(json["programs"][0]["tests"][0]["name"], "scale");
    assert_eq!(json["suites"], json!([{"suite": "cluster", "passed": 1, "failed": 0, "ignored": 1}]));

    let bad = GOOD.replace("scale ... ok", "scale ... FAILED") + "; exit 101";
    test(&home, &bad, &[]).fails_with(&["1 of 1 tests failed"]);
    test(&home, "echo 'error: no such file' >&2; exit 101", &[]).fails_with(&["cannot run the tests"]);
    test(&home, GOOD, &["--real"]).fails_with(&["not found", "flyball cluster up"]);
    fs::write(home.0.join("there"), "").unwrap();
    let real = test(&home, &format!("{GOOD}; echo \"real: $FLYBALL_TEST_KUBECONFIG\""), &["--real=there"]).ok();
    assert!(real.out.contains("/there\n"), "{real:?}");
}

#[test]
fn project_without_rust_code_has_only_the_scorecard() {
    let home = Home::new("test-watches");
    let watches = |text: &str| fs::write(home.0.join("watches.yaml"), text).unwrap();
    watches("- {group: a.io, version: v1, kind: Site, role: site}\n");
    for flags in [&["--suite", "unit"][..], &["--real"], &["--", "--lib"]] {
        let output = home.run(&[&["test"], flags].concat());
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.err.contains("a project with a watches.yaml has no cargo tests"), "{output:?}");
    }
    home.run(&["test"]).fails_with(&["entry 1 (Site): role: role site not found"]);
    fs::create_dir_all(home.0.join("roles/site/tasks")).unwrap();
    fs::write(home.0.join("roles/site/tasks/main.yml"), "- debug: {msg: hello}\n").unwrap();
    fs::create_dir_all(home.0.join("config/crd/bases")).unwrap();
    fs::write(home.0.join("config/crd/bases/a.yaml"), SITES).unwrap();
    fs::create_dir(home.0.join("config/samples")).unwrap();
    let sample = "{apiVersion: a.io/v1, kind: Site, metadata: {name: a}, spec: {size: 1}}";
    fs::write(home.0.join("config/samples/a.yaml"), sample).unwrap();
    let output = home.run(&["test", "-o", "json"]);
    let json: Value = serde_json::from_str(&output.out).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!((json["suites"].as_array().unwrap().len(), &json["suites"][0]["suite"]), (1, &"scorecard".into()));
    assert_eq!(json["failed"], 0, "{json:#}");
}

#[test]
fn failing_role_fails_the_scorecard_and_its_case_names_task_and_module() {
    let home = Home::new("test-failing");
    let write = |path: &str, text: &str| {
        fs::create_dir_all(home.0.join(path).parent().unwrap()).unwrap();
        fs::write(home.0.join(path), text).unwrap();
    };
    let sample = "{apiVersion: a.io/v1, kind: Site, metadata: {name: a}, spec: {size: 1}}";
    write("watches.yaml", "- {group: a.io, version: v1, kind: Site, role: site}\n");
    write("roles/site/tasks/main.yml", "- {name: sizes are checked, fail: {msg: 'size must be > {{ size }}'}}\n");
    write("config/crd/bases/a.yaml", SITES);
    write("config/samples/a.yaml", sample);
    let output = home.run(&["scorecard", "-o", "json", "--timeout=5s"]);
    let checks: Value = serde_json::from_str(&output.out).unwrap_or_else(|_| panic!("{output:?}"));
    let mut all = checks.as_array().unwrap().iter();
    let found = all.find(|check| check["name"] == "the operator converges").unwrap();
    assert_eq!(found["why"], "Site a reports Failure: size must be > 1", "{found}");
    assert_eq!(output.code, Some(1));

    write("tests/e2e/broken/00-install.yaml", sample);
    write("tests/e2e/broken/00-assert.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}");
    write("kuttl-test.yaml", "{apiVersion: kuttl.dev/v1beta1, kind: TestSuite, timeout: 5}");
    for (options, message) in [("", "size must be > 1"), (", no_log: true", "the output has been hidden")] {
        let tasks = format!("- {{name: sizes are checked, fail: {{msg: 'size must be > {{{{ size }}}}'}}{options}}}\n");
        write("roles/site/tasks/main.yml", &tasks);
        let output = home.run(&["test", "--suite=cluster"]);
        assert_eq!(output.code, Some(1), "{output:?}");
        let all = format!("{}{}", output.out, output.err);
        assert!(all.contains("Site a: TaskFailed: task sizes are checked (") && all.contains(message), "{all}");
        assert!(all.contains("roles/site/tasks/main.yml, module fail): "), "{all}");
        assert_eq!(all.contains("must be > 1"), options.is_empty(), "{all}");
    }
}

#[test]
fn definitions_of_a_chart_outlive_its_release() {
    let home = Home::new("test-crds");
    let write = |path: &str, text: &str| {
        fs::create_dir_all(home.0.join(path).parent().unwrap()).unwrap();
        fs::write(home.0.join(path), text).unwrap();
    };
    let page = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\n";
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: kept\n  annotations: \
                {helm.sh/resource-policy: keep}\n";
    write("watches.yaml", "- {group: a.io, version: v1, kind: Site, chart: charts/site}\n");
    write("charts/site/Chart.yaml", "{apiVersion: v2, name: site, version: 0.1.0}\n");
    write("charts/site/values.yaml", "{}\n");
    write("charts/site/templates/page.yaml", page);
    write("charts/site/crds/pages.yaml", &SITES.replace("site", "page").replace("Site", "Page"));
    write("config/crd/bases/a.yaml", SITES);
    write("config/samples/a.yaml", "{apiVersion: a.io/v1, kind: Site, metadata: {name: a}, spec: {}}");
    let checks = || -> Value { serde_json::from_str(&home.run(&["scorecard", "-o", "json"]).out).unwrap() };
    let deletion = |checks: &Value| {
        let mut all = checks.as_array().unwrap().iter();
        all.find(|check| check["name"] == "deleted samples leave nothing behind").unwrap().clone()
    };
    assert_eq!(deletion(&checks())["outcome"], "passed");
    // Other objects are still reported.
    write("charts/site/templates/role.yaml", role);
    let found = deletion(&checks());
    let why = found["why"].as_str().unwrap_or_default();
    assert!(why.contains("still exist: ClusterRole kept") && !why.contains("CustomResourceDefinition"), "{found}");
}

const SITES: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.a.io}
spec:
  group: a.io
  scope: Namespaced
  names: {plural: sites, singular: site, kind: Site, listKind: SiteList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[test]
fn suites_are_selected() {
    let home = Home::new("suites");
    let cargo = |kinds: &[&str]| {
        let targets: Vec<Value> = kinds.iter().map(|kind| json!({"name": "op", "kind": [kind]})).collect();
        let package = json!({"id": "op", "targets": targets, "dependencies": [{"name": "flyball"}]});
        let metadata = json!({"packages": [package], "workspace_default_members": ["op"]});
        format!("[ $1 != metadata ] || {{ echo '{metadata}'; exit; }}; echo \"$*\" >> calls; {GOOD}")
    };
    let runs = |kinds: &[&str], flags: &[&str]| {
        let output = test(&home, &cargo(kinds), flags).ok();
        let calls = fs::read_to_string(home.0.join("calls")).unwrap_or_default().replace("test --no-fail-fast", "-");
        let _ = fs::remove_file(home.0.join("calls"));
        (calls, output)
    };
    assert_eq!(runs(&["lib", "test"], &["--suite=unit"]).0, "- --lib --bins -- --skip chaos_\n- --doc\n");
    assert_eq!(runs(&["bin"], &["--suite=unit", "--suite=cluster"]).0, "- --bins -- --skip chaos_\n");
    let (calls, output) = runs(&["test"], &["--suite=cluster", "--suite=chaos"]);
    assert_eq!(calls, "- --test * -- --skip chaos_\n- --tests -- chaos_\n");
    assert!(output.out.ends_with("SUITE     PASSED   FAILED   IGNORED\ncluster   2        0        2\n"), "{output:?}");
    assert!(output.err.contains("note: no test matches the suite chaos"), "{output:?}");
    let (calls, output) = runs(&["lib"], &[]);
    assert_eq!(calls, "-\n");
    assert!(output.err.contains("scorecard skipped: the project has no program that uses flyball"), "{output:?}");
    assert!(runs(&["bin"], &["--", "a"]).1.err.contains("scorecard skipped: it cannot be combined"));
    assert_eq!(test(&home, GOOD, &["--suite=unit", "--", "a"]).code, Some(2));
}

#[test]
fn scorecard_is_a_suite() {
    let home = Home::new("suitecard");
    let metadata = json!({"workspace_default_members": ["op"], "packages":
        [{"id": "op", "targets": [{"name": "op", "kind": ["bin"]}], "dependencies": [{"name": "flyball"}]}]});
    let built =
        json!({"executable": operator(), "package_id": "op", "target": {"name": "op"}, "profile": {"test": false}});
    let cargo = format!(
        "[ $1 != metadata ] || {{ echo '{metadata}'; exit; }}\n[ \"$*\" != 'test --no-run --message-format=json-render-diagnostics' ] || {{ echo '{built}'; exit; }}; {GOOD}"
    );
    fs::create_dir(home.0.join("samples")).unwrap();
    fs::write(home.0.join("samples/shop.yaml"), SAMPLE).unwrap();
    let output = test(&home, &cargo, &["--junit", "junit.xml"]).ok();
    assert!(output.out.ends_with("cluster     1        0        1\nscorecard   11       0        0\n"), "{output:?}");
    let junit = fs::read_to_string(home.0.join("junit.xml")).unwrap();
    assert!(
        junit.contains("<testcase name=\"the operator converges\" classname=\"scorecard: the operator's program\"/>"),
        "{junit}"
    );
}

#[test]
fn permissions_are_summed_over_all_tests() {
    let home = Home::new("rbac");
    let line = |used: &str, places: &str| {
        format!(
            r#"echo '{{"operator": "site", "granted": ["get pods", "list pods", "watch pods"], "used": [{used}], "denied": [], "places": [{places}]}}' >> "$FLYBALL_TEST_PERMISSIONS""#
        )
    };
    let run = |lines: [String; 2]| test(&home, &format!("{GOOD}\n{}\n{}", lines[0], lines[1]), &["--rbac"]);
    let output = run([line("\"get pods\"", ""), line("\"list pods\"", "")]).ok();
    assert!(output.out.ends_with("permissions of site\n  unused  watch pods\n"), "{output:?}");
    let output = run([line("\"get pods\", \"watch pods\"", ""), line("\"list pods\"", "")]).ok();
    assert!(output.out.ends_with("  all granted permissions are used, none are missing\n"), "{output:?}");
    let output = run([line("", "\"delete pods (controller site)\""), line("", "")]);
    output.fails_with(&["1 permissions missing", "Controller::owns"]);
    assert!(output.out.contains("  missing delete pods (controller site)\n"), "{output:?}");
    assert!(test(&home, GOOD, &["--rbac"]).ok().err.contains("no permissions recorded"));
}

#[test]
fn each_command_has_a_manual_page() {
    let home = Home::new("man");
    assert!(home.run(&["man"]).ok().out.contains(".TH flyball 1"), "it is a manual page");
    home.run(&["man", "--out", "pages"]).ok();
    for page in ["flyball.1", "flyball-image-push.1", "flyball-cluster-node-add.1"] {
        assert!(home.0.join("pages").join(page).exists(), "{page}");
    }
    fs::write(home.0.join("file"), "").unwrap();
    home.run(&["man", "--out", "file"]).fails_with(&["cannot write manual pages to file"]);
}
