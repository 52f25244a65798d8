//! Admission requests.

use crate::cache::Caches;
use crate::kind::{Resource, key_of};
use flyball_core::ObjectKey;
use k8s_openapi::api::authentication::v1::UserInfo;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// Creation.
    Create,
    /// Update.
    Update,
    /// Deletion.
    Delete,
}

/// An admission request, with its objects decoded.
///
/// It follows the `AdmissionRequest` of
/// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>. Tests of validators
/// make requests without a cluster:
///
/// ```
/// use flyball::webhook::{AdmissionRequest, Operation, Validator, Verdict};
/// use flyball::{FieldError, Result};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// fn keeps_its_data(request: &AdmissionRequest<ConfigMap>) -> Result<Verdict> {
///     let lost = request.old().is_some_and(|old| old.data.is_some() && request.object().data.is_none());
///     Ok(Verdict::from_errors(lost.then(|| FieldError::forbidden("data", "must not be removed"))))
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let full = ConfigMap { data: Some([("a".into(), "1".into())].into()), ..ConfigMap::default() };
/// let request = AdmissionRequest::update(full, ConfigMap::default());
/// assert_eq!(request.operation(), Operation::Update);
/// assert!(!keeps_its_data.validate(&request).await.unwrap().is_allowed());
/// # });
/// ```
#[doc(alias = "admission.Request")]
#[doc(alias = "AdmissionReview")]
pub struct AdmissionRequest<T> {
    uid: String,
    operation: Operation,
    object: T,
    old: Option<T>,
    key: ObjectKey,
    subresource: String,
    user: UserInfo,
    dry_run: bool,
    caches: Arc<Caches>,
}

impl<T: Resource> AdmissionRequest<T> {
    /// Creates a request to create an object.
    pub fn create(object: T) -> Self {
        Self::by_hand(Operation::Create, object, None)
    }

    /// Creates a request to change `old` into `object`.
    pub fn update(old: T, object: T) -> Self {
        Self::by_hand(Operation::Update, object, Some(old))
    }

    /// Creates a request to delete an object.
    pub fn delete(object: T) -> Self {
        Self::by_hand(Operation::Delete, object, None)
    }

    /// Sets the user of the request.
    pub fn by(mut self, user: UserInfo) -> Self {
        self.user = user;
        self
    }

    fn by_hand(operation: Operation, object: T, old: Option<T>) -> Self {
        Self {
            uid: "made-by-hand".into(),
            operation,
            key: key_of(&object),
            object,
            old,
            subresource: String::new(),
            user: UserInfo::default(),
            dry_run: false,
            caches: Arc::new(Caches::new([], &BTreeSet::new()).0),
        }
    }

    pub(super) fn new(sent: &WireRequest, object: T, old: Option<T>, caches: Arc<Caches>) -> Self {
        Self {
            uid: sent.uid.clone(),
            operation: sent.operation,
            object,
            old,
            key: ObjectKey::new(sent.namespace.as_deref().filter(|name| !name.is_empty()), &sent.name),
            subresource: sent.sub_resource.clone(),
            user: sent.user_info.clone(),
            dry_run: sent.dry_run.unwrap_or_default(),
            caches,
        }
    }

    /// Returns the new object; for a deletion, the object to delete.
    pub fn object(&self) -> &T {
        &self.object
    }

    /// Returns the stored object, for an update.
    ///
    /// `None` as well if the stored object cannot be decoded as a `T`, or is larger than one that may be created, so
    /// that an update can repair it.
    pub fn old(&self) -> Option<&T> {
        self.old.as_ref()
    }

    /// Returns the operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns namespace and name; the name is empty if the API server has yet to generate it.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns the subresource, if one is written.
    pub fn subresource(&self) -> &str {
        &self.subresource
    }

    /// Returns the user of the request.
    pub fn user(&self) -> &UserInfo {
        &self.user
    }

    /// Returns true if nothing is stored. Then the webhook must not have side effects either.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Returns the unique identifier of the request.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Returns the caches of the operator, which hold the kinds that its controllers declare.
    ///
    /// They may be stale, and incomplete after the start: a webhook must not wait for them, since filling them may
    /// need a conversion.
    pub fn caches(&self) -> &Caches {
        &self.caches
    }
}

impl<T> fmt::Debug for AdmissionRequest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, operation, key, .. } = self;
        f.debug_struct("AdmissionRequest")
            .field("uid", uid)
            .field("operation", operation)
            .field("key", key)
            .finish_non_exhaustive()
    }
}

/// The request as it comes over the wire.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireRequest {
    pub(super) uid: String,
    pub(super) operation: Operation,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default)]
    pub(super) object: Value,
    #[serde(default)]
    pub(super) old_object: Value,
}

/// An `AdmissionReview` with a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) request: Option<WireRequest>,
}
