//! A console of an embedded control plane, by HTTP.

use flyball_cluster::{Cluster, Options};
use flyball_console::{
    Address, Console, Discover, ExplorationState, Explore, ExploreError, ExploreRequest, Kind, Settings,
};
use flyball_core::Clock;
use flyball_core::time::rfc3339_micro;
use kube::Client;
use serde_json::{Value, json};
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use url::Url;

/// Text that must arrive as text.
const HOSTILE: &str = "<script>alert(1)</script>\u{202e}";

pub(crate) struct Kinds;

impl Discover for Kinds {
    fn kinds(&self) -> Pin<Box<dyn Future<Output = Result<Vec<Kind>, String>> + Send + '_>> {
        let kind = |kind: &str, plural: &str, namespaced| Kind {
            group: String::new(),
            version: "v1".into(),
            kind: kind.into(),
            plural: plural.into(),
            namespaced,
        };
        let core = [("Namespace", "namespaces", false), ("ConfigMap", "configmaps", true), ("Secret", "secrets", true)];
        Box::pin(ready(Ok(core.map(|(name, plural, namespaced)| kind(name, plural, namespaced)).into())))
    }
}

/// Explorations that record the requests of the page, and reject a second search.
#[derive(Debug, Default)]
struct Requests(Mutex<Vec<ExploreRequest>>);

impl Explore for Requests {
    fn state(&self) -> ExplorationState {
        ExplorationState { program: HOSTILE.into(), samples: vec!["site.yaml".into()], ..ExplorationState::default() }
    }

    fn request(&self, request: ExploreRequest) -> Result<(), ExploreError> {
        let mut known = self.0.lock().expect("not poisoned");
        match &request {
            ExploreRequest::Search { .. } if known.contains(&request) => Err(ExploreError::Busy),
            ExploreRequest::Replay { schedule, .. } => Err(ExploreError::Invalid(format!("{schedule:?}: no seed"))),
            _ => {
                known.push(request);
                Ok(())
            }
        }
    }
}

/// A running console.
pub(crate) struct Page {
    pub(crate) url: Url,
    pub(crate) client: Client,
}

impl Page {
    async fn start(write: bool, operators: Vec<Address>) -> Self {
        Self::start_with(write, operators, None).await
    }

    async fn start_with(write: bool, operators: Vec<Address>, explorer: Option<Arc<dyn Explore>>) -> Self {
        let cluster = Cluster::new(Options::system().expect("randomness"));
        let client = cluster.admin();
        let (cluster, context, clock) = (String::new(), "test".into(), Clock::system());
        let settings =
            Settings { port: 0, write, namespace: None, cluster, context, operators, finder: None, explorer, clock };
        let console = Console::bind(client.clone(), settings).await.expect("a free port");
        let url = Url::parse(&console.url()).expect("a URL");
        tokio::spawn(async move { console.run(&Kinds).await });
        Self { url, client }
    }

    fn token(&self) -> &str {
        self.url.query().and_then(|query| query.strip_prefix("token=")).expect("a token")
    }

    fn address(&self) -> SocketAddr {
        self.url.socket_addrs(|| None).expect("an address")[0]
    }

    /// Sends a request with the token and this extra text in its head, and returns the open connection.
    async fn send(&self, method: &str, path: &str, head: &str, body: &str) -> TcpStream {
        let (address, token, length) = (self.address(), self.token(), body.len());
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\
             connection: close\r\n{head}\r\n{body}"
        );
        stream.write_all(text.as_bytes()).await.expect("sent");
        stream
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let mut text = String::new();
        self.send("GET", path, "", "").await.read_to_string(&mut text).await.expect("a response");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{head}\n{body}"))
    }

    async fn write(&self, action: &str, id: &str) -> String {
        self.post("/api/act", &json!({"action": action, "id": id})).await
    }

    /// Sends a write, and returns the first line of the response.
    async fn post(&self, path: &str, body: &Value) -> String {
        let origin = format!("origin: http://{}\r\n", self.address());
        let mut text = String::new();
        let mut stream = self.send("POST", path, &origin, &body.to_string()).await;
        stream.read_to_string(&mut text).await.expect("a response");
        text.lines().next().unwrap_or_default().to_owned()
    }

    async fn create(&self, kind: &str, plural: &str, name: &str, rest: Value) -> Value {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        for (field, value) in rest.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        object["metadata"]["name"] = name.into();
        let path = format!("/api/v1/namespaces/default/{plural}?fieldManager=kubectl-create");
        let request = http::Request::post(path).header("content-type", "application/json");
        self.client.request(request.body(object.to_string().into_bytes()).expect("a request")).await.expect("created")
    }
}

