//! Service accounts.

use super::GROUP;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer;
use crate::kinds::subresource::Subresource as Sub;
use flyball_core::Object;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ServiceAccount", "serviceaccounts")
    .printed(printer::NAMED, printer::named)
    .checks(Checks::Whole)
    .warn(warn)
    .short(&["sa"])
    .subresources(&[Sub::TOKEN])
    .deleted_as_object();

/// Warns about the deprecated annotation that enforces mountable secrets.
fn warn(object: &Object, old: Option<&Object>) -> Vec<String> {
    const ENFORCED: &str = "kubernetes.io/enforce-mountable-secrets";
    let set = |object: &Object| object.annotation(ENFORCED).is_some();
    let new = set(object) && !old.is_some_and(set);
    let warning = "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
    new.then(|| warning.to_owned()).into_iter().collect()
}
