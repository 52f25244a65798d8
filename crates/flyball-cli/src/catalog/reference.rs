//! References to catalogs and bundles on the command line: folders, templates and images.

use super::images::Images;
use crate::error::{Error, Result, ResultExt};
use crate::files::spelling::with_meant_path;
use flyball_lifecycle::content::{Blobs, BundleBlob, Template};
use flyball_lifecycle::manifests::BundleFolder;
use flyball_lifecycle::source::{CATALOG_LABEL, blobs, pull, read_folder};
use flyball_lifecycle::{Files, ImageName};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Loads the blobs of a reference: a folder with a catalog, with a bundle, or with a package in the old format; a file
/// with a template of a catalog; or an image with a catalog or a bundle.
pub(crate) async fn load(reference: &str, images: Images) -> Result<Blobs> {
    let path = Path::new(reference);
    if path.is_file() { of_template(path, images).await } else { load_whole(reference, images).await }
}

/// Loads the blobs of a folder or an image.
async fn load_whole(reference: &str, images: Images) -> Result<Blobs> {
    let what = || format!("cannot load {reference}");
    let path = Path::new(reference);
    if path.is_dir() {
        let files = read_folder(path).context(what())?;
        check_not_empty(&files, reference)?;
        return match BundleFolder::is_bundle(&files) {
            true => Ok(of_bundle(&BundleFolder::read(&files).context(what())?, "")),
            false => blobs(&files).context(what()),
        };
    }
    let name: ImageName = reference
        .parse()
        .context(what())
        .map_err(|error| with_meant_path(error, path))
        .map_err(|error| error.hint("pass a folder, or an image such as quay.io/team/catalog:latest"))?;
    let pulled = pull(&images, &name, &[], None).await.context(what());
    let pulled = pulled.map_err(|error| with_meant_path(taken_for_image(error, reference), path))?;
    let pulled = pulled.ok_or_else(|| Error::new(what()))?;
    match pulled.labels.get(CATALOG_LABEL) {
        Some(folder) => Blobs::parse(&pulled.files.below(folder)).context(what()),
        None => Ok(of_bundle(&BundleFolder::read(&pulled.files).context(what())?, reference)),
    }
}

/// Renders a template. Its bundles are images, or folders beside the template.
async fn of_template(path: &Path, images: Images) -> Result<Blobs> {
    let what = || format!("cannot load {}", path.display());
    let content = fs::read(path).context(what())?;
    let Some(template) = Template::parse(&content).context(what())? else {
        return Err(Error::usage(format!("{} is a file, and no template of a catalog", path.display()))
            .hint("pass the folder of the catalog"));
    };
    let mut bundles = BTreeMap::new();
    for reference in template.references() {
        let beside = path.parent().unwrap_or(Path::new(".")).join(reference);
        let place = if beside.is_dir() { beside.display().to_string() } else { reference.to_owned() };
        let mut found = load_whole(&place, images).await.map_err(|error| error.within(&what()))?.bundles;
        match (found.pop(), found.is_empty()) {
            (Some(bundle), true) => drop(bundles.insert(reference.to_owned(), bundle)),
            _ => return Err(Error::new(format!("{}: {reference} is not one bundle", what()))),
        }
    }
    template.render(&bundles).context(what())
}

/// Adds a hint to the failed pull of an image without a registry: most relative paths are names of images as well.
fn taken_for_image(error: Error, reference: &str) -> Error {
    match reference.split('/').next().is_some_and(|first| first.contains(['.', ':'])) {
        true => error,
        false => error.hint(format!("there is no folder or file {reference}: it was taken for the name of an image")),
    }
}

fn of_bundle(folder: &BundleFolder, image: &str) -> Blobs {
    Blobs { bundles: vec![BundleBlob::of_folder(folder, image)], ..Blobs::default() }
}

fn check_not_empty(files: &Files, reference: &str) -> Result<()> {
    match files.is_empty() {
        false => Ok(()),
        true => Err(Error::new(format!("{reference} is empty")).hint("pass the folder of a catalog or a bundle")),
    }
}
