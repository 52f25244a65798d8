//! The operator that is explored: in this process, or as a process of its own.

use crate::process::OperatorCommand;
use flyball::Operator;
use flyball_core::GroupResource;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;
use std::sync::Arc;

/// Constructor of the operator, called at each start.
pub(crate) type Make = dyn Fn() -> Operator + Send + Sync;

/// The operator under exploration.
#[derive(Clone)]
pub(crate) enum Subject {
    /// An operator in this process, by its constructor.
    Operator(Arc<Make>),
    /// A child process.
    Process(Box<OperatorCommand>),
}

impl Subject {
    /// Returns the name of the operator.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Operator(make) => make().describe().name,
            Self::Process(command) => command.name.clone(),
        }
    }

    /// Returns the objects that install the operator.
    pub(crate) fn manifests(&self, namespace: &str) -> Vec<Value> {
        match self {
            Self::Operator(make) => make().namespace(namespace).manifests(),
            Self::Process(command) => command.manifests.clone(),
        }
    }

    /// Returns the resources that the operator may write, as far as its roles name them.
    pub(crate) fn resources(&self) -> Vec<GroupResource> {
        let rules: Vec<PolicyRule> = match self {
            Self::Operator(make) => make().rules(),
            Self::Process(command) => {
                let rules = command.manifests.iter().filter_map(|object| object["rules"].as_array()).flatten();
                rules.filter_map(|rule| serde_json::from_value(rule.clone()).ok()).collect()
            }
        };
        let of_rule = |rule: &PolicyRule| {
            let names = rule.resources.clone().unwrap_or_default();
            let groups = rule.api_groups.clone().unwrap_or_default();
            let pairs = groups
                .into_iter()
                .flat_map(move |group| names.clone().into_iter().map(move |name| (group.clone(), name)));
            pairs
                .filter(|(_, name)| !name.contains('/'))
                .map(|(group, name)| GroupResource::new(&group, &name))
                .collect::<Vec<_>>()
        };
        rules.iter().flat_map(of_rule).collect()
    }

    /// Returns the command of a child process.
    pub(crate) fn process(&self) -> Option<&OperatorCommand> {
        match self {
            Self::Operator(_) => None,
            Self::Process(command) => Some(command),
        }
    }
}
