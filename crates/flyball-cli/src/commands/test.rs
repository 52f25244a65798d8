//! `flyball test`: runs the tests of a project, with reports for programs, and checks the permissions of its operators.

use crate::cases::{self, CaseResult, UsedPermissions};
use crate::cluster::connection::{block_on, block_on_threads};
use crate::cluster::kubeconfig;
use crate::commands::scorecard;
use crate::error::{Error, Result, ResultExt};
use crate::files::WATCHES;
use crate::files::private::PrivateDirectory;
use crate::operator::installation::permissions::Permission;
use crate::operator::local::{self, LocalArgs};
use crate::operator::process::stop_signal;
use crate::operator::program::{self, Build};
use crate::project::enter_project;
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, paint, print_labeled, print_line};
use crate::testing::{CHAOS, Count, Outcome, Program, Report, Suite, Targets, TestOutput, cargo_test, run};
use clap::Args;
use flyball_explore::Budget;
use flyball_files::Replace;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Run the tests and the scorecard of the project in this directory
///
/// Runs the tests of `cargo test`, whose operators run on their own control planes (flyball_cluster::testing) or on a
/// real cluster, and the checks of `flyball scorecard`.
///
/// In a project with a watches.yaml, runs the test cases in tests/e2e instead of cargo. They have KUTTL's format: each
/// step applies objects and waits until others match. The cases run on a control plane with the operator, each in a
/// namespace of its own.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball test
  flyball test --suite unit --suite chaos
  flyball test --junit target/junit.xml
  flyball test --rbac                 missing and unused permissions
  flyball test --real=kubeconfig      on a real cluster
  flyball test -- --lib scale         arguments after -- go to cargo test")]
pub(crate) struct TestArgs {
    /// Run only this suite; may be repeated. Defaults to all suites
    #[arg(long, value_enum, conflicts_with = "args")]
    suite: Vec<Suite>,
    /// Write the outcomes to this file, in JUnit format
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Report missing permissions, and permissions that no test used
    #[arg(long)]
    rbac: bool,
    /// Test on the cluster of this kubeconfig; defaults to KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "KUBECONFIG", num_args = 0..=1, require_equals = true)]
    real: Option<Option<PathBuf>>,
    /// Duration, or number of schedules, of each exploration of faults, see `flyball explore`
    #[arg(long, value_name = "BUDGET")]
    explore: Option<Budget>,
    /// Output format; test output then goes to standard error
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    /// Arguments of cargo test
    #[arg(last = true)]
    args: Vec<String>,
}

/// Output for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TestReport<'a> {
    passed: usize,
    failed: usize,
    ignored: usize,
    suites: Vec<Count>,
    programs: &'a [Program],
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<BTreeMap<String, Permissions>>,
}

/// Permissions of an operator over all tests.
#[derive(Default, Serialize)]
struct Permissions {
    /// Denied requests with their places in the code.
    missing: BTreeSet<String>,
    /// Unused permissions.
    unused: BTreeSet<String>,
}

/// Report of one test.
#[derive(Deserialize)]
struct Line {
    operator: String,
    granted: BTreeSet<String>,
    used: BTreeSet<String>,
    places: BTreeSet<String>,
}

