//! Rotation of certificates, and publication of their authority and the webhooks' address to the API server.
//!
//! Each sync ends with a handshake with the operator's own listener, with the server name that the API server uses
//! and the bundles that were just read from the configurations. An operator is not ready while one of them does not
//! verify the served certificate. A configuration that does not exist yet, that the operator may not read, or that
//! has no bundle leaves it ready, and `/readyz` reports it; a Deployment becomes ready before its configurations are
//! applied.
//!
//! A watch of the configurations' metadata triggers a sync when one of them changes; if it is forbidden, syncs only
//! occur at the interval.

#[cfg(test)]
mod tests;

use super::certificate::ReferenceTime;
use super::listener::{ServingCertificate, Verification};
use super::manifests::{Target, WebhookAddress, conversion, secret_name};
use super::probe::{self, ProbeError};
use super::secret::CertificateSecret;
use super::{Certificates, files};
use crate::backoff::Backoff;
use crate::cache::{CachedPart, Change, KeptFields, Listener, Selection, Store, StoreId, Writer};
use crate::client::{exchange, exchange_dated};
use crate::error::chain;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball_core::time::Timestamp;
use flyball_core::{Clock, Rng};
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tower::BoxError;

/// Interval of syncs, before jitter.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Interval at which files are checked, before jitter; the same as in controller-runtime.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Random part of an interval, so that replicas do not sync at the same time.
const POLL_JITTER: f64 = 0.2;
/// Minimum time between two syncs, for operators that overwrite each other's configurations.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Jitter of a sync after a change, so that replicas do not sync at the same time.
const CHANGE_JITTER: Duration = Duration::from_secs(1);
/// Delays after failures.
const BACKOFF: Backoff = Backoff { base_delay: Duration::from_secs(1), max_delay: Duration::from_secs(5) };
/// Limit of attempts at updating a secret that others change at the same time.
const MAX_ATTEMPTS: u32 = 5;

/// Rotates the certificates of one operator, and publishes their authority to the API server.
pub(crate) struct CertificateRotator {
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) operator: String,
    /// Namespace of the secret.
    pub(crate) namespace: String,
    pub(crate) certificates: Certificates,
    /// Address of the webhooks for the API server.
    pub(crate) address: WebhookAddress,
    pub(crate) targets: Vec<Target>,
    pub(crate) serving: Arc<ServingCertificate>,
    /// Address on which the webhooks listen.
    pub(crate) listener: SocketAddr,
    /// Notified when a target changes.
    pub(crate) changed: Arc<Notify>,
}

/// A bundle that verifies calls of a host, and the object that contains it.
struct Bundle {
    place: String,
    host: String,
    pem: String,
}

/// The bundles that the API server trusts, as far as they are readable.
#[derive(Default)]
struct PublishedBundles {
    bundles: Vec<Bundle>,
    /// Reasons why further bundles are unknown.
    unknown: Vec<String>,
}

/// Notifies when an object changes.
#[derive(Debug)]
struct ChangeNotifier(Arc<Notify>);

impl Listener for ChangeNotifier {
    fn changed(&self, _: &Change<'_>) {
        self.0.notify_one();
    }

    fn observed(&self, _: StoreId, _: u64) {}

    fn listed(&self, _: &Store, _: u64) {}
}

/// State of a replica between two syncs.
#[derive(Default)]
struct SyncState {
    certificates: CertificateSecret,
    /// The bundle in all targets at the last sync.
    published: Option<String>,
    /// The last error, which is not logged again.
    last_error: String,
}

impl CertificateRotator {
    /// Creates a store for the metadata of each target, whose changes trigger a check.
    pub(crate) fn watched(&self) -> Vec<Writer> {
        let watched = |target: &Target| {
            // A role can allow this one without allowing the others.
            let cached_part = CachedPart { selection: Selection::named(&target.name), kept: KeptFields::Metadata };
            let (_, mut writer) = Store::of(0, target.kind(), None, cached_part.into());
            writer.subscribe(Arc::new(ChangeNotifier(self.changed.clone())));
            writer
        };
        self.targets.iter().map(watched).collect()
    }

    /// Runs until the future is dropped.
    pub(crate) async fn run(self) {
        let (mut state, mut failures) = (SyncState::default(), 0_u32);
        loop {
            let (result, period) = match &self.certificates {
                Certificates::Own => (self.sync(&mut state).await, POLL_INTERVAL),
                Certificates::Files(directory) | Certificates::CertManager { directory, .. } => {
                    (self.sync_files(directory).await, FILE_POLL_INTERVAL)
                }
            };
            match result {
                Ok(()) => {
                    state.last_error.clear();
                    failures = 0;
                    let wait = period.mul_f64(1.0 - POLL_JITTER * self.rng.fraction());
                    sleep(MIN_POLL_INTERVAL).await;
                    if timeout(wait - MIN_POLL_INTERVAL, self.changed.notified()).await.is_ok() {
                        sleep(CHANGE_JITTER.mul_f64(self.rng.fraction())).await;
                    }
                }
                Err(error) => {
                    let error = chain(&*error);
                    if error != state.last_error {
                        tracing::warn!(error, "cannot set up webhooks");
                        state.last_error = error;
                    }
                    failures = failures.saturating_add(1);
                    sleep(BACKOFF.after(failures)).await;
                }
            }
        }
    }

