//! The custom resource: a group of identical virtual machines, cloned from one template.
//!
//! The generated CRD has the same names, columns, validation and subresources as the original one, with one intended
//! difference: `spec` is required, so that an object without one is rejected instead of stored and never reconciled.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desired state of a group of virtual machines.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[kube(
    group = "vm.codeconnect.vmworld.com",
    version = "v1alpha1",
    kind = "VmGroup",
    namespaced,
    shortname = "vg",
    doc = "A group of identical virtual machines in vCenter",
    status = "VmGroupStatus",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.desiredReplicas"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Current", type_ = "integer", json_path = ".status.currentReplicas"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "CPU", type_ = "integer", json_path = ".spec.cpu"),
    printcolumn(name = "Memory", type_ = "integer", json_path = ".spec.memory"),
    printcolumn(name = "Template", type_ = "string", json_path = ".spec.template"),
    printcolumn(name = "Last_Message", type_ = "string", json_path = ".status.lastMessage")
)]
pub struct VmGroupSpec {
    /// Number of virtual CPUs of each machine.
    #[schemars(range(min = 1, max = 4))]
    pub cpu: i32,
    /// Memory of each machine in GiB.
    #[schemars(range(min = 1, max = 8))]
    pub memory: i32,
    /// Number of machines.
    #[schemars(range(min = 1))]
    pub replicas: i32,
    /// Template or virtual machine that the machines are cloned from, by name or by its path below the folder of all
    /// virtual machines.
    pub template: String,
}

/// Observed state of a group of virtual machines.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VmGroupStatus {
    /// PENDING, RUNNING or ERROR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub phase: Option<Phase>,
    /// Number of machines that exist and run; absent while it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub current_replicas: Option<i32>,
    /// Number of machines that the group is being scaled to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub desired_replicas: Option<i32>,
    /// Description of the last event, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub last_message: Option<String>,
}

/// Lifecycle phase of a group.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    /// Machines are being created, powered on or deleted.
    Pending,
    /// All machines exist and run.
    Running,
    /// The group cannot reach its desired state; the message has the reason.
    Error,
    /// A phase that another operator wrote; the schema allows any text.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::CustomResourceExt;
    use serde_json::{Value, json};

    /// Removes the intended differences: descriptions, the title, the nullable status, and `spec` in `required`.
    fn without_intended_differences(mut crd: Value) -> Value {
        fn strip(value: &mut Value) {
            if let Value::Object(map) = value {
                map.remove("description");
                map.values_mut().for_each(strip);
            }
        }
        let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        strip(schema);
        assert_eq!(schema["required"], json!(["spec"]));
        for (path, key) in [("", "title"), ("", "required"), ("/properties/status", "nullable")] {
            let at = schema.pointer_mut(path).and_then(Value::as_object_mut).unwrap();
            assert!(at.remove(key).is_some(), "{key}");
        }
        crd
    }

    #[test]
    fn sample_definition_matches_the_crd() {
        let sample: Value = serde_json::from_str(include_str!("../../../../samples/vmgroup/definition.json")).unwrap();
        assert_eq!(sample, serde_json::to_value(VmGroup::crd()).unwrap());
    }

    #[test]
    fn crd_matches_the_published_one() {
        let int = json!({"type": "integer", "format": "int32"});
        let range = |max: f64| json!({"type": "integer", "format": "int32", "minimum": 1.0, "maximum": max});
        let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
        let expected = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "vmgroups.vm.codeconnect.vmworld.com"},
            "spec": {
                "group": "vm.codeconnect.vmworld.com",
                "names": {"kind": "VmGroup", "plural": "vmgroups", "singular": "vmgroup", "shortNames": ["vg"]},
                "scope": "Namespaced",
                "versions": [{
                    "name": "v1alpha1",
                    "served": true,
                    "storage": true,
                    "additionalPrinterColumns": [
                        column("Phase", "string", ".status.phase"),
                        column("Current", "integer", ".status.currentReplicas"),
                        column("Desired", "integer", ".spec.replicas"),
                        column("CPU", "integer", ".spec.cpu"),
                        column("Memory", "integer", ".spec.memory"),
                        column("Template", "string", ".spec.template"),
                        column("Last_Message", "string", ".status.lastMessage"),
                    ],
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.desiredReplicas",
                        },
                    },
                    "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["cpu", "memory", "replicas", "template"],
                                "properties": {
                                    "cpu": range(4.0),
                                    "memory": range(8.0),
                                    "replicas": {"type": "integer", "format": "int32", "minimum": 1.0},
                                    "template": {"type": "string"},
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "phase": {"type": "string"},
                                    "currentReplicas": int,
                                    "desiredReplicas": int,
                                    "lastMessage": {"type": "string"},
                                },
                            },
                        },
                    }},
                }],
            },
        });
        assert_eq!(without_intended_differences(serde_json::to_value(VmGroup::crd()).unwrap()), expected);
    }

    #[test]
    fn status_of_another_operator_is_decoded() {
        let status: VmGroupStatus = serde_json::from_value(json!({"phase": "PAUSED", "more": 1})).unwrap();
        assert_eq!(status, VmGroupStatus { phase: Some(Phase::Unknown), ..VmGroupStatus::default() });
    }
}
