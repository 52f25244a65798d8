//! Signatures of images by a key file, in the form that `cosign verify --key` reads.
//!
//! A signature covers a small JSON document, the payload, that names the digest of a manifest. Payload and signature
//! are kept in the image's own repository, as a manifest with the tag `sha256-<digest>.sig`, see
//! <https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md>. Keys are ECDSA P-256 in PEM, as `openssl`
//! and `cosign import-key-pair` use them.
//!
//! The payload from a registry is trusted only after its signature was verified, and then only its digest.

use super::manifest::Manifest;
use super::reference::Reference;
use super::registry::Registry;
use super::{Blob, CONFIG, Descriptor, MANIFEST, hex};
use crate::error::{Error, Result, ResultExt};
use base64::prelude::{BASE64_STANDARD, Engine};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation of a payload's descriptor that holds the signature, in base64.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// Type of a payload.
const PAYLOAD_TYPE: &str = "cosign container image signature";
/// DER prefix of an ECDSA P-256 public key (RFC 5480), before the point.
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// Maximum number of signatures of one manifest that are checked.
const MAX_SIGNATURES: usize = 64;

/// A private key.
pub(crate) struct SigningKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl SigningKey {
    /// Reads a key from a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not a private key for ECDSA P-256 in PKCS #8.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).context(format!("cannot read the key {}", path.display()))?;
        let wrong = |why: &str| Error::new(format!("{} is not a usable private key: {why}", path.display()));
        if String::from_utf8_lossy(&text).contains("-----BEGIN ENCRYPTED") {
            return Err(wrong("it is encrypted")
                .hint(format!("decrypt it: openssl pkcs8 -in {} -out plain.key", path.display())));
        }
        let der = PrivatePkcs8KeyDer::from_pem_slice(&text).map_err(|_| {
            wrong("no PRIVATE KEY block found").hint(
                "create one: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out image.key; \
                 to convert a key of another format: openssl pkcs8 -topk8 -nocrypt",
            )
        })?;
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der.secret_pkcs8_der(), &random).map_err(
            |_| {
                wrong("it is not for ECDSA P-256")
                    .hint("create one: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out image.key")
            },
        )?;
        Ok(Self { pair, random })
    }

    fn public(&self) -> VerifyingKey {
        VerifyingKey { point: ring::signature::KeyPair::public_key(&self.pair).as_ref().to_vec() }
    }

    fn sign(&self, payload: &[u8]) -> Result<String> {
        let signature = self.pair.sign(&self.random, payload).ok();
        let signature = signature.ok_or_else(|| Error::new("no randomness available to sign with"))?;
        Ok(BASE64_STANDARD.encode(signature))
    }
}

/// A public key.
pub(crate) struct VerifyingKey {
    point: Vec<u8>,
}

impl VerifyingKey {
    /// Reads a key from a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not a public key for ECDSA P-256.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).context(format!("cannot read the key {}", path.display()))?;
        let der = SubjectPublicKeyInfoDer::from_pem_slice(&text).ok();
        let point = der.as_ref().and_then(|der| der.strip_prefix(&P256_PREFIX));
        let point = point.ok_or_else(|| {
            Error::new(format!("{} is not an ECDSA P-256 public key", path.display()))
                .hint("extract it from the private key: openssl pkey -in image.key -pubout -out image.pub")
        })?;
        Ok(Self { point: point.to_vec() })
    }

    /// Returns true if a payload names a manifest and is signed by this key.
    fn accepts(&self, payload: &[u8], signature: &str, digest: &str) -> bool {
        let Ok(signature) = BASE64_STANDARD.decode(signature) else { return false };
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.point);
        if key.verify(payload, &signature).is_err() {
            return false;
        }
        let payload_json: Value = serde_json::from_slice(payload).unwrap_or_default();
        let critical = &payload_json["critical"];
        critical["image"]["docker-manifest-digest"] == digest && critical["type"] == PAYLOAD_TYPE
    }
}

fn tag(digest: &str) -> String {
    format!("sha256-{}.sig", hex(digest).unwrap_or_default())
}

