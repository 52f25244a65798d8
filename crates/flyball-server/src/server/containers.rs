//! Access to the containers of a pod: logs, commands, streams. Containers do not run here, so every request is
//! rejected, after the checks that do not need a container, and after admission.

use super::action_body::ActionBody;
use super::call::Call;
use crate::admission::Operation;
use crate::catalog::Target;
use crate::kinds::Subresource;
use crate::registry::Registry;
use crate::response::{self, Body};
use flyball_core::field::FieldError;
use flyball_core::{GroupVersionKind, Object, ObjectKey, Status};
use http::Response;
use serde_json::{Map, Value};

pub(super) async fn respond(
    registry: &Registry,
    call: &Call,
    target: &Target,
    subresource: &'static Subresource,
) -> Result<Response<Body>, Status> {
    let action = subresource.name;
    let mut container = call.query.text("container").to_owned();
    if let Some(kind) = subresource.kind {
        let body = ActionBody::options(call, kind, options(call, kind)?);
        let admitted = body.admit(registry, target, action, Operation::Connect).await?;
        admitted.review(registry).await?;
        container = admitted.object.get("container").and_then(Value::as_str).unwrap_or_default().to_owned();
    } else {
        check_log_options(call, &target.key())?;
    }
    let entry = registry.get(&target.resource, &target.key())?;
    let pod = entry.object()?;
    if matches!(action, "attach" | "exec" | "log") {
        check_container(&pod, &container)?;
    }
    let unbound = pod.at(&["spec", "nodeName"]).and_then(Value::as_str).unwrap_or_default().is_empty();
    match action {
        "log" if unbound => {
            let mut response = response::new(204, "text/plain", Body::empty());
            response.headers_mut().remove(http::header::CONTENT_TYPE);
            return Ok(response);
        }
        "attach" | "exec" | "portforward" if unbound => {
            return Err(Status::bad_request(format!("pod {} does not have a host assigned", pod.name())));
        }
        // Commands and ports go over a connection that is no longer HTTP.
        "attach" | "exec" | "portforward" if !call.is_upgrade() => {
            return Err(Status::bad_request("Upgrade request required"));
        }
        _ => {}
    }
    let why = format!("{action} is not supported: the embedded control plane runs no containers; use a real cluster");
    Err(Status::new(501, None, why))
}

/// Reads the options of a log, connection or proxy request from the URL.
fn options(call: &Call, kind: &str) -> Result<Object, Status> {
    let query = &call.query;
    let mut options = Map::new();
    if matches!(kind, "PodAttachOptions" | "PodExecOptions") {
        for stream in ["stdin", "stdout", "stderr", "tty"].into_iter().filter(|stream| query.flag(stream)) {
            options.insert(stream.into(), true.into());
        }
        if !query.text("container").is_empty() {
            options.insert("container".into(), query.text("container").into());
        }
    }
    match kind {
        "PodExecOptions" => {
            let command = query.all("command");
            options.insert("command".into(), if command.is_empty() { Value::Null } else { command.into() });
        }
        "PodPortForwardOptions" => {
            let ports: Vec<Value> = query
                .all("ports")
                .into_iter()
                .flat_map(|ports| ports.split(','))
                .map(port)
                .collect::<Result<_, _>>()?;
            if !ports.is_empty() {
                options.insert("ports".into(), ports.into());
            }
        }
        "NodeProxyOptions" | "PodProxyOptions" | "ServiceProxyOptions" => {
            if let Some(path) = proxied(call) {
                options.insert("path".into(), path.into());
            }
        }
        _ => {}
    }
    options.insert("apiVersion".into(), "v1".into());
    options.insert("kind".into(), kind.into());
    Object::try_from(Value::Object(options)).map_err(|_| Status::internal("options are an object"))
}

/// Rejects invalid options of a log request, also for a missing pod.
fn check_log_options(call: &Call, pod: &ObjectKey) -> Result<(), Status> {
    let query = &call.query;
    let number =
        |name: &str| query.get(name).map(|text| whole_number(text).map(|number| (name.to_owned(), number))).transpose();
    let (lines, bytes, seconds) = (number("tailLines")?, number("limitBytes")?, number("sinceSeconds")?);
    let mut errors = Vec::new();
    let below = |given: Option<(String, i64)>, least: i64, why: &str| {
        given.filter(|(_, number)| *number < least).map(|(name, number)| FieldError::invalid(name, number, why))
    };
    errors.extend(below(lines, 0, "must be greater than or equal to 0"));
    errors.extend(below(bytes, 1, "must be greater than 0"));
    if seconds.is_some() && query.get("sinceTime").is_some() {
        errors.push(FieldError::forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    } else {
        errors.extend(below(seconds, 1, "must be greater than 0"));
    }
    let kind = GroupVersionKind::new("", "v1", "PodLogOptions");
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(&kind, pod.name(), &errors)) }
}

fn whole_number(text: &str) -> Result<i64, Status> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.parse().map_err(|error: std::num::ParseIntError| {
        let large = matches!(error.kind(), PosOverflow | NegOverflow);
        let why = if large { "value out of range" } else { "invalid syntax" };
        Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
    })
}

fn port(text: &str) -> Result<Value, Status> {
    let why = match text.parse::<u16>() {
        Ok(port) if !text.starts_with('+') => return Ok(port.into()),
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => "value out of range",
        _ => "invalid syntax",
    };
    Err(Status::bad_request(format!("cannot convert to []int32: strconv.ParseUint: parsing {text:?}: {why}")))
}

/// The path behind a proxy: none if the URL ends with the word `proxy`.
fn proxied(call: &Call) -> Option<String> {
    let rest = call.info.resource.as_ref().map(|path| path.rest.join("/")).unwrap_or_default();
    let open = call.info.path.ends_with('/');
    if rest.is_empty() {
        return open.then(|| "/".to_owned());
    }
    Some(format!("/{rest}{}", if open { "/" } else { "" }))
}

/// Rejects a container that the pod does not have, and a missing container name if there are several.
fn check_container(pod: &Object, requested: &str) -> Result<(), Status> {
    let names = ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| {
        let containers = pod.at(&["spec", list]).and_then(Value::as_array).into_iter().flatten();
        containers.filter_map(|container| container["name"].as_str())
    });
    let names: Vec<&str> = names.collect();
    let count = pod.at(&["spec", "containers"]).and_then(Value::as_array).map_or(0, Vec::len);
    let why = if !requested.is_empty() {
        if names.contains(&requested) {
            return Ok(());
        }
        format!("container {requested} is not valid for pod {}", pod.name())
    } else if count > 1 {
        format!("a container name must be specified for pod {}, choose one of: [{}]", pod.name(), names.join(" "))
    } else {
        return Ok(());
    };
    Err(Status::bad_request(why))
}
