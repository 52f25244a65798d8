//! Parameters of policies: users cannot read objects through a policy without permission.
//!
//! The messages of a policy may show its parameters. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#parameter-resources>.

use super::{Attributes, Plugin, PluginResult, decided, pass};
use crate::auth::{Action, ActionTarget, Authorizer, User};
use crate::codec::Codec;
use crate::kinds::{
    Kind, MUTATING_ADMISSION_POLICY, MUTATING_ADMISSION_POLICY_BINDING, VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
};
use crate::storage::Store;
use flyball_core::field::FieldError;
use flyball_core::{GroupVersion, Object, ObjectKey, Status};
use serde_json::Value;
use std::sync::Arc;

pub(super) static KINDS: [&Kind; 4] = [
    &VALIDATING_ADMISSION_POLICY,
    &VALIDATING_ADMISSION_POLICY_BINDING,
    &MUTATING_ADMISSION_POLICY,
    &MUTATING_ADMISSION_POLICY_BINDING,
];

/// Rejects policies and bindings with parameters that the client may not read.
pub(super) struct ParameterAccess {
    store: Arc<Store>,
    codec: Arc<Codec>,
    authorizer: Arc<Authorizer>,
}

impl Plugin for ParameterAccess {
    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        object.map_or_else(pass, |object| decided(self.check(attributes, object)))
    }
}

impl ParameterAccess {
    pub(super) fn new(store: Arc<Store>, codec: Arc<Codec>, authorizer: Arc<Authorizer>) -> Self {
        Self { store, codec, authorizer }
    }

    fn check(&self, attributes: &Attributes<'_>, object: &Object) -> Result<(), Status> {
        let rejection = if attributes.is(&VALIDATING_ADMISSION_POLICY_BINDING) {
            self.check_binding(attributes, object, &VALIDATING_ADMISSION_POLICY)
        } else if attributes.is(&MUTATING_ADMISSION_POLICY_BINDING) {
            self.check_binding(attributes, object, &MUTATING_ADMISSION_POLICY)
        } else {
            self.check_policy(attributes, object)
        };
        let Some(error) = rejection else { return Ok(()) };
        Err(Status::invalid(&attributes.resource.error_kind(), object.name(), &[error]))
    }

    /// Checks the permission to read all objects of the parameter kind: a policy may read any of them.
    fn check_policy(&self, attributes: &Attributes<'_>, policy: &Object) -> Option<FieldError> {
        let kind = param_kind(policy)?;
        if attributes.old.and_then(param_kind) == Some(kind) {
            return None;
        }
        let user = attributes.user;
        // No role binding is in this namespace: only those of the cluster count. No rule for single names allows it.
        if self.may(user, "get", Some(kind), "*", "") {
            return None;
        }
        let why = format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            go_user(user),
            text(kind, "kind"),
            text(kind, "apiVersion"),
        );
        Some(FieldError::forbidden("spec.paramKind", why))
    }

    fn check_binding(&self, attributes: &Attributes<'_>, binding: &Object, policies: &Kind) -> Option<FieldError> {
        let reference = |binding: &Object| {
            let params = binding.at(&["spec", "paramRef"]).filter(|params| params.is_object())?;
            Some((params.clone(), binding.at(&["spec", "policyName"]).cloned()))
        };
        let (params, policy) = reference(binding)?;
        if attributes.old.and_then(reference).is_some_and(|old| old == (params.clone(), policy.clone())) {
            return None;
        }
        let key = ObjectKey::new(None, policy.as_ref().and_then(Value::as_str).unwrap_or_default());
        let policy = self.store.get(&policies.table(), &key).and_then(|entry| entry.object().ok());
        let kind = policy.as_ref().and_then(param_kind);
        let (user, name) = (attributes.user, text(&params, "name"));
        let verb = if name.is_empty() { "list" } else { "get" };
        if self.may(user, verb, kind, text(&params, "namespace"), name) {
            return None;
        }
        let why =
            format!("user {} does not have \"{verb}\" permission on the object referenced by paramRef", go_user(user));
        Some(FieldError::forbidden("spec.paramRef", why))
    }

    /// Returns true if a user may read parameters: any resource where the kind is not known.
    fn may(&self, user: &User, verb: &str, kind: Option<&Value>, namespace: &str, name: &str) -> bool {
        let version = kind.and_then(|kind| GroupVersion::parse(text(kind, "apiVersion")));
        let catalog = self.codec.catalog();
        let resource = kind.and_then(|kind| catalog.served(text(kind, "apiVersion"), text(kind, "kind")));
        let on = ActionTarget::Resource {
            group: version.as_ref().map_or("*", |version| &version.group),
            resource: resource.map_or("*", |resource| &resource.plural),
            subresource: "",
            namespace,
            name,
        };
        self.authorizer.authorize(&Action { user, verb, on }).is_ok()
    }
}

fn param_kind(policy: &Object) -> Option<&Value> {
    policy.at(&["spec", "paramKind"]).filter(|kind| kind.is_object())
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

/// Prints a user as Go prints the struct.
fn go_user(user: &User) -> String {
    let extra: Vec<_> = user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}
