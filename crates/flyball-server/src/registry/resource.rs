//! A resource as one group version serves it.

use crate::custom::{CustomKind, schema_number};
use crate::kinds::{Answer, Checks, Kind, Part, ScalePaths, Verbs, library};
use crate::request::body;
use crate::request::weight::MAX_WEIGHT;
use crate::server::Inner;
use crate::storage::{Entry, Facts};
use bytes::Bytes;
use flyball_core::field::FieldError;
use flyball_core::names::{self, Rule};
use flyball_core::{Clock, GroupResource, GroupVersionKind, Object, Status};
use flyball_schema::cel::Findings;
use flyball_schema::prune::TooLarge;
use flyball_schema::schema::Root;
use std::sync::Arc;

/// A resource as one group version serves it.
#[derive(Clone)]
pub(crate) struct Resource {
    pub(crate) kind: GroupVersionKind,
    pub(crate) list_kind: String,
    pub(crate) plural: Arc<str>,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Where objects are stored: the same for all versions.
    pub(crate) table: GroupResource,
    pub(crate) schema: Root,
    /// The schema's number: objects written by another one are read through this one first.
    pub(crate) schema_number: u64,
    pub(crate) behaviour: Behaviour,
    /// An object of which nothing is set.
    pub(crate) empty: Object,
    /// `{"apiVersion":…,"kind":…,`, with which the JSON of every object begins.
    pub(crate) head: Bytes,
}

/// How the objects of a resource behave.
#[derive(Clone)]
pub(crate) enum Behaviour {
    BuiltIn(&'static Kind),
    Custom(Arc<CustomKind>),
}

/// Writes the beginning of the JSON of objects of a kind.
pub(crate) fn head(kind: &GroupVersionKind) -> Bytes {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    format!("{{\"apiVersion\":{},\"kind\":{},", text(&kind.api_version()), text(&kind.kind)).into()
}

impl Resource {
    /// The resource that a built-in kind is served as.
    pub(super) fn built_in(kind: &'static Kind) -> Self {
        let schema = library().get(&kind.package(), kind.kind).unwrap_or_else(|| panic!("no type for {}", kind.kind));
        let name = GroupVersionKind::new(kind.group, kind.version, kind.kind);
        Self {
            list_kind: format!("{}List", kind.kind),
            plural: kind.plural.into(),
            singular: kind.singular(),
            short_names: kind.short_names.iter().map(ToString::to_string).collect(),
            categories: kind.category.iter().map(ToString::to_string).collect(),
            namespaced: kind.namespaced,
            table: GroupResource::new(kind.stored.map_or(kind.group, |stored| stored.group), kind.plural),
            empty: Object::try_from(flyball_schema::decode::zero(schema.node())).expect("a kind is an object"),
            schema,
            // What is stored in other words is not what was written.
            schema_number: kind.stored.is_some().into(),
            behaviour: Behaviour::BuiltIn(kind),
            head: head(&name),
            kind: name,
        }
    }

