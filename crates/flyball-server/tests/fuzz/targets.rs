//! The targets.

use crate::{engine, strict};
use base64::Engine;
use bytes::Bytes;
use flyball_core::Clock;
use flyball_core::time::Timestamp;
use flyball_server::{Caller, Options, Server, User, WebhookCall, WebhookFuture, WebhookResponse};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The summary of a result.
pub(crate) type Played<'w> = Pin<Box<dyn Future<Output = String> + 'w>>;

/// A target: seeds, setup, and execution of an input.
pub(crate) struct Target {
    pub(crate) seeds: fn() -> Vec<String>,
    pub(crate) setup: fn() -> Vec<(&'static str, Value)>,
    pub(crate) play: for<'w> fn(&'w mut World, &'w [u8]) -> Played<'w>,
}

impl engine::Target for Target {
    type World = World;

    fn seeds(&self) -> Vec<Vec<u8>> {
        (self.seeds)().into_iter().map(String::into_bytes).collect()
    }

    async fn open(&self) -> World {
        World::new(self).await
    }

    async fn play(&self, world: &mut World, input: &[u8]) -> String {
        (self.play)(world, input).await
    }
}

/// A server, and the responses of its webhooks.
pub(crate) struct World {
    pub(crate) server: Server,
    /// The response of all webhooks, if there are any.
    pub(crate) answer: Arc<Mutex<Option<Bytes>>>,
}

struct FuzzedWebhook(Arc<Mutex<Option<Bytes>>>);

impl Caller for FuzzedWebhook {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        // `UID` in a response is replaced by the UID of the review.
        let uid = json_of(&call.body)["request"]["uid"].as_str().unwrap_or_default().to_owned();
        let text = String::from_utf8(self.0.lock().unwrap().clone().unwrap_or_default().into());
        let body = text.map_or_else(|error| error.into_bytes(), |text| text.replace("UID", &uid).into_bytes()).into();
        Box::pin(async move { Ok(WebhookResponse { code: 200, content_type: "application/json".into(), body }) })
    }
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

impl World {
    async fn new(target: &Target) -> Self {
        let answer = Arc::new(Mutex::new(None));
        let clock = Clock::new(|| Timestamp::from_second(1_800_000_000).unwrap());
        let options = Options { webhooks: Arc::new(FuzzedWebhook(answer.clone())), ..Options::simulated(clock, 1) };
        let server = Server::new(options);
        let world = Self { server, answer };
        for (path, object) in (target.setup)() {
            let output = world.ask("POST", path, &[("content-type", JSON)], object.to_string().into_bytes()).await;
            assert!(output.starts_with("201"), "{path}: {output}");
        }
        world
    }

    /// Sends a request of an administrator, and summarizes the response.
    pub(crate) async fn ask(&self, method: &str, url: &str, headers: &[(&str, &str)], body: Vec<u8>) -> String {
        self.ask_as(Some(User::admin()), method, url, headers, body).await
    }

    /// Creates an object and deletes it, unless it has finalizers.
    async fn create(&self, collection: &str, body: Vec<u8>) {
        let admin = || Some(User::admin());
        let headers = [("content-type", JSON)];
        let created = send(&self.server, admin(), "POST", collection, &headers, body).await;
        let Some((201, Some(created))) = created else { return };
        let created = json_of(&created);
        assert_is_stored(&self.server, collection, &created).await;
        let name = created["metadata"]["name"].as_str().unwrap_or_default();
        let url = format!("{collection}/{name}?gracePeriodSeconds=0");
        send(&self.server, admin(), "DELETE", &url, &[], Vec::new()).await;
    }

