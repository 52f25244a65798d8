//! `flyball levels`.

use crate::{CommandOutput, Home};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// The tests of a project without dependencies, which takes a second to build.
const PROOFS: &str = r#"
#[test]
fn level_1_install() {}
mod more {
    #[test]
    fn level_2_upgrade_from_the_last_release() {}
    #[test]
    fn level_2_upgrade_from_the_one_before() { assert!(std::env::var_os("BROKEN").is_none(), "it does not come up") }
}
#[test]
#[ignore]
fn level_3_backup() {}
#[test]
fn level_4_tells() {}
"#;

fn project(home: &Home) {
    fs::create_dir_all(home.0.join("project/src")).unwrap();
    let manifest = "[package]\nname = \"project\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(home.0.join("project/Cargo.toml"), manifest).unwrap();
    fs::write(home.0.join("project/src/lib.rs"), PROOFS).unwrap();
}

/// Creates a command that finds the Rust toolchain of this test.
fn levels(home: &Home, args: &[&str]) -> Command {
    let mut command = home.command(&[&["levels"], args].concat());
    for name in ["PATH", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "CARGO_HOME", "CARGO"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    // The test's home has no toolchain, so the original location is used.
    let home = std::env::var_os("HOME").unwrap_or_default();
    for (name, folder) in [("RUSTUP_HOME", ".rustup"), ("CARGO_HOME", ".cargo")] {
        if std::env::var_os(name).is_none() {
            command.env(name, std::path::Path::new(&home).join(folder));
        }
    }
    command
}

fn run(mut command: Command) -> CommandOutput {
    CommandOutput::of(&command.output().unwrap())
}

#[test]
fn level_is_reached_by_passing_proofs() {
    let home = Home::new("levels");
    project(&home);
    let table = run(levels(&home, &["project"])).ok().out;
    for line in
        ["2       upgrade     proven    2/2", "3       lifecycle   missing   0/1", "5       autopilot   missing   0/0"]
    {
        assert!(table.contains(line), "no {line:?} in\n{table}");
    }
    // Level 4 has a proof, but a level below it has none.
    assert!(table.ends_with("Level reached: 2\n"), "{table}");
    assert!(table.contains("passed  more::level_2_upgrade_from_the_last_release\n"), "{table}");

    let report = run(levels(&home, &["--manifest-path", "project/Cargo.toml", "-o", "json"])).ok().out;
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["level"], &report["levels"][3]["outcome"]), (&json!(2), &json!("proven")));
    assert_eq!(report["levels"][2]["proofs"], json!([{"test": "level_3_backup", "outcome": "ignored"}]));

    let one = run(levels(&home, &["project", "--level", "4", "-o", "json"])).ok().out;
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!((one.get("level"), one["levels"].as_array().unwrap().len()), (None, 1));

    let mut broken = levels(&home, &["project"]);
    broken.env("BROKEN", "1");
    let broken = run(broken);
    broken.fails_with(&["it does not come up", "error: 1 of 5 proofs failed"]);
    assert!(broken.out.contains("failed    1/2") && broken.out.ends_with("Level reached: 1\n"), "{broken:?}");
}

#[test]
fn missing_level_is_explained() {
    let home = Home::new("nolevels");
    run(levels(&home, &[]))
        .fails_with(&["no project here: no Cargo.toml or watches.yaml found in ", "flyball levels PATH"]);
    project(&home);
    run(levels(&home, &["project", "--package", "other"])).fails_with(&["cannot run the tests of project"]);
    run(levels(&home, &["project", "--level", "5"])).fails_with(&["no test name begins with level_5_"]);
    let mut without_cargo = levels(&home, &["project"]);
    without_cargo.env("CARGO", "/nowhere/cargo");
    run(without_cargo).fails_with(&["cannot start cargo", "install Rust"]);
    assert_eq!(run(levels(&home, &["--level", "6"])).code, Some(2));
}
