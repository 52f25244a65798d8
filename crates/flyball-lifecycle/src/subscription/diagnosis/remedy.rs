//! Changes after which a Subscription can be satisfied. Each change is tried by another resolution.

use super::Case;
use super::attempt::Attempt;
use crate::api::labels::VERSIONS;
use crate::catalog::CatalogKey;
use crate::resolution::{self, Explanation, Fact, Missing};
use kube::ResourceExt;
use std::collections::BTreeSet;

/// Limit of the changes that are tried.
const MAX_TRIALS: usize = 32;
/// Limit of the names that a hint lists.
const MAX_NAMES: usize = 8;

/// A change of the input of a resolution.
struct Change {
    text: String,
    attempt: Attempt,
}

/// Returns changes that help, the smallest first; otherwise hints.
pub(super) fn find(case: &Case<'_>, attempt: &Attempt, index: usize, explanation: &Explanation) -> Vec<String> {
    let Some(own) = attempt.requests.get(&index) else { return Vec::new() };
    let mut changes = of_subscription(case, attempt, index, own);
    if let Explanation::Conflict(facts) = explanation {
        changes.extend(of_others(attempt, index, facts));
    }
    let helps = |change: &Change| {
        let resolution = change.attempt.resolve(case);
        !resolution.failures.iter().any(|failure| failure.subscriptions.contains(&own.name))
    };
    let helpful: Vec<String> = changes.into_iter().take(MAX_TRIALS).filter(helps).map(|change| change.text).collect();
    match (helpful.is_empty(), explanation) {
        (true, Explanation::Conflict(facts)) => hints(case, own, facts),
        _ => helpful,
    }
}

fn copy(attempt: &Attempt) -> Attempt {
    Attempt {
        catalogs: attempt.catalogs.clone(),
        installed: attempt.installed.clone(),
        requests: attempt.requests.clone(),
    }
}

/// Returns changes of the Subscription itself.
fn of_subscription(case: &Case<'_>, attempt: &Attempt, index: usize, own: &resolution::Subscription) -> Vec<Change> {
    let changed = |text: String, change: &dyn Fn(&mut resolution::Subscription)| {
        let mut attempt = copy(attempt);
        if let Some(own) = attempt.requests.get_mut(&index) {
            change(own);
        }
        Change { text, attempt }
    };
    let mut changes = Vec::new();
    if own.versions.is_some() {
        changes.push(changed(format!("remove the annotation {VERSIONS}"), &|own| own.versions = None));
    }
    if let Some(target) = &own.target {
        let text =
            format!("end the rollback to {target}: flyball olm pin {} -n {} --remove", own.name, case.view.namespace);
        changes.push(changed(text, &|own| own.target = None));
    }
    if own.starting_csv.is_some() && own.installed_csv.is_none() {
        changes.push(changed("remove spec.startingCSV".to_owned(), &|own| own.starting_csv = None));
    }
    for channel in channels(attempt, &own.catalog, &own.package) {
        if own.channel.as_ref() != Some(&channel) {
            changes.push(changed(format!("set spec.channel: {channel}"), &|own| own.channel = Some(channel.clone())));
        }
    }
    for source in &case.view.sources {
        let key = crate::contents::key_of(source);
        if key != own.catalog && !attempt.catalogs.package(&key, &own.package).is_empty() {
            let text = format!("set spec.source: {} and spec.sourceNamespace: {}", key.name, key.namespace);
            changes.push(changed(text, &|own| own.catalog = key.clone()));
        }
    }
    changes
}

fn channels(attempt: &Attempt, catalog: &CatalogKey, package: &str) -> BTreeSet<String> {
    let ids = attempt.catalogs.package(catalog, package);
    ids.into_iter().map(|id| attempt.catalogs.entry(id).channel.clone()).collect()
}

