//! `flyball meter run`: the metering operator in the foreground, with the command line of every operator.

use crate::duration::parse_flag;
use crate::operator::metrics::{METRICS_PORT, free_address};
use crate::operator::ports::{PAGES, PortReservation};
use crate::render::terminal::print_labeled;
use crate::why::TokenArgs;
use clap::Args;
use flyball::{HealthServer, MetricsServer, Operator};
use flyball_metering::store::Retention;
use flyball_metering::{NAME, OperatorToken, Settings};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Run the metering operator against the current context, with the flags of every operator
///
/// `flyball meter run manifests` prints its CRDs and roles, `flyball meter run --help` its flags.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  flyball meter run --data /var/lib/flyball-metering
  flyball meter run --data DIR --prometheus http://127.0.0.1:9090
  flyball meter run manifests"
)]
pub(super) struct RunArgs {
    /// Arguments of the operator
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// The metering operator: keeps the history of requests and usage, and runs Reports.
#[derive(Args, Debug)]
struct Flags {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/flyball-metering")]
    data: PathBuf,
    /// Namespace whose Reports see the data of all namespaces; others see their own
    #[arg(long, value_name = "NAMESPACE", default_value = "metering")]
    metering_namespace: String,
    /// Label of pods and claims with the name of their tenant; defaults to the namespace
    #[arg(long, value_name = "LABEL")]
    tenant_label: Option<String>,
    /// Custom resources to read, to find their owners, as sites.example.com
    #[arg(long, value_name = "RESOURCE")]
    owner_resource: Vec<String>,
    /// Allowed Prometheus servers; the first is the default
    #[arg(long, value_name = "URL")]
    prometheus: Vec<String>,
    /// Addresses of the metrics of operators, as NAME=http://127.0.0.1:8080; by custom resource if they have a ledger
    #[arg(long, value_name = "NAME=URL")]
    operator: Vec<String>,
    #[command(flatten)]
    token: TokenArgs,
    /// File with the CA of operators that serve https
    #[arg(long, value_name = "FILE")]
    operator_ca: Option<PathBuf>,
    /// Interval of polls of metrics.k8s.io and of operators; 0 disables both
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_flag)]
    poll_interval: Duration,
    /// Time for late data after the end of a period
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_flag)]
    grace_period: Duration,
    /// Time for which the history is kept
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = parse_flag)]
    retention: Duration,
    /// Address of the endpoint for results, on loopback, as 127.0.0.1:8082
    #[arg(long, value_name = "ADDRESS", value_parser = parse_loopback)]
    results_addr: Option<SocketAddr>,
}

impl Flags {
    fn into_operator(self) -> Operator {
        let operator_token = match self.token.file() {
            Some(file) => Some(OperatorToken::File(file.to_owned())),
            None => self.token.token().ok().flatten().map(OperatorToken::Value),
        };
        let settings = Settings {
            namespace: self.metering_namespace,
            tenant_label: self.tenant_label,
            owner_resources: self.owner_resource,
            prometheus: self.prometheus,
            operators: self.operator,
            operator_token,
            insecure_operator_token: self.token.insecure_operator_token,
            operator_authority: self.operator_ca,
            poll_interval: Some(self.poll_interval).filter(|interval| !interval.is_zero()),
            grace: self.grace_period,
            retention: Retention { history: self.retention, ..Retention::default() },
            address: self.results_addr,
            ..Settings::new(self.data)
        };
        flyball_metering::operator(settings)
    }
}

/// Tokens pass the endpoint in clear text, so that it listens on this machine only.
fn parse_loopback(text: &str) -> Result<SocketAddr, String> {
    let address: Option<SocketAddr> = text.parse().ok();
    address.filter(|address| address.ip().is_loopback()).ok_or_else(|| {
        "must be an address on loopback, such as 127.0.0.1:8082; reach it by kubectl port-forward".into()
    })
}

pub(super) fn cmd_run(args: RunArgs) -> ExitCode {
    let texts: Vec<String> = args.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let ports = if serves(&texts) { Ports::choose(&texts) } else { Ports::default() };
    let declare = |flags: Flags| ports.declare(flags.into_operator());
    Operator::main_with_from(std::iter::once(NAME.into()).chain(args.args), declare)
}

/// Returns true if arguments run the operator, rather than print something about it.
fn serves(args: &[String]) -> bool {
    let prints = ["manifests", "describe", "help", "--help", "-h", "--version", "-V"];
    !args.iter().any(|arg| prints.contains(&arg.as_str()))
}

/// The addresses of pages whose usual ports are in use.
#[derive(Debug, Default)]
struct Ports {
    metrics: Option<SocketAddr>,
    health: Option<SocketAddr>,
    /// The usual ports, which no other command of this user gets while this operator runs.
    _reserved: Vec<PortReservation>,
}

impl Ports {
    /// Chooses a free port for each page whose address is not configured and whose usual port is in use.
    fn choose(args: &[String]) -> Self {
        let (mut metrics, mut health, mut reserved) = (None, None, Vec::new());
        for page in PAGES.iter().filter(|page| !page.is_configured(args, &BTreeMap::new())) {
            if let Some(port) = PortReservation::new(page.port) {
                reserved.push(port);
                continue;
            }
            // Without a free port, the operator fails with an error about the usual one.
            let Some(address) = free_address().ok().and_then(|address| address.parse().ok()) else { continue };
            let note = format!("127.0.0.1:{} is in use: {} at http://{address}{}", page.port, page.what, page.path);
            print_labeled("note", &note);
            let chosen = if page.port == METRICS_PORT { &mut metrics } else { &mut health };
            *chosen = Some(address);
        }
        Self { metrics, health, _reserved: reserved }
    }

    /// Sets the defaults of the addresses, which flags override.
    fn declare(&self, operator: Operator) -> Operator {
        let metrics = MetricsServer { address: self.metrics, ..MetricsServer::default() };
        let health = HealthServer { address: self.health, ..HealthServer::default() };
        operator.metrics_server(metrics).health_server(health)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_served_on_loopback_only() {
        assert!(parse_loopback("127.0.0.1:8082").is_ok() && parse_loopback("[::1]:1").is_ok());
        for address in ["0.0.0.0:8082", "10.0.0.1:8082", "8082", ""] {
            assert!(parse_loopback(address).is_err(), "{address}");
        }
    }
}
