//! The parts of a built-in kind.

use super::printer::{self, Heading, Printer};
use super::subresource::{Part, Subresource};
use super::usage::Amounts;
use flyball_core::field::{FieldError, selectable_text};
use flyball_core::names::{self, Rule};
use flyball_core::time::Timestamp;
use flyball_core::{Clock, GroupResource, GroupVersionKind, Object};
use std::fmt;

/// The category of kinds that extend the API.
pub(super) const EXTENSIONS: &str = "api-extensions";

/// A built-in kind.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) category: Option<&'static str>,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Verbs,
    pub(crate) subresources: &'static [Subresource],
    /// The rule for names of objects.
    pub(crate) name_rule: Rule,
    /// True if a PUT of a missing object creates it.
    pub(crate) create_on_update: bool,
    /// True if an update must specify `metadata.resourceVersion`.
    pub(crate) versioned_updates: bool,
    pub(crate) checks: Checks,
    /// The response to a deletion that removes the object.
    pub(crate) deleted_as: DeletionResponse,
    /// True if `metadata.generation` counts changes of the desired state.
    pub(crate) generation: bool,
    /// The selectable fields of the kind, and a function that returns their values for an object.
    pub(crate) fields: &'static [&'static str],
    pub(crate) field: fn(&Object, &str) -> String,
    /// True if the error of an unknown field selector lists the supported ones.
    pub(crate) lists_fields: bool,
    /// The stored form of objects, if it differs.
    pub(crate) stored: Option<StoredAs>,
    /// Sets defaults.
    pub(crate) default: fn(&mut Object),
    /// Prepares a written object: resets the fields that writes to this subresource must not change. `None` is a
    /// create.
    pub(crate) prepare: fn(&mut Object, Option<&Object>, Part, &Clock),
    /// Validates an object or its change, without metadata.
    pub(crate) validate: fn(&Object, Option<&Object>, Part) -> Vec<FieldError>,
    /// The columns of tables, and the printer of their rows.
    pub(crate) columns: &'static [Heading],
    pub(crate) printer: Printer,
    /// Returns warnings.
    pub(crate) warn: fn(&Object, Option<&Object>) -> Vec<String>,
    pub(crate) deletion: Deletion,
    /// The warning of every response, if the version is deprecated.
    pub(crate) deprecation: Option<&'static str>,
    /// The path below `/registry` in errors of kube-apiserver's storage, if it is not the plural name.
    pub(crate) registry_path: Option<&'static str>,
    /// True if kube-apiserver stores the kind as JSON, which keeps empty lists that protobuf drops.
    pub(crate) stored_as_json: bool,
    /// True if clients set the status of a new object.
    pub(crate) created_with_status: bool,
    /// True if a write of the status does not change labels.
    pub(crate) status_keeps_labels: bool,
    /// True if a change of annotations increments the generation.
    pub(crate) generation_counts_annotations: bool,
    /// The path of the selector in the scale subresource: a map of labels, or a label selector if the path ends with
    /// `!`.
    pub(crate) scale_selector: &'static str,
    /// Versions that are accepted in bodies although they are not served.
    pub(crate) also_reads: &'static [&'static str],
    /// True if webhooks are not called for the kind: configuration of admission.
    pub(crate) exempt_from_webhooks: bool,
    /// True if policies are not evaluated for the kind: policies and reviews.
    pub(crate) exempt_from_policies: bool,
    /// The type of review, if objects are reviews.
    pub(crate) review: Option<Review>,
    /// Returns the amounts of an object that quotas count at this time. If there are amounts, quotas also count the
    /// object under the plural name of the kind. All objects are counted under `count/` and the plural name.
    pub(crate) quota_usage: fn(&Object, Timestamp) -> Option<Amounts>,
    /// True if unique addresses and ports are allocated to objects.
    pub(crate) allocates_addresses: bool,
    /// True if objects declare resources.
    pub(crate) declares_resources: bool,
    /// True if owner references to the kind are invalid.
    pub(crate) cannot_own: bool,
    /// The path of the template of the pods that are created for an object.
    pub(crate) pod_template: Option<&'static [&'static str]>,
}

impl fmt::Debug for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.kind)
    }
}

/// Deletion rules of a kind.
#[derive(Clone, Copy)]
pub(crate) struct Deletion {
    /// Returns the grace period of a deletion in seconds, given the requested one; `None` if the kind has none.
    pub(crate) grace: Option<fn(&Object, Option<i64>) -> i64>,
    /// True if dependents are orphaned by default.
    pub(crate) orphans: bool,
    /// The warning if the client does not choose a propagation policy.
    pub(crate) warning: Option<&'static str>,
    /// Returns true if something other than finalizers in the metadata prevents the removal of an object.
    pub(crate) outlives: fn(&Object) -> bool,
    /// Completes an object that is marked for deletion, given its previous state.
    pub(crate) mark: fn(&mut Object, &Object, &Clock),
    /// True if the objects are namespaces: the removal of one includes the unreadable objects in it.
    pub(crate) removes_content: bool,
}

