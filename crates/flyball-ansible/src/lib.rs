//! Ansible roles and playbooks as reconcilers: what operator-sdk's ansible operator is, on the runtime of [`flyball`].
//!
//! A project has a `watches.yaml`, which says by which role the objects of a kind are brought to where they should be:
//!
//! ```text
//! memcached/
//!   watches.yaml                        - {group: example.com, version: v1alpha1, kind: Memcached, role: memcached}
//!   roles/memcached/defaults/main.yml   size: 1
//!   roles/memcached/tasks/main.yml      - k8s: {definition: {apiVersion: apps/v1, kind: Deployment, …}}
//!   config/crd/bases/…                  the definition of the kind
//! ```
//!
//! [`Watches::read`] reads it, [`operator()`] makes an [`Operator`](flyball::Operator) of it. Roles are run by a
//! built-in executor, within the process: no Python is needed, objects are read from caches, written by server-side
//! apply where something changes, and a whole cluster with the operator can be
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
//! # What a run sees
//!
//! The fields of the spec in snake case, unless their names are refused; `ansible_operator_meta`, with name and
//! namespace; the whole object and its spec under `_<group>_<kind>` and `_<group>_<kind>_spec`; and the `vars` of
//! `watches.yaml`. What users write is data and never evaluated, whatever `markUnsafe` says.
//!
//! # Who runs roles
//!
//! The [built-in executor](Executor::BuiltIn) refuses a role that uses what it does not have when the role is read,
//! with file, task and remedy. Such roles can be run by the real [`ansible-playbook`](Executor::AnsiblePlaybook), a
//! process that gets the operator's rights through a proxy on this machine for as long as it runs; what it makes
//! belongs to the object that is reconciled. The program `flyball-ansible` takes the one or the other by itself, or as
//! `--executor` says.
//!
//! # What differs from operator-sdk
//!
//! - What a task stops saying of an object is removed from it, as with `kubectl apply`; objects that somebody else made
//!   are not taken over.
//! - A kind whose `apiVersion` and `kind` stand nowhere in the role has to be written down there: the operator has
//!   rights for what it foresees, and for nothing else.
//! - What is made in another namespace, or in none, cannot be owned: it is annotated as operator-sdk does, and stays
//!   when the object goes, unless a finalizer removes it.
//! - A run that found everything in place writes nothing, neither objects nor status.
//! - Fields of a spec become no variables that Ansible acts on, and none that the role sets itself; a run reaches no
//!   other namespace than the role names literally. `allowVariables` and `allowNamespaces` in `watches.yaml` allow
//!   more.

mod ansible;
mod error;
mod executor;
mod fields;
mod job;
mod names;
mod offload;
mod operator;
mod playbook;
mod reach;
mod reconcile;
mod run;
mod snake;
mod status;
mod template;
mod variables;
mod watches;
mod yaml;

pub use error::Error;
pub use executor::Executor;
pub use operator::operator;
pub use watches::Watches;
