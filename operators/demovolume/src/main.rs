//! The `demovolume` program.

use demovolume::operator::{DemoVolumes, NAME};
use demovolume::resource::DemoVolume;
use flyball::Operator;
use kube::CustomResourceExt;
use std::process::ExitCode;

fn main() -> ExitCode {
    Operator::new(NAME).crd(DemoVolume::crd()).controller(DemoVolumes.controller()).main()
}
