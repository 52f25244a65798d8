//! PackageManifests: the packages of the visible catalogs, as a read-only API.
//!
//! [`PackageServer`] holds the packages of all catalogs and answers requests to `packages.operators.coreos.com`: a
//! function from request to response, as the API server itself is. [`serve`] offers it over TLS to the API server,
//! which forwards the requests that an APIService selects; it has authenticated and authorized them before. [`publish`]
//! creates the certificates, the Service and the APIService.
//! See <https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/>.

mod api;
mod front_proxy;
mod manifest;
mod open_watches;
mod openapi;
mod publication;
mod table;
mod watch;

pub use api::PackageServer;
pub use front_proxy::{FrontProxy, InvalidFrontProxy, serve};
pub(crate) use manifest::RESOURCE;
pub use manifest::{CatalogSummary, GROUP, VERSION};
pub use publication::{PublicationError, Reach, publication_rules, publish};
