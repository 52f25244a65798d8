//! Client of a registry.
//!
//! See <https://github.com/opencontainers/distribution-spec/blob/main/spec.md> for the protocol, and
//! <https://distribution.github.io/distribution/spec/auth/token/> for authentication.

use super::credentials::Credentials;
use super::manifest::Index;
use super::reference::Reference;
use super::{Descriptor, INDEX, hex};
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::print_labeled;
use crate::web::{OnReceived, Receiver, Web};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, LINK, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use url::form_urlencoded;

/// Timeout of a response. A layer is acknowledged after its last byte.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(600);
/// Response header of registries that support referrers.
const SUBJECT: HeaderName = HeaderName::from_static("oci-subject");

/// Limit of pages of a list of tags.
const MAX_TAG_PAGES: usize = 100;
/// Limit of tags of a repository.
const MAX_TAGS: usize = 100_000;

/// A page of the tags of a repository.
#[derive(Deserialize)]
struct TagList {
    tags: Option<Vec<String>>,
}

/// Use of a repository by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Pull,
    Push,
}

impl Purpose {
    /// Returns the actions of a token, see <https://distribution.github.io/distribution/spec/auth/scope/>.
    fn actions(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Push => "pull,push",
        }
    }

    /// Returns the words before the name of a repository.
    fn verb(self) -> &'static str {
        match self {
            Self::Pull => "pull from",
            Self::Push => "push to",
        }
    }
}

/// One repository of a registry.
pub(crate) struct Registry {
    web: Web,
    base: Uri,
    purpose: Purpose,
    reference: Reference,
    credentials: Option<Credentials>,
    /// Authorization header, once the scheme is known.
    authorization: Option<String>,
}

impl Registry {
    /// Connects to a registry, and authenticates with the credentials in Docker's configuration.
    ///
    /// # Errors
    ///
    /// If the registry does not respond, or rejects the credentials.
    pub(crate) async fn connect(reference: &Reference, plain: bool, purpose: Purpose) -> Result<Self> {
        let files: Vec<PathBuf> = super::credentials::path().into_iter().collect();
        let credentials = Credentials::find(&files, &reference.registry).await?;
        Self::connect_with(Web::new(RESPONSE_TIMEOUT)?, credentials, reference, plain, purpose).await
    }

    /// Connects to a registry through this client, with these credentials.
    ///
    /// # Errors
    ///
    /// If the registry does not respond, or rejects the credentials.
    pub(crate) async fn connect_with(
        web: Web,
        credentials: Option<Credentials>,
        reference: &Reference,
        plain: bool,
        purpose: Purpose,
    ) -> Result<Self> {
        let scheme = if plain { "http" } else { "https" };
        let base: Uri = format!("{scheme}://{}/", reference.server()).parse().context("invalid registry address")?;
        let mut registry = Self { web, base, purpose, reference: reference.clone(), credentials, authorization: None };
        // A small request triggers authentication before a large upload.
        let response = registry.send(Method::GET, "/v2/", &[], Bytes::new()).await?;
        match response.status().is_success() {
            true => Ok(registry),
            false => Err(registry
                .response_error("authorize the request", &response)
                .hint(format!("check that {} is a container registry", reference.registry))),
        }
    }

    /// Uploads content unless it exists, and returns true if it was uploaded.
    pub(crate) async fn put_blob(&mut self, digest: &str, bytes: Vec<u8>) -> Result<bool> {
        let repository = self.reference.repository.clone();
        let there = self.send(Method::HEAD, &format!("/v2/{repository}/blobs/{digest}"), &[], Bytes::new()).await?;
        // Some registries redirect to their blob storage.
        if there.status().is_success() || there.status().is_redirection() {
            return Ok(false);
        }
        let response = self.send(Method::POST, &format!("/v2/{repository}/blobs/uploads/"), &[], Bytes::new()).await?;
        let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let (StatusCode::ACCEPTED, Some(location)) = (response.status(), location) else {
            return Err(self.response_error("accept an upload", &response));
        };
        let separator = if location.contains('?') { '&' } else { '?' };
        let location = format!("{location}{separator}digest={digest}");
        let headers = [(CONTENT_TYPE, "application/octet-stream")];
        let done = self.send(Method::PUT, &location, &headers, bytes.into()).await?;
        match done.status() {
            StatusCode::CREATED => Ok(true),
            _ => Err(self.response_error(&format!("accept {digest}"), &done)),
        }
    }

