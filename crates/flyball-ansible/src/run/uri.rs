//! The module `uri` for services of the cluster.
//!
//! See <https://docs.ansible.com/ansible/latest/collections/ansible/builtin/uri_module.html>.

use super::Run;
use super::http::{Call, Response};
use super::modules::Arguments;
use super::tasks::TaskResult;
use crate::job::TaskError;
use crate::template::BYTES_PER_FUEL;
use crate::value::{Map, Value, json};
use crate::yaml::{to_text, truth, type_name};
use flyball_core::memory;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use hyper::body::Bytes;
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of an exchange, and its limit.
const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TIMEOUT_SECONDS: f64 = 60.0;
/// Memory limit of a response in JSON.
const MAX_JSON_BYTES: usize = 32 << 20;

impl Run<'_> {
    /// Sends a request to a service. `literal` is the host of the URL, if it is literal in the task.
    pub(super) async fn uri(&mut self, arguments: &Arguments, literal: Option<&str>) -> Result<TaskResult, TaskError> {
        let watch = self.job.watch.clone();
        if watch.is_deterministic {
            return Err(TaskError::rejected("uri is not available in simulations"));
        }
        let call = call(arguments, watch.services.resolver.clone()).map_err(TaskError::rejected)?;
        let access = self.access();
        let host = call.url.host().unwrap_or_default();
        watch.services.check(host, literal, |namespace| access.is_own(Some(namespace))).map_err(TaskError::rejected)?;
        let expected = status_codes(arguments.get("status_code")).map_err(TaskError::new)?;
        // Users may delay the response.
        if !self.has_share().await {
            return Err(TaskError::deferred());
        }
        let start = Instant::now();
        let response = call.send().await;
        let elapsed = start.elapsed().as_secs();
        let budget = self.budget.clone();
        let returns_content = arguments.get("return_content").and_then(truth) == Some(true);
        let (status, mut result, problem) = match response {
            Ok(response) => {
                budget.charge((response.body.len() / BYTES_PER_FUEL) as u64).map_err(TaskError::new)?;
                let status = i64::from(response.status.as_u16());
                let fails = !expected.contains(&status);
                let reason = response.status.canonical_reason().unwrap_or_default();
                let result = result(&response, returns_content || fails).map_err(TaskError::new)?;
                (status, result, format!("HTTP Error {status}: {reason}"))
            }
            Err(problem) => {
                let result = Map::from_iter([("url".to_owned(), call.url.to_string().into())]);
                (-1, result, format!("Request failed: <urlopen error {problem}>"))
            }
        };
        let own = json!({"status": status, "changed": false, "elapsed": elapsed});
        result.extend(own.as_object().cloned().unwrap_or_default());
        let mut done = TaskResult::with(Value::Object(result));
        if !expected.contains(&status) {
            let failure = TaskError::new(format!("Status code was {status} and not {expected:?}: {problem}"));
            done.fail(failure);
        }
        Ok(done)
    }
}

/// Creates the request.
fn call(arguments: &Arguments, resolver: Option<crate::services::Resolver>) -> Result<Call, String> {
    let text = |name: &str| arguments.get(name).map(to_text);
    let url = text("url").unwrap_or_default();
    let has_user = |url: &Uri| url.authority().is_none_or(|authority| authority.as_str().contains('@'));
    let uri: Uri = url.trim().parse().map_err(|_| "url: invalid URL".to_owned())?;
    if has_user(&uri) || !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("url: it must begin with http:// or https://, and have no user".to_owned());
    }
    let method = text("method").unwrap_or_else(|| "GET".to_owned()).to_uppercase();
    let method = match method.chars().all(|letter| letter.is_ascii_uppercase()) && method != "CONNECT" {
        true => Method::from_bytes(method.as_bytes()).map_err(|_| "method: required".to_owned())?,
        false => return Err("method: it is not a method of HTTP".to_owned()),
    };
    let format = text("body_format").unwrap_or_else(|| "raw".to_owned());
    let (body, content_type) = body(arguments.get("body"), &format)?;
    let mut headers = headers(arguments.get("headers"))?;
    if let Some(content_type) = content_type {
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
    }
    let timeout = text("timeout").map_or(Ok(TIMEOUT), |seconds| {
        let known: Option<f64> = seconds.trim().parse().ok();
        let known = known.filter(|seconds| *seconds > 0.0).map(|seconds| seconds.min(MAX_TIMEOUT_SECONDS));
        known.map(Duration::from_secs_f64).ok_or_else(|| format!("timeout: {seconds:?} is not a number of seconds"))
    })?;
    let follows = match text("follow_redirects").as_deref() {
        None | Some("safe" | "all" | "yes" | "true" | "urllib2") => true,
        Some("none" | "no" | "false") => false,
        Some(other) => return Err(format!("follow_redirects: {other:?} must be all, safe or none")),
    };
    let verifies = arguments.get("validate_certs").and_then(truth) != Some(false);
    Ok(Call { url: uri, method, headers, body, timeout, verifies, follows, resolver })
}

