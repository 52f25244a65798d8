//! Programs of simulated containers, which run in the model of etcd.

use etcd_operator::model::Model;
use etcd_operator::objects::version_of;
use flyball_cluster::{Exit, Launch, Program, ProgramState, RunningContainer, StartError, StartResult};
use flyball_core::time::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Delay until a container runs.
const START: SignedDuration = SignedDuration::from_secs(2);
/// Interval of probes.
const PROBE: SignedDuration = SignedDuration::from_secs(5);

pub(crate) struct Machine {
    model: Model,
    /// Time of the first start request of each container.
    first_requested: Mutex<BTreeMap<String, Timestamp>>,
    /// The result of each start.
    results: Mutex<BTreeMap<String, Result<(), String>>>,
}

impl Machine {
    pub(crate) fn new(model: Model) -> Self {
        Self { model, first_requested: Mutex::default(), results: Mutex::default() }
    }
}

fn uid(pod: &k8s_openapi::api::core::v1::Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

impl Program for Machine {
    fn start(&self, launch: &Launch<'_>) -> Result<StartResult, StartError> {
        let uid = uid(launch.pod);
        let id = format!("model://{uid}/{}/{}", launch.container.name, launch.attempt);
        let due = *self.first_requested.lock().unwrap().entry(id.clone()).or_insert(launch.now) + START;
        if due > launch.now {
            // The previous process has ended.
            self.model.end(&uid);
            return Ok(StartResult::NotYet(due));
        }
        let image = launch.container.image.as_deref().unwrap_or_default();
        let ran = self.model.run(&uid, launch.container.command.as_deref().unwrap_or_default(), &version_of(image));
        self.results.lock().unwrap().insert(id.clone(), ran);
        Ok(StartResult::Started(id))
    }

    fn observe(&self, running: &RunningContainer<'_>, now: Timestamp) -> ProgramState {
        let ran = self.results.lock().unwrap().get(running.id).cloned();
        match ran {
            Some(Ok(())) if running.container.name == "etcd" => {
                ProgramState::Running { is_ready: self.model.is_ready(&uid(running.pod)), until: Some(now + PROBE) }
            }
            Some(Ok(())) => ProgramState::Exited(Exit { code: 0, at: now }),
            _ => ProgramState::Exited(Exit { code: 1, at: now }),
        }
    }

    fn stop(&self, running: &RunningContainer<'_>, _: Timestamp, _: SignedDuration, now: Timestamp) -> ProgramState {
        self.model.end(&uid(running.pod));
        ProgramState::Exited(Exit { code: 0, at: now })
    }
}
