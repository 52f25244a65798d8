//! What a built-in kind is made of.

use super::printers::{self, Printer};
use flyball_core::field::FieldError;
use flyball_core::names::{self, Rule};
use flyball_core::{Clock, Object};

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
    /// Which names objects may have.
    pub(crate) name_rule: Rule,
    /// Whether a PUT of what does not exist creates it.
    pub(crate) create_on_update: bool,
    /// Whether an update must say which version it is made on.
    pub(crate) versioned_updates: bool,
    /// What a deletion that is done at once is answered with.
    pub(crate) deleted_as: Answer,
    /// Whether `metadata.generation` counts changes of what is wanted.
    pub(crate) generation: bool,
    /// What, besides its labels, the kind can be selected by; and the value that each has for an object.
    pub(crate) fields: &'static [&'static str],
    pub(crate) field: fn(&Object, &str) -> String,
    /// Whether an unknown field selector is told with the list of those known.
    pub(crate) lists_fields: bool,
    /// How objects are stored, if not as they are.
    pub(crate) stored: Option<StoredAs>,
    /// Fills in what the client left out.
    pub(crate) default: fn(&mut Object),
    /// Brings an object into the state that a write through a part of it may leave it in; `None` is a create.
    pub(crate) prepare: fn(&mut Object, Option<&Object>, Part, &Clock),
    /// Finds what is wrong with an object, or with its change; metadata is looked at elsewhere.
    pub(crate) validate: fn(&Object, Option<&Object>, Part) -> Vec<FieldError>,
    /// How objects are shown in a table.
    pub(crate) printer: Printer,
    /// Warns of what is allowed but unwise.
    pub(crate) warn: fn(&Object, Option<&Object>) -> Vec<String>,
}

/// What can be done with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbs {
    /// All that there is.
    All,
    /// All but the deletion of many at once.
    NoCollection,
    /// A question that is answered and forgotten.
    CreateOnly,
    /// Only looked at.
    ReadOnly,
}

impl Verbs {
    /// Lists the verbs as discovery does.
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

/// The part of an object that a write goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Whole,
    Status,
    Scale,
    Finalize,
    Approval,
    EphemeralContainers,
    Resize,
    Binding,
}

impl Part {
    /// The name in paths and managedFields; empty for the whole.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalize => "finalize",
            Self::Approval => "approval",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
            Self::Binding => "binding",
        }
    }
}

/// What a deletion is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Status,
    Object,
}

/// A subresource of a built-in kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    pub(crate) kind: Option<&'static str>,
    /// Group and version of its kind, if they are not those of the resource.
    pub(crate) group_version: Option<(&'static str, &'static str)>,
    pub(crate) verbs: &'static [&'static str],
    /// The part of the object that it is, if it is one.
    pub(crate) part: Option<Part>,
}

const READ_WRITE: &[&str] = &["get", "patch", "update"];

impl Subresource {
    const fn part(name: &'static str, part: Part, verbs: &'static [&'static str]) -> Self {
        Self { name, kind: None, group_version: None, verbs, part: Some(part) }
    }

    const fn action(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Self {
        Self { name, kind: Some(kind), group_version: None, verbs, part: None }
    }

    const fn of(self, group: &'static str, version: &'static str) -> Self {
        Self { group_version: Some((group, version)), ..self }
    }

    pub(crate) const STATUS: Self = Self::part("status", Part::Status, READ_WRITE);
    pub(crate) const APPROVAL: Self = Self::part("approval", Part::Approval, READ_WRITE);
    pub(crate) const FINALIZE: Self = Self::part("finalize", Part::Finalize, &["update"]);
    pub(crate) const EPHEMERAL: Self = Self::part("ephemeralcontainers", Part::EphemeralContainers, READ_WRITE);
    pub(crate) const RESIZE: Self = Self::part("resize", Part::Resize, READ_WRITE);
    pub(crate) const SCALE: Self =
        Self { kind: Some("Scale"), ..Self::part("scale", Part::Scale, READ_WRITE) }.of("autoscaling", "v1");
    pub(crate) const BINDING: Self = Self::action("binding", "Binding", &["create"]);
    pub(crate) const EVICTION: Self = Self::action("eviction", "Eviction", &["create"]).of("policy", "v1");
    pub(crate) const TOKEN: Self = Self::action("token", "TokenRequest", &["create"]).of("authentication.k8s.io", "v1");
    pub(crate) const LOG: Self = Self { kind: None, ..Self::action("log", "", &["get"]) };
    const CONNECT: &'static [&'static str] = &["create", "get"];
    const PROXY_VERBS: &'static [&'static str] = &["create", "delete", "get", "patch", "update"];
    pub(crate) const ATTACH: Self = Self::action("attach", "PodAttachOptions", Self::CONNECT);
    pub(crate) const EXEC: Self = Self::action("exec", "PodExecOptions", Self::CONNECT);
    pub(crate) const PORT_FORWARD: Self = Self::action("portforward", "PodPortForwardOptions", Self::CONNECT);
    pub(crate) const POD_PROXY: Self = Self::action("proxy", "PodProxyOptions", Self::PROXY_VERBS);
    pub(crate) const NODE_PROXY: Self = Self::action("proxy", "NodeProxyOptions", Self::PROXY_VERBS);
    pub(crate) const SERVICE_PROXY: Self = Self::action("proxy", "ServiceProxyOptions", Self::PROXY_VERBS);
}

/// How a kind is stored that is another one in other words.
#[derive(Clone, Copy)]
pub(crate) struct StoredAs {
    /// Group of the resource that objects are stored under; its name is the same.
    pub(crate) group: &'static str,
    /// Turns an object into what is stored, all but `apiVersion` and `kind`.
    pub(crate) write: fn(&mut Object),
    /// Turns what is stored into an object of the kind.
    pub(crate) read: fn(&mut Object),
}

/// Where a kind keeps what its scale shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths<'p> {
    pub(crate) spec: &'p str,
    pub(crate) status: &'p str,
    pub(crate) selector: Option<&'p str>,
}

impl Kind {
    /// A kind whose objects stand in namespaces, with the behaviour that most have.
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
            deleted_as: Answer::Status,
            generation: false,
            fields: &[],
            field: |_, _| String::new(),
            lists_fields: true,
            stored: None,
            default: |_| {},
            prepare: |_, _, _, _| {},
            validate: |_, _, _| Vec::new(),
            printer: printers::plain,
            warn: |_, _| Vec::new(),
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

    pub(super) const fn printed(self, printer: Printer) -> Self {
        Self { printer, ..self }
    }

    pub(super) const fn fields(self, fields: &'static [&'static str], field: fn(&Object, &str) -> String) -> Self {
        Self { fields, field, lists_fields: false, ..self }
    }

    /// The kind can be selected by texts at these paths.
    pub(super) const fn paths(self, fields: &'static [&'static str]) -> Self {
        self.fields(fields, crate::custom::selected)
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
        Self { deleted_as: Answer::Object, ..self }
    }

    pub(super) const fn name_rule(self, name_rule: Rule) -> Self {
        Self { name_rule, ..self }
    }

    pub(super) const fn verbs(self, verbs: Verbs) -> Self {
        Self { verbs, ..self }
    }

    /// The singular name: the kind in lower case.
    pub(crate) fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    /// The package in which the notation declares the kind.
    pub(crate) fn package(&self) -> String {
        let group = if self.group.is_empty() { "core" } else { self.group };
        format!("{group}/{}", self.version)
    }
}
