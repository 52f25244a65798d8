//! The operators whose debug pages are read: those that the command line names, those on this machine, and those that
//! `flyball deploy` installed, through the API server.
//!
//! Invariant: the token is sent only to operators that the command line names.

use super::answer::Source;
use super::claims::{Claimant, Recorded};
use super::deployments;
use super::endpoint::{Address, Endpoint};
use super::page::{Object, ObjectPage, Overview, Reconciles};
use super::token::TokenArgs;
use crate::error::{Error, Result, ResultExt};
use crate::operator::registry;
use crate::web::{Receiver, Web};
use bytes::Bytes;
use clap::Args;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
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
const NO_PAGES: &str = "it has no debug pages: build it with this version of Flyball";
/// Header with the token of the caller. The API server removes `Authorization` from what it forwards to a pod.
pub(super) const FORWARDED_TOKEN: &str = "flyball-authorization";

/// Flags that name operators.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OperatorArgs {
    /// Address of the metrics of an operator, such as http://127.0.0.1:8080, or NAMESPACE/DEPLOYMENT; others on this
    /// machine, and those that flyball deployed, are found without it, but get no token
    #[arg(long = "operator", value_name = "URL|NAMESPACE/DEPLOYMENT")]
    pub(crate) operators: Vec<String>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
}

/// An operator that responded.
#[derive(Clone, Debug)]
pub(super) struct Operator {
    endpoint: Endpoint,
    pub(super) overview: Overview,
}

/// An operator on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OperatorName {
    Url(String),
    Deployment(String, String),
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

impl Operator {
    /// Returns the Deployment of an operator that was merely discovered.
    pub(super) fn claimant(&self) -> Option<&Claimant> {
        self.endpoint.claimant.as_ref()
    }
}

#[cfg(test)]
impl Operator {
    pub(super) fn with_overview(overview: Overview, claimant: Option<Claimant>) -> Self {
        let address = Address::Url(String::new());
        Self { endpoint: Endpoint { address, is_named: false, claimant }, overview }
    }
}

impl Operators {
    /// Finds the operators of a cluster, and reads their first pages.
    pub(super) async fn find(client: &Client, args: &OperatorArgs) -> Result<Self> {
        let pages = Pages { web: Web::new(TIMEOUT)?, client: client.clone(), token: args.token.token()? };
        let (mut endpoints, mut sources) = endpoints(client, args).await?;
        endpoints.truncate(MAX_OPERATORS);
        let mut asked = JoinSet::new();
        for (at, endpoint) in endpoints.into_iter().enumerate() {
            let pages = pages.clone();
            asked.spawn(async move {
                let overview = pages.get::<Overview>(&endpoint, "").await;
                (at, endpoint, overview)
            });
        }
        let mut asked = asked.join_all().await;
        asked.sort_by_key(|(at, ..)| *at);
        let mut reached = Vec::new();
        for (_, endpoint, overview) in asked {
            let shown = endpoint.address.to_string();
            match overview {
                Ok(overview) => {
                    sources.push(Source { address: shown, operator: Some(overview.operator.clone()), error: None });
                    reached.push(Operator { endpoint, overview });
                }
                Err(error) => sources.push(Source { address: shown, operator: None, error: Some(error.to_string()) }),
            }
        }
        Ok(Self { reached, sources, pages })
    }

    /// Returns the reconciles that involve an object, of all operators, newest first. An operator that does not
    /// respond any more has none.
    pub(super) async fn reconciles(&self, object: &Object) -> Vec<Recorded> {
        let mut found: Vec<Recorded> = Vec::new();
        for operator in &self.reached {
            let page = format!("/reconciles?{}&involves=true&limit={MAX_RECONCILES}", query(object));
            let page = self.pages.get::<Reconciles>(&operator.endpoint, &page).await.unwrap_or_default();
            found.extend(page.reconciles.into_iter().take(MAX_RECONCILES).map(|reconcile| Recorded {
                operator: operator.overview.operator.clone(),
                claimant: operator.endpoint.claimant.clone(),
                reconcile,
            }));
        }
        found.sort_by(|one, other| other.reconcile.began.cmp(&one.reconcile.began));
        found
    }

    /// Returns what the operators know about an object.
    pub(super) async fn states(&self, object: &Object) -> Vec<(&Operator, ObjectPage)> {
        let mut states = Vec::new();
        for operator in &self.reached {
            let page = format!("/object?{}", query(object));
            if let Ok(state) = self.pages.get::<ObjectPage>(&operator.endpoint, &page).await {
                states.push((operator, state));
            }
        }
        states
    }
}

