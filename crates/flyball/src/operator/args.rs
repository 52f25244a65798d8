//! The command line of operators.

use super::otel::Export;
use super::{Operator, RunError, log, settings};
use crate::election::LeaderElection;
use crate::error::chain;
use crate::webhook::{Certificates, PORT};
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, ValueEnum};
use flyball_core::names;
use flyball_core::time::parse_unsigned_duration;
use futures_util::FutureExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

const AFTER_HELP: &str = "\
Options may also be set by environment variables, such as FLYBALL_METRICS_ADDR for --metrics-addr, or in the YAML file of \
--config, such as `metrics-addr: 0.0.0.0:8080`. Options override variables, variables override the file.";

// Without a doc comment, so that the help starts with that of the operator's own flags.
#[derive(Debug, Parser)]
#[command(name = "operator", after_help = AFTER_HELP)]
struct Cli<F: Args> {
    /// Command to run
    #[arg(value_enum, default_value = "run")]
    command: Command,
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten, next_help_heading = "Options of this operator")]
    flags: F,
}

// A command is an argument, not a subcommand: so every flag may precede or follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Command {
    /// Run the operator
    Run,
    /// Print the manifests to install (CRDs, roles, webhooks, policies) as JSON for kubectl
    Manifests,
    /// Print the description of the operator as JSON: controllers, kinds, webhooks and permissions
    Describe,
}

/// A Kubernetes operator.
#[derive(Args, Debug)]
struct NoFlags {}

#[derive(Args, Debug)]
struct CommonArgs {
    /// Namespaces to watch, separated by commas [default: all]
    #[arg(long, visible_alias = "namespaces", value_delimiter = ',')]
    namespace: Vec<String>,
    /// Path of the kubeconfig [default: KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// Address that serves /metrics; 0 for none [default: the operator's own, or 127.0.0.1:8080]
    #[arg(long, alias = "metrics-bind-address", value_name = "ADDRESS")]
    metrics_addr: Option<Address>,
    /// Serve /metrics over TLS, to users who may get this URL in the cluster
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    metrics_secure: Option<bool>,
    /// Directory with tls.crt and tls.key for /metrics [default: a self-signed certificate]
    #[arg(long, value_name = "DIRECTORY")]
    metrics_cert_dir: Option<PathBuf>,
    /// Address that serves /healthz and /readyz; 0 for none [default: the operator's own, or 127.0.0.1:8081]
    #[arg(long, alias = "health-probe-bind-address", value_name = "ADDRESS")]
    health_addr: Option<Address>,
    /// Address that serves webhooks; 0 for none [default: the operator's own, or port 9443, or a free port if the API
    /// server runs on this machine]
    #[arg(long, value_name = "ADDRESS")]
    webhook_addr: Option<Address>,
    /// URL at which the API server calls webhooks, such as https://10.0.0.7:9443 [default: the operator's own, or its
    /// service, or a loopback URL if the API server runs on this machine]
    #[arg(long, value_name = "URL", value_parser = parse_webhook_url)]
    webhook_url: Option<String>,
    /// Directory with tls.crt and tls.key for webhooks, whose issuer sets caBundle [default: the operator's own
    /// certificates]
    #[arg(long, value_name = "DIRECTORY")]
    webhook_cert_dir: Option<PathBuf>,
    /// Namespace of the operator itself [default: that of its pod, or of the kubeconfig's context]
    #[arg(long, value_name = "NAMESPACE")]
    operator_namespace: Option<String>,
    /// Name of the installation: of its lease, roles and webhook configurations [default: the operator's name]
    #[arg(long, value_name = "NAME", value_parser = parse_installed_name)]
    installed_as: Option<String>,
    /// Elect a leader among several replicas [default: true in a pod and in `manifests`, else false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: Option<bool>,
    /// Name of the lease, which differs for replicas that watch other namespaces [default: the operator's name]
    #[arg(long, alias = "leader-election-id", value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// Time without a renewal after which another replica takes over [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = parse_positive)]
    leader_elect_lease_duration: Option<Duration>,
    /// Time in which the leader tries to renew its lease before it stops [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse_positive)]
    leader_elect_renew_deadline: Option<Duration>,
    /// Interval at which the leader renews its lease [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = parse_positive)]
    leader_elect_retry_period: Option<Duration>,
    /// Threads for reconciles; more than one is useful only for CPU-bound reconciles
    #[arg(long, value_name = "N", default_value = "1")]
    threads: NonZeroUsize,
    /// Time for reconciles to end on shutdown [default: 25s]
    #[arg(long, alias = "graceful-shutdown-timeout", value_name = "DURATION", value_parser = parse_positive)]
    grace: Option<Duration>,
    /// Time for which a watch may fail before /readyz fails [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = parse_positive)]
    max_watch_staleness: Option<Duration>,
    /// File with options, in YAML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Format of the log
    #[arg(long, value_enum, default_value = "text")]
    log_format: log::Format,
    /// Increase log output: -v debug, -vv everything; RUST_LOG sets levels per module
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

/// Builds the runtime. Waking another thread costs more than most reconciles, so a single thread has no separate
/// worker.
fn runtime(threads: NonZeroUsize) -> std::io::Result<Runtime> {
    let mut builder = match threads.get() {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.worker_threads(threads.get()).enable_all().build()
}

fn parse_positive(text: &str) -> Result<Duration, String> {
    parse_unsigned_duration(text)
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "expected a duration such as 15s or 1m30s".into())
}

/// An address to listen on, or `0` for none.
#[derive(Clone, Copy, Debug)]
struct Address(Option<SocketAddr>);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self(None));
        }
        // As in Go, `:8080` means any address of the machine.
        let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
        full.parse().map(|address| Self(Some(address))).map_err(|_| "expected an IP address and a port, or 0".into())
    }
}

