//! `flyball olm why`.

use super::objects::{self, CatalogArgs, ObjectArgs};
use crate::cluster::connection::block_on;
use crate::error::Result;
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, paint, print_line};
use clap::Args;
use flyball_lifecycle::diagnosis::{Cause, Diagnosis, Selection, Severity, Snapshot, diagnose, diagnose_csv};
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
    /// Subscription or ClusterServiceVersion
    #[arg(value_name = "SUBSCRIPTION|CSV")]
    name: String,
    #[command(flatten)]
    objects: ObjectArgs,
    #[command(flatten)]
    catalogs: CatalogArgs,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
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
        let connection = args.objects.connection.connect().await?;
        let snapshot = objects::snapshot(&connection, &args.objects.global_namespace, &args.catalogs).await?;
        let (kind, name) = args.name.split_once('/').unwrap_or(("", &args.name));
        let is_csv = kind.starts_with("csv") || kind.starts_with("clusterserviceversion");
        if let Some(diagnosis) = diagnose(&snapshot, name).filter(|_| !is_csv) {
            match args.output {
                Some(output) => output.print(&diagnosis)?,
                None => print_subscription(&diagnosis),
            }
            return Ok(code(&diagnosis.causes));
        }
        let Some(report) = csv_report(&snapshot, name) else {
            let subscriptions = snapshot.subscriptions.iter().map(ResourceExt::name_any);
            let known: Vec<String> = subscriptions.chain(snapshot.csvs.iter().map(ResourceExt::name_any)).collect();
            return Err(objects::unknown(&connection, name, "Subscription or ClusterServiceVersion", &known));
        };
        match args.output {
            Some(output) => output.print(&report)?,
            None => print_csv(&report),
        }
        Ok(code(&report.causes))
    })
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

fn print_csv(report: &CsvReport) {
    let CsvReport { csv, namespace, phase, causes, subscription, .. } = report;
    print_line(&format!("ClusterServiceVersion {namespace}/{csv} is {}", paint(style(report.healthy), phase)));
    print_causes(causes);
    match subscription {
        Some(diagnosis) => {
            print_line("");
            print_subscription(diagnosis);
        }
        None => print_line("no Subscription refers to it: it is not upgraded"),
    }
}

fn style(is_good: bool) -> Style {
    if is_good { Style::Good } else { Style::Busy }
}

fn print_subscription(diagnosis: &Diagnosis) {
    let Diagnosis { subscription, namespace, package, channel, catalog, installed, installing, .. } = diagnosis;
    let channel = if channel.is_empty() { "the default channel".to_owned() } else { format!("channel {channel}") };
    let title = paint(Style::Strong, &format!("Subscription {namespace}/{subscription}"));
    print_line(&format!("{title} requests package {package} from {channel} of CatalogSource {catalog}"));
    let or_none = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    print_line(&format!("  {:<11} {}", "installed", or_none(installed)));
    if !installing.is_empty() {
        print_line(&format!("  {:<11} {installing}", "installing"));
    }
    let next = diagnosis.selection.as_ref().and_then(|selection| selection.next.as_ref());
    match next {
        Some(next) => {
            print_line(&format!("  {:<11} {}, channel {}: {}", "next", next.name, next.channel, next.because))
        }
        None if diagnosis.selection.as_ref().is_some_and(|selection| selection.facts.is_empty()) => {
            print_line(&format!("  {:<11} none: no version of the channel upgrades the installed one", "next"));
        }
        None => {}
    }
    print_causes(&diagnosis.causes);
    if let Some(selection) = &diagnosis.selection {
        print_selection(selection);
    }
}

fn print_causes(causes: &[Cause]) {
    for Cause { severity, object, field, message, remedy } in causes {
        let (word, style) = match severity {
            Severity::Blocking => ("blocked", Style::Bad),
            Severity::Waiting => ("waiting", Style::Busy),
            Severity::Notice => ("note", Style::Faint),
        };
        let place = if field.is_empty() { object.clone() } else { format!("{object}, {field}") };
        print_line(&format!("{}: {place}: {message}", paint(style, word)));
        if !remedy.is_empty() {
            print_line(&format!("  remedy: {remedy}"));
        }
    }
}

fn print_selection(selection: &Selection) {
    let Selection { candidates, more_candidates, requirements, facts, remedies, .. } = selection;
    if !facts.is_empty() {
        print_line("\nno version can be installed, since:");
        facts.iter().for_each(|fact| print_line(&format!("  - {fact}")));
    }
    if remedies.len() > 1 {
        print_line("each of these would make it work:");
        remedies.iter().for_each(|remedy| print_line(&format!("  - {remedy}")));
    }
    if !candidates.is_empty() {
        let heading = ["VERSION", "CHANNEL", "RESULT"].map(str::to_owned).to_vec();
        let rows = candidates.iter().map(|of| {
            let verdict =
                if of.chosen { paint(Style::Good, &format!("chosen: {}", of.verdict)) } else { of.verdict.clone() };
            vec![of.name.clone(), of.channel.clone(), verdict]
        });
        print_line("");
        columns(std::iter::once(heading).chain(rows).collect()).iter().for_each(|line| print_line(line));
        if *more_candidates > 0 {
            print_line(&format!("and {more_candidates} more versions"));
        }
    }
    if !requirements.is_empty() {
        let heading = ["BUNDLE", "REQUIRES", "MET BY", "FROM"].map(str::to_owned).to_vec();
        let rows = requirements
            .iter()
            .map(|of| vec![of.bundle.clone(), of.requirement.clone(), of.met_by.clone(), of.from.clone()]);
        print_line("");
        columns(std::iter::once(heading).chain(rows).collect()).iter().for_each(|line| print_line(line));
    }
}
