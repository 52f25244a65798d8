//! Creates an operator from a `watches.yaml`.

use crate::access::{PRIMARY, PRIMARY_TYPE};
use crate::ansible::{AnsiblePlaybook, Start, Workers};
use crate::error::{Error, Result};
use crate::executor::{BuiltIn, Execute};
use crate::finished::FinishedRuns;
use crate::memory::{MAX_RUN_BYTES, PROCESS_BYTES, RESERVED_BYTES};
use crate::metrics::{Metrics, PostedMetrics, check_name, serve};
use crate::names::Names;
use crate::offload::Slots;
use crate::playbook::{DeclaredVariables, Kinds, Playbook, load};
use crate::reconcile::{Deferrals, RECONCILE_PERIOD, Roles};
use crate::shares::Shares;
use crate::status;
use crate::template::walk;
use crate::vault::Vault;
use crate::watches::{Executor, Runs, Watch, Watches};
use crate::yaml;
use flyball::{Cache, Controller, Kind, MemoryBudget, ObjectKey, Operator, Predicate, Task};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;

/// Timeout of a run: the maximum wait of its tasks.
const DEADLINE: Duration = Duration::from_secs(1800);

/// Creates an operator with a controller for each entry, which reconciles objects with the role or playbook.
///
/// Its name is the `projectName` in the file `PROJECT`, or the name of the project's directory. Its
/// [manifests](Operator::manifests) contain the CRDs in `config/crd/bases` or `deploy/crds`. Its watches and
/// permissions are derived from the roles: it owns every kind with literal `apiVersion` and `kind` in a task, a
/// template or a variable; it only reads those of `k8s_info`.
///
/// The executor runs the roles and playbooks of entries that have none of their own. The built-in one supports the
/// modules `k8s`, `k8s_info`, `k8s_scale`, `k8s_status`, `set_fact`, `debug`, `assert`, `fail`, `meta`, `pause`,
/// `osdk_metric` and `requeue_after`, and blocks, loops, conditions, retries, includes, roles and handlers.
///
/// # Errors
///
/// If a role, playbook or CRD cannot be read; with [`Executor::BuiltIn`], if a task uses a module, an argument or a
/// keyword, or a template uses a filter, that it does not support. The error contains file and task. A missing
/// `ansible-playbook` is an error when the operator runs: it can be described without.
pub fn operator(watches: &Watches, executor: Executor) -> Result<Operator> {
    let definitions = definitions(watches.directory())?;
    let name = name(watches.directory());
    let mut operator = Operator::new(&name);
    let slots = (!watches.is_deterministic).then(Slots::new);
    let memory = match watches.is_deterministic {
        // Independent of the machine.
        true => MemoryBudget::default(),
        false => MemoryBudget::of_container(RESERVED_BYTES),
    };
    let metrics = Metrics::new();
    let executors = Executors { watches, executor, slots, memory, metrics: metrics.clone(), workers: Arc::default() };
    let of_roles = metrics.of_roles.clone();
    operator = operator.metrics(|registry| metrics.register(registry));
    let mut posted = BTreeSet::new();
    for watch in &watches.entries {
        let ControllerParts { kind, controller, cache, posted_metrics } =
            controller(watch, &executors, &definitions, &name)?;
        posted.extend(posted_metrics);
        let namesake = |other: &&Watch| other.gvk.kind == watch.gvk.kind;
        let controller = match watches.entries.iter().filter(namesake).count() {
            1 => controller,
            _ => controller.name(kind.to_string()),
        };
        operator = operator.controller(controller);
        if let Some(cache) = cache {
            operator = operator.cache(cache);
        }
    }
    if let Some(address) = watches.role_metrics_address.filter(|_| !posted.is_empty()) {
        let posted = PostedMetrics { metrics: of_roles, names: Arc::new(posted) };
        operator = operator.task(role_metrics_server(address, posted));
    }
    Ok(definitions.into_iter().fold(operator, Operator::crd))
}

