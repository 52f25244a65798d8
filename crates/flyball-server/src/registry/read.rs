//! Reads of stored objects by name, selector and revision.

use super::Registry;
use crate::catalog::Resource;
use crate::request::options::{ListOptions, VersionMatch};
use crate::storage::{self, Entry, PendingEntries, Revision, Snapshot};
use crate::webhook::ConversionMemory;
use flyball_core::selector::{Demand, Demands};
use flyball_core::status::{Cause, Details, Reason};
use flyball_core::{FieldSelector, LabelSelector, ObjectKey, Status};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The parameters of a list.
#[derive(Debug)]
pub(crate) struct ListResult {
    pub(crate) revision: Revision,
    pub(crate) entries: Vec<Arc<Entry>>,
    /// The continue token of the next page, if there is one.
    pub(crate) next: Option<Page>,
    /// The number of objects on the next pages, where that is known.
    pub(crate) remaining: Option<usize>,
    /// The memory of entries that a webhook converted, which is held until they are sent.
    pub(crate) memory: Option<ConversionMemory>,
    /// Takes the entries while they are sent.
    pub(crate) pending: PendingEntries,
}

/// The beginning of a page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Revision of the first page.
    pub(crate) revision: Revision,
    /// Key of the last object of the page before.
    pub(crate) after: String,
}

impl Page {
    /// Reads a continue token.
    pub(crate) fn parse(token: &str) -> Result<Self, Status> {
        use base64::Engine;
        let bad =
            |why: String| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token).map_err(|error| {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                base64::DecodeError::InvalidLength(at) => at.saturating_sub(1),
                base64::DecodeError::InvalidPadding => token.len(),
            };
            bad(format!("illegal base64 data at input byte {at}"))
        })?;
        let value: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|_| bad(crate::request::json_error(&bytes)))?;
        let version = value["v"].as_str().unwrap_or_default();
        if version != "meta.k8s.io/v1" {
            return Err(bad(format!("server does not recognize this encoded version {version}")));
        }
        let Some(revision) = value["rv"].as_u64().filter(|revision| *revision > 0) else {
            return Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)".into()));
        };
        let after = value["start"].as_str().unwrap_or_default();
        let key = after.strip_prefix('/').unwrap_or(after);
        match () {
            () if after.is_empty() => Err(bad("encoded start key empty (version meta.k8s.io/v1)".into())),
            // As a path that leads elsewhere than it seems.
            () if !key.is_empty() && key.split('/').any(|part| matches!(part, "" | "." | "..")) => {
                Err(bad(after.to_owned()))
            }
            () => Ok(Self { revision, after: after.to_owned() }),
        }
    }

    /// Writes a continue token.
    pub(crate) fn token(&self) -> String {
        use base64::Engine;
        let value = serde_json::json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": self.after});
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string())
    }
}

/// Reads a resource version as the number of a revision.
pub(crate) fn parse_version(text: &str) -> Result<Option<Revision>, String> {
    let quoted = || flyball_core::field::go_quote(text);
    match text {
        "" => Ok(None),
        text => {
            parse_number(text).map(Some).map_err(|why| format!("resourceVersion: Invalid value: {}: {why}", quoted()))
        }
    }
}

/// Reads the number of a revision.
pub(super) fn parse_number(text: &str) -> Result<Revision, String> {
    let quoted = || flyball_core::field::go_quote(text);
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing {}: invalid syntax", quoted()))
}

/// Creates the error (504) for a resource version that has not been reached.
pub(crate) fn too_large(requested: Revision, current: Revision) -> Status {
    let cause = Cause {
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        field: String::new(),
    };
    let details = Details { causes: vec![cause], retry_after_seconds: 1, ..Details::default() };
    Status::new(504, Reason::Timeout, format!("Timeout: Too large resource version: {requested}, current: {current}"))
        .with_details(details)
}

/// The compiled selectors of a list or a watch.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    labels: Demands,
    fields: BTreeMap<Field, Demand>,
}

/// A field that objects are selected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Field {
    Name,
    Namespace,
    /// By its place among the facts.
    Fact(usize),
}

impl Selection {
    /// Checks that the resource can be selected so.
    pub(crate) fn new(resource: &Resource, labels: &LabelSelector, fields: &FieldSelector) -> Result<Self, Status> {
        let selectable = resource.selectable();
        let mut selection = Self { labels: labels.into(), fields: BTreeMap::new() };
        for term in &fields.terms {
            let at = selectable.iter().position(|known| *known == term.field);
            let field = match (&*term.field, at) {
                ("metadata.name", _) => Field::Name,
                ("metadata.namespace", _) => Field::Namespace,
                (_, Some(at)) => Field::Fact(at),
                (unknown, None) if resource.lists_fields() => {
                    let message = format!(
                        "{unknown:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    );
                    return Err(Status::bad_request(message));
                }
                (unknown, None) => return Err(Status::bad_request(format!("field label not supported: {unknown}"))),
            };
            selection.fields.entry(field).or_default().equal(&term.value, term.negated);
        }
        Ok(selection)
    }

    /// Returns true if every object is selected.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        let value = |field: &Field| match field {
            Field::Name => Some(entry.key.name()),
            Field::Namespace => Some(entry.key.namespace().unwrap_or_default()),
            Field::Fact(at) => entry.facts.fields.get(*at).map(|value| &**value),
        };
        self.fields.iter().all(|(field, demand)| demand.holds(value(field)))
            && self.labels.match_labels(entry.facts.labels.iter().map(|(key, value)| (&**key, &**value)))
    }
}

