//! The investigation: reads the object, its owners and the ledgers, and builds the answer.

use super::answer::{Answer, Field, Question, Source, StepKind};
use super::chain::{self, Moment};
use super::claims::{self, Recorded};
use super::fields::{self, Segment};
use super::operators::{Operator, OperatorArgs, Operators};
use super::page::{Object, ObjectPage, Reconcile, time};
use super::reasons::{Reasons, waits};
use crate::cluster::kinds::{Kind, Kinds};
use crate::error::{Error, Result, ResultExt};
use flyball_console::hide_values;
use flyball_console::{Claimant, LoggedWrite, WriteTarget, logged_writes};
use flyball_core::Clock;
use flyball_core::time::{Timestamp, parse_rfc3339};
use http::Request;
use kube::Client;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

/// Limit of the steps of a chain.
const MAX_STEPS: usize = 32;

/// The findings while a chain is followed.
struct Investigation<'a> {
    client: &'a Client,
    kinds: &'a Kinds,
    operators: Operators,
    answer: Answer,
    visited: BTreeSet<(Object, Option<String>)>,
}

/// Answers a question about an object.
///
/// # Errors
///
/// If the object cannot be read, or the path of a field is invalid.
pub(crate) async fn investigate(
    client: &Client,
    kinds: &Kinds,
    (kind, namespace, name): (&Kind, &str, &str),
    args: &OperatorArgs,
    question: &Question,
) -> Result<Answer> {
    let path = match question {
        Question::Field(path) => Some(fields::parse(path)?),
        Question::Object | Question::Not => None,
    };
    let live = get(client, &kind.path(kind.namespaced.then_some(namespace), Some(name))).await;
    let live = live.context(format!("cannot read {} {name}", kind.kind))?;
    let operators = Operators::find(client, args).await?;
    let (now, object) = (Clock::system().now(), Object::of(&live));
    let (state, since) = state(&live);
    let sources: Vec<Source> = operators.sources.clone();
    let (chain, waits, reasons, excluded) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let field = None;
    let answer = Answer { object, state, since, field, chain, waits, reasons, excluded, sources, now };
    let mut investigation = Investigation { client, kinds, operators, answer, visited: BTreeSet::new() };
    match question {
        Question::Not => investigation.explain_inaction(&live).await,
        Question::Object => {
            investigation.follow(live.clone(), Moment::default(), None).await;
            investigation.explain_state(&live).await;
        }
        Question::Field(text) => {
            let path = path.unwrap_or_default();
            investigation.answer.field = Some(field_of(&live, text, &path));
            investigation.follow(live, Moment::default(), Some(&path)).await;
        }
    }
    Ok(investigation.answer)
}

async fn get(client: &Client, path: &str) -> kube::Result<Value> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    let mut object = client.request(request).await?;
    if fields::is_secret(&object) {
        hide_values(&mut object);
    }
    Ok(object)
}

fn field_of(live: &Value, text: &str, path: &[Segment]) -> Field {
    let value = fields::value(live, path).clone();
    let managers = fields::managers(live, Some(path)).into_iter().map(|manager| manager.name);
    Field { path: text.to_owned(), value, managers: managers.collect() }
}

