//! The memory of writes of dense objects, which takes many times that of their text.
//!
//! Counts the allocations at the peak of each request, and compares them with the amount that
//! `server/offloading.rs` charges for it before the body is decoded. `--nocapture` prints them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bodies;

use bodies::{Sent, TOYS};
use bytes::Bytes;
use flyball_core::{Clock, memory};
use flyball_server::{Options, Server, User};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;

/// Memory of an object beyond which it is rejected.
const MAX_OBJECT: usize = 32 * MIB;

/// Memory of a request besides its objects: texts, catalogs that are built on demand.
const REST: usize = 8 * MIB;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Sends a request; returns the code and the text of the response, and the memory at the peak.
async fn send(server: &Server, method: &Method, path: &str, media: &str, body: Bytes) -> (u16, Bytes, usize) {
    let mut request = Request::new(Full::new(body));
    (*request.method_mut(), *request.uri_mut()) = (method.clone(), path.parse().unwrap());
    request.extensions_mut().insert(User::new("admin", &["system:masters"]));
    request.headers_mut().insert("content-type", media.parse().unwrap());
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let response = server.handle(request).await;
    let peak = HEAP.peak_usage().saturating_sub(before);
    let code = response.status().as_u16();
    (code, response.into_body().collect().await.unwrap().to_bytes(), peak)
}

/// Returns what is charged for a request: the formula of `Weights`.
fn charge(method: &Method, path: &str, media: &str, [body, live]: [&[u8]; 2]) -> usize {
    let count = |text: &[u8]| text.iter().filter(|byte| matches!(byte, b'{' | b'[' | b',')).count();
    let [sent, stored] = [body, live].map(|text| memory::of_text(text).min(MAX_OBJECT));
    let objects = body.iter().filter(|byte| **byte == b'{').count();
    let defaults = if path.starts_with(TOYS) { 0 } else { objects * 1024 };
    let written = (sent + stored + defaults).min(MAX_OBJECT);
    let owners = written / 2 + ((count(body) + count(live)) * 160).min(MAX_OBJECT / 2);
    match media {
        _ if method == Method::DELETE => 2 * stored + sent + owners,
        APPLY if stored > 0 => sent + stored + 4 * written,
        STRATEGIC => written + (2 * sent).max(stored) + owners,
        _ => written + sent.max(stored) + owners,
    }
}

/// Adds the resource version of the stored object to a body.
fn with_version(body: &Bytes, live: &Bytes) -> Bytes {
    let (body, live) = (str::from_utf8(body).unwrap(), str::from_utf8(live).unwrap());
    let version = live.split_once("\"resourceVersion\":\"").map_or("0", |(_, rest)| rest.split_once('"').unwrap().0);
    body.replacen("\"name\":\"a\"", &format!("\"name\":\"a\",\"resourceVersion\":\"{version}\""), 1).into()
}

/// The requests with a body, one after the other.
fn requests(sent: &Sent) -> Vec<(Method, String, &'static str, Bytes)> {
    let (whole, item) = (Bytes::from(sent.body.clone()), format!("{}/a", sent.path));
    let with = |value: Value| Bytes::from(value.to_string());
    let applied = format!("{item}?fieldManager=m&force=true");
    let mut all = vec![(Method::POST, sent.path.to_owned(), JSON, whole.clone())];
    if !sent.is_stored {
        return all;
    }
    all.extend([
        (Method::PATCH, item.clone(), MERGE, with(json!({"metadata": {"annotations": {"a": "b"}}}))),
        (Method::PATCH, item.clone(), MERGE, whole.clone()),
        (
            Method::PATCH,
            item.clone(),
            JSON_PATCH,
            with(json!([{"op": "add", "path": "/metadata/labels", "value": {}}])),
        ),
    ]);
    if sent.path != TOYS {
        all.push((Method::PATCH, item.clone(), STRATEGIC, whole.clone()));
    }
    let empty = with(json!({"apiVersion": sent.api_version, "kind": sent.kind, "metadata": {"name": "a"}}));
    all.extend([
        (Method::PATCH, applied.clone(), APPLY, whole.clone()),
        (Method::PATCH, applied.clone(), APPLY, whole.clone()),
        (Method::PATCH, applied.clone(), APPLY, empty),
        (Method::PUT, item.clone(), JSON, whole.clone()),
        (Method::DELETE, item.clone(), JSON, Bytes::new()),
        (Method::PATCH, applied, APPLY, whole),
        (Method::DELETE, item, JSON, Bytes::new()),
    ]);
    all
}

#[test]
fn writes_take_no_more_memory_than_they_are_charged_for() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::new(Options::simulated(Clock::system(), 1));
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (code, answer, _) = send(&server, &Method::POST, path, JSON, bodies::definition().into()).await;
        assert_eq!(code, 201, "{answer:?}");
        let mut excesses = Vec::new();
        for sent in bodies::all() {
            // Catalogs are built by the first request of a kind.
            let item = format!("{}/a", sent.path);
            send(&server, &Method::GET, &item, JSON, Bytes::new()).await;
            for (method, path, media, body) in requests(&sent) {
                let (found, live, _) = send(&server, &Method::GET, &item, JSON, Bytes::new()).await;
                let live = if found == 200 { live } else { Bytes::new() };
                let body = if method == Method::PUT { with_version(&body, &live) } else { body };
                let charged = charge(&method, &path, media, [&body, &live]);
                let [weight, stored] = [&body, &live].map(|text| memory::of_text(text));
                let (code, answer, peak) = send(&server, &method, &path, media, body).await;
                let what = format!("{}: {method} {}", sent.name, media.trim_start_matches("application/"));
                let mib = |bytes: usize| bytes as f64 / MIB as f64;
                let line = format!(
                    "{what:70} {code} sent {:5.1} stored {:5.1} charged {:6.1} peak {:6.1} MiB",
                    mib(weight),
                    mib(stored),
                    mib(charged),
                    mib(peak)
                );
                println!("{line}");
                if code >= 400 {
                    println!("    {}", String::from_utf8_lossy(&answer[..answer.len().min(160)]));
                }
                if peak > charged + REST {
                    excesses.push(line);
                }
            }
        }
        assert!(excesses.is_empty(), "more memory than charged:\n{}", excesses.join("\n"));
    });
}
