//! A session with a vCenter: addresses, timeouts and logins.

use super::wire::ManagedObject;
use super::{Credentials, Error, Result, Transport};
use http::{HeaderValue, Request, StatusCode, Uri, header};
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;
use tower::ServiceExt;

/// The first release with VI/JSON; later releases serve it as well.
const RELEASE: &str = "8.0.1.0";
const SESSION_HEADER: &str = "vmware-api-session-id";
/// Pause after rejected credentials. vCenter locks an account after five wrong passwords within three minutes, and each
/// group would try to log in.
const LOGIN_RETRY_DELAY: Duration = Duration::from_secs(60);

/// `VC_HOST` is invalid. The message does not repeat its value, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("VC_HOST must be a host, host:port or an https URL without user, password and path")]
pub struct InvalidHost;

/// Singleton objects of a vCenter.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServiceContent {
    pub(super) root_folder: ManagedObject,
    pub(super) property_collector: ManagedObject,
    pub(super) search_index: ManagedObject,
    session_manager: ManagedObject,
}

pub(super) struct Session {
    transport: Transport,
    address: String,
    host: String,
    credentials: Credentials,
    deadline: Duration,
    content: OnceCell<ServiceContent>,
    login: Mutex<LoginState>,
}

/// State of a login session.
#[derive(Default)]
struct LoginState {
    key: Option<Arc<HeaderValue>>,
    /// Time when vCenter rejected the credentials.
    rejected: Option<Instant>,
}

impl Session {
    pub(super) fn new(
        credentials: Credentials,
        deadline: Duration,
        transport: Transport,
    ) -> std::result::Result<Self, InvalidHost> {
        let (scheme, host) = parse_host(&credentials.host).ok_or(InvalidHost)?;
        Ok(Self {
            transport,
            address: format!("{scheme}://{host}/sdk/vim25/{RELEASE}"),
            host,
            credentials,
            deadline,
            content: OnceCell::new(),
            login: Mutex::default(),
        })
    }

    /// Reads the singleton objects. Requires no login.
    pub(super) async fn content(&self) -> Result<&ServiceContent> {
        const METHOD: &str = "RetrieveServiceContent";
        let read = || async {
            let instance = ManagedObject::new("ServiceInstance", "ServiceInstance");
            let (response, _) = self.send(&instance, METHOD, &json!({}), None).await?;
            decode(METHOD, response)
        };
        self.content.get_or_try_init(read).await
    }

    /// Calls a method after login. An ended session is replaced once.
    pub(super) async fn call(&self, object: &ManagedObject, method: &'static str, body: &Value) -> Result<Value> {
        let key = self.log_in(None).await?;
        let response = match self.send(object, method, body, Some(&key)).await {
            Err(Error::NotAuthenticated) => {
                let key = self.log_in(Some(&key)).await?;
                self.send(object, method, body, Some(&key)).await
            }
            response => response,
        };
        response.map(|(value, _)| value)
    }

    /// Returns the session's key. The first caller with an `ended` session replaces it; other callers wait for the new
    /// session.
    async fn log_in(&self, expired: Option<&Arc<HeaderValue>>) -> Result<Arc<HeaderValue>> {
        const METHOD: &str = "Login";
        let mut login = self.login.lock().await;
        if let Some(key) = &login.key
            && expired.is_none_or(|expired| !Arc::ptr_eq(key, expired))
        {
            return Ok(Arc::clone(key));
        }
        if login.rejected.is_some_and(|at| at.elapsed() < LOGIN_RETRY_DELAY) {
            return Err(Error::InvalidLogin);
        }
        let body = json!({
            "_typeName": "LoginRequestType",
            "userName": self.credentials.user,
            "password": self.credentials.password,
        });
        let response = self.send(&self.content().await?.session_manager, METHOD, &body, None).await;
        login.rejected = matches!(response, Err(Error::InvalidLogin)).then(Instant::now);
        let (_, key) = response?;
        let mut key = key.ok_or_else(|| Error::Malformed { method: METHOD, what: "no session".into() })?;
        key.set_sensitive(true);
        tracing::debug!(host = self.host, "logged in to vCenter");
        Ok(Arc::clone(login.key.insert(Arc::new(key))))
    }

