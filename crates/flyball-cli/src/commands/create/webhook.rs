//! `flyball create webhook`: has the API server ask the operator about a kind.

use super::misused;
use crate::commands::init::tell;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::plugins::{Asking, PluginArgs};
use crate::project::{FILE, Project, names};
use crate::scaffold::api::Names;
use crate::scaffold::changes::Changes;
use crate::scaffold::webhook;
use crate::terminal::say;
use clap::Args;

/// Have objects of a kind completed, judged or converted by the operator
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball create webhook --group cache --version v1alpha1 --kind Redis --validation
  flyball create webhook --group cache --version v1alpha1 --kind Redis --defaulting --validation

Versions are converted from the moment that there is a second one: flyball create api --version v1.")]
pub(crate) struct WebhookArgs {
    /// Group of the kind; the domain of the project comes behind it
    #[arg(long, value_parser = names::group)]
    group: String,
    /// Version of the kind
    #[arg(long, value_parser = names::version)]
    version: String,
    /// The kind
    #[arg(long, value_parser = names::kind)]
    kind: String,
    /// Complete objects before they are stored
    #[arg(long, visible_alias = "programmatic-defaulting")]
    defaulting: bool,
    /// Judge objects before they are stored
    #[arg(long, visible_alias = "programmatic-validation")]
    validation: bool,
    /// Convert objects between the versions of the kind
    #[arg(long)]
    conversion: bool,
    /// Write files anew that are there already; what was changed in them is lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    plugins: PluginArgs,
    /// How to say what was written
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

pub(crate) fn cmd_webhook(args: &WebhookArgs) -> Result<()> {
    if !(args.defaulting || args.validation || args.conversion) {
        misused("say what the webhook is for: --defaulting, --validation, --conversion");
    }
    let mut project = Project::here()?;
    let group = project.group(&args.group);
    let Some(found) = project.resource(&group, &args.version, &args.kind).cloned() else {
        let told = format!("{group}/{} {}", args.version, args.kind);
        let all: Vec<String> = project.resources.iter().map(|resource| resource.told()).collect();
        let all = if all.is_empty() { "nothing yet".to_owned() } else { all.join(", ") };
        return Err(Error::new(format!("the project has no {told}; it has {all}")).hint(format!(
            "create it first: flyball create api --group {} --version {} --kind {}",
            args.group, args.version, args.kind
        )));
    };
    let mut versions =
        project.resources.iter().filter(|one| one.resource && one.group == group && one.kind == args.kind);
    let first = versions.next().cloned().filter(|first| first.resource);
    let Some(first) = first else {
        return Err(Error::new(format!("{} is defined by somebody else, who answers for it", found.told()))
            .hint("webhooks are written for kinds whose types are the project's own"));
    };
    let others: Vec<Names> = versions.map(|other| Names::new(&project, other)).collect();
    if first.version != found.version {
        let hint = format!("name that version instead: --version {}", first.version);
        let what = "objects are asked about in the version that they are stored in, whatever they are written in";
        return Err(Error::new(format!("{what}, and that is {}", first.told())).hint(hint));
    }
    if args.conversion && others.is_empty() {
        return Err(Error::new(format!("{} has no other version to be converted to", found.told()))
            .hint(format!("write one: flyball create api --group {} --version v1 --kind {}", args.group, args.kind)));
    }
    let taken = [
        (args.defaulting && first.webhooks.defaulting, "defaulting"),
        (args.validation && first.webhooks.validation, "validation"),
        (args.conversion && first.webhooks.conversion, "conversion"),
    ];
    if let Some((_, duty)) = taken.into_iter().find(|(is_taken, _)| *is_taken && !args.force) {
        return Err(Error::new(format!("{} has a webhook for {duty} already", first.told()))
            .hint("to write its test anew, and lose what was changed in it: --force"));
    }

    let names = Names::new(&project, &first);
    let mut changes = Changes::new(&project.folder);
    webhook::open(&mut changes, &names)?;
    if args.defaulting {
        webhook::completes(&mut changes, &names)?;
    }
    if args.validation {
        webhook::judges(&mut changes, &names)?;
    }
    if args.conversion {
        others.iter().try_for_each(|other| webhook::converts(&mut changes, &names, other))?;
    }
    if args.defaulting || args.validation {
        webhook::test(&mut changes, &names, args.defaulting, args.validation, args.force)?;
    }
    for resource in project.resources.iter_mut().filter(|resource| **resource == first) {
        resource.webhooks.defaulting |= args.defaulting;
        resource.webhooks.validation |= args.validation;
        resource.webhooks.conversion |= args.conversion;
    }
    changes.put(FILE, project.text()?)?;
    let told = [("group", group.as_str()), ("version", first.version.as_str()), ("kind", first.kind.as_str())];
    args.plugins.extend(Asking::CreateWebhook, &told, &mut changes)?;
    tell(&changes.commit()?, args.output)?;
    if args.output.is_none() {
        say("\nSee it work: cargo test");
    }
    Ok(())
}
