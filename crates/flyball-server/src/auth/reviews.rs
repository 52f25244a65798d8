//! Reviews of authentication and authorization, and token requests.

use super::tokens::BOUND_KINDS;
use super::{Action, ActionTarget, Authenticator, Authorizer, Bound, Decision, User};
use crate::catalog::Target;
use crate::kinds::Review;
use crate::storage::Store;
use flyball_core::field::{BadValue, FieldError};
use flyball_core::{GroupResource, GroupVersionKind, Object, ObjectKey, Status, time};
use serde_json::{Value, json};

/// Rejects an invalid review.
pub(crate) fn check(user: &User, target: &Target, review: &Object) -> Result<(), Status> {
    let errors = match target.resource.review() {
        Some(Review::Token) if text(review.at(&["spec", "token"])).is_empty() => {
            return Err(Status::bad_request("token is required for TokenReview in authentication"));
        }
        Some(Review::SelfRules) if text(review.at(&["spec", "namespace"])).is_empty() => {
            return Err(Status::bad_request("no namespace on request"));
        }
        Some(Review::SelfAccess) => access_errors(target, user, review),
        Some(Review::Access | Review::LocalAccess) => access_errors(target, &subject(review), review),
        _ => Vec::new(),
    };
    if errors.is_empty() {
        return Ok(());
    }
    // kube-apiserver does not name the kind here.
    Err(Status::invalid(&GroupVersionKind::new("authorization.k8s.io", "", ""), "", &errors))
}

/// Responds to a valid review with its status.
pub(crate) fn respond(
    auth: &Authenticator,
    user: &User,
    target: &Target,
    mut review: Object,
) -> Result<Object, Status> {
    let status = match target.resource.review() {
        Some(Review::SelfSubject) => json!({"userInfo": user.info()}),
        Some(Review::Token) => token_review(auth, &review),
        Some(Review::SelfRules) => rules_review(&auth.authorizer, user, &mut review),
        Some(Review::SelfAccess) => access_review(&auth.authorizer, user, &review),
        Some(Review::Access | Review::LocalAccess) => access_review(&auth.authorizer, &subject(&review), &review),
        None => return Err(Status::method_not_allowed()),
    };
    // The response to these is a separate object.
    if matches!(target.resource.review(), Some(Review::SelfSubject | Review::SelfRules)) {
        review.metadata_mut().remove("managedFields");
    }
    if target.resource.review() == Some(Review::SelfSubject) {
        review.metadata_mut().insert("creationTimestamp".into(), auth.clock.now_rfc3339().into());
    }
    review.insert("status".into(), status);
    Ok(review)
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

fn texts(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn invalid(group: &str, kind: &str, error: FieldError) -> Status {
    Status::invalid(&GroupVersionKind::new(group, "", kind), "", &[error])
}

/// The user that a review is about.
fn subject(review: &Object) -> User {
    let extra = review.at(&["spec", "extra"]).and_then(Value::as_object).into_iter().flatten();
    User {
        name: text(review.at(&["spec", "user"])).to_owned(),
        uid: text(review.at(&["spec", "uid"])).to_owned(),
        groups: texts(review.at(&["spec", "groups"])),
        extra: extra.map(|(key, values)| (key.clone(), texts(Some(values)))).collect(),
    }
}

/// Validates an access review.
fn access_errors(target: &Target, user: &User, review: &Object) -> Vec<FieldError> {
    const RESOURCE: &str = "spec.resourceAttributes";
    const PATH: &str = "spec.nonResourceAttributes";
    let mut errors = Vec::new();
    let part = |field: &str| review.at(&["spec", field]).filter(|value| value.is_object());
    let (resource, path) = (part("resourceAttributes"), part("nonResourceAttributes"));
    let kind = target.resource.review();
    let is_local = kind == Some(Review::LocalAccess);
    let shown = path.map(|path| {
        let quoted = |field: &str| json!(text(path.get(field)));
        BadValue::Raw(format!("{{\"Path\":{},\"Verb\":{}}}", quoted("path"), quoted("verb")))
    });
    if let (Some(_), Some(shown)) = (resource, &shown) {
        let detail = "cannot be specified in combination with resourceAttributes";
        errors.push(FieldError::invalid(PATH, shown.clone(), detail));
    }
    if resource.is_none() && path.is_none() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid(RESOURCE, Value::Null, detail));
    }
    if kind != Some(Review::SelfAccess) && user.name.is_empty() && user.groups.is_empty() {
        errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    for name in ["fieldSelector", "labelSelector"] {
        let Some(selector) = resource.and_then(|resource| resource.get(name)).filter(|value| value.is_object()) else {
            continue;
        };
        let (raw, list) = (text(selector.get("rawSelector")), selector.get("requirements").and_then(Value::as_array));
        let has_list = list.is_some_and(|list| !list.is_empty());
        let at = format!("{RESOURCE}.{name}");
        if !raw.is_empty() && has_list {
            let detail = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{at}.rawSelector"), raw, detail));
        }
        if raw.is_empty() && !has_list {
            let detail = format!("when {at} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{at}.requirements"), detail));
        }
    }
    let metadata = review.get("metadata").cloned().unwrap_or_default();
    let known = |field: &str| field == "managedFields" || field == "namespace" && is_local;
    if metadata.as_object().is_some_and(|metadata| metadata.keys().any(|field| !known(field))) {
        let node = target.resource.schema.node().field("metadata");
        let shown = node.map_or_else(|| metadata.to_string(), |node| flyball_schema::decode::print(node, &metadata));
        let detail = if is_local { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid("metadata", BadValue::Raw(shown), detail));
    }
    if is_local {
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let requested = text(resource.and_then(|resource| resource.get("namespace")));
        if resource.is_some() && requested != namespace {
            errors.push(FieldError::invalid(
                format!("{RESOURCE}.namespace"),
                requested,
                "must match metadata.namespace",
            ));
        }
        if let Some(shown) = shown {
            errors.push(FieldError::invalid(PATH, shown, "disallowed on this kind of request"));
        }
    }
    errors
}