    /// Sends a request, and summarizes the response: its code and the words of its message, without variable parts.
    pub(crate) async fn ask_as(
        &self,
        user: Option<User>,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> String {
        let Some((code, body)) = send(&self.server, user, method, url, headers, body).await else {
            // Malformed requests are rejected before they reach a server.
            return "none".into();
        };
        let Some(body) = body else { return format!("{code} goes on") };
        let response: Value = serde_json::from_slice(&body).unwrap_or_default();
        assert_is_no_failure(code, &response, self.answer.lock().unwrap().is_some());
        if response["kind"] == "Status" {
            assert!(code < 400 || response["code"] == code, "{code}: {response}");
            return format!("{code} {}", outline(response["message"].as_str().unwrap_or_default()));
        }
        format!("{code} {}", response["kind"])
    }
}

/// Asserts that the response is not a server failure. Plain errors of a real server also have code 500, but no reason.
pub(crate) fn assert_is_no_failure(code: u16, response: &Value, has_webhooks: bool) {
    let is_expected = match code {
        500 => response["reason"].is_null() || has_webhooks,
        // No containers run, and waits for future revisions time out.
        501 | 504 => true,
        _ => code < 500,
    };
    assert!(is_expected, "{code}: {response}");
}

/// Asserts that a read returns the object of the write's response.
pub(crate) async fn assert_is_stored(server: &Server, collection: &str, answer: &Value) {
    let name = answer["metadata"]["name"].as_str().unwrap_or_default();
    let url = format!("{collection}/{}", encode(name.as_bytes()));
    let read = send(server, Some(User::admin()), "GET", &url, &[], Vec::new()).await;
    let Some((200, Some(read))) = read else { panic!("{url} cannot be read: {read:?}, {answer}") };
    assert_eq!(json_of(&read), *answer, "{url}");
}

/// Sends a request. Returns `None` if it is malformed, and no body if it is endless.
pub(crate) async fn send(
    server: &Server,
    user: Option<User>,
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Option<(u16, Option<Bytes>)> {
    let mut request = Request::builder().method(method.as_bytes()).uri(url.as_bytes());
    for (name, value) in headers {
        request = request.header(name.as_bytes(), value.as_bytes());
    }
    let mut request = request.body(Full::new(Bytes::from(body))).ok()?;
    user.map(|user| request.extensions_mut().insert(user));
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    // A watch runs as long as the client listens.
    let body = tokio::time::timeout(Duration::from_secs(2), response.into_body().collect()).await;
    Some((code, body.ok().and_then(Result::ok).map(|body| body.to_bytes())))
}

/// Maximum length of a word of an outline in bytes: millions of responses are kept.
const MAX_WORD: usize = 32;

/// The first words of a message, without quoted parts.
fn outline(message: &str) -> String {
    let mut quote = None;
    let unquoted = message.chars().map(|c| match quote {
        Some(open) => {
            quote = (c != open).then_some(open);
            ' '
        }
        None => {
            quote = matches!(c, '"' | '\'' | '`').then_some(c);
            c
        }
    });
    let text: String = unquoted.collect();
    let words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() > 1);
    // A word may be as long as an input; they are ASCII, so that any place is between two characters.
    words.take(28).map(|word| &word[..word.len().min(MAX_WORD)]).collect::<Vec<_>>().join(" ")
}

pub(crate) fn json_of(input: &[u8]) -> Value {
    serde_json::from_slice(input).unwrap_or_default()
}

pub(crate) fn encode(text: &[u8]) -> String {
    text.iter().map(|byte| format!("%{byte:02X}")).collect()
}

pub(crate) fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"a": "b"}}, "spec": {"containers": [{
        "name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"cpu": "1500m"}}, "livenessProbe": {"httpGet": {"port": "p", "path": "/"}},
    }], "volumes": [{"name": "v", "emptyDir": {}}], "tolerations": [{"key": "a", "operator": "Exists"}]}})
}

pub(crate) fn account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
}

pub(crate) fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]},
    }})
}

pub(crate) fn map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"a": "b"}}, "data": {"k": "v"}})
}

pub(crate) fn definition(schema: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
    }})
}

