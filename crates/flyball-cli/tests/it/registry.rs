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
pub(crate) struct Kept {
    pub(crate) blobs: BTreeMap<String, Bytes>,
    /// By tag or digest, with media types.
    pub(crate) manifests: BTreeMap<String, (String, Bytes)>,
    pub(crate) asked: Vec<String>,
}

pub(crate) struct Registry {
    pub(crate) address: String,
    pub(crate) kept: Arc<Mutex<Kept>>,
    // Ends with this.
    _runtime: tokio::runtime::Runtime,
}

impl Registry {
    pub(crate) fn start(manner: Manner) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let kept = Arc::new(Mutex::new(Kept::default()));
        let (shared, own) = (kept.clone(), address.clone());
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, address) = (shared.clone(), own.clone());
                tokio::spawn(async move {
                    let serve = service_fn(move |request| answer(request, manner, kept.clone(), address.clone()));
                    let _ =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await;
                });
            }
        });
        Self { address, kept, _runtime: runtime }
    }
}

async fn answer(
    request: Request<Incoming>,
    manner: Manner,
    kept: Arc<Mutex<Kept>>,
    address: String,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut kept = kept.lock().unwrap();
    kept.asked.push(format!("{} {}", parts.method, parts.uri));
    let said = parts.headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let answer = Response::builder();
    if parts.uri.path() == "/token" {
        let known = said == format!("Basic {AUTH}");
        let fits = parts.uri.query() == Some("service=here&scope=repository%3Ateam%2Fop%3Apull%2Cpush");
        let (status, text) = match known && fits {
            true => (200, "{\"token\": \"ticket\"}"),
            false => (401, "{}"),
        };
        return Ok(answer.status(status).body(text.into()).unwrap());
    }
    let challenge = match manner {
        Manner::Basic if said != format!("Basic {AUTH}") => Some("Basic realm=\"here\"".to_owned()),
        Manner::Bearer if said != "Bearer ticket" => {
            Some(format!("Bearer realm=\"http://{address}/token\",service=\"here\",scope=\"x\""))
        }
        _ => None,
    };
    if let Some(challenge) = challenge {
        return Ok(answer.status(401).header("WWW-Authenticate", challenge).body("{}".into()).unwrap());
    }
    let (status, headers, body) = serve(&parts, body, manner, &mut kept);
    let mut answer = answer.status(status).body(Full::new(body)).unwrap();
    *answer.headers_mut() = headers;
    Ok(answer)
}

fn serve(parts: &http::request::Parts, body: Bytes, manner: Manner, kept: &mut Kept) -> (StatusCode, HeaderMap, Bytes) {
    let mut headers = HeaderMap::new();
    let refuse = |status: StatusCode, code: &str, message: &str| {
        let text = format!("{{\"errors\": [{{\"code\": \"{code}\", \"message\": \"{message}\"}}]}}");
        (status, HeaderMap::new(), Bytes::from(text))
    };
    let path: Vec<&str> = parts.uri.path().trim_start_matches("/v2/").split('/').collect();
    let query = parts.uri.query().unwrap_or_default();
    match (&parts.method, &path[..]) {
        (&Method::GET, [""]) => (StatusCode::OK, headers, Bytes::new()),
        (&Method::HEAD, [.., "blobs", digest]) => match kept.blobs.contains_key(*digest) {
            true => (StatusCode::OK, headers, Bytes::new()),
            false => (StatusCode::NOT_FOUND, headers, Bytes::new()),
        },
        (&Method::GET, [.., "blobs", digest]) => match kept.blobs.get(*digest) {
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
            kept.blobs.insert(digest.to_owned(), body);
            (StatusCode::CREATED, headers, Bytes::new())
        }
        (&Method::PUT, [.., "manifests", name]) => {
            if manner == Manner::Refuses {
                return refuse(StatusCode::BAD_REQUEST, "MANIFEST_INVALID", "no index is taken here");
            }
            let manifest: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let named = manifest["layers"].as_array().into_iter().flatten().chain([&manifest["config"]]);
            for blob in named.filter_map(|blob| blob["digest"].as_str()) {
                if !kept.blobs.contains_key(blob) {
                    return refuse(StatusCode::NOT_FOUND, "MANIFEST_BLOB_UNKNOWN", blob);
                }
            }
            for image in manifest["manifests"].as_array().into_iter().flatten() {
                assert!(kept.manifests.contains_key(image["digest"].as_str().unwrap()), "{manifest}");
            }
            if let (Some(subject), true) = (manifest["subject"]["digest"].as_str(), manner != Manner::Old) {
                headers.insert("oci-subject", subject.parse().unwrap());
            }
            let type_ = parts.headers["content-type"].to_str().unwrap().to_owned();
            kept.manifests.insert(sha256(&body), (type_.clone(), body.clone()));
            kept.manifests.insert((*name).to_owned(), (type_, body));
            (StatusCode::CREATED, headers, Bytes::new())
        }
        (&Method::GET, [.., "manifests", name]) => match kept.manifests.get(*name) {
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
