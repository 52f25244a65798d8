//! What a crash, an order or a delay must not change: the state in which things come to rest.

use super::report::{Done, Ordeal};
use super::requests::Crash;
use super::{Setup, Test};
use crate::Inventory;
use http::Request;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};

/// Fields whose values differ from run to run.
const RANDOM: [&str; 13] = [
    "uid",
    "resourceVersion",
    "managedFields",
    "generation",
    "observedGeneration",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "podIP",
    "podIPs",
    "containerID",
    "volumeName",
    "nodeName",
];

/// What the names of volumes begin with that hold a pod's token.
const TOKENS: &str = "kube-api-access-";

/// The type of Secrets in which Helm keeps revisions, whose payloads hold times, and whose annotations what was drawn.
const REVISIONS: &str = "helm.sh/release.v1";
/// Labels of theirs with times.
const REVISION_TIMES: [&str; 2] = ["createdAt", "modifiedAt"];

/// The last request at which a crash is tried.
const LAST_CRASH: u64 = 1000;

impl Test {
    /// Returns the objects in the namespace of the test by resource and name, without what differs from run to run: UIDs,
    /// versions, generations, times, addresses, drawn volumes and nodes, and what Helm keeps of a revision but for its state. Of objects with `metadata.generateName` it has the number
    /// only, and where others tell of them, `*` for what was drawn; events, leases and endpoints are not in it.
    ///
    /// What the operator changed outside of the namespace is in it as well, by the path of its collection.
    ///
    /// # Panics
    ///
    /// When the API server cannot be asked.
    pub async fn state(&self) -> BTreeMap<String, Value> {
        let mut objects = self.objects().await;
        objects.extend(self.changed_outside().await);
        let (drawn, mut state) = (Drawn::of(&objects), BTreeMap::new());
        for (plural, object) in objects {
            if let Some(prefix) = object.metadata.generate_name {
                let count = state.entry(format!("{plural} {prefix}*")).or_insert_with(|| json!(0));
                *count = (count.as_u64().unwrap_or_default() + 1).into();
                continue;
            }
            let name = object.metadata.name.clone().unwrap_or_default();
            let mut value = serde_json::to_value(object).unwrap_or_default();
            drawn.settle(&mut value);
            state.insert(format!("{plural} {name}"), value);
        }
        state
    }

    /// Returns the cluster-scoped objects and those of other namespaces that the operator changed, as far as they are there.
    async fn changed_outside(&self) -> Vec<(String, DynamicObject)> {
        let mut objects = Vec::new();
        for path in self.installed.log.changes().into_iter().filter(|path| !path.ends_with("/*")) {
            let request = Request::get(&path).body(Vec::new()).unwrap_or_else(|error| panic!("{path}: {error}"));
            match self.client().request::<DynamicObject>(request).await {
                Ok(object) => {
                    let collection = path.rsplit_once('/').map_or(&*path, |(collection, _)| collection);
                    objects.push((collection.to_owned(), object));
                }
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => panic!("cannot get {path}: {error}"),
            }
        }
        objects
    }

    /// Returns the objects in the namespace of the test, each with its resource, but for the [passing](Inventory::PASSING) ones.
    pub(super) async fn objects(&self) -> Vec<(String, DynamicObject)> {
        let discovery = Discovery::new(self.client()).run().await;
        let discovery = discovery.unwrap_or_else(|error| panic!("cannot learn what the API server serves: {error}"));
        let mut objects = Vec::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let listed = capabilities.scope == Scope::Namespaced && capabilities.supports_operation(verbs::LIST);
                if !listed || Inventory::PASSING.contains(&&*resource.plural) {
                    continue;
                }
                let api: Api<DynamicObject> = Api::namespaced_with(self.client(), self.namespace(), &resource);
                let found = api.list(&ListParams::default()).await;
                let found = found.unwrap_or_else(|error| panic!("cannot list {}: {error}", resource.plural));
                objects.extend(found.into_iter().map(|object| (resource.plural.clone(), object)));
            }
        }
        objects
    }
}

