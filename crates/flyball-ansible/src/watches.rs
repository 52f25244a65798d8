//! `watches.yaml`: the role or playbook of each kind.

mod entries;
mod paths;

pub(crate) use entries::{parse_verbosity, read_each};
pub(crate) use paths::{role_paths, roles_path};

use crate::error::{Error, Result};
use crate::metrics::ROLE_METRICS_ADDRESS;
use crate::services::{Resolver, Services};
use crate::value::Map;
use crate::vault::Vault;
use entries::LIST;
use flyball::{GroupVersionKind, Kind};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A `watches.yaml`, in the format of operator-sdk's Ansible operator.
///
/// Every entry has `group`, `version` and `kind`, and a `role` or a `playbook` that reconciles the kind; see the
/// [fields]. References to environment variables, `$NAME` and `${NAME}`, are replaced if the variable exists. Roles
/// are searched below `ANSIBLE_ROLES_PATH`, in the directory `roles` beside the file, and as a path relative to the
/// file.
///
/// Seven fields are extensions of operator-sdk's format. `executor` is `built-in`, `worker`, `ansible-playbook` or
/// `auto`, and overrides the [executor](Executor) of the operator. `allowVariables` lists variable names that fields
/// of the spec may have although Ansible or the role uses them. `allowNamespaces` lists namespaces, or `*`, that runs
/// for namespaced objects may access besides their own. `allowKinds` lists group, version and kind of objects outside
/// of that namespace, or of RBAC, that templates and variables may create; otherwise only tasks may. `passEnvironment`
/// lists environment variables of the operator that roles may read. `allowServices` lists services of the cluster that
/// the module `uri` of the built-in executor may call. `vaultPasswordFile` is the file with the password
/// of `ansible-vault`; by default, it is that in the environment variable `ANSIBLE_VAULT_PASSWORD_FILE`.
///
/// [fields]: https://sdk.operatorframework.io/docs/building-operators/ansible/reference/watches/
#[derive(Clone, Debug)]
#[doc(alias = "watches.New")]
pub struct Watches {
    pub(crate) path: PathBuf,
    pub(crate) entries: Vec<Watch>,
    pub(crate) defaults: Defaults,
    /// Address of the server for `osdk_metric`, if there is one.
    pub(crate) role_metrics_address: Option<SocketAddr>,
    /// Runs are polled by the caller.
    pub(crate) is_deterministic: bool,
    /// Other entries run if the files of one cannot be decrypted.
    pub(crate) allows_locked_entries: bool,
}

/// Settings of entries that have none of their own, as flags of operator-sdk's Ansible operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Interval of reconciles without a change; zero disables them. `reconcilePeriod` of an entry and the annotation
    /// `ansible.sdk.operatorframework.io/reconcile-period` of an object override it.
    pub reconcile_period: Duration,
    /// Number of concurrent reconciles of a kind. The environment variable `MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP>`
    /// overrides it.
    pub max_concurrent_reconciles: NonZeroUsize,
    /// Verbosity of Ansible, from 0 to 7. The environment variable `ANSIBLE_VERBOSITY_<KIND>_<GROUP>` and the
    /// annotation `ansible.sdk.operatorframework.io/verbosity` of an object override it.
    pub verbosity: u8,
    /// Tasks in the log. The environment variable `ANSIBLE_DEBUG_LOGS` overrides it.
    pub log_events: LogEvents,
}

/// Tasks in the log, except for those that failed, which it always contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogEvents {
    /// The result of each task in one word, and the output of `debug`.
    Tasks,
    /// The output of each task.
    Everything,
    /// No tasks.
    #[default]
    Nothing,
}

impl Default for Defaults {
    /// Returns those of operator-sdk, except for 16 concurrent reconciles instead of one per core, and no tasks in the
    /// log.
    fn default() -> Self {
        Self {
            reconcile_period: Duration::from_secs(10 * 3600),
            max_concurrent_reconciles: NonZeroUsize::new(16).expect("it is not zero"),
            verbosity: 2,
            log_events: LogEvents::default(),
        }
    }
}

/// An entry: a kind, and its role or playbook.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    pub(crate) gvk: GroupVersionKind,
    pub(crate) runs: Runs,
    /// The executor, if it differs from that of the operator.
    pub(crate) executor: Option<Executor>,
    pub(crate) vars: Map,
    pub(crate) finalizer: Option<Finalizer>,
    pub(crate) reconcile_period: Option<Duration>,
    pub(crate) manage_status: bool,
    pub(crate) watch_dependents: bool,
    pub(crate) watch_cluster_scoped: bool,
    pub(crate) watch_annotations: bool,
    pub(crate) snake_case: bool,
    /// Dependents whose changes trigger no reconcile.
    pub(crate) not_watched: Vec<GroupVersionKind>,
    /// A label selector, as a string.
    pub(crate) selector: Option<String>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) verbosity: Option<u8>,
    /// Tasks in the log, if they differ from those of the operator.
    pub(crate) log_events: Option<LogEvents>,
    /// Fields of the spec that become variables although their names are rejected by default, as variable names.
    pub(crate) allow_variables: BTreeSet<String>,
    /// Namespaces that a run for a namespaced object may access besides its own; `*` for all.
    pub(crate) allow_namespaces: BTreeSet<String>,
    /// Kinds outside of the object's namespace, or of RBAC, that need not be literal in a task.
    pub(crate) allow_kinds: Vec<GroupVersionKind>,
    /// Environment variables that roles may read.
    pub(crate) pass_environment: BTreeSet<String>,
    /// Services that the module `uri` may call.
    pub(crate) services: Services,
    /// Decrypts files of the project.
    pub(crate) vault: Vault,
    /// Random values are those of the simulation.
    pub(crate) is_deterministic: bool,
}

