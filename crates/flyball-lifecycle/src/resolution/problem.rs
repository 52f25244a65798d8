//! The constraints of a resolution.

use super::explanation::{Candidate, Explanation, Fact, Missing, ResolutionError};
use super::solver::{Constraint, Outcome, Var, solve};
use super::{Choice, Isolation, Request, Subscription};
use crate::bundle::{Api, Bundle};
use crate::catalog::{Catalog, CatalogKey, Catalogs, EntryId};
use crate::channel::{InvalidChannel, sort_channel};
use crate::requirement::Requirement;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Limit of the problems that are solved for one explanation: some hundred suffice for thousands of constraints.
const MAX_ATTEMPTS: usize = 2_000;

/// The object that a variable selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Node {
    /// A Subscription, by its index.
    Subscription(usize),
    /// An installed bundle, by its index.
    Installed(usize),
    /// A bundle in a catalog.
    Entry(EntryId),
}

/// The reason of a constraint.
#[derive(Debug)]
enum Origin {
    Exists(usize),
    NoBundles(usize, Missing),
    Selects(usize),
    Unreferenced(usize),
    Stays(usize),
    Deprecated(Var),
    Invalid(Var, String),
    Requires(Var, String),
    Replaces(Var, Var),
    SameApi(Api),
    SamePackage(String),
}

/// The variables and constraints of a resolution.
pub(super) struct Problem<'r> {
    request: Request<'r>,
    nodes: Vec<Node>,
    variables: HashMap<Node, Var>,
    constraints: Vec<(Constraint, Origin)>,
    /// The installed bundles by their names.
    installed: HashMap<&'r str, usize>,
    /// The names of installed bundles that belong to a Subscription.
    referenced: HashSet<&'r str>,
    /// The bundles whose constraints were added.
    visited: HashSet<Var>,
    /// The names of installed bundles that candidates replace.
    replaced: HashMap<Var, &'r str>,
}

/// Constraints that have no variable in common with others.
#[derive(Default)]
pub(super) struct Component {
    pub(super) constraints: Vec<usize>,
    /// Subscriptions, those with an installed bundle first.
    pub(super) subscriptions: Vec<usize>,
}

impl<'r> Problem<'r> {
    /// Collects the constraints. Also returns the Subscriptions whose channel is invalid; unless failures are isolated,
    /// each invalid bundle is a failure as well.
    pub(super) fn new(request: &Request<'r>) -> (Self, Vec<ResolutionError>) {
        let mut problem = Self {
            request: *request,
            nodes: Vec::new(),
            variables: HashMap::new(),
            constraints: Vec::new(),
            // Of bundles with the same name, the first one counts.
            installed: request.installed.iter().enumerate().rev().map(|(at, bundle)| (bundle.name(), at)).collect(),
            referenced: request.subscriptions.iter().filter_map(|of| of.installed_csv.as_deref()).collect(),
            visited: HashSet::new(),
            replaced: HashMap::new(),
        };
        let mut failures = Vec::new();
        for index in 0..request.installed.len() {
            problem.add_bundle(Node::Installed(index), &mut failures);
        }
        let mut order: Vec<usize> = (0..request.subscriptions.len()).collect();
        order.sort_by_key(|index| &request.subscriptions[*index].name);
        for index in order {
            if let Err(error) = problem.add_subscription(index, &mut failures) {
                let subscriptions = vec![request.subscriptions[index].name.clone()];
                failures.push(ResolutionError { subscriptions, explanation: Explanation::Channel(error) });
                let stay = problem.stay(index);
                problem.constraints.extend(stay);
            }
        }
        problem.add_invariants();
        (problem, failures)
    }

