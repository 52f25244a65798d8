//! Tokens of service accounts (JWT).
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens>.
//! Signatures are Ed25519, which needs no randomness to sign: tokens of a simulation are deterministic.

use super::{CREDENTIAL_ID, User};
use crate::kinds::{Kind, NODE, POD, SECRET};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use flyball_core::{Clock, Rng, service_account};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde_json::{Value, json};

/// The name of the issuer, and the default audience of tokens.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";

/// The name of the issuer of tokens in secrets.
const SECRET_ISSUER: &str = "kubernetes/serviceaccount";

/// Issues and verifies tokens.
pub(crate) struct Issuer {
    keys: Ed25519KeyPair,
    id: String,
}

/// The kinds of objects that tokens can be bound to.
pub(super) static BOUND_KINDS: [&Kind; 3] = [&POD, &SECRET, &NODE];

/// The object that a token is bound to; the token is invalid after its deletion.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    /// One of [`BOUND_KINDS`].
    pub(crate) kind: &'static Kind,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The claims of a token.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    pub(crate) namespace: String,
    pub(crate) account: String,
    pub(crate) account_uid: String,
    pub(crate) bound: Option<Bound>,
    pub(crate) audiences: Vec<String>,
    /// True if the token is valid only as long as the secret that it is bound to contains it.
    pub(crate) in_secret: bool,
    id: String,
}

/// The reason why a token is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// The token is malformed, expired, or signed by another key.
    #[error("invalid bearer token")]
    Invalid,
    /// The token is for other audiences.
    #[error("[invalid bearer token, token audiences {0:?} is invalid for the target audiences {1:?}]")]
    Audience(Vec<String>, Vec<String>),
}

impl Issuer {
    /// Creates an issuer with keys from 32 secret bytes.
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        let keys = Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are a seed");
        let digest = ring::digest::digest(&ring::digest::SHA256, keys.public_key().as_ref());
        let id = BASE64.encode(digest);
        Self { keys, id }
    }

    /// Issues a token for a service account; also returns its expiry in Unix seconds.
    pub(crate) fn issue(
        &self,
        account: (&str, &str, &str),
        bound: Option<&Bound>,
        audiences: &[String],
        seconds: i64,
        clock: &Clock,
        rng: &Rng,
    ) -> (String, i64) {
        let (namespace, name, uid) = account;
        let now = clock.now().as_second();
        let mut private = json!({"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}});
        if let Some(bound) = bound {
            private[bound.kind.singular()] = json!({"name": bound.name, "uid": bound.uid});
        }
        let claims = json!({
            "aud": audiences, "exp": now + seconds, "iat": now, "nbf": now, "iss": ISSUER, "jti": rng.uuid(),
            "kubernetes.io": private, "sub": service_account::user_name(namespace, name),
        });
        (self.sign(&claims), now + seconds)
    }

    /// Issues the token of a service account for a secret, without expiry.
    pub(crate) fn issue_in_secret(&self, account: (&str, &str, &str), secret: &str) -> String {
        let (namespace, name, uid) = account;
        let claim = |name: &str| format!("kubernetes.io/serviceaccount/{name}");
        self.sign(&json!({
            "iss": SECRET_ISSUER,
            claim("namespace"): namespace,
            claim("secret.name"): secret,
            claim("service-account.name"): name,
            claim("service-account.uid"): uid,
            "sub": service_account::user_name(namespace, name),
        }))
    }

    fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "EdDSA", "kid": self.id, "typ": "JWT"});
        let signed = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
        let signature = self.keys.sign(signed.as_bytes());
        format!("{signed}.{}", BASE64.encode(signature))
    }

    /// Verifies a token that has not expired.
    pub(crate) fn read(&self, token: &str, clock: &Clock) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = BASE64.decode(signature).ok()?;
        UnparsedPublicKey::new(&ED25519, self.keys.public_key()).verify(signed.as_bytes(), &signature).ok()?;
        let (_, payload) = signed.split_once('.')?;
        let claims: Value = serde_json::from_slice(&BASE64.decode(payload).ok()?).ok()?;
        if claims["iss"] == SECRET_ISSUER {
            return Some(Claims::in_secret(&claims));
        }
        let now = clock.now().as_second();
        if claims["iss"] != ISSUER || claims["exp"].as_i64()? <= now || claims["nbf"].as_i64()? > now {
            return None;
        }
        let private = &claims["kubernetes.io"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let bound = BOUND_KINDS.iter().find_map(|kind| {
            let object = private.get(kind.singular())?;
            Some(Bound { kind, name: text(&object["name"]), uid: text(&object["uid"]) })
        });
        Some(Claims {
            namespace: text(&private["namespace"]),
            account: text(&private["serviceaccount"]["name"]),
            account_uid: text(&private["serviceaccount"]["uid"]),
            bound,
            audiences: claims["aud"].as_array().into_iter().flatten().map(text).collect(),
            in_secret: false,
            id: text(&claims["jti"]),
        })
    }

    /// The public key, as `/openid/v1/jwks` publishes it.
    pub(crate) fn jwks(&self) -> Value {
        let x = BASE64.encode(self.keys.public_key());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.id, "x": x}]})
    }
}