impl Pages {
    async fn get<T: DeserializeOwned>(&self, endpoint: &Endpoint, page: &str) -> Result<T> {
        let text = match timeout(TIMEOUT, self.read(endpoint, page)).await {
            Ok(text) => text?,
            Err(_) => return Err(Error::new(format!("no response within {} s", TIMEOUT.as_secs()))),
        };
        serde_json::from_slice(&text).context("the page is not that of an operator with a ledger")
    }

    async fn read(&self, endpoint: &Endpoint, page: &str) -> Result<Bytes> {
        let token = self.token.as_ref().filter(|_| endpoint.is_named);
        let bearer = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        let bearer = bearer.transpose().context("the token has invalid characters")?;
        let invalid = "invalid address";
        match &endpoint.address {
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
                    401 | 403 => Err(endpoint.refusal(token.is_some())),
                    404 => Err(Error::new(NO_PAGES)),
                    code => Err(Error::new(format!("it returned {code}"))),
                }
            }
            Address::Pod { path, .. } => {
                let mut request = Request::get(format!("{path}/debug/flyball{page}"));
                if let Some(bearer) = bearer {
                    request = request.header(FORWARDED_TOKEN, bearer);
                }
                let request = request.body(Body::empty()).context(invalid)?;
                let response = self.client.send(request).await.context("the API server cannot reach the pod")?;
                let code = response.status().as_u16();
                let body = Limited::new(response.into_body(), MAX_PAGE_BYTES).collect().await;
                let body = body.map_err(|error| Error::caused("cannot read the page", error))?.to_bytes();
                match (code, serde_json::from_slice::<Status>(&body).ok()) {
                    (200, _) => Ok(body),
                    // The API server says so as a `Status`, unlike an operator.
                    (401 | 403, None) => Err(endpoint.refusal(token.is_some())),
                    (_, Some(status)) => {
                        Err(Error::new(format!("the API server cannot reach the pod: {}", status.message)))
                    }
                    (404, None) => Err(Error::new(NO_PAGES)),
                    (code, None) => Err(Error::new(format!("it returned {code}"))),
                }
            }
        }
    }
}

/// Returns the endpoints of all operators, named ones first, and the named operators that cannot be found.
///
/// # Errors
///
/// If a name on the command line is invalid.
pub(crate) async fn endpoints(client: &Client, args: &OperatorArgs) -> Result<(Vec<Endpoint>, Vec<Source>)> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    let names: Vec<OperatorName> = args.operators.iter().map(|text| parse(text)).collect::<Result<_>>()?;
    for name in names {
        match name {
            OperatorName::Url(url) => found.push(Endpoint::named(Address::Url(url))),
            OperatorName::Deployment(namespace, name) => match deployments::named(client, &namespace, &name).await {
                Ok(pods) => found.extend(pods),
                Err(error) => missing.push(Source {
                    address: format!("{namespace}/{name}"),
                    operator: None,
                    error: Some(error.to_string()),
                }),
            },
        }
    }
    let mut others = Vec::new();
    if let Some(cluster) = registry::cluster_id(client).await {
        let addresses = registry::addresses(&cluster).into_iter();
        others.extend(addresses.map(|address| Endpoint::local(Address::Url(format!("http://{address}")))));
    }
    others.extend(deployments::discover(client).await);
    for other in others {
        if !found.iter().any(|known| known.address == other.address) {
            found.push(other);
        }
    }
    Ok((found, missing))
}

/// Parses an operator on the command line.
fn parse(text: &str) -> Result<OperatorName> {
    if let Some((namespace, name)) = deployments::parse(text) {
        return Ok(OperatorName::Deployment(namespace, name));
    }
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let parsed = url::Url::parse(&url).ok().filter(|parsed| matches!(parsed.scheme(), "http" | "https"));
    match parsed.filter(url::Url::has_host) {
        Some(_) => {
            let base = url.trim_end_matches('/');
            let base = base.strip_suffix("/metrics").or_else(|| base.strip_suffix("/debug/flyball")).unwrap_or(base);
            Ok(OperatorName::Url(base.to_owned()))
        }
        None => Err(Error::usage(format!("--operator: {text:?} is neither an address nor a Deployment"))
            .hint("use the address of its metrics, such as http://127.0.0.1:8080, or NAMESPACE/DEPLOYMENT")),
    }
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

    #[test]
    fn operators_are_addresses_of_metrics_or_deployments() {
        for text in ["127.0.0.1:8080", "http://127.0.0.1:8080/", "http://127.0.0.1:8080/metrics"] {
            let expected = OperatorName::Url("http://127.0.0.1:8080".into());
            assert_eq!(parse(text).expect("an address"), expected, "{text}");
        }
        let expected = OperatorName::Deployment("shop-system".into(), "shop".into());
        assert_eq!(parse("shop-system/shop").expect("a Deployment"), expected);
        assert!(parse("ftp://a").is_err() && parse("http://").is_err());
    }
}