fn parse_installed_name(text: &str) -> Result<String, String> {
    let wrong = names::dns_label(text);
    if wrong.is_empty() { Ok(text.to_owned()) } else { Err(wrong.join("; ")) }
}

fn parse_webhook_url(text: &str) -> Result<String, String> {
    let url: Option<http::Uri> = text.parse().ok();
    let fits =
        url.is_some_and(|url| url.scheme_str() == Some("https") && url.host().is_some() && url.query().is_none());
    if fits {
        Ok(text.to_owned())
    } else {
        Err("expected https, a host and a port, such as https://10.0.0.7:9443".into())
    }
}

impl CommonArgs {
    /// Returns the settings of the leader election, if it is enabled.
    fn election(&self, declared: Option<LeaderElection>, command: Command) -> Option<LeaderElection> {
        let by_default = declared.is_some() || command != Command::Run || in_pod();
        let mut election = declared.unwrap_or_default();
        for (flag, value) in [
            (self.leader_elect_lease_duration, &mut election.lease_duration),
            (self.leader_elect_renew_deadline, &mut election.renew_deadline),
            (self.leader_elect_retry_period, &mut election.retry_period),
        ] {
            *value = flag.unwrap_or(*value);
        }
        election.lease = self.leader_elect_resource_name.clone().or(election.lease);
        self.leader_elect.unwrap_or(by_default).then_some(election)
    }

    /// Sets addresses and URL of the servers: those of the flags, else those of the code, else defaults.
    /// `is_api_server_local` is true if the API server calls webhooks through the loopback interface.
    fn set_addresses(&self, operator: &mut Operator, is_api_server_local: bool) {
        let webhooks = if is_api_server_local { (Ipv4Addr::LOCALHOST, 0) } else { (Ipv4Addr::UNSPECIFIED, PORT) };
        let webhook_server = &mut operator.webhook_server;
        for (flag, address, default) in [
            (self.metrics_addr, &mut operator.metrics_server.address, (Ipv4Addr::LOCALHOST, 8080)),
            (self.health_addr, &mut operator.health_server.address, (Ipv4Addr::LOCALHOST, 8081)),
            (self.webhook_addr, &mut webhook_server.address, webhooks),
        ] {
            *address = flag.map_or(address.or(Some(default.into())), |flag| flag.0);
        }
        let url = self.webhook_url.clone().or(webhook_server.url.take());
        webhook_server.url = url.or_else(|| is_api_server_local.then(|| "https://127.0.0.1:0".to_owned()));
    }
}