impl Claims {
    /// Reads the claims of a token in a secret.
    fn in_secret(claims: &Value) -> Self {
        let text = |name: &str| {
            let claim = &claims[format!("kubernetes.io/serviceaccount/{name}")];
            claim.as_str().unwrap_or_default().to_owned()
        };
        Self {
            namespace: text("namespace"),
            account: text("service-account.name"),
            account_uid: text("service-account.uid"),
            bound: Some(Bound { kind: &SECRET, name: text("secret.name"), uid: String::new() }),
            audiences: vec![ISSUER.into()],
            in_secret: true,
            id: String::new(),
        }
    }

    /// Returns the user of the token.
    pub(crate) fn user(&self) -> User {
        let mut user = User::service_account(&self.namespace, &self.account);
        user.uid = self.account_uid.clone();
        if self.in_secret {
            return user;
        }
        user.extra.insert(CREDENTIAL_ID.into(), vec![format!("JTI={}", self.id)]);
        if let Some(bound) = self.bound.as_ref().filter(|bound| bound.kind.kind == POD.kind) {
            user.extra.insert("authentication.kubernetes.io/pod-name".into(), vec![bound.name.clone()]);
            user.extra.insert("authentication.kubernetes.io/pod-uid".into(), vec![bound.uid.clone()]);
        }
        user
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::time::Timestamp;

    fn clock(second: i64) -> Clock {
        Clock::new(move || Timestamp::from_second(second).expect("in range"))
    }

    #[test]
    fn token_identifies_its_bearer_until_it_expires() {
        let issuer = Issuer::new(&[7; 32]);
        let (token, end) =
            issuer.issue(("ns", "robot", "u-1"), None, &["a".into()], 600, &clock(1000), &Rng::from_seed(1));
        assert_eq!(end, 1600);
        let claims = issuer.read(&token, &clock(1599)).unwrap();
        assert_eq!(claims.user().name, "system:serviceaccount:ns:robot");
        assert_eq!(claims.audiences, ["a"]);
        assert!(issuer.read(&token, &clock(1600)).is_none());
        assert!(issuer.read(&token, &clock(999)).is_none());
    }

    #[test]
    fn forged_tokens_are_rejected() {
        let issuer = Issuer::new(&[7; 32]);
        let (token, _) = issuer.issue(("ns", "robot", "u-1"), None, &[], 600, &clock(1000), &Rng::from_seed(1));
        assert!(Issuer::new(&[8; 32]).read(&token, &clock(1000)).is_none());
        let forged = token.replacen('.', ".e", 1);
        assert!(issuer.read(&forged, &clock(1000)).is_none());
        for junk in ["", ".", "a.b.c", "not-a-token"] {
            assert!(issuer.read(junk, &clock(1000)).is_none(), "{junk}");
        }
    }
}
