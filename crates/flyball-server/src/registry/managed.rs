//! Managed fields: `flyball_schema::apply` for the kinds of the catalog.

use super::conflict;
use crate::catalog::{Catalog, Resource, decode, scale};
use crate::codec::{Codec, convert_whole};
use crate::kinds::Part;
use crate::limits::{MAX_DECODED_BYTES, too_much_memory};
use crate::webhook::ConversionMemory;
use flyball_core::field::go_quote;
use flyball_core::memory;
use flyball_core::{GroupVersion, Object, Status};
use flyball_schema::apply::{self, FieldSet, LAST_APPLIED, ManagedFields, Manager, Objects, PathElement, Versions};
use flyball_schema::schema::Node;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The versions of a resource, as a catalog has them.
struct CatalogVersions<'c> {
    catalog: &'c Catalog,
    resource: &'c Resource,
    conversions: &'c Conversions,
}

/// The objects that a CRD's webhook converted. Managed fields are computed synchronously: missing conversions are
/// recorded, and the computation is repeated once they are available.
#[derive(Default)]
pub(crate) struct Conversions {
    known: Vec<Conversion>,
    missing: Mutex<Vec<(Arc<Value>, String)>>,
    /// The memory of the results, which may be much larger than the stored object. The sources are objects of the
    /// request, or results.
    memory: Option<ConversionMemory>,
}

/// A converted object.
struct Conversion {
    source: Arc<Value>,
    api_version: String,
    result: Result<Value, String>,
    /// True if the computation has used it since it was repeated.
    is_used: AtomicBool,
}

/// Maximum number of passes over managed fields: each needs the conversions that the one before lacked.
pub(crate) const MAX_OWNERSHIP_PASSES: usize = 16;

impl Conversions {
    fn get(&self, object: &Value, api_version: &str) -> Result<Option<Value>, String> {
        let is_same = |known: &&Conversion| known.api_version == api_version && *known.source == *object;
        if let Some(known) = self.known.iter().find(is_same) {
            known.is_used.store(true, Ordering::Relaxed);
            return known.result.clone().map(Some);
        }
        let mut missing = self.missing.lock();
        let sources = missing.iter().map(|(source, _)| source).chain(self.known.iter().map(|known| &known.source));
        let source = sources.into_iter().find(|source| ***source == *object).cloned();
        let conversion = (source.unwrap_or_else(|| Arc::new(object.clone())), api_version.to_owned());
        if !missing.contains(&conversion) {
            missing.push(conversion);
        }
        Ok(None)
    }

    /// Returns true if the last pass lacked conversions.
    pub(crate) fn has_missing(&self) -> bool {
        !self.missing.lock().is_empty()
    }

    /// Converts all missing objects, and drops those that the last pass did not use.
    pub(crate) async fn complete(&mut self, codec: &Codec, resource: &Resource) -> Result<(), Status> {
        let missing = std::mem::take(self.missing.get_mut());
        self.known.retain(|known| known.is_used.swap(false, Ordering::Relaxed));
        let memory = self.memory.get_or_insert_with(|| codec.conversion_memory());
        let mut bytes: usize = self.known.iter().map(Conversion::bytes).sum();
        for (source, api_version) in missing {
            if let Some(result) = convert(codec, resource, &source, &api_version).await {
                let conversion = Conversion { source, api_version, result, is_used: AtomicBool::new(false) };
                bytes += conversion.bytes();
                memory.set(bytes).await?;
                self.known.push(conversion);
            }
        }
        Ok(())
    }
}

impl Conversion {
    /// Returns the memory of the result.
    fn bytes(&self) -> usize {
        self.result.as_ref().map_or(0, memory::of)
    }
}

/// Calls the webhook; `None` if the version is no longer served.
async fn convert(
    codec: &Codec,
    resource: &Resource,
    object: &Value,
    api_version: &str,
) -> Option<Result<Value, String>> {
    let catalog = codec.catalog();
    let (from, to) = (version_of(&catalog, resource, object), version(&catalog, resource, api_version)?);
    let object = Object::try_from(object.clone()).ok()?;
    Some(codec.as_whole_version(from, to, object).await.map(Value::from))
}

