//! Subresources: their names, verbs and bodies, and the parts of an object that they change.

/// The part of an object changed by a write: the object or a subresource.
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
    /// The name in paths and managedFields; empty for the object itself.
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

/// A subresource of a built-in kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    pub(crate) kind: Option<&'static str>,
    /// Group and version of its kind, if they are not those of the resource.
    pub(crate) group_version: Option<(&'static str, &'static str)>,
    pub(crate) verbs: &'static [&'static str],
    /// The part of the object, if the subresource is a part of it.
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