    /// Uploads a manifest or an index under a tag or its digest.
    pub(crate) async fn put_manifest(&mut self, media_type: &str, name: &str, bytes: Vec<u8>) -> Result<HeaderMap> {
        let path = format!("/v2/{}/manifests/{name}", self.reference.repository);
        let done = self.send(Method::PUT, &path, &[(CONTENT_TYPE, media_type)], bytes.into()).await?;
        match done.status() {
            StatusCode::CREATED | StatusCode::OK => Ok(done.headers().clone()),
            _ => Err(self.manifest_error(&format!("accept the manifest {name}"), &done)),
        }
    }

    /// Downloads a manifest by its tag or digest; `None` if the repository has none of that name.
    pub(crate) async fn get_manifest(&mut self, name: &str, media_types: &[&str]) -> Result<Option<Bytes>> {
        let path = format!("/v2/{}/manifests/{name}", self.reference.repository);
        let found = self.send(Method::GET, &path, &[(ACCEPT, &media_types.join(", "))], Bytes::new()).await?;
        match found.status() {
            StatusCode::OK => Ok(Some(found.into_body())),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(self.manifest_error(&format!("return the manifest {name}"), &found)),
        }
    }

    /// Downloads a blob and verifies its digest. By default, it must be small.
    pub(crate) async fn get_blob(&mut self, digest: &str) -> Result<Bytes> {
        self.receive_blob(digest, &mut Receiver::default()).await
    }

    /// Downloads a blob within a size limit and verifies its digest.
    pub(crate) async fn download_blob(
        &mut self,
        digest: &str,
        max_bytes: usize,
        on_received: OnReceived<'_>,
    ) -> Result<Bytes> {
        self.receive_blob(digest, &mut Receiver { max_bytes, on_received: Some(on_received) }).await
    }

    async fn receive_blob(&mut self, digest: &str, receiver: &mut Receiver<'_>) -> Result<Bytes> {
        let path = format!("/v2/{}/blobs/{digest}", self.reference.repository);
        let mut found = self.exchange(Method::GET, &path, &[], Bytes::new(), receiver).await?;
        if found.status().is_redirection() {
            // Many registries redirect to presigned URLs of blobs.
            let location = found.headers().get(LOCATION).and_then(|location| location.to_str().ok()).map(str::to_owned);
            let location = location.ok_or_else(|| self.response_error(&format!("return {digest}"), &found))?;
            found = self.exchange(Method::GET, &location, &[], Bytes::new(), receiver).await?;
        }
        match found.status() {
            StatusCode::OK if super::digest(found.body()) == digest => Ok(found.into_body()),
            StatusCode::OK => {
                Err(Error::new(format!("{} returned content that does not match {digest}", self.reference.registry)))
            }
            _ => Err(self.response_error(&format!("return {digest}"), &found)),
        }
    }

    /// Lists the tags of the repository.
    ///
    /// # Errors
    ///
    /// If the registry does not list them, or there are too many.
    pub(crate) async fn tags(&mut self) -> Result<Vec<String>> {
        let home = format!("/v2/{}/tags/list", self.reference.repository);
        let (mut tags, mut next) = (Vec::new(), Some(home.clone()));
        for _ in 0..MAX_TAG_PAGES {
            let Some(path) = next.take() else { return Ok(tags) };
            let page = self.send(Method::GET, &path, &[], Bytes::new()).await?;
            if page.status() != StatusCode::OK {
                return Err(self.response_error("list the tags", &page));
            }
            let list: TagList = serde_json::from_slice(page.body())
                .context(format!("{} returned an invalid list of tags", self.reference.registry))?;
            tags.extend(list.tags.unwrap_or_default());
            if tags.len() > MAX_TAGS {
                break;
            }
            next = page.headers().get(LINK).and_then(|link| next_page(link.to_str().ok()?, &home));
        }
        match next {
            None if tags.len() <= MAX_TAGS => Ok(tags),
            _ => {
                Err(Error::new(format!("{} lists too many tags", self.reference.registry))
                    .hint("pass the exact version"))
            }
        }
    }

