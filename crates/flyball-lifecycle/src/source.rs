//! Sources of catalogs: they load the content of a CatalogSource, and the manifests of bundles whose objects are in
//! images.
//!
//! [`CatalogClient`] is a trait, so that simulations and tests give contents of their own. [`Sources`] is the
//! implementation for folders, ConfigMaps, registries over gRPC, and images. It unpacks images in the process: no Job,
//! no pod and no pull by a node is involved. All sizes are bounded; a failed load is repeated by its caller.

mod config_map;
mod connections;
mod content_digest;
mod folder;
mod grpc;
mod image;
mod unpack;

pub use config_map::InvalidConfigMap;
pub(crate) use content_digest::content_digest;
pub use folder::{UnreadableFolder, read_folder};
pub use image::{CATALOG_LABEL, ImageError, ImageRegistry, PullError, Pulled, Repository, pull};
pub use unpack::InvalidImage;

use crate::content::{Blobs, Content, InvalidBlob, InvalidPackageFile, PackageBundle, read_package_folder};
use crate::files::Files;
use crate::grpc::ConnectionError;
use crate::image::InvalidImageName;
use crate::manifests::{BundleFolder, InvalidBundle, InvalidManifests, Manifests};
use connections::Connections;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time after which a computation runs at a lower priority.
const QUICK_TIME: Duration = Duration::from_millis(20);

/// The place of a catalog.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A folder with a file-based catalog, or a package in the old format.
    Folder(PathBuf),
    /// The data of a ConfigMap, and its resource version.
    ConfigMap {
        /// The data.
        data: BTreeMap<String, String>,
        /// The version of the data.
        resource_version: String,
    },
    /// A registry over gRPC.
    Grpc {
        /// The address: `host:port`.
        address: String,
        /// The UID of the CatalogSource. Each one has a connection of its own, whose end shows it a restart.
        source: String,
    },
    /// An image with a file-based catalog.
    Image {
        /// The image.
        image: String,
        /// Configurations of Docker (`.dockerconfigjson`) with credentials.
        secrets: Vec<String>,
    },
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "folder {}", path.display()),
            Self::ConfigMap { .. } => write!(f, "ConfigMap"),
            Self::Grpc { address, .. } => write!(f, "registry {address}"),
            Self::Image { image, .. } => write!(f, "image {image}"),
        }
    }
}

/// A catalog that was loaded.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The content.
    pub content: Arc<Content>,
    /// Identifies the content: a later load with the same revision returns nothing. Empty if the source has none.
    pub revision: String,
}

