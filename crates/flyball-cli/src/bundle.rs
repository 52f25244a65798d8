//! Bundles of operators in the format `registry+v1`, from the installation of a project.
//!
//! A bundle has the objects of `flyball deploy`, in the form that a lifecycle manager installs: it creates the account,
//! the roles, the Deployment and the webhooks from the ClusterServiceVersion; the other objects are files beside it.

mod csv;
mod descriptors;
mod details;
mod parts;
mod permissions;
mod webhooks;

pub(crate) use csv::{Project, csv};
pub(crate) use details::{Details, MODES, base_csv, check_details, parse_range, parse_version};
pub(crate) use parts::Parts;

use crate::error::Result;
use crate::operator::installation::{Installation, TargetArgs};

/// Folder in which a lifecycle manager mounts the certificate of webhooks.
const CERTIFICATES: &str = "/tmp/k8s-webhook-server/serving-certs";
/// Flag of the operator for this folder.
const CERTIFICATES_FLAG: &str = "--webhook-cert-dir";

/// Builds the installation of a project for a bundle. The lifecycle manager, not the operator, creates the certificate
/// of its webhooks.
pub(crate) async fn installation(target: &TargetArgs, namespace: Option<&str>, image: &str) -> Result<Installation> {
    let installation = Installation::load(target, namespace, Some(image)).await?;
    let is_set = target.args.iter().any(|arg| arg.starts_with(CERTIFICATES_FLAG));
    if installation.description.webhooks.is_empty() || is_set {
        return Ok(installation);
    }
    let mut target = target.clone();
    target.args.push(format!("{CERTIFICATES_FLAG}={CERTIFICATES}"));
    Installation::load(&target, namespace, Some(image)).await
}