pub(crate) fn schema() -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["n"], "properties": {
        "n": {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 1}, "s": {"type": "string", "pattern": "^(a|b)+$", "maxLength": 9, "default": "a"},
        "l": {"type": "array", "maxItems": 9, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string", "maxLength": 9}, "v": {"x-kubernetes-int-or-string": true}}}},
        "m": {"type": "object", "additionalProperties": {"type": "number"}},
        "e": {"type": "string", "enum": ["x", "y"], "nullable": true},
        "o": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-embedded-resource": true},
    }, "oneOf": [{"required": ["n"]}, {"not": {"required": ["s"]}}]}}})
}

pub(crate) fn widget() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {
        "n": 3, "s": "ab", "l": [{"k": "a", "v": 1}], "m": {"a": 1.5}, "e": "x", "o": {"apiVersion": "v1", "kind": "ConfigMap"},
    }})
}

pub(crate) fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

/// The request line, headers below it, then a body.
pub(crate) fn requests() -> Target {
    Target {
        seeds: || {
            texts(&[
                "GET /api/v1/namespaces/default/configmaps?limit=1\naccept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json;q=0.5\n\n",
                "POST /api/v1/namespaces/default/configmaps?dryRun=All&fieldManager=m\ncontent-type: application/yaml\n\nmetadata: {name: a}",
                "PATCH /apis/apps/v1/namespaces/default/deployments/a/scale\ncontent-type: application/merge-patch+json\nuser-agent: a/b\n\n{}",
                "GET /apis\naccept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList\nimpersonate-user: jane\nimpersonate-extra-a%2fb: c\n\n",
                "DELETE /api/v1/namespaces/default/pods/a?gracePeriodSeconds=0&propagationPolicy=Foreground\nauthorization: Bearer e30.e30.AA\n\n{}",
                "GET /openapi/v3/apis/apps/v1?hash=x\n\n\n",
                "GET /openapi/v2\naccept: application/com.github.proto-openapi.spec.v2@v1.0+protobuf\n\n",
                "GET /api/v1/namespaces/default/pods/a/log?container=c\n\n\n",
            ])
        },
        setup: || vec![(MAPS, map()), (ACCOUNTS, account()), (PODS, pod())],
        play: |world, input| {
            Box::pin(async move {
                let text = String::from_utf8_lossy(input);
                let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
                let mut lines = head.lines();
                let (method, url) = lines.next().unwrap_or_default().split_once(' ').unwrap_or(("GET", "/"));
                let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(": ")).collect();
                world.ask(method, url, &headers, body.as_bytes().to_vec()).await
            })
        },
    }
}

/// Bodies of objects, as JSON, as YAML and as protobuf.
pub(crate) fn bodies() -> Target {
    Target {
        seeds: || {
            let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: &d\n  a: |\n    text\n  b: !!str 1\nbinaryData: {c: AAE=}\n";
            let mut seeds: Vec<String> = [pod(), strict::pod(), deployment(), map(), widget(), definition(&schema())]
                .iter()
                .map(Value::to_string)
                .collect();
            seeds.extend([
                yaml.to_owned(),
                "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]".into(),
                "k8s\0\n\u{f}\n\u{2}v1\u{12}\u{9}ConfigMap\u{12}\u{3}\n\u{1}a".into(),
            ]);
            seeds
        },
        setup: || {
            [(DEFINITIONS, definition(&schema())), (ACCOUNTS, account())].into_iter().chain(strict::setup()).collect()
        },
        play: |world, input| {
            Box::pin(async move {
                let path = match json_of(input)["kind"].as_str() {
                    Some("Pod") => PODS,
                    Some("Deployment") => DEPLOYMENTS,
                    Some("Widget") => WIDGETS,
                    Some("CustomResourceDefinition") => DEFINITIONS,
                    _ => MAPS,
                };
                let mut output = String::new();
                for media in [JSON, "application/yaml", "application/vnd.kubernetes.protobuf"] {
                    let url = format!("{path}?dryRun=All&fieldValidation=Strict");
                    output += &world.ask("POST", &url, &[("content-type", media)], input.to_vec()).await;
                }
                if path == PODS {
                    let url = format!("{}?dryRun=All", strict::PODS);
                    output += &world.ask("POST", &url, &[("content-type", JSON)], input.to_vec()).await;
                }
                // The consequences of a write to a CRD change it.
                if path != DEFINITIONS {
                    world.create(path, input.to_vec()).await;
                }
                output
            })
        },
    }
}

