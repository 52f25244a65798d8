//! Installation of an operator: all objects that it needs in the cluster.
//!
//! The operator's program provides its kinds, permissions, webhooks and policies. This module creates the others: its
//! account, its bindings, its Deployment, and its monitoring. It does not connect to a cluster, and equal outputs of
//! the program result in equal objects.

mod base;
mod manager;
mod monitoring;
mod network;
pub(crate) mod permissions;
mod rbac;
pub(crate) mod sample;
mod target;

pub(crate) use base::{HEADER, SYSTEM, Samples, files};
pub(crate) use target::{InstallTarget, MANAGED_BY, NAMESPACE, TargetArgs};

use crate::error::Result;
use crate::operator::program::Program;
use flyball::description::Description;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// All objects of one installed operator.
#[derive(Debug)]
pub(crate) struct Installation {
    pub(crate) description: Description,
    pub(crate) target: InstallTarget,
    manifests: Vec<ManifestFile>,
}

/// One object, and its file below `config`.
#[derive(Debug)]
struct ManifestFile {
    folder: ConfigDirectory,
    file: String,
    object: Value,
    /// Comment lines of its file.
    note: &'static str,
}

/// A directory below `config`, in the order of application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ConfigDirectory {
    Definitions,
    Rbac,
    Webhook,
    Policy,
    Manager,
    NetworkPolicy,
    Monitoring,
}

impl ConfigDirectory {
    const ALL: [Self; 7] = [
        Self::Definitions,
        Self::Rbac,
        Self::Webhook,
        Self::Policy,
        Self::Manager,
        Self::NetworkPolicy,
        Self::Monitoring,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Definitions => "crd",
            Self::Rbac => "rbac",
            Self::Webhook => "webhook",
            Self::Policy => "policy",
            Self::Manager => "manager",
            Self::NetworkPolicy => "network-policy",
            Self::Monitoring => "prometheus",
        }
    }
}

impl ManifestFile {
    fn new(folder: ConfigDirectory, file: impl Into<String>, object: Value) -> Self {
        Self { folder, file: format!("{}.yaml", file.into()), object, note: "" }
    }
}

impl Installation {
    /// Builds the installation of a program at a target: its own manifests, and those of every operator.
    pub(crate) async fn load(args: &TargetArgs, namespace: Option<&str>, image: Option<&str>) -> Result<Self> {
        let program = Program::find(&args.source).await?;
        let description = program.describe(&args.args, &BTreeMap::new()).await?;
        let target = InstallTarget::of(&description, args, namespace, image)?;
        let mut flags = args.args.clone();
        flags.extend(target.flags(&description));
        let manifests = program.manifests(&flags, &BTreeMap::new()).await?;
        let mut installation = Self::new(description, target, manifests);
        if program.has_roles() {
            installation.manifests.iter_mut().for_each(|manifest| manager::prepare_for_ansible(&mut manifest.object));
        }
        Ok(installation)
    }

    fn new(description: Description, target: InstallTarget, objects: Vec<Value>) -> Self {
        let of_object = |object| manifest_files(object, &target);
        let mut manifests: Vec<ManifestFile> = objects.into_iter().flat_map(of_object).collect();
        manifests.extend(rbac::manifests(&description, &target));
        manifests.extend(manager::manifests(&description, &target, &manifests));
        manifests.push(network::network_policy(&target, &manifests));
        manifests.extend(monitoring::manifests(&description, &target));
        for manifest in &mut manifests {
            target.label(&mut manifest.object);
        }
        manifests.sort_by_key(|manifest| (manifest.folder, order(&manifest.object)));
        Self { description, target, manifests }
    }

    /// Returns the objects in the order of application, optionally with those for Prometheus.
    pub(crate) fn objects(&self, monitoring: bool) -> Vec<Value> {
        let is_selected = |manifest: &&ManifestFile| monitoring || manifest.folder != ConfigDirectory::Monitoring;
        let mut objects: Vec<Value> =
            self.manifests.iter().filter(is_selected).map(|manifest| manifest.object.clone()).collect();
        // A namespace must exist before its objects, and the Deployment before its webhook configurations.
        objects.sort_by_key(|object| match object["kind"].as_str() {
            Some("Namespace") => 0,
            _ if is_webhook_configuration(object) => 2,
            _ => 1,
        });
        objects
    }

    /// Returns the roles that are bound to the operator's account.
    pub(crate) fn bound_roles(&self) -> Vec<Value> {
        let names: Vec<&Value> = self.manifests.iter().map(|manifest| &manifest.object["roleRef"]).collect();
        let is_bound = |object: &Value| {
            names.iter().any(|role| role["kind"] == object["kind"] && role["name"] == object["metadata"]["name"])
        };
        self.manifests.iter().map(|manifest| &manifest.object).filter(|object| is_bound(object)).cloned().collect()
    }

    /// Returns the definitions alone.
    pub(crate) fn definitions(&self) -> Vec<Value> {
        let definition = |manifest: &&ManifestFile| manifest.folder == ConfigDirectory::Definitions;
        self.manifests.iter().filter(definition).map(|manifest| manifest.object.clone()).collect()
    }
}

/// Returns true if an object is a webhook configuration.
pub(crate) fn is_webhook_configuration(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.ends_with("WebhookConfiguration"))
}

/// Returns the file of an object from the program.
fn manifest_files(object: Value, target: &InstallTarget) -> Vec<ManifestFile> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let part = target.without_prefix(&name).to_owned();
    match kind.as_str() {
        "CustomResourceDefinition" => {
            let spec = &object["spec"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let file = format!("{}_{}", text(&spec["group"]), text(&spec["names"]["plural"]));
            vec![ManifestFile::new(ConfigDirectory::Definitions, file, object)]
        }
        "ClusterRole" | "Role" => rbac::role_manifests(object, &part, target),
        "MutatingWebhookConfiguration" => vec![ManifestFile::new(ConfigDirectory::Webhook, "mutating", object)],
        "ValidatingWebhookConfiguration" => vec![ManifestFile::new(ConfigDirectory::Webhook, "validating", object)],
        "Service" => vec![ManifestFile::new(ConfigDirectory::Webhook, "service", object)],
        kind if kind.ends_with("AdmissionPolicy") || kind.ends_with("AdmissionPolicyBinding") => {
            let file = format!("{part}_{}", snake(kind));
            vec![ManifestFile::new(ConfigDirectory::Policy, file, object)]
        }
        kind => {
            let file = format!("{part}_{}", snake(kind));
            vec![ManifestFile::new(ConfigDirectory::Manager, file, object)]
        }
    }
}

/// Returns the order of an object in its directory: referenced objects come first.
fn order(object: &Value) -> usize {
    const KINDS: [&str; 9] = [
        "Namespace",
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "ClusterRoleBinding",
        "RoleBinding",
        "Service",
        "Deployment",
    ];
    KINDS.iter().position(|kind| object["kind"] == *kind).unwrap_or(KINDS.len())
}

/// Writes `AdmissionPolicy` as `admission_policy`.
fn snake(kind: &str) -> String {
    let mut out = String::new();
    for letter in kind.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// Creates an object.
fn object(api_version: &str, kind: &str, name: &str, namespace: Option<&str>) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}
