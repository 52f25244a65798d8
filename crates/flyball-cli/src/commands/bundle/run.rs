//! `flyball bundle run`: installs a bundle on a cluster, without an image of a catalog.
//!
//! The bundle goes to a ConfigMap with a file-based catalog, which a CatalogSource reads. Later bundles of the same
//! package are added to it, so that the lifecycle manager upgrades as from any other catalog.

use super::progress::Awaited;
use super::{findings, read_bundle, request, validate};
use crate::cluster::connection::{Connection, ConnectionArgs, block_on};
use crate::commands::olm::manager::ManagedCluster;
use crate::duration::parse_flag;
use crate::error::{Error, Result, ResultExt};
use crate::render::output::Output;
use crate::render::terminal::{Style, one_line, paint, print_line};
use clap::{Args, ValueEnum};
use flyball_lifecycle::api::labels::CATALOG;
use flyball_lifecycle::api::{CatalogSource, ClusterServiceVersion, OperatorGroup, Subscription};
use flyball_lifecycle::content::{Blobs, BundleBlob, ChannelBlob, ChannelEntry, Content, PackageBlob};
use flyball_lifecycle::manifests::BundleFolder;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Key of the catalog in the ConfigMap.
const KEY: &str = "catalog.json";
/// Maximum size of the catalog, in bytes: that of a ConfigMap, without its metadata.
const MAX_BYTES: usize = (1 << 20) - (64 << 10);
/// Annotation of a CSV with the versions that it upgrades.
const SKIP_RANGE: &str = "olm.skipRange";

/// Install a bundle on a cluster with Flyball's lifecycle manager, without an image of a catalog
///
/// Creates a CatalogSource with the bundle, and a Subscription; an OperatorGroup if the namespace has none. A bundle of
/// a higher version is an upgrade. Waits until the operator runs, or cannot run. The images of the operator must be
/// available.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball bundle run operators/site-operator/1.0.0 -n sites
  flyball bundle run operators/site-operator/1.1.0 -n sites     upgrades it
  flyball bundle run operators/site-operator/1.0.0 -n sites --install-mode all

It is removed like other operators: flyball olm uninstall, or by deleting its Subscription and ClusterServiceVersion.
The CatalogSource is deleted with the Subscription. An OperatorGroup of the name of the package and CRDs stay:
  kubectl delete subscription site-operator -n sites
  kubectl delete clusterserviceversion site-operator.v1.1.0 -n sites
  kubectl delete operatorgroup site-operator -n sites     if it has no other operators")]
pub(super) struct RunArgs {
    /// Folder with manifests and metadata
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Watched namespaces, for a namespace without OperatorGroup; defaults to all if the bundle supports it
    #[arg(long, value_enum, value_name = "MODE")]
    install_mode: Option<Mode>,
    /// Timeout for the operator to run
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_flag)]
    timeout: Duration,
    /// Print only errors
    #[arg(short, long, conflicts_with = "output")]
    quiet: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// The namespaces that an operator watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// All namespaces
    All,
    /// The namespace of the operator
    Own,
}

/// Result of the command.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    package: String,
    namespace: String,
    /// The bundle that was installed before; empty if there was none.
    replaced: String,
    installed: String,
    subscription: String,
    catalog_source: String,
}

pub(super) fn cmd_run(args: &RunArgs) -> Result<()> {
    let (_, bundle) = read_bundle(&args.folder)?;
    block_on(async {
        let found = validate::all_findings(&bundle).await?;
        if let Some(error) = findings::failure(&found, bundle.manifests.name(), false) {
            findings::print(&found);
            return Err(error);
        }
        let place = ManagedCluster::connect_in(&args.connection).await?;
        let connection = &place.connection;
        check_manager(connection).await?;
        check_namespace(connection).await?;
        let installation = Installation { bundle: &bundle, connection };
        let (subscription, installed) = installation.installed().await?;
        let replaced = subscription.as_ref().map(|of| of.status.installed_csv.clone()).unwrap_or_default();
        let objects = installation.objects(args.install_mode).await?;
        if let Some(subscription) = &subscription {
            request::check(subscription, installed.as_ref(), &bundle)?;
        }
        for object in objects {
            connection.apply(&object).await?;
        }
        installation.own_catalog().await?;
        let (subscription, csv) = (installation.package(), bundle.manifests.name());
        Awaited { place: &place, subscription, csv }.until_succeeded(args.timeout).await?;
        report(args, &installation, replaced)
    })
}

/// Checks that the kinds of the manager are served.
async fn check_manager(connection: &Connection) -> Result<()> {
    let name = "subscriptions.operators.coreos.com";
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
    });
    match connection.find(&definition).await? {
        Some(_) => Ok(()),
        None => Err(Error::new("the cluster has no lifecycle manager").hint("install it: flyball olm install")),
    }
}