/// Patches of each type, to a built-in and to a custom object.
pub(crate) fn patches() -> Target {
    Target {
        seeds: || {
            let mut seeds = texts(&[
                r#"[{"op":"add","path":"/metadata/labels/x","value":"y"},{"op":"move","from":"/spec/replicas","path":"/spec/x"},{"op":"test","path":"/kind","value":"Pod"}]"#,
                r#"[{"op":"copy","from":"","path":"/spec/-1"},{"op":"remove","path":"/spec/template/spec/containers/0"}]"#,
                r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","$patch":"delete"},{"name":"d","image":"i"}],"$setElementOrder/containers":[{"name":"d"}],"$retainKeys":["containers"]}}}}"#,
                r#"{"metadata":{"labels":null,"finalizers":["a/b"],"$deleteFromPrimitiveList/finalizers":["a/b"]},"spec":null}"#,
                r#"{"spec":{"l":[{"k":"a","v":null}],"m":{"$patch":"replace"}}}"#,
            ]);
            seeds.extend([deployment().to_string(), widget().to_string()]);
            seeds
        },
        setup: || vec![(DEFINITIONS, definition(&schema())), (DEPLOYMENTS, deployment()), (WIDGETS, widget())],
        play: |world, input| {
            Box::pin(async move {
                let mut output = String::new();
                for path in [DEPLOYMENTS, WIDGETS] {
                    for media in
                        ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]
                    {
                        let url = format!("{path}/a?fieldManager=m&force=true&dryRun=All");
                        let force =
                            if media.starts_with("apply") { url.as_str() } else { &url.replace("&force=true", "") };
                        output += &world
                            .ask("PATCH", force, &[("content-type", &format!("application/{media}"))], input.to_vec())
                            .await;
                    }
                }
                output
            })
        },
    }
}

/// An object is created with such managed fields; then others apply to it.
pub(crate) fn managed_fields() -> Target {
    Target {
        seeds: || {
            let entry = |operation: &str, fields: Value| json!([{"manager": "m", "operation": operation, "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields}]);
            let keyed = json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}}}}, "f:tolerations": {"i:0": {}, "v:\"x\"": {}}}});
            vec![
                entry("Apply", json!({"f:metadata": {"f:labels": {"f:a": {}}}})).to_string(),
                entry("Update", keyed).to_string(),
                "[{}]".into(),
            ]
        },
        setup: || vec![(ACCOUNTS, account()), (PODS, pod())],
        play: |world, input| {
            Box::pin(async move {
                let mut changed = pod();
                changed["metadata"]["managedFields"] = json_of(input);
                let body = |object: &Value| object.to_string().into_bytes();
                let mut output = world
                    .ask("PUT", &format!("{PODS}/a?fieldManager=x"), &[("content-type", JSON)], body(&changed))
                    .await;
                let mut document =
                    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"a": "c"}}});
                document["spec"] = json!({"containers": [{"name": "c", "image": "j"}]});
                for force in ["", "&force=true"] {
                    let url = format!("{PODS}/a?fieldManager=n{force}");
                    output += &world
                        .ask("PATCH", &url, &[("content-type", "application/apply-patch+yaml")], body(&document))
                        .await;
                }
                output
            })
        },
    }
}

/// Selectors of labels and of fields, in queries and in deletions of collections.
pub(crate) fn selectors() -> Target {
    Target {
        seeds: || {
            texts(&[
                "a=b,c!=d,e in (f,g),h notin (),i,!j",
                "a > 1,b < 2",
                "metadata.name=a,metadata.namespace!=b",
                "a==b,",
                "x/y.z=\\,",
                "status.phase==Running",
            ])
        },
        setup: || vec![(ACCOUNTS, account()), (PODS, pod())],
        play: |world, input| {
            Box::pin(async move {
                let text = encode(input);
                let mut output = String::new();
                for query in [format!("labelSelector={text}"), format!("fieldSelector={text}")] {
                    output += &world.ask("GET", &format!("{PODS}?{query}"), &[], Vec::new()).await;
                    output += &world.ask("DELETE", &format!("{PODS}?{query}&dryRun=All"), &[], Vec::new()).await;
                }
                output
            })
        },
    }
}

