//! `flyball levels`: runs the proofs of the capability levels of an operator.
//!
//! A proof is a test of the project whose name begins with `level_N_`, or a test case of such a name in a project of
//! charts or roles. Levels cannot be claimed without tests.

mod proof;

use crate::error::{Error, Result};
use crate::files::WATCHES;
use crate::operator::program::{Program, missing_project};
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, paint, print_line};
use crate::testing::{Outcome, TestOutput, cargo_test};
use clap::Args;
use proof::Proof;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The levels of <https://sdk.operatorframework.io/docs/overview/operator-capabilities/>, from 1 on.
const LEVELS: [&str; 5] = ["install", "upgrade", "lifecycle", "insights", "autopilot"];

/// Run the tests that prove an operator's capability levels and print the level that it reaches
///
/// A proof is a test of the project whose name begins with `level_N_`, such as `level_1_install_makes_a_cluster`. A
/// level is proven if it has a proof and all of its proofs pass. The level reached is the highest proven level below
/// which all levels are proven. Exits with 0 if that is at least 1 and no proof failed, otherwise with 1.
///
/// With a watches.yaml, proofs are the cases in tests/e2e with such names, see flyball test.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball levels                        the project in this directory
  flyball levels operators/etcd         a project in another directory
  flyball levels --level 3              only proofs of level 3
  flyball levels -o json                as JSON")]
pub(crate) struct LevelsArgs {
    /// Directory of the project, or its Cargo.toml
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Path of the project's Cargo.toml, as in cargo
    #[arg(long, value_name = "PATH", conflicts_with = "path")]
    manifest_path: Option<PathBuf>,
    /// Package, if the workspace has several
    #[arg(short, long)]
    package: Option<String>,
    /// Run only the proofs of this level
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=5))]
    level: Option<u8>,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Results of all proofs.
#[derive(Debug, Serialize)]
struct Report {
    /// The highest level that is proven with all below it, 0 if there is none. Absent if only one level was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<u8>,
    levels: Vec<Level>,
}

/// Results of the proofs of one level.
#[derive(Debug, Serialize)]
struct Level {
    level: u8,
    name: &'static str,
    outcome: ProofState,
    proofs: Vec<Proof>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ProofState {
    Proven,
    Failed,
    Missing,
}

pub(crate) fn cmd_levels(args: &LevelsArgs) -> Result<()> {
    let (proofs, ended_well) = run(args)?;
    if proofs.is_empty() {
        let which = args.level.map_or("level_N_".into(), |level| format!("level_{level}_"));
        let error = Error::new(format!("no proofs found: no test name begins with {which}"));
        let example = match args.path.join(WATCHES).is_file() {
            true => "add a test case for each level, such as the directory tests/e2e/level_1_install",
            false => "write a test for each level, such as level_1_install_makes_a_cluster",
        };
        return Err(error.hint(example));
    }
    let report = Report::of(proofs, args.level);
    match args.output {
        Some(output) => output.print(&report)?,
        None => report.lines().iter().for_each(|line| print_line(line)),
    }
    report.check(ended_well)
}

/// Runs the proofs; returns them, and true if cargo succeeded.
fn run(args: &LevelsArgs) -> Result<(Vec<Proof>, bool)> {
    let given_path = args.manifest_path.as_deref().unwrap_or(&args.path);
    let manifest = if given_path.is_dir() { given_path.join("Cargo.toml") } else { given_path.to_owned() };
    let prefix = args.level.map_or("level_".to_owned(), |level| format!("level_{level}_"));
    if !manifest.is_file() {
        let watches = given_path.join(WATCHES);
        if watches.is_file() {
            let (report, _) =
                super::test::cases(given_path, &Program::Watches(watches), &prefix, TestOutput::Failures, false)?;
            return Ok((proof::find(&report, args.level), true));
        }
        let remedy = "pass the directory of a project: flyball levels PATH";
        return Err(match given_path == Path::new(".") {
            true => missing_project(remedy),
            false => Error::new(format!("no project found at {}", given_path.display())).hint(remedy),
        });
    }
    let mut cargo = cargo_test();
    cargo.arg("--manifest-path").arg(&manifest).arg("--tests");
    cargo.args(args.package.iter().flat_map(|package| ["--package", package])).args(["--", &prefix]);
    let (report, succeeded) = crate::testing::run(cargo, TestOutput::Failures)?;
    let proofs = proof::find(&report, args.level);
    // Without proofs, cargo failed earlier and has printed the reason.
    if proofs.is_empty() && !succeeded {
        return Err(Error::new(format!("cannot run the tests of {}", display_path(&manifest))));
    }
    Ok((proofs, succeeded))
}

fn display_path(manifest: &Path) -> String {
    manifest.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(manifest).display().to_string()
}

impl Report {
    fn of(proofs: Vec<Proof>, only: Option<u8>) -> Self {
        let mut levels: Vec<Level> = (1..).zip(LEVELS).map(|(level, name)| Level::new(level, name, &proofs)).collect();
        let reached = levels.iter().take_while(|level| level.outcome == ProofState::Proven).count();
        levels.retain(|level| only.is_none_or(|only| only == level.level));
        Self { level: only.is_none().then(|| u8::try_from(reached).unwrap_or(u8::MAX)), levels }
    }

