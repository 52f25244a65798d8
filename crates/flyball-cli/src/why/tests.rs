//! Operators of others in the cluster: what they receive, and what their pages prove.

use super::answer::{Answer, Question};
use super::operators::{Operator, OperatorArgs, Operators};
use super::token::TokenArgs;
use crate::cluster::kinds::Kinds;
use flyball::FORWARDED_AUTHORIZATION;
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;

/// Text that must change nothing at a terminal: colors, another line, the direction of text.
const HOSTILE: &str = "x\u{1b}[32mready\u{1b}[0m\nnode/n is ready\r\u{9b}1m\u{202e}\u{200f}\u{61c}";

/// URL of the API server, which only operators on this machine have.
const SERVER: &str = "https://127.0.0.1:1";

/// A cluster with an operator of its administrator in the namespace `shop`, and a Deployment of a tenant with the same
/// label in `team-a`.
#[derive(Clone, Default)]
struct Cluster {
    /// Paths of requests, and whether they contain the token.
    received: Arc<Mutex<Vec<(String, bool)>>>,
    /// The service account that may write the object.
    writer: &'static str,
    /// Its field manager.
    manager: &'static str,
    /// A Deployment with the label that selects the pods of `shop/op` as well.
    has_copy: bool,
    /// The operator of the administrator responds without a token.
    is_open: bool,
}

/// Returns the pages of an operator that says that it wrote `configmap/a` because of a Service.
fn page_of_operator(page: &str) -> Value {
    let object = |kind: &str, name: &str| json!({"version": "v1", "kind": kind, "namespace": "default", "name": name});
    let write = json!({"object": object("ConfigMap", "a"), "verb": "apply", "after": "7", "result": "changed"});
    let cause = json!({"type": "change", "object": object("Service", HOSTILE), "before": "5", "after": "6"});
    let reconcile = json!({
        "id": "0123456789", "controller": HOSTILE, "object": object("Service", "s"), "began": "2026-01-01T00:00:10Z",
        "causes": [cause], "writes": [write], "outcome": "success",
    });
    match page {
        "" => json!({"operator": "shop-operator", "lease": {"holder": HOSTILE, "leading": true}}),
        "/reconciles" => json!({"reconciles": [reconcile]}),
        "/object" => {
            let last = json!({"outcome": "error", "error": HOSTILE, "began": "2026-01-01T00:00:10Z"});
            json!({"leading": true, "controllers": [{"name": HOSTILE, "active": true, "cached": true, "last": last}]})
        }
        _ => Value::Null,
    }
}

