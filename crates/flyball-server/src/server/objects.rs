//! Requests for resources: decoding, execution and response of each verb.

use super::Components;
use super::call::{Call, document, writer};
use super::list::{list, pending_entries};
use super::{actions, deletion};
use crate::bounds::Offload;
use crate::catalog::decode;
use crate::catalog::{Catalog, Lookup, Resource, Target, scale};
use crate::encoder::ResponseEncoder;
use crate::kinds::{NAMESPACE, Part, Subresource, Verbs};
use crate::registry::{self, Change, Input, Outcome, Patch, PatchKind, Registry, WrittenObject, parse_version};
use crate::request::accept::{self, Form, View};
use crate::request::body::{self, Format};
use crate::request::options::{FieldValidation, ListOptions, Write, WriteOptions};
use crate::request::{ResourcePath, json_type};
use crate::response::{self, Body};
use crate::storage::PendingEntries;
use crate::table::Include;
use crate::watch;
use flyball_core::status::{Details, Reason};
use flyball_core::{GroupVersionKind, Object, Status};
use http::{Method, Response};
use serde_json::json;
use std::sync::Arc;

/// The handler of a path.
pub(super) enum Route {
    /// Objects, or a part of one.
    Objects(Target),
    /// An action on an object.
    Action { target: Target, subresource: &'static Subresource },
}

/// A path without a handler.
enum NoRoute {
    Page,
    Rejected(Status),
}

impl From<Status> for NoRoute {
    fn from(status: Status) -> Self {
        Self::Rejected(status)
    }
}

/// Responds to a request for a resource.
pub(super) async fn respond(server: &Arc<Components>, call: &Call) -> Response<Body> {
    let path = call.info.resource.as_ref().expect("only called with one");
    let target = match find(server, call, path) {
        Ok(route) => route,
        Err(NoRoute::Page) => return response::page_not_found(),
        Err(NoRoute::Rejected(status)) => return response::status(&status),
    };
    let (resource, result) = match target {
        Route::Objects(target) => (target.resource.clone(), objects(server, call, target).await),
        Route::Action { target, subresource } => {
            (target.resource.clone(), actions::respond(server, call, &target, subresource).await)
        }
    };
    let mut response = result.unwrap_or_else(|status| error_response(call, &resource, &status));
    call.warnings.add(resource.deprecation().map(str::to_owned));
    call.warnings.append_to(&mut response);
    response
}

/// Responds with an error, in the encoding that the client accepts.
fn error_response(call: &Call, resource: &Resource, status: &Status) -> Response<Body> {
    let encoding =
        accept::negotiate(call.accept(), resource.offered()).map_or(Form::PLAIN.encoding, |form| form.encoding);
    response::status_in(Form { encoding, ..Form::PLAIN }, status)
}

/// Finds the endpoint of a path, and checks that it supports the method.
fn find(server: &Components, call: &Call, path: &ResourcePath) -> Result<Route, NoRoute> {
    if call.info.watched_by_path && !matches!(call.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed().into());
    }
    let resource = match server.registry.catalog.get().lookup(&path.group, &path.version, &path.resource) {
        Lookup::Found(resource) if resource.is_served() => resource,
        Lookup::NotInGroup { built_in: true } => return Err(Status::unknown_resource().into()),
        Lookup::Found(_) | Lookup::NotInGroup { built_in: false } | Lookup::NoGroup => return Err(NoRoute::Page),
    };
    let custom = resource.custom().is_some();
    let spans_namespaces = matches!(call.info.verb, "list" | "watch");
    let misplaced = match (resource.namespaced, &path.namespace) {
        (true, None) => !spans_namespaces,
        (false, Some(_)) => !path.is_namespace || !resource.is(&NAMESPACE),
        _ => false,
    };
    if misplaced {
        let known = !custom && resource.namespaced && path.name.is_none();
        return Err(if known {
            Status::method_not_allowed().into()
        } else if custom {
            NoRoute::Page
        } else {
            Status::unknown_resource().into()
        });
    }
    let verb = call.info.verb;
    let reject = || match custom {
        true => {
            let details = Details { group: path.group.clone(), kind: path.resource.clone(), ..Details::default() };
            let message = format!("{verb} is not supported on resources of kind \"{}\"", resource.group_resource());
            Status::new(405, Reason::MethodNotAllowed, message).with_details(details)
        }
        false => Status::method_not_allowed(),
    };
    // A list with a name in its field selector is still a list; the name is only used for authorization.
    let name = path.name.clone().filter(|_| !call.info.is_collection());
    let target = Target {
        resource: resource.clone(),
        namespace: path.namespace.clone().filter(|_| resource.namespaced),
        name,
        part: Part::Whole,
    };
    let Some(subresource) = &path.subresource else {
        let fits = match verb {
            "create" => target.name.is_none(),
            "list" | "watch" | "deletecollection" => true,
            _ => target.name.is_some(),
        };
        if !fits || !resource.verbs().allows(verb) {
            return Err(reject().into());
        }
        return Ok(Route::Objects(target));
    };
    let Some(subresource) = resource.subresource(subresource) else {
        return Err(if custom {
            Status::not_found(&resource.group_resource(), target.name.as_deref().unwrap_or_default()).into()
        } else {
            Status::unknown_resource().into()
        });
    };
    if !subresource.verbs.contains(&verb) {
        return Err(reject().into());
    }
    Ok(match subresource.part {
        Some(part) => Route::Objects(Target { part, ..target }),
        None => Route::Action { target, subresource },
    })
}

