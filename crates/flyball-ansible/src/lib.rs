//! Ansible roles and playbooks as reconcilers: the equivalent of operator-sdk's Ansible operator, on the runtime of
//! [`flyball`].
//!
//! A project has a `watches.yaml`, which maps each kind to the role that reconciles its objects:
//!
//! ```text
//! memcached/
//!   watches.yaml                        - {group: example.com, version: v1alpha1, kind: Memcached, role: memcached}
//!   roles/memcached/defaults/main.yml   size: 1
//!   roles/memcached/tasks/main.yml      - k8s: {definition: {apiVersion: apps/v1, kind: Deployment, …}}
//!   config/crd/bases/…                  the CRD
//! ```
//!
//! [`Watches::read`] loads it, and [`operator()`] creates an [`Operator`](flyball::Operator) from it. Roles run in a
//! built-in executor, within the process: no Python is needed, objects are read from caches and written by
//! server-side apply only if they change, and a whole cluster with the operator can be
//! [simulated](https://docs.rs/flyball-cluster).
//!
//! ```no_run
//! use flyball_ansible::{Executor, Watches, operator};
//! use std::process::ExitCode;
//!
//! fn main() -> Result<ExitCode, flyball_ansible::Error> {
//!     Ok(operator(&Watches::read("watches.yaml")?, Executor::BuiltIn)?.main())
//! }
//! ```
//!
//! # Variables of a run
//!
//! The fields of the spec in snake case, unless their names are rejected; `ansible_operator_meta`, with name and
//! namespace; the whole object and its spec as `_<group>_<kind>` and `_<group>_<kind>_spec`; and the `vars` of
//! `watches.yaml`. Text of users is data and never evaluated, independent of `markUnsafe`.
//!
//! # Executors
//!
//! The [built-in executor](Executor::BuiltIn) rejects a role with unsupported features when the role is loaded, with
//! file, task and remedy. Such roles can be run with the real `ansible-playbook`, a process that uses the operator's
//! permissions through a proxy on localhost while it runs; created objects are owned by the reconciled object. A
//! long-lived [worker](Executor::Worker) with Ansible forks such processes, or each one is
//! [started](Executor::AnsiblePlaybook). The programs `flyball` and `flyball-ansible` choose the executor
//! automatically, or by `--executor`, and `executor` in `watches.yaml` chooses it for an entry.
//!
//! # Differences from operator-sdk
//!
//! - Fields that a task no longer sets are removed from the object, as with `kubectl apply`; objects with other
//!   owners are not adopted.
//! - A kind must have literal `apiVersion` and `kind` in the role: the operator only has permissions for kinds that
//!   are known at startup.
//! - Objects in other namespaces and cluster-scoped ones cannot have an owner reference: they are annotated as in
//!   operator-sdk, and are not deleted with the custom resource, unless a finalizer deletes them.
//! - A run without changes writes nothing, neither objects nor status.
//! - Spec fields do not become variables with a special meaning in Ansible, nor variables that the role sets itself;
//!   a run can only access other namespaces that the role names literally. `allowVariables` and `allowNamespaces` in
//!   `watches.yaml` extend this.

mod access;
mod ansible;
mod error;
mod executor;
mod fields;
mod finished;
mod flags;
mod job;
mod memory;
mod metrics;
mod names;
mod offload;
mod operator;
mod playbook;
mod reconcile;
mod run;
mod services;
mod shares;
mod snake;
mod status;
mod template;
mod value;
mod variables;
mod vault;
mod watches;
mod yaml;

pub use error::Error;
pub use flags::Flags;
pub use memory::MEMORY_LIMIT;
pub use operator::{AnsibleRequirement, ansible_requirements, operator, operator_name};
pub use playbook::{Coverage, Gap, GapKind, Line, PartCoverage, coverage, default_fields};
pub use watches::{Defaults, Executor, LogEvents, Watches};
