//! The methods of the registry API and of gRPC's health protocol, as a function from request to messages.

use super::answers;
use super::frame::{Code, GrpcError, decode, encode};
use super::messages::{
    GetAllProvidersRequest, GetAllReplacementsRequest, GetBundleInChannelRequest, GetBundleRequest, GetPackageRequest,
    GetReplacementRequest, HealthCheckRequest, HealthCheckResponse, ListBundlesRequest, ListPackageRequest,
    PackageName, ServingStatus,
};
use super::{REGISTRY, messages};
use crate::content::Content;
use bytes::Bytes;
use parking_lot::RwLock;
use prost::Message;
use std::sync::Arc;

/// The service of health.
const HEALTH: &str = "grpc.health.v1.Health";

/// The messages of a response. A list is built while it is sent.
pub(super) type Messages = Box<dyn Iterator<Item = Bytes> + Send>;

/// A catalog that is served. Clones share the content.
#[derive(Clone, Debug)]
pub struct Service(Arc<RwLock<Arc<Content>>>);

impl Service {
    /// Creates a service for the content of a catalog.
    pub fn new(content: Arc<Content>) -> Self {
        Self(Arc::new(RwLock::new(content)))
    }

    /// Replaces the content. Requests that are being answered keep the old one.
    pub fn replace(&self, content: Arc<Content>) {
        *self.0.write() = content;
    }

    /// Answers the call of a method, such as `/api.Registry/GetPackage`.
    pub(super) fn call(&self, path: &str, request: &[u8]) -> Result<Messages, GrpcError> {
        let content = self.0.read().clone();
        match path.strip_prefix('/').and_then(|path| path.split_once('/')) {
            Some((REGISTRY, method)) => registry(content, method, request),
            Some((HEALTH, "Check")) => check(request),
            _ => Err(unimplemented(path)),
        }
    }
}

fn unimplemented(path: &str) -> GrpcError {
    GrpcError::new(Code::Unimplemented, format!("unknown method {path}"))
}

fn registry(content: Arc<Content>, method: &str, request: &[u8]) -> Result<Messages, GrpcError> {
    match method {
        "ListPackages" => {
            let ListPackageRequest {} = decode(request)?;
            Ok(Box::new(package_names(content).map(|name| encode(&PackageName { name }))))
        }
        "ListBundles" => {
            let ListBundlesRequest {} = decode(request)?;
            Ok(Box::new(all_bundles(content).map(|bundle| encode(&bundle))))
        }
        "GetPackage" => {
            let GetPackageRequest { name } = decode(request)?;
            answers::get_package(&content, &name).map(one)
        }
        "GetBundle" => {
            let GetBundleRequest { pkg_name, channel_name, csv_name } = decode(request)?;
            answers::get_bundle(&content, &pkg_name, &channel_name, &csv_name).map(one)
        }
        "GetBundleForChannel" => {
            let GetBundleInChannelRequest { pkg_name, channel_name } = decode(request)?;
            answers::get_bundle_for_channel(&content, &pkg_name, &channel_name).map(one)
        }
        "GetBundleThatReplaces" => {
            let GetReplacementRequest { csv_name, pkg_name, channel_name } = decode(request)?;
            answers::bundle_that_replaces(&content, &csv_name, &pkg_name, &channel_name).map(one)
        }
        "GetChannelEntriesThatReplace" => {
            let GetAllReplacementsRequest { csv_name } = decode(request)?;
            answers::entries_that_replace(&content, &csv_name).map(several)
        }
        "GetChannelEntriesThatProvide" => {
            let api: GetAllProvidersRequest = decode(request)?;
            answers::entries_that_provide(&content, &api).map(several)
        }
        "GetLatestChannelEntriesThatProvide" => {
            let api = decode(request)?;
            answers::latest_entries_that_provide(&content, &api).map(several)
        }
        "GetDefaultBundleThatProvides" => {
            let api = decode(request)?;
            answers::default_bundle_that_provides(&content, &api).map(one)
        }
        _ => Err(unimplemented(method)),
    }
}

fn check(request: &[u8]) -> Result<Messages, GrpcError> {
    let HealthCheckRequest { service } = decode(request)?;
    if !service.is_empty() && service != REGISTRY {
        return Err(GrpcError::new(Code::NotFound, format!("unknown service {service:?}")));
    }
    Ok(one(HealthCheckResponse { status: ServingStatus::Serving.into() }))
}

fn one(message: impl Message) -> Messages {
    Box::new(std::iter::once(encode(&message)))
}

fn several<T: Message + 'static>(messages: Vec<T>) -> Messages {
    Box::new(messages.into_iter().map(|message| encode(&message)))
}

/// Returns the names of all packages. Few are in memory at a time, since clients may read slowly.
fn package_names(content: Arc<Content>) -> impl Iterator<Item = String> + Send {
    const PART: usize = 64;
    let parts = (0..).step_by(PART).map(move |begin| {
        let part = content.packages().skip(begin).take(PART);
        part.map(|package| package.name.clone()).collect::<Vec<_>>()
    });
    parts.take_while(|names| !names.is_empty()).flatten()
}

/// Returns the bundles of all channels, one at a time.
fn all_bundles(content: Arc<Content>) -> impl Iterator<Item = messages::Bundle> + Send {
    package_names(content.clone()).flat_map(move |name| {
        let content = content.clone();
        let mut at = 0;
        std::iter::from_fn(move || {
            at += 1;
            answers::listed_bundle(&content, &name, at - 1)
        })
    })
}
