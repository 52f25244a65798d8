//! Answers to requests of the page, from the store, the ledgers and the API server.

use crate::actions::ActionRequest;
use crate::causality::Graph;
use crate::controllers::{self, PERIOD};
use crate::kind::Kind;
use crate::object::ObjectRef;
use crate::operators::{Operator, Reconcile, Snapshot};
use crate::performance;
use crate::permissions;
use crate::shared::Shared;
use crate::store::{Change, Watch};
use crate::summary::{Summary, items, text};
use crate::timeline::{self, Sources};
use crate::verification::ObservedData;
use crate::watch::read;
use flyball::error_chain;
use flyball_core::time::{rfc3339_micro, saturating_add};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Limit of children in a timeline.
const MAX_CHILDREN: usize = 200;
/// Limit of reconciles in a timeline.
const MAX_RECONCILES: usize = 300;
/// Limits of the graph of causes.
const MAX_GRAPH_CHANGES: usize = 4_000;
const MAX_GRAPH_RECONCILES: usize = 4_000;
/// Reconciles of the charts.
const MAX_CHART_RECONCILES: usize = 20_000;

pub(crate) type Answer<T = Value> = Result<T, (StatusCode, String)>;
type Query = BTreeMap<String, String>;

/// Describes an object: its body, owners, children and timeline.
pub(crate) async fn object(shared: &Shared, query: &Query) -> Answer {
    let watches = shared.store.watches();
    let (reference, summary) = requested(shared, &watches, query)?;
    let id = summary.as_ref().map(|summary| summary.id.clone()).unwrap_or_default();
    let (body, error) = body_of(shared, &watches, summary.as_deref()).await;
    let (events, events_error) = events_of(shared, summary.as_deref()).await;
    // A deleted object may have left children behind.
    let uid = match &summary {
        Some(_) => id.clone(),
        None => uid_of_deleted(shared, &watches, &reference),
    };
    let children = shared.store.children(&uid, MAX_CHILDREN);
    let children: Vec<(ObjectRef, Arc<Summary>)> = children
        .into_iter()
        .map(|child| (self::reference(&watches, child.kind, &child.namespace, &child.name), child))
        .collect();
    let changes = shared.store.changes(MAX_GRAPH_CHANGES, |change| {
        !uid.is_empty() && (change.id == uid || change.owner == uid)
            || change.name == reference.name && refers(&watches, change) == reference
    });
    let Snapshot { operators, reconciles } = shared.operators.snapshot(MAX_RECONCILES, |reconcile| {
        reference.is(&reconcile["object"]) || items(&reconcile["writes"]).any(|write| reference.is(&write["object"]))
    });
    let explanations = shared.operators.explain(&reference).await;
    let (refers, kinds) = (|change: &Change| refers(&watches, change), kinds_of(&watches));
    let changed = [reference.clone()].into_iter().chain(changes.iter().map(|change| refers(change)));
    let writers = shared.write_log.read(&shared.client, &kinds, changed, shared.clock.now()).await;
    let changes = writers.attribute(changes, &refers);
    let observed = ObservedData {
        kinds: &kinds,
        operators: &operators,
        reconciles: &reconciles,
        changes: &changes,
        refers: &refers,
        shown: Some((&reference, &body)),
        now: shared.clock.now(),
    };
    let statuses = shared.verifier.verify(&shared.client, &observed).await;
    let sources = Sources {
        object: &reference,
        body: &body,
        events: &events,
        changes: &changes,
        children: &children,
        reconciles: &reconciles,
        operators: &operators,
        statuses: &statuses,
        refers: &refers,
    };
    let (entries, omitted) = timeline::entries(&sources);
    let named = children.iter().map(|(child, summary)| json!({"object": child, "summary": **summary}));
    Ok(json!({
        "id": id, "object": reference, "summary": summary.as_deref(), "body": body, "error": error,
        "eventsError": events_error, "owners": owners(shared, &watches, summary.as_deref()),
        "children": named.collect::<Vec<_>>(), "entries": entries, "entriesOmitted": omitted,
        "reconciles": by_operator_and_id(&operators, &reconciles),
        "controllers": keys_of(&operators, &reference), "explanations": explanations,
    }))
}

/// Returns the object that a query names, with its row if it exists.
fn requested(shared: &Shared, watches: &[Watch], query: &Query) -> Answer<(ObjectRef, Option<Arc<Summary>>)> {
    let parameter = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
    if let Some(summary) = shared.store.get(parameter("id")) {
        let reference = reference(watches, summary.kind, &summary.namespace, &summary.name);
        return Ok((reference, Some(summary)));
    }
    let (group, kind) = (parameter("group"), parameter("kind"));
    let (namespace, name) = (parameter("namespace"), parameter("name"));
    if name.is_empty() {
        return Err((StatusCode::NOT_FOUND, "the object does not exist anymore".to_owned()));
    }
    let known = shared.store.find(group, kind, namespace, name);
    let namespace = known.as_ref().map_or(namespace, |known| &known.namespace);
    let [group, kind, namespace, name] = [group, kind, namespace, name].map(str::to_owned);
    Ok((ObjectRef { group, kind, namespace, name }, known))
}

