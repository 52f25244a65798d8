//! The cluster of `--validate` and `--dry-run=server`.

use super::flags::{invalid_argument, not_parsed, parse_bool};
use super::idle::{deprecation, exclusive, warning};
use crate::quote::quote;
use crate::render::split;
use crate::{Capabilities, Chart, HelmVersion, Lookup, Release, RenderedChart, TemplateArgs, from_yaml};

/// A cluster that a chart is rendered for.
pub trait Cluster: Lookup {
    /// Returns the version and the kinds of the cluster.
    ///
    /// # Errors
    ///
    /// Returns a message if the cluster does not respond.
    fn capabilities(&self, helm: HelmVersion) -> Result<Capabilities, String>;

    /// Checks that the cluster has the kinds of objects.
    ///
    /// # Errors
    ///
    /// Returns Helm's message about the kinds that it does not have.
    fn check_kinds(&self, objects: &[serde_json::Value]) -> Result<(), String>;

    /// Checks that no objects exist, except for those of the release.
    ///
    /// # Errors
    ///
    /// Returns Helm's message about the first one of another owner.
    fn check_owners(&self, objects: &[serde_json::Value], release: &Release) -> Result<(), String>;
}

/// Flags that select the cluster, and those of requests and caches, which have no effect.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ClusterFlags {
    /// Path of the kubeconfig; defaults to KUBECONFIG or ~/.kube/config
    #[arg(long, hide = true)]
    pub kubeconfig: Option<String>,
    /// Context of the kubeconfig; defaults to the current one
    #[arg(long, hide = true)]
    pub kube_context: Option<String>,
    /// URL of the API server
    #[arg(long, hide = true)]
    pub kube_apiserver: Option<String>,
    /// User to impersonate
    #[arg(long, hide = true)]
    pub kube_as_user: Option<String>,
    /// Groups to impersonate
    #[arg(long, hide = true)]
    pub kube_as_group: Vec<String>,
    /// File with the certificate authority of the API server
    #[arg(long, hide = true)]
    pub kube_ca_file: Option<String>,
    /// Accept any certificate of the API server
    #[arg(long, hide = true)]
    pub kube_insecure_skip_tls_verify: bool,
    /// Name in the certificate of the API server
    #[arg(long, hide = true)]
    pub kube_tls_server_name: Option<String>,
    /// Token for the API server
    #[arg(long, hide = true)]
    pub kube_token: Option<String>,
    #[arg(long, hide = true)]
    burst_limit: Option<String>,
    #[arg(long, hide = true)]
    qps: Option<String>,
    #[arg(long, hide = true)]
    repository_cache: Option<String>,
    #[arg(long, hide = true)]
    repository_config: Option<String>,
    #[arg(long, hide = true)]
    content_cache: Option<String>,
    #[arg(long, hide = true, alias = "colour")]
    color: Option<String>,
}

impl ClusterFlags {
    /// Rejects flags that a version of Helm does not have, and invalid values.
    pub(super) fn check(&self, helm: HelmVersion) -> Result<(), String> {
        let of_4 = [(&self.color, "--color"), (&self.content_cache, "--content-cache")];
        if let Some((_, flag)) = of_4.iter().find(|(value, _)| value.is_some() && helm == HelmVersion::V3) {
            return Err(format!("unknown flag: {flag}"));
        }
        if let Some(limit) = self.burst_limit.as_ref().filter(|limit| limit.parse::<i64>().is_err()) {
            return Err(invalid_argument("--burst-limit", limit, &not_parsed("ParseInt", limit)));
        }
        if let Some(qps) = self.qps.as_ref().filter(|qps| qps.parse::<f32>().is_err()) {
            return Err(invalid_argument("--qps", qps, &not_parsed("ParseFloat", qps)));
        }
        match self.color.as_deref() {
            None | Some("never" | "auto" | "always") => Ok(()),
            Some(mode) => {
                let mode = quote(mode.as_bytes());
                Err(format!("invalid color mode {mode}: must be one of: never, auto, always"))
            }
        }
    }
}