/// What was drawn in a run, each with what stands for it: UIDs, and names of which the beginning only was chosen.
struct Drawn(Vec<(String, String)>);

impl Drawn {
    fn of(objects: &[(String, DynamicObject)]) -> Self {
        let mut drawn = Vec::new();
        for metadata in objects.iter().map(|(_, object)| &object.metadata) {
            drawn.extend(metadata.uid.clone().map(|uid| (uid, "a UID".to_owned())));
            let prefix = metadata.generate_name.as_ref();
            drawn.extend(metadata.name.clone().zip(prefix.map(|prefix| format!("{prefix}*"))));
        }
        Self(drawn)
    }

    /// Takes out what differs from run to run.
    fn settle(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let kept = std::mem::take(fields).into_iter().filter(|(name, _)| !RANDOM.contains(&&**name));
                *fields = kept.map(|(name, field)| (self.replace(name), field)).collect();
                if fields.get("type").is_some_and(|kind| kind == REVISIONS) {
                    fields.remove("data");
                    let metadata = &mut fields.entry("metadata").or_insert_with(|| json!({}));
                    metadata["annotations"].take();
                    let labels = metadata["labels"].as_object_mut();
                    labels.into_iter().for_each(|labels| labels.retain(|name, _| !REVISION_TIMES.contains(&&**name)));
                }
                fields.values_mut().for_each(|field| self.settle(field));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.settle(item)),
            Value::String(text) if text.parse::<flyball_core::time::Timestamp>().is_ok() => *text = "a time".to_owned(),
            // The volume of a pod's token has a drawn name.
            Value::String(text) if text.starts_with(TOKENS) => text.truncate(TOKENS.len()),
            Value::String(text) => *text = self.replace(std::mem::take(text)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn replace(&self, text: String) -> String {
        let found = |text: String, (drawn, instead): &(String, String)| match text.contains(drawn) {
            true => text.replace(drawn, instead),
            false => text,
        };
        self.0.iter().fold(text, found)
    }
}

/// Plays a scenario once undisturbed, and then again for each request of the operator: it crashes right before that one is
/// sent, or, if it writes, right after it was carried out and before its answer is seen, and is started again. Each time things must
/// come to rest in the same [state](Test::state). Returns how many crashes were tried.
///
/// The scenario creates and changes what it likes and need not wait for anything. What it returns must be the same each time, too:
/// of an operator that acts on something outside of the cluster, that is how it is out there, once all has
/// [come to rest](Test::assert_converges). The operator is not disturbed after its restart. On a real cluster there is only
/// the first, undisturbed run; of an operator that sends more than 1,000 requests, only those are tried, which is printed, and told to `flyball lint`.
///
/// ```
/// # use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
/// # use flyball_cluster::testing::{Test, explore_crashes};
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use kube::core::ObjectMeta;
/// # struct Copies;
/// # impl Reconcile for Copies {
/// #     type Resource = Secret;
/// #     async fn reconcile(&self, original: &Secret, cx: &Context<Secret>) -> Result<Action> {
/// #         let metadata = ObjectMeta { name: original.metadata.name.clone(), ..ObjectMeta::default() };
/// #         cx.apply(&ConfigMap { metadata, ..ConfigMap::default() }).await?;
/// #         Ok(Action::done())
/// #     }
/// # }
/// # fn main() {
/// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
/// # fn operator() -> Operator { Operator::new("copies").controller(Controller::new(Copies).owns::<ConfigMap>()) }
/// let crashes = explore_crashes(
///     || Test::of(operator),
///     async |test| test.apply("{apiVersion: v1, kind: Secret, metadata: {name: page}}").await,
/// )
/// .await;
/// assert!(crashes > 4);
/// # }) }
/// ```
///
/// # Panics
///
/// When a run comes to rest in another state, or not at all, or returns something else; the message says how to repeat it.
pub async fn explore_crashes<T: Debug + PartialEq>(
    setup: impl Fn() -> Setup,
    scenario: impl AsyncFn(&Test) -> T,
) -> usize {
    let play = async |setup: Setup| {
        let test = setup.start().await;
        let returned = scenario(&test).await;
        test.assert_converges().await;
        (test.state().await, returned, test)
    };
    let (expected, returns, undisturbed) = play(setup()).await;
    if !undisturbed.is_alone() {
        return 0;
    }
    let mut ordeal = Ordeal::new(&undisturbed.installed.operator, Done::Crashes(0));
    drop(undisturbed);
    let mut crashes = 0;
    let mut has_ended = false;
    'all: for request in 1..=LAST_CRASH {
        for (way, crash) in [("crash_before", Crash::Before(request)), ("crash_after", Crash::After(request))] {
            let (state, returned, test) = play(Setup { crash: Some(crash), ..setup() }).await;
            let crashed = test.installed.log.crashed();
            crashes += usize::from(crashed.is_some());
            ordeal.done = Done::Crashes(crashes);
            let mut differences = differences(&expected, &state);
            if returned != returns {
                differences += &format!("\n  the scenario: expected {returns:?}\n    and found {returned:?}");
            }
            assert!(
                differences.is_empty(),
                "a crash changed the outcome; Setup::{way}({request}) repeats it:{differences}"
            );
            match crashed {
                Some(true) => {}
                // A read that was carried out leaves nothing.
                Some(false) => break,
                None => {
                    has_ended = true;
                    break 'all;
                }
            }
        }
    }
    if !has_ended {
        let untried = format!("crashes at requests after number {LAST_CRASH}");
        ordeal.leave_out(untried);
    }
    ordeal.passed();
    crashes
}