    async fn send(
        &self,
        object: &ManagedObject,
        method: &'static str,
        body: &Value,
        key: Option<&HeaderValue>,
    ) -> Result<(Value, Option<HeaderValue>)> {
        flyball::external_call("vcenter", self.exchange(object, method, body, key)).await
    }

    async fn exchange(
        &self,
        object: &ManagedObject,
        method: &'static str,
        body: &Value,
        key: Option<&HeaderValue>,
    ) -> Result<(Value, Option<HeaderValue>)> {
        let malformed = |what: String| Error::Malformed { method, what };
        let mut request = Request::post(format!("{}/{}/{}/{method}", self.address, object.kind, object.id))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(key) = key {
            request = request.header(SESSION_HEADER, key);
        }
        let request = request.body(Bytes::from(body.to_string())).map_err(|e| malformed(format!("{object}: {e}")))?;

        let unreachable = |source| Error::Unreachable { host: self.host.clone(), source };
        let response = tokio::time::timeout(self.deadline, self.transport.clone().oneshot(request))
            .await
            .unwrap_or_else(|_| Err(format!("no response to {method} within {:?}", self.deadline).into()))
            .map_err(unreachable)?;

        let status = response.status();
        let value = match response.body().as_ref() {
            [] => Some(Value::Null),
            body => serde_json::from_slice(body).ok(),
        };
        match value {
            Some(value) if status.is_success() => Ok((value, response.headers().get(SESSION_HEADER).cloned())),
            None if status.is_success() => Err(malformed("a body that is not JSON".into())),
            value => Err(value.and_then(|fault| Error::from_fault(&fault, None)).unwrap_or_else(|| match status {
                StatusCode::UNAUTHORIZED => Error::NotAuthenticated,
                StatusCode::NOT_FOUND => malformed("HTTP status 404; its VI/JSON API came with 8.0 U1".into()),
                _ => malformed(format!("HTTP status {status}")),
            })),
        }
    }
}

/// Decodes a response.
pub(super) fn decode<T: serde::de::DeserializeOwned>(method: &'static str, response: Value) -> Result<T> {
    serde_json::from_value(response).map_err(|e| Error::Malformed { method, what: e.to_string() })
}

/// Parses scheme and authority of a host, `host:port` or URL. Many tools append the path `/sdk`, which is accepted and
/// ignored.
fn parse_host(host: &str) -> Option<(String, String)> {
    let url = if host.contains("://") { host.to_owned() } else { format!("https://{host}") };
    let uri: Uri = url.parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    let fits = matches!(scheme, "https" | "http")
        && !authority.as_str().contains('@')
        && !authority.host().is_empty()
        && matches!(uri.path(), "" | "/" | "/sdk" | "/sdk/")
        && uri.query().is_none();
    fits.then(|| (scheme.to_owned(), authority.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, expected: Option<(&str, &str)>) {
        let found = parse_host(host);
        assert_eq!(found.as_ref().map(|(scheme, host)| (scheme.as_str(), host.as_str())), expected, "{host}");
    }

    #[test]
    fn host_may_contain_port_and_scheme() {
        check("vc", Some(("https", "vc")));
        check("10.0.0.1:8443", Some(("https", "10.0.0.1:8443")));
        check("[::1]:8443", Some(("https", "[::1]:8443")));
        check("https://vc.example.com", Some(("https", "vc.example.com")));
        check("http://127.0.0.1:8989/sdk", Some(("http", "127.0.0.1:8989")));
    }

    #[test]
    fn invalid_hosts_are_rejected() {
        for host in ["", "a b", "::1", "ftp://vc", "https://user:secret@vc", "user@vc", "vc/ui", "vc/sdk?x=1", ":443"] {
            check(host, None);
        }
    }
}
