//! Compares lint results of the charts in `tests/lint.json` with recordings of `helm lint` of Helm 3.19 and Helm 4.1.
//!
//! Helm 3.21 has the same rules as Helm 3.19. There is no recording of Helm 3 where their libraries differ.

use crate::cases::{tests, texts};
use flyball_chart::{HelmVersion, LintArgs, Seed, lint};
use flyball_core::Clock;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory with the files of a case, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn of(name: &str, files: &Value) -> Self {
        let folder = std::env::temp_dir().join(format!("flyball-lint-{}-{name}", std::process::id()));
        for (path, text) in files.as_object().unwrap() {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.as_str().unwrap()).unwrap();
        }
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The output of Helm, or of this implementation.
#[derive(Debug, PartialEq)]
struct Answer {
    failed: bool,
    stdout: String,
    /// The sorted log, without source locations of Helm.
    stderr: Vec<String>,
}

impl Answer {
    fn of(failed: bool, stdout: String, stderr: &str) -> Self {
        let text = |line: &str| match line.split_once(": ") {
            Some((place, text)) if place.contains(".go:") => text.to_owned(),
            _ => line.to_owned(),
        };
        let mut stderr: Vec<String> = stderr.lines().map(text).collect();
        stderr.sort();
        Self { failed, stdout, stderr }
    }

    fn recorded(answer: &Value) -> Self {
        let stdout = match &answer["stdout"] {
            Value::Array(_) => texts(&answer["stdout"]).join("\n"),
            text => text.as_str().unwrap().to_owned(),
        };
        Self::of(answer["exit"] != 0, stdout, answer["stderr"].as_str().unwrap())
    }
}

fn play(args: &Value, folder: &Path, helm: HelmVersion) -> Answer {
    let linted = LintArgs::parse(&texts(args)).and_then(|mut args| {
        args.helm_version = helm;
        args.helm_rules_only = true;
        let clock = Clock::new(|| "2026-01-02T03:04:05Z".parse().unwrap());
        lint(&args, folder, &clock, &Seed::default(), &mut |_| Vec::new()).map(|report| (args, report))
    });
    let place = folder.display().to_string();
    match linted {
        Ok((args, report)) => {
            let mut stderr = report.warnings.join("\n");
            if report.failed > 0 {
                stderr.push_str(&format!("\nError: {}", report.summary()));
            }
            Answer::of(report.failed > 0, report.text(&args).replace(&place, "$DIR"), stderr.trim_start())
        }
        Err(message) => Answer::of(true, String::new(), &format!("Error: {message}")),
    }
}

#[test]
fn charts_are_linted_as_with_helm() {
    let table: Value = serde_json::from_slice(&fs::read(tests().join("lint.json")).unwrap()).unwrap();
    let mut differ = Vec::new();
    for case in table["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let files = case["files"].as_str().map_or(&case["files"], |name| &table["charts"][name]);
        let folder = Folder::of(name, files);
        let of_3 = Some(&case["helm3"]).filter(|answer| !answer.is_null());
        let of_4 = case.get("helm4").or(of_3);
        for (helm, answer) in [(HelmVersion::V3, of_3), (HelmVersion::V4, of_4)] {
            let Some(answer) = answer else { continue };
            let (expected, actual) = (Answer::recorded(answer), play(&case["args"], &folder.0, helm));
            if expected != actual {
                println!("--- {name}: Helm {helm} says\n{expected:#?}\n--- we say\n{actual:#?}");
                differ.push(format!("{name} ({helm})"));
            }
        }
    }
    assert!(differ.is_empty(), "Helm says something else: {differ:?}");
}
