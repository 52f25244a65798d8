//! Requests that passed authorization, and their bodies.

use crate::admission::Writer;
use crate::auth::User;
use crate::bounds::{Flow, Hold};
use crate::catalog::{Resource, decode, protobuf};
use crate::connection::RequestConnection;
use crate::request::body::{self, Document, Format};
use crate::request::options::WriteOptions;
use crate::request::{Query, RequestInfo};
use crate::response::Warnings;
use bytes::Bytes;
use flyball_core::Status;
use flyball_core::status::Reason;
use http::{HeaderMap, Method, header};

/// Maximum length of a field manager's name.
const MAX_MANAGER: usize = 128;

/// A request that passed authorization.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
    pub(crate) body: Bytes,
    pub(crate) user: User,
    pub(crate) info: RequestInfo,
    /// The warnings of the response.
    pub(crate) warnings: Warnings,
    /// The connection of the request, if it is not in process.
    pub(crate) connection: Option<RequestConnection>,
    /// The flow that is charged for it.
    pub(super) flow: Flow,
    /// The bytes of the stored object of that name, if the request came over a connection.
    pub(super) stored_bytes: usize,
    /// Its slot, and the bytes of its body.
    pub(super) _holds: [Option<Hold>; 2],
}

impl Call {
    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns true if the request may write.
    pub(super) fn writes(&self) -> bool {
        self.info.resource.is_some() && !matches!(self.method, Method::GET | Method::HEAD)
    }

    /// Returns true if the client requests a protocol upgrade.
    pub(crate) fn is_upgrade(&self) -> bool {
        let values = self.headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
        values.into_iter().any(|value| value.to_ascii_lowercase().contains("upgrade"))
    }

    pub(crate) fn accept(&self) -> Option<&str> {
        self.header(header::ACCEPT)
    }

    /// The media type of the body, without its parameters.
    pub(crate) fn content_type(&self) -> Option<&str> {
        let full = self.header(header::CONTENT_TYPE)?;
        Some(full.split(';').next().unwrap_or_default().trim()).filter(|media| !media.is_empty())
    }

    /// The name of the client program, from the `User-Agent`.
    pub(crate) fn program(&self) -> &str {
        self.header(header::USER_AGENT).unwrap_or_default().split('/').next().unwrap_or_default()
    }
}

/// A request that was rejected before dispatch.
pub(super) enum RejectedRequest {
    Status(Status),
    Busy,
}

impl From<Status> for RejectedRequest {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Decodes the body of a create or update as JSON, by its media type.
pub(super) fn document(call: &Call, resource: &Resource) -> Result<Document, Status> {
    let format = match call.content_type() {
        None | Some("application/json") => Format::Json,
        Some("application/yaml") => Format::Yaml,
        Some(protobuf::MEDIA_TYPE) if resource.custom().is_none() => return protobuf::document(resource, &call.body),
        Some(_) => return Err(unsupported(resource)),
    };
    body::read(format, &call.body).map_err(|error| decode::unreadable(resource, &error, &call.body))
}

/// Returns the 415 for a body of an unsupported media type.
pub(super) fn unsupported(resource: &Resource) -> Status {
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
    let (agent, verb) = (call.header(header::USER_AGENT).unwrap_or_default(), call.info.verb);
    Writer { user: &call.user, manager, agent, verb, options, warnings: &call.warnings, reviewed: true }
}
