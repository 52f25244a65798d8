//! An operator as in a project, for the tests of `flyball run`.

use flyball::Operator;
use kube::CustomResourceExt;
use myapp::NAME;
use myapp::api::myapp_v1alpha1::MyApp;
use myapp::controllers::myapp::{controller, policy};
use std::process::ExitCode;

/// An operator that greets.
#[derive(clap::Args)]
struct Flags {
    /// Greeting
    #[arg(long, env = "GREETING", default_value = "hello")]
    greeting: String,
}

#[expect(clippy::print_stderr, reason = "the tests look for it")]
fn main() -> ExitCode {
    Operator::main_with(|flags: Flags| {
        eprintln!("{}", flags.greeting);
        Operator::new(NAME).crd(MyApp::crd()).controller(controller()).policy(policy())
    })
}
