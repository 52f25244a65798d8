//! Keeps certificates good, and the API server informed of where webhooks are and whom to trust.
//!
//! Each look ends with a handshake of the operator with its own listener, under the name by which the API server calls it, that trusts
//! what the API server trusts: the bundles as they were just read from the configurations. The operator is ready only if all of them
//! verify what is served. Configurations that do not exist (yet) ask nothing, and keep it from being ready no more than they could be
//! called; so a Deployment becomes ready before they are applied.

use super::certificate::Now;
use super::listener::Serving;
use super::manifests::{Reach, Target, conversion, secret_name};
use super::probe::{self, Failure};
use super::secret::Kept;
use super::{Certificates, files};
use crate::client::{chain, exchange, exchange_dated};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball_core::Clock;
use flyball_core::time::Timestamp;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tower::BoxError;

/// Between two looks at what is there.
const LOOK: Duration = Duration::from_secs(60);
/// Between two looks at files, which is what controller-runtime takes as well.
const LOOK_AT_FILES: Duration = Duration::from_secs(10);
/// Until the next look when something is missing; it doubles each time.
const SOON: Duration = Duration::from_secs(1);
/// The longest of these waits: configurations that were just applied fail calls until they are looked at.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(5);
/// How often a secret is read again that others change at the same time.
const ATTEMPTS: u32 = 5;

/// Keeps one operator's certificates.
pub(crate) struct Keeper {
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
    pub(crate) operator: String,
    /// Where the secret is.
    pub(crate) namespace: String,
    pub(crate) certificates: Certificates,
    pub(crate) reach: Reach,
    pub(crate) targets: Vec<Target>,
    pub(crate) serving: Arc<Serving>,
    /// Where the webhooks are served.
    pub(crate) address: SocketAddr,
}

/// The bundles that the API server trusts, with what holds them.
type Published = Vec<(String, String)>;

/// What one replica remembers from one look to the next.
#[derive(Default)]
struct Memory {
    kept: Kept,
    /// The bundle that all targets held when they were last looked at.
    known: Option<String>,
    /// What was complained of, so that it is not said each time.
    complaint: String,
}

impl Keeper {
    /// Does so until it is dropped.
    pub(crate) async fn run(self) {
        let (mut memory, mut soon) = (Memory::default(), SOON);
        loop {
            let (looked, wait) = match &self.certificates {
                Certificates::Own => (self.look(&mut memory).await, LOOK),
                Certificates::Files(directory) | Certificates::CertManager { directory, .. } => {
                    (self.look_at_files(directory).await, LOOK_AT_FILES)
                }
            };
            match looked {
                Ok(()) => {
                    memory.complaint.clear();
                    soon = SOON;
                    sleep(wait).await;
                }
                Err(error) => {
                    let complaint = chain(&*error);
                    if complaint != memory.complaint {
                        tracing::warn!(error = complaint, "webhooks cannot be set up");
                        memory.complaint = complaint;
                    }
                    sleep(soon).await;
                    soon = (soon * 2).min(MAX_RETRY_WAIT);
                }
            }
        }
    }

    async fn look_at_files(&self, directory: &Path) -> Result<(), BoxError> {
        let (certificate, key) = files::read(directory)?;
        self.serving.set(&certificate, &key)?;
        // Who makes the certificate publishes its authority, and may put it here as well.
        match files::read_authority(directory)? {
            Some(authority) => self.verify(&[("ca.crt".into(), authority)], self.clock.now()).await,
            None => {
                self.serving.verify(Ok(()));
                Ok(())
            }
        }
    }

    async fn look(&self, memory: &mut Memory) -> Result<(), BoxError> {
        let known = memory.known.as_deref() == Some(&memory.kept.bundle());
        let (kept, now) = self.share(&memory.kept, known).await?;
        memory.kept = kept;
        let bundle = memory.kept.bundle();
        // Trust first: what is served next must be believed.
        let mut published = vec![(secret_name(&self.operator), bundle.clone())];
        let told = self.tell(&bundle, &mut published).await;
        if let Some(current) = &memory.kept.current {
            self.serving.set(&current.certificate, &current.key)?;
        }
        memory.known = None;
        self.verify(&published, now.time()).await?;
        told?;
        memory.known = Some(bundle);
        Ok(())
    }

