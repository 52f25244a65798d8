//! The rules for a bundle as a whole: its CSV and its other objects fit together.

use super::finding::Findings;
use crate::bundle::Api;
use crate::image::ImageName;
use crate::manifests::{BundleFolder, SUPPORTED_KINDS, definition_api, definition_apis};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;

/// Maximum size of the packed manifests, in bytes: OLM unpacks a bundle into a ConfigMap.
const MAX_PACKED_BYTES: usize = 1 << 20;

pub(super) fn check(folder: &BundleFolder, findings: &mut Findings) {
    check_definitions(folder, findings);
    check_objects(folder, findings);
    check_service_accounts(folder, findings);
    check_size(folder, findings);
    check_images(folder, findings);
    check_release(folder, findings);
    check_channels(folder, findings);
}

fn check_definitions(folder: &BundleFolder, findings: &mut Findings) {
    let manifests = &folder.manifests;
    let mut contained: BTreeSet<Api> = BTreeSet::new();
    for definition in manifests.definitions() {
        for api in definition_apis(definition) {
            if !contained.insert(api.clone()) {
                let field = format!("CustomResourceDefinition {}", definition["metadata"]["name"]);
                findings.error(field, format!("{api} is defined twice"), "remove one of the CRDs");
            }
        }
    }
    let owned = manifests.csv()["spec"]["customresourcedefinitions"]["owned"].as_array().into_iter().flatten();
    let owned: BTreeSet<Api> = owned.filter_map(definition_api).collect();
    const FIELD: &str = "spec.customresourcedefinitions.owned";
    for api in owned.difference(&contained) {
        findings.error(FIELD, format!("{api} is not in the bundle"), "add its CRD to the manifests");
    }
    // Further versions of an owned kind need not be listed.
    let is_owned = |api: &&Api| owned.iter().any(|owned| owned.group == api.group && owned.kind == api.kind);
    for api in contained.difference(&owned).filter(|api| !is_owned(api)) {
        findings.error(FIELD, format!("the bundle contains {api}, but the CSV does not own it"), "add it to `owned`");
    }
    for conversion in manifests.conversions() {
        let why = "Kubernetes 1.22 removed this API version";
        findings.error(conversion, why, "write apiVersion apiextensions.k8s.io/v1; `flyball bundle create` does");
    }
}

fn check_objects(folder: &BundleFolder, findings: &mut Findings) {
    for object in folder.manifests.others() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let field = format!("{kind} {name}");
        if !SUPPORTED_KINDS.contains(&kind.as_str()) {
            findings.error(&field, "OLM does not install objects of this kind", "remove it from the manifests");
        }
        match kind.as_str() {
            "PodDisruptionBudget" => {
                let budget = &object["spec"];
                if budget["maxUnavailable"] == 0 || budget["maxUnavailable"] == "0%" || budget["minAvailable"] == "100%"
                {
                    findings.error(
                        &field,
                        "it allows no disruption, so that nodes cannot be drained",
                        "allow at least one",
                    );
                }
            }
            "PriorityClass" if object["globalDefault"] == true => {
                findings.error(&field, "globalDefault changes the priority of all pods", "remove globalDefault");
            }
            _ => {}
        }
    }
}

fn check_service_accounts(folder: &BundleFolder, findings: &mut Findings) {
    let deployments = folder.manifests.csv().pointer("/spec/install/spec/deployments").and_then(Value::as_array);
    let account = |deployment: &Value| deployment["spec"]["template"]["spec"]["serviceAccountName"].clone();
    let used: Vec<Value> = deployments.into_iter().flatten().map(account).collect();
    for object in folder.manifests.others().filter(|object| object["kind"] == "ServiceAccount") {
        let name = &object["metadata"]["name"];
        if used.contains(name) {
            let why = "OLM creates the account of a deployment itself";
            findings.error(format!("ServiceAccount {name}"), why, "remove it from the manifests");
        }
    }
}

fn check_size(folder: &BundleFolder, findings: &mut Findings) {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    let written: std::io::Result<()> =
        folder.manifests.objects().try_for_each(|object| packed.write_all(object.to_string().as_bytes()));
    let Ok(bytes) = written.and_then(|()| packed.finish()).map(|packed| packed.len()) else { return };
    let remedy = "shorten descriptions in CRDs, or remove versions";
    if bytes > MAX_PACKED_BYTES {
        let why = format!("they have {bytes} bytes when packed, OLM unpacks at most {MAX_PACKED_BYTES}");
        findings.error("manifests", why, remedy);
    } else if bytes > MAX_PACKED_BYTES / 100 * 85 {
        findings.warn(
            "manifests",
            format!("they have {bytes} of at most {MAX_PACKED_BYTES} bytes when packed"),
            remedy,
        );
    }
}

fn check_images(folder: &BundleFolder, findings: &mut Findings) {
    let related = folder.manifests.csv()["spec"]["relatedImages"].as_array().into_iter().flatten();
    for (index, image) in related.enumerate() {
        let field = format!("spec.relatedImages[{index}].image");
        match image["image"].as_str() {
            None | Some("") => findings.error(field, "it is empty", "write an image, or remove the entry"),
            Some(name) => {
                if let Err(error) = name.parse::<ImageName>() {
                    findings.error(field, error.to_string(), "write an image such as quay.io/team/operator:v1");
                }
            }
        }
    }
}

fn check_release(folder: &BundleFolder, findings: &mut Findings) {
    let release = match &folder.manifests.csv()["spec"]["release"] {
        Value::String(release) if !release.is_empty() => release.clone(),
        Value::Number(release) => release.to_string(),
        _ => return,
    };
    let expected = format!("{}-v{}-{release}", folder.annotations.package, folder.manifests.version());
    if folder.manifests.name() != expected {
        findings.error("metadata.name", "a bundle with a release has a fixed name", format!("write {expected}"));
    }
}

fn check_channels(folder: &BundleFolder, findings: &mut Findings) {
    let annotations = &folder.annotations;
    if let Some(default) = &annotations.default_channel
        && !annotations.channels.contains(default)
    {
        let why = format!("the default channel {default:?} is not one of the channels of the bundle");
        findings.warn("metadata/annotations.yaml", why, "add it to channels.v1, unless other bundles are in it");
    }
}
