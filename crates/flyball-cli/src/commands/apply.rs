//! `flyball apply`: applies objects from files.

use crate::cluster::apply::{self, Outcome};
use crate::cluster::connection::{ConnectionArgs, block_on};
use crate::error::{Error, Result};
use crate::render::output::Output;
use crate::render::terminal::{self, Style, paint, say};
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// Apply objects from files
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball apply -f site.yaml
  flyball apply -f config/ -n sites
  site-operator manifests | flyball apply -f -

CRDs are applied first, and custom resources when their kind is served. Conflicts with fields of other managers
are errors; --force takes the fields over.")]
pub(crate) struct ApplyArgs {
    /// File, directory of YAML and JSON files, or - for standard input; may be repeated
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    files: Vec<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Take over fields of other managers in case of conflicts
    #[arg(long)]
    force: bool,
    /// Validate with the API server without storing anything
    #[arg(long)]
    dry_run: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Result for one object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Applied {
    object: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(crate) fn cmd_apply(args: &ApplyArgs) -> Result<()> {
    let mut objects = Vec::new();
    for file in &args.files {
        objects.extend(read(file)?);
    }
    if objects.is_empty() {
        return Err(Error::new(format!("no objects found in {}", args.files.join(", "))));
    }
    // Custom resources are applied after their definitions, regardless of the order of files.
    objects.sort_by_key(|object| object["kind"] != "CustomResourceDefinition");
    let applied = block_on(async {
        let connection = args.connection.connect().await?;
        let mut applied = Vec::new();
        for object in &objects {
            let answer = connection.apply_with(object, args.force, args.dry_run).await;
            let one = match answer {
                Ok((object, outcome)) => Applied { object, outcome: Some(outcome), error: None },
                Err(error) => {
                    if args.output.is_none() {
                        terminal::report(&error);
                    }
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    let told = format!("{} {name}", object["kind"].as_str().unwrap_or_default());
                    Applied { object: told, outcome: None, error: Some(error.to_string()) }
                }
            };
            if let (None, Some(outcome)) = (args.output, one.outcome) {
                let style = if outcome == Outcome::Unchanged { Style::Faint } else { Style::Good };
                let dry = if args.dry_run { " (dry run)" } else { "" };
                say(&format!("{} {}{dry}", one.object, paint(style, outcome.word())));
            }
            applied.push(one);
        }
        Ok(applied)
    })?;
    if let Some(output) = args.output {
        output.say(&applied)?;
    }
    let failed = applied.iter().filter(|one| one.error.is_some()).count();
    if failed == 0 {
        return Ok(());
    }
    Err(Error::new(format!("failed to apply {failed} of {} objects", applied.len())))
}

fn read(file: &str) -> Result<Vec<Value>> {
    if file.starts_with("http://") || file.starts_with("https://") {
        return Err(Error::new(format!("{file} is a URL; remote files are not applied unseen"))
            .hint("download and review it, then pass the file"));
    }
    if file == "-" { apply::read_standard_input() } else { apply::read(Path::new(file)) }
}
