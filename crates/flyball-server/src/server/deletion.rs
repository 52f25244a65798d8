//! Requests that delete objects.

use super::Components;
use super::call::{Call, unsupported, writer};
use super::list::list;
use crate::catalog::{Resource, Target, protobuf};
use crate::encoder::ResponseEncoder;
use crate::kinds::DeletionResponse;
use crate::registry::{DeletionResult, Registry};
use crate::request::accept::{Form, View};
use crate::request::body::{self, Format};
use crate::request::options::{DeleteOptions, ListOptions, WriteOptions};
use crate::response::{self, Body};
use flyball_core::{Object, Status};
use http::Response;
use serde_json::{Value, json};

/// Reads the options of a deletion from query and body.
fn delete_options(encoder: &ResponseEncoder, call: &Call) -> Result<DeleteOptions, Status> {
    if call.body.is_empty() {
        return DeleteOptions::read(&call.query, None);
    }
    let options = delete_body(call, &encoder.resource)?;
    DeleteOptions::read(&call.query, Some(&options))
}

fn delete_body(call: &Call, resource: &Resource) -> Result<Value, Status> {
    let format = match call.content_type() {
        None | Some("application/json") => Some(Format::Json),
        Some("application/yaml") => Some(Format::Yaml),
        Some(protobuf::MEDIA_TYPE) if resource.custom().is_none() => None,
        Some(_) => return Err(unsupported(resource)),
    };
    let bad = |why: String| Status::bad_request(format!("couldn't get version/kind; json parse error: {why}"));
    let value = match format {
        None => protobuf::delete_options(&call.body).map_err(Status::bad_request)?,
        Some(format) => body::read(format, &call.body).map_err(|error| error.to_status(bad))?.value,
    };
    if !value.is_object() {
        return Err(bad("expected a DeleteOptions object".into()));
    }
    let kind = value["kind"].as_str().unwrap_or("DeleteOptions");
    if kind != "DeleteOptions" {
        let version = value["apiVersion"].as_str().unwrap_or_default();
        let scheme = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27";
        return Err(Status::bad_request(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}"
        )));
    }
    Ok(value)
}

/// Warns of dependents that a deletion leaves behind, unless its options choose a propagation policy.
fn warn_of_deletion(call: &Call, target: &Target, options: &DeleteOptions) {
    if options.propagation.is_none() {
        let warning = target.resource.deletion().and_then(|deletion| deletion.warning);
        call.warnings.add(warning.map(str::to_owned));
    }
}

pub(super) async fn delete(
    registry: &Registry,
    encoder: &ResponseEncoder,
    call: &Call,
    target: &Target,
) -> Result<Response<Body>, Status> {
    let options = delete_options(encoder, call)?;
    warn_of_deletion(call, target, &options);
    let deleted = registry.delete(target, &options, &writer(call, WriteOptions::default())).await?;
    match deleted {
        DeletionResult::Marked(written) => encoder.written(200, &written),
        DeletionResult::Gone(object) if target.resource.deleted_as() == DeletionResponse::Object => {
            encoder.object(200, &object)
        }
        DeletionResult::Gone(object) => {
            Ok(response::value(200, Form { view: View::Whole, ..encoder.form }, &success(&target.resource, &object)))
        }
    }
}

/// Returns the `Status` for a deleted object.
fn success(resource: &Resource, object: &Object) -> Value {
    let mut details = serde_json::Map::new();
    let fields =
        [("name", object.name()), ("group", &resource.kind.group), ("kind", &resource.plural), ("uid", object.uid())];
    for (field, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        details.insert(field.into(), value.into());
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

pub(super) async fn delete_collection(
    server: &Components,
    encoder: &ResponseEncoder,
    call: &Call,
    target: &Target,
) -> Result<Response<Body>, Status> {
    let selected = ListOptions::read(&call.query, false)?;
    let options = delete_options(encoder, call)?;
    warn_of_deletion(call, target, &options);
    let listed = list(server, call, target, &selected).await?;
    server.registry.delete_all(target, &listed.entries, &options, &writer(call, WriteOptions::default())).await?;
    encoder.list(listed)
}
