//! The catalogue of faults: what each one is, how it is injected, and how the runtime reacts.
//!
//! `docs/explore.md` contains it as a table, see [`table`].

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
    /// Not yet.
    Missing(&'static str),
}

/// A fault of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct CatalogueEntry {
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

const fn entry(number: u8, event: &'static str, method: InjectionMethod, reaction: &'static str) -> CatalogueEntry {
    CatalogueEntry { number, event, method, reaction }
}

/// All faults, in the order of their numbers.
pub const CATALOGUE: &[CatalogueEntry] = &[
    entry(1, "a request fails with 500 or 503", Schedule(&["error"]), "the reconcile is retried with backoff"),
    entry(2, "a request fails with 429 and `Retry-After`", Schedule(&["throttle"]), "the client waits and repeats it"),
    entry(
        3,
        "the response to a processed request is lost",
        Schedule(&["lose-response"]),
        "the reconcile is retried, and reads again",
    ),
    entry(4, "the connection is reset before a request", Schedule(&["reset"]), "the reconcile is retried"),
    entry(5, "a request or a response is late", Schedule(&["delay", "delay-response"]), "other objects go on"),
    entry(6, "a watch ends", Schedule(&["cut"]), "it is resumed from its last revision"),
    entry(7, "a watch reports 410", Schedule(&["gone"]), "the kind is listed again, and differences are delivered"),
    entry(8, "a list reports 410", Schedule(&["expire"]), "another strategy of listing is tried"),
    entry(9, "a watch is open and silent", Schedule(&["silence"]), "it is resumed after a timeout"),
    entry(10, "an event is delivered twice", Schedule(&["duplicate"]), "the second one has no effect"),
    entry(11, "intermediate events are not delivered", Schedule(&["coalesce"]), "the last state is reconciled"),
    entry(12, "an event is no valid JSON", Schedule(&["corrupt"]), "the kind is listed again"),
    entry(13, "bookmarks are missing", Schedule(&["drop-bookmarks"]), "the watch is resumed after its timeout"),
    entry(14, "504 \"Too large resource version\"", Schedule(&["too-large-version"]), "the kind is listed again"),
    entry(
        15,
        "the API group is missing at the start",
        Declared("a scenario that applies the definition"),
        "the controller waits for it",
    ),
    entry(16, "permissions are revoked", Schedule(&["revoke"]), "requests are retried until they are granted"),
    entry(17, "the API server restarts", Schedule(&["restart-server"]), "watches reconnect with backoff"),
    entry(18, "a list is very long", Declared("samples with many objects"), "pages are read"),
    entry(19, "the own write is not yet in the cache", Schedule(&["hold"]), "the key waits for it, with a bound"),
    entry(20, "the events of a child are late", Schedule(&["hold"]), "the key waits for its own writes"),
    entry(21, "the events of the parent are late", Schedule(&["hold"]), "the reconcile follows the event"),
    entry(22, "events of different kinds arrive in another order", Schedule(&["hold"]), "the last state is reconciled"),
    entry(
        23,
        "a restart reads a replica with an old state",
        Schedule(&["restart-stale"]),
        "deletions have preconditions",
    ),
    entry(24, "a change and its reversal are not observed", Schedule(&["coalesce"]), "the last state is reconciled"),
    entry(
        25,
        "an object is deleted and created again unobserved",
        Schedule(&["coalesce", "hold"]),
        "it counts as another object",
    ),
    entry(26, "a list lacks objects", Schedule(&["truncate"]), "a second list has to confirm many missing objects"),
    entry(27, "a list is never answered", Schedule(&["slow"]), "other kinds are synchronized"),
    entry(28, "another writer conflicts", Schedule(&["conflict"]), "the reconcile reads again"),
    entry(29, "another writer of the status conflicts", Schedule(&["conflict"]), "the reconcile reads again"),
    entry(
        30,
        "a field belongs to another manager",
        Schedule(&["edit-target"]),
        "fields that are declared are taken back",
    ),
    entry(31, "another controller changes each write", Schedule(&["annotate"]), "foreign fields remain"),
    entry(32, "an unconditional update loses a write", Schedule(&["conflict", "annotate"]), "writes are applies"),
    entry(33, "conflicts repeat", Schedule(&["conflict"]), "backoff with jitter"),
    entry(34, "a crash before a write", Schedule(&["crash-before"]), "the next start continues"),
    entry(35, "a crash after a write", Schedule(&["crash-after"]), "the next start continues"),
    entry(
        36,
        "a crash after an external call",
        Schedule(&["crash-after", "lose-response"]),
        "the operator finds the object again",
    ),
    entry(37, "a crash while cleaning up", Schedule(&["crash-before", "crash-after"]), "the next start finishes it"),
    entry(38, "repeated crashes", Schedule(&["crash-loop"]), "writes are not amplified"),
    entry(39, "SIGTERM during a reconcile", Schedule(&["terminate"]), "the reconcile ends within the grace period"),
    entry(
        40,
        "a panic in a reconcile",
        Campaign("unusual values of the specification"),
        "it is an error of the object",
    ),
    entry(41, "another version of the operator", Missing("one constructor for all starts"), ""),
    entry(42, "the operator is absent for a week", Schedule(&["absent"]), "one reconcile for each object"),
    entry(
        43,
        "renewals of the lease fail",
        Schedule(&["block-lease"]),
        "no write after the deadline; the process ends",
    ),
    entry(
        44,
        "a reconcile lasts longer than the lease",
        Schedule(&["delay", "block-lease"]),
        "its request is canceled",
    ),
    entry(45, "two processes have the same identity", Declared("`replicas` and an operator with a fixed instance"), ""),
    entry(46, "the lease is deleted", Schedule(&["delete-lease"]), "it is acquired again"),
    entry(47, "a shutdown while work goes on", Schedule(&["terminate"]), "the lease is released after the work"),
    entry(48, "the clock of a machine jumps", Schedule(&["skew"]), "leases and backoff use a monotonic clock"),
    entry(49, "clocks of machines differ", Schedule(&["skew"]), "times of other machines are not compared"),
    entry(50, "credentials expire", Schedule(&["absent"]), "certificates of webhooks are rotated"),
    entry(
        51,
        "timers are far in the future, zero or negative",
        Campaign("minimum and negative numbers"),
        "they are clamped",
    ),
    entry(52, "the API server is unreachable", Schedule(&["partition"]), "one probe for all watches"),
    entry(
        53,
        "requests succeed, watches deliver nothing",
        Schedule(&["partition-watches"]),
        "own writes are awaited, with a bound",
    ),
    entry(54, "a list is slow", Schedule(&["slow"]), "a minimum rate, without a fixed timeout"),
    entry(55, "webhooks are unreachable", Schedule(&["silence-webhooks"]), "writes are retried"),
    entry(56, "the resource is deleted while it is created", Schedule(&["delete-primary"]), "it is cleaned up"),
    entry(
        57,
        "a finalizer is added after the deletion",
        Schedule(&["delete-primary"]),
        "the rejection ends the reconcile",
    ),
    entry(58, "foreign finalizers", Schedule(&["stick"]), "only the own one is removed"),
    entry(59, "the object to clean up is gone", Schedule(&["delete-target"]), "success"),
    entry(60, "cleaning up fails again and again", Schedule(&["fail", "deny"]), "backoff, and an event"),
    entry(61, "the namespace is being deleted", Schedule(&["delete-namespace"]), "nothing is created, finalizers end"),
    entry(62, "deletion in the foreground, or with orphans", Schedule(&["orphan"]), "children are adopted"),
    entry(63, "work after the last finalizer", Schedule(&["delay-response"]), "the reconcile has ended"),
    entry(64, "the operator is uninstalled first", Missing("the operator always returns"), ""),
    entry(65, "owner references across namespaces", Missing("no fault writes them"), ""),
    entry(66, "the own webhook is down", Schedule(&["silence-webhooks", "reset"]), "own writes do not need it"),
    entry(67, "the webhook is late", Schedule(&["delay"]), "the API server times out"),
    entry(68, "the CA of a webhook is old", Missing("webhooks are called in process, without TLS"), ""),
    entry(
        69,
        "a mutating webhook is called twice",
        Declared("a sample of a kind with a defaulter"),
        "the second call changes nothing",
    ),
    entry(70, "another admission rejects a write", Schedule(&["deny"]), "backoff, and an event"),
    entry(71, "another admission adds fields", Schedule(&["annotate"]), "foreign fields remain"),
    entry(72, "dry run", Missing("no request is repeated as a dry run"), ""),
    entry(
        73,
        "extreme values",
        Campaign("minimum, maximum, long and unusual texts"),
        "a panic is an error of the object",
    ),
    entry(
        74,
        "an optional field is missing",
        Campaign("each optional property absent"),
        "a panic is an error of the object",
    ),
    entry(75, "a field is removed again", Campaign("each optional property set and unset"), "an apply removes it"),
    entry(76, "the specification changes in the middle", Schedule(&["flip"]), "the last state is reconciled"),
    entry(
        77,
        "an invalid specification, then a valid one",
        Campaign("each optional property with unusual values"),
        "the next change is reconciled",
    ),
    entry(78, "many resources at once", Declared("samples with many objects"), "namespaces share the workers"),
    entry(
        79,
        "two resources claim the same name",
        Declared("a sample with two resources"),
        "the second one reports a conflict",
    ),
    entry(80, "a resource is paused", Declared("a scenario that annotates it"), ""),
    entry(81, "a stored object does not fit its type", Missing("definitions are not tightened"), ""),
    entry(82, "a conversion webhook fails", Schedule(&["reset", "silence-webhooks"]), "the kind is read again"),
    entry(83, "a conversion loses a field", Declared("a scenario that applies both versions"), ""),
    entry(
        84,
        "a definition is deleted and created again",
        Schedule(&["recreate-definition"]),
        "its objects are reconciled as new ones",
    ),
    entry(85, "fields of a newer version", Schedule(&["annotate"]), "writes are patches"),
    entry(86, "a child is edited", Schedule(&["edit-target"]), "it is restored"),
    entry(87, "a child is deleted", Schedule(&["delete-target"]), "it is created again"),
    entry(88, "the owner reference of a child is removed", Schedule(&["orphan"]), "it is set again"),
    entry(89, "the deletion of a child does not end", Schedule(&["stick"]), "the reconcile waits"),
    entry(90, "a child never becomes ready", Declared("annotations for simulated containers"), ""),
    entry(91, "an object of that name exists", Schedule(&["preexist"]), "it is not taken over"),
    entry(92, "an external call fails", Schedule(&["fail"]), "the reconcile is retried"),
    entry(93, "an external object is not visible yet", Schedule(&["absence"]), "depends on the operator"),
    entry(94, "an external task is late", Schedule(&["delay-response"]), "depends on the operator"),
    entry(95, "the session of an external system ends", Schedule(&["fail"]), "depends on the operator"),
    entry(96, "an external object changes", Declared("the simulator"), "depends on the operator"),
    entry(97, "members of an external cluster are lost", Declared("the simulator"), "depends on the operator"),
    entry(98, "large objects", Declared("samples with large objects"), "caches keep bytes only"),
    entry(99, "one slow key", Schedule(&["delay"]), "one worker for each key"),
    entry(100, "the client is throttled", Schedule(&["throttle"]), "leases have their own requests"),
    entry(101, "many events", Declared("samples with many objects"), "events are merged into series"),
    entry(102, "many watches", Declared("an operator with many kinds"), "one watch for each kind"),
];

