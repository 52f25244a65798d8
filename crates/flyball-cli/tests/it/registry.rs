//! A registry for tests: it stores uploads, verifies digests, and optionally requires authentication.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// Options of a registry; the default allows everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    #[default]
    Open,
    /// `me` with the password `secret`, by `Basic`.
    Basic,
    /// Requires a token from a token server.
    Bearer,
    /// It rejects manifests.
    Refuses,
    /// It does not support referrers.
    Old,
}

pub(crate) const AUTH: &str = "bWU6c2VjcmV0"; // me:secret

/// The content of a registry, and the received requests.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) blobs: BTreeMap<String, Bytes>,
    /// By tag or digest, with media types.
    pub(crate) manifests: BTreeMap<String, (String, Bytes)>,
    pub(crate) requests: Vec<String>,
}

pub(crate) struct Registry {
    pub(crate) address: String,
    pub(crate) state: Arc<Mutex<State>>,
    // Ends with this.
    _runtime: tokio::runtime::Runtime,
}

impl Registry {
    pub(crate) fn start(manner: Manner) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, own) = (state.clone(), address.clone());
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, address) = (shared.clone(), own.clone());
                tokio::spawn(async move {
                    let serve = service_fn(move |request| answer(request, manner, state.clone(), address.clone()));
                    let _ =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await;
                });
            }
        });
        Self { address, state, _runtime: runtime }
    }
}

async fn answer(
    request: Request<Incoming>,
    manner: Manner,
    state: Arc<Mutex<State>>,
    address: String,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut state = state.lock().unwrap();
    state.requests.push(format!("{} {}", parts.method, parts.uri));
    let authorization = parts.headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let answer = Response::builder();
    if parts.uri.path() == "/token" {
        let known = authorization == format!("Basic {AUTH}");
        let scope = parts.uri.query().and_then(|query| query.strip_prefix("service=here&scope=repository%3Ateam%2F"));
        let fits = matches!(scope, Some("op%3Apull%2Cpush" | "op%3Apull" | "site%3Apull"));
        let (status, text) = match known && fits {
            true => (200, "{\"token\": \"ticket\"}"),
            false => (401, "{}"),
        };
        return Ok(answer.status(status).body(text.into()).unwrap());
    }
    let challenge = match manner {
        Manner::Basic if authorization != format!("Basic {AUTH}") => Some("Basic realm=\"here\"".to_owned()),
        Manner::Bearer if authorization != "Bearer ticket" => {
            Some(format!("Bearer realm=\"http://{address}/token\",service=\"here\",scope=\"x\""))
        }
        _ => None,
    };
    if let Some(challenge) = challenge {
        return Ok(answer.status(401).header("WWW-Authenticate", challenge).body("{}".into()).unwrap());
    }
    let (status, headers, body) = serve(&parts, body, manner, &mut state);
    let mut answer = answer.status(status).body(Full::new(body)).unwrap();
    *answer.headers_mut() = headers;
    Ok(answer)
}

fn serve(
    parts: &http::request::Parts,
    body: Bytes,
    manner: Manner,
    state: &mut State,
) -> (StatusCode, HeaderMap, Bytes) {
    let mut headers = HeaderMap::new();
    let refuse = |status: StatusCode, code: &str, message: &str| {
        let text = format!("{{\"errors\": [{{\"code\": \"{code}\", \"message\": \"{message}\"}}]}}");
        (status, HeaderMap::new(), Bytes::from(text))
    };
    let path: Vec<&str> = parts.uri.path().trim_start_matches("/v2/").split('/').collect();
    let query = parts.uri.query().unwrap_or_default();
    match (&parts.method, &path[..]) {
        (&Method::GET, [""]) => (StatusCode::OK, headers, Bytes::new()),
        (&Method::HEAD, [.., "blobs", digest]) => match state.blobs.contains_key(*digest) {
            true => (StatusCode::OK, headers, Bytes::new()),
            false => (StatusCode::NOT_FOUND, headers, Bytes::new()),
        },
        (&Method::GET, [.., "blobs", digest]) => match state.blobs.get(*digest) {
            Some(bytes) => (StatusCode::OK, headers, bytes.clone()),
            None => refuse(StatusCode::NOT_FOUND, "BLOB_UNKNOWN", "there is none"),
        },
        (&Method::POST, [name @ .., "blobs", "uploads", ""]) => {
            let place = format!("/v2/{}/blobs/uploads/1?state=x", name.join("/"));
            headers.insert("location", place.parse().unwrap());
            (StatusCode::ACCEPTED, headers, Bytes::new())
        }
        (&Method::PUT, [.., "blobs", "uploads", "1"]) => {
            let digest = query.strip_prefix("state=x&digest=").unwrap();
            if digest != sha256(&body) {
                return refuse(StatusCode::BAD_REQUEST, "DIGEST_INVALID", "digest mismatch");
            }
            state.blobs.insert(digest.to_owned(), body);
            (StatusCode::CREATED, headers, Bytes::new())
        }
        (&Method::PUT, [.., "manifests", name]) => {
            if manner == Manner::Refuses {
                return refuse(StatusCode::BAD_REQUEST, "MANIFEST_INVALID", "no index is taken here");
            }
            let manifest: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let named = manifest["layers"].as_array().into_iter().flatten().chain([&manifest["config"]]);
            for blob in named.filter_map(|blob| blob["digest"].as_str()) {
                if !state.blobs.contains_key(blob) {
                    return refuse(StatusCode::NOT_FOUND, "MANIFEST_BLOB_UNKNOWN", blob);
                }
            }
            for image in manifest["manifests"].as_array().into_iter().flatten() {
                assert!(state.manifests.contains_key(image["digest"].as_str().unwrap()), "{manifest}");
            }
            if let (Some(subject), true) = (manifest["subject"]["digest"].as_str(), manner != Manner::Old) {
                headers.insert("oci-subject", subject.parse().unwrap());
            }
            let type_ = parts.headers["content-type"].to_str().unwrap().to_owned();
            state.manifests.insert(sha256(&body), (type_.clone(), body.clone()));
            state.manifests.insert((*name).to_owned(), (type_, body));
            (StatusCode::CREATED, headers, Bytes::new())
        }
        // Two tags a page.
        (&Method::GET, [name @ .., "tags", "list"]) => {
            let tags: Vec<&String> = state.manifests.keys().filter(|tag| !tag.starts_with("sha256")).collect();
            let from = query.strip_prefix("last=").map_or(0, |last| last.parse().unwrap());
            if from + 2 < tags.len() {
                let next = format!("</v2/{}/tags/list?last={}>; rel=\"next\"", name.join("/"), from + 2);
                headers.insert("link", next.parse().unwrap());
            }
            let page: Vec<&&String> = tags.iter().skip(from).take(2).collect();
            (StatusCode::OK, headers, serde_json::json!({"tags": page}).to_string().into())
        }
        (&Method::GET, [.., "manifests", name]) => match state.manifests.get(*name) {
            Some((_, bytes)) => (StatusCode::OK, headers, bytes.clone()),
            None => refuse(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN", "there is none"),
        },
        _ => refuse(StatusCode::NOT_FOUND, "UNSUPPORTED", "what is this?"),
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    format!("sha256:{}", hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}
