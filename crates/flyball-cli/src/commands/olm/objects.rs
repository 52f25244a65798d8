//! The objects of the lifecycle manager, and the contents of its catalogs.

use super::unread::Unread;
use crate::catalog::images::Images;
use crate::catalog::reference;
use crate::cluster::connection::{Connection, ConnectionArgs};
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::one_line;
use clap::Args;
use flyball_lifecycle::api::{CatalogSource, Subscription};
use flyball_lifecycle::content::{Content, PackageBundle};
use flyball_lifecycle::diagnosis::Snapshot;
use flyball_lifecycle::load_catalog;
use flyball_lifecycle::source::{Loaded, Sources};
use futures_util::future::join_all;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Timeout of the load of a catalog.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The flags for the objects of a namespace and their catalogs.
#[derive(Args, Clone, Debug)]
pub(super) struct ObjectArgs {
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    /// Namespace whose catalogs all namespaces see
    #[arg(long, value_name = "NAMESPACE", default_value = super::NAMESPACE)]
    pub(super) global_namespace: String,
}

/// The flags for catalogs that this machine loads.
#[derive(Args, Clone, Debug)]
pub(super) struct CatalogArgs {
    /// Folder or image with the content of a CatalogSource that this machine cannot reach; may be repeated
    #[arg(long, value_name = "NAME=REF")]
    catalog: Vec<Override>,
    /// Use HTTP without TLS for registries of other machines
    #[arg(long)]
    insecure: bool,
}

/// The content of a CatalogSource.
#[derive(Clone, Debug)]
struct Override {
    name: String,
    reference: String,
}

impl FromStr for Override {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, reference) = text.split_once('=').ok_or("expected NAME=REF, such as community=catalog/")?;
        Ok(Self { name: name.to_owned(), reference: reference.to_owned() })
    }
}

/// A kind of objects in namespaces.
pub(super) trait Namespaced:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug
{
}

impl<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug> Namespaced
    for K
{
}

/// A CatalogSource of a cluster.
enum FoundCatalog {
    Read(CatalogSource),
    /// A stand-in for one that the user may not read: it has only a name and a namespace, and may not exist.
    Hidden(CatalogSource),
}

/// Lists objects of the lifecycle manager in a namespace, or in all.
pub(super) async fn list<K: Namespaced>(connection: &Connection, namespace: Option<&str>) -> Result<Vec<K>> {
    let client = connection.client.clone();
    let api: Api<K> = namespace.map_or_else(|| Api::all(client.clone()), |name| Api::namespaced(client.clone(), name));
    let plural = K::plural(&());
    let mut found = Vec::new();
    let mut params = ListParams::default().limit(500);
    loop {
        let page = api.list(&params).await.context(format!("cannot list {plural}")).map_err(|error| {
            match error.is_absence() {
                true => Error::new(format!("the cluster has no {plural}: the lifecycle manager is not installed"))
                    .hint("install it: flyball olm install"),
                false => error,
            }
        })?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Returns an object, if it exists.
pub(super) async fn find<K: Namespaced>(connection: &Connection, name: &str) -> Result<Option<K>> {
    find_in(connection, &connection.namespace, name).await
}

/// Returns an object of another namespace, if it exists.
async fn find_in<K: Namespaced>(connection: &Connection, namespace: &str, name: &str) -> Result<Option<K>> {
    let api: Api<K> = Api::namespaced(connection.client.clone(), namespace);
    let what = || format!("cannot read {} {namespace}/{name}", K::kind(&()));
    api.get_opt(name).await.context(what())
}

/// Merges a patch into an object.
pub(super) async fn patch<K: Namespaced>(connection: &Connection, name: &str, patch: &Value) -> Result<K> {
    let api: Api<K> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let what = || format!("cannot change {} {}/{name}", K::kind(&()), connection.namespace);
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.context(what())
}

/// Returns a Subscription, or an error that names those that exist.
pub(super) async fn subscription(connection: &Connection, name: &str) -> Result<Subscription> {
    let name = name.rsplit('/').next().unwrap_or(name);
    let all: Vec<Subscription> = list(connection, Some(&connection.namespace)).await?;
    let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
    all.into_iter()
        .find(|found| found.name_any() == name)
        .ok_or_else(|| unknown(connection, name, "Subscription", &names))
}

/// Returns the error about an object that does not exist.
pub(super) fn unknown(connection: &Connection, name: &str, kinds: &str, known: &[String]) -> Error {
    let namespace = &connection.namespace;
    let error = Error::new(format!("namespace {namespace} has no {kinds} {name:?}"));
    match known {
        [] => error.hint("pass another namespace: -n NAME; list all: flyball olm status"),
        known => error.hint(format!("it has {}", one_line(&known.join(", ")))),
    }
}

/// Reads the objects that affect the Subscriptions of a namespace, and loads its catalogs. Also returns the parts that
/// the user may not read.
pub(super) async fn snapshot(
    connection: &Connection,
    global: &str,
    catalogs: &CatalogArgs,
) -> Result<(Snapshot, Unread)> {
    let namespace = connection.namespace.clone();
    let own = Some(namespace.as_str());
    let mut unread = Unread::default();
    let subscriptions: Vec<Subscription> = list(connection, own).await?;
    let own_sources: Vec<CatalogSource> = list(connection, own).await?;
    let mut sources: Vec<FoundCatalog> = own_sources.into_iter().map(FoundCatalog::Read).collect();
    let mut hidden_catalogs = BTreeSet::new();
    if namespace != global {
        let part = format!("the CatalogSources in namespace {global}");
        match unread.or_none(&part, list(connection, Some(global)).await)? {
            Some(listed) => sources.extend(listed.into_iter().map(FoundCatalog::Read)),
            None => {
                let names = referenced(&subscriptions, global);
                hidden_catalogs.extend(names.iter().map(|name| format!("{global}/{name}")));
                let stand_in = |name: &&str| FoundCatalog::Hidden(CatalogSource::new(Some(global), name));
                sources.extend(names.iter().map(stand_in));
            }
        }
    }
    for (name, of) in foreign_catalogs(&subscriptions, &[&namespace, global]) {
        let part = format!("CatalogSource {of}/{name}");
        let found = unread.or_none(&part, find_in(connection, &of, &name).await)?;
        sources.extend(found.flatten().map(FoundCatalog::Read));
    }
    let loaded = catalogs.load(connection, sources).await;
    let snapshot = Snapshot {
        subscriptions,
        csvs: list(connection, own).await?,
        plans: list(connection, own).await?,
        groups: list(connection, own).await?,
        conditions: unread.or_default("the OperatorConditions of the namespace", list(connection, own).await)?,
        catalogs: loaded,
        hidden_catalogs,
        namespace,
        global_namespace: global.to_owned(),
    };
    Ok((snapshot, unread))
}

/// Returns the CatalogSources of other namespaces that Subscriptions refer to. They cannot use them, but an explanation
/// names them.
fn foreign_catalogs(subscriptions: &[Subscription], visible: &[&str]) -> BTreeSet<(String, String)> {
    let specs = subscriptions.iter().map(|of| &of.spec);
    let foreign = specs.filter(|spec| !visible.contains(&spec.source_namespace.as_str()));
    let named = foreign.filter(|spec| !spec.source.is_empty() && !spec.source_namespace.is_empty());
    named.map(|spec| (spec.source.clone(), spec.source_namespace.clone())).collect()
}

/// Returns the names of the CatalogSources of a namespace that Subscriptions refer to.
fn referenced<'s>(subscriptions: &'s [Subscription], namespace: &str) -> BTreeSet<&'s str> {
    let specs = subscriptions.iter().map(|of| &of.spec).filter(|spec| spec.source_namespace == namespace);
    specs.map(|spec| spec.source.as_str()).collect()
}

