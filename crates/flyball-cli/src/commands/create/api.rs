//! `flyball create api`: adds a kind, a controller, or both.

use super::chart::ChartArgs;
use super::prompt::prompt_names;
use super::watched::{self, NewKind};
use crate::chart::source::LocalChart;
use crate::cluster::apply;
use crate::cluster::connection::{ContextArgs, block_on};
use crate::error::{Error, Result};
use crate::project::plugins::{PluginArgs, PluginCommand};
use crate::project::scaffold::api::{self, Names, known_resource};
use crate::project::scaffold::changes::{Changes, print_written};
use crate::project::scaffold::types::Definition;
use crate::project::scaffold::{built_in, versions};
use crate::project::{FILE, Project, Resource, names};
use crate::render::output::Output;
use crate::render::prompt;
use crate::render::terminal::print_line;
use crate::render::yaml;
use clap::{ArgAction, Args};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Add a kind with its controller, a version of a kind, or a controller for a kind of another project
///
/// In a Helm or Ansible project, adds a kind with a chart or a role, an entry in watches.yaml, the CRD, a sample and a
/// test case. The CRD is derived from the chart's values.schema.json or values.yaml, or from the role's defaults, and
/// the sample has all values.
///
/// On a terminal, asks for missing flags.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball create api --group cache --version v1alpha1 --kind Redis
  flyball create api --group cache --version v1 --kind Redis            a further version
  flyball create api --group apps --version v1 --kind Deployment        a controller for a built-in kind
  flyball create api --crd crontab.yaml                                 a controller for the kind of a CRD file
  flyball create api --crd issuers.cert-manager.io                      a controller for a CRD in the cluster
  flyball create api --chart ./memcached                                a kind for a chart, in a Helm project
  flyball create api --chart memcached-1.2.3.tgz --group cache --kind Memcached
  flyball create api --chart oci://registry.example.com/charts/memcached --chart-version ^1.2
  flyball create api --role ../site --group web --version v1 --kind Site

Existing files are not changed, except for lines inserted above the comments that begin with +flyball.")]
pub(crate) struct ApiArgs {
    /// API group; the project's domain is appended to a name without a dot. Empty for the core group
    #[arg(long, value_parser = names::group_or_core)]
    group: Option<String>,
    /// API version, such as v1alpha1
    #[arg(long, value_parser = names::version)]
    version: Option<String>,
    /// Kind in CamelCase, such as VmGroup
    #[arg(long, value_parser = names::kind)]
    kind: Option<String>,
    /// Generate the types of the kind
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    resource: Option<bool>,
    /// Generate a controller for the kind
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    controller: Option<bool>,
    /// Namespaced kind; defaults to true
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    namespaced: Option<bool>,
    /// Plural resource name; derived from the kind by default
    #[arg(long, value_parser = names::plural)]
    plural: Option<String>,
    /// Generate types from a CRD of another project: a file, or the name of a CRD in the cluster
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = ["group", "kind", "plural", "resource", "namespaced", "chart"])]
    crd: Option<String>,
    /// Path of the kubeconfig for --crd NAME; defaults to KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE", requires = "crd")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    chart: ChartArgs,
    /// Existing role for a kind: a directory, copied into an Ansible project
    #[arg(long, value_name = "DIR", conflicts_with_all = ["chart", "crd"])]
    role: Option<PathBuf>,
    /// Overwrite existing files; changes in them are lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    plugins: PluginArgs,
    /// Output format for the list of written files
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// API to add.
struct NewApi {
    resource: Resource,
    types: bool,
    controller: bool,
    /// Definition of a foreign kind.
    definition: Option<(Definition, Value)>,
}

pub(crate) fn cmd_api(args: &ApiArgs) -> Result<()> {
    let mut project = Project::here()?;
    let mut changes = Changes::new(&project.folder);
    watched::check_chart(&project, args.chart.chart.as_deref())?;
    watched::check_role(&project, args.role.as_deref())?;
    if !project.project_type.is_rust() {
        return add_watched(args, changes, &mut project);
    }
    let new_api = match &args.crd {
        Some(crd) => {
            let (definition, document) = defined(crd, args.version.as_deref(), args.kubeconfig.as_ref())?;
            let (resource, controller) = (definition.resource.clone(), args.controller != Some(false));
            NewApi { resource, types: true, controller, definition: Some((definition, document)) }
        }
        None => prompt_new_api(args, &project)?,
    };
    add(&mut changes, &mut project, &new_api, args.force)?;
    changes.put(FILE, project.text()?)?;
    let Resource { group, version, kind, .. } = &new_api.resource;
    let arguments = [("group", group.as_str()), ("version", version.as_str()), ("kind", kind.as_str())];
    args.plugins.extend(PluginCommand::CreateApi, &arguments, &mut changes)?;
    print_written(&changes.commit()?, args.output)?;
    if args.output.is_none() {
        print_line("\nNext: cargo test");
    }
    Ok(())
}

