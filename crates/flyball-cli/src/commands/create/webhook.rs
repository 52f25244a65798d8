//! `flyball create webhook`: adds webhooks for a kind.

use super::api::defined;
use super::exit_with_usage_error;
use crate::error::{Error, Result};
use crate::operator::installation::sample;
use crate::project::plugins::{PluginArgs, PluginCommand};
use crate::project::scaffold::api::{self, Names, definition_path, known_resource};
use crate::project::scaffold::changes::{Changes, print_written};
use crate::project::scaffold::types::Definition;
use crate::project::scaffold::{built_in, webhook};
use crate::project::{FILE, Project, Resource, names};
use crate::render::output::Output;
use crate::render::terminal::print_line;
use crate::render::yaml;
use clap::Args;
use serde_json::Value;
use std::path::PathBuf;

/// Number of kinds with the same name that a hint lists.
const MAX_NAMESAKES: usize = 4;

/// Add a defaulting, validating or conversion webhook for a kind
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball create webhook --group cache --version v1alpha1 --kind Redis --validation
  flyball create webhook --group cache --version v1alpha1 --kind Redis --defaulting --validation

  flyball create webhook --group \"\" --version v1 --kind Pod --validation         for a built-in kind
  flyball create webhook --crd issuers.cert-manager.io --validation              for a CRD in the cluster

A second version, created with flyball create api --version v1, includes a conversion webhook.")]
pub(crate) struct WebhookArgs {
    /// API group; the project's domain is appended to a name without a dot. Empty for the core group
    #[arg(long, value_parser = names::group_or_core, required_unless_present = "crd")]
    group: Option<String>,
    /// API version
    #[arg(long, value_parser = names::version, required_unless_present = "crd")]
    version: Option<String>,
    /// Kind
    #[arg(long, value_parser = names::kind, required_unless_present = "crd")]
    kind: Option<String>,
    /// Generate types from a CRD of another project: a file, or the name of a CRD in the cluster
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = ["group", "kind", "conversion"])]
    crd: Option<String>,
    /// Path of the kubeconfig for --crd NAME; defaults to KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE", requires = "crd")]
    kubeconfig: Option<PathBuf>,
    /// Add a defaulting webhook
    #[arg(long, visible_alias = "programmatic-defaulting")]
    defaulting: bool,
    /// Add a validating webhook
    #[arg(long, visible_alias = "programmatic-validation")]
    validation: bool,
    /// Add a conversion webhook between the versions of the kind
    #[arg(long)]
    conversion: bool,
    /// Overwrite existing files; changes in them are lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    plugins: PluginArgs,
    /// Output format for the list of written files
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

pub(crate) fn cmd_webhook(args: &WebhookArgs) -> Result<()> {
    if !(args.defaulting || args.validation || args.conversion) {
        exit_with_usage_error("pass at least one of --defaulting, --validation, --conversion");
    }
    let mut project = Project::of_rust("flyball create webhook")?;
    let mut changes = Changes::new(&project.folder);
    let first = match &args.crd {
        Some(crd) => {
            let (definition, kept) = defined(crd, args.version.as_deref(), args.kubeconfig.as_ref())?;
            foreign(&mut changes, &mut project, &definition, &kept)?
        }
        None => find_or_add_resource(args, &mut project)?,
    };
    if args.conversion && first.foreign {
        return Err(Error::new(format!(
            "{} is not defined by this project, so it cannot convert its versions",
            first.api_kind()
        ))
        .hint("drop --conversion"));
    }
    let is_other = |other: &&Resource| {
        other.resource && (&other.group, &other.kind) == (&first.group, &first.kind) && other.version != first.version
    };
    let others: Vec<Names> =
        project.resources.iter().filter(is_other).map(|other| Names::new(&project, other)).collect();
    if args.conversion && others.is_empty() {
        let Resource { group, kind, .. } = &first;
        return Err(Error::new(format!("{} has no other version to convert to", first.api_kind()))
            .hint(format!("create one: flyball create api --group {group} --version v1 --kind {kind}")));
    }
    let taken = [
        (args.defaulting && first.webhooks.defaulting, "defaulting"),
        (args.validation && first.webhooks.validation, "validation"),
        (args.conversion && first.webhooks.conversion, "conversion"),
    ];
    if let Some((_, duty)) = taken.into_iter().find(|(is_taken, _)| *is_taken && !args.force) {
        return Err(Error::new(format!("{} already has a {duty} webhook", first.api_kind()))
            .hint("overwrite its test with --force"));
    }

    let names = Names::new(&project, &first);
    webhook::create(&mut changes, &names)?;
    if args.defaulting {
        webhook::add_defaulting(&mut changes, &names)?;
    }
    if args.validation {
        webhook::add_validation(&mut changes, &names)?;
    }
    if args.conversion {
        others.iter().try_for_each(|other| webhook::add_conversion(&mut changes, &names, other))?;
    }
    match args.defaulting || args.validation {
        true if first.foreign => {
            let sample = changes.read(&definition_path(&names))?.and_then(|kept| sample_of(&kept));
            webhook::test_of_foreign(&mut changes, &names, args.defaulting, args.validation, sample, args.force)?;
        }
        true => webhook::test(&mut changes, &names, args.defaulting, args.validation, args.force)?,
        false => {}
    }
    for resource in project.resources.iter_mut().filter(|resource| **resource == first) {
        resource.webhooks.defaulting |= args.defaulting;
        resource.webhooks.validation |= args.validation;
        resource.webhooks.conversion |= args.conversion;
    }
    changes.put(FILE, project.text()?)?;
    let arguments =
        [("group", first.group.as_str()), ("version", first.version.as_str()), ("kind", first.kind.as_str())];
    args.plugins.extend(PluginCommand::CreateWebhook, &arguments, &mut changes)?;
    print_written(&changes.commit()?, args.output)?;
    if args.output.is_none() {
        print_line("\nNext: cargo test");
    }
    Ok(())
}

