//! Lookups of templates in the cluster.
//!
//! Templates run without waiting for anything. So a chart is rendered with the answers that are known; if it asked for
//! more, these are fetched, and it is rendered again.
//!
//! Templates look things up with the operator's rights, on behalf of whoever writes the custom resource. So outside of
//! its namespace, values have no say in what is looked up.

use crate::kinds::Kinds;
use flyball::{Context, Kind, ObjectKey, Result};
use flyball_chart::Lookup;
use kube::Resource;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Renderings of a chart, since answers may lead to further lookups.
pub(crate) const ROUNDS: usize = 10;
/// Lookups of a chart.
const MAX_LOOKUPS: usize = 1000;

/// A lookup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
}

/// The answers that are known, and the questions that have none yet.
#[derive(Debug)]
pub(crate) struct Answers {
    kinds: Arc<Kinds>,
    /// That of the release.
    namespace: String,
    known: BTreeMap<Question, Option<Value>>,
    open: RefCell<BTreeSet<Question>>,
}

impl Answers {
    /// Creates a lookup without answers.
    pub(crate) fn new(kinds: Arc<Kinds>, namespace: &str) -> Self {
        Self { kinds, namespace: namespace.to_owned(), known: BTreeMap::new(), open: RefCell::default() }
    }

    /// Fetches the answers that were asked for; returns whether there were any.
    pub(crate) async fn fetch(&mut self, cx: &Context<DynamicObject>) -> Result<bool> {
        let open = self.open.take();
        let asked = !open.is_empty();
        for question in open {
            let Some(kind) = self.kinds.readable(&question.api_version, &question.kind) else { continue };
            let namespace = Some(question.namespace.as_str()).filter(|name| !name.is_empty() && kind.is_namespaced());
            let answer = match question.name.as_str() {
                name if self.kinds.is_named(&question.api_version, &question.kind) => {
                    named(cx, kind, namespace, name).await?
                }
                "" => {
                    let found = cx.dynamic(kind).list(namespace).await?;
                    let items = found.into_iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>()?;
                    let name = format!("{}List", question.kind);
                    Some(json!({"apiVersion": question.api_version, "kind": name, "metadata": {}, "items": items}))
                }
                name => {
                    let found = cx.dynamic(kind).get(&ObjectKey::new(namespace, name)).await?;
                    found.map(serde_json::to_value).transpose()?
                }
            };
            self.known.insert(question, answer);
        }
        Ok(asked)
    }
}

impl Lookup for Answers {
    fn lookup(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        self.answer(api_version, kind, namespace, name, false)
    }

    fn lookup_literal(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, String> {
        self.answer(api_version, kind, namespace, name, true)
    }
}

/// Reads an object that the operator may read by its name only.
async fn named(cx: &Context<DynamicObject>, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<Value>> {
    let path = format!("{}/{name}", DynamicObject::url_path(&kind.api_resource(), namespace));
    let request = http::Request::get(path).body(Vec::new())?;
    match cx.client().request::<Value>(request).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Answers {
    fn answer(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        is_literal: bool,
    ) -> Result<Option<Value>, String> {
        let [api_version, kind, namespace, name] = [api_version, kind, namespace, name].map(str::to_owned);
        let question = Question { api_version, kind, namespace, name };
        let Some(kind) = self.kinds.readable(&question.api_version, &question.kind) else {
            return Err(format!(
                "the operator was not started for looking up {} of {}: write both words literally into the call of lookup, then install \
                 the operator's manifests anew and restart it",
                question.kind, question.api_version
            ));
        };
        let is_inside = kind.is_namespaced() && !self.namespace.is_empty() && question.namespace == self.namespace;
        let is_named = !question.name.is_empty() && (!kind.is_namespaced() || !question.namespace.is_empty());
        if !(is_inside || is_literal && is_named) {
            return Err(format!(
                "{} {:?} in namespace {:?} is not looked up: outside of the release's namespace {:?}, all that is looked up must be named by \
                 texts that stand in the call of lookup, in a template of the chart",
                question.kind, question.name, question.namespace, self.namespace
            ));
        }
        if self.kinds.is_named(&question.api_version, &question.kind) && !is_literal {
            return Err(format!(
                "the operator may look up {} by the names only that stand in the chart",
                question.kind
            ));
        }
        if let Some(answer) = self.known.get(&question) {
            return Ok(answer.clone());
        }
        let mut open = self.open.borrow_mut();
        if self.known.len() + open.len() >= MAX_LOOKUPS {
            return Err(format!("the chart looks up more than {MAX_LOOKUPS} objects"));
        }
        open.insert(question);
        Ok(None)
    }
}
