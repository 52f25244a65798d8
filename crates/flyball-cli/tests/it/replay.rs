//! `flyball cluster up --record` and `flyball replay`: the past of a control plane.

use crate::{CommandOutput, Home};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Child;

/// A running `flyball replay`, which is stopped when this is dropped.
struct Replay(Child);

impl Replay {
    /// Waits until it serves; returns what it printed.
    fn start(home: &Home, args: &[&str]) -> (Self, Value) {
        let mut child = home.spawn(&[&["replay"], args, &["-o", "json"]].concat());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut text = String::new();
        while let Some(line) = lines.next().transpose().unwrap() {
            text += &line;
            if line == "}" {
                break;
            }
        }
        let replay = Self(child);
        let printed = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        (replay, printed)
    }

    fn stop(mut self) -> Option<i32> {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn json(output: CommandOutput) -> Value {
    serde_json::from_str(&output.ok().out).unwrap()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Applies a ConfigMap; returns it.
fn apply(home: &Home, context: &[&str], value: &str) -> Value {
    let map = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, data: {{value: {value}}}}}");
    fs::write(home.0.join("map.yaml"), map).unwrap();
    home.run(&[&["apply", "-f", "map.yaml"], context].concat()).ok();
    get(home, context)
}

fn get(home: &Home, context: &[&str]) -> Value {
    json(home.run(&[&["get", "configmap", "a", "-o", "json"], context].concat()))
}

#[test]
fn control_plane_is_replayed_from_a_recorded_revision() {
    let home = Home::new("replay");
    let up = home.run(&["cluster", "up", "--record", "past", "--record-limit", "64Mi"]).ok();
    let file = home.0.join("past").display().to_string();
    assert!(up.out.contains(&format!("record   {file}\n")), "{up:?}");
    let status = json(home.run(&["cluster", "status", "-o", "json"]));
    assert_eq!(status["recording"], file);
    home.run(&["cluster", "up", "--record", "other"]).fails_with(&["already running"]);
    home.run(&["cluster", "up", "--name", "second", "--record", "past"])
        .fails_with(&["past exists already", "the name of a new file"]);
    let [_, middle, last] = ["first", "second", "third"].map(|value| apply(&home, &[], value));
    assert_eq!((&middle["data"]["value"], version(&middle) < version(&last)), (&"second".into(), true));
    home.run(&["cluster", "down"]).ok();

    let revision = version(&middle).to_string();
    let (replay, printed) = Replay::start(&home, &["past", "--at", &revision]);
    assert_eq!((&printed["name"], &printed["replayed"]["revision"]), (&"replay".into(), &revision.clone().into()));
    let status = json(home.run(&["cluster", "status", "--name", "replay", "-o", "json"]));
    assert_eq!((&status["url"], &status["ready"]), (&printed["url"], &true.into()));
    let context = ["--context", "replay"];
    assert_eq!(get(&home, &context), middle, "the value and the resource version of that moment");
    let next = apply(&home, &context, "fourth");
    assert!(version(&next) > version(&middle) && next["data"]["value"] == "fourth", "{next}");
    home.run(&["replay", "past", "--at", &revision]).fails_with(&["cluster replay is already running at https://"]);
    assert_eq!(replay.stop(), Some(0));
    assert!(!fs::read_to_string(home.0.join(".kube/config")).unwrap().contains("replay"));

    // The recording is as before, and a command sees the state as well.
    let program = env!("CARGO_BIN_EXE_flyball");
    let command = ["replay", "past", "--at", &revision, "--no-kubeconfig", "--", program, "get", "configmap", "a"];
    assert_eq!(json(home.run(&[&command[..], &["-o", "json"]].concat())), middle);
    let failing = home.run(&[&command[..8], &["get", "configmap", "none"]].concat());
    assert_eq!(failing.code, Some(1), "{failing:?}");
    assert!(!home.0.join(".local/state/flyball/replay.json").exists());
}

#[test]
fn recorded_writes_are_listed() {
    let home = Home::new("recorded");
    home.run(&["cluster", "up", "--quiet", "--record", "past"]).ok();
    let [first, second] = ["first", "second"].map(|value| version(&apply(&home, &[], value)));
    home.run(&["delete", "configmap", "a"]).ok();
    home.run(&["cluster", "down", "--quiet"]).ok();
    let list = home.run(&["replay", "past", "--object", "configmap/a", "-n", "default"]).ok();
    let rows: Vec<Vec<&str>> = list.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["REVISION", "TIME", "VERB", "NAMESPACE", "OBJECT", "USER", "MANAGER"]);
    let shown: Vec<[&str; 3]> = rows[1..].iter().map(|row| [row[2], row[4], row[5]]).collect();
    let expected = ["patch", "patch", "delete"].map(|verb| [verb, "configmaps/a", "kubernetes-admin"]);
    assert_eq!(shown, expected, "{}", list.out);
    assert_eq!([rows[1][0], rows[2][0]], [first.to_string(), second.to_string()]);
    assert!(list.err.contains("3 of ") && list.err.contains("it ends with the cluster"), "{list:?}");
    for name in ["cm/a", "CM/a", "ConfigMap/a"] {
        let same = home.run(&["replay", "past", "--object", name, "-n", "default"]).ok();
        assert_eq!(same.out, list.out, "{name}");
    }
    home.run(&["replay", "past", "--object", "cn/a"]).fails_with(&["no write of a resource \"cn\"", "configmaps"]);
    // A known kind without writes is no mistake.
    for name in ["sts", "cronjob", "cronjob/a"] {
        let none = home.run(&["replay", "past", "--object", name]).ok();
        assert!(none.out.lines().count() == 1 && none.err.contains("0 of "), "{name}: {none:?}");
    }

