//! The collector: observations of objects become gauges.
//!
//! A pure state machine: observations and the time are arguments, gauges are returned. `watch` feeds it.
//!
//! Rules:
//!
//! - Gauges of an object that is observed for the first time begin at its own time. Later changes begin when they are
//!   observed.
//! - After a gap, an object that still exists counts without interruption, and one that ended in the gap counts until
//!   its own end. An object that is gone counts until the store was last complete, since nothing shows that it existed
//!   later.
//! - A pod counts for the custom resource at the root of its owners. Until its owners are known, it waits.

mod list;
mod owners;
mod watch;

pub use list::collect_once;
pub use owners::{Owners, is_custom};
pub use watch::{Collection, ReadableOwners, watch};

use crate::meter::{Meter, Subject};
use crate::observation::{Observation, OwnerReference};
use crate::store::{Gauge, OwnerRecord, Series};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// Time in seconds for which an object waits for its owners, once all existing ones were listed.
const MAX_OWNER_WAIT: i64 = 30;

/// Most changes of owner, operator, tenant and volume of an object; further ones have no effect.
const MAX_SERIES_CHANGES: usize = 100;

/// An event of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The object exists in this state.
    Observed(Box<Observation>),
    /// The object was deleted.
    Deleted,
}

/// An object whose gauges are open.
#[derive(Clone, Debug)]
struct Current {
    series: Series,
    values: BTreeMap<Meter, i64>,
    /// Begin of its first gauge.
    since: i64,
    has_ended: bool,
    /// Number of times that its series changed.
    changes: usize,
    /// False until it is observed after a restart.
    is_confirmed: bool,
    /// Claims that it mounts, and its owner as it was observed.
    observation: Option<Box<Observation>>,
}

/// An event that waits for owners.
#[derive(Debug)]
struct Waiting {
    subject: Subject,
    uid: String,
    at: i64,
    event: Event,
}

/// State machine that converts observations of objects to gauges.
#[derive(Debug, Default)]
pub struct Collector {
    /// The owners of objects.
    pub owners: Owners,
    objects: HashMap<(Subject, String), Current>,
    /// Ends of pods whose gauges were closed before a restart.
    ended: HashMap<String, i64>,
    /// Namespace and name of pods and claims, to their UID.
    names: HashMap<(Subject, String, String), String>,
    /// Owners of claims by the pods that mount them.
    mounted: HashMap<(String, String), OwnerRecord>,
    waiting: VecDeque<Waiting>,
    /// Subjects and UIDs of the waiting events.
    waiting_keys: HashSet<(Subject, String)>,
    /// Objects that count although their owners are unknown.
    unresolved: BTreeMap<(Subject, String), Box<Observation>>,
    synced: BTreeSet<Subject>,
    /// Label whose value is the tenant; the namespace without one.
    tenant_label: Option<String>,
    /// Time up to which the store was complete at the start.
    restored_until: Option<i64>,
    gauges: Vec<Gauge>,
}

impl Collector {
    /// Creates a collector. `tenant_label` is the label of pods and claims with the name of their tenant.
    pub fn new(tenant_label: Option<String>) -> Self {
        Self { tenant_label, ..Self::default() }
    }

    /// Restores the open gauges of a store, and the ends of the pods in it.
    pub fn restore(&mut self, open: Vec<Gauge>, ended: HashMap<String, i64>, complete: Option<i64>) {
        for gauge in open {
            let key = (gauge.series.subject, gauge.series.uid.clone());
            let name = (gauge.series.subject, gauge.series.namespace.clone(), gauge.series.name.clone());
            self.names.insert(name, gauge.series.uid.clone());
            let current = self.objects.entry(key).or_insert_with(|| Current {
                series: gauge.series.clone(),
                values: BTreeMap::new(),
                since: gauge.since,
                has_ended: false,
                changes: 0,
                is_confirmed: false,
                observation: None,
            });
            current.since = current.since.min(gauge.since);
            current.values.insert(gauge.meter, gauge.value);
        }
        (self.ended, self.restored_until) = (ended, complete);
    }

    /// Adds an event of an object that was observed at a time.
    pub fn add(&mut self, subject: Subject, uid: &str, at: i64, event: Event) {
        let key = (subject, uid.to_owned());
        if self.waiting_keys.contains(&key) || !self.is_resolved(&event) {
            self.waiting_keys.insert(key);
            self.waiting.push_back(Waiting { subject, uid: uid.to_owned(), at, event });
        } else {
            self.apply(subject, uid, at, &event);
        }
    }

    /// Records that all existing objects of a subject were observed.
    pub fn synced(&mut self, subject: Subject) {
        self.synced.insert(subject);
    }

