//! `flyball test`: the tests of a project, told in forms that programs read, and what its operators were permitted.

use crate::error::{Error, Result, ResultExt};
use crate::kubeconfig;
use crate::output::Output;
use crate::private::PrivateFolder;
use crate::terminal::{Style, complain, paint, say};
use crate::testing::{Outcome, Voice, cargo_test, run};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Run the tests of the project in this folder
///
/// That is `cargo test`, in which operators run on control planes of their own (flyball_cluster::testing), or on a real cluster.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball test
  flyball test --junit target/junit.xml
  flyball test --rbac                 permissions that are missing, and those that nothing used
  flyball test --real=kubeconfig      on a cluster that runs
  flyball test -- --lib scale         what stands behind -- goes to cargo test")]
pub(crate) struct TestArgs {
    /// Write what became of the tests to this file, in JUnit's format
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Tell which permissions the operators lacked, and which they have that no test used
    #[arg(long)]
    rbac: bool,
    /// Test on the cluster of this kubeconfig; else of KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "KUBECONFIG", num_args = 0..=1, require_equals = true)]
    real: Option<Option<PathBuf>>,
    /// How to say what became of them; what the tests say goes to standard error then
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    /// What else cargo test is told
    #[arg(last = true)]
    args: Vec<String>,
}

/// All that is told.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    passed: usize,
    failed: usize,
    ignored: usize,
    suites: &'a [crate::testing::Suite],
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<BTreeMap<String, Permissions>>,
}

/// What an operator may do, over all tests.
#[derive(Default, Serialize)]
struct Permissions {
    /// What it was denied, and where it asked for that.
    missing: BTreeSet<String>,
    /// What it may do and never did.
    unused: BTreeSet<String>,
}

/// What one test tells of them.
#[derive(Deserialize)]
struct Line {
    operator: String,
    granted: BTreeSet<String>,
    used: BTreeSet<String>,
    places: BTreeSet<String>,
}

pub(crate) fn cmd_test(args: &TestArgs) -> Result<()> {
    let folder = PrivateFolder::new("flyball-test-report")?;
    let permissions = folder.path().join("permissions");
    let mut cargo = cargo_test();
    cargo.args(args.args.iter().filter(|arg| *arg != "--no-fail-fast"));
    if let Some(named) = &args.real {
        cargo.env("FLYBALL_TEST_KUBECONFIG", real(named.as_deref())?);
    }
    if args.rbac {
        cargo.env("FLYBALL_TEST_PERMISSIONS", &permissions);
    }
    let voice = if args.output.is_some() { Voice::Aside } else { Voice::Aloud };
    let (report, succeeded) = run(cargo, voice)?;
    if let Some(path) = &args.junit {
        write(path, &report.junit())?;
    }
    let found = if args.rbac { Some(sum(&permissions)?) } else { None };
    let (passed, failed) = (report.count(Outcome::Passed), report.count(Outcome::Failed));
    let missing: usize = found.iter().flat_map(BTreeMap::values).map(|found| found.missing.len()).sum();
    match (args.output, found) {
        (Some(output), permissions) => {
            let ignored = report.count(Outcome::Ignored);
            output.say(&Told { passed, failed, ignored, suites: &report.suites, permissions })?;
        }
        (None, Some(found)) => tell(&found),
        (None, None) => {}
    }
    match (failed, succeeded) {
        (0, true) if missing == 0 => Ok(()),
        (0, true) => Err(Error::new(format!("{missing} permissions are missing"))
            .hint("declare what the controllers do: Controller::owns, watches, reads, replaces or allows")),
        (0, false) => Err(Error::new("the tests cannot be run")),
        _ => Err(Error::new(format!("{failed} of {} tests failed", passed + failed))),
    }
}

/// Finds the kubeconfig of the cluster to test on.
fn real(named: Option<&Path>) -> Result<PathBuf> {
    let path = named.map_or_else(kubeconfig::path, |named| Ok(named.to_owned()))?;
    // Tests run in the folders of their packages.
    fs::canonicalize(&path)
        .when(format!("there is no kubeconfig {}", path.display()))
        .map_err(|error| error.hint("name one: --real=FILE, or start a cluster with `flyball cluster up`"))
}

/// Sums up what the tests told: what one leaves unused, another may use.
fn sum(path: &Path) -> Result<BTreeMap<String, Permissions>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut all: BTreeMap<String, (Permissions, BTreeSet<String>)> = BTreeMap::new();
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).when("what a test told of permissions cannot be read")?;
        let (found, used) = all.entry(line.operator).or_default();
        found.missing.extend(line.places);
        found.unused.extend(line.granted);
        used.extend(line.used);
    }
    let unused = |(operator, (mut found, used)): (String, (Permissions, BTreeSet<String>))| {
        found.unused.retain(|permission| !used.contains(permission));
        (operator, found)
    };
    Ok(all.into_iter().map(unused).collect())
}

fn tell(found: &BTreeMap<String, Permissions>) {
    if found.is_empty() {
        complain(
            "note",
            "no test put an operator on a cluster (flyball_cluster::testing), so nothing is known of permissions",
        );
    }
    for (operator, found) in found {
        say(&paint(Style::Strong, &format!("permissions of {operator}")));
        for missing in &found.missing {
            say(&format!("  {} {missing}", paint(Style::Bad, "missing")));
        }
        for unused in &found.unused {
            say(&format!("  {}  {unused}", paint(Style::Busy, "unused")));
        }
        if found.missing.is_empty() && found.unused.is_empty() {
            say(&format!("  {}", paint(Style::Good, "all that are granted are used, and none is missing")));
        }
    }
}

/// Writes a file in one go, and its folder if it is not there.
fn write(path: &Path, text: &str) -> Result<()> {
    let what = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).when(what())?;
    }
    let new = path.with_extension(format!("new-{}", std::process::id()));
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).when(what())
}
