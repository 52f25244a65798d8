//! The cluster of `flyball helm template --validate` and `--dry-run=server`.
//!
//! It connects with the first request: as with Helm, a chart without `lookup` renders with `--dry-run=server` if there
//! is no cluster.

use super::server::is_path_segment;
use crate::cluster::connection::{Connection, ContextArgs};
use crate::cluster::kinds::AGGREGATED;
use crate::error::{Error, Result, ResultExt};
use flyball_chart::{Capabilities, Cluster, ClusterFlags, HelmVersion, Lookup, Release, TemplateArgs};
use http::Request;
use http::header::ACCEPT;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, APIResourceList};
use kube::config::Kubeconfig;
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::runtime::{Builder, Runtime};

pub(super) struct LiveCluster<'f> {
    flags: &'f ClusterFlags,
    runtime: Runtime,
    client: OnceCell<Client>,
    /// Kinds by version, `None` if the cluster does not serve the version.
    kinds: RefCell<BTreeMap<String, Option<Vec<APIResource>>>>,
}

/// Returns the value of a flag, or of Helm's variable for it.
fn setting(flag: Option<&String>, variable: &str) -> Option<String> {
    let of_environment = || std::env::var(variable).ok().filter(|value| !value.is_empty());
    flag.cloned().or_else(of_environment)
}

/// Returns the namespace of a release: that of the flag, of `HELM_NAMESPACE`, or of the kubeconfig's context.
pub(super) fn namespace(args: &TemplateArgs) -> Option<String> {
    setting(args.namespace.as_ref(), "HELM_NAMESPACE").or_else(|| namespace_of_context(&args.cluster))
}

fn namespace_of_context(flags: &ClusterFlags) -> Option<String> {
    let found = match &flags.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let config = found.ok()?;
    let name = setting(flags.kube_context.as_ref(), "HELM_KUBECONTEXT").or(config.current_context)?;
    let context = config.contexts.into_iter().find(|context| context.name == name)?.context?;
    context.namespace.filter(|namespace| !namespace.is_empty())
}

async fn config(flags: &ClusterFlags) -> Result<Config> {
    let found = ContextArgs {
        kubeconfig: flags.kubeconfig.as_ref().map(PathBuf::from),
        context: setting(flags.kube_context.as_ref(), "HELM_KUBECONTEXT"),
    };
    let url = setting(flags.kube_apiserver.as_ref(), "HELM_KUBEAPISERVER");
    let url = url.map(|url| url.parse::<http::Uri>().context("--kube-apiserver is not a URL")).transpose()?;
    let mut config = match (found.config().await, &url) {
        (Err(_), Some(url)) => Config::new(url.clone()),
        (found, _) => found?,
    };
    config.cluster_url = url.unwrap_or(config.cluster_url);
    let authority = setting(flags.kube_ca_file.as_ref(), "HELM_KUBECAFILE").map(PathBuf::from);
    config.root_cert_file = authority.or(config.root_cert_file);
    let insecure = setting(None, "HELM_KUBEINSECURE_SKIP_TLS_VERIFY").is_some_and(|value| value == "true");
    config.accept_invalid_certs |= flags.kube_insecure_skip_tls_verify || insecure;
    let name = setting(flags.kube_tls_server_name.as_ref(), "HELM_KUBETLS_SERVER_NAME");
    config.tls_server_name = name.or(config.tls_server_name);
    let auth = &mut config.auth_info;
    let token = setting(flags.kube_token.as_ref(), "HELM_KUBETOKEN").map(Into::into);
    auth.token = token.or(auth.token.take());
    auth.impersonate = setting(flags.kube_as_user.as_ref(), "HELM_KUBEASUSER").or(auth.impersonate.take());
    let groups = setting(None, "HELM_KUBEASGROUPS").map(|groups| groups.split(',').map(str::to_owned).collect());
    let groups = Some(flags.kube_as_group.clone()).filter(|groups| !groups.is_empty()).or(groups);
    auth.impersonate_groups = groups.or(auth.impersonate_groups.take());
    Ok(config)
}

/// Returns an error with its hints, because the errors of Helm are texts.
fn text(error: Error) -> String {
    let hints = error.hints().iter().map(|hint| format!("\nhint: {hint}"));
    format!("{error}{}", hints.collect::<String>())
}

fn message(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message,
        error => error.to_string(),
    }
}

/// Returns true if there is no object, or no version of this group.
fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

impl<'f> LiveCluster<'f> {
    pub(super) fn new(flags: &'f ClusterFlags) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
        Ok(Self { flags, runtime, client: OnceCell::new(), kinds: RefCell::default() })
    }

    fn client(&self) -> Result<&Client, String> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let connect = async { Connection::open(config(self.flags).await?).await };
        let connection = self.runtime.block_on(connect).map_err(text)?;
        Ok(self.client.get_or_init(|| connection.client))
    }

    /// Reads a document; `None` if there is none at this path.
    fn get<T: DeserializeOwned>(&self, path: &str, accept: &str) -> Result<Option<T>, String> {
        let request = Request::get(path).header(ACCEPT, accept).body(Vec::new()).map_err(|error| error.to_string())?;
        match self.runtime.block_on(self.client()?.request(request)) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(message(error)),
        }
    }

    /// Returns the kinds of a version, or `None` if the cluster does not serve the version.
    fn kinds(&self, api_version: &str) -> Result<Option<Vec<APIResource>>, String> {
        if let Some(kinds) = self.kinds.borrow().get(api_version) {
            return Ok(kinds.clone());
        }
        let list: Option<APIResourceList> = self.get(&root(api_version), JSON)?;
        let kinds = list.map(|list| list.resources);
        self.kinds.borrow_mut().insert(api_version.to_owned(), kinds.clone());
        Ok(kinds)
    }

    fn kind(&self, object: &Value) -> Result<Option<APIResource>, String> {
        let [api_version, kind] =
            [&object["apiVersion"], &object["kind"]].map(|field| field.as_str().unwrap_or_default());
        Ok(self.kinds(api_version)?.and_then(|kinds| named(kinds, kind)))
    }
}

