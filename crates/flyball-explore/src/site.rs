//! Sites: stable names of the points of a run at which a fault can be injected.
//!
//! A site is a crossing of a port, named by the port, the thing that crosses it and the number of such crossings so
//! far: `patch:apps/statefulsets/web#2` is the second patch of that object by the operator. Unlike a number of the
//! request, it survives changes of unrelated code.

use http::{Method, Uri};
use std::fmt;
use std::str::FromStr;

/// The boundary that a site is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Port {
    /// Read of an object.
    Get,
    /// List of a resource.
    List,
    /// Start of a watch.
    Open,
    /// Creation of an object.
    Create,
    /// Replacement of an object.
    Update,
    /// Patch of an object, applies included.
    Patch,
    /// Deletion of an object.
    Delete,
    /// Deletion of the objects of a resource.
    DeleteCollection,
    /// Delivery of an event of a watch to the operator.
    Watch,
    /// Read or write of a Lease. Watches of leases are as other watches.
    Lease,
    /// Call of a webhook of the operator.
    Webhook,
    /// Call of an external system.
    External,
    /// Start of a step of the scenario.
    Step,
}

impl Port {
    /// All ports.
    pub const ALL: [Self; 13] = [
        Self::Get,
        Self::List,
        Self::Open,
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::DeleteCollection,
        Self::Watch,
        Self::Lease,
        Self::Webhook,
        Self::External,
        Self::Step,
    ];

    /// Returns the name of the port in sites.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Open => "open",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Watch => "watch",
            Self::Lease => "lease",
            Self::Webhook => "webhook",
            Self::External => "external",
            Self::Step => "step",
        }
    }

    /// Returns true for writes of objects.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Patch | Self::Delete | Self::DeleteCollection)
    }

    /// Returns true for requests to the API server.
    pub fn is_request(self) -> bool {
        self.is_write() || matches!(self, Self::Get | Self::List | Self::Open | Self::Lease)
    }
}

/// A point of a run at which a fault can be injected.
#[doc(alias("failpoint", "fail point"))]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// Number of the operator's process; the first one is 0.
    pub process: u8,
    /// The boundary.
    pub port: Port,
    /// The thing that crosses it, such as `apps/statefulsets/web`.
    pub name: String,
    /// Number of the crossing, from 1 on.
    pub occurrence: u32,
}

impl Site {
    /// Returns the site of the same crossing a number of times later.
    #[must_use]
    pub fn later(&self, by: u32) -> Self {
        Self { occurrence: self.occurrence + by, ..self.clone() }
    }

    /// Returns true for requests of leases, and for events of their watches.
    pub(crate) fn concerns_lease(&self) -> bool {
        let is_of_kind = |name: &str| matches!(name.as_bytes().first(), None | Some(b'/'));
        self.port == Port::Lease || self.name.strip_prefix(LEASES).is_some_and(is_of_kind)
    }

    /// Returns true if only the occurrences differ.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.process, self.port, &self.name) == (other.process, other.port, &other.name)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.process > 0 {
            write!(f, "{}@", self.process)?;
        }
        write!(f, "{}:{}", self.port.name(), escaped(&self.name))?;
        if self.port == Port::Step { Ok(()) } else { write!(f, "#{}", self.occurrence) }
    }
}

/// Error of parsing a site.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid site {text:?}: {why}; a site is PORT:NAME#OCCURRENCE, such as patch:apps/statefulsets/web#2")]
pub struct SiteError {
    text: String,
    why: &'static str,
}

impl FromStr for Site {
    type Err = SiteError;