/// Finds a version of a resource.
fn version<'c>(catalog: &'c Catalog, resource: &'c Resource, api_version: &str) -> Option<&'c Resource> {
    let version = GroupVersion::parse(api_version)?;
    if version == resource.kind.group_version() {
        return Some(resource);
    }
    catalog.version_of(&resource.table, &version).map(|resource| &**resource)
}

/// Finds the version that an object is of.
fn version_of<'c>(catalog: &'c Catalog, resource: &'c Resource, object: &Value) -> &'c Resource {
    let own = object.get("apiVersion").and_then(Value::as_str);
    own.and_then(|own| version(catalog, resource, own)).unwrap_or(resource)
}

impl Versions for CatalogVersions<'_> {
    fn schema(&self, api_version: &str) -> Option<Node<'_>> {
        version(self.catalog, self.resource, api_version).map(|resource| resource.schema.node())
    }

    fn convert<'v>(&self, object: &'v Value, api_version: &str) -> Result<Option<Cow<'v, Value>>, String> {
        let Some(to) = version(self.catalog, self.resource, api_version) else { return Ok(None) };
        let from = version_of(self.catalog, self.resource, object);
        if from.kind == to.kind {
            return Ok(Some(Cow::Borrowed(object)));
        }
        if from.converts() {
            return Ok(self.conversions.get(object, api_version)?.map(Cow::Owned));
        }
        let object = Object::try_from(object.clone()).map_err(|error| error.to_string())?;
        // kube-apiserver converts the Go type, which omits null: a list that a merge has emptied is removed in the
        // other version, and with it the ownership of managers of that version.
        let (object, _) = decode::read_as(from, object)?;
        Ok(Some(Cow::Owned(convert_whole(from, to, object).into())))
    }
}

/// Removes `managedFields` from an object.
fn remove_entries(object: &mut Object) -> Option<Value> {
    object.metadata_mut().remove("managedFields")
}

/// The managed fields before admission.
pub(super) struct Snapshot(Option<Value>);

impl Snapshot {
    pub(super) fn of(object: &Object) -> Self {
        Self(object.at(&["metadata", "managedFields"]).cloned())
    }

    /// Restores managed fields that became invalid, and returns the reason.
    pub(super) fn restore_invalid(self, object: &mut Object) -> Option<String> {
        let after = object.at(&["metadata", "managedFields"]);
        let why = if after == self.0.as_ref() { None } else { after.and_then(defect) }?;
        match self.0 {
            Some(before) => object.metadata_mut().insert("managedFields".into(), before),
            None => remove_entries(object),
        };
        Some(why)
    }
}

/// Returns the first defect of managed fields, as kube-apiserver names it.
fn defect(entries: &Value) -> Option<String> {
    let entries = entries.as_array().into_iter().flatten().enumerate();
    entries.filter_map(|(at, entry)| defect_of(at, entry)).next()
}

fn defect_of(at: usize, entry: &Value) -> Option<String> {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    let fields = entry.get("fieldsV1").filter(|fields| !fields.is_null());
    match (text("operation"), text("apiVersion"), text("fieldsType")) {
        ("Apply" | "Update", "", _) => Some("apiVersion must not be empty".into()),
        ("Apply" | "Update", _, "FieldsV1") => {
            let is_broken = fields.is_some_and(|fields| FieldSet::decode(fields).is_none());
            let why = || format!("error decoding versioned set of {:?} in managed fields entry {at}", text("manager"));
            is_broken.then(why)
        }
        ("Apply" | "Update", _, "") => Some(format!("missing fieldsType in managed fields entry {at}")),
        ("Apply" | "Update", _, ty) => {
            Some(format!("invalid fieldsType {} in managed fields entry {at}", go_quote(ty)))
        }
        _ => Some("operation must be `Apply` or `Update`".into()),
    }
}