pub(crate) fn cmd_test(mut args: TestArgs) -> Result<()> {
    enter_project(args.junit.iter_mut().chain(args.real.iter_mut().flatten()))?;
    let args = &args;
    args.check_project()?;
    let folder = PrivateDirectory::new("flyball-test-report")?;
    let permissions = folder.path().join("permissions");
    let test_output = if args.output.is_some() { TestOutput::Stderr } else { TestOutput::Stdout };
    let real = args.real.as_ref().map(|named| real_kubeconfig(named.as_deref())).transpose()?;
    let (mut report, mut succeeded) = (Report::default(), true);
    for arguments in args.runs()? {
        let mut cargo = cargo_test();
        cargo.args(arguments);
        cargo.envs(real.iter().map(|path| ("FLYBALL_TEST_KUBECONFIG", path)));
        cargo.envs(args.explore.map(|budget| ("FLYBALL_EXPLORE_BUDGET", budget.to_string())));
        cargo.envs(args.rbac.then_some(("FLYBALL_TEST_PERMISSIONS", &permissions)));
        let (found, content) = run(cargo, test_output)?;
        report.add(found);
        succeeded &= content;
    }
    let mut recorded = BTreeMap::new();
    if args.includes(Suite::Cluster)
        && let Some(program) = program::Program::here()
    {
        let (found, used) = cases(Path::new("."), &program, "", test_output, args.rbac)?;
        report.add(found);
        if let Some(used) = used {
            recorded.extend([permissions_of(&program, used)?]);
        }
    }
    let builds = succeeded || !report.programs.is_empty();
    if args.includes(Suite::Scorecard) && builds {
        match args.scorecard(test_output)? {
            Ok(found) => report.add(found),
            Err(why) => print_labeled("note", &format!("scorecard skipped: {why}")),
        }
    }
    for suite in args.suite.iter().filter(|suite| !report.counts().iter().any(|count| count.suite == **suite)) {
        print_labeled("note", &format!("no test matches the suite {}", suite.as_str()));
    }
    if let Some(path) = &args.junit {
        write(path, &report.junit())?;
    }
    recorded.extend(sum_permissions(&permissions)?);
    let found = args.rbac.then_some(recorded);
    let (passed, failed) = (report.count(Outcome::Passed), report.count(Outcome::Failed));
    let missing: usize = found.iter().flat_map(BTreeMap::values).map(|found| found.missing.len()).sum();
    match (args.output, found) {
        (Some(output), permissions) => {
            let (ignored, suites) = (report.count(Outcome::Ignored), report.counts());
            output.print(&TestReport { passed, failed, ignored, suites, programs: &report.programs, permissions })?;
        }
        (None, found) => {
            print_line("");
            lines(&report.counts()).iter().for_each(|line| print_line(line));
            found.iter().for_each(print);
        }
    }
    match (failed, succeeded) {
        (0, true) if missing == 0 => Ok(()),
        (0, true) => Err(Error::new(format!("{missing} permissions missing"))
            .hint("declare them on the controllers: Controller::owns, watches, reads, replaces or allows; in a chart or role, name the kinds literally")),
        (0, false) => Err(Error::new("cannot run the tests")),
        _ => Err(Error::new(format!("{failed} of {} tests failed", passed + failed))),
    }
}

impl TestArgs {
    /// Rejects flags for Rust projects in a Helm or Ansible project.
    fn check_project(&self) -> Result<()> {
        let has_suites = self.suite.iter().all(|suite| matches!(suite, Suite::Cluster | Suite::Scorecard));
        let is_plain = has_suites && self.args.is_empty() && self.real.is_none() && self.explore.is_none();
        match program::Program::here() {
            Some(_) if !is_plain => Err(Error::usage(format!(
                "a project with a {} has no cargo tests: --suite {{unit|chaos}}, --real, --explore and arguments of cargo test do not apply",
                WATCHES
            ))
            .hint("run its test cases and checks: flyball test")),
            Some(_) => Ok(()),
            None => program::check_project(),
        }
    }

    fn includes(&self, suite: Suite) -> bool {
        self.suite.is_empty() || self.suite.contains(&suite)
    }

    /// Returns the arguments of each run of `cargo test`.
    fn runs(&self) -> Result<Vec<Vec<String>>> {
        if program::Program::here().is_some() {
            return Ok(Vec::new());
        }
        if [Suite::Unit, Suite::Cluster, Suite::Chaos].into_iter().all(|suite| self.includes(suite)) {
            let more = self.args.iter().filter(|arg| *arg != "--no-fail-fast");
            return Ok(vec![more.cloned().collect()]);
        }
        // Cargo fails if a requested kind of target does not exist.
        let targets = if self.suite == [Suite::Scorecard] { Targets::default() } else { Targets::here()? };
        let mut runs: Vec<&[&str]> = Vec::new();
        if self.includes(Suite::Unit) {
            runs.push(if targets.has_library {
                &["--lib", "--bins", "--", "--skip", CHAOS]
            } else {
                &["--bins", "--", "--skip", CHAOS]
            });
            runs.extend(targets.has_library.then_some(&["--doc"][..]));
        }
        if self.includes(Suite::Cluster) && targets.has_integration_tests {
            runs.push(&["--test", "*", "--", "--skip", CHAOS]);
        }
        if self.includes(Suite::Chaos) {
            runs.push(&["--tests", "--", CHAOS]);
        }
        Ok(runs.iter().map(|run| run.iter().map(ToString::to_string).collect()).collect())
    }