    /// Uploads a manifest that refers to another one, and makes it discoverable as a referrer.
    pub(crate) async fn put_referrer(&mut self, referrer: &Descriptor, bytes: Vec<u8>, subject: &str) -> Result<()> {
        let headers = self.put_manifest(&referrer.media_type, &referrer.digest, bytes).await?;
        if headers.contains_key(SUBJECT) {
            return Ok(());
        }
        // The registry does not support referrers: they are listed under the fallback tag.
        let tag = format!("sha256-{}", hex(subject).unwrap_or_default());
        let Reference { registry, repository, .. } = &self.reference;
        let document = format!("index {registry}/{repository}:{tag}");
        let mut index = match self.get_manifest(&tag, &[INDEX]).await? {
            Some(found) => Index::read(&document, &found)
                .map_err(|error| error.hint(format!("delete the tag {tag}, which lists the referrers of an image")))?,
            None => Index::new(Vec::new()),
        };
        if index.manifests.iter().all(|listed| listed.digest != referrer.digest) {
            index.manifests.push(referrer.clone());
            self.put_manifest(INDEX, &tag, index.to_json().to_string().into_bytes()).await?;
        }
        Ok(())
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: Bytes,
    ) -> Result<Response<Bytes>> {
        self.exchange(method, path, headers, body, &mut Receiver::default()).await
    }

