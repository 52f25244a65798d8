//! Calls of validators and defaulters with decoded objects.

use super::budget::{self, Budget, PoolCharge, Rejection, Response, TooLarge};
use super::merge::{merge_typed_change, patch};
use super::meter::Meter;
use super::request::{AdmissionRequest, Operation, Review, WireRequest};
use super::verdict::Verdict;
use crate::cache::Caches;
use crate::error::{Error, Result};
use crate::kind::{Kind, Resource};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball_core::metadata::REVISION_FIELDS;
use flyball_core::{Reason, Status, memory};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

/// Validates writes of objects of type `T`.
///
/// Put rules about the fields of a custom resource into its schema and CEL rules, other rules in CEL into a
/// [`Policy`](crate::policy::Policy): they need no running process. A validator is for everything else, such as rules
/// that depend on other objects. It may be a function, or a closure with a typed argument. The function is synchronous;
/// implement the trait for async code.
///
/// ```
/// use flyball::webhook::{AdmissionRequest, Validator, Verdict, Webhook};
/// use flyball::{FieldError, ObjectKey, Result};
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
///
/// struct NamesASecret;
///
/// impl Validator<ConfigMap> for NamesASecret {
///     async fn validate(&self, request: &AdmissionRequest<ConfigMap>) -> Result<Verdict> {
///         let Some(name) = request.object().data.as_ref().and_then(|data| data.get("secret")) else {
///             return Ok(Verdict::from_errors([FieldError::required("data[secret]", "")]));
///         };
///         let secret = request.caches().get::<Secret>(&ObjectKey::new(request.key().namespace(), name))?;
///         let absent = secret.is_none().then(|| format!("secret {name:?} does not exist yet"));
///         Ok(absent.into_iter().fold(Verdict::allow(), Verdict::warn))
///     }
/// }
///
/// let structured = Webhook::new().validates(NamesASecret);
/// let short = Webhook::new().validates(|request: &AdmissionRequest<ConfigMap>| {
///     Ok(if request.key().name() == "forbidden" { Verdict::deny("not this name") } else { Verdict::allow() })
/// });
/// ```
///
/// # Guarantees
///
/// - It is called after all mutating webhooks, with the object that will be stored.
/// - It is not called when only the finalizers of an object that is being deleted change: a rule must not prevent a
///   deletion.
/// - An error is returned to the client, with its code if it came from the API server, else as 500. A panic is a failed
///   call, which [`Webhook::optional`](super::Webhook::optional) admits.
#[doc(alias = "CustomValidator")]
pub trait Validator<T>: Send + Sync + 'static {
    /// Validates a write.
    fn validate(&self, request: &AdmissionRequest<T>) -> impl Future<Output = Result<Verdict>> + Send;
}

impl<T, F: Fn(&AdmissionRequest<T>) -> Result<Verdict> + Send + Sync + 'static> Validator<T> for F {
    fn validate(&self, request: &AdmissionRequest<T>) -> impl Future<Output = Result<Verdict>> + Send {
        std::future::ready(self(request))
    }
}

/// Sets defaults on objects of type `T` before they are validated and stored.
///
/// Put constant defaults into the schema of a custom resource. A defaulter is for defaults that depend on other
/// values. It changes the typed object; fields that the type does not declare are preserved. It may be called again for
/// the same write, and must not change the object again. It may be a function, or a closure with typed arguments. The
/// function is synchronous; implement the trait for async code.
///
/// ```
/// use flyball::Result;
/// use flyball::webhook::{AdmissionRequest, Defaulter, Webhook};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// fn signs(map: &mut ConfigMap, request: &AdmissionRequest<ConfigMap>) -> Result<()> {
///     let user = request.user().username.clone().unwrap_or_default();
///     map.metadata.annotations.get_or_insert_default().entry("example.com/made-by".into()).or_insert(user);
///     Ok(())
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let mut map = ConfigMap::default();
/// signs.set_defaults(&mut map, &AdmissionRequest::create(ConfigMap::default())).await.unwrap();
/// assert!(map.metadata.annotations.is_some());
/// # });
/// let webhook = Webhook::new().defaults(signs);
/// ```
#[doc(alias = "CustomDefaulter")]
pub trait Defaulter<T>: Send + Sync + 'static {
    /// Sets defaults in `object`, which is a copy of [`AdmissionRequest::object`].
    fn set_defaults(&self, object: &mut T, request: &AdmissionRequest<T>) -> impl Future<Output = Result<()>> + Send;
}

impl<T, F: Fn(&mut T, &AdmissionRequest<T>) -> Result<()> + Send + Sync + 'static> Defaulter<T> for F {
    fn set_defaults(&self, object: &mut T, request: &AdmissionRequest<T>) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(self(object, request))
    }
}