    async fn sync_files(&self, directory: &Path) -> Result<(), BoxError> {
        let (certificate, key) = files::read(directory)?;
        self.serving.set(&certificate, &key)?;
        let (mut published, mut now) = (PublishedBundles::default(), None);
        for target in &self.targets {
            match self.get(&target.url()).await {
                Ok((object, date)) => {
                    now = date.or(now);
                    self.add(&mut published, target, object.as_ref());
                }
                Err(kube::Error::Api(status)) if status.code == 403 => published.unknown.push(status.message),
                Err(error) => {
                    let why = format!("{}: {}", target.describe(), chain(&error));
                    self.serving.verify_unless_known(Verification::Unknown(why));
                    return Err(error.into());
                }
            }
        }
        // The issuer of the certificate publishes its authority, and may store it here as well.
        if published.bundles.is_empty()
            && let Some(pem) = files::read_authority(directory)?
        {
            published.bundles.push(Bundle { place: "ca.crt".into(), host: self.address.host(), pem });
        }
        self.verify(&published, now.unwrap_or_else(|| self.clock.now())).await
    }

    async fn sync(&self, state: &mut SyncState) -> Result<(), BoxError> {
        let is_published = state.published.as_deref() == Some(&state.certificates.bundle());
        let (certificates, now) = self.sync_secret(&state.certificates, is_published).await?;
        state.certificates = certificates;
        let bundle = state.certificates.bundle();
        let shared = Bundle { place: secret_name(&self.operator), host: self.address.host(), pem: bundle.clone() };
        let mut published = PublishedBundles { bundles: vec![shared], unknown: Vec::new() };
        // The authority must be trusted before its certificate is served.
        let result = self.publish(&bundle, &mut published).await;
        if let Some(current) = &state.certificates.current {
            self.serving.set(&current.certificate, &current.key)?;
        }
        state.published = None;
        self.verify(&published, now.time()).await?;
        result?;
        state.published = Some(bundle);
        Ok(())
    }

    /// Performs the API server's handshake with the listener, once for each different host and bundle.
    async fn verify(&self, published: &PublishedBundles, now: Timestamp) -> Result<(), BoxError> {
        let mut verified: Vec<(&str, &str)> = Vec::new();
        for Bundle { place, host, pem } in &published.bundles {
            if verified.contains(&(host, pem)) {
                continue;
            }
            match probe::handshake(self.listener, host, pem, now).await {
                Ok(()) => verified.push((host, pem)),
                Err(ProbeError::Untrusted(why)) => {
                    let why = format!("{place} does not verify the certificate that is served for {host}: {why}");
                    self.serving.verify(Verification::Untrusted(why.clone()));
                    return Err(why.into());
                }
                // A busy listener does not affect the trust in the certificate.
                Err(unreachable) => return Err(unreachable.into()),
            }
        }
        self.serving.verify(match published.unknown.is_empty() {
            true => Verification::Trusted,
            false => Verification::Unknown(published.unknown.join("; ")),
        });
        Ok(())
    }

