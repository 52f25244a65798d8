//! Counts of the requests of an operator.

use super::foreign::{Allowlist, ForeignChanges, WriteTarget};
use flyball::{ObjectKey, RunError};
use http::{Method, Uri};
use k8s_openapi::api::rbac::v1::PolicyRule;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum number of recorded writes.
const MAX_RECORDED_WRITES: usize = 20;
/// Maximum number of recorded panics. One fails the test.
const MAX_PANICS: usize = 20;

/// A verb on a resource, as in roles.
///
/// See <https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb>.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The API group, empty for the core group.
    pub group: String,
    /// The resource in the plural, with its subresource, such as `widgets/status`.
    pub resource: String,
    /// The verb, such as `patch`.
    pub verb: String,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{} {}{dot}{}", self.verb, self.resource, self.group)
    }
}

impl Permission {
    /// Returns the permission that a request needs; `None` if it concerns no object.
    fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let query = uri.query().unwrap_or_default();
        let mut path = uri.path().split('/').filter(|part| !part.is_empty()).peekable();
        let group = match path.next()? {
            "api" => "",
            "apis" => path.next()?,
            _ => return None,
        };
        path.next()?;
        let mut resource = path.next()?;
        let (mut name, mut subresource) = (path.next(), path.next());
        // A path below a namespace is namespaced, unless it is a subresource of the namespace itself.
        if let ("namespaces", Some(inner)) = (resource, subresource)
            && !["status", "finalize"].contains(&inner)
        {
            (resource, name, subresource) = (inner, path.next(), path.next());
        }
        let watches = query.split('&').any(|option| ["watch=true", "watch=1"].contains(&option));
        let verb = match (method.as_str(), name) {
            ("GET", None) if watches => "watch",
            ("GET", None) => "list",
            ("GET", Some(_)) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", Some(_)) => "delete",
            ("DELETE", None) => "deletecollection",
            _ => return None,
        };
        let resource = subresource.map_or_else(|| resource.to_owned(), |part| format!("{resource}/{part}"));
        Some(Self { group: group.to_owned(), resource, verb: verb.to_owned() })
    }

    /// Returns the single permissions of rules. Wildcards are omitted, and `update` of `finalizers` as well, which no
    /// request uses: the admission plugin OwnerReferencesPermissionEnforcement checks it.
    pub(super) fn granted(rules: &[PolicyRule]) -> Vec<Self> {
        let mut granted = Vec::new();
        for rule in rules {
            for group in rule.api_groups.iter().flatten().filter(|group| *group != "*") {
                for resource in rule.resources.iter().flatten().filter(|resource| *resource != "*") {
                    for verb in rule.verbs.iter().filter(|verb| *verb != "*") {
                        if verb != "update" || !resource.ends_with("/finalizers") {
                            granted.push(Self { group: group.clone(), resource: resource.clone(), verb: verb.clone() });
                        }
                    }
                }
            }
        }
        granted.sort();
        granted.dedup();
        granted
    }

    /// Returns true if it is a write, other than of a leader election lease.
    fn writes(&self) -> bool {
        !["get", "list", "watch"].contains(&&*self.verb) && self.group != "coordination.k8s.io"
    }
}

/// Requests of an operator, counted by permission.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// Number of requests by permission.
    pub counts: BTreeMap<Permission, u64>,
    /// Number of requests.
    pub total: u64,
    /// Number of writes.
    pub writes: u64,
}

impl Requests {
    /// Returns the requests since an earlier count.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |permission: &Permission| earlier.counts.get(permission).copied().unwrap_or_default();
        let new = |(permission, count): (&Permission, &u64)| {
            let more = count - before(permission);
            (more > 0).then(|| (permission.clone(), more))
        };
        Self {
            counts: self.counts.iter().filter_map(new).collect(),
            total: self.total - earlier.total,
            writes: self.writes - earlier.writes,
        }
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> =
            self.counts.iter().map(|(permission, count)| format!("{count} × {permission}")).collect();
        f.write_str(&counts.join(", "))
    }
}

/// A request that the API server denied to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Required permission.
    pub permission: Permission,
    /// Message of the API server.
    pub message: String,
}

