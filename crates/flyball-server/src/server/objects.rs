//! Requests for resources: each verb read, carried out and answered.

use super::Inner;
use super::actions;
use super::dispatch::Call;
use super::reply::Presenter;
use crate::kinds::{Answer, Part, Verbs};
use crate::registry::decode::{self, Decoded};
use crate::registry::protobuf;
use crate::registry::{
    Catalog, Change, Deleted, Lookup, Outcome, Patch, PatchKind, Resource, Target, Writer, Written, parse_version,
    scale,
};
use crate::request::ResourcePath;
use crate::request::accept::{self, Form, View};
use crate::request::body::{self, Document, Format};
use crate::request::options::{DeleteOptions, FieldValidation, ListOptions, Write, WriteOptions};
use crate::response::{self, Body};
use crate::table::Include;
use crate::watch;
use flyball_core::status::{Details, Reason};
use flyball_core::{GroupVersionKind, Object, Status};
use http::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// The longest name of a manager.
const MAX_MANAGER: usize = 128;

/// What a path leads to.
pub(super) enum Place {
    /// Objects, or a part of one.
    Objects(Target),
    /// Something that is done with an object.
    Action { target: Target, name: &'static str },
}

/// Why a path leads nowhere.
enum Nowhere {
    Page,
    Refused(Status),
}

impl From<Status> for Nowhere {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

/// Answers a request for a resource.
pub(super) async fn answer(inner: &Arc<Inner>, call: &Call) -> Response<Body> {
    let path = call.target.resource.as_ref().expect("only called with one");
    let target = match find(inner, call, path) {
        Ok(place) => place,
        Err(Nowhere::Page) => return response::page_not_found(),
        Err(Nowhere::Refused(status)) => return response::status(&status),
    };
    let (resource, answered) = match target {
        Place::Objects(target) => (target.resource.clone(), objects(inner, call, target).await),
        Place::Action { target, name } => (target.resource.clone(), actions::answer(inner, call, &target, name).await),
    };
    let mut response = answered.unwrap_or_else(|status| refusal(call, &resource, &status));
    call.warnings.add(resource.deprecation().map(str::to_owned));
    call.warnings.tell(&mut response);
    response
}

/// Answers with a refusal, in the encoding that the client reads.
fn refusal(call: &Call, resource: &Resource, status: &Status) -> Response<Body> {
    let encoding =
        accept::negotiate(call.accept(), resource.offered()).map_or(Form::PLAIN.encoding, |form| form.encoding);
    response::status_in(Form { encoding, ..Form::PLAIN }, status)
}

/// Finds what a path leads to, and checks that it takes the method.
fn find(inner: &Inner, call: &Call, path: &ResourcePath) -> Result<Place, Nowhere> {
    let resource = match inner.catalog().lookup(&path.group, &path.version, &path.resource) {
        Lookup::Found(resource) if resource.is_served() => resource,
        Lookup::NotInGroup { built_in: true } => return Err(Status::unknown_resource().into()),
        Lookup::Found(_) | Lookup::NotInGroup { built_in: false } | Lookup::NoGroup => return Err(Nowhere::Page),
    };
    let custom = resource.custom().is_some();
    let spans_namespaces = matches!(call.target.verb, "list" | "watch");
    let misplaced = match (resource.namespaced, &path.namespace) {
        (true, None) => !spans_namespaces,
        (false, Some(_)) => !path.is_namespace || &*resource.plural != "namespaces" || custom,
        _ => false,
    };
    if misplaced {
        let known = !custom && resource.namespaced && path.name.is_none();
        return Err(if known {
            Status::method_not_allowed().into()
        } else if custom {
            Nowhere::Page
        } else {
            Status::unknown_resource().into()
        });
    }
    let verb = call.target.verb;
    let refuse = || match custom {
        true => {
            let details = Details { group: path.group.clone(), kind: path.resource.clone(), ..Details::default() };
            let message = format!("{verb} is not supported on resources of kind \"{}\"", resource.group_resource());
            Status::new(405, Reason::MethodNotAllowed, message).with_details(details)
        }
        false => Status::method_not_allowed(),
    };
    // A list of one name is still a list: its name is for rules alone.
    let name = path.name.clone().filter(|_| !call.target.is_collection());
    let mut target = Target {
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
            return Err(refuse().into());
        }
        return Ok(Place::Objects(target));
    };
    let (part, verbs, action) = match &resource.behaviour {
        crate::registry::Behaviour::Custom(_) => {
            let part = [Part::Status, Part::Scale]
                .into_iter()
                .find(|part| part.name() == subresource && resource.has_part(*part));
            let Some(part) = part else {
                return Err(
                    Status::not_found(&resource.group_resource(), target.name.as_deref().unwrap_or_default()).into()
                );
            };
            (Some(part), &["get", "patch", "update"][..], "")
        }
        crate::registry::Behaviour::BuiltIn(kind) => {
            match kind.subresources.iter().find(|known| known.name == subresource) {
                Some(known) => (known.part, known.verbs, known.name),
                None => return Err(Status::unknown_resource().into()),
            }
        }
    };
    if !verbs.contains(&verb) {
        return Err(refuse().into());
    }
    match part {
        Some(part) => {
            target.part = part;
            Ok(Place::Objects(target))
        }
        None => Ok(Place::Action { target, name: action }),
    }
}

async fn objects(inner: &Arc<Inner>, call: &Call, target: Target) -> Result<Response<Body>, Status> {
    let resource = target.resource.clone();
    let negotiate = match call.target.verb {
        "watch" => accept::negotiate_watch,
        "list" => accept::negotiate_list,
        _ => accept::negotiate,
    };
    let form = negotiate(call.accept(), resource.offered())?;
    let include =
        if form.view == View::Table { Include::read(call.query.text("includeObject"))? } else { Include::Metadata };
    let show = Presenter { inner: inner.clone(), resource: resource.clone(), form, include };
    match call.target.verb {
        "get" => get(&show, call, &target).await,
        "list" => {
            let options = ListOptions::read(&call.query, false)?;
            let mut listed = inner.list(&resource, target.namespace.as_deref(), &options)?;
            listed.entries = inner.shown(&resource, listed.entries).await?;
            show.list(listed)
        }
        "watch" => {
            let mut options = ListOptions::read(&call.query, true)?;
            if let Some(name) = watched_name(call) {
                options.fields.require("metadata.name", name);
            }
            watch::answer(show, target.namespace.as_deref(), &options, call.connection.clone()).await
        }
        "create" if resource.verbs() == Verbs::CreateOnly => actions::review(inner, call, &target, form).await,
        "create" => create(&show, call, &target).await,
        "update" => update(&show, call, &target).await,
        "patch" => patch(&show, call, &target).await,
        "delete" => delete(&show, call, &target).await,
        "deletecollection" => delete_collection(&show, call, &target).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// The name in the path of a watch in the old way.
fn watched_name(call: &Call) -> Option<&str> {
    call.target.resource.as_ref().filter(|_| call.target.watched_by_path)?.name.as_deref()
}

async fn get(show: &Presenter, call: &Call, target: &Target) -> Result<Response<Body>, Status> {
    let version = parse_version(call.query.text("resourceVersion")).map_err(|why| Status::new(500, None, why))?;
    if let Some(version) = version {
        show.inner.has_reached(version)?;
    }
    let entry = show.inner.get(&target.resource, &target.key())?;
    let entry = show.inner.shown_one(&target.resource, entry).await?;
    if target.part == Part::Scale {
        return scaled(show, 200, &show.inner.object(&target.resource, &entry)?);
    }
    show.written(200, &Written::Stored(entry))
}

/// Answers with the scale of an object.
fn scaled(show: &Presenter, code: u16, object: &Object) -> Result<Response<Body>, Status> {
    let scale = scale::of(&show.resource, object)?;
    Ok(response::value(code, Form { view: View::Whole, ..show.form }, scale.as_value()))
}

fn outcome(show: &Presenter, target: &Target, outcome: Outcome) -> Result<Response<Body>, Status> {
    let code = if outcome.created { 201 } else { 200 };
    match (target.part, outcome.object) {
        (Part::Scale, Written::Stored(entry)) => scaled(show, code, &show.inner.object(&show.resource, &entry)?),
        (Part::Scale, Written::Shown(object)) => scaled(show, code, &object),
        (_, written) => show.written(code, &written),
    }
}

/// Reads the body of a create or an update as JSON, by its media type.
pub(super) fn document(call: &Call, resource: &Resource) -> Result<Document, Status> {
    let format = match call.content_type() {
        None | Some("application/json") => Format::Json,
        Some("application/yaml") => Format::Yaml,
        Some(protobuf::MEDIA_TYPE) if resource.custom().is_none() => return protobuf::document(resource, &call.body),
        Some(_) => return Err(unsupported(resource)),
    };
    body::read(format, &call.body).map_err(|error| decode::unreadable(resource, &error, &call.body))
}

/// Refuses a body of a type that the resource cannot be sent in.
fn unsupported(resource: &Resource) -> Status {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        resource.offered()
    );
    Status::new(415, Reason::UnsupportedMediaType, message)
}

pub(super) fn writer<'c>(call: &'c Call, options: WriteOptions) -> Writer<'c> {
    let manager = options.field_manager.clone().unwrap_or_else(|| {
        let program = call.program();
        let end = program
            .char_indices()
            .map(|(at, c)| at + c.len_utf8())
            .take_while(|end| *end <= MAX_MANAGER)
            .last()
            .unwrap_or(0);
        let printable: String = program[..end].chars().filter(|c| !c.is_control()).collect();
        if printable.is_empty() { "unknown".into() } else { printable }
    });
    Writer { user: &call.user, manager, options, warnings: &call.warnings, reviewed: true }
}