/// Runs a function on an object without its managed fields, which it receives separately, and restores them. Objects
/// are not copied, because they may take many times the memory of their text.
fn without_entries<T>(object: &mut Object, run: impl FnOnce(&Object, Option<&Value>) -> T) -> T {
    let entries = remove_entries(object);
    let result = run(object, entries.as_ref());
    if let Some(entries) = entries {
        object.metadata_mut().insert("managedFields".into(), entries);
    }
    result
}

/// Rejects managed fields that alone exceed the memory limit of an object, before they are encoded, unless those before
/// the write did so.
fn check_bytes(object: &Object, managed: &ManagedFields, before: Option<&Value>) -> Result<(), Status> {
    let bytes = managed.json_bytes();
    if bytes <= MAX_DECODED_BYTES || before.is_some_and(|before| memory::of(before) >= bytes) {
        return Ok(());
    }
    Err(Status::too_large(format!("Request entity too large: {}", too_much_memory(object.name()))))
}

fn put(object: &mut Object, managed: ManagedFields) {
    match managed.encode() {
        Some(entries) => object.metadata_mut().insert("managedFields".into(), entries),
        None => object.metadata_mut().remove("managedFields"),
    };
}

/// The fields that a write of a part cannot own, since it restores them.
fn ignored(part: Part, resource: &Resource) -> FieldSet {
    let mut set = FieldSet::new();
    match part {
        Part::Status => {
            set.insert(&[PathElement::field("spec")]);
            if resource.status_keeps_labels() {
                set.insert(&[PathElement::field("metadata"), PathElement::field("labels")]);
            }
            if resource.custom().is_some() {
                set.insert(&[PathElement::field("metadata")]);
            }
        }
        Part::Whole if resource.has_part(Part::Status) => set.insert(&[PathElement::field("status")]),
        _ => {}
    }
    set
}

/// The manager of a write, and its time.
pub(crate) struct FieldManager<'w> {
    pub(crate) name: &'w str,
    pub(crate) part: Part,
    pub(crate) now: &'w str,
    pub(crate) conversions: &'w Conversions,
}

impl FieldManager<'_> {
    /// The time to record; writes of a scale record none.
    fn time(&self) -> Option<&str> {
        (self.part != Part::Scale).then_some(self.now)
    }
}

/// Sets the managed fields of an object that is returned but not stored, such as a review.
pub(crate) fn sign(catalog: &Catalog, resource: &Resource, object: &mut Object, name: &str, part: &str, now: &str) {
    remove_entries(object);
    let api_version = resource.kind.api_version();
    let nothing = FieldSet::new();
    let objects = Objects {
        versions: &CatalogVersions { catalog, resource, conversions: &Conversions::default() },
        api_version: &api_version,
        ignored: &nothing,
        empty: resource.empty.as_value(),
    };
    let manager = Manager::updater(name, &api_version, part);
    match objects.update(resource.empty.as_value(), object.as_value(), ManagedFields::default(), manager, Some(now)) {
        Ok(managed) => put(object, managed),
        Err(error) => tracing::error!(%error, "failed to compute managedFields of a response"),
    }
}

/// Updates the managed fields of `new` with the changes of a write. `live` is the same afterwards.
pub(crate) fn update(
    catalog: &Catalog,
    resource: &Resource,
    live: Option<&mut Object>,
    new: &mut Object,
    by: &FieldManager<'_>,
) -> Result<(), Status> {
    let sent = remove_entries(new);
    let mut empty = resource.empty.clone();
    without_entries(live.unwrap_or(&mut empty), |live, stored| {
        let managed = ManagedFields::for_write(stored, sent.as_ref(), by.part != Part::Whole);
        drop(sent);
        let api_version = resource.kind.api_version();
        let ignored = ignored(by.part, resource);
        let objects = Objects {
            versions: &CatalogVersions { catalog, resource, conversions: by.conversions },
            api_version: &api_version,
            ignored: &ignored,
            empty: resource.empty.as_value(),
        };
        let manager = Manager::updater(by.name, &api_version, by.part.name());
        // Custom resources may be older than their schema.
        let fits = match resource.custom() {
            Some(_) => objects.check(new.as_value()).and_then(|()| objects.check(live.as_value())),
            None => Ok(()),
        };
        let recorded = fits.and_then(|()| objects.update(live.as_value(), new.as_value(), managed, manager, by.time()));
        match recorded {
            Ok(mut managed) => {
                if by.part == Part::Scale && scale_is_deep(resource) {
                    managed.remove(&Manager::updater(by.name, &api_version, by.part.name()));
                }
                check_bytes(new, &managed, stored)?;
                put(new, managed);
            }
            // A write does not fail if its managed fields cannot be computed: then no field has an owner.
            Err(error) => tracing::warn!(%error, object = %new.key(), "failed to update managedFields"),
        }
        Ok(())
    })
}