/// Checks that the namespace exists. Users who may not read it learn this from the first object.
async fn check_namespace(connection: &Connection) -> Result<()> {
    let namespace = &connection.namespace;
    match connection.find(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await {
        Ok(None) => Err(Error::new(format!("namespace {namespace} does not exist"))
            .hint(format!("create it: kubectl create namespace {namespace}"))),
        Ok(Some(_)) | Err(_) => Ok(()),
    }
}

fn report(args: &RunArgs, installation: &Installation<'_>, replaced: String) -> Result<()> {
    let report = Report {
        package: installation.package().to_owned(),
        namespace: installation.connection.namespace.clone(),
        replaced,
        installed: installation.bundle.manifests.name().to_owned(),
        subscription: installation.package().to_owned(),
        catalog_source: installation.catalog(),
    };
    if let Some(output) = args.output {
        return output.print(&report);
    }
    if args.quiet {
        return Ok(());
    }
    let from = if report.replaced.is_empty() || report.replaced == report.installed {
        String::new()
    } else {
        format!(", it replaced {}", report.replaced)
    };
    let running = paint(Style::Good, "runs");
    let (installed, from) = (one_line(&report.installed), one_line(&from));
    print_line(&format!("{installed} {running} in namespace {}{from}", report.namespace));
    print_line(&format!("  {:<14} {}", "subscription", report.subscription));
    print_line(&format!("  {:<14} {}", "catalogsource", report.catalog_source));
    print_line(&format!("  {:<14} flyball olm why {} -n {}", "try", report.subscription, report.namespace));
    Ok(())
}

/// A bundle on its way to a cluster.
struct Installation<'i> {
    bundle: &'i BundleFolder,
    connection: &'i Connection,
}

impl Installation<'_> {
    fn package(&self) -> &str {
        &self.bundle.annotations.package
    }

    /// Returns the name of the ConfigMap and of the CatalogSource.
    fn catalog(&self) -> String {
        format!("{}-bundles", self.package())
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.connection.client.clone(), &self.connection.namespace)
    }

    /// Returns the Subscription, and the CSV that it has installed.
    async fn installed(&self) -> Result<(Option<Subscription>, Option<ClusterServiceVersion>)> {
        let found = self.api::<Subscription>().get_opt(self.package()).await;
        let found = found.context(format!("cannot read Subscription {}", self.package()))?;
        let name = found.as_ref().map(|found| found.status.installed_csv.as_str()).filter(|name| !name.is_empty());
        let csv = match name {
            Some(name) => self
                .api::<ClusterServiceVersion>()
                .get_opt(name)
                .await
                .context(format!("cannot read ClusterServiceVersion {name}"))?,
            None => None,
        };
        Ok((found, csv))
    }

    /// Returns the objects to apply, in order.
    async fn objects(&self, mode: Option<Mode>) -> Result<Vec<Value>> {
        let mut objects = Vec::new();
        objects.extend(self.group(mode).await?);
        let catalog = self.content().await?;
        let bundles: Vec<&str> = catalog.bundles.iter().map(|bundle| bundle.name.as_str()).collect();
        let bundles = format!("bundles {}", bundles.join(", "));
        let channel = catalog.channels.first().map(|channel| channel.name.clone()).unwrap_or_default();
        let text = text_of(&catalog)?;
        let (name, namespace) = (self.catalog(), &self.connection.namespace);
        let metadata = |name: &str| json!({"name": name, "namespace": namespace});
        let version = "operators.coreos.com/v1alpha1";
        let mut map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(&name), "data": {KEY: text},
        });
        map["metadata"]["labels"] = json!({CATALOG: "true"});
        objects.push(map);
        objects.push(json!({
            "apiVersion": version, "kind": "CatalogSource", "metadata": metadata(&name),
            // A new description makes the manager read the ConfigMap again.
            "spec": {"sourceType": "internal", "configMap": name, "description": bundles},
        }));
        objects.push(json!({
            "apiVersion": version, "kind": "Subscription", "metadata": metadata(self.package()),
            "spec": {"name": self.package(), "channel": channel, "source": name, "sourceNamespace": namespace},
        }));
        Ok(objects)
    }

    /// Returns an OperatorGroup; `None` if the namespace has one.
    async fn group(&self, mode: Option<Mode>) -> Result<Option<Value>> {
        let found = self.api::<OperatorGroup>().list(&ListParams::default()).await;
        let found = found.context("cannot list OperatorGroups")?.items;
        let (namespace, name) = (&self.connection.namespace, self.package());
        if let Some(other) = found.iter().find(|group| group.name_any() != name) {
            return match mode {
                None => Ok(None),
                Some(_) => Err(Error::usage(format!("OperatorGroup {namespace}/{} exists", other.name_any()))
                    .hint("omit --install-mode, or delete the OperatorGroup")),
            };
        }
        let modes = self.bundle.manifests.csv()["spec"]["installModes"].as_array();
        let supports = |name: &str| {
            let is_it = |mode: &&Value| mode["type"] == name && mode["supported"] == true;
            modes.into_iter().flatten().any(|mode| is_it(&mode))
        };
        let default = if supports("AllNamespaces") { Mode::All } else { Mode::Own };
        let spec = match mode.unwrap_or(default) {
            Mode::All => json!({}),
            Mode::Own => json!({"targetNamespaces": [namespace]}),
        };
        // Without --install-mode, the one of an earlier run remains.
        if !found.is_empty() && mode.is_none() {
            return Ok(None);
        }
        Ok(Some(json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        })))
    }

    /// Returns the catalog: the bundles of earlier runs, and this one as the newest.
    async fn content(&self) -> Result<Blobs> {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": self.catalog(), "namespace": self.connection.namespace},
        });
        let mut blobs = Blobs::default();
        if let Some(text) = self.connection.find(&map).await?.as_ref().and_then(|map| map["data"][KEY].as_str()) {
            blobs.add(KEY, text.as_bytes()).context(format!("ConfigMap {} is no catalog", self.catalog()))?;
        }
        let blobs = with_bundle(blobs, self.bundle)?;
        let content = Content::new(blobs.clone());
        match content.problems().iter().next() {
            Some(problem) => Err(Error::new(format!("the bundle fits no catalog: {problem}"))),
            None => Ok(blobs),
        }
    }

    /// Makes the Subscription the owner of the CatalogSource, and this one the owner of the ConfigMap, so that all are
    /// deleted together.
    async fn own_catalog(&self) -> Result<()> {
        let (name, package) = (self.catalog(), self.package());
        let subscriptions = self.api::<Subscription>();
        let subscription = subscriptions.get(package).await.context(format!("cannot read Subscription {package}"))?;
        let owner = owner("Subscription", &subscription);
        let changed = self.api::<CatalogSource>().patch(&name, &PatchParams::default(), &owner).await;
        let source = changed.context(format!("cannot change CatalogSource {name}"))?;
        let changed =
            self.api::<ConfigMap>().patch(&name, &PatchParams::default(), &self::owner("CatalogSource", &source)).await;
        changed.map(drop).context(format!("cannot change ConfigMap {name}"))
    }
}

