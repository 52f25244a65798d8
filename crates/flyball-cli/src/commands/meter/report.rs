//! `flyball meter report`: the results of a built-in query.

use super::ScopeArgs;
use super::collect;
use super::export;
use super::format::Format;
use crate::cluster::connection::block_on;
use crate::error::{Error, Result, ResultExt};
use crate::files::private::PrivateDirectory;
use crate::render::terminal::{print_labeled, print_line};
use clap::Args;
use flyball::Clock;
use flyball_core::time::{parse_rfc3339, parse_unsigned_duration};
use flyball_metering::query::{Builtins, Inputs, Request, builtin, builtin_names, run};
use flyball_metering::store::{STATE, Store, USAGE_UNTIL};
use std::path::PathBuf;
use std::time::Duration;

/// Report what pods, custom resources and tenants requested and used
///
/// Without --data, the cluster is read now: requests and storage of existing pods and claims count since their own
/// start, also before the command ran. Pods that are gone, and usage in the past, need the history of
/// `flyball meter run`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball meter report                                   list the queries
  flyball meter report custom-resource-usage --since 24h
  flyball meter report pod-cpu-usage --for 10m           watch usage for ten minutes
  flyball meter report namespace-cpu-request --since 2026-07-01T00:00:00Z --data DIR -o csv")]
pub(super) struct ReportArgs {
    /// Name of the query; without one, the queries are listed
    query: Option<String>,
    #[command(flatten)]
    scope: ScopeArgs,
    /// Begin of the period: a time such as 2026-07-01T00:00:00Z, or a duration before its end such as 24h
    #[arg(long, default_value = "1h", value_name = "TIME")]
    since: String,
    /// End of the period; defaults to now, with --data to the end of the current five minutes
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Watch the cluster for this time before reporting on it; usage is polled every 15 seconds
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_time)]
    #[arg(conflicts_with_all = ["data", "since", "until"])]
    watch: Option<Duration>,
    /// Data directory of an operator on this machine, instead of the cluster
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Value of an input of the query
    #[arg(long, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// Label of pods and claims with the name of their tenant; defaults to the namespace
    #[arg(long, value_name = "LABEL")]
    tenant_label: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let time = parse_unsigned_duration(text).filter(|time| *time >= Duration::from_secs(1));
    time.ok_or_else(|| "must be a second or more, such as 10m".into())
}

pub(super) fn cmd_report(args: &ReportArgs) -> Result<()> {
    let Some(name) = &args.query else {
        builtin_names().into_iter().for_each(print_line);
        return Ok(());
    };
    let query = builtin(name).ok_or_else(|| {
        Error::usage(format!("there is no query {name:?}")).hint("list the queries: flyball meter report")
    })?;
    let inputs = inputs(&args.input)?;
    let (directory, store);
    let (mut since, mut until) = period(args, Clock::system().now().as_second())?;
    if let Some(data) = &args.data {
        store = export::open(data)?;
    } else {
        directory = PrivateDirectory::new("flyball-meter")?;
        store = Store::open(directory.path()).context("cannot store what is collected")?;
        block_on(gather(args, &store, until))?;
        if let Some(time) = args.watch {
            if query.columns.iter().any(|column| column.name.contains("usage")) {
                note_missing_usage(&store, time)?;
            }
            let ends = [STATE, USAGE_UNTIL].map(|of| store.progress(of).context("cannot read what was collected"));
            let end = ends.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().max();
            (since, until) = (until, end.unwrap_or(until).max(until + 1));
        }
    }
    let namespace = args.scope.namespace.clone().unwrap_or_default();
    let (is_scoped, namespace) = (args.scope.namespace.is_some(), namespace.as_str());
    let request = Request { query: &query, since, until, inputs: &inputs, namespace, is_scoped, catalog: &Builtins };
    let results = run(&store, &request).context("cannot report")?;
    args.output.print(&results.columns, &results.rows)
}

/// Prints a note if a watch has little or no usage.
fn note_missing_usage(store: &Store, time: Duration) -> Result<()> {
    let seconds = collect::POLL_INTERVAL.as_secs();
    if time < 2 * collect::POLL_INTERVAL {
        print_labeled(
            "note",
            &format!(
                "usage is polled every {seconds} s, so a watch of {} s has little or none: --for 2m",
                time.as_secs()
            ),
        );
    } else if store.progress(USAGE_UNTIL).context("cannot read what was collected")?.is_none() {
        print_labeled("note", "no usage was observed: the cluster serves no metrics.k8s.io, or you may not read it");
    }
    Ok(())
}

/// Collects the cluster as it is, or for the time of the arguments since now.
async fn gather(args: &ReportArgs, store: &Store, now: i64) -> Result<()> {
    let connection = args.scope.cluster.connect().await?;
    if let Some(time) = args.watch {
        return collect::watch_for(&connection.client, store, (now, time), args.tenant_label.clone()).await;
    }
    let namespace = args.scope.namespace.as_deref();
    let collection = collect::now(&connection.client, namespace, args.tenant_label.clone()).await?;
    collect::store(store, &collection, Clock::system().now().as_second())
}

fn inputs(texts: &[String]) -> Result<Inputs> {
    let parse = |text: &String| {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| Error::usage(format!("--input {text:?} has no value")).hint("use --input NAME=VALUE"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    texts.iter().map(parse).collect()
}

/// Length of the shortest buckets in which a history adds usage up.
const USAGE_BUCKET_SECONDS: i64 = 300;

/// Returns begin and end of the period in seconds.
fn period(args: &ReportArgs, now: i64) -> Result<(i64, i64)> {
    if args.watch.is_some() {
        return Ok((now, now));
    }
    let wrong = |flag: &str, text: &str| {
        Error::usage(format!("{flag} {text:?} is not a time")).hint("use a time such as 2026-07-01T00:00:00Z")
    };
    let until = match &args.until {
        // The newest bucket of usage contains nothing later than now, so all of it counts.
        None if args.data.is_some() => (now / USAGE_BUCKET_SECONDS + 1) * USAGE_BUCKET_SECONDS,
        None => now,
        Some(text) => parse_rfc3339(text).ok_or_else(|| wrong("--until", text))?.as_second(),
    };
    let since = match (parse_rfc3339(&args.since), parse_unsigned_duration(&args.since)) {
        (Some(time), _) => time.as_second(),
        (None, Some(duration)) => until.saturating_sub(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)),
        (None, None) => return Err(wrong("--since", &args.since).hint("or a duration such as 24h")),
    };
    match since < until {
        true => Ok((since, until)),
        false => Err(Error::usage("the period ends before it begins").hint("compare --since and --until")),
    }
}