/// Merges an applied configuration into the stored object, which is the same afterwards; the caller must still decode
/// the result as its kind.
pub(crate) fn apply(
    catalog: &Catalog,
    resource: &Resource,
    live: Option<&mut Object>,
    configuration: Object,
    force: bool,
    by: &FieldManager<'_>,
) -> Result<Object, Status> {
    let mut empty = resource.empty.clone();
    empty.set_kind(&resource.kind);
    without_entries(live.unwrap_or(&mut empty), |live, stored| {
        let of_custom_scale = by.part == Part::Scale && resource.custom().is_some();
        if of_custom_scale && !owns_replicas(resource, stored) {
            let what = format!("failed to convert live object (/; {})", scale::kind());
            return Err(no_custom_scale(&format!("failed to create manager for existing fields: {what}")));
        }
        let managed = ManagedFields::decode(stored).unwrap_or_default();
        let api_version = resource.kind.api_version();
        let ignored = ignored(by.part, resource);
        let objects = Objects {
            versions: &CatalogVersions { catalog, resource, conversions: by.conversions },
            api_version: &api_version,
            ignored: &ignored,
            empty: resource.empty.as_value(),
        };
        let manager = Manager::applier(by.name, by.part.name());
        // A new object has no UID yet, and so its fields have no owners.
        let applied = objects
            .apply(live.as_value(), configuration.as_value(), managed, manager, force, by.time())
            .map_err(|error| apply_error(error, resource, &configuration, live, by.part))?;
        if of_custom_scale {
            let (namespace, name) = (configuration.namespace().unwrap_or_default(), configuration.name());
            let what = format!("failed to convert new object ({namespace}/{name}; {})", scale::kind());
            return Err(no_custom_scale(&what));
        }
        let noted = (by.name == KUBECTL_MANAGER).then_some(configuration);
        let mut object = match applied.object {
            Some(value) => {
                Object::try_from(value).map_err(|_| Status::new(500, None, "nothing is left of the object"))?
            }
            None => live.clone(),
        };
        check_bytes(&object, &applied.managed, stored)?;
        put(&mut object, applied.managed);
        if let Some(noted) = noted {
            note_applied(&mut object, &noted);
        }
        Ok(object)
    })
}

fn apply_error(error: apply::Error, resource: &Resource, configuration: &Object, live: &Object, part: Part) -> Status {
    match error {
        apply::Error::Conflicts(mut conflicts) => {
            if part == Part::Scale {
                // An applier of a scale sees the other managers as writers of scales.
                let api_version = scale::kind().api_version();
                let managers = conflicts.iter_mut().map(|conflict| &mut conflict.manager);
                managers
                    .filter(|manager| manager.api_version.is_some())
                    .for_each(|manager| manager.api_version = Some(api_version.clone()));
            }
            conflict::status(&conflicts)
        }
        apply::Error::Patch(misfit) => {
            broken(resource, configuration, "failed to create typed patch object", &misfit.to_string())
        }
        apply::Error::Live(misfit) => broken(resource, live, "failed to create typed live object", &misfit.to_string()),
        apply::Error::Conversion(why) => Status::new(500, None, why),
        apply::Error::Version(version) => Status::new(500, None, format!("no schema for version {version}")),
    }
}

