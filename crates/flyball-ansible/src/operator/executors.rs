//! Selects and creates the executors of the entries of a `watches.yaml`.

use crate::ansible::{AnsiblePlaybook, INSTALL, Start, Workers};
use crate::error::{Error, Result};
use crate::executor::{BuiltIn, Execute, Refused};
use crate::memory::PROCESS_BYTES;
use crate::metrics::Metrics;
use crate::offload::Slots;
use crate::playbook::{DeclaredVariables, Kinds, Playbook, load};
use crate::shares::Shares;
use crate::value::Map;
use crate::watches::{Executor, Runs, Watch, Watches};
use flyball::MemoryBudget;
use std::sync::{Arc, OnceLock};

/// The shares of the workers of one controller.
struct ControllerShares {
    waiting: Shares,
    running: Shares,
}

/// Creates the executors of the roles and playbooks of one file.
pub(super) struct Executors<'w> {
    pub(super) watches: &'w Watches,
    pub(super) executor: Executor,
    /// The threads that poll runs; without them, runs are polled by the caller.
    pub(super) slots: Option<Slots>,
    pub(super) memory: MemoryBudget,
    pub(super) metrics: Metrics,
    pub(super) workers: Arc<SharedWorkers>,
}

/// The workers of `ansible-playbook`, or the reason why there are none.
pub(super) type SharedWorkers = OnceLock<Result<Arc<Workers>, String>>;

/// Creates an executor when the operator starts: until then, `ansible-playbook` need not exist.
pub(super) type MakeExecutor = Box<dyn FnOnce() -> Result<Box<dyn Execute>> + Send>;

/// The role or playbook of an entry, and that of its finalizer.
pub(super) struct EntryRuns {
    pub(super) main: MakeExecutor,
    pub(super) finalizer: Option<MakeExecutor>,
    /// The kinds of both.
    pub(super) kinds: Kinds,
    /// The variables of both.
    pub(super) declared: DeclaredVariables,
    /// The memory of the larger process.
    pub(super) process_bytes: usize,
}

impl EntryRuns {
    /// Creates the runs of an entry whose files cannot be decrypted: each of them fails with the reason.
    pub(super) fn refused(watch: &Watch, error: &Error) -> Self {
        let make = || -> MakeExecutor {
            let reason = error.to_string();
            Box::new(move || Ok(Box::new(Refused { reason })))
        };
        let finalizer = watch.finalizer.as_ref().and_then(|finalizer| finalizer.runs.as_ref()).map(|_| make());
        let (kinds, declared) = (Kinds::default(), DeclaredVariables::default());
        Self { main: make(), finalizer, kinds, declared, process_bytes: 0 }
    }
}

