//! Acknowledged writes survive any crash.
//!
//! A child process of this program writes from many tasks concurrently and prints started and acknowledged writes; it
//! is killed at a random point; then its directory is read and compared. `FLYBALL_KILLS` is the number of runs,
//! `FLYBALL_SEED` the seed.

use bytes::Bytes;
use flyball_core::Rng;
use flyball_server::{DataDir, Options, Server, User};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const DIRECTORY: &str = "FLYBALL_CRASH_DIRECTORY";
const SEED: &str = "FLYBALL_SEED";
const WRITERS: u64 = 16;
/// Objects of each writer.
const OBJECTS: u64 = 5;
/// Small, so that snapshots are interrupted as well.
const COMPACT_AFTER: u64 = 48 << 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A temporary directory, removed at the end of the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flyball-server-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) async fn ask(server: &Server, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let mut request = Request::new(Full::new(bytes));
    (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
    request.extensions_mut().insert(User::new("admin", &["system:masters"]));
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

fn open(path: &Path) -> Server {
    let directory = DataDir::open_with(path, COMPACT_AFTER).unwrap();
    Server::open(Options::system().unwrap(), directory).unwrap()
}

/// Every other writer writes custom resources.
fn collection(writer: u64) -> &'static str {
    if writer.is_multiple_of(2) {
        "/api/v1/namespaces/default/configmaps"
    } else {
        "/apis/x.io/v1/namespaces/default/gadgets"
    }
}

fn object(writer: u64, name: &str, n: u64) -> Value {
    // Some are larger than a page, all are identified by their number.
    let text = format!("{n}-").repeat((n * 37 % 2000) as usize + 1);
    match writer % 2 {
        0 => json!({"metadata": {"name": name}, "data": {"n": n.to_string(), "text": text}}),
        _ => {
            json!({"apiVersion": "x.io/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"n": n.to_string(), "text": text}})
        }
    }
}

fn content(object: &Value) -> Value {
    let part = if object["data"].is_null() { &object["spec"] } else { &object["data"] };
    part.clone()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse().unwrap()
}

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    json!({
        "metadata": {"name": "gadgets.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    })
}

fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "@ {line}").and_then(|()| out.flush()).unwrap();
}

/// The child process of the tests; without its environment it does nothing.
#[test]
fn child() {
    let Some(path) = std::env::var_os(DIRECTORY) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        if number("FLYBALL_CRASH_FILL").is_some() {
            // Its log is never replaced, so that it grows beyond the limit.
            let directory = DataDir::open_with(&path, u64::MAX).unwrap();
            let server = Server::open(Options::system().unwrap(), directory).unwrap();
            return fill(&server, Path::new(&path)).await;
        }
        let server = open(Path::new(&path));
        print("ready");
        let seed = number(SEED).unwrap();
        let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(server.clone(), writer, seed))).collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

/// Writes until it is killed, each object by one writer only.
async fn write(server: Server, writer: u64, seed: u64) {
    let rng = Rng::from_seed(seed ^ writer << 32);
    for turn in 0.. {
        let name = format!("o-{writer}-{}", rng.below(OBJECTS));
        let (n, path) = (turn * 1000 + seed % 1000, collection(writer));
        let (code, before) = ask(&server, Method::GET, &format!("{path}/{name}"), &Value::Null).await;
        let deletes = code == 200 && rng.below(4) == 0;
        print(&format!("begin {writer} {name} {}", if deletes { "-".into() } else { n.to_string() }));
        let (code, after) = if deletes {
            ask(&server, Method::DELETE, &format!("{path}/{name}"), &Value::Null).await
        } else if code == 200 {
            let mut object = object(writer, &name, n);
            object["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
            ask(&server, Method::PUT, &format!("{path}/{name}"), &object).await
        } else {
            ask(&server, Method::POST, path, &object(writer, &name, n)).await
        };
        assert!(code < 300, "{code} {after}");
        let version = if deletes { String::new() } else { version(&after).to_string() };
        print(&format!("done {writer} {name} {version}"));
    }
}

/// The known state of an object: its content and version, if it exists.
type ObjectState = Option<(Value, u64)>;

#[derive(Default)]
struct Model {
    acknowledged: BTreeMap<String, ObjectState>,
    /// Started writes that were not acknowledged.
    started: BTreeMap<String, Option<Value>>,
    newest: u64,
}

impl Model {
    fn record(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["begin", writer, name, n] => {
                let content = n.parse().ok().map(|n| content(&object(writer.parse().unwrap(), name, n)));
                self.started.insert(name.to_owned(), content);
            }
            ["done", _, name, version] => {
                let content = self.started.remove(name).unwrap();
                let known = content.map(|content| (content, version.parse::<u64>().unwrap()));
                if let Some((_, version)) = &known {
                    let before = self.acknowledged.get(name).and_then(|known| known.as_ref().map(|(_, v)| *v));
                    assert!(before.is_none_or(|before| before < *version), "{name} goes back to {version}");
                    self.newest = self.newest.max(*version);
                }
                self.acknowledged.insert(name.to_owned(), known);
            }
            _ => {}
        }
    }

    /// Compares with the stored objects, and adopts their state.
    async fn compare(&mut self, server: &Server) {
        let mut there: BTreeMap<String, (Value, u64)> = BTreeMap::new();
        for writer in 0..2 {
            let (code, list) = ask(server, Method::GET, collection(writer), &Value::Null).await;
            assert_eq!(code, 200, "{list}");
            let reached = version(&list);
            assert!(reached >= self.newest, "revisions went back from {} to {reached}", self.newest);
            for item in list["items"].as_array().unwrap() {
                assert!(version(item) <= reached);
                let name = item["metadata"]["name"].as_str().unwrap().to_owned();
                if name.starts_with("o-") {
                    there.insert(name, (content(item), version(item)));
                }
            }
        }
        let names: Vec<String> =
            self.acknowledged.keys().chain(self.started.keys()).chain(there.keys()).cloned().collect();
        for name in names {
            let found = there.get(&name).cloned();
            let known = self.acknowledged.get(&name).cloned().flatten();
            let started = self.started.get(&name);
            let is_started =
                started.is_some_and(|started| *started == found.as_ref().map(|(content, _)| content.clone()));
            assert!(
                found == known || is_started,
                "{name} is {found:.80?}, acknowledged was {known:.80?}, started {started:.80?}"
            );
            self.newest = self.newest.max(found.as_ref().map_or(0, |(_, version)| *version));
            self.acknowledged.insert(name, found);
        }
        self.started.clear();
    }
}

fn spawn(path: &Path, seed: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::child", "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, path).env(SEED, seed.to_string()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command.spawn().unwrap()
}

/// Forwards the output of a child until it ends.
fn listen(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some((_, line)) = line.split_once("@ ") {
                let _ = sender.send(line.to_owned());
            }
        }
    });
    receiver
}

