//! Flags that set values: `--values`, `--set` and similar flags.

use crate::chart::load_message;
use crate::{HelmVersion, Values};
use std::io::Read;
use std::path::Path;

/// The flags of values. See <https://helm.sh/docs/intro/using_helm/>.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ValueArgs {
    /// YAML file with values
    #[arg(short = 'f', long = "values", value_name = "FILE", value_delimiter = ',')]
    pub values: Vec<String>,
    /// Set values, such as a.b=c,d={e,f}
    #[arg(long, value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub set: Vec<String>,
    /// Set a string value
    #[arg(long, value_name = "KEY=TEXT", allow_hyphen_values = true)]
    pub set_string: Vec<String>,
    /// Set a value to the content of a file
    #[arg(long, value_name = "KEY=FILE", allow_hyphen_values = true)]
    pub set_file: Vec<String>,
    /// Set a JSON value
    #[arg(long, value_name = "KEY=JSON", allow_hyphen_values = true)]
    pub set_json: Vec<String>,
    /// Set a literal string value
    #[arg(long, value_name = "KEY=TEXT", allow_hyphen_values = true)]
    pub set_literal: Vec<String>,
}

/// Reads the values of a command line; paths are relative to a directory.
///
/// # Errors
///
/// Returns Helm's message.
pub(super) fn values(args: &ValueArgs, helm: HelmVersion, folder: &Path) -> Result<Values, String> {
    let mut values = Values::default();
    let read = |path: &str| {
        let mut text = Vec::new();
        match path.trim() {
            "-" => std::io::stdin().read_to_end(&mut text).map(|_| text).map_err(|error| load_message(&error)),
            url if url.starts_with("http://") || url.starts_with("https://") => {
                Err(format!("values are not fetched: download {url} first"))
            }
            _ => std::fs::read(folder.join(path)).map_err(|error| format!("open {path}: {}", load_message(&error))),
        }
    };
    for file in &args.values {
        values.merge_yaml_as(file, &read(file)?, helm).map_err(|error| error.to_string())?;
    }
    for argument in &args.set_json {
        let set = match helm {
            HelmVersion::V3 => values.set_json_pairs(argument),
            HelmVersion::V4 => values.set_json(argument),
        };
        set.map_err(|error| error.to_string())?;
    }
    for argument in &args.set {
        values.set(argument).map_err(|error| error.to_string())?;
    }
    for argument in &args.set_string {
        values.set_string(argument).map_err(|error| error.to_string())?;
    }
    for argument in &args.set_file {
        values.set_file(argument, &read).map_err(|error| error.to_string())?;
    }
    for argument in &args.set_literal {
        values.set_literal(argument).map_err(|error| error.to_string())?;
    }
    Ok(values)
}