    fn from_str(text: &str) -> Result<Self, SiteError> {
        let invalid = |why| SiteError { text: text.to_owned(), why };
        let (process, rest) = match text.split_once('@') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                (number.parse().map_err(|_| invalid("the number of the process is too large"))?, rest)
            }
            _ => (0, text),
        };
        let (port, name) = rest.split_once(':').ok_or_else(|| invalid("it has no colon"))?;
        let port = Port::ALL.into_iter().find(|known| known.name() == port).ok_or_else(|| invalid("unknown port"))?;
        let (name, occurrence) = match name.rsplit_once('#') {
            Some((name, number)) => {
                (name, number.parse().map_err(|_| invalid("the occurrence is not a positive number"))?)
            }
            None => (name, 1),
        };
        if occurrence == 0 || name.is_empty() {
            return Err(invalid("occurrences count from 1 on, and the name is not empty"));
        }
        let name = unescaped(name).ok_or_else(|| invalid("a percent sign is not followed by two hex digits"))?;
        Ok(Self { process, port, name, occurrence })
    }
}

/// Replaces characters that separate the parts of a schedule.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '%' | ';' | '=' | '#' | '@' | ',' | '[' | ']' => escaped += &format!("%{:02x}", u32::from(c)),
            c if c.is_whitespace() || c.is_control() => {
                let mut bytes = [0; 4];
                c.encode_utf8(&mut bytes).bytes().for_each(|byte| escaped += &format!("%{byte:02x}"));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Reverts [`escaped`].
pub(crate) fn unescaped(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (high, low) = (char::from(rest.next()?).to_digit(16)?, char::from(rest.next()?).to_digit(16)?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// The object, or the collection, that a request concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestTarget {
    pub(crate) port: Port,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) namespace: Option<String>,
    /// The name of the object, `None` for collections and creations.
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    pub(crate) is_dry_run: bool,
}

impl RequestTarget {
    /// Parses a request; `None` if it concerns no object.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let query = uri.query().unwrap_or_default();
        let mut path = uri.path().split('/').filter(|part| !part.is_empty());
        let group = match path.next()? {
            "api" => "",
            "apis" => path.next()?,
            _ => return None,
        };
        path.next()?;
        let mut resource = path.next()?;
        let (mut name, mut subresource, mut namespace) = (path.next(), path.next(), None);
        if let ("namespaces", Some(part)) = (resource, subresource)
            && !["status", "finalize"].contains(&part)
        {
            (namespace, resource, name, subresource) = (name, part, path.next(), path.next());
        }
        let has = |option: &str| query.split('&').any(|pair| pair == option);
        let port = match (method.as_str(), name) {
            ("GET", None) if has("watch=true") || has("watch=1") => Port::Open,
            _ if resource == "leases" => Port::Lease,
            ("GET", None) => Port::List,
            ("GET", Some(_)) => Port::Get,
            ("POST", _) => Port::Create,
            ("PUT", _) => Port::Update,
            ("PATCH", _) => Port::Patch,
            ("DELETE", Some(_)) => Port::Delete,
            ("DELETE", None) => Port::DeleteCollection,
            _ => return None,
        };
        let owned = |part: Option<&str>| part.map(str::to_owned);
        Some(Self {
            port,
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: owned(namespace),
            name: owned(name),
            subresource: owned(subresource),
            is_dry_run: has("dryRun=All"),
        })
    }

    /// Returns the name of the site, with the name of the object as it is in all runs. The namespace of the scenario is
    /// omitted.
    pub(crate) fn site_name(&self, method: &Method, object: &str) -> String {
        if self.port == Port::Lease {
            return match method.as_str() {
                "GET" if self.name.is_some() => "read",
                "GET" => "list",
                "POST" => "acquire",
                _ => "renew",
            }
            .to_owned();
        }
        let mut name = kind_name(&self.group, &self.resource);
        if self.name.is_some() || self.port == Port::Create {
            name = object_name(&name, self.namespace.as_deref(), object);
        } else if let Some(namespace) = self.namespace.as_deref().filter(|namespace| *namespace != NAMESPACE) {
            name = format!("{namespace}/{name}");
        }
        match &self.subresource {
            Some(part) => format!("{name}/{part}"),
            None => name,
        }
    }
}

