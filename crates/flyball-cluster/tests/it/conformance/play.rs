//! Sends the requests of a scenario, and records the responses.

use super::Api;
use super::judge::{drop_at, holds};
use super::names::Names;
use super::scenario::{Call, Compare, Scenario, Step, Variables, plain};
use super::webhook::{self, Endpoint};
use bytes::Bytes;
use flyball_server::{Body, User};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, USER_AGENT, WARNING};
use http::{HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The suffix of a run's objects, which distinguishes them from those of other runs.
const RUN: &str = "qzvxj";
/// Default timeout of a step, in seconds.
const WITHIN: f64 = 20.0;
/// Latency of a request. As over a connection, controllers run in the meantime.
const LATENCY: Duration = Duration::from_millis(1);
/// Polling interval.
const PAUSE: Duration = Duration::from_millis(100);

/// The result of a step; the error of one that could not be executed, such as a capture of an absent value.
type Played = Result<Value, String>;

/// Plays a scenario; returns the result of each step, with placeholders for varying values.
pub(crate) async fn play<S: Api>(scenario: &Scenario, api: S, endpoint: Endpoint, max_wait: Duration) -> Vec<Value> {
    let mut player = Player::new(scenario, api, endpoint, max_wait);
    player.begin(scenario).await;
    let mut names = Names::new(RUN);
    let mut results = Vec::new();
    for step in &scenario.steps {
        let mut got = player.step(step).await.unwrap_or_else(|why| json!({"broke": why}));
        if scenario.steps.iter().any(|step| step.webhook.is_some()) {
            got = webhook::hide(got);
        }
        step.ignore.iter().for_each(|pointer| drop_at(&mut got, pointer));
        // Values that a step does not compare must not use up numbers, which would shift those of later steps.
        names.learn(&got);
        results.push(match step.compare {
            Compare::Body => names.put(&got),
            _ => names.clone().put(&got),
        });
    }
    results
}

struct Player<S> {
    api: S,
    endpoint: Endpoint,
    variables: Variables,
    watches: BTreeMap<String, Watch>,
    max_wait: Duration,
}

impl<S: Api> Player<S> {
    fn new(scenario: &Scenario, api: S, endpoint: Endpoint, max_wait: Duration) -> Self {
        let mut variables = Variables(scenario.vars.clone());
        let own = [
            ("ID", RUN.to_owned()),
            ("NS", format!("conform-{RUN}")),
            ("WEBHOOK_URL", webhook::URL.into()),
            ("WEBHOOK_CA", webhook::CA.into()),
        ];
        variables.0.extend(own.map(|(name, value)| (name.to_owned(), value.into())));
        Self { api, endpoint, variables, watches: BTreeMap::new(), max_wait }
    }

    /// Creates the scenario's namespace.
    async fn begin(&mut self, scenario: &Scenario) {
        let name = plain(&self.variables.0["NS"]);
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string();
        let create = self.request("POST", "/api/v1/namespaces", Some(body));
        let _ = self.exchange(create).await;
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        let end = Instant::now() + self.bounded(10.0);
        while scenario.controllers && Instant::now() < end {
            let get = self.request("GET", &path, None);
            if self.exchange(get).await["code"] == 200 {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn bounded(&self, seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds).min(self.max_wait)
    }

    async fn step(&mut self, step: &Step) -> Played {
        if let Some(call) = &step.request {
            let got = match &step.eventually {
                Some(condition) => self.until(call, &self.variables.fill(condition), step.within).await?,
                None => self.send(call).await?,
            };
            for (variable, pointer) in &step.capture {
                let value = got.pointer(pointer).ok_or_else(|| format!("nothing at {pointer}"))?;
                self.variables.0.insert(variable.clone(), value.clone());
            }
            return Ok(got);
        }
        if let Some(watch) = &step.watch {
            return self.watch(&self.variables.fill(watch)).await;
        }
        if let Some(collect) = &step.collect {
            let collect = self.variables.fill(collect);
            let within = Duration::from_secs_f64(collect["within"].as_f64().unwrap_or(WITHIN));
            let watch = self.watches.get_mut(&plain(&collect["id"])).ok_or("no such watch")?;
            return Ok(watch.collect(&collect, within).await.into());
        }
        if let Some(seconds) = step.sleep {
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        }
        if let Some(webhook) = &step.webhook {
            let webhook = self.variables.fill(webhook);
            self.endpoint.reply(&plain(&webhook["path"]), webhook["reply"].clone());
        }
        if let Some(received) = &step.received {
            let received = self.variables.fill(received);
            let within = Duration::from_secs_f64(received["within"].as_f64().unwrap_or(10.0));
            let count = received["count"].as_u64().and_then(|count| count.try_into().ok()).unwrap_or(0);
            return Ok(self.endpoint.received(&plain(&received["path"]), count, within).await.into());
        }
        Ok(json!({}))
    }

    async fn until(&mut self, call: &Call, expected: &Value, within: Option<f64>) -> Played {
        let end = Instant::now() + self.bounded(within.unwrap_or(WITHIN));
        loop {
            let got = self.send(call).await?;
            if holds(&got, expected) {
                return Ok(got);
            }
            if Instant::now() > end {
                return Ok(json!({"never": expected, "last": got}));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn send(&mut self, call: &Call) -> Played {
        let request = self.build(call)?;
        Ok(self.exchange(request).await)
    }

    async fn watch(&mut self, spec: &Value) -> Played {
        let mut query = spec["query"].as_object().cloned().unwrap_or_default();
        query.insert("watch".into(), "true".into());
        let call = Call {
            method: None,
            path: plain(&spec["path"]),
            query,
            headers: serde_json::Map::new(),
            body: None,
            raw: None,
            content_type: None,
            accept: spec["accept"].as_str().map(str::to_owned),
            user: spec.get("user").cloned(),
        };
        let request = self.build(&call)?;
        let Ok(response) = self.api.call(request).await;
        let code = response.status().as_u16();
        self.watches.insert(plain(&spec["id"]), Watch::open(response));
        Ok(json!({"code": code}))
    }

    /// Builds a request; without credentials, it is that of an administrator.
    fn build(&self, call: &Call) -> Result<Request<Full<Bytes>>, String> {
        let mut path = self.variables.text(&call.path);
        if !call.query.is_empty() {
            path.push(if path.contains('?') { '&' } else { '?' });
            path += &encode(&self.variables.fill(&call.query.clone().into()));
        }
        let body = match (&call.raw, &call.body) {
            (Some(raw), _) => Some(self.variables.text(raw)),
            (None, Some(body)) => Some(self.variables.json(body)),
            (None, None) => None,
        };
        let mut request = self.request(call.method.as_deref().unwrap_or("GET"), "/", body);
        *request.uri_mut() = path.parse().map_err(|error| format!("{path}: {error}"))?;
        let mut put = |name: &str, value: &str| -> Result<(), String> {
            let name: HeaderName = name.parse().map_err(|_| format!("no header: {name}"))?;
            let value = HeaderValue::from_str(value).map_err(|_| format!("not a header value: {value}"))?;
            request.headers_mut().insert(name, value);
            Ok(())
        };
        if let Some(accept) = &call.accept {
            put(ACCEPT.as_str(), accept)?;
        }
        if let Some(content_type) = call.content_type.as_ref().filter(|_| call.raw.is_some() || call.body.is_some()) {
            put(CONTENT_TYPE.as_str(), content_type)?;
        }
        let user = call.user.as_ref().map(|user| self.variables.fill(user)).unwrap_or("admin".into());
        let mut anonymous = user == "anonymous";
        if let Some(token) = user.get("token") {
            put(AUTHORIZATION.as_str(), &format!("Bearer {}", plain(token)))?;
            anonymous = true;
        } else if let Some(name) = user.get("name") {
            put("impersonate-user", &plain(name))?;
        }
        for (name, value) in &call.headers {
            put(name, &plain(&self.variables.fill(value)))?;
        }
        for group in user.get("groups").and_then(Value::as_array).into_iter().flatten() {
            let value = HeaderValue::from_str(&plain(group)).map_err(|_| "no group")?;
            request.headers_mut().append("impersonate-group", value);
        }
        if anonymous {
            request.extensions_mut().remove::<User>();
        }
        Ok(request)
    }

    fn request(&self, method: &str, path: &str, body: Option<String>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::from(body.clone().unwrap_or_default()));
        *request.method_mut() = method.parse().unwrap_or(Method::GET);
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("conform"));
        if let Some(body) = body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(CONTENT_LENGTH, body.len().into());
        }
        request.extensions_mut().insert(User::admin());
        request
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Value {
        tokio::time::sleep(LATENCY).await;
        let Ok(response) = self.api.call(request).await;
        let (head, body) = response.into_parts();
        let Ok(bytes) = body.collect().await.map(|body| body.to_bytes());
        let body: Value =
            serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into());
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut answer =
            json!({"code": head.status.as_u16(), "contentType": content_type.split(';').next(), "body": body});
        let warnings: Vec<Value> = head.headers.get_all(WARNING).iter().map(warning).collect();
        if !warnings.is_empty() {
            answer["warnings"] = warnings.into();
        }
        answer
    }
}

/// Extracts the text of a warning header.
fn warning(value: &HeaderValue) -> Value {
    static FORM: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"^[0-9]+ \S+ "(.*?)"( "[^"]*")?$"#).expect("written here"));
    let text = String::from_utf8_lossy(value.as_bytes());
    FORM.replace(&text, "$1").replace("\\\"", "\"").into()
}

/// Encodes a query in form encoding.
fn encode(query: &Value) -> String {
    let escape = |text: &str| -> String {
        text.bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => char::from(byte).to_string(),
                b' ' => "+".into(),
                other => format!("%{other:02X}"),
            })
            .collect()
    };
    let fields = query.as_object().into_iter().flatten();
    let pairs = fields.flat_map(|(name, value)| {
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        values.into_iter().map(|value| format!("{}={}", escape(name), escape(&plain(&value)))).collect::<Vec<_>>()
    });
    pairs.collect::<Vec<_>>().join("&")
}

/// A watch that is read in the background.
struct Watch {
    arriving: mpsc::UnboundedReceiver<Value>,
    events: Vec<Value>,
    closed: bool,
}

impl Watch {
    fn open(response: Response<Body>) -> Self {
        let (sender, arriving) = mpsc::unbounded_channel();
        tokio::spawn(read_events(response.into_body(), sender));
        Self { arriving, events: Vec::new(), closed: false }
    }

    /// Waits for a number of events, or for a matching one.
    async fn collect(&mut self, expected: &Value, within: Duration) -> Vec<Value> {
        let end = Instant::now() + within;
        while !self.has(expected) {
            match tokio::time::timeout_at(end, self.arriving.recv()).await {
                Ok(Some(event)) if expected.get("skip").is_some_and(|skipped| event["type"] == *skipped) => {}
                Ok(Some(event)) => self.events.push(event),
                Ok(None) => self.close(),
                Err(_) => break,
            }
        }
        // A response that is not a stream ends with its only item.
        if !self.closed && self.arriving.is_closed() && self.arriving.is_empty() {
            self.close();
        }
        std::mem::take(&mut self.events)
    }

    fn close(&mut self) {
        self.closed = true;
        self.events.push(json!({"type": "CLOSED"}));
    }

    fn has(&self, expected: &Value) -> bool {
        self.closed
            || match expected.get("until") {
                Some(last) => self.events.iter().any(|event| holds(event, last)),
                None => self.events.len() as u64 >= expected["count"].as_u64().unwrap_or(0),
            }
    }
}

async fn read_events(mut body: Body, sender: mpsc::UnboundedSender<Value>) {
    let mut rest = Vec::new();
    let read = |line: &[u8]| {
        serde_json::from_slice(line).unwrap_or_else(|_| String::from_utf8_lossy(line).into_owned().into())
    };
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            if !line.trim_ascii().is_empty() && sender.send(read(&line)).is_err() {
                return;
            }
        }
    }
    if !rest.trim_ascii().is_empty() {
        let _ = sender.send(read(&rest));
    }
}
