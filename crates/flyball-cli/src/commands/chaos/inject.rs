//! `flyball chaos` without a subcommand: plans experiments, asks for confirmation, and runs them.

use super::process::{RunningProcess, stopped};
use super::report::{self, Format};
use super::{connect, error, state_files};
use crate::cluster::apply;
use crate::cluster::connection::{Connection, ConnectionArgs, block_on};
use crate::cluster::safety;
use crate::duration::parse_duration;
use crate::error::{Error, Result};
use crate::files::entries;
use crate::operator::process::stop_signal;
use crate::render::prompt;
use crate::render::terminal::{print_labeled, print_line};
use clap::{Args, ValueEnum};
use flyball_chaos::{
    Cluster, Event, Experiment, Journal, Limits, Operator, Risk, Run, Selection, Verdict, check_cluster, plan, suite,
    upgrade,
};
use flyball_core::{Clock, Rng};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Interval of observations.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
pub(super) struct InjectArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Deployment of the operator, as deployment/NAME; may be omitted if the namespace has only one
    #[arg(long, value_name = "deployment/NAME", value_parser = parse_operator)]
    operator: Option<String>,
    /// Label selector of the Deployment, such as control-plane=controller-manager
    #[arg(short = 'l', long, conflicts_with = "operator")]
    selector: Option<String>,
    /// Run the operator as a process with this command of the shell, instead of its Deployment; it gets a kubeconfig in
    /// KUBECONFIG, whose requests pass a proxy. Needs --kind
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["operator", "selector", "upgrade"])]
    exec: Option<String>,
    /// Append the output of the process to this file
    #[arg(long, value_name = "FILE", requires = "exec")]
    exec_output: Option<PathBuf>,
    /// User whose permissions the process has, such as system:serviceaccount:sites-system:sites; defaults to that of
    /// the kubeconfig
    #[arg(long = "as", value_name = "USER", requires = "exec")]
    user: Option<String>,
    /// Also change custom resources and their children in this namespace; may be repeated
    #[arg(long, value_name = "NAMESPACE")]
    workload_namespace: Vec<String>,
    /// Kind of custom resources, if the roles of the operator do not name it, such as Site or sites.example.com; may be
    /// repeated
    #[arg(long)]
    kind: Vec<String>,
    /// Run the experiments of a file or directory, or - for standard input; may be repeated
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<String>,
    /// Run experiments for the differences from the manifests of the next version, in a file or directory
    #[arg(long, value_name = "PATH", conflicts_with = "files")]
    upgrade: Vec<String>,
    /// Run only experiments with these names or faults, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Skip experiments with these names or faults, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    skip: Vec<String>,
    /// Highest risk: of one object, of the operator, or of other users of the cluster
    #[arg(long, value_enum, default_value_t = RiskArg::Medium)]
    risk: RiskArg,
    /// Duration of a fault that the operator has to survive
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_time)]
    hold: Duration,
    /// Time to recover, for the result Resilient
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_time)]
    recovery: Duration,
    /// Time to recover, for the result Degraded
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = parse_time)]
    failure: Duration,
    /// Mildest result with exit code 1; Inconclusive always has it
    #[arg(long, value_enum, default_value_t = FailOn::Failed)]
    fail_on: FailOn,
    /// Print the experiments and their changes, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// State file for the undo; defaults to a new one below ~/.local/state/flyball/chaos
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RiskArg {
    Low,
    Medium,
    High,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Degraded,
    Failed,
}

fn parse_operator(text: &str) -> Result<String, String> {
    let name = match text.split_once('/') {
        Some(("deployment" | "deployments" | "deploy" | "deployment.apps", name)) => name,
        Some(_) => return Err("expected deployment/NAME".to_owned()),
        None => text,
    };
    let problems = flyball_core::names::dns_subdomain(name);
    problems.into_iter().next().map_or_else(|| Ok(name.to_owned()), Err)
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let is_valid = |time: &Duration| *time >= Duration::from_millis(100) && *time <= Duration::from_secs(3600);
    parse_duration(text).filter(is_valid).ok_or_else(|| "expected a duration from 100ms to 1h, such as 30s".to_owned())
}

