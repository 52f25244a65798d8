//! The operator under test: its Deployment, account, bindings, webhooks, lease, custom resources and their children.
//!
//! The objects are found by facts of the cluster: the pod template names the service account, bindings name the
//! account, roles name the custom resources whose status it writes and the kinds that it creates, owner references
//! name the children.

mod rules;

use crate::api::{Cluster, Reference, ResourceKind};
use crate::error::{Error, Result};
use crate::experiment::ObjectName;
use crate::text::clean;
use rules::Grants;
pub(crate) use rules::{is_account, is_custom};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of custom resources and of children.
const MAX_OBJECTS: usize = 1000;

/// The operator on the command line.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Namespace of the operator.
    pub namespace: String,
    /// Name of the Deployment.
    pub name: Option<String>,
    /// Label selector of the Deployment.
    pub labels: Option<String>,
    /// Namespaces of custom resources and children, in addition to that of the operator.
    pub workload_namespaces: Vec<String>,
    /// Kinds of custom resources, in addition to those of the roles: `Site` or `Site.example.com`.
    pub kinds: Vec<String>,
    /// The operator runs as a process: it has no Deployment, and no service account.
    pub is_process: bool,
}

/// An operator in a cluster.
#[derive(Clone, Debug)]
pub struct Operator {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) deployment: Value,
    pub(crate) account: String,
    pub(crate) bindings: Vec<Value>,
    pub(crate) webhooks: Vec<Value>,
    pub(crate) leases: Vec<Value>,
    pub(crate) namespaces: BTreeSet<String>,
    pub(crate) resource_kinds: Vec<(String, String)>,
    pub(crate) child_kinds: Vec<(String, String)>,
    pub(crate) resources: Vec<Value>,
    pub(crate) children: Vec<Value>,
    /// Other workloads that use the same service account.
    pub(crate) account_users: Vec<String>,
}

impl Operator {
    /// Finds an operator.
    ///
    /// # Errors
    ///
    /// If there is none, or several.
    pub async fn find(cluster: &Cluster, selection: &Selection) -> Result<Self> {
        if selection.is_process {
            return Self::of_process(cluster, selection).await;
        }
        let deployment = find_deployment(cluster, selection).await?;
        let namespace = selection.namespace.clone();
        let pod = &deployment["spec"]["template"];
        let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or("default").to_owned();
        let mut namespaces: BTreeSet<String> = selection.workload_namespaces.iter().cloned().collect();
        namespaces.insert(namespace.clone());
        let bindings = rules::bindings(cluster, &namespaces, &namespace, &account).await?;
        let grants = Grants::of(cluster, &bindings).await?;
        let name = deployment["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut operator = Self {
            name,
            account_users: account_users(cluster, &namespace, &account, &deployment).await?,
            webhooks: webhooks(cluster, &namespace, &pod["metadata"]["labels"]).await?,
            leases: Vec::new(),
            resource_kinds: grants.resource_kinds(cluster, &selection.kinds)?,
            child_kinds: grants.child_kinds(cluster),
            resources: Vec::new(),
            children: Vec::new(),
            namespace,
            deployment,
            account,
            bindings,
            namespaces,
        };
        operator.leases = operator.find_leases(cluster).await?;
        operator.refresh(cluster).await?;
        Ok(operator)
    }

    /// Returns an operator that runs as a process, by the kinds of its custom resources.
    async fn of_process(cluster: &Cluster, selection: &Selection) -> Result<Self> {
        if selection.kinds.is_empty() {
            let problem = "an operator that runs as a process has no roles: name its custom resources with --kind";
            return Err(Error::Target(problem.to_owned()));
        }
        let grants = Grants::all();
        let mut namespaces: BTreeSet<String> = selection.workload_namespaces.iter().cloned().collect();
        namespaces.insert(selection.namespace.clone());
        let mut operator = Self {
            namespace: selection.namespace.clone(),
            name: "process".to_owned(),
            deployment: Value::Null,
            account: String::new(),
            bindings: Vec::new(),
            webhooks: Vec::new(),
            leases: Vec::new(),
            resource_kinds: grants.resource_kinds(cluster, &selection.kinds)?,
            child_kinds: grants.child_kinds(cluster),
            resources: Vec::new(),
            children: Vec::new(),
            account_users: Vec::new(),
            namespaces,
        };
        operator.refresh(cluster).await?;
        Ok(operator)
    }

