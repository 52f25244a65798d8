//! Secrets of releases, in the format of Helm 3 and 4: one for each revision.
//!
//! So `helm list`, `helm history` and `helm rollback` work on releases of the operator, and the operator follows their
//! changes. The payload of such a Secret is base64 of gzip of JSON; see
//! <https://helm.sh/docs/topics/advanced/#storage-backends>.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flyball_core::memory::{self, ParsedSize};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::{Read, Write};

/// Type of the Secrets.
pub const SECRET_TYPE: &str = "helm.sh/release.v1";
/// Prefix of their names.
pub(crate) const SECRET_PREFIX: &str = "sh.helm.release.v1.";
/// The key of the payload in the data of a Secret.
pub const PAYLOAD: &str = "release";
/// Limit of stored revisions of a release, as in Helm.
pub const MAX_HISTORY: usize = 10;
/// Size limit of an uncompressed payload.
const MAX_UNPACKED_BYTES: u64 = 32 << 20;
/// Limit of items in its JSON: an item counts as one, an object as [`OBJECT_WEIGHT`].
const MAX_WEIGHT: usize = 2 << 20;
/// Weight of an object: even an empty one takes some hundred bytes of memory.
const OBJECT_WEIGHT: usize = 16;
/// Size of the pieces in which a payload is weighed.
const PIECE_BYTES: usize = 64 << 10;
/// Magic number of gzip. Helm 2 wrote payloads without it, and Helm still reads them.
const GZIP: [u8; 3] = [0x1f, 0x8b, 0x08];

/// One revision of a release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Revision {
    /// The name of the release.
    #[serde(default)]
    pub name: String,
    /// Its state and timestamps.
    #[serde(default)]
    pub info: Info,
    /// The chart: metadata, templates, values, schema and files.
    #[serde(default)]
    pub chart: Value,
    /// The values that override those of the chart.
    #[serde(default, deserialize_with = "or_default")]
    pub config: Map<String, Value>,
    /// Manifests without hooks and notes, in the order of installation.
    #[serde(default)]
    pub manifest: String,
    /// Hooks.
    #[serde(default, deserialize_with = "or_default")]
    pub hooks: Vec<Hook>,
    /// The number of the revision, from 1 on.
    #[serde(default)]
    pub version: u32,
    /// The namespace of the release.
    #[serde(default)]
    pub namespace: String,
    /// The way in which objects were written: `ssa` for server-side apply; empty in releases of Helm 3.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub apply_method: String,
    /// Fields of other versions of Helm, which a rewrite keeps.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The state of a revision and its timestamps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// Start of the first revision of the release.
    #[serde(default)]
    pub first_deployed: String,
    /// Start of this revision.
    #[serde(default)]
    pub last_deployed: String,
    /// Time at which the release was uninstalled. Before it, Helm 3 writes an empty text, and Helm 4 no field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<String>,
    /// Description of the state.
    #[serde(default)]
    pub description: String,
    /// The state.
    #[serde(default)]
    pub status: State,
    /// The revision whose objects a rollback installed again, otherwise 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rollback_revision: u32,
    /// Text of `NOTES.txt`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// Fields of other versions of Helm, which a rewrite keeps.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The state of a revision, in Helm's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Deployed.
    Deployed,
    /// Uninstalled, with its history kept.
    Uninstalled,
    /// A later revision took its place.
    Superseded,
    /// The operation failed.
    Failed,
    /// Being uninstalled.
    Uninstalling,
    /// Being installed, as the first revision.
    PendingInstall,
    /// Being upgraded to.
    PendingUpgrade,
    /// Being rolled back to.
    PendingRollback,
    /// Any other state.
    #[default]
    #[serde(other)]
    Unknown,
}

impl State {
    /// Returns the status as Helm writes it, such as `deployed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Deployed => "deployed",
            Self::Uninstalled => "uninstalled",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Uninstalling => "uninstalling",
            Self::PendingInstall => "pending-install",
            Self::PendingUpgrade => "pending-upgrade",
            Self::PendingRollback => "pending-rollback",
        }
    }

    /// Parses a status of Helm; others are `Unknown`.
    pub fn of(word: &str) -> Self {
        serde_json::from_value(word.into()).unwrap_or_default()
    }

    /// Returns true if its installation, upgrade or rollback is in progress.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback)
    }
}

