//! What templates look up in the cluster.
//!
//! Templates run without waiting for anything. So a chart is rendered with the answers that are known; if it asked for more, these are
//! fetched, and it is rendered again.

use super::kinds::Kinds;
use crate::Lookup;
use flyball::{Context, ObjectKey, Result};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// How often a chart is rendered at most, since answers may lead to further questions.
pub(super) const ROUNDS: usize = 10;
/// How many questions a chart may ask.
const MOST: usize = 1000;

/// What is looked up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
}

/// The answers that are known, and the questions that have none yet.
#[derive(Debug)]
pub(super) struct Answers<'a> {
    kinds: &'a Kinds,
    known: BTreeMap<Question, Option<Value>>,
    open: RefCell<BTreeSet<Question>>,
}

impl<'a> Answers<'a> {
    /// Knows no answers.
    pub(super) fn new(kinds: &'a Kinds) -> Self {
        Self { kinds, known: BTreeMap::new(), open: RefCell::default() }
    }

    /// Fetches the answers that were asked for; tells whether there were any.
    pub(super) async fn fetch(&mut self, cx: &Context<DynamicObject>) -> Result<bool> {
        let open = self.open.take();
        let asked = !open.is_empty();
        for question in open {
            let Some(kind) = self.kinds.readable(&question.api_version, &question.kind) else { continue };
            let namespace = Some(question.namespace.as_str()).filter(|name| !name.is_empty() && kind.is_namespaced());
            let answer = match question.name.as_str() {
                "" => {
                    let found = cx.list_of(kind, namespace).await?;
                    let items = found.into_iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>()?;
                    let name = format!("{}List", question.kind);
                    Some(json!({"apiVersion": question.api_version, "kind": name, "metadata": {}, "items": items}))
                }
                name => {
                    let found = cx.get_of(kind, &ObjectKey::new(namespace, name)).await?;
                    found.map(serde_json::to_value).transpose()?
                }
            };
            self.known.insert(question, answer);
        }
        Ok(asked)
    }
}

impl Lookup for Answers<'_> {
    fn lookup(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        let [api_version, kind, namespace, name] = [api_version, kind, namespace, name].map(str::to_owned);
        let question = Question { api_version, kind, namespace, name };
        if let Some(answer) = self.known.get(&question) {
            return Ok(answer.clone());
        }
        if self.kinds.readable(&question.api_version, &question.kind).is_none() {
            return Err(format!(
                "the operator was not started for looking up {} of {}: write both words literally into the call of lookup, then install \
                 the operator's manifests anew and restart it",
                question.kind, question.api_version
            ));
        }
        let mut open = self.open.borrow_mut();
        if self.known.len() + open.len() >= MOST {
            return Err(format!("the chart looks up more than {MOST} objects"));
        }
        open.insert(question);
        Ok(None)
    }
}
