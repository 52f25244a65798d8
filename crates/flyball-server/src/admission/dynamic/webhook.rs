//! Admission webhooks.
//!
//! A webhook is called without a lock, with the timeout of its configuration: one that hangs delays only the requests
//! that match it. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>.

use super::condition::Conditions;
use super::configured::ConfigurationCache;
use super::matching::Constraints;
use super::review::{self, Verdict};
use super::{Attributes, Environment, Plugin, PluginResult, Reinvocation, WriteCost, as_version, pass, write_back};
use crate::catalog::{Resource, decode};
use crate::kinds::{MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION};
use crate::limits::{MAX_DECODED_BYTES, excess};
use crate::request::{json_error, json_type};
use crate::webhook::{Client, ReviewResponse, Timeout, is_late};
use flyball_core::status::Reason;
use flyball_core::{Object, Status, memory};
use flyball_schema::patch::json;
use futures_util::StreamExt;
use futures_util::future::Either;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A webhook of a configuration.
struct Webhook {
    name: String,
    /// A unique ID.
    id: String,
    client: Client,
    constraints: Constraints,
    conditions: Conditions,
    /// True if failures of the webhook are ignored.
    ignored: bool,
    timeout: Duration,
    /// True if it is reinvoked after later changes.
    reinvoked: bool,
    side_effects: bool,
    /// The review version that it supports; `None` if it supports none of the known ones.
    review: Option<&'static str>,
}

/// The reason why a request does not pass a webhook.
enum Rejection {
    /// The webhook could not be called, or its response is invalid.
    Failed(String),
    Denied(Status),
}

/// Reads the webhooks of a configuration, in order.
fn read(configuration: &Object) -> Vec<Webhook> {
    let hooks = configuration.get("webhooks").and_then(Value::as_array).into_iter().flatten();
    hooks.enumerate().map(|(i, hook)| Webhook::read(hook, configuration.name(), i)).collect()
}

