//! The operators whose debug pages are read: those that the command line names, those on this machine, and those that
//! `flyball deploy` installed, through the API server.
//!
//! Invariant: the token is sent only to operators that the command line names, and only as [`Pages`] permits.

use super::answer::Source;
use super::claims::Recorded;
use super::deployments;
use super::endpoint::Endpoint;
use super::page::{Object, ObjectPage, Overview, Reconciles, time};
use super::token::{Credentials, TokenArgs};
use crate::error::{Error, Result, ResultExt};
use crate::operator::registry;
use clap::Args;
use flyball_console::{Claimant, Location, Pages, is_manager};
use kube::Client;
use serde::de::DeserializeOwned;
use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::JoinSet;
use url::Url;

/// Limit of operators.
const MAX_OPERATORS: usize = 32;
/// Reconciles of one object that are read.
const MAX_RECONCILES: usize = 500;

/// Flags that name operators.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OperatorArgs {
    /// Address of the metrics of an operator, such as http://127.0.0.1:8080, or NAMESPACE/DEPLOYMENT; others on this
    /// machine, and those that flyball deployed, are found without it, but get no token
    #[arg(long = "operator", value_name = "URL|NAMESPACE/DEPLOYMENT")]
    pub(crate) operators: Vec<String>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// File with the CA of operators that serve https
    #[arg(long, value_name = "FILE")]
    pub(crate) operator_ca: Option<PathBuf>,
}

impl OperatorArgs {
    /// Returns the credentials for operators.
    pub(crate) fn credentials(&self) -> Result<Credentials> {
        self.token.credentials(self.operator_ca.as_deref())
    }
}

/// An operator that responded.
#[derive(Clone, Debug)]
pub(super) struct Operator {
    pages: Arc<Pages>,
    claimant: Option<Claimant>,
    pub(super) overview: Overview,
}

/// An operator on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OperatorName {
    Url(Url),
    Deployment(String, String),
}

/// The operators of a cluster.
pub(super) struct Operators {
    pub(super) reached: Vec<Operator>,
    pub(super) sources: Vec<Source>,
    client: Client,
}

impl Operator {
    /// Returns the Deployment of an operator that was merely discovered.
    pub(super) fn claimant(&self) -> Option<&Claimant> {
        self.claimant.as_ref()
    }
}

#[cfg(test)]
impl Operator {
    pub(super) fn with_overview(overview: Overview, claimant: Option<Claimant>) -> Self {
        let location = Location::Pod { deployment: String::new(), path: String::new() };
        let pages = Arc::new(Pages::new(Endpoint::local(location).address(&Credentials::default())));
        Self { pages, claimant, overview }
    }
}

impl Operators {
    /// Finds the operators of a cluster, and reads their first pages.
    ///
    /// `server` is the URL of the API server.
    pub(super) async fn find(client: &Client, server: &str, args: &OperatorArgs) -> Result<Self> {
        let credentials = args.credentials()?;
        let (mut endpoints, mut sources) = endpoints(client, server, args).await?;
        endpoints.truncate(MAX_OPERATORS);
        let mut asked = JoinSet::new();
        for (at, endpoint) in endpoints.into_iter().enumerate() {
            let (client, pages) = (client.clone(), Arc::new(Pages::new(endpoint.address(&credentials))));
            asked.spawn(async move {
                let overview = read::<Overview>(&client, &pages, "", "").await;
                (at, endpoint, pages, overview)
            });
        }
        let mut asked = asked.join_all().await;
        asked.sort_by_key(|(at, ..)| *at);
        let mut reached = Vec::new();
        for (_, endpoint, pages, overview) in asked {
            let (shown, claimant) = (endpoint.to_string(), endpoint.claimant);
            match overview {
                Ok(overview) => {
                    sources.push(Source { address: shown, operator: Some(overview.operator.clone()), error: None });
                    reached.push(Operator { pages, claimant, overview });
                }
                Err(error) => sources.push(Source { address: shown, operator: None, error: Some(error.to_string()) }),
            }
        }
        Ok(Self { reached, sources, client: client.clone() })
    }

