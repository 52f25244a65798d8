//! `flyball catalog render`: prints the blobs of catalogs and bundles.

use super::ImageFlags;
use crate::catalog::reference;
use crate::cluster::connection::block_on;
use crate::error::{Result, ResultExt};
use crate::render::output::Output;
use crate::render::terminal::print_line;
use clap::Args;
use flyball_lifecycle::content::Blobs;

/// Print the file-based catalog of folders, images and templates
///
/// Each reference is a folder with a file-based catalog, with a bundle (manifests and metadata) or with a package in
/// the old format (package.yaml and a folder for each version), an image with a catalog or a bundle, or a template: a
/// file with the schema olm.template.basic or olm.semver. CRDs in the removed version v1beta1 are converted.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball catalog render catalog/
  flyball catalog render operators/site-operator/1.0.0 -o yaml
  flyball catalog render semver.yaml > catalog/site-operator/catalog.json
  flyball catalog render quay.io/team/site-operator-bundle:v1.0.0 >> catalog/site-operator/catalog.json")]
pub(super) struct RenderArgs {
    /// Folders, images and templates
    #[arg(required = true, value_name = "REF")]
    references: Vec<String>,
    #[command(flatten)]
    images: ImageFlags,
    /// Output format
    #[arg(short, long, value_enum, default_value = "json")]
    output: Output,
}

pub(super) fn cmd_render(args: &RenderArgs) -> Result<()> {
    let blobs = block_on(async {
        let mut blobs = Blobs::default();
        for reference in &args.references {
            blobs.append(reference::load(reference, args.images.images()).await?);
        }
        Ok(blobs)
    })?;
    for document in blobs.documents() {
        match args.output {
            Output::Json => print_line(&serde_json::to_string_pretty(&document).context("cannot write JSON")?),
            Output::Yaml => args.output.print_next(&document)?,
        }
    }
    Ok(())
}
