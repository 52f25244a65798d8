//! `flyball manifests`: what an operator needs to be in a cluster, as files.

use crate::cluster::apply;
use crate::cluster::connection::block_on;
use crate::error::{Error, Result, ResultExt};
use crate::files::generated::{self, Change, Step};
use crate::operator::installation::{HEADER, Installation, Samples, TargetArgs, files};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, say};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Write the manifests of an operator: CRDs, roles, webhooks, Deployment, monitoring, samples
///
/// Builds the operator's program and derives the manifests from it. The directory is a kustomize project:
/// config/default contains everything except config/prometheus, which needs a Prometheus operator, and
/// config/samples.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball manifests                  into config/
  flyball manifests --check          for CI: fails with a diff if config/ is out of date
  kubectl apply --server-side -k config/default

Files without the line `Made by flyball manifests` are never changed or removed. To take over a generated file,
delete that line.")]
pub(crate) struct ManifestsArgs {
    #[command(flatten)]
    place: TargetArgs,
    /// Namespace of the operator; defaults to the prefix and `system`
    #[arg(short, long)]
    namespace: Option<String>,
    /// Output directory
    #[arg(long, value_name = "DIR", default_value = "config")]
    out: PathBuf,
    /// Write nothing and fail if a file is out of date
    #[arg(long)]
    check: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Result for one file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    file: String,
    outcome: Step,
}

pub(crate) fn cmd_manifests(args: &ManifestsArgs) -> Result<()> {
    let installation = block_on(Installation::ask(&args.place, args.namespace.as_deref(), None))?;
    let made = files(&installation, &samples(&args.out.join("samples"))?);
    let changes = generated::compare(&args.out, &made, HEADER)?;
    if !args.check {
        generated::carry_out(&changes)?;
    }
    match args.output {
        Some(output) => {
            let file = |change: &Change| File { file: change.path.display().to_string(), outcome: change.step };
            output.say(&changes.iter().map(file).collect::<Vec<_>>())?;
        }
        None if args.check => {
            changes.iter().filter(|change| change.is_change()).for_each(|change| show(&change.diff()))
        }
        None => print(&changes),
    }
    let drifted = changes.iter().filter(|change| change.is_change()).count();
    if args.check && drifted > 0 {
        let files = if drifted == 1 { "file is" } else { "files are" };
        return Err(Error::new(format!("{drifted} {files} out of date"))
            .hint(format!("run `flyball manifests` and commit {}", args.out.display())));
    }
    Ok(())
}

fn print(changes: &[Change]) {
    for change in changes {
        let (style, word) = match change.step {
            Step::Written => (Style::Good, "written"),
            Step::Removed => (Style::Busy, "removed"),
            Step::Kept => (Style::Faint, "left alone: it is yours"),
            Step::Unchanged => continue,
        };
        say(&format!("{} {}", change.path.display(), paint(style, word)));
    }
    let unchanged = changes.iter().filter(|change| change.step == Step::Unchanged).count();
    if unchanged > 0 {
        say(&paint(Style::Faint, &format!("{unchanged} {} unchanged", if unchanged == 1 { "file" } else { "files" })));
    }
}

fn show(diff: &str) {
    for line in diff.lines() {
        let painted = match line.as_bytes().first() {
            Some(b'+') => paint(Style::Good, line),
            Some(b'-') => paint(Style::Bad, line),
            Some(b'@') => paint(Style::Faint, line),
            _ => line.to_owned(),
        };
        say(&painted);
    }
}

/// Looks which kinds have samples of somebody's own.
fn samples(folder: &Path) -> Result<Samples> {
    let mut samples = Samples::new();
    for path in generated::list(folder)? {
        let text = std::fs::read_to_string(&path).when(format!("cannot read {}", path.display()))?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
        if is_yaml && name != "kustomization.yaml" && !text.starts_with(HEADER) {
            let kinds =
                apply::read(&path)?.iter().filter_map(|object| object["kind"].as_str().map(str::to_owned)).collect();
            samples.insert(name, kinds);
        }
    }
    Ok(samples)
}
