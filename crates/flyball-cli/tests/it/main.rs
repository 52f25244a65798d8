//! End-to-end tests of the program, in a separate home directory, without other tools.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod architecture;
mod bench;
mod bundles;
mod catalogs;
mod chaos;
mod charts;
mod cluster;
mod console;
mod data_dir;
mod demo;
mod deploy;
mod dev;
mod explore;
mod helm;
mod image;
mod levels;
mod manifests;
mod meter;
mod nodes;
mod objects;
mod olm;
mod olm_absence;
mod olm_definitions;
mod olm_users;
mod operators;
mod plugins;
mod projects;
mod provenance;
mod proxy;
mod public_charts;
mod registry;
mod replay;
mod run;
mod samples;
mod scaffold;
mod scorecard;
mod terminal;
mod testing;
mod watches;
mod web_server;
mod why;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// A temporary home directory, and its cluster, if any.
struct Home(PathBuf);

impl Home {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("flyball-test-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flyball"));
        command.args(args).env_clear().env("HOME", &self.0).env("TMPDIR", &self.0).current_dir(&self.0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::of(&self.command(args).output().unwrap())
    }

    fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.command(&["cluster", "down"]).output();
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The result of a run.
#[derive(Debug)]
struct CommandOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

impl CommandOutput {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    #[track_caller]
    fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    #[track_caller]
    fn usage(&self) {
        assert_eq!(self.code, Some(2), "{self:?}");
    }

    #[track_caller]
    fn usage_with(&self, words: &[&str]) {
        self.usage();
        assert!(words.iter().all(|word| self.err.contains(word)), "{self:?}");
    }

    #[track_caller]
    fn fails_with(&self, words: &[&str]) {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert!(words.iter().all(|word| self.err.contains(word)), "{self:?}");
    }
}

#[test]
fn usage_errors_exit_with_2() {
    let home = Home::new("usage");
    assert_eq!(home.run(&["cluster", "sideways"]).code, Some(2));
    assert_eq!(home.run(&["demo", "--context", "a"]).code, Some(2));
    let name = home.run(&["cluster", "up", "--name", "Not A Name"]);
    assert_eq!(name.code, Some(2));
    assert!(name.err.contains("lower case alphanumeric"), "{name:?}");
}
