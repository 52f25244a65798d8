//! Impersonation: authorization of a client that acts as another user.
//!
//! Constrained modes come first: they check whether the client may do the action while it impersonates
//! (`impersonate-on:<mode>:<verb>` on the request's own target), and then whether it may impersonate that user
//! (`impersonate:<mode>`). The older verb `impersonate` is checked last. The error names the first check. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/>.

use super::{ANONYMOUS, AUTHENTICATED, Action, ActionTarget, Authorizer, MASTERS, UNAUTHENTICATED, User};
use crate::kinds::{NODE, SERVICE_ACCOUNT};
use crate::request::RequestInfo;
use flyball_core::service_account::{group_names, split_user_name};
use flyball_core::{Status, names};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Maximum number of clients whose last mode is remembered.
const MAX_REMEMBERED_CLIENTS: usize = 1_000;

/// Number of groups or extra values from which a permission for all of them is checked first.
const WILDCARD_THRESHOLD: usize = 4;

/// A way to be allowed to impersonate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

/// The mode by which each client was last allowed to impersonate. It is tried first, and its error is reported.
#[derive(Default)]
pub(crate) struct LastModes(Mutex<BTreeMap<String, Mode>>);

impl LastModes {
    fn get(&self, client: &str) -> Option<Mode> {
        self.0.lock().get(client).copied()
    }

    fn set(&self, client: &str, mode: Mode) {
        let mut known = self.0.lock();
        if known.len() >= MAX_REMEMBERED_CLIENTS && !known.contains_key(client) {
            known.clear();
        }
        known.insert(client.to_owned(), mode);
    }
}