impl Executors<'_> {
    /// Returns the number of concurrent reconciles of an entry.
    pub(super) fn workers_of(&self, watch: &Watch) -> usize {
        watch.concurrency.unwrap_or(self.watches.defaults.max_concurrent_reconciles.get())
    }

    /// Creates the executors of an entry.
    pub(super) fn create_all(&self, watch: &Watch) -> Result<EntryRuns> {
        let workers = self.workers_of(watch);
        let folder = self.watches.directory();
        let mut declared = DeclaredVariables::of(&watch.runs, folder, &watch.vault)?;
        let shares = ControllerShares { waiting: Shares::of_waiting(workers), running: Shares::of_running(workers) };
        let executor = watch.executor.unwrap_or(self.executor);
        let (main, mut kinds, mut process_bytes) =
            self.create(executor, watch, &watch.runs, &declared, &watch.vars, &shares)?;
        let finalizer = match watch.finalizer.as_ref().and_then(|finalizer| finalizer.runs.as_ref()) {
            Some(runs) => {
                let vars = watch.vars.iter().chain(watch.finalizer.iter().flat_map(|finalizer| &finalizer.vars));
                let vars = vars.map(|(name, value)| (name.clone(), value.clone())).collect();
                let own = DeclaredVariables::of(runs, folder, &watch.vault)?;
                let (finalizer, others, its_process) = self.create(executor, watch, runs, &own, &vars, &shares)?;
                process_bytes = process_bytes.max(its_process);
                kinds.join(others);
                declared.join(own);
                Some(finalizer)
            }
            None => None,
        };
        kinds.namespaces.extend(watch.allow_namespaces.iter().cloned());
        kinds.allowed.extend(watch.allow_kinds.iter().map(|kind| (kind.group.to_string(), kind.kind.to_string())));
        kinds.other_namespaces |= !watch.allow_namespaces.is_empty();
        Ok(EntryRuns { main, finalizer, kinds, declared, process_bytes })
    }

    /// Selects the executor of a role or a playbook, and determines its kinds and the memory of its processes.
    fn create(
        &self,
        executor: Executor,
        watch: &Watch,
        runs: &Runs,
        declared: &DeclaredVariables,
        vars: &Map,
        shares: &ControllerShares,
    ) -> Result<(MakeExecutor, Kinds, usize)> {
        let (folder, vault) = (self.watches.directory(), &watch.vault);
        let load = || load(runs, folder, vault, !watch.services.is_empty());
        let rejection = match executor {
            Executor::BuiltIn => return Ok(self.built_in(load()?, vars, shares)),
            Executor::Auto => match load() {
                Ok(playbook) => return Ok(self.built_in(playbook, vars, shares)),
                // Other executors have the same password, and the same tasks.
                Err(error) if error.is_vault() || error.is_invalid() => return Err(error),
                Err(error) => Some(error),
            },
            Executor::Worker | Executor::AnsiblePlaybook => None,
        };
        // Without the names of its variables, fields could set them.
        if let Some(error) = declared.locked_error() {
            return Err(error);
        }
        let kinds = match runs {
            Runs::Playbook(_) => Kinds::of_project(folder, vars, vault)?,
            Runs::Role(_) => Kinds::of_roles(&declared.roles, vars, vault)?,
        };
        let (runs, project) = (runs.clone(), folder.to_owned());
        let (external_paths, shares) = (declared.external_paths.clone(), shares.running.clone());
        let (file, kind, workers) = (self.watches.path.clone(), watch.gvk.kind.clone(), self.workers.clone());
        let make = move || -> Result<Box<dyn Execute>> {
            let Some(program) = AnsiblePlaybook::find() else {
                let missing = format!("ansible-playbook not found in PATH: install it with: {INSTALL}");
                let missing = || Error::file(&file, missing + ", or use the built-in executor");
                return Err(rejection.map_or_else(missing, |error| error.without_ansible(INSTALL)));
            };
            let workers = || workers.get_or_init(|| Workers::of(&program).map(Arc::new)).clone();
            let reason = rejection.as_ref().map(Error::reason).unwrap_or_default();
            let start = match executor {
                Executor::BuiltIn | Executor::AnsiblePlaybook => Start::Process,
                Executor::Worker => Start::Worker(
                    workers().map_err(|problem| Error::file(&file, format_args!("no worker can start: {problem}")))?,
                ),
                Executor::Auto => match workers() {
                    Ok(workers) => {
                        tracing::info!("{kind}: executor worker: the built-in one {reason}");
                        Start::WorkerOrProcess(workers)
                    }
                    Err(problem) => {
                        tracing::info!("{kind}: executor ansible-playbook, since {problem}: the built-in one {reason}");
                        Start::Process
                    }
                },
            };
            Ok(Box::new(AnsiblePlaybook { program, start, runs, project, external_paths, shares }))
        };
        Ok((Box::new(make), kinds, PROCESS_BYTES))
    }

    fn built_in(&self, playbook: Playbook, vars: &Map, shares: &ControllerShares) -> (MakeExecutor, Kinds, usize) {
        let kinds = Kinds::of(&playbook, vars);
        let (playbook, slots, shares) = (Arc::new(playbook), self.slots.clone(), shares.waiting.clone());
        let memory = self.memory.clone();
        (Box::new(move || Ok(Box::new(BuiltIn { playbook, slots, shares, memory }))), kinds, 0)
    }
}

/// A role or playbook that only `ansible-playbook` runs.
#[derive(Debug)]
pub struct AnsibleRequirement {
    /// Its name, such as `role memo`.
    pub runs: String,
    /// The feature that the built-in executor lacks, such as `module ansible.builtin.copy`.
    pub feature: String,
    /// The error if `ansible-playbook` is not installed.
    pub error: Error,
}

/// Returns the roles and playbooks that need `ansible-playbook`, in the order of the entries.
pub fn ansible_requirements(watches: &Watches, executor: Executor) -> Vec<AnsibleRequirement> {
    let folder = watches.directory();
    let mut found = Vec::new();
    for watch in &watches.entries {
        let finalizer = watch.finalizer.as_ref().and_then(|finalizer| finalizer.runs.as_ref());
        for runs in std::iter::once(&watch.runs).chain(finalizer) {
            let executor = watch.executor.unwrap_or(executor);
            let error = match executor {
                Executor::BuiltIn => continue,
                Executor::Auto => match load(runs, folder, &watch.vault, !watch.services.is_empty()) {
                    Ok(_) => continue,
                    // That is an error of the entry alone, and no other executor helps.
                    Err(error) if error.is_vault() || error.is_invalid() => continue,
                    Err(error) => error.without_ansible(INSTALL),
                },
                Executor::Worker | Executor::AnsiblePlaybook => {
                    Error::file(&watches.path, format_args!("{}: its executor needs ansible-playbook", watch.gvk.kind))
                }
            };
            let feature = match &error {
                Error::Task { feature: Some(feature), .. } => feature.clone(),
                Error::File { .. } if executor != Executor::Auto => "its executor".to_owned(),
                error => error.to_string(),
            };
            let runs = match runs {
                Runs::Role(folder) => {
                    format!("role {}", folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy())
                }
                Runs::Playbook(file) => format!("playbook {}", file.strip_prefix(folder).unwrap_or(file).display()),
            };
            found.push(AnsibleRequirement { runs, feature, error });
        }
    }
    found
}