/// An error of a reconcile that was caused by a [`Denial`], with the place of the request in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DenialSite {
    controller: String,
    object: ObjectKey,
    message: String,
    at: Option<String>,
}

/// A single crash of the operator at the request of this number, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    /// The request is not sent.
    Before(u64),
    /// The request is processed, and its response is lost.
    After(u64),
}

/// Counter of requests, shared by clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Log(Arc<SharedState>);

#[derive(Debug, Default)]
struct SharedState {
    state: Mutex<State>,
    /// Notified when the operator should crash.
    crash: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Number of requests sent, including non-resource requests.
    sent: u64,
    crash: Option<Crash>,
    /// Set after a crash: true if it was at a write.
    crashed: Option<bool>,
    /// True if the operator crashed and has not started again.
    is_restarting: bool,
    /// The reason why the operator ended.
    failure: Option<String>,
    requests: Requests,
    /// Objects created by PATCH, which needs the verb `create` in addition.
    created: BTreeSet<Permission>,
    denials: BTreeMap<Permission, String>,
    places: BTreeMap<String, DenialSite>,
    last_writes: VecDeque<String>,
    /// Panics, each with its location.
    panics: Vec<String>,
    /// The objects whose reconciles fail, by controller and object.
    failing: BTreeMap<(String, ObjectKey), RepeatedFailure>,
    /// Parts of errors that are expected to repeat.
    expected: Vec<String>,
    /// Set if transient errors are injected.
    has_faults: bool,
    /// Time of the last write by the test or the operator.
    written: Option<Instant>,
    /// Changes outside of the namespace of the test, if checked.
    foreign: Option<ForeignChanges>,
}

/// An object whose reconciles fail, without other writes since the first failure.
#[derive(Debug)]
struct RepeatedFailure {
    since: Instant,
    last: Instant,
    failures: u64,
    /// Set if the last reconcile succeeded.
    is_settled: bool,
    /// Number of failures after a success.
    relapses: u64,
    error: String,
}

impl RepeatedFailure {
    fn new() -> Self {
        let now = Instant::now();
        Self { since: now, last: now, failures: 0, is_settled: false, relapses: 0, error: String::new() }
    }

    /// Returns true if the object has failed repeatedly for this period. A success ends it only if no other failure
    /// follows within two of these periods.
    fn repeats(&self, period: Duration) -> bool {
        let is_over = self.is_settled && (self.relapses == 0 || self.last.elapsed() > 2 * period);
        self.failures > 1 && self.since.elapsed() >= period && !is_over
    }
}

impl Log {
    /// Starts to watch for writes outside of this namespace.
    pub(super) fn watch_foreign_changes(&self, namespace: &str, allowed: Allowlist) {
        self.0.state.lock().foreign = Some(ForeignChanges::new(namespace, allowed));
    }

    /// Records a write of the test.
    pub(super) fn record_test_write(&self, place: &WriteTarget, response: &Value) {
        let mut state = self.0.state.lock();
        state.written = Some(Instant::now());
        state.foreign.iter_mut().for_each(|foreign| foreign.record_test_write(place, response));
    }

    /// Records a write of the operator.
    pub(super) fn changed(&self, method: &Method, place: &WriteTarget, response: &Value) {
        self.0.state.lock().foreign.iter_mut().for_each(|foreign| foreign.changed(method, place, response));
    }

    /// Describes unexpected changes of the operator outside of the namespace.
    pub(super) fn unexpected_changes(&self) -> Vec<String> {
        self.0.state.lock().foreign.iter().flat_map(ForeignChanges::unexpected).collect()
    }

    /// Returns the paths of the objects that the operator changed outside of the namespace.
    pub(super) fn changes(&self) -> BTreeSet<String> {
        self.0.state.lock().foreign.iter().flat_map(ForeignChanges::all).collect()
    }

    /// Records a start of the operator, which retries all objects.
    pub(super) fn started(&self) {
        let mut state = self.0.state.lock();
        state.failing.clear();
        state.is_restarting = false;
    }

    pub(super) fn panicked(&self, place: &str, message: &str) {
        let mut state = self.0.state.lock();
        if state.panics.len() < MAX_PANICS {
            state.panics.push(format!("{place}: {message}"));
        }
    }