    /// Calls the listener as the API server would, once for each different bundle.
    async fn verify(&self, published: &[(String, String)], now: Timestamp) -> Result<(), BoxError> {
        let name = self.reach.names().into_iter().next().unwrap_or_default();
        let mut verified: Vec<&str> = Vec::new();
        for (place, bundle) in published {
            if verified.contains(&&**bundle) {
                continue;
            }
            match probe::handshake(self.address, &name, bundle, now).await {
                Ok(()) => verified.push(bundle),
                Err(Failure::Untrusted(why)) => {
                    let why = format!("{place} does not verify the certificate that is served for {name}: {why}");
                    self.serving.verify(Err(why.clone()));
                    return Err(why.into());
                }
                // A listener that is busy does not make the certificate worse.
                Err(unreachable) => return Err(unreachable.into()),
            }
        }
        self.serving.verify(Ok(()));
        Ok(())
    }

    /// Brings the shared secret up to date, and gives what it holds, and the time. If it is gone, it becomes what this replica
    /// remembers.
    async fn share(&self, remembered: &Kept, known: bool) -> Result<(Kept, Now), BoxError> {
        let place = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        let url = format!("{place}/{}", secret_name(&self.operator));
        let mut attempt = 1;
        loop {
            let (found, date) = self.get(&url).await?;
            let now = date.map_or_else(|| Now::Own(self.clock.now()), Now::Server);
            let mut kept = found.as_ref().map_or_else(|| remembered.clone(), Kept::read);
            let names = self.reach.names();
            // Another replica may have gone on: then this one does not know yet what everybody knows.
            let known = known && kept == *remembered;
            let changed = kept.step(&self.operator, &names, now, known)?;
            if !changed && found.is_some() {
                return Ok((kept, now));
            }
            let written = match found {
                Some(mut secret) => {
                    kept.write(&mut secret);
                    self.send(Method::PUT, &url, &secret).await
                }
                None => {
                    let metadata = json!({"name": secret_name(&self.operator), "namespace": self.namespace});
                    let mut secret = json!({
                        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata,
                    });
                    kept.write(&mut secret);
                    self.send(Method::POST, &place, &secret).await
                }
            };
            match written {
                Ok(_) => {
                    tracing::info!(secret = secret_name(&self.operator), "wrote webhook certificates");
                    return Ok((kept, now));
                }
                // Another replica was faster; what it wrote is as good.
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes place and authority of the webhooks into all objects that hold them; adds the bundles that they hold then.
    async fn tell(&self, bundle: &str, published: &mut Published) -> Result<(), BoxError> {
        let mut missing = Vec::new();
        for target in &self.targets {
            let place = format!("{}/{}", target.resource, target.name);
            let Some(mut object) = self.get(&target.url()).await?.0 else {
                missing.push(place);
                continue;
            };
            if aim(&mut object, target, &self.reach, bundle) {
                object = self.send(Method::PUT, &target.url(), &object).await?;
                tracing::info!(target.resource, target.name, "told the API server of the webhooks");
            }
            published.extend(bundles(&object, target).map(|bundle| (place.clone(), bundle)));
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!("{} not found: apply what `manifests` prints", missing.join(", ")).into())
    }

    /// Reads an object, and when the API server answered.
    async fn get(&self, url: &str) -> kube::Result<(Option<Value>, Option<Timestamp>)> {
        let request = Request::get(url).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let (answer, date) = exchange_dated(&self.client, request).await?;
        match answer {
            Ok(body) => Ok((Some(serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?), date)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok((None, date)),
            Err(error) => Err(error),
        }
    }

    /// Writes an object, and returns it as it is stored.
    async fn send(&self, method: Method, url: &str, object: &Value) -> kube::Result<Value> {
        let request = Request::builder().method(method).uri(url).header(CONTENT_TYPE, "application/json");
        let request = request.body(object.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        serde_json::from_slice(&exchange(&self.client, request).await?).map_err(kube::Error::SerdeError)
    }
}

/// Reads the bundles by which the webhooks of a target are verified.
fn bundles(object: &Value, target: &Target) -> impl Iterator<Item = String> {
    let conversion = target.paths.contains_key("").then(|| &object["spec"]["conversion"]["webhook"]["clientConfig"]);
    let is_ours = |webhook: &&Value| webhook["name"].as_str().is_some_and(|name| target.paths.contains_key(name));
    let webhooks = object["webhooks"].as_array().into_iter().flatten().filter(is_ours);
    conversion.into_iter().chain(webhooks.map(|webhook| &webhook["clientConfig"])).map(|client| {
        let bundle = STANDARD.decode(client["caBundle"].as_str().unwrap_or_default()).unwrap_or_default();
        String::from_utf8_lossy(&bundle).into_owned()
    })
}

/// Points an object at the webhooks; tells whether it did not point there already. What others added to it stays.
fn aim(object: &mut Value, target: &Target, reach: &Reach, bundle: &str) -> bool {
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
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::sign::CertifiedKey;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::sync::Mutex;
    use tokio::net::TcpListener;
    use tower::service_fn;

    #[tokio::test(start_paused = true)]
    async fn files_are_served_and_read_again_when_they_change() {
        let directory = std::env::temp_dir().join(format!("flyball-certificates-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let made = ["one", "two"].map(|name| Identity::make(name, &[name.to_owned()], Clock::system().now()).unwrap());
        let put = |name: &str, pem: &str| fs::write(directory.join(name), pem).unwrap();
        let serving = Arc::<Serving>::default();
        // Which of them is served.
        let served = || {
            let key = serving.get()?;
            let is =
                |made: &Identity| CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap() == key.cert[0];
            made.iter().position(is)
        };
        let nobody = tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, BoxError>("is not asked".into()));
        let keeper = Keeper {
            client: kube::Client::new(nobody, "ns"),
            clock: Clock::system(),
            operator: "op".into(),
            namespace: "ns".into(),
            certificates: Certificates::Files(directory.clone()),
            reach: Reach::Service { namespace: "ns".into(), name: "op-webhook".into() },
            targets: Vec::new(),
            serving: serving.clone(),
            address: ([127, 0, 0, 1], 1).into(),
        };
        tokio::spawn(keeper.run());
        sleep(LOOK).await;
        assert_eq!(served(), None);
        put("tls.crt", &made[0].certificate);
        put("tls.key", &made[0].key);
        sleep(LOOK_AT_FILES).await;
        assert_eq!((served(), serving.verified()), (Some(0), Ok(())));
        // Half of a change is none.
        put("tls.crt", &made[1].certificate);
        sleep(LOOK).await;
        assert_eq!(served(), Some(0));
        put("tls.key", &made[1].key);
        sleep(LOOK_AT_FILES).await;
        assert_eq!(served(), Some(1));
        fs::remove_dir_all(&directory).unwrap();
        sleep(LOOK).await;
        assert_eq!(served(), Some(1), "what is there stays good");
    }

    #[test]
    fn an_object_is_pointed_here_and_keeps_what_others_added() {
        let target = Target {
            resource: "validatingwebhookconfigurations",
            group: "admissionregistration.k8s.io",
            name: "op".into(),
            paths: [("ours".to_owned(), "/validate".to_owned())].into(),
        };
        let service = Reach::Service { namespace: "ns".into(), name: "op-webhook".into() };
        let foreign = json!({"name": "foreign", "clientConfig": {"url": "https://elsewhere"}});
        let mut object = json!({"metadata": {"labels": {"a": "b"}}, "webhooks": [
            {"name": "ours", "clientConfig": {"service": {"name": "old"}}, "failurePolicy": "Ignore"}, foreign,
        ]});
        assert!(aim(&mut object, &target, &service, "pem") && !aim(&mut object, &target, &service, "pem"));
        let pointed = json!({"service": {"namespace": "ns", "name": "op-webhook", "path": "/validate", "port": 443},
            "caBundle": STANDARD.encode("pem")});
        assert_eq!(object["webhooks"][0], json!({"name": "ours", "clientConfig": pointed, "failurePolicy": "Ignore"}));
        assert_eq!((&object["webhooks"][1], &object["metadata"]["labels"]["a"]), (&foreign, &json!("b")));

        assert!(aim(&mut object, &target, &Reach::url("https://127.0.0.1:0/", 4711), "pem"));
        let pointed = json!({"url": "https://127.0.0.1:4711/validate", "caBundle": STANDARD.encode("pem")});
        assert_eq!(object["webhooks"][0]["clientConfig"], pointed, "no service beside the URL");
    }

    /// The API server, as far as keepers ask it. Its clock is given in seconds; answers carry it if that is wanted.
    struct Api {
        objects: BTreeMap<String, Value>,
        version: u64,
        now: Timestamp,
        is_dated: bool,
        certificates: BTreeSet<String>,
    }

    /// A bundle, and what each replica serves.
    type Served = (String, Vec<Option<Arc<CertifiedKey>>>);

    const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/op-webhook";
    const SECRETS: &str = "/api/v1/namespaces/ns/secrets";

    impl Api {
        async fn answer(api: Arc<Mutex<Self>>, request: Request<Body>) -> Result<Response<Body>, BoxError> {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let (mut api, path) = (api.lock().unwrap(), head.uri.path());
            let mut sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            let path = match head.method {
                Method::POST => format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap()),
                _ => path.to_owned(),
            };
            let stored = api.objects.get(&path).cloned();
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            let (code, answer) = match (&head.method, stored) {
                (&Method::GET, Some(stored)) => (200, stored),
                (&Method::GET, None) => (404, json!({"code": 404, "reason": "NotFound"})),
                (&Method::PUT, Some(stored)) if version(&stored) == version(&sent) => (200, Value::Null),
                (&Method::POST, None) => (201, Value::Null),
                _ => (409, json!({"code": 409, "reason": "Conflict"})),
            };
            let answer = if answer.is_null() {
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
                answer
            };
            let mut answered = Response::builder().status(code);
            if api.is_dated {
                let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&api.now)?;
                answered = answered.header("date", date);
            }
            Ok(answered.body(Body::from(answer.to_string().into_bytes()))?)
        }
    }

    /// Three replicas with clocks that are hours off. Each day each looks, in another order; after each look a
    /// call to each of them must succeed, also by an API server that has not noticed the last change.
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
            let (asked, ticks, serving) = (api.clone(), api.clone(), Arc::<Serving>::default());
            let target = Target {
                resource: "validatingwebhookconfigurations",
                group: "admissionregistration.k8s.io",
                name: "op-webhook".into(),
                paths: [("ours".to_owned(), "/validate".to_owned())].into(),
            };
            let keeper = Keeper {
                client: kube::Client::new(service_fn(move |request| Api::answer(asked.clone(), request)), "ns"),
                clock: Clock::new(move || ticks.lock().unwrap().now + SignedDuration::from_hours(off)),
                operator: "op".into(),
                namespace: "ns".into(),
                certificates: Certificates::Own,
                reach: Reach::Service { namespace: "ns".into(), name: "op-webhook".into() },
                targets: vec![target],
                serving: serving.clone(),
                address: listener.local_addr().unwrap(),
            };
            tokio::spawn(serve(listener, Webhooks::new(&[], Arc::default()), serving));
            replicas.push((keeper, Memory::default()));
        }
        let bundle = || {
            let api = api.lock().unwrap();
            let bundle = api.objects[CONFIGURATION]["webhooks"][0]["clientConfig"]["caBundle"].clone();
            String::from_utf8(STANDARD.decode(bundle.as_str().unwrap()).unwrap()).unwrap()
        };
        let (mut noticed, mut called) = (String::new(), None::<Served>);
        let key = |served: &Option<Arc<CertifiedKey>>| served.as_ref().map(|served| served.cert.clone());
        let is_same =
            |one: &Served, other: &Served| one.0 == other.0 && one.1.iter().map(key).eq(other.1.iter().map(key));
        for day in 0..days {
            let now = begin + SignedDuration::from_hours(24 * day);
            api.lock().unwrap().now = now;
            for at in 0..3 {
                let at = (at + day as usize) % 3;
                let (keeper, memory) = &mut replicas[at];
                keeper.look(memory).await.unwrap();
                assert_eq!(keeper.serving.verified(), Ok(()));
                noticed = if noticed.is_empty() { bundle() } else { noticed };
                let state = (bundle(), replicas.iter().map(|(keeper, _)| keeper.serving.get()).collect::<Vec<_>>());
                // What was called with success is called again with success, until it is too old.
                if day % 20 != 0 && called.as_ref().is_some_and(|called| is_same(called, &state)) {
                    continue;
                }
                // Replicas that have just started are not ready until they have looked.
                for (keeper, _) in replicas.iter().filter(|(keeper, _)| keeper.serving.get().is_some()) {
                    for trusted in [&noticed, &state.0] {
                        let called = probe::handshake(keeper.address, "op-webhook.ns.svc", trusted, now).await;
                        assert!(called.is_ok(), "{called:?} after {day} days, off {hours_off:?}");
                    }
                }
                called = Some(state);
            }
            noticed = bundle();
        }
        api.lock().unwrap().certificates.len()
    }

    #[tokio::test]
    async fn replicas_whose_clocks_differ_agree_on_certificates() {
        for (is_dated, hours_off) in [(true, [-2, 0, 2]), (false, [2, 0, -2]), (true, [-5000, 24 * 500, 24 * 365 * 40])]
        {
            let made = certificates_of(is_dated, hours_off, 400).await;
            assert!((2..=8).contains(&made), "{made} certificates, clocks off by {hours_off:?} hours");
        }
    }

    #[tokio::test]
    async fn who_is_not_trusted_is_not_ready() {
        let now: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let [ours, other] = [(); 2].map(|()| Identity::make("op", &["op-webhook.ns.svc".into()], now).unwrap());
        let serving = Arc::<Serving>::default();
        serving.set(&ours.certificate, &ours.key).unwrap();
        let nobody = tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, BoxError>("is not asked".into()));
        let keeper = Keeper {
            client: kube::Client::new(nobody, "ns"),
            clock: Clock::new(move || now),
            operator: "op".into(),
            namespace: "ns".into(),
            certificates: Certificates::Own,
            reach: Reach::Service { namespace: "ns".into(), name: "op-webhook".into() },
            targets: Vec::new(),
            serving: serving.clone(),
            address: listener.local_addr().unwrap(),
        };
        let serves = tokio::spawn(serve(listener, Webhooks::new(&[], Arc::default()), serving.clone()));
        let published =
            |bundle: &str| vec![("validatingwebhookconfigurations/op-webhook".to_owned(), bundle.to_owned())];
        keeper.verify(&published(&ours.authority), now).await.unwrap();
        assert_eq!(serving.verified(), Ok(()));
        keeper.verify(&published(&other.authority), now).await.unwrap_err();
        let why = serving.verified().unwrap_err();
        assert!(why.contains("validatingwebhookconfigurations/op-webhook does not verify"), "{why}");
        keeper.verify(&published(&ours.authority), now).await.unwrap();
        serves.abort();
        assert!(serves.await.is_err());
        keeper.verify(&published(&ours.authority), now).await.unwrap_err();
        assert_eq!(serving.verified(), Ok(()), "a listener that is busy says nothing about its certificate");
    }
}