    /// Returns the reconciles that involve an object, of all operators, newest first. An operator that does not
    /// respond any more has none.
    pub(super) async fn reconciles(&self, object: &Object) -> Vec<Recorded> {
        let mut found: Vec<Recorded> = Vec::new();
        for operator in &self.reached {
            let query = format!("{}&involves=true&limit={MAX_RECONCILES}", query(object));
            let page = read::<Reconciles>(&self.client, &operator.pages, "/reconciles", &query).await;
            let page = page.unwrap_or_default();
            found.extend(page.reconciles.into_iter().take(MAX_RECONCILES).map(|reconcile| Recorded {
                operator: operator.overview.operator.clone(),
                manager: operator.overview.manager().to_owned(),
                claimant: operator.claimant.clone(),
                reconcile,
            }));
        }
        // Those without a valid time are last.
        found.sort_by_key(|recorded| Reverse(time(&recorded.reconcile.began)));
        found
    }

    /// Returns true if an operator other than a claimant has its field manager, so that managed fields prove nothing.
    pub(super) fn share_manager(&self, manager: &str, claimant: &Claimant) -> bool {
        let is_other = |operator: &&Operator| {
            operator.claimant.as_ref().is_none_or(|other| other.deployment != claimant.deployment)
        };
        let is_same = |other: &str| is_manager(manager, other) || is_manager(other, manager);
        self.reached.iter().filter(is_other).any(|operator| is_same(operator.overview.manager()))
    }

    /// Returns what the operators know about an object.
    pub(super) async fn states(&self, object: &Object) -> Vec<(&Operator, ObjectPage)> {
        let mut states = Vec::new();
        for operator in &self.reached {
            let page = read::<ObjectPage>(&self.client, &operator.pages, "/object", &query(object)).await;
            if let Ok(state) = page {
                states.push((operator, state));
            }
        }
        states
    }
}

async fn read<T: DeserializeOwned>(client: &Client, pages: &Pages, page: &str, query: &str) -> Result<T> {
    let page = pages.get(client, page, query).await.map_err(|error| Error::new(error.to_string()))?;
    serde_json::from_value(page).context("the page is not that of an operator with a ledger")
}

/// Returns the endpoints of all operators, named ones first, and the named operators that cannot be found. `server` is
/// the URL of the API server, whose operators run on this machine: a fork of a cluster has the identity of the cluster.
///
/// # Errors
///
/// If a name on the command line is invalid.
pub(crate) async fn endpoints(
    client: &Client,
    server: &str,
    args: &OperatorArgs,
) -> Result<(Vec<Endpoint>, Vec<Source>)> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    let names: Vec<OperatorName> = args.operators.iter().map(|text| parse(text)).collect::<Result<_>>()?;
    for name in names {
        match name {
            OperatorName::Url(url) => add(&mut found, Endpoint::named(Location::url(url))),
            OperatorName::Deployment(namespace, name) => match deployments::named(client, &namespace, &name).await {
                Ok(pods) => pods.into_iter().for_each(|pod| add(&mut found, pod)),
                Err(error) => missing.push(Source {
                    address: format!("{namespace}/{name}"),
                    operator: None,
                    error: Some(error.to_string()),
                }),
            },
        }
    }
    if let Some(cluster) = registry::cluster_id(client).await {
        let urls = registry::addresses(&cluster, server).into_iter();
        let urls = urls.filter_map(|address| Url::parse(&format!("http://{address}")).ok());
        urls.for_each(|url| add(&mut found, Endpoint::local(Location::url(url))));
    }
    deployments::discover(client).await.into_iter().for_each(|pod| add(&mut found, pod));
    Ok((found, missing))
}

/// Adds an endpoint unless its place is known, as that of a pod that another Deployment selects as well.
fn add(found: &mut Vec<Endpoint>, other: Endpoint) {
    if !found.iter().any(|known| known.location.is_same(&other.location)) {
        found.push(other);
    }
}

/// Parses an operator on the command line.
fn parse(text: &str) -> Result<OperatorName> {
    if let Some((namespace, name)) = deployments::parse(text) {
        return Ok(OperatorName::Deployment(namespace, name));
    }
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let parsed = Url::parse(&url).ok().filter(|parsed| matches!(parsed.scheme(), "http" | "https"));
    match parsed.filter(Url::has_host) {
        Some(url) => Ok(OperatorName::Url(url)),
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
            let OperatorName::Url(url) = parse(text).expect("an address") else { panic!("{text} is an address") };
            assert_eq!(Endpoint::named(Location::url(url)).to_string(), "http://127.0.0.1:8080", "{text}");
        }
        let expected = OperatorName::Deployment("shop-system".into(), "shop".into());
        assert_eq!(parse("shop-system/shop").expect("a Deployment"), expected);
        assert!(parse("ftp://a").is_err() && parse("http://").is_err());
    }
}