/// An object that is created at a point of the release's lifecycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hook {
    /// The name of the object.
    #[serde(default)]
    pub name: String,
    /// Its kind.
    #[serde(default)]
    pub kind: String,
    /// The template.
    #[serde(default)]
    pub path: String,
    /// The rendered manifest.
    #[serde(default)]
    pub manifest: String,
    /// The events that run it, such as `pre-install`.
    #[serde(default, deserialize_with = "or_default")]
    pub events: Vec<String>,
    /// The last execution.
    #[serde(default)]
    pub last_run: HookExecution,
    /// The weight: lower weights run first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub weight: i32,
    /// The delete policies, such as `hook-succeeded`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub delete_policies: Vec<String>,
    /// Fields of other versions of Helm, which a rewrite keeps.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The last execution of a hook: start, end and phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HookExecution {
    /// Start of the run. Before it, Helm 3 writes an empty text, and Helm 4 no field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// End of the run, in the same form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// `Unknown`, `Running`, `Succeeded`, `Failed`, or empty before the first run.
    #[serde(default)]
    pub phase: String,
}

/// Error in the payload of the Secret of a release.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The payload is not valid base64.
    #[error("the payload is not valid base64")]
    Base64(#[source] base64::DecodeError),
    /// The payload cannot be decompressed.
    #[error("cannot decompress the payload")]
    Gzip(#[source] std::io::Error),
    /// The payload is too large.
    #[error("the uncompressed payload is larger than {MAX_UNPACKED_BYTES} bytes")]
    TooLarge,
    /// The payload has too many objects and items.
    #[error("the payload has too many objects and items")]
    TooManyItems,
    /// The payload is not the JSON of a release.
    #[error("the payload is not the JSON of a release")]
    Json(#[source] serde_json::Error),
    /// The release needs too many Secrets.
    #[error("the compressed release takes {chunks} Secrets, and the limit is {limit}: reduce its values or objects")]
    TooManyChunks {
        /// The number of Secrets.
        chunks: usize,
        /// The limit.
        limit: usize,
    },
    /// There is no payload.
    #[error("data.{PAYLOAD} does not exist")]
    NoPayload,
    /// The payload belongs into another Secret.
    #[error("the payload is that of Secret {name}")]
    OtherRevision {
        /// The name of the other Secret.
        name: String,
    },
    /// A chunk does not exist.
    #[error("its chunk, Secret {name}, does not exist")]
    NoChunk {
        /// The name of the Secret.
        name: String,
    },
    /// The list of its chunks is not valid.
    #[error("data.{field} is not valid: {problem}")]
    Index {
        /// The field.
        field: &'static str,
        /// The problem.
        problem: String,
    },
}

impl Revision {
    /// Decodes the payload of a Secret.
    ///
    /// # Errors
    ///
    /// If the payload is not a release, or is too large.
    pub fn decode(payload: &[u8]) -> Result<Self, StorageError> {
        Self::unpack(&packed(payload)?)
    }

    /// Returns the approximate size in memory of a packed payload after decoding, without decoding it.
    pub(crate) fn weigh(packed: &[u8]) -> Result<usize, StorageError> {
        if !packed.starts_with(&GZIP) {
            return Ok(memory::of_text(packed));
        }
        let (mut weight, mut piece) = (ParsedSize::default(), vec![0; PIECE_BYTES]);
        let mut json = GzDecoder::new(packed).take(MAX_UNPACKED_BYTES + 1);
        loop {
            match json.read(&mut piece).map_err(StorageError::Gzip)? {
                0 => return Ok(weight.bytes()),
                read => weight.add(&piece[..read]),
            }
        }
    }

    /// Decodes a payload without base64, as in the chunks of a large release.
    pub(crate) fn unpack(packed: &[u8]) -> Result<Self, StorageError> {
        if !packed.starts_with(&GZIP) {
            return read(packed);
        }
        let mut json = Vec::new();
        let size =
            GzDecoder::new(packed).take(MAX_UNPACKED_BYTES + 1).read_to_end(&mut json).map_err(StorageError::Gzip)?;
        match size as u64 > MAX_UNPACKED_BYTES {
            true => Err(StorageError::TooLarge),
            false => read(&json),
        }
    }

    /// Encodes the payload of a Secret. Equal revisions have equal payloads.
    ///
    /// # Errors
    ///
    /// If the payload is too large to be decoded again.
    pub fn encode(&self) -> Result<Vec<u8>, StorageError> {
        Ok(encode_packed(&self.pack()?))
    }

    /// Compresses the revision.
    pub(crate) fn pack(&self) -> Result<Vec<u8>, StorageError> {
        let json = serde_json::to_vec(self).map_err(StorageError::Json)?;
        if json.len() as u64 > MAX_UNPACKED_BYTES {
            return Err(StorageError::TooLarge);
        }
        check_weight(&json)?;
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(&json).map_err(StorageError::Gzip)?;
        packer.finish().map_err(StorageError::Gzip)
    }

    /// Returns the name of its Secret.
    pub fn secret_name(&self) -> String {
        secret_name(&self.name, self.version)
    }

    /// Returns the labels by which Helm finds the Secret, except timestamps.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let (status, version) = (self.info.status.as_str(), self.version.to_string());
        let labels = [("name", &*self.name), ("owner", "helm"), ("status", status), ("version", &*version)];
        labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Returns the name of the chart, if the revision contains it.
    pub fn chart_name(&self) -> Option<&str> {
        self.chart["metadata"]["name"].as_str()
    }

    /// Returns its approximate size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let values = self.config.values().chain([&self.chart]).map(memory::of).sum::<usize>();
        values + self.manifest.len() + self.hooks.iter().map(|hook| hook.manifest.len()).sum::<usize>()
    }

    /// Returns name and version of the chart, as in `helm list`.
    pub(crate) fn chart_label(&self) -> String {
        let text = |field: &str| self.chart["metadata"][field].as_str().unwrap_or_default().to_owned();
        format!("{}-{}", text("name"), text("version"))
    }
}

/// Decodes the base64 of a payload.
pub(crate) fn packed(payload: &[u8]) -> Result<Vec<u8>, StorageError> {
    BASE64.decode(payload.trim_ascii()).map_err(StorageError::Base64)
}

/// Decodes the JSON of a release within a memory limit.
fn read(json: &[u8]) -> Result<Revision, StorageError> {
    check_weight(json)?;
    serde_json::from_slice(json).map_err(StorageError::Json)
}

/// Counts objects and items before they are allocated.
///
/// Not [`flyball_core::memory::of_text`]: that weighs JSON values, where an empty object takes no memory. A release
/// is decoded into types, where an empty hook takes some hundred bytes.
fn check_weight(json: &[u8]) -> Result<(), StorageError> {
    let (mut weight, mut in_text, mut is_escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'{' if !in_text => weight += OBJECT_WEIGHT,
            b',' | b'[' if !in_text => weight += 1,
            _ => {}
        }
    }
    if weight > MAX_WEIGHT { Err(StorageError::TooManyItems) } else { Ok(()) }
}

