//! Authentication: the user of a request.

use super::impersonation::{self, LastModes};
use super::tokens::{Bound, Claims, ISSUER};
use super::{Authorizer, Issuer, TokenError, User};
use crate::kinds::{Kind, SECRET, SERVICE_ACCOUNT};
use crate::request::RequestInfo;
use crate::storage::Store;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flyball_core::field::go_quote;
use flyball_core::{Clock, ObjectKey, Rng, Status};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Authenticates requests, and issues tokens.
pub(crate) struct Authenticator {
    pub(super) issuer: Arc<Issuer>,
    pub(super) authorizer: Arc<Authorizer>,
    pub(super) store: Arc<Store>,
    pub(super) clock: Clock,
    pub(super) rng: Rng,
    modes: LastModes,
}

impl Authenticator {
    pub(crate) fn new(
        issuer: Arc<Issuer>,
        authorizer: Arc<Authorizer>,
        store: Arc<Store>,
        clock: Clock,
        rng: Rng,
    ) -> Self {
        Self { issuer, authorizer, store, clock, rng, modes: LastModes::default() }
    }

    /// Returns the issuer of the tokens of service accounts.
    pub(crate) fn issuer(&self) -> &Arc<Issuer> {
        &self.issuer
    }

    /// Returns the user of a request: by its bearer token, else `known`, the user of the in-process caller or of the
    /// certificate, else the anonymous user.
    pub(crate) fn authenticate(&self, headers: &HeaderMap, known: Option<&User>) -> Result<User, Status> {
        const SCHEME: &[u8] = b"bearer ";
        let token = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).and_then(|value| {
            let (scheme, token) = value.split_at_checked(SCHEME.len())?;
            scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim_ascii()).filter(|token| !token.is_empty())
        });
        match (token, known) {
            (Some(token), _) => {
                let token = str::from_utf8(token).map_err(|_| Status::unauthorized())?;
                self.bearer(token, &[ISSUER.to_owned()]).map(|(user, _)| user).map_err(|_| Status::unauthorized())
            }
            (None, Some(user)) => Ok(user.clone()),
            (None, None) => Ok(User::anonymous()),
        }
    }

    /// Returns the user of a token that has one of these audiences, and which of them it has.
    pub(crate) fn bearer(&self, token: &str, audiences: &[String]) -> Result<(User, Vec<String>), TokenError> {
        let claims = self.issuer.read(token, &self.clock).ok_or(TokenError::Invalid)?;
        let shared: Vec<String> = claims.audiences.iter().filter(|known| audiences.contains(known)).cloned().collect();
        if shared.is_empty() {
            return Err(TokenError::Audience(claims.audiences, audiences.to_vec()));
        }
        if !self.still_holds(&claims, token) {
            return Err(TokenError::Invalid);
        }
        Ok((claims.user(), shared))
    }

    /// Returns the user that a client impersonates, or `user` if it impersonates none. It must be allowed to.
    pub(crate) fn impersonate(&self, headers: &HeaderMap, user: User, request: &RequestInfo) -> Result<User, Status> {
        let Impersonation { name, uid, groups, extra } = Impersonation::read(headers)?;
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
        impersonation::authorize(&self.authorizer, &self.modes, &user, &User { name, uid, groups, extra }, request)
    }

    /// Returns true if the account and the bound object of a token still exist with the same UIDs.
    fn still_holds(&self, claims: &Claims, token: &str) -> bool {
        let same = |kind: &Kind, name: &str, uid: &str| {
            let key = ObjectKey::new(Some(claims.namespace.as_str()).filter(|_| kind.namespaced), name);
            self.store.get(&kind.table(), &key).is_some_and(|entry| {
                let Some(object) = entry.identity() else { return false };
                let same = match kind.kind == SECRET.kind && claims.in_secret {
                    true => object.has_token(&BASE64.encode(token)),
                    false => &*object.uid == uid,
                };
                same && !object.is_deleting
            })
        };
        let bound = claims.bound.as_ref().is_none_or(|Bound { kind, name, uid }| same(kind, name, uid));
        bound && same(&SERVICE_ACCOUNT, &claims.account, &claims.account_uid)
    }
}