    /// Runs the scorecard; returns the reason if it is skipped.
    fn scorecard(&self, test_output: TestOutput) -> Result<Result<Report, String>> {
        if self.real.is_some() || !self.args.is_empty() {
            return Ok(Err("it cannot be combined with --real or arguments of cargo test".into()));
        }
        let here = program::Program::here();
        let (is_all, program) = match here {
            Some(program) => (true, program),
            None => match self.program()? {
                Ok(program) => (false, program),
                Err(why) => return Ok(Err(why)),
            },
        };
        match block_on(program.describe(&[], &BTreeMap::new())) {
            // Without the scorecard, such a project has no tests.
            Err(error) if is_all => return Err(error),
            Err(error) => return Ok(Err(error.to_string())),
            Ok(_) => {}
        }
        let local =
            LocalArgs { program: Some(program), bin: None, release: false, env_from: Vec::new(), args: Vec::new() };
        let (checks, took) = scorecard::run(local, local::samples(None).as_deref(), scorecard::STEP_TIMEOUT)?;
        test_output.print("");
        scorecard::lines(&checks).iter().for_each(|line| test_output.print(line));
        Ok(Ok(Report::of_scorecard(&checks, took)))
    }

    /// Builds the program of the scorecard; returns the reason if there is not exactly one.
    fn program(&self) -> Result<Result<program::Program, String>> {
        let bin = match Targets::here().map(|targets| targets.programs) {
            Ok(programs) if programs.len() == 1 => programs.into_iter().next(),
            Ok(programs) if programs.is_empty() => {
                return Ok(Err("the project has no program that uses flyball".into()));
            }
            Ok(programs) => {
                let names = programs.join(", ");
                return Ok(Err(format!("the project has several programs, {names}: flyball scorecard --bin NAME")));
            }
            Err(error) => return Ok(Err(error.to_string())),
        };
        let built = block_on(async {
            let build = Build { bin, ..Build::default() };
            // The program was already built for the tests, unless no test needs it.
            match (Build { of_tests: self.suite.is_empty(), ..build.clone() }).run().await {
                Err(_) if self.suite.is_empty() => build.run().await,
                built => built,
            }
        });
        Ok(Ok(program::Program::File(built?)))
    }
}

/// Runs the test cases of a project in a directory, which need no build: all, or those whose names begin with a prefix.
/// Also returns the permissions that the operator used, if they are requested and it ran.
pub(super) fn cases(
    folder: &Path,
    program: &program::Program,
    prefix: &str,
    test_output: TestOutput,
    records_permissions: bool,
) -> Result<(Report, Option<UsedPermissions>)> {
    let mut suite = cases::Suite::read(folder)?;
    suite.cases.retain(|case| case.name.starts_with(prefix));
    if suite.cases.is_empty() {
        return Ok((Report::default(), None));
    }
    let local =
        LocalArgs { program: Some(program.clone()), bin: None, release: false, env_from: Vec::new(), args: Vec::new() };
    let print_result = |result: &CaseResult| match (&result.failure, test_output) {
        (None, _) => test_output.print(&format!("case {} ... {}", result.name, paint(Style::Good, "ok"))),
        (Some(why), TestOutput::Failures) => print_labeled("failed", &format!("{}\n{why}", result.name)),
        (Some(why), _) => {
            test_output.print(&format!("case {} ... {}\n{why}\n", result.name, paint(Style::Bad, "FAILED")))
        }
    };
    let (results, permissions) = block_on_threads(async {
        let stop = stop_signal()?;
        tokio::select! {
            biased;
            () = stop => Err(Error::interrupted()),
            results = cases::run(local, &suite, records_permissions, print_result) => results,
        }
    })?;
    let named = results.iter().map(|result| (result.name.as_str(), result.failure.as_deref()));
    let report = Report::of_cases(cases::DIRECTORY, named, results.iter().map(|result| result.took).sum());
    Ok((report, permissions))
}

