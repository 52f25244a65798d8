//! Updates and applies: the effect of a write on an object and on its field owners.

use super::compare::Comparison;
use super::managed::{Entry, ManagedFields, Manager, Operation};
use super::merge::{merge, remove};
use super::path::PathElement;
use super::set::{Branch, FieldSet};
use super::types::{Type, TypeMismatch};
use crate::schema::Node;
use flyball_core::metadata::SERVER_MANAGED_FIELDS;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::LazyLock;

/// The API versions of a kind, which managers may use for their fields.
pub trait Versions {
    /// Returns the schema of a version; `None` if it is no longer served.
    fn schema(&self, api_version: &str) -> Option<Node<'_>>;

    /// Converts an object and preserves fields that are unknown in the version. `None` if the version is no longer
    /// served; an error is the reason why the conversion failed.
    fn convert<'v>(&self, object: &'v Value, api_version: &str) -> Result<Option<Cow<'v, Value>>, String>;
}

/// Objects of one kind in one version.
#[derive(Clone, Copy)]
pub struct Objects<'a> {
    /// The versions of the kind.
    pub versions: &'a dyn Versions,
    /// Version of the given objects.
    pub api_version: &'a str,
    /// Fields without owners at this endpoint, with all descendants; for most kinds, the status.
    pub ignored: &'a FieldSet,
    /// An object without fields, which is the previous state of a created object.
    pub empty: &'a Value,
}

/// The result of an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplyResult {
    /// The new object; `None` if it is unchanged.
    pub object: Option<Value>,
    /// The managers and their fields.
    pub managed: ManagedFields,
}

/// An error of an apply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The applied configuration does not fit the schema.
    #[error("{0}")]
    Patch(TypeMismatch),
    /// The stored object does not fit the schema.
    #[error("{0}")]
    Live(TypeMismatch),
    /// Other managers own fields for which the applier has different values.
    #[error("conflicts with {} fields of other managers", .0.len())]
    Conflicts(Vec<Conflict>),
    /// The kind does not have this version.
    #[error("no schema for version {0}")]
    Version(String),
    /// An object cannot be converted to the version of a manager, or does not match the schema of that version.
    #[error("{0}")]
    Conversion(String),
}

impl Error {
    /// Adds the purpose of a conversion to its error.
    fn during(what: impl Display) -> impl FnOnce(Self) -> Self {
        move |error| match error {
            Self::Conversion(reason) => Self::Conversion(format!("{what}: {reason}")),
            error => error,
        }
    }
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The manager that owns the field.
    pub manager: Manager,
    /// Path of the field.
    pub path: Vec<PathElement>,
}

impl Conflict {
    /// Returns the path of the field, such as `.spec.replicas`.
    pub fn field(&self) -> String {
        self.path.iter().map(ToString::to_string).collect()
    }
}

/// Metadata without managers: set by the server, or the identity of the object.
static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    let mut set = FieldSet::new();
    for field in ["apiVersion", "kind", "metadata"] {
        set.insert(&[PathElement::field(field)]);
    }
    for field in SERVER_MANAGED_FIELDS.into_iter().chain(["clusterName", "name", "namespace"]) {
        set.insert(&[PathElement::field("metadata"), PathElement::field(field)]);
    }
    set
});

/// Maximum number of updaters of an object; the oldest are merged into one.
const MAX_UPDATERS: usize = 10;