/// Flags that need a cluster.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct DryRunFlags {
    /// `server` lets lookup read the cluster of --kubeconfig and --kube-context. With --helm-version 4, includes
    /// --validate
    #[arg(long, num_args = 0..=1, require_equals = true, value_name = "client|server")]
    dry_run: Option<Option<String>>,
    /// Use the version and API versions of the cluster; fail if a kind is unknown or an object exists
    #[arg(long)]
    validate: bool,
    /// Accept objects that exist
    #[arg(long, hide = true)]
    pub(super) take_ownership: bool,
}

/// The use of a cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterUse {
    /// `lookup` finds objects.
    pub(super) looks_up: bool,
    /// Capabilities are those of the cluster, and objects are checked.
    pub(super) validates: bool,
    pub(super) warnings: Vec<String>,
}

impl DryRunFlags {
    /// Returns what Helm does with a cluster.
    pub(super) fn cluster_use(&self, helm: HelmVersion) -> Result<ClusterUse, String> {
        match helm {
            HelmVersion::V3 => self.use_3(),
            HelmVersion::V4 => self.use_4(),
        }
    }

    fn use_3(&self) -> Result<ClusterUse, String> {
        let looks_up = match self.dry_run.as_ref().map(|value| value.as_deref().unwrap_or("client")) {
            None | Some("client" | "" | "true") => false,
            Some("server" | "none" | "false") => true,
            Some(_) => {
                return Err("Invalid dry-run flag. Flag must one of the following: false, true, none, client, server"
                    .to_owned());
            }
        };
        Ok(ClusterUse { looks_up, validates: self.validate, warnings: Vec::new() })
    }

    fn use_4(&self) -> Result<ClusterUse, String> {
        let mut warnings = Vec::new();
        if self.validate {
            if self.dry_run.is_some() {
                return Err(exclusive(&["validate", "dry-run"]));
            }
            warnings.push(deprecation("validate", "'--dry-run=server'"));
        }
        let dry_run = self.dry_run.as_ref().map(|value| value.as_deref().unwrap_or_default());
        match dry_run {
            None | Some("server" | "client") => {}
            Some("") => {
                warnings.push(warning("--dry-run is deprecated and should be replaced with '--dry-run=client'"))
            }
            Some(value) if parse_bool(value) == Some(true) => warnings.push(warning(&format!(
                "boolean '--dry-run={value}' flag is deprecated and must be replaced with '--dry-run=client'"
            ))),
            Some(value) => {
                let is_none = value == "none" || parse_bool(value).is_some();
                let choices = if is_none { "\"server\" or \"client\"" } else { "\"none\", \"server\", or \"client\"" };
                return Err(format!("invalid dry-run value ({}). Must be {choices}", quote(value.as_bytes())));
            }
        }
        let is_server = self.validate || dry_run == Some("server");
        Ok(ClusterUse { looks_up: is_server, validates: is_server, warnings })
    }
}

/// Checks objects as `helm install` does before it creates them.
pub(super) fn validate(
    cluster: &dyn Cluster,
    args: &TemplateArgs,
    chart: &Chart,
    rendered: &RenderedChart,
    release: &Release,
) -> Result<(), String> {
    let wrong = |error: String| format!("unable to build kubernetes objects from release manifest: {error}");
    let mut objects = Vec::new();
    for file in chart.crds().iter().filter(|_| args.include_crds) {
        for document in split(file.text.as_bytes()) {
            objects.push(from_yaml(&String::from_utf8_lossy(document)).map_err(|error| wrong(error.to_string()))?);
        }
    }
    objects.extend(rendered.manifests.iter().map(|manifest| manifest.object.clone()));
    cluster.check_kinds(&objects).map_err(wrong)?;
    if args.is_upgrade || args.dry_run.take_ownership {
        return Ok(());
    }
    let prefix = args.helm_version.choose("Unable", "unable");
    cluster.check_owners(&objects, release).map_err(|error| format!("{prefix} to continue with install: {error}"))
}