impl CatalogueEntry {
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

/// Returns the catalogue as a table in Markdown.
#[must_use]
pub fn table() -> String {
    let mut text = String::from("| Fault | Event | Injected by | Reaction of the runtime |\n|---|---|---|---|\n");
    for entry in CATALOGUE {
        let method = match entry.method {
            Schedule(names) => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
            Campaign(what) => format!("campaign: {what}"),
            Declared(what) => format!("declaration: {what}"),
            Missing(why) => format!("not yet: {why}"),
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
    fn catalogue_is_complete_and_names_known_faults() {
        let numbers: Vec<u8> = CATALOGUE.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, (1..=102).collect::<Vec<_>>());
        for entry in CATALOGUE {
            if let Schedule(names) = entry.method {
                assert_eq!(entry.faults().len(), names.len(), "{}", entry.label());
            }
        }
        for fault in Fault::all() {
            let is_listed = CATALOGUE.iter().any(|entry| entry.faults().contains(&fault));
            assert!(is_listed || fault.name() == "restart", "{fault}");
        }
    }

    #[test]
    fn document_contains_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explore.md");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if std::env::var_os("FLYBALL_BLESS").is_some() {
            let (start, end) = ("<!-- faults -->\n", "<!-- end of faults -->");
            let (head, rest) = text.split_once(start).expect("the document has a place for the table");
            let (_, tail) = rest.split_once(end).expect("the place ends");
            std::fs::write(path, format!("{head}{start}{}{end}{tail}", table())).unwrap();
            return;
        }
        assert!(text.contains(&table()), "FLYBALL_BLESS=1 writes the table to docs/explore.md");
    }
}
