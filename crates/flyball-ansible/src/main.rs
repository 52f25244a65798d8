//! The operator of a project with a `watches.yaml`.

use clap::Error;
use clap::error::ErrorKind;
use flyball::Operator;
use flyball_ansible::Flags;
use std::path::PathBuf;
use std::process::ExitCode;

/// An operator that reconciles objects with Ansible roles and playbooks.
#[derive(Debug, clap::Args)]
#[command(version)]
struct Args {
    /// File that maps kinds to roles and playbooks
    #[arg(long, default_value = "watches.yaml", value_name = "FILE")]
    watches_file: PathBuf,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    Operator::main_with(|args: Args| {
        let operator = args.flags.operator(args.watches_file);
        operator.unwrap_or_else(|error| <Error>::raw(ErrorKind::Io, format!("{error}\n")).exit())
    })
}