impl Registry {
    /// Returns an object, or 404.
    pub(crate) fn get(&self, resource: &Resource, key: &ObjectKey) -> Result<Arc<Entry>, Status> {
        self.store.get(&resource.table, key).ok_or_else(|| {
            let mut status = Status::not_found(&resource.group_resource(), key.name());
            if let Some(entry) = self.store.quarantined(&resource.table, key) {
                let why = entry.object().map_or_else(|error| error.to_string(), |_| "it is malformed".into());
                status.message += &format!(": {why}; delete it or create it again");
            }
            status
        })
    }

    /// Waits until a revision has been reached, for as long as kube-apiserver does.
    pub(crate) async fn wait_for(&self, revision: Revision) -> Result<(), Status> {
        // It returns at once if the version has been reached.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(3), self.store.reach(revision)).await;
        self.has_reached(revision)
    }

    /// Returns 504 unless a revision has been reached.
    pub(crate) fn has_reached(&self, revision: Revision) -> Result<(), Status> {
        let current = self.store.revision();
        if current >= revision { Ok(()) } else { Err(too_large(revision, current)) }
    }

    /// Lists objects. The caller waits for a future version before, without a slot.
    pub(crate) fn list(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<ListResult, Status> {
        let selection = Selection::new(resource, &options.labels, &options.fields)?;
        let version = parse_version(&options.resource_version)
            .map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))?;
        let page = match options.continue_token.as_str() {
            "" => None,
            token => Some(Page::parse(token)?),
        };
        if page.is_some() && version.is_some_and(|version| version != 0) {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        let snapshot = match (&page, version.filter(|version| *version != 0)) {
            (Some(page), _) => self.snapshot_at(resource, namespace, page.revision, true)?,
            (None, None) => self.store.list(&resource.table, namespace),
            (None, Some(version)) => {
                self.has_reached(version)?;
                let exact = options.version_match == Some(VersionMatch::Exact)
                    || options.version_match.is_none() && options.limit > 0;
                if exact {
                    self.snapshot_at(resource, namespace, version, false)?
                } else {
                    self.store.list(&resource.table, namespace)
                }
            }
        };
        // Lists at version 0 come from a cache without pages; a list by name has at most one object.
        let whole = version == Some(0) || names_one(resource, namespace, &options.fields);
        let limit = if whole && page.is_none() { 0 } else { options.limit };
        Ok(cut(snapshot, &selection, page, limit))
    }

    fn snapshot_at(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        revision: Revision,
        paging: bool,
    ) -> Result<Snapshot, Status> {
        self.store.list_at(&resource.table, namespace, revision).map_err(|error| match error {
            storage::Error::Future { requested, current } => too_large(requested, current),
            storage::Error::Compacted { .. } if paging => Status::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue \
                 parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token \
                 results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and \
                 now may show up in the list.",
            ),
            storage::Error::Compacted { .. } => Status::expired("The resourceVersion for the provided list is too old."),
            storage::Error::Changed
            | storage::Error::TooLarge { .. }
            | storage::Error::Full { .. }
            | storage::Error::TooDeep { .. }
            | storage::Error::NotKept { .. } => Status::internal(error),
        })
    }
}

/// Returns true if field selectors match at most one object, by name and namespace.
fn names_one(resource: &Resource, namespace: Option<&str>, fields: &FieldSelector) -> bool {
    let is_told =
        |field: &str| fields.terms.iter().any(|term| term.field == field && !term.negated && !term.value.is_empty());
    is_told("metadata.name") && (!resource.namespaced || namespace.is_some() || is_told("metadata.namespace"))
}

/// Returns one page of the selected objects.
fn cut(snapshot: Snapshot, selection: &Selection, page: Option<Page>, limit: usize) -> ListResult {
    let revision = page.as_ref().map_or(snapshot.revision, |page| page.revision);
    let after = |entry: &Arc<Entry>| page.as_ref().is_none_or(|page| entry.key.as_str() > page.after.as_str());
    let mut rest = snapshot.entries.into_iter().filter(after);
    let pending = PendingEntries::default();
    if limit == 0 {
        let entries = rest.filter(|entry| selection.matches(entry)).collect();
        return ListResult { revision, entries, next: None, remaining: None, memory: None, pending };
    }
    let entries: Vec<Arc<Entry>> = rest.by_ref().filter(|entry| selection.matches(entry)).take(limit).collect();
    // A full page ends the search: whether a further object is selected is left to the next request.
    let remaining_count = rest.count();
    let next =
        entries.last().filter(|_| remaining_count > 0).map(|last| Page { revision, after: last.key.to_string() });
    // With a selector, kube-apiserver does not count the remaining objects.
    let remaining = next.as_ref().and_then(|_| selection.is_everything().then_some(remaining_count));
    ListResult { revision, entries, next, remaining, memory: None, pending }
}
