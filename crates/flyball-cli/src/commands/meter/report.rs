//! `flyball meter report`: the results of a built-in query.

use super::ScopeArgs;
use super::collect;
use super::export;
use super::format::Format;
use super::period;
use crate::cluster::connection::block_on;
use crate::error::{Error, Result, ResultExt};
use crate::files::private::PrivateDirectory;
use crate::render::terminal::{print_labeled, print_line};
use crate::why::TokenArgs;
use clap::Args;
use flyball::Clock;
use flyball_metering::query::{Builtins, Definition, Inputs, Request, builtin, builtin_names, run};
use flyball_metering::store::Store;
use flyball_metering::{OperatorPolls, OperatorToken};
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
  flyball meter report operator-performance --for 2m --operator NAME=http://127.0.0.1:8080
  flyball meter report namespace-cpu-request --since 2026-07-01T00:00:00Z --data DIR -o csv")]
pub(super) struct ReportArgs {
    /// Name of the query; without one, the queries are listed
    query: Option<String>,
    #[command(flatten)]
    scope: ScopeArgs,
    /// Begin of the period: a time such as 2026-07-01T00:00:00Z, or a duration before its end such as 7d
    #[arg(long, default_value = "1h", value_name = "TIME")]
    since: String,
    /// End of the period; defaults to now, with --data to the end of the current five minutes
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Watch the cluster for this time before reporting on it; usage is polled every 15 seconds
    #[arg(long = "for", value_name = "DURATION", value_parser = period::watch_time)]
    #[arg(conflicts_with_all = ["data", "since", "until"])]
    watch: Option<Duration>,
    /// With --for, meter this operator as well: the address of its metrics, as NAME=http://127.0.0.1:8080
    #[arg(long, value_name = "NAME=URL", requires = "watch")]
    operator: Vec<String>,
    #[command(flatten)]
    token: TokenArgs,
    /// File with the CA of operators that serve https
    #[arg(long, value_name = "FILE")]
    operator_ca: Option<PathBuf>,
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
    let (mut since, mut until) = period_of(args, Clock::system().now().as_second())?;
    if let Some(data) = &args.data {
        store = export::open(data)?;
    } else {
        directory = PrivateDirectory::new("flyball-meter")?;
        store = Store::open(directory.path()).context("cannot store what is collected")?;
        let gathered = block_on(gather(args, &store, &query))?;
        gathered.notes.iter().for_each(|note| print_labeled("note", note));
        (since, until) = gathered.period.unwrap_or((since, until));
    }
    let namespace = args.scope.namespace.clone().unwrap_or_default();
    let (is_scoped, namespace) = (args.scope.namespace.is_some(), namespace.as_str());
    let request = Request { query: &query, since, until, inputs: &inputs, namespace, is_scoped, catalog: &Builtins };
    let results = run(&store, &request).context("cannot report")?;
    if let (Some(time), true) = (args.watch, results.rows.is_empty()) {
        idle_operators(&query, &args.operator, time).iter().for_each(|note| print_labeled("note", note));
    }
    args.output.print(&results.columns, &results.rows)
}

/// The data that was collected from the cluster.
struct Gathered {
    /// The period of a watch.
    period: Option<(i64, i64)>,
    /// Explanations of missing data.
    notes: Vec<String>,
}

/// Collects the cluster as it is, or for the time of the arguments since now.
async fn gather(args: &ReportArgs, store: &Store, query: &Definition) -> Result<Gathered> {
    let mut notes: Vec<String> = missing_operators(query, &args.operator).into_iter().collect();
    let operators = operators(args)?;
    let connection = args.scope.cluster.connect().await?;
    let reads_usage = query.columns.iter().any(|column| column.name.contains("usage"));
    if let Some(time) = args.watch {
        let tenant_label = args.tenant_label.clone();
        let watched = collect::watch_for(&connection.client, store, time, tenant_label, operators).await?;
        notes.extend(missing_usage(time, watched.has_usage).filter(|_| reads_usage));
        notes.extend(watched.problem);
        return Ok(Gathered { period: Some((watched.since, watched.until)), notes });
    }
    let namespace = args.scope.namespace.as_deref();
    let collection = collect::now(&connection.client, namespace, args.tenant_label.clone()).await?;
    if reads_usage {
        notes.push(match collect::usage(&connection.client).await {
            Ok(_) => "no usage: it counts while it is watched: --for 2m; past usage needs --data".to_owned(),
            Err(_) => collect::NO_USAGE.to_owned(),
        });
    }
    collect::store(store, &collection, Clock::system().now().as_second())?;
    Ok(Gathered { period: None, notes })
}