impl Deletion {
    /// Deletes objects without finalizers immediately, with their dependents.
    pub(super) const AT_ONCE: Self = Self {
        grace: None,
        orphans: false,
        warning: None,
        outlives: |_| false,
        mark: |_, _, _| {},
        removes_content: false,
    };
}

/// The verbs of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbs {
    /// All verbs.
    All,
    /// All verbs except `deletecollection`.
    NoCollection,
    /// Only `create`: reviews, which are not stored.
    CreateOnly,
    /// Only `get` and `list`.
    ReadOnly,
}

impl Verbs {
    /// Returns the verbs as in discovery.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Self::All => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            Self::NoCollection => &["create", "delete", "get", "list", "patch", "update", "watch"],
            Self::CreateOnly => &["create"],
            Self::ReadOnly => &["get", "list"],
        }
    }

    pub(crate) fn allows(self, verb: &str) -> bool {
        self.names().contains(&verb)
    }
}

/// A type of review. See
/// <https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    /// The requesting user.
    SelfSubject,
    /// The user of a token.
    Token,
    /// The rules of the requesting user in a namespace.
    SelfRules,
    /// An action of the requesting user.
    SelfAccess,
    /// An action of any user.
    Access,
    /// An action of any user in the namespace of the review.
    LocalAccess,
}

impl Review {
    /// Returns true if the review evaluates the rules of a user.
    pub(crate) fn authorizes(self) -> bool {
        !matches!(self, Self::SelfSubject | Self::Token)
    }
}

/// The number of times that the metadata of an update is validated; errors are repeated accordingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    /// With the rules of all kinds.
    Once,
    /// Also with the rules of the kind.
    Again,
    /// Also with the rules of a new object.
    Whole,
}

/// The response to a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionResponse {
    Status,
    Object,
}

/// The stored form of a kind that is another representation of a stored kind.
#[derive(Clone, Copy)]
pub(crate) struct StoredAs {
    /// Group of the stored resource, whose name is the same.
    pub(crate) group: &'static str,
    /// Converts an object to its stored form, except for `apiVersion` and `kind`.
    pub(crate) write: fn(&mut Object),
    /// Converts the stored form to an object of the kind.
    pub(crate) read: fn(&mut Object),
}

/// The paths of a kind in its scale subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths<'p> {
    pub(crate) spec: &'p str,
    pub(crate) status: &'p str,
    pub(crate) selector: Option<&'p str>,
}