/// Says what of one state another does not have, and the other way round.
fn differences(expected: &BTreeMap<String, Value>, found: &BTreeMap<String, Value>) -> String {
    let mut text = String::new();
    for (name, value) in expected {
        if found.get(name) != Some(value) {
            let instead = found.get(name).map_or_else(|| "nothing".to_owned(), Value::to_string);
            // Writing to a string cannot fail.
            let _ = write!(text, "\n  {name}: expected {value}\n    and found {instead}");
        }
    }
    for name in found.keys().filter(|name| !expected.contains_key(*name)) {
        let _ = write!(text, "\n  {name}: expected nothing and found {}", found[name]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_run_to_run_is_no_difference() {
        let mut value = json!({"volumes": [{"name": "kube-api-access-x1y2z"}],
            "metadata": {"uid": "1", "name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"list": [{"lastProbeTime": "2026-01-01T00:00:00.5Z", "clusterIP": "10.0.0.1"}]}});
        Drawn::of(&[]).settle(&mut value);
        let settled = json!({"volumes": [{"name": "kube-api-access-"}], "metadata": {"name": "a", "creationTimestamp": "a time"}, "spec": {"list": [{"lastProbeTime": "a time"}]}});
        assert_eq!(value, settled);
        let pod = json!({"metadata": {"name": "web-x7k2p", "generateName": "web-", "uid": "12-34"}});
        let drawn = Drawn::of(&[("pods".to_owned(), serde_json::from_value(pod).expect("it is an object"))]);
        let mut value = json!({"ready": ["web-x7k2p"], "versions": {"web-x7k2p": "1"}, "snapshot": "web_12-34.db"});
        drawn.settle(&mut value);
        assert_eq!(value, json!({"ready": ["web-*"], "versions": {"web-*": "1"}, "snapshot": "web_a UID.db"}));
        let state = |value: i64| BTreeMap::from([("widgets a".to_owned(), json!(value))]);
        assert_eq!(differences(&state(1), &state(1)), "");
        assert_eq!(differences(&state(1), &state(2)), "\n  widgets a: expected 1\n    and found 2");
        assert_eq!(differences(&BTreeMap::new(), &state(2)), "\n  widgets a: expected nothing and found 2");
    }
}
