//! `flyball olm why`.

use super::absence;
use super::conflict;
use super::definitions;
use super::elsewhere;
use super::extensions::{self, ExtensionReport};
use super::manager::ManagedCluster;
use super::objects::{self, CatalogArgs, ObjectArgs};
use super::pods;
use super::unread::Unread;
use crate::cluster::connection::{Connection, block_on};
use crate::error::Result;
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, one_line, paint, print_line};
use clap::Args;
use flyball_lifecycle::api::labels::ROLLOUT_PREFIX;
use flyball_lifecycle::diagnosis::{
    Cause, Diagnosis, NextVersion, Selection, Severity, Snapshot, diagnose, diagnose_csv,
};
use kube::ResourceExt;
use serde::Serialize;
use std::process::ExitCode;

/// Explain why a Subscription has its version and no other one, and what prevents or delays it
///
/// Reads the objects of the namespace and loads the catalogs, and resolves as the lifecycle manager does; changes
/// nothing. Works on any cluster with the APIs of OLM. Exits with 1 if something prevents the installation.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball olm why memo -n demo
  flyball olm why memo.v1.1.0 -n demo            a ClusterServiceVersion
  flyball olm why memo -n demo -o json
  flyball olm why memo --catalog community=catalog/   for a catalog that only the cluster can reach")]
pub(super) struct WhyArgs {
    /// Subscription, ClusterServiceVersion or ClusterExtension
    #[arg(value_name = "SUBSCRIPTION|CSV|EXTENSION")]
    name: String,
    #[command(flatten)]
    objects: ObjectArgs,
    #[command(flatten)]
    catalogs: CatalogArgs,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// An explanation, and the parts that the user may not read.
#[derive(Serialize)]
struct Report<'r, T> {
    #[serde(flatten)]
    report: &'r T,
    #[serde(skip_serializing_if = "Unread::is_empty")]
    unread: Unread,
}

/// The explanation of a ClusterServiceVersion.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CsvReport {
    csv: String,
    namespace: String,
    phase: String,
    healthy: bool,
    causes: Vec<Cause>,
    /// The Subscription that installed it, if there is one.
    subscription: Option<Diagnosis>,
}

pub(super) fn cmd_why(args: &WhyArgs) -> Result<ExitCode> {
    block_on(async {
        let place = ManagedCluster::connect_in(&args.objects.connection).await?;
        let connection = &place.connection;
        let global = &args.objects.global_namespace;
        let (snapshot, mut unread) = objects::snapshot(connection, global, &args.catalogs).await?;
        let manager = absence::state(&place, global, &mut unread).await?;
        let (kind, name) = args.name.split_once('/').unwrap_or(("", &args.name));
        let is_csv = kind.starts_with("csv") || kind.starts_with("clusterserviceversion");
        let missing = absence::cause(&manager, &snapshot, name).or(absence::second(&place, &manager).await);
        if let Some(mut diagnosis) = diagnose(&snapshot, name).filter(|_| !is_csv) {
            diagnosis.causes.extend(elsewhere::cause(connection, &snapshot, name).await);
            let version = current_version(&snapshot, name);
            let known = &mut diagnosis.causes[..];
            for cause in of_cluster(connection, &snapshot, &version, known, &mut unread).await? {
                add_first(Some(cause), &mut diagnosis.causes, &mut diagnosis.healthy);
            }
            add_first(missing, &mut diagnosis.causes, &mut diagnosis.healthy);
            match args.output {
                Some(output) => output.print(&Report { report: &diagnosis, unread })?,
                None => {
                    subscription_lines(&diagnosis).iter().for_each(|line| print_line(line));
                    unread.print();
                }
            }
            return Ok(code(&diagnosis.causes));
        }
        let Some(mut report) = csv_report(&snapshot, name) else {
            if let Some((extension, causes)) = extensions::find(connection, name).await? {
                return print_extension(args, &extension, &causes, unread);
            }
            let subscriptions = snapshot.subscriptions.iter().map(ResourceExt::name_any);
            let known: Vec<String> = subscriptions.chain(snapshot.csvs.iter().map(ResourceExt::name_any)).collect();
            return Err(objects::unknown(connection, name, "Subscription or ClusterServiceVersion", &known));
        };
        let known = &mut report.causes[..];
        for cause in of_cluster(connection, &snapshot, name, known, &mut unread).await? {
            add_first(Some(cause), &mut report.causes, &mut report.healthy);
        }
        add_first(missing, &mut report.causes, &mut report.healthy);
        match args.output {
            Some(output) => output.print(&Report { report: &report, unread })?,
            None => {
                csv_lines(&report).iter().for_each(|line| print_line(line));
                unread.print();
            }
        }
        Ok(code(&report.causes))
    })
}

