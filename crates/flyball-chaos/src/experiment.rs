//! Experiments as data: a fault, the expected reaction of the operator, and limits of time.
//!
//! An experiment is an object of the kind `ChaosExperiment`, which only files contain: no cluster stores it. This
//! module knows no cluster.

mod duration;
mod fault;

pub use fault::{Expectation, Fault, ObjectName, Risk, WebhookAction};
pub(crate) use fault::{default_delay, default_every, default_latency, default_url};

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// API version of experiments.
pub const API_VERSION: &str = "chaos.flyball.dev/v1alpha1";
/// Kind of experiments.
pub const KIND: &str = "ChaosExperiment";

/// Longest accepted duration of a phase.
const MAX_PHASE: Duration = Duration::from_secs(3600);

/// An object that must exist before and after an experiment, with an optional condition.
#[doc(alias("probe", "steady-state hypothesis"))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Check {
    /// The object.
    pub object: ObjectName,
    /// A condition of its status that must be true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

/// A fault and its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// The fault.
    pub fault: Fault,
    /// The expected reaction; depends on the fault by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expectation>,
    /// Duration of a fault that the operator has to survive.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "duration::optional")]
    pub hold: Option<Duration>,
    /// Time to recover, for the result Resilient.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "duration::optional")]
    pub recovery: Option<Duration>,
    /// Time to recover, for the result Degraded.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "duration::optional")]
    pub failure: Option<Duration>,
    /// Checks in addition to the general ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steady_state: Vec<Check>,
    /// Reason of the experiment, for reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// An experiment: a fault, the expected reaction of an operator, and limits of time.
#[doc(alias("ChaosExperiment", "Chaos Mesh", "Litmus"))]
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Its name, unique in a suite.
    pub name: String,
    /// The fault and its limits.
    pub spec: Spec,
}

impl Experiment {
    /// Creates an experiment with default limits.
    pub fn new(name: impl Into<String>, fault: Fault) -> Self {
        let spec = Spec {
            fault,
            expect: None,
            hold: None,
            recovery: None,
            failure: None,
            steady_state: Vec::new(),
            description: None,
        };
        Self { name: name.into(), spec }
    }

    /// Reads an experiment from an object.
    ///
    /// # Errors
    ///
    /// If it is of another kind, or a field is invalid.
    pub fn from_object(object: &Value) -> Result<Self> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let invalid = |field: &str, problem: String| Error::Invalid {
            experiment: crate::text::clean(&name),
            field: field.to_owned(),
            problem: crate::text::clean(&problem),
        };
        if object["apiVersion"] != API_VERSION || object["kind"] != KIND {
            return Err(invalid("kind", format!("expected {KIND} of {API_VERSION}")));
        }
        if !flyball_core::names::dns_subdomain(&name).is_empty() {
            return Err(invalid("metadata.name", "expected lower case letters, digits, '-' and '.'".to_owned()));
        }
        match object["spec"]["fault"]["type"].as_str() {
            Some("NamespaceDeletion") => {
                let problem = "the deletion of a namespace cannot be undone; use ResourceDeletion for its objects";
                return Err(invalid("spec.fault.type", problem.to_owned()));
            }
            Some(_) => {}
            None => return Err(invalid("spec.fault.type", "required, such as PodKill".to_owned())),
        }
        let spec: Spec =
            serde_json::from_value(object["spec"].clone()).map_err(|error| invalid("spec", error.to_string()))?;
        let experiment = Self { name: name.clone(), spec };
        match experiment.problem() {
            Some((field, problem)) => Err(invalid(field, problem)),
            None => Ok(experiment),
        }
    }

    /// Returns the object, as a file contains it.
    pub fn to_object(&self) -> Value {
        json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": self.name}, "spec": self.spec})
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let Spec { hold, recovery, failure, fault, .. } = &self.spec;
        let phases = [("spec.hold", hold), ("spec.recovery", recovery), ("spec.failure", failure)];
        for (field, phase) in phases {
            if phase.is_some_and(|phase| phase > MAX_PHASE || phase < Duration::from_millis(10)) {
                return Some((field, "expected a duration from 10ms to 1h".to_owned()));
            }
        }
        if let (Some(recovery), Some(failure)) = (recovery, failure)
            && recovery > failure
        {
            return Some(("spec.failure", "must not be shorter than spec.recovery".to_owned()));
        }
        fault.problem()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: Value) -> Result<Experiment, String> {
        let object = json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "a"}, "spec": spec});
        Experiment::from_object(&object).map_err(|error| error.to_string())
    }

    #[test]
    fn experiments_survive_a_file() {
        let object = ObjectName { group: None, kind: "ConfigMap".into(), namespace: None, name: "web".into() };
        for fault in [
            Fault::PodKill { all: true },
            Fault::LabelStomping { object: object.clone(), label: "app".into(), value: None },
            Fault::FieldDrift { object, path: "/data/a".into(), value: Some(json!("b")) },
            Fault::WebhookLatency { delay: Duration::from_secs(3), url: default_url() },
            Fault::NetworkPartition {},
        ] {
            let mut experiment = Experiment::new("a", fault);
            experiment.spec.hold = Some(Duration::from_secs(90));
            assert_eq!(Experiment::from_object(&experiment.to_object()).unwrap(), experiment);
        }
    }

    #[test]
    fn invalid_fields_are_named_with_a_remedy() {
        for (spec, expected) in [
            (json!({"fault": {"type": "NamespaceDeletion"}}), "use ResourceDeletion"),
            (json!({"fault": {"type": "PodKill", "count": 3}}), "unknown field `count`"),
            (json!({"fault": {}}), "spec.fault.type: required"),
            (json!({"fault": {"type": "PodKill"}, "hold": "2h"}), "spec.hold: expected a duration from 10ms to 1h"),
            (json!({"fault": {"type": "PodKill"}, "hold": "soon"}), "expected a duration such as 30s"),
            (json!({"fault": {"type": "PodKill"}, "recovery": "2m", "failure": "1m"}), "spec.failure: must not"),
            (
                json!({"fault": {"type": "CRDMutation", "object": {"kind": "Site", "name": "a"}, "path": "/metadata"}}),
                "only fields below /spec and /data",
            ),
            (json!({"fault": {"type": "WriteRejection", "operations": ["READ"]}}), "spec.fault.operations"),
        ] {
            let error = read(spec).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
