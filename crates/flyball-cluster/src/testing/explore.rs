//! Final state of a run, which crashes, orders and delays must not change.

use super::report::{ChaosRun, InjectedFault};
use super::requests::Crash;
use super::{Setup, Test};
use crate::Inventory;
use flyball_core::time::{SignedDuration, Timestamp};
use http::Request;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};

/// Prefix of the annotations with idempotency keys, see `flyball::Context::idempotency_key`.
const KEY_PREFIX: &str = "key.flyball.dev/";
/// Fields whose values differ from run to run.
const RANDOM: [&str; 15] = [
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
    "hostIP",
    "hostIPs",
    "containerID",
    "volumeName",
    "nodeName",
];

/// Name prefix of token volumes.
const TOKENS: &str = "kube-api-access-";

/// Type of the Secrets with Helm's revisions. Their payloads contain times, their annotations random values.
const REVISIONS: &str = "helm.sh/release.v1";
/// Their labels with times.
const REVISION_TIMES: [&str; 2] = ["createdAt", "modifiedAt"];

/// Unit of times in a state, so that small delays after a crash make no difference. Half of it is not a whole number of
/// minutes, unlike most periods.
const TIME_UNIT: SignedDuration = SignedDuration::from_mins(15);

/// Number of requests at which a crash is tried.
const LAST_CRASH: u64 = 1000;

impl Test {
    /// Returns the objects in the namespace of the test by resource and name, without values that differ between runs:
    /// UIDs, resource versions, generations, addresses, assigned volumes and nodes, and Helm's revisions except for
    /// their state.
    ///
    /// Names that were generated from `metadata.generateName` are `*` after the prefix, wherever they occur. Objects
    /// with the same name then form an array, in the order of their contents. Times are relative to the object's
    /// creation, in quarters of an hour. Events, leases and endpoints are omitted.
    ///
    /// Objects that the operator changed outside of the namespace are included, by the path of their collection.
    ///
    /// # Panics
    ///
    /// If a request to the API server fails.
    pub async fn state(&self) -> BTreeMap<String, Value> {
        let mut objects = self.objects().await;
        objects.extend(self.changed_outside().await);
        state_of(objects)
    }

    /// Returns the existing cluster-scoped objects and those of other namespaces that the operator changed.
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

