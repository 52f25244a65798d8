//! The template function `lookup`.
//!
//! Templates run synchronously. So a chart is rendered with the answers available; lookups without an answer are
//! fetched afterwards, and the chart is rendered again.
//!
//! Lookups use the operator's permissions on behalf of the author of the custom resource. So outside of the release's
//! namespace, values cannot determine the object of a lookup.

use crate::annotation::{NAMESPACE, RELEASE};
use crate::kinds::Kinds;
use flyball::{Context, Kind, ObjectKey, Result};
use flyball_chart::Lookup;
use kube::Resource;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Limit of renderings of a chart, since answers may lead to further lookups.
pub(crate) const ROUNDS: usize = 10;
/// Limit of lookups of a chart.
const MAX_LOOKUPS: usize = 1000;

/// A lookup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
}

/// The objects that lookups find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// All.
    All,
    /// Those that are not part of the release.
    OfOthers,
}

/// The available answers, and the lookups without an answer.
#[derive(Debug)]
pub(crate) struct LookupResults {
    kinds: Arc<Kinds>,
    /// The namespace of the release.
    namespace: String,
    release: String,
    visibility: Visibility,
    known: BTreeMap<Question, Option<Value>>,
    open: RefCell<BTreeSet<Question>>,
}

impl LookupResults {
    /// Creates a lookup without answers.
    pub(crate) fn new(kinds: Arc<Kinds>, namespace: &str, release: &str, visibility: Visibility) -> Self {
        let (namespace, release) = (namespace.to_owned(), release.to_owned());
        Self { kinds, namespace, release, visibility, known: BTreeMap::new(), open: RefCell::default() }
    }

    fn is_visible(&self, object: &Value) -> bool {
        let annotations = &object["metadata"]["annotations"];
        let is_own = annotations[RELEASE] == *self.release && annotations[NAMESPACE] == *self.namespace;
        self.visibility == Visibility::All || !is_own
    }

    /// Fetches the missing answers; returns true if there were any.
    pub(crate) async fn fetch(&mut self, cx: &Context<DynamicObject>) -> Result<bool> {
        let open = self.open.take();
        let is_incomplete = !open.is_empty();
        for question in open {
            let Some(kind) = self.kinds.readable(&question.api_version, &question.kind) else { continue };
            let namespace = Some(question.namespace.as_str()).filter(|name| !name.is_empty() && kind.is_namespaced());
            let answer = match question.name.as_str() {
                name if self.kinds.is_named(&question.api_version, &question.kind) => {
                    named(cx, kind, namespace, name).await?
                }
                "" => {
                    let found = cx.dynamic(kind).list(namespace).await?;
                    let mut items = found.into_iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>()?;
                    items.retain(|item| self.is_visible(item));
                    let name = format!("{}List", question.kind);
                    Some(json!({"apiVersion": question.api_version, "kind": name, "metadata": {}, "items": items}))
                }
                name => {
                    let found = cx.dynamic(kind).get(&ObjectKey::new(namespace, name)).await?;
                    found.map(serde_json::to_value).transpose()?
                }
            };
            let answer = answer.filter(|answer| self.is_visible(answer));
            self.known.insert(question, answer);
        }
        Ok(is_incomplete)
    }
}

impl Lookup for LookupResults {
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

/// Reads an object of a kind that the operator may only read by name.
async fn named(cx: &Context<DynamicObject>, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<Value>> {
    let path = format!("{}/{name}", DynamicObject::url_path(&kind.api_resource(), namespace));
    let request = http::Request::get(path).body(Vec::new())?;
    match cx.client().request::<Value>(request).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl LookupResults {
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
                "lookup of {} of {}: the operator has no permission for this kind: write API version and kind literally into the call of \
                 lookup, then reinstall the operator's manifests and restart it",
                question.kind, question.api_version
            ));
        };
        let is_inside = kind.is_namespaced() && !self.namespace.is_empty() && question.namespace == self.namespace;
        let is_named = !question.name.is_empty() && (!kind.is_namespaced() || !question.namespace.is_empty());
        if !(is_inside || is_literal && is_named) {
            return Err(format!(
                "lookup of {} {:?} in namespace {:?}: outside of the release's namespace {:?}, all arguments of lookup must be string \
                 literals in a template of the chart",
                question.kind, question.name, question.namespace, self.namespace
            ));
        }
        if self.kinds.is_named(&question.api_version, &question.kind) && !is_literal {
            return Err(format!(
                "the operator may look up {} only by names that the chart contains literally",
                question.kind
            ));
        }
        if let Some(answer) = self.known.get(&question) {
            return Ok(answer.clone());
        }
        let mut open = self.open.borrow_mut();
        if self.known.len() + open.len() >= MAX_LOOKUPS {
            return Err(format!("the chart makes more than {MAX_LOOKUPS} lookups"));
        }
        open.insert(question);
        Ok(None)
    }
}