/// Returns the patch that sets the owner of an object.
fn owner(kind: &str, object: &impl ResourceExt) -> Patch<Value> {
    let owner = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": kind, "name": object.name_any(), "uid": object.uid(),
    });
    Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}))
}

/// Adds a bundle to a catalog, as the newest one of its channels.
fn with_bundle(mut blobs: Blobs, folder: &BundleFolder) -> Result<Blobs> {
    let (package, csv) = (folder.annotations.package.clone(), folder.manifests.csv());
    let bundle = BundleBlob::of_folder(folder, "");
    if let Some(known) = blobs.bundles.iter().find(|known| known.name == bundle.name) {
        if *known != bundle {
            return Err(Error::new(format!("{} was installed with another content", bundle.name))
                .hint("create a bundle with a higher version: flyball bundle create --bundle-version VERSION"));
        }
        return Ok(blobs);
    }
    let channel = folder.annotations.default_channel().unwrap_or_default().to_owned();
    blobs.packages =
        vec![PackageBlob { name: package.clone(), default_channel: channel.clone(), ..PackageBlob::default() }];
    if !blobs.channels.iter().any(|known| known.name == channel) {
        // Versions of another channel can be upgraded, too.
        let entries = blobs.channels.first().map(|other| other.entries.clone()).unwrap_or_default();
        blobs.channels = vec![ChannelBlob { name: channel, package, entries, ..ChannelBlob::default() }];
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for known in &mut blobs.channels {
        let head = known.entries.last().map(|entry| entry.name.clone()).unwrap_or_default();
        let declared = text(&csv["spec"]["replaces"]);
        let skips: Vec<String> = csv["spec"]["skips"].as_array().into_iter().flatten().map(text).collect();
        // A bundle that declares another one upgrades that, and the one of the last run.
        let replaces = if declared.is_empty() { head.clone() } else { declared };
        let also = Some(head).filter(|head| !head.is_empty() && *head != replaces && !skips.contains(head));
        known.entries.push(ChannelEntry {
            name: bundle.name.clone(),
            replaces,
            skips: skips.into_iter().chain(also).collect(),
            skip_range: text(&csv["metadata"]["annotations"][SKIP_RANGE]),
        });
    }
    blobs.bundles.push(bundle);
    Ok(blobs)
}

/// Returns the documents of a catalog, one on each line.
fn text_of(blobs: &Blobs) -> Result<String> {
    let mut text = String::new();
    for document in blobs.documents() {
        text += &serde_json::to_string(&document).context("cannot write JSON")?;
        text.push('\n');
    }
    if text.len() > MAX_BYTES {
        return Err(Error::new(format!("the bundles have {} bytes, a ConfigMap at most {MAX_BYTES}", text.len()))
            .hint("publish the bundle as an image, and list it in a catalog: flyball bundle publish DIR --image REF"));
    }
    Ok(text)
}