/// Prints the explanation of a ClusterExtension.
fn print_extension(args: &WhyArgs, extension: &ExtensionReport, causes: &[Cause], unread: Unread) -> Result<ExitCode> {
    match args.output {
        Some(output) => {
            let report = serde_json::json!({"extension": extension, "causes": causes, "healthy": causes.is_empty()});
            output.print(&Report { report: &report, unread })?;
        }
        None => {
            let ExtensionReport { kind, name, source, installed, state, .. } = extension;
            let title = one_line(&format!("{kind} {name} requests package {source} and is")).into_owned();
            print_line(&format!("{title} {}", paint(style(causes.is_empty()), &one_line(state))));
            let installed = if installed.is_empty() { "none" } else { installed };
            print_line(&format!("  {:<11} {}", "installed", one_line(installed)));
            cause_lines(causes).iter().for_each(|line| print_line(line));
            unread.print();
        }
    }
    Ok(code(causes))
}

/// Returns the version that a Subscription has or installs.
fn current_version(snapshot: &Snapshot, name: &str) -> String {
    let found = snapshot.subscriptions.iter().find(|subscription| subscription.name_any() == name);
    found.map(|subscription| subscription.status.current_csv.clone()).unwrap_or_default()
}

/// Returns the causes from other objects of the cluster: pods, CRDs, custom resources, and other OperatorGroups. The
/// last one is the most specific. Those that are known get more specific remedies.
async fn of_cluster(
    connection: &Connection,
    snapshot: &Snapshot,
    version: &str,
    known: &mut [Cause],
    unread: &mut Unread,
) -> Result<Vec<Cause>> {
    let plans = definitions::plans_of(&snapshot.plans, version);
    let mut causes = definitions::causes(connection, snapshot, &plans, unread).await?;
    definitions::specify(known, &plans, &causes);
    causes.reverse();
    if let Some(csv) = snapshot.csvs.iter().find(|csv| csv.name_any() == version && csv.copied_from().is_none()) {
        causes.extend(conflict::causes(connection, csv, unread).await?);
        causes.extend(pods::cause(&connection.client, csv, unread).await?);
    }
    Ok(causes)
}

/// Adds the cause of all others: nothing happens without a manager.
fn add_first(cause: Option<Cause>, causes: &mut Vec<Cause>, is_healthy: &mut bool) {
    if let Some(cause) = cause {
        *is_healthy &= cause.severity == Severity::Notice;
        causes.insert(0, cause);
    }
}

/// Returns the exit code: 1 if something prevents the installation.
fn code(causes: &[Cause]) -> ExitCode {
    ExitCode::from(u8::from(causes.iter().any(|cause| cause.severity == Severity::Blocking)))
}

fn csv_report(snapshot: &Snapshot, name: &str) -> Option<CsvReport> {
    let causes = diagnose_csv(snapshot, name)?;
    let csv = snapshot.csvs.iter().find(|csv| csv.name_any() == name)?;
    let refers = |status: &flyball_lifecycle::api::SubscriptionStatus| {
        status.current_csv == name || status.installed_csv == name
    };
    let subscription = snapshot.subscriptions.iter().find(|subscription| refers(&subscription.status));
    Some(CsvReport {
        csv: name.to_owned(),
        namespace: snapshot.namespace.clone(),
        phase: format!("{:?}", csv.status.phase),
        healthy: causes.iter().all(|cause| cause.severity == Severity::Notice),
        subscription: subscription.and_then(|subscription| diagnose(snapshot, &subscription.name_any())),
        causes,
    })
}

fn csv_lines(report: &CsvReport) -> Vec<String> {
    let CsvReport { csv, namespace, phase, causes, subscription, .. } = report;
    let title = format!("ClusterServiceVersion {namespace}/{csv} is");
    let mut lines = vec![format!("{} {}", one_line(&title), paint(style(report.healthy), &one_line(phase)))];
    lines.extend(cause_lines(causes));
    match subscription {
        Some(diagnosis) => {
            lines.push(String::new());
            lines.extend(subscription_lines(diagnosis));
        }
        None => lines.push("no Subscription refers to it: it is not upgraded".to_owned()),
    }
    lines
}

fn style(is_good: bool) -> Style {
    if is_good { Style::Good } else { Style::Busy }
}

