//! Keeps certificates good, and the API server informed of where webhooks are and whom to trust.

use super::listener::Serving;
use super::manifests::{Reach, Target, conversion, secret_name};
use super::secret::Kept;
use super::{Certificates, files};
use crate::client::{chain, exchange};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball_core::Clock;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use serde_json::{Value, json};
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
}

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
                    (self.look_at_files(directory), LOOK_AT_FILES)
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
                    soon = (soon * 2).min(wait);
                }
            }
        }
    }

    fn look_at_files(&self, directory: &Path) -> Result<(), BoxError> {
        let (certificate, key) = files::read(directory)?;
        Ok(self.serving.set(&certificate, &key)?)
    }

    async fn look(&self, memory: &mut Memory) -> Result<(), BoxError> {
        let known = memory.known.as_deref() == Some(&memory.kept.bundle());
        memory.kept = self.share(&memory.kept, known).await?;
        let bundle = memory.kept.bundle();
        // Trust first: what is served next must be believed.
        let told = self.tell(&bundle).await;
        if let Some(current) = &memory.kept.current {
            self.serving.set(&current.certificate, &current.key)?;
        }
        memory.known = None;
        told?;
        memory.known = Some(bundle);
        Ok(())
    }

    /// Brings the shared secret up to date, and gives what it holds. If it is gone, it becomes what this replica remembers.
    async fn share(&self, remembered: &Kept, known: bool) -> Result<Kept, BoxError> {
        let place = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        let url = format!("{place}/{}", secret_name(&self.operator));
        let mut attempt = 1;
        loop {
            let found = self.get(&url).await?;
            let mut kept = found.as_ref().map_or_else(|| remembered.clone(), Kept::read);
            let names = self.reach.names();
            // Another replica may have gone on: then this one does not know yet what everybody knows.
            let known = known && kept == *remembered;
            let changed = kept.step(&self.operator, &names, self.clock.now(), known)?;
            if !changed && found.is_some() {
                return Ok(kept);
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
                Ok(()) => {
                    tracing::info!(secret = secret_name(&self.operator), "wrote webhook certificates");
                    return Ok(kept);
                }
                // Another replica was faster; what it wrote is as good.
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes place and authority of the webhooks into all objects that hold them.
    async fn tell(&self, bundle: &str) -> Result<(), BoxError> {
        let mut missing = Vec::new();
        for target in &self.targets {
            let Some(mut object) = self.get(&target.url()).await? else {
                missing.push(format!("{}/{}", target.resource, target.name));
                continue;
            };
            if aim(&mut object, target, &self.reach, bundle) {
                self.send(Method::PUT, &target.url(), &object).await?;
                tracing::info!(target.resource, target.name, "told the API server of the webhooks");
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!("{} not found: apply what `manifests` prints", missing.join(", ")).into())
    }

    async fn get(&self, url: &str) -> kube::Result<Option<Value>> {
        let request = Request::get(url).body(Vec::new()).map_err(kube::Error::HttpError)?;
        match exchange(&self.client, request).await {
            Ok(body) => serde_json::from_slice(&body).map(Some).map_err(kube::Error::SerdeError),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn send(&self, method: Method, url: &str, object: &Value) -> kube::Result<()> {
        let request = Request::builder().method(method).uri(url).header(CONTENT_TYPE, "application/json");
        let request = request.body(object.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        exchange(&self.client, request).await.map(drop)
    }
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
    use super::*;
    use http::Response;
    use kube::client::Body;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use std::fs;

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
        };
        tokio::spawn(keeper.run());
        sleep(LOOK).await;
        assert_eq!(served(), None);
        put("tls.crt", &made[0].certificate);
        put("tls.key", &made[0].key);
        sleep(LOOK_AT_FILES).await;
        assert_eq!(served(), Some(0));
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
}