/// Returns the descriptors of the payloads that are signatures of a manifest.
async fn signatures(registry: &mut Registry, digest: &str) -> Result<Vec<Descriptor>> {
    let tag = tag(digest);
    match registry.get_manifest(&tag, &[MANIFEST]).await? {
        Some(manifest) => {
            let manifest = Manifest::read(&format!("signature manifest {tag}"), &manifest);
            manifest.map(|manifest| manifest.layers).map_err(|error| {
                error
                    .hint(format!("delete the tag {tag}, and sign the image again: flyball image push --sign-key FILE"))
            })
        }
        None => Ok(Vec::new()),
    }
}

/// Returns true if a manifest was signed by a key.
pub(crate) async fn is_signed(registry: &mut Registry, digest: &str, key: &VerifyingKey) -> Result<bool> {
    let signatures = signatures(registry, digest).await?;
    is_among(registry, &signatures, digest, key).await
}

async fn is_among(
    registry: &mut Registry,
    signatures: &[Descriptor],
    digest: &str,
    key: &VerifyingKey,
) -> Result<bool> {
    for layer in signatures.iter().take(MAX_SIGNATURES) {
        let Some(signature) = layer.annotations.get(SIGNATURE) else { continue };
        let payload = registry.get_blob(&layer.digest).await?;
        if key.accepts(&payload, signature, digest) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Signs a manifest in the registry, and keeps the signatures of other keys; does nothing if this key has already
/// signed it.
///
/// # Errors
///
/// If the registry rejects the signature.
pub(crate) async fn sign(registry: &mut Registry, reference: &Reference, digest: &str, key: &SigningKey) -> Result<()> {
    let mut layers = signatures(registry, digest).await?;
    if is_among(registry, &layers, digest, &key.public()).await? {
        return Ok(());
    }
    let payload = json!({
        "critical": {
            "identity": {"docker-reference": format!("{}/{}", reference.registry, reference.repository)},
            "image": {"docker-manifest-digest": digest},
            "type": PAYLOAD_TYPE,
        },
        "optional": null,
    });
    let mut payload = Blob::json(PAYLOAD, &payload);
    payload.descriptor.annotations.insert(SIGNATURE.into(), key.sign(&payload.bytes)?);
    registry.put_blob(&payload.descriptor.digest, payload.bytes.into()).await?;
    layers.push(payload.descriptor);

    let contents: Vec<&str> = layers.iter().map(|layer| layer.digest.as_str()).collect();
    let config = json!({
        "architecture": "",
        "os": "",
        "config": {},
        "created": "0001-01-01T00:00:00Z",
        "history": vec![json!({"created": "0001-01-01T00:00:00Z"}); contents.len()],
        "rootfs": {"type": "layers", "diff_ids": contents},
    });
    let config = Blob::json(CONFIG, &config);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor,
        "layers": layers,
    });
    registry.put_blob(&config.descriptor.digest, config.bytes.into()).await?;
    registry.put_manifest(MANIFEST, &tag(digest), manifest.to_string().into_bytes()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_payload_of_the_manifest_is_accepted() {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random).unwrap();
        let key = SigningKey { pair, random };
        let public = key.public();
        let payload = |digest: &str, kind: &str| {
            json!({"critical": {"image": {"docker-manifest-digest": digest}, "type": kind}}).to_string()
        };
        let good = payload("sha256:a", PAYLOAD_TYPE);
        let signature = key.sign(good.as_bytes()).unwrap();
        assert!(public.accepts(good.as_bytes(), &signature, "sha256:a"));
        assert!(!public.accepts(good.as_bytes(), &signature, "sha256:b"));
        assert!(!public.accepts(payload("sha256:b", PAYLOAD_TYPE).as_bytes(), &signature, "sha256:b"));
        let other = payload("sha256:a", "something else");
        assert!(!public.accepts(other.as_bytes(), &key.sign(other.as_bytes()).unwrap(), "sha256:a"));
        for broken in ["", "%", "AAAA"] {
            assert!(!public.accepts(good.as_bytes(), broken, "sha256:a"));
        }
    }
}
