//! The catalog of faults: what each one is, how it is injected, and how the runtime reacts.
//!
//! `docs/explore-faults.md` contains it as a table, see [`table`].

use crate::fault::Fault;
use std::fmt::Write;

/// The way in which a fault is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectionMethod {
    /// By faults of a schedule, by name.
    Schedule(&'static [&'static str]),
    /// By the scenario or the sample: the explorer generates such scenarios.
    Campaign(&'static str),
    /// By a scenario, objects or settings that the user of the explorer declares.
    Declared(&'static str),
    /// Not injected yet.
    Missing(&'static str),
}

/// A fault of the catalog.
#[derive(Clone, Copy, Debug)]
pub struct CatalogEntry {
    /// Stable number: `F03` is 3.
    pub number: u8,
    /// Description of the event.
    pub event: &'static str,
    /// The way in which it is injected.
    pub method: InjectionMethod,
    /// Reaction of the runtime.
    pub reaction: &'static str,
}

use InjectionMethod::{Campaign, Declared, Missing, Schedule};

const fn entry(number: u8, event: &'static str, method: InjectionMethod, reaction: &'static str) -> CatalogEntry {
    CatalogEntry { number, event, method, reaction }
}

/// All faults, in the order of their numbers.
pub const CATALOG: &[CatalogEntry] = &[
    entry(1, "a request fails with 500 or 503", Schedule(&["error"]), "Flyball retries the reconcile with backoff"),
    entry(
        2,
        "a request fails with 429 and `Retry-After`",
        Schedule(&["throttle"]),
        "the client waits as long as `Retry-After` requests, and sends the request again",
    ),
    entry(
        3,
        "the response to a processed request is lost",
        Schedule(&["lose-response"]),
        "Flyball retries the reconcile, which reads the object again",
    ),
    entry(
        4,
        "the connection is reset before a request",
        Schedule(&["reset"]),
        "Flyball retries the reconcile with backoff",
    ),
    entry(
        5,
        "a request or a response is late",
        Schedule(&["delay", "delay-response"]),
        "Flyball reconciles other objects meanwhile",
    ),
    entry(6, "a watch ends", Schedule(&["cut"]), "the watcher resumes the watch at its last revision"),
    entry(
        7,
        "a watch reports 410",
        Schedule(&["gone"]),
        "the watcher lists the kind again, and delivers the differences",
    ),
    entry(8, "a list reports 410", Schedule(&["expire"]), "the watcher lists with its next strategy"),
    entry(9, "a watch is open and silent", Schedule(&["silence"]), "the watcher resumes the watch after a timeout"),
    entry(10, "an event is delivered twice", Schedule(&["duplicate"]), "the cache ignores the second event"),
    entry(11, "intermediate events are not delivered", Schedule(&["coalesce"]), "Flyball reconciles the last state"),
    entry(12, "an event is not valid JSON", Schedule(&["corrupt"]), "the watcher lists the kind again"),
    entry(
        13,
        "bookmarks are missing",
        Schedule(&["drop-bookmarks"]),
        "the watcher resumes the watch after its timeout",
    ),
    entry(
        14,
        "504 \"Too large resource version\"",
        Schedule(&["too-large-version"]),
        "the watcher lists the kind again",
    ),
    entry(
        15,
        "the API group is missing at the start",
        Declared("a scenario that applies the definition"),
        "the controller waits for the kind",
    ),
    entry(
        16,
        "permissions are revoked",
        Schedule(&["revoke"]),
        "Flyball retries the requests until the permissions are granted again",
    ),
    entry(17, "the API server restarts", Schedule(&["restart-server"]), "the watcher reconnects with backoff"),
    entry(18, "a list is very long", Declared("samples with many objects"), "the watcher reads the list in pages"),
    entry(
        19,
        "the own write is not yet in the cache",
        Schedule(&["hold"]),
        "the queue holds the key until the cache contains the write, or a timeout expires",
    ),
    entry(
        20,
        "the events of a child are late",
        Schedule(&["hold"]),
        "the queue holds the key until the cache contains its own writes",
    ),
    entry(
        21,
        "the events of the parent are late",
        Schedule(&["hold"]),
        "Flyball reconciles the object after the event",
    ),
    entry(
        22,
        "events of different kinds arrive in another order",
        Schedule(&["hold"]),
        "Flyball reconciles the last state",
    ),
    entry(
        23,
        "a restart reads a replica with an old state",
        Schedule(&["restart-stale"]),
        "Flyball deletes only with preconditions on UID and version",
    ),
    entry(
        24,
        "a change and its reversal are not observed",
        Schedule(&["coalesce"]),
        "Flyball reconciles the last state",
    ),
    entry(
        25,
        "an object is deleted and created again unobserved",
        Schedule(&["coalesce", "hold"]),
        "Flyball treats it as another object",
    ),
    entry(
        26,
        "a list lacks objects",
        Schedule(&["truncate"]),
        "the watcher lists again, to confirm that many objects are missing",
    ),
    entry(27, "a list is never answered", Schedule(&["slow"]), "the watcher synchronizes other kinds meanwhile"),
    entry(
        28,
        "another writer conflicts",
        Schedule(&["conflict"]),
        "Flyball retries the reconcile, which reads the object again",
    ),
    entry(
        29,
        "another writer of the status conflicts",
        Schedule(&["conflict"]),
        "Flyball retries the reconcile, which reads the object again",
    ),
    entry(
        30,
        "a field belongs to another manager",
        Schedule(&["edit-target"]),
        "server-side apply takes over the fields that the operator declares",
    ),
    entry(
        31,
        "another controller changes each write",
        Schedule(&["annotate"]),
        "server-side apply preserves fields of other managers",
    ),
    entry(
        32,
        "an unconditional update loses a write",
        Schedule(&["conflict", "annotate"]),
        "Flyball writes with server-side apply",
    ),
    entry(33, "conflicts repeat", Schedule(&["conflict"]), "Flyball retries the reconcile with backoff and jitter"),
    entry(34, "a crash before a write", Schedule(&["crash-before"]), "the operator continues after its next start"),
    entry(35, "a crash after a write", Schedule(&["crash-after"]), "the operator continues after its next start"),
    entry(
        36,
        "a crash after an external call",
        Schedule(&["crash-after", "lose-response"]),
        "the operator finds the external object again",
    ),
    entry(
        37,
        "a crash while cleaning up",
        Schedule(&["crash-before", "crash-after"]),
        "the operator finishes the cleanup after its next start",
    ),
    entry(38, "repeated crashes", Schedule(&["crash-loop"]), "the operator repeats no writes that were stored"),
    entry(
        39,
        "SIGTERM during a reconcile",
        Schedule(&["terminate"]),
        "the operator ends the reconcile within the grace period",
    ),
    entry(
        40,
        "a panic in a reconcile",
        Campaign("unusual values of the specification"),
        "Flyball reports the panic as an error of the object",
    ),
    entry(41, "another version of the operator", Missing("one constructor for all starts"), ""),
    entry(42, "the operator does not run for a week", Schedule(&["absent"]), "Flyball reconciles each object once"),
    entry(
        43,
        "renewals of the lease fail",
        Schedule(&["block-lease"]),
        "the operator stops writing at the deadline of the lease, and exits",
    ),
    entry(
        44,
        "a reconcile lasts longer than the lease",
        Schedule(&["delay", "block-lease"]),
        "Flyball cancels the request of the reconcile",
    ),
    entry(45, "two processes have the same identity", Declared("`replicas` and an operator with a fixed instance"), ""),
    entry(46, "the lease is deleted", Schedule(&["delete-lease"]), "the operator acquires the lease again"),
    entry(
        47,
        "a shutdown while work goes on",
        Schedule(&["terminate"]),
        "the operator finishes its work, and then releases the lease",
    ),
    entry(
        48,
        "the clock of a machine jumps",
        Schedule(&["skew"]),
        "Flyball uses a monotonic clock for leases and backoff",
    ),
    entry(49, "clocks of machines differ", Schedule(&["skew"]), "Flyball does not compare times of other machines"),
    entry(50, "credentials expire", Schedule(&["absent"]), "the operator rotates the certificates of its webhooks"),
    entry(
        51,
        "timers are far in the future, zero or negative",
        Campaign("minimum and negative numbers"),
        "Flyball clamps the durations",
    ),
    entry(
        52,
        "the API server is unreachable",
        Schedule(&["partition"]),
        "the client sends one probe request for all watches",
    ),
    entry(
        53,
        "requests succeed, watches deliver nothing",
        Schedule(&["partition-watches"]),
        "the queue holds keys until the cache contains their writes, or a timeout expires",
    ),
    entry(54, "a list is slow", Schedule(&["slow"]), "the watcher requires a minimum rate, and has no fixed timeout"),
    entry(55, "webhooks are unreachable", Schedule(&["silence-webhooks"]), "Flyball retries the writes with backoff"),
    entry(
        56,
        "the resource is deleted while it is created",
        Schedule(&["delete-primary"]),
        "the operator cleans up the resource",
    ),
    entry(
        57,
        "a finalizer is added after the deletion",
        Schedule(&["delete-primary"]),
        "Flyball ends the reconcile after the rejection",
    ),
    entry(58, "foreign finalizers", Schedule(&["stick"]), "Flyball removes only its own finalizer"),
    entry(
        59,
        "the object to clean up is gone",
        Schedule(&["delete-target"]),
        "Flyball counts the deletion as successful",
    ),
    entry(
        60,
        "cleaning up fails again and again",
        Schedule(&["fail", "deny"]),
        "Flyball retries with backoff, and publishes an event",
    ),
    entry(
        61,
        "the namespace is being deleted",
        Schedule(&["delete-namespace"]),
        "Flyball creates nothing, and the operator finishes its cleanups",
    ),
    entry(62, "deletion in the foreground, or with orphans", Schedule(&["orphan"]), "Flyball adopts the children"),
    entry(
        63,
        "work after the last finalizer",
        Schedule(&["delay-response"]),
        "Flyball removes the finalizer after the reconcile has ended",
    ),
    entry(64, "the operator is uninstalled first", Missing("the operator always returns"), ""),
    entry(65, "owner references across namespaces", Missing("no fault writes them"), ""),
    entry(
        66,
        "the own webhook is down",
        Schedule(&["silence-webhooks", "reset"]),
        "the webhook excludes writes of its own operator",
    ),
    entry(67, "the webhook is late", Schedule(&["delay"]), "the API server ends the call after its timeout"),
    entry(68, "the CA of a webhook is old", Missing("webhooks are called in process, without TLS"), ""),
    entry(
        69,
        "a mutating webhook is called twice",
        Declared("a sample of a kind with a defaulter"),
        "the second call changes nothing",
    ),
    entry(
        70,
        "another admission rejects a write",
        Schedule(&["deny"]),
        "Flyball retries with backoff, and publishes an event",
    ),
    entry(
        71,
        "another admission adds fields",
        Schedule(&["annotate"]),
        "server-side apply preserves fields of other managers",
    ),
    entry(72, "dry run", Missing("no request is repeated as a dry run"), ""),
    entry(
        73,
        "extreme values",
        Campaign("minimum, maximum, long and unusual texts"),
        "Flyball reports a panic as an error of the object",
    ),
    entry(
        74,
        "an optional field is missing",
        Campaign("each optional property absent"),
        "Flyball reports a panic as an error of the object",
    ),
    entry(
        75,
        "a field is removed again",
        Campaign("each optional property set and unset"),
        "server-side apply removes the field",
    ),
    entry(76, "the specification changes in the middle", Schedule(&["flip"]), "Flyball reconciles the last state"),
    entry(
        77,
        "an invalid specification, then a valid one",
        Campaign("each optional property with unusual values"),
        "Flyball reconciles the next change",
    ),
    entry(
        78,
        "many resources at once",
        Declared("samples with many objects"),
        "the queue shares the workers among namespaces",
    ),
    entry(
        79,
        "two resources claim the same name",
        Declared("a sample with two resources"),
        "the operator reports a conflict for the second resource",
    ),
    entry(
        80,
        "a resource is paused",
        Declared("a scenario that annotates it"),
        "Flyball reconciles it after the pause",
    ),
    entry(81, "a stored object does not fit its type", Missing("definitions are not tightened"), ""),
    entry(
        82,
        "a conversion webhook fails",
        Schedule(&["reset", "silence-webhooks"]),
        "the watcher lists the kind again",
    ),
    entry(
        83,
        "a conversion loses a field",
        Declared("a scenario that applies both versions"),
        "depends on the operator",
    ),
    entry(
        84,
        "a definition is deleted and created again",
        Schedule(&["recreate-definition"]),
        "Flyball reconciles the new objects",
    ),
    entry(
        85,
        "fields of a newer version",
        Schedule(&["annotate"]),
        "Flyball sends patches, which preserve unknown fields",
    ),
    entry(86, "a child is edited", Schedule(&["edit-target"]), "the operator restores the child"),
    entry(87, "a child is deleted", Schedule(&["delete-target"]), "the operator creates the child again"),
    entry(
        88,
        "the owner reference of a child is removed",
        Schedule(&["orphan"]),
        "the operator sets the owner reference again",
    ),
    entry(89, "the deletion of a child does not end", Schedule(&["stick"]), "the reconcile waits for the deletion"),
    entry(
        90,
        "a child never becomes ready",
        Declared("annotations for simulated containers"),
        "depends on the operator",
    ),
    entry(91, "an object of that name exists", Schedule(&["preexist"]), "Flyball does not take over the object"),
    entry(92, "an external call fails", Schedule(&["fail"]), "Flyball retries the reconcile with backoff"),
    entry(93, "an external object is not visible yet", Schedule(&["absence"]), "depends on the operator"),
    entry(94, "an external task is late", Schedule(&["delay-response"]), "depends on the operator"),
    entry(95, "the session of an external system ends", Schedule(&["fail"]), "depends on the operator"),
    entry(96, "an external object changes", Declared("the simulator"), "depends on the operator"),
    entry(97, "members of an external cluster are lost", Declared("the simulator"), "depends on the operator"),
    entry(98, "large objects", Declared("samples with large objects"), "caches keep objects as bytes"),
    entry(99, "one slow key", Schedule(&["delay"]), "the queue gives a key to one worker at a time"),
    entry(
        100,
        "the client is throttled",
        Schedule(&["throttle"]),
        "leader election has its own requests, which are not throttled",
    ),
    entry(101, "many events", Declared("samples with many objects"), "Flyball merges events into series"),
    entry(102, "many watches", Declared("an operator with many kinds"), "Flyball opens one watch for each kind"),
];

impl CatalogEntry {
    /// Returns the number in texts, such as `F03`.
    pub fn label(&self) -> String {
        format!("F{:02}", self.number)
    }

    /// Returns the faults of schedules that inject it.
    pub fn faults(&self) -> Vec<Fault> {
        let Schedule(names) = self.method else { return Vec::new() };
        Fault::all().into_iter().filter(|fault| names.contains(&fault.name())).collect()
    }
}

/// Returns the catalog as a table in Markdown.
#[must_use]
pub fn table() -> String {
    let mut text = String::from("| Fault | Event | Injected by | Reaction of the runtime |\n|---|---|---|---|\n");
    for entry in CATALOG {
        let method = match entry.method {
            Schedule(names) => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
            Campaign(what) => format!("campaign: {what}"),
            Declared(what) => format!("declaration: {what}"),
            Missing(why) => format!("not injected: {why}"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} | {} | {method} | {} |", entry.label(), entry.event, entry.reaction);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalog_is_complete_and_names_known_faults() {
        let numbers: Vec<u8> = CATALOG.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, (1..=102).collect::<Vec<_>>());
        for entry in CATALOG {
            if let Schedule(names) = entry.method {
                assert_eq!(entry.faults().len(), names.len(), "{}", entry.label());
            }
        }
        for fault in Fault::all() {
            let is_listed = CATALOG.iter().any(|entry| entry.faults().contains(&fault));
            assert!(is_listed || fault.name() == "restart", "{fault}");
        }
    }

    #[test]
    fn document_contains_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explore-faults.md");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if std::env::var_os("FLYBALL_BLESS").is_some() {
            let (start, end) = ("<!-- faults -->\n", "<!-- end of faults -->");
            let (head, rest) = text.split_once(start).expect("the document has a place for the table");
            let (_, tail) = rest.split_once(end).expect("the place ends");
            std::fs::write(path, format!("{head}{start}{}{end}{tail}", table())).unwrap();
            return;
        }
        assert!(text.contains(&table()), "FLYBALL_BLESS=1 writes the table to docs/explore-faults.md");
    }
}