    pub(super) fn panics(&self) -> Vec<String> {
        self.0.state.lock().panics.clone()
    }

    /// Clears the panics, and returns them.
    pub(super) fn take_panics(&self) -> Vec<String> {
        std::mem::take(&mut self.0.state.lock().panics)
    }

    /// Expects errors that contain this text to repeat.
    pub(super) fn expect_errors(&self, part: &str) {
        self.0.state.lock().expected.push(part.to_owned());
    }

    /// Expects failures to recur after a success, as injected ones do.
    pub(super) fn expect_faults(&self) {
        self.0.state.lock().has_faults = true;
    }

    /// Records a success of an object.
    pub(super) fn record_success(&self, controller: &str, object: &ObjectKey) {
        let mut state = self.0.state.lock();
        let (key, has_faults) = ((controller.to_owned(), object.clone()), state.has_faults);
        match state.failing.get_mut(&key) {
            Some(failure) if !has_faults => failure.is_settled = true,
            _ => _ = state.failing.remove(&key),
        }
    }

    /// Returns true if there was no write for this period.
    pub(super) fn is_idle(&self, period: Duration) -> bool {
        self.0.state.lock().written.is_none_or(|written| written.elapsed() >= period)
    }

    /// Describes the objects that have failed repeatedly for this period.
    pub(super) fn failing_for(&self, period: Duration) -> Vec<String> {
        let state = self.0.state.lock();
        let fails = |failing: &RepeatedFailure| {
            let is_expected = state.expected.iter().any(|part| failing.error.contains(part));
            failing.repeats(period) && !is_expected
        };
        let failing = state.failing.iter().filter(|(_, failing)| fails(failing));
        failing
            .map(|((controller, object), RepeatedFailure { failures, error, .. })| {
                format!("controller {controller}, object {object}, {failures} times: {error}")
            })
            .collect()
    }

    /// Schedules a crash of the operator.
    pub(super) fn plan(&self, crash: Option<Crash>) {
        self.0.state.lock().crash = crash;
    }

    /// Counts a request before it is sent, and returns whether the operator crashes at it.
    pub(super) fn sent(&self, method: &Method) -> Option<Crash> {
        let mut state = self.0.state.lock();
        state.sent += 1;
        let sent = state.sent;
        let crash = state.crash.filter(|crash| [Crash::Before(sent), Crash::After(sent)].contains(crash));
        if crash.is_some() {
            state.is_restarting = true;
            state.crashed = Some(method != Method::GET);
        }
        crash
    }

    /// Crashes the operator, and never returns.
    pub(super) async fn crash(&self) -> ! {
        self.0.crash.notify_one();
        std::future::pending().await
    }

    /// Waits for a crash.
    pub(super) async fn crashes(&self) {
        self.0.crash.notified().await;
    }

    /// Records the exit of the operator, with the reason if it was unexpected.
    pub(super) fn ended(&self, error: Option<&RunError>) {
        self.0.state.lock().failure = error.map(|error| {
            let source = std::error::Error::source(error).map(|source| format!(": {source}"));
            format!("{error}{}", source.unwrap_or_default())
        });
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.0.state.lock().failure.clone()
    }

    pub(super) fn is_restarting(&self) -> bool {
        self.0.state.lock().is_restarting
    }

    pub(super) fn crashed(&self) -> Option<bool> {
        self.0.state.lock().crashed
    }

    /// Counts a request.
    pub(super) fn count(&self, method: &Method, uri: &Uri) -> Option<Permission> {
        let permission = Permission::of(method, uri)?;
        let mut state = self.0.state.lock();
        state.requests.total += 1;
        if permission.writes() {
            state.requests.writes += 1;
            state.written = Some(Instant::now());
            state.last_writes.truncate(MAX_RECORDED_WRITES - 1);
            state.last_writes.push_front(format!("{method} {uri}"));
        }
        *state.requests.counts.entry(permission.clone()).or_default() += 1;
        Some(permission)
    }

    /// Records that a PATCH created an object.
    pub(super) fn created(&self, permission: &Permission) {
        self.0.state.lock().created.insert(Permission { verb: "create".to_owned(), ..permission.clone() });
    }

