//! The manager: all controllers in one operator.
//!
//! It installs operators with their own permissions only. Its permissions are those that the controllers declare, among
//! them `escalate` and `bind`, since operators may need permissions that it does not have. `docs/olm.md` lists them.

mod user_roles;

use crate::api::{crds, extension_crds};
use crate::contents::{self, CatalogContents, CatalogSources};
use crate::csv;
use crate::extension::{self, ClusterCatalogs, ClusterExtensions};
use crate::packages::{PackageServer, Reach, publication_rules, publish};
use crate::plan::{self, InstallPlans};
use crate::resolution::Isolation;
use crate::source::CatalogClient;
use crate::subscription::{self, Subscriptions};
use flyball::{Channel, Controller, Operator, Task};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Time between attempts to publish PackageManifests.
const PUBLICATION_RETRY: Duration = Duration::from_secs(10);

/// The name of the operator, of its service account and of its roles.
pub const NAME: &str = "flyball-olm";

/// Settings of the manager.
#[derive(Clone)]
pub struct Settings {
    /// The namespace whose CatalogSources all namespaces see.
    #[doc(alias = "globalCatalogNamespace")]
    pub global_namespace: String,
    /// The client that loads catalogs and bundles.
    pub catalogs: Arc<dyn CatalogClient>,
    /// The scope of failures of resolution.
    pub isolation: Isolation,
    /// The server of PackageManifests, which gets the packages of all catalogs.
    pub packages: Option<PackageServer>,
    /// The way by which API servers reach it; without one, PackageManifests are not published.
    pub reach: Option<Reach>,
}

impl Settings {
    /// Creates settings with OLM's namespace `olm`.
    pub fn new(catalogs: Arc<dyn CatalogClient>) -> Self {
        Self {
            global_namespace: "olm".to_owned(),
            catalogs,
            isolation: Isolation::default(),
            packages: None,
            reach: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { global_namespace, isolation, .. } = self;
        f.debug_struct("Settings").field("global_namespace", global_namespace).field("isolation", isolation).finish()
    }
}

/// Creates the operator that manages operators.
pub fn operator(settings: &Settings) -> Operator {
    let contents = Arc::new(CatalogContents::new(settings.catalogs.clone()));
    let resolve = Channel::new();
    let global_namespace = settings.global_namespace.clone();
    let catalog_sources = CatalogSources {
        contents: contents.clone(),
        packages: settings.packages.clone(),
        resolve: resolve.clone(),
        global_namespace: global_namespace.clone(),
    };
    let subscriptions = Subscriptions { contents: contents.clone(), global_namespace, isolation: settings.isolation };
    let operator = user_roles::add_to(Operator::new(NAME).namespace(&settings.global_namespace));
    let mut operator = csv::add_to(operator);
    let mut sources = contents::controller(catalog_sources);
    if let (Some(server), Some(reach)) = (&settings.packages, &settings.reach) {
        operator = operator.task(publication(server.clone(), settings.global_namespace.clone(), reach.clone()));
        sources = publication_rules().into_iter().fold(sources, Controller::allows);
    }
    let wake = Channel::new();
    let cluster_catalogs = ClusterCatalogs { contents: contents.clone(), wake: wake.clone() };
    let extensions = ClusterExtensions { contents: contents.clone() };
    crds()
        .into_iter()
        .chain(extension_crds())
        .fold(operator, Operator::crd)
        .controller(sources)
        .controller(subscription::controller(subscriptions, &resolve))
        .controller(plan::controller(InstallPlans { contents }))
        .controller(extension::catalog_controller(cluster_catalogs))
        .controller(extension::controller(extensions, &wake))
}

/// Publishes PackageManifests while this replica leads. A failure is logged and retried.
fn publication(server: PackageServer, namespace: String, reach: Reach) -> Task {
    Task::new("server of PackageManifests", move |cx| async move {
        while let Err(error) = publish(&server, cx.client(), &namespace, &reach, cx.stopped()).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "PackageManifests are not published");
            tokio::select! {
                biased;
                () = cx.stopped() => break,
                () = tokio::time::sleep(PUBLICATION_RETRY) => {}
            }
        }
        Ok(())
    })
}