impl Cluster {
    fn respond(&self, path: &str, has_token: bool, user: &str) -> (StatusCode, Value) {
        let deployment = |namespace: &str, name: &str| {
            json!({"metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}")},
                "spec": {"selector": {"matchLabels": {"app": "op"}}, "template": {}}})
        };
        let owner = |kind: &str, uid: &str| {
            let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": "op", "uid": uid, "controller": true});
            json!([owner])
        };
        let pod = |name: &str, replica_set: &str| {
            json!({
                "metadata": {"name": name, "ownerReferences": owner("ReplicaSet", replica_set)},
                "status": {"phase": "Running"},
                "spec": {"serviceAccountName": "op", "containers": [
                    {"name": "manager", "ports": [{"name": "metrics", "containerPort": 8443}]},
                ]},
            })
        };
        let replica_set =
            |uid: &str, of: &str| json!({"metadata": {"uid": uid, "ownerReferences": owner("Deployment", of)}});
        let configmaps = json!({"resource": "configmaps", "scope": "Namespaced", "verbs": ["get", "list"],
            "responseKind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "singularResource": "configmap"});
        let entry = json!({"manager": self.manager, "operation": "Apply", "time": "2026-01-01T00:00:11Z",
            "fieldsV1": {"f:data": {"f:k": {}}}});
        let condition = json!({"type": "Ready", "status": "False", "reason": HOSTILE, "message": HOSTILE});
        let body = match path {
            "/api" => json!({"items": [{"metadata": {"name": ""}, "versions": [
                {"version": "v1", "resources": [configmaps]},
            ]}]}),
            "/apis" => json!({"items": []}),
            "/api/v1/namespaces/default/configmaps/a" => json!({
                "apiVersion": "v1", "kind": "ConfigMap", "status": {"conditions": [condition]},
                "metadata": {"name": "a", "namespace": "default", "resourceVersion": "7", "managedFields": [entry]},
            }),
            "/apis/apps/v1/deployments" => {
                let names = [("shop", "copy"), ("shop", "op"), ("team-a", "op")].into_iter();
                let names = names.filter(|(_, name)| self.has_copy || *name != "copy");
                let items: Vec<Value> = names.map(|(namespace, name)| deployment(namespace, name)).collect();
                json!({"metadata": {}, "items": items})
            }
            "/apis/apps/v1/namespaces/shop/deployments/op" => deployment("shop", "op"),
            "/api/v1/namespaces/team-a/pods" => json!({"metadata": {}, "items": [pod("op-1", "")]}),
            // Others have created pods and a ReplicaSet with the same labels.
            "/api/v1/namespaces/shop/pods" => {
                json!({"metadata": {}, "items": [pod("forged", ""), pod("op-1", "rs"), pod("other", "forged-rs")]})
            }
            "/apis/apps/v1/namespaces/shop/replicasets" => {
                let items = [replica_set("rs", "shop-op"), replica_set("forged-rs", "team-a-op")];
                json!({"metadata": {}, "items": items})
            }
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => json!({"status": {"allowed": user == self.writer}}),
            _ => match path.split_once("/proxy/debug/flyball") {
                // Without the token, only the operator of the tenant responds.
                Some((pod, page)) if has_token || self.is_open || pod.contains("team-a") => page_of_operator(page),
                Some(_) => return (StatusCode::UNAUTHORIZED, "a bearer token is required".into()),
                None => return (StatusCode::NOT_FOUND, Value::Null),
            },
        };
        (StatusCode::OK, body)
    }

    fn client(&self) -> Client {
        let cluster = self.clone();
        let respond = move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move {
                let headers = request.headers();
                let has_token = headers.contains_key(FORWARDED_AUTHORIZATION) || headers.contains_key(AUTHORIZATION);
                let path = request.uri().path().to_owned();
                cluster.received.lock().push((path.clone(), has_token));
                let sent = request.into_body().collect_bytes().await?;
                let review: Value = serde_json::from_slice(&sent).unwrap_or_default();
                let user = review["spec"]["user"].as_str().unwrap_or_default();
                let (code, body) = cluster.respond(&path, has_token, user);
                let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
                Ok::<_, kube::Error>(
                    Response::builder().status(code).body(Body::from(body.into_bytes())).expect("valid"),
                )
            }
        };
        Client::new(tower::service_fn(respond), "default")
    }

    /// Returns the requests that contained the token.
    fn tokens(&self) -> Vec<String> {
        let received = std::mem::take(&mut *self.received.lock());
        received.into_iter().filter(|(_, has_token)| *has_token).map(|(path, _)| path).collect()
    }

    async fn investigate(&self, names: &[&str], question: &Question) -> Answer {
        let client = self.client();
        let kinds = Kinds::discover(&client).await.expect("kinds");
        let kind = kinds.find("configmap").expect("a kind");
        super::sources::investigate((&client, SERVER), &kinds, (kind, "default", "a"), &args(names, true), question)
            .await
            .expect("an answer")
    }
}

fn args(names: &[&str], insecure_operator_token: bool) -> OperatorArgs {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/operator-token");
    OperatorArgs {
        operators: names.iter().map(ToString::to_string).collect(),
        token: TokenArgs { operator_token_file: Some(file.into()), insecure_operator_token },
        operator_ca: None,
    }
}

#[tokio::test]
async fn only_named_operators_receive_the_token() {
    let cluster = Cluster::default();
    let client = cluster.client();
    let find = async |names: &[&str]| Operators::find(&client, SERVER, &args(names, true)).await.expect("operators");
    let claimants = |found: &Operators| -> Vec<Option<String>> {
        let claimant = |operator: &Operator| operator.claimant().map(|claimant| claimant.deployment.clone());
        found.reached.iter().map(claimant).collect()
    };

    let found = find(&[]).await;
    assert_eq!(cluster.tokens(), [""; 0], "discovered operators receive no token");
    // Three pods have the labels, one of which is its own.
    assert_eq!(claimants(&found), [Some("team-a/op".to_owned())]);
    let error = found.sources.iter().find_map(|source| source.error.clone()).expect("an operator refuses");
    assert!(error.contains("--operator shop/op"), "{error}");
    assert!(error.contains("--operator-token-file") && error.contains("FLYBALL_OPERATOR_TOKEN"), "{error}");

    let found = find(&["shop/op"]).await;
    let page = "/api/v1/namespaces/shop/pods/https:op-1:8443/proxy/debug/flyball";
    assert_eq!(cluster.tokens(), [page], "only the named operator receives it, once");
    assert_eq!(claimants(&found), [None, Some("team-a/op".to_owned())]);
    found.reconciles(&super::page::Object::default()).await;
    assert!(cluster.tokens().iter().all(|path| path.starts_with(page)), "nor for other pages");

    // The API server does not verify who receives a request to a pod.
    let found = Operators::find(&client, SERVER, &args(&["shop/op"], false)).await.expect("operators");
    assert_eq!((cluster.tokens(), claimants(&found)), (Vec::new(), vec![Some("team-a/op".to_owned())]));
    let withheld = found.sources[0].error.clone().unwrap_or_default();
    assert!(withheld.contains("create pods in the namespace of shop/op"), "{withheld}");
    assert!(withheld.contains("--insecure-operator-token"), "{withheld}");

    let found = find(&["shop/other"]).await;
    assert_eq!((cluster.tokens().len(), found.sources[0].address.as_str()), (0, "shop/other"));
}

