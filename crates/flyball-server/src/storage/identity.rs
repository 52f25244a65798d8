//! Identity: the fields of an object by which tokens are verified.
//!
//! Each request with a token needs them, before any limit of its user applies. So they are decoded once for each state
//! of an object, and the rest of the object is skipped.

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;

/// The fields of an object by which tokens are verified.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The UID.
    pub(crate) uid: Box<str>,
    /// True if the object is being deleted.
    pub(crate) is_deleting: bool,
    /// The digest of the token in the data of a secret, as encoded there.
    token: Option<[u8; SHA256_OUTPUT_LEN]>,
}

#[derive(Deserialize)]
struct Stored<'b> {
    #[serde(borrow)]
    metadata: Metadata<'b>,
    #[serde(borrow)]
    data: Option<Data<'b>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'b> {
    #[serde(borrow)]
    uid: Cow<'b, str>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct Data<'b> {
    #[serde(borrow)]
    token: Option<Cow<'b, str>>,
}

impl Identity {
    /// Decodes the identity of a stored object; `None` if it is malformed.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let Stored { metadata, data } = serde_json::from_slice(body).ok()?;
        let (is_deleting, token) = (metadata.deletion_timestamp.is_some(), data.unwrap_or_default().token);
        Some(Self { uid: metadata.uid.into(), is_deleting, token: token.as_deref().map(sha256) })
    }

    /// Returns true if the data of a secret contains a token, in this encoding.
    pub(crate) fn has_token(&self, encoded: &str) -> bool {
        self.token == Some(sha256(encoded))
    }
}

fn sha256(text: &str) -> [u8; SHA256_OUTPUT_LEN] {
    digest(&SHA256, text.as_bytes()).as_ref().try_into().expect("the length of a SHA-256 digest")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(object: &Value) -> Option<Identity> {
        Identity::read(object.to_string().as_bytes())
    }

    #[test]
    fn identity_is_read_beside_other_fields() {
        let secret = read(&json!({"metadata": {"labels": {"uid": "other"}, "name": "s", "uid": "u\"1"},
            "data": {"ca.crt": "YQ==", "token": "dA=="}, "type": "t"}))
        .unwrap();
        assert_eq!((&*secret.uid, secret.is_deleting), ("u\"1", false));
        assert!(secret.has_token("dA==") && !secret.has_token("dB==") && !secret.has_token(""));
        let pod =
            read(&json!({"metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}})).unwrap();
        assert!(pod.is_deleting && !pod.has_token("") && &*pod.uid == "u");
        for malformed in [json!({"metadata": {}}), json!({"metadata": {"uid": "u"}, "data": {"token": 1}}), json!([])] {
            assert!(read(&malformed).is_none(), "{malformed}");
        }
    }
}
