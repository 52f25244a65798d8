//! The operators whose debug pages are read: those that the command line names, those on this machine, and those that
//! `flyball deploy` installed, through the API server.

use super::answer::Source;
use super::page::{Object, ObjectPage, Overview, Reconcile, Reconciles};
use crate::error::{Error, Result, ResultExt};
use crate::operator::installation::MANAGED_BY;
use crate::operator::metrics::SECURE_METRICS_PORT;
use crate::operator::registry;
use crate::web::{Receiver, Web};
use bytes::Bytes;
use clap::Args;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Limit of operators.
const MAX_OPERATORS: usize = 32;
/// Timeout of a page.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Size limit of a page.
const MAX_PAGE_BYTES: usize = 32 << 20;
/// Reconciles of one object that are read.
const MAX_RECONCILES: usize = 500;
/// Header with the token of the caller. The API server removes `Authorization` from what it forwards to a pod.
const FORWARDED_TOKEN: &str = "flyball-authorization";

/// Flags that name operators.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OperatorArgs {
    /// Address of the metrics of an operator, such as http://127.0.0.1:8080; operators on this machine, and those that
    /// flyball deployed, are found without it
    #[arg(long = "operator", value_name = "URL")]
    pub(crate) operators: Vec<String>,
    /// Bearer token for operators with secure metrics
    #[arg(long, env = "FLYBALL_OPERATOR_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) operator_token: Option<String>,
}

/// The location of the pages of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Url(String),
    /// A path of the API server, which forwards requests to a pod.
    Pod(String),
}

/// An operator that responded.
#[derive(Clone, Debug)]
pub(super) struct Operator {
    address: Address,
    pub(super) overview: Overview,
}

/// The operators of a cluster.
#[derive(Debug)]
pub(super) struct Operators {
    pub(super) reached: Vec<Operator>,
    pub(super) sources: Vec<Source>,
    pages: Pages,
}

#[derive(Clone)]
struct Pages {
    web: Web,
    client: Client,
    token: Option<String>,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Operator {
    pub(super) fn with_overview(overview: Overview) -> Self {
        Self { address: Address::Url(String::new()), overview }
    }
}

impl Operators {
    /// Finds the operators of a cluster, and reads their first pages.
    pub(super) async fn find(client: &Client, args: &OperatorArgs) -> Result<Self> {
        let pages = Pages { web: Web::new(TIMEOUT)?, client: client.clone(), token: args.operator_token.clone() };
        let mut addresses: Vec<Address> = args.operators.iter().map(|url| named(url)).collect::<Result<_>>()?;
        if let Some(cluster) = registry::cluster_id(client).await {
            let here =
                registry::addresses(&cluster).into_iter().map(|address| Address::Url(format!("http://{address}")));
            addresses.extend(here.filter(|address| !addresses.contains(address)).collect::<Vec<_>>());
        }
        addresses.extend(deployed(client).await);
        addresses.truncate(MAX_OPERATORS);
        let mut asked = JoinSet::new();
        for (at, address) in addresses.into_iter().enumerate() {
            let pages = pages.clone();
            asked.spawn(async move {
                let overview = pages.get::<Overview>(&address, "").await;
                (at, address, overview)
            });
        }
        let mut asked = asked.join_all().await;
        asked.sort_by_key(|(at, ..)| *at);
        let (mut reached, mut sources) = (Vec::new(), Vec::new());
        for (_, address, overview) in asked {
            let shown = address.to_string();
            match overview {
                Ok(overview) => {
                    sources.push(Source { address: shown, operator: Some(overview.operator.clone()), error: None });
                    reached.push(Operator { address, overview });
                }
                Err(error) => sources.push(Source { address: shown, operator: None, error: Some(error.to_string()) }),
            }
        }
        Ok(Self { reached, sources, pages })
    }

    /// Returns the reconciles that involve an object, of all operators, newest first. An operator that does not
    /// respond any more has none.
    pub(super) async fn reconciles(&self, object: &Object) -> Vec<(String, Reconcile)> {
        let mut found: Vec<(String, Reconcile)> = Vec::new();
        for operator in &self.reached {
            let page = format!("/reconciles?{}&involves=true&limit={MAX_RECONCILES}", query(object));
            let page = self.pages.get::<Reconciles>(&operator.address, &page).await.unwrap_or_default();
            let name = &operator.overview.operator;
            found.extend(page.reconciles.into_iter().map(|reconcile| (name.clone(), reconcile)));
        }
        found.sort_by(|(_, one), (_, other)| other.began.cmp(&one.began));
        found
    }

    /// Returns what the operators know about an object.
    pub(super) async fn states(&self, object: &Object) -> Vec<(&Operator, ObjectPage)> {
        let mut states = Vec::new();
        for operator in &self.reached {
            let page = format!("/object?{}", query(object));
            if let Ok(state) = self.pages.get::<ObjectPage>(&operator.address, &page).await {
                states.push((operator, state));
            }
        }
        states
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(text) | Self::Pod(text) => f.write_str(text),
        }
    }
}

impl Pages {
    async fn get<T: DeserializeOwned>(&self, address: &Address, page: &str) -> Result<T> {
        let text = match timeout(TIMEOUT, self.read(address, page)).await {
            Ok(text) => text?,
            Err(_) => return Err(Error::new(format!("no response within {} s", TIMEOUT.as_secs()))),
        };
        serde_json::from_slice(&text).context("the page is not that of an operator with a ledger")
    }