/// Returns the UID of an object whose deletion was observed; empty if it is unknown.
fn uid_of_deleted(shared: &Shared, watches: &[Watch], object: &ObjectRef) -> String {
    let is_deletion =
        |change: &Change| change.verb == "delete" && change.name == object.name && refers(watches, change) == *object;
    shared.store.changes(1, is_deletion).first().map(|change| change.id.clone()).unwrap_or_default()
}

/// Reads the object without its managed fields' contents, and the reason if that is not possible.
async fn body_of(shared: &Shared, watches: &[Watch], summary: Option<&Summary>) -> (Value, String) {
    let Some(summary) = summary else { return (Value::Null, "the object does not exist".to_owned()) };
    let Some(watch) = watches.get(summary.kind) else { return (Value::Null, String::new()) };
    match read(&shared.client, &watch.kind, &summary.namespace, &summary.name).await {
        Ok(body) => (body, String::new()),
        Err(error) => (Value::Null, error_chain(&error)),
    }
}

/// Reads the events of an object, and the reason if that is not possible.
async fn events_of(shared: &Shared, summary: Option<&Summary>) -> (Vec<Value>, String) {
    let Some(summary) = summary.filter(|summary| !summary.id.contains('/')) else { return (Vec::new(), String::new()) };
    let namespace = &summary.namespace;
    let scope = if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
    let id: String = url::form_urlencoded::byte_serialize(summary.id.as_bytes()).collect();
    let path = format!("/api/v1/{scope}events?limit=200&fieldSelector=involvedObject.uid%3D{id}");
    match list(shared, &path).await {
        Ok(list) => (items(&list["items"]).cloned().collect(), String::new()),
        Err(error) => (Vec::new(), error_chain(&error)),
    }
}

async fn list(shared: &Shared, path: &str) -> kube::Result<Value> {
    shared.client.request(Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?).await
}

/// Returns the owners of an object, the root first.
fn owners(shared: &Shared, watches: &[Watch], summary: Option<&Summary>) -> Vec<Value> {
    let mut owners = Vec::new();
    let mut next = summary.map(|summary| summary.owner.clone()).unwrap_or_default();
    while let Some(owner) = shared.store.get(&next).filter(|_| owners.len() < 16) {
        let reference = reference(watches, owner.kind, &owner.namespace, &owner.name);
        owners.push(json!({"object": reference, "summary": *owner}));
        next.clone_from(&owner.owner);
    }
    owners.reverse();
    owners
}

/// Returns reconciles by the index of their operator and their ID, as `OPERATOR/ID`: an operator that was merely
/// discovered may report the ID of a reconcile of another one.
fn by_operator_and_id(operators: &[Operator], reconciles: &[Reconcile]) -> BTreeMap<String, Value> {
    let named = reconciles.iter().map(|reconcile| {
        let name = operators.get(reconcile.operator).map(Operator::name).unwrap_or_default();
        let value = json!({"operator": name, "reconcile": *reconcile.value});
        (format!("{}/{}", reconcile.operator, text(&reconcile.value["id"])), value)
    });
    named.collect()
}

/// Returns the state of the object's key in every controller of its kind.
fn keys_of(operators: &[Operator], object: &ObjectRef) -> Vec<Value> {
    let mut found = Vec::new();
    for operator in operators {
        for controller in items(&operator.state["controllers"]) {
            if text(&controller["kind"]) != object.kind || text(&controller["group"]) != object.group {
                continue;
            }
            let is_key =
                |key: &&Value| text(&key["name"]) == object.name && text(&key["namespace"]) == object.namespace;
            let key = items(&controller["queue"]["keys"]).find(is_key);
            let mut described = json!({
                "operator": operator.name(), "controller": controller["name"], "active": controller["active"],
                "leading": operator.state["lease"]["leading"],
            });
            for (field, value) in [("waitsFor", Some(&controller["waitsFor"])), ("key", key)] {
                if let Some(value) = value.filter(|value| !value.is_null()) {
                    described[field] = value.clone();
                }
            }
            found.push(described);
        }
    }
    found
}