impl Kind {
    /// A namespaced kind with default behavior.
    pub(super) const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
            short_names: &[],
            category: None,
            namespaced: true,
            verbs: Verbs::All,
            subresources: &[],
            name_rule: names::dns_subdomain,
            create_on_update: false,
            versioned_updates: false,
            checks: Checks::Again,
            deleted_as: DeletionResponse::Status,
            generation: false,
            fields: &[],
            field: |_, _| String::new(),
            lists_fields: true,
            stored: None,
            default: |_| {},
            prepare: |_, _, _, _| {},
            validate: |_, _, _| Vec::new(),
            columns: printer::PLAIN,
            printer: printer::plain,
            warn: |_, _| Vec::new(),
            deletion: Deletion::AT_ONCE,
            deprecation: None,
            registry_path: None,
            stored_as_json: false,
            created_with_status: false,
            status_keeps_labels: false,
            generation_counts_annotations: false,
            scale_selector: ".spec.selector!",
            also_reads: &[],
            exempt_from_webhooks: false,
            exempt_from_policies: false,
            review: None,
            quota_usage: |_, _| None,
            allocates_addresses: false,
            declares_resources: false,
            cannot_own: false,
            pod_template: None,
        }
    }

    pub(super) const fn cluster(self) -> Self {
        Self { namespaced: false, ..self }
    }

    pub(super) const fn short(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    pub(super) const fn category(self, category: &'static str) -> Self {
        Self { category: Some(category), ..self }
    }

    pub(super) const fn subresources(self, subresources: &'static [Subresource]) -> Self {
        Self { subresources, ..self }
    }

    pub(super) const fn default(self, default: fn(&mut Object)) -> Self {
        Self { default, ..self }
    }

    pub(super) const fn prepare(self, prepare: fn(&mut Object, Option<&Object>, Part, &Clock)) -> Self {
        Self { prepare, ..self }
    }

    pub(super) const fn validate(self, validate: fn(&Object, Option<&Object>, Part) -> Vec<FieldError>) -> Self {
        Self { validate, ..self }
    }

    pub(super) const fn warn(self, warn: fn(&Object, Option<&Object>) -> Vec<String>) -> Self {
        Self { warn, ..self }
    }

    pub(super) const fn printed(self, columns: &'static [Heading], printer: Printer) -> Self {
        Self { columns, printer, ..self }
    }

    pub(super) const fn fields(self, fields: &'static [&'static str], field: fn(&Object, &str) -> String) -> Self {
        Self { fields, field, lists_fields: false, ..self }
    }

    /// Adds selectable fields with strings at these paths.
    pub(super) const fn paths(self, fields: &'static [&'static str]) -> Self {
        self.fields(fields, selectable_text)
    }

    pub(super) const fn stored_as(self, group: &'static str, write: fn(&mut Object), read: fn(&mut Object)) -> Self {
        Self { stored: Some(StoredAs { group, write, read }), ..self }
    }

    pub(super) const fn generation(self) -> Self {
        Self { generation: true, ..self }
    }

    pub(super) const fn create_on_update(self) -> Self {
        Self { create_on_update: true, ..self }
    }

    pub(super) const fn versioned_updates(self) -> Self {
        Self { versioned_updates: true, ..self }
    }

    pub(super) const fn deleted_as_object(self) -> Self {
        Self { deleted_as: DeletionResponse::Object, ..self }
    }

    pub(super) const fn checks(self, checks: Checks) -> Self {
        Self { checks, ..self }
    }

    pub(super) const fn name_rule(self, name_rule: Rule) -> Self {
        Self { name_rule, ..self }
    }

    pub(super) const fn verbs(self, verbs: Verbs) -> Self {
        Self { verbs, ..self }
    }

    pub(super) const fn deletion(self, deletion: Deletion) -> Self {
        Self { deletion, ..self }
    }

    pub(super) const fn deprecated(self, warning: &'static str) -> Self {
        Self { deprecation: Some(warning), ..self }
    }

    pub(super) const fn registry_path(self, path: &'static str) -> Self {
        Self { registry_path: Some(path), ..self }
    }

    pub(super) const fn stored_as_json(self) -> Self {
        Self { stored_as_json: true, ..self }
    }

    pub(super) const fn created_with_status(self) -> Self {
        Self { created_with_status: true, ..self }
    }

    pub(super) const fn status_keeps_labels(self) -> Self {
        Self { status_keeps_labels: true, ..self }
    }

    pub(super) const fn generation_counts_annotations(self) -> Self {
        Self { generation_counts_annotations: true, ..self }
    }

    pub(super) const fn scale_selector(self, path: &'static str) -> Self {
        Self { scale_selector: path, ..self }
    }

    pub(super) const fn exempt_from_webhooks(self) -> Self {
        Self { exempt_from_webhooks: true, ..self }
    }

    pub(super) const fn exempt_from_policies(self) -> Self {
        Self { exempt_from_policies: true, ..self }
    }

    /// Marks objects as reviews, which are not stored and not checked by policies.
    pub(super) const fn review(self, review: Review) -> Self {
        Self { verbs: Verbs::CreateOnly, exempt_from_policies: true, review: Some(review), ..self }
    }

    pub(super) const fn quota_usage(self, quota_usage: fn(&Object, Timestamp) -> Option<Amounts>) -> Self {
        Self { quota_usage, ..self }
    }

    pub(super) const fn allocates_addresses(self) -> Self {
        Self { allocates_addresses: true, ..self }
    }

    pub(super) const fn declares_resources(self) -> Self {
        Self { declares_resources: true, ..self }
    }

    pub(super) const fn cannot_own(self) -> Self {
        Self { cannot_own: true, ..self }
    }

    pub(super) const fn pod_template(self, path: &'static [&'static str]) -> Self {
        Self { pod_template: Some(path), ..self }
    }

    pub(super) const fn also_reads(self, versions: &'static [&'static str]) -> Self {
        Self { also_reads: versions, ..self }
    }

    /// Returns the singular name: the kind in lower case.
    pub(crate) fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    /// Returns true if finalizers must be standard or have a domain.
    pub(crate) fn strict_finalizers(&self) -> bool {
        const LENIENT: [&str; 5] = [
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "apiregistration.k8s.io",
            "coordination.k8s.io",
            "policy",
        ];
        !LENIENT.contains(&self.group) && self.checks != Checks::Once
    }

    pub(crate) fn group_version_kind(&self) -> GroupVersionKind {
        GroupVersionKind::new(self.group, self.version, self.kind)
    }

    /// Returns the storage table of the objects.
    pub(crate) fn table(&self) -> GroupResource {
        GroupResource::new(self.stored.map_or(self.group, |stored| stored.group), self.plural)
    }

    /// Returns the package in which the notation declares the kind.
    pub(crate) fn package(&self) -> String {
        let group = if self.group.is_empty() { "core" } else { self.group };
        format!("{group}/{}", self.version)
    }
}