#[tokio::test]
async fn acknowledged_writes_survive_kill_9() {
    let kills = number("FLYBALL_KILLS").unwrap_or(8);
    let seed = number(SEED).unwrap_or(1);
    let folder = Folder::new("kill");
    {
        let server = open(&folder.0);
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(ask(&server, Method::POST, definitions, &definition()).await.0, 201);
    }
    let (rng, mut model, mut acknowledged) = (Rng::from_seed(seed), Model::default(), 0);
    for kill in 0..kills {
        let mut child = spawn(&folder.0, seed * 10_000 + kill);
        let output = listen(&mut child);
        // Sometimes it is killed during its start.
        if rng.below(8) > 0 {
            assert_eq!(output.recv_timeout(Duration::from_secs(60)).as_deref(), Ok("ready"));
        }
        tokio::time::sleep(Duration::from_millis(rng.below(120))).await;
        child.kill().unwrap();
        child.wait().unwrap();
        for line in output {
            acknowledged += u64::from(line.starts_with("done"));
            model.record(&line);
        }
        model.compare(&open(&folder.0)).await;
    }
    println!("{kills} kills, {acknowledged} acknowledged writes, revision {}", model.newest);
    assert!(acknowledged > kills, "hardly anything was written");
}

/// Writes until the disk is full, and prints the error.
async fn fill(server: &Server, path: &Path) {
    for n in 0..10_000 {
        let (code, answer) = ask(server, Method::POST, collection(0), &object(0, &format!("o-{n}"), n)).await;
        if code == 201 {
            print(&format!("kept {n}"));
            continue;
        }
        assert_eq!((code, &answer["reason"]), (500, &json!("InternalError")));
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("failed to write to data directory") && message.contains(path.to_str().unwrap()));
        let (code, list) = ask(server, Method::GET, collection(0), &Value::Null).await;
        assert_eq!(code, 200);
        let there = list["items"].as_array().unwrap().iter().filter(|item| content(item)["n"].is_string()).count();
        assert_eq!(there as u64, n, "what was refused is not shown");
        assert_eq!(ask(server, Method::GET, &format!("{}/o-{n}", collection(0)), &Value::Null).await.0, 404);
        return print("full");
    }
    panic!("it does not get full");
}

