//! Resolution: which bundles the Subscriptions of a namespace install next.
//!
//! Each Subscription selects one bundle of its package: the newest of its channel, or, if a version is installed, the
//! newest that directly upgrades it, or the installed one. Requirements of the selected bundles are met by installed
//! bundles or by further ones of the catalogs. No two bundles of a namespace provide the same API or come from the same
//! package.
//!
//! The choices are those of OLM v0. [Source](https://olm.operatorframework.io/docs/concepts/olm-architecture/dependency-resolution/).

mod explanation;
mod problem;
mod solver;

pub use explanation::{Candidate, Explanation, Fact, Missing, ResolutionError};

use crate::bundle::Bundle;
use crate::catalog::{CatalogKey, Catalogs};
use crate::version::VersionRange;
use problem::{Component, Problem};
use solver::Outcome;
use std::sync::Arc;

/// Limit of the undone choices of one resolution.
const MAX_STEPS: u64 = 100_000;

/// A Subscription as resolution needs it: package, channel, versions, and the installed bundle.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// The name of the Subscription.
    pub name: String,
    /// The catalog.
    pub catalog: CatalogKey,
    /// The package.
    pub package: String,
    /// The channel; without one, all channels are searched, the default channel first.
    pub channel: Option<String>,
    /// The bundle that is installed first.
    pub starting_csv: Option<String>,
    /// The name of the bundle that it has installed.
    pub installed_csv: Option<String>,
    /// The versions that it may install; all if there are none.
    pub versions: Option<VersionRange>,
    /// The name of the only bundle that it may install, also if this one is older than the installed one: a rollback.
    pub target: Option<String>,
}

/// A bundle that is installed in the namespace: an existing ClusterServiceVersion.
pub type Installed = Arc<Bundle>;

/// The scope of a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// A Subscription that cannot be satisfied leaves the others unaffected.
    #[default]
    Subscription,
    /// No Subscription of the namespace is resolved unless all are, as in OLM.
    Namespace,
}

/// The input of a resolution.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The namespace.
    pub namespace: &'r str,
    /// The catalogs that are visible in the namespace.
    pub catalogs: &'r Catalogs,
    /// The Subscriptions of the namespace.
    pub subscriptions: &'r [Subscription],
    /// The bundles that are installed in the namespace.
    pub installed: &'r [Installed],
    /// The scope of failures.
    pub isolation: Isolation,
}

/// A bundle to install.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    /// The catalog.
    pub catalog: CatalogKey,
    /// The channel.
    pub channel: String,
    /// The name of the bundle.
    pub name: String,
    /// The name of the bundle that it replaces.
    pub replaces: Option<String>,
}

/// The result of a resolution.
#[derive(Clone, Debug, Default)]
pub struct Resolution {
    /// The bundles to install, sorted; installed bundles are not listed.
    pub choices: Vec<Choice>,
    /// The Subscriptions that cannot be satisfied.
    pub failures: Vec<ResolutionError>,
}

/// Selects the bundles to install next.
///
/// The result depends on the input only; the order of Subscriptions and catalogs has no effect. Time is bounded: a
/// problem whose search takes too long fails with [`Explanation::TooComplex`].
#[doc(alias = "Resolver")]
pub fn resolve(request: &Request<'_>) -> Resolution {
    let isolates = request.isolation == Isolation::Subscription;
    let (mut problem, mut failures) = Problem::new(request);
    if !isolates && !failures.is_empty() {
        return Resolution { choices: Vec::new(), failures };
    }
    let (mut selected, mut steps) = (Vec::new(), MAX_STEPS);
    for component in problem.components() {
        match problem.solve(&component.constraints, &mut steps) {
            Outcome::Solved(variables) => selected.extend(variables),
            _ if isolates => {
                let (variables, failed) = solve_one_by_one(&mut problem, &component, &mut steps);
                selected.extend(variables);
                failures.extend(failed);
            }
            _ => {
                let subscriptions = request.subscriptions.iter().map(|of| of.name.clone()).collect();
                let explanation = problem.explain(&component.constraints, &mut steps);
                failures.push(ResolutionError { subscriptions, explanation });
                return Resolution { choices: Vec::new(), failures };
            }
        }
    }
    let mut choices: Vec<Choice> = selected.into_iter().filter_map(|variable| problem.choice(variable)).collect();
    choices.sort();
    Resolution { choices, failures }
}

/// Solves a component that has no solution for all of its Subscriptions: each one is accepted if it can be satisfied
/// together with those before it. Subscriptions with an installed bundle come first; the installed bundle of a rejected
/// one stays.
fn solve_one_by_one(
    problem: &mut Problem<'_>,
    component: &Component,
    steps: &mut u64,
) -> (Vec<usize>, Vec<ResolutionError>) {
    let demands: Vec<usize> = component.subscriptions.iter().flat_map(|index| problem.demand(*index)).collect();
    let mut accepted = component.constraints.clone();
    accepted.retain(|index| !demands.contains(index));
    let mut failures = Vec::new();
    for subscription in &component.subscriptions {
        let mut extended = accepted.clone();
        extended.extend(problem.demand(*subscription));
        if let Outcome::Solved(_) = problem.solve(&extended, steps) {
            accepted = extended;
            continue;
        }
        let explanation = problem.explain(&extended, steps);
        failures.push(ResolutionError { subscriptions: vec![problem.name(*subscription).to_owned()], explanation });
        accepted.extend(problem.keep_installed(*subscription));
    }
    match problem.solve(&accepted, steps) {
        Outcome::Solved(variables) => (variables, failures),
        Outcome::Unsatisfiable | Outcome::TooComplex => (Vec::new(), failures),
    }
}
