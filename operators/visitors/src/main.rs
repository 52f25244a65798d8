//! The `visitors` program.

use flyball::Operator;
use kube::CustomResourceExt;
use std::process::ExitCode;
use visitors::operator::{NAME, Visitors, random_password};
use visitors::resource::VisitorsApp;

fn main() -> ExitCode {
    Operator::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .crd(VisitorsApp::crd())
        .controller(Visitors::new(random_password).controller())
        .main()
}
