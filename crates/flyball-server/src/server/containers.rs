//! What reaches into the containers of a pod: logs, commands, streams. None run here, and clients are told so, after
//! all that would be refused without a container as well.

use super::Inner;
use super::dispatch::Call;
use crate::registry::Target;
use crate::response::{self, Body};
use flyball_core::{Object, Status};
use http::Response;
use serde_json::Value;

pub(super) fn answer(inner: &Inner, call: &Call, target: &Target, action: &str) -> Result<Response<Body>, Status> {
    let entry = inner.get(&target.resource, &target.key())?;
    let pod = entry.object();
    if matches!(action, "attach" | "exec" | "log") {
        check_container(&pod, call.query.text("container"))?;
    }
    let unbound = pod.at(&["spec", "nodeName"]).and_then(Value::as_str).unwrap_or_default().is_empty();
    match action {
        "log" if unbound => return Ok(response::answer(204, "text/plain", Body::empty())),
        "attach" | "exec" | "portforward" if unbound => {
            return Err(Status::bad_request(format!("pod {} does not have a host assigned", pod.name())));
        }
        _ => {}
    }
    let why = format!(
        "{action} is not possible here: the embedded control plane runs no containers; use a real cluster for it"
    );
    Err(Status::new(501, None, why))
}

/// Refuses a container that the pod does not have, and none where there are several.
fn check_container(pod: &Object, wanted: &str) -> Result<(), Status> {
    let names = ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| {
        let containers = pod.at(&["spec", list]).and_then(Value::as_array).into_iter().flatten();
        containers.filter_map(|container| container["name"].as_str())
    });
    let names: Vec<&str> = names.collect();
    let count = pod.at(&["spec", "containers"]).and_then(Value::as_array).map_or(0, Vec::len);
    let why = if !wanted.is_empty() {
        if names.contains(&wanted) {
            return Ok(());
        }
        format!("container {wanted} is not valid for pod {}", pod.name())
    } else if count > 1 {
        format!("a container name must be specified for pod {}, choose one of: [{}]", pod.name(), names.join(" "))
    } else {
        return Ok(());
    };
    Err(Status::bad_request(why))
}
