//! `flyball demo`.

use crate::{CommandOutput, Home};
use std::fs;
use std::io::{BufRead, BufReader};

#[test]
fn demo_completes() {
    let home = Home::new("demo");
    let output = home.run(&["demo"]).ok();
    let at = |text: &str| output.out.find(text).unwrap_or_else(|| panic!("{text:?} is missing from {}", output.out));
    let row = |phase: &str, current: u8, desired: u8, message: &str| {
        let expected = ["vg-1", phase, &current.to_string(), &desired.to_string(), "1", "1", "vm-operator-template"];
        let found = output.out.lines().position(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.starts_with(&expected) && line.ends_with(message)
        });
        found.unwrap_or_else(|| panic!("no row {expected:?} in {}", output.out))
    };
    let good = "successfully reconciled VmGroup";
    let heading = "NAME PHASE CURRENT DESIRED CPU MEMORY TEMPLATE LAST_MESSAGE";
    assert!(output.out.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == heading));
    let rows = [row("RUNNING", 3, 3, good), row("RUNNING", 5, 5, good), row("RUNNING", 2, 2, good)];
    assert!(rows.is_sorted(), "{}", output.out);
    row("PENDING", 1, 2, "powering on 1 virtual machine");
    let story = [
        "three machines are running",
        "5 machines are running",
        "2 machines are running",
        "behind the operator's back",
        "it is powered on again",
        "spec.cpu in body should be less than or equal to 4",
        "0 machines left",
        "folder default-vg-1 deleted",
        "finalizer removed, vg-1 deleted",
    ];
    assert!(story.map(at).is_sorted(), "{}", output.out);
    assert!(!output.out.contains('\x1b'), "no colors into a pipe");
    assert_eq!(output.err, "");
}

#[test]
fn other_operators_have_demos() {
    let stories: [(&str, &[&str]); 2] = [
        ("demovolume", &["demovolumes.demo.flyball.dev", "the claim is bound", "a new claim is bound"]),
        (
            "visitors",
            &[
                "visitorsapps.example.com",
                "a MySQL database, then a backend, then a frontend",
                "all three are ready",
                "the frontend rolled out",
                "three backends are available",
            ],
        ),
    ];
    for (play, story) in stories {
        let output = Home::new(play).run(&["demo", play]).ok();
        let at =
            |text: &&str| output.out.find(*text).unwrap_or_else(|| panic!("{text:?} is missing from {}", output.out));
        assert!(story.iter().map(at).is_sorted(), "{}", output.out);
    }
    let home = Home::new("plays");
    assert_eq!(home.run(&["demo", "hamlet"]).code, Some(2));
}

#[test]
fn kept_demo_runs_until_interrupted() {
    let home = Home::new("keep");
    let mut child = home.spawn(&["demo", "--keep"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("Running until Ctrl-C")));
    let hint = lines.find(|line| line.contains("apply -f")).unwrap();
    let sample = hint.rsplit(' ').next().unwrap();
    assert!(fs::read_to_string(sample).unwrap().contains("kind: VmGroup"));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!fs::exists(sample).unwrap(), "nothing stays behind");
}

#[test]
fn failed_demo_step_is_explained() {
    let home = Home::new("nonodes");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let demo = || home.run(&["demo", "visitors", "--kubeconfig", ".kube/config"]);
    let output = demo();
    output.fails_with(&["error: the cluster has no nodes", "hint: ", "flyball cluster node add"]);
    assert!(!output.out.contains("installed") && !output.out.contains("cleaning up"), "nothing is started: {output:?}");

    // None of the demo's pods may run there.
    home.run(&["cluster", "node", "add", "--taint", "gpu=yes:NoSchedule"]).ok();
    let output = demo();
    output.fails_with(&[
        "error: step \"all three are ready\" was not reached within 30 s; last seen:\n  kind: VisitorsApp\n",
        "name: site\n",
        "namespace: flyball-demo\n",
        "conditions:\n",
        "type: Ready\n",
    ]);
    assert!(
        output.err.len() < 1500 && !output.err.contains("managedFields") && !output.err.contains("Some("),
        "{output:?}"
    );
    let remaining = home.run(&["get", "namespaces,crds", "-o=name"]).ok().out;
    assert!(!remaining.contains("flyball-demo") && !remaining.contains("visitorsapps"), "{remaining}");
}

#[test]
fn unusable_kubeconfig_is_named() {
    let home = Home::new("unusable");
    home.run(&["demo", "--kubeconfig", "nowhere"]).fails_with(&["nowhere"]);
    fs::write(home.0.join("broken"), "}{").unwrap();
    home.run(&["demo", "--kubeconfig", "broken"]).fails_with(&["broken"]);
    // Nobody listens on port 1.
    let dead = "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], \
                users: [{name: a, user: {}}], contexts: [{name: a, context: {cluster: a, user: a}}]}";
    fs::write(home.0.join("dead"), dead).unwrap();
    let output: CommandOutput = home.run(&["demo", "--kubeconfig", "dead"]);
    output.fails_with(&["the cluster did not respond: cannot connect to http://127.0.0.1:1/: "]);
    home.run(&["demo", "--kubeconfig", "dead", "--context", "b"]).fails_with(&["b"]);
}
