//! Requests for certificates say who sent them, and only those who may, approve and sign.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>.

use super::{Attributes, Operation};
use crate::auth::{Action, On};
use crate::kinds::Part;
use crate::server::Inner;
use flyball_core::field::go_quote;
use flyball_core::{Object, Status};
use serde_json::Value;

const GROUP: &str = "certificates.k8s.io";

/// Writes down who asks, whatever the request itself says of it.
pub(super) fn admit(attributes: &Attributes<'_>, request: &mut Object) {
    if attributes.operation != Operation::Create || !attributes.is(GROUP, "certificatesigningrequests") {
        return;
    }
    let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.extend(attributes.user.info());
}

/// Refuses approvals and certificates by those who may not give them for the signer.
pub(super) fn check(
    inner: &Inner,
    attributes: &Attributes<'_>,
    object: &Object,
    old: Option<&Object>,
) -> Result<(), Status> {
    let Some(old) = old.filter(|_| attributes.is(GROUP, "certificatesigningrequests")) else { return Ok(()) };
    let verb = match attributes.part {
        Part::Approval => "approve",
        Part::Status if signed(object) != signed(old) => "sign",
        _ => return Ok(()),
    };
    let signer = old.at(&["spec", "signerName"]).and_then(Value::as_str).unwrap_or_default();
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let may = |name: &str| {
        let on = On::Resource { group: GROUP, resource: "signers", subresource: "", namespace: "", name };
        inner.authorize(&Action { user: attributes.user, verb, on }).is_ok()
    };
    if may(signer) || may(&domain) {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {}", go_quote(signer));
    Err(Status::forbidden(&attributes.resource.group_resource(), object.name(), why))
}

/// What a signer has to say: a certificate, or that there will be none.
fn signed(request: &Object) -> (Option<&Value>, Vec<&Value>) {
    let conditions = request.at(&["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    let failed = conditions.filter(|condition| condition["type"] == "Failed").map(|condition| &condition["status"]);
    (request.at(&["status", "certificate"]), failed.collect())
}
