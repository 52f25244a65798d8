//! `flyball meter export`: the stored results of a Report.

use super::format::Format;
use crate::cluster::connection::block_on;
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::print_text;
use crate::web::Web;
use bytes::Bytes;
use clap::Args;
use flyball_core::time::parse_rfc3339;
use flyball_metering::endpoint::columns;
use flyball_metering::store::{Cell, Store};
use http::Request;
use http::header::AUTHORIZATION;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of the operator.
const TIMEOUT: Duration = Duration::from_secs(60);

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
    /// First time of the results, such as 2026-07-01T00:00:00Z
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
    let time = |text: &Option<String>, default: i64| match text {
        None => Ok(default),
        Some(text) => parse_rfc3339(text).map(|time| time.as_second()).ok_or_else(|| {
            Error::usage(format!("{text:?} is not a time")).hint("use a time such as 2026-07-01T00:00:00Z")
        }),
    };
    let (since, until) = (time(&args.since, i64::MIN)?, time(&args.until, i64::MAX)?);
    let found = store.report(&args.namespace, &args.report).context("cannot read the history")?;
    let report = found.ok_or_else(|| {
        Error::new(format!("the Report {:?} in namespace {} has no results", args.report, args.namespace))
            .hint("see its conditions: flyball describe reports.metering.flyball.dev")
    })?;
    let results = store.results(&report, since, until).context("cannot read the history")?;
    let rows: Vec<Vec<Cell>> = results.into_iter().flat_map(|result| result.rows).collect();
    args.output.print(&columns(&report.columns), &rows)
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
    for (name, value) in [("since", &args.since), ("until", &args.until)] {
        if let Some(value) = value {
            url.query_pairs_mut().append_pair(name, value);
        }
    }
    let token = args.token.as_deref().unwrap_or_default();
    let request = Request::get(url.as_str()).header(AUTHORIZATION, format!("Bearer {token}")).body(Bytes::new());
    let response = Web::new(TIMEOUT)?.send(request.context("invalid token")?).await?;
    let text = String::from_utf8_lossy(response.body());
    if !response.status().is_success() {
        let error =
            Error::new(format!("the operator responds with status {}: {}", response.status().as_u16(), text.trim()));
        return Err(error.hint("set FLYBALL_METERING_TOKEN: kubectl create token ACCOUNT"));
    }
    print_text(&text);
    Ok(())
}
