//! Certificate requests: sets the requesting user, and authorizes approval and signing.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>.

use super::{Attributes, Operation, Plugin, PluginResult, Reinvocation, decided, pass};
use crate::auth::{Action, ActionTarget, Authorizer, MASTERS};
use crate::kinds::{CERTIFICATE_SIGNING_REQUEST, Kind, Part, requested_groups};
use flyball_core::field::go_quote;
use flyball_core::{Object, Status};
use serde_json::Value;
use std::sync::Arc;

pub(super) static KINDS: [&Kind; 1] = [&CERTIFICATE_SIGNING_REQUEST];

/// The signer of client certificates of kube-apiserver.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// CertificateApproval, CertificateSigning and CertificateSubjectRestriction; also sets the requesting user.
pub(super) struct Certificates {
    authorizer: Arc<Authorizer>,
}

impl Certificates {
    pub(super) fn new(authorizer: Arc<Authorizer>) -> Self {
        Self { authorizer }
    }
}

impl Plugin for Certificates {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        _: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        if let Some(request) = object.filter(|_| attributes.operation == Operation::Create) {
            record_requester(attributes, request);
        }
        pass()
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        match (object, attributes.old) {
            (Some(object), Some(old)) => decided(check(&self.authorizer, attributes, object, old)),
            (Some(object), None) => decided(restrict_subject(attributes, object)),
            _ => pass(),
        }
    }
}

/// Sets the requesting user, and overrides values of the client.
fn record_requester(attributes: &Attributes<'_>, request: &mut Object) {
    let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.extend(attributes.user.info());
}

/// Rejects requests for client certificates of the group `system:masters`, as the plugin
/// `CertificateSubjectRestriction` does.
fn restrict_subject(attributes: &Attributes<'_>, request: &Object) -> Result<(), Status> {
    if request.at(&["spec", "signerName"]).and_then(Value::as_str) != Some(CLIENT_SIGNER) {
        return Ok(());
    }
    if !requested_groups(request).iter().any(|group| group == MASTERS) {
        return Ok(());
    }
    let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
    Err(Status::forbidden(&attributes.resource.group_resource(), request.name(), why))
}

/// Rejects approvals and certificates of users without permission for the signer.
fn check(authorizer: &Authorizer, attributes: &Attributes<'_>, object: &Object, old: &Object) -> Result<(), Status> {
    let verb = match attributes.part {
        Part::Approval => "approve",
        Part::Status if signed(object) != signed(old) => "sign",
        _ => return Ok(()),
    };
    let signer = old.at(&["spec", "signerName"]).and_then(Value::as_str).unwrap_or_default();
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let may = |name: &str| {
        let on = ActionTarget::Resource {
            group: CERTIFICATE_SIGNING_REQUEST.group,
            resource: "signers",
            subresource: "",
            namespace: "",
            name,
        };
        authorizer.authorize(&Action { user: attributes.user, verb, on }).is_ok()
    };
    if may(signer) || may(&domain) {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {}", go_quote(signer));
    Err(Status::forbidden(&attributes.resource.group_resource(), object.name(), why))
}

/// Returns the result of a signer: a certificate, or failure conditions.
fn signed(request: &Object) -> (Option<&Value>, Vec<&Value>) {
    let conditions = request.at(&["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    let failed = conditions.filter(|condition| condition["type"] == "Failed").map(|condition| &condition["status"]);
    (request.at(&["status", "certificate"]), failed.collect())
}