fn access_review(authorizer: &Authorizer, user: &User, review: &Object) -> Value {
    let part = |field: &str| review.at(&["spec", field]).filter(|value| value.is_object());
    let decision = if let Some(attributes) = part("resourceAttributes") {
        let part = |field: &str| text(attributes.get(field));
        let on = ActionTarget::Resource {
            group: part("group"),
            resource: part("resource"),
            subresource: part("subresource"),
            namespace: part("namespace"),
            name: part("name"),
        };
        authorizer.decide(&Action { user, verb: part("verb"), on })
    } else {
        let attributes = part("nonResourceAttributes").unwrap_or(&Value::Null);
        let on = ActionTarget::Path(text(attributes.get("path")));
        authorizer.decide(&Action { user, verb: text(attributes.get("verb")), on })
    };
    match decision {
        Decision::Allowed(reason) if reason.is_empty() => json!({"allowed": true}),
        Decision::Allowed(reason) => json!({"allowed": true, "reason": reason}),
        Decision::NoOpinion => json!({"allowed": false}),
    }
}

/// Maximum size of the rules that a review lists, in bytes; others are omitted, which the response reports.
const MAX_REVIEWED_BYTES: usize = 1 << 20;

fn rules_review(authorizer: &Authorizer, user: &User, review: &mut Object) -> Value {
    let namespace = text(review.at(&["spec", "namespace"])).to_owned();
    // The response does not contain the namespace.
    review.insert("spec".into(), json!({}));
    let roles = authorizer.roles_of(user, &namespace);
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    let mut room = MAX_REVIEWED_BYTES;
    let mut rules = roles.iter().flat_map(|role| role.iter());
    let incomplete = rules.any(|rule| {
        let Some(remaining) = room.checked_sub(rule.bytes()) else { return true };
        room = remaining;
        if rule.paths.is_empty() { &mut resources } else { &mut paths }.push(rule.write());
        false
    });
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": incomplete});
    if incomplete {
        status["evaluationError"] = "the list of rules is truncated".into();
    }
    status
}