    /// Returns the objects in the namespace of the test with their resources, except for
    /// [transient](Inventory::TRANSIENT_RESOURCES) ones.
    pub(super) async fn objects(&self) -> Vec<(String, DynamicObject)> {
        let discovery = Discovery::new(self.client()).run().await;
        let discovery = discovery.unwrap_or_else(|error| panic!("cannot discover the served resources: {error}"));
        let mut objects = Vec::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let listed = capabilities.scope == Scope::Namespaced && capabilities.supports_operation(verbs::LIST);
                if !listed || Inventory::TRANSIENT_RESOURCES.contains(&&*resource.plural) {
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

/// Returns the part of the objects, with their resources, that is equal in all runs: the state that [`Test::state`]
/// describes.
pub fn state_of(objects: Vec<(String, DynamicObject)>) -> BTreeMap<String, Value> {
    let drawn = Placeholders::of(&objects);
    let mut alike: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut state = BTreeMap::new();
    for (plural, object) in objects {
        let name = object.metadata.name.clone().unwrap_or_default();
        let created = object.metadata.creation_timestamp.as_ref().map(|created| created.0);
        let mut value = serde_json::to_value(object).unwrap_or_default();
        drawn.remove_run_specific_values(&mut value, created);
        let settled = drawn.replace(name.clone());
        let is_drawn = settled != name;
        let key = format!("{plural} {settled}");
        if is_drawn {
            alike.entry(key).or_default().push(value);
        } else {
            state.insert(key, value);
        }
    }
    for (key, mut values) in alike {
        values.sort_by_cached_key(Value::to_string);
        state.insert(key, values.into());
    }
    state
}

/// Describes a time relative to the creation of its object, with the precision that is equal in all runs.
fn describe_time(time: Timestamp, created: Option<Timestamp>) -> String {
    let Some(created) = created else { return "a time".to_owned() };
    let (unit, passed) = (TIME_UNIT.as_secs(), time.duration_since(created).as_secs());
    match (passed + passed.signum() * unit / 2) / unit * unit / 60 {
        0 => "a time".to_owned(),
        minutes => format!("a time {minutes} min from its creation"),
    }
}

/// Placeholders for random values of a run: UIDs, generated names, and idempotency keys.
struct Placeholders(Vec<(String, String)>);

impl Placeholders {
    fn of(objects: &[(String, DynamicObject)]) -> Self {
        let mut drawn = Vec::new();
        for metadata in objects.iter().map(|(_, object)| &object.metadata) {
            drawn.extend(metadata.uid.clone().map(|uid| (uid, "a UID".to_owned())));
            let prefix = metadata.generate_name.as_ref();
            drawn.extend(metadata.name.clone().zip(prefix.map(|prefix| format!("{prefix}*"))));
            let annotations = metadata.annotations.iter().flatten();
            let keys = annotations.filter(|(name, key)| name.starts_with(KEY_PREFIX) && !key.is_empty());
            drawn.extend(keys.map(|(_, key)| (key.clone(), "a key".to_owned())));
        }
        Self(drawn)
    }

    /// Removes values that differ between runs.
    fn remove_run_specific_values(&self, value: &mut Value, created: Option<Timestamp>) {
        match value {
            Value::Object(fields) => {
                let stable = std::mem::take(fields).into_iter().filter(|(name, _)| !RANDOM.contains(&&**name));
                *fields = stable.map(|(name, field)| (self.replace(name), field)).collect();
                if fields.get("type").is_some_and(|kind| kind == REVISIONS) {
                    fields.remove("data");
                    let metadata = &mut fields.entry("metadata").or_insert_with(|| json!({}));
                    metadata["annotations"].take();
                    let labels = metadata["labels"].as_object_mut();
                    labels.into_iter().for_each(|labels| labels.retain(|name, _| !REVISION_TIMES.contains(&&**name)));
                }
                // Assigned as the other addresses are, but the name of the field is used elsewhere.
                let ingress = fields.get_mut("loadBalancer").and_then(|balancer| balancer["ingress"].as_array_mut());
                for entry in ingress.into_iter().flatten().filter_map(Value::as_object_mut) {
                    entry.remove("ip");
                }
                fields.values_mut().for_each(|field| self.remove_run_specific_values(field, created));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.remove_run_specific_values(item, created)),
            // The volume of a pod's token has a random name.
            Value::String(text) if text.starts_with(TOKENS) => text.truncate(TOKENS.len()),
            Value::String(text) => {
                *text = text.parse().map_or_else(|_| self.replace(text.clone()), |time| describe_time(time, created));
            }
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

/// Crashes the operator at each of its requests, one per run, and asserts that all runs converge to the same
/// [state](Test::state). Returns the number of crashes.
///
/// The first run has no crash. In each further run, the operator crashes before it sends a request, or after the API
/// server processed a write and before the response arrives, and is restarted.
///
/// The scenario creates and changes objects, and need not wait for anything. Its result must be equal in all runs too:
/// for an operator with external effects, the scenario waits until the operator has [converged](Test::assert_converges)
/// and returns the external state. On a real cluster, there is only the first run. At most 1,000 requests are tried; if
/// the operator sends more, this is printed and reported to `flyball lint`.
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
/// If a run converges to another state, does not converge, or returns another result. The message explains how to
/// repeat the run.
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
    let mut chaos_run = ChaosRun::new(&undisturbed.installed.operator, InjectedFault::Crashes(0));
    drop(undisturbed);
    let mut crashes = 0;
    let mut has_ended = false;
    'all: for request in 1..=LAST_CRASH {
        for (way, crash) in [("crash_before", Crash::Before(request)), ("crash_after", Crash::After(request))] {
            let (state, returned, test) = play(Setup { crash: Some(crash), ..setup() }).await;
            let crashed = test.installed.log.crashed();
            crashes += usize::from(crashed.is_some());
            chaos_run.done = InjectedFault::Crashes(crashes);
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
                // Reads have no effect.
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
        chaos_run.record_skipped(untried);
    }
    chaos_run.passed();
    crashes
}

/// Describes the differences between two states.
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
    fn values_that_vary_between_runs_are_ignored() {
        let mut value = json!({"volumes": [{"name": "kube-api-access-x1y2z"}],
            "metadata": {"uid": "1", "name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"list": [{"lastProbeTime": "2026-01-01T00:00:00.5Z", "clusterIP": "10.0.0.1"}]}});
        Placeholders::of(&[]).remove_run_specific_values(&mut value, None);
        let settled = json!({"volumes": [{"name": "kube-api-access-"}], "metadata": {"name": "a", "creationTimestamp": "a time"}, "spec": {"list": [{"lastProbeTime": "a time"}]}});
        assert_eq!(value, settled);
        let pod = json!({"metadata": {"name": "web-x7k2p", "generateName": "web-", "uid": "12-34"}});
        let drawn = Placeholders::of(&[("pods".to_owned(), serde_json::from_value(pod).expect("it is an object"))]);
        let mut value = json!({"ready": ["web-x7k2p"], "versions": {"web-x7k2p": "1"}, "snapshot": "web_12-34.db"});
        drawn.remove_run_specific_values(&mut value, None);
        assert_eq!(value, json!({"ready": ["web-*"], "versions": {"web-*": "1"}, "snapshot": "web_a UID.db"}));
        let state = |value: i64| BTreeMap::from([("widgets a".to_owned(), json!(value))]);
        assert_eq!(differences(&state(1), &state(1)), "");
        assert_eq!(differences(&state(1), &state(2)), "\n  widgets a: expected 1\n    and found 2");
        assert_eq!(differences(&BTreeMap::new(), &state(2)), "\n  widgets a: expected nothing and found 2");
    }
    fn state_of(objects: &[(&str, Value)]) -> BTreeMap<String, Value> {
        let object =
            |(plural, value): &(&str, Value)| ((*plural).to_owned(), serde_json::from_value(value.clone()).unwrap());
        super::state_of(objects.iter().map(object).collect())
    }

    #[test]
    fn objects_with_generated_names_are_compared_by_content() {
        let pod = |name: &str, image: &str| {
            let metadata = json!({"name": name, "generateName": "web-", "uid": format!("uid-{name}")});
            ("pods", json!({"metadata": metadata, "spec": {"image": image, "of": format!("{name}.web")}}))
        };
        let note = |of: &str, text: &str| ("notes", json!({"metadata": {"name": format!("{of}-note")}, "text": text}));
        let run = |pods: [&str; 2], images: [&str; 2]| {
            let own = [pod(pods[0], images[0]), pod(pods[1], images[1])];
            let notes = [note(pods[0], images[0]), note(pods[1], images[1])];
            state_of(&own.into_iter().chain(notes).collect::<Vec<_>>())
        };
        let first = run(["web-x7k2p", "web-b4d8f"], ["a", "b"]);
        assert_eq!(first["pods web-*"][1]["spec"], json!({"image": "b", "of": "web-*.web"}));
        assert_eq!(first["notes web-*-note"].as_array().unwrap().len(), 2);
        assert_eq!(
            first,
            run(["web-2c9xj", "web-zz4f7"], ["b", "a"]),
            "names are random, and the order does not matter"
        );
        for images in [["a", "a"], ["a", "c"]] {
            let other = run(["web-x7k2p", "web-b4d8f"], images);
            let text = differences(&first, &other);
            assert!(text.contains("pods web-*") && text.contains("notes web-*-note"), "{text}");
        }
    }

    #[test]
    fn idempotency_keys_are_random() {
        let machine = |key: &str| {
            let annotations = json!({"key.flyball.dev/create": key});
            let metadata = json!({"name": "m", "annotations": annotations});
            state_of(&[("machines", json!({"metadata": metadata, "status": {"id": format!("vm-{key}")}}))])
        };
        let one = machine("6a8e");
        assert_eq!((&one, &one["machines m"]["status"]["id"]), (&machine("77f1"), &json!("vm-a key")));
    }

    #[test]
    fn times_are_relative_to_the_creation_of_their_object() {
        let expiring = |created: &str, expires: &str| {
            let metadata = json!({"name": "t", "creationTimestamp": created});
            state_of(&[("tokens", json!({"metadata": metadata, "spec": {"expires": expires}}))])
        };
        let hour = expiring("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
        assert_eq!(hour["tokens t"]["spec"]["expires"], "a time 60 min from its creation");
        assert_eq!(
            hour,
            expiring("2027-05-01T10:00:07Z", "2027-05-01T11:00:20Z"),
            "small delays after a crash are ignored"
        );
        for other in ["2026-01-01T02:00:00Z", "2025-12-31T23:00:00Z", "2026-01-01T00:00:01Z", "9999-12-31T23:59:59Z"] {
            assert_ne!(hour, expiring("2026-01-01T00:00:00Z", other), "{other}");
        }
    }
}