impl Webhook {
    fn read(hook: &Value, configuration: &str, at: usize) -> Self {
        let name = hook["name"].as_str().unwrap_or_default().to_owned();
        let ignored = hook["failurePolicy"] == "Ignore";
        let versions = hook["admissionReviewVersions"].as_array().into_iter().flatten();
        Self {
            id: format!("{configuration}/{name}/{at}"),
            name,
            client: Client::read(configuration, &hook["clientConfig"]),
            constraints: Constraints::of_webhook(hook),
            conditions: Conditions::read(&hook["matchConditions"], ignored),
            ignored,
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10)),
            reinvoked: hook["reinvocationPolicy"] == "IfNeeded",
            side_effects: !matches!(hook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
            review: versions.filter_map(Value::as_str).find_map(|version| match version {
                "v1" => Some("v1"),
                "v1beta1" => Some("v1beta1"),
                _ => None,
            }),
        }
    }

    /// Returns true if the webhook may evaluate conditions for writes of a resource.
    fn is_slow(&self, plural: &str) -> bool {
        !self.conditions.is_empty() && self.constraints.may_match(plural)
    }

    /// Finds the version in which the webhook reviews a request, if it matches.
    async fn matches(
        &self,
        env: &Environment,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<Option<Arc<Resource>>, Status> {
        let Some(shown_as) = self.constraints.find(env, attributes, object, old)? else { return Ok(None) };
        if !self.conditions.is_empty() {
            let (object, old) = as_version(&env.codec, attributes, &shown_as, object, old).await?;
            let request = review::describe(attributes, &shown_as);
            if !self.conditions.hold(env, attributes, request, object.as_ref(), old.as_ref())? {
                return Ok(None);
            }
        }
        Ok(Some(shown_as))
    }

    async fn call(
        &self,
        env: &Environment,
        attributes: &Attributes<'_>,
        shown_as: &Resource,
        mutating: bool,
        (object, old): (Option<&Object>, Option<&Object>),
    ) -> Result<Verdict, Rejection> {
        if attributes.dry_run && self.side_effects {
            let why = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(Rejection::Denied(Status::bad_request(why)));
        }
        let Some(version) = self.review else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(Rejection::Failed(why.into()));
        };
        let uid = env.webhooks.uid();
        let review = review::write(version, &uid, review::describe(attributes, shown_as), object, old);
        let result = env.webhooks.send(&self.client, review, Timeout::Request(self.timeout)).await;
        let ReviewResponse { review: response, memory: held } =
            result.map_err(|why| Rejection::Failed(format!("failed to call webhook: {why}")))?;
        if let Some(why) = review::mistyped(&response) {
            return Err(Rejection::Failed(format!("failed to call webhook: {why}")));
        }
        let verdict = Verdict::read(version, &uid, mutating, &response)
            .map_err(|why| Rejection::Failed(format!("received invalid webhook response: {why}")))?;
        let verdict = Verdict { memory: held, ..verdict };
        attributes.warnings.add(verdict.warnings.iter().cloned());
        if verdict.allowed { Ok(verdict) } else { Err(Rejection::Denied(self.denial(verdict.status))) }
    }

    /// Returns the error of a webhook that denies a request, with its message.
    fn denial(&self, status: Option<Value>) -> Status {
        let mut status: Status = status.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default();
        // HTTP codes have three digits.
        status.code = if status.code > 999 { 500 } else { status.code.max(400) };
        let explanation = match (&status.message, &status.reason) {
            (message, _) if !message.is_empty() => format!(": {message}"),
            (_, Some(reason)) => format!(": {reason}"),
            _ => " without explanation".to_owned(),
        };
        status.message = format!("admission webhook {:?} denied the request{explanation}", self.name);
        status
    }

    /// Applies the failure policy: `Ok` if the failure is ignored.
    fn apply_failure_policy(&self, rejection: Rejection) -> Result<(), Status> {
        match rejection {
            Rejection::Denied(status) => Err(status),
            Rejection::Failed(_) if self.ignored && is_late() => {
                let why = "Timeout: request did not complete within requested timeout - context deadline exceeded";
                Err(Status::new(504, Reason::Timeout, why))
            }
            Rejection::Failed(why) if self.ignored => {
                tracing::warn!(webhook = self.name, why, "webhook call failed and was ignored");
                Ok(())
            }
            Rejection::Failed(why) => Err(Status::internal(format!("failed calling webhook {:?}: {why}", self.name))),
        }
    }

    /// Applies the patch of a verdict.
    fn patch(&self, shown_as: &Resource, verdict: &Verdict, object: &Object) -> Result<Object, Rejection> {
        let undecodable =
            |why: String| Rejection::Failed(format!("received undecodable patch in webhook response: {why}"));
        if excess(&verdict.patch).is_some() {
            return Err(undecodable(format!("it takes more than {} MiB of memory", MAX_DECODED_BYTES >> 20)));
        }
        verdict.memory.charge(memory::of_text(&verdict.patch));
        let patch: Value =
            serde_json::from_slice(&verdict.patch).map_err(|_| undecodable(json_error(&verdict.patch)))?;
        let Value::Array(operations) = patch else {
            let found = json_type(&patch);
            return Err(undecodable(format!("json: cannot unmarshal {found} into Go value of type jsonpatch.Patch")));
        };
        if operations.is_empty() {
            return Ok(object.clone());
        }
        if verdict.patch_type != "JSONPatch" {
            return Err(Rejection::Failed(format!("unsupported patch type {:?}", verdict.patch_type)));
        }
        let internal = |why: String| Rejection::Denied(Status::internal(why));
        let mut value = object.as_value().clone();
        json::apply(&mut value, &operations).map_err(|failure| match failure {
            json::Error::TooLarge(why) => Rejection::Denied(Status::too_large(why)),
            error => internal(error.to_string()),
        })?;
        let patched = Object::try_from(value).map_err(|_| internal("the patch leaves no object".into()))?;
        let (mut patched, _) = decode::read_as(shown_as, patched).map_err(internal)?;
        shown_as.default_within(&mut patched, Some(object)).map_err(Rejection::Denied)?;
        Ok(patched)
    }
}

/// Calls the mutating webhooks.
pub(in crate::admission) struct MutatingAdmissionWebhook {
    env: Environment,
    configured: ConfigurationCache<Vec<Webhook>>,
}

impl MutatingAdmissionWebhook {
    pub(in crate::admission) fn new(env: Environment) -> Self {
        Self { env, configured: ConfigurationCache::new(&MUTATING_WEBHOOK_CONFIGURATION, read) }
    }
}

impl WriteCost for MutatingAdmissionWebhook {
    fn is_slow(&self, plural: &str, _: Option<&str>) -> bool {
        self.configured.get(&self.env.store).iter().flatten().any(|hook| hook.is_slow(plural))
    }

    fn calls_webhooks(&self, plural: &str) -> bool {
        self.configured.get(&self.env.store).iter().flatten().any(|hook| hook.constraints.may_match(plural))
    }

    fn changes_objects(&self) -> bool {
        !self.configured.get(&self.env.store).is_empty()
    }
}

impl Plugin for MutatingAdmissionWebhook {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        reinvocation: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        if !attributes.is_seen_by_webhooks() {
            return pass();
        }
        let configured = self.configured.get(&self.env.store);
        if configured.is_empty() {
            return pass();
        }
        Either::Right(Box::pin(async move {
            mutate(&self.env, &configured, attributes, reinvocation, object, attributes.old).await
        }))
    }
}

