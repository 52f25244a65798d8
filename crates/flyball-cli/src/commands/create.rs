//! `flyball create`: extends a project.

mod api;
pub(super) mod chart;
mod prompt;
pub(super) mod watched;
mod webhook;

use crate::error::Result;
use clap::{Args, Subcommand};

/// Add a kind, a version, a controller or webhooks to the project
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Api(Box<api::ApiArgs>),
    Webhook(webhook::WebhookArgs),
}

pub(crate) fn cmd_create(args: CreateArgs) -> Result<()> {
    match args.command {
        Command::Api(args) => api::cmd_api(&args),
        Command::Webhook(args) => webhook::cmd_webhook(&args),
    }
}

/// Exits with a usage error.
pub(super) fn exit_with_usage_error(what: &str) -> ! {
    clap::Error::raw(clap::error::ErrorKind::MissingRequiredArgument, format!("{what}\n")).exit()
}