fn subscription_lines(diagnosis: &Diagnosis) -> Vec<String> {
    let Diagnosis { subscription, namespace, package, channel, catalog, installed, installing, .. } = diagnosis;
    let channel = if channel.is_empty() { "the default channel".to_owned() } else { format!("channel {channel}") };
    let title = paint(Style::Strong, &one_line(&format!("Subscription {namespace}/{subscription}")));
    let request = format!("requests package {package} from {channel} of CatalogSource {catalog}");
    let mut lines = vec![format!("{title} {}", one_line(&request))];
    let mut fact = |name: &str, text: &str| lines.push(format!("  {name:<11} {}", one_line(text)));
    fact("installed", if installed.is_empty() { "none" } else { installed.as_str() });
    if !installing.is_empty() {
        fact("installing", installing);
    }
    let next = diagnosis.selection.as_ref().and_then(|selection| selection.next.as_ref());
    match next {
        Some(next) => {
            let NextVersion { name, channel, because, .. } = next;
            let but = if is_unreadable(diagnosis) { "; but its bundle cannot be read, see below" } else { "" };
            fact("next", &format!("{name}, channel {channel}: {because}{but}"));
        }
        None if is_newest(diagnosis) => fact("next", "none: the newest version of the channel is installed"),
        None if diagnosis.selection.as_ref().is_some_and(|selection| selection.facts.is_empty()) => {
            match held_by(diagnosis) {
                Some(cause) => fact("next", &format!("none: {}, see below", cause.message)),
                None => fact("next", "none: no version of the channel upgrades the installed one"),
            }
        }
        None => {}
    }
    lines.extend(cause_lines(&diagnosis.causes));
    lines.extend(diagnosis.selection.iter().flat_map(selection_lines));
    lines
}

/// Returns true if the manager could not read the bundle of the next version.
fn is_unreadable(diagnosis: &Diagnosis) -> bool {
    diagnosis.causes.iter().any(|cause| cause.field == "status.conditions[BundleUnpackFailed]")
}

/// Returns the pin, the rollback or the rollout that prevents a newer version of the channel.
fn held_by(diagnosis: &Diagnosis) -> Option<&Cause> {
    let annotation = diagnosis.selection.as_ref().map(|selection| &*selection.held_by).unwrap_or_default();
    let is_it = |cause: &&Cause| {
        let of = cause.field.strip_prefix("metadata.annotations[").and_then(|field| field.strip_suffix(']'));
        // A rollout is a cause only while it holds versions back.
        of.is_some_and(|of| of == annotation || of.starts_with(ROLLOUT_PREFIX))
    };
    diagnosis.causes.iter().find(is_it)
}

/// Returns true if the first candidate, which is the newest version of the channel, is installed.
fn is_newest(diagnosis: &Diagnosis) -> bool {
    let candidates = diagnosis.selection.as_ref().map(|selection| &selection.candidates[..]).unwrap_or_default();
    candidates.first().is_some_and(|newest| newest.name == diagnosis.installed)
}

fn cause_lines(causes: &[Cause]) -> Vec<String> {
    let mut lines = Vec::new();
    for Cause { severity, object, field, message, remedy } in causes {
        let (word, style) = match severity {
            Severity::Blocking => ("blocked", Style::Bad),
            Severity::Waiting => ("waiting", Style::Busy),
            Severity::Notice => ("note", Style::Faint),
        };
        let place = if field.is_empty() { object.clone() } else { format!("{object}, {field}") };
        lines.push(format!("{}: {}", paint(style, word), one_line(&format!("{place}: {message}"))));
        if !remedy.is_empty() {
            lines.push(format!("  remedy: {}", one_line(remedy)));
        }
    }
    lines
}

/// Formats the candidates. The facts against them are the message of a cause.
fn selection_lines(selection: &Selection) -> Vec<String> {
    let Selection { candidates, more_candidates, requirements, remedies, .. } = selection;
    let mut lines = Vec::new();
    if remedies.len() > 1 {
        lines.push("each of these would make it work:".to_owned());
        lines.extend(remedies.iter().map(|remedy| format!("  - {}", one_line(remedy))));
    }
    let cell = |text: &String| one_line(text).into_owned();
    if !candidates.is_empty() {
        let heading = ["VERSION", "CHANNEL", "RESULT"].map(str::to_owned).to_vec();
        let rows = candidates.iter().map(|of| {
            let verdict = cell(&of.verdict);
            let verdict = if of.chosen { paint(Style::Good, &format!("chosen: {verdict}")) } else { verdict };
            vec![cell(&of.name), cell(&of.channel), verdict]
        });
        lines.push(String::new());
        lines.extend(columns(std::iter::once(heading).chain(rows).collect()));
        if *more_candidates > 0 {
            lines.push(format!("and {more_candidates} more versions"));
        }
    }
    if !requirements.is_empty() {
        let heading = ["BUNDLE", "REQUIRES", "MET BY", "FROM"].map(str::to_owned).to_vec();
        let rows = requirements.iter().map(|of| [&of.bundle, &of.requirement, &of.met_by, &of.from].map(cell).to_vec());
        lines.push(String::new());
        lines.extend(columns(std::iter::once(heading).chain(rows).collect()));
    }
    lines
}