    /// Returns true if the operator runs as a process.
    pub(crate) fn is_process(&self) -> bool {
        self.deployment.is_null()
    }

    /// Returns the name of the operator with its namespace.
    pub fn label(&self) -> String {
        format!("{}/{}", clean(&self.namespace), clean(&self.name))
    }

    pub(crate) fn deployment_reference(&self) -> Reference {
        Reference::new("apps", "Deployment", Some(&self.namespace), &self.name)
    }

    /// Returns the user name of the service account.
    pub(crate) fn user(&self) -> String {
        flyball_core::service_account::user_name(&self.namespace, &self.account)
    }

    /// Lists the pods of the operator.
    pub(crate) async fn pods(&self, cluster: &Cluster) -> Result<Vec<Value>> {
        let kind = cluster.kind("", "Pod").filter(|_| !self.is_process());
        let Some(kind) = kind else { return Ok(Vec::new()) };
        let labels = selector_text(&self.deployment["spec"]["selector"]);
        let pods = cluster.list(kind, Some(&self.namespace), Some(&labels)).await?;
        Ok(pods.into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect())
    }

    /// Reads the Deployment, the custom resources and their children again.
    pub(crate) async fn refresh(&mut self, cluster: &Cluster) -> Result<()> {
        if !self.is_process()
            && let Some(deployment) = cluster.get(&self.deployment_reference()).await?
        {
            self.deployment = deployment;
        }
        let mut resources = Vec::new();
        for (group, kind) in &self.resource_kinds {
            let Some(kind) = cluster.kind(group, kind) else { continue };
            resources.extend(self.list(cluster, kind).await?);
        }
        resources.truncate(MAX_OBJECTS);
        let mut candidates = Vec::new();
        for (group, kind) in &self.child_kinds {
            let Some(kind) = cluster.kind(group, kind) else { continue };
            candidates.extend(self.list(cluster, kind).await?);
        }
        self.children = owned(&resources, candidates);
        self.resources = resources;
        Ok(())
    }

    /// Lists the objects of a kind in the namespaces of the operator.
    async fn list(&self, cluster: &Cluster, kind: &ResourceKind) -> Result<Vec<Value>> {
        if !kind.is_namespaced {
            return cluster.list(kind, None, None).await;
        }
        let mut found = Vec::new();
        for namespace in &self.namespaces {
            found.extend(cluster.list(kind, Some(namespace), None).await?);
        }
        Ok(found)
    }

    /// Finds an object of the operator: a custom resource, a child, or an object of its namespace.
    pub(crate) async fn object(&self, cluster: &Cluster, name: &ObjectName) -> Result<Value> {
        let group = match &name.group {
            Some(group) => group.clone(),
            None => unique_group(cluster, &name.kind)?,
        };
        let namespace = name.namespace.as_deref().unwrap_or(&self.namespace);
        let kind = cluster.kind(&group, &name.kind);
        let is_namespaced = kind.is_none_or(|kind| kind.is_namespaced);
        let reference = Reference::new(&group, &name.kind, is_namespaced.then_some(namespace), &name.name);
        let found = cluster.get(&reference).await?;
        let found = found.ok_or_else(|| Error::NotApplicable(format!("{reference} does not exist")))?;
        if self.owns(&found) {
            return Ok(found);
        }
        Err(Error::refused(format!(
            "{reference} belongs to another: only the custom resources of {}, their children, and objects of its \
             namespace that no other object owns may change",
            self.label()
        )))
    }