/// A catalog or a bundle that cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The folder cannot be read.
    #[error(transparent)]
    Folder(#[from] UnreadableFolder),
    /// The ConfigMap contains no catalog.
    #[error(transparent)]
    ConfigMap(#[from] InvalidConfigMap),
    /// A file is not part of a catalog.
    #[error(transparent)]
    Blob(#[from] InvalidBlob),
    /// The package in the old format is invalid.
    #[error(transparent)]
    Package(#[from] InvalidPackageFile),
    /// The registry cannot be queried.
    #[error(transparent)]
    Registry(#[from] ConnectionError),
    /// The image cannot be pulled or unpacked.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The name of an image is invalid.
    #[error(transparent)]
    ImageName(#[from] InvalidImageName),
    /// A bundle is invalid.
    #[error("bundle {bundle:?}: {source}")]
    Bundle {
        /// The bundle.
        bundle: String,
        /// The reason.
        source: Box<InvalidBundle>,
    },
    /// The objects of a bundle are invalid.
    #[error("bundle {bundle:?}: {source}")]
    Manifests {
        /// The bundle.
        bundle: String,
        /// The reason.
        source: InvalidManifests,
    },
    /// An image contains another bundle than the catalog names.
    #[error("the image {image} contains the bundle {found:?}, but the catalog names it {expected:?}")]
    OtherBundle {
        /// The image.
        image: String,
        /// The name in the catalog.
        expected: String,
        /// The name in the image.
        found: String,
    },
    /// A bundle has neither objects nor an image.
    #[error("bundle {bundle:?} has neither objects nor an image; correct the catalog")]
    NoManifests {
        /// The bundle.
        bundle: String,
    },
    /// Images cannot be pulled here.
    #[error("{0} is in an image, and this process has no registry client")]
    NoRegistry(String),
}

/// Loads catalogs and bundles.
pub trait CatalogClient: Send + Sync {
    /// Loads a catalog; `None` if it still has the revision that is known.
    fn load<'c>(
        &'c self,
        location: &'c Location,
        known: Option<&'c str>,
    ) -> BoxFuture<'c, Result<Option<Loaded>, SourceError>>;

    /// Checks that a catalog that was loaded from the same location can still be reached, and was not restarted since
    /// then, if that is cheaper than to load it.
    fn check<'c>(&'c self, location: &'c Location) -> BoxFuture<'c, Result<(), SourceError>> {
        let _ = location;
        Box::pin(async { Ok(()) })
    }

    /// Connects again after a failed check, and returns true if the catalog most likely still has a revision. Returns
    /// false if only a load shows this.
    fn is_unchanged<'c>(
        &'c self,
        location: &'c Location,
        revision: &'c str,
    ) -> BoxFuture<'c, Result<bool, SourceError>> {
        let _ = (location, revision);
        Box::pin(async { Ok(false) })
    }

    /// Returns the digest of the image of a bundle, which identifies its objects; `None` if there is none to ask for.
    fn digest<'c>(
        &'c self,
        bundle: &'c PackageBundle,
        secrets: &'c [String],
    ) -> BoxFuture<'c, Result<Option<String>, SourceError>> {
        let _ = (bundle, secrets);
        Box::pin(async { Ok(None) })
    }

    /// Returns the manifests of a bundle: the objects in the catalog, or those in the image.
    fn manifests<'c>(
        &'c self,
        bundle: &'c PackageBundle,
        secrets: &'c [String],
    ) -> BoxFuture<'c, Result<Manifests, SourceError>>;
}

/// Loads catalogs and bundles from the places where they are.
#[derive(Clone, Default)]
pub struct Sources {
    images: Option<Arc<dyn ImageRegistry>>,
    connections: Arc<Connections>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("images", &self.images.is_some()).finish()
    }
}

impl Sources {
    /// Creates a client that pulls images from their registries.
    pub fn with_images(images: Arc<dyn ImageRegistry>) -> Self {
        Self { images: Some(images), ..Self::default() }
    }

    async fn image(&self, image: &str, secrets: &[String], known: Option<&str>) -> Result<Option<Loaded>, SourceError> {
        let images = self.images.as_ref().ok_or_else(|| SourceError::NoRegistry(format!("the catalog {image}")))?;
        let Some(Pulled { digest, labels, files }) = image::pull(&**images, &image.parse()?, secrets, known).await?
        else {
            return Ok(None);
        };
        let folder = labels.get(image::CATALOG_LABEL).cloned();
        let folder = folder.ok_or_else(|| ImageError::NoCatalog { image: image.to_owned() })?;
        let content = offload(move || Blobs::parse(&files.into_below(&folder)).map(Content::new)).await?;
        Ok(Some(Loaded { content: Arc::new(content), revision: digest }))
    }

    /// Returns the digest of an image; asks the registry unless the name contains it.
    async fn image_digest(&self, bundle: &PackageBundle, secrets: &[String]) -> Result<Option<String>, SourceError> {
        let Some(images) = self.images.as_ref().filter(|_| !bundle.image.is_empty()) else { return Ok(None) };
        Ok(Some(image::digest(&**images, &bundle.image.parse()?, secrets).await?))
    }

    async fn bundle_image(&self, bundle: &PackageBundle, secrets: &[String]) -> Result<Manifests, SourceError> {
        let images = self.images.as_ref();
        let images = images.ok_or_else(|| SourceError::NoRegistry(format!("the bundle {:?}", bundle.name())))?;
        let pulled = image::pull(&**images, &bundle.image.parse()?, secrets, None).await?;
        let files = pulled.map(|pulled| pulled.files).unwrap_or_default();
        let invalid = |source| SourceError::Bundle { bundle: bundle.name().to_owned(), source: Box::new(source) };
        let manifests = offload(move || BundleFolder::read(&files)).await.map_err(invalid)?.manifests;
        if manifests.name() != bundle.name() {
            let (expected, found) = (bundle.name().to_owned(), manifests.name().to_owned());
            return Err(SourceError::OtherBundle { image: bundle.image.clone(), expected, found });
        }
        Ok(manifests)
    }
}