/// The stream of a page: its text, split at events.
struct Events {
    stream: TcpStream,
    text: String,
}

impl Events {
    async fn open(page: &Page) -> Self {
        Self { stream: page.send("GET", "/api/stream", "", "").await, text: String::new() }
    }

    /// Reads until an event of objects satisfies the condition.
    async fn until(&mut self, condition: impl Fn(&Value) -> bool) -> Value {
        let wait = async {
            let mut bytes = vec![0; 64 << 10];
            loop {
                while let Some(at) = self.text.find("\n\n") {
                    let event: String = self.text.drain(..at + 2).collect();
                    let Some(at) = event.find("event: objects\ndata: ") else { continue };
                    // Chunks of the body end with lines of their own.
                    let data = event[at + 21..].lines().next().expect("a line");
                    let value: Value = serde_json::from_str(data).expect("JSON");
                    if condition(&value) {
                        return value;
                    }
                }
                let read = self.stream.read(&mut bytes).await.expect("data");
                assert_ne!(read, 0, "the stream has ended: {}", self.text);
                self.text.push_str(std::str::from_utf8(&bytes[..read]).expect("UTF-8"));
            }
        };
        timeout(Duration::from_secs(30), wait).await.expect("an event in time")
    }
}

fn names(event: &Value) -> Vec<&str> {
    event["objects"].as_array().expect("objects").iter().filter_map(|object| object["name"].as_str()).collect()
}

#[tokio::test]
async fn stream_has_each_object_in_its_newest_state() {
    let page = Page::start(false, Vec::new()).await;
    let mut events = Events::open(&page).await;
    events.until(|event| names(event).contains(&"default")).await;
    let made = page.create("ConfigMap", "configmaps", "a", json!({"data": {"text": "1"}})).await;
    let event = events.until(|event| names(event).contains(&"a")).await;
    assert_eq!(event["reset"], false);
    let id = made["metadata"]["uid"].as_str().expect("a UID");
    let path = "/api/v1/namespaces/default/configmaps/a";
    let delete = http::Request::delete(path).body(Vec::new()).expect("a request");
    page.client.request::<Value>(delete).await.expect("deleted");
    events.until(|event| event["removed"].as_array().is_some_and(|ids| ids.iter().any(|gone| gone == id))).await;
}

#[tokio::test]
async fn timeline_has_writes_events_and_no_values_of_secrets() {
    let page = Page::start(false, Vec::new()).await;
    let mut events = Events::open(&page).await;
    events.until(|event| names(event).contains(&"default")).await;
    let annotated = json!({"metadata": {"annotations": {"a": HOSTILE}}, "data": {"text": HOSTILE}});
    let map = page.create("ConfigMap", "configmaps", "a", annotated).await;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": map["metadata"]["uid"]}]);
    let applied = json!({"stringData": {"password": "s3cret"}}).to_string();
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
    let metadata = json!({"ownerReferences": owner, "annotations": annotations});
    let secret = json!({"metadata": metadata, "stringData": {"password": "s3cret"}});
    let secret = page.create("Secret", "secrets", "b", secret).await;
    page.create(
        "Event",
        "events",
        "a.1",
        json!({"involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": "default",
            "uid": map["metadata"]["uid"]}, "reason": "Noticed", "message": HOSTILE, "type": "Warning"}),
    )
    .await;
    events.until(|event| names(event).contains(&"b")).await;
    let described = page.get(&format!("/api/object?id={}", map["metadata"]["uid"].as_str().expect("a UID"))).await;
    let entries: Vec<String> = described["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .map(|entry| format!("{} {} {}", entry["lane"], entry["title"], entry["detail"]))
        .collect();
    for expected in ["\"spec\" \"create\"", "\"children\" \"create\"", "\"events\" \"Noticed\""] {
        assert!(entries.iter().any(|entry| entry.starts_with(expected)), "{expected} in {entries:?}");
    }
    assert_eq!(described["body"]["data"]["text"], HOSTILE, "text of others is sent as it is, in JSON");
    assert_eq!(described["children"][0]["object"]["kind"], "Secret");
    let described = page.get(&format!("/api/object?id={}", secret["metadata"]["uid"].as_str().expect("a UID"))).await;
    assert_eq!(described["owners"][0]["object"]["name"], "a");
    assert_eq!(described["body"]["metadata"]["name"], "b");
    assert!(described["body"]["data"].is_null() && !described.to_string().contains("s3cret"));
}