    /// Returns true if an object may change in an experiment.
    fn owns(&self, object: &Value) -> bool {
        let uid = &object["metadata"]["uid"];
        let is_known = self.resources.iter().chain(&self.children).any(|known| known["metadata"]["uid"] == *uid);
        let is_config = object["metadata"]["namespace"] == self.namespace.as_str()
            && ["ConfigMap", "Secret", "Service", "Lease"].iter().any(|kind| object["kind"] == *kind)
            && object["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty)
            && object["metadata"]["name"] != "kube-root-ca.crt";
        is_known || is_config
    }

    /// Finds the leases whose holder is a pod of the operator.
    async fn find_leases(&self, cluster: &Cluster) -> Result<Vec<Value>> {
        let pods = self.pods(cluster).await?;
        let leases = cluster.list_of("coordination.k8s.io", "Lease", Some(&self.namespace)).await?;
        let is_held = |lease: &Value| {
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            pods.iter().any(|pod| {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                !name.is_empty()
                    && holder.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
            })
        };
        Ok(leases.into_iter().filter(is_held).collect())
    }
}

async fn find_deployment(cluster: &Cluster, selection: &Selection) -> Result<Value> {
    let Selection { namespace, name, labels, .. } = selection;
    if let Some(name) = name {
        let reference = Reference::new("apps", "Deployment", Some(namespace), name);
        let found = cluster.get(&reference).await?;
        return found.ok_or_else(|| Error::Target(format!("{reference} does not exist: pass -n and --operator")));
    }
    let kind = cluster.kind("apps", "Deployment");
    let kind = kind.ok_or_else(|| Error::Target("the cluster serves no Deployments".to_owned()))?;
    let mut found = cluster.list(kind, Some(namespace), labels.as_deref()).await?;
    match (found.pop(), found.is_empty()) {
        (Some(deployment), true) => Ok(deployment),
        (None, _) => Err(Error::Target(format!("no Deployment found in namespace {namespace}: pass -n or --operator"))),
        (Some(last), false) => {
            found.push(last);
            let names: Vec<String> =
                found.iter().take(5).map(|one| clean(one["metadata"]["name"].as_str().unwrap_or_default())).collect();
            Err(Error::Target(format!(
                "{} Deployments in namespace {namespace}, such as {}: pass --operator deployment/NAME",
                found.len(),
                names.join(", ")
            )))
        }
    }
}

/// Returns the objects that custom resources own, directly or through other custom resources.
fn owned(resources: &[Value], candidates: Vec<Value>) -> Vec<Value> {
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut owners: BTreeSet<String> = resources.iter().map(uid).collect();
    let (mut children, mut rest): (Vec<Value>, Vec<Value>) = (Vec::new(), candidates);
    loop {
        let is_owned = |object: &Value| {
            let references = object["metadata"]["ownerReferences"].as_array();
            references.into_iter().flatten().any(|owner| owner["uid"].as_str().is_some_and(|uid| owners.contains(uid)))
        };
        let (found, others): (Vec<Value>, Vec<Value>) = rest.into_iter().partition(is_owned);
        if found.is_empty() || children.len() > MAX_OBJECTS {
            children.retain(|child| !resources.iter().any(|resource| uid(resource) == uid(child)));
            children.truncate(MAX_OBJECTS);
            return children;
        }
        let custom =
            found.iter().filter(|object| is_custom(crate::api::group_of(object["apiVersion"].as_str().unwrap_or(""))));
        owners.extend(custom.map(uid));
        children.extend(found);
        rest = others;
    }
}

/// Finds the webhook configurations whose service selects the pods of the operator.
async fn webhooks(cluster: &Cluster, namespace: &str, labels: &Value) -> Result<Vec<Value>> {
    let services = cluster.list_of("", "Service", Some(namespace)).await?;
    let selects = |service: &Value| {
        let selector = service["spec"]["selector"].as_object();
        selector
            .is_some_and(|selector| !selector.is_empty() && selector.iter().all(|(key, value)| labels[key] == *value))
    };
    let names: Vec<&Value> =
        services.iter().filter(|service| selects(service)).map(|service| &service["metadata"]["name"]).collect();
    let is_own = |webhook: &Value| {
        let service = &webhook["clientConfig"]["service"];
        service["namespace"] == namespace && names.contains(&&service["name"])
    };
    let mut found = Vec::new();
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        for mut configuration in cluster.list_of("admissionregistration.k8s.io", kind, None).await? {
            let Some(all) = configuration["webhooks"].as_array_mut() else { continue };
            all.retain(is_own);
            if !all.is_empty() {
                found.push(configuration);
            }
        }
    }
    Ok(found)
}