/// A handler of one type of reviews.
pub(super) trait Handler: Send + Sync {
    /// Processes a review in JSON, or returns the reason why it is invalid.
    fn handle<'a>(
        &'a self,
        body: &'a [u8],
        caches: Arc<Caches>,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Response, Rejection>>;

    /// Estimates an upper bound of the memory of a parsed review, in bytes.
    fn tree_bytes(&self, body: &[u8]) -> usize {
        budget::tree_bytes(body)
    }
}

pub(super) struct ValidationHandler<T, V>(pub(super) V, pub(super) PhantomData<fn(T)>);

pub(super) struct DefaultingHandler<T, D>(pub(super) D, pub(super) PhantomData<fn(T)>);

impl<T: Resource, V: Validator<T>> Handler for ValidationHandler<T, V> {
    fn handle<'a>(
        &'a self,
        body: &'a [u8],
        caches: Arc<Caches>,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Response, Rejection>> {
        Box::pin(async move {
            let sent = read(body)?;
            if changes_only_finalizers(&sent) {
                return Ok(response_text(&sent.uid, None, Vec::new()));
            }
            let going = sent.operation == Operation::Delete;
            let subject = if going { &sent.old_object } else { &sent.object };
            let (objects, _charge) =
                match decode_all(budget, &sent, |meter, old| Ok((decode(meter, subject)?, old()))).await {
                    Ok(decoded) => decoded,
                    Err(error) => (Err(Status::too_large(error.to_string())), None),
                };
            let (object, old): (T, _) = match objects {
                Ok(objects) => objects,
                // Otherwise the object could never be deleted.
                Err(why) if going => {
                    return Ok(response_text(&sent.uid, None, vec![format!("not validated: {}", why.message)]));
                }
                Err(why) => return Ok(response_text(&sent.uid, Some(why), Vec::new())),
            };
            let request = AdmissionRequest::new(&sent, object, old, caches);
            let (rejection, warnings) = match self.0.validate(&request).await {
                Ok(verdict) => verdict.into_parts(Kind::of::<T>().gvk(), &sent.name),
                Err(error) => (Some(status(&error)), Vec::new()),
            };
            Ok(response_text(&sent.uid, rejection, warnings))
        })
    }
}

impl<T: Resource + Serialize, D: Defaulter<T>> Handler for DefaultingHandler<T, D> {
    fn handle<'a>(
        &'a self,
        body: &'a [u8],
        caches: Arc<Caches>,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Response, Rejection>> {
        Box::pin(async move {
            let sent = read(body)?;
            let changed = self.change(&sent, caches, budget).await;
            Ok(changed.unwrap_or_else(|rejection| response_text(&sent.uid, Some(rejection), Vec::new())))
        })
    }
}

/// The objects of a defaulter.
struct Defaults<T> {
    object: T,
    /// The object in JSON.
    before: Value,
    /// The object of the request, and the stored one.
    request: (T, Option<T>),
}

impl<T: Resource + Serialize, D: Defaulter<T>> DefaultingHandler<T, D> {
    /// Returns a response with the defaults as a patch.
    async fn change(&self, sent: &WireRequest, caches: Arc<Caches>, budget: &Budget) -> Result<Response, Status> {
        let sent_bytes = memory::of(&sent.object);
        let decoded = decode_all(budget, sent, |meter, old| {
            let requested = decode::<T>(meter, &sent.object)?;
            let object = decode::<T>(meter, &sent.object)?;
            let typed = meter.used();
            let before = write(meter, &object)?;
            // Later the object is in JSON with and without its unknown fields, instead of the typed ones.
            let after = meter.used() - typed + sent_bytes;
            meter.charge(after.saturating_sub(typed)).map_err(Status::internal)?;
            Ok(Defaults { object, before, request: (requested, old()) })
        });
        let (decoded, charge) = decoded.await.map_err(|error| Status::too_large(error.to_string()))?;
        let Defaults { mut object, before, request: (requested, old) } = decoded?;
        let request = AdmissionRequest::new(sent, requested, old, caches);
        self.0.set_defaults(&mut object, &request).await.map_err(|error| status(&error))?;
        drop(request);
        let after = serde_json::to_value(&object).map_err(Status::internal)?;
        drop(object);
        let mut changed = sent.object.clone();
        merge_typed_change(&mut changed, &before, &after);
        drop((before, after));
        let patch = patch(&sent.object, &changed);
        let mut review = review(&sent.uid, None, Vec::new());
        if !patch.is_empty() {
            review["response"]["patchType"] = "JSONPatch".into();
            review["response"]["patch"] = STANDARD.encode(Value::from(patch).to_string()).into();
        }
        Ok(Response { text: review.to_string(), charge })
    }
}

