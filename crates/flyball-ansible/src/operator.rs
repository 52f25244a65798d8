//! Creates an operator from a `watches.yaml`.

mod executors;

pub use executors::{AnsibleRequirement, ansible_requirements};

use crate::access::{PRIMARY, PRIMARY_TYPE};
use crate::error::{Error, Result};
use crate::finished::FinishedRuns;
use crate::memory::{MAX_RUN_BYTES, RESERVED_BYTES};
use crate::metrics::{Metrics, PostedMetrics, check_name, serve};
use crate::names::Names;
use crate::offload::Slots;
use crate::playbook::Kinds;
use crate::reconcile::{Deferrals, RECONCILE_PERIOD, Roles};
use crate::snake::snake;
use crate::status;
use crate::template::walk;
use crate::value::from_value;
use crate::vault::Vault;
use crate::watches::{Executor, Watch, Watches};
use crate::yaml;
use executors::{EntryRuns, Executors};
use flyball::{Cache, Controller, Kind, MemoryBudget, ObjectKey, Operator, Predicate, Task};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionSpec,
};
use kube::core::DynamicObject;
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
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
/// `ansible-playbook` is an error when the operator runs: it can be described without. If files of an entry cannot be
/// decrypted; with [`Watches::allow_locked_entries`], only if no other entry can run.
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
    let all: Vec<_> = watches.entries.iter().map(|watch| executors.create_all(watch)).collect();
    let may_refuse = watches.allows_locked_entries && all.iter().any(Result::is_ok);
    for (number, (watch, runs)) in watches.entries.iter().zip(all).enumerate() {
        let runs = match runs {
            Err(error) if error.is_vault() => {
                let of_entry = Error::entry(&watches.path, number, &watch.gvk.kind, &error);
                if !may_refuse {
                    return Err(of_entry);
                }
                operator = operator.task(locked_entry(&of_entry));
                EntryRuns::refused(watch, &error)
            }
            runs => runs?,
        };
        let ControllerParts { kind, controller, cache, posted_metrics } =
            controller(watch, runs, &executors, &definitions, &name)?;
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

/// Logs that an entry cannot run when the operator starts: before, there is no logger.
fn locked_entry(error: &Error) -> Task {
    let problem = error.to_string();
    let log = move |_| async move {
        tracing::error!("{problem}: its runs fail, and the kinds of its role or playbook are not watched");
        Ok(())
    };
    Task::new("locked-entry", log).on_every_replica()
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
    runs: EntryRuns,
    executors: &Executors<'_>,
    definitions: &[CustomResourceDefinition],
    name: &str,
) -> Result<ControllerParts> {
    let defaults = &executors.watches.defaults;
    let workers = executors.workers_of(watch);
    let EntryRuns { main, finalizer, kinds, declared, process_bytes } = runs;
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
    let own = declared.own(&declared_fields(watch, definitions));
    let posted_metrics = if process_bytes > 0 { declared.metrics } else { BTreeSet::new() };
    posted_metrics.iter().try_for_each(|metric| check_name(metric)).map_err(|problem| {
        Error::file(&executors.watches.path, format_args!("{}: osdk_metric: {problem}", watch.gvk.kind))
    })?;
    let names = Names { inputs: declared.inputs, own, allowed: watch.allow_variables.clone() };
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

/// Returns the variables of the fields that the CRD of a kind declares in its `spec`.
fn declared_fields(watch: &Watch, definitions: &[CustomResourceDefinition]) -> BTreeSet<String> {
    let is_own =
        |spec: &&CustomResourceDefinitionSpec| *spec.group == *watch.gvk.group && *spec.names.kind == *watch.gvk.kind;
    let versions = definitions.iter().map(|definition| &definition.spec).filter(is_own).flat_map(|spec| &spec.versions);
    let schemas = versions.filter(|version| *version.name == *watch.gvk.version).filter_map(|version| {
        version.schema.as_ref()?.open_api_v3_schema.as_ref()?.properties.as_ref()?.get("spec")?.properties.as_ref()
    });
    let named = |field: &String| if watch.snake_case { snake(field) } else { field.clone() };
    schemas.flat_map(|fields| fields.keys()).map(named).collect()
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
                    let definition = from_value(document);
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
            let mut object = DynamicObject { types: None, metadata: Default::default(), data: serde_json::Value::Null };
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