/// The executor of roles and playbooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[doc(alias = "ansible-runner")]
pub enum Executor {
    /// The built-in executor: runs within the process, and is the only one that can be simulated.
    #[default]
    BuiltIn,
    /// `ansible-playbook`, found in `PATH`, with its installed collections, in processes that a long-lived worker
    /// forks.
    Worker,
    /// `ansible-playbook`, as a new process for each run.
    #[value(alias = "process")]
    AnsiblePlaybook,
    /// The built-in executor for roles that it supports completely; `ansible-playbook`, if installed, for others:
    /// with a worker, or, if that cannot start, as a new process.
    Auto,
}

/// The role or playbook of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Runs {
    /// The directory of a role.
    Role(PathBuf),
    /// The file of a playbook.
    Playbook(PathBuf),
}

impl Default for Runs {
    fn default() -> Self {
        Self::Role(PathBuf::new())
    }
}

/// The role or playbook that runs before an object is deleted.
#[derive(Clone, Debug)]
pub(crate) struct Finalizer {
    pub(crate) name: String,
    /// The role or playbook, if it differs from that of the entry.
    pub(crate) runs: Option<Runs>,
    pub(crate) vars: Map,
}

impl Watches {
    /// Reads the file, and finds its roles and playbooks.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is invalid YAML; if an entry has an unknown field, lacks one, has both a role
    /// and a playbook or neither, or refers to a missing one; if two entries have the same kind. The error contains
    /// file, entry and field.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let entries: Vec<Watch> = read_each(path)?.into_iter().map(|(_, entry)| entry).collect::<Result<_>>()?;
        if entries.is_empty() {
            return Err(Error::file(path, LIST));
        }
        Ok(Self {
            path: path.to_owned(),
            entries,
            defaults: Defaults::default(),
            role_metrics_address: Some(ROLE_METRICS_ADDRESS),
            is_deterministic: false,
            allows_locked_entries: false,
        })
    }

    /// Sets the values that entries without own ones have.
    pub fn defaults(self, defaults: Defaults) -> Self {
        Self { defaults, ..self }
    }

    /// Sets the address of the server for the module `osdk_metric` in runs of `ansible-playbook`; `None` for none. By
    /// default, it is that of operator-sdk, `127.0.0.1:5050`.
    ///
    /// The operator serves it only if such a role or playbook uses the module. Any process that reaches the address may
    /// change the metrics that tasks name, so it should be one of the loopback interface.
    pub fn role_metrics_address(self, address: Option<SocketAddr>) -> Self {
        Self { role_metrics_address: address, ..self }
    }

    /// Makes runs reproducible in a simulation: templates of the built-in executor are evaluated on the runtime's own
    /// thread. Expensive templates then block the operator; by default, they run on other threads.
    pub fn deterministic(mut self) -> Self {
        self.entries.iter_mut().for_each(|watch| watch.is_deterministic = true);
        Self { is_deterministic: true, ..self }
    }

    /// Allows the operator to run if files of some entries cannot be decrypted: their runs fail with the reason.
    ///
    /// Only for running: the permissions and watches of such an entry are unknown, so the
    /// [manifests](flyball::Operator::manifests) would lack them.
    pub fn allow_locked_entries(self) -> Self {
        Self { allows_locked_entries: true, ..self }
    }

    /// Resolves hosts of services that roles call, such as `api.shop.svc`, outside of the cluster. DNS resolves a host
    /// without a result.
    pub fn resolve_services(mut self, resolve: impl Fn(&str) -> Option<SocketAddr> + Send + Sync + 'static) -> Self {
        let resolver = Resolver(Arc::new(resolve));
        self.entries.iter_mut().for_each(|watch| watch.services.resolver = Some(resolver.clone()));
        self
    }

    /// Returns the directory of the file, which is the project directory.
    pub fn directory(&self) -> &Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Returns the reconciled kinds, with regular plurals.
    pub fn kinds(&self) -> Vec<Kind> {
        self.entries.iter().map(|watch| Kind::new(&watch.gvk.group, &watch.gvk.version, &watch.gvk.kind)).collect()
    }
}