/// Encodes a compressed revision as the payload of a Secret.
pub(crate) fn encode_packed(packed: &[u8]) -> Vec<u8> {
    BASE64.encode(packed).into_bytes()
}

/// Returns the name of the Secret of a revision.
pub fn secret_name(release: &str, version: u32) -> String {
    format!("{SECRET_PREFIX}{release}.v{version}")
}

/// Deserializes `null`, which Go writes for empty values, as the default.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Secrets written by Helm 3.21.4, and their contents.
    const SECRETS: &str = include_str!("../tests/release-secret/secrets.json");
    /// Secrets written by Helm 4.3, the last one by `--rollback-on-failure`.
    const SECRETS_OF_HELM_4: &str = include_str!("../tests/release-secret/secrets-helm4.json");
    const DECODED: [&str; 3] = [
        include_str!("../tests/release-secret/decoded-1.json"),
        include_str!("../tests/release-secret/decoded-2.json"),
        include_str!("../tests/release-secret/decoded-3.json"),
    ];

    #[test]
    fn releases_of_helm_round_trip() {
        let secrets: Vec<Value> = serde_json::from_str(SECRETS).unwrap();
        assert_eq!(secrets.len(), DECODED.len());
        for (secret, decoded) in secrets.iter().zip(DECODED) {
            let expected: Value = serde_json::from_str(decoded).unwrap();
            let payload = BASE64.decode(secret["data"][PAYLOAD].as_str().unwrap()).unwrap();
            let revision = Revision::decode(&payload).unwrap();
            assert_eq!(serde_json::to_value(&revision).unwrap(), expected);
            assert_eq!(Revision::decode(&revision.encode().unwrap()).unwrap(), revision);
            assert_eq!(revision.secret_name(), secret["metadata"]["name"]);
            for (name, value) in revision.labels() {
                assert_eq!(secret["metadata"]["labels"][&name], value, "{name}");
            }
            assert_eq!((revision.chart_name(), secret["type"].as_str()), (Some("relshape"), Some(SECRET_TYPE)));
        }
    }

    #[test]
    fn releases_of_helm_4_keep_their_form() {
        let secrets: Vec<Value> = serde_json::from_str(SECRETS_OF_HELM_4).unwrap();
        let mut described = Vec::new();
        for secret in secrets {
            let payload = BASE64.decode(secret["data"][PAYLOAD].as_str().unwrap()).unwrap();
            let mut json = String::new();
            GzDecoder::new(&*BASE64.decode(&payload).unwrap()).read_to_string(&mut json).unwrap();
            let expected: Value = serde_json::from_str(&json).unwrap();
            let mut revision = Revision::decode(&payload).unwrap();
            assert_eq!(serde_json::to_value(&revision).unwrap(), expected);
            // A rewrite changes only the fields that it sets.
            revision.info.status = State::Superseded;
            let rewritten = Revision::decode(&revision.encode().unwrap()).unwrap();
            let mut changed = expected.clone();
            changed["info"]["status"] = "superseded".into();
            assert_eq!(serde_json::to_value(&rewritten).unwrap(), changed);
            let policies = &revision.hooks[0].other["output_log_policies"];
            assert_eq!((&*revision.apply_method, policies), ("ssa", &json!(["hook-failed", "hook-succeeded"])));
            let status = expected["info"]["status"].as_str().unwrap().to_owned();
            described.push(format!("{} {status} {}", revision.version, revision.info.rollback_revision));
        }
        assert_eq!(described, ["1 superseded 0", "2 superseded 0", "3 failed 0", "4 deployed 2"]);
    }

    #[test]
    fn invalid_release_is_reported() {
        let error = |payload: &[u8]| Revision::decode(payload).unwrap_err().to_string();
        assert_eq!(error(b"%"), "the payload is not valid base64");
        assert_eq!(error(BASE64.encode("{").as_bytes()), "the payload is not the JSON of a release");
        assert_eq!(error(BASE64.encode([0x1f, 0x8b, 0x08, 0]).as_bytes()), "cannot decompress the payload");
        let sparse = BASE64.encode(json!({"name": "a", "hooks": null, "info": {"status": "odd"}}).to_string());
        let revision = Revision::decode(sparse.as_bytes()).unwrap();
        assert_eq!((revision.info.status, revision.hooks.len()), (State::Unknown, 0));
    }

    #[test]
    fn decompression_is_bounded() {
        let packed = |json: &str| {
            let mut packer = GzEncoder::new(Vec::new(), Compression::best());
            packer.write_all(json.as_bytes()).unwrap();
            BASE64.encode(packer.finish().unwrap())
        };
        let bomb = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        for json in [
            format!("{{\"hooks\":{}}}", bomb("{}", 200_000)),
            format!("{{\"chart\":{}}}", bomb("1", 5_000_000)),
            format!("{{\"config\":{{\"a\":{}}}}}", bomb("{\"a\":1}", 200_000)),
        ] {
            assert!(packed(&json).len() < 1 << 20);
            let error = Revision::decode(packed(&json).as_bytes()).unwrap_err();
            assert!(matches!(error, StorageError::TooManyItems), "{error}");
        }
        let long = packed(&format!("{{\"manifest\":\"{}\"}}", "x".repeat(33 << 20)));
        assert!(matches!(Revision::decode(long.as_bytes()).unwrap_err(), StorageError::TooLarge));
        // Revisions that could not be decoded again are rejected; text does not count.
        let config: Map<String, Value> =
            [("a".to_owned(), Value::from(vec![json!({}); 200_000]))].into_iter().collect();
        assert!(Revision { config, ..Revision::default() }.encode().is_err());
        let manifest = "{\\\",".repeat(300_000);
        let revision = Revision { manifest, ..Revision::default() };
        assert_eq!(Revision::decode(&revision.encode().unwrap()).unwrap(), revision);
    }

    #[test]
    fn states_match_helm() {
        for word in ["deployed", "pending-install", "pending-upgrade", "superseded", "failed", "uninstalling"] {
            assert_eq!(State::of(word).as_str(), word);
        }
        assert_eq!(State::of("odd"), State::Unknown);
    }
}
