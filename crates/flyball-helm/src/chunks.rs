//! Releases that do not fit into one Secret, in the format of [helm-operator-plugins]: the compressed release is split
//! among an index Secret, which has the name of the revision, and further Secrets with the remaining chunks.
//!
//! Helm itself does not read such releases. Chunks are written before the index that names them, so a crash never
//! leaves an index without its chunks.
//!
//! [helm-operator-plugins]: https://github.com/operator-framework/helm-operator-plugins/tree/main/pkg/storage

use crate::storage::{Revision, StorageError};
use k8s_openapi::ByteString;
use serde_json::json;
use std::collections::BTreeMap;

/// Type of the Secret with the first chunk and the names of the others.
pub(crate) const INDEX_TYPE: &str = "operatorframework.io/index.v1";
/// Type of the Secrets with the other chunks.
pub(crate) const CHUNK_TYPE: &str = "operatorframework.io/chunk.v1";
/// The key of a chunk in the data of a Secret.
const CHUNK: &str = "chunk";
/// The key of the names of the other Secrets in the index.
const EXTRA_CHUNKS: &str = "extraChunks";
/// The value of the label `owner`, which is `helm` only for Secrets that Helm reads.
const OWNER: &str = "flyball";
/// Size limit of a payload in a single Secret. A later update may add some text to it, and cannot change its type.
const MAX_WHOLE_BYTES: usize = (1 << 20) - (64 << 10);
/// Size of a chunk. The index also contains the names of the other chunks.
const CHUNK_BYTES: usize = 1_000_000;
/// Limit of Secrets of a revision.
pub(crate) const MAX_CHUNKS: usize = 10;
/// Length limit of a label's value.
const MAX_LABEL_BYTES: usize = 63;
/// Digits of a hash: 13 of 5 bits.
const HASH_DIGITS: usize = 13;
/// Size limit of the list of names.
const MAX_INDEX_BYTES: usize = 16 << 10;

/// A part of a compressed release.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) name: String,
    pub(crate) data: Vec<u8>,
}

impl Chunk {
    /// Returns the data of its Secret.
    pub(crate) fn data(&self) -> BTreeMap<String, ByteString> {
        [(CHUNK.to_owned(), ByteString(self.data.clone()))].into()
    }
}

/// Returns true if a compressed release does not fit into one Secret.
pub(crate) fn is_needed(packed: &[u8]) -> bool {
    packed.len().div_ceil(3) * 4 > MAX_WHOLE_BYTES
}

/// Splits the compressed revision of a Secret.
pub(crate) fn split(secret: &str, packed: &[u8]) -> Result<Vec<Chunk>, StorageError> {
    let chunks: Vec<Chunk> = packed
        .chunks(CHUNK_BYTES)
        .map(|data| Chunk { name: format!("{secret}-{}", name_of(data)), data: data.to_vec() })
        .collect();
    match chunks.len() > MAX_CHUNKS {
        true => Err(StorageError::TooManyChunks { chunks: chunks.len(), limit: MAX_CHUNKS }),
        false => Ok(chunks),
    }
}

/// Returns the data of the index of some chunks.
pub(crate) fn index(chunks: &[Chunk]) -> BTreeMap<String, ByteString> {
    let names: Vec<&str> = chunks.iter().skip(1).map(|chunk| chunk.name.as_str()).collect();
    let first = chunks.first().map(|chunk| chunk.data.clone()).unwrap_or_default();
    let names = json!(names).to_string().into_bytes();
    [(CHUNK.to_owned(), ByteString(first)), (EXTRA_CHUNKS.to_owned(), ByteString(names))].into()
}

/// Returns the names of the Secrets with the other chunks, from the data of an index.
pub(crate) fn names(secret: &str, data: &BTreeMap<String, ByteString>) -> Result<Vec<String>, StorageError> {
    let wrong = |problem: String| StorageError::Index { field: EXTRA_CHUNKS, problem };
    let list = data.get(EXTRA_CHUNKS).ok_or_else(|| wrong("it does not exist".into()))?;
    if list.0.len() > MAX_INDEX_BYTES {
        return Err(wrong(format!("it is larger than {MAX_INDEX_BYTES} bytes")));
    }
    let names: Vec<String> = serde_json::from_slice(&list.0).map_err(|error| wrong(error.to_string()))?;
    if names.len() >= MAX_CHUNKS {
        return Err(StorageError::TooManyChunks { chunks: names.len() + 1, limit: MAX_CHUNKS });
    }
    // Others may write the index, and the operator may read more Secrets than they may.
    let is_chunk = |name: &&String| name.strip_prefix(secret).is_some_and(|rest| rest.starts_with('-'));
    match names.iter().find(|name| !is_chunk(name)) {
        Some(name) => Err(wrong(format!("{name:?} must begin with {secret}-"))),
        None => Ok(names),
    }
}