/// A rule in CEL: accepted or not with its definition, and run on an object.
pub(crate) fn cel() -> Target {
    Target {
        seeds: || {
            texts(&[
                "self.n > 1 && self.s.size() < 9",
                "self.l.all(x, self.l.exists_one(y, x.k == y.k)) && has(self.e) ? self.e in ['x', 'y'] : true",
                "self.s.matches('^(a|b)+$') && self.s.replace('a', 'b').split('b').size() > 0",
                "duration('1h') > duration('1s') && timestamp('2026-01-01T00:00:00Z') < timestamp('2027-01-01T00:00:00Z')",
                "self.m.map(k, self.m[k]).filter(v, v > 0.5).size() == 1",
                "quantity('1Gi').add(quantity('1Mi')).isGreaterThan(quantity('1Ki'))",
                "self.n / (self.n - 3) == 1 || self.l[self.n].k == 'a'",
                "[1,2,3].map(x, [1,2,3].map(y, x * y)).size() == 3",
                "cidr('10.0.0.0/8').containsIP(ip('10.0.0.1')) && url('https://a/b').getHost() == 'a'",
                "oldSelf.n == self.n",
                "'%d %s'.format([self.n, self.s]) == '3 ab'",
                "-9223372036854775808 / -1 == 0 || 9223372036854775807 + self.n > 0",
            ])
        },
        setup: Vec::new,
        play: |world, input| {
            Box::pin(async move {
                let rule = String::from_utf8_lossy(input);
                let mut schema = schema();
                schema["properties"]["spec"]["x-kubernetes-validations"] =
                    json!([{"rule": rule, "messageExpression": rule, "message": "m"}]);
                play_definition(world, &definition(&schema)).await
            })
        },
    }
}

/// Creates a definition, an object of it, and deletes both.
async fn play_definition(world: &World, definition: &Value) -> String {
    let headers = [("content-type", JSON)];
    let mut output = world.ask("POST", DEFINITIONS, &headers, definition.to_string().into_bytes()).await;
    if output.starts_with("201") {
        output += &world.ask("POST", WIDGETS, &headers, widget().to_string().into_bytes()).await;
        let apply = [("content-type", "application/apply-patch+yaml")];
        let mut changed = widget();
        changed["spec"]["n"] = 4.into();
        output += &world
            .ask("PATCH", &format!("{WIDGETS}/a?fieldManager=m&force=true"), &apply, changed.to_string().into_bytes())
            .await;
        output += &world.ask("GET", "/openapi/v3/apis/example.com/v1", &[], Vec::new()).await;
    }
    world.ask("DELETE", &format!("{DEFINITIONS}/widgets.example.com"), &[], Vec::new()).await;
    output
}

/// Schemas of definitions.
pub(crate) fn schemas() -> Target {
    Target {
        seeds: || {
            let deep = (0..60)
                .fold(json!({"type": "string"}), |inner, _| json!({"type": "object", "properties": {"a": inner}}));
            let wide: Vec<String> = (0..2000).map(|i| format!("value-{i}")).collect();
            let spec = |spec: Value| json!({"type": "object", "properties": {"spec": spec}}).to_string();
            vec![
                schema().to_string(),
                deep.to_string(),
                spec(json!({"type": "object", "properties": {"e": {"type": "string", "enum": wide}}})),
                spec(
                    json!({"type": "object", "properties": {"s": {"type": "string", "pattern": "((ab?c?d?){0,99}){0,9}$"}}}),
                ),
                spec(json!({"$ref": "#/properties/spec"})),
                spec(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "default": {"n": 1}})),
            ]
        },
        setup: Vec::new,
        play: |world, input| Box::pin(async move { play_definition(world, &definition(&json_of(input))).await }),
    }
}

