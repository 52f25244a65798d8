//! `flyball catalog diff`: the differences of two catalogs.

use super::{ImageFlags, count};
use crate::catalog::reference;
use crate::cluster::connection::block_on;
use crate::error::Result;
use crate::render::output::Output;
use crate::render::terminal::{Style, one_line, paint, print_line};
use clap::Args;
use flyball_lifecycle::content::{Change, Content, Difference, differences};
use serde_json::Value;
use std::process::ExitCode;

/// Maximum length of a printed value.
const MAX_VALUE_CHARS: usize = 60;

/// Print the differences of two catalogs, and the installed versions that would get no further upgrades
///
/// A version is stranded if its channel no longer has an entry that upgrades it. Exits with 1 if a version is stranded.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball catalog diff quay.io/team/catalog:latest catalog/
  flyball catalog diff old/ new/ -o json")]
pub(super) struct DiffArgs {
    /// Folder, template or image of the old catalog
    #[arg(value_name = "OLD")]
    old: String,
    /// Folder, template or image of the new catalog
    #[arg(value_name = "NEW")]
    new: String,
    #[command(flatten)]
    images: ImageFlags,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

pub(super) fn cmd_diff(args: &DiffArgs) -> Result<ExitCode> {
    let found = block_on(async {
        // Packages with problems are compared as well.
        let load =
            async |reference: &str| reference::load(reference, args.images.images()).await.map(Content::unchecked);
        Ok(differences(&load(&args.old).await?, &load(&args.new).await?))
    })?;
    let stranded = found.iter().filter(|difference| difference.change == Change::Stranded).count();
    match args.output {
        Some(output) => output.print(&found)?,
        None if found.is_empty() => print_line("no differences"),
        None => {
            found.iter().for_each(print);
            if stranded > 0 {
                let versions = count(stranded, "installed version");
                print_line(&format!(
                    "{versions} would not be upgraded any more: keep an entry that replaces or skips it"
                ));
            }
        }
    }
    Ok(ExitCode::from(u8::from(stranded > 0)))
}

fn print(difference: &Difference) {
    let places = [("channel", &difference.channel), ("bundle", &difference.bundle)];
    let places = places.iter().filter_map(|(what, name)| Some(format!(", {what} {}", name.as_ref()?)));
    let place = format!("package {}{}", difference.package, places.collect::<String>());
    let (style, word) = match difference.change {
        Change::Added => (Style::Good, "added"),
        Change::Removed => (Style::Bad, "removed"),
        Change::Changed => (Style::Busy, "changed"),
        Change::Stranded => (Style::Bad, "stranded"),
    };
    print_line(&format!("{} {}", paint(style, &format!("{word:<8}")), one_line(&place)));
    for change in &difference.fields {
        let values = format!("{} -> {}", short(&change.old), short(&change.new));
        print_line(&format!("           {}: {}", change.field, one_line(&values)));
    }
}

/// Returns a value on one line.
fn short(value: &Value) -> String {
    let text = match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        other => other.to_string(),
    };
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