    let page =
        json(home.run(&["replay", "past", "-o", "json", "--user", "kubernetes-admin", "--object", "configmaps"]));
    let last = page["writes"].as_array().unwrap().last().unwrap();
    assert_eq!((&page["end"], &last["removed"], &last["verb"]), (&"closed".into(), &true.into(), &"delete".into()));
    let agent = concat!("flyball/", env!("CARGO_PKG_VERSION"));
    assert_eq!((&last["manager"], &last["agent"]), (&"flyball".into(), &agent.into()), "{last}");
    assert_eq!(json(home.run(&["replay", "past", "-o", "json", "--user", "nobody"]))["writes"], serde_json::json!([]));
    home.run(&["replay", "past", "--object", "widgets/a"]).fails_with(&["no write of a resource", "configmaps"]);
    home.run(&["replay", "past", "--at", "1"]).fails_with(&["revision 1 is not recorded", "flyball replay FILE"]);
    home.run(&["replay", "past", "--at", "1", "--user", "a"]).usage();
    home.run(&["replay", "past", "--", "true"]).usage();
}

#[test]
fn invalid_recordings_are_rejected() {
    let home = Home::new("invalid");
    fs::write(home.0.join("text"), "hello\n").unwrap();
    home.run(&["replay", "none"]).fails_with(&["cannot read none"]);
    home.run(&["replay", "text"]).fails_with(&["text is not a recording", "flyball cluster up --record FILE"]);
    home.run(&["replay", "."]).fails_with(&["is not a recording"]);
    home.run(&["cluster", "up", "--quiet", "--record", "past"]).ok();
    home.run(&["cluster", "down", "--quiet"]).ok();
    let mut bytes = fs::read(home.0.join("past")).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(home.0.join("past"), &bytes).unwrap();
    home.run(&["replay", "past"]).fails_with(&["past is damaged at byte", "a smaller --at"]);
    let tiny = home.run(&["cluster", "up", "--record", "new", "--record-limit", "1"]);
    assert!(tiny.code == Some(2) && tiny.err.contains("expected a size of at least 1Mi"), "{tiny:?}");
    home.run(&["cluster", "up", "--record", "missing/new"]).fails_with(&["cannot create", "--record file in a dir"]);
}

#[test]
fn recording_ends_at_its_limit_and_the_cluster_continues() {
    let home = Home::new("limit");
    home.run(&["cluster", "up", "--quiet", "--record", "past", "--record-limit", "1Mi"]).ok();
    let first = apply(&home, &[], "small");
    for letter in ["a", "b"] {
        apply(&home, &[], &letter.repeat(900_000));
    }
    let last = apply(&home, &[], "afterwards");
    assert_eq!(last["data"]["value"], "afterwards");
    // The recording is complete when the cluster has stopped.
    home.run(&["cluster", "down"]).ok();
    let log = fs::read_to_string(home.0.join(".local/state/flyball/flyball.log")).unwrap();
    assert!(log.contains("the recording has reached its limit and ends; the cluster continues"), "{log}");
    assert!(fs::metadata(home.0.join("past")).unwrap().len() <= 1 << 20);
    let list = home.run(&["replay", "past", "--object", "configmaps/a"]).ok();
    assert!(list.err.contains("it ends at its limit, before the cluster"), "{list:?}");
    assert!(list.out.contains(&format!("\n{} ", version(&first))), "{list:?}");
    home.run(&["replay", "past", "--at", &version(&last).to_string()]).fails_with(&["is not recorded"]);
}
