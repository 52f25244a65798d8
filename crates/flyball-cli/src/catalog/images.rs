//! Images of catalogs and bundles, pulled by the registry client of `flyball image`.

use crate::image::credentials::{self, Credentials};
use crate::image::reference::Reference;
use crate::image::registry::{Purpose, Registry};
use crate::image::{DOCKER_INDEX, DOCKER_MANIFEST, INDEX, MANIFEST};
use crate::web::Web;
use flyball_lifecycle::ImageName;
use flyball_lifecycle::source::{ImageRegistry, PullError, Repository};
use futures_util::future::BoxFuture;
use std::path::PathBuf;
use std::time::Duration;

/// Timeout of a response, which may contain a large layer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(600);

/// Pulls images with the credentials of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Images {
    /// Use HTTP without TLS also for registries of other machines.
    pub(crate) is_insecure: bool,
}

impl ImageRegistry for Images {
    fn open<'r>(
        &'r self,
        image: &'r ImageName,
        secrets: &'r [String],
    ) -> BoxFuture<'r, Result<Box<dyn Repository>, PullError>> {
        Box::pin(async move {
            let (registry, repository) = (image.registry.clone(), image.repository.clone());
            let reference = Reference { registry, repository, tag: image.version().to_owned() };
            let mut found = None;
            for secret in secrets {
                found = found.or(Credentials::of_secret(secret, &reference.registry).map_err(failed)?);
            }
            if found.is_none() {
                let files: Vec<PathBuf> = credentials::path().into_iter().collect();
                found = Credentials::find(&files, &reference.registry).await.map_err(failed)?;
            }
            let plain = self.is_insecure || reference.is_loopback();
            let web = Web::new(RESPONSE_TIMEOUT).map_err(failed)?;
            let registry = Registry::connect_with(web, found, &reference, plain, Purpose::Pull).await;
            Ok(Box::new(Pulling(registry.map_err(failed)?)) as Box<dyn Repository>)
        })
    }
}

fn failed(error: crate::error::Error) -> PullError {
    PullError(error.to_string())
}

/// A repository that images are pulled from.
struct Pulling(Registry);

impl Repository for Pulling {
    fn manifest<'r>(&'r mut self, version: &'r str) -> BoxFuture<'r, Result<Vec<u8>, PullError>> {
        Box::pin(async move {
            let types = [INDEX, MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST];
            let found = self.0.get_manifest(version, &types).await.map_err(failed)?;
            found.map(Into::into).ok_or_else(|| PullError(format!("the registry has no {version}")))
        })
    }

    fn blob<'r>(&'r mut self, digest: &'r str, max_bytes: usize) -> BoxFuture<'r, Result<Vec<u8>, PullError>> {
        Box::pin(async move {
            let blob = self.0.download_blob(digest, max_bytes, &mut |_, _| ()).await;
            blob.map(Into::into).map_err(failed)
        })
    }
}
