//! The operator framework for Kubernetes in Rust.
//!
//! An operator keeps the world as objects in the API server want it. This crate turns that into one function per kind:
//! [`Reconcile::reconcile`] gets an object, compares what it wants with what is there, and does what is missing. Everything
//! around it is here, one station behind the other:
//!
//! ```text
//!   API server ──► watcher ──► cache ──► queue ──► reconcile ──► apply ──► client ──► API server
//!                  follows     keeps     orders    decides       writes    waits
//!                  a kind      objects   keys                    changes   patiently
//! ```
//!
//! | What | Where |
//! |---|---|
//! | a program, its controllers, its permissions | [`Operator`] |
//! | which kind a controller reconciles, and whose changes wake it | [`Controller`], [`Predicate`], [`Changed`] |
//! | what else wakes it: a word from outside, a time, a question | [`Source`], [`Channel`] |
//! | what of a kind is watched and kept in memory, and found by what | [`Cache`], [`Index`] |
//! | several replicas, one of which acts; what runs beside controllers | [`LeaderElection`], [`Task`] |
//! | what happens with an object, and how often | [`Reconcile`], [`Action`], [`Error`], [`Backoff`], [`RetryRate`] |
//! | reads, writes, events, time and chance in a reconcile | [`Context`], [`Children`], [`Caches`], [`Event`], [`Condition`], [`slow_start_batch`] |
//! | what is asked before an object is stored | [`Webhook`], [`AdmissionRequest`], [`Validator`], [`Defaulter`] |
//! | the same in CEL, kept by the API server itself | [`Policy`] |
//! | requests of any other sort, through proxies where there are some | [`Client`], [`connect`], [`proxy`] |
//! | kinds that are known at run time only | [`Kind`] |
//! | deriving a custom resource | [kube's `CustomResource`](https://docs.rs/kube/latest/kube/derive.CustomResource.html), whose types are [`Resource`]s as those of [`k8s_openapi`] are |
//!
//! Who comes from controller-runtime finds its Manager as [`Operator`], its Cache as [`Caches`], its Reconciler as [`Reconcile`], and
//! Client, Controller, Predicate, Webhook and Validator under their names.
//!
//! # An operator
//!
//! Every `Site` gets a `ConfigMap` with its page. If somebody changes the config map, it is changed back; if the site goes, it goes.
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
//! `site-operator manifests | kubectl apply --server-side -f -` installs the definition and the role, `site-operator` runs it.
//!
//! # What may be relied on
//!
//! - One object is in one reconcile at a time, and no reconcile runs on a cache that is older than what the same object's
//!   reconciles wrote. So nothing is made twice, however late a watch is.
//! - What changes nothing is not sent: reconciling again costs no write.
//! - What is asked of the world outside can be [recognised](Context::idempotency_key) when it is asked again after a crash.
//! - A watch, an object, a reconcile that fails harms itself only, and is tried again with growing waits.
//! - Given a seeded [`Rng`] and a [`Clock`] on a single thread with paused time, a run repeats request by request.

/// The README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod batch;
mod conflict;
mod error;
mod json;
mod kind;
mod latch;
mod metrics;
mod panics;
mod rbac;
mod serve;

pub mod proxy;

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

pub use apply::{Children, Condition, Rollout};
pub use batch::slow_start_batch;
pub use cache::{Cache, Caches, Index, KindIndex};
pub use client::connect;
pub use conflict::retry_on_conflict;
pub use context::Context;
pub use controller::{Action, Changed, Channel, Controller, ControllerDescription, Predicate, Reconcile, Source};
pub use election::LeaderElection;
pub use error::{Error, Result, is_namespace_terminating};
pub use events::Event;
pub use flyball_core::{Clock, FieldError, GroupResource, GroupVersionKind, ObjectKey, Rng};
pub use kind::{AnyResource, Kind, Resource};
pub use operator::{
    DefinitionDescription, Description, LeaseDescription, Operator, PolicyDescription, RunError, Task, TaskContext,
    VersionDescription, WebhookDescription,
};
pub use policy::Policy;
#[doc(hidden)]
pub use queue::MeasuredQueue;
pub use queue::{Backoff, RetryRate};
pub use watcher::{Seen, follow, follow_objects};
pub use webhook::{AdmissionRequest, Defaulter, Validator, Webhook};

/// Speaks with the API server: the client of kube, which every part here is given and none makes.
///
/// Within a reconcile it is [`Context::client`], whose requests are counted, wait when the server is busy, and end in time.
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