/// Returns true if the replicas of a custom resource are nested deeper than its spec: then kube-apiserver removes the
/// field from its owners but records no new one.
fn scale_is_deep(resource: &Resource) -> bool {
    let depth = |path: &str| path.split('.').filter(|step| !step.is_empty()).count();
    resource.custom().is_some() && resource.scale().is_some_and(|paths| depth(paths.spec) > 2)
}

/// Returns true if the replicas of a custom resource's scale have an owner.
fn owns_replicas(resource: &Resource, managed: Option<&Value>) -> bool {
    let path = resource.scale().map_or("", |paths| paths.spec).split('.').filter(|step| !step.is_empty());
    let path = path.map(|step| format!("/f:{step}")).collect::<String>();
    let mut entries = managed.and_then(Value::as_array).into_iter().flatten();
    entries.any(|entry| entry["fieldsV1"].pointer(&path).is_some())
}

/// Rejects an apply of the scale of a custom resource, as kube-apiserver does, which treats the merged scale as an
/// object of the CRD.
fn no_custom_scale(what: &str) -> Status {
    let why = "to proper version: request to convert CR to an invalid group/version: autoscaling/v1";
    Status::new(500, None, format!("{what} {why}"))
}

/// The default manager of `kubectl apply --server-side`.
const KUBECTL_MANAGER: &str = "kubectl";

/// Updates the last-applied annotation of `kubectl apply`, if there is one, so that a client can return to client-side
/// apply. See
/// <https://kubernetes.io/docs/reference/using-api/server-side-apply/#downgrading-from-server-side-apply-to-client-side-apply>.
fn note_applied(object: &mut Object, configuration: &Object) {
    let annotations = object.metadata_mut().get_mut("annotations").and_then(Value::as_object_mut);
    let Some(annotations) =
        annotations.filter(|annotations| annotations.get(LAST_APPLIED).is_some_and(|noted| noted != ""))
    else {
        return;
    };
    let mut noted = configuration.clone();
    let metadata = noted.metadata_mut();
    if let Some(own) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        own.remove(LAST_APPLIED);
        if own.is_empty() {
            metadata.remove("annotations");
        }
    }
    annotations.insert(LAST_APPLIED.into(), format!("{}\n", flyball_core::field::go_json(noted.as_value())).into());
    if !flyball_core::metadata::annotations_fit(annotations) {
        annotations.remove(LAST_APPLIED);
    }
}

/// Reverts a write that only changed times of managedFields, so that it is a no-op.
pub(crate) fn restore_times(object: &mut Object, live: &Object) {
    let (Some(new), Some(old)) = (entries(object), entries(live)) else { return };
    let known: BTreeMap<[&str; 4], &Value> = old.iter().map(|entry| (identity(entry), entry)).collect();
    let stays = |entry| known.get(&identity(entry)).is_some_and(|known| differ_in_time_at_most(entry, known));
    if new.len() != old.len() || !new.iter().all(stays) {
        return;
    }
    let old = Value::from(old.to_vec());
    let new = object.metadata_mut().insert("managedFields".into(), old);
    if object != live
        && let Some(new) = new
    {
        object.metadata_mut().insert("managedFields".into(), new);
    }
}

fn entries(object: &Object) -> Option<&[Value]> {
    object.at(&["metadata", "managedFields"])?.as_array().map(Vec::as_slice)
}

/// Returns the key of an entry among those of its object.
fn identity(entry: &Value) -> [&str; 4] {
    ["manager", "operation", "apiVersion", "subresource"]
        .map(|field| entry.get(field).and_then(Value::as_str).unwrap_or_default())
}

fn differ_in_time_at_most(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    let timeless = |entry: &Map<String, Value>| entry.len() - usize::from(entry.contains_key("time"));
    timeless(a) == timeless(b) && a.iter().all(|(name, value)| name == "time" || b.get(name) == Some(value))
}

fn broken(resource: &Resource, object: &Object, what: &str, why: &str) -> Status {
    let namespace = object.namespace().unwrap_or_default();
    Status::new(500, None, format!("{what} ({namespace}/{}; {}): {why}", object.name(), resource.kind))
}
