//! `flyball olm rehearse`.

mod catalogs;
mod comparison;
mod copy;
mod pods;
mod stage;

use super::objects::{self, CatalogArgs, ObjectArgs};
use super::unread::Unread;
use crate::cluster::connection::block_on;
use crate::commands::deploy::parse_wait;
use crate::error::{Error, Result};
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, one_line, paint, print_line};
use clap::Args;
use comparison::{Changes, InvalidResource};
use copy::CopiedObjects;
use flyball_lifecycle::api::Subscription;
use flyball_lifecycle::diagnosis::{Selection, Snapshot, diagnose};
use kube::ResourceExt;
use serde::Serialize;
use stage::{Outcome, Stage};
use std::process::ExitCode;
use std::time::Duration;

/// Run the next upgrade of a Subscription on a copy of the cluster, and print its changes and failures
///
/// Copies the objects of the namespace, its CRDs and custom resources to a control plane in this process, with
/// simulated nodes, and runs the lifecycle manager there. Nothing is changed in the cluster. Then every custom
/// resource is validated by the new CRDs. Pods run no code, and webhooks are not called. Exits with 1 if the upgrade
/// fails or a custom resource becomes invalid.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball olm rehearse memo -n demo
  flyball olm rehearse memo -n demo --channel candidate
  flyball olm rehearse memo -n demo --to memo.v1.0.0      a rollback
  flyball olm rehearse memo -n demo -o json")]
pub(super) struct RehearseArgs {
    /// Subscription
    subscription: String,
    /// ClusterServiceVersion to install instead of the next one
    #[arg(long, value_name = "CSV")]
    to: Option<String>,
    /// Channel to change to
    #[arg(long, conflicts_with = "to")]
    channel: Option<String>,
    #[command(flatten)]
    objects: ObjectArgs,
    #[command(flatten)]
    catalogs: CatalogArgs,
    /// Timeout of the upgrade on the copy
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_wait)]
    timeout: Duration,
    /// Print only errors
    #[arg(short, long, conflicts_with = "output")]
    quiet: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Result of a rehearsal.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rehearsal {
    subscription: String,
    namespace: String,
    from: String,
    outcome: Outcome,
    changes: Changes,
    /// Custom resources that the new CRDs reject.
    invalid: Vec<InvalidResource>,
    /// Number of custom resources that were validated.
    validated: usize,
    /// Objects that could not be copied.
    skipped: Vec<String>,
    /// Parts that the user may not read.
    #[serde(skip_serializing_if = "Unread::is_empty")]
    unread: Unread,
    succeeded: bool,
}

pub(super) fn cmd_rehearse(args: &RehearseArgs) -> Result<ExitCode> {
    block_on(async {
        let connection = args.objects.connection.connect().await?;
        let subscription = objects::subscription(&connection, &args.subscription).await?;
        let (snapshot, mut unread) =
            objects::snapshot(&connection, &args.objects.global_namespace, &args.catalogs).await?;
        check_target(args, &snapshot, &subscription)?;
        let copied = CopiedObjects::read(&connection, &snapshot, &mut unread).await?;
        let stage = Stage::start(&copied, &snapshot, args.catalogs.client(), &args.objects.global_namespace).await?;
        let before = stage.objects().await?;
        let change = stage::Change { target: args.to.as_deref(), channel: args.channel.as_deref() };
        let outcome = stage.upgrade(&subscription, &change, args.timeout).await?;
        let after = stage.objects().await?;
        let (invalid, validated) = comparison::invalid_resources(&stage, &after).await?;
        let rehearsal = Rehearsal {
            namespace: connection.namespace.clone(),
            from: subscription.status.installed_csv.clone(),
            succeeded: outcome.succeeded && invalid.is_empty(),
            subscription: subscription.name_any(),
            changes: Changes::between(&before, &after),
            skipped: stage.skipped.clone(),
            unread,
            outcome,
            invalid,
            validated,
        };
        match args.output {
            Some(output) => output.print(&rehearsal)?,
            None if args.quiet && rehearsal.succeeded => {}
            None => print(&rehearsal),
        }
        Ok(ExitCode::from(u8::from(!rehearsal.succeeded)))
    })
}

