//! Output at a terminal and without one. The terminal is that of `script`, which is part of util-linux.
#![cfg(target_os = "linux")]

use crate::run::{SAMPLE, operator};
use crate::{CommandOutput, Home};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

impl Home {
    /// Creates a command whose three streams are a terminal of 80 columns.
    fn at_terminal(&self, line: &str) -> Command {
        let line = format!("stty cols 80; exec {} {line}", env!("CARGO_BIN_EXE_flyball"));
        let mut command = Command::new("/usr/bin/script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        command
            .env_clear()
            .env("HOME", &self.0)
            .env("TMPDIR", &self.0)
            .env("PATH", "/usr/bin:/bin")
            .env("TERM", "xterm");
        command.current_dir(&self.0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command at a terminal at which this is typed.
    fn type_to(&self, line: &str, keys: &str) -> CommandOutput {
        answered(self.at_terminal(line), keys)
    }
}

fn answered(mut command: Command, keys: &str) -> CommandOutput {
    let mut child = command.spawn().expect("script, which is part of util-linux");
    child.stdin.take().unwrap().write_all(keys.as_bytes()).unwrap();
    let mut output = CommandOutput::of(&child.wait_with_output().unwrap());
    output.out = output.out.replace("\r\n", "\n");
    output
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let home = Home::new("full");
    for line in ["cluster list", "completion bash", "man"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let output = CommandOutput::of(&home.command(&words).stdout(full).output().unwrap());
        output.fails_with(&["error: cannot write to standard output: No space left on device\n"]);
    }
}

#[test]
fn missing_arguments_are_prompted() {
    let home = Home::new("ask");
    home.run(&["init", "--domain", "acme.io", "--name", "redis-operator"]).ok();
    assert_eq!(home.run(&["create", "api"]).code, Some(2));
    // The version is the proposed default; the first kind is invalid.
    let output = home.type_to("create api", "cache\n\nredis\nRedis\nperhaps\ny\nn\n").ok().out;
    for words in [
        "group: ",
        "version [v1alpha1]: ",
        "a kind begins with a capital",
        "generate types? [Y/n]: ",
        "answer y or n",
        "generate a controller? [Y/n]: ",
        "\u{1b}[32mcreated\u{1b}[0m src/api/redis_v1alpha1.rs\n",
    ] {
        assert!(output.contains(words), "{words} in {output}");
    }
    assert!(home.0.join("src/api/redis_v1alpha1.rs").exists() && !home.0.join("src/controllers/redis.rs").exists());
    // A second version has no controller of its own, so there is no prompt for it.
    let output = home.type_to("create api --group cache --kind Redis", "v1\n").ok().out;
    assert!(!output.contains("controller?") && output.contains("src/api/redis_v1.rs\n"), "{output}");
    // A closed terminal does not confirm.
    let output = home.type_to("create api --group cache --version v1", "\u{4}");
    assert!(output.code == Some(1) && output.out.contains("the terminal was closed"), "{output:?}");
}

#[test]
fn new_project_is_prompted_for_at_a_terminal() {
    let home = Home::new("ask-init");
    // Without one, the missing flag is an error, and nothing is written.
    let output = home.run(&["init", "shop"]);
    assert!(output.code == Some(2) && output.err.contains("in Rust: --domain <DOMAIN>"), "{output:?}");
    assert!(!home.0.join("shop").exists());
    // Enter accepts the defaults; the first type is unknown.
    let output = home.type_to("init shop", "go\nHelm\nacme.io\n\n").ok().out;
    for words in [
        "type (rust, helm, ansible) [rust]: ",
        "expected one of rust, helm, ansible",
        "domain of the API groups [example.com]: ",
        "name [shop]: ",
        "Created project shop. Next, in shop:",
    ] {
        assert!(output.contains(words), "{words} in {output}");
    }
    let project = fs::read_to_string(home.0.join("shop/PROJECT")).unwrap();
    assert!(project.contains("domain: acme.io") && project.contains("projectName: shop"), "{project}");
    assert!(home.0.join("shop/watches.yaml").exists());
    let output = home.type_to("init site --name site-operator", "\n\n").ok().out;
    assert!(!output.contains("name ["), "{output}");
    let manifest = fs::read_to_string(home.0.join("site/Cargo.toml")).unwrap();
    assert!(manifest.contains("name = \"site-operator\""), "{manifest}");
    // With a domain, or a redirected output, there is no prompt.
    let output = home.type_to("init --domain acme.io other", "").ok().out;
    assert!(!output.contains("type ("), "{output}");
    let output = home.type_to("init last >list", "");
    assert!(output.code == Some(2) && output.out.contains("--domain <DOMAIN>"), "{output:?}");
}

#[test]
fn removal_is_confirmed() {
    let home = Home::new("ask-undeploy");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let program = operator();
    // There is no node, so the pod does not start.
    let output = home.type_to(&format!("deploy --program {program} --image a --timeout 1ms"), "");
    let awaited = "Deployment myapp-operator-system/myapp-operator-controller-manager: waiting for its pods";
    assert!(output.code == Some(1) && output.out.contains(awaited), "{output:?}");
    let undeploy = |keys: &str| home.type_to(&format!("undeploy --program {program}"), keys);
    for no in ["n\n", "\n", "\u{4}", "yes please\n"] {
        let output = undeploy(no);
        assert!(output.code == Some(1) && output.out.contains("Remove all of this? [y/N]"), "{output:?}");
        assert!(output.out.contains("nothing was removed"), "{output:?}");
    }
    home.run(&["get", "crd", "myapps.apps.flyball.dev"]).ok();
    home.run(&["undeploy", "--program", &program]).fails_with(&["nothing was removed", "--yes"]);
    let output = undeploy("y\n").ok().out;
    assert!(output.contains("ClusterRole myapp-operator-manager-role \u{1b}[32mdeleted\u{1b}[0m\n"), "{output}");
    assert!(output.contains("Namespace myapp-operator-system: waiting for its deletion"), "{output}");
    home.run(&["get", "crd", "myapps.apps.flyball.dev"]).fails_with(&["not found"]);
}

#[test]
fn colors_are_for_terminals_that_support_them() {
    let home = Home::new("colors");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let line = format!("install --program {}", operator());
    let plain = "CustomResourceDefinition myapps.apps.flyball.dev created (dry run)\n";
    let dry = format!("{line} --dry-run");
    let output = home.type_to(&dry, "").ok().out;
    assert!(output.contains("myapps.apps.flyball.dev \u{1b}[32mcreated\u{1b}[0m (dry run)\n"), "{output:?}");
    for (name, value, colored) in [("NO_COLOR", "1", false), ("TERM", "dumb", false), ("NO_COLOR", "", true)] {
        let mut command = home.at_terminal(&dry);
        command.env(name, value);
        let output = answered(command, "").ok().out;
        assert_eq!(!colored, output.ends_with(plain) && !output.contains('\u{1b}'), "{name}={value} {output:?}");
        let mut command = home.at_terminal("get podz");
        command.env(name, value);
        assert_eq!(colored, answered(command, "").out.contains('\u{1b}'), "{name}={value}");
    }
    assert_eq!(home.run(&dry.split(' ').collect::<Vec<_>>()).ok().out, plain);
}

/// The CRDs of OLM.
const OLM_CRDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../flyball-lifecycle/src/api/crds");

#[test]
fn text_of_others_is_a_part_of_a_line_at_terminals_and_in_pipes() {
    let hostile = "x\u{1b}[35mready\u{1b}[0m\nnode/n is ready\r\u{9b}1m\u{202e}\u{200f}\u{61c}";
    let home = Home::new("hostile-text");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let apply = |object: Value| {
        fs::write(home.0.join("object.json"), object.to_string()).unwrap();
        home.run(&["apply", "-f", "object.json"]).ok();
    };
    for kind in ["subscriptions", "catalogsources", "clusterserviceversions", "installplans", "operatorgroups"] {
        home.run(&["apply", "-f", &format!("{OLM_CRDS}/{kind}.json")]).ok();
    }
    home.run(&["apply", "-f", &format!("{OLM_CRDS}/operatorconditions.json")]).ok();
    let name = |name: &str| json!({"name": name, "namespace": "default"});
    apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": name("a")}));
    let map: Value = serde_json::from_str(&home.run(&["get", "configmap", "a", "-o", "json"]).ok().out).unwrap();
    let involved = json!({"kind": "ConfigMap", "name": "a", "namespace": "default", "uid": map["metadata"]["uid"]});
    let time = "2026-01-01T00:00:00Z";
    apply(json!({
        "apiVersion": "v1", "kind": "Event", "metadata": name("a.1"), "involvedObject": involved, "type": "Warning",
        "reason": hostile, "message": hostile, "source": {"component": hostile}, "firstTimestamp": time,
        "lastTimestamp": time,
    }));
    let mut subscription = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
        "metadata": name("memo"), "spec": {"name": hostile, "channel": hostile, "source": hostile,
        "sourceNamespace": "default"}});
    subscription["metadata"]["annotations"] = json!({"olm.flyball.dev/versions": hostile});
    apply(subscription);
    for line in ["why configmap/a", "why configmap/a --not", "why configmap/a --timeline", "olm why memo", "olm status"]
    {
        let words: Vec<&str> = line.split(' ').collect();
        for output in [home.run(&words).out, home.type_to(line, "").out] {
            let foreign = ["\u{1b}[35m", "\nnode/n", "\u{9b}", "\u{202e}", "\u{200f}", "\u{61c}"];
            assert!(!foreign.iter().any(|text| output.contains(text)), "{line}: {output:?}");
            assert!(output.contains("x^[[35mready^[[0m^Jnode/n is ready^M<9b>1m<202e>"), "{line}: {output:?}");
        }
    }
}

#[test]
fn status_line_shows_the_state_of_the_operator() {
    let home = Home::new("status-line");
    fs::create_dir(home.0.join("samples")).unwrap();
    fs::write(home.0.join("samples/shop.yaml"), SAMPLE).unwrap();
    let line = format!("dev --program {}", operator());
    // Ctrl-C is a key of the terminal; it is pressed when the first object is done.
    let script = |no_color: &str| {
        let mut command = home.at_terminal(&line);
        command.env("NO_COLOR", no_color);
        let mut child = command.spawn().expect("script, which is part of util-linux");
        let mut keys = child.stdin.take().unwrap();
        let words = if no_color.is_empty() { "objects · " } else { "reconciled outcome=Success" };
        let mut output = until(child.stdout.as_mut().unwrap(), words);
        keys.write_all(b"\x03").unwrap();
        let rest = CommandOutput::of(&child.wait_with_output().unwrap());
        assert_eq!(rest.code, Some(0), "{output}{rest:?}");
        output += &rest.out;
        output
    };
    let lively = script("");
    assert!(lively.contains("\r\u{1b}[K\u{1b}[2m"), "{lively:?}");
    let plain = script("1");
    assert!(!plain.contains('\u{1b}') && !plain.contains("objects · "), "{plain:?}");
}

/// Reads until this text appears.
fn until(from: &mut impl std::io::Read, words: &str) -> String {
    let (mut output, mut more) = (Vec::new(), [0; 1024]);
    loop {
        let count = from.read(&mut more).unwrap();
        output.extend_from_slice(&more[..count]);
        let text = String::from_utf8_lossy(&output);
        assert!(count > 0, "no {words} in {text}");
        if text.contains(words) {
            return text.into_owned();
        }
    }
}
