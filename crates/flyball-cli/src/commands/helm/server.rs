//! Checks of rendered objects by an API server in this process.
//!
//! Objects are applied as dry runs, as far as nothing depends on them: namespaces, CRDs and other objects that the
//! admission of others reads are created in the server, which ends with the check.

use crate::cluster::apply::items;
use crate::cluster::connection::block_on;
use crate::error::{Result, ResultExt, yaml_problem};
use flyball_chart::{HelmVersion, Lint, LintMessage, Severity};
use flyball_cluster::{Cluster, Options};
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Kinds that are created, in this order.
const CREATED: [&str; 5] = ["Namespace", "CustomResourceDefinition", "ServiceAccount", "PriorityClass", "RuntimeClass"];
const MANAGER: &str = "helm";
/// Service account of pods that name none, which controllers create in a running cluster.
const DEFAULT_ACCOUNT: &str = "default";
const BAD_REQUEST: u16 = 400;

/// An object, and the file that it comes from.
struct Source<'l> {
    path: &'l str,
    object: Value,
}

/// Returns the findings of an API server about the objects of a chart.
pub(super) fn check(lint: &Lint, namespace: &str, helm: HelmVersion) -> Vec<LintMessage> {
    if lint.objects.is_empty() && lint.crds.is_empty() {
        return Vec::new();
    }
    if lint.is_incomplete {
        let text = "objects are not checked by the API server, because values that the chart requires are missing";
        return vec![message(Severity::Info, "templates/", text.to_owned())];
    }
    let mut messages = Vec::new();
    let checked = block_on(async { run(lint, namespace, helm, &mut messages).await });
    if let Err(error) = checked {
        messages.push(message(Severity::Warning, "templates/", error.to_string()));
    }
    messages
}

fn message(severity: Severity, path: &str, text: String) -> LintMessage {
    LintMessage { severity, path: path.to_owned(), text }
}

async fn run(lint: &Lint, namespace: &str, helm: HelmVersion, messages: &mut Vec<LintMessage>) -> Result<()> {
    let cluster = Cluster::new(Options::system().context("cannot start an API server")?);
    let server = Server { client: cluster.admin(), namespace, helm };
    server.create_namespace(namespace).await?;
    let mut sources = Vec::new();
    for file in &lint.crds {
        match serde_saphyr::from_multiple::<Value>(&file.text) {
            Ok(documents) => sources.extend(documents.into_iter().map(|object| Source { path: &file.path, object })),
            Err(error) => messages.push(message(
                Severity::Error,
                &file.path,
                format!("unable to parse YAML: {}", yaml_problem(&error)),
            )),
        }
    }
    let objects = lint.objects.iter();
    sources.extend(objects.map(|manifest| Source { path: &manifest.path, object: manifest.object.clone() }));
    let flat = sources
        .into_iter()
        .flat_map(|Source { path, object }| items(object).into_iter().map(move |object| Source { path, object }));
    let mut sources: Vec<Source<'_>> = flat.filter(|source| !source.object.is_null()).collect();
    let order = |source: &Source<'_>| CREATED.iter().position(|kind| source.object["kind"] == *kind);
    sources.sort_by_key(|source| order(source).unwrap_or(CREATED.len()));
    for source in &sources {
        let is_created = order(source).is_some();
        for (severity, text) in server.check(&source.object, is_created).await? {
            messages.push(message(severity, source.path, text));
        }
    }
    Ok(())
}

/// Returns true if a name can stand in a URL as it is.
pub(super) fn is_path_segment(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c))
}

struct Server<'n> {
    client: Client,
    namespace: &'n str,
    helm: HelmVersion,
}

impl Server<'_> {
    /// Checks one object. An object with unknown fields is checked again without them.
    async fn check(&self, object: &Value, is_created: bool) -> Result<Vec<(Severity, String)>> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        let description = [kind, name].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        if let Some((field, _)) = [("apiVersion", api_version), ("kind", kind)].iter().find(|(_, text)| text.is_empty())
        {
            return Ok(vec![(Severity::Error, format!("{field} is missing"))]);
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let Ok((resource, capabilities)) =
            pinned_kind(&self.client, &GroupVersionKind::gvk(group, version, kind)).await
        else {
            let severity = if self.has_group(group).await? { Severity::Error } else { Severity::Warning };
            return Ok(vec![(severity, format!("the API server has no kind {kind} in {api_version}"))]);
        };
        let namespace = match text("/metadata/namespace") {
            "" => self.namespace,
            namespace => namespace,
        };
        if !is_path_segment(namespace) {
            return Ok(vec![(Severity::Error, format!("{description}: metadata.namespace {namespace:?} is invalid"))]);
        }
        let objects: Api<DynamicObject> = match capabilities.scope {
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, &resource),
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
        };
        let url = objects.resource_url();
        let mut found = Vec::new();
        for validation in ["Strict", "Ignore"] {
            let Err(error) = self.send(url, name, object, validation, is_created).await else { break };
            let kube::Error::Api(status) = error else { return Err(error).context("cannot check objects") };
            let text = format!("{description}: {}", status.message);
            if !found.contains(&(Severity::Error, text.clone())) {
                found.push((Severity::Error, text));
            }
            if status.code != BAD_REQUEST {
                break;
            }
        }
        if is_created && kind == "Namespace" && found.is_empty() {
            self.create_account(name).await?;
        }
        Ok(found)
    }

    /// Sends an object as a version of Helm does: Helm 4 applies it.
    async fn send(
        &self,
        url: &str,
        name: &str,
        object: &Value,
        validation: &str,
        is_created: bool,
    ) -> Result<(), kube::Error> {
        let dry_run = if is_created { "" } else { "&dryRun=All" };
        let query = format!("fieldManager={MANAGER}&fieldValidation={validation}{dry_run}");
        let applies = self.helm == HelmVersion::V4 && is_path_segment(name);
        let (method, url, content) = match applies {
            true => (Method::PATCH, format!("{url}/{name}?{query}"), "application/apply-patch+yaml"),
            false => (Method::POST, format!("{url}?{query}"), "application/json"),
        };
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = Request::builder().method(method).uri(url).header(CONTENT_TYPE, content).body(body);
        self.client.request::<Value>(request.map_err(kube::Error::HttpError)?).await.map(drop)
    }

    async fn has_group(&self, group: &str) -> Result<bool> {
        let groups = self.client.list_api_groups().await.context("cannot list API groups")?;
        Ok(group.is_empty() || groups.groups.iter().any(|known| known.name == group))
    }

    async fn create_namespace(&self, name: &str) -> Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.create("/api/v1/namespaces", &namespace).await?;
        self.create_account(name).await
    }

    async fn create_account(&self, namespace: &str) -> Result<()> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DEFAULT_ACCOUNT}});
        self.create(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await
    }

    /// Creates an object that may be there already.
    async fn create(&self, url: &str, object: &Value) -> Result<()> {
        match self.send(url, "", object, "Strict", true).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            other => other.context("cannot prepare the API server"),
        }
    }
}