#[tokio::test]
async fn pods_of_two_deployments_are_one_operator() {
    let cluster = Cluster { has_copy: true, ..Cluster::default() };
    let found =
        Operators::find(&cluster.client(), SERVER, &args(&["shop/op", "shop/op"], true)).await.expect("operators");
    let claimant = |operator: &Operator| operator.claimant().map(|claimant| claimant.deployment.clone());
    let claimants: Vec<_> = found.reached.iter().map(claimant).collect();
    // The forged pods are found by the labels only, as those of the copy.
    let own = found.sources.iter().filter(|source| source.address.contains("/shop/pods/https:op-1:"));
    assert_eq!((claimants, own.count()), (vec![None, Some("team-a/op".to_owned())], 1));
}

#[tokio::test]
async fn pods_that_only_have_the_labels_of_a_named_deployment_are_not_taken_as_it() {
    let cluster = Cluster { is_open: true, ..Cluster::default() };
    let found = Operators::find(&cluster.client(), SERVER, &args(&["shop/op"], true)).await.expect("operators");
    let named = found.reached.iter().filter(|operator| operator.claimant().is_none()).count();
    let claims = found.reached.iter().filter_map(|operator| operator.claimant());
    let claims: Vec<&str> = claims.map(|claimant| claimant.deployment.as_str()).collect();
    // The pods of a Deployment do not hide those of others.
    assert_eq!((named, claims), (1, vec!["shop/op", "team-a/op", "shop/op"]));
    assert!(cluster.tokens().iter().all(|path| path.contains("/shop/pods/https:op-1:")), "one pod receives it");
}

#[tokio::test]
async fn steps_of_discovered_operators_are_claims_that_the_api_server_may_confirm() {
    const OPERATOR: &str = "system:serviceaccount:team-a:op";
    let steps = async |writer: &'static str, manager: &'static str| {
        let cluster = Cluster { writer, manager, ..Cluster::default() };
        let answer = cluster.investigate(&[], &Question::Object).await;
        let step = |step: &super::answer::Step| (step.source, step.claimed_by.clone(), step.confirmed);
        answer.chain.iter().map(step).collect::<Vec<_>>()
    };
    let claim = ("ledger", Some("team-a/op".to_owned()), false);
    let refuted = vec![claim.clone(), claim, ("managedFields", None, false)];
    // The name of a field manager is no proof: a service account that may not write the object has not written it.
    assert_eq!(steps("", "shop-operator").await, refuted);
    assert_eq!(steps("system:serviceaccount:shop:op", "shop-operator").await, refuted);
    assert_eq!(steps(OPERATOR, "kubectl").await, refuted);
    // A confirmed write is a claim as well, and its cause is not followed.
    let confirmed = [&[("ledger", Some("team-a/op".to_owned()), true)][..], &refuted[1..]].concat();
    assert_eq!(steps(OPERATOR, "shop-operator").await, confirmed);

    // A named operator has this manager as well: its facts win, and managed fields do not confirm the other one.
    let cluster = Cluster { writer: OPERATOR, manager: "shop-operator", ..Cluster::default() };
    let answer = cluster.investigate(&["shop/op"], &Question::Object).await;
    assert!(answer.chain.iter().all(|step| step.claimed_by.is_none()), "{:#?}", answer.chain);
    let answer = cluster.investigate(&["shop/op"], &Question::Not).await;
    let is_claimed = |reason: &&super::answer::Reason| reason.claimed_by.as_deref() == Some("team-a/op");
    assert!(answer.reasons.iter().any(|reason| is_claimed(&reason)), "{:#?}", answer.reasons);

    let cluster = Cluster { manager: "shop-operator", ..Cluster::default() };
    let answer = cluster.investigate(&[], &Question::Not).await;
    let claims = answer.reasons.iter().filter(|reason| reason.operator.is_some());
    assert!(claims.clone().count() > 0 && claims.clone().all(|reason| reason.claimed_by.is_some()), "{answer:#?}");
    let text = answer.lines(&Question::Not).join("\n");
    assert!(text.contains("claimed by team-a/op") && text.contains("--operator team-a/op"), "{text}");
}

