//! The initial state of a server from a data directory or another server.

use super::{Components, Options, Server};
use crate::auth::{Issuer, PolicyImage};
use crate::catalog::{Catalog, Resource};
use crate::custom::schema_number;
use crate::data_dir::{DataDir, DataDirError, OpeningStage, Progress};
use crate::registry::Registry;
use crate::storage::{Entry, Image, Limits, Recording, RecordingError, SelectableFields, Store};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flyball_core::GroupResource;
use std::collections::BTreeMap;
use std::sync::Arc;

/// File with the secret of token signatures.
const KEY: &str = "service-account.key";

/// Opens the server of a data directory.
pub(super) fn open(options: Options, directory: DataDir) -> Result<Arc<Components>, DataDirError> {
    let issuer = Issuer::new(&secret(&directory, options.secret)?);
    let (store, journal) = Store::recover(&directory, Limits::of(&options.bounds))?;
    let server = Components::new(store, Catalog::built_in().into(), Arc::new(issuer), PolicyImage::default(), options);
    let progress = directory.progress();
    server.definitions.load(|done, of| progress.report(OpeningStage::Definitions, done, of));
    server.definitions.serve();
    let registry = &server.registry;
    select(registry, progress);
    registry.seed();
    registry.store.keep(directory, &journal)?;
    // The last writes to CRDs may not have been processed before the stop.
    server.definitions.mark_unsynced();
    Ok(server)
}

/// Creates a server with the objects of a recording as of a revision.
pub(super) fn replay(options: Options, recording: &Recording, at: u64) -> Result<Arc<Components>, RecordingError> {
    let issuer = Arc::new(Issuer::new(&options.secret));
    let store = Store::restore(recording, at, Limits::of(&options.bounds))?;
    let server = Components::new(store, Catalog::built_in().into(), issuer, PolicyImage::default(), options);
    server.definitions.load(|_, _| {});
    server.definitions.serve();
    select(&server.registry, &Progress::default());
    // The last writes to CRDs may not have been processed at this revision.
    server.definitions.mark_unsynced();
    Ok(server)
}

/// Returns the directory's secret; stores this one if it has none yet.
fn secret(directory: &DataDir, new: [u8; 32]) -> Result<[u8; 32], DataDirError> {
    match directory.load(KEY)? {
        Some(text) => {
            let secret = BASE64.decode(text.trim_ascii_end()).ok().and_then(|bytes| bytes.try_into().ok());
            secret.ok_or_else(|| DataDirError::Damaged { path: directory.path().join(KEY), at: 0 })
        }
        None => {
            directory.save(KEY, (BASE64.encode(new) + "\n").as_bytes())?;
            Ok(new)
        }
    }
}

/// Computes the selectable fields of the objects of a recovered store.
fn select(registry: &Registry, progress: &Progress) {
    let catalog = registry.catalog.get();
    let mut versions: BTreeMap<&GroupResource, Vec<&Resource>> = BTreeMap::new();
    catalog.resources().for_each(|resource| versions.entry(&resource.table).or_default().push(resource));
    let (mut done, of) = (0, registry.store.count_all() as u64);
    registry.store.select_by(|table, entry| {
        progress.report(OpeningStage::Selecting, done, of);
        done += 1;
        let versions = versions.get(table).map_or(&[][..], Vec::as_slice);
        let written = |resource: &&&Resource| match resource.custom() {
            Some(_) => schema_number::same_version(resource.schema_number, entry.schema),
            None => resource.schema_number == entry.schema,
        };
        let stored = |resource: &&&Resource| {
            resource.custom().is_none_or(|custom| *custom.storage_version == *resource.kind.version)
        };
        let resource = versions.iter().find(written).or_else(|| versions.iter().find(stored));
        facts(entry, resource.copied())
    });
}

fn facts(entry: &Entry, resource: Option<&Resource>) -> SelectableFields {
    const LABELS: &[u8] = b"\"labels\"";
    // Decoding many objects takes long, and most kinds have no selectable fields.
    let has_fields = resource.is_some_and(|resource| !resource.selectable().is_empty());
    if !has_fields && !entry.body.windows(LABELS.len()).any(|window| window == LABELS) {
        return SelectableFields::default();
    }
    let Ok(object) = entry.object() else { return SelectableFields::default() };
    resource.map_or_else(|| SelectableFields::of(&object, Vec::new()), |resource| resource.facts(&object))
}

