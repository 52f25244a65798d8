//! Writes of the console, with the rights of the user: reconcile now, pause, resume, delete.
//!
//! Each has a precondition on the UID, so that it never concerns a new object of the same name.

use crate::kind::Kind;
use crate::summary::PAUSED_ANNOTATION;
use http::Request;
use http::header::CONTENT_TYPE;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

/// Annotation whose change causes a reconcile in controllers that observe metadata.
const REQUESTED_ANNOTATION: &str = "flyball.dev/reconcile-requested-at";
/// Field manager of these writes.
const FIELD_MANAGER: &str = "flyball-console";

/// A write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    /// Sets an annotation to the current time.
    Reconcile,
    /// Pauses the object for Flyball's operators.
    Pause,
    Resume,
    Delete,
}

/// A request of the page.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActionRequest {
    pub(crate) action: Action,
    pub(crate) id: String,
}

impl Action {
    /// Performs the action on an object.
    pub(crate) async fn perform(
        self,
        client: &Client,
        kind: &Kind,
        (namespace, name, uid): (&str, &str, &str),
        now: &str,
    ) -> kube::Result<()> {
        let path = kind.path(namespace, Some(name));
        let request = match self {
            Self::Delete => {
                let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
                Request::delete(path).header(CONTENT_TYPE, "application/json").body(options.to_string().into_bytes())
            }
            Self::Reconcile | Self::Pause | Self::Resume => {
                let (annotation, value) = match self {
                    Self::Pause => (PAUSED_ANNOTATION, json!("true")),
                    Self::Resume => (PAUSED_ANNOTATION, Value::Null),
                    _ => (REQUESTED_ANNOTATION, json!(now)),
                };
                let patch = json!({"metadata": {"uid": uid, "annotations": {annotation: value}}});
                Request::patch(format!("{path}?fieldManager={FIELD_MANAGER}"))
                    .header(CONTENT_TYPE, "application/merge-patch+json")
                    .body(patch.to_string().into_bytes())
            }
        };
        client.request::<Value>(request.map_err(kube::Error::HttpError)?).await.map(drop)
    }
}
