//! An operator framework for Kubernetes.
//!
//! An operator brings a cluster, and systems outside of it, to the state that objects in the API server describe. This
//! crate reduces this to one function per kind: [`Reconcile::reconcile`] gets an object, compares the desired with the
//! actual state, and makes the missing changes. The parts around it form a loop:
//!
//! ```text
//!   API server ─► watcher ─► cache ─► queue ─► controller ─► apply ─► client ─► API server
//!                 lists and  keeps    orders   calls         patches  retries
//!                 watches    objects  keys     reconcilers   changes
//! ```
//!
//! | Task | Types |
//! |---|---|
//! | a program, its controllers, servers and permissions | [`Operator`], [`MetricsServer`], [`HealthServer`], [`WebhookServer`] |
//! | a controller: the kind that it reconciles, and the kinds that trigger it | [`Controller`], [`Predicate`], [`ObjectChange`] |
//! | other triggers: channels, timers, polls | [`Source`], [`Channel`] |
//! | contents and indexes of caches | [`Cache`], [`Index`] |
//! | leader election; background tasks | [`LeaderElection`], [`Task`] |
//! | reconciling, and retries | [`Reconcile`], [`Action`], [`Error`], [`Backoff`], [`RetryRate`] |
//! | reads, writes, events, time and randomness | [`Context`], [`Children`], [`Caches`], [`Event`], [`Condition`] |
//! | creating many objects | [`slow_start_batch`] |
//! | long computations in reconciles | [`offload`] |
//! | admission and conversion webhooks | [`webhook`] |
//! | policies in CEL that the API server enforces | [`policy`] |
//! | other requests, optionally through proxies | [`Client`], [`connect`], [`proxy`] |
//! | watches without a controller | [`watch`], [`watch_objects`] |
//! | kinds that are known at run time only | [`Kind`], [`Dynamic`], [`DynamicIndex`] |
//!
//! Custom resources are derived by [kube's
//! `CustomResource`](https://docs.rs/kube/latest/kube/derive.CustomResource.html); its types are [`Resource`]s, as
//! are the types of [`k8s_openapi`].
//!
//! controller-runtime's Manager is [`Operator`] here, its Cache is [`Caches`] and its Reconciler is [`Reconcile`];
//! Client, Controller, Predicate, Webhook and Validator have the same names.
//!
//! # An operator
//!
//! Every `Site` gets a `ConfigMap` with its page. If the config map is changed, it is changed back; if the site is
//! deleted, so is the config map.
//!
//! ```no_run
//! use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::{CustomResource, CustomResourceExt, ResourceExt, core::ObjectMeta};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//! #[kube(group = "example.com", version = "v1", kind = "Site", namespaced, status = "SiteStatus", shortname = "st")]
//! struct SiteSpec {
//!     #[schemars(length(min = 1))]
//!     title: String,
//! }
//!
//! #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
//! struct SiteStatus {
//!     page: String,
//! }
//!
//! struct Sites;
//!
//! impl Reconcile for Sites {
//!     type Resource = Site;
//!
//!     async fn reconcile(&self, site: &Site, cx: &Context<Site>) -> Result<Action> {
//!         let page = format!("<h1>{}</h1>", site.spec.title);
//!         let metadata = ObjectMeta { name: Some(site.name_any()), ..ObjectMeta::default() };
//!         let data = Some([("index.html".into(), page)].into());
//!         let applied = cx.apply(&ConfigMap { metadata, data, ..ConfigMap::default() }).await?;
//!         cx.set_status(&SiteStatus { page: applied.name_any() }).await?;
//!         Ok(Action::done())
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     Operator::new("site-operator").crd(Site::crd()).controller(Controller::new(Sites).owns::<ConfigMap>()).main()
//! }
//! ```
//!
//! `site-operator manifests | kubectl apply --server-side -f -` installs the definition and the role, `site-operator`
//! runs it.
//!
//! # Guarantees
//!
//! - An object is in one reconcile at a time, and no reconcile reads a cache that is older than the last write of the
//!   same object's reconciles. So nothing is created twice, however late a watch is.
//! - Unchanged objects are not sent: reconciling again costs no write.
//! - Calls to external systems can carry an [idempotency key](Context::idempotency_key) that survives a crash.
//! - A failure of a watch, an object or a reconcile affects nothing else, and is retried with backoff.
//! - With a seeded [`Rng`] and a [`Clock`] on a single thread with paused time, a run repeats request by request.

/// The README and these pages are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/operator-flags.md")]
#[doc = include_str!("../../../docs/reconcilers.md")]
#[doc = include_str!("../../../docs/watching.md")]
#[doc = include_str!("../../../docs/webhooks.md")]
struct Readme;

mod backoff;
mod batch;
mod conflict;
pub mod description;
mod error;
mod external;
mod kind;
mod latch;
mod ledger;
mod memory;
mod metrics;
mod offload;
mod panics;
mod rbac;
mod serve;

pub mod listener;
pub mod proxy;
pub mod web;

mod client;

mod cache;

mod watcher;

mod queue;

mod events;

mod context;

mod apply;

mod controller;

pub mod webhook;

pub mod policy;

mod election;

mod operator;

#[cfg(feature = "bench")]
pub mod bench;

pub use apply::{Children, Condition, Rollout};
pub use backoff::Backoff;
pub use batch::slow_start_batch;
pub use cache::{Cache, Caches, DynamicIndex, Index};
pub use client::connect;
pub use conflict::retry_on_conflict;
pub use context::Context;
pub use controller::{Action, Channel, Controller, ObjectChange, Predicate, Reconcile, Source};
pub use election::LeaderElection;
pub use error::{Error, Result, chain as error_chain, is_namespace_terminating};
pub use events::Event;
pub use external::external_call;
pub use flyball_core::{Clock, FieldError, GroupResource, GroupVersionKind, ObjectKey, Rng};
pub use kind::{AnyResource, Dynamic, Kind, Resource};
pub use memory::{MemoryBudget, MemoryCharge};
pub use offload::offload;
#[doc(hidden)]
pub use operator::FORWARDED_AUTHORIZATION;
pub use operator::{HealthServer, MetricsServer, Operator, RunError, Task, TaskContext, WebhookServer};
pub use queue::RetryRate;
#[doc(hidden)]
pub use rbac::is_aggregated_role;
pub use watcher::{WatchEvent, watch, watch_objects};

/// kube's client for the API server.
///
/// In a reconcile use [`Context::client`], which counts requests, retries when the server is busy, and has a timeout.
/// [`connect`] creates one.
///
/// ```
/// use flyball::Client;
/// use k8s_openapi::api::core::v1::Node;
/// use kube::{Api, api::ListParams};
///
/// async fn count_nodes(client: &Client) -> kube::Result<usize> {
///     Ok(Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items.len())
/// }
/// ```
#[doc(inline)]
pub use kube::Client;
