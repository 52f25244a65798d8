//! Responses: values and faults.

use crate::vsphere::ManagedObject;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Bytes;
use serde_json::{Value, json};

/// The error of a call or a task.
#[derive(Clone, Debug)]
pub(super) enum Problem {
    NotFound(ManagedObject),
    DuplicateName { name: String, object: Option<ManagedObject> },
    InvalidPowerState { powered_on: bool },
    TaskInProgress(ManagedObject),
    Named(&'static str),
}

impl Problem {
    pub(super) fn to_fault(&self) -> Value {
        match self {
            Self::NotFound(object) => json!({"_typeName": "ManagedObjectNotFound", "obj": object}),
            Self::DuplicateName { name, object } => {
                json!({"_typeName": "DuplicateName", "name": name, "object": object})
            }
            Self::InvalidPowerState { powered_on } => json!({
                "_typeName": "InvalidPowerState",
                "requestedState": power_state(!powered_on),
                "existingState": power_state(*powered_on),
            }),
            Self::TaskInProgress(task) => json!({"_typeName": "TaskInProgress", "task": task}),
            Self::Named(name) => json!({"_typeName": name}),
        }
    }

    pub(super) fn message(&self) -> String {
        match self {
            Self::NotFound(object) => format!("{object} does not exist."),
            Self::DuplicateName { name, .. } => format!("The name '{name}' already exists."),
            Self::InvalidPowerState { powered_on } => format!("The machine is {}.", power_state(*powered_on)),
            Self::TaskInProgress(task) => format!("{task} is in progress."),
            Self::Named(name) => format!("Simulated {name}."),
        }
    }
}

pub(super) fn power_state(on: bool) -> &'static str {
    if on { "poweredOn" } else { "poweredOff" }
}

/// Creates a response with a value. Methods without a result have no body.
pub(super) fn value(value: &Value) -> Response<Bytes> {
    match value {
        Value::Null => status(StatusCode::NO_CONTENT),
        value => with_body(StatusCode::OK, value),
    }
}

pub(super) fn fault(problem: &Problem) -> Response<Bytes> {
    let mut fault = problem.to_fault();
    fault["faultstring"] = problem.message().into();
    with_body(StatusCode::INTERNAL_SERVER_ERROR, &fault)
}

pub(super) fn status(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}

fn with_body(status: StatusCode, body: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