    fn lines(&self) -> Vec<String> {
        let heading = ["LEVEL", "NAME", "OUTCOME", "PROOFS"].map(str::to_owned).to_vec();
        let mut lines = columns(std::iter::once(heading).chain(self.levels.iter().map(Level::row)).collect());
        for level in &self.levels {
            lines.push(String::new());
            lines.push(paint(Style::Strong, &format!("Level {}, {}", level.level, level.name)));
            lines.extend(level.proofs.iter().map(|proof| format!("  {:<8}{}", proof.outcome.as_str(), proof.test)));
            if level.proofs.is_empty() {
                lines.push(format!("  missing level_{}_…", level.level));
            }
        }
        lines.push(String::new());
        lines.extend(self.level.map(|level| paint(Style::Strong, &format!("Level reached: {level}"))));
        lines
    }

    /// Fails unless the requested levels are proven.
    fn check(&self, ended_well: bool) -> Result<()> {
        let all = || self.levels.iter().flat_map(|level| &level.proofs);
        let failed = all().filter(|proof| proof.outcome == Outcome::Failed).count();
        if failed > 0 {
            return Err(Error::new(format!("{failed} of {} proofs failed", all().count())));
        }
        if !ended_well {
            return Err(Error::new("cargo test failed although no proof did; see its output above"));
        }
        match (self.level, &self.levels[..]) {
            (Some(0), _) => Err(Error::new("level 1 is not proven")),
            (None, [only]) if only.outcome != ProofState::Proven => {
                Err(Error::new(format!("level {} is not proven", only.level)))
            }
            _ => Ok(()),
        }
    }
}

impl Level {
    fn new(level: u8, name: &'static str, proofs: &[Proof]) -> Self {
        let proofs: Vec<Proof> = proofs.iter().filter(|proof| proof.level == level).cloned().collect();
        let outcome = match () {
            () if proofs.iter().any(|proof| proof.outcome == Outcome::Failed) => ProofState::Failed,
            // A proof that was not run does not count.
            () if proofs.is_empty() || proofs.iter().any(|proof| proof.outcome == Outcome::Ignored) => {
                ProofState::Missing
            }
            () => ProofState::Proven,
        };
        Self { level, name, outcome, proofs }
    }

    fn row(&self) -> Vec<String> {
        let outcome = match self.outcome {
            ProofState::Proven => "proven",
            ProofState::Failed => "failed",
            ProofState::Missing => "missing",
        };
        let passed = self.proofs.iter().filter(|proof| proof.outcome == Outcome::Passed).count();
        vec![self.level.to_string(), self.name.into(), outcome.into(), format!("{passed}/{}", self.proofs.len())]
    }
}
