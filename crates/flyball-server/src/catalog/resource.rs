//! A resource of one group version.

use crate::custom::CustomKind;
use crate::kinds::{
    Checks, Deletion, DeletionResponse, Heading, Kind, Part, Review, Row, ScalePaths, Subresource, Verbs, View, library,
};
use crate::limits::MAX_DECODED_BYTES;
use crate::request::body;
use crate::storage::SelectableFields;
use bytes::Bytes;
use flyball_core::field::{FieldError, selectable_text};
use flyball_core::metadata::validate_finalizers;
use flyball_core::names::{self, Rule};
use flyball_core::{Clock, GroupResource, GroupVersionKind, Object, Status};
use flyball_schema::prune::TooLarge;
use flyball_schema::rules::Findings;
use flyball_schema::schema::Root;
use std::sync::Arc;

/// A resource in one group version.
#[derive(Clone)]
pub(crate) struct Resource {
    pub(crate) kind: GroupVersionKind,
    pub(crate) list_kind: String,
    pub(crate) plural: Arc<str>,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// The table of stored objects, common to all versions.
    pub(crate) table: GroupResource,
    pub(crate) schema: Root,
    /// The schema's number: objects with another number are converted when they are read.
    pub(crate) schema_number: u64,
    pub(super) behavior: Behavior,
    /// An object without fields.
    pub(crate) empty: Object,
    /// `{"apiVersion":…,"kind":…,`, with which the JSON of every object begins.
    pub(crate) head: Bytes,
}

/// The behavior of the objects of a resource.
#[derive(Clone)]
pub(super) enum Behavior {
    BuiltIn(&'static Kind),
    Custom(Arc<CustomKind>),
}

/// Writes the beginning of the JSON of objects of a kind.
pub(crate) fn head(kind: &GroupVersionKind) -> Bytes {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    format!("{{\"apiVersion\":{},\"kind\":{},", text(&kind.api_version()), text(&kind.kind)).into()
}

impl Resource {
    /// Creates the resource of a built-in kind.
    pub(super) fn built_in(kind: &'static Kind) -> Self {
        let schema = library().get(&kind.package(), kind.kind).unwrap_or_else(|| panic!("no type for {}", kind.kind));
        let name = kind.group_version_kind();
        Self {
            list_kind: format!("{}List", kind.kind),
            plural: kind.plural.into(),
            singular: kind.singular(),
            short_names: kind.short_names.iter().map(ToString::to_string).collect(),
            categories: kind.category.iter().map(ToString::to_string).collect(),
            namespaced: kind.namespaced,
            table: kind.table(),
            empty: Object::try_from(flyball_schema::decode::zero(schema.node())).expect("a kind is an object"),
            schema,
            // 1 if the kind is stored in another form: no entry has this number, so all are converted.
            schema_number: kind.stored.is_some().into(),
            behavior: Behavior::BuiltIn(kind),
            head: head(&name),
            kind: name,
        }
    }

