//! The `demovolume` program.

use demovolume::operator::{DemoVolumes, NAME};
use demovolume::resource::DemoVolume;
use flyball::Operator;
use kube::CustomResourceExt;
use std::process::ExitCode;

fn main() -> ExitCode {
    Operator::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .crd(DemoVolume::crd())
        .controller(DemoVolumes.controller())
        .main()
}