    fn catalogs(&self) -> &'r Catalogs {
        self.request.catalogs
    }

    /// Returns the bundle of a node that is one.
    fn bundle(&self, node: Node) -> Option<&'r Bundle> {
        match node {
            Node::Subscription(_) => None,
            Node::Installed(index) => Some(&self.request.installed[index]),
            Node::Entry(id) => Some(&self.catalogs().entry(id).bundle),
        }
    }

    fn variable(&mut self, node: Node) -> Var {
        *self.variables.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        })
    }

    fn installed_of(&self, subscription: &Subscription) -> Option<usize> {
        self.installed.get(subscription.installed_csv.as_deref()?).copied()
    }

    /// Adds a bundle with everything that it requires.
    fn add_bundle(&mut self, node: Node, failures: &mut Vec<ResolutionError>) {
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            let var = self.variable(node);
            let Some(bundle) = self.bundle(node).filter(|_| self.visited.insert(var)) else { continue };
            if let Node::Installed(index) = node
                && !self.referenced.contains(bundle.name())
            {
                self.constraints.push((Constraint::Required(var), Origin::Unreferenced(index)));
            }
            if bundle.is_deprecated() {
                self.constraints.push((Constraint::Forbidden(var), Origin::Deprecated(var)));
            }
            let requirements = Requirement::of(bundle).unwrap_or_else(|error| {
                let explanation = Explanation::Constraint { bundle: bundle.name().to_owned(), error };
                self.forbid(node, explanation, failures);
                Vec::new()
            });
            for requirement in requirements {
                match self.candidates(&requirement, node) {
                    Ok(candidates) => {
                        stack.extend(&candidates);
                        let candidates = candidates.into_iter().map(|candidate| self.variable(candidate)).collect();
                        let origin = Origin::Requires(var, requirement.to_string());
                        self.constraints.push((Constraint::Requires(var, candidates), origin));
                    }
                    Err(error) => self.forbid(node, Explanation::Channel(error), failures),
                }
            }
        }
    }

    /// Excludes an invalid bundle. One that is installed stays: no choice of other bundles could change that.
    fn forbid(&mut self, node: Node, explanation: Explanation, failures: &mut Vec<ResolutionError>) {
        if self.request.isolation == Isolation::Namespace {
            let subscriptions = self.request.subscriptions.iter().map(|of| of.name.clone()).collect();
            failures.push(ResolutionError { subscriptions, explanation });
        } else if let Node::Entry(_) = node {
            let var = self.variable(node);
            self.constraints.push((Constraint::Forbidden(var), Origin::Invalid(var, explanation.to_string())));
        }
    }

    /// Returns the bundles that meet a requirement, preferred ones first: installed ones, then by catalog, package,
    /// channel and replacement.
    fn candidates(&self, requirement: &Requirement, of: Node) -> Result<Vec<Node>, InvalidChannel> {
        let mut installed: Vec<usize> = (0..self.request.installed.len()).collect();
        installed.retain(|index| requirement.is_met_by(&self.request.installed[*index]));
        installed.sort_by_key(|index| self.request.installed[*index].name());
        let mut candidates: Vec<Node> = installed.into_iter().map(Node::Installed).collect();
        let own = match of {
            Node::Entry(id) => Some(&self.catalogs().catalog_of(id).key),
            Node::Subscription(_) | Node::Installed(_) => None,
        };
        let mut channels: BTreeMap<_, (&CatalogKey, HashSet<EntryId>)> = BTreeMap::new();
        for id in requirement.entries(self.catalogs()) {
            let (entry, catalog) = (self.catalogs().entry(id), self.catalogs().catalog_of(id));
            let catalog_order = preference(catalog, own, self.request.namespace);
            let order = (catalog_order, Reverse(entry.is_default_channel), &*entry.package, &*entry.channel);
            channels.entry(order).or_insert_with(|| (&catalog.key, HashSet::new())).1.insert(id);
        }
        for ((_, _, package, channel), (catalog, met)) in channels {
            // The order of a channel depends on all of its entries.
            let sorted = sort_channel(self.catalogs(), &self.catalogs().channel(catalog, package, channel))?;
            candidates.extend(sorted.into_iter().filter(|id| met.contains(id)).map(Node::Entry));
        }
        Ok(candidates)
    }

    fn add_subscription(&mut self, index: usize, failures: &mut Vec<ResolutionError>) -> Result<(), InvalidChannel> {
        let subscription = &self.request.subscriptions[index];
        let installed = self.installed_of(subscription);
        let entries = match self.find(subscription, installed.is_some()) {
            Ok(entries) => entries,
            Err(missing) => {
                let var = self.variable(Node::Subscription(index));
                self.constraints.push((Constraint::Required(var), Origin::Exists(index)));
                self.constraints.push((Constraint::Forbidden(var), Origin::NoBundles(index, missing)));
                return Ok(());
            }
        };
        let mut channels: BTreeMap<_, Vec<EntryId>> = BTreeMap::new();
        for id in entries {
            let entry = self.catalogs().entry(id);
            channels.entry((Reverse(entry.is_default_channel), &*entry.channel)).or_default().push(id);
        }
        let mut candidates = Vec::new();
        for entries in channels.values() {
            candidates.extend(match &subscription.target {
                // A rollback may select versions that newer ones skip.
                Some(_) => entries.clone(),
                None => sort_channel(self.catalogs(), entries)?,
            });
        }
        let installed = installed.map(|at| (self.variable(Node::Installed(at)), &*self.request.installed[at]));
        match (installed, &subscription.target) {
            (Some((_, bundle)), Some(target)) if bundle.name() == target => candidates.clear(),
            // It may be in several channels.
            (_, Some(_)) => candidates.truncate(1),
            (Some((_, bundle)), None) => candidates.retain(|id| self.catalogs().entry(*id).upgrades(bundle)),
            (None, None) => {}
        }
        // A rollback takes precedence over the range of versions.
        if let Some(versions) = subscription.versions.as_ref().filter(|_| subscription.target.is_none()) {
            let version = |id: &EntryId| self.catalogs().entry(*id).bundle.version();
            candidates.retain(|id| version(id).is_some_and(|version| versions.includes(version)));
        }
        let mut selectable = Vec::new();
        for id in candidates {
            self.add_bundle(Node::Entry(id), failures);
            let var = self.variable(Node::Entry(id));
            if let Some((old, bundle)) = installed {
                self.replaced.insert(var, bundle.name());
                // The package of an installed bundle may be unknown.
                self.constraints.push((Constraint::AtMostOne(vec![var, old]), Origin::Replaces(var, old)));
            }
            selectable.push(var);
        }
        let may_stay = |bundle: &Bundle| subscription.target.as_ref().is_none_or(|target| bundle.name() == target);
        selectable.extend(installed.filter(|(_, bundle)| may_stay(bundle)).map(|(old, _)| old));
        let var = self.variable(Node::Subscription(index));
        self.constraints.push((Constraint::Required(var), Origin::Exists(index)));
        self.constraints.push((Constraint::Requires(var, selectable), Origin::Selects(index)));
        Ok(())
    }

    /// Returns the entries of a Subscription's package and channel.
    fn find(&self, subscription: &Subscription, is_installed: bool) -> Result<Vec<EntryId>, Missing> {
        let Subscription { catalog, package, channel, starting_csv, .. } = subscription;
        if self.catalogs().get(catalog).is_none_or(|catalog| catalog.entries.is_empty()) {
            return Err(Missing::Bundles { catalog: catalog.clone() });
        }
        let mut entries = self.catalogs().package(catalog, package);
        if entries.is_empty() {
            return Err(Missing::Package { package: package.clone() });
        }
        let is_other = |name: &&String| subscription.installed_csv.as_ref() != Some(*name);
        if let Some(name) = subscription.target.as_ref().filter(is_other) {
            // A rollback may select another channel.
            entries.retain(|id| self.catalogs().entry(*id).name() == name);
            let (channel, package) = (channel.clone().unwrap_or_default(), package.clone());
            let missing = Missing::StartingCsv { name: name.clone(), channel, package };
            return if entries.is_empty() { Err(missing) } else { Ok(entries) };
        }
        entries.retain(|id| channel.as_ref().is_none_or(|channel| *channel == self.catalogs().entry(*id).channel));
        let channel = channel.clone().unwrap_or_default();
        if entries.is_empty() {
            return Err(Missing::Channel { channel, package: package.clone() });
        }
        if let Some(name) = starting_csv.as_ref().filter(|_| !is_installed) {
            entries.retain(|id| self.catalogs().entry(*id).name() == name);
            if entries.is_empty() {
                return Err(Missing::StartingCsv { name: name.clone(), channel, package: package.clone() });
            }
        }
        Ok(entries)
    }

    /// Adds the invariants: no two bundles of a namespace provide the same API or come from the same package.
    fn add_invariants(&mut self) {
        let mut by_api: BTreeMap<&Api, Vec<Var>> = BTreeMap::new();
        let mut by_package: BTreeMap<&str, Vec<Var>> = BTreeMap::new();
        for (var, node) in self.nodes.iter().enumerate() {
            let Some(bundle) = self.bundle(*node) else { continue };
            for api in bundle.apis() {
                by_api.entry(api).or_default().push(var);
            }
            for package in bundle.packages() {
                by_package.entry(package).or_default().push(var);
            }
        }
        let apis = by_api.into_iter().map(|(api, all)| (Origin::SameApi(api.clone()), all));
        let packages = by_package.into_iter().map(|(package, all)| (Origin::SamePackage(package.to_owned()), all));
        let several = apis.chain(packages).filter(|(_, all)| all.len() > 1);
        let constraints: Vec<_> = several.map(|(origin, all)| (Constraint::AtMostOne(all), origin)).collect();
        self.constraints.extend(constraints);
    }

    /// Groups the constraints by common variables.
    pub(super) fn components(&self) -> Vec<Component> {
        let mut parents: Vec<Var> = (0..self.nodes.len()).collect();
        fn root(parents: &mut [Var], mut var: Var) -> Var {
            while parents[var] != var {
                parents[var] = parents[parents[var]];
                var = parents[var];
            }
            var
        }
        for (constraint, _) in &self.constraints {
            let mut all = constraint.variables();
            let Some(first) = all.next() else { continue };
            for other in all {
                let (one, other) = (root(&mut parents, first), root(&mut parents, other));
                parents[one.max(other)] = one.min(other);
            }
        }
        let mut components: BTreeMap<Var, Component> = BTreeMap::new();
        for (index, (constraint, origin)) in self.constraints.iter().enumerate() {
            let Some(first) = constraint.variables().next() else { continue };
            let component = components.entry(root(&mut parents, first)).or_default();
            component.constraints.push(index);
            if let Origin::Exists(subscription) = origin {
                component.subscriptions.push(*subscription);
            }
        }
        let mut components: Vec<Component> = components.into_values().collect();
        for component in &mut components {
            // The sort is stable: by name otherwise.
            component.subscriptions.sort_by_key(|index| self.request.subscriptions[*index].installed_csv.is_none());
        }
        components
    }

    pub(super) fn solve(&self, constraints: &[usize], steps: &mut u64) -> Outcome {
        let constraints: Vec<&Constraint> = constraints.iter().map(|index| &self.constraints[*index].0).collect();
        // A component has few of all variables, so they get numbers of their own.
        let mut variables: Vec<Var> = constraints.iter().flat_map(|constraint| constraint.variables()).collect();
        variables.sort_unstable();
        variables.dedup();
        let number = |var: Var| variables.binary_search(&var).expect("each variable is in the list");
        let renumbered: Vec<Constraint> = constraints.iter().map(|constraint| constraint.renumbered(number)).collect();
        match solve(variables.len(), &renumbered, steps) {
            Outcome::Solved(selected) => {
                Outcome::Solved(selected.into_iter().map(|number| variables[number]).collect())
            }
            other => other,
        }
    }

    /// Returns the constraints that require a Subscription to be satisfied.
    pub(super) fn demand(&self, subscription: usize) -> impl Iterator<Item = usize> {
        let is_demand = move |origin: &Origin| matches!(origin, Origin::Exists(index) if *index == subscription);
        (0..self.constraints.len()).filter(move |index| is_demand(&self.constraints[*index].1))
    }

    /// Returns the constraint that keeps the installed bundle of a Subscription.
    fn stay(&mut self, subscription: usize) -> Option<(Constraint, Origin)> {
        let installed = self.installed_of(&self.request.subscriptions[subscription])?;
        let var = self.variable(Node::Installed(installed));
        Some((Constraint::Required(var), Origin::Stays(installed)))
    }

    /// Keeps the installed bundle of a Subscription, and returns the new constraint.
    pub(super) fn keep_installed(&mut self, subscription: usize) -> Option<usize> {
        let constraint = self.stay(subscription)?;
        self.constraints.push(constraint);
        Some(self.constraints.len() - 1)
    }

    pub(super) fn name(&self, subscription: usize) -> &'r str {
        &self.request.subscriptions[subscription].name
    }

    /// Returns the bundle to install for a selected variable.
    pub(super) fn choice(&self, var: Var) -> Option<Choice> {
        let Node::Entry(id) = self.nodes[var] else { return None };
        let (entry, catalog) = (self.catalogs().entry(id), self.catalogs().catalog_of(id));
        let replaces = self.replaced.get(&var).map(|name| (*name).to_owned()).or_else(|| entry.replaces.clone());
        let (channel, name) = (entry.channel.clone(), entry.name().to_owned());
        Some(Choice { catalog: catalog.key.clone(), channel, name, replaces })
    }

    /// Explains why constraints contradict each other.
    pub(super) fn explain(&self, constraints: &[usize], steps: &mut u64) -> Explanation {
        let mut attempts = 0..MAX_ATTEMPTS;
        let mut is_unsatisfiable = |constraints: &[usize]| match self.solve(constraints, steps) {
            _ if attempts.next().is_none() => None,
            Outcome::Unsatisfiable => Some(true),
            Outcome::Solved(_) => Some(false),
            Outcome::TooComplex => None,
        };
        let Some(true) = is_unsatisfiable(constraints) else { return Explanation::TooComplex };
        let mut core = constraints.to_vec();
        let mut size = core.len().div_ceil(2);
        loop {
            let mut at = 0;
            while at < core.len() {
                let mut rest = core.clone();
                rest.drain(at..core.len().min(at + size));
                match is_unsatisfiable(&rest) {
                    Some(true) => core = rest,
                    Some(false) => at += size,
                    None => return Explanation::TooComplex,
                }
            }
            if size == 1 {
                break;
            }
            size = size.div_ceil(2);
        }
        Explanation::Conflict(core.into_iter().map(|index| self.fact(index)).collect())
    }

    fn candidate(&self, var: Var) -> Option<Candidate> {
        let (catalog, channel) = match self.nodes[var] {
            Node::Subscription(_) => return None,
            Node::Installed(_) => (None, String::new()),
            Node::Entry(id) => {
                (Some(self.catalogs().catalog_of(id).key.clone()), self.catalogs().entry(id).channel.clone())
            }
        };
        let name = self.bundle(self.nodes[var])?.name().to_owned();
        Some(Candidate { catalog, namespace: self.request.namespace.to_owned(), channel, name })
    }

    fn fact(&self, index: usize) -> Fact {
        let (constraint, origin) = &self.constraints[index];
        let of = |var: &Var| self.candidate(*var).expect("the variable is that of a bundle");
        let name = |installed: usize| self.request.installed[installed].name().to_owned();
        let subscription = |index: usize| self.name(index).to_owned();
        let all = || match constraint {
            Constraint::Requires(_, all) | Constraint::AtMostOne(all) => all.iter().map(of).collect(),
            Constraint::Required(_) | Constraint::Forbidden(_) => Vec::new(),
        };
        let sorted = || {
            let mut all: Vec<Candidate> = all();
            all.sort();
            all
        };
        match origin {
            Origin::Exists(index) => Fact::Exists { subscription: subscription(*index) },
            Origin::NoBundles(index, missing) => {
                Fact::NoBundles { subscription: subscription(*index), missing: missing.clone() }
            }
            Origin::Selects(index) => Fact::Selects { subscription: subscription(*index), candidates: all() },
            Origin::Unreferenced(installed) => Fact::Unreferenced { name: name(*installed) },
            Origin::Stays(installed) => Fact::Stays { name: name(*installed) },
            Origin::Deprecated(var) => Fact::Deprecated { candidate: of(var) },
            Origin::Invalid(var, error) => Fact::Invalid { candidate: of(var), error: error.clone() },
            Origin::Requires(var, requirement) => {
                Fact::Requires { name: of(var).name, requirement: requirement.clone(), candidates: all() }
            }
            Origin::Replaces(var, old) => Fact::Replaces { candidate: of(var), installed: of(old) },
            Origin::SameApi(api) => Fact::SameApi { api: api.clone(), candidates: sorted() },
            Origin::SamePackage(package) => Fact::SamePackage { package: package.clone(), candidates: sorted() },
        }
    }
}

/// Returns the sort key of a catalog as the source of a bundle's dependencies: its own catalog first, then by priority;
/// catalogs of the namespace before global ones.
fn preference<'c>(
    catalog: &'c Catalog,
    own: Option<&CatalogKey>,
    namespace: &str,
) -> (bool, Reverse<i32>, bool, &'c CatalogKey) {
    let key = &catalog.key;
    (own != Some(key), Reverse(catalog.priority), key.namespace != namespace, key)
}