/// Creates the server for `osdk_metric`. It runs where roles run: on the leader.
fn role_metrics_server(address: SocketAddr, posted: PostedMetrics) -> Task {
    Task::new("server for osdk_metric", move |cx| async move {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            format!(
                "cannot listen on {address}: {error}: --role-metrics-addr sets another address, which tasks need as \
                 argument address; 0 disables the server"
            )
        })?;
        let clock = cx.clone();
        tokio::select! {
            biased;
            () = cx.stopped() => Ok(()),
            () = serve(listener, posted, move || clock.now()) => Ok(()),
        }
    })
}

/// The parts of the operator for an entry.
struct ControllerParts {
    kind: Kind,
    controller: Controller<Roles>,
    cache: Option<Cache<DynamicObject>>,
    /// Metrics that runs of `ansible-playbook` send to the operator.
    posted_metrics: BTreeSet<String>,
}

fn controller(
    watch: &Watch,
    executors: &Executors<'_>,
    definitions: &[CustomResourceDefinition],
    name: &str,
) -> Result<ControllerParts> {
    let defaults = &executors.watches.defaults;
    let workers = watch.concurrency.unwrap_or(defaults.max_concurrent_reconciles.get());
    let EntryRuns { main, finalizer, kinds, declared, process_bytes } = executors.create_all(watch, workers)?;
    let defined = |kind: &Kind| as_defined(kind, definitions);
    let kind = defined(&Kind::new(&watch.gvk.group, &watch.gvk.version, &watch.gvk.kind));
    let created = kinds.created.iter().map(defined).collect();
    let kinds = Arc::new(Kinds { created, read: kinds.read.iter().map(defined).collect(), ..kinds });
    let with_defaults = Watch {
        reconcile_period: watch.reconcile_period.or(Some(defaults.reconcile_period)).filter(|period| !period.is_zero()),
        verbosity: watch.verbosity.or(Some(defaults.verbosity)),
        log_events: watch.log_events.or(Some(defaults.log_events)),
        ..watch.clone()
    };
    let posted_metrics = if process_bytes > 0 { declared.metrics } else { BTreeSet::new() };
    posted_metrics.iter().try_for_each(|metric| check_name(metric)).map_err(|problem| {
        Error::file(&executors.watches.path, format_args!("{}: osdk_metric: {problem}", watch.gvk.kind))
    })?;
    let names = Names { inputs: declared.inputs, own: declared.own, allowed: watch.allow_variables.clone() };
    let (of, used, manager) = (kind.clone(), kinds.clone(), format!("{name}-patch"));
    let (slots, metrics) = (executors.slots.clone(), executors.metrics.of(&watch.gvk));
    let role_metrics = executors.metrics.of_roles.clone();
    let make = move || -> Result<Roles> {
        Ok(Roles {
            watch: Arc::new(with_defaults),
            kind: of,
            executor: main()?,
            finalizer: finalizer.map(|make| make()).transpose()?,
            kinds: used,
            manager,
            names: Arc::new(names),
            slots,
            deferrals: Deferrals::default(),
            finished: FinishedRuns::default(),
            metrics,
            role_metrics,
        })
    };
    let mut controller = Controller::deferred_of(&kind, make)
        .deadline(DEADLINE)
        .concurrency(workers)
        .adapts_status(&status::CONDITIONS)
        .memory_budget(&executors.memory, MAX_RUN_BYTES + process_bytes);
    if let Some(finalizer) = &watch.finalizer {
        controller = controller.finalizer(&finalizer.name);
    }
    let controller = declare_watches(controller, watch, &kind, &kinds);
    let cache = watch.selector.as_ref().map(|selector| Cache::of(&kind).labels(selector));
    Ok(ControllerParts { kind, controller, cache, posted_metrics })
}

/// Declares the kinds that the role or playbook creates and reads.
fn declare_watches(
    mut controller: Controller<Roles>,
    watch: &Watch,
    kind: &Kind,
    kinds: &Arc<Kinds>,
) -> Controller<Roles> {
    controller = controller.dynamic(kind).filter(updates(watch));
    for owned in kinds.created.iter().filter(|created| *created != kind) {
        controller = controller.dynamic(owned).owns();
        let ignored = !watch.watch_dependents || watch.not_watched.contains(owned.gvk());
        if ignored {
            controller = controller.dynamic(owned).filter(Predicate::never());
        } else if if owned.is_namespaced() { kinds.other_namespaces } else { watch.watch_cluster_scoped } {
            let primary = format!("{}.{}", watch.gvk.kind, watch.gvk.group);
            let kinds = kinds.clone();
            let owner = move |object: &_| primary_of(object, &primary, &kinds).into_iter().collect();
            controller = controller.dynamic(owned).watches(move |object, _| Ok(owner(object)));
        }
    }
    for read in kinds.read.iter().filter(|read| *read != kind) {
        controller = controller.dynamic(read).reads();
    }
    controller
}