/// Returns true if this process runs in a pod.
fn in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Returns the file with the certificate authority of the cluster in a kubeconfig, if there is one.
fn authority_file(path: Option<&Path>, context: Option<&str>) -> Option<PathBuf> {
    let config = path.map_or_else(Kubeconfig::read, Kubeconfig::read_from).ok()?;
    let context = context.or(config.current_context.as_deref())?;
    let context = config.contexts.iter().find(|known| known.name == context)?.context.as_ref()?;
    let cluster = config.clusters.iter().find(|known| known.name == context.cluster)?.cluster.as_ref()?;
    let is_file = cluster.certificate_authority_data.is_none();
    cluster.certificate_authority.as_ref().filter(|_| is_file).map(PathBuf::from)
}

/// Returns true if the API server can call this process only through the loopback interface.
fn is_on_same_host(server: &http::Uri, in_pod: bool) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    loopback && !in_pod
}

/// Creates the command line of an operator: with its version, or with that of its flags. `--version` prints the
/// program name.
fn command<F: Args>(version: Option<&'static str>, program: Option<&OsString>) -> clap::Command {
    let mut command = Cli::<F>::command();
    if let Some(version) = version {
        command = command.version(version);
    }
    match program.and_then(|path| Path::new(path).file_name()) {
        // The string lives as long as the process.
        Some(name) => command.display_name(&*name.to_string_lossy().into_owned().leak()),
        None => command,
    }
}

