//! `flyball olm rehearse`.

mod catalogs;
mod comparison;
mod copy;
mod stage;

use super::breaking;
use super::objects::{self, CatalogArgs, ObjectArgs};
use super::refusal::plan_problem;
use super::rollback;
use super::unread::Unread;
use crate::cluster::connection::{Connection, block_on};
use crate::duration::parse_flag;
use crate::error::{Error, Result};
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, one_line, paint, print_line};
use clap::Args;
use comparison::{ChangedObject, Changes, InvalidResource};
use copy::CopiedObjects;
use flyball_lifecycle::api::{
    ClusterServiceVersion, ClusterServiceVersionPhase as Phase, Subscription, UpgradeStrategy,
};
use flyball_lifecycle::diagnosis::{Selection, Snapshot, diagnose};
use flyball_lifecycle::install::with_conversions;
use flyball_lifecycle::parse_tolerant;
use kube::ResourceExt;
use serde::Serialize;
use stage::{Outcome, Stage};
use std::process::ExitCode;
use std::time::Duration;

/// Limit of the listed remedies.
const MAX_REMEDIES: usize = 10;

/// Run the next upgrade of a Subscription on a copy of the cluster, and print its changes and failures
///
/// Copies the objects of the namespace, its CRDs and custom resources to a control plane in this process, with
/// simulated nodes, and runs the lifecycle manager there. Nothing is changed in the cluster. Then every custom
/// resource is validated by the new CRDs. Pods run no code, and webhooks are not called. Exits with 1 if the upgrade
/// fails, is in progress in the cluster or a custom resource becomes invalid; with 0 if there is no upgrade.
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
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_flag)]
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
    /// The version that was installed on the copy.
    upgrade: String,
    outcome: Outcome,
    /// Commands that help if the upgrade fails.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remedies: Vec<String>,
    /// The reason why the InstallPlan of the cluster for this version fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_problem: Option<String>,
    /// The reason why `flyball olm rollback` refuses the older version.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
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

/// Result without an upgrade.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NoUpgrade {
    subscription: String,
    namespace: String,
    from: String,
    /// Always null.
    upgrade: Option<String>,
    message: String,
    succeeded: bool,
    #[serde(skip)]
    hints: Vec<String>,
}

