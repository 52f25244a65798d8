use super::wire::ManagedObject;
use serde_json::Value;

/// Result of a call to vCenter.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of a call to vCenter.
///
/// No variant contains a user name, a password or a session key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// vCenter rejects the session, and also a new one.
    #[error("vCenter does not accept the session")]
    NotAuthenticated,
    /// User name or password are wrong.
    #[error("vCenter refuses the user name or the password")]
    InvalidLogin,
    /// The name exists.
    #[error("the name {name:?} is taken")]
    DuplicateName {
        /// The name.
        name: String,
        /// Object with that name, if vCenter returns it.
        object: Option<ManagedObject>,
    },
    /// The object does not exist.
    #[error("{object} does not exist")]
    NotFound {
        /// The object.
        object: String,
    },
    /// The machine is in the wrong power state, usually the requested one.
    #[error("the virtual machine is {state}")]
    InvalidPowerState {
        /// The actual state.
        state: String,
    },
    /// Another task is using the object.
    #[error("another task works on the object")]
    TaskInProgress,
    /// A task timed out. It continues in vCenter.
    #[error("{task} still runs")]
    StillRunning {
        /// The task.
        task: ManagedObject,
    },
    /// vCenter did not respond.
    #[error("cannot reach vCenter at {host}")]
    Unreachable {
        /// Host and port.
        host: String,
        /// Error of the transport.
        source: tower::BoxError,
    },
    /// vCenter returned an invalid response.
    #[error("vCenter returned an invalid response to {method}: {what}")]
    Malformed {
        /// The method that was called.
        method: &'static str,
        /// Description of the invalid response.
        what: String,
    },
    /// The location for folders and machines is missing in vCenter, or ambiguous.
    #[error("{what}; vCenter has {}", if found.is_empty() { "none".into() } else { found.join(", ") })]
    Site {
        /// Missing or ambiguous object, and the option that specifies it.
        what: &'static str,
        /// Available objects.
        found: Vec<String>,
    },
    /// Any other fault.
    #[error("vCenter reports {name}{}{message}", if message.is_empty() { "" } else { ": " })]
    Fault {
        /// Name of the fault's type.
        name: String,
        /// vCenter's message.
        message: String,
    },
}

impl Error {
    /// Parses a fault: the body of a rejected call or the error of a task; `None` if it is not a fault.
    pub(super) fn from_fault(fault: &Value, message: Option<&str>) -> Option<Self> {
        let text = |key: &str| fault[key].as_str().unwrap_or_default().to_owned();
        Some(match fault["_typeName"].as_str()? {
            "NotAuthenticated" => Self::NotAuthenticated,
            "InvalidLogin" => Self::InvalidLogin,
            "DuplicateName" => {
                Self::DuplicateName { name: text("name"), object: ManagedObject::from_value(&fault["object"]) }
            }
            "ManagedObjectNotFound" => {
                let object = ManagedObject::from_value(&fault["obj"]);
                Self::NotFound { object: object.map_or_else(|| "the object".into(), |o| o.to_string()) }
            }
            "InvalidPowerState" => Self::InvalidPowerState { state: text("existingState") },
            "TaskInProgress" => Self::TaskInProgress,
            name => {
                let reported = || fault["faultMessage"].as_array()?.iter().find_map(|m| m["message"].as_str());
                let message = message.or_else(|| fault["faultstring"].as_str()).or_else(reported).unwrap_or_default();
                Self::Fault { name: name.into(), message: message.trim_end_matches('.').into() }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(fault: &Value, message: Option<&str>, expected: Option<&str>) {
        assert_eq!(Error::from_fault(fault, message).map(|error| error.to_string()).as_deref(), expected, "{fault}");
    }

    #[test]
    fn handled_faults_have_a_variant() {
        let object = json!({"type": "VirtualMachine", "value": "vm-1"});
        for (fault, expected) in [
            (json!({"_typeName": "NotAuthenticated"}), "vCenter does not accept the session"),
            (json!({"_typeName": "InvalidLogin"}), "vCenter refuses the user name or the password"),
            (json!({"_typeName": "DuplicateName", "name": "a", "object": object}), r#"the name "a" is taken"#),
            (json!({"_typeName": "ManagedObjectNotFound", "obj": object}), "VirtualMachine vm-1 does not exist"),
            (json!({"_typeName": "ManagedObjectNotFound"}), "the object does not exist"),
            (
                json!({"_typeName": "InvalidPowerState", "existingState": "suspended"}),
                "the virtual machine is suspended",
            ),
            (json!({"_typeName": "TaskInProgress"}), "another task works on the object"),
        ] {
            check(&fault, None, Some(expected));
        }
    }

    #[test]
    fn other_faults_keep_name_and_message() {
        let fault = json!({"_typeName": "NoPermission"});
        check(&fault, None, Some("vCenter reports NoPermission"));
        check(&fault, Some("Not allowed."), Some("vCenter reports NoPermission: Not allowed"));
        let fault = json!({"_typeName": "NoPermission", "faultstring": "Denied."});
        check(&fault, None, Some("vCenter reports NoPermission: Denied"));
        let fault = json!({"_typeName": "FileFault", "faultMessage": [{"key": "k"}, {"message": "No space"}]});
        check(&fault, None, Some("vCenter reports FileFault: No space"));
    }

    #[test]
    fn values_without_a_type_are_no_fault() {
        for value in [json!(null), json!("text"), json!({"error": "no"}), json!([])] {
            check(&value, None, None);
        }
    }
}