    /// Returns the name of the resource without version, as in messages and rules.
    pub(crate) fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.kind.group.clone(), resource: self.plural.clone() }
    }

    /// The name of the group in Kubernetes' own code, where messages come from.
    pub(crate) fn internal_group(&self) -> &str {
        if self.kind.group.is_empty() { "core" } else { self.kind.group.split('.').next().unwrap_or_default() }
    }

    pub(crate) fn custom(&self) -> Option<&Arc<CustomKind>> {
        match &self.behavior {
            Behavior::Custom(custom) => Some(custom),
            Behavior::BuiltIn(_) => None,
        }
    }

    fn as_built_in(&self) -> Option<&'static Kind> {
        match &self.behavior {
            Behavior::BuiltIn(kind) => Some(kind),
            Behavior::Custom(_) => None,
        }
    }

    /// Returns true if this is a built-in kind, in any of its versions.
    pub(crate) fn is(&self, kind: &Kind) -> bool {
        self.as_built_in().is_some_and(|own| (own.group, own.plural) == (kind.group, kind.plural))
    }

    /// Returns the kind of review, if objects are not stored.
    pub(crate) fn review(&self) -> Option<Review> {
        self.as_built_in().and_then(|kind| kind.review)
    }

    /// Returns true if an object is an action on other ones: it is neither stored nor a review.
    pub(crate) fn changes_others(&self) -> bool {
        self.as_built_in().is_some_and(|kind| kind.verbs == Verbs::CreateOnly && kind.review.is_none())
    }

    /// Returns true if a webhook converts objects of other stored versions.
    pub(crate) fn converts(&self) -> bool {
        self.custom().is_some_and(|custom| custom.conversion.is_some())
    }

    /// Returns true if the version is served; others are in the catalog since objects may be stored in them.
    pub(crate) fn is_served(&self) -> bool {
        self.custom().is_none_or(|custom| custom.served)
    }

    pub(crate) fn verbs(&self) -> Verbs {
        self.as_built_in().map_or(Verbs::All, |kind| kind.verbs)
    }

    /// The media types of responses, as in messages.
    pub(crate) fn offered(&self) -> &'static str {
        if self.custom().is_some() { crate::request::accept::CUSTOM } else { crate::request::accept::BUILT_IN }
    }

    pub(crate) fn name_rule(&self) -> Rule {
        self.as_built_in().map_or(names::dns_subdomain, |kind| kind.name_rule)
    }

    pub(crate) fn create_on_update(&self) -> bool {
        self.as_built_in().is_some_and(|kind| kind.create_on_update)
    }

    /// Returns true if an update requires a resource version.
    pub(crate) fn versioned_updates(&self) -> bool {
        self.as_built_in().is_none_or(|kind| kind.versioned_updates)
    }

    /// Returns true if webhooks never see the resource.
    pub(crate) fn is_exempt_from_webhooks(&self) -> bool {
        self.as_built_in().is_some_and(|kind| kind.exempt_from_webhooks)
    }

    /// Returns true if policies never see the resource.
    pub(crate) fn is_exempt_from_policies(&self) -> bool {
        self.as_built_in().is_some_and(|kind| kind.exempt_from_policies)
    }

    /// Returns true if objects get unique addresses and ports.
    pub(crate) fn allocates_addresses(&self) -> bool {
        self.as_built_in().is_some_and(|kind| kind.allocates_addresses)
    }

    /// Returns true if objects declare resources.
    pub(crate) fn declares_resources(&self) -> bool {
        self.as_built_in().is_some_and(|kind| kind.declares_resources)
    }

    /// Returns the path of the template of pods that are created for an object.
    pub(crate) fn pod_template(&self) -> Option<&'static [&'static str]> {
        self.as_built_in().and_then(|kind| kind.pod_template)
    }

    /// Returns the rules of deletion of a built-in kind.
    pub(crate) fn deletion(&self) -> Option<&'static Deletion> {
        self.as_built_in().map(|kind| &kind.deletion)
    }

    /// Returns true if something other than finalizers prevents the removal of a deleted object.
    pub(crate) fn outlives_deletion(&self, object: &Object) -> bool {
        self.deletion().is_some_and(|deletion| (deletion.outlives)(object))
    }

    /// Returns true if clients set the status of a new object.
    pub(crate) fn is_created_with_status(&self) -> bool {
        self.as_built_in().is_some_and(|kind| kind.created_with_status)
    }

    /// Returns true if a write of the status leaves the labels as they are.
    pub(crate) fn status_keeps_labels(&self) -> bool {
        self.as_built_in().is_some_and(|kind| kind.status_keeps_labels)
    }

    /// Returns true if a change of annotations increments the generation.
    pub(crate) fn generation_counts_annotations(&self) -> bool {
        self.as_built_in().is_some_and(|kind| kind.generation_counts_annotations)
    }

    /// Returns true if bodies may be of a version that is not served.
    pub(super) fn also_reads(&self, version: &str) -> bool {
        self.as_built_in().is_some_and(|kind| kind.also_reads.contains(&version))
    }

    /// The path of the resource below `/registry`, as in messages of kube-apiserver: built-in kinds have a common
    /// directory, some of them with historical names.
    pub(crate) fn registry_path(&self) -> String {
        match self.as_built_in() {
            Some(kind) => kind.registry_path.map_or_else(|| self.plural.to_string(), str::to_owned),
            None => format!("{}/{}", self.kind.group, self.plural),
        }
    }

    pub(crate) fn deleted_as(&self) -> DeletionResponse {
        self.as_built_in().map_or(DeletionResponse::Status, |kind| kind.deleted_as)
    }

    pub(crate) fn subresources(&self) -> &'static [Subresource] {
        match &self.behavior {
            Behavior::BuiltIn(kind) => kind.subresources,
            Behavior::Custom(custom) => custom.subresources,
        }
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources().iter().find(|known| known.name == name)
    }

    /// Returns true if a write of this part is possible.
    pub(crate) fn has_part(&self, part: Part) -> bool {
        part == Part::Whole || self.subresources().iter().any(|known| known.part == Some(part))
    }

    pub(crate) fn scale(&self) -> Option<ScalePaths<'_>> {
        match &self.behavior {
            Behavior::BuiltIn(kind) => self.has_part(Part::Scale).then_some(ScalePaths {
                spec: ".spec.replicas",
                status: ".status.replicas",
                selector: Some(kind.scale_selector),
            }),
            Behavior::Custom(custom) => custom.scale.as_ref().map(|scale| ScalePaths {
                spec: &scale.spec,
                status: &scale.status,
                selector: scale.selector.as_deref(),
            }),
        }
    }

    /// The fields, besides name and namespace, that objects can be selected by.
    pub(crate) fn selectable(&self) -> Vec<&str> {
        match &self.behavior {
            Behavior::BuiltIn(kind) => kind.fields.to_vec(),
            Behavior::Custom(custom) => custom.selectable.iter().map(|path| path.trim_start_matches('.')).collect(),
        }
    }

    /// Returns true if the error of an unknown field selector lists the supported ones.
    pub(crate) fn lists_fields(&self) -> bool {
        self.as_built_in().is_some_and(|kind| kind.lists_fields)
    }

    /// Returns the labels and fields of an object that selectors match.
    pub(crate) fn facts(&self, object: &Object) -> SelectableFields {
        let values = match &self.behavior {
            Behavior::BuiltIn(kind) => kind.fields.iter().map(|field| (kind.field)(object, field)).collect(),
            Behavior::Custom(custom) => custom.selectable.iter().map(|path| selectable_text(object, path)).collect(),
        };
        SelectableFields::of(object, values)
    }

    /// Drops empty lists of an object that is stored as protobuf, which has none.
    pub(crate) fn drop_empty_lists(&self, object: &mut Object) {
        if self.as_built_in().is_some_and(|kind| !kind.stored_as_json) {
            object.change(|value| flyball_schema::decode::nullify_empty_lists(self.schema.node(), value));
        }
    }

    /// Sets defaults, as far as the memory limit allows.
    pub(crate) fn default(&self, object: &mut Object) {
        // Stored objects are within the limit.
        let _ = self.fill(object);
    }

    fn fill(&self, object: &mut Object) -> Result<(), TooLarge> {
        let filled = object.change(|value| flyball_schema::prune::default(self.schema.node(), value));
        if let Some(kind) = self.as_built_in() {
            (kind.default)(object);
        }
        filled
    }

    /// Applies defaults, and rejects objects that exceed the memory limit with them, before they are copied. Stored
    /// objects above the limit may remain so, or shrink.
    pub(crate) fn default_within(&self, object: &mut Object, live: Option<&Object>) -> Result<(), Status> {
        let filled = self.fill(object);
        let weight = |object: &Object| flyball_core::memory::of(object.as_value());
        let is_within = |own: usize| own <= MAX_DECODED_BYTES || live.is_some_and(|live| own <= weight(live));
        if filled.is_ok() && is_within(weight(object)) {
            return Ok(());
        }
        Err(Status::too_large(body::Error::TooLarge.to_string()))
    }

    /// Converts an object of a built-in kind to its stored form, if that differs.
    pub(crate) fn write_stored(&self, object: &mut Object) {
        self.as_built_in().and_then(|kind| kind.stored).into_iter().for_each(|stored| (stored.write)(object));
    }

    /// Converts the stored form to an object of the built-in kind.
    pub(crate) fn read_stored(&self, object: &mut Object) {
        self.as_built_in().and_then(|kind| kind.stored).into_iter().for_each(|stored| (stored.read)(object));
    }

    /// Returns the columns that no CRD declares; they precede those that one does.
    pub(crate) fn columns(&self) -> &'static [Heading] {
        self.as_built_in().map_or(&[Heading::NAME], |kind| kind.columns)
    }

    /// Prints the cells of [`Self::columns`].
    pub(crate) fn row(&self, view: &View<'_>) -> Row {
        self.as_built_in().map_or_else(|| Row::from([view.object.name().into()]), |kind| (kind.printer)(view))
    }

    /// Prepares a written object: resets the fields that a write of this part must not change.
    pub(crate) fn prepare(&self, object: &mut Object, old: Option<&Object>, part: Part, clock: &Clock) {
        if let Some(kind) = self.as_built_in() {
            (kind.prepare)(object, old, part, clock);
        }
    }

    /// Normalizes empty fields as encoding to storage and decoding does.
    pub(crate) fn normalize_empty(&self, object: &mut Object) {
        if self.custom().is_none() {
            object.change(|value| flyball_schema::decode::nullify_empty(self.schema.node(), value));
        }
    }

    /// Validates an object or its change, without metadata.
    pub(crate) fn validate(&self, object: &Object, old: Option<&Object>, part: Part) -> Findings {
        match &self.behavior {
            Behavior::BuiltIn(kind) => {
                let mut errors = self.validate_finalizers(object);
                errors.extend((kind.validate)(object, old, part));
                Findings { errors, ..Findings::default() }
            }
            Behavior::Custom(custom) => custom.validate(&self.schema, object, old, part),
        }
    }

    /// Finds finalizers that are neither Kubernetes' own nor have a domain, where they must.
    pub(crate) fn validate_finalizers(&self, object: &Object) -> Vec<FieldError> {
        let strict = self.as_built_in().is_some_and(Kind::strict_finalizers);
        if strict { validate_finalizers(object) } else { Vec::new() }
    }

    /// Returns the warnings of an object.
    pub(crate) fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        self.as_built_in().map_or_else(Vec::new, |kind| (kind.warn)(object, old))
    }

    /// Returns the number of times that the metadata of a change is checked.
    pub(crate) fn checks(&self) -> Checks {
        self.as_built_in().map_or(Checks::Again, |kind| kind.checks)
    }

    /// The kind that errors name: the stored one.
    pub(crate) fn error_kind(&self) -> GroupVersionKind {
        GroupVersionKind { group: self.table.group.clone(), ..self.kind.clone() }
    }

    /// Returns true if `metadata.generation` counts changes of the desired state.
    pub(crate) fn counts_generations(&self) -> bool {
        self.as_built_in().is_none_or(|kind| kind.generation)
    }

    /// The warning of every response, if the version is deprecated.
    pub(crate) fn deprecation(&self) -> Option<&str> {
        match &self.behavior {
            Behavior::BuiltIn(kind) => kind.deprecation,
            Behavior::Custom(custom) => custom.deprecation.as_deref(),
        }
    }
}