/// Calls the validating webhooks.
pub(in crate::admission) struct ValidatingAdmissionWebhook {
    env: Environment,
    configured: ConfigurationCache<Vec<Webhook>>,
}

impl ValidatingAdmissionWebhook {
    pub(in crate::admission) fn new(env: Environment) -> Self {
        Self { env, configured: ConfigurationCache::new(&VALIDATING_WEBHOOK_CONFIGURATION, read) }
    }
}

impl WriteCost for ValidatingAdmissionWebhook {
    fn is_slow(&self, plural: &str, _: Option<&str>) -> bool {
        self.configured.get(&self.env.store).iter().flatten().any(|hook| hook.is_slow(plural))
    }

    fn calls_webhooks(&self, plural: &str) -> bool {
        self.configured.get(&self.env.store).iter().flatten().any(|hook| hook.constraints.may_match(plural))
    }
}

impl Plugin for ValidatingAdmissionWebhook {
    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        if !attributes.is_seen_by_webhooks() {
            return pass();
        }
        let configured = self.configured.get(&self.env.store);
        if configured.is_empty() {
            return pass();
        }
        Either::Right(Box::pin(
            async move { validate(&self.env, &configured, attributes, object, attributes.old).await },
        ))
    }
}

/// Calls mutating webhooks in order: each sees the changes of those before it.
async fn mutate(
    env: &Environment,
    configurations: &[Vec<Webhook>],
    attributes: &Attributes<'_>,
    reinvocation: &mut Reinvocation,
    mut object: Option<&mut Object>,
    old: Option<&Object>,
) -> Result<(), Status> {
    for hook in configurations.iter().flatten() {
        let Some(shown_as) = hook.matches(env, attributes, object.as_deref(), old).await? else { continue };
        if !reinvocation.must_run(&hook.id) {
            continue;
        }
        let (before, old) = as_version(&env.codec, attributes, &shown_as, object.as_deref(), old).await?;
        let outcome = hook.call(env, attributes, &shown_as, true, (before.as_ref(), old.as_ref())).await;
        let mut changed = false;
        let done = match (outcome, before, object.as_deref_mut()) {
            (Err(rejection), ..) => Err(rejection),
            (Ok(verdict), ..) if verdict.patch.is_empty() => Ok(()),
            (Ok(_), None, _) | (Ok(_), _, None) => {
                let why = format!(
                    "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                    hook.name
                );
                Err(Rejection::Denied(Status::internal(why)))
            }
            (Ok(verdict), Some(before), Some(object)) => {
                let as_read = attributes.sent.clone().unwrap_or_else(|| shown_as.clone());
                let patched = hook.patch(&as_read, &verdict, &before);
                // The conversion below may last.
                drop(verdict);
                match patched {
                    Ok(patched) => {
                        changed = patched != before;
                        if changed {
                            write_back(&env.codec, attributes, &shown_as, patched, object).await?;
                        }
                        Ok(())
                    }
                    Err(rejection) => Err(rejection),
                }
            }
        };
        reinvocation.record_run(&hook.id, hook.reinvoked, changed);
        done.or_else(|rejection| hook.apply_failure_policy(rejection))?;
    }
    Ok(())
}

/// Maximum number of webhooks that one request calls concurrently: each call has a copy of the objects.
const MAX_CONCURRENT_CALLS: usize = 32;

/// Calls validating webhooks concurrently.
async fn validate(
    env: &Environment,
    configurations: &[Vec<Webhook>],
    attributes: &Attributes<'_>,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Result<(), Status> {
    let mut wanting = Vec::new();
    // Webhooks that see the same version share its objects.
    let mut versions: Vec<(Arc<Resource>, Option<Object>, Option<Object>)> = Vec::new();
    for hook in configurations.iter().flatten() {
        if let Some(shown_as) = hook.matches(env, attributes, object, old).await? {
            let known = versions.iter().position(|(known, ..)| known.kind == shown_as.kind);
            if known.is_none() {
                let (object, old) = as_version(&env.codec, attributes, &shown_as, object, old).await?;
                versions.push((shown_as, object, old));
            }
            wanting.push((hook, known.unwrap_or(versions.len() - 1)));
        }
    }
    let calls = wanting.iter().map(|(hook, at)| {
        let (shown_as, object, old) = &versions[*at];
        async move {
            let outcome = hook.call(env, attributes, shown_as, false, (object.as_ref(), old.as_ref())).await;
            outcome.map(drop).or_else(|rejection| hook.apply_failure_policy(rejection))
        }
    });
    // The error of the first one in order is reported, regardless of the order of responses.
    let calls: Vec<_> = calls.collect();
    let outcomes: Vec<_> = futures_util::stream::iter(calls).buffered(MAX_CONCURRENT_CALLS).collect().await;
    outcomes.into_iter().collect()
}
