//! `flyball image verify`.

use crate::cluster::connection::block_on;
use crate::error::{Error, Result};
use crate::image::reference::Reference;
use crate::image::registry::{Purpose, Registry};
use crate::image::signature::{VerifyingKey, is_signed};
use crate::image::{INDEX, MANIFEST, digest};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Verify the signature of an image in a registry
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball image verify registry.example.com/team/site-operator:1.0 --key image.pub

Exits with 1 if the image has no signature of that key. Signatures have cosign's format.")]
pub(super) struct VerifyArgs {
    /// Name of the image, including the registry's host
    reference: Reference,
    /// Public key, in PEM
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Use HTTP without TLS; defaults to true only for a registry on this machine
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure: Option<bool>,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// The image that was verified.
#[derive(Serialize)]
struct VerifyReport {
    name: String,
    digest: String,
}

pub(super) fn cmd_verify(args: &VerifyArgs) -> Result<()> {
    let key = VerifyingKey::read(&args.key)?;
    block_on(async {
        let plain = args.insecure.unwrap_or_else(|| args.reference.is_loopback());
        let mut registry = Registry::connect(&args.reference, plain, Purpose::Pull).await?;
        let name = args.reference.to_string();
        let Some(manifest) = registry.get_manifest(&args.reference.tag, &[INDEX, MANIFEST]).await? else {
            return Err(Error::new(format!("{name} not found")));
        };
        let verified = VerifyReport { digest: digest(&manifest), name };
        if !is_signed(&mut registry, &verified.digest, &key).await? {
            return Err(Error::new(format!(
                "{} ({}) has no signature by the key {}",
                verified.name,
                verified.digest,
                args.key.display()
            ))
            .hint("sign it when pushing: flyball image push --sign-key FILE"));
        }
        match args.output {
            Some(output) => output.print(&verified)?,
            None => {
                print_line(&format!("{} {}", paint(Style::Good, "verified"), paint(Style::Strong, &verified.name)));
                print_line(&format!("  {:<8} {}", "digest", verified.digest));
            }
        }
        Ok(())
    })
}
