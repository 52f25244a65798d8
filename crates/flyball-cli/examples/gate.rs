//! An operator with a webhook, for tests.

use flyball::webhook::{AdmissionRequest, Verdict, Webhook};
use flyball::{LeaderElection, Operator};
use kube::CustomResourceExt;
use std::process::ExitCode;
use vmgroup::api::vmgroup_v1alpha1::VmGroup;

fn main() -> ExitCode {
    let gate = Webhook::<VmGroup>::new().validates(|_: &AdmissionRequest<VmGroup>| Ok(Verdict::allow()));
    Operator::new("gate").crd(VmGroup::crd()).webhook(gate).leader_election(LeaderElection::default()).main()
}
