//! `flyball ansible`: examines Ansible roles and playbooks.

use crate::error::{Error, Result, ResultExt};
use crate::files::WATCHES;
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, paint, print_line};
use clap::{Args, Subcommand};
use flyball_ansible::{Coverage, Gap, GapKind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Limit of shown places of a missing feature.
const MAX_PLACES: usize = 3;

/// Examine Ansible roles and playbooks
#[derive(Args, Debug)]
pub(crate) struct AnsibleArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Count the tasks that the built-in executor runs, and list the features that it lacks
    ///
    /// Examines all roles and playbooks of a project, including those that no watches.yaml names. A role or playbook
    /// with a missing feature is run by ansible-playbook as a whole. Exits with 0 if the project can be read.
    #[command(after_help = "Examples:
  flyball ansible coverage
  flyball ansible coverage ./awx-operator -o json")]
    Coverage(CoverageArgs),
}

#[derive(Args, Debug)]
struct CoverageArgs {
    /// Directory of the project
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Output format, instead of a table
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

pub(crate) fn cmd_ansible(args: &AnsibleArgs) -> Result<()> {
    let Command::Coverage(args) = &args.command;
    let found = flyball_ansible::coverage(&args.path).context("cannot examine the project")?;
    if found.parts.is_empty() && !args.path.join(WATCHES).is_file() {
        let shown = args.path.display();
        return Err(Error::new(format!("no project here: no roles or playbooks found in {shown}"))
            .hint("pass the directory of a project: flyball ansible coverage PATH"));
    }
    match args.output {
        Some(output) => output.print(&found)?,
        None => lines(&found).iter().for_each(|line| print_line(line)),
    }
    Ok(())
}

fn lines(found: &Coverage) -> Vec<String> {
    let row = |name: String, tasks: usize, built_in: usize, executor: &str, is_rejected: bool| {
        let percent = (built_in * 100).checked_div(tasks).unwrap_or(if is_rejected { 0 } else { 100 });
        vec![name, tasks.to_string(), built_in.to_string(), format!("{percent}%"), executor.to_owned()]
    };
    let mut rows = vec![["ROLE OR PLAYBOOK", "TASKS", "BUILT IN", "", "EXECUTOR"].map(str::to_owned).to_vec()];
    for part in &found.parts {
        let executor = match part.rejected.is_none() {
            true => "built in",
            // Nothing runs an invalid entry.
            false if part.path == Path::new(WATCHES) => "",
            false => "ansible-playbook",
        };
        let name = part.path.display().to_string();
        rows.push(row(name, part.tasks, part.built_in, executor, part.rejected.is_some()));
    }
    let is_rejected = found.parts.iter().any(|part| part.rejected.is_some());
    rows.push(row("total".to_owned(), found.tasks, found.built_in, "", is_rejected));
    let mut lines = columns(rows);
    let mut gaps: BTreeMap<(GapKind, &str), Vec<&Gap>> = BTreeMap::new();
    for gap in found.parts.iter().flat_map(|part| &part.gaps) {
        gaps.entry((gap.kind, &gap.name)).or_default().push(gap);
    }
    let count = |gaps: &[&Gap]| gaps.iter().map(|gap| gap.count).sum::<usize>();
    let mut gaps: Vec<_> = gaps.into_iter().map(|(name, gaps)| (name, count(&gaps), gaps)).collect();
    gaps.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    if !gaps.is_empty() {
        lines.extend([String::new(), paint(Style::Strong, "Missing features")]);
    }
    // Problems can be longer than a line of a terminal, so their places follow in a line of their own.
    lines.extend(gaps.iter().flat_map(|((kind, name), count, gaps)| {
        let places = gaps.iter().flat_map(|gap| &gap.places);
        let mut places: Vec<String> =
            places.take(MAX_PLACES).map(|place| format!("{}:{}", place.file.display(), place.line)).collect();
        if *count > MAX_PLACES {
            places.push("…".to_owned());
        }
        [format!("  {count:<4} {} {name}", word(*kind)), paint(Style::Faint, &format!("       {}", places.join(" ")))]
    }));
    lines
}

fn word(kind: GapKind) -> &'static str {
    match kind {
        GapKind::Module => "module",
        GapKind::Keyword => "keyword",
        GapKind::Filter => "filter",
        GapKind::Test => "test",
        GapKind::Lookup => "lookup",
        GapKind::Function => "function",
        GapKind::Variable => "variable",
        GapKind::Other => "other",
    }
}