pub(super) fn cmd_inject(args: &InjectArgs) -> Result<ExitCode> {
    if args.failure < args.recovery {
        return Err(Error::usage("--failure must not be shorter than --recovery"));
    }
    if args.output == Format::Yaml && !args.dry_run {
        return Err(Error::usage("-o yaml prints experiments").hint("add --dry-run, or use -o json for reports"));
    }
    let from_file = match &args.files[..] {
        [] => None,
        files => Some(read(files)?),
    };
    block_on(async {
        let connection = args.connection.connect().await?;
        let cluster = connect(connection.client.clone()).await?;
        let namespaces = std::iter::once(&connection.namespace).chain(&args.workload_namespace);
        let uid = check_cluster(&cluster, namespaces.map(String::as_str)).await.map_err(error)?;
        let mut running = match &args.exec {
            Some(exec) if !args.dry_run => {
                check_pending(&uid)?;
                args.confirm(&format!("the operator {exec:?} is started and interrupted"))?;
                let config = args.connection.config().await?;
                Some(RunningProcess::start(exec, config, args.user.as_deref(), args.exec_output.clone()).await?)
            }
            _ => None,
        };
        let find = async {
            let operator = Operator::find(&cluster, &args.selection(&connection)).await.map_err(error)?;
            let experiments = args.experiments(&connection, &operator, from_file).await?;
            Ok((operator, experiments))
        };
        let found = match &mut running {
            Some(running) => tokio::select! {
                () = running.stop.as_mut() => Err(Error::interrupted()),
                found = find => found,
            },
            None => find.await,
        };
        let (operator, experiments) = found?;
        if args.dry_run {
            return print_plans(args, &cluster, &operator, &experiments).await;
        }
        if running.is_none() {
            check_pending(&uid)?;
            args.confirm(&format!("{} experiments interrupt the operator {}", experiments.len(), operator.label()))?;
        }
        args.run(&cluster, &uid, operator, &experiments, running).await
    })
}

/// Reads the experiments of files.
fn read(files: &[String]) -> Result<Vec<Experiment>> {
    let objects = apply::read_all(files)?;
    let experiments: Vec<Experiment> =
        objects.iter().map(|object| Experiment::from_object(object).map_err(error)).collect::<Result<_>>()?;
    for (index, experiment) in experiments.iter().enumerate() {
        if experiments[..index].iter().any(|other| other.name == experiment.name) {
            return Err(Error::usage(format!("two experiments have the name {}", experiment.name)));
        }
    }
    Ok(experiments)
}

impl InjectArgs {
    fn selection(&self, connection: &Connection) -> Selection {
        Selection {
            namespace: connection.namespace.clone(),
            name: self.operator.clone(),
            labels: self.selector.clone(),
            workload_namespaces: self.workload_namespace.clone(),
            kinds: self.kind.clone(),
            is_process: self.exec.is_some(),
        }
    }

    fn risk(&self) -> Risk {
        match self.risk {
            RiskArg::Low => Risk::Low,
            RiskArg::Medium => Risk::Medium,
            RiskArg::High => Risk::High,
        }
    }

    /// Returns the selected experiments: of files, of an upgrade, or of the suite.
    async fn experiments(
        &self,
        connection: &Connection,
        operator: &Operator,
        from_file: Option<Vec<Experiment>>,
    ) -> Result<Vec<Experiment>> {
        let mut experiments = match (from_file, &self.upgrade[..]) {
            (Some(experiments), _) => experiments,
            (None, []) => suite(operator).into_iter().filter(|one| one.spec.fault.risk() <= self.risk()).collect(),
            (None, paths) => {
                let manifests = apply::read_all(paths)?;
                let found = upgrade(operator, &manifests);
                found.notes.iter().for_each(|note| print_labeled("upgrade", note));
                let is_definition = |object: &&serde_json::Value| object["kind"] == "CustomResourceDefinition";
                let definitions: Vec<_> = manifests.iter().filter(is_definition).cloned().collect();
                let changes = safety::find(connection, &definitions).await?;
                if !changes.is_empty() {
                    print_labeled("upgrade", &format!("breaks stored objects:{}", safety::list(&changes)));
                }
                found.experiments
            }
        };
        let names = |list: &[String], one: &Experiment| {
            let fault = one.spec.fault.name();
            list.iter().any(|name| *name == one.name || name.eq_ignore_ascii_case(fault))
        };
        for name in self.only.iter().chain(&self.skip) {
            if !experiments.iter().any(|one| names(std::slice::from_ref(name), one)) {
                return Err(Error::new(format!("no experiment or fault of the name {name:?}"))
                    .hint("list them with --dry-run; faults of a high risk need --risk high"));
            }
        }
        experiments.retain(|one| (self.only.is_empty() || names(&self.only, one)) && !names(&self.skip, one));
        if experiments.is_empty() {
            return Err(Error::new("no experiment to run").hint("check --only, --skip and --risk"));
        }
        Ok(experiments)
    }