const JSON: &str = "application/json";

/// Returns the path of a version.
fn root(api_version: &str) -> String {
    let prefix = if api_version.contains('/') { "/apis" } else { "/api" };
    format!("{prefix}/{api_version}")
}

/// Finds a kind, without its subresources.
fn named(kinds: Vec<APIResource>, name: &str) -> Option<APIResource> {
    kinds.into_iter().find(|kind| kind.kind == name && !kind.name.contains('/'))
}

/// Returns the path of an object, or of a list.
fn path(api_version: &str, kind: &APIResource, namespace: &str, name: &str) -> Result<String, String> {
    let mut path = root(api_version);
    let namespace = if kind.namespaced { namespace } else { "" };
    for (prefix, part) in [("/namespaces/", namespace), ("/", &kind.name), ("/", name)] {
        if !part.is_empty() {
            if !is_path_segment(part) {
                return Err(format!("invalid resource name {part:?}"));
            }
            path += &format!("{prefix}{part}");
        }
    }
    Ok(path)
}

impl Lookup for LiveCluster<'_> {
    fn lookup(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        let unknown = |cause: &str| {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            format!("unable to get apiresource from unstructured: {group}/{version}, Kind={kind}: {cause}")
        };
        let kinds = self.kinds(api_version).map_err(|error| unknown(&error))?;
        let kinds = kinds.ok_or_else(|| unknown("the server could not find the requested resource"))?;
        // As in Helm, a kind that a version lacks has no objects.
        let Some(kind) = named(kinds, kind) else { return Ok(None) };
        self.get(&path(api_version, &kind, namespace, name)?, JSON)
    }
}

impl Cluster for LiveCluster<'_> {
    fn capabilities(&self, helm: HelmVersion) -> Result<Capabilities, String> {
        let get = |path: &str, accept: &str| Ok::<Value, String>(self.get(path, accept)?.unwrap_or_default());
        let mut capabilities = Capabilities::of(helm);
        let version = get("/version", JSON)?;
        capabilities.set_kube_version(version["gitVersion"].as_str().unwrap_or_default())?;
        capabilities.set_discovered(&[get("/api", AGGREGATED)?, get("/apis", AGGREGATED)?]);
        Ok(capabilities)
    }

    fn check_kinds(&self, objects: &[Value]) -> Result<(), String> {
        let mut problems = Vec::new();
        for object in objects {
            if self.kind(object)?.is_none() {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let metadata = &object["metadata"];
                problems.push(format!(
                    "resource mapping not found for name: {:?} namespace: {:?} from \"\": no matches for kind {:?} in version {:?}\n\
                     ensure CRDs are installed first",
                    text(&metadata["name"]),
                    text(&metadata["namespace"]),
                    text(&object["kind"]),
                    text(&object["apiVersion"]),
                ));
            }
        }
        match problems.as_slice() {
            [] => Ok(()),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }

    fn check_owners(&self, objects: &[Value], release: &Release) -> Result<(), String> {
        for object in objects {
            let Some(kind) = self.kind(object)? else { continue };
            let metadata = &object["metadata"];
            let Some(name) = metadata["name"].as_str() else { continue };
            let namespace = match kind.namespaced {
                true => metadata["namespace"].as_str().unwrap_or(&release.namespace),
                false => "",
            };
            let described = format!("{} {name:?} in namespace {namespace:?}", kind.kind);
            let api_version = object["apiVersion"].as_str().unwrap_or_default();
            let live: Option<Value> = path(api_version, &kind, namespace, name)
                .and_then(|path| self.get(&path, JSON))
                .map_err(|error| format!("could not get information about the resource {described}: {error}"))?;
            if let Some(problems) = live.and_then(|live| ownership_problems(&live["metadata"], release)) {
                return Err(format!("{described} exists and cannot be imported into the current release: {problems}"));
            }
        }
        Ok(())
    }
}

/// Describes why an object does not belong to a release, in Helm's words.
fn ownership_problems(metadata: &Value, release: &Release) -> Option<String> {
    let required = [
        ("label", "app.kubernetes.io/managed-by", "Helm"),
        ("annotation", "meta.helm.sh/release-name", &release.name),
        ("annotation", "meta.helm.sh/release-namespace", &release.namespace),
    ];
    let problems: Vec<String> = required
        .into_iter()
        .filter_map(|(what, key, expected)| match metadata[format!("{what}s")][key].as_str() {
            Some(actual) if actual == expected => None,
            Some(actual) => Some(format!(
                "{what} validation error: key {key:?} must equal {expected:?}: current value is {actual:?}"
            )),
            None => Some(format!("{what} validation error: missing key {key:?}: must be set to {expected:?}")),
        })
        .collect();
    (!problems.is_empty()).then(|| format!("invalid ownership metadata; {}", problems.join("; ")))
}