fn decoded(show: &Presenter, call: &Call, validation: FieldValidation) -> Result<Object, Status> {
    let document = document(call, &show.resource)?;
    let decoded = decode::body(&show.resource, document, &call.body, validation)?;
    call.warnings.add(decoded.warnings);
    Ok(decoded.object)
}

async fn create(show: &Presenter, call: &Call, target: &Target) -> Result<Response<Body>, Status> {
    if let Some(custom) = target.resource.custom().filter(|custom| custom.terminating) {
        let why = "create not allowed while custom resource definition is terminating";
        tracing::debug!(crd = custom.definition, "{why}");
        let object = decoded(show, call, FieldValidation::Ignore)?;
        return Err(Status::forbidden(&target.resource.group_resource(), object.name(), why));
    }
    let options = WriteOptions::read(&call.query, Write::Create)?;
    let object = decoded(show, call, options.field_validation)?;
    let done = show.inner.create(target, object, &writer(call, options)).await?;
    outcome(show, target, done)
}

async fn update(show: &Presenter, call: &Call, target: &Target) -> Result<Response<Body>, Status> {
    let options = WriteOptions::read(&call.query, Write::Update)?;
    if target.part == Part::Scale {
        let kind = Catalog::action("Scale");
        let document = document(call, &kind)?;
        let Decoded { object, .. } = decode::body(&kind, document, &call.body, options.field_validation)?;
        target.check_name(&object)?;
        let change = scale::replace(&target.resource, object);
        let done = show.inner.change(target, &change, &writer(call, options)).await?;
        return outcome(show, target, done);
    }
    let object = decoded(show, call, options.field_validation)?;
    target.check_name(&object)?;
    let done = show.inner.change(target, &Change::Replace(object), &writer(call, options)).await?;
    outcome(show, target, done)
}

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

