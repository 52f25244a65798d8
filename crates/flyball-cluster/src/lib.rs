//! A complete control plane in one process: the API server and the essential controllers.
//!
//! A [`Cluster`] is a value. In-process [clients](Cluster::client) need neither a socket nor a thread. A cluster with a
//! seed is deterministic, byte for byte, which is the basis of simulations. An [`Endpoint`] serves it over TLS for
//! kubectl and other clients, with a kubeconfig.
//!
//! The server (`flyball-server`) and the runtime (`flyball`) do not depend on each other; this crate combines them. The
//! controllers use `flyball` as users do, and no API that a real cluster does not have.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use flyball_cluster::{Cluster, Controllers, Options};
//! use k8s_openapi::api::core::v1::Namespace;
//! use kube::Api;
//!
//! let cluster = Cluster::new(Options::system()?);
//! let controllers = Controllers::all();
//! let namespaces: Api<Namespace> = Api::all(cluster.admin());
//! let check = async { namespaces.get("kube-system").await.map(|namespace| namespace.metadata.name) };
//! tokio::select! {
//!     () = cluster.run(&controllers) => unreachable!("controllers run forever"),
//!     name = check => assert_eq!(name?.as_deref(), Some("kube-system")),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```

mod client;
mod cluster;
mod controllers;
mod endpoint;
mod event_expiry;
mod inventory;
mod metrics;
mod node;
mod scheduler;
mod simulation;
#[cfg(feature = "testing")]
pub mod testing;
mod webhooks;
mod workload;

pub use cluster::{Cluster, Snapshot};
pub use controllers::{Controller, Controllers};
pub use endpoint::{Endpoint, EndpointError};
pub use flyball_server::{
    Body, Caller, DataDir, DataDirError, Dialer, OpeningStage, Options, RecordedOrigin, RecordedWrite, Recording,
    RecordingEnd, RecordingError, RecordingHistory, Server, StoredChange, StoredObject, User, WebhookCall,
    WebhookFuture,
};
pub use inventory::Inventory;
pub use metrics::Metrics;
pub use node::{
    ContainerRule, ContainerScript, Delay, Exit, Launch, Nodes, Program, ProgramState, RunningContainer,
    SIMULATED_NODE_ANNOTATION, SimulatedProgram, StartError, StartResult,
};
pub use simulation::{Faults, Trace, simulated_clock};
pub use webhooks::LocalWebhooks;