/// Returns the state of an object in a word or two, and since when it has it.
fn state(live: &Value) -> (String, Option<Timestamp>) {
    let at = |value: &Value| value.as_str().and_then(parse_rfc3339);
    let created = at(&live["metadata"]["creationTimestamp"]);
    if live["metadata"]["deletionTimestamp"].is_string() {
        return ("being deleted".to_owned(), at(&live["metadata"]["deletionTimestamp"]));
    }
    if let Some(phase) = live["status"]["phase"].as_str() {
        let started = at(&live["status"]["startTime"]).filter(|_| phase == "Running");
        return (phase.to_owned(), started.or(created));
    }
    let conditions = live["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let decisive = conditions.iter().find(|condition| condition["type"] == "Ready" || condition["type"] == "Available");
    match decisive {
        Some(condition) => {
            let name = condition["type"].as_str().unwrap_or_default().to_lowercase();
            let state = if condition["status"] == "True" { name } else { format!("not {name}") };
            (state, at(&condition["lastTransitionTime"]))
        }
        None => (String::new(), created),
    }
}

impl Investigation<'_> {
    /// Follows the chain of causes from a moment of an object.
    async fn follow(&mut self, mut live: Value, mut moment: Moment, path: Option<&[Segment]>) {
        let mut path = path;
        while self.answer.chain.len() < MAX_STEPS {
            let object = Object::of(&live);
            if !self.visited.insert((object.clone(), moment.version.clone())) {
                return;
            }
            let reconciles = self.operators.reconciles(&object).await;
            let (facts, claims) = self.separate_claims(reconciles, &live, &object).await;
            let next = match chain::write_of(&facts, &object, &moment, path) {
                Some((recorded, write)) => {
                    self.answer.chain.push(chain::write(recorded, write));
                    self.cause(recorded).await
                }
                None => {
                    self.add_claim(&claims, &object, &moment, path);
                    self.without_ledger(&live, &object, &moment, path).await
                }
            };
            let Some((next, at)) = next else { return };
            (live, moment, path) = (next, at, None);
        }
    }

    /// Adds the cause of a reconcile, and returns the object to continue with.
    async fn cause(&mut self, recorded: &Recorded) -> Option<(Value, Moment)> {
        let reconcile = &recorded.reconcile;
        let cause = chain::main_cause(reconcile)?;
        self.answer.chain.push(chain::caused_by(recorded, cause));
        let before = time(&reconcile.began);
        if cause.kind == "change" {
            let live = self.read(&cause.object).await?;
            return Some((live, Moment { version: cause.after.clone(), before }));
        }
        // A retry or a timer continues an earlier reconcile of the same object, whose spec is the origin.
        let live = self.read(&reconcile.object).await?;
        Some((live, Moment { version: None, before }))
    }

    /// Separates reconciles that count as facts from claims.
    async fn separate_claims(
        &self,
        all: Vec<Recorded>,
        live: &Value,
        object: &Object,
    ) -> (Vec<Recorded>, Vec<Recorded>) {
        if all.iter().all(|recorded| recorded.claimant.is_none()) {
            return (all, Vec::new());
        }
        let (managers, log) = (fields::managers(live, None), self.logged_writes(object).await);
        let mut allowed: BTreeMap<(Claimant, String), bool> = BTreeMap::new();
        let (mut facts, mut claims) = (Vec::new(), Vec::new());
        for mut recorded in all {
            let Some(claimant) = recorded.claimant.clone() else {
                facts.push(recorded);
                continue;
            };
            let (mut confirmed, mut others) = (Vec::new(), Vec::new());
            for write in take(&mut recorded.reconcile.writes) {
                let is_possible = write.object.is_same(object)
                    && claims::is_confirmed(&recorded, &claimant, &write, &managers, log.as_deref());
                let key = (claimant.clone(), write.subresource.clone());
                let is_fact = is_possible
                    && match allowed.get(&key) {
                        Some(known) => *known,
                        None => {
                            let may = self.may_write(&claimant, object, &write.subresource).await;
                            *allowed.entry(key).or_insert(may)
                        }
                    };
                if is_fact { confirmed.push(write) } else { others.push(write) }
            }
            // One confirmed write proves nothing about the others.
            if !confirmed.is_empty() {
                let reconcile = Reconcile { writes: confirmed, ..recorded.reconcile.clone() };
                facts.push(Recorded { reconcile, ..recorded.clone() });
            }
            recorded.reconcile.writes = others;
            claims.push(recorded);
        }
        (facts, claims)
    }

    async fn may_write(&self, claimant: &Claimant, object: &Object, subresource: &str) -> bool {
        match self.kinds.of(&object.api_version(), &object.kind) {
            Some(kind) => {
                let (group, version, plural) = (&object.group, &object.version, &kind.plural);
                let (namespace, name) = (object.namespace.as_deref().unwrap_or_default(), &object.name);
                let target = WriteTarget { group, version, plural, subresource, namespace, name };
                claimant.may_write(self.client, &target).await
            }
            None => false,
        }
    }

    /// Adds what an operator without proof says about a write and its cause.
    fn add_claim(&mut self, claims: &[Recorded], object: &Object, moment: &Moment, path: Option<&[Segment]>) {
        let Some((recorded, write)) = chain::write_of(claims, object, moment, path) else { return };
        let cause = chain::main_cause(&recorded.reconcile).map(|cause| chain::caused_by(recorded, cause));
        for mut step in std::iter::once(chain::write(recorded, write)).chain(cause) {
            step.claimed_by = recorded.claimant.as_ref().map(|claimant| claimant.deployment.clone());
            self.answer.chain.push(step);
        }
    }

    /// Returns the Deployment of an operator whose page about an object is a claim.
    async fn claimed_by(&self, operator: &Operator, live: &Value, object: &Object) -> Option<String> {
        let claimant = operator.claimant()?;
        let manages = claims::manages(&operator.overview.operator, &fields::managers(live, None));
        let may_write =
            async || self.may_write(claimant, object, "").await || self.may_write(claimant, object, "status").await;
        let is_witness = manages && may_write().await;
        (!is_witness).then(|| claimant.deployment.clone())
    }

    /// Adds the manager of an object, and returns its owner unless the manager acts for no owner.
    async fn without_ledger(
        &mut self,
        live: &Value,
        object: &Object,
        moment: &Moment,
        path: Option<&[Segment]>,
    ) -> Option<(Value, Moment)> {
        let managers = fields::managers(live, path);
        let manager = match path {
            Some(_) => managers.first(),
            None => chain::manager_of(&managers, moment),
        };
        let owners = live["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        // A person who edits a child acts for no owner.
        let is_person = manager.is_some_and(|manager| manager.name.starts_with("kubectl"));
        let owner = owners.iter().find(|owner| owner["controller"] == true).or_else(|| owners.first());
        let owner = owner.filter(|_| !is_person);
        let kind = if owner.is_some() { StepKind::Write } else { StepKind::Origin };
        let writes = self.logged_writes(object).await.unwrap_or_default();
        let step = match chain::logged_write(&writes, manager, moment) {
            Some(write) => Some(chain::logged(object, write, kind)),
            None => manager.map(|manager| chain::managed(object, manager, kind)),
        };
        let at = step.as_ref().and_then(|step| step.time);
        self.answer.chain.extend(step);
        let owner = owner?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = text(&owner["apiVersion"]);
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
        let owner = Object {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text(&owner["kind"]),
            namespace: object.namespace.clone(),
            name: text(&owner["name"]),
        };
        self.answer.chain.push(chain::owned_by(&owner));
        let live = self.read(&owner).await?;
        Some((live, Moment { version: None, before: at.or(moment.before) }))
    }

    /// Returns the writes of an object with their users, newest first. Embedded control planes keep them, for
    /// administrators; `None` on other clusters.
    async fn logged_writes(&self, object: &Object) -> Option<Vec<LoggedWrite>> {
        let kind = self.kinds.of(&object.api_version(), &object.kind)?;
        let place = (object.namespace.as_deref().unwrap_or_default(), object.name.as_str());
        logged_writes(self.client, (&object.group, &kind.plural), place).await
    }

    /// Reads an object; one that was deleted, or may not be read, ends the chain.
    async fn read(&self, object: &Object) -> Option<Value> {
        let kind = self.kinds.of(&object.api_version(), &object.kind)?;
        let path = kind.path(object.namespace.as_deref(), Some(&object.name));
        let mut live = get(self.client, &path).await.ok()?;
        kind.set_type(&mut live);
        Some(live)
    }

    /// Adds what an object waits for, and when it is reconciled next.
    async fn explain_state(&mut self, live: &Value) {
        let events = self.events(live).await;
        self.answer.waits = waits(live, &events);
        let mut reasons = Reasons::new(self.answer.now);
        let target = self.answer.object.clone();
        let states = self.operators.states(&target).await;
        self.explain_with(&mut reasons, &states, &target, live).await;
        self.answer.reasons = reasons.found;
        self.answer.excluded = reasons.excluded;
    }

    /// Adds the reasons why nothing happens.
    async fn explain_inaction(&mut self, live: &Value) {
        let events = self.events(live).await;
        self.answer.waits = waits(live, &events);
        let mut reasons = Reasons::new(self.answer.now);
        reasons.of_object(live);
        let target = self.answer.object.clone();
        let states = self.operators.states(&target).await;
        self.explain_with(&mut reasons, &states, &target, live).await;
        let is_fact = |operator: &&Operator| operator.claimant().is_none();
        let is_reconciled = states.iter().any(|(of, page)| is_fact(of) && !page.controllers.is_empty());
        let names: Vec<&str> =
            self.operators.reached.iter().filter(is_fact).map(|of| of.overview.operator.as_str()).collect();
        if !is_reconciled && !names.is_empty() {
            reasons.excluded.push(format!("{} do not reconcile this kind", names.join(", ")));
        }
        self.answer.reasons = reasons.found;
        self.answer.excluded = reasons.excluded;
    }

    /// Adds what the operators say about an object that they reconcile.
    async fn explain_with(
        &self,
        reasons: &mut Reasons,
        states: &[(&Operator, ObjectPage)],
        target: &Object,
        live: &Value,
    ) {
        for (operator, page) in states.iter().filter(|(_, page)| !page.controllers.is_empty()) {
            reasons.claimed_by = self.claimed_by(operator, live, target).await;
            reasons.of_operator(operator, page, target, live);
        }
    }

    /// Reads the events about an object. Without permission there are none.
    async fn events(&self, live: &Value) -> Vec<Value> {
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        let namespace = live["metadata"]["namespace"].as_str().unwrap_or("default");
        let path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.uid%3D{uid}");
        let mut list = get(self.client, &path).await.unwrap_or_default();
        match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }
}

/// Parses `KIND/NAME`, or `KIND` and `NAME`, and an optional field.
///
/// # Errors
///
/// If the words do not name an object.
pub(crate) fn parse_target(words: &[String]) -> Result<(String, String, Option<String>)> {
    let wrong = || {
        Error::usage(format!("{:?} does not name an object", words.join(" ")))
            .hint("use kind/name, such as deployment/web, and for a field its path: deployment/web spec.replicas")
    };
    let (kind, name, rest) = match words {
        [object, rest @ ..] if object.contains('/') => {
            let (kind, name) = object.split_once('/').ok_or_else(wrong)?;
            (kind, name, rest)
        }
        [kind, name, rest @ ..] => (kind.as_str(), name.as_str(), rest),
        _ => return Err(wrong()),
    };
    if kind.is_empty() || name.is_empty() || name.contains('/') || rest.len() > 1 {
        return Err(wrong());
    }
    Ok((kind.to_owned(), name.to_owned(), rest.first().cloned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_fields_are_parsed() {
        let parse = |words: &[&str]| parse_target(&words.iter().map(ToString::to_string).collect::<Vec<_>>()).ok();
        let target = |field: Option<&str>| Some(("pod".to_owned(), "a".to_owned(), field.map(str::to_owned)));
        assert_eq!((parse(&["pod/a"]), parse(&["pod", "a"])), (target(None), target(None)));
        assert_eq!(parse(&["pod/a", "spec.nodeName"]), target(Some("spec.nodeName")));
        assert_eq!(parse(&["pod", "a", "spec.nodeName"]), target(Some("spec.nodeName")));
        for bad in [&["pod"][..], &["/a"], &["pod/"], &["a/b/c"], &["pod", "a", "b", "c"]] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
