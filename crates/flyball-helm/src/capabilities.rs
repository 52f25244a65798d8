//! What a cluster can do: `.Capabilities` in templates.

/// A cluster's version and its API versions. The default is what Helm assumes when there is no cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    kube_version: String,
    api_versions: Vec<String>,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self { kube_version: "v1.36.0".to_owned(), api_versions: Vec::new() }
    }
}

impl Capabilities {
    /// Sets the version of Kubernetes, such as `v1.36.0` or `1.30`.
    ///
    /// # Errors
    /// The text is not a version.
    pub fn set_kube_version(&mut self, version: &str) -> Result<(), String> {
        self.kube_version = version.to_owned();
        Ok(())
    }

    /// Replaces the API versions: `apps/v1` and `apps/v1/Deployment`.
    pub fn set_api_versions(&mut self, versions: impl IntoIterator<Item = String>) {
        self.api_versions = versions.into_iter().collect();
    }

    /// Adds API versions to those that are there.
    pub fn add_api_versions(&mut self, versions: impl IntoIterator<Item = String>) {
        self.api_versions.extend(versions);
    }
}