/// Continue tokens of lists.
pub(crate) fn continue_tokens() -> Target {
    Target {
        seeds: || {
            texts(&[
                r#"{"v":"meta.k8s.io/v1","rv":5,"start":"a\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"../x/"}"#,
                "[]",
                "raw",
            ])
        },
        setup: || vec![(MAPS, map())],
        play: |world, input| {
            Box::pin(async move {
                let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(input);
                let mut output = world.ask("GET", &format!("{MAPS}?limit=1&continue={token}"), &[], Vec::new()).await;
                output += &world
                    .ask("GET", &format!("{MAPS}?continue={}&resourceVersion=0", encode(input)), &[], Vec::new())
                    .await;
                output
            })
        },
    }
}

/// The parameters of watches, and of the lists before them.
pub(crate) fn watches() -> Target {
    Target {
        seeds: || {
            texts(&[
                "watch=true&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=1",
                "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1&timeoutSeconds=1",
                "watch=true&resourceVersion=99999999999999999999&labelSelector=a",
                "resourceVersion=1&resourceVersionMatch=Exact&limit=5",
                "watch=true&fieldSelector=metadata.name%3Da&timeoutSeconds=-1",
            ])
        },
        setup: || vec![(MAPS, map())],
        play: |world, input| {
            Box::pin(async move {
                let query: String = String::from_utf8_lossy(input).chars().filter(char::is_ascii_graphic).collect();
                let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
                world.ask("GET", &format!("{MAPS}?{query}"), &[], Vec::new()).await
                    + &world.ask("GET", &format!("{MAPS}/a?{query}"), &accept, Vec::new()).await
            })
        },
    }
}

/// Responses of mutating and conversion webhooks.
pub(crate) fn webhooks() -> Target {
    Target {
        seeds: || {
            let patch =
                base64::engine::general_purpose::STANDARD.encode(r#"[{"op":"add","path":"/data/x","value":"y"}]"#);
            let review = |response: Value| {
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
                    .to_string()
            };
            let converted = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": {
                "uid": "UID", "result": {"status": "Success"}, "convertedObjects": [{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "default"}, "spec": {"n": 1}}],
            }});
            vec![
                review(json!({"uid": "UID", "allowed": true, "patchType": "JSONPatch", "patch": patch})),
                review(
                    json!({"uid": "UID", "allowed": false, "status": {"code": 418, "message": "no", "reason": "X", "details": {"causes": []}}, "warnings": ["w", "ä\n"], "auditAnnotations": {"a": "b"}}),
                ),
                review(json!({"uid": "UID", "allowed": false, "status": {"code": 4818}})),
                converted.to_string(),
                String::new(),
            ]
        },
        setup: || {
            let client = json!({"url": "https://example.com/hook"});
            let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "h"}, "webhooks": [{
                "name": "h.example.com", "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
            }]});
            let mut converted = definition(&schema());
            let other =
                json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema()}});
            converted["spec"]["versions"].as_array_mut().unwrap().push(other);
            converted["spec"]["conversion"] =
                json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}});
            vec![
                ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", hook),
                (DEFINITIONS, converted),
                (WIDGETS, widget()),
            ]
        },
        play: |world, input| {
            Box::pin(async move {
                *world.answer.lock().unwrap() = Some(Bytes::copy_from_slice(input));
                let headers = [("content-type", JSON)];
                let mut output =
                    world.ask("POST", &format!("{MAPS}?dryRun=All"), &headers, map().to_string().into_bytes()).await;
                output += &world.ask("GET", &WIDGETS.replace("v1", "v2"), &[], Vec::new()).await;
                let mut second = widget();
                second["apiVersion"] = "example.com/v2".into();
                second["metadata"]["name"] = "b".into();
                output +=
                    &world.ask("POST", &WIDGETS.replace("v1", "v2"), &headers, second.to_string().into_bytes()).await;
                output
            })
        },
    }
}