/// Adds a kind to a project of charts or roles.
fn add_watched(args: &ApiArgs, mut changes: Changes, project: &mut Project) -> Result<()> {
    let of_rust = [
        ("--crd", args.crd.is_some(), "kinds of other projects have no chart or role here"),
        ("--resource", args.resource.is_some(), "there are no types to generate"),
        ("--controller", args.controller.is_some(), "the chart or role is the controller"),
    ];
    if let Some((flag, _, why)) = of_rust.iter().find(|(_, is_set, _)| *is_set) {
        let (name, of) = (&project.project_name, project.project_type);
        return Err(Error::new(format!("project {name} is of type {of}: {flag} does not apply, since {why}"))
            .hint(format!("drop {flag}")));
    }
    let chart = args.chart.local()?;
    let new = NewKind {
        group: args.group.as_deref(),
        version: args.version.as_deref(),
        kind: args.kind.as_deref(),
        plural: args.plural.as_deref(),
        is_cluster_scoped: args.namespaced == Some(false),
        chart: args.chart.chart.as_deref().zip(chart.as_ref().map(LocalChart::path)),
        role: args.role.as_deref(),
        force: args.force,
    };
    let added = watched::add(&mut changes, project, &new)?;
    let Resource { group, version, kind, .. } = &added.resource;
    let arguments = [("group", group.as_str()), ("version", version.as_str()), ("kind", kind.as_str())];
    args.plugins.extend(PluginCommand::CreateApi, &arguments, &mut changes)?;
    print_written(&changes.commit()?, args.output)?;
    added.print_errors();
    if args.output.is_none() {
        print_line("\nNext: flyball run --samples");
    }
    Ok(())
}

fn flag_or_confirm(flag: Option<bool>, question: &str) -> Result<bool> {
    match flag {
        Some(flag) => Ok(flag),
        None if prompt::is_available() => prompt::confirm(question),
        None => Ok(true),
    }
}

fn prompt_new_api(args: &ApiArgs, project: &Project) -> Result<NewApi> {
    let [group, version, kind] = prompt_names([args.group.as_deref(), args.version.as_deref(), args.kind.as_deref()])?;
    let known = built_in::find(&group, &version, &kind).filter(|_| args.resource != Some(true));
    if let Some(known) = known {
        return Ok(NewApi {
            resource: known_resource(&known),
            types: false,
            controller: args.controller != Some(false),
            definition: None,
        });
    }
    let group = project.group(&group);
    let first = project.resources.iter().find(|other| other.group == group && other.kind == kind);
    let (types, controller) = match first.filter(|first| first.resource && first.version != version) {
        Some(first) => {
            check_version(args, first)?;
            (true, false)
        }
        None => (
            flag_or_confirm(args.resource, "generate types?")?,
            flag_or_confirm(args.controller, "generate a controller?")?,
        ),
    };
    // All versions of a kind have the same plural and scope.
    let is_other = |other: &&Resource| other.group == group && other.kind == kind && other.version != version;
    let other = project.resources.iter().find(is_other);
    let of_other = other.map(|other| (other.plural.clone(), other.namespaced));
    let (plural, namespaced) = of_other.clone().unwrap_or_else(|| (names::pluralize(&kind), true));
    let (plural, namespaced) = (args.plural.clone().unwrap_or(plural), args.namespaced.unwrap_or(namespaced));
    if let (Some(other), true) = (other, of_other.is_some_and(|known| known != (plural.clone(), namespaced))) {
        return Err(Error::new(format!(
            "{} has a different plural or scope, which all versions of a kind share",
            other.api_kind()
        ))
        .hint("drop --plural and --namespaced"));
    }
    Ok(NewApi {
        resource: Resource { group, version, kind, plural, namespaced, ..Resource::default() },
        types,
        controller,
        definition: None,
    })
}

/// Rejects flags that only the first version of a kind supports.
fn check_version(args: &ApiArgs, first: &Resource) -> Result<()> {
    if args.resource == Some(false) {
        return Err(Error::new("a new version of a kind needs types").hint("drop --resource=false"));
    }
    if args.controller != Some(true) {
        return Ok(());
    }
    let Resource { group, version, kind, .. } = first;
    let error = format!("{kind} has one controller, for its storage version {}", first.api_kind());
    Err(Error::new(error).hint(match first.controller {
        true => "drop --controller; it reconciles objects of all versions".into(),
        false => format!(
            "drop --controller and create it for the storage version: flyball create api --group {group} --version {version} --kind {kind} --resource=false"
        ),
    }))
}