/// Returns the content of the catalog of a Subscription.
pub(super) fn content<'s>(snapshot: &'s Snapshot, subscription: &Subscription) -> Result<&'s Loaded> {
    let (name, namespace) = (&subscription.spec.source, &subscription.spec.source_namespace);
    let what = format!("CatalogSource {namespace}/{name}");
    let is_it = |source: &CatalogSource| source.name_any() == *name && source.namespace().as_ref() == Some(namespace);
    let found = snapshot.catalogs.iter().find(|(source, _)| is_it(source));
    let (_, loaded) = found.ok_or_else(|| {
        let of = subscription.name_any();
        Error::new(format!("{what} does not exist"))
            .hint(format!("find out why: flyball olm why {of} -n {}", snapshot.namespace))
    })?;
    loaded
        .as_ref()
        .map_err(|error| Error::new(format!("{what}: {error}")).hint(format!("pass its content: --catalog {name}=REF")))
}

/// Returns a bundle of a package, or an error that names those that exist.
pub(super) fn bundle<'c>(content: &'c Content, package: &str, name: &str) -> Result<&'c PackageBundle> {
    content.bundle(package, name).ok_or_else(|| {
        let known = content.package(package);
        let names: Vec<&str> = known.iter().flat_map(|package| package.bundles.keys().map(String::as_str)).collect();
        let error = Error::new(format!("package {package} of the catalog has no {name}"));
        if names.is_empty() { error } else { error.hint(format!("it has {}", one_line(&names.join(", ")))) }
    })
}

impl CatalogArgs {
    /// Returns the client that loads catalogs and bundles.
    pub(super) fn client(&self) -> Sources {
        Sources::with_images(Arc::new(self.images()))
    }

    fn images(&self) -> Images {
        Images { is_insecure: self.insecure }
    }

    /// Loads all catalogs at the same time.
    async fn load(
        &self,
        connection: &Connection,
        sources: Vec<FoundCatalog>,
    ) -> Vec<(CatalogSource, Result<Loaded, String>)> {
        let client = &self.client();
        let load = async |found: FoundCatalog| {
            let (FoundCatalog::Read(source) | FoundCatalog::Hidden(source)) = &found;
            let name = source.name_any();
            let loaded = match (self.catalog.iter().find(|given| given.name == name), &found) {
                (Some(given), _) => self.read(given).await,
                (None, FoundCatalog::Hidden(_)) => Err("not permitted to read it".to_owned()),
                (None, FoundCatalog::Read(source)) => {
                    let loaded = timeout(LOAD_TIMEOUT, load_catalog(source, &connection.client, client)).await;
                    loaded.unwrap_or_else(|_| Err(format!("no answer after {} s", LOAD_TIMEOUT.as_secs())))
                }
            };
            let (FoundCatalog::Read(source) | FoundCatalog::Hidden(source)) = found;
            (source, loaded)
        };
        join_all(sources.into_iter().map(load)).await
    }

    async fn read(&self, given: &Override) -> Result<Loaded, String> {
        let blobs = reference::load(&given.reference, self.images()).await.map_err(|error| error.to_string())?;
        Ok(Loaded { content: Arc::new(Content::new(blobs)), revision: String::new() })
    }
}