    /// Updates the shared secret, and returns its content and the time. If it was deleted, it is restored from
    /// `previous`.
    async fn sync_secret(
        &self,
        previous: &CertificateSecret,
        is_published: bool,
    ) -> Result<(CertificateSecret, ReferenceTime), BoxError> {
        let place = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        let url = format!("{place}/{}", secret_name(&self.operator));
        let mut attempt = 1;
        loop {
            let (found, date) = self.get(&url).await?;
            let now = date.map_or_else(|| ReferenceTime::Own(self.clock.now()), ReferenceTime::Server);
            let mut certificates = found.as_ref().map_or_else(|| previous.clone(), CertificateSecret::read);
            let names = self.address.names();
            // Another replica may be ahead: then this one cannot assume that all clients trust the bundle.
            let is_published = is_published && certificates == *previous;
            let changed = certificates.step(&self.operator, &names, now, is_published)?;
            if !changed && found.is_some() {
                return Ok((certificates, now));
            }
            let written = match found {
                Some(mut secret) => {
                    certificates.write(&mut secret);
                    self.send(Method::PUT, &url, &secret).await
                }
                None => {
                    let metadata = json!({"name": secret_name(&self.operator), "namespace": self.namespace});
                    let mut secret = json!({
                        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata,
                    });
                    certificates.write(&mut secret);
                    self.send(Method::POST, &place, &secret).await
                }
            };
            match written {
                Ok(_) => {
                    tracing::info!(secret = secret_name(&self.operator), "wrote webhook certificates");
                    return Ok((certificates, now));
                }
                // Another replica was faster; its result is equally valid.
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < MAX_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes address and authority of the webhooks to all targets; collects their bundles. An error at one target
    /// does not affect the others.
    async fn publish(&self, bundle: &str, published: &mut PublishedBundles) -> Result<(), BoxError> {
        let mut errors = Vec::new();
        for target in &self.targets {
            let mut object = match self.get(&target.url()).await {
                Ok((object, _)) => object,
                Err(error) => {
                    published.unknown.push(chain(&error));
                    errors.push(chain(&error));
                    continue;
                }
            };
            match &object {
                None => errors.push(format!("{} not found: apply the output of `manifests`", target.describe())),
                Some(found) => match self.update_client_config(target, found, bundle).await {
                    Ok(updated) => object = Some(updated),
                    Err(error) => errors.push(chain(&error)),
                },
            }
            self.add(published, target, object.as_ref());
        }
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ").into()) }
    }

    /// Updates the address of a target, and returns it as stored.
    async fn update_client_config(&self, target: &Target, found: &Value, bundle: &str) -> kube::Result<Value> {
        let mut object = found.clone();
        if set_client_config(&mut object, target, &self.address, bundle) {
            object = self.send(Method::PUT, &target.url(), &object).await?;
            tracing::info!(target.resource, target.name, "updated the address of the webhooks");
        }
        Ok(object)
    }

    /// Adds the bundles of a target.
    fn add(&self, published: &mut PublishedBundles, target: &Target, object: Option<&Value>) {
        let place = target.describe();
        let Some(object) = object else {
            published.unknown.push(format!("{place} not found"));
            return;
        };
        for client in clients(object, target) {
            let pem = STANDARD.decode(client["caBundle"].as_str().unwrap_or_default()).unwrap_or_default();
            let pem = String::from_utf8_lossy(&pem).into_owned();
            match WebhookAddress::of(client) {
                None => published.unknown.push(format!("{place} has no webhook")),
                // The API server then uses the system's roots, which do not contain an operator's own authority.
                Some(_) if pem.is_empty() && self.certificates != Certificates::Own => {
                    published.unknown.push(format!("{place} has no caBundle"));
                }
                Some(address) => published.bundles.push(Bundle { place: place.clone(), host: address.host(), pem }),
            }
        }
    }

    /// Reads an object, and the time of the API server's response.
    async fn get(&self, url: &str) -> kube::Result<(Option<Value>, Option<Timestamp>)> {
        let request = Request::get(url).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let (response, date) = exchange_dated(&self.client, request).await?;
        match response {
            Ok(body) => Ok((Some(serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?), date)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok((None, date)),
            Err(error) => Err(error),
        }
    }

    /// Writes an object, and returns it as stored.
    async fn send(&self, method: Method, url: &str, object: &Value) -> kube::Result<Value> {
        let request = Request::builder().method(method).uri(url).header(CONTENT_TYPE, "application/json");
        let request = request.body(object.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        serde_json::from_slice(&exchange(&self.client, request).await?).map_err(kube::Error::SerdeError)
    }
}

/// Returns the endpoints of a target's webhooks, with the trusted bundles.
fn clients<'a>(object: &'a Value, target: &'a Target) -> impl Iterator<Item = &'a Value> {
    let conversion = target.paths.contains_key("").then(|| &object["spec"]["conversion"]["webhook"]["clientConfig"]);
    let is_ours = |webhook: &&Value| webhook["name"].as_str().is_some_and(|name| target.paths.contains_key(name));
    let webhooks = object["webhooks"].as_array().into_iter().flatten().filter(is_ours);
    conversion.into_iter().chain(webhooks.map(|webhook| &webhook["clientConfig"]))
}

/// Sets the endpoint in an object; returns true if it changed. Fields of others are kept.
fn set_client_config(object: &mut Value, target: &Target, address: &WebhookAddress, bundle: &str) -> bool {
    let before = object.clone();
    let client = |path: &str| {
        let mut client = address.client(path);
        client["caBundle"] = STANDARD.encode(bundle).into();
        client
    };
    if let Some(path) = target.paths.get("") {
        object["spec"]["conversion"] = conversion(client(path));
    }
    for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
        if let Some(path) = webhook["name"].as_str().and_then(|name| target.paths.get(name)) {
            webhook["clientConfig"] = client(path);
        }
    }
    *object != before
}
