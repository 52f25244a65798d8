//! `flyball meter export`: the stored results of a Report.

use super::format::Format;
use super::period;
use crate::cluster::connection::{ContextArgs, block_on};
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::{print_line, print_text};
use crate::web::Web;
use bytes::Bytes;
use clap::Args;
use flyball::Clock;
use flyball_core::time::{Timestamp, rfc3339};
use flyball_metering::api::GROUP;
use flyball_metering::endpoint::columns;
use flyball_metering::store::{Cell, Store};
use http::header::AUTHORIZATION;
use http::{Request, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of the operator.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of the question to the cluster if a Report without results exists.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Export the results of a Report from the history of the operator
///
/// With --server, the results come from the operator's endpoint, for example through `kubectl port-forward`. The token
/// is that of a user who may get the Report: kubectl create token ACCOUNT.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball meter export namespace-cpu-daily -n metering --data DIR -o csv
  flyball meter export namespace-cpu-daily -n metering --server http://127.0.0.1:8082 -o json")]
pub(super) struct ExportArgs {
    /// Name of the Report
    report: String,
    /// Namespace of the Report
    #[arg(short, long, default_value = "metering")]
    namespace: String,
    /// Data directory of an operator on this machine
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    data: Option<PathBuf>,
    /// Address of the operator's endpoint for results
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Token for the endpoint
    #[arg(long, env = "FLYBALL_METERING_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    /// First time of the results, such as 2026-07-01T00:00:00Z, or a duration before the last one such as 7d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Last time of the results
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Csv)]
    output: Format,
}

pub(super) fn cmd_export(args: &ExportArgs) -> Result<()> {
    match (&args.data, &args.server) {
        (Some(data), _) => export(args, &open(data)?),
        (None, Some(server)) => block_on(fetch(args, server)),
        (None, None) => Err(Error::usage("neither --data nor --server is given")
            .hint("--data DIR reads the data directory of an operator on this machine")
            .hint("--server URL reads from its --results-addr, as with kubectl port-forward: http://127.0.0.1:8082")),
    }
}

/// Opens the history in a data directory of an operator.
pub(super) fn open(data: &Path) -> Result<Store> {
    if !data.is_dir() {
        return Err(Error::new(format!("{} is not a data directory", data.display()))
            .hint("use the directory that flyball meter run --data was started with"));
    }
    Store::open(data).context("cannot read the history")
}

fn export(args: &ExportArgs, store: &Store) -> Result<()> {
    let (since, until) = period_of(args)?;
    let found = store.report(&args.namespace, &args.report).context("cannot read the history")?;
    let Some(report) = found else { return Err(no_results(args, block_on(exists(args))?)) };
    let (since, until) = (since.unwrap_or(i64::MIN), until.unwrap_or(i64::MAX));
    let results = store.results(&report, since, until).context("cannot read the history")?;
    let rows: Vec<Vec<Cell>> = results.into_iter().flat_map(|result| result.rows).collect();
    args.output.print(&columns(&report.columns), &rows)
}

/// Returns begin and end of the results in seconds.
fn period_of(args: &ExportArgs) -> Result<(Option<i64>, Option<i64>)> {
    let until = args.until.as_ref().map(|text| period::time("--until", text)).transpose()?;
    let end = until.unwrap_or_else(|| Clock::system().now().as_second());
    let since = args.since.as_ref().map(|text| period::since(text, end)).transpose()?;
    Ok((since, until))
}