fn token_review(auth: &Authenticator, review: &Object) -> Value {
    let token = text(review.at(&["spec", "token"]));
    let mut audiences = texts(review.at(&["spec", "audiences"]));
    if audiences.is_empty() {
        audiences = vec![super::tokens::ISSUER.to_owned()];
    }
    match auth.bearer(token, &audiences) {
        Ok((user, audiences)) => json!({"authenticated": true, "user": user.info(), "audiences": audiences}),
        Err(error) => json!({"user": {}, "error": error.to_string()}),
    }
}

/// Minimum and maximum lifetime of a token, in seconds.
const LIFETIME: std::ops::RangeInclusive<i64> = 600..=1 << 32;

/// Validates the spec of a token request, and sets defaults.
pub(crate) fn check_token(account: &Object, request: &mut Object) -> Result<(), Status> {
    if !request.name().is_empty() && request.name() != account.name() {
        let detail = "must match the service account name if specified";
        let error = FieldError::invalid("metadata.name", request.name(), detail);
        let kind = GroupVersionKind::new("authentication.k8s.io", "", "TokenRequest");
        return Err(Status::invalid(&kind, account.name(), &[error]));
    }
    let seconds = request.at(&["spec", "expirationSeconds"]).and_then(Value::as_i64).unwrap_or(3600);
    if !LIFETIME.contains(&seconds) {
        let detail = if seconds < *LIFETIME.start() {
            "may not specify a duration less than 10 minutes"
        } else {
            "may not specify a duration larger than 2^32 seconds"
        };
        return Err(invalid(
            "authentication.k8s.io",
            "TokenRequest",
            FieldError::invalid("spec.expirationSeconds", seconds, detail),
        ));
    }
    let mut audiences = texts(request.at(&["spec", "audiences"]));
    if audiences.is_empty() {
        audiences = vec![super::tokens::ISSUER.to_owned()];
    }
    let reference = request.at(&["spec", "boundObjectRef"]).cloned().unwrap_or_default();
    request.insert(
        "spec".into(),
        json!({"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference}),
    );
    Ok(())
}

/// Issues the token of a validated request.
pub(crate) fn issue_token(auth: &Authenticator, account: &Object, request: &mut Object) -> Result<(), Status> {
    let seconds = request.at(&["spec", "expirationSeconds"]).and_then(Value::as_i64).unwrap_or(3600);
    let audiences = texts(request.at(&["spec", "audiences"]));
    let namespace = account.namespace().unwrap_or_default();
    let bound = match request.at(&["spec", "boundObjectRef"]).filter(|value| value.is_object()) {
        Some(reference) => Some(bound_object(&auth.store, namespace, reference)?),
        None => None,
    };
    let account = (namespace, account.name(), account.uid());
    let (token, ends) = auth.issuer.issue(account, bound.as_ref(), &audiences, seconds, &auth.clock, &auth.rng);
    let ends = time::Timestamp::from_second(ends).map(time::rfc3339).unwrap_or_default();
    request.insert("status".into(), json!({"token": token, "expirationTimestamp": ends}));
    Ok(())
}

/// Finds the object that a token is bound to.
fn bound_object(store: &Store, namespace: &str, reference: &Value) -> Result<Bound, Status> {
    let (kind, name, uid) = (text(reference.get("kind")), text(reference.get("name")), text(reference.get("uid")));
    let Some(&of) = BOUND_KINDS.iter().find(|of| of.kind == kind) else {
        let version = text(reference.get("apiVersion"));
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
        return Err(Status::bad_request(message));
    };
    let resource = of.table();
    let Some(entry) = store.get(&resource, &ObjectKey::new(Some(namespace).filter(|_| of.namespaced), name)) else {
        return Err(Status::not_found(&resource, name));
    };
    let object = entry.object()?;
    if !uid.is_empty() && uid != object.uid() {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(&GroupResource::new("", kind), name, why));
    }
    Ok(Bound { kind: of, name: name.into(), uid: object.uid().into() })
}