/// Returns the name of an operator, and its missing and unused permissions.
fn permissions_of(program: &program::Program, permissions: UsedPermissions) -> Result<(String, Permissions)> {
    let UsedPermissions { used, denied } = permissions;
    let (operator, mut unused) = block_on(granted_permissions(program))?;
    unused.retain(|permission| !is_used(permission, &used));
    Ok((operator, Permissions { missing: denied, unused }))
}

/// Returns true if a permission was used. Reading is one permission: a watch needs a list only after an error.
fn is_used(permission: &str, used: &BTreeSet<String>) -> bool {
    const READS: [&str; 3] = ["get", "list", "watch"];
    let read = permission.split_once(' ').filter(|(verb, _)| READS.contains(verb));
    used.contains(permission)
        || read.is_some_and(|(_, resource)| READS.iter().any(|verb| used.contains(&format!("{verb} {resource}"))))
}

/// Returns the name of an operator, and the permissions of its roles that requests can use.
async fn granted_permissions(program: &program::Program) -> Result<(String, BTreeSet<String>)> {
    let name = program.describe(&[], &BTreeMap::new()).await?.name;
    let roles = program.manifests(&[], &BTreeMap::new()).await?;
    let is_own = |role: &&Value| {
        // One replica needs no election.
        role["rules"].is_array() && role["metadata"]["name"] == *name
    };
    let permissions = roles.iter().filter(is_own).flat_map(|role| Permission::of_role(role, None));
    // They are checked in place of a request.
    let is_requested = |permission: &String| !permission.contains("/finalizers");
    Ok((name.clone(), permissions.map(|permission| permission.request()).filter(is_requested).collect()))
}

/// Formats the results of the suites as a table.
fn lines(counts: &[Count]) -> Vec<String> {
    let head = ["SUITE", "PASSED", "FAILED", "IGNORED"].map(|word| paint(Style::Strong, word)).to_vec();
    let row = |Count { suite, passed, failed, ignored }: &Count| {
        let mut row = vec![suite.as_str().to_owned()];
        row.extend([passed, failed, ignored].map(ToString::to_string));
        row
    };
    columns(std::iter::once(head).chain(counts.iter().map(row)).collect())
}

/// Finds the kubeconfig of the cluster to test on.
fn real_kubeconfig(named: Option<&Path>) -> Result<PathBuf> {
    let path = named.map_or_else(kubeconfig::path, |named| Ok(named.to_owned()))?;
    // Tests run in the directories of their packages.
    fs::canonicalize(&path)
        .context(format!("kubeconfig {} not found", path.display()))
        .map_err(|error| error.hint("pass --real=FILE, or start a cluster with `flyball cluster up`"))
}

/// Sums up the permissions of all tests: a permission that one test does not use may be used by another.
fn sum_permissions(path: &Path) -> Result<BTreeMap<String, Permissions>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut all: BTreeMap<String, (Permissions, BTreeSet<String>)> = BTreeMap::new();
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).context("cannot read a test's report of permissions")?;
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

fn print(found: &BTreeMap<String, Permissions>) {
    if found.is_empty() {
        print_labeled(
            "note",
            "no permissions recorded: no test ran an operator with flyball_cluster::testing, or as a case",
        );
    }
    for (operator, found) in found {
        print_line(&paint(Style::Strong, &format!("permissions of {operator}")));
        for missing in &found.missing {
            print_line(&format!("  {} {missing}", paint(Style::Bad, "missing")));
        }
        for unused in &found.unused {
            print_line(&format!("  {}  {unused}", paint(Style::Busy, "unused")));
        }
        if found.missing.is_empty() && found.unused.is_empty() {
            print_line(&format!("  {}", paint(Style::Good, "all granted permissions are used, none are missing")));
        }
    }
}

/// Writes a file atomically, and creates its directory.
fn write(path: &Path, text: &str) -> Result<()> {
    let what = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).context(what())?;
    }
    Replace::default().write(path, text).context(what())
}
