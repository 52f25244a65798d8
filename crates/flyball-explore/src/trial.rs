//! Trials: runs without faults, which determine the control plane of all further runs.

use crate::hub::IncidentKind;
use crate::run::{Outcome, RunOptions, run};
use crate::scenario::Scenario;
use crate::schedule::Schedule;
use crate::stage::{Stage, StageError, controllers_of};
use flyball_cluster::{Controller, Controllers};
use flyball_core::GroupResource;
use std::collections::BTreeSet;

/// Number of lines of output in errors about an operator in another process.
const MAX_OUTPUT: usize = 8;

/// Plays each scenario once, without faults.
pub(crate) fn trials(stage: &Stage, scenarios: &[Scenario], seed: u64) -> Vec<Outcome> {
    let undisturbed = |scenario: &Scenario| Schedule::undisturbed(scenario.name(), seed);
    scenarios.iter().map(|scenario| run(stage, &undisturbed(scenario), RunOptions::default())).collect()
}

/// Checks that an operator in another process works at all.
pub(crate) fn check_trial(trial: &Outcome) -> Result<(), StageError> {
    let output = || {
        let last = trial.process.output.iter().rev().take(MAX_OUTPUT).rev();
        last.map(|(_, line)| format!("\n  {line}")).collect::<String>()
    };
    let ended =
        trial.incidents.iter().find(|incident| matches!(incident.kind, IncidentKind::End | IncidentKind::Panic));
    let rejected = trial.rejections.iter().find(|why| why.contains(" is rejected with "));
    if let (Some(ended), 0) = (ended, trial.writes) {
        return Err(StageError(format!("the operator has ended before its first write: {}", ended.text)));
    }
    if trial.requests == 0 {
        return Err(StageError(format!(
            "the operator has sent no request; it has to use the kubeconfig in the variable KUBECONFIG{}",
            output()
        )));
    }
    if let Some(why) = rejected {
        return Err(StageError(format!("{why}{}", output())));
    }
    if trial.writes == 0 {
        let why = "the operator has written nothing in a run without faults, so that faults cannot change its writes";
        return Err(StageError(format!("{why}{}", output())));
    }
    Ok(())
}

/// Returns the resources that undisturbed runs change.
pub(crate) fn changed_resources(trials: &[Outcome]) -> BTreeSet<GroupResource> {
    let changes = trials.iter().flat_map(|trial| &trial.history);
    changes.map(|change| change.resource.clone()).collect()
}

/// Adds the resources that the operator may write, and the custom ones.
pub(crate) fn collected_resources(stage: &Stage, mut resources: BTreeSet<GroupResource>) -> BTreeSet<GroupResource> {
    resources.extend(stage.subject.resources());
    let customs = stage.served.iter().filter(|(_, served)| served.is_custom);
    resources.extend(customs.map(|(_, served)| GroupResource::new(&served.group, &served.plural)));
    resources.retain(|resource| &*resource.resource != "events");
    resources
}

/// Returns the controllers for resources.
pub(crate) fn needed_controllers(resources: &BTreeSet<GroupResource>) -> Controllers {
    let mut needed = vec![Controller::GarbageCollector, Controller::Namespace];
    for resource in resources {
        needed.extend_from_slice(controllers_of(&resource.resource));
    }
    needed.into_iter().collect()
}
