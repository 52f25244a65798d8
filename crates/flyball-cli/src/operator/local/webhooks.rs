//! Webhooks of an operator on this machine: objects that point to it are recorded, and reset when it has ended.

use super::{LocalOperator, is_same_object};
use crate::cluster::apply;
use crate::cluster::connection::Connection;
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::error::{Result, ResultExt};
use crate::render::terminal::{self, Style, paint, print_labeled, print_line};
use kube::api::{DeleteParams, Preconditions};
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// An object with a webhook URL on this machine.
pub(super) struct WebhookTarget {
    object: Value,
    uid: Option<String>,
}

/// Timeout of the removal of webhook configurations after the operator has stopped.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of an operator to set the URLs of its webhooks.
pub(super) const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

impl LocalOperator {
    /// Ends the calls of the API server to an operator that has ended: they would fail, and with them the writes that
    /// they are about.
    pub(super) async fn unregister_webhooks(&mut self) {
        let connection = &self.connection;
        let wait = async {
            for WebhookTarget { object, uid } in self.webhook_targets.drain(..) {
                match connection.unregister_webhook(&object, uid).await {
                    Ok(Some(unregistered)) if !self.quiet => print_line(&paint(Style::Faint, &unregistered)),
                    Ok(_) => {}
                    Err(error) => terminal::print_error(&error),
                }
            }
        };
        if timeout(UNREGISTER_TIMEOUT, wait).await.is_err() {
            print_labeled(
                "note",
                "webhooks still point to this machine; run `flyball uninstall` to remove their configurations",
            );
        }
    }

    /// Records an applied object for removal at the end.
    pub(super) async fn record_webhook_target(&mut self, object: &Value) -> Result<()> {
        let uid = self.connection.read(object).await?["metadata"]["uid"].as_str().map(str::to_owned);
        // It replaces an object of an earlier program of the same run.
        self.webhook_targets.retain(|webhook_targets| !is_same_object(&webhook_targets.object, object));
        self.webhook_targets.push(WebhookTarget { object: object.clone(), uid });
        Ok(())
    }
}

impl Connection {
    /// Waits a short time until the operator has registered its webhooks; the operator itself logs the reason of a
    /// delay.
    pub(super) async fn wait_for_webhooks(&self, webhooks: &[Value]) {
        let is_registered = async |object: &Value| match self.read(object).await {
            Ok(found) => found["webhooks"]
                .as_array()
                .is_none_or(|all| all.iter().all(|one| one["clientConfig"]["url"].is_string())),
            Err(_) => false,
        };
        for object in webhooks {
            let called = async || Ok(if is_registered(object).await { Ok(()) } else { Err(()) });
            let _ = poll_until(WEBHOOK_TIMEOUT, POLL_INTERVAL, called).await;
        }
    }

    /// Deletes a webhook configuration, or resets the conversion of a definition, unless it was replaced since; returns
    /// a description of the action.
    async fn unregister_webhook(&self, object: &Value, uid: Option<String>) -> Result<Option<String>> {
        let (objects, description, name) = self.resolve(object).await?;
        let is_replaced =
            |error: &kube::Error| matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409));
        let unregistered = if object["kind"] == "CustomResourceDefinition" {
            let found = self.find(object).await?.unwrap_or_default();
            let client = &found["spec"]["conversion"]["webhook"]["clientConfig"];
            if found["metadata"]["uid"].as_str() != uid.as_deref() || !client["url"].is_string() {
                return Ok(None);
            }
            apply::reset_conversion(&objects, &found)
                .await
                .map(|()| format!("removed the conversion webhook of {description}"))
        } else {
            let params = DeleteParams::default().preconditions(Preconditions { uid, resource_version: None });
            objects.delete(&name, &params).await.map(|_| format!("deleted {description}"))
        };
        match unregistered {
            Err(error) if is_replaced(&error) => Ok(None),
            unregistered => unregistered.map(Some).context(format!("cannot unregister the webhooks of {description}")),
        }
    }
}

/// Removes the conversion from a definition: the operator sets the URL itself.
pub(super) fn without_conversion(mut definition: Value) -> Value {
    definition["spec"].as_object_mut().map(|spec| spec.remove("conversion"));
    definition
}