fn reference(watches: &[Watch], kind: usize, namespace: &str, name: &str) -> ObjectRef {
    let watch = watches.get(kind).map(|watch| &watch.kind);
    let field = |of: fn(&Kind) -> &String| watch.map(of).cloned().unwrap_or_default();
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    ObjectRef { group: field(|kind| &kind.group), kind: field(|kind| &kind.kind), namespace, name }
}

fn kinds_of(watches: &[Watch]) -> Vec<Kind> {
    watches.iter().map(|watch| watch.kind.clone()).collect()
}

fn refers(watches: &[Watch], change: &Change) -> ObjectRef {
    reference(watches, change.kind, &change.namespace, &change.name)
}

/// Describes operators, queues, charts, stores, watches and leases.
pub(crate) async fn controllers(shared: &Shared) -> Answer {
    let now = shared.clock.now();
    let Snapshot { operators, reconciles } = shared.operators.snapshot(MAX_CHART_RECONCILES, |_| true);
    let mut described = controllers::describe(&operators, &reconciles, now);
    let namespace = &shared.namespace;
    let scope = if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
    let leases = list(shared, &format!("/apis/coordination.k8s.io/v1/{scope}leases?limit=500")).await;
    let (leases, error) = match leases {
        Ok(list) => (controllers::leases(&list, now), String::new()),
        Err(error) => (Vec::new(), error_chain(&error)),
    };
    described["leases"] = leases.into();
    described["leasesError"] = error.into();
    described["watches"] = json!(shared.store.watches());
    described["now"] = rfc3339_micro(now).into();
    Ok(described)
}

/// Describes API calls, reconcile time and memory of the operators.
pub(crate) fn performance(shared: &Shared) -> Value {
    // All of them, so that sums are exact; the ledgers are bounded.
    let Snapshot { operators, reconciles } = shared.operators.snapshot(usize::MAX, |_| true);
    performance::describe(&operators, &reconciles, shared.clock.now())
}

/// Describes the graph of causes of a burst.
pub(crate) async fn causality(shared: &Shared, query: &Query) -> Answer {
    let from = saturating_add(shared.clock.now(), -PERIOD);
    let watches = shared.store.watches();
    let since = rfc3339_micro(from);
    let changes = shared.store.changes(MAX_GRAPH_CHANGES, |change| change.time >= since);
    let Snapshot { operators, reconciles } = shared.operators.snapshot(MAX_GRAPH_RECONCILES, |_| true);
    let reconciles: Vec<Reconcile> = reconciles.into_iter().filter(|reconcile| reconcile.began >= from).collect();
    let refers = |change: &Change| {
        let owner = shared.store.get(&change.owner);
        let owner = owner.map(|owner| reference(&watches, owner.kind, &owner.namespace, &owner.name));
        (self::refers(&watches, change), owner)
    };
    let kinds = kinds_of(&watches);
    let observed = ObservedData {
        kinds: &kinds,
        operators: &operators,
        reconciles: &reconciles,
        changes: &changes,
        refers: &|change| self::refers(&watches, change),
        shown: None,
        now: shared.clock.now(),
    };
    let statuses = shared.verifier.verify(&shared.client, &observed).await;
    let object = query.get("id").and_then(|id| shared.store.get(id));
    let object = object.map(|object| reference(&watches, object.kind, &object.namespace, &object.name));
    let describe = |changes: &[Arc<Change>]| {
        let graph = Graph::new(changes, &reconciles, &operators, &statuses, &refers);
        graph.describe(query.get("burst").map(String::as_str).unwrap_or_default(), object.as_ref())
    };
    let mut described = describe(&changes);
    // The log is read for the objects of the drawn burst only.
    let objects: Vec<ObjectRef> =
        items(&described["burst"]["nodes"]).map(|node| ObjectRef::of(&node["object"])).collect();
    let writers = shared.write_log.read(&shared.client, &kinds, objects, shared.clock.now()).await;
    if !writers.is_empty() {
        described = describe(&writers.attribute(changes, &|change| self::refers(&watches, change)));
    }
    let ids: BTreeSet<(Option<u64>, &str)> =
        items(&described["burst"]["nodes"]).map(|node| (node["operator"].as_u64(), text(&node["id"]))).collect();
    let is_drawn =
        |reconcile: &&Reconcile| ids.contains(&(Some(reconcile.operator as u64), text(&reconcile.value["id"])));
    let drawn: Vec<Reconcile> = reconciles.iter().filter(is_drawn).cloned().collect();
    described["reconciles"] = json!(by_operator_and_id(&operators, &drawn));
    described["ledger"] = (!operators.is_empty()).into();
    described["object"] = json!(object);
    Ok(described)
}