/// Reads the CRD of a foreign kind from a file or a cluster.
pub(super) fn defined(crd: &str, version: Option<&str>, kubeconfig: Option<&PathBuf>) -> Result<(Definition, Value)> {
    let path = Path::new(crd);
    let found = if path.exists() {
        let is_definition = |object: &Value| object["kind"] == "CustomResourceDefinition";
        apply::read(path)?
            .into_iter()
            .find(is_definition)
            .ok_or_else(|| Error::new(format!("no CustomResourceDefinition in {crd}")))?
    } else if crd.contains('/') || crd.ends_with(".yaml") || crd.ends_with(".json") || !crd.contains('.') {
        return Err(Error::new(format!("file {crd} not found"))
            .hint("pass a file, or the full name of a definition in the cluster: crontabs.stable.example.com"));
    } else {
        let connection = ContextArgs { kubeconfig: kubeconfig.cloned(), context: None };
        let object = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": crd}});
        block_on(async { connection.connect().await?.read(&object).await })?
    };
    let definition = Definition::read(&found, version)?;
    let mut document = json!({"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": {"name": found["metadata"]["name"]}});
    // The webhook of a conversion does not exist in tests, and is not needed.
    document["spec"] = found["spec"].clone();
    document["spec"].as_object_mut().map(|spec| spec.remove("conversion"));
    Ok((definition, document))
}

fn add(changes: &mut Changes, project: &mut Project, new_api: &NewApi, force: bool) -> Result<()> {
    let NewApi { resource, types, controller, .. } = new_api;
    let api_kind = resource.api_kind();
    if !types && !controller {
        return Err(Error::new(format!("nothing to create for {api_kind}: neither types nor a controller"))
            .hint("drop --resource=false or --controller=false"));
    }
    let at = project.resources.iter().position(|known| known.is(&resource.group, &resource.version, &resource.kind));
    let before = at.map(|at| project.resources[at].clone());
    if let Some(before) = before.as_ref().filter(|_| !force) {
        let new_types = *types && !before.resource && !before.foreign;
        let new_controller = *controller && !before.controller;
        if !new_types && !new_controller {
            return Err(Error::new(format!("{api_kind} already exists in the project"))
                .hint("overwrite its files with --force"));
        }
    }
    let names = Names::new(project, resource);
    let mut now = before.clone().unwrap_or_else(|| resource.clone());
    let first = project.resources.iter().find(|other| {
        other.resource
            && (&other.group, &other.kind) == (&resource.group, &resource.kind)
            && other.version != resource.version
    });
    let known = built_in::find(&resource.group, &resource.version, &resource.kind).filter(|_| resource.foreign);
    match (known, first) {
        _ if new_api.definition.is_some() => foreign(changes, &names, new_api, &mut now, force)?,
        (Some(known), _) => {
            api::controller_of_known(changes, &names, &known.path(), None, force)?;
            now.controller = true;
        }
        (None, Some(first))
            if before.as_ref().is_none_or(|before| first_version_of(project, resource) != Some(before)) =>
        {
            let first = Names::new(project, first);
            versions::add(changes, &names, &first, force)?;
            now.resource = true;
            let first = project.resources.iter_mut().find(|other| **other == first.resource);
            first.into_iter().for_each(|first| first.webhooks.conversion = true);
        }
        (None, _) => add_own_kind(changes, &names, new_api, &mut now, force)?,
    }
    let at = project.resources.iter().position(|known| known.is(&now.group, &now.version, &now.kind));
    match at {
        Some(at) => project.resources[at] = now,
        None => project.resources.push(now),
    }
    Ok(())
}

/// Returns the first version of a kind in a project, which is the storage version.
fn first_version_of<'a>(project: &'a Project, resource: &Resource) -> Option<&'a Resource> {
    project.resources.iter().find(|other| (&other.group, &other.kind) == (&resource.group, &resource.kind))
}

fn foreign(changes: &mut Changes, names: &Names, new_api: &NewApi, now: &mut Resource, force: bool) -> Result<()> {
    let Some((definition, kept)) = &new_api.definition else { return Ok(()) };
    api::foreign(changes, names, definition.code(names), &yaml::write(kept), force)?;
    if new_api.controller {
        let path = format!("crate::api::{}::{}", names.module(), names.kind_type);
        api::controller_of_known(changes, names, &path, Some(&api::definition_path(names)), force)?;
        now.controller = true;
    }
    Ok(())
}

fn add_own_kind(changes: &mut Changes, names: &Names, new_api: &NewApi, now: &mut Resource, force: bool) -> Result<()> {
    let had_types = now.resource;
    if new_api.types && (!had_types || force) {
        api::types(changes, names, force)?;
        now.resource = true;
    }
    if !now.resource {
        return Err(Error::new(format!("the controller of {} needs its types, which do not exist", now.api_kind()))
            .hint("drop --resource=false"));
    }
    if new_api.controller && (!now.controller || force) {
        api::controller(changes, names, force)?;
        now.controller = true;
        // The sample may have fields that are not in the test.
        if had_types && !force {
            return Ok(());
        }
    }
    if had_types && !force { Ok(()) } else { api::test(changes, names, now.controller, force) }
}
