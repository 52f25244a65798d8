//! `flyball apply`: applies objects from files.

use crate::cluster::apply::{self, DryRunArgs, Outcome};
use crate::cluster::connection::{ConnectionArgs, block_on};
use crate::cluster::kinds::Kinds;
use crate::error::{Error, Result};
use crate::render::output::Output;
use crate::render::terminal::{self, Style, paint, print_line};
use clap::{Args, ValueEnum};
use serde::Serialize;

/// Apply objects from files
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball apply -f site.yaml
  flyball apply -f config/ -n sites
  site-operator manifests | flyball apply -f -

CRDs are applied first, and custom resources when their kind is served. Conflicts with fields of other managers
are errors; --force-conflicts takes the fields over. Every apply is a server-side apply.")]
pub(crate) struct ApplyArgs {
    /// File, directory of YAML and JSON files, or - for standard input; may be repeated
    #[arg(short, long = "file", visible_alias = "filename", value_name = "FILE", required = true)]
    files: Vec<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Take over fields of other managers in case of conflicts
    #[arg(long, visible_alias = "force")]
    force_conflicts: bool,
    /// Accepted for kubectl's command lines; every apply is a server-side apply
    #[arg(long = "server-side", num_args = 0..=1, require_equals = true, value_parser = ["true"],
        default_missing_value = "true", hide = true)]
    _server_side: Option<String>,
    #[command(flatten)]
    dry_run: DryRunArgs,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Kind and name, one object per line
    Name,
    Json,
    Yaml,
}

/// Result for one object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AppliedObject {
    object: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(crate) fn cmd_apply(args: &ApplyArgs) -> Result<()> {
    let mut objects = apply::read_all(&args.files)?;
    // Custom resources are applied after their definitions, regardless of the order of files.
    objects.sort_by_key(|object| object["kind"] != "CustomResourceDefinition");
    let applied = block_on(async {
        let connection = args.connection.connect().await?;
        let mut applied = Vec::new();
        for object in &objects {
            let response = connection.apply_with(object, args.force_conflicts, args.dry_run.is_dry()).await;
            let one = match response {
                Ok((object, outcome)) => AppliedObject { object, outcome: Some(outcome), error: None },
                Err(error) => {
                    if matches!(args.output, None | Some(Format::Name)) {
                        terminal::print_error(&error);
                    }
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    let description = format!("{} {name}", object["kind"].as_str().unwrap_or_default());
                    AppliedObject { object: description, outcome: None, error: Some(error.to_string()) }
                }
            };
            if let (None, Some(outcome)) = (args.output, one.outcome) {
                let style = if outcome == Outcome::Unchanged { Style::Faint } else { Style::Good };
                print_line(&format!("{} {}{}", one.object, paint(style, outcome.as_str()), args.dry_run.suffix()));
            }
            applied.push(one);
        }
        if args.output == Some(Format::Name) {
            let kinds = Kinds::discover(&connection.client).await?;
            let applied = objects.iter().zip(&applied).filter(|(_, one)| one.error.is_none());
            applied.for_each(|(object, _)| print_line(&kinds.object_name(object)));
        }
        Ok(applied)
    })?;
    match args.output {
        Some(Format::Json) => Output::Json.print(&applied)?,
        Some(Format::Yaml) => Output::Yaml.print(&applied)?,
        None | Some(Format::Name) => {}
    }
    let failed = applied.iter().filter(|one| one.error.is_some()).count();
    if failed == 0 {
        return Ok(());
    }
    Err(Error::new(format!("failed to apply {failed} of {} objects", applied.len())))
}
