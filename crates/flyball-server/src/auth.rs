//! Auth: who a client is, and what it may do.
//!
//! Takes headers and certificates, gives a [`User`]; takes an [`Action`], gives a [`Decision`]. It must not change
//! anything. The invariant: what cannot be read gives no rights.
//!
//! A client is known by its certificate, by a service account's token or by what an in-process caller says; what it may
//! do, RBAC rules say. See <https://kubernetes.io/docs/reference/access-authn-authz/>.

mod authenticate;
mod authorize;
pub(crate) mod bootstrap;
mod coverage;
mod impersonation;
mod rbac;
pub(crate) mod reviews;
mod tokens;

pub(crate) use authenticate::Authenticator;
pub(crate) use authorize::Authorizer;
pub(crate) use coverage::{Missing, missing};
pub(crate) use rbac::{Rbac, Rule, is_policy};
pub(crate) use tokens::{ISSUER, Issuer};

use tokens::{Bound, Refusal};

use crate::request::RequestInfo;
use flyball_core::{GroupResource, Status};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A client that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its UID, empty if it has none.
    pub uid: String,
    /// The groups that it is a member of.
    pub groups: Vec<String>,
    /// Whatever else is known of it.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user of these groups, and of all that are known.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().copied().chain([AUTHENTICATED]).map(str::to_owned).collect();
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// The user that may do anything.
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &[MASTERS])
    }

    /// A service account, as its token would make it known.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::new(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")],
        )
    }

    /// A client that did not say who it is.
    pub(crate) fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// Writes the user as reviews show one: what is empty is left out.
    pub(crate) fn info(&self) -> Map<String, Value> {
        let told = [
            ("username", json!(self.name), self.name.is_empty()),
            ("uid", json!(self.uid), self.uid.is_empty()),
            ("groups", json!(self.groups), self.groups.is_empty()),
            ("extra", json!(self.extra), self.extra.is_empty()),
        ];
        told.into_iter().filter(|(.., empty)| !empty).map(|(field, value, _)| (field.to_owned(), value)).collect()
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|known| known == group)
    }
}

/// Tells the credential by which a user is known.
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
pub(crate) const ANONYMOUS: &str = "system:anonymous";
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
pub(crate) const MASTERS: &str = "system:masters";

/// Something that someone wants to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Action<'a> {
    pub(crate) user: &'a User,
    pub(crate) verb: &'a str,
    pub(crate) on: On<'a>,
}

/// The resource or path that an action is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum On<'a> {
    Resource { group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str, name: &'a str },
    Path(&'a str),
}

impl<'a> On<'a> {
    /// Names what a request is about.
    pub(crate) fn of(request: &'a RequestInfo) -> Self {
        let Some(path) = &request.resource else { return Self::Path(&request.path) };
        Self::Resource {
            group: &path.group,
            resource: &path.resource,
            subresource: path.subresource.as_deref().unwrap_or_default(),
            namespace: path.namespace.as_deref().unwrap_or_default(),
            name: path.name.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the namespace, empty for the cluster.
    pub(crate) fn namespace(&self) -> &'a str {
        match self {
            Self::Resource { namespace, .. } => namespace,
            Self::Path(_) => "",
        }
    }
}

/// True if something may be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It may; the text says by which rule, if by one.
    Allowed(String),
    /// Nothing allows it.
    NoOpinion,
}

impl Action<'_> {
    /// Rejects the action, in the words of the real server.
    pub(crate) fn forbidden(&self) -> Status {
        let user = flyball_core::field::go_quote(&self.user.name);
        match self.on {
            On::Path(path) => {
                let quoted = flyball_core::field::go_quote(path);
                let why = format!("User {user} cannot {} path {quoted}", self.verb);
                let mut status = Status::forbidden(&GroupResource::default(), "", why);
                status.details = Some(Box::default());
                status
            }
            On::Resource { group, resource, subresource, namespace, name } => {
                let full =
                    if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
                let place = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace \"{namespace}\"")
                };
                let why =
                    format!("User {user} cannot {} resource \"{full}\" in API group \"{group}\" {place}", self.verb);
                Status::forbidden(&GroupResource::new(group, resource), name, why)
            }
        }
    }
}
