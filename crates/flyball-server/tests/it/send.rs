//! Requests in process.

use bytes::Bytes;
use flyball_server::{Server, User};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::Value;

/// Sends a request as an administrator; also returns the warnings of the response.
pub(crate) async fn send(
    server: &Server,
    method: Method,
    path: &str,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> (u16, Value, Vec<String>) {
    send_as(server, User::new("admin", &["system:masters"]), method, path, content_type, body).await
}

/// Sends a request as any user.
pub(crate) async fn send_as(
    server: &Server,
    user: User,
    method: Method,
    path: &str,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> (u16, Value, Vec<String>) {
    let mut request = Request::new(Full::new(body.into()));
    (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
    request.extensions_mut().insert(user);
    request.headers_mut().insert("content-type", content_type.parse().unwrap());
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default(), warnings)
}
