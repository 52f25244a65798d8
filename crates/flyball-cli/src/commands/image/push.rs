//! `flyball image push`.

use super::{DIRECTORY, size};
use crate::cluster::connection::block_on;
use crate::error::Result;
use crate::image::layout::Layout;
use crate::image::reference::Reference;
use crate::image::registry::{Purpose, Registry};
use crate::image::signature::{SigningKey, sign};
use crate::image::{Descriptor, INDEX};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Push an image, its SBOMs and its provenance to a registry
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball image push registry.example.com/team/site-operator:1.0
  flyball image push localhost:5000/site-operator:test
  flyball image push registry.example.com/team/site-operator:1.0 --sign-key image.key

Credentials come from Docker's configuration (~/.docker/config.json or DOCKER_CONFIG) and its credential
helpers.")]
pub(super) struct PushArgs {
    /// Name of the image, including the registry's host
    reference: Reference,
    /// Directory of the image
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    from: PathBuf,
    /// Use HTTP without TLS; defaults to true only for a registry on this machine
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure: Option<bool>,
    /// Private key (ECDSA P-256, PKCS #8, PEM) that signs the image, its SBOMs and its provenance
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Result of a push.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PushReport {
    name: String,
    digest: String,
    /// Bytes sent, and bytes already present.
    sent: u64,
    there: u64,
    /// Digests that were signed.
    signed: Vec<String>,
}

pub(super) fn cmd_push(args: &PushArgs) -> Result<()> {
    let key = args.sign_key.as_deref().map(SigningKey::read).transpose()?;
    let layout = Layout::open(&args.from)?;
    let named = layout.named()?.clone();
    block_on(async {
        let plain = args.insecure.unwrap_or_else(|| args.reference.is_loopback());
        let mut registry = Registry::connect(&args.reference, plain, Purpose::Push).await?;
        let name = args.reference.to_string();
        let mut pushed = PushReport { name, digest: named.digest.clone(), sent: 0, there: 0, signed: Vec::new() };
        let is_verbose = args.output.is_none();
        // Referenced content is uploaded before its references.
        let images = layout.images(&named)?;
        for image in &images {
            push_blobs(&mut registry, &layout, image, &mut pushed, is_verbose).await?;
            registry.put_manifest(&image.media_type, &image.digest, layout.read(image)?).await?;
        }
        registry.put_manifest(&named.media_type, &args.reference.tag, layout.read(&named)?).await?;
        let mut signable = vec![named.digest.clone()];
        signable.extend(images.iter().map(|image| image.digest.clone()));
        for referrer in &layout.manifests {
            // The index of the images has no subject.
            if referrer.media_type == INDEX {
                continue;
            }
            let Some(subject) = layout.manifest(referrer)?.subject else { continue };
            if images.iter().any(|image| image.digest == subject.digest) {
                push_blobs(&mut registry, &layout, referrer, &mut pushed, is_verbose).await?;
                registry.put_referrer(referrer, layout.read(referrer)?, &subject.digest).await?;
                signable.push(referrer.digest.clone());
            }
        }
        if let Some(key) = &key {
            for digest in signable {
                sign(&mut registry, &args.reference, &digest, key).await?;
                pushed.signed.push(digest);
            }
        }
        match args.output {
            Some(output) => output.print(&pushed)?,
            None => {
                print_line(&format!("{} {}", paint(Style::Good, "pushed"), paint(Style::Strong, &pushed.name)));
                print_line(&format!("  {:<8} {}", "digest", pushed.digest));
                print_line(&format!("  {:<8} {}, {} already present", "sent", size(pushed.sent), size(pushed.there)));
                if key.is_some() {
                    print_line(&format!("  {:<8} {} manifests", "signed", pushed.signed.len()));
                }
            }
        }
        Ok(())
    })
}

/// Uploads the blobs of a manifest.
async fn push_blobs(
    registry: &mut Registry,
    layout: &Layout,
    manifest: &Descriptor,
    pushed: &mut PushReport,
    is_verbose: bool,
) -> Result<()> {
    for blob in layout.blobs(manifest)? {
        let was_sent = registry.put_blob(&blob.digest, layout.read(&blob)?).await?;
        *(if was_sent { &mut pushed.sent } else { &mut pushed.there }) += blob.size;
        if is_verbose {
            let short = blob.digest.get(..19).unwrap_or(&blob.digest);
            let state = if was_sent { "sent" } else { "exists" };
            print_line(&paint(Style::Faint, &format!("{short} {:>9} {state}", size(blob.size))));
        }
    }
    Ok(())
}