impl Objects<'_> {
    fn ty(&self) -> Result<Type<'_>, Error> {
        self.ty_in(self.api_version).ok_or_else(|| Error::Version(self.api_version.into()))
    }

    fn ty_in(&self, api_version: &str) -> Option<Type<'_>> {
        self.versions.schema(api_version).map(Type::Schema)
    }

    /// Converts an object from one version to another; `None` if that version is no longer served.
    fn convert<'v>(
        &self,
        object: &'v Value,
        from: &str,
        to: &str,
    ) -> Result<Option<(Cow<'v, Value>, Type<'_>)>, Error> {
        let Some(ty) = self.ty_in(to) else { return Ok(None) };
        if from == to {
            return Ok(Some((Cow::Borrowed(object), ty)));
        }
        let Some(converted) = self.versions.convert(object, to).map_err(Error::Conversion)? else { return Ok(None) };
        ty.check(&converted, true).map_err(|misfit| Error::Conversion(misfit.to_string()))?;
        Ok(Some((converted, ty)))
    }

    /// Checks that an object matches the types of its schema; sets may contain duplicates.
    pub fn check(&self, object: &Value) -> Result<(), Error> {
        self.ty()?.check(object, true).map_err(Error::Live)
    }

    /// Records the changes of a write other than apply from `live` to `new`, optionally with a time: the changed fields
    /// now belong only to `manager`.
    ///
    /// Both objects are passed without managedFields; `live` is `{}` for a create. An object without managers remains
    /// without managers.
    pub fn update(
        &self,
        live: &Value,
        new: &Value,
        managed: ManagedFields,
        manager: Manager,
        now: Option<&str>,
    ) -> Result<ManagedFields, Error> {
        if managed.is_empty() && !is_new(live) {
            return Ok(managed);
        }
        self.record(live, new, managed, manager, now).map(cap)
    }

    fn record(
        &self,
        live: &Value,
        new: &Value,
        managed: ManagedFields,
        manager: Manager,
        now: Option<&str>,
    ) -> Result<ManagedFields, Error> {
        let managed = self.reconcile(live, managed)?;
        let changed = Comparison::of(self.ty()?, live, new).without(self.ignored);
        let (mut managed, _) = self.remove_from_other_managers(live, new, &changed, managed, None)?;
        let own = changed.written.difference(&UNOWNED);
        if !own.is_empty() {
            let before = managed.remove_entry(&manager);
            let fields = before.map_or_else(FieldSet::new, |entry| entry.fields).union(own);
            managed.put(Entry { manager, api_version: self.api_version.into(), time: now.map(str::to_owned), fields });
        }
        Ok(managed)
    }

    /// Merges the configuration of `manager` into `live`, and removes fields of its previous configuration that it no
    /// longer contains and that no other manager owns.
    pub fn apply(
        &self,
        live: &Value,
        configuration: &Value,
        managed: ManagedFields,
        manager: Manager,
        force: bool,
        now: Option<&str>,
    ) -> Result<ApplyResult, Error> {
        let ty = self.ty()?;
        ty.check(configuration, false).map_err(Error::Patch)?;
        ty.check(live, true).map_err(Error::Live)?;
        let managed = if managed.is_empty() && !is_new(live) {
            // Fields from before the first apply must not count as fields without owners.
            let before = Manager::updater("before-first-apply", self.api_version, &manager.subresource);
            cap(self.record(self.empty, live, managed, before, now)?)
        } else {
            managed
        };
        let before = (manager.name == "kubectl").then(|| managed.clone());
        match (self.apply_once(ty, live, configuration, managed, &manager, force, now), before) {
            (Err(Error::Conflicts(conflicts)), Some(managed)) => {
                // Client-side `kubectl apply` recorded its configuration; kubectl may change those fields.
                let Some(noted) = self.last_applied(ty, live) else { return Err(Error::Conflicts(conflicts)) };
                let foreign: Vec<Conflict> =
                    conflicts.into_iter().filter(|conflict| !noted.contains(&conflict.path)).collect();
                if foreign.is_empty() {
                    self.apply_once(ty, live, configuration, managed, &manager, true, now)
                } else {
                    Err(Error::Conflicts(foreign))
                }
            }
            (result, _) => result,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the two calls in `apply` differ in `force` alone")]
    fn apply_once(
        &self,
        ty: Type<'_>,
        live: &Value,
        configuration: &Value,
        managed: ManagedFields,
        manager: &Manager,
        force: bool,
        now: Option<&str>,
    ) -> Result<ApplyResult, Error> {
        let mut managed = self.reconcile(live, managed)?;
        let merged =
            merge(ty, Some(live), Some(configuration)).unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let last = managed.get(manager).cloned();
        let fields = ty.fields(configuration).below.recursive_difference(self.ignored);
        // Without a field that the applier no longer specifies, nothing is pruned. Versions are converted in any case.
        let is_other = managed.0.values().any(|entry| entry.api_version != self.api_version);
        let last_fields = last.as_ref().filter(|last| !last.fields.is_empty());
        let prunes = last_fields.is_some_and(|last| is_other || !last.fields.clone().difference(&fields).is_empty());
        let time = last.as_ref().and_then(|entry| entry.time.clone());
        managed.put(Entry { manager: manager.clone(), api_version: self.api_version.into(), time, fields });
        let object = match last {
            Some(last) if prunes => {
                self.prune(merged, &managed, &last).map_err(Error::during("failed to prune fields"))?
            }
            _ => merged,
        };
        let changed = Comparison::of(ty, live, &object).without(self.ignored);
        let (mut managed, conflicts) =
            self.remove_from_other_managers(live, &object, &changed, managed, Some(manager))?;
        if !force && !conflicts.is_empty() {
            return Err(Error::Conflicts(conflicts));
        }
        let changed = object != *live;
        if let Some(entry) = managed.0.get_mut(manager) {
            entry.fields = std::mem::take(&mut entry.fields).difference(&UNOWNED);
            if changed {
                entry.time = now.map(str::to_owned);
            }
            if entry.fields.is_empty() {
                managed.0.remove(manager);
            }
        }
        Ok(ApplyResult { object: changed.then_some(object), managed })
    }

    /// Adapts the fields of managers to the current schema.
    fn reconcile(&self, live: &Value, managed: ManagedFields) -> Result<ManagedFields, Error> {
        let mut types: BTreeMap<String, Option<Type<'_>>> = BTreeMap::new();
        let mut entries = ManagedFields::default();
        for mut entry in managed.0.into_values() {
            if !types.contains_key(&entry.api_version) {
                let seen = self.convert(live, self.api_version, &entry.api_version)?;
                types.insert(entry.api_version.clone(), seen.map(|(_, ty)| ty));
            }
            // Entries of versions that are no longer served are dropped.
            let Some(ty) = types[&entry.api_version] else { continue };
            entry.fields = ty.reconcile(&Branch { member: false, below: entry.fields }).below;
            entries.put(entry);
        }
        Ok(entries)
    }

    /// Removes changed fields from all managers except `writer`, and returns the fields that they would lose.
    fn remove_from_other_managers(
        &self,
        live: &Value,
        new: &Value,
        changed: &Comparison,
        managed: ManagedFields,
        writer: Option<&Manager>,
    ) -> Result<(ManagedFields, Vec<Conflict>), Error> {
        let mut in_other_versions: BTreeMap<String, Comparison> = BTreeMap::new();
        let mut conflicts: Vec<Conflict> = Vec::new();
        let mut remaining = Vec::new();
        for mut entry in managed.0.into_values() {
            if writer == Some(&entry.manager) {
                remaining.push(entry);
                continue;
            }
            let is_other = entry.api_version != self.api_version;
            if is_other && !in_other_versions.contains_key(&entry.api_version) {
                let see = |object| self.convert(object, self.api_version, &entry.api_version);
                let old = see(live).map_err(Error::during("failed to convert old object"))?;
                let new = see(new).map_err(Error::during("failed to convert new object"))?;
                let Some(((old, ty), (new, _))) = old.zip(new) else { continue };
                let compared = Comparison::of(ty, &old, &new).without(self.ignored);
                in_other_versions.insert(entry.api_version.clone(), compared);
            }
            let changed = if is_other { &in_other_versions[&entry.api_version] } else { changed };
            let taken = entry.fields.intersection(&changed.written);
            taken.each(&mut |path| conflicts.push(Conflict { manager: entry.manager.clone(), path: path.to_vec() }));
            for released in [&taken, &changed.removed].into_iter().filter(|released| !released.is_empty()) {
                entry.fields = std::mem::take(&mut entry.fields).difference(released);
            }
            if !entry.fields.is_empty() {
                remaining.push(entry);
            }
        }
        conflicts.sort_by(|a, b| a.manager.cmp_in_conflicts(&b.manager));
        Ok((remaining.into_iter().collect(), conflicts))
    }

    /// Removes fields from a merged object that its applier owned and no longer applies, and that no other manager
    /// owns.
    fn prune(&self, merged: Value, managed: &ManagedFields, last: &Entry) -> Result<Value, Error> {
        let version = last.api_version.as_str();
        let before = self.convert(&merged, self.api_version, version);
        let before = before.map_err(Error::during("failed to convert merged object to last applied version"))?;
        let Some((before, ty)) = before else { return Ok(merged) };
        let mut pruned = remove(ty, &before, &ty.with_named_fields(&last.fields));

        // Fields of other managers are restored version by version, starting with the applier's last one.
        let mut owned: BTreeMap<&str, Vec<FieldSet>> = BTreeMap::new();
        for entry in managed.0.values() {
            owned.entry(&entry.api_version).or_default().push(entry.fields.clone());
        }
        let first = owned.remove_entry(version);
        for (at, owned) in first.into_iter().chain(owned) {
            let owned = FieldSet::union_all(owned);
            pruned = self
                .restore(&before, pruned, &owned, version, at)
                .map_err(Error::during("failed add back owned items"))?;
        }

        // Fields in neither set are restored as well: an applier can only remove fields that it owned.
        let pruned_fields = ty
            .with_named_fields(&ty.fields(&before).below)
            .difference(&ty.with_named_fields(&ty.fields(&pruned).below));
        // Objects may be large: this one is not needed any more.
        drop(pruned);
        let pruned = remove(ty, &before, &pruned_fields.intersection(&ty.with_named_fields(&last.fields)));
        if version == self.api_version {
            return Ok(pruned);
        }
        let converted = self.convert(&pruned, version, self.api_version)?.map(|(converted, _)| converted.into_owned());
        Ok(converted.unwrap_or(pruned))
    }

    /// Restores removed fields that are owned in a version that is still served.
    fn restore(
        &self,
        before: &Value,
        pruned: Value,
        owned: &FieldSet,
        version: &str,
        at: &str,
    ) -> Result<Value, Error> {
        if version == at {
            let Some(ty) = self.ty_in(at) else { return Ok(pruned) };
            let unowned = unowned(ty, before, &pruned, owned);
            // Objects may be large: this one is not needed any more.
            drop(pruned);
            return Ok(remove(ty, before, &unowned));
        }
        let see = |what: &str, object| {
            self.convert(object, version, at)
                .map_err(Error::during(format_args!("failed to convert {what} object at version {at}")))
        };
        let Some(((whole, ty), (remaining, _))) = see("merged", before)?.zip(see("pruned", &pruned)?) else {
            return Ok(pruned);
        };
        let restored = remove(ty, &whole, &unowned(ty, &whole, &remaining, owned));
        let converted = self.convert(&restored, at, version)?.map(|(converted, _)| converted.into_owned());
        Ok(converted.unwrap_or(pruned))
    }

    /// Returns the fields of the annotation of `kubectl apply` that are unchanged.
    fn last_applied(&self, ty: Type<'_>, live: &Value) -> Option<FieldSet> {
        let annotations = live.get("metadata")?.get("annotations")?;
        let noted: Value = serde_json::from_str(annotations.get(LAST_APPLIED)?.as_str()?).ok()?;
        if noted.get("apiVersion")?.as_str()? != self.api_version || ty.check(&noted, false).is_err() {
            return None;
        }
        let changed = Comparison::of(ty, &noted, live);
        Some(ty.fields(&noted).below.difference(&changed.written).difference(&changed.removed))
    }
}

/// Returns the fields of an object that neither remain in another one nor have an owner.
fn unowned(ty: Type<'_>, whole: &Value, remaining: &Value, owned: &FieldSet) -> FieldSet {
    let all = ty.with_named_fields(&ty.fields(whole).below);
    let keep = ty.with_named_fields(&ty.fields(remaining).below).union(ty.with_named_fields(owned));
    all.difference(&keep)
}

/// Returns true if the object does not exist yet.
fn is_new(live: &Value) -> bool {
    live.get("metadata").and_then(|metadata| metadata.get("uid")).is_none()
}

/// The annotation in which `kubectl apply` records its configuration.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl Manager {
    /// Orders managers as in the response to a conflicting apply.
    fn cmp_in_conflicts(&self, other: &Self) -> std::cmp::Ordering {
        let key = |m: &Self| (m.name.clone(), m.operation, m.api_version.clone(), m.subresource.clone());
        key(self).cmp(&key(other))
    }
}