/// Refuses a rehearsal without the content of the catalog, or of a version that is installed or does not exist.
fn check_target(args: &RehearseArgs, snapshot: &Snapshot, subscription: &Subscription) -> Result<()> {
    let content = &objects::content(snapshot, subscription)?.content;
    let Some(target) = &args.to else { return check_next(args, snapshot, subscription) };
    if *target == subscription.status.installed_csv {
        return Err(Error::new(format!("{target} is installed: there is nothing to rehearse"))
            .hint("pass another version: --to CSV; or omit --to for the next upgrade"));
    }
    objects::bundle(content, &subscription.spec.package, target).map(drop)
}

/// Refuses a rehearsal if the channel has no version to install: the copy would only wait for one.
fn check_next(args: &RehearseArgs, snapshot: &Snapshot, subscription: &Subscription) -> Result<()> {
    let name = subscription.name_any();
    let mut changed = snapshot.clone();
    let own = changed.subscriptions.iter_mut().find(|of| of.name_any() == name);
    if let (Some(own), Some(channel)) = (own, &args.channel) {
        own.spec.channel.clone_from(channel);
    }
    let Some(diagnosis) = diagnose(&changed, &name) else { return Ok(()) };
    // A contradiction is explained by the manager on the copy.
    let has_none = |selection: &Selection| selection.next.is_none() && selection.facts.is_empty();
    if diagnosis.installed.is_empty()
        || !diagnosis.installing.is_empty()
        || !diagnosis.selection.is_some_and(|of| has_none(&of))
    {
        return Ok(());
    }
    let channel = match diagnosis.channel.as_str() {
        "" => "the default channel".to_owned(),
        channel => format!("channel {channel}"),
    };
    Err(Error::new(format!(
        "{channel} has no version that upgrades {}: there is nothing to rehearse",
        diagnosis.installed
    ))
    .hint("pass another channel or version: --channel NAME, --to CSV")
    .hint(format!("see all versions: flyball olm why {name} -n {}", snapshot.namespace)))
}

fn print(rehearsal: &Rehearsal) {
    let Rehearsal { subscription, namespace, from, outcome, changes, invalid, validated, skipped, .. } = rehearsal;
    let state = match (rehearsal.succeeded, outcome.succeeded) {
        (true, _) if rehearsal.unread.is_empty() => paint(Style::Good, "works"),
        (true, _) => paint(Style::Busy, "works, as far as you may read the cluster"),
        (false, true) => paint(Style::Bad, "breaks custom resources"),
        (false, false) => paint(Style::Bad, "fails"),
    };
    let from = if from.is_empty() { String::new() } else { format!(" from {from}") };
    let to = if outcome.to.is_empty() { String::new() } else { format!(" to {}", outcome.to) };
    let (from, to) = (one_line(&from), one_line(&to));
    print_line(&format!("Subscription {namespace}/{subscription}: the upgrade{from}{to} {state}"));
    if !outcome.message.is_empty() {
        print_line(&format!("  {}", one_line(&outcome.message)));
    }
    let rows = |sign: &str, keys: &[String]| -> Vec<Vec<String>> {
        keys.iter().map(|key| vec![format!("  {sign}"), one_line(key).into_owned()]).collect()
    };
    let mut lines = [rows("+", &changes.created), rows("-", &changes.removed)].concat();
    lines.extend(
        changes
            .changed
            .iter()
            .map(|change| format!("{}: {}", change.object, change.fields.join(", ")))
            .map(|text| vec!["  ~".to_owned(), one_line(&text).into_owned()]),
    );
    if !lines.is_empty() {
        print_line("changes:");
        columns(lines).iter().for_each(|line| print_line(line));
    }
    for (word, permissions) in [("new permissions:", &changes.granted), ("revoked permissions:", &changes.revoked)] {
        if !permissions.is_empty() {
            print_line(word);
            permissions.iter().for_each(|permission| print_line(&format!("  {}", one_line(permission))));
        }
    }
    if !invalid.is_empty() {
        print_line(&paint(Style::Bad, "custom resources that become invalid:"));
        invalid.iter().for_each(|of| print_line(&format!("  {}", one_line(&format!("{}: {}", of.object, of.why)))));
    }
    print_line(&format!("{validated} custom resources were validated"));
    for text in skipped {
        print_line(&paint(Style::Faint, &one_line(&format!("not copied: {text}"))));
    }
    rehearsal.unread.print();
}
