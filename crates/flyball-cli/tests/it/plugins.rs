//! External plugins of `init`, `create` and `edit`: small scripts in the plugin directory.

use crate::{CommandOutput, Home};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

impl Home {
    /// Creates a plugin with these responses by command, which records its requests.
    fn plugin(&self, place: &str, answers: &[(&str, Value)]) {
        let program = self.0.join(".config/flyball/plugins").join(place);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        let cases: String = answers
            .iter()
            .map(|(command, answer)| {
                let mut whole = json!({"apiVersion": "v1alpha1", "command": command, "universe": null});
                whole.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
                format!("*'\"command\":\"{command}\"'*) printf '%s' '{whole}';;\n")
            })
            .collect();
        let file = self.0.join("asked.json");
        let script = format!(
            "#!/bin/sh\nread -r asked\nprintf '%s' \"$asked\" > {}\ncase \"$asked\" in\n{cases}esac\n",
            file.display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn last_request(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.0.join("asked.json")).unwrap()).unwrap()
    }

    fn in_project(&self, line: &str) -> CommandOutput {
        let words: Vec<&str> = line.split_whitespace().collect();
        CommandOutput::of(&self.command(&words).current_dir(self.0.join("site-operator")).output().unwrap())
    }
}

const INIT: &str = "init --domain acme.io site-operator --plugins licenses/v1";

fn text(home: &Home, path: &str) -> String {
    fs::read_to_string(home.0.join("site-operator").join(path)).unwrap()
}

#[test]
fn plugins_add_and_change_files() {
    let home = Home::new("plugins");
    let number = json!([{"name": "number", "type": "int", "default": "1", "usage": "How many licenses"}]);
    home.plugin(
        "licenses/v1/licenses.sh",
        &[
            ("init", json!({"universe": {"LICENSES/a.txt": "free\n", "README.md": "mine\n"}})),
            ("create api", json!({"universe": {"src/site.rs": "fn  a(){}\n"}})),
            ("create webhook", json!({"universe": {"LICENSES/b.txt": "free\n"}})),
            ("edit", json!({"universe": {"LICENSES/a.txt": "freer\n"}})),
            ("flags", json!({"flags": number})),
            ("metadata", json!({"metadata": {"Description": "Adds licenses", "Examples": "  flyball edit …"}})),
        ],
    );
    let init: Vec<&str> = INIT.split(' ').chain(["--", "--number", "2"]).collect();
    let output = home.run(&init).ok().out;
    assert!(output.contains("created LICENSES/a.txt\n") && output.contains("created README.md\n"), "{output}");
    assert_eq!(text(&home, "README.md"), "mine\n");
    let request = home.last_request();
    assert_eq!((&request["apiVersion"], &request["command"]), (&json!("v1alpha1"), &json!("init")));
    assert_eq!(request["args"], json!(["--domain", "acme.io", "--name", "site-operator", "--number", "2"]));
    assert_eq!(request["pluginChain"], json!(["licenses/v1"]));
    // It sees the files that are about to be written.
    assert!(request["universe"]["src/lib.rs"].as_str().unwrap().contains("+flyball:operator"), "{request}");

    // A single version need not be specified.
    let output = home.in_project("create api --group web --version v1 --kind Site --plugins licenses").ok().out;
    assert!(
        output.contains("created src/controllers/site.rs\n") && output.contains("created src/site.rs\n"),
        "{output}"
    );
    let request = home.last_request();
    assert_eq!(request["args"], json!(["--group", "web.acme.io", "--version", "v1", "--kind", "Site"]));
    assert_eq!(request["universe"]["LICENSES/a.txt"], "free\n");
    let webhook = "create webhook --group web --version v1 --kind Site --validation --plugins licenses";
    assert!(home.in_project(webhook).ok().out.contains("created LICENSES/b.txt\n"));
    assert_eq!(home.in_project("edit --plugins licenses").ok().out, "changed LICENSES/a.txt\n");
    assert_eq!(home.in_project("edit --plugins licenses").ok().out, "");

    let help = home.in_project("edit --plugins licenses -- --help").ok().out;
    let expected = "licenses/v1: Adds licenses\n\nExamples:\n  flyball edit …\n\n  --number int   How many licenses [default: 1]\n";
    assert_eq!(help, expected);
    for (flags, words) in [
        ("--size=3", "unknown plugin flag --size"),
        ("--number two", "\"two\" is not a valid int for flag --number"),
        ("--number", "flag --number needs a value"),
    ] {
        let output = home.in_project(&format!("edit --plugins licenses -- {flags}"));
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(
            output.err.contains(words) && output.err.contains("flyball edit --plugins licenses -- --help"),
            "{output:?}"
        );
        assert_eq!(home.last_request()["command"], "flags", "it received no edit request");
    }
    assert_eq!(home.in_project("edit").code, Some(2));
    assert_eq!(home.in_project("create webhook --group a --version v1 --kind A -- --size 1").code, Some(2));
}

