//! The commands: one file each, and one line in [`Command`] and in [`run`](Command::run).

mod aliases;
mod ansible;
mod apply;
mod bench;
mod bundle;
mod catalog;
mod chaos;
mod cluster;
mod completion;
mod console;
mod crd;
mod create;
mod delete;
mod demo;
mod deploy;
mod describe;
mod dev;
mod doctor;
mod edit;
mod explore;
mod get;
mod helm;
mod image;
mod init;
mod install;
mod levels;
mod lint;
mod logs;
mod man;
mod manifests;
mod meter;
mod olm;
mod operate;
mod rbac;
mod render;
mod replay;
mod run;
mod scorecard;
mod supervise;
mod test;
mod trace;
mod undeploy;
mod why;

pub(crate) use aliases::replacement_error;

use crate::error::Result;
use clap::{CommandFactory, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(Box<init::InitArgs>),
    Create(create::CreateArgs),
    Edit(edit::EditArgs),
    Demo(demo::DemoArgs),
    Cluster(cluster::ClusterArgs),
    Crd(crd::CrdArgs),
    Describe(describe::DescribeArgs),
    Levels(levels::LevelsArgs),
    Why(why::WhyArgs),
    Trace(trace::TraceArgs),
    Console(console::ConsoleArgs),
    Replay(replay::ReplayArgs),
    Get(get::GetArgs),
    Apply(apply::ApplyArgs),
    Delete(delete::DeleteArgs),
    Run(run::RunArgs),
    Dev(dev::DevArgs),
    Image(image::ImageArgs),
    Bundle(bundle::BundleArgs),
    Catalog(catalog::CatalogArgs),
    Helm(helm::HelmArgs),
    Ansible(ansible::AnsibleArgs),
    Test(test::TestArgs),
    Explore(Box<explore::ExploreArgs>),
    Chaos(Box<chaos::ChaosArgs>),
    Scorecard(scorecard::ScorecardArgs),
    Bench(bench::BenchArgs),
    #[command(alias = "generate")]
    Manifests(manifests::ManifestsArgs),
    Rbac(rbac::RbacArgs),
    Render(render::RenderArgs),
    Lint(lint::LintArgs),
    Install(install::InstallArgs),
    Deploy(deploy::DeployArgs),
    Logs(logs::LogsArgs),
    Meter(meter::MeterArgs),
    Olm(olm::OlmArgs),
    Undeploy(undeploy::UndeployArgs),
    Uninstall(undeploy::UninstallArgs),
    Doctor(doctor::DoctorArgs),
    Completion(completion::CompletionArgs),
    Man(man::ManArgs),
    #[command(hide = true)]
    Supervise(supervise::SuperviseArgs),
    #[command(hide = true)]
    Operate(operate::OperateArgs),
}

/// Runs a command of Helm, whose command line and messages are Helm's. Returns nothing if it is another one.
pub(crate) fn helm_command(arguments: &[String]) -> Option<ExitCode> {
    helm::run_as_helm(arguments)
}

impl Command {
    /// Returns true if the command is an operator, which has a log of its own.
    pub(crate) fn has_own_log(&self) -> bool {
        match self {
            Self::Operate(_) => true,
            Self::Olm(args) => args.is_manager(),
            Self::Meter(args) => args.is_operator(),
            _ => false,
        }
    }

    /// Runs the command and returns the exit code of the program.
    pub(crate) fn run(self, verbose: u8) -> Result<ExitCode> {
        let done = match self {
            Self::Init(args) => init::cmd_init(&args),
            Self::Create(args) => create::cmd_create(args),
            Self::Edit(args) => edit::cmd_edit(&args),
            Self::Demo(args) => demo::cmd_demo(args),
            Self::Cluster(args) => cluster::cmd_cluster(args, verbose),
            Self::Crd(args) => crd::cmd_crd(args),
            Self::Describe(args) => describe::cmd_describe(args),
            Self::Levels(args) => levels::cmd_levels(&args),
            Self::Why(args) => why::cmd_why(&args),
            Self::Trace(args) => trace::cmd_trace(&args),
            Self::Console(args) => console::cmd_console(&args),
            Self::Replay(args) => return replay::cmd_replay(args),
            Self::Get(args) => get::cmd_get(&args),
            Self::Apply(args) => apply::cmd_apply(&args),
            Self::Delete(args) => delete::cmd_delete(&args),
            Self::Run(args) => run::cmd_run(args),
            Self::Doctor(args) => doctor::cmd_doctor(&args),
            Self::Dev(args) => dev::cmd_dev(args),
            Self::Bundle(args) => bundle::cmd_bundle(args),
            Self::Catalog(args) => return catalog::cmd_catalog(args),
            Self::Helm(args) => helm::cmd_helm(&args),
            Self::Ansible(args) => ansible::cmd_ansible(&args),
            Self::Image(args) => image::cmd_image(args),
            Self::Test(args) => test::cmd_test(args),
            Self::Explore(args) => return explore::cmd_explore(&args),
            Self::Chaos(args) => return chaos::cmd_chaos(&args),
            Self::Scorecard(args) => scorecard::cmd_scorecard(args),
            Self::Bench(args) => bench::cmd_bench(&args),
            Self::Man(args) => man::cmd_man(&args, crate::Cli::command()),
            Self::Manifests(args) => manifests::cmd_manifests(&args),
            Self::Rbac(args) => rbac::cmd_rbac(&args),
            Self::Render(args) => render::cmd_render(&args),
            Self::Lint(args) => lint::cmd_lint(&args),
            Self::Install(args) => install::cmd_install(&args),
            Self::Deploy(args) => deploy::cmd_deploy(&args),
            Self::Logs(args) => logs::cmd_logs(&args),
            Self::Meter(args) => return meter::cmd_meter(args),
            Self::Olm(args) => return olm::cmd_olm(args),
            Self::Undeploy(args) => undeploy::cmd_undeploy(&args),
            Self::Uninstall(args) => undeploy::cmd_uninstall(&args),
            Self::Completion(args) => {
                completion::cmd_completion(&args, crate::Cli::command());
                Ok(())
            }
            Self::Operate(args) => return operate::cmd_operate(args),
            Self::Supervise(args) => supervise::cmd_supervise(&args),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
