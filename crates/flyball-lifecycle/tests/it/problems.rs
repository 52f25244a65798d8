//! Authored problems with the choices of OLM's resolver.

use flyball_lifecycle::{
    Bundle, Catalog, CatalogKey, Catalogs, Entry, Installed, Isolation, Property, Request, Resolution, Subscription,
    VersionRange, resolve,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

const NAMESPACE: &str = "ns";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Problem {
    name: String,
    catalogs: Vec<CatalogOf>,
    subs: Vec<SubscriptionOf>,
    installed: Vec<BundleOf>,
    #[serde(rename = "expect")]
    expected: Expected,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CatalogOf {
    name: String,
    namespace: String,
    priority: i32,
    defaults: BTreeMap<String, String>,
    bundles: Vec<BundleOf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BundleOf {
    name: String,
    #[serde(default)]
    package: String,
    #[serde(default)]
    channel: String,
    version: String,
    replaces: String,
    #[serde(default)]
    skips: Vec<String>,
    #[serde(default)]
    skip_range: String,
    properties: Vec<Property>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SubscriptionOf {
    name: String,
    package: String,
    channel: String,
    catalog: String,
    #[serde(rename = "StartingCSV")]
    starting_csv: String,
    #[serde(rename = "InstalledCSV")]
    installed_csv: String,
}

#[derive(Default, Deserialize)]
struct Expected {
    #[serde(default)]
    resolved: Vec<String>,
    #[serde(default)]
    replaces: BTreeMap<String, String>,
    error: Option<String>,
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn key(name: &str, namespace: &str) -> CatalogKey {
    CatalogKey { namespace: some(namespace).unwrap_or_else(|| NAMESPACE.to_owned()), name: name.to_owned() }
}

impl Problem {
    fn resolve(&self, isolation: Isolation) -> Resolution {
        let catalogs = Catalogs::new(self.catalogs.iter().map(CatalogOf::catalog).collect());
        let subscriptions: Vec<Subscription> = self.subs.iter().map(SubscriptionOf::subscription).collect();
        let installed: Vec<Installed> = self.installed.iter().map(BundleOf::bundle).collect();
        resolve(&Request {
            namespace: NAMESPACE,
            catalogs: &catalogs,
            subscriptions: &subscriptions,
            installed: &installed,
            isolation,
        })
    }
}

impl CatalogOf {
    fn catalog(&self) -> Catalog {
        let entries = self.bundles.iter().map(|bundle| Entry {
            package: bundle.package.clone(),
            channel: bundle.channel.clone(),
            is_default_channel: self.defaults.get(&bundle.package) == Some(&bundle.channel),
            replaces: some(&bundle.replaces),
            skips: bundle.skips.clone(),
            skip_range: VersionRange::parse(&bundle.skip_range).ok(),
            bundle: bundle.bundle(),
        });
        Catalog { key: key(&self.name, &self.namespace), priority: self.priority, entries: entries.collect() }
    }
}

impl BundleOf {
    fn bundle(&self) -> Arc<Bundle> {
        Arc::new(Bundle::new(&self.name, &self.version, self.properties.clone()))
    }
}

impl SubscriptionOf {
    fn subscription(&self) -> Subscription {
        Subscription {
            name: self.name.clone(),
            catalog: key(&self.catalog, ""),
            package: self.package.clone(),
            channel: some(&self.channel),
            starting_csv: some(&self.starting_csv),
            installed_csv: some(&self.installed_csv),
            versions: None,
            target: None,
        }
    }
}

fn problems() -> Vec<Problem> {
    serde_json::from_str(include_str!("../data/resolution.json")).unwrap()
}

#[test]
fn choices_are_those_of_olm() {
    for problem in problems() {
        let Resolution { choices, failures } = problem.resolve(Isolation::Namespace);
        let name = &problem.name;
        let error = failures.first().map(|failure| failure.explanation.to_string());
        let expected = problem.expected.error.as_deref();
        match name.as_str() {
            // The parser of CEL has its own messages.
            "constraint-cel-bad" => assert_eq!(error.is_some(), expected.is_some(), "{name}"),
            _ => assert_eq!(error.as_deref(), expected, "{name}"),
        }
        let resolved: Vec<String> = choices
            .iter()
            .map(|choice| format!("{}/{}/{}", choice.catalog.name, choice.channel, choice.name))
            .collect();
        assert_eq!(resolved, problem.expected.resolved, "{name}");
        let replaces: BTreeMap<String, String> =
            choices.into_iter().filter_map(|choice| Some((choice.name, choice.replaces?))).collect();
        assert_eq!(replaces, problem.expected.replaces, "{name}");
    }
}

#[test]
fn subscription_without_solution_leaves_others_unaffected() {
    let problem = problems().into_iter().find(|problem| problem.name == "one-bad-sub-blocks-all").unwrap();
    let Resolution { choices, failures } = problem.resolve(Isolation::Subscription);
    assert_eq!(choices.iter().map(|choice| &*choice.name).collect::<Vec<_>>(), ["a.v1"]);
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].subscriptions, ["c"]);
}