/// A limit on the file size simulates a full disk.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn full_disk_rejects_writes_and_retains_acknowledged_ones() {
    let folder = Folder::new("full");
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 1000; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::child", "--nocapture"]).env(DIRECTORY, &folder.0).env("FLYBALL_CRASH_FILL", "1");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let output: Vec<String> = listen(&mut child).into_iter().collect();
    assert!(child.wait().unwrap().success(), "{:?}", output.last());
    let acknowledged = output.iter().filter(|line| line.starts_with("kept")).count();
    assert_eq!(output.last().map(String::as_str), Some("full"));

    let server = open(&folder.0);
    let (_, list) = ask(&server, Method::GET, collection(0), &Value::Null).await;
    let there = list["items"].as_array().unwrap().iter().filter(|item| content(item)["n"].is_string()).count();
    assert_eq!((there, acknowledged > 10), (acknowledged, true));
    assert_eq!(ask(&server, Method::POST, collection(0), &object(0, "room-again", 1)).await.0, 201);
}

#[tokio::test]
async fn tokens_and_uids_outlive_the_process() {
    let folder = Folder::new("tokens");
    let account = "/api/v1/namespaces/default/serviceaccounts";
    let review = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (created, token) = {
        let server = open(&folder.0);
        let (code, created) = ask(&server, Method::POST, account, &json!({"metadata": {"name": "robot"}})).await;
        assert_eq!(code, 201, "{created}");
        let (_, token) = ask(&server, Method::POST, &format!("{account}/robot/token"), &json!({"spec": {}})).await;
        (created, token["status"]["token"].clone())
    };
    let server = open(&folder.0);
    assert_eq!(ask(&server, Method::GET, &format!("{account}/robot"), &Value::Null).await.1, created);
    let (_, answer) = ask(&server, Method::POST, review, &json!({"spec": {"token": token}})).await;
    assert_eq!(answer["status"]["user"]["uid"], created["metadata"]["uid"], "{answer}");
}

#[tokio::test]
async fn removed_or_narrowed_default_roles_are_restored() {
    let folder = Folder::new("roles");
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let (before, stays) = {
        let server = open(&folder.0);
        let (_, before) = ask(&server, Method::GET, &format!("{roles}/system:discovery"), &Value::Null).await;
        let mut narrowed = before.clone();
        narrowed["rules"] = json!([]);
        assert_eq!(ask(&server, Method::PUT, &format!("{roles}/system:discovery"), &narrowed).await.0, 200);
        let basic = format!("{roles}/system:basic-user");
        let (_, mut stays) = ask(&server, Method::GET, &basic, &Value::Null).await;
        stays["rules"] = json!([]);
        stays["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = "false".into();
        let (_, stays) = ask(&server, Method::PUT, &basic, &stays).await;
        assert_eq!(ask(&server, Method::DELETE, &format!("{roles}/view"), &Value::Null).await.0, 200);
        (before, stays)
    };
    let server = open(&folder.0);
    let (_, after) = ask(&server, Method::GET, &format!("{roles}/system:discovery"), &Value::Null).await;
    assert_eq!(after["rules"], before["rules"]);
    assert_eq!(ask(&server, Method::GET, &format!("{roles}/system:basic-user"), &Value::Null).await.1, stays);
    assert_eq!(ask(&server, Method::GET, &format!("{roles}/view"), &Value::Null).await.0, 200);
}
