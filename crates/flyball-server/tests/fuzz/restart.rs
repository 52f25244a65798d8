//! Batches of writes to a server with a data directory, which is closed and opened again after each of them.
//!
//! Invariant: a read after a write returns the object of the write's response; the directory opens after any writes,
//! and each object is unchanged.

use crate::engine;
use crate::targets::{
    ACCOUNTS, DEFINITIONS, DEPLOYMENTS, JSON, MAPS, PODS, WIDGETS, account, assert_is_no_failure, assert_is_stored,
    definition, deployment, json_of, map, pod, schema, send, texts, widget,
};
use flyball_core::Clock;
use flyball_core::time::Timestamp;
use flyball_server::{DataDir, Options, Server, User};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Log size in bytes after which the directory is compacted: within one batch of large writes.
const COMPACT_AFTER: u64 = 64 << 10;
/// Maximum number of lines of a batch.
const MAX_WRITES: usize = 40;

/// Names of collections in inputs.
const COLLECTIONS: [(&str, &str); 6] = [
    ("maps", MAPS),
    ("pods", PODS),
    ("accounts", ACCOUNTS),
    ("deployments", DEPLOYMENTS),
    ("definitions", DEFINITIONS),
    ("widgets", WIDGETS),
];

pub(crate) struct Restart;

/// A batch is lines: a method, a collection or a path that begins with one, a media type, and a body.
pub(crate) fn data_directory() -> Restart {
    Restart
}

pub(crate) struct World {
    folder: PathBuf,
    server: Option<Server>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.take().iter().for_each(Server::close);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn open(folder: &PathBuf) -> Server {
    let clock = Clock::new(|| Timestamp::from_second(1_800_000_000).unwrap());
    let directory = DataDir::open_with(folder, COMPACT_AFTER).unwrap_or_else(|error| panic!("{error}"));
    Server::open(Options::simulated(clock, 1), directory).unwrap_or_else(|error| panic!("{error}"))
}

/// The objects of all collections, by collection and name.
async fn objects(server: &Server) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (name, path) in COLLECTIONS {
        let admin = Some(User::admin());
        let Some((200, Some(list))) = send(server, admin, "GET", path, &[], Vec::new()).await else { continue };
        let mut list: Value = serde_json::from_slice(&list).unwrap();
        for object in list["items"].as_array_mut().into_iter().flatten() {
            found.insert(format!("{name} {}", object["metadata"]["name"]), object.take());
        }
    }
    found
}

impl engine::Target for Restart {
    type World = World;

    fn seeds(&self) -> Vec<Vec<u8>> {
        let patched = "PATCH maps/a application/merge-patch+json {\"data\":{\"k\":null,\"x\":\"y\"}}";
        let applied = "PATCH maps/b?fieldManager=m&force=true application/apply-patch+yaml {\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"data\":{\"a\":\"b\"}}";
        let batches = [
            format!("POST maps {JSON} {}\n{patched}\n{applied}\nDELETE maps/a {JSON} {{}}", map()),
            format!("POST definitions {JSON} {}\nPOST widgets {JSON} {}", definition(&schema()), widget()),
            format!(
                "POST definitions {JSON} {}\nDELETE definitions/widgets.example.com {JSON} {{}}",
                definition(&schema())
            ),
            format!("POST accounts {JSON} {}\nPOST pods {JSON} {}\nDELETE pods/a {JSON} {{}}", account(), pod()),
            format!(
                "POST deployments {JSON} {}\nPUT deployments/a {JSON} {}\nDELETE deployments {JSON} {{}}",
                deployment(),
                deployment()
            ),
            "POST maps application/yaml {metadata: {generateName: g-, finalizers: [a/b]}, binaryData: {x: AAE=}}"
                .into(),
        ];
        let all: Vec<&str> = batches.iter().map(String::as_str).collect();
        texts(&all).into_iter().map(String::into_bytes).collect()
    }

    async fn open(&self) -> World {
        let name = format!("data-{}", std::process::id());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fuzz").join(name);
        // The previous world may still lock the directory.
        let folder = (0..).map(|n| folder.with_extension(n.to_string())).find(|folder| !folder.exists()).unwrap();
        World { server: Some(open(&folder)), folder }
    }

    async fn play(&self, world: &mut World, input: &[u8]) -> String {
        let text = String::from_utf8_lossy(input);
        let server = world.server.take().unwrap();
        let mut output = String::new();
        for line in text.lines().take(MAX_WRITES) {
            let mut parts = line.splitn(4, ' ');
            let mut part = || parts.next().unwrap_or_default();
            let (method, target, media, body) = (part(), part(), part(), part());
            let end = target.find(['/', '?']).unwrap_or(target.len());
            let Some((_, path)) = COLLECTIONS.iter().find(|(name, _)| *name == &target[..end]) else { continue };
            let url = format!("{path}{}", &target[end..]);
            let headers = [("content-type", media)];
            let answer = send(&server, Some(User::admin()), method, &url, &headers, body.as_bytes().to_vec()).await;
            output += &answer.as_ref().map_or_else(|| "none".into(), |(code, _)| format!("{method} {end} {code} "));
            let Some((code, Some(answer))) = answer else { continue };
            let answer = json_of(&answer);
            assert_is_no_failure(code, &answer, false);
            let is_write = code < 300 && ["POST", "PUT", "PATCH"].contains(&method) && !url.contains("dryRun");
            let is_whole = target.matches('/').count() < 2 && answer["kind"] != "Status";
            // The consequences of a write to a CRD change it, and removing the last finalizer deletes an object.
            if is_write && is_whole && *path != DEFINITIONS && answer["metadata"]["deletionTimestamp"].is_null() {
                assert_is_stored(&server, path, &answer).await;
            }
        }
        let before = objects(&server).await;
        server.close();
        drop(server);
        let server = open(&world.folder);
        let after = objects(&server).await;
        for (name, object) in &before {
            assert_eq!(after.get(name), Some(object), "{name} is not what it was");
        }
        for name in after.keys() {
            assert!(before.contains_key(name), "{name} was gone and is back");
        }
        // The next batch starts with few objects.
        for (_, path) in COLLECTIONS.iter().rev() {
            send(&server, Some(User::admin()), "DELETE", path, &[], Vec::new()).await;
        }
        world.server = Some(server);
        output
    }
}
