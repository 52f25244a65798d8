//! The version that a Subscription installs next, and why no other one.

use super::attempt::Attempt;
use super::{Case, Requests, remedy};
use crate::api::labels::{ROLLBACK, VERSIONS};
use crate::catalog::{Catalogs, Entry, EntryId};
use crate::channel::sort_channel;
use crate::requirement::Requirement;
use crate::resolution::{self, Candidate, Choice, Explanation, Fact, Resolution};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Limit of the listed candidates.
const MAX_CANDIDATES: usize = 12;
/// Limit of the listed requirements.
const MAX_REQUIREMENTS: usize = 32;

/// The selection of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Selection {
    /// The version that is installed next; absent if the installed one stays, or nothing can be installed.
    pub next: Option<NextVersion>,
    /// The versions of the channel, newest first.
    pub candidates: Vec<CandidateReport>,
    /// Number of versions that are not listed.
    pub more_candidates: usize,
    /// The annotation of the Subscription that excludes versions which upgrade the installed one; empty if none does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub held_by: String,
    /// The requirements of the next version and of its dependencies.
    pub requirements: Vec<RequirementReport>,
    /// The facts that contradict each other, if nothing can be installed: without any of them it could.
    pub facts: Vec<String>,
    /// Changes after which the Subscription could be satisfied. Each was tried.
    pub remedies: Vec<String>,
}

/// The version that a Subscription installs next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NextVersion {
    /// The name of the ClusterServiceVersion.
    pub name: String,
    /// The channel.
    pub channel: String,
    /// The CatalogSource, as `namespace/name`.
    pub catalog: String,
    /// The installed version that it replaces; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub replaces: String,
    /// The reason for the choice.
    pub because: String,
}

/// A version and the reason why it is or is not chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CandidateReport {
    /// The name of the ClusterServiceVersion.
    pub name: String,
    /// The channel.
    pub channel: String,
    /// True if it is installed next.
    pub chosen: bool,
    /// The reason why it is or is not chosen.
    pub verdict: String,
}

/// A requirement of a bundle, and the bundle that meets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequirementReport {
    /// The bundle that has the requirement.
    pub bundle: String,
    /// The requirement.
    pub requirement: String,
    /// The bundle that meets it; empty if none does.
    pub met_by: String,
    /// The origin of this bundle: installed, or a catalog and channel.
    pub from: String,
}

/// Explains the selection for a Subscription; `None` if it is not resolved now.
pub(super) fn select(case: &Case<'_>, index: usize, requests: Requests) -> Option<Selection> {
    let catalogs = case.controller.contents.catalogs(&case.view.sources.iter().collect::<Vec<_>>());
    let attempt = Attempt { catalogs, installed: crate::subscription::planning::installed(&case.view), requests };
    let own = attempt.own(index)?;
    let resolution = attempt.resolve(case);
    let failure = resolution.failures.iter().find(|failure| failure.subscriptions.contains(&own.name));
    let choice = resolution.choices.iter().find(|choice| {
        entry_of(&attempt.catalogs, choice)
            .is_some_and(|entry| entry.package == own.package && choice.catalog == own.catalog)
    });
    let ids = candidates(&attempt.catalogs, own);
    let chosen = choice.and_then(|choice| ids.iter().position(|id| attempt.catalogs.entry(*id).name() == choice.name));
    let report = |(at, id): (usize, &EntryId)| {
        let entry = attempt.catalogs.entry(*id);
        let is_chosen = chosen == Some(at);
        let verdict = match is_chosen {
            true => because(entry, &attempt, index),
            false => verdict(case, &attempt, index, entry, chosen.is_none_or(|chosen| at < chosen)),
        };
        CandidateReport { name: entry.name().to_owned(), channel: entry.channel.clone(), chosen: is_chosen, verdict }
    };
    // The chosen one is always listed.
    let listed = MAX_CANDIDATES.max(chosen.map_or(0, |chosen| chosen + 1)).min(ids.len());
    let next = choice.map(|choice| NextVersion {
        name: choice.name.clone(),
        channel: choice.channel.clone(),
        catalog: format!("{}/{}", choice.catalog.namespace, choice.catalog.name),
        replaces: attempt.installed_of(index).map(|bundle| bundle.name().to_owned()).unwrap_or_default(),
        because: entry_of(&attempt.catalogs, choice).map(|entry| because(entry, &attempt, index)).unwrap_or_default(),
    });
    Some(Selection {
        next,
        candidates: ids.iter().enumerate().take(listed).map(report).collect(),
        more_candidates: ids.len() - listed,
        held_by: held_by(&attempt, index, &ids).unwrap_or_default().to_owned(),
        requirements: choice.map(|choice| requirements(&attempt, &resolution, choice)).unwrap_or_default(),
        facts: failure.map(|failure| facts(&failure.explanation)).unwrap_or_default(),
        remedies: failure.map(|failure| remedy::find(case, &attempt, index, &failure.explanation)).unwrap_or_default(),
    })
}

