//! Auth: authentication and authorization.
//!
//! Takes headers and certificates, returns a [`User`]; takes an [`Action`], returns a [`Decision`]. It changes nothing.
//! Invariant: unreadable objects grant no permissions.
//!
//! A client authenticates by a certificate, by a service account's token or as the user that an in-process caller
//! names. RBAC rules authorize it. See <https://kubernetes.io/docs/reference/access-authn-authz/>.

mod authenticate;
mod authorize;
pub(crate) mod bootstrap;
mod coverage;
mod impersonation;
mod rbac;
pub(crate) mod reviews;
mod tokens;

pub(crate) use authenticate::Authenticator;
pub(crate) use authorize::{Authorizer, PolicyImage, is_policy};
pub(crate) use coverage::{MissingRules, missing};
pub(crate) use rbac::Rule;
pub(crate) use tokens::{ISSUER, Issuer};

use tokens::{Bound, TokenError};

use crate::request::RequestInfo;
use flyball_core::{GroupResource, Status, service_account};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// An authenticated client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its UID, empty if it has none.
    pub uid: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// Further attributes by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Creates a user of these groups and of `system:authenticated`.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().copied().chain([AUTHENTICATED]).map(str::to_owned).collect();
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// Creates a user who may do anything.
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &[MASTERS])
    }

    /// Creates the user of a service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = service_account::group_names(namespace);
        Self::new(&service_account::user_name(namespace, name), &groups.each_ref().map(String::as_str))
    }

    /// The user of requests without credentials.
    pub(crate) fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// Returns the user as `UserInfo` of reviews, without empty fields.
    pub(crate) fn info(&self) -> Map<String, Value> {
        let fields = [
            ("username", json!(self.name), self.name.is_empty()),
            ("uid", json!(self.uid), self.uid.is_empty()),
            ("groups", json!(self.groups), self.groups.is_empty()),
            ("extra", json!(self.extra), self.extra.is_empty()),
        ];
        fields.into_iter().filter(|(.., empty)| !empty).map(|(field, value, _)| (field.to_owned(), value)).collect()
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|known| known == group)
    }

    /// Returns true if it is a service account outside of the namespace of the system.
    pub(crate) fn is_account_of_others(&self) -> bool {
        self.is_in(service_account::ALL_SERVICE_ACCOUNTS_GROUP)
            && !self.is_in(&service_account::group_name("kube-system"))
    }
}

/// The extra key with the ID of the credential of a user.
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
pub(crate) const ANONYMOUS: &str = "system:anonymous";
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
pub(crate) const MASTERS: &str = "system:masters";

/// A verb on a resource or path, by a user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Action<'a> {
    pub(crate) user: &'a User,
    pub(crate) verb: &'a str,
    pub(crate) on: ActionTarget<'a>,
}

/// The resource or path of an action.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ActionTarget<'a> {
    Resource { group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str, name: &'a str },
    Path(&'a str),
}

impl<'a> ActionTarget<'a> {
    /// Returns the resource or path of a request.
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

/// The result of authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Allowed, with the rule that allows it, if there is one.
    Allowed(String),
    /// No rule allows it.
    NoOpinion,
}

impl Action<'_> {
    /// Returns the 403 for the action, with kube-apiserver's message.
    pub(crate) fn forbidden(&self) -> Status {
        let user = flyball_core::field::go_quote(&self.user.name);
        match self.on {
            ActionTarget::Path(path) => {
                let quoted = flyball_core::field::go_quote(path);
                let why = format!("User {user} cannot {} path {quoted}", self.verb);
                let mut status = Status::forbidden(&GroupResource::default(), "", why);
                status.details = Some(Box::default());
                status
            }
            ActionTarget::Resource { group, resource, subresource, namespace, name } => {
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