#[test]
fn plugin_gets_no_secrets_and_a_deadline() {
    let home = Home::new("plugins-secrets");
    home.plugin(
        "licenses/v1/licenses",
        &[("init", json!({})), ("create api", json!({"universe": {"prod.env": "stolen\n"}}))],
    );
    home.run(&INIT.split(' ').collect::<Vec<_>>()).ok();
    let folder = home.0.join("site-operator");
    fs::write(folder.join(".env"), "TOKEN=hush\n").unwrap();
    fs::write(folder.join("prod.env"), "TOKEN=hush\n").unwrap();
    fs::create_dir(folder.join(".kube")).unwrap();
    fs::write(folder.join(".kube/config"), "hush\n").unwrap();
    let create = "create api --group apps --version v1 --kind Site --plugins licenses/v1";
    home.in_project(create)
        .fails_with(&["must not write \"prod.env\": the file may contain secrets", "nothing was written"]);
    assert!(
        !home.last_request().to_string().contains("hush") && home.last_request()["universe"]["src/lib.rs"].is_string()
    );
    assert_eq!(text(&home, "prod.env"), "TOKEN=hush\n");

    let program = home.0.join(".config/flyball/plugins/licenses/v1/licenses");
    fs::write(&program, "#!/bin/sh\nexec sleep 600\n").unwrap();
    let words: Vec<&str> = create.split_whitespace().collect();
    let mut command = home.command(&words);
    command.current_dir(&folder).env("FLYBALL_PLUGIN_TIMEOUT", "1").env("PATH", "/usr/bin:/bin");
    CommandOutput::of(&command.output().unwrap())
        .fails_with(&["plugin licenses/v1 timed out after 1 s", "FLYBALL_PLUGIN_TIMEOUT=SECONDS"]);
}

#[test]
fn failing_plugin_changes_nothing() {
    let home = Home::new("plugins-wrong");
    let init = || home.run(&INIT.split(' ').collect::<Vec<_>>());
    init().fails_with(&["plugin licenses/v1 not found", ".config/flyball/plugins/licenses/v1/licenses"]);
    let place = "licenses/v1/licenses";
    fs::write(home.0.join("outside"), "").unwrap();
    for (path, words) in [
        ("../outside", "the path must be relative"),
        ("/tmp/flyball-outside", "the path must be relative"),
        ("src/../../outside", "the path must be relative"),
        (".git/hooks/pre-commit", "inside .git"),
        ("PROJECT", "flyball itself manages this file"),
    ] {
        home.plugin(place, &[("init", json!({"universe": {"good": "a", path: "b"}}))]);
        init().fails_with(&["plugin licenses/v1 must not write", path, words, "nothing was written"]);
        assert!(!home.0.join("site-operator").exists(), "{path}");
    }
    assert_eq!(fs::read_to_string(home.0.join("outside")).unwrap(), "");
    assert!(!Path::new("/tmp/flyball-outside").exists());
    home.plugin(place, &[("init", json!({"error": true, "errorMsgs": ["no license fits", "choose one"]}))]);
    init().fails_with(&["plugin licenses/v1 failed", "no license fits", "choose one"]);
    home.plugin(place, &[("init", json!({"command": "edit"}))]);
    init().fails_with(&["returned a response to `edit` of v1alpha1, not to `init` of v1alpha1"]);
    home.plugin(place, &[]);
    init().fails_with(&["plugin licenses/v1 returned an invalid response"]);
    fs::write(home.0.join(".config/flyball/plugins").join(place), "#!/bin/sh\nexit 3\n").unwrap();
    init().fails_with(&["plugin licenses/v1 failed with exit status: 3"]);
    home.plugin("licenses/v2/licenses", &[]);
    home.run(&["init", "--domain", "a.io", "new", "--plugins", "licenses"])
        .fails_with(&["several versions: v1, v2", "--plugins licenses/v1"]);
    for name in ["../a", "a/b/c", "A", "", "a/1"] {
        assert_eq!(home.run(&["init", "--domain", "a.io", "new", "--plugins", name]).code, Some(2), "{name}");
    }
    assert!(!home.0.join("site-operator").exists() && !home.0.join("new").exists());
}