async fn objects(server: &Arc<Components>, call: &Call, target: Target) -> Result<Response<Body>, Status> {
    let (registry, resource) = (&server.registry, target.resource.clone());
    let negotiate = match call.info.verb {
        "watch" => accept::negotiate_watch,
        "list" => accept::negotiate_list,
        _ => accept::negotiate,
    };
    let form = negotiate(call.accept(), resource.offered())?;
    let include =
        if form.view == View::Table { Include::read(call.query.text("includeObject"))? } else { Include::Metadata };
    let encoder = ResponseEncoder {
        codec: registry.codec.clone(),
        clock: registry.clock.clone(),
        resource: resource.clone(),
        form,
        include,
    };
    match call.info.verb {
        "get" => get(registry, &encoder, call, &target).await,
        "list" => {
            let options = ListOptions::read(&call.query, false)?;
            encoder.list(list(server, call, &target, &options).await?)
        }
        "watch" => {
            let mut options = ListOptions::read(&call.query, true)?;
            if let Some(name) = watched_name(call) {
                options.fields.require("metadata.name", name);
            }
            let pending = match watch::sends_state(&options) {
                true => pending_entries(server, call, &resource).await?,
                false => PendingEntries::default(),
            };
            let connection = call.connection.clone();
            let offload = connection.as_ref().and_then(|_| Offload::new(&server.shared, &call.flow));
            watch::respond(
                registry,
                &server.readers,
                encoder,
                target.namespace.as_deref(),
                (&options, pending),
                (&call.flow, connection, offload),
            )
            .await
        }
        "create" if resource.verbs() == Verbs::CreateOnly => actions::review(server, call, &target, form).await,
        "create" => create(registry, &encoder, call, &target).await,
        "update" => update(registry, &encoder, call, &target).await,
        "patch" => patch(registry, &encoder, call, &target).await,
        "delete" => deletion::delete(registry, &encoder, call, &target).await,
        "deletecollection" => deletion::delete_collection(server, &encoder, call, &target).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// The name in the path of a watch by the deprecated `/watch/` prefix.
fn watched_name(call: &Call) -> Option<&str> {
    call.info.resource.as_ref().filter(|_| call.info.watched_by_path)?.name.as_deref()
}

async fn get(
    registry: &Registry,
    encoder: &ResponseEncoder,
    call: &Call,
    target: &Target,
) -> Result<Response<Body>, Status> {
    let version = parse_version(call.query.text("resourceVersion")).map_err(|why| Status::new(500, None, why))?;
    if let Some(version) = version {
        registry.has_reached(version)?;
    }
    let entry = registry.get(&target.resource, &target.key())?;
    let entry = encoder.codec.convert(&target.resource, entry).await?;
    if target.part == Part::Scale {
        return scaled(encoder, 200, &encoder.codec.decode(&target.resource, &entry)?);
    }
    encoder.written(200, &WrittenObject::Stored(entry))
}

/// Responds with the scale of an object.
fn scaled(encoder: &ResponseEncoder, code: u16, object: &Object) -> Result<Response<Body>, Status> {
    let scale = scale::of(&encoder.resource, object)?;
    Ok(response::value(code, Form { view: View::Whole, ..encoder.form }, scale.as_value()))
}

fn outcome(encoder: &ResponseEncoder, target: &Target, outcome: Outcome) -> Result<Response<Body>, Status> {
    let code = if outcome.created { 201 } else { 200 };
    match (target.part, outcome.object) {
        (Part::Scale, WrittenObject::Stored(entry)) => {
            scaled(encoder, code, &encoder.codec.decode(&encoder.resource, &entry)?)
        }
        (Part::Scale, WrittenObject::Unstored(object)) => scaled(encoder, code, &object),
        (_, written) => encoder.written(code, &written),
    }
}

fn decoded(encoder: &ResponseEncoder, call: &Call, validation: FieldValidation) -> Result<Object, Status> {
    let document = document(call, &encoder.resource)?;
    let decoded = decode::body(&encoder.resource, document, &call.body, validation)?;
    call.warnings.add(decoded.warnings);
    Ok(decoded.object)
}

async fn create(
    registry: &Registry,
    encoder: &ResponseEncoder,
    call: &Call,
    target: &Target,
) -> Result<Response<Body>, Status> {
    if let Some(custom) = target.resource.custom().filter(|custom| custom.terminating) {
        let why = "create not allowed while custom resource definition is terminating";
        tracing::debug!(crd = custom.definition, "{why}");
        let object = decoded(encoder, call, FieldValidation::Ignore)?;
        return Err(Status::forbidden(&target.resource.group_resource(), object.name(), why));
    }
    let options = WriteOptions::read(&call.query, Write::Create)?;
    let object = decoded(encoder, call, options.field_validation)?;
    let done = registry.create(target, object, &writer(call, options)).await?;
    outcome(encoder, target, done)
}

async fn update(
    registry: &Registry,
    encoder: &ResponseEncoder,
    call: &Call,
    target: &Target,
) -> Result<Response<Body>, Status> {
    let options = WriteOptions::read(&call.query, Write::Update)?;
    if target.part == Part::Scale {
        let kind = Catalog::action("Scale");
        let decoded = document(call, &kind)
            .and_then(|document| decode::body(&kind, document, &call.body, options.field_validation))
            .map_err(|error| scale::decode_error(&target.resource, error))?;
        let object = decoded.object;
        target.check_name(&object)?;
        let change = registry::scale::replace(&target.resource, object);
        let done = registry.change(target, &change, &writer(call, options)).await?;
        return outcome(encoder, target, done);
    }
    let object = decoded(encoder, call, options.field_validation)?;
    target.check_name(&object)?;
    let validation = options.field_validation;
    let change = Change::Replace(Input::new(object, || decoded(encoder, call, validation)));
    let done = registry.change(target, &change, &writer(call, options)).await?;
    outcome(encoder, target, done)
}

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

async fn patch(
    registry: &Registry,
    encoder: &ResponseEncoder,
    call: &Call,
    target: &Target,
) -> Result<Response<Body>, Status> {
    let custom = encoder.resource.custom().is_some();
    let kind = match call.content_type() {
        Some(JSON_PATCH) => Some(PatchKind::Json),
        Some(MERGE_PATCH) => Some(PatchKind::Merge),
        Some(STRATEGIC_PATCH) if !custom => Some(PatchKind::Strategic),
        Some(APPLY_PATCH) => None,
        _ => return Err(unsupported_patch(custom)),
    };
    let Some(kind) = kind else { return apply(registry, encoder, call, target).await };
    let options = WriteOptions::read(&call.query, Write::Patch)?;
    // A missing object is reported before an invalid patch.
    registry.get(&target.resource, &target.key())?;
    let decode = || {
        let mut document = body::read(Format::Json, &call.body).map_err(|error| {
            let prefix = if kind == PatchKind::Strategic { "" } else { "error decoding patch: " };
            error.to_status(|why| Status::bad_request(format!("{prefix}{why}")))
        })?;
        if kind == PatchKind::Strategic {
            flyball_schema::decode::as_go_numbers(&mut document.value);
        }
        Ok(Patch { kind, value: document.value, duplicates: document.duplicates })
    };
    let patch = decode()?;
    let change = if target.part == Part::Scale {
        registry::scale::patch(&target.resource, patch, options.field_validation, call.warnings.clone())
    } else {
        Change::Patch(Input::new(patch, decode))
    };
    let done = registry.change(target, &change, &writer(call, options)).await?;
    outcome(encoder, target, done)
}

fn unsupported_patch(custom: bool) -> Status {
    if custom {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {JSON_PATCH}, {MERGE_PATCH}, {APPLY_PATCH}"
        );
        return Status::new(415, Reason::UnsupportedMediaType, message);
    }
    Status::new(415, Reason::UnsupportedMediaType, "415: Unsupported Media Type").with_details(Details::default())
}

async fn apply(
    registry: &Registry,
    encoder: &ResponseEncoder,
    call: &Call,
    target: &Target,
) -> Result<Response<Body>, Status> {
    let options = WriteOptions::read(&call.query, Write::Apply)?;
    if target.part != Part::Whole || target.resource.custom().is_some_and(|custom| custom.terminating) {
        registry.get(&target.resource, &target.key())?;
    }
    let (sent, duplicates) = configuration(call, target)?;
    let rejected = match options.field_validation {
        FieldValidation::Strict if !duplicates.is_empty() => {
            let list = duplicates.join("\n  ");
            let why = format!("error converting YAML to JSON: yaml: unmarshal errors:\n  {list}");
            Some(Status::bad_request(format!("error strict decoding YAML: {why}")))
        }
        FieldValidation::Ignore => None,
        FieldValidation::Strict | FieldValidation::Warn => {
            call.warnings.add(duplicates);
            None
        }
    };
    let desired = |configuration| desired(registry, target, configuration);
    let decode = || configuration(call, target).and_then(|(configuration, _)| desired(configuration));
    let change = Change::Apply(Input::new(desired(sent)?, decode));
    if let Some(rejected) = rejected {
        // Errors of the change are reported before duplicate keys.
        registry.check_change(target, &change, &writer(call, options)).await?;
        return Err(rejected);
    }
    let done = registry.change(target, &change, &writer(call, options)).await?;
    outcome(encoder, target, done)
}

/// Reads the configuration of an apply; also returns warnings of duplicate keys.
fn configuration(call: &Call, target: &Target) -> Result<(Object, Vec<String>), Status> {
    let (configuration, duplicates) = applied(call)?;
    if configuration
        .metadata()
        .is_some_and(|metadata| metadata.get("managedFields").is_some_and(|managed| !managed.is_null()))
    {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let expected = if target.part == Part::Scale { scale::kind() } else { target.resource.kind.clone() };
    if configuration.group_version_kind().as_ref() != Some(&expected) {
        let group_version = flyball_core::GroupVersion::parse(configuration.api_version());
        let given = group_version
            .map(|version| version.kind(configuration.kind()))
            .unwrap_or_else(|| GroupVersionKind::new("", "", configuration.kind()));
        return Err(Status::bad_request(format!("invalid object type: {given}")));
    }
    Ok((configuration, duplicates))
}

/// Returns the part of an object that a configuration specifies.
fn desired(registry: &Registry, target: &Target, mut configuration: Object) -> Result<Object, Status> {
    if configuration.name().is_empty() && registry.get(&target.resource, &target.key()).is_ok() {
        configuration.metadata_mut().insert("name".into(), target.name().into());
    }
    target.check_name(&configuration)?;
    for field in ["creationTimestamp", "generation", "selfLink"] {
        configuration.metadata_mut().remove(field);
    }
    match target.part {
        Part::Scale => registry::scale::apply(&target.resource, &configuration),
        _ => Ok(configuration),
    }
}

/// Reads the body of an apply, which is YAML (JSON is a subset); also returns warnings of duplicate keys.
fn applied(call: &Call) -> Result<(Object, Vec<String>), Status> {
    let bad = |why: &str| Status::bad_request(format!("error decoding YAML: {why}"));
    let document = body::read_yaml(&call.body)
        .map_err(|error| error.to_status(|why| bad(&format!("error converting YAML to JSON: {why}"))))?;
    let value = if document.value.is_null() { json!({}) } else { document.value };
    let object = Object::try_from(value).map_err(|value| {
        let kind = json_type(&value);
        let why = format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
        bad(&format!("error unmarshaling JSON: while decoding JSON: {why}"))
    })?;
    Ok((object, document.duplicates))
}
