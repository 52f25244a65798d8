//! Who a request comes from.

use super::tokens::{Bound, Claims, ISSUER};
use super::{ANONYMOUS, AUTHENTICATED, Action, On, Refusal, UNAUTHENTICATED, User};
use crate::server::Inner;
use flyball_core::field::go_quote;
use flyball_core::{GroupResource, ObjectKey, Status};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::collections::BTreeMap;

/// Finds out who sends a request: what the caller in this process or the certificate says, else the token, else nobody.
pub(crate) fn of_request(inner: &Inner, headers: &HeaderMap, known: Option<&User>) -> Result<User, Status> {
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
    });
    match (token, known) {
        (Some(token), _) => {
            inner.bearer(token, &[ISSUER.to_owned()]).map(|(user, _)| user).map_err(|_| Status::unauthorized())
        }
        (None, Some(user)) => Ok(user.clone()),
        (None, None) => Ok(User::anonymous()),
    }
}

impl Inner {
    /// Finds out who bears a token that is meant for one of these audiences; also returns which of them it is meant for.
    pub(crate) fn bearer(&self, token: &str, audiences: &[String]) -> Result<(User, Vec<String>), Refusal> {
        let claims = self.issuer.read(token, &self.clock).ok_or(Refusal::Invalid)?;
        let shared: Vec<String> = claims.audiences.iter().filter(|known| audiences.contains(known)).cloned().collect();
        if shared.is_empty() {
            return Err(Refusal::Audience(claims.audiences, audiences.to_vec()));
        }
        if !self.still_holds(&claims) {
            return Err(Refusal::Invalid);
        }
        Ok((claims.user(), shared))
    }

    /// Tells whether the account, and what the token is bound to, are still the same ones.
    fn still_holds(&self, claims: &Claims) -> bool {
        let same = |resource: &str, namespace: Option<&str>, name: &str, uid: &str| {
            let key = ObjectKey::new(namespace, name);
            self.store.get(&GroupResource::new("", resource), &key).is_some_and(|entry| {
                entry.object().is_ok_and(|object| object.uid() == uid && object.deletion_timestamp().is_none())
            })
        };
        let namespace = Some(claims.namespace.as_str());
        let bound = claims.bound.as_ref().is_none_or(|Bound { kind, name, uid }| match kind.as_str() {
            "Pod" => same("pods", namespace, name, uid),
            "Secret" => same("secrets", namespace, name, uid),
            _ => same("nodes", None, name, uid),
        });
        bound && same("serviceaccounts", namespace, &claims.account, &claims.account_uid)
    }
}

/// Finds out as whom a client wants to act, if not as itself; it must be allowed to.
pub(crate) fn impersonated(inner: &Inner, headers: &HeaderMap, user: User) -> Result<User, Status> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = text("impersonate-user").to_owned();
    let uid = text("impersonate-uid").to_owned();
    let groups: Vec<String> = headers
        .get_all("impersonate-group")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .map(str::to_owned)
        .collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (header, value) in headers {
        if let (Some(key), Ok(value)) = (header.as_str().strip_prefix("impersonate-extra-"), value.to_str()) {
            let key = crate::request::percent_decode(key, false).to_lowercase();
            extra.entry(key).or_default().push(value.to_owned());
        }
    }
    if name.is_empty() {
        if groups.is_empty() && uid.is_empty() && extra.is_empty() {
            return Ok(user);
        }
        let shown = (go_print(&groups), go_print_extra(&extra));
        return Err(Status::bad_request(format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:{}, Extra:{}}} without impersonating a user name",
            go_quote(&uid),
            shown.0,
            shown.1
        )));
    }
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let mut asked: Vec<(&str, &str, String, &str, &str)> = Vec::new();
    match account {
        Some((namespace, account)) => asked.push(("", "serviceaccounts", String::new(), namespace, account)),
        None => asked.push(("", "users", String::new(), "", &name)),
    }
    asked.extend(groups.iter().map(|group| ("", "groups", String::new(), "", group.as_str())));
    for (key, values) in &extra {
        asked.extend(
            values.iter().map(|value| ("authentication.k8s.io", "userextras", key.clone(), "", value.as_str())),
        );
    }
    if !uid.is_empty() {
        asked.push(("authentication.k8s.io", "uids", String::new(), "", &uid));
    }
    for (group, resource, subresource, namespace, name) in &asked {
        let on = On::Resource { group, resource, subresource, namespace, name };
        inner.authorize(&Action { user: &user, verb: "impersonate", on })?;
    }
    let mut all = groups;
    if let (Some((namespace, _)), true) = (account, all.is_empty()) {
        all = vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
    }
    if name == ANONYMOUS {
        if !all.iter().any(|group| group == UNAUTHENTICATED) {
            all.push(UNAUTHENTICATED.into());
        }
    } else if !all.iter().any(|group| group == UNAUTHENTICATED || group == AUTHENTICATED) {
        all.push(AUTHENTICATED.into());
    }
    Ok(User { name, uid, groups: all, extra })
}

/// Writes texts as Go writes a list of them.
fn go_print(texts: &[String]) -> String {
    match texts {
        [] => "[]string(nil)".into(),
        texts => format!("[]string{{{}}}", texts.iter().map(|text| go_quote(text)).collect::<Vec<_>>().join(", ")),
    }
}

fn go_print_extra(extra: &BTreeMap<String, Vec<String>>) -> String {
    if extra.is_empty() {
        return "map[string][]string(nil)".into();
    }
    let entry = |(key, values): (&String, &Vec<String>)| format!("{}:{}", go_quote(key), go_print(values));
    format!("map[string][]string{{{}}}", extra.iter().map(entry).collect::<Vec<_>>().join(", "))
}
