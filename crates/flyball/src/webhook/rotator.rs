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
    pub(crate) reach: WebhookAddress,
    pub(crate) targets: Vec<Target>,
    pub(crate) serving: Arc<ServingCertificate>,
    /// Address of the webhooks.
    pub(crate) address: SocketAddr,
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
struct Memory {
    certificates: CertificateSecret,
    /// The bundle in all targets at the last sync.
    known: Option<String>,
    /// The last error, which is not logged again.
    complaint: String,
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
        let (mut memory, mut failures) = (Memory::default(), 0_u32);
        loop {
            let (looked, period) = match &self.certificates {
                Certificates::Own => (self.sync(&mut memory).await, POLL_INTERVAL),
                Certificates::Files(directory) | Certificates::CertManager { directory, .. } => {
                    (self.sync_files(directory).await, FILE_POLL_INTERVAL)
                }
            };
            match looked {
                Ok(()) => {
                    memory.complaint.clear();
                    failures = 0;
                    let wait = period.mul_f64(1.0 - POLL_JITTER * self.rng.fraction());
                    sleep(MIN_POLL_INTERVAL).await;
                    if timeout(wait - MIN_POLL_INTERVAL, self.changed.notified()).await.is_ok() {
                        sleep(CHANGE_JITTER.mul_f64(self.rng.fraction())).await;
                    }
                }
                Err(error) => {
                    let complaint = chain(&*error);
                    if complaint != memory.complaint {
                        tracing::warn!(error = complaint, "cannot set up webhooks");
                        memory.complaint = complaint;
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
                    let why = format!("{}: {}", target.place(), chain(&error));
                    self.serving.verify_unless_known(Verification::Unknown(why));
                    return Err(error.into());
                }
            }
        }
        // The issuer of the certificate publishes its authority, and may store it here as well.
        if published.bundles.is_empty()
            && let Some(pem) = files::read_authority(directory)?
        {
            published.bundles.push(Bundle { place: "ca.crt".into(), host: self.reach.host(), pem });
        }
        self.verify(&published, now.unwrap_or_else(|| self.clock.now())).await
    }

    async fn sync(&self, memory: &mut Memory) -> Result<(), BoxError> {
        let known = memory.known.as_deref() == Some(&memory.certificates.bundle());
        let (certificates, now) = self.share(&memory.certificates, known).await?;
        memory.certificates = certificates;
        let bundle = memory.certificates.bundle();
        let shared = Bundle { place: secret_name(&self.operator), host: self.reach.host(), pem: bundle.clone() };
        let mut published = PublishedBundles { bundles: vec![shared], unknown: Vec::new() };
        // The authority must be trusted before its certificate is served.
        let result = self.publish(&bundle, &mut published).await;
        if let Some(current) = &memory.certificates.current {
            self.serving.set(&current.certificate, &current.key)?;
        }
        memory.known = None;
        self.verify(&published, now.time()).await?;
        result?;
        memory.known = Some(bundle);
        Ok(())
    }