fn headers(given: Option<&Value>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let given = match given {
        None => return Ok(headers),
        Some(Value::Object(given)) => given,
        Some(other) => return Err(format!("headers: must be a map, not {}", type_name(other))),
    };
    for (name, value) in given {
        let header: HeaderName = name.parse().map_err(|_| format!("headers: invalid name {name:?}"))?;
        if [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(&header) {
            return Err(format!("headers: {name} is set by the operator: remove it"));
        }
        // The value may be a password.
        let value: HeaderValue =
            to_text(value).parse().map_err(|_| format!("headers: {name} has characters that no header may have"))?;
        headers.insert(header, value);
    }
    Ok(headers)
}

/// Returns the body, and its default content type.
fn body(body: Option<&Value>, format: &str) -> Result<(Bytes, Option<&'static str>), String> {
    let text = |body: &Value| body.as_str().map(str::to_owned);
    match (format, body) {
        ("raw", None) => Ok((Bytes::new(), None)),
        ("raw", Some(body)) => Ok((to_text(body).into(), None)),
        ("json", body) => {
            let body = body.map(|body| text(body).unwrap_or_else(|| body.to_string()));
            Ok((body.unwrap_or_default().into(), Some("application/json")))
        }
        ("form-urlencoded", body) => {
            let body = match body {
                Some(Value::Object(fields)) => form(fields),
                Some(body) => text(body).ok_or_else(|| format!("body: must be a map, not {}", type_name(body)))?,
                None => String::new(),
            };
            Ok((body.into(), Some("application/x-www-form-urlencoded")))
        }
        _ => Err(format!("body_format: {format:?} must be json, raw or form-urlencoded")),
    }
}

/// Encodes fields as in a form of HTML; each item of a list is a field.
fn form(fields: &Map) -> String {
    let encode = |text: &str| -> String {
        text.bytes()
            .map(|byte| match byte {
                b' ' => "+".to_owned(),
                byte if byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte) => char::from(byte).to_string(),
                byte => format!("%{byte:02X}"),
            })
            .collect()
    };
    let items = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let pairs = fields.iter().flat_map(|(name, value)| items(value).into_iter().map(move |item| (name, item)));
    let pairs: Vec<_> = pairs.map(|(name, item)| format!("{}={}", encode(name), encode(&to_text(&item)))).collect();
    pairs.join("&")
}

/// Parses the expected status codes: a number, a list, or a text with commas.
fn status_codes(codes: Option<&Value>) -> Result<Vec<i64>, String> {
    let parse = |code: &str| code.trim().parse().map_err(|_| format!("status_code: {code:?} is not a number"));
    match codes {
        None => Ok(vec![200]),
        Some(Value::Array(codes)) => codes.iter().map(|code| parse(&to_text(code))).collect(),
        Some(codes) => to_text(codes).split(',').map(parse).collect(),
    }
}

/// Returns the fields of a result from the response.
fn result(response: &Response, with_content: bool) -> Result<Map, String> {
    let mut result = Map::new();
    for name in response.headers.keys() {
        let values: Vec<_> =
            response.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        result.insert(name.as_str().replace('-', "_"), values.join(", ").into());
    }
    let content_type = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim().to_lowercase();
    let is_json = matches!(content_type.rsplit('/').next(), Some("json" | "javascript"));
    // The fields of Ansible replace headers with the same names.
    for own in ["json", "content", "msg", "failed", "skipped"] {
        result.remove(own);
    }
    if is_json {
        if memory::of_text(&response.body) > MAX_JSON_BYTES {
            return Err(format!("the response takes more than {MAX_JSON_BYTES} bytes of memory"));
        }
        result.extend(serde_json::from_slice(&response.body).ok().map(|json| ("json".to_owned(), json)));
    }
    if with_content {
        result.insert("content".into(), String::from_utf8_lossy(&response.body).into());
    }
    result.insert("msg".into(), format!("OK ({} bytes)", response.body.len()).into());
    result.insert("url".into(), response.url.to_string().into());
    result.insert("redirected".into(), response.is_redirected.into());
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_encoded_by_their_format() {
        let check = |format: &str, value: Value, expected: &str| {
            let (bytes, _) = body(Some(&value), format).unwrap();
            assert_eq!(bytes, expected, "{format}");
        };
        check("json", json!({"a": [1, "b"]}), "{\"a\":[1,\"b\"]}");
        check("json", json!("{\"a\": 1}"), "{\"a\": 1}");
        check("raw", json!("a b"), "a b");
        check("form-urlencoded", json!({"a b": "c&d é", "l": [1, 2]}), "a+b=c%26d+%C3%A9&l=1&l=2");
        assert!(body(None, "form-multipart").is_err() && body(Some(&json!([1])), "form-urlencoded").is_err());
    }

    #[test]
    fn requests_are_validated() {
        let call = |arguments: Value| call(arguments.as_object().unwrap(), None).map(drop);
        assert!(call(json!({"url": "http://api.b.svc"})).is_ok());
        for (arguments, problem) in [
            (json!({"url": "ftp://api.b.svc"}), "must begin with http"),
            (json!({"url": "file:///etc/passwd"}), "invalid URL"),
            (json!({"url": "http://x:y@api.b.svc"}), "no user"),
            (json!({"url": "http://a b"}), "invalid URL"),
            (json!({"url": "http://api.b.svc", "method": "GET / HTTP/1.1\r\n"}), "not a method"),
            (json!({"url": "http://api.b.svc", "method": "CONNECT"}), "not a method"),
            (json!({"url": "http://api.b.svc", "headers": {"Host": "x"}}), "set by the operator"),
            (json!({"url": "http://api.b.svc", "headers": {"X": "a\r\nb: c"}}), "no header may have"),
            (json!({"url": "http://api.b.svc", "timeout": "NaN"}), "timeout"),
        ] {
            assert!(call(arguments).unwrap_err().contains(problem), "{problem}");
        }
    }

    #[test]
    fn status_codes_are_numbers_lists_or_texts() {
        for (codes, expected) in
            [(json!(201), vec![201]), (json!([200, "404"]), vec![200, 404]), (json!("200, 201"), vec![200, 201])]
        {
            assert_eq!(status_codes(Some(&codes)), Ok(expected));
        }
        assert!(status_codes(Some(&json!("ok"))).is_err());
    }
}