/// Finds the kind in the project, or adds a built-in kind to it.
fn find_or_add_resource(args: &WebhookArgs, project: &mut Project) -> Result<Resource> {
    let text = |argument: &Option<String>| argument.clone().unwrap_or_default();
    let (named, version, kind) = (text(&args.group), text(&args.version), text(&args.kind));
    let group = project.group(&named);
    let known = built_in::find(&named, &version, &kind);
    let Some(found) = project.resource(&group, &version, &kind).cloned() else {
        let Some(known) = known else {
            return Err(unknown(project, &named, &version, &kind));
        };
        let resource = known_resource(&known);
        return Ok(add(project, resource));
    };
    if found.foreign {
        return Ok(found);
    }
    // Webhooks receive objects in the storage version.
    let first = project.resources.iter().find(|one| one.resource && (&one.group, &one.kind) == (&group, &kind));
    match first {
        Some(first) if first.version != version => {
            let hint = format!("pass --version {}", first.version);
            let what = "admission webhooks receive objects in the storage version";
            Err(Error::new(format!("{what}, {}", first.api_kind())).hint(hint))
        }
        Some(first) => Ok(first.clone()),
        None => Err(Error::new(format!("{} has no types in this project", found.api_kind())).hint(format!(
            "create them: flyball create api --group {named} --version {version} --kind {kind} --resource"
        ))),
    }
}

/// Creates the error for an unknown kind, with the existing kinds and a suggestion.
fn unknown(project: &Project, named: &str, version: &str, kind: &str) -> Error {
    let resource =
        Resource { group: project.group(named), version: version.into(), kind: kind.into(), ..Resource::default() };
    let all: Vec<String> = project.resources.iter().map(|resource| resource.api_kind()).collect();
    let all = if all.is_empty() { "no kinds".to_owned() } else { all.join(", ") };
    let mut error = Error::new(format!("{} not found in the project; it has {all}", resource.api_kind()));
    let flags = |group: &str, version: &str, kind: &str| {
        let group = if group.is_empty() { "\"\"" } else { group };
        format!("--group {group} --version {version} --kind {kind}")
    };
    let of_project = project.resources.iter().map(|one| (one.group.as_str(), one.version.as_str(), one.kind.as_str()));
    let of_kubernetes = built_in::all().map(|one| (one.group, one.version, one.kind));
    let namesake = |(_, _, other): &(&str, &str, &str)| other.eq_ignore_ascii_case(kind);
    let namesakes: Vec<_> = of_project.chain(of_kubernetes).filter(namesake).take(MAX_NAMESAKES).collect();
    for (group, version, kind) in &namesakes {
        error = error.hint(format!("for {kind}, pass {}", flags(group, version, kind)));
    }
    // Projects have no own kinds in the core group.
    if namesakes.is_empty() && !named.is_empty() {
        error = error.hint(format!("create it first: flyball create api {}", flags(named, version, kind)));
    }
    error.hint("for a foreign kind, pass its definition: --crd FILE|NAME")
}

/// Adds a foreign kind with its types to the project, unless it exists.
fn foreign(changes: &mut Changes, project: &mut Project, definition: &Definition, kept: &Value) -> Result<Resource> {
    let resource = add(project, definition.resource.clone());
    let names = Names::new(project, &resource);
    if changes.read(&format!("src/api/{}.rs", names.module()))?.is_none() {
        api::foreign(changes, &names, definition.code(&names), &yaml::write(kept), false)?;
    }
    Ok(resource)
}

/// Adds a kind to a project, unless it exists.
fn add(project: &mut Project, resource: Resource) -> Resource {
    if let Some(there) = project.resource(&resource.group, &resource.version, &resource.kind) {
        return there.clone();
    }
    project.resources.push(resource.clone());
    resource
}

/// Creates a definition object from the file in the project.
fn sample_of(definition: &str) -> Option<Value> {
    let definition: Value = serde_saphyr::from_str(definition).ok()?;
    sample::of(&definition).map(|(_, object)| object)
}
