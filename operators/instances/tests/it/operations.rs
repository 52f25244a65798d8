//! Operations are carried out once, whatever fails.

use crate::simulated::{SimulatedCloud, explorer, sample};
use flyball_explore::{Budget, Explorer, ExternalContext, Oracle, Scenario, World};
use serde_json::Value;
use std::time::Duration;

const REBOOT: &str = "
apiVersion: compute.flyball.dev/v1alpha1
kind: Operation
metadata: {name: reboot-web-1}
spec: {type: Reboot, instance: web-1}
";
const STOPPED: &str = "
apiVersion: compute.flyball.dev/v1alpha1
kind: Instance
metadata: {name: web-1}
spec: {size: small, image: debian-13, network: private, firewall: web, publicIp: {pool: public}, power: Stopped}
";

/// A machine, with each of its parts before it, in its own step.
fn machine(name: &str) -> Scenario {
    let parts = [sample!("network"), sample!("firewall"), sample!("ippool"), sample!("instance")];
    parts.into_iter().fold(Scenario::new(name), Scenario::apply).settle().wait(Duration::from_secs(30))
}

/// Checks that the status of each operation is consistent.
fn operations_are_consistent(world: &World) -> Result<(), String> {
    for operation in world.objects("operations.compute.flyball.dev") {
        let (name, status) = (&operation["metadata"]["name"], &operation["status"]);
        let is_requested = !status["requestId"].is_null();
        match status["phase"].as_str() {
            None | Some("Pending") if is_requested => return Err(format!("{name} is requested, but Pending")),
            Some("Running" | "Succeeded") if status["requestId"] != operation["metadata"]["uid"] => {
                return Err(format!("the key of {name} is {}", status["requestId"]));
            }
            Some("Succeeded" | "Failed") if status["completionTime"] == Value::Null => {
                return Err(format!("{name} has ended at no time"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn operations(cloud: fn(&ExternalContext) -> SimulatedCloud, scenario: Scenario) -> Explorer {
    explorer(cloud)
        .scenario(scenario)
        .invariant("operations are consistent", operations_are_consistent)
        .without_campaigns()
}

#[test]
fn explore_rebuild_and_reboot_are_carried_out_once() {
    let wait = Duration::from_secs(20);
    // The rebuild expires before the reboot.
    let rebuild = sample!("operation").replace("3600", "4");
    let scenario = machine("once").apply(rebuild).wait(wait).apply(REBOOT).wait(wait);
    operations(SimulatedCloud::new, scenario).budget(Budget::schedules(300)).run().assert_clean();
}

#[test]
fn explore_repetition_is_found_if_keys_are_not_stored_before() {
    let scenario = machine("once").apply(REBOOT).wait(Duration::from_secs(20));
    let report = operations(SimulatedCloud::without_keys, scenario).budget(Budget::schedules(600)).run();
    let found = report.findings().iter().find(|finding| finding.object == "external/machines/test/web-1");
    let found = found.unwrap_or_else(|| panic!("no second reboot is found: {report}"));
    assert_eq!((found.oracle, found.schedule.injections.len()), (Oracle::Convergence, 1), "{report}");
}

#[test]
fn explore_reboot_of_a_stopped_machine_is_refused() {
    let scenario = machine("refused").apply(STOPPED).settle().apply(REBOOT).wait(Duration::from_secs(20));
    operations(SimulatedCloud::new, scenario).budget(Budget::schedules(150)).run().assert_clean();
}
