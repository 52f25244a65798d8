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
        address: WebhookAddress::Service { namespace: "ns".into(), name: "op-webhook".into() },
        targets: Vec::new(),
        serving,
        listener: address,
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
    assert!(
        set_client_config(&mut object, &target, &service, "pem")
            && !set_client_config(&mut object, &target, &service, "pem")
    );
    let pointed = json!({"service": {"namespace": "ns", "name": "op-webhook", "path": "/validate", "port": 443},
        "caBundle": STANDARD.encode("pem")});
    assert_eq!(object["webhooks"][0], json!({"name": "ours", "clientConfig": pointed, "failurePolicy": "Ignore"}));
    assert_eq!((&object["webhooks"][1], &object["metadata"]["labels"]["a"]), (&foreign, &json!("b")));

    assert!(set_client_config(&mut object, &target, &WebhookAddress::url("https://127.0.0.1:0/", 4711), "pem"));
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
        replicas.push((rotator, SyncState::default()));
    }
    let bundle = || {
        let api = api.lock();
        let bundle = api.objects[CONFIGURATION]["webhooks"][0]["clientConfig"]["caBundle"].clone();
        String::from_utf8(STANDARD.decode(bundle.as_str().unwrap()).unwrap()).unwrap()
    };
    let (mut noticed, mut called) = (String::new(), None::<Served>);
    let key = |served: &Option<Arc<CertifiedKey>>| served.as_ref().map(|served| served.cert.clone());
    let is_same = |one: &Served, other: &Served| one.0 == other.0 && one.1.iter().map(key).eq(other.1.iter().map(key));
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
                    let called = probe::handshake(rotator.listener, "op-webhook.ns.svc", trusted, now).await;
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
    for (is_dated, hours_off) in [(true, [-2, 0, 2]), (false, [2, 0, -2]), (true, [-5000, 24 * 500, 24 * 365 * 40])] {
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