/// Prepares the polls of operators.
fn operators(args: &ReportArgs) -> Result<Vec<OperatorPolls>> {
    let token = match args.token.file() {
        Some(file) => Some(OperatorToken::File(file.to_owned())),
        None => args.token.token()?.map(OperatorToken::Value),
    };
    let polls = |address: &String| {
        let insecure_token = args.token.insecure_operator_token;
        OperatorPolls::new(address, token.clone(), insecure_token, args.operator_ca.as_ref())
            .map_err(|error| Error::new(format!("cannot meter the operator {address}: {error}")))
    };
    args.operator.iter().map(polls).collect()
}

/// Returns true for a query about the work of operators.
fn reads_operators(query: &Definition) -> bool {
    query.columns.iter().any(|column| column.name.contains("api_calls") || column.name.contains("cache_"))
}

/// Returns the note for a query without results, if operators were metered and did nothing.
fn idle_operators(query: &Definition, operators: &[String], time: Duration) -> Option<String> {
    (!operators.is_empty() && reads_operators(query))
        .then(|| format!("no results: the operators of --operator reconciled nothing in these {} s", time.as_secs()))
}

/// Returns the note for a query about the work of operators, if no operator is metered.
fn missing_operators(query: &Definition, operators: &[String]) -> Option<String> {
    if !operators.is_empty() || !reads_operators(query) {
        return None;
    }
    Some(
        "no API calls, reconciles and caches: pass the metrics of each operator, --for 2m --operator \
         NAME=http://127.0.0.1:8080, or --data with the history of flyball meter run --operator"
            .to_owned(),
    )
}

/// Returns the note for a watch with little or no usage.
fn missing_usage(time: Duration, has_usage: bool) -> Option<String> {
    let seconds = collect::POLL_INTERVAL.as_secs();
    match has_usage {
        false => Some(collect::NO_USAGE.to_owned()),
        true if time < 2 * collect::POLL_INTERVAL => Some(format!(
            "usage is polled every {seconds} s, so a watch of {} s has little or none: --for 2m",
            time.as_secs()
        )),
        true => None,
    }
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
fn period_of(args: &ReportArgs, now: i64) -> Result<(i64, i64)> {
    if args.watch.is_some() {
        return Ok((now, now));
    }
    let until = match &args.until {
        // The newest bucket of usage contains nothing later than now, so all of it counts.
        None if args.data.is_some() => (now / USAGE_BUCKET_SECONDS + 1) * USAGE_BUCKET_SECONDS,
        None => now,
        Some(text) => period::time("--until", text)?,
    };
    let since = period::since(&args.since, until)?;
    match since < until {
        true => Ok((since, until)),
        false => Err(Error::usage("the period ends before it begins").hint("compare --since and --until")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_explain_missing_usage() {
        let (short, long) = (Duration::from_secs(5), Duration::from_secs(60));
        for time in [short, long] {
            assert_eq!(missing_usage(time, false).as_deref(), Some(collect::NO_USAGE));
        }
        assert!(missing_usage(short, true).unwrap().starts_with("usage is polled every 15 s"));
        assert_eq!(missing_usage(long, true), None);
    }

    #[test]
    fn notes_explain_missing_operators() {
        let note = |query: &str, operators: &[String]| missing_operators(&builtin(query).unwrap(), operators);
        for query in ["operator-performance", "operator-memory", "custom-resource-usage"] {
            assert!(note(query, &[]).unwrap().contains("--operator NAME="), "{query}");
            assert_eq!(note(query, &["a=http://127.0.0.1:1".to_owned()]), None, "{query}");
        }
        assert_eq!(note("pod-cpu-request", &[]), None);
        let idle = |query: &str, operators: &[String]| {
            idle_operators(&builtin(query).unwrap(), operators, Duration::from_secs(60))
        };
        let operators = ["a=http://127.0.0.1:1".to_owned()];
        assert!(idle("operator-performance", &operators).unwrap().contains("nothing in these 60 s"));
        assert!(idle("operator-performance", &[]).is_none() && idle("pod-cpu-request", &operators).is_none());
    }
}