/// Returns the annotation that excludes candidates which upgrade the installed version.
fn held_by(attempt: &Attempt, index: usize, ids: &[EntryId]) -> Option<&'static str> {
    let (own, installed) = attempt.own(index).zip(attempt.installed_of(index))?;
    if own.target.is_some() {
        return Some(ROLLBACK);
    }
    let range = own.versions.as_ref()?;
    let is_excluded = |id: &EntryId| {
        let entry = attempt.catalogs.entry(*id);
        entry.upgrades(installed) && !entry.bundle.version().is_some_and(|version| range.includes(version))
    };
    ids.iter().any(is_excluded).then_some(VERSIONS)
}

fn entry_of<'c>(catalogs: &'c Catalogs, choice: &Choice) -> Option<&'c Entry> {
    let entries = &catalogs.get(&choice.catalog)?.entries;
    entries.iter().find(|entry| entry.channel == choice.channel && entry.name() == choice.name)
}

/// Returns the versions that a Subscription could install, in the order of preference.
fn candidates(catalogs: &Catalogs, own: &resolution::Subscription) -> Vec<EntryId> {
    let mut channels: BTreeMap<_, Vec<EntryId>> = BTreeMap::new();
    for id in catalogs.package(&own.catalog, &own.package) {
        let entry = catalogs.entry(id);
        if own.channel.as_ref().is_none_or(|channel| *channel == entry.channel) {
            channels.entry((Reverse(entry.is_default_channel), &entry.channel)).or_default().push(id);
        }
    }
    let mut ids = Vec::new();
    for entries in channels.into_values() {
        let sorted = sort_channel(catalogs, &entries).unwrap_or_default();
        let known: BTreeSet<EntryId> = sorted.iter().copied().collect();
        ids.extend(sorted);
        ids.extend(entries.into_iter().filter(|id| !known.contains(id)));
    }
    ids
}

/// Returns the reason why the chosen version is a candidate at all.
fn because(entry: &Entry, attempt: &Attempt, index: usize) -> String {
    let own = attempt.own(index);
    if own.is_some_and(|own| own.target.as_deref() == Some(entry.name())) {
        return "the version of the rollback".to_owned();
    }
    let Some(installed) = attempt.installed_of(index) else {
        return match own.and_then(|own| own.starting_csv.as_deref()) {
            Some(_) => "named by spec.startingCSV".to_owned(),
            None => format!("newest possible version of channel {}", entry.channel),
        };
    };
    let name = installed.name();
    if entry.replaces.as_deref() == Some(name) {
        return format!("replaces {name}");
    }
    match entry.skips.iter().any(|skipped| skipped == name) {
        true => format!("skips {name}"),
        false => format!("its skipRange includes {}", installed.version().map(ToString::to_string).unwrap_or_default()),
    }
}

/// Returns the reason why a version is not chosen. `is_preferred` is true if it would be chosen if it could be.
fn verdict(case: &Case<'_>, attempt: &Attempt, index: usize, entry: &Entry, is_preferred: bool) -> String {
    let Some(own) = attempt.own(index) else { return String::new() };
    let installed = attempt.installed_of(index);
    if installed.is_some_and(|installed| installed.name() == entry.name()) {
        return "installed".to_owned();
    }
    if let Some(target) = &own.target {
        return format!("the Subscription stays at {target}");
    }
    match (installed, &own.starting_csv) {
        (None, Some(starting)) if starting != entry.name() => return format!("spec.startingCSV is {starting}"),
        (Some(installed), _) if !entry.upgrades(installed) => {
            let is_older = entry.bundle.version().zip(installed.version()).is_some_and(|(one, other)| one < other);
            return match (is_older, &entry.replaces) {
                (true, _) => "older than the installed version".to_owned(),
                (false, Some(replaces)) => format!("no direct upgrade: replaces {replaces}, not {}", installed.name()),
                (false, None) => format!("no direct upgrade: replaces no version, not {}", installed.name()),
            };
        }
        _ => {}
    }
    if let Some(range) = &own.versions
        && !entry.bundle.version().is_some_and(|version| range.includes(version))
    {
        return "excluded by the versions of the Subscription".to_owned();
    }
    if !is_preferred {
        return "older than the chosen version".to_owned();
    }
    rejection(case, attempt, index, entry)
}

