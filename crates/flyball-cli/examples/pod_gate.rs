//! An operator with a webhook for pods, for tests of its own deployment.

use flyball::Operator;
use flyball::webhook::{AdmissionRequest, Verdict, Webhook};
use k8s_openapi::api::core::v1::Pod;
use std::process::ExitCode;

fn main() -> ExitCode {
    let gate = Webhook::<Pod>::new().validates(|request: &AdmissionRequest<Pod>| {
        let is_bad = request.key().name() == "bad";
        Ok(if is_bad { Verdict::deny("no pod is called bad") } else { Verdict::allow() })
    });
    Operator::new("pod-gate").webhook(gate).main()
}