/// Returns the chunk in the data of a Secret.
pub(crate) fn chunk(data: Option<&BTreeMap<String, ByteString>>) -> Result<&[u8], StorageError> {
    let wrong = || StorageError::Index { field: CHUNK, problem: "it does not exist".into() };
    Ok(&data.and_then(|data| data.get(CHUNK)).ok_or_else(wrong)?.0)
}

/// Returns the labels of the index of a revision, except timestamps.
pub(crate) fn index_labels(revision: &Revision) -> BTreeMap<String, String> {
    let mut labels = revision.labels();
    let further = [("owner", OWNER), ("key", &*key_label(&revision.secret_name())), ("type", "index")];
    labels.extend(further.map(|(name, value)| (name.to_owned(), value.to_owned())));
    labels
}

/// Returns the labels of the other chunks.
pub(crate) fn chunk_labels(secret: &str) -> BTreeMap<String, String> {
    [("owner", OWNER), ("key", &*key_label(secret)), ("type", "chunk")]
        .map(|(name, value)| (name.into(), value.into()))
        .into()
}

/// Returns the label of all Secrets of a revision: the name of its index, or if a label cannot hold it, its beginning
/// with a hash.
pub(crate) fn key_label(secret: &str) -> String {
    match secret.len() > MAX_LABEL_BYTES {
        true => {
            let begin: String = secret.chars().take(MAX_LABEL_BYTES - HASH_DIGITS - 1).collect();
            format!("{begin}-{}", name_of(secret.as_bytes()))
        }
        false => secret.to_owned(),
    }
}

/// Returns true if these are the labels of an index, also if another operator wrote it.
pub(crate) fn is_index(labels: &BTreeMap<String, String>) -> bool {
    labels.get("type").is_some_and(|kind| kind == "index") && labels.contains_key("key")
}

/// Returns the label of the index of a chunk, from the labels of the chunk.
pub(crate) fn index_of(labels: &BTreeMap<String, String>) -> Option<&str> {
    (labels.get("type")? == "chunk").then(|| labels.get("key").map(String::as_str))?
}

/// Returns the last part of the name of a chunk: FNV-1a of its data, as by Go's `fnv.New64a`, in base 32.
fn name_of(data: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz123456";
    let hash = data
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    // The last digit has a bit of padding.
    let bits = u128::from(hash) << 1;
    (0..HASH_DIGITS).rev().map(|digit| char::from(ALPHABET[(bits >> (5 * digit) & 31) as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_equal_those_of_helm_operator_plugins() {
        // base32.NewEncoding("abcdefghijklmnopqrstuvwxyz123456").WithPadding(base32.NoPadding) of fnv.New64a().
        for (data, name) in [("", "zpzjzzeeeirsk"), ("a", "v4r4ytegahwiy"), ("foobar", "qwkec3pxhft5q")] {
            assert_eq!(name_of(data.as_bytes()), name, "{data}");
        }
    }

    #[test]
    fn labels_are_valid() {
        assert_eq!(key_label("sh.helm.release.v1.a.v1"), "sh.helm.release.v1.a.v1");
        let [one, other] =
            [1, 2].map(|version| key_label(&format!("sh.helm.release.v1.{}.v{version}", "a".repeat(53))));
        assert!(one.len() == 63 && other.len() == 63 && one != other);
    }

    #[test]
    fn chunks_are_joined_in_order() {
        let packed: Vec<u8> = (0..2_500_000_u32).map(|at| (at % 251) as u8).collect();
        assert!(is_needed(&packed) && !is_needed(&packed[..700_000]));
        let chunks = split("a.v1", &packed).unwrap();
        let data = index(&chunks);
        assert_eq!(names("a.v1", &data).unwrap(), [chunks[1].name.clone(), chunks[2].name.clone()]);
        let joined: Vec<u8> = [chunk(Some(&data)).unwrap(), &chunks[1].data, &chunks[2].data].concat();
        assert!(joined == packed);
    }

    #[test]
    fn invalid_index_is_named() {
        let error = |list: &str| {
            let data = [("extraChunks".to_owned(), ByteString(list.as_bytes().to_vec()))].into();
            names("a.v1", &data).unwrap_err().to_string()
        };
        assert_eq!(error(r#"["other"]"#), "data.extraChunks is not valid: \"other\" must begin with a.v1-");
        assert_eq!(error(r#"["a.v1x"]"#), "data.extraChunks is not valid: \"a.v1x\" must begin with a.v1-");
        let many = json!(vec!["a.v1-x"; 10]).to_string();
        assert!(error(&many).starts_with("the compressed release takes 11 Secrets, and the limit is 10"));
        assert!(error(&" ".repeat(20_000)).contains("larger than"));
        assert!(error("{}").starts_with("data.extraChunks is not valid: "));
        assert_eq!(
            names("a", &BTreeMap::new()).unwrap_err().to_string(),
            "data.extraChunks is not valid: it does not exist"
        );
        assert!(split("a", &vec![0; 10_000_001]).is_err());
    }
}