/// Encodes an object as JSON, and charges its tree.
pub(super) fn write(meter: &Meter, object: &impl Serialize) -> Result<Value, Status> {
    let mut size = TreeSize::default();
    serde_json::to_writer(&mut size, object).map_err(Status::internal)?;
    meter.charge(size.0.bytes()).map_err(Status::internal)?;
    serde_json::to_value(object).map_err(Status::internal)
}

/// Estimates the size of a tree from its text, without keeping it.
#[derive(Default)]
struct TreeSize(memory::ParsedSize);

impl io::Write for TreeSize {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.add(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn read(body: &[u8]) -> Result<WireRequest, Rejection> {
    let review: Review = flyball_core::json::check_keys(body)
        .and_then(|()| serde_json::from_slice(body))
        .map_err(|error| Rejection::Invalid(format!("not an AdmissionReview: {error}")))?;
    let Review { api_version, kind, request } = review;
    match request {
        Some(sent) if api_version == "admission.k8s.io/v1" && kind == "AdmissionReview" => Ok(sent),
        Some(_) => {
            Err(Rejection::Invalid(format!("expected admission.k8s.io/v1 AdmissionReview, not {api_version} {kind}")))
        }
        None => Err(Rejection::Invalid("the review has no request".into())),
    }
}

/// Decodes the objects of a request. The last argument of the function decodes the stored object of an update, if that
/// is valid, and is called after all others are charged.
///
/// A stored object that could no longer be created is skipped, so that it can be reduced, and its finalizers removed.
/// Other objects are never skipped: otherwise rules about changes could be evaded.
async fn decode_all<T: DeserializeOwned, R>(
    budget: &Budget,
    sent: &WireRequest,
    objects: impl Fn(&Meter, &dyn Fn() -> Option<T>) -> R,
) -> Result<(R, PoolCharge), TooLarge> {
    if sent.operation == Operation::Update {
        let old = |meter: &Meter| {
            meter.begin_old();
            decode(meter, &sent.old_object).ok()
        };
        if let Ok(decoded) = budget.typed.decode_with_old(|meter| objects(meter, &|| old(meter))).await {
            return Ok(decoded);
        }
    }
    budget.typed.decode(|meter| objects(meter, &|| None)).await
}

fn decode<T: DeserializeOwned>(meter: &Meter, object: &Value) -> Result<T, Status> {
    meter.decode(object).map_err(|error| Status::bad_request(format!("cannot decode the object: {error}")))
}

/// Returns true if only the finalizers of an object that is being deleted change, and fields that the API server sets.
fn changes_only_finalizers(sent: &WireRequest) -> bool {
    const WITHOUT: [&str; 4] = ["finalizers", REVISION_FIELDS[0], REVISION_FIELDS[1], REVISION_FIELDS[2]];
    fn rest<'a>(object: &'a Value, without: &[&str]) -> impl Iterator<Item = (&'a String, &'a Value)> {
        object.as_object().into_iter().flatten().filter(|(field, _)| !without.contains(&field.as_str()))
    }
    let (new, old) = (&sent.object, &sent.old_object);
    sent.operation == Operation::Update
        && new["metadata"]["deletionTimestamp"].is_string()
        && rest(new, &["metadata"]).eq(rest(old, &["metadata"]))
        && rest(&new["metadata"], &WITHOUT).eq(rest(&old["metadata"], &WITHOUT))
}

/// Converts an error as the API server does: with the code of its own errors, else as an internal error.
fn status(error: &Error) -> Status {
    match error.status() {
        Some(rejection) => {
            let reason = (!rejection.reason.is_empty()).then(|| Reason::Other(rejection.reason.as_str().into()));
            Status::new(rejection.code, reason, error.to_string())
        }
        None => Status::new(500, Reason::InternalError, error.to_string()),
    }
}

/// Builds the text of a response to an admission review.
fn response_text(uid: &str, rejection: Option<Status>, warnings: Vec<String>) -> Response {
    review(uid, rejection, warnings).to_string().into()
}

/// Builds the response to an admission review.
fn review(uid: &str, rejection: Option<Status>, warnings: Vec<String>) -> Value {
    let mut response = json!({"uid": uid, "allowed": rejection.is_none()});
    if let Some(rejection) = rejection {
        response["status"] = json!(rejection);
        response["status"]["status"] = "Failure".into();
    }
    if !warnings.is_empty() {
        response["warnings"] = warnings.into();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}