    /// Returns the permissions that the requests needed.
    pub(super) fn used(&self) -> BTreeSet<Permission> {
        let state = self.0.state.lock();
        state.requests.counts.keys().chain(&state.created).cloned().collect()
    }

    pub(super) fn denied(&self, permission: Permission, message: &str) {
        self.0.state.lock().denials.entry(permission).or_insert_with(|| message.to_owned());
    }

    /// Records an error of a reconcile, which may be due to a denial.
    pub(super) fn failed(&self, controller: &str, object: &ObjectKey, error: &flyball::Error) {
        // An error that waits for a change may repeat after any change.
        if error.is_retried() {
            let mut state = self.0.state.lock();
            let written = state.written;
            let failing =
                state.failing.entry((controller.to_owned(), object.clone())).or_insert_with(RepeatedFailure::new);
            if failing.is_settled {
                // There was another write in between: earlier failures do not count.
                if written.is_some_and(|written| written >= failing.last) {
                    *failing = RepeatedFailure::new();
                } else {
                    failing.relapses += 1;
                }
            }
            failing.is_settled = false;
            failing.last = Instant::now();
            failing.failures += 1;
            failing.error = error.to_string();
        }
        if error.status().is_some_and(|status| status.is_forbidden()) {
            let (message, at) = (error.to_string(), error.call_site());
            let place =
                DenialSite { controller: controller.to_owned(), object: object.clone(), message: message.clone(), at };
            self.0.state.lock().places.entry(message).or_insert(place);
        }
    }

    pub(super) fn requests(&self) -> Requests {
        self.0.state.lock().requests.clone()
    }

    /// Returns the last writes, the latest first.
    pub(super) fn last_writes(&self) -> Vec<String> {
        self.0.state.lock().last_writes.iter().cloned().collect()
    }

    /// Clears the denials, and describes them.
    pub(super) fn take_denials(&self) -> Vec<String> {
        let described = self.describe_denials();
        let mut state = self.0.state.lock();
        // The errors caused by them are removed too.
        let denials = std::mem::take(&mut state.denials);
        state.expected.extend(denials.into_values().filter(|message| !message.is_empty()));
        drop(state);
        described
    }

    pub(super) fn denials(&self) -> Vec<Denial> {
        let denial = |(permission, message): (&Permission, &String)| Denial {
            permission: permission.clone(),
            message: message.clone(),
        };
        self.0.state.lock().denials.iter().map(denial).collect()
    }

    /// Describes each denial: permission, controller and place in the source.
    pub(super) fn describe_denials(&self) -> Vec<String> {
        let state = self.0.state.lock();
        let describe = |(permission, message): (&Permission, &String)| {
            let place = state.places.values().find(|place| place.message.contains(message));
            let place = place.map(|DenialSite { controller, object, at, .. }| {
                let at = at.as_ref().map(|at| format!(", at {at}")).unwrap_or_default();
                format!(" (controller {controller}, object {object}{at})")
            });
            format!("{permission}{}", place.unwrap_or_default())
        };
        state.denials.iter().map(describe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_map_to_rbac_verbs() {
        for (method, uri, expected) in [
            ("GET", "/api/v1/pods", "list pods"),
            ("GET", "/apis/apps/v1/namespaces/a/deployments?watch=true", "watch deployments.apps"),
            ("GET", "/apis/apps/v1/namespaces/a/deployments/b", "get deployments.apps"),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/b/status", "patch deployments/status.apps"),
            ("GET", "/api/v1/namespaces/a", "get namespaces"),
            ("PUT", "/api/v1/namespaces/a/status", "update namespaces/status"),
            ("GET", "/api/v1/namespaces", "list namespaces"),
            ("POST", "/api/v1/namespaces/a/pods/b/eviction", "create pods/eviction"),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection pods"),
        ] {
            let permission = Permission::of(&method.parse().unwrap(), &uri.parse().unwrap());
            assert_eq!(permission.unwrap().to_string(), expected, "{method} {uri}");
        }
        assert_eq!(Permission::of(&Method::GET, &"/readyz".parse().unwrap()), None);
        assert_eq!(Permission::of(&Method::GET, &"/apis/apps/v1".parse().unwrap()), None);
    }
}