pub(super) fn cmd_rehearse(args: &RehearseArgs) -> Result<ExitCode> {
    block_on(async {
        let connection = args.objects.connection.connect().await?;
        let subscription = objects::subscription(&connection, &args.subscription).await?;
        let (snapshot, mut unread) =
            objects::snapshot(&connection, &args.objects.global_namespace, &args.catalogs).await?;
        check_target(args, &snapshot, &subscription)?;
        if let Some(none) = no_upgrade(args, &snapshot, &subscription)? {
            none.print(args)?;
            return Ok(ExitCode::SUCCESS);
        }
        let refusal = refusal(args, &connection, &snapshot, &subscription, &mut unread).await?;
        let copied = CopiedObjects::read(&connection, &snapshot, &mut unread).await?;
        let stage = Stage::start(&copied, &snapshot, args.catalogs.client(), &args.objects.global_namespace).await?;
        let before = stage.objects().await?;
        let change = stage::Change { target: args.to.as_deref(), channel: args.channel.as_deref() };
        let outcome = stage.upgrade(&subscription, &change, args.timeout).await?;
        let after = stage.objects().await?;
        let (invalid, validated) = comparison::invalid_resources(&stage, &after).await?;
        let remedies = match outcome.succeeded {
            true => Vec::new(),
            false => remedies(&connection, &snapshot, &subscription, &outcome.to, &mut unread).await?,
        };
        // The copy lacks objects that the user may not read.
        let plan_problem = plan_problem(&snapshot.plans, &outcome.to).filter(|_| outcome.succeeded);
        let rehearsal = Rehearsal {
            upgrade: outcome.to.clone(),
            remedies,
            namespace: connection.namespace.clone(),
            from: subscription.status.installed_csv.clone(),
            succeeded: outcome.succeeded && invalid.is_empty() && plan_problem.is_none() && refusal.is_none(),
            plan_problem,
            refusal,
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
    let Some(target) = &args.to else { return check_progress(snapshot, subscription) };
    if *target == subscription.status.installed_csv {
        return Err(Error::new(format!("{target} is installed: there is nothing to rehearse"))
            .hint("pass another version: --to CSV; or omit --to for the next upgrade"));
    }
    objects::bundle(content, &subscription.spec.package, target).map(drop)
}

/// Returns the reason why `flyball olm rollback` refuses the version, if it is older than the current one. The copy
/// lacks the installations of other namespaces.
async fn refusal(
    args: &RehearseArgs,
    connection: &Connection,
    snapshot: &Snapshot,
    subscription: &Subscription,
    unread: &mut Unread,
) -> Result<Option<String>> {
    let Some(target) = args.to.as_deref().filter(|_| !subscription.status.installed_csv.is_empty()) else {
        return Ok(None);
    };
    let current = rollback::current(connection, snapshot, subscription)?;
    let manifests = rollback::manifests(&args.catalogs, connection, snapshot, subscription, target).await?;
    if parse_tolerant(manifests.version()) > parse_tolerant(&current.spec.version) {
        return Ok(None);
    }
    match rollback::check(connection, snapshot, current, &manifests, unread).await {
        Ok(_) => Ok(None),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// Refuses a rehearsal while the Subscription changes its version: the copy would continue that.
fn check_progress(snapshot: &Snapshot, subscription: &Subscription) -> Result<()> {
    let current = &subscription.status.current_csv;
    let (name, namespace) = (subscription.name_any(), &snapshot.namespace);
    let found = snapshot.csvs.iter().find(|csv| csv.name_any() == *current);
    let Some(csv) = found.filter(|csv| csv.status.phase != Phase::Succeeded) else { return Ok(()) };
    let fails_forward = snapshot.groups.iter().any(|group| group.spec.upgrade_strategy == UpgradeStrategy::FailForward);
    if fails_forward && csv.status.phase == Phase::Failed {
        return Ok(());
    }
    let is_replaced = |of: &&ClusterServiceVersion| {
        of.name_any() == csv.spec.replaces && matches!(of.status.phase, Phase::Replacing | Phase::Deleting)
    };
    let replaced = snapshot.csvs.iter().find(is_replaced);
    let what = match replaced {
        Some(replaced) => format!("an upgrade from {} to {current} is in progress", replaced.name_any()),
        None => format!("{current}, the current version, does not run yet"),
    };
    let status = &csv.status;
    let error = Error::new(format!("{what}: {:?}, {}: {}", status.phase, status.reason, status.message))
        .hint(format!("wait until it has succeeded, or find out why not: flyball olm why {name} -n {namespace}"));
    Err(match replaced {
        Some(_) => error.hint(format!("or revert it: flyball olm rollback {name} -n {namespace}")),
        None => error,
    })
}

/// Returns the result without an upgrade, if the channel has no version to install: the copy would only wait for one.
fn no_upgrade(args: &RehearseArgs, snapshot: &Snapshot, subscription: &Subscription) -> Result<Option<NoUpgrade>> {
    if args.to.is_some() {
        return Ok(None);
    }
    let name = subscription.name_any();
    let mut changed = snapshot.clone();
    let own = changed.subscriptions.iter_mut().find(|of| of.name_any() == name);
    if let (Some(own), Some(channel)) = (own, &args.channel) {
        own.spec.channel.clone_from(channel);
    }
    let Some(diagnosis) = diagnose(&changed, &name) else { return Ok(None) };
    // A contradiction is explained by the manager on the copy.
    let has_none = |selection: &Selection| selection.next.is_none() && selection.facts.is_empty();
    if diagnosis.installed.is_empty()
        || !diagnosis.installing.is_empty()
        || !diagnosis.selection.is_some_and(|of| has_none(&of))
    {
        return Ok(None);
    }
    let channel = match diagnosis.channel.as_str() {
        "" => "the default channel".to_owned(),
        channel => format!("channel {channel}"),
    };
    let annotations = diagnosis.causes.iter().filter(|cause| cause.field.starts_with("metadata.annotations["));
    let held: Vec<String> = annotations.map(|cause| format!("{}: {}", cause.message, cause.remedy)).collect();
    let hints = vec![
        "pass another channel or version: --channel NAME, --to CSV".to_owned(),
        format!("see all versions: flyball olm why {name} -n {}", snapshot.namespace),
    ];
    Ok(Some(NoUpgrade {
        subscription: name,
        namespace: snapshot.namespace.clone(),
        upgrade: None,
        message: format!(
            "{channel} has no version that upgrades {}: there is nothing to rehearse",
            diagnosis.installed
        ),
        from: diagnosis.installed,
        succeeded: true,
        hints: held.into_iter().chain(hints).collect(),
    }))
}

/// Returns commands that help if the new CRDs break what is stored.
async fn remedies(
    connection: &Connection,
    snapshot: &Snapshot,
    subscription: &Subscription,
    to: &str,
    unread: &mut Unread,
) -> Result<Vec<String>> {
    let content = &objects::content(snapshot, subscription)?.content;
    let manifests = content.bundle(&subscription.spec.package, to).and_then(|bundle| bundle.manifests());
    // The bundle of an image is not read again.
    let Some(Ok(manifests)) = manifests else { return Ok(Vec::new()) };
    let changed = with_conversions(manifests.csv(), manifests.definitions().cloned(), &connection.namespace);
    let changes = breaking::changes(connection, &changed, unread).await?;
    Ok(changes.iter().take(MAX_REMEDIES).map(ToString::to_string).collect())
}

impl NoUpgrade {
    fn print(&self, args: &RehearseArgs) -> Result<()> {
        if let Some(output) = args.output {
            return output.print(self);
        }
        if !args.quiet {
            let text = format!("Subscription {}/{}: {}", self.namespace, self.subscription, self.message);
            print_line(&one_line(&text));
            self.hints.iter().for_each(|hint| print_line(&format!("  {}", one_line(hint))));
        }
        Ok(())
    }
}

fn print(rehearsal: &Rehearsal) {
    let Rehearsal { subscription, namespace, from, outcome, changes, invalid, validated, skipped, .. } = rehearsal;
    let state = match (rehearsal.succeeded, outcome.succeeded) {
        (false, true) if invalid.is_empty() => paint(Style::Bad, "works on the copy, but not in the cluster"),
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
    if let Some(problem) = &rehearsal.plan_problem {
        print_line(&format!("  {}", one_line(&format!("but the current plan fails: {problem}"))));
    }
    if let Some(refusal) = &rehearsal.refusal {
        print_line(&format!(
            "  the rollback is refused: {}",
            refusal.lines().map(one_line).collect::<Vec<_>>().join("\n")
        ));
    }
    for remedy in &rehearsal.remedies {
        print_line(&format!("  {}", one_line(remedy)));
    }
    let rows = |sign: &str, keys: &[String]| -> Vec<Vec<String>> {
        keys.iter().map(|key| vec![format!("  {sign}"), one_line(key).into_owned()]).collect()
    };
    let mut lines = [rows("+", &changes.created), rows("-", &changes.removed)].concat();
    for ChangedObject { object, fields, more_fields } in &changes.changed {
        let mut add = |sign: &str, text: &str| lines.push(vec![sign.to_owned(), one_line(text).into_owned()]);
        add("  ~", object);
        fields.iter().for_each(|field| add("", &format!("  {field}")));
        if *more_fields > 0 {
            add("", &format!("  and {more_fields} more fields"));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn snapshot(phase: &str, old: Option<&str>) -> (Snapshot, Subscription) {
        let csv = |name: &str, phase: &str, spec: Value| -> ClusterServiceVersion {
            serde_json::from_value(json!({
                "metadata": {"name": name}, "spec": spec, "status": {"phase": phase, "reason": "InstallWaiting"},
            }))
            .unwrap()
        };
        let mut csvs = vec![csv("memo.v2", phase, json!({"replaces": "memo.v1"}))];
        csvs.extend(old.map(|phase| csv("memo.v1", phase, json!({}))));
        let subscription: Subscription = serde_json::from_value(json!({
            "metadata": {"name": "memo"}, "spec": {}, "status": {"currentCSV": "memo.v2", "installedCSV": "memo.v2"},
        }))
        .unwrap();
        (Snapshot { namespace: "demo".into(), csvs, ..Snapshot::default() }, subscription)
    }

    #[test]
    fn rehearsal_during_an_upgrade_is_refused() {
        let check = |phase: &str, old: Option<&str>, expected: Option<&str>| {
            let (snapshot, subscription) = snapshot(phase, old);
            let refused = check_progress(&snapshot, &subscription).err();
            assert_eq!(refused.is_some(), expected.is_some(), "{phase}");
            if let (Some(refused), Some(expected)) = (refused, expected) {
                assert!(refused.to_string().starts_with(expected), "{refused}");
                assert!(refused.hints()[0].contains("flyball olm why memo -n demo"));
                assert_eq!(refused.hints().len(), if old.is_some() { 2 } else { 1 });
            }
        };
        check("Succeeded", None, None);
        check("Installing", Some("Replacing"), Some("an upgrade from memo.v1 to memo.v2 is in progress: Installing"));
        check("Pending", None, Some("memo.v2, the current version, does not run yet: Pending"));
    }

    #[test]
    fn result_without_an_upgrade_is_null() {
        let none = NoUpgrade {
            subscription: "memo".into(),
            namespace: "demo".into(),
            from: "memo.v2".into(),
            upgrade: None,
            message: "nothing".into(),
            succeeded: true,
            hints: vec!["a hint".into()],
        };
        let expected = json!({"subscription": "memo", "namespace": "demo", "from": "memo.v2", "upgrade": null,
            "message": "nothing", "succeeded": true});
        assert_eq!(json!(none), expected);
    }
}
