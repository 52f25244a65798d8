//! A tenant: a user who may write the custom resources of one namespace, and nothing else. Included by the suites of
//! several crates.
//!
//! [`Suite`] creates the account, and the data that it must not access; measures the latency of its neighbors; and
//! compares the state afterwards. It is independent of operators and payloads.
#![expect(clippy::print_stdout, reason = "a test prints its measurements")]

use flyball_cluster::testing::Test;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Occurs in the Secret of another namespace, and must not occur in this one.
pub(crate) const CANARY: &str = "CANARY-4711";
/// The same in base64, as far as it does not depend on what follows.
const ENCODED_CANARY: &str = "Q0FOQVJZLTQ3MT";

/// Timeout for a neighbor.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// Polling interval of a neighbor.
const INTERVAL: Duration = Duration::from_millis(10);

/// A tenant of a test's cluster.
pub(crate) struct Suite<'t> {
    test: &'t Test,
    client: Client,
    /// All cluster-scoped objects and those of other namespaces, with their resource versions.
    outside: BTreeMap<String, String>,
}

impl<'t> Suite<'t> {
    /// Creates the account that may write objects of these kinds, and another namespace with a Secret.
    pub(crate) async fn begin(test: &'t Test, kinds: &[ApiResource], other: &str) -> Self {
        let admin = test.client();
        let namespace: Namespace = decode(json!({"metadata": {"name": other}}));
        Api::all(admin.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        let crown: Secret = decode(json!({"metadata": {"name": "crown"}, "stringData": {"jewels": CANARY}}));
        Api::namespaced(admin, other).create(&PostParams::default(), &crown).await.unwrap();
        let rules: Vec<PolicyRule> = kinds
            .iter()
            .map(|kind| decode(json!({"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["*"]})))
            .collect();
        let client = test.account("mallory", &rules).await;
        // The API server may reject the operator's writes for a tenant's objects in each reconcile.
        test.expect_errors("");
        let mut suite = Self { test, client, outside: BTreeMap::new() };
        suite.assert_is_limited(kinds, other).await;
        // The cluster creates default objects in each namespace.
        sleep(Duration::from_secs(10)).await;
        suite.outside = suite.look_outside().await;
        suite
    }

    /// Returns objects of a kind in the tenant's namespace, with the tenant's client.
    pub(crate) fn api(&self, kind: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), self.test.namespace(), kind)
    }

    async fn assert_is_limited(&self, kinds: &[ApiResource], other: &str) {
        let all = ListParams::default();
        let (client, own) = (self.client.clone(), self.test.namespace());
        let may = |plural: &str| kinds.iter().any(|kind| kind.group.is_empty() && kind.plural == plural);
        let mut refused = vec![
            Api::<Secret>::namespaced(client.clone(), other).list(&all).await.err(),
            Api::<Namespace>::all(client.clone()).list(&all).await.err(),
        ];
        if !may("secrets") {
            refused.push(Api::<Secret>::namespaced(client.clone(), own).list(&all).await.err());
        }
        if !may("configmaps") {
            refused.push(Api::<ConfigMap>::namespaced(client, own).list(&all).await.err());
        }
        for error in refused {
            assert!(matches!(error, Some(kube::Error::Api(ref status)) if status.code == 403), "{error:?}");
        }
    }

    /// Creates neighbors one after the other, and returns the time until each is reconciled.
    pub(crate) async fn latencies(
        &self,
        kind: &ApiResource,
        objects: impl IntoIterator<Item = Value>,
        is_done: impl AsyncFn(&DynamicObject) -> bool,
    ) -> Latencies {
        let api: Api<DynamicObject> = Api::namespaced_with(self.test.client(), self.test.namespace(), kind);
        let (mut latencies, mut requests) = (Vec::new(), Vec::new());
        for object in objects {
            let object: DynamicObject = decode(object);
            let (start, before) = (Instant::now(), self.test.requests());
            api.create(&PostParams::default(), &object).await.unwrap();
            loop {
                let found = api.get(&object.name_any()).await.unwrap();
                if is_done(&found).await {
                    break;
                }
                let status = &found.data["status"];
                assert!(start.elapsed() < MAX_WAIT, "{} is not served: {status:.1000}", object.name_any());
                sleep(INTERVAL).await;
            }
            latencies.push(start.elapsed());
            requests.push(self.test.requests().since(&before).total);
        }
        Latencies { latencies, requests }
    }

    /// Asserts that nothing panicked, that no command of a payload ran, that no data of another namespace was copied
    /// into this one, and that nothing changed outside of it except objects that the chart, role or operator names.
    pub(crate) async fn assert_harmless(&self, is_expected: impl Fn(&str) -> bool) {
        assert_eq!(self.test.expect_panics(), Vec::<String>::new());
        // Commands of payloads create it in the working directory.
        assert!(!Path::new("PWN").exists(), "a command ran: remove PWN in {:?}", std::env::current_dir());
        let after = self.look_outside().await;
        let all = after.keys().chain(self.outside.keys());
        let changed: Vec<_> =
            all.filter(|place| after.get(*place) != self.outside.get(*place) && !is_expected(place)).collect();
        assert!(changed.is_empty(), "changed outside of the tenant's namespace: {changed:?}");
        let discovery = Discovery::new(self.test.client()).run().await.unwrap();
        for (kind, capabilities) in discovery.groups().flat_map(|group| group.recommended_resources()) {
            if capabilities.scope == Scope::Namespaced && capabilities.supports_operation(verbs::LIST) {
                let api: Api<DynamicObject> = Api::namespaced_with(self.test.client(), self.test.namespace(), &kind);
                for object in api.list(&ListParams::default()).await.unwrap() {
                    let (name, text) = (object.name_any(), serde_json::to_string(&object).unwrap());
                    let is_read = text.contains(CANARY) || text.contains(ENCODED_CANARY);
                    assert!(!is_read, "{} {name} holds what is in another namespace", kind.plural);
                }
            }
        }
    }

    /// Returns the objects outside of the tenant's namespace, with their versions.
    async fn look_outside(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let own = Some(self.test.namespace());
        macro_rules! collect {
            ($($kind:ty),*) => {$(
                for object in Api::<$kind>::all(self.test.client()).list(&ListParams::default()).await.unwrap() {
                    let (namespace, name) = (object.namespace(), object.name_any());
                    if namespace.as_deref() != own && Some(&*name) != own {
                        let place = format!("{} {}/{name}", stringify!($kind), namespace.unwrap_or_default());
                        found.insert(place, object.resource_version().unwrap_or_default());
                    }
                }
            )*};
        }
        collect!(ConfigMap, Secret, ServiceAccount, Namespace, Role, RoleBinding, ClusterRole, ClusterRoleBinding);
        found
    }
}

/// Latency of neighbors: in simulated time, which excludes computation, and in the number of the operator's requests
/// meanwhile, for all objects.
#[derive(Default)]
pub(crate) struct Latencies {
    latencies: Vec<Duration>,
    requests: Vec<u64>,
}

impl Latencies {
    pub(crate) fn p99(&self) -> (Duration, u64) {
        (p99(&self.latencies), p99(&self.requests))
    }

    #[allow(dead_code, reason = "not all suites measure in parts")]
    pub(crate) fn join(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.requests.extend(other.requests);
    }

    /// Prints the latencies before and during an attack.
    pub(crate) fn print(before: &Self, during: &Self, payloads: usize, what: &str) {
        let count = before.latencies.len();
        let [(before, requests), (during, requests_during)] = [before.p99(), during.p99()];
        println!(
            "{what}: p99 of {count} neighbors {before:?} and {requests} requests before, {during:?} and {requests_during} requests during \
             {payloads} payloads, in simulated time"
        );
    }
}

fn p99<T: Copy + Ord>(values: &[T]) -> T {
    let mut values = values.to_vec();
    values.sort_unstable();
    values[(values.len() * 99 / 100).min(values.len() - 1)]
}

fn decode<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
