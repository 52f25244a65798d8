//! `flyball image`: builds and distributes container images of operators, without Docker.

mod build;
mod load;
mod push;
mod sbom;
mod verify;

use crate::error::Result;
use clap::{Args, Subcommand};

/// Build, sign and push container images of an operator without Docker
#[derive(Args, Debug)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Build(build::BuildArgs),
    Push(push::PushArgs),
    Verify(verify::VerifyArgs),
    Load(load::LoadArgs),
    Sbom(sbom::SbomArgs),
}

/// Default directory of images.
const DIRECTORY: &str = "target/image";

pub(crate) fn cmd_image(args: ImageArgs) -> Result<()> {
    match args.command {
        Command::Build(args) => build::cmd_build(args),
        Command::Push(args) => push::cmd_push(&args),
        Command::Verify(args) => verify::cmd_verify(&args),
        Command::Load(args) => load::cmd_load(&args),
        Command::Sbom(args) => sbom::cmd_sbom(&args),
    }
}

/// Formats a size for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..=99_999 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / (1024.0 * 1024.0)),
    }
}
