//! Access to the console: who may send which request, and the headers of every response.
//!
//! The address that the terminal prints contains a token. With it, the page and a cookie for its files are served. The
//! page keeps the token in the storage of its origin and sends it as a bearer token; the cookie does not permit
//! requests for data, because browsers send cookies to all ports of a host, and other programs listen on other ports.
//!
//! The `Host` header must name a loopback address, so that a foreign name that resolves to it reads nothing (DNS
//! rebinding). A write must come from the page itself: its `Origin` is checked as well.

use flyball_core::hex;
use http::header::{AUTHORIZATION, COOKIE, HOST, HeaderName, HeaderValue, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

/// Rights of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The page and its files.
    Files,
    /// Everything.
    Data,
}

/// The secrets and the address of a console.
#[derive(Clone)]
pub(crate) struct Access {
    token: String,
    cookie: String,
    port: u16,
}

impl Access {
    /// Creates random secrets.
    pub(crate) fn new(port: u16) -> Result<Self, ring::error::Unspecified> {
        Ok(Self { token: random()?, cookie: random()?, port })
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Returns the cookie that the page gets. Its name has the port, because cookies of all ports share one store.
    pub(crate) fn set_cookie(&self) -> String {
        format!("flyball-console-{}={}; Path=/; HttpOnly; SameSite=Strict", self.port, self.cookie)
    }

    /// Returns the rights of a request, or the reason of a rejection.
    pub(crate) fn check(&self, head: &Parts) -> Result<Scope, (StatusCode, &'static str)> {
        let host = text_of(&head.headers, HOST);
        if !self.hosts().iter().any(|expected| *expected == host) {
            return Err((StatusCode::FORBIDDEN, "the Host header is not the address of this console"));
        }
        let origin = text_of(&head.headers, ORIGIN);
        let is_own = origin.strip_prefix("http://").is_some_and(|origin| origin == host);
        let site = text_of(&head.headers, HeaderName::from_static("sec-fetch-site"));
        if head.headers.contains_key(ORIGIN) && !is_own || matches!(site, "cross-site" | "same-site") && is_data(head) {
            return Err((StatusCode::FORBIDDEN, "the request is from another site"));
        }
        if head.method == Method::POST && !is_own {
            return Err((StatusCode::FORBIDDEN, "writes need an Origin header"));
        }
        if text_of(&head.headers, AUTHORIZATION).strip_prefix("Bearer ").is_some_and(|token| self.is_token(token)) {
            return Ok(Scope::Data);
        }
        if !is_data(head) && (self.has_cookie(&head.headers) || self.is_token(query_token(head))) {
            return Ok(Scope::Files);
        }
        Err((StatusCode::UNAUTHORIZED, "open the address that flyball has printed: it contains the token"))
    }

    fn hosts(&self) -> [String; 2] {
        [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)]
    }

    fn is_token(&self, token: &str) -> bool {
        equal(token, &self.token)
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let name = format!("flyball-console-{}", self.port);
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(key, value)| key == name && equal(value, &self.cookie))
    }
}

fn is_data(head: &Parts) -> bool {
    head.uri.path().starts_with("/api/")
}

fn query_token(head: &Parts) -> &str {
    let parameters = head.uri.query().unwrap_or_default().split('&');
    parameters.filter_map(|pair| pair.strip_prefix("token=")).next().unwrap_or_default()
}

fn text_of(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Compares digests, so that the time reveals nothing about a secret.
fn equal(a: &str, b: &str) -> bool {
    digest(&SHA256, a.as_bytes()).as_ref() == digest(&SHA256, b.as_bytes()).as_ref()
}

fn random() -> Result<String, ring::error::Unspecified> {
    let mut bytes = [0; 24];
    SystemRandom::new().fill(&mut bytes)?;
    Ok(hex::encode(&bytes))
}

/// Headers of every response: nothing is loaded from elsewhere, framed, cached or guessed.
pub(crate) fn headers() -> [(HeaderName, HeaderValue); 7] {
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                  trusted-types 'none'";
    [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
    ]
    .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn check(method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Scope, u16> {
        let access = Access { token: "T".into(), cookie: "C".into(), port: 80 };
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        access.check(&head).map_err(|(status, _)| status.as_u16())
    }

    #[test]
    fn requests_need_the_token_and_a_loopback_host() {
        let host = ("host", "127.0.0.1:80");
        let bearer = ("authorization", "Bearer T");
        let cookie = ("cookie", "other=1; flyball-console-80=C");
        let origin = ("origin", "http://127.0.0.1:80");
        assert_eq!(check("GET", "/", &[host]), Err(401));
        assert_eq!(check("GET", "/?token=T", &[host]), Ok(Scope::Files));
        assert_eq!(check("GET", "/?token=t", &[host]), Err(401));
        assert_eq!(check("GET", "/app.js", &[host, cookie]), Ok(Scope::Files));
        assert_eq!(check("GET", "/api/stream", &[host, cookie]), Err(401), "other ports get the cookie as well");
        assert_eq!(check("GET", "/api/stream?token=T", &[host]), Err(401), "tokens in URLs end up in histories");
        assert_eq!(check("GET", "/api/stream", &[host, bearer]), Ok(Scope::Data));
        assert_eq!(check("GET", "/api/stream", &[("host", "localhost:80"), bearer]), Ok(Scope::Data));
        for host in ["evil.example:80", "127.0.0.1", "127.0.0.1:81", "127.0.0.1:80.evil.example", ""] {
            assert_eq!(check("GET", "/api/stream", &[("host", host), bearer]), Err(403), "{host}");
        }
        assert_eq!(check("GET", "/api/stream", &[bearer]), Err(403));
        assert_eq!(check("POST", "/api/act", &[host, bearer]), Err(403), "without an origin");
        assert_eq!(check("POST", "/api/act", &[host, bearer, origin]), Ok(Scope::Data));
        for other in ["http://localhost:80", "http://127.0.0.1:8080", "null", "https://127.0.0.1:80"] {
            assert_eq!(check("POST", "/api/act", &[host, bearer, ("origin", other)]), Err(403), "{other}");
        }
        assert_eq!(check("GET", "/api/stream", &[host, bearer, ("sec-fetch-site", "cross-site")]), Err(403));
    }

    #[test]
    fn secrets_are_random() {
        let (one, other) = (Access::new(1).expect("randomness"), Access::new(1).expect("randomness"));
        assert_eq!(one.token.len(), 48);
        assert!(one.token != other.token && one.token != one.cookie);
    }
}
