//! Explorations of an operator as a process.

use super::{ExploreArgs, Format, Reports};
use crate::cluster::connection::{block_on, block_on_threads};
use crate::error::{Error, Result};
use crate::explore::program::{self, default_jobs, objects};
use crate::explore::scenario;
use crate::files::private::PrivateDirectory;
use crate::operator::local;
use crate::operator::process::{stop_signal, supervised_line};
use crate::operator::program::Program;
use crate::render::progress::Progress as ProgressLine;
use crate::render::terminal::print_labeled;
use flyball_explore::{Explorer, OperatorCommand, Report};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tokio::sync::oneshot;

/// The operator to start.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// A command of the shell.
    Shell(&'a str),
    /// An operator built with Flyball.
    Program(&'a Program),
}

/// Explores an operator until the budget ends, or until Ctrl-C.
pub(super) fn explore(args: &ExploreArgs, source: Source<'_>, kept: Vec<String>) -> Result<Reports> {
    if !args.args.is_empty() && matches!(source, Source::Shell(_)) {
        return Err(Error::usage("arguments after -- are for cargo test and --program")
            .hint("put them into the command of --exec"));
    }
    if args.pause {
        return Err(Error::usage("--pause needs the tests of a project in Rust: a process continues in real time")
            .hint("attach a debugger to the process, or read the timeline of the report"));
    }
    let folder = PrivateDirectory::new("flyball-explore")?;
    let explorer = explorer(args, source, folder.path())?.regressions(kept);
    let replay = args.replay.clone();
    let line = Mutex::new(ProgressLine::new("starting the operator"));
    let explorer = explorer.on_progress(move |progress| {
        let (schedules, findings, sites) = (progress.schedules, progress.findings, progress.sites);
        let seconds = progress.elapsed.as_secs();
        let text = format!("{seconds} s: {schedules} schedules, faults at {sites} sites, {findings} findings");
        line.lock().show(text);
    });
    let (sender, receiver) = oneshot::channel();
    // A thread of its own, which does not delay the end of the command after a signal.
    std::thread::spawn(move || {
        let report = match replay {
            Some(line) => explorer.replay(&line),
            None => explorer.run(),
        };
        // Nobody receives it after a signal.
        let _ = sender.send(report);
    });
    let report: Report = block_on_threads(async {
        let stop = stop_signal()?;
        tokio::select! {
            biased;
            () = stop => Err(Error::interrupted()),
            report = receiver => report.map_err(|_| Error::new("the exploration has panicked")),
        }
    })?;
    Ok(Reports { texts: vec![text_of(&report)], values: vec![report.to_json()], suites: vec![report.to_junit()] })
}

/// Returns the text of a report; errors are reported by the command.
fn text_of(report: &Report) -> String {
    if report.error().is_some() { String::new() } else { report.to_string() }
}

fn explorer(args: &ExploreArgs, source: Source<'_>, folder: &Path) -> Result<Explorer> {
    let command = command(args, source)?.folder(folder).quiet(args.quiet).timeout(args.timeout);
    let conditions = args.wait.clone();
    let command = match conditions.is_empty() {
        true => command,
        false => command.ready(move |object| conditions.iter().all(|condition| condition.holds(object))),
    };
    let jobs = args.jobs.map_or_else(default_jobs, usize::from);
    let mut explorer = Explorer::command(command).budget(args.budget).seed(args.seed).threads(jobs);
    if args.campaigns {
        explorer = explorer.with_campaigns();
    }
    for path in &args.scenario {
        explorer = explorer.scenario(scenario::read(path)?);
    }
    if args.scenario.is_empty() {
        let samples: Vec<PathBuf> = match args.samples.is_empty() {
            true => local::samples(None).into_iter().collect(),
            false => args.samples.clone(),
        };
        explorer = explorer.sample(scenario::manifest(&program::samples(&samples)?));
    }
    Ok(explorer)
}

fn command(args: &ExploreArgs, source: Source<'_>) -> Result<OperatorCommand> {
    match source {
        Source::Shell(text) => {
            let mut manifests = objects(&args.crds)?;
            manifests.extend(objects(&args.rbac)?);
            if args.rbac.is_empty() && args.output == Format::Text {
                print_labeled("note", "the operator is an administrator; --rbac PATH tests its permissions");
            }
            let line = ["sh", "-c", text].map(OsString::from);
            Ok(OperatorCommand::new(name_of(text), supervised_line(&line)).manifests(manifests))
        }
        Source::Program(program) => block_on(program::command(program, &args.args, &BTreeMap::new())),
    }
}

/// Returns the name of an operator by its command: that of the last word that is a file, or of the program.
fn name_of(command: &str) -> String {
    let mut words = command.split_whitespace().filter(|word| !word.starts_with('-') && !word.contains('='));
    let program = words.next().unwrap_or_default();
    let file = words.find(|word| Path::new(word).is_file()).unwrap_or(program);
    let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let name = plain.trim_matches('-').chars().take(50).collect::<String>();
    if name.is_empty() { "operator".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_named_after_their_program() {
        assert_eq!(name_of("./bin/Manager --port=1"), "manager");
        assert_eq!(name_of("DEBUG=1 exec ./my_operator.sh"), "exec");
        assert_eq!(name_of("--"), "operator");
    }
}