/// Merges the oldest updaters of each version into one if there are too many.
fn cap(mut managed: ManagedFields) -> ManagedFields {
    let mut oldest: Vec<(String, Manager, String)> = managed
        .0
        .values()
        .filter(|entry| entry.manager.operation == Operation::Update)
        .map(|entry| (entry.time.clone().unwrap_or_default(), entry.manager.clone(), entry.api_version.clone()))
        .collect();
    oldest.sort();
    let mut surplus = oldest.len().saturating_sub(MAX_UPDATERS);
    let mut first_of_version: BTreeMap<String, Manager> = BTreeMap::new();
    let mut merged: BTreeMap<Manager, Vec<FieldSet>> = BTreeMap::new();
    for (_, manager, api_version) in oldest {
        if surplus == 0 {
            break;
        }
        let ancient = Manager::updater("ancient-changes", &api_version, "");
        let Some(first) = first_of_version.get(&api_version) else {
            first_of_version.insert(api_version, manager);
            continue;
        };
        if manager == ancient {
            continue;
        }
        if managed.get(&ancient).is_none() {
            managed.rename(first, ancient.clone());
        }
        let entry = managed.remove_entry(&manager).expect("it was listed above");
        let bucket = managed.remove_entry(&ancient).expect("the first one was given this name");
        merged.entry(ancient).or_default().push(entry.fields);
        managed.put(Entry { time: entry.time, ..bucket });
        surplus -= 1;
    }
    for (ancient, fields) in merged {
        if let Some(bucket) = managed.0.get_mut(&ancient) {
            let own = std::mem::take(&mut bucket.fields);
            bucket.fields = FieldSet::union_all(std::iter::once(own).chain(fields));
        }
    }
    managed
}