/// Returns changes of other objects of the namespace that contribute to the contradiction.
fn of_others(attempt: &Attempt, index: usize, facts: &[Fact]) -> Vec<Change> {
    let own = attempt.requests.get(&index).and_then(|own| own.installed_csv.as_deref());
    let mut changes = Vec::new();
    let mut involved: BTreeSet<&str> = BTreeSet::new();
    for fact in facts {
        match fact {
            Fact::Unreferenced { name } => {
                let mut attempt = copy(attempt);
                attempt.installed.retain(|bundle| bundle.name() != name);
                let text = format!("delete ClusterServiceVersion {name}, or create a Subscription to its package");
                changes.push(Change { text, attempt });
            }
            Fact::Selects { subscription, .. } | Fact::Exists { subscription } => drop(involved.insert(subscription)),
            Fact::Stays { name } if own != Some(name) => {
                let of = attempt.requests.values().find(|request| request.installed_csv.as_ref() == Some(name));
                involved.extend(of.map(|of| of.name.as_str()));
            }
            _ => {}
        }
    }
    for name in involved {
        let mut changed = copy(attempt);
        let other = changed.requests.iter().find(|(at, request)| **at != index && request.name == name);
        let Some((at, other)) = other.map(|(at, other)| (*at, other.clone())) else { continue };
        changed.requests.remove(&at);
        changed.installed.retain(|bundle| Some(bundle.name()) != other.installed_csv.as_deref());
        let also = other.installed_csv.map(|csv| format!(" and ClusterServiceVersion {csv}")).unwrap_or_default();
        changes.push(Change { text: format!("delete Subscription {name}{also}"), attempt: changed });
    }
    changes
}

/// Returns hints that were not tried, since they depend on content that the catalogs lack.
fn hints(case: &Case<'_>, own: &resolution::Subscription, facts: &[Fact]) -> Vec<String> {
    let content = case.view.sources.iter().find(|source| crate::contents::key_of(source) == own.catalog);
    let content = content.and_then(|source| case.controller.contents.state(source).content);
    let list = |names: Vec<String>| {
        let more = names.len().saturating_sub(MAX_NAMES);
        let shown = names.into_iter().take(MAX_NAMES).collect::<Vec<_>>().join(", ");
        if more == 0 { shown } else { format!("{shown} and {more} more") }
    };
    let hint = |fact: &Fact| match fact {
        Fact::NoBundles { missing: Missing::Bundles { catalog }, .. } => {
            Some(format!("check CatalogSource {}/{}: it has no packages", catalog.namespace, catalog.name))
        }
        Fact::NoBundles { missing: Missing::Package { package }, .. } => {
            let all = content.as_ref()?.packages().map(|of| of.name.clone());
            let (mut near, all): (Vec<String>, Vec<String>) = all.partition(|name| is_near(name, package));
            near.extend(all);
            Some(format!("correct spec.name; the catalog has the packages {}", list(near)))
        }
        Fact::NoBundles { missing: Missing::Channel { package, .. }, .. } => {
            let package = content.as_ref()?.package(package)?;
            Some(format!("correct spec.channel; the channels are {}", list(package.channels.keys().cloned().collect())))
        }
        Fact::NoBundles { missing: Missing::StartingCsv { package, .. }, .. } => {
            let package = content.as_ref()?.package(package)?;
            Some(format!(
                "correct the name; the versions are {}",
                list(package.bundles.keys().rev().cloned().collect())
            ))
        }
        Fact::Requires { requirement, candidates, .. } if candidates.is_empty() => {
            let sources: Vec<String> = case.view.sources.iter().map(|source| source.name_any()).collect();
            let sources = sources.join(", ");
            Some(format!("add a catalog with an operator {requirement}: {sources} has none"))
        }
        Fact::SameApi { api, .. } => Some(format!("install only one operator that provides {api} in this namespace")),
        _ => None,
    };
    facts.iter().filter_map(hint).collect()
}

/// Returns true if two names are probably meant to be the same.
fn is_near(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    one.contains(&other) || other.contains(&one) || one.bytes().take(3).eq(other.bytes().take(3))
}
