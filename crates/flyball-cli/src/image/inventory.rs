//! SBOM and provenance, the two documents attached to an image.
//!
//! The first is a bill of materials in the form of [CycloneDX](https://cyclonedx.org/docs/1.5/json/), the second a
//! statement in that of [SLSA](https://slsa.dev/spec/v1.0/provenance). Both are reproducible.

use super::project::Package;
use super::{Descriptor, hex};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) const SBOM_TYPE: &str = "application/vnd.cyclonedx+json";
pub(crate) const PROVENANCE_TYPE: &str = "application/vnd.in-toto+json";

/// Creates the SBOM of a program: its package and dependencies.
pub(crate) fn sbom(root: &Package, parts: &[(Package, Vec<Package>)], created: &str) -> Value {
    let tool = json!({"type": "application", "name": "flyball", "version": env!("CARGO_PKG_VERSION")});
    let others = parts.iter().map(|(package, _)| package).filter(|package| package.id != root.id);
    let needs = parts.iter().map(|(package, needs)| {
        json!({"ref": package.purl(), "dependsOn": needs.iter().map(Package::purl).collect::<Vec<_>>()})
    });
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "tools": {"components": [tool]},
            "component": component(root, "application"),
        },
        "components": others.map(|package| component(package, "library")).collect::<Vec<_>>(),
        "dependencies": needs.collect::<Vec<_>>(),
    })
}

fn component(package: &Package, kind: &str) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": package.purl(),
        "name": package.name,
        "version": package.version,
        "purl": package.purl(),
    });
    if let Some(license) = &package.license {
        // Cargo still accepts the old syntax of alternatives.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if let Some(checksum) = &package.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}

/// Provenance of an image.
pub(crate) struct BuildOrigin<'a> {
    pub(crate) name: &'a str,
    pub(crate) platform: &'a str,
    pub(crate) target: Option<&'a str>,
    pub(crate) profile: Option<&'a str>,
    pub(crate) compiler: Option<&'a str>,
    pub(crate) source: Option<&'a str>,
    pub(crate) revision: Option<&'a str>,
    /// The digest of the lock file.
    pub(crate) lock: Option<&'a str>,
    /// The digest of the program.
    pub(crate) program: &'a str,
}

/// Writes the statement about an image.
pub(crate) fn provenance(subject: &Descriptor, origin: &BuildOrigin<'_>) -> Value {
    let digest = |digest: &str| json!({"sha256": hex(digest).unwrap_or_default()});
    let mut sbom = Vec::new();
    if let (Some(source), Some(revision)) = (origin.source, origin.revision) {
        let mut commit = json!({"uri": format!("git+{source}@{revision}")});
        // Uncommitted changes are in no commit.
        if !revision.ends_with("-dirty") {
            commit["digest"] = json!({"gitCommit": revision});
        }
        sbom.push(commit);
    }
    if let Some(lock) = origin.lock {
        sbom.push(json!({"uri": "Cargo.lock", "digest": digest(lock)}));
    }
    let entries = [("platform", Some(origin.platform)), ("target", origin.target), ("profile", origin.profile)];
    let parameters: BTreeMap<&str, &str> =
        entries.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let mut versions = json!({"flyball": env!("CARGO_PKG_VERSION")});
    if let Some(compiler) = origin.compiler {
        versions["rustc"] = compiler.into();
    }
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": origin.name, "digest": digest(&subject.digest)}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/image.md"),
                "externalParameters": parameters,
                "internalParameters": {"program": {"digest": digest(origin.program)}},
                "resolvedDependencies": sbom,
            },
            "runDetails": {"builder": {"id": env!("CARGO_PKG_REPOSITORY"), "version": versions}},
        },
    })
}
