//! The template function `lookup`.
//!
//! Templates run synchronously. So a chart is rendered with the answers available; lookups without an answer are
//! fetched afterwards, and the chart is rendered again.
//!
//! Lookups use the operator's permissions on behalf of the author of the custom resource. So outside of the release's
//! namespace, values cannot determine the object of a lookup.

use crate::annotation::{NAMESPACE, RELEASE};
use crate::digest::sha256;
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
pub(crate) const MAX_RENDERINGS: usize = 10;
/// Limit of lookups of a chart.
const MAX_LOOKUPS: usize = 1000;

/// A lookup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LookupKey {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
}

/// The objects that lookups find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// All objects.
    All,
    /// Objects that are not part of the release.
    OfOthers,
}

/// The lookups of a rendering, with the digest of their results.
#[derive(Clone, Debug)]
pub(crate) struct Lookups {
    keys: BTreeSet<LookupKey>,
    visibility: Visibility,
    digest: String,
}

impl Lookups {
    /// Returns the number of bytes of the arguments, which values may determine.
    pub(crate) fn size(&self) -> usize {
        let size = |LookupKey { api_version, kind, namespace, name }: &LookupKey| {
            api_version.len() + kind.len() + namespace.len() + name.len()
        };
        self.keys.iter().map(size).sum()
    }

    /// Creates a lookup of an object with this name.
    #[cfg(test)]
    pub(crate) fn of_name(name: String) -> Self {
        let key = LookupKey { api_version: String::new(), kind: String::new(), namespace: String::new(), name };
        Self { keys: [key].into(), visibility: Visibility::All, digest: String::new() }
    }

    /// Returns true if they still have the same results, so that the chart renders the same.
    pub(crate) async fn are_current(
        &self,
        cx: &Context<DynamicObject>,
        kinds: &Arc<Kinds>,
        namespace: &str,
        release: &str,
    ) -> Result<bool> {
        let mut results = LookupResults::new(Arc::clone(kinds), namespace, release, self.visibility);
        results.missing = RefCell::new(self.keys.clone());
        results.fetch(cx).await?;
        Ok(results.digest() == self.digest)
    }
}

/// The available answers, and the lookups without an answer.
#[derive(Debug)]
pub(crate) struct LookupResults {
    kinds: Arc<Kinds>,
    /// The namespace of the release.
    namespace: String,
    release: String,
    visibility: Visibility,
    results: BTreeMap<LookupKey, Option<Value>>,
    missing: RefCell<BTreeSet<LookupKey>>,
}

impl LookupResults {
    /// Creates a lookup without answers.
    pub(crate) fn new(kinds: Arc<Kinds>, namespace: &str, release: &str, visibility: Visibility) -> Self {
        let (namespace, release) = (namespace.to_owned(), release.to_owned());
        Self { kinds, namespace, release, visibility, results: BTreeMap::new(), missing: RefCell::default() }
    }

    fn is_visible(&self, object: &Value) -> bool {
        let annotations = &object["metadata"]["annotations"];
        let is_own = annotations[RELEASE] == *self.release && annotations[NAMESPACE] == *self.namespace;
        self.visibility == Visibility::All || !is_own
    }

    /// Returns the lookups with a result.
    pub(crate) fn lookups(&self) -> Lookups {
        let keys = self.results.keys().cloned().collect();
        Lookups { keys, visibility: self.visibility, digest: self.digest() }
    }

    fn digest(&self) -> String {
        let results: Vec<String> =
            self.results.values().map(|result| result.as_ref().map(Value::to_string).unwrap_or_default()).collect();
        sha256(&results.iter().map(String::as_bytes).collect::<Vec<_>>())
    }

    /// Fetches the missing answers; returns true if there were any.
    pub(crate) async fn fetch(&mut self, cx: &Context<DynamicObject>) -> Result<bool> {
        let missing = self.missing.take();
        let is_incomplete = !missing.is_empty();
        for key in missing {
            let Some(kind) = self.kinds.readable(&key.api_version, &key.kind) else { continue };
            let namespace = Some(key.namespace.as_str()).filter(|name| !name.is_empty() && kind.is_namespaced());
            let result = match key.name.as_str() {
                name if self.kinds.is_named(&key.api_version, &key.kind) => named(cx, kind, namespace, name).await?,
                "" => {
                    let found = cx.dynamic(kind).list(namespace).await?;
                    let mut items = found.into_iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>()?;
                    items.retain(|item| self.is_visible(item));
                    let name = format!("{}List", key.kind);
                    Some(json!({"apiVersion": key.api_version, "kind": name, "metadata": {}, "items": items}))
                }
                name => {
                    let found = cx.dynamic(kind).get(&ObjectKey::new(namespace, name)).await?;
                    found.map(serde_json::to_value).transpose()?
                }
            };
            let result = result.filter(|result| self.is_visible(result));
            self.results.insert(key, result);
        }
        Ok(is_incomplete)
    }
}

impl Lookup for LookupResults {
    fn lookup(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        self.find(api_version, kind, namespace, name, false)
    }

    fn lookup_literal(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, String> {
        self.find(api_version, kind, namespace, name, true)
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
    fn find(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        is_literal: bool,
    ) -> Result<Option<Value>, String> {
        let [api_version, kind, namespace, name] = [api_version, kind, namespace, name].map(str::to_owned);
        let key = LookupKey { api_version, kind, namespace, name };
        let Some(kind) = self.kinds.readable(&key.api_version, &key.kind) else {
            return Err(format!(
                "lookup of {} of {}: the operator has no permission for this kind: write API version and kind literally into the call of \
                 lookup, then reinstall the operator's manifests and restart it",
                key.kind, key.api_version
            ));
        };
        let is_in_namespace = kind.is_namespaced() && !self.namespace.is_empty() && key.namespace == self.namespace;
        let is_named = !key.name.is_empty() && (!kind.is_namespaced() || !key.namespace.is_empty());
        if !(is_in_namespace || is_literal && is_named) {
            return Err(format!(
                "lookup of {} {:?} in namespace {:?}: outside of the release's namespace {:?}, all arguments of lookup must be string \
                 literals in a template of the chart",
                key.kind, key.name, key.namespace, self.namespace
            ));
        }
        if self.kinds.is_named(&key.api_version, &key.kind) && !is_literal {
            return Err(format!(
                "the operator may look up {} only by names that the chart contains literally",
                key.kind
            ));
        }
        if let Some(result) = self.results.get(&key) {
            return Ok(result.clone());
        }
        let mut missing = self.missing.borrow_mut();
        if self.results.len() + missing.len() >= MAX_LOOKUPS {
            return Err(format!("the chart makes more than {MAX_LOOKUPS} lookups"));
        }
        missing.insert(key);
        Ok(None)
    }
}