/// Returns the names of other workloads that use a service account.
async fn account_users(cluster: &Cluster, namespace: &str, account: &str, own: &Value) -> Result<Vec<String>> {
    let mut users = Vec::new();
    for kind in ["Deployment", "StatefulSet", "DaemonSet"] {
        for object in cluster.list_of("apps", kind, Some(namespace)).await? {
            let used = object["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap_or("default");
            if used == account && object["metadata"]["uid"] != own["metadata"]["uid"] {
                users.push(Reference::of(&object).to_string());
            }
        }
    }
    Ok(users)
}

/// Returns the only group that has a kind; the core group and built-in groups first.
fn unique_group(cluster: &Cluster, kind: &str) -> Result<String> {
    let groups: Vec<&str> = cluster
        .kinds()
        .filter(|known| known.resource.kind == kind)
        .map(|known| known.resource.group.as_str())
        .collect();
    let built_in = groups.iter().find(|group| !is_custom(group));
    match (built_in, &groups[..]) {
        (Some(group), _) | (None, [group]) => Ok((*group).to_owned()),
        (None, []) => Err(Error::NotApplicable(format!("the cluster serves no kind {}", clean(kind)))),
        (None, groups) => {
            let groups = groups.join(", ");
            Err(Error::NotApplicable(format!("the kind {} is in the groups {groups}: add its group", clean(kind))))
        }
    }
}

/// Formats a label selector of an object as a query.
fn selector_text(selector: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = selector["matchLabels"].as_object();
    let mut parts: Vec<String> =
        labels.into_iter().flatten().map(|(key, value)| format!("{key}={}", text(value))).collect();
    for one in selector["matchExpressions"].as_array().into_iter().flatten() {
        let values: Vec<String> = one["values"].as_array().into_iter().flatten().map(text).collect();
        let (key, values) = (text(&one["key"]), values.join(","));
        parts.push(match one["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key,
        });
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn children_are_owned_by_custom_resources_only() {
        let object = |api: &str, uid: &str, owner: &str| {
            json!({"apiVersion": api,
            "metadata": {"uid": uid, "ownerReferences": [{"uid": owner}]}})
        };
        let resources = [object("example.com/v1", "site", "none")];
        let candidates = vec![
            object("apps/v1", "deployment", "site"),
            object("apps/v1", "of-deployment", "deployment"),
            object("example.com/v1", "page", "site"),
            object("v1", "of-page", "page"),
            object("v1", "other", "other-site"),
            object("example.com/v1", "site", "site"),
        ];
        let found: Vec<Value> =
            owned(&resources, candidates).iter().map(|one| one["metadata"]["uid"].clone()).collect();
        assert_eq!(found, ["deployment", "page", "of-page"]);
    }

    #[test]
    fn selectors_are_queries() {
        let selector = json!({"matchLabels": {"app": "a"}, "matchExpressions": [
            {"key": "b", "operator": "In", "values": ["c", "d"]}, {"key": "e", "operator": "Exists"},
            {"key": "f", "operator": "DoesNotExist"}]});
        assert_eq!(selector_text(&selector), "app=a,b in (c,d),e,!f");
    }
}
