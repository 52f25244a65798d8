//! Removal of an operator: first its custom resources, while the operator can clean up.

use crate::cluster::connection::Connection;
use crate::cluster::kinds::Kinds;
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::error::{Error, Result, ResultExt};
use crate::operator::installation::{InstallTarget, MANAGED_BY};
use crate::render::progress::Progress;
use http::Request;
use kube::api::{DeleteParams, Preconditions};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Number of remaining objects that an error lists.
const NAMED: usize = 5;

/// The custom resources of one definition.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resources {
    /// Name of the definition.
    pub(crate) definition: String,
    pub(crate) kind: String,
    /// Number of custom resources.
    pub(crate) count: usize,
    #[serde(skip)]
    path: String,
}

/// One custom resource.
struct CustomResource {
    namespace: Option<String>,
    name: String,
    uid: String,
    finalizers: Vec<String>,
}

impl CustomResource {
    fn key(&self) -> String {
        self.namespace.as_ref().map_or_else(|| self.name.clone(), |namespace| format!("{namespace}/{}", self.name))
    }
}

impl Resources {
    /// Counts the custom resources of definitions in the cluster; a missing definition has none.
    pub(crate) async fn count(connection: &Connection, definitions: &[Value]) -> Result<Vec<Self>> {
        Self::count_in(connection, None, definitions).await
    }

    /// Counts the custom resources of definitions in a namespace, or in all.
    pub(crate) async fn count_in(
        connection: &Connection,
        namespace: Option<&str>,
        definitions: &[Value],
    ) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for definition in definitions {
            let Some(there) = connection.find(definition).await? else { continue };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let spec = &there["spec"];
            let versions = spec["versions"].as_array().into_iter().flatten();
            // The storage version, which needs no conversion, if it is served.
            let served =
                versions.filter(|version| version["served"] == true).max_by_key(|version| version["storage"] == true);
            let Some(version) = served.map(|version| text(&version["name"])) else { continue };
            let place = namespace.map(|name| format!("namespaces/{name}/")).unwrap_or_default();
            let path = format!("/apis/{}/{version}/{place}{}", text(&spec["group"]), text(&spec["names"]["plural"]));
            let mut resources = Self {
                definition: text(&there["metadata"]["name"]),
                kind: text(&spec["names"]["kind"]),
                count: 0,
                path,
            };
            resources.count = resources.list(connection).await?.len();
            all.push(resources);
        }
        Ok(all)
    }

    async fn list(&self, connection: &Connection) -> Result<Vec<CustomResource>> {
        let what = || format!("cannot list {}", self.definition);
        let request = Request::get(&self.path).body(Vec::new()).context(what())?;
        let list: Value = connection.client.request(request).await.context(what())?;
        let found = |object: &Value| {
            let metadata = &object["metadata"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let finalizers = metadata["finalizers"].as_array().into_iter().flatten().map(text).collect();
            let namespace = metadata["namespace"].as_str().map(str::to_owned);
            CustomResource { namespace, name: text(&metadata["name"]), uid: text(&metadata["uid"]), finalizers }
        };
        Ok(list["items"].as_array().into_iter().flatten().map(found).collect())
    }

    /// Deletes all of them, and waits until their finalizers are removed.
    pub(crate) async fn delete(&self, connection: &Connection, wait: Duration) -> Result<()> {
        let (root, plural) = self.path.rsplit_once('/').unwrap_or_default();
        for CustomResource { namespace, name, uid, .. } in self.list(connection).await? {
            let scope = namespace.map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
            let what = || format!("cannot delete {} {name}", self.kind);
            // With the UID as precondition, in case the object was recreated meanwhile.
            let params =
                DeleteParams::default().preconditions(Preconditions { uid: Some(uid), resource_version: None });
            let body = serde_json::to_vec(&params).context(what())?;
            let request = Request::delete(format!("{root}{scope}/{plural}/{name}"));
            let request = request.header(http::header::CONTENT_TYPE, "application/json").body(body).context(what())?;
            match connection.client.request::<Value>(request).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                response => drop(response.context(what())?),
            }
        }
        let mut progress = Progress::new(&format!("{}: waiting for the operator", self.kind));
        let removed = poll_until(wait, POLL_INTERVAL, async || {
            let remaining = self.list(connection).await?;
            progress.show(format!("{} {} left", remaining.len(), self.kind));
            Ok(if remaining.is_empty() { Ok(()) } else { Err(remaining) })
        });
        removed.await?.map_err(|remaining| self.timeout_error(&remaining, wait))
    }

    fn timeout_error(&self, remaining: &[CustomResource], wait: Duration) -> Error {
        let mut lines: Vec<String> = remaining
            .iter()
            .take(NAMED)
            .map(|found| {
                let why = match &found.finalizers[..] {
                    [] => "was created again, or is still being deleted".to_owned(),
                    finalizers => format!("has finalizer {}", finalizers.join(", ")),
                };
                format!("\n  {} {} {why}", self.kind, found.key())
            })
            .collect();
        if remaining.len() > NAMED {
            lines.push(format!("\n  and {} more", remaining.len() - NAMED));
        }
        let first = remaining.first().map(CustomResource::key).unwrap_or_default();
        Error::new(format!("timed out after {} s with {} {} left:{}", wait.as_secs(), remaining.len(), self.kind, lines.concat()))
            .hint("the operator removes finalizers after cleaning up: check that it runs, and check its log (flyball logs); the operator was not removed")
            .hint(format!("if no operator is left to clean up, remove the finalizers of {first} yourself"))
    }
}

/// Kinds of objects that an operator may no longer need.
const PRUNED_KINDS: [(&str, &str); 11] = [
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("v1", "Service"),
];

/// Finds objects of an earlier `deploy` of the operator that are not among these objects: roles, and webhook
/// configurations and policies, which would call an operator that no longer serves them. Other objects in other
/// namespaces are kept.
pub(crate) async fn find_stale(
    connection: &Connection,
    kinds: &Kinds,
    target: &InstallTarget,
    objects: &[Value],
) -> Result<Vec<Value>> {
    let selector = format!("{}={},app.kubernetes.io/name={}", MANAGED_BY.0, MANAGED_BY.1, target.name());
    let key = |object: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&object["kind"]), text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
    };
    let desired: BTreeSet<_> = objects.iter().map(key).collect();
    let mut stale = Vec::new();
    for (api_version, kind) in PRUNED_KINDS {
        let Some(known) = kinds.of(api_version, kind) else { continue };
        let path = known.path(None, None);
        let what = || format!("cannot list {}", known.plural);
        let request = Request::get(format!("{path}?labelSelector={selector}")).body(Vec::new()).context(what())?;
        let list: Value = connection.client.request(request).await.context(what())?;
        for object in known.items(list) {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let may_go = namespace.is_empty() || namespace == target.namespace || kind.starts_with("Role");
            if may_go && !desired.contains(&key(&object)) {
                stale.push(object);
            }
        }
    }
    Ok(stale)
}

/// Prompts for confirmation; without a terminal, `--yes` is required.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    let unasked = || Error::new("nothing was removed: not confirmed").hint("confirm with --yes");
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(unasked());
    }
    let mut out = std::io::stdout();
    let written = write!(out, "{question} [y/N] ").and_then(|()| out.flush());
    let mut response = String::new();
    let read = written.and_then(|()| std::io::stdin().read_line(&mut response));
    match read {
        Ok(_) if matches!(response.trim().to_lowercase().as_str(), "y" | "yes") => Ok(()),
        _ => Err(Error::new("nothing was removed")),
    }
}
