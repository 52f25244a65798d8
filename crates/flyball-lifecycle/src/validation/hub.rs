//! The rules of OperatorHub and of the repository of community operators.

use super::CAPABILITIES;
use super::finding::Findings;
use crate::manifests::BundleFolder;
use semver::Version;
use serde_json::Value;
use url::Url;

/// Media types of pictures.
pub const ICON_MEDIA_TYPES: [&str; 4] = ["image/gif", "image/jpeg", "image/png", "image/svg+xml"];
/// The categories of OperatorHub.
pub const CATEGORIES: [&str; 16] = [
    "AI/Machine Learning",
    "Application Runtime",
    "Big Data",
    "Cloud Provider",
    "Database",
    "Developer Tools",
    "Integration & Delivery",
    "Logging & Tracing",
    "Modernization & Migration",
    "Monitoring",
    "Networking",
    "Observability",
    "OpenShift Optional",
    "Security",
    "Storage",
    "Streaming & Messaging",
];
/// API versions that Kubernetes has removed, except for CRDs, which are converted.
const REMOVED: [&str; 17] = [
    "admissionregistration.k8s.io/v1beta1",
    "apiregistration.k8s.io/v1beta1",
    "authentication.k8s.io/v1beta1",
    "authorization.k8s.io/v1beta1",
    "autoscaling/v2beta1",
    "autoscaling/v2beta2",
    "batch/v1beta1",
    "certificates.k8s.io/v1beta1",
    "coordination.k8s.io/v1beta1",
    "discovery.k8s.io/v1beta1",
    "events.k8s.io/v1beta1",
    "extensions/v1beta1",
    "networking.k8s.io/v1beta1",
    "node.k8s.io/v1beta1",
    "policy/v1beta1",
    "rbac.authorization.k8s.io/v1beta1",
    "scheduling.k8s.io/v1beta1",
];

pub(super) fn check(folder: &BundleFolder, findings: &mut Findings) {
    let csv = folder.manifests.csv();
    check_people(&csv["spec"], findings);
    check_links(&csv["spec"], findings);
    check_icon(&csv["spec"], findings);
    check_levels(&csv["metadata"]["annotations"], findings);
    match folder.manifests.version() {
        "" => findings.error("spec.version", "it is missing", "write a semantic version such as 1.2.3"),
        version => {
            if let Err(error) = Version::parse(version) {
                findings.error(
                    "spec.version",
                    format!("{version:?} is invalid: {error}"),
                    "write a semantic version such as 1.2.3",
                );
            }
        }
    }
    for object in folder.manifests.others() {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        if REMOVED.contains(&version) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let field = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
            findings.error(field, format!("Kubernetes has removed {version}"), "write the current API version");
        }
    }
}

fn check_people(spec: &Value, findings: &mut Findings) {
    if spec["provider"]["name"].as_str().is_none_or(|name| name.trim().is_empty()) {
        findings.error("spec.provider.name", "it is missing", "write who publishes the operator");
    }
    for (index, maintainer) in spec["maintainers"].as_array().into_iter().flatten().enumerate() {
        let text = |field: &str| maintainer[field].as_str().unwrap_or_default().trim().to_owned();
        let field = format!("spec.maintainers[{index}]");
        if text("name").is_empty() || text("email").is_empty() {
            findings.error(&field, "name or email is missing", "write both");
        }
        if !text("email").is_empty() && !is_address(&text("email")) {
            findings.error(
                &field,
                format!("{:?} is not an e-mail address", text("email")),
                "write such as team@example.com",
            );
        }
    }
}

fn is_address(text: &str) -> bool {
    let is_clean =
        |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || "<>()[],;:\\\"@".contains(c));
    text.split_once('@').is_some_and(|(user, host)| is_clean(user) && is_clean(host) && !host.starts_with('.'))
}

fn check_links(spec: &Value, findings: &mut Findings) {
    for (index, link) in spec["links"].as_array().into_iter().flatten().enumerate() {
        let text = |field: &str| link[field].as_str().unwrap_or_default().to_owned();
        let field = format!("spec.links[{index}]");
        if text("name").is_empty() || text("url").is_empty() {
            findings.error(&field, "name or url is missing", "write both");
        }
        if !text("url").is_empty()
            && let Err(error) = Url::parse(&text("url"))
        {
            findings.error(
                &field,
                format!("{:?} is not a URL: {error}", text("url")),
                "write such as https://example.com",
            );
        }
    }
}

fn check_icon(spec: &Value, findings: &mut Findings) {
    let icons = spec["icon"].as_array().map_or(&[][..], Vec::as_slice);
    if icons.len() > 1 {
        findings.error("spec.icon", format!("there are {} pictures", icons.len()), "remove all but one");
    }
    for icon in icons {
        let text = |field: &str| icon[field].as_str().unwrap_or_default();
        if text("base64data").is_empty() || text("mediatype").is_empty() {
            findings.error("spec.icon", "base64data or mediatype is missing", "write both");
        } else if !ICON_MEDIA_TYPES.contains(&text("mediatype")) {
            let why = format!("the media type {:?} is not supported", text("mediatype"));
            findings.error("spec.icon", why, format!("use one of {}", ICON_MEDIA_TYPES.join(", ")));
        }
    }
}

fn check_levels(annotations: &Value, findings: &mut Findings) {
    if let Some(level) = annotations["capabilities"].as_str()
        && !CAPABILITIES.contains(&level)
    {
        let why = format!("{level:?} is not a capability level");
        findings.error("metadata.annotations[capabilities]", why, format!("write one of {}", CAPABILITIES.join(", ")));
    }
    let categories = annotations["categories"].as_str().unwrap_or_default().split(',').map(str::trim);
    for category in categories.filter(|category| !category.is_empty() && !CATEGORIES.contains(category)) {
        let why = format!("{category:?} is not a category of OperatorHub");
        findings.error("metadata.annotations[categories]", why, format!("write some of {}", CATEGORIES.join(", ")));
    }
}