#[tokio::test]
async fn deleted_object_has_no_children_of_others_and_the_log_names_its_writers() {
    let page = Page::start(false, Vec::new()).await;
    let mut events = Events::open(&page).await;
    events.until(|event| names(event).contains(&"default")).await;
    page.create("ConfigMap", "configmaps", "other", json!({})).await;
    let finalizers = json!({"metadata": {"finalizers": ["example.com/test"]}});
    let map = page.create("ConfigMap", "configmaps", "a", finalizers).await;
    let id = map["metadata"]["uid"].as_str().expect("a UID");
    events.until(|event| names(event).contains(&"a")).await;
    let path = "/api/v1/namespaces/default/configmaps/a";
    let send = async |request: http::Request<Vec<u8>>| page.client.request::<Value>(request).await.expect("success");
    // A request for deletion leaves no managed field.
    let delete = http::Request::delete(path).header("user-agent", "kubectl/v1.36 (linux)");
    send(delete.body(Vec::new()).expect("a request")).await;
    let is_deleting = |one: &Value| one["name"] == "a" && one["deleting"] == true;
    events.until(|event| event["objects"].as_array().is_some_and(|all| all.iter().any(is_deleting))).await;
    let writers = |described: &Value| -> Vec<String> {
        let entries = described["entries"].as_array().expect("entries").iter();
        let observed = entries.filter(|entry| entry["source"] == "observed");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        observed.map(|entry| format!("{} by {}", text(&entry["title"]), text(&entry["by"]))).collect()
    };
    let named = "/api/object?kind=ConfigMap&namespace=default&name=a";
    let described = page.get(&format!("/api/object?id={id}")).await;
    assert_eq!(writers(&described), ["change metadata by kubectl", "create by kubectl-create"]);
    let patch = http::Request::patch(format!("{path}?fieldManager=cleaner"));
    let patch = patch.header("content-type", "application/merge-patch+json");
    send(patch.body(br#"{"metadata":{"finalizers":null}}"#.to_vec()).expect("a request")).await;
    events.until(|event| event["removed"].as_array().is_some_and(|ids| ids.iter().any(|gone| gone == id))).await;
    let described = page.get(named).await;
    assert_eq!((&described["id"], &described["children"]), (&json!(""), &json!([])));
    assert!(writers(&described).contains(&"change metadata by kubectl".to_owned()), "{described}");
    let invented = page.get("/api/object?kind=ConfigMap&namespace=default&name=invented").await;
    assert_eq!((&invented["children"], &invented["entries"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn page_reads_only_unless_writes_are_permitted() {
    for write in [false, true] {
        let page = Page::start(write, Vec::new()).await;
        let mut events = Events::open(&page).await;
        events.until(|event| names(event).contains(&"default")).await;
        let map = page.create("ConfigMap", "configmaps", "a", json!({})).await;
        events.until(|event| names(event).contains(&"a")).await;
        let id = map["metadata"]["uid"].as_str().expect("a UID");
        if !write {
            assert_eq!(page.write("delete", id).await, "HTTP/1.1 403 Forbidden");
            assert_eq!(page.get(&format!("/api/object?id={id}")).await["body"]["metadata"]["name"], "a");
            continue;
        }
        assert_eq!(page.write("format", id).await, "HTTP/1.1 400 Bad Request");
        assert_eq!(page.write("delete", "unknown").await, "HTTP/1.1 404 Not Found");
        assert_eq!(page.write("pause", id).await, "HTTP/1.1 200 OK");
        events
            .until(|event| event["objects"].as_array().is_some_and(|all| all.iter().any(|one| one["paused"] == true)))
            .await;
        assert_eq!(page.write("delete", id).await, "HTTP/1.1 200 OK");
        events.until(|event| event["removed"].as_array().is_some_and(|ids| ids.iter().any(|gone| gone == id))).await;
    }
}

#[tokio::test]
async fn operator_that_answers_nonsense_is_an_error_of_that_operator() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = Url::parse(&format!("http://{}/", listener.local_addr().expect("an address"))).expect("a URL");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 1024];
            let _ = stream.read(&mut bytes).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello").await;
        }
    });
    let page = Page::start(false, vec![Address::url(url)]).await;
    let failed = async {
        loop {
            let described = page.get("/api/controllers").await;
            let error = described["operators"][0]["error"].as_str().unwrap_or_default().to_owned();
            if !error.is_empty() {
                return error;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let error = timeout(Duration::from_secs(30), failed).await.expect("an error");
    assert!(error.contains("is not a JSON object"), "{error}");
    // The rest works.
    assert_eq!(page.get("/api/permissions?namespace=default").await["error"], "");
    assert!(page.get("/api/causality").await["bursts"].is_array());
}

#[tokio::test]
async fn explorations_need_an_explorer_and_the_right_to_write() {
    let (search, stop) = (json!({"action": "search", "seconds": 60}), json!({"action": "stop"}));
    let page = Page::start(true, Vec::new()).await;
    assert_eq!(page.post("/api/explore", &search).await, "HTTP/1.1 404 Not Found");
    assert!(page.get("/api/exploration").await["error"].as_str().is_some_and(|error| error.contains("flyball dev")));
    for write in [false, true] {
        let requests = Arc::new(Requests::default());
        let page = Page::start_with(write, Vec::new(), Some(requests.clone())).await;
        assert_eq!(page.get("/api/exploration").await["program"], HOSTILE, "text of others, in JSON");
        if !write {
            assert_eq!(page.post("/api/explore", &search).await, "HTTP/1.1 403 Forbidden");
            assert_eq!(requests.0.lock().expect("not poisoned").len(), 0);
            continue;
        }
        assert_eq!(page.post("/api/explore", &search).await, "HTTP/1.1 200 OK");
        assert_eq!(page.post("/api/explore", &search).await, "HTTP/1.1 409 Conflict");
        let invalid = json!({"action": "replay", "schedule": "default"});
        assert_eq!(page.post("/api/explore", &invalid).await, "HTTP/1.1 400 Bad Request");
        assert_eq!(page.post("/api/explore", &json!({"action": "exec"})).await, "HTTP/1.1 400 Bad Request");
        assert_eq!(page.post("/api/explore", &stop).await, "HTTP/1.1 200 OK");
        let known = requests.0.lock().expect("not poisoned").clone();
        let expected = ExploreRequest::Search { sample: String::new(), seconds: 60 };
        assert_eq!(known, [expected, ExploreRequest::Stop {}]);
    }
}

#[tokio::test]
async fn performance_is_measured_by_operator_and_kind() {
    let now = Clock::system().now();
    let kind = json!({"group": "example.com", "version": "v1", "kind": "Site"});
    let state = json!({"operator": "site-operator", "started": rfc3339_micro(now), "stores": [],
        "controllers": [{"name": "site", "group": "example.com", "kind": "Site", "ledger": {"bytes": 9, "dropped": 0}}]});
    let reconciles = json!({"omitted": 0, "reconciles": [{"id": "1", "controller": "site", "began": rfc3339_micro(now),
        "took": 0.5, "outcome": "success", "object": {"group": "example.com", "kind": "Site", "name": HOSTILE},
        "writes": [{"verb": "apply", "object": kind, "result": "changed"}], "fromServer": true}]});
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = Url::parse(&format!("http://{}/", listener.local_addr().expect("an address"))).expect("a URL");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 1024];
            let read = stream.read(&mut bytes).await.unwrap_or_default();
            let is_list = String::from_utf8_lossy(&bytes[..read]).contains("/reconciles?");
            let body = if is_list { reconciles.to_string() } else { state.to_string() };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    let page = Page::start(false, vec![Address::url(url)]).await;
    let measured = async {
        loop {
            let described = page.get("/api/performance").await;
            if described["operators"][0]["total"]["reconciles"] == 1 {
                return described["operators"][0].clone();
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let operator = timeout(Duration::from_secs(30), measured).await.expect("a reconcile");
    assert_eq!((&operator["name"], &operator["since"]), (&json!("site-operator"), &json!(rfc3339_micro(now))));
    let site = &operator["kinds"][0];
    assert_eq!((&site["kind"], &site["amounts"]), (&json!("Site"), &operator["total"]));
    assert_eq!((&site["amounts"]["apiCalls"], &site["amounts"]["microseconds"]), (&json!(2), &json!(500_000)));
    assert_eq!(site["objects"][0]["object"]["name"], HOSTILE);
}
