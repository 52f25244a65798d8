//! Capabilities of a cluster: `.Capabilities` in templates.

use crate::helm::HelmVersion;
use crate::value::object::{Field, Object, Record};
use crate::value::{List, ListKind, Value};

/// API versions of a Kubernetes 1.36 client, in the order of Helm.
#[rustfmt::skip]
const API_VERSIONS: [&str; 55] = [
    "admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1alpha1", "admissionregistration.k8s.io/v1beta1",
    "internal.apiserver.k8s.io/v1alpha1",
    "apps/v1", "apps/v1beta1", "apps/v1beta2",
    "authentication.k8s.io/v1", "authentication.k8s.io/v1alpha1", "authentication.k8s.io/v1beta1",
    "authorization.k8s.io/v1", "authorization.k8s.io/v1beta1",
    "autoscaling/v1", "autoscaling/v2",
    "batch/v1", "batch/v1beta1",
    "certificates.k8s.io/v1", "certificates.k8s.io/v1beta1", "certificates.k8s.io/v1alpha1",
    "coordination.k8s.io/v1alpha2", "coordination.k8s.io/v1beta1", "coordination.k8s.io/v1",
    "v1",
    "discovery.k8s.io/v1", "discovery.k8s.io/v1beta1",
    "events.k8s.io/v1", "events.k8s.io/v1beta1",
    "extensions/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1beta1", "flowcontrol.apiserver.k8s.io/v1beta2",
    "flowcontrol.apiserver.k8s.io/v1beta3",
    "networking.k8s.io/v1", "networking.k8s.io/v1beta1",
    "node.k8s.io/v1", "node.k8s.io/v1alpha1", "node.k8s.io/v1beta1",
    "policy/v1", "policy/v1beta1",
    "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io/v1beta1", "rbac.authorization.k8s.io/v1alpha1",
    "resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1", "resource.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1alpha2", "scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1",
    "storage.k8s.io/v1beta1", "storage.k8s.io/v1", "storage.k8s.io/v1alpha1",
    "storagemigration.k8s.io/v1beta1",
    "apiextensions.k8s.io/v1beta1", "apiextensions.k8s.io/v1",
];

/// API versions of the client of each Helm version. Helm 4.1 uses the client of Kubernetes 1.35.
fn api_versions(helm: HelmVersion) -> Vec<String> {
    let of_1_35 = |version: &'static str| match version {
        "admissionregistration.k8s.io/v1" => vec!["v1", version],
        "v1" => vec![],
        "autoscaling/v2" => vec![version, "autoscaling/v2beta1", "autoscaling/v2beta2"],
        "scheduling.k8s.io/v1alpha2" => vec!["scheduling.k8s.io/v1alpha1"],
        _ => vec![version],
    };
    let versions = API_VERSIONS.iter().flat_map(|version| helm.choose(vec![*version], of_1_35(version)));
    versions.map(str::to_owned).collect()
}

/// The Kubernetes version and API versions of a cluster. The default is Helm's for rendering without a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    helm: HelmVersion,
    version: String,
    /// The original text, including a suffix.
    git_version: String,
    major: String,
    minor: String,
    api_versions: Vec<String>,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::of(HelmVersion::default())
    }
}

impl Capabilities {
    /// Returns the defaults of a Helm version for rendering without a cluster.
    pub fn of(helm: HelmVersion) -> Self {
        let minor = helm.choose("36", "35");
        let version = format!("v1.{minor}.0");
        Self {
            helm,
            git_version: version.clone(),
            version,
            major: "1".to_owned(),
            minor: minor.to_owned(),
            api_versions: api_versions(helm),
        }
    }

    /// The Helm version that renders charts.
    pub fn helm(&self) -> HelmVersion {
        self.helm
    }

    /// Sets the version of Kubernetes, such as `v1.36.0` or `1.30`.
    ///
    /// A suffix after the third number is dropped, as in `helm template --kube-version`; Helm 4 keeps it in `.Version`.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a version.
    pub fn set_kube_version(&mut self, version: &str) -> Result<(), String> {
        let message = || format!("could not parse {} as version", crate::quote::quote(version.as_bytes()));
        let text = version.trim().strip_prefix('v').unwrap_or(version.trim());
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (numbers, rest) = text.split_at(end);
        if !(rest.is_empty() || rest.starts_with(['-', '+', '~']) || rest.starts_with(|c: char| c.is_alphabetic())) {
            return Err(message());
        }
        let mut parts = Vec::new();
        for part in numbers.split('.') {
            parts.push(part.parse::<u32>().map_err(|_| message())?);
        }
        if parts.len() < 2 {
            return Err(format!("illegal version string {}", crate::quote::quote(version.as_bytes())));
        }
        self.version = format!("v{}", parts.iter().map(ToString::to_string).collect::<Vec<_>>().join("."));
        let git_version = if version.starts_with('v') { version.to_owned() } else { format!("v{version}") };
        self.git_version = self.helm.choose(self.version.clone(), git_version);
        self.major = parts[0].to_string();
        self.minor = parts[1].to_string();
        Ok(())
    }