/// The state of a server at one moment. It shares unchanged objects with the servers that are created from it.
pub struct Snapshot {
    image: Image,
    catalog: Arc<Catalog>,
    issuer: Arc<Issuer>,
    policy: PolicyImage,
    definitions_changed: bool,
}

impl Snapshot {
    /// Creates an independent server from the snapshot: with the same objects, versions, history, CRDs and tokens, but
    /// with the clock, the randomness and the webhooks of these options. Their secret is not used.
    ///
    /// The new server is in memory only.
    pub fn fork(&self, options: Options) -> Server {
        let store = Store::of(self.image.image(), Limits::of(&options.bounds));
        let server = Components::new(store, self.catalog.clone(), self.issuer.clone(), self.policy.clone(), options);
        if self.definitions_changed {
            server.definitions.mark_unsynced();
        }
        Server(server)
    }
}

impl Server {
    /// Takes a snapshot. It takes microseconds, regardless of the number of objects; the first write to a resource
    /// afterwards copies that resource's keys.
    ///
    /// It includes each concurrent write completely or not at all.
    pub fn snapshot(&self) -> Snapshot {
        let Components { registry, definitions, authenticator, .. } = &*self.0;
        Snapshot {
            catalog: registry.catalog.get(),
            image: registry.store.image(),
            issuer: authenticator.issuer().clone(),
            policy: registry.authorizer.image(),
            definitions_changed: !definitions.is_synced(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;
    use crate::storage::Revision;
    use bytes::Bytes;
    use flyball_core::ObjectKey;
    use futures_util::FutureExt;
    use http::{Method, Request};
    use http_body_util::{BodyExt, Full};
    use serde_json::{Value, json};

    struct Folder(std::path::PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    impl Folder {
        fn open(&self) -> Server {
            Server::open(Options::system().unwrap(), DataDir::open(&self.0).unwrap()).unwrap()
        }
    }

    async fn send(server: &Server, method: Method, path: &str, body: Value) -> (u16, Value) {
        let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let mut request = Request::new(Full::new(bytes));
        (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
        request.extensions_mut().insert(User::admin());
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        let response = server.handle(request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// Returns an entry without validation, as an older release might have stored it.
    fn unvalidated(key: &ObjectKey, body: String, revision: Revision) -> Entry {
        Entry {
            key: key.clone(),
            revision,
            body: body.into(),
            facts: SelectableFields::default(),
            schema: 0,
            depth: 0,
            past: Default::default(),
            identity: Default::default(),
        }
    }

    /// Stores an object without validation.
    async fn plant(server: &Server, name: &str, body: String) {
        plant_in(server, GroupResource::new("", "configmaps"), ObjectKey::new(Some("default"), name), body).await;
    }

    async fn plant_in(server: &Server, table: GroupResource, key: ObjectKey, body: String) {
        let make = |revision: Revision| Ok(unvalidated(&key, body, revision));
        server.0.registry.store.put(&table, &key, None, make).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn definitions_are_read_within_the_turn() {
        let server = Server::new(Options::system().unwrap());
        let (parts, other) = (server.0.clone(), server.0.clone());
        let turn = parts.definitions.turn();
        let (started, start) = std::sync::mpsc::channel();
        let serving = tokio::task::spawn_blocking(move || {
            started.send(()).unwrap();
            other.definitions.serve();
        });
        start.recv().unwrap();
        for _ in 0..100_000 {
            std::thread::yield_now();
            assert!(!serving.is_finished(), "it would put what others have written since in the place of older CRDs");
        }
        let names = json!({"plural": "hats", "singular": "hat", "kind": "Hat", "listKind": "HatList"});
        let definition = json!({
            "metadata": {"name": "hats.x.io", "uid": "u", "generation": 1},
            "spec": {"group": "x.io", "scope": "Namespaced", "names": names, "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
            ]},
            "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]},
        });
        let table = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
        let key = ObjectKey::new(None, "hats.x.io");
        let make = |revision: Revision| Ok(unvalidated(&key, definition.to_string(), revision));
        parts.registry.store.put(&table, &key, None, make).now_or_never().unwrap().unwrap();
        drop(turn);
        serving.await.unwrap();
        assert!(parts.registry.catalog.get().get("x.io", "v1", "hats").is_some());
    }

    #[tokio::test]
    async fn undecodable_objects_do_not_affect_others() {
        let path = std::env::temp_dir().join(format!("flyball-server-{}-unreadable", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let folder = Folder(path);
        let maps = "/api/v1/namespaces/default/configmaps";
        let map = |name: &str| json!({"metadata": {"name": name, "labels": {"a": "b"}}, "data": {"k": "v"}});
        {
            let server = folder.open();
            assert_eq!(send(&server, Method::POST, maps, map("good")).await.0, 201);
            let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
            let meta = r#"{"labels":{"a":"b"},"name":"x","namespace":"default"}"#;
            plant(&server, "deep", format!(r#"{{"data":{deep},"metadata":{meta}}}"#)).await;
            plant(&server, "torn", format!(r#"{{"data":{{"k":"v"}},"metadata":{meta}"#)).await;
            plant(&server, "list", "[]".to_owned()).await;
            plant(&server, "empty", "{}".to_owned()).await;
            plant(&server, "bytes", format!("{{\"data\":1e999,\"metadata\":{meta}}}")).await;
        }
        for start in 0..3 {
            let server = folder.open();
            for list in [maps, "/api/v1/configmaps?labelSelector=a%3Db"] {
                let (code, list) = send(&server, Method::GET, list, Value::Null).await;
                assert_eq!(code, 200, "{list}");
                let names = list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone());
                assert!(names.into_iter().any(|name| name == "good"), "{list}");
                let is_bad = |item: &Value| item["metadata"]["name"] == "torn" || item["metadata"]["name"] == "list";
                assert!(!list["items"].as_array().unwrap().iter().any(is_bad), "{list}");
            }
            let (code, status) = send(&server, Method::GET, &format!("{maps}/torn"), Value::Null).await;
            assert!(code == 404 && status["message"].as_str().unwrap().contains("cannot be read"), "{status}");
            // Quarantined objects remain after a restart, until they are replaced.
            match start {
                0 => {}
                1 => {
                    assert_eq!(send(&server, Method::POST, maps, map("deep")).await.0, 201);
                    assert_eq!(send(&server, Method::PUT, &format!("{maps}/bytes"), map("bytes")).await.0, 201);
                    let (code, gone) = send(&server, Method::DELETE, &format!("{maps}/empty"), Value::Null).await;
                    assert_eq!(code, 200, "{gone}");
                }
                _ => {
                    for name in ["deep", "bytes"] {
                        assert_eq!(send(&server, Method::GET, &format!("{maps}/{name}"), Value::Null).await.0, 200);
                    }
                    let quarantined = |name: &str| {
                        let key = ObjectKey::new(Some("default"), name);
                        server.0.registry.store.quarantined(&GroupResource::new("", "configmaps"), &key).is_some()
                    };
                    let remaining = ["deep", "torn", "list", "empty", "bytes"].map(quarantined);
                    assert_eq!(remaining, [false, true, true, false, false]);
                }
            }
        }
    }

    #[tokio::test]
    async fn unreadable_objects_are_removed_with_their_namespace_or_definition() {
        let path = std::env::temp_dir().join(format!("flyball-server-{}-removed", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let folder = Folder(path);
        let (spaces, crds) = ("/api/v1/namespaces", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
        let definition = json!({
            "metadata": {"name": "hats.x.io"},
            "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "hats", "kind": "Hat"}, "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
            ]},
        });
        let unreadable = [("", "configmaps", "a"), ("", "secrets", "a"), ("x.io", "hats", "a"), ("x.io", "hats", "b")];
        let unreadable = unreadable.map(|(group, plural, namespace)| {
            (GroupResource::new(group, plural), ObjectKey::new(Some(namespace), "torn"))
        });
        {
            let server = folder.open();
            for name in ["a", "b"] {
                let namespace = json!({"metadata": {"name": name}});
                assert_eq!(send(&server, Method::POST, spaces, namespace).await.0, 201);
            }
            assert_eq!(send(&server, Method::POST, crds, definition.clone()).await.0, 201);
            for (table, key) in &unreadable {
                plant_in(&server, table.clone(), key.clone(), "{".to_owned()).await;
            }
        }
        let server = folder.open();
        let known = || {
            let is_known = |(table, key): &(_, _)| server.0.registry.store.quarantined(table, key).is_some();
            unreadable.each_ref().map(is_known)
        };
        assert_eq!(known(), [true; 4]);
        assert_eq!(send(&server, Method::DELETE, "/api/v1/namespaces/a", Value::Null).await.0, 200);
        assert_eq!(known(), [true; 4], "its finalizer remains");
        let (_, mut namespace) = send(&server, Method::GET, "/api/v1/namespaces/a", Value::Null).await;
        namespace["spec"] = json!({});
        assert_eq!(send(&server, Method::PUT, "/api/v1/namespaces/a/finalize", namespace).await.0, 200);
        assert_eq!(send(&server, Method::GET, "/api/v1/namespaces/a", Value::Null).await.0, 404);
        assert_eq!(known(), [false, false, false, true]);
        assert_eq!(send(&server, Method::DELETE, &format!("{crds}/hats.x.io"), Value::Null).await.0, 200);
        assert_eq!(send(&server, Method::GET, &format!("{crds}/hats.x.io"), Value::Null).await.0, 404);
        assert_eq!(known(), [false; 4]);
        drop(server);
        let server = folder.open();
        let remains = |(table, key): &(_, _)| server.0.registry.store.quarantined(table, key).is_some();
        assert!(!unreadable.iter().any(remains), "the removal is stored");
    }
    #[tokio::test]
    async fn objects_of_any_content_are_replayed() {
        let path = std::env::temp_dir().join(format!("flyball-server-{}-replayed", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let server = Server::new(Options::system().unwrap());
        server.record(&path, 64 << 20).unwrap();
        let tables = [
            ("", "services"),
            ("", "pods"),
            ("", "secrets"),
            ("", "nodes"),
            ("", "namespaces"),
            ("", "resourcequotas"),
            ("rbac.authorization.k8s.io", "clusterroles"),
            ("rbac.authorization.k8s.io", "clusterrolebindings"),
            ("apiextensions.k8s.io", "customresourcedefinitions"),
            ("apiregistration.k8s.io", "apiservices"),
            ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
            ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
            ("unknown.example.com", "things"),
        ];
        let contents = [json!(null), json!(7), json!([[]]), json!({"": {"a": -1}}), json!("é\u{0}")];
        for ((group, resource), (n, content)) in
            tables.iter().flat_map(|table| contents.iter().enumerate().map(move |content| (table, content)))
        {
            let key = ObjectKey::new(
                ["pods", "services", "secrets"].contains(resource).then_some("default"),
                &format!("x{n}"),
            );
            let make = |revision: Revision| {
                let mut metadata =
                    json!({"name": key.name(), "resourceVersion": revision.to_string(), "labels": content});
                key.namespace().into_iter().for_each(|namespace| metadata["namespace"] = namespace.into());
                let fields = ["spec", "status", "rules", "subjects", "webhooks", "data", "roleRef"];
                let mut object = json!({"metadata": metadata});
                fields.iter().for_each(|field| object[*field] = content.clone());
                Ok(unvalidated(&key, object.to_string(), revision))
            };
            server.0.registry.store.put(&GroupResource::new(group, resource), &key, None, make).await.unwrap();
        }
        let last = server.0.registry.store.revision();
        server.close();
        let recording = Recording::open(&path).unwrap();
        let replayed = Server::replay(Options::system().unwrap(), &recording, last).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(replayed.revision(), last);
        for (group, resource) in &tables[..tables.len() - 1] {
            let path = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
            let (code, _) = send(&replayed, Method::GET, &format!("{path}/{resource}"), Value::Null).await;
            assert!([200, 500].contains(&code), "{resource}: {code}");
        }
        let map = json!({"metadata": {"name": "later"}, "data": {"k": "v"}});
        let (code, later) = send(&replayed, Method::POST, "/api/v1/namespaces/default/configmaps", map).await;
        assert!(code == 201 || later["kind"] == "Status", "{later}");
    }
}
