//! `flyball image sbom`.

use crate::cluster::connection::block_on;
use crate::error::{Error, Result, ResultExt};
use crate::image::epoch;
use crate::image::inventory::sbom;
use crate::image::project::{Project, check_program};
use crate::render::output::Output;
use clap::Args;
use flyball_core::time::rfc3339;
use std::fs;
use std::path::PathBuf;

/// Print the SBOM of a program in CycloneDX format
///
/// Lists the crates of the program from `Cargo.lock`, with versions, licenses, checksums and dependencies. Build
/// dependencies, dev dependencies and macros are omitted. `flyball image build` attaches the same document to the
/// image.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball image sbom
  flyball image sbom --package site-operator --target x86_64-unknown-linux-musl --out sbom.cdx.json")]
pub(super) struct SbomArgs {
    /// Package of the program; defaults to the one in this directory
    #[arg(short, long, value_name = "NAME")]
    package: Option<String>,
    /// Target triple of the program; dependencies of other platforms are omitted
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// Output file; defaults to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn cmd_sbom(args: &SbomArgs) -> Result<()> {
    check_program()?;
    block_on(async {
        let project = Project::load(args.target.as_deref()).await?;
        let root = project.member(args.package.as_deref())?;
        let document = sbom(&root, &project.program_packages(&root.id)?, &rfc3339(epoch()?));
        match &args.out {
            None => Output::Json.print(&document),
            Some(path) => {
                let text = serde_json::to_vec_pretty(&document).map_err(|error| Error::new(error.to_string()))?;
                fs::write(path, text).context(format!("cannot write {}", path.display()))
            }
        }
    })
}
