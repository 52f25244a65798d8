//! Deletion of objects, and the wait until their finalizers are removed.

use super::connection::Connection;
use super::wait::{POLL_INTERVAL, poll_until};
use crate::error::{Error, Result, ResultExt};
use crate::render::progress::Progress;
use crate::render::terminal::{Style, one_line, paint, print_line};
use kube::api::{DeleteParams, Preconditions};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use serde_json::Value;
use std::time::Duration;

/// An object whose deletion was requested.
pub(crate) struct Deletion {
    objects: Api<DynamicObject>,
    name: String,
    uid: Option<String>,
    /// Display name, such as `Service default/web`.
    pub(crate) description: String,
}

impl Deletion {
    /// Requests the deletion of an object. An object that was created again under the name meanwhile is kept.
    ///
    /// # Errors
    ///
    /// If the object or its kind does not exist, the error [is an absence](Error::is_absence).
    pub(crate) async fn request(connection: &Connection, object: &Value, params: &DeleteParams) -> Result<Self> {
        let (objects, description, name) = connection.resolve(object).await?;
        let uid = objects.get(&name).await.context(format!("cannot delete {description}"))?.uid();
        let preconditions = Preconditions { uid: uid.clone(), resource_version: None };
        match objects.delete(&name, &params.clone().preconditions(preconditions)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            response => drop(response.context(format!("cannot delete {description}"))?),
        }
        Ok(Self { objects, name, uid, description })
    }

    /// Waits until the object no longer exists.
    pub(crate) async fn wait(&self, timeout: Duration) -> Result<()> {
        let Self { objects, name, uid, description } = self;
        let _progress = Progress::new(&format!("{description}: waiting for its deletion"));
        let deleted = poll_until(timeout, POLL_INTERVAL, async || {
            let remaining = match objects.get(name).await {
                // Neither the object nor, after the deletion of its definition, the kind exists.
                Err(kube::Error::Api(status)) if status.code == 404 => None,
                response => Some(response.context(format!("cannot read {description}"))?),
            };
            Ok(remaining.filter(|remaining| remaining.uid() == *uid).map_or(Ok(()), Err))
        });
        deleted.await?.map_err(|remaining| {
            let reason = match remaining.finalizers() {
                [] => String::new(),
                finalizers => format!(": it has finalizer {}", finalizers.join(", ")),
            };
            Error::new(format!(
                "timed out after {} s waiting for {description} to be deleted{reason}",
                timeout.as_secs()
            ))
        })
    }
}

/// Deletes an object and waits until it no longer exists; returns its display name if it existed.
pub(crate) async fn remove(
    connection: &Connection,
    object: &Value,
    timeout: Duration,
    quiet: bool,
) -> Result<Option<String>> {
    let deletion = match Deletion::request(connection, object, &DeleteParams::background()).await {
        Err(error) if error.is_absence() => return Ok(None),
        requested => requested?,
    };
    deletion.wait(timeout).await?;
    if !quiet {
        print_line(&format!("{} {}", one_line(&deletion.description), paint(Style::Good, "deleted")));
    }
    Ok(Some(deletion.description))
}
