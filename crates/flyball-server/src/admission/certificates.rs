//! Certificate requests: sets the requesting user, restricts subjects, and authorizes approval and signing.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>.

use super::{Attributes, Operation, Plugin, PluginResult, Reinvocation, decided, pass};
use crate::auth::{Action, ActionTarget, Authorizer, MASTERS};
use crate::kinds::{CERTIFICATE_SIGNING_REQUEST, Part, requested_groups};
use flyball_core::field::go_quote;
use flyball_core::{Object, Status};
use serde_json::Value;
use std::sync::Arc;

/// The signer of client certificates of kube-apiserver.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// CertificateApproval: requires the permission to approve requests for a signer.
pub(super) struct CertificateApproval {
    authorizer: Arc<Authorizer>,
}

impl CertificateApproval {
    pub(super) fn new(authorizer: Arc<Authorizer>) -> Self {
        Self { authorizer }
    }
}

impl Plugin for CertificateApproval {
    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        match (object, attributes.old) {
            (Some(object), Some(old)) if attributes.part == Part::Approval => {
                decided(require(&self.authorizer, attributes, "approve", object, old))
            }
            _ => pass(),
        }
    }
}

/// CertificateSigning: requires the permission to sign as a signer.
pub(super) struct CertificateSigning {
    authorizer: Arc<Authorizer>,
}

impl CertificateSigning {
    pub(super) fn new(authorizer: Arc<Authorizer>) -> Self {
        Self { authorizer }
    }
}

impl Plugin for CertificateSigning {
    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        match (object, attributes.old) {
            (Some(object), Some(old)) if attributes.part == Part::Status && signed(object) != signed(old) => {
                decided(require(&self.authorizer, attributes, "sign", object, old))
            }
            _ => pass(),
        }
    }
}

/// CertificateSubjectRestriction: rejects requests for client certificates of administrators.
pub(super) struct CertificateSubjectRestriction;

impl Plugin for CertificateSubjectRestriction {
    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        match (object, attributes.old) {
            (Some(object), None) => decided(restrict_subject(attributes, object)),
            _ => pass(),
        }
    }
}

/// Sets the requesting user of certificate requests, which kube-apiserver does in their storage.
pub(super) struct CertificateRequester;

impl Plugin for CertificateRequester {
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
}

/// Sets the requesting user, and overrides values of the client.
fn record_requester(attributes: &Attributes<'_>, request: &mut Object) {
    let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.extend(attributes.user.info());
}

/// Rejects requests for client certificates of the group `system:masters`.
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

/// Rejects users without permission for the signer of a request.
fn require(
    authorizer: &Authorizer,
    attributes: &Attributes<'_>,
    verb: &str,
    object: &Object,
    old: &Object,
) -> Result<(), Status> {
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