#[expect(clippy::print_stderr, reason = "there is no log")]
fn print(value: &Value) -> ExitCode {
    match writeln!(std::io::stdout(), "{value:#}") {
        // The reader of a pipe may close it early.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// An error of the program.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    #[error("cannot read the kubeconfig")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("no cluster to connect to")]
    Infer(#[from] kube::config::InferConfigError),
    #[error("cannot start the runtime")]
    Runtime(#[from] std::io::Error),
    #[error(transparent)]
    Run(#[from] RunError),
}

impl ProgramError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Run(error) if error.is_configuration_error() => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    fn hint(&self) -> Option<&'static str> {
        let is_address = matches!(self, Self::Run(RunError::Listen { .. }));
        is_address
            .then_some("--metrics-addr, --health-addr and --webhook-addr set other addresses; 0 disables the server")
    }
}

impl Operator {
    /// Runs the operator as the `main` of a program: reads the command line, connects, and runs until SIGTERM or
    /// Ctrl-C. A second signal ends it immediately.
    ///
    /// ```console
    /// $ vm-operator --namespace a,b --log-format json -v
    /// $ vm-operator manifests | kubectl apply --server-side -f -
    /// ```
    ///
    /// Options may also be set by environment variables, such as `FLYBALL_METRICS_ADDR` for `--metrics-addr`, or in
    /// the YAML file of `--config` (or `FLYBALL_CONFIG`), such as `metrics-addr: 0.0.0.0:8080`. Options override
    /// variables, variables override the file, and the file overrides defaults. This applies to the operator's own
    /// options as well, see [`main_with`](Self::main_with).
    ///
    /// In a pod it [elects a leader](crate::LeaderElection), since a rolling update already runs two replicas at a
    /// time; the role for this is in `manifests`. Elsewhere it does so if the operator [enables
    /// it](Self::leader_election). `--leader-elect` and `--leader-elect=false` override both.
    ///
    /// With the feature `otel`, the spans of reconciles, applies and requests are exported to the collector at
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, by OTLP over HTTP; the other [variables of
    /// OpenTelemetry](https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/) are respected.
    ///
    /// The exit code is 0 after a signal to stop, 1 after a failure or the loss of the lease, 2 if the command line or
    /// the settings are invalid.
    #[doc(alias = "kopf.run")]
    #[doc(alias = "NewManager")]
    #[doc(alias = "SetupSignalHandler")]
    #[doc(alias = "shutdown_on_signal")]
    #[doc(alias = "graceful_shutdown_on")]
    pub fn main(self) -> ExitCode {
        self.main_from(std::env::args_os())
    }

    /// Runs as [`main`](Self::main) does, for a program that has parsed a part of its command line itself: the
    /// remaining arguments, after the name of the program.
    pub fn main_from(self, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
        Self::main_of(self.version, arguments, |_: NoFlags| self)
    }

    /// Runs as [`main`](Self::main) does, for an operator with custom flags, from which `declare` creates it.
    ///
    /// `declare` is called for `manifests` and `describe` as well, with nothing but the flags. So read credentials and
    /// the like in a [deferred](crate::Controller::deferred) reconciler. The doc comment and `#[command(version)]` of
    /// `Flags` apply to the program, since `--help` and `--version` are answered before the operator is made.
    ///
    /// ```no_run
    /// # use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # struct Pages { token: String }
    /// # impl Reconcile for Pages {
    /// #     type Resource = ConfigMap;
    /// #     async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> { Ok(Action::done()) }
    /// # }
    /// #[derive(clap::Args)]
    /// struct Flags {
    ///     /// Pages that are built at the same time
    ///     #[arg(long, default_value_t = 4)]
    ///     builds: usize,
    /// }
    ///
    /// fn main() -> std::process::ExitCode {
    ///     Operator::main_with(|flags: Flags| {
    ///         let pages = || std::env::var("TOKEN").map(|token| Pages { token });
    ///         Operator::new("pages").controller(Controller::deferred(pages).concurrency(flags.builds))
    ///     })
    /// }
    /// ```
    pub fn main_with<F: Args>(declare: impl FnOnce(F) -> Self) -> ExitCode {
        Self::main_of(None, std::env::args_os(), declare)
    }

    /// Runs as [`main_with`](Self::main_with) does, for a program that has parsed a part of its command line itself:
    /// the remaining arguments, after the name of the program.
    pub fn main_with_from<F: Args>(
        arguments: impl IntoIterator<Item = OsString>,
        declare: impl FnOnce(F) -> Self,
    ) -> ExitCode {
        Self::main_of(None, arguments, declare)
    }

    #[expect(clippy::print_stderr, reason = "the log is not initialized yet")]
    fn main_of<F: Args>(
        version: Option<&'static str>,
        arguments: impl IntoIterator<Item = OsString>,
        declare: impl FnOnce(F) -> Self,
    ) -> ExitCode {
        let arguments: Vec<_> = arguments.into_iter().collect();
        let command = command::<F>(version, arguments.first());
        let version = command.get_version().map(str::to_owned);
        let command_with_defaults = settings::with_defaults(command, &arguments, |name| std::env::var(name).ok());
        let matches = match command_with_defaults {
            Ok(command) => command.get_matches_from(arguments),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(2);
            }
        };
        let Cli { command, common, flags } = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let mut operator = declare(flags);
        operator.election = common.election(operator.election, command);
        operator.grace = common.grace.unwrap_or(operator.grace);
        let health = &mut operator.health_server;
        health.max_watch_staleness = common.max_watch_staleness.unwrap_or(health.max_watch_staleness);
        if !common.namespace.is_empty() {
            operator.namespaces = common.namespace.iter().cloned().collect();
        }
        if let Some(directory) = &common.webhook_cert_dir {
            operator.webhook_server.certificates = match operator.webhook_server.certificates {
                Certificates::CertManager { certificate, .. } => {
                    Certificates::CertManager { certificate, directory: directory.clone() }
                }
                Certificates::Own | Certificates::Files(_) => Certificates::Files(directory.clone()),
            };
        }
        let metrics = &mut operator.metrics_server;
        metrics.secure = common.metrics_secure.unwrap_or(metrics.secure);
        metrics.certificate_dir = common.metrics_cert_dir.clone().or(metrics.certificate_dir.take());
        operator.namespace = common.operator_namespace.clone().or(operator.namespace);
        operator.installed = common.installed_as.clone().or(operator.installed);
        match command {
            Command::Run => operator.run_to_exit(common),
            Command::Manifests => {
                common.set_addresses(&mut operator, false);
                print(&json!({"apiVersion": "v1", "kind": "List", "items": operator.manifests()}))
            }
            Command::Describe => {
                let mut described = operator.describe();
                described.version = described.version.or(version);
                print(&json!(described))
            }
        }
    }

    #[expect(clippy::print_stderr, reason = "the log may not be initialized yet, or be JSON")]
    fn run_to_exit(self, args: CommonArgs) -> ExitCode {
        let name = self.name.clone();
        let run = || -> Result<(), ProgramError> {
            let runtime = runtime(args.threads)?;
            let export = Export::from_environment(&self.name, runtime.handle());
            let (export, wrong) = export.map_or_else(|wrong| (None, Some(wrong)), |export| (export, None));
            log::start(args.log_format, args.verbose, export.as_ref().map(Export::layer));
            if let Some(error) = wrong {
                tracing::warn!(error = &*error, "spans are not exported");
            }
            let result = runtime.block_on(self.connect_and_run(args).boxed());
            if let Some(export) = export {
                export.end(&runtime);
            }
            result
        };
        match run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("{name}: {}", chain(&failure));
                if let Some(hint) = failure.hint() {
                    eprintln!("hint: {hint}");
                }
                failure.code()
            }
        }
    }

    async fn connect_and_run(mut self, args: CommonArgs) -> Result<(), ProgramError> {
        self.set_up()?;
        let authority = authority_file(args.kubeconfig.as_deref(), args.context.as_deref());
        let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match (&args.kubeconfig, &options.context) {
            (Some(path), _) => kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?,
            (None, Some(_)) => kube::Config::from_kubeconfig(&options).await?,
            (None, None) => kube::Config::infer().await?,
        };
        // Read again when it changes; in a pod, kube has its path.
        config.root_cert_file = config.root_cert_file.or(authority);
        self.host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        args.set_addresses(&mut self, is_on_same_host(&config.cluster_url, in_pod()));
        if let (None, Ok(host)) = (&self.instance, std::env::var("HOSTNAME")) {
            self.instance = Some(host);
        }
        tracing::info!(operator = self.name, server = self.host, "starting");
        Ok(self.run_at(config, stop_signal()).await?)
    }
}