    async fn read(&self, address: &Address, page: &str) -> Result<Bytes> {
        let bearer = self.token.as_ref().map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        let bearer = bearer.transpose().context("the token has invalid characters")?;
        let invalid = "invalid address";
        match address {
            Address::Url(url) => {
                let mut request = Request::get(format!("{url}/debug/flyball{page}"));
                if let Some(bearer) = bearer {
                    request = request.header(AUTHORIZATION, bearer);
                }
                let request = request.body(Bytes::new()).context(invalid)?;
                let mut receiver = Receiver { max_bytes: MAX_PAGE_BYTES, on_received: None };
                let response = self.web.receive(request, &mut receiver).await?;
                match response.status().as_u16() {
                    200 => Ok(response.into_body()),
                    401 | 403 => Err(Error::new("it requires a token that may get /debug/flyball")
                        .hint("set FLYBALL_OPERATOR_TOKEN")),
                    404 => Err(Error::new("it has no debug pages: build it with this version of Flyball")),
                    code => Err(Error::new(format!("it returned {code}"))),
                }
            }
            Address::Pod(path) => {
                let mut request = Request::get(format!("{path}/debug/flyball{page}"));
                if let Some(bearer) = bearer {
                    request = request.header(FORWARDED_TOKEN, bearer);
                }
                let request = request.body(Vec::new()).context(invalid)?;
                let text = self.client.request_text(request).await.context("the API server cannot reach the pod")?;
                Ok(text.into())
            }
        }
    }
}

/// Parses an address on the command line.
fn named(url: &str) -> Result<Address> {
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let parsed = url::Url::parse(&url).ok().filter(|parsed| matches!(parsed.scheme(), "http" | "https"));
    match parsed.filter(url::Url::has_host) {
        Some(_) => {
            let base = url.trim_end_matches('/');
            let base = base.strip_suffix("/metrics").or_else(|| base.strip_suffix("/debug/flyball")).unwrap_or(base);
            Ok(Address::Url(base.to_owned()))
        }
        None => Err(Error::usage(format!("--operator: {url:?} is not an address"))
            .hint("use the address of its metrics, such as http://127.0.0.1:8080")),
    }
}

/// Returns the paths to pods of operators that `flyball deploy` installed. Without permission to find them there are
/// none.
async fn deployed(client: &Client) -> Vec<Address> {
    use k8s_openapi::api::apps::v1::Deployment;
    let ours = ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    let Ok(deployments) = Api::<Deployment>::all(client.clone()).list(&ours).await else { return Vec::new() };
    let mut found = Vec::new();
    for deployment in deployments.items.iter().take(MAX_OPERATORS) {
        let namespace = deployment.namespace().unwrap_or_default();
        let labels = deployment.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone()).unwrap_or_default();
        let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
        let Ok(pods) = pods.list(&ListParams::default().labels(&selector.join(","))).await else { continue };
        found.extend(pods.items.iter().filter_map(|pod| forwarded(&namespace, pod)));
    }
    found
}

/// Returns the path by which the API server forwards requests to the metrics of a running pod.
fn forwarded(namespace: &str, pod: &Pod) -> Option<Address> {
    let is_running = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let mut containers = pod.spec.iter().filter(|_| is_running).flat_map(|spec| &spec.containers);
    let (container, port) = containers.find_map(|container| {
        let port = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some("metrics"))?;
        Some((container, port.container_port))
    })?;
    let is_secure = container.args.iter().flatten().any(|arg| arg == "--metrics-secure");
    let scheme = if is_secure || port == i32::from(SECURE_METRICS_PORT) { "https:" } else { "" };
    Some(Address::Pod(format!("/api/v1/namespaces/{namespace}/pods/{scheme}{}:{port}/proxy", pod.name_any())))
}

/// Encodes the identity of an object as parameters.
fn query(object: &Object) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("group", &object.group).append_pair("kind", &object.kind).append_pair("name", &object.name);
    if let Some(namespace) = &object.namespace {
        query.append_pair("namespace", namespace);
    }
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_are_those_of_metrics() {
        for text in ["127.0.0.1:8080", "http://127.0.0.1:8080/", "http://127.0.0.1:8080/metrics"] {
            assert_eq!(named(text).expect("an address"), Address::Url("http://127.0.0.1:8080".into()), "{text}");
        }
        assert!(named("ftp://a").is_err() && named("http://").is_err());
    }

    #[test]
    fn running_pods_are_reached_through_the_api_server() {
        let pod = |phase: &str, args: &[&str], port: u16| {
            let pod = json!({
                "metadata": {"name": "op-1"}, "status": {"phase": phase},
                "spec": {"containers": [{"name": "manager", "args": args, "ports": [
                    {"name": "metrics", "containerPort": port},
                ]}]},
            });
            forwarded("ns", &serde_json::from_value(pod).expect("a pod")).map(|address| address.to_string())
        };
        let secure = Some("/api/v1/namespaces/ns/pods/https:op-1:8443/proxy".to_owned());
        assert_eq!(pod("Running", &["--metrics-secure"], 8443), secure);
        assert_eq!(pod("Running", &[], 8080), Some("/api/v1/namespaces/ns/pods/op-1:8080/proxy".to_owned()));
        assert_eq!(pod("Pending", &[], 8080), None);
    }
}