/// Returns true if the Report exists in the cluster of the current context; `None` if the cluster does not respond.
async fn exists(args: &ExportArgs) -> Result<Option<bool>> {
    let lookup = async {
        let connection = ContextArgs { kubeconfig: None, context: None }.connect().await.ok()?;
        let path = format!("/apis/{GROUP}/v1alpha1/namespaces/{}/reports/{}", args.namespace, args.report);
        match connection.client.request::<Value>(Request::get(path).body(Vec::new()).ok()?).await {
            Ok(_) => Some(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Some(false),
            Err(_) => None,
        }
    };
    Ok(tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await.ok().flatten())
}

/// Returns the error for a Report without results.
fn no_results(args: &ExportArgs, exists: Option<bool>) -> Error {
    let ExportArgs { report, namespace, .. } = args;
    match exists {
        Some(false) => Error::new(format!(
            "there is no Report {report:?} in namespace {namespace} of the current cluster, and no results of it"
        ))
        .hint(list_hint(args)),
        Some(true) | None => Error::new(format!("the Report {report:?} in namespace {namespace} has no results"))
            .hint(condition_hint(args)),
    }
}

fn condition_hint(args: &ExportArgs) -> String {
    format!("see its conditions: flyball get report {} -n {} -o yaml", args.report, args.namespace)
}

fn list_hint(args: &ExportArgs) -> String {
    format!("list the Reports: flyball get reports -n {}", args.namespace)
}

async fn fetch(args: &ExportArgs, server: &str) -> Result<()> {
    let format = match args.output {
        Format::Csv => "csv",
        Format::Json => "json",
        Format::Table => return Err(Error::usage("-o table needs --data").hint("use -o csv or -o json")),
    };
    let invalid = || Error::usage(format!("--server {server:?} is not a URL")).hint("use http://127.0.0.1:8082");
    let mut url = url::Url::parse(server).map_err(|_| invalid())?;
    url.path_segments_mut().map_err(|()| invalid())?.extend([
        "api",
        "v1",
        "namespaces",
        &args.namespace,
        "reports",
        &args.report,
    ]);
    url.query_pairs_mut().append_pair("format", format);
    let (since, until) = period_of(args)?;
    for (name, value) in [("since", since), ("until", until)] {
        if let Some(time) = value.and_then(|seconds| Timestamp::from_second(seconds).ok()) {
            url.query_pairs_mut().append_pair(name, &rfc3339(time));
        }
    }
    let token = args.token.as_deref().unwrap_or_default();
    let request = Request::get(url.as_str()).header(AUTHORIZATION, format!("Bearer {token}")).body(Bytes::new());
    let response = Web::new(TIMEOUT)?.send(request.context("invalid token")?).await?;
    let text = String::from_utf8_lossy(response.body());
    if !response.status().is_success() {
        return Err(rejection(args, response.status(), text.trim()));
    }
    match args.output {
        Format::Json => {
            let page: Page = serde_json::from_slice(response.body()).context("cannot read the response")?;
            print_line(&serde_json::to_string_pretty(&page.results).context("cannot write JSON")?);
        }
        _ => print_text(&text),
    }
    Ok(())
}

/// The response of the endpoint in JSON.
#[derive(Deserialize)]
struct Page {
    results: Vec<Value>,
}

/// Returns the error for a rejected request.
fn rejection(args: &ExportArgs, status: StatusCode, text: &str) -> Error {
    let error = Error::new(format!("the operator responds with status {}: {text}", status.as_u16()));
    match status {
        StatusCode::UNAUTHORIZED if args.token.as_ref().is_none_or(String::is_empty) => {
            error.hint("pass --token, or set FLYBALL_METERING_TOKEN: kubectl create token ACCOUNT")
        }
        StatusCode::UNAUTHORIZED => {
            error.hint("the token may have expired: create another one: kubectl create token ACCOUNT")
        }
        StatusCode::FORBIDDEN => error.hint(format!(
            "the user of the token needs the permission to get the Report {} in namespace {}",
            args.report, args.namespace
        )),
        StatusCode::NOT_FOUND if text.contains("exist") => error.hint(list_hint(args)),
        StatusCode::NOT_FOUND => error.hint(condition_hint(args)),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ExportArgs,
    }

    fn args(more: &[&str]) -> ExportArgs {
        Line::parse_from([&["export", "daily"], more].concat()).args
    }

    #[test]
    fn period_may_begin_a_duration_before_its_end() {
        let until = "1970-01-03T00:00:00Z";
        assert_eq!(period_of(&args(&["--since", "1d", "--until", until])).unwrap(), (Some(86_400), Some(172_800)));
        assert_eq!(period_of(&args(&[])).unwrap(), (None, None));
        assert!(period_of(&args(&["--since", "1d"])).unwrap().0.is_some());
        assert!(period_of(&args(&["--since", "yesterday"])).is_err());
    }

    #[test]
    fn rejections_name_their_own_remedy() {
        let hint = |token: &[&str], code: u16, text: &str| {
            let status = StatusCode::from_u16(code).unwrap();
            rejection(&args(token), status, text).hints().join("; ")
        };
        let token = ["--token", "t"];
        assert!(hint(&[], 401, "").contains("FLYBALL_METERING_TOKEN"));
        assert!(hint(&token, 401, "").contains("may have expired"));
        assert!(hint(&token, 403, "").contains("permission to get the Report daily"));
        let absent = hint(&token, 404, "the Report does not exist");
        assert!(absent.contains("flyball get reports -n metering"), "{absent}");
        let empty = hint(&token, 404, "the report has no results");
        assert!(empty.contains("flyball get report daily -n metering -o yaml"), "{empty}");
        for (code, text) in [(403, ""), (404, "")] {
            assert!(!hint(&token, code, text).contains("TOKEN"), "{code}");
        }
    }

    #[test]
    fn absent_report_differs_from_one_without_results() {
        let text = |exists| no_results(&args(&[]), exists).to_string();
        assert!(text(Some(false)).contains("there is no Report \"daily\" in namespace metering"));
        for exists in [Some(true), None] {
            assert!(text(exists).contains("the Report \"daily\" in namespace metering has no results"));
        }
    }
}