/// Describes the rights of the user in a namespace, and those of operators compared with their use.
pub(crate) async fn permissions(shared: &Shared, query: &Query) -> Answer {
    let namespace = query.get("namespace").map_or("default", String::as_str);
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace},
    });
    let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let (user, error) = match shared.client.request::<Value>(request).await {
        Ok(review) => (review["status"].clone(), String::new()),
        Err(error) => (Value::Null, error_chain(&error)),
    };
    let Snapshot { operators, reconciles } = shared.operators.snapshot(MAX_CHART_RECONCILES, |_| true);
    let watches = shared.store.watches();
    let plural = |watch: &Watch| ((watch.kind.group.clone(), watch.kind.kind.clone()), watch.kind.plural.clone());
    let plurals: BTreeMap<(String, String), String> = watches.iter().map(plural).collect();
    let (roles, bindings, roles_error) = if operators.is_empty() { Default::default() } else { roles(shared).await };
    let mut compared = Vec::new();
    for (index, operator) in operators.iter().enumerate() {
        let uses = permissions::uses(index, operator, &reconciles, &plurals);
        let account = account_of(shared, operator).await;
        let grants = match &account {
            Some((namespace, name)) => permissions::grants((namespace, name), &roles, &bindings),
            None => Vec::new(),
        };
        let mut described = permissions::compare(&grants, &uses);
        described["operator"] = operator.name().into();
        described["account"] = account.map(|(namespace, name)| format!("{namespace}/{name}")).into();
        compared.push(described);
    }
    Ok(json!({
        "namespace": namespace, "user": user, "error": error, "watches": watches, "operators": compared,
        "rolesError": roles_error, "denials": permissions::denials(&reconciles),
    }))
}

/// Reads all roles and bindings, and the reason if that is not possible.
async fn roles(shared: &Shared) -> (Vec<Value>, Vec<Value>, String) {
    let (mut found, mut problem) = ([Vec::new(), Vec::new()], String::new());
    for (at, plural) in [(0, "clusterroles"), (0, "roles"), (1, "clusterrolebindings"), (1, "rolebindings")] {
        match list(shared, &format!("/apis/rbac.authorization.k8s.io/v1/{plural}?limit=5000")).await {
            Ok(list) => found[at].extend(items(&list["items"]).cloned()),
            Err(error) => problem = error_chain(&error),
        }
    }
    let [roles, bindings] = found;
    (roles, bindings, problem)
}

/// Returns namespace and name of the service account of an operator that runs as a pod.
async fn account_of(shared: &Shared, operator: &Operator) -> Option<(String, String)> {
    let pod = text(&operator.state["instance"]);
    let summary = shared.store.find("", "Pod", text(&operator.state["lease"]["namespace"]), pod)?;
    let kind = shared.store.watches().get(summary.kind)?.kind.clone();
    let pod = read(&shared.client, &kind, &summary.namespace, &summary.name).await.ok()?;
    let account = text(&pod["spec"]["serviceAccountName"]);
    (!account.is_empty()).then(|| (summary.namespace.clone(), account.to_owned()))
}

/// Performs a write.
pub(crate) async fn act(shared: &Shared, request: &ActionRequest) -> Answer<()> {
    let object = shared.store.get(&request.id);
    let object = object.ok_or_else(|| (StatusCode::NOT_FOUND, "the object does not exist anymore".to_owned()))?;
    let watches = shared.store.watches();
    let kind = watches.get(object.kind).map(|watch| &watch.kind);
    let kind = kind.ok_or_else(|| (StatusCode::NOT_FOUND, "the kind does not exist anymore".to_owned()))?;
    let now = rfc3339_micro(shared.clock.now());
    let done = request.action.perform(&shared.client, kind, (&object.namespace, &object.name, &object.id), &now).await;
    done.map_err(|error| {
        let code = match &error {
            kube::Error::Api(status) => StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY),
            _ => StatusCode::BAD_GATEWAY,
        };
        (code, error_chain(&error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::time::Timestamp;

    #[test]
    fn reconciles_of_two_operators_with_one_id_are_told_apart() {
        let operator = |name: &str| Operator { state: Arc::new(json!({"operator": name})), ..Operator::default() };
        let reconcile = |operator: usize, outcome: &str| Reconcile {
            operator,
            began: Timestamp::UNIX_EPOCH,
            value: Arc::new(json!({"id": "00000000000000ab", "outcome": outcome})),
        };
        let operators = [operator("shop"), operator("copy")];
        let found = by_operator_and_id(&operators, &[reconcile(0, "success"), reconcile(1, "error")]);
        let shown: Vec<(&str, &str, &str)> = found
            .iter()
            .map(|(key, value)| (&**key, text(&value["operator"]), text(&value["reconcile"]["outcome"])))
            .collect();
        assert_eq!(shown, [("0/00000000000000ab", "shop", "success"), ("1/00000000000000ab", "copy", "error")]);
    }
}