    /// Sends a request to a path, or to a URL from the registry. If the registry requires authentication, the request
    /// is repeated with credentials.
    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: Bytes,
        receiver: &mut Receiver<'_>,
    ) -> Result<Response<Bytes>> {
        let uri = self.resolve(path)?;
        // Credentials are not sent to other hosts.
        let is_home = uri.authority() == self.base.authority() && uri.scheme() == self.base.scheme();
        let request = |authorization: Option<&String>| {
            let mut request = Request::builder().method(method.clone()).uri(uri.clone());
            for (name, value) in headers {
                request = request.header(name, *value);
            }
            if let Some(authorization) = authorization.filter(|_| is_home) {
                request = request.header(AUTHORIZATION, authorization);
            }
            request.body(body.clone()).context("cannot build the request")
        };
        let response = self.web.receive(request(self.authorization.as_ref())?, receiver).await;
        let response = response.map_err(|error| match self.base.scheme_str() {
            _ if !is_home => error,
            Some("http") => error.hint(format!("check that a registry listens at {}", self.reference.registry)),
            _ if self.purpose == Purpose::Pull => error.hint("check the spelling"),
            _ if error.is_tls_failure() => error.hint("pass --insecure for a registry without TLS"),
            _ => error.hint("check the name of the registry, and HTTPS_PROXY if this machine uses a proxy"),
        })?;
        if response.status() != StatusCode::UNAUTHORIZED || !is_home {
            return Ok(response);
        }
        self.authorization = Some(self.authorize(&response).await?);
        let response = self.web.receive(request(self.authorization.as_ref())?, receiver).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            return Err(self.unauthorized_error());
        }
        Ok(response)
    }

    fn resolve(&self, path: &str) -> Result<Uri> {
        let whole = match path.starts_with('/') {
            true => format!("{}{}", self.base.to_string().trim_end_matches('/'), path),
            false => path.to_owned(),
        };
        let uri: Uri = whole.parse().context("the registry returned an invalid location")?;
        // An upload over TLS must not continue without TLS.
        match uri.scheme() == self.base.scheme() || uri.scheme_str() == Some("https") {
            true => Ok(uri),
            false => Err(Error::new(format!("{} redirects to an address without TLS", self.reference.registry))),
        }
    }

    /// Creates the Authorization header for the registry's challenge.
    async fn authorize(&self, response: &Response<Bytes>) -> Result<String> {
        let challenges = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        for challenge in challenges.map(Challenge::parse) {
            match challenge.scheme.as_str() {
                "basic" => {
                    let basic = self.credentials.as_ref().and_then(Credentials::basic);
                    return basic.ok_or_else(|| self.unauthorized_error());
                }
                "bearer" => return Ok(format!("Bearer {}", self.token(&challenge).await?)),
                _ => {}
            }
        }
        Err(Error::new(format!("{} requires an unsupported authentication scheme", self.reference.registry)))
    }

    /// Requests a token from the token server of the registry.
    async fn token(&self, challenge: &Challenge) -> Result<String> {
        let registry = &self.reference.registry;
        let realm = challenge.parameter("realm");
        let address: Uri = realm.parse().context(format!("{registry} has an invalid token realm {realm:?}"))?;
        if !may_authenticate_at(&self.base, &address, self.credentials.is_some()) {
            return Err(Error::new(format!("the token realm {realm} of {registry} has no TLS")));
        }
        let host = address.host().unwrap_or_default();
        if self.credentials.is_some() && !is_related(host, self.base.host().unwrap_or_default()) {
            print_labeled(
                "warning",
                &format!("{registry} uses the token service of {host}, which receives your password for {registry}"),
            );
        }
        let service = challenge.parameter("service");
        let scope = format!("repository:{}:{}", self.reference.repository, self.purpose.actions());
        let request = match &self.credentials {
            Some(Credentials::Identity(token)) => {
                let form = [
                    ("grant_type", "refresh_token"),
                    ("client_id", "flyball"),
                    ("service", service),
                    ("scope", &scope),
                    ("refresh_token", token),
                ];
                let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
                let request = Request::post(address).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
                request.body(form.into())
            }
            credentials => {
                let separator = if realm.contains('?') { '&' } else { '?' };
                let query = [("service", service), ("scope", &scope)];
                let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
                let mut request = Request::get(format!("{realm}{separator}{query}"));
                if let Some(basic) = credentials.as_ref().and_then(Credentials::basic) {
                    request = request.header(AUTHORIZATION, basic);
                }
                request.body(Bytes::new())
            }
        };
        let response = self.web.send(request.context("cannot request a token")?).await?;
        if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::BAD_REQUEST].contains(&response.status()) {
            return Err(self.unauthorized_error());
        }
        let body: Value = serde_json::from_slice(response.body()).unwrap_or_default();
        let token =
            ["token", "access_token"].iter().find_map(|name| body[name].as_str().filter(|token| !token.is_empty()));
        token.map(str::to_owned).ok_or_else(|| {
            let host = realm.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
            Error::new(format!("{host} refused a token for {registry}: {}", response.status()))
        })
    }

    fn unauthorized_error(&self) -> Error {
        let (registry, repository) = (&self.reference.registry, &self.reference.repository);
        let words = self.purpose.verb();
        let file = super::credentials::path().map(|path| path.display().to_string()).unwrap_or_default();
        match &self.credentials {
            Some(credentials) => {
                Error::new(format!("{registry} refused {} to {words} {repository}", credentials.describe()))
                    .hint(format!("check the entry for {registry} in {file}, or log in again: docker login {registry}"))
            }
            None => Error::new(format!("{registry} requires authentication to {words} {repository}"))
                .hint(format!("log in: docker login {registry}; without Docker, add user and password to {file}")),
        }
    }

    /// Creates the error for a request for a manifest that the registry rejected.
    fn manifest_error(&self, what: &str, response: &Response<Bytes>) -> Error {
        let error = self.response_error(what, response);
        match response.status() {
            StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                error.hint("the registry must support OCI media types; try a newer release")
            }
            _ => error,
        }
    }

    /// Creates the error for a request that the registry rejected.
    fn response_error(&self, what: &str, response: &Response<Bytes>) -> Error {
        let registry = &self.reference.registry;
        let body: Value = serde_json::from_slice(response.body()).unwrap_or_default();
        let text = |error: &Value| {
            let field = |name: &str| error[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            let words: Vec<String> = [field("code"), field("message")].into_iter().flatten().collect();
            words.join(": ")
        };
        let messages: Vec<String> = body["errors"].as_array().into_iter().flatten().map(text).collect();
        let messages = if messages.is_empty() { String::new() } else { format!(": {}", messages.join("; ")) };
        let error = Error::new(format!("{registry} did not {what} ({}){messages}", response.status()));
        match response.status() {
            StatusCode::FORBIDDEN => {
                let (words, repository) = (self.purpose.verb(), &self.reference.repository);
                error.hint(format!("request permission to {words} {repository}, or use another name"))
            }
            StatusCode::NOT_FOUND if self.purpose == Purpose::Pull => {
                error.hint(format!("check the spelling of {}", self.reference.repository))
            }
            StatusCode::NOT_FOUND => error.hint(format!(
                "check that {} exists; some registries require it to be created first",
                self.reference.repository
            )),
            StatusCode::TOO_MANY_REQUESTS => error.hint("retry later; uploaded layers are not sent again"),
            StatusCode::PAYLOAD_TOO_LARGE => error.hint("a proxy in front of the registry limits the request size"),
            status if status.is_server_error() => error.hint("the registry failed; try again later"),
            _ => error,
        }
    }
}

/// Returns the path of the next page of a list, see <https://www.rfc-editor.org/rfc/rfc8288>; `None` at its end.
fn next_page(link: &str, home: &str) -> Option<String> {
    let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
    let is_next = parameters.split(';').any(|parameter| matches!(parameter.trim(), "rel=\"next\"" | "rel=next"));
    let query = target.split_once('?')?.1;
    is_next.then(|| format!("{home}?{query}"))
}