    fn confirm(&self, what: &str) -> Result<()> {
        if self.yes {
            return Ok(());
        }
        if !prompt::is_available() {
            return Err(Error::new(format!("{what}: not confirmed")).hint("confirm with --yes, or see --dry-run"));
        }
        let answer = |text: &str| match text {
            "yes" | "no" => Ok(text.to_owned()),
            _ => Err("answer yes or no".to_owned()),
        };
        match prompt::read_text(&format!("{what}. Continue?"), Some("no"), answer)?.as_str() {
            "yes" => Ok(()),
            _ => Err(Error::new("nothing was changed")),
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            hold: self.hold,
            recovery: self.recovery,
            failure: self.failure,
            interval: INTERVAL,
            risk: self.risk(),
            ..Limits::default()
        }
    }

    async fn run(
        &self,
        cluster: &Cluster,
        uid: &str,
        operator: Operator,
        experiments: &[Experiment],
        running: Option<RunningProcess>,
    ) -> Result<ExitCode> {
        let run = Rng::from_os().suffix(8);
        let path = match &self.state {
            Some(path) => path.clone(),
            None => state_files()?.join(format!("{run}.json")),
        };
        let started = Clock::system().now_rfc3339();
        let mut journal = Journal::create(&path, &run, uid, &operator.label(), &started).map_err(error)?;
        let (count, mut number) = (experiments.len(), 0);
        let mut listener = |event: Event<'_>| match event {
            Event::Started(experiment) => {
                number += 1;
                print_labeled("chaos", &format!("[{number}/{count}] {} ...", experiment.name));
            }
            Event::Ended(outcome) => print_labeled("chaos", &report::line(outcome)),
            _ => {}
        };
        let mut run = Run::new(cluster, operator, self.limits(), &mut listener);
        let report = match running {
            Some(mut running) => {
                run = run.process(running.process.clone(), running.network.clone());
                // The process ends after the undo.
                run.run(&mut journal, experiments, running.stop.as_mut()).await
            }
            None => run.run(&mut journal, experiments, stopped(stop_signal()?)).await,
        };
        let left = journal.close().map_err(error)?;
        report::print(&report, self.output);
        if let Some(path) = left {
            return Err(Error::new("some changes are not undone")
                .hint(format!("undo them: flyball chaos undo {}", path.display())));
        }
        if report.interrupted {
            return Err(Error::interrupted());
        }
        let limit = match self.fail_on {
            FailOn::Degraded => Verdict::Degraded,
            FailOn::Failed => Verdict::Inconclusive,
        };
        let has_failed = report.worst().is_none_or(|worst| worst >= limit);
        Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Fails if a killed run has left changes in this cluster.
fn check_pending(uid: &str) -> Result<()> {
    let paths = entries(&state_files()?)?;
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "json")) {
        let is_left = |journal: Journal| journal.state().cluster == uid && !journal.is_finished();
        let is_pending = Journal::open(path).is_ok_and(is_left);
        if is_pending {
            return Err(Error::new(format!("an earlier run has left changes, see {}", path.display()))
                .hint("undo them: flyball chaos undo"));
        }
    }
    Ok(())
}

/// Prints what experiments would change.
async fn print_plans(
    args: &InjectArgs,
    cluster: &Cluster,
    operator: &Operator,
    experiments: &[Experiment],
) -> Result<ExitCode> {
    let mut plans = Vec::new();
    for experiment in experiments {
        let planned = plan(cluster, operator, experiment, "dry-run").await;
        plans.push(report::Plan::new(experiment, planned.map_err(|error| error.text())));
    }
    report::print_plans(&plans, args.output).iter().for_each(|line| print_line(line));
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_deployments() {
        for (text, expected) in
            [("deployment/a", Some("a")), ("deploy/a", Some("a")), ("a", Some("a")), ("pod/a", None), ("A B", None)]
        {
            assert_eq!(parse_operator(text).ok().as_deref(), expected, "{text}");
        }
        assert!(parse_time("2h").is_err() && parse_time("1m").is_ok());
    }
}