/// Waits for the first termination signal; a second one then ends the process.
async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else { return std::future::pending().await };
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tokio::spawn(async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(1);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{HealthServer, MetricsServer, WebhookServer};
    use crate::webhook::{AdmissionRequest, Verdict, Webhook};
    use k8s_openapi::api::core::v1::ConfigMap;

    #[test]
    fn flags_are_accepted_before_and_after_the_command() {
        #[derive(Args, Debug)]
        struct Flags {
            #[arg(long)]
            token: String,
        }
        let parsed =
            Cli::<Flags>::try_parse_from(["op", "--token", "t", "manifests", "--namespaces", "a,b"]).expect("fits");
        assert!(matches!(parsed.command, Command::Manifests));
        assert_eq!((parsed.flags.token.as_str(), parsed.common.namespace.join(" ").as_str()), ("t", "a b"));
        let error = Cli::<Flags>::try_parse_from(["op"]).expect_err("--token is missing");
        assert!(error.to_string().contains("--token <TOKEN>"), "{error}");
    }

    #[test]
    fn flags_of_controller_runtime_are_accepted() {
        #[derive(Args, Debug)]
        struct NoFlags {}
        let parsed = Cli::<NoFlags>::try_parse_from([
            "op",
            "--metrics-bind-address=:8443",
            "--health-probe-bind-address=:8081",
            "--leader-elect",
            "--leader-election-id=a.example.com",
            "--graceful-shutdown-timeout=5s",
        ]);
        let common = parsed.expect("they fit").common;
        let address = |address: Option<Address>| address.and_then(|address| address.0).map(|address| address.port());
        assert_eq!((address(common.metrics_addr), address(common.health_addr)), (Some(8443), Some(8081)));
        assert_eq!(common.leader_elect_resource_name.as_deref(), Some("a.example.com"));
        assert_eq!(common.grace, Some(Duration::from_secs(5)));
    }

    #[test]
    fn version_flag_prints_the_declared_version() {
        #[derive(Args, Debug)]
        #[command(version = "2.0")]
        struct Flags {}
        let program = OsString::from("/bin/site");
        let printed = |command: clap::Command| {
            let printed = command
                .try_get_matches_from(["/bin/site", "--version"])
                .expect_err("--version is reported as an error");
            (printed.exit_code(), printed.to_string().lines().next().unwrap_or_default().to_owned())
        };
        assert_eq!(printed(command::<NoFlags>(Some("1.0"), Some(&program))), (0, "site 1.0".into()));
        assert_eq!(printed(command::<Flags>(None, Some(&program))), (0, "site 2.0".into()));
        assert_eq!(printed(command::<NoFlags>(None, Some(&program))).0, 2);
        assert_eq!(Operator::new("a").version("1.0").describe().version.as_deref(), Some("1.0"));
    }

    #[test]
    fn leader_election_defaults_depend_on_command_and_declaration() {
        let check = |arguments: &[&str], declared: bool, expected: Option<u64>| {
            let arguments = [&["op"], arguments].concat();
            let Cli { command, common, .. } = Cli::<NoFlags>::try_parse_from(arguments).expect("fits");
            let election = common.election(declared.then(LeaderElection::default), command);
            assert_eq!(election.map(|election| election.lease_duration.as_secs()), expected);
        };
        check(&[], false, None);
        check(&[], true, Some(15));
        check(&["manifests"], false, Some(15));
        check(&["manifests", "--leader-elect=false"], true, None);
        check(&["--leader-elect", "--leader-elect-lease-duration", "1m", "run"], false, Some(60));
        check(&["--leader-elect=false"], true, None);
        assert!(parse_positive("0s").is_err() && parse_positive("-1s").is_err() && parse_positive("1").is_err());
    }

    #[test]
    fn flags_override_addresses_of_the_code() {
        let check = |arguments: &[&str],
                     in_code: Option<u16>,
                     is_api_server_local: bool,
                     expected: [Option<u16>; 3]| {
            let Cli { common, .. } = Cli::<NoFlags>::try_parse_from([&["op"], arguments].concat()).expect("fits");
            let address = in_code.map(|port| (Ipv4Addr::LOCALHOST, port).into());
            let url = in_code.map(|port| format!("https://10.0.0.7:{port}"));
            let webhook = Webhook::<ConfigMap>::new().validates(|_: &AdmissionRequest<ConfigMap>| Ok(Verdict::allow()));
            let mut operator = Operator::new("op")
                .webhook(webhook)
                .metrics_server(MetricsServer { address, ..MetricsServer::default() })
                .health_server(HealthServer { address, ..HealthServer::default() })
                .webhook_server(WebhookServer { address, url: url.clone(), ..WebhookServer::default() });
            common.set_addresses(&mut operator, is_api_server_local);
            let metrics = operator.metrics_server.address;
            let (health, webhooks) = (operator.health_server.address, operator.webhook_server.address);
            let found = [metrics, health, webhooks].map(|address| address.map(|address| address.port()));
            assert_eq!(found, expected, "{arguments:?}");
            let loopback = is_api_server_local.then(|| "https://127.0.0.1:0".to_owned());
            assert_eq!(operator.webhook_server.url, url.or(loopback), "{arguments:?}");
            let manifests = operator.manifests();
            let service = manifests.iter().find(|object| object["kind"] == "Service").expect("webhooks have a service");
            assert_eq!(
                service["spec"]["ports"][0]["targetPort"],
                json!(webhooks.map_or(PORT, |address| address.port()))
            );
        };
        check(&[], None, false, [Some(8080), Some(8081), Some(9443)]);
        check(&[], None, true, [Some(8080), Some(8081), Some(0)]);
        check(&[], Some(7000), false, [Some(7000); 3]);
        check(&[], Some(7000), true, [Some(7000); 3]);
        let flags = ["--metrics-addr=:1", "--health-addr=:2", "--webhook-addr=:3"];
        check(&flags, Some(7000), false, [Some(1), Some(2), Some(3)]);
        check(&["--metrics-addr=0", "--health-addr=0", "--webhook-addr=0"], Some(7000), true, [None; 3]);
    }

    #[test]
    fn api_server_on_the_same_host_is_detected() {
        let check = |url: &str, in_pod: bool| is_on_same_host(&url.parse().expect("a URL"), in_pod);
        assert!(
            check("https://127.0.0.1:6443", false)
                && check("https://[::1]/", false)
                && check("https://localhost", false)
        );
        assert!(!check("https://127.0.0.1:6443", true) && !check("https://10.0.0.1", false));
        assert!(parse_webhook_url("https://10.0.0.7:9443").is_ok());
        for wrong in ["", "10.0.0.7:9443", "http://a", "https://a?b", "https:///"] {
            assert!(parse_webhook_url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn address_is_host_and_port_or_disabled() {
        let check = |text: &str, expected: Option<&str>| {
            let address: Result<Address, _> = text.parse();
            let found = address.map(|address| address.0.map(|address| address.to_string()));
            assert_eq!(found.as_ref().map(|found| found.as_deref()).ok(), expected.map(|e| (e != "0").then_some(e)));
        };
        check("0", Some("0"));
        check(":8080", Some("0.0.0.0:8080"));
        check("[::1]:1", Some("[::1]:1"));
        check("8080", None);
        check("localhost:1", None);
    }
}
