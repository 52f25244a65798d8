//! `flyball helm pull`.

use super::remote::request;
use super::{HelmError, print, warn};
use crate::chart::access::Access;
use crate::chart::archive::Signature;
use crate::chart::source::Source;
use crate::cluster::connection::block_on;
use crate::error::{Error, Result};
use clap::Args;
use flyball_chart::ChartPathArgs;
use std::path::{Component, PathBuf};

#[derive(Args, Debug)]
pub(super) struct PullArgs {
    /// Charts: https:// URLs, oci:// references, or names in the repository
    #[arg(value_name = "CHART", required = true)]
    charts: Vec<String>,
    /// Unpack the chart
    #[arg(long)]
    untar: bool,
    /// Directory for --untar, relative to --destination
    #[arg(long, value_name = "DIR", default_value = ".")]
    untardir: PathBuf,
    /// Directory of the archive
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    destination: PathBuf,
    /// Download the provenance file, without verifying it
    #[arg(long)]
    prov: bool,
    #[command(flatten)]
    path: ChartPathArgs,
}

pub(super) fn pull(args: &PullArgs) -> Result<(), HelmError> {
    if !args.destination.is_dir() {
        return Err(Error::new(format!("--destination: directory {} not found", args.destination.display()))
            .hint("create it first")
            .into());
    }
    let mut access = Access::new(&args.path.access)?;
    if args.prov {
        access = access.keep_provenance();
    }
    for chart in &args.charts {
        pull_one(args, &access, chart)?;
    }
    Ok(())
}

fn pull_one(args: &PullArgs, access: &Access, chart: &str) -> Result<()> {
    let Source::Remote(remote) = request(chart, &args.path).source()? else {
        return Err(Error::new(format!("{chart} is a local path")).hint("pass a URL, oci://…, or --repo URL NAME"));
    };
    let archive = block_on(remote.fetch(access))?;
    if let Some((reference, digest)) = &archive.manifest {
        warn(&[format!("Pulled: {reference}"), format!("Digest: {digest}")]);
    }
    if let Some(Signature { signer, fingerprint, digest }) = &archive.signature {
        print(&format!(
            "Signed by: {signer}\nUsing Key With Fingerprint: {fingerprint}\nChart Hash Verified: {digest}\n"
        ));
    }
    match args.untar {
        true => {
            let into = args.destination.join(&args.untardir);
            archive.unpack(&into.components().filter(|part| *part != Component::CurDir).collect::<PathBuf>())?
        }
        false => archive.save(&args.destination)?,
    };
    Ok(())
}