    /// Performs the API server's handshake with the listener, once for each different host and bundle.
    async fn verify(&self, published: &PublishedBundles, now: Timestamp) -> Result<(), BoxError> {
        let mut verified: Vec<(&str, &str)> = Vec::new();
        for Bundle { place, host, pem } in &published.bundles {
            if verified.contains(&(host, pem)) {
                continue;
            }
            match probe::handshake(self.address, host, pem, now).await {
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

    /// Updates the shared secret, and returns its content and the time. If it was deleted, it is restored from this
    /// replica's memory.
    async fn share(
        &self,
        remembered: &CertificateSecret,
        known: bool,
    ) -> Result<(CertificateSecret, ReferenceTime), BoxError> {
        let place = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        let url = format!("{place}/{}", secret_name(&self.operator));
        let mut attempt = 1;
        loop {
            let (found, date) = self.get(&url).await?;
            let now = date.map_or_else(|| ReferenceTime::Own(self.clock.now()), ReferenceTime::Server);
            let mut certificates = found.as_ref().map_or_else(|| remembered.clone(), CertificateSecret::read);
            let names = self.reach.names();
            // Another replica may be ahead: then this one cannot assume that all clients trust the bundle.
            let known = known && certificates == *remembered;
            let changed = certificates.step(&self.operator, &names, now, known)?;
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
        let mut complaints = Vec::new();
        for target in &self.targets {
            let mut object = match self.get(&target.url()).await {
                Ok((object, _)) => object,
                Err(error) => {
                    published.unknown.push(chain(&error));
                    complaints.push(chain(&error));
                    continue;
                }
            };
            match &object {
                None => complaints.push(format!("{} not found: apply the output of `manifests`", target.place())),
                Some(found) => match self.aim_at(target, found, bundle).await {
                    Ok(updated) => object = Some(updated),
                    Err(error) => complaints.push(chain(&error)),
                },
            }
            self.add(published, target, object.as_ref());
        }
        if complaints.is_empty() { Ok(()) } else { Err(complaints.join("; ").into()) }
    }

    /// Updates the address of a target, and returns it as stored.
    async fn aim_at(&self, target: &Target, found: &Value, bundle: &str) -> kube::Result<Value> {
        let mut object = found.clone();
        if aim(&mut object, target, &self.reach, bundle) {
            object = self.send(Method::PUT, &target.url(), &object).await?;
            tracing::info!(target.resource, target.name, "updated the address of the webhooks");
        }
        Ok(object)
    }

    /// Adds the bundles of a target.
    fn add(&self, published: &mut PublishedBundles, target: &Target, object: Option<&Value>) {
        let place = target.place();
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
                Some(reach) => published.bundles.push(Bundle { place: place.clone(), host: reach.host(), pem }),
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
fn aim(object: &mut Value, target: &Target, reach: &WebhookAddress, bundle: &str) -> bool {
    let before = object.clone();
    let client = |path: &str| {
        let mut client = reach.client(path);
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

#[cfg(test)]
mod tests {
    use super::super::certificate::Identity;
    use super::super::{Webhooks, serve};
    use super::*;
    use flyball_core::time::SignedDuration;
    use http::Response;
    use http_body_util::BodyExt;
    use k8s_openapi::jiff::fmt::rfc2822::DateTimePrinter;
    use kube::client::Body;
    use parking_lot::Mutex;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::sign::CertifiedKey;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::PathBuf;
    use tokio::net::TcpListener;
    use tower::service_fn;

    /// Returns the operator's validating configuration as a target.
    fn target() -> Target {
        Target {
            resource: "validatingwebhookconfigurations",
            group: "admissionregistration.k8s.io",
            name: "op-webhook".into(),
            paths: [("ours".to_owned(), "/validate".to_owned())].into(),
        }
    }

    /// Creates a rotator without targets, whose server does not respond.
    fn rotator(
        certificates: Certificates,
        serving: Arc<ServingCertificate>,
        address: SocketAddr,
        clock: Clock,
    ) -> CertificateRotator {
        let nobody =
            tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, BoxError>("unexpected request".into()));
        CertificateRotator {
            client: kube::Client::new(nobody, "ns"),
            clock,
            rng: Rng::from_seed(1),
            operator: "op".into(),
            namespace: "ns".into(),
            certificates,
            reach: WebhookAddress::Service { namespace: "ns".into(), name: "op-webhook".into() },
            targets: Vec::new(),
            serving,
            address,
            changed: Arc::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changed_files_are_reloaded() {
        let directory = std::env::temp_dir().join(format!("flyball-certificates-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let identities =
            ["one", "two"].map(|name| Identity::make(name, &[name.to_owned()], Clock::system().now()).unwrap());
        let put = |name: &str, pem: &str| fs::write(directory.join(name), pem).unwrap();
        let serving = Arc::<ServingCertificate>::default();
        // The certificate that is served.
        let served = || {
            let key = serving.get()?;
            let is = |identity: &Identity| {
                CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap() == key.cert[0]
            };
            identities.iter().position(is)
        };
        let certificates = Certificates::Files(directory.clone());
        let rotator = rotator(certificates, serving.clone(), ([127, 0, 0, 1], 1).into(), Clock::system());
        tokio::spawn(rotator.run());
        sleep(POLL_INTERVAL).await;
        assert_eq!(served(), None);
        put("tls.crt", &identities[0].certificate);
        put("tls.key", &identities[0].key);
        sleep(FILE_POLL_INTERVAL).await;
        assert_eq!((served(), serving.verification()), (Some(0), Verification::Trusted));
        // Files that are half replaced change nothing.
        put("tls.crt", &identities[1].certificate);
        sleep(POLL_INTERVAL).await;
        assert_eq!(served(), Some(0));
        put("tls.key", &identities[1].key);
        sleep(FILE_POLL_INTERVAL).await;
        assert_eq!(served(), Some(1));
        fs::remove_dir_all(&directory).unwrap();
        sleep(POLL_INTERVAL).await;
        assert_eq!(served(), Some(1), "the existing certificate stays valid");
    }

    #[test]
    fn configuration_is_updated_and_keeps_foreign_entries() {
        let target = Target {
            resource: "validatingwebhookconfigurations",
            group: "admissionregistration.k8s.io",
            name: "op".into(),
            paths: [("ours".to_owned(), "/validate".to_owned())].into(),
        };
        let service = WebhookAddress::Service { namespace: "ns".into(), name: "op-webhook".into() };
        let foreign = json!({"name": "foreign", "clientConfig": {"url": "https://elsewhere"}});
        let mut object = json!({"metadata": {"labels": {"a": "b"}}, "webhooks": [
            {"name": "ours", "clientConfig": {"service": {"name": "old"}}, "failurePolicy": "Ignore"}, foreign,
        ]});
        assert!(aim(&mut object, &target, &service, "pem") && !aim(&mut object, &target, &service, "pem"));
        let pointed = json!({"service": {"namespace": "ns", "name": "op-webhook", "path": "/validate", "port": 443},
            "caBundle": STANDARD.encode("pem")});
        assert_eq!(object["webhooks"][0], json!({"name": "ours", "clientConfig": pointed, "failurePolicy": "Ignore"}));
        assert_eq!((&object["webhooks"][1], &object["metadata"]["labels"]["a"]), (&foreign, &json!("b")));

        assert!(aim(&mut object, &target, &WebhookAddress::url("https://127.0.0.1:0/", 4711), "pem"));
        let pointed = json!({"url": "https://127.0.0.1:4711/validate", "caBundle": STANDARD.encode("pem")});
        assert_eq!(object["webhooks"][0]["clientConfig"], pointed, "no service beside the URL");
    }

    /// A model of the API server for rotators. Its clock is set in seconds; responses contain it optionally.
    struct Api {
        objects: BTreeMap<String, Value>,
        version: u64,
        now: Timestamp,
        is_dated: bool,
        certificates: BTreeSet<String>,
    }

    /// A bundle, and the certificates that each replica serves.
    type Served = (String, Vec<Option<Arc<CertifiedKey>>>);

    const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/op-webhook";
    const SECRETS: &str = "/api/v1/namespaces/ns/secrets";

    impl Api {
        async fn respond(api: Arc<Mutex<Self>>, request: Request<Body>) -> Result<Response<Body>, BoxError> {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let (mut api, path) = (api.lock(), head.uri.path());
            let mut sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            let path = match head.method {
                Method::POST => format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap()),
                _ => path.to_owned(),
            };
            let stored = api.objects.get(&path).cloned();
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            let (code, content) = match (&head.method, stored) {
                (&Method::GET, Some(stored)) => (200, stored),
                (&Method::GET, None) => (404, json!({"code": 404, "reason": "NotFound"})),
                (&Method::PUT, Some(stored)) if version(&stored) == version(&sent) => (200, Value::Null),
                (&Method::POST, None) => (201, Value::Null),
                _ => (409, json!({"code": 409, "reason": "Conflict"})),
            };
            let content = if content.is_null() {
                api.version += 1;
                sent["metadata"]["resourceVersion"] = api.version.to_string().into();
                if path.starts_with(SECRETS) {
                    for key in ["tls.crt", "next.tls.crt"] {
                        api.certificates.extend(sent["data"][key].as_str().map(str::to_owned));
                    }
                }
                api.objects.insert(path, sent.clone());
                sent
            } else {
                content
            };
            let mut response = Response::builder().status(code);
            if api.is_dated {
                let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&api.now)?;
                response = response.header("date", date);
            }
            Ok(response.body(Body::from(content.to_string().into_bytes()))?)
        }
    }

    /// Three replicas with clocks that differ by hours. Each of them syncs daily, in varying order; after each sync a
    /// call to each of them must succeed, also from an API server that has not observed the last change.
    async fn certificates_of(is_dated: bool, hours_off: [i64; 3], days: i64) -> usize {
        let begin: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
        let configuration = json!({"metadata": {"resourceVersion": "0"}, "webhooks": [{"name": "ours"}]});
        let api = Arc::new(Mutex::new(Api {
            objects: [(CONFIGURATION.to_owned(), configuration)].into(),
            version: 0,
            now: begin,
            is_dated,
            certificates: BTreeSet::new(),
        }));
        let mut replicas = Vec::new();
        for off in hours_off {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (server, ticks, serving) = (api.clone(), api.clone(), Arc::<ServingCertificate>::default());
            let clock = Clock::new(move || ticks.lock().now + SignedDuration::from_hours(off));
            let rotator = CertificateRotator {
                client: kube::Client::new(service_fn(move |request| Api::respond(server.clone(), request)), "ns"),
                targets: vec![target()],
                ..rotator(Certificates::Own, serving.clone(), listener.local_addr().unwrap(), clock)
            };
            tokio::spawn(serve(listener, Webhooks::new(&[], Arc::default()), serving));
            replicas.push((rotator, Memory::default()));
        }
        let bundle = || {
            let api = api.lock();
            let bundle = api.objects[CONFIGURATION]["webhooks"][0]["clientConfig"]["caBundle"].clone();
            String::from_utf8(STANDARD.decode(bundle.as_str().unwrap()).unwrap()).unwrap()
        };
        let (mut noticed, mut called) = (String::new(), None::<Served>);
        let key = |served: &Option<Arc<CertifiedKey>>| served.as_ref().map(|served| served.cert.clone());
        let is_same =
            |one: &Served, other: &Served| one.0 == other.0 && one.1.iter().map(key).eq(other.1.iter().map(key));
        for day in 0..days {
            let now = begin + SignedDuration::from_hours(24 * day);
            api.lock().now = now;
            for at in 0..3 {
                let at = (at + day as usize) % 3;
                let (rotator, memory) = &mut replicas[at];
                rotator.sync(memory).await.unwrap();
                assert_eq!(rotator.serving.verification(), Verification::Trusted);
                noticed = if noticed.is_empty() { bundle() } else { noticed };
                let state = (bundle(), replicas.iter().map(|(rotator, _)| rotator.serving.get()).collect::<Vec<_>>());
                // Calls with a certificate that succeeded before succeed again, until it expires.
                if day % 20 != 0 && called.as_ref().is_some_and(|called| is_same(called, &state)) {
                    continue;
                }
                // Replicas that have just started are not ready before their first sync.
                for (rotator, _) in replicas.iter().filter(|(rotator, _)| rotator.serving.get().is_some()) {
                    for trusted in [&noticed, &state.0] {
                        let called = probe::handshake(rotator.address, "op-webhook.ns.svc", trusted, now).await;
                        assert!(called.is_ok(), "{called:?} after {day} days, off {hours_off:?}");
                    }
                }
                called = Some(state);
            }
            noticed = bundle();
        }
        api.lock().certificates.len()
    }

    #[tokio::test]
    async fn replicas_with_different_clocks_agree_on_certificates() {
        for (is_dated, hours_off) in [(true, [-2, 0, 2]), (false, [2, 0, -2]), (true, [-5000, 24 * 500, 24 * 365 * 40])]
        {
            let count = certificates_of(is_dated, hours_off, 400).await;
            assert!((2..=8).contains(&count), "{count} certificates, clocks off by {hours_off:?} hours");
        }
    }

    /// An operator that serves a certificate; the API server responds with this code for its configuration.
    struct Hosted {
        rotator: CertificateRotator,
        directory: PathBuf,
        api: Arc<Mutex<(u16, Value)>>,
        ours: Identity,
        other: Identity,
        now: Timestamp,
    }

    impl Hosted {
        async fn start(name: &str, certificates: impl Fn(&Path) -> Certificates) -> Self {
            let now: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
            let [ours, other] = [(); 2].map(|()| Identity::make("op", &["named.apart.svc".into()], now).unwrap());
            let directory = std::env::temp_dir().join(format!("flyball-hosted-{name}-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            for (name, pem) in [("tls.crt", &ours.certificate), ("tls.key", &ours.key)] {
                fs::write(directory.join(name), pem).unwrap();
            }
            let (serving, api) = (Arc::<ServingCertificate>::default(), Arc::new(Mutex::new((404, Value::Null))));
            serving.set(&ours.certificate, &ours.key).unwrap();
            let server = api.clone();
            let client = service_fn(move |request: Request<Body>| {
                let (code, object) = server.lock().clone();
                async move {
                    let code = if request.method() == Method::GET { code } else { 403 };
                    if code == 0 {
                        return Err::<Response<Body>, BoxError>("connection refused".into());
                    }
                    let reason = if code == 404 { "NotFound" } else { "Forbidden" };
                    let status =
                        json!({"kind": "Status", "code": code, "reason": reason, "message": format!("code {code}")});
                    let body = if code == 200 { object } else { status };
                    Ok(Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))?)
                }
            });
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (address, clock) = (listener.local_addr().unwrap(), Clock::new(move || now));
            let rotator = CertificateRotator {
                client: kube::Client::new(client, "ns"),
                targets: vec![target()],
                ..rotator(certificates(&directory), serving.clone(), address, clock)
            };
            tokio::spawn(serve(listener, Webhooks::new(&[], Arc::default()), serving));
            Self { rotator, directory, api, ours, other, now }
        }

        /// Sets the bundle of the configuration that the API server returns.
        fn publish(&self, bundle: &str) {
            let service = json!({"namespace": "apart", "name": "named"});
            let client = json!({"service": service, "caBundle": STANDARD.encode(bundle)});
            *self.api.lock() = (200, json!({"webhooks": [{"name": "ours", "clientConfig": client}]}));
        }

        fn respond(&self, code: u16) {
            self.api.lock().0 = code;
        }

        /// Checks the files and the configuration.
        async fn sync(&self) -> Verification {
            let _ = self.rotator.sync_files(&self.directory).await;
            self.rotator.serving.verification()
        }
    }

    impl Drop for Hosted {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    #[tokio::test]
    async fn certificates_from_files_are_verified_by_the_published_bundle() {
        for is_managed in [false, true] {
            let (name, certificate) = (if is_managed { "manager" } else { "files" }, "ns/op".to_owned());
            let hosted = Hosted::start(name, |path| match path.to_owned() {
                directory if is_managed => Certificates::CertManager { certificate: certificate.clone(), directory },
                directory => Certificates::Files(directory),
            })
            .await;
            let unknown = |why: &str| Verification::Unknown(why.to_owned());
            let place = "validatingwebhookconfigurations/op-webhook";
            hosted.respond(0);
            let rejected = format!("{place}: ServiceError: connection refused");
            assert_eq!(hosted.sync().await, unknown(&rejected), "ready while nothing else is known");
            hosted.respond(404);
            assert_eq!(hosted.sync().await, unknown(&format!("{place} not found")));
            hosted.respond(403);
            assert_eq!(hosted.sync().await, unknown("code 403"));
            hosted.publish("");
            assert_eq!(hosted.sync().await, unknown(&format!("{place} has no caBundle")));
            hosted.publish(&hosted.other.authority);
            let Verification::Untrusted(why) = hosted.sync().await else { panic!("another authority is published") };
            assert!(why.starts_with(&format!("{place} does not verify")) && why.contains("named.apart.svc"), "{why}");
            hosted.respond(0);
            assert_eq!(hosted.sync().await, Verification::Untrusted(why), "nothing shows that it changed");
            hosted.publish(&hosted.ours.authority);
            assert_eq!(hosted.sync().await, Verification::Trusted);
        }
    }

    #[tokio::test]
    async fn forbidden_write_of_the_bundle_makes_unready() {
        let hosted = Hosted::start("own", |_| Certificates::Own).await;
        let own = &hosted.rotator;
        let verification = async || {
            let mut published = PublishedBundles::default();
            let result = own.publish(&hosted.ours.authority, &mut published).await;
            let _ = own.verify(&published, hosted.now).await;
            (result.map_err(|error| error.to_string()), own.serving.verification())
        };
        hosted.publish(&hosted.other.authority);
        let (result, verification) = verification().await;
        assert!(result.unwrap_err().contains("code 403") && matches!(verification, Verification::Untrusted(_)));
    }

    #[tokio::test]
    async fn untrusted_certificate_makes_unready() {
        let now: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let [ours, other] = [(); 2].map(|()| Identity::make("op", &["op-webhook.ns.svc".into()], now).unwrap());
        let serving = Arc::<ServingCertificate>::default();
        serving.set(&ours.certificate, &ours.key).unwrap();
        let (address, clock) = (listener.local_addr().unwrap(), Clock::new(move || now));
        let rotator = rotator(Certificates::Own, serving.clone(), address, clock);
        let serves = tokio::spawn(serve(listener, Webhooks::new(&[], Arc::default()), serving.clone()));
        let published = |bundle: &str| {
            let (place, host) = ("validatingwebhookconfigurations/op-webhook".into(), "op-webhook.ns.svc".into());
            PublishedBundles { bundles: vec![Bundle { place, host, pem: bundle.to_owned() }], unknown: Vec::new() }
        };
        rotator.verify(&published(&ours.authority), now).await.unwrap();
        assert_eq!(serving.verification(), Verification::Trusted);
        rotator.verify(&published(&other.authority), now).await.unwrap_err();
        let Verification::Untrusted(why) = serving.verification() else { panic!("the certificate is not trusted") };
        assert!(why.contains("validatingwebhookconfigurations/op-webhook does not verify"), "{why}");
        rotator.verify(&published(&ours.authority), now).await.unwrap();
        serves.abort();
        assert!(serves.await.is_err());
        rotator.verify(&published(&ours.authority), now).await.unwrap_err();
        let still = serving.verification();
        assert_eq!(still, Verification::Trusted, "a busy listener does not affect the trust in its certificate");
    }
}