    /// Returns the version of Kubernetes, such as `v1.36.0`.
    pub fn kube_version(&self) -> &str {
        &self.version
    }

    /// Returns the major and minor version.
    pub(crate) fn kube_numbers(&self) -> (u32, u32) {
        let number = |text: &str| text.parse().unwrap_or_default();
        (number(&self.major), number(&self.minor))
    }

    /// Returns the version with its suffix, if the Helm version includes it.
    pub(crate) fn git_version(&self) -> &str {
        &self.git_version
    }

    /// Replaces the API versions by those of a cluster: `apps/v1` and `apps/v1/Deployment`. Reads documents of
    /// [aggregated discovery](https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery).
    pub fn set_discovered(&mut self, documents: &[serde_json::Value]) {
        let list = |of: &serde_json::Value, field: &str| of[field].as_array().cloned().unwrap_or_default();
        self.api_versions.clear();
        for group in documents.iter().flat_map(|document| list(document, "items")) {
            for version in list(&group, "versions") {
                let name = version["version"].as_str().unwrap_or_default();
                let api_version = match group["metadata"]["name"].as_str().unwrap_or_default() {
                    "" => name.to_owned(),
                    group => format!("{group}/{name}"),
                };
                let kinds = list(&version, "resources");
                let kinds = kinds.iter().filter_map(|resource| resource["responseKind"]["kind"].as_str());
                self.api_versions.extend(kinds.map(|kind| format!("{api_version}/{kind}")));
                self.api_versions.push(api_version);
            }
        }
    }

    /// Adds API versions.
    pub fn add_api_versions(&mut self, versions: impl IntoIterator<Item = String>) {
        self.api_versions.extend(versions);
    }

    /// Returns the value of `.Capabilities`.
    pub(crate) fn to_value(&self) -> Value {
        let kube = Record {
            type_name: self.helm.choose("chartutil.KubeVersion", "common.KubeVersion"),
            is_pointer: false,
            embedded: 0,
            fields: vec![
                Field::plain("Version", Value::str(&self.git_version)),
                Field::plain("Major", Value::str(&self.major)),
                Field::plain("Minor", Value::str(&self.minor)),
            ],
            string: Some(self.version.clone()),
        };
        let helm = Record {
            type_name: "version.BuildInfo",
            is_pointer: false,
            embedded: 0,
            fields: vec![
                Field { name: "Version", json: "version", omit_empty: true, value: Value::str(self.helm.number()) },
                Field { name: "GitCommit", json: "git_commit", omit_empty: true, value: Value::str("") },
                Field { name: "GitTreeState", json: "git_tree_state", omit_empty: true, value: Value::str("") },
                Field { name: "GoVersion", json: "go_version", omit_empty: true, value: Value::str("") },
            ],
            string: None,
        };
        let versions = self.api_versions.iter().map(Value::str).collect();
        Value::object(Object::Record(Record {
            type_name: self.helm.choose("*chartutil.Capabilities", "*common.Capabilities"),
            is_pointer: true,
            embedded: 0,
            fields: vec![
                Field::plain("KubeVersion", Value::object(Object::Record(kube))),
                Field::plain("APIVersions", Value::List(List::new(ListKind::VersionSet(self.helm), versions))),
                Field::plain("HelmVersion", Value::object(Object::Record(helm))),
            ],
            string: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn api_versions_match_helm() {
        let resources = json!([{"resource": "deployments", "responseKind": {"kind": "Deployment"}}]);
        let group =
            |name: &str| json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": resources}]});
        let mut capabilities = Capabilities::default();
        capabilities.set_discovered(&[json!({"items": [group("apps")]}), json!({"items": [group("")]})]);
        assert_eq!(capabilities.api_versions, ["apps/v1/Deployment", "apps/v1", "v1/Deployment", "v1"]);
    }
}