/// The headers of impersonation. A request with an unreadable one is rejected: ignoring it would give the request the
/// rights of the impersonator.
struct Impersonation {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Impersonation {
    fn read(headers: &HeaderMap) -> Result<Self, Status> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in headers {
            let Some(key) = header.as_str().strip_prefix("impersonate-extra-") else { continue };
            let key = crate::request::percent_decode(key, false).to_lowercase();
            if key.is_empty() {
                return Err(Status::bad_request("header \"Impersonate-Extra-\" must name a key"));
            }
            extra.entry(key).or_default().push(text(header.as_str(), value)?);
        }
        Ok(Self {
            name: single(headers, "impersonate-user")?,
            uid: single(headers, "impersonate-uid")?,
            groups: headers
                .get_all("impersonate-group")
                .iter()
                .map(|value| text("impersonate-group", value))
                .collect::<Result<_, _>>()?,
            extra,
        })
    }
}

/// Reads a header that may occur once; empty if it is absent.
fn single(headers: &HeaderMap, header: &str) -> Result<String, Status> {
    let mut values = headers.get_all(header).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(String::new()),
        (Some(value), None) => text(header, value),
        (Some(_), Some(_)) => Err(Status::bad_request(format!("header {header:?} must be given once"))),
    }
}

/// Reads the bytes of a header, which must be UTF-8 and not empty.
fn text(header: &str, value: &HeaderValue) -> Result<String, Status> {
    match str::from_utf8(value.as_bytes()) {
        Ok("") => Err(Status::bad_request(format!("header {header:?} must not be empty"))),
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(Status::bad_request(format!("header {header:?} must be UTF-8"))),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::PolicyImage;
    use crate::kinds::POD;
    use crate::storage::{Entry, Limits, SelectableFields};
    use flyball_core::Object;
    use futures_util::FutureExt;
    use serde_json::{Value, json};

    #[test]
    fn objects_of_tokens_are_not_decoded() {
        let store = Arc::new(Store::new(Limits::of(&crate::Bounds::default())));
        let authorizer = Arc::new(Authorizer::new(PolicyImage::default(), store.clone()));
        let (clock, rng, issuer) = (Clock::system(), Rng::from_seed(1), Arc::new(Issuer::new(&[7; 32])));
        let auth = Authenticator::new(issuer.clone(), authorizer, store.clone(), clock.clone(), rng.clone());
        // An object of this depth cannot be decoded as a whole.
        let rest = "[".repeat(1000) + &"]".repeat(1000);
        let put = |kind: &Kind, mut object: Value| {
            object["rest"] = json!("REST");
            let body = object.to_string().replace("\"REST\"", &rest);
            let (table, key) = (kind.table(), Object::try_from(object).unwrap().key());
            let make = |revision| {
                let object = Object::try_from(json!({"metadata": {}})).unwrap();
                let entry = Entry::new(key.clone(), object, revision, SelectableFields::default(), 0);
                Ok(Entry { body: body.into(), ..entry })
            };
            let before = store.get(&table, &key);
            store.put(&table, &key, before.as_ref(), make).now_or_never().unwrap().unwrap();
            assert!(store.get(&table, &key).unwrap().object().is_err());
        };
        let metadata = |name: &str, uid: &str| json!({"name": name, "namespace": "ns", "uid": uid});
        let account = ("ns", "robot", "u-1");
        let in_secret = issuer.issue_in_secret(account, "s");
        let secret = |token: String| json!({"metadata": metadata("s", "u-3"), "data": {"token": token}});
        put(&SERVICE_ACCOUNT, json!({"metadata": metadata("robot", "u-1")}));
        put(&POD, json!({"metadata": metadata("p", "u-2")}));
        put(&SECRET, secret(BASE64.encode(&in_secret)));
        let bound = Bound { kind: &POD, name: "p".into(), uid: "u-2".into() };
        let of_pod = issuer.issue(account, Some(&bound), &[ISSUER.into()], 600, &clock, &rng).0;
        let are_valid = || [&in_secret, &of_pod].map(|token| auth.bearer(token, &[ISSUER.to_owned()]).is_ok());
        assert_eq!(are_valid(), [true, true]);
        put(&SECRET, secret("other".into()));
        put(&POD, json!({"metadata": metadata("p", "u-4")}));
        assert_eq!(are_valid(), [false, false]);
        put(&SECRET, secret(BASE64.encode(&in_secret)));
        put(&POD, json!({"metadata": metadata("p", "u-2")}));
        assert_eq!(are_valid(), [true, true]);
        let mut deleting = metadata("robot", "u-1");
        deleting["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        put(&SERVICE_ACCOUNT, json!({"metadata": deleting}));
        assert_eq!(are_valid(), [false, false]);
    }
}
