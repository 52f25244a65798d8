//! `flyball bundle`: bundles of operators for OperatorHub and lifecycle managers.

mod create;
mod findings;
mod progress;
mod publish;
mod request;
mod run;
mod server;
mod validate;

use crate::error::{Error, Result, ResultExt};
use crate::files::spelling::with_meant_path;
use clap::{Args, Subcommand};
use flyball_lifecycle::Files;
use flyball_lifecycle::manifests::BundleFolder;
use flyball_lifecycle::source::read_folder;
use std::path::Path;

/// Create, validate, publish and run bundles of operators for OperatorHub and OLM
#[derive(Args, Debug)]
pub(crate) struct BundleArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Create(Box<create::CreateArgs>),
    Validate(validate::ValidateArgs),
    Publish(publish::PublishArgs),
    Run(run::RunArgs),
}

pub(crate) fn cmd_bundle(args: BundleArgs) -> Result<()> {
    match args.command {
        Command::Create(args) => create::cmd_create(&args),
        Command::Validate(args) => validate::cmd_validate(&args),
        Command::Publish(args) => publish::cmd_publish(&args),
        Command::Run(args) => run::cmd_run(&args),
    }
}

/// Reads the bundle in a folder.
fn read_bundle(folder: &Path) -> Result<(Files, BundleFolder)> {
    let what = || format!("cannot read the bundle in {}", folder.display());
    let files = read_folder(folder).context(what()).map_err(|error| with_meant_path(error, folder))?;
    if !BundleFolder::is_bundle(&files) {
        return Err(Error::new(format!(
            "{} is not a bundle: it has no folders manifests and metadata",
            folder.display()
        ))
        .hint("create one: flyball bundle create --image IMAGE"));
    }
    let bundle = BundleFolder::read(&files).context(what())?;
    Ok((files, bundle))
}
