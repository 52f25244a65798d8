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
mod undeploy;
mod why;

pub(crate) use aliases::replacement_error;

use crate::error::Result;
use clap::Subcommand;
use std::process::ExitCode;

// Commands by purpose: the help lists them in this order. A doc comment would replace the one of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    // Projects
    Init(Box<init::InitArgs>),
    Create(create::CreateArgs),
    Edit(edit::EditArgs),
    Helm(helm::HelmArgs),
    Ansible(ansible::AnsibleArgs),
    // Running an operator
    Dev(dev::DevArgs),
    Run(run::RunArgs),
    Demo(demo::DemoArgs),
    // Clusters and objects
    Cluster(cluster::ClusterArgs),
    Replay(replay::ReplayArgs),
    Get(get::GetArgs),
    Apply(apply::ApplyArgs),
    Delete(delete::DeleteArgs),
    Describe(describe::DescribeArgs),
    Why(why::WhyArgs),
    Console(console::ConsoleArgs),
    Crd(crd::CrdArgs),
    // Quality
    Test(test::TestArgs),
    Lint(lint::LintArgs),
    Scorecard(scorecard::ScorecardArgs),
    Explore(Box<explore::ExploreArgs>),
    Chaos(Box<chaos::ChaosArgs>),
    Bench(bench::BenchArgs),
    Levels(levels::LevelsArgs),
    // Delivery
    #[command(alias = "generate")]
    Manifests(manifests::ManifestsArgs),
    Rbac(rbac::RbacArgs),
    Render(render::RenderArgs),
    Image(image::ImageArgs),
    Install(install::InstallArgs),
    Deploy(deploy::DeployArgs),
    Logs(logs::LogsArgs),
    Undeploy(undeploy::UndeployArgs),
    Uninstall(undeploy::UninstallArgs),
    Bundle(bundle::BundleArgs),
    Catalog(catalog::CatalogArgs),
    // Platform
    Olm(olm::OlmArgs),
    Meter(meter::MeterArgs),
    // This program
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

    /// Runs the command and returns the exit code of the program, whose command line `program` describes.
    pub(crate) fn run(self, verbose: u8, program: fn() -> clap::Command) -> Result<ExitCode> {
        let done = match self {
            Self::Init(args) => init::cmd_init(&args),
            Self::Create(args) => create::cmd_create(args),
            Self::Edit(args) => edit::cmd_edit(&args),
            Self::Helm(args) => helm::cmd_helm(&args),
            Self::Ansible(args) => ansible::cmd_ansible(&args),
            Self::Dev(args) => dev::cmd_dev(args),
            Self::Run(args) => run::cmd_run(args),
            Self::Demo(args) => demo::cmd_demo(args),
            Self::Cluster(args) => cluster::cmd_cluster(args, verbose),
            Self::Replay(args) => return replay::cmd_replay(args),
            Self::Get(args) => get::cmd_get(&args),
            Self::Apply(args) => apply::cmd_apply(&args),
            Self::Delete(args) => delete::cmd_delete(&args),
            Self::Describe(args) => describe::cmd_describe(args),
            Self::Why(args) => why::cmd_why(&args),
            Self::Console(args) => console::cmd_console(&args),
            Self::Crd(args) => crd::cmd_crd(args),
            Self::Test(args) => test::cmd_test(args),
            Self::Lint(args) => lint::cmd_lint(&args),
            Self::Scorecard(args) => scorecard::cmd_scorecard(args),
            Self::Explore(args) => return explore::cmd_explore(&args),
            Self::Chaos(args) => return chaos::cmd_chaos(&args),
            Self::Bench(args) => bench::cmd_bench(&args),
            Self::Levels(args) => levels::cmd_levels(&args),
            Self::Manifests(args) => manifests::cmd_manifests(&args),
            Self::Rbac(args) => rbac::cmd_rbac(&args),
            Self::Render(args) => render::cmd_render(&args),
            Self::Image(args) => image::cmd_image(args),
            Self::Install(args) => install::cmd_install(&args),
            Self::Deploy(args) => deploy::cmd_deploy(&args),
            Self::Logs(args) => logs::cmd_logs(&args),
            Self::Undeploy(args) => undeploy::cmd_undeploy(&args),
            Self::Uninstall(args) => undeploy::cmd_uninstall(&args),
            Self::Bundle(args) => bundle::cmd_bundle(args),
            Self::Catalog(args) => return catalog::cmd_catalog(args),
            Self::Olm(args) => return olm::cmd_olm(args),
            Self::Meter(args) => return meter::cmd_meter(args),
            Self::Doctor(args) => doctor::cmd_doctor(&args),
            Self::Completion(args) => {
                completion::cmd_completion(&args, program());
                Ok(())
            }
            Self::Man(args) => man::cmd_man(&args, program()),
            Self::Supervise(args) => supervise::cmd_supervise(&args),
            Self::Operate(args) => return operate::cmd_operate(args),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
