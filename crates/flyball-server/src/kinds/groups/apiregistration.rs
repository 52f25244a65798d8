//! Kinds of `apiregistration.k8s.io`.

use crate::kinds::kind::{Checks, Kind, Subresource as Sub};
use crate::kinds::{printers, registration};

const GROUP: &str = "apiregistration.k8s.io";

/// The category of what extends the API.
const EXTENSIONS: &str = "api-extensions";

pub(super) const KINDS: &[Kind] = &[Kind::new(GROUP, "v1", "APIService", "apiservices")
    .stored_as_json()
    .registry_path("apiregistration.k8s.io/apiservices")
    .printed(printers::cluster::api_service)
    .default(registration::default)
    .prepare(registration::prepare)
    .validate(registration::validate)
    .checks(Checks::Whole)
    .category(EXTENSIONS)
    .cluster()
    .subresources(&[Sub::STATUS])];
