//! The `myapp` program.

use flyball::Operator;
use kube::CustomResourceExt;
use myapp::operator::{NAME, controller, policy};
use myapp::resource::MyApp;
use std::process::ExitCode;

fn main() -> ExitCode {
    Operator::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .crd(MyApp::crd())
        .controller(controller())
        .policy(policy())
        .main()
}