    /// Returns true if all existing objects were observed.
    pub fn is_synced(&self) -> bool {
        [Subject::Pod, Subject::Claim, Subject::Node].iter().all(|subject| self.synced.contains(subject))
    }

    /// Returns the time up to which all gauges were returned by [`drain`](Self::drain).
    pub fn complete_until(&self, now: i64) -> Option<i64> {
        let begin = |waiting: &Waiting| match &waiting.event {
            Event::Observed(observed) => observed.since.unwrap_or(waiting.at).min(waiting.at),
            Event::Deleted => waiting.at,
        };
        self.is_synced().then(|| self.waiting.iter().map(begin).fold(now, i64::min))
    }

    /// Returns the owners that are needed and unknown.
    pub fn unknown_owners(&self) -> Vec<(String, OwnerReference)> {
        let needed = self.waiting.iter().filter_map(|waiting| match &waiting.event {
            Event::Observed(observed) => {
                Some((observed.namespace.clone(), self.owners.unknown(observed.owner()?)?.clone()))
            }
            Event::Deleted => None,
        });
        let mut unknown: Vec<_> = needed.collect();
        unknown.sort_by(|one, other| one.1.uid.cmp(&other.1.uid));
        unknown.dedup_by(|one, other| one.1.uid == other.1.uid);
        unknown
    }

    /// Returns the gauges that began since the last call. If `owners_are_listed`, objects do not wait for their owners
    /// forever.
    pub fn drain(&mut self, now: i64, owners_are_listed: bool) -> Vec<Gauge> {
        self.observe_again(now);
        let (mut still, mut keys) = (VecDeque::new(), HashSet::new());
        for waiting in std::mem::take(&mut self.waiting) {
            let key = (waiting.subject, waiting.uid.clone());
            let is_resolved = self.is_resolved(&waiting.event);
            let is_due = is_resolved || owners_are_listed && now - waiting.at > MAX_OWNER_WAIT;
            if !is_due || keys.contains(&key) {
                keys.insert(key);
                still.push_back(waiting);
                continue;
            }
            if let (Event::Observed(observed), false) = (&waiting.event, is_resolved) {
                self.unresolved.insert(key, observed.clone());
            }
            self.apply(waiting.subject, &waiting.uid, waiting.at, &waiting.event);
        }
        (self.waiting, self.waiting_keys) = (still, keys);
        self.close_missing();
        std::mem::take(&mut self.gauges)
    }

    /// Attributes the objects again whose owners have become known.
    fn observe_again(&mut self, now: i64) {
        let resolved =
            |observed: &Observation| observed.owner().is_none_or(|owner| self.owners.unknown(owner).is_none());
        let known = self.unresolved.iter().filter(|(_, observed)| resolved(observed));
        let known: Vec<(Subject, String)> = known.map(|(key, _)| key.clone()).collect();
        for key in known {
            if let Some(observed) = self.unresolved.remove(&key) {
                self.observe(key.0, now, &observed);
            }
        }
    }

    /// Returns the current values of all objects that count.
    pub fn current(&self) -> Vec<(&Series, &BTreeMap<Meter, i64>)> {
        let counted = self.objects.values().filter(|current| !current.has_ended);
        let mut counted: Vec<_> = counted.map(|current| (&current.series, &current.values)).collect();
        counted.sort_by(|one, other| (&one.0.namespace, &one.0.name).cmp(&(&other.0.namespace, &other.0.name)));
        counted
    }

    /// Returns the series of an existing object by its name, and the begin of its gauges.
    pub fn find(&self, subject: Subject, namespace: &str, name: &str) -> Option<(&Series, i64)> {
        let uid = self.names.get(&(subject, namespace.to_owned(), name.to_owned()))?;
        self.objects.get(&(subject, uid.clone())).map(|current| (&current.series, current.since))
    }

    fn is_resolved(&self, event: &Event) -> bool {
        match event {
            Event::Observed(observed) => observed.owner().is_none_or(|owner| self.owners.unknown(owner).is_none()),
            Event::Deleted => true,
        }
    }

    fn apply(&mut self, subject: Subject, uid: &str, at: i64, event: &Event) {
        match event {
            Event::Observed(observed) => {
                if subject == Subject::Pod {
                    self.mount(observed, at);
                }
                self.observe(subject, at, observed);
            }
            Event::Deleted => {
                self.unresolved.remove(&(subject, uid.to_owned()));
                let Some(mut current) = self.objects.remove(&(subject, uid.to_owned())) else { return };
                if !current.has_ended {
                    close(&mut self.gauges, &current.series, &mut current.values, at);
                }
                let name = (subject, current.series.namespace, current.series.name);
                if self.names.get(&name).is_some_and(|known| known == uid) {
                    self.names.remove(&name);
                }
            }
        }
    }