/// Returns the reason why a version could not be installed: the result of a resolution in which it is the only choice.
fn rejection(case: &Case<'_>, attempt: &Attempt, index: usize, entry: &Entry) -> String {
    let mut requests = attempt.requests.clone();
    let Some(own) = requests.get_mut(&index) else { return String::new() };
    own.target = Some(entry.name().to_owned());
    let name = own.name.clone();
    let (catalogs, installed) = (attempt.catalogs.clone(), attempt.installed.clone());
    let resolution = Attempt { catalogs, installed, requests }.resolve(case);
    match resolution.failures.iter().find(|failure| failure.subscriptions.contains(&name)) {
        Some(failure) => facts(&failure.explanation).join("; "),
        // Only a skipped version can be installed and is not a candidate.
        None => "skipped by a newer version".to_owned(),
    }
}

/// Returns the requirements of a choice and of everything that is installed for it.
fn requirements(attempt: &Attempt, resolution: &Resolution, choice: &Choice) -> Vec<RequirementReport> {
    let chosen: Vec<(&Choice, &Entry)> =
        resolution.choices.iter().filter_map(|choice| Some((choice, entry_of(&attempt.catalogs, choice)?))).collect();
    let first = chosen.iter().find(|(of, _)| of.name == choice.name).map(|(_, entry)| *entry);
    let (mut queue, mut seen): (VecDeque<&Entry>, BTreeSet<&str>) = (first.into_iter().collect(), BTreeSet::new());
    let mut reports = Vec::new();
    while let Some(entry) = queue.pop_front().filter(|_| reports.len() < MAX_REQUIREMENTS) {
        if !seen.insert(entry.name()) {
            continue;
        }
        for requirement in Requirement::of(&entry.bundle).unwrap_or_default() {
            let installed = attempt.installed.iter().find(|bundle| requirement.is_met_by(bundle));
            let fresh = chosen.iter().find(|(_, entry)| requirement.is_met_by(&entry.bundle));
            let (met_by, from) = match (installed, fresh) {
                (Some(bundle), _) => (bundle.name().to_owned(), "installed".to_owned()),
                (None, Some((choice, entry))) => {
                    queue.push_back(entry);
                    (entry.name().to_owned(), format!("{} channel {}", choice.catalog, choice.channel))
                }
                (None, None) => (String::new(), String::new()),
            };
            let (bundle, requirement) = (entry.name().to_owned(), requirement.to_string());
            reports.push(RequirementReport { bundle, requirement, met_by, from });
        }
    }
    reports
}

/// Returns the facts of an explanation as sentences.
pub(super) fn facts(explanation: &Explanation) -> Vec<String> {
    let Explanation::Conflict(facts) = explanation else { return vec![explanation.to_string()] };
    // A Subscription that selects something exists.
    let mut shown: Vec<&Fact> = facts.iter().filter(|fact| !matches!(fact, Fact::Exists { .. })).collect();
    if shown.is_empty() {
        shown = facts.iter().collect();
    }
    shown.sort_by_key(|fact| order(fact));
    shown.into_iter().map(sentence).collect()
}

/// Returns the position of a fact in the explanation: the requesting facts first, then the contradicting ones.
fn order(fact: &Fact) -> usize {
    match fact {
        Fact::Exists { .. } => 0,
        Fact::Selects { .. } => 1,
        Fact::NoBundles { .. } => 2,
        Fact::Requires { .. } => 3,
        Fact::Unreferenced { .. } | Fact::Stays { .. } | Fact::Replaces { .. } => 4,
        Fact::Deprecated { .. } | Fact::Invalid { .. } => 5,
        Fact::SameApi { .. } | Fact::SamePackage { .. } => 6,
    }
}

fn sentence(fact: &Fact) -> String {
    let Fact::Requires { candidates, .. } = fact else { return fact.to_string() };
    let names = |candidates: &[Candidate]| {
        let shown: Vec<String> = candidates.iter().take(MAX_CANDIDATES).map(ToString::to_string).collect();
        shown.join(", ")
    };
    match candidates.len() {
        0 => format!("{fact}, which no visible catalog has"),
        count if count > MAX_CANDIDATES => format!("{fact}: {} and {} more", names(candidates), count - MAX_CANDIDATES),
        _ => format!("{fact}: {}", names(candidates)),
    }
}