/// The kind of leases, as in sites.
const LEASES: &str = "coordination.k8s.io/leases";
/// Namespace of the operator itself.
pub(crate) const OPERATOR_NAMESPACE: &str = "operator-system";
/// Namespace of the scenario.
pub(crate) const NAMESPACE: &str = "test";

/// Namespace of a neighbor of the same name.
pub(crate) const ELSEWHERE: &str = "elsewhere";

/// Returns `group/resource`, or the resource of the core group.
pub(crate) fn kind_name(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{group}/{resource}") }
}

/// Returns the name of an object; the namespace of the scenario is omitted.
pub(crate) fn object_name(kind: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if namespace != NAMESPACE => format!("{kind}/{namespace}/{name}"),
        _ => format!("{kind}/{name}"),
    }
}

/// Returns the name of an object in reports, from its path.
pub(crate) fn name_at(path: &str) -> String {
    let target = path.parse().ok().and_then(|uri| RequestTarget::of(&Method::GET, &uri));
    target.map_or_else(
        || path.to_owned(),
        |target| {
            let kind = kind_name(&target.group, &target.resource);
            object_name(&kind, target.namespace.as_deref(), target.name.as_deref().unwrap_or_default())
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sites_round_trip(
            process in 0u8..3, port in 0usize..13, name in "[ -~é]{1,20}", occurrence in 1u32..100,
        ) {
            let port = Port::ALL[port];
            let occurrence = if port == Port::Step { 1 } else { occurrence };
            let site = Site { process, port, name, occurrence };
            prop_assert_eq!(site.to_string().parse::<Site>(), Ok(site));
        }
    }

    #[test]
    fn requests_are_named_by_verb_and_object() {
        for (method, uri, port, name) in [
            ("GET", "/api/v1/pods", Port::List, "pods"),
            ("GET", "/apis/apps/v1/namespaces/test/deployments?watch=true", Port::Open, "apps/deployments"),
            ("PATCH", "/apis/apps/v1/namespaces/test/deployments/b/status", Port::Patch, "apps/deployments/x/status"),
            ("POST", "/apis/apps/v1/namespaces/a/deployments", Port::Create, "apps/deployments/a/x"),
            ("DELETE", "/api/v1/namespaces/a", Port::Delete, "namespaces/x"),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", Port::Lease, "renew"),
            ("GET", "/apis/coordination.k8s.io/v1/leases?watch=true", Port::Open, "coordination.k8s.io/leases"),
            ("DELETE", "/api/v1/namespaces/test/pods", Port::DeleteCollection, "pods"),
        ] {
            let method = method.parse().unwrap();
            let target = RequestTarget::of(&method, &uri.parse().unwrap()).unwrap();
            assert_eq!((target.port, &*target.site_name(&method, "x")), (port, name), "{method} {uri}");
        }
        assert_eq!(RequestTarget::of(&Method::GET, &"/readyz".parse().unwrap()), None);
    }

    #[test]
    fn sites_of_leases_are_recognized() {
        let concerns = |text: &str| text.parse::<Site>().unwrap().concerns_lease();
        let lease = ["lease:renew#2", "watch:coordination.k8s.io/leases/a/b#1", "open:coordination.k8s.io/leases#1"];
        assert!(lease.into_iter().all(concerns));
        assert!(!["watch:coordination.k8s.io/leasesets/a#1", "step:2", "get:leases/a#1"].into_iter().any(concerns));
    }

    #[test]
    fn paths_are_named_like_sites() {
        assert_eq!(name_at("/apis/apps/v1/namespaces/test/deployments/a"), "apps/deployments/a");
        assert_eq!(name_at("/readyz"), "/readyz");
    }

    #[test]
    fn invalid_sites_are_rejected_with_the_reason() {
        for text in ["", "patch", "fly:a#1", "patch:a#0", "patch:a#x", "999@patch:a#1", "patch:%zz#1"] {
            assert!(text.parse::<Site>().is_err(), "{text}");
        }
    }
}
