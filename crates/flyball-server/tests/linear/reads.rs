//! Reads: of one object with many items, and of many objects.

use crate::send::send;
use crate::{ALONE, JSON, MAPS, RATIO, cpu};
use bytes::Bytes;
use flyball_server::{Body, Server, User};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::json;
use std::time::Duration;

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const YAML: &str = "application/yaml";

/// Maximum number of measurements of a read that seems too slow.
const MEASUREMENTS: usize = 30;

/// A read of an object, in a view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Read {
    Get(&'static str),
    List(&'static str),
    /// Reads the event of the object.
    Watch(&'static str),
}

impl Read {
    pub(crate) const ALL: [Self; 9] = [
        Self::Get(JSON),
        Self::Get(TABLE),
        Self::Get(METADATA),
        Self::Get(YAML),
        Self::List(TABLE),
        Self::List(METADATA_LIST),
        Self::List(YAML),
        Self::Watch(JSON),
        Self::Watch(TABLE),
    ];
}

async fn get(server: &Server, path: &str, view: &str) -> Response<Body> {
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = path.parse().unwrap();
    request.extensions_mut().insert(User::new("admin", &["system:masters"]));
    request.headers_mut().insert("accept", view.parse().unwrap());
    let response = server.handle(request).await;
    // Some kinds are not listed or watched.
    assert!([200, 404, 405].contains(&response.status().as_u16()), "{path} {view}: {}", response.status());
    response
}

/// Returns the CPU time of reading an object.
pub(crate) async fn cost(server: &Server, read: Read, collection: &str, name: &str) -> Duration {
    let start = cpu();
    match read {
        Read::Get(view) => drop(get(server, &format!("{collection}/{name}"), view).await.collect().await.unwrap()),
        Read::List(view) => drop(get(server, collection, view).await.collect().await.unwrap()),
        Read::Watch(view) => {
            let path = format!("{collection}?watch=1&fieldSelector=metadata.name={name}&timeoutSeconds=1");
            let mut response = get(server, &path, view).await;
            if response.status() == 200 {
                response.frame().await.unwrap().unwrap();
            }
        }
    }
    cpu() - start
}

/// A read of a collection with a number of objects.
struct ListShape {
    name: &'static str,
    query: &'static str,
    view: &'static str,
}

const LISTS: [ListShape; 8] = [
    ListShape { name: "list", query: "", view: JSON },
    ListShape { name: "table", query: "", view: TABLE },
    ListShape { name: "metadata", query: "", view: METADATA_LIST },
    ListShape { name: "YAML", query: "", view: YAML },
    ListShape { name: "labels", query: "?labelSelector=half=0", view: JSON },
    ListShape { name: "fields", query: "?fieldSelector=metadata.name!=m1", view: JSON },
    ListShape { name: "pages of labels", query: "?labelSelector=half=0&limit=50", view: JSON },
    ListShape { name: "pages", query: "?limit=50", view: TABLE },
];

/// Returns the CPU time of reading a whole collection, page by page.
async fn cost_of_list(server: &Server, shape: &ListShape) -> Duration {
    let start = cpu();
    let mut path = format!("{MAPS}{}", shape.query);
    loop {
        let page = get(server, &path, shape.view).await.collect().await.unwrap().to_bytes();
        // Parsing the page would be part of the measurement.
        let text = String::from_utf8_lossy(&page);
        let Some((_, token)) = text.split_once("\"continue\":\"") else { return cpu() - start };
        let token = &token[..token.find('"').unwrap()];
        path = format!("{MAPS}{}&continue={token}", shape.query);
    }
}

/// Returns the CPU time of the initial events of a watch.
async fn cost_of_initial_events(server: &Server, count: usize, view: &str) -> Duration {
    let start = cpu();
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1");
    let mut response = get(server, &path, view).await;
    let (mut events, mut ends_line) = (0, false);
    while events < count {
        let frame = response.frame().await.unwrap().unwrap().into_data().unwrap();
        events += frame.iter().filter(|byte| **byte == b'\n').count();
        ends_line = frame.ends_with(b"\n");
    }
    assert!(ends_line && events == count);
    cpu() - start
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn reads_of_many_objects_take_linear_time() {
    const OBJECTS: usize = 1_000;
    let _alone = ALONE.lock().await;
    let mut servers = Vec::new();
    for count in [OBJECTS, 2 * OBJECTS] {
        let server = crate::server().await;
        for n in 0..count {
            let labels = json!({"half": (n % 2).to_string()});
            let map = json!({"metadata": {"name": format!("m{n}"), "labels": labels}, "data": {"k": "v".repeat(200)}});
            assert_eq!(send(&server, Method::POST, MAPS, JSON, map.to_string()).await.0, 201);
        }
        servers.push((server, count));
    }
    let (small, large) = (&servers[0], &servers[1]);
    let mut errors = Vec::new();
    for shape in &LISTS {
        let cost = async |(server, _): &(Server, usize)| cost_of_list(server, shape).await;
        errors.extend(judge(shape.name, async || [cost(small).await, cost(large).await]).await);
    }
    for view in [JSON, TABLE] {
        let cost = async |(server, count): &(Server, usize)| cost_of_initial_events(server, *count, view).await;
        errors
            .extend(judge(&format!("initial events as {view}"), async || [cost(small).await, cost(large).await]).await);
    }
    assert!(errors.is_empty(), "{errors:?}");
}

/// Measures a read of some objects and of twice as many; returns the error if it is too slow.
async fn judge(name: &str, costs: impl AsyncFn() -> [Duration; 2]) -> Option<String> {
    // Other load adds to a measurement: the least ones count.
    let (mut once, mut twice) = (Duration::MAX, Duration::MAX);
    for _ in 0..MEASUREMENTS {
        let [of_once, of_twice] = costs().await;
        (once, twice) = (once.min(of_once), twice.min(of_twice));
        if twice.as_secs_f64() <= RATIO * once.as_secs_f64() {
            return None;
        }
    }
    Some(format!("{name}: {once:?}, {twice:?} for twice as many"))
}