async fn patch(show: &Presenter, call: &Call, target: &Target) -> Result<Response<Body>, Status> {
    let custom = show.resource.custom().is_some();
    let kind = match call.content_type() {
        Some(JSON_PATCH) => Some(PatchKind::Json),
        Some(MERGE_PATCH) => Some(PatchKind::Merge),
        Some(STRATEGIC_PATCH) if !custom => Some(PatchKind::Strategic),
        Some(APPLY_PATCH) => None,
        _ => return Err(unsupported_patch(custom)),
    };
    let Some(kind) = kind else { return apply(show, call, target).await };
    let options = WriteOptions::read(&call.query, Write::Patch)?;
    // What is not there is told of before what is wrong with the patch.
    show.inner.get(&target.resource, &target.key())?;
    let mut document = body::read(Format::Json, &call.body).map_err(|error| {
        let prefix = if kind == PatchKind::Strategic { "" } else { "error decoding patch: " };
        error.refuse(|why| Status::bad_request(format!("{prefix}{why}")))
    })?;
    if kind == PatchKind::Strategic {
        flyball_schema::decode::as_go_numbers(&mut document.value);
    }
    let patch = Patch { kind, value: document.value, duplicates: document.duplicates };
    let change = if target.part == Part::Scale {
        scale::patch(&target.resource, patch, options.field_validation, call.warnings.clone())
    } else {
        Change::Patch(patch)
    };
    let done = show.inner.change(target, &change, &writer(call, options)).await?;
    outcome(show, target, done)
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

async fn apply(show: &Presenter, call: &Call, target: &Target) -> Result<Response<Body>, Status> {
    let options = WriteOptions::read(&call.query, Write::Apply)?;
    if target.part != Part::Whole || target.resource.custom().is_some_and(|custom| custom.terminating) {
        show.inner.get(&target.resource, &target.key())?;
    }
    let (mut wanted, duplicates) = applied(call)?;
    if wanted.metadata().is_some_and(|metadata| metadata.get("managedFields").is_some_and(|managed| !managed.is_null()))
    {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let expected = if target.part == Part::Scale { scale::kind() } else { target.resource.kind.clone() };
    if wanted.group_version_kind().as_ref() != Some(&expected) {
        let group_version = flyball_core::GroupVersion::parse(wanted.api_version());
        let given = group_version
            .map(|version| version.kind(wanted.kind()))
            .unwrap_or_else(|| GroupVersionKind::new("", "", wanted.kind()));
        return Err(Status::bad_request(format!("invalid object type: {given}")));
    }
    let refused = match options.field_validation {
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
    if wanted.name().is_empty() && show.inner.get(&target.resource, &target.key()).is_ok() {
        wanted.metadata_mut().insert("name".into(), target.name().into());
    }
    target.check_name(&wanted)?;
    for field in ["creationTimestamp", "generation", "selfLink"] {
        wanted.metadata_mut().remove(field);
    }
    let change =
        if target.part == Part::Scale { scale::apply(&target.resource, &wanted)? } else { Change::Apply(wanted) };
    if let Some(refused) = refused {
        // What it would come to is told of before how it is written.
        show.inner.try_out(target, &change, &writer(call, options)).await?;
        return Err(refused);
    }
    let done = show.inner.change(target, &change, &writer(call, options)).await?;
    outcome(show, target, done)
}

/// Reads what an applier sends, which is always YAML, if only because JSON is; also tells of keys that stand twice.
fn applied(call: &Call) -> Result<(Object, Vec<String>), Status> {
    let bad = |why: &str| Status::bad_request(format!("error decoding YAML: {why}"));
    let document = body::read_yaml(&call.body)
        .map_err(|error| error.refuse(|why| bad(&format!("error converting YAML to JSON: {why}"))))?;
    let value = if document.value.is_null() { json!({}) } else { document.value };
    let object = Object::try_from(value).map_err(|value| {
        let kind = decode::sort(&value);
        let why = format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
        bad(&format!("error unmarshaling JSON: while decoding JSON: {why}"))
    })?;
    Ok((object, document.duplicates))
}

/// Reads the options of a deletion from query and body.
fn delete_options(show: &Presenter, call: &Call) -> Result<DeleteOptions, Status> {
    if call.body.is_empty() {
        return DeleteOptions::read(&call.query, None);
    }
    let options = delete_body(call, &show.resource)?;
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
        Some(format) => body::read(format, &call.body).map_err(|error| error.refuse(bad))?.value,
    };
    if !value.is_object() {
        return Err(bad("a DeleteOptions object is wanted".into()));
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

/// Warns of what a deletion leaves behind, unless it says so itself.
fn warn_of_deletion(call: &Call, target: &Target, options: &DeleteOptions) {
    let is_job = target.resource.custom().is_none() && *target.resource.kind.kind == *"Job";
    if is_job && options.propagation.is_none() {
        let why = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";
        call.warnings.add([why.to_owned()]);
    }
}

async fn delete(show: &Presenter, call: &Call, target: &Target) -> Result<Response<Body>, Status> {
    let options = delete_options(show, call)?;
    warn_of_deletion(call, target, &options);
    let deleted = show.inner.delete(target, &options, &writer(call, WriteOptions::default())).await?;
    match deleted {
        Deleted::Marked(written) => show.written(200, &written),
        Deleted::Gone(object) if target.resource.deleted_as() == Answer::Object => show.object(200, &object),
        Deleted::Gone(object) => {
            Ok(response::value(200, Form { view: View::Whole, ..show.form }, &success(&target.resource, &object)))
        }
    }
}

/// Says that an object was deleted.
fn success(resource: &Resource, object: &Object) -> Value {
    let mut details = serde_json::Map::new();
    let fields =
        [("name", object.name()), ("group", &resource.kind.group), ("kind", &resource.plural), ("uid", object.uid())];
    for (field, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        details.insert(field.into(), value.into());
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

async fn delete_collection(show: &Presenter, call: &Call, target: &Target) -> Result<Response<Body>, Status> {
    let selected = ListOptions::read(&call.query, false)?;
    let options = delete_options(show, call)?;
    warn_of_deletion(call, target, &options);
    let mut listed = show.inner.list(&target.resource, target.namespace.as_deref(), &selected)?;
    listed.entries = show.inner.shown(&target.resource, listed.entries).await?;
    show.inner.delete_all(target, &listed.entries, &options, &writer(call, WriteOptions::default())).await?;
    show.list(listed)
}