impl CatalogClient for Sources {
    fn load<'c>(
        &'c self,
        location: &'c Location,
        known: Option<&'c str>,
    ) -> BoxFuture<'c, Result<Option<Loaded>, SourceError>> {
        Box::pin(async move {
            let loaded = match location {
                Location::Folder(path) => {
                    let content = Arc::new(Content::new(blobs(&read_folder(path)?)?));
                    Loaded { content, revision: String::new() }
                }
                Location::ConfigMap { resource_version, .. } if known == Some(resource_version) => return Ok(None),
                Location::ConfigMap { data, resource_version } => {
                    let content = Arc::new(Content::new(config_map::blobs(data)?));
                    Loaded { content, revision: resource_version.clone() }
                }
                Location::Grpc { address, source } => {
                    let (content, fingerprint, connection) = grpc::load(address).await?;
                    self.connections.keep(source, address, connection);
                    let content = Arc::new(content);
                    let listed = content.clone();
                    let digest = offload(move || content_digest(&listed)).await;
                    Loaded { content, revision: format!("{fingerprint}/{digest}") }
                }
                Location::Image { image, secrets } => return self.image(image, secrets, known).await,
            };
            Ok(Some(loaded))
        })
    }

    fn check<'c>(&'c self, location: &'c Location) -> BoxFuture<'c, Result<(), SourceError>> {
        Box::pin(async move {
            if let Location::Grpc { address, source } = location {
                self.connections.check(source, address).await?;
            }
            Ok(())
        })
    }

    fn is_unchanged<'c>(
        &'c self,
        location: &'c Location,
        revision: &'c str,
    ) -> BoxFuture<'c, Result<bool, SourceError>> {
        Box::pin(async move {
            let Location::Grpc { address, source } = location else { return Ok(false) };
            let (fingerprint, connection) = grpc::fingerprint(address).await?;
            self.connections.keep(source, address, connection);
            Ok(revision.split_once('/').is_some_and(|(known, _)| known == fingerprint))
        })
    }

    fn digest<'c>(
        &'c self,
        bundle: &'c PackageBundle,
        secrets: &'c [String],
    ) -> BoxFuture<'c, Result<Option<String>, SourceError>> {
        Box::pin(self.image_digest(bundle, secrets))
    }

    fn manifests<'c>(
        &'c self,
        bundle: &'c PackageBundle,
        secrets: &'c [String],
    ) -> BoxFuture<'c, Result<Manifests, SourceError>> {
        Box::pin(async move {
            let name = || bundle.name().to_owned();
            match bundle.manifests() {
                Some(manifests) => manifests.map_err(|source| SourceError::Manifests { bundle: name(), source }),
                None if bundle.image.is_empty() => Err(SourceError::NoManifests { bundle: name() }),
                None => self.bundle_image(bundle, secrets).await,
            }
        })
    }
}

/// Runs a long computation on another thread: the contents of images and registries take seconds.
async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    flyball::offload(QUICK_TIME, work).await
}

/// Returns the blobs of a folder: of a file-based catalog, or of a package in the old format.
///
/// # Errors
///
/// If a file is invalid.
pub fn blobs(files: &Files) -> Result<Blobs, SourceError> {
    if is_package_folder(files) { Ok(read_package_folder(files)?) } else { Ok(Blobs::parse(files)?) }
}

/// Returns true for a package in the old format: a file such as `etcd.package.yaml` at the top.
fn is_package_folder(files: &Files) -> bool {
    let is_package = |path: &str| {
        ["package.yaml", "package.yml"].iter().any(|name| path == *name || path.ends_with(&format!(".{name}")))
    };
    files.iter().any(|(path, _)| !path.contains('/') && is_package(path))
}