/// The shares of the workers of one controller.
struct ControllerShares {
    waiting: Shares,
    running: Shares,
}

/// Creates the executors of the roles and playbooks of one file.
struct Executors<'w> {
    watches: &'w Watches,
    executor: Executor,
    /// The threads that poll runs; without them, runs are polled by the caller.
    slots: Option<Slots>,
    memory: MemoryBudget,
    metrics: Metrics,
    workers: Arc<SharedWorkers>,
}

/// The workers of `ansible-playbook`, or the reason why there are none.
type SharedWorkers = OnceLock<Result<Arc<Workers>, String>>;

/// Creates an executor when the operator starts: until then, `ansible-playbook` need not exist.
type MakeExecutor = Box<dyn FnOnce() -> Result<Box<dyn Execute>> + Send>;

/// The role or playbook of an entry, and that of its finalizer.
struct EntryRuns {
    main: MakeExecutor,
    finalizer: Option<MakeExecutor>,
    /// The kinds of both.
    kinds: Kinds,
    /// The variables of both.
    declared: DeclaredVariables,
    /// The memory of the larger process.
    process_bytes: usize,
}

impl Executors<'_> {
    /// Creates the executors of an entry.
    fn create_all(&self, watch: &Watch, workers: usize) -> Result<EntryRuns> {
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
        vars: &Map<String, Value>,
        shares: &ControllerShares,
    ) -> Result<(MakeExecutor, Kinds, usize)> {
        let (folder, vault) = (self.watches.directory(), &watch.vault);
        let load = || load(runs, folder, vault, !watch.services.is_empty());
        let rejection = match executor {
            Executor::BuiltIn => return Ok(self.built_in(load()?, vars, shares)),
            Executor::Auto => match load() {
                Ok(playbook) => return Ok(self.built_in(playbook, vars, shares)),
                Err(error) => Some(error),
            },
            Executor::Worker | Executor::AnsiblePlaybook => None,
        };
        let kinds = match runs {
            Runs::Playbook(_) => Kinds::of_project(folder, vars, vault)?,
            Runs::Role(_) => Kinds::of_roles(&declared.roles, vars, vault)?,
        };
        let (runs, project) = (runs.clone(), folder.to_owned());
        let (external_paths, shares) = (declared.external_paths.clone(), shares.running.clone());
        let (file, kind, workers) = (self.watches.path.clone(), watch.gvk.kind.clone(), self.workers.clone());
        let make = move || -> Result<Box<dyn Execute>> {
            let Some(program) = AnsiblePlaybook::find() else {
                let missing = "ansible-playbook not found in PATH: install ansible-core, or use the built-in executor";
                return Err(rejection.map_or_else(|| Error::file(&file, missing), Error::without_ansible));
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

    fn built_in(
        &self,
        playbook: Playbook,
        vars: &Map<String, Value>,
        shares: &ControllerShares,
    ) -> (MakeExecutor, Kinds, usize) {
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
                    Err(error) => error.without_ansible(),
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

/// Returns the predicate for updates: changes of the desired state trigger a reconcile, changes of the status do not.
fn updates(watch: &Watch) -> Predicate<DynamicObject> {
    let annotations = match watch.watch_annotations {
        true => Predicate::annotations(),
        // Without decoding the objects, which are not charged to the memory budget yet.
        false => Predicate::annotation(RECONCILE_PERIOD),
    };
    Predicate::generation().or(annotations)
}

/// Returns the owner of an object without owner reference, from its annotations.
///
/// Any editor of a namespace can write them, so they count only where runs for this owner may write.
fn primary_of(object: &DynamicObject, primary: &str, kinds: &Kinds) -> Option<ObjectKey> {
    let annotation = |name: &str| object.metadata.annotations.as_ref()?.get(name);
    let owner = annotation(PRIMARY).filter(|_| annotation(PRIMARY_TYPE).is_some_and(|kind| kind == primary))?;
    let key = match owner.split_once('/') {
        Some((namespace, name)) => ObjectKey::new(Some(namespace), name),
        None => ObjectKey::new(None, owner),
    };
    let is_writable = match (object.metadata.namespace.as_deref(), key.namespace()) {
        (None, _) | (_, None) => true,
        (Some(namespace), Some(own)) => namespace == own || kinds.is_namespace_named(namespace),
    };
    is_writable.then_some(key)
}

/// Returns a kind with the names of the project's CRDs.
fn as_defined(kind: &Kind, definitions: &[CustomResourceDefinition]) -> Kind {
    let gvk = kind.gvk();
    let found = definitions
        .iter()
        .find(|definition| *definition.spec.group == *gvk.group && *definition.spec.names.kind == *gvk.kind);
    match found {
        None => kind.clone(),
        Some(definition) => {
            let kind = Kind::new(&gvk.group, &gvk.version, &gvk.kind).plural(&definition.spec.names.plural);
            if definition.spec.scope == "Cluster" { kind.cluster_scoped() } else { kind }
        }
    }
}

/// Reads the CRDs of a project.
fn definitions(folder: &Path) -> Result<Vec<CustomResourceDefinition>> {
    let mut definitions = Vec::new();
    for crds in ["config/crd/bases", "deploy/crds"] {
        for path in walk(&folder.join(crds))? {
            if !yaml::is_yaml(&path) {
                continue;
            }
            let documents = yaml::documents(&yaml::read_text(&path, &Vault::default())?, &Vault::default())
                .map_err(|problem| Error::file(&path, problem))?;
            for document in documents {
                // The directory may contain samples as well.
                if document["kind"] == "CustomResourceDefinition" {
                    if document["apiVersion"] != "apiextensions.k8s.io/v1" {
                        return Err(Error::file(
                            &path,
                            "the CustomResourceDefinition must have apiVersion apiextensions.k8s.io/v1: other versions were removed from Kubernetes",
                        ));
                    }
                    let definition = serde_json::from_value(document);
                    definitions.push(definition.map_err(|error| {
                        Error::file(&path, format_args!("not a valid CustomResourceDefinition: {error}"))
                    })?);
                }
            }
        }
    }
    Ok(definitions)
}

/// Returns the name of the operator of a `watches.yaml`, which need not be valid.
pub fn operator_name(watches: impl AsRef<Path>) -> String {
    let folder = watches.as_ref().parent().filter(|folder| !folder.as_os_str().is_empty());
    name(folder.unwrap_or(Path::new(".")))
}

/// Returns the name of the operator.
fn name(folder: &Path) -> String {
    let project = yaml::read_document(&folder.join("PROJECT"), &Vault::default()).ok();
    let project = project.as_ref().and_then(|project| project["projectName"].as_str()).map(str::to_owned);
    let folder = || fs::canonicalize(folder).ok()?.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = project.or_else(folder).unwrap_or_default();
    // It is used in names of objects.
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().map(letter).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "ansible-operator".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_annotations_count_only_where_its_runs_may_write() {
        let kinds = |namespace: &str| Kinds { namespaces: [namespace.to_owned()].into(), ..Kinds::default() };
        let find = |kinds: &Kinds, namespace: Option<&str>, owner: &str| {
            let mut object = DynamicObject { types: None, metadata: Default::default(), data: Value::Null };
            object.metadata.namespace = namespace.map(str::to_owned);
            let annotations = [(PRIMARY, owner), (PRIMARY_TYPE, "Shop.example.com")];
            object.metadata.annotations =
                Some(annotations.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
            primary_of(&object, "Shop.example.com", kinds).map(|key| key.to_string())
        };
        let found = Some("b/victim".to_owned());
        for namespace in [None, Some("b"), Some("shared")] {
            assert_eq!(find(&kinds("shared"), namespace, "b/victim"), found);
        }
        assert_eq!(find(&kinds("shared"), Some("c"), "b/victim"), None);
        assert_eq!(find(&kinds("*"), Some("c"), "b/victim"), found);
        assert_eq!(find(&kinds("shared"), Some("c"), "victim"), Some("victim".to_owned()), "a cluster-scoped owner");
    }
}