/// Returns true if tokens may be requested from an address: over TLS, or without TLS like the registry itself, but then
/// no other host is sent a password.
fn may_authenticate_at(registry: &Uri, address: &Uri, with_credentials: bool) -> bool {
    let is_as_open = address.scheme() == registry.scheme();
    address.scheme_str() == Some("https") || (is_as_open && (!with_credentials || address.host() == registry.host()))
}

/// Returns true if two hosts are equal or of the same domain, such as auth.docker.io and registry-1.docker.io.
fn is_related(one: &str, other: &str) -> bool {
    let domain = |host: &str| {
        let labels: Vec<&str> = host.rsplit('.').take(2).collect();
        let is_name = labels.len() == 2 && labels[0].bytes().all(|byte| byte.is_ascii_alphabetic());
        is_name.then(|| format!("{}.{}", labels[1], labels[0]).to_lowercase())
    };
    one.eq_ignore_ascii_case(other) || domain(one).is_some_and(|domain_of_one| Some(domain_of_one) == domain(other))
}

/// Authentication challenge, see <https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1>.
#[derive(Debug, Default, PartialEq)]
struct Challenge {
    scheme: String,
    parameters: BTreeMap<String, String>,
}

impl Challenge {
    fn parse(text: &str) -> Self {
        let (scheme, mut rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let mut parameters = BTreeMap::new();
        while let Some((name, value)) = rest.split_once('=') {
            let (value, after) = match value.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
                None => value.split_at(value.find(',').unwrap_or(value.len())),
            };
            parameters.insert(name.trim_matches([' ', ',']).to_ascii_lowercase(), value.to_owned());
            rest = after;
        }
        Self { scheme: scheme.to_ascii_lowercase(), parameters }
    }

    fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::{Challenge, is_related, may_authenticate_at, next_page};

    #[test]
    fn credentials_are_sent_to_another_host_over_tls_only() {
        for (registry, address, with, without) in [
            ("https://r.example.com", "https://auth.example.com/token", true, true),
            ("https://r.example.com", "http://r.example.com/token", false, false),
            ("http://127.0.0.1:5000", "http://127.0.0.1:5001/token", true, true),
            ("http://127.0.0.1:5000", "http://elsewhere/token", false, true),
            ("http://127.0.0.1:5000", "https://elsewhere/token", true, true),
            ("http://127.0.0.1:5000", "file:///token", false, false),
            ("http://127.0.0.1:5000", "/token", false, false),
        ] {
            let Ok(parsed) = address.parse() else { continue };
            let may = |credentials| may_authenticate_at(&registry.parse().unwrap(), &parsed, credentials);
            assert_eq!((may(true), may(false)), (with, without), "{registry} {address}");
        }
    }

    #[test]
    fn unrelated_hosts_are_detected() {
        for (one, other, expected) in [
            ("auth.docker.io", "registry-1.docker.io", true),
            ("gitlab.com", "registry.gitlab.com", true),
            ("ghcr.io", "GHCR.io", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("evil.example", "ghcr.io", false),
            ("10.0.0.1", "10.1.0.1", false),
            ("localhost", "other", false),
        ] {
            assert_eq!(is_related(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn pages_stay_within_the_list() {
        for (link, expected) in [
            (r#"</v2/a/tags/list?n=2&last=b>; rel="next""#, Some("/v2/x/tags/list?n=2&last=b")),
            (r#"<https://elsewhere.example.com/?last=b>;rel=next"#, Some("/v2/x/tags/list?last=b")),
            (r#"</v2/a/tags/list?last=b>; rel="prev""#, None),
            ("</v2/a/tags/list>; rel=\"next\"", None),
            ("", None),
        ] {
            assert_eq!(next_page(link, "/v2/x/tags/list").as_deref(), expected, "{link}");
        }
    }

    #[test]
    fn challenges_are_parsed() {
        let read = Challenge::parse(r#"Bearer realm="https://a.example.com/token?x=1",service="r, s" , scope=plain"#);
        assert_eq!(
            (
                read.scheme.as_str(),
                read.parameter("realm"),
                read.parameter("service"),
                read.parameter("scope"),
                read.parameter("other")
            ),
            ("bearer", "https://a.example.com/token?x=1", "r, s", "plain", "")
        );
        assert_eq!(Challenge::parse("Basic").scheme, "basic");
        for odd in ["", "Bearer realm=\"", "Bearer =", "Bearer ,,=,", "x y z"] {
            let _ = Challenge::parse(odd);
        }
    }
}