    /// The name of the resource without version, as messages and rules have it.
    pub(crate) fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.kind.group.clone(), resource: self.plural.clone() }
    }

    /// The name of the group in Kubernetes' own code, where messages come from.
    pub(crate) fn internal_group(&self) -> &str {
        if self.kind.group.is_empty() { "core" } else { self.kind.group.split('.').next().unwrap_or_default() }
    }

    pub(crate) fn custom(&self) -> Option<&Arc<CustomKind>> {
        match &self.behaviour {
            Behaviour::Custom(custom) => Some(custom),
            Behaviour::BuiltIn(_) => None,
        }
    }

    fn as_built_in(&self) -> Option<&'static Kind> {
        match &self.behaviour {
            Behaviour::BuiltIn(kind) => Some(kind),
            Behaviour::Custom(_) => None,
        }
    }

    /// Whether a webhook converts what is stored in another version.
    pub(crate) fn converts(&self) -> bool {
        self.custom().is_some_and(|custom| custom.conversion.is_some())
    }

    /// The version in which objects are stored, for a custom resource.
    pub(crate) fn stored_as(&self, inner: &Inner) -> Option<Arc<Self>> {
        inner.catalog().get(&self.kind.group, &self.custom()?.storage_version, &self.plural)
    }

    /// The version in which an entry was stored, for a custom resource; the one to store in if it is gone.
    pub(crate) fn written_as(&self, inner: &Inner, entry: &Entry) -> Option<Arc<Self>> {
        let catalog = inner.catalog();
        let versions = catalog.group(&self.kind.group).into_iter().flat_map(|group| &group.versions);
        let mut resources = versions.filter_map(|version| version.resources.get(&self.plural));
        let written = resources.find(|known| schema_number::same_version(known.schema_number, entry.schema));
        written.cloned().or_else(|| self.stored_as(inner))
    }

    /// Whether clients may see the resource: versions that are not served are known, since objects may be stored in them.
    pub(crate) fn is_served(&self) -> bool {
        self.custom().is_none_or(|custom| custom.served)
    }

    pub(crate) fn verbs(&self) -> Verbs {
        self.as_built_in().map_or(Verbs::All, |kind| kind.verbs)
    }

    /// The types that answers can be given in, as messages list them.
    pub(crate) fn offered(&self) -> &'static str {
        if self.custom().is_some() { crate::request::accept::CUSTOM } else { crate::request::accept::BUILT_IN }
    }

    pub(crate) fn name_rule(&self) -> Rule {
        self.as_built_in().map_or(names::dns_subdomain, |kind| kind.name_rule)
    }

    pub(crate) fn create_on_update(&self) -> bool {
        self.as_built_in().is_some_and(|kind| kind.create_on_update)
    }

    /// Whether an update must say which version it is made on.
    pub(crate) fn versioned_updates(&self) -> bool {
        self.as_built_in().is_none_or(|kind| kind.versioned_updates)
    }

    pub(crate) fn deleted_as(&self) -> Answer {
        self.as_built_in().map_or(Answer::Status, |kind| kind.deleted_as)
    }

    /// Whether a write of this part is possible.
    pub(crate) fn has_part(&self, part: Part) -> bool {
        match &self.behaviour {
            Behaviour::BuiltIn(kind) => {
                part == Part::Whole || kind.subresources.iter().any(|sub| sub.part == Some(part))
            }
            Behaviour::Custom(custom) => match part {
                Part::Whole => true,
                Part::Status => custom.status,
                Part::Scale => custom.scale.is_some(),
                _ => false,
            },
        }
    }

    pub(crate) fn scale(&self) -> Option<ScalePaths<'_>> {
        match &self.behaviour {
            Behaviour::BuiltIn(kind) => {
                let selector =
                    Some(if kind.kind == "ReplicationController" { ".spec.selector" } else { ".spec.selector!" });
                self.has_part(Part::Scale).then_some(ScalePaths {
                    spec: ".spec.replicas",
                    status: ".status.replicas",
                    selector,
                })
            }
            Behaviour::Custom(custom) => custom.scale.as_ref().map(|scale| ScalePaths {
                spec: &scale.spec,
                status: &scale.status,
                selector: scale.selector.as_deref(),
            }),
        }
    }

    /// The fields, besides name and namespace, that objects can be selected by.
    pub(crate) fn selectable(&self) -> Vec<&str> {
        match &self.behaviour {
            Behaviour::BuiltIn(kind) => kind.fields.to_vec(),
            Behaviour::Custom(custom) => custom.selectable.iter().map(|path| path.trim_start_matches('.')).collect(),
        }
    }

    /// Whether an unknown field selector is told with the list of those known.
    pub(crate) fn lists_fields(&self) -> bool {
        self.as_built_in().is_some_and(|kind| kind.lists_fields)
    }

    /// Takes from an object what lists and watches select by.
    pub(crate) fn facts(&self, object: &Object) -> Facts {
        let values = match &self.behaviour {
            Behaviour::BuiltIn(kind) => kind.fields.iter().map(|field| (kind.field)(object, field)).collect(),
            Behaviour::Custom(custom) => {
                custom.selectable.iter().map(|path| crate::custom::selected(object, path)).collect()
            }
        };
        Facts::of(object, values)
    }

    /// Leaves out of an object what its stored form does not hold: JSON holds all, protobuf no empty list.
    pub(crate) fn forget(&self, object: &mut Object) {
        let in_json = matches!(&*self.kind.group, "apiextensions.k8s.io" | "apiregistration.k8s.io");
        if self.custom().is_none() && !in_json {
            object.change(|value| flyball_schema::decode::forget_empty_lists(self.schema.node(), value));
        }
    }

    /// Fills in what the client left out, as far as there is memory for it.
    pub(crate) fn default(&self, object: &mut Object) {
        // Who reads takes what there is: nothing was stored that takes so much.
        let _ = self.fill(object);
    }

    fn fill(&self, object: &mut Object) -> Result<(), TooLarge> {
        let filled = object.change(|value| flyball_schema::prune::default(self.schema.node(), value));
        if let Behaviour::BuiltIn(kind) = &self.behaviour {
            (kind.default)(object);
        }
        filled
    }

    /// Fills in what the client left out, and refuses what takes too much memory with it, before copies are made of it.
    /// What takes too much as it is stored may stay so, and become less.
    pub(crate) fn default_within(&self, object: &mut Object, live: Option<&Object>) -> Result<(), Status> {
        let filled = self.fill(object);
        let weight = |object: &Object| flyball_core::memory::of(object.as_value());
        let is_within = |own: usize| own <= MAX_WEIGHT || live.is_some_and(|live| own <= weight(live));
        if filled.is_ok() && is_within(weight(object)) {
            return Ok(());
        }
        Err(Status::too_large(body::Error::TooLarge.to_string()))
    }

    /// Brings a written object into the state that a write through a part of it may leave it in.
    pub(crate) fn prepare(&self, object: &mut Object, old: Option<&Object>, part: Part, clock: &Clock) {
        match &self.behaviour {
            Behaviour::BuiltIn(kind) => (kind.prepare)(object, old, part, clock),
            Behaviour::Custom(custom) => custom.prepare(object, old, part),
        }
    }

    /// Brings an object into the form in which it comes back from storage.
    pub(super) fn settle(&self, object: &mut Object) {
        if let Behaviour::BuiltIn(_) = self.behaviour {
            object.change(|value| flyball_schema::decode::forget_empty(self.schema.node(), value));
        }
    }

    /// Finds what is wrong with an object, or with its change; metadata is looked at elsewhere.
    pub(crate) fn validate(&self, object: &Object, old: Option<&Object>, part: Part) -> Findings {
        match &self.behaviour {
            Behaviour::BuiltIn(kind) => {
                let mut errors = self.validate_finalizers(object);
                errors.extend((kind.validate)(object, old, part));
                Findings { errors, ..Findings::default() }
            }
            Behaviour::Custom(custom) => custom.validate(&self.schema, object, old, part),
        }
    }

    /// Finds finalizers that are neither Kubernetes' own nor have a domain, where they must.
    pub(crate) fn validate_finalizers(&self, object: &Object) -> Vec<FieldError> {
        let strict = self.as_built_in().is_some_and(Kind::strict_finalizers);
        if strict { super::meta::validate_finalizers(object) } else { Vec::new() }
    }

    /// Warns of what is allowed but unwise.
    pub(crate) fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        match &self.behaviour {
            Behaviour::BuiltIn(kind) => (kind.warn)(object, old),
            Behaviour::Custom(_) => Vec::new(),
        }
    }

    /// How often the metadata of a change is checked.
    pub(crate) fn checks(&self) -> Checks {
        self.as_built_in().map_or(Checks::Again, |kind| kind.checks)
    }

    /// The kind that refusals name: that of what is stored.
    pub(crate) fn refused_kind(&self) -> GroupVersionKind {
        GroupVersionKind { group: self.table.group.clone(), ..self.kind.clone() }
    }

    /// Whether `metadata.generation` counts changes of what is wanted.
    pub(crate) fn counts_generations(&self) -> bool {
        self.as_built_in().is_none_or(|kind| kind.generation)
    }

    /// The warning that comes with every answer, if the version is deprecated.
    pub(crate) fn deprecation(&self) -> Option<&str> {
        match &self.behaviour {
            Behaviour::BuiltIn(kind) if kind.kind == "Endpoints" => {
                Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
            }
            Behaviour::BuiltIn(_) => None,
            Behaviour::Custom(custom) => custom.deprecation.as_deref(),
        }
    }
}
