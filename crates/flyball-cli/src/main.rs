//! The `flyball` program.
//!
//! Each command is a file in `commands`; this one reads the command line and turns what became of it into an exit code:
//! 0 done, 1 failed, 2 not understood.

mod account;
mod apply;
mod ask;
mod commands;
mod connection;
mod diff;
mod embedded;
mod error;
mod folder;
mod image;
mod installation;
mod kinds;
mod kubeconfig;
mod last_seen;
mod local;
mod made;
mod metrics;
mod output;
mod overlay;
mod plugins;
mod private;
mod process;
mod program;
mod project;
#[cfg(test)]
mod reference;
mod removal;
mod rollout;
mod safety;
mod saved;
mod scaffold;
mod scorecard;
mod table;
mod terminal;
mod testing;
mod web;
mod yaml;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use commands::{
    apply as apply_command, bench, cluster, completion, crd, create, demo, deploy, describe, dev, doctor, edit, get,
    helm, image as image_command, init, install, leash, levels, lint, logs, man, manifests, old, operate, render, run,
    scorecard as scorecard_command, test, trace, undeploy,
};
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Objects are of sizes for which glibc searches lists: with its allocator, a write costs the control plane half as much again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Build, test and run Kubernetes operators
#[derive(Debug, Parser)]
#[command(name = "flyball", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Increase log output on standard error: -v for warnings and steps, -vv for more, -vvv for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::InitArgs),
    Create(create::CreateArgs),
    Edit(edit::EditArgs),
    Demo(demo::DemoArgs),
    Cluster(cluster::ClusterArgs),
    Crd(crd::CrdArgs),
    Describe(describe::DescribeArgs),
    Levels(levels::LevelsArgs),
    Trace(trace::TraceArgs),
    Get(get::GetArgs),
    Apply(apply_command::ApplyArgs),
    Run(run::RunArgs),
    Dev(dev::DevArgs),
    Image(image_command::ImageArgs),
    Helm(helm::HelmArgs),
    Test(test::TestArgs),
    Scorecard(scorecard_command::ScorecardArgs),
    Bench(bench::BenchArgs),
    Manifests(manifests::ManifestsArgs),
    Render(render::RenderArgs),
    Lint(lint::LintArgs),
    Install(install::InstallArgs),
    Deploy(deploy::DeployArgs),
    Logs(logs::LogsArgs),
    Undeploy(undeploy::UndeployArgs),
    Uninstall(undeploy::UninstallArgs),
    Doctor(doctor::DoctorArgs),
    Completion(completion::CompletionArgs),
    Man(man::ManArgs),
    #[command(hide = true)]
    Leash(leash::LeashArgs),
    #[command(hide = true)]
    Operate(operate::OperateArgs),
    #[command(hide = true)]
    Add(old::OldArgs),
    #[command(hide = true)]
    Generate(old::GenerateArgs),
    #[command(hide = true)]
    New(old::OldArgs),
    #[command(hide = true)]
    Build(old::OldArgs),
    #[command(hide = true)]
    Up(old::OldArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // An operator has a log of its own.
    if !matches!(cli.command, Command::Operate(_)) {
        log(cli.verbose, matches!(cli.command, Command::Cluster(_)));
    }
    let done = match cli.command {
        Command::Init(args) => init::cmd_init(&args),
        Command::Create(args) => create::cmd_create(args),
        Command::Edit(args) => edit::cmd_edit(&args),
        Command::Demo(args) => demo::cmd_demo(args),
        Command::Cluster(args) => cluster::cmd_cluster(args, cli.verbose),
        Command::Crd(args) => crd::cmd_crd(args),
        Command::Describe(args) => describe::cmd_describe(args),
        Command::Levels(args) => levels::cmd_levels(&args),
        Command::Trace(args) => trace::cmd_trace(&args),
        Command::Get(args) => get::cmd_get(&args),
        Command::Apply(args) => apply_command::cmd_apply(&args),
        Command::Run(args) => run::cmd_run(args),
        Command::Doctor(args) => doctor::cmd_doctor(&args),
        Command::Dev(args) => dev::cmd_dev(args),
        Command::Helm(args) => helm::cmd_helm(&args),
        Command::Image(args) => image_command::cmd_image(args),
        Command::Test(args) => test::cmd_test(&args),
        Command::Scorecard(args) => scorecard_command::cmd_scorecard(args),
        Command::Bench(args) => bench::cmd_bench(&args),
        Command::Man(args) => man::cmd_man(&args, Cli::command()),
        Command::Manifests(args) => manifests::cmd_manifests(&args),
        Command::Render(args) => render::cmd_render(&args),
        Command::Lint(args) => lint::cmd_lint(&args),
        Command::Install(args) => install::cmd_install(&args),
        Command::Deploy(args) => deploy::cmd_deploy(&args),
        Command::Logs(args) => logs::cmd_logs(&args),
        Command::Undeploy(args) => undeploy::cmd_undeploy(&args),
        Command::Uninstall(args) => undeploy::cmd_uninstall(&args),
        Command::Completion(args) => {
            completion::cmd_completion(&args, Cli::command());
            Ok(())
        }
        Command::Operate(args) => match operate::cmd_operate(args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Leash(args) => leash::cmd_leash(&args),
        Command::Add(args) => old::cmd_old("add", &args),
        Command::Generate(args) => old::cmd_generate(&args),
        Command::New(args) => old::cmd_old("new", &args),
        Command::Build(args) => old::cmd_old("build", &args),
        Command::Up(args) => old::cmd_old("up", &args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.print();
            ExitCode::from(error.exit_code())
        }
    }
}

/// Logs to standard error, so that standard output holds the answer alone.
fn log(verbose: u8, serves: bool) {
    // Who keeps data tells what became of it, asked or not.
    let quietest = if serves { LevelFilter::WARN } else { LevelFilter::ERROR };
    let ours = [quietest, LevelFilter::INFO, LevelFilter::DEBUG, LevelFilter::TRACE];
    let others = [LevelFilter::OFF, LevelFilter::WARN, LevelFilter::WARN, LevelFilter::DEBUG];
    let at = usize::from(verbose).min(3);
    let said = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = said.unwrap_or_else(|| {
        let crates = ["flyball", "flyball_server", "flyball_cluster", "vmgroup"];
        Targets::new().with_default(others[at]).with_targets(crates.map(|name| (name, ours[at])))
    });
    let coloured = terminal::shows_colours(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(coloured);
    tracing_subscriber::registry().with(lines).with(filter).init();
}