#[tokio::test]
async fn chain_ends_with_the_reason() {
    let cluster = Cluster { manager: "shop-operator", ..Cluster::default() };
    let answer = cluster.investigate(&["shop/op"], &Question::Object).await;
    let last = answer.chain.last().expect("a step");
    assert_eq!((last.kind, &*last.text), (super::answer::StepKind::Unknown, "the cluster has no kind Service in v1"));
    let json = serde_json::to_value(&answer).expect("JSON");
    assert_eq!(
        json["chain"].as_array().and_then(|chain| chain.last()).map(|step| &step["type"]),
        Some(&json!("unknown"))
    );
}

#[tokio::test]
async fn missing_permission_and_missing_nodes_are_explained() {
    let respond = |request: Request<Body>| async move {
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "redis-cache", "controller": true}]);
        let entry = json!({"manager": "op", "operation": "Apply", "time": "2026-01-01T00:00:11Z"});
        let resource = |plural: &str, kind: &str| {
            json!({"resource": plural, "scope": "Namespaced", "verbs": ["get", "list"], "singularResource": "",
                "responseKind": {"group": "", "version": "v1", "kind": kind}})
        };
        let resources = [resource("configmaps", "ConfigMap"), resource("pods", "Pod")];
        let (code, body) = match request.uri().path() {
            "/api" => (
                200,
                json!({"items": [{"metadata": {"name": ""}, "versions": [
                    {"version": "v1", "resources": resources},
                ]}]}),
            ),
            "/apis" => (200, json!({"items": []})),
            "/api/v1/namespaces/shop/pods/a" => (
                200,
                json!({
                    "apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending"},
                    "metadata": {"name": "a", "namespace": "shop", "ownerReferences": owner, "managedFields": [entry]},
                }),
            ),
            "/api/v1/nodes" => (200, json!({"items": []})),
            "/apis/authentication.k8s.io/v1/selfsubjectreviews" => {
                (201, json!({"metadata": {"creationTimestamp": "2026-01-01T00:01:11Z"}}))
            }
            _ => (
                403,
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403,
                "message": "forbidden", "reason": "Forbidden"}),
            ),
        };
        let body = Body::from(body.to_string().into_bytes());
        Ok::<_, kube::Error>(Response::builder().status(code).body(body).expect("valid"))
    };
    let client = Client::new(tower::service_fn(respond), "default");
    let kinds = Kinds::discover(&client).await.expect("kinds");
    let kind = kinds.find("pod").expect("a kind");
    let question = Question::Object;
    let (target, args) = ((kind, "shop", "a"), OperatorArgs::default());
    let answer = super::sources::investigate((&client, SERVER), &kinds, target, &args, &question).await;
    let lines = answer.expect("an answer").lines(&question);
    let expected = [
        "  60s ago    op applied pod/a  [managedFields]",
        "  owned by   configmap/redis-cache",
        "  unknown    you may not get configmaps in namespace shop",
        "  waiting    not scheduled: the cluster has no nodes; add one, such as with flyball cluster node add",
    ];
    assert_eq!(lines[1..5], expected, "the time is that of the server: {lines:#?}");
}

#[tokio::test]
async fn answers_contain_text_of_others_as_parts_of_lines() {
    let cluster = Cluster { manager: "shop-operator", ..Cluster::default() };
    for question in [Question::Object, Question::Not, Question::Field("data.k".into())] {
        let lines = cluster.investigate(&["shop/op"], &question).await.lines(&question);
        let text = lines.concat();
        assert!(!text.contains(|char: char| char.is_control() || "\u{202e}\u{200f}\u{61c}".contains(char)), "{text:?}");
        assert!(text.contains("x^[[32mready^[[0m^Jnode/n is ready"), "{question:?}: {lines:#?}");
    }
}