    /// Attributes the claims that a pod mounts to the owner of the pod.
    fn mount(&mut self, pod: &Observation, at: i64) {
        let Some(owner) = self.owner_of(pod) else { return };
        for claim in &pod.claims {
            let key = (pod.namespace.clone(), claim.clone());
            if self.mounted.insert(key, owner.clone()).as_ref() == Some(&owner) {
                continue;
            }
            let name = (Subject::Claim, pod.namespace.clone(), claim.clone());
            let known = self.names.get(&name).and_then(|uid| self.objects.get(&(Subject::Claim, uid.clone())));
            if let Some(observed) = known.and_then(|current| current.observation.clone()) {
                self.observe(Subject::Claim, at, &observed);
            }
        }
    }

    fn owner_of(&self, observed: &Observation) -> Option<OwnerRecord> {
        observed.owner().and_then(|owner| self.owners.root(owner, &observed.namespace))
    }

    fn series_of(&self, subject: Subject, observed: &Observation) -> Series {
        let mut series = Series::new(subject, &observed.uid, &observed.namespace, &observed.name);
        series.node.clone_from(&observed.node);
        series.detail.clone_from(&observed.detail);
        series.operator.clone_from(&observed.operator);
        if let Some(tenant) = self.tenant_label.as_ref().and_then(|label| observed.labels.get(label)) {
            series.tenant = crate::observation::short(tenant);
        }
        series.owner = self.owner_of(observed);
        if subject == Subject::Claim && series.owner.is_none() {
            series.owner = self.mounted.get(&(observed.namespace.clone(), observed.name.clone())).cloned();
        }
        series
    }

    fn observe(&mut self, subject: Subject, at: i64, observed: &Observation) {
        let Some(mut since) = observed.since else { return };
        let series = self.series_of(subject, observed);
        self.names.insert((subject, observed.namespace.clone(), observed.name.clone()), observed.uid.clone());
        let key = (subject, observed.uid.clone());
        let Some(current) = self.objects.get_mut(&key) else {
            let ended = self.ended.remove(&observed.uid);
            since = ended.map_or(since, |ended| ended.max(since));
            let mut current = Current {
                series,
                values: BTreeMap::new(),
                since,
                has_ended: false,
                changes: 0,
                is_confirmed: true,
                observation: (subject == Subject::Claim).then(|| Box::new(observed.clone())),
            };
            change(&mut self.gauges, &mut current, observed, since);
            self.objects.insert(key, current);
            return;
        };
        current.is_confirmed = true;
        if current.has_ended {
            return;
        }
        if subject == Subject::Claim {
            current.observation = Some(Box::new(observed.clone()));
        }
        let at = at.max(current.since);
        if current.series != series && current.changes < MAX_SERIES_CHANGES {
            current.changes += 1;
            close(&mut self.gauges, &current.series, &mut current.values, at);
            current.series = series;
        }
        change(&mut self.gauges, current, observed, at);
    }

    /// Closes the gauges of objects that were gone after a restart.
    fn close_missing(&mut self) {
        let Some(until) = self.restored_until else { return };
        if !self.is_synced() {
            return;
        }
        let waiting: BTreeSet<&str> = self.waiting.iter().map(|waiting| waiting.uid.as_str()).collect();
        let missing =
            self.objects.iter().filter(|((_, uid), current)| !current.is_confirmed && !waiting.contains(uid.as_str()));
        let mut missing: Vec<(Subject, String)> = missing.map(|(key, _)| key.clone()).collect();
        missing.sort();
        for key in missing {
            let Some(mut current) = self.objects.remove(&key) else { continue };
            close(&mut self.gauges, &current.series, &mut current.values, until.max(current.since));
        }
        if self.waiting.is_empty() {
            self.restored_until = None;
            self.ended = HashMap::new();
        }
    }
}

/// Begins the gauges that differ from the known ones, and ends all of them at the end of the object.
fn change(gauges: &mut Vec<Gauge>, current: &mut Current, observed: &Observation, at: i64) {
    for (meter, value) in &observed.values {
        if current.values.insert(*meter, *value).unwrap_or(0) != *value {
            gauges.push(Gauge { series: current.series.clone(), meter: *meter, since: at, value: *value });
        }
    }
    if let Some(until) = observed.until {
        close(gauges, &current.series, &mut current.values, until.max(current.since));
        current.has_ended = true;
    }
}

fn close(gauges: &mut Vec<Gauge>, series: &Series, values: &mut BTreeMap<Meter, i64>, at: i64) {
    for (meter, value) in std::mem::take(values) {
        if value != 0 {
            gauges.push(Gauge { series: series.clone(), meter, since: at, value: 0 });
        }
    }
}
