//! `flyball edit`: runs plugins on a project.

use crate::error::Result;
use crate::project::Project;
use crate::project::plugins::{PluginArgs, PluginCommand};
use crate::project::scaffold::changes::{Changes, print_written};
use crate::render::output::Output;
use clap::Args;

/// Run external plugins on the project
#[derive(Args, Debug)]
#[command(mut_arg("plugins", |arg| arg.required(true)), after_help = "Examples:
  flyball edit --plugins licenses/v1
  flyball edit --plugins licenses/v1 -- --help")]
pub(crate) struct EditArgs {
    #[command(flatten)]
    plugins: PluginArgs,
    /// Output format for the list of written files
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

pub(crate) fn cmd_edit(args: &EditArgs) -> Result<()> {
    let mut changes = Changes::new(&Project::here()?.folder);
    args.plugins.extend(PluginCommand::Edit, &[], &mut changes)?;
    print_written(&changes.commit()?, args.output)
}