/// Checks that a client may act as another user in a request; returns that user with its effective groups.
pub(super) fn authorize(
    authorizer: &Authorizer,
    modes: &LastModes,
    client: &User,
    target: &User,
    request: &RequestInfo,
) -> Result<User, Status> {
    use Mode::{ArbitraryNode, AssociatedNode, Legacy, ServiceAccount, UserInfo};
    let last = modes.get(&client.name);
    let others = [AssociatedNode, ArbitraryNode, ServiceAccount, UserInfo, Legacy];
    let others = others.into_iter().filter(|mode| Some(*mode) != last);
    let mut rejection = None;
    for mode in last.into_iter().chain(others).filter(|mode| mode.applies(client, target)) {
        let checked =
            mode.check_request(authorizer, client, request).and_then(|()| mode.check_user(authorizer, client, target));
        match checked {
            Ok(()) => {
                modes.set(&client.name, mode);
                return Ok(mode.become_user(target));
            }
            Err(status) => drop(rejection.get_or_insert(status)),
        }
    }
    Err(rejection.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

/// Splits the user name of a service account into namespace and name.
pub(super) fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = split_user_name(user)?;
    let good = names::dns_label(namespace).is_empty() && names::dns_subdomain(name).is_empty();
    good.then_some((namespace, name))
}

fn node(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| names::dns_subdomain(name).is_empty())
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn applies(self, client: &User, target: &User) -> bool {
        let only_name = target.uid.is_empty() && target.groups.is_empty() && target.extra.is_empty();
        match self {
            Self::AssociatedNode => {
                let own = client.extra.get("authentication.kubernetes.io/node-name").map(Vec::as_slice);
                only_name
                    && service_account(&client.name).is_some()
                    && node(&target.name).is_some_and(|name| matches!(own, Some([own]) if own == name))
            }
            Self::ArbitraryNode => only_name && node(&target.name).is_some(),
            Self::ServiceAccount => only_name && service_account(&target.name).is_some(),
            Self::UserInfo => node(&target.name).is_none() && service_account(&target.name).is_none(),
            Self::Legacy => true,
        }
    }

    /// Checks that the client may do the action while it impersonates.
    fn check_request(self, authorizer: &Authorizer, client: &User, request: &RequestInfo) -> Result<(), Status> {
        if self == Self::Legacy {
            return Ok(());
        }
        let verb = format!("impersonate-on:{}:{}", self.name(), request.verb);
        authorizer.authorize(&Action { user: client, verb: &verb, on: ActionTarget::of(request) })
    }

    /// Checks that the client may impersonate the user with its UID, groups and extras.
    fn check_user(self, authorizer: &Authorizer, client: &User, target: &User) -> Result<(), Status> {
        const AUTHENTICATION: &str = "authentication.k8s.io";
        let legacy = self == Self::Legacy;
        let verb = if legacy { "impersonate".to_owned() } else { format!("impersonate:{}", self.name()) };
        let group = if legacy { "" } else { AUTHENTICATION };
        let action = |group, resource, subresource, namespace, name| {
            let on = ActionTarget::Resource { group, resource, subresource, namespace, name };
            authorizer.authorize(&Action { user: client, verb: &verb, on })
        };
        match (service_account(&target.name), node(&target.name)) {
            (Some((namespace, name)), _) => action(group, SERVICE_ACCOUNT.plural, "", namespace, name)?,
            (None, Some(_)) if self == Self::AssociatedNode => action(group, NODE.plural, "", "", "*")?,
            (None, Some(name)) if !legacy => action(group, NODE.plural, "", "", name)?,
            (None, _) => action(group, "users", "", "", &target.name)?,
        }
        if !target.uid.is_empty() {
            action(AUTHENTICATION, "uids", "", "", &target.uid)?;
        }
        let reject = |resource, name: &str, why: &str| {
            let on = ActionTarget::Resource { group: AUTHENTICATION, resource, subresource: "", namespace: "", name };
            let mut status = Action { user: client, verb: &verb, on }.forbidden();
            status.message += &format!(": {why}");
            Err(status)
        };
        if !legacy && target.groups.iter().any(String::is_empty) {
            return reject("groups", "", "impersonating the empty string group is not allowed");
        }
        if !legacy && target.groups.iter().any(|group| group == MASTERS) {
            return reject("groups", MASTERS, "impersonating the system:masters group is not allowed");
        }
        let all_groups =
            !legacy && target.groups.len() >= WILDCARD_THRESHOLD && action(group, "groups", "", "", "*").is_ok();
        if !all_groups {
            target.groups.iter().try_for_each(|name| action(group, "groups", "", "", name))?;
        }
        if !legacy && let Some(why) = target.extra.iter().find_map(wrong_extra) {
            return reject("userextras", "", &why);
        }
        let values: usize = target.extra.values().map(Vec::len).sum();
        let many = target.extra.len() >= WILDCARD_THRESHOLD || values >= WILDCARD_THRESHOLD;
        if !legacy && many && action(AUTHENTICATION, "userextras", "*", "", "*").is_ok() {
            return Ok(());
        }
        let mut extra = target.extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
        extra.try_for_each(|(key, value)| action(AUTHENTICATION, "userextras", key, "", value))
    }

    /// Returns a user with the groups that its name implies.
    fn become_user(self, target: &User) -> User {
        let mut user = target.clone();
        match service_account(&user.name) {
            Some((namespace, _)) if user.groups.is_empty() => {
                user.groups = group_names(namespace).into();
            }
            _ if matches!(self, Self::AssociatedNode | Self::ArbitraryNode) => {
                user.groups = vec!["system:nodes".into()];
            }
            _ => {}
        }
        if user.name == ANONYMOUS {
            if !user.is_in(UNAUTHENTICATED) {
                user.groups.push(UNAUTHENTICATED.into());
            }
        } else if !user.is_in(UNAUTHENTICATED) && !user.is_in(AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.into());
        }
        user
    }
}

/// Returns the reason why constrained modes reject an extra key.
fn wrong_extra((key, values): (&String, &Vec<String>)) -> Option<String> {
    let prefixed =
        key.split_once('/').is_some_and(|(domain, path)| names::dns_subdomain(domain).is_empty() && !path.is_empty());
    let why = match () {
        () if key.is_empty() => "impersonating the empty string key in extra is not allowed".to_owned(),
        () if !prefixed => {
            let quoted = flyball_core::field::go_quote(key);
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            format!("impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {quoted}: {why}")
        }
        () if *key != key.to_lowercase() => {
            let quoted = flyball_core::field::go_quote(key);
            format!("impersonating a non-lowercase key in extra is not allowed: {quoted}")
        }
        () if values.iter().any(String::is_empty) => {
            "impersonating the empty string value in extra is not allowed".to_owned()
        }
        () => return None,
    };
    Some(why)
}
