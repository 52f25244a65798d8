//! Custom resources of other projects: definitions and valid objects are accepted, invalid objects are rejected with
//! the invalid fields.

use bytes::Bytes;
use flyball_core::Clock;
use flyball_core::time::Timestamp;
use flyball_server::{Options, Server, User};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const REFUSED: &str = "corpus/refused";

fn documents(text: &str) -> Vec<Value> {
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// The results for a kind: the path of its objects, and true if any was accepted, and rejected.
struct KindResult {
    path: String,
    accepted: bool,
    refused: bool,
}

async fn send(server: &Server, method: &str, path: &str, object: &Value) -> (u16, Value) {
    let mut request = Request::new(Full::new(Bytes::from(object.to_string())));
    *request.method_mut() = method.parse().unwrap();
    *request.uri_mut() = path.parse().unwrap();
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    request.extensions_mut().insert(User::admin());
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap())
}

#[tokio::test(start_paused = true)]
async fn published_crds_are_accepted_and_their_objects_validated() {
    let clock = Clock::new(|| Timestamp::from_second(1_800_000_000).unwrap());
    let server = Server::new(Options::simulated(clock, 1));
    let mut wrong = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut kinds: BTreeMap<(String, String), KindResult> = BTreeMap::new();
    for file in files {
        for object in documents(&std::fs::read_to_string(&file).unwrap()) {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
            if kind == "CustomResourceDefinition" {
                let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
                let (code, response) = send(&server, "POST", path, &object).await;
                if code != 201 {
                    wrong.push(format!("{name}: {code} {}", response["message"]));
                }
                let namespace = if text("/spec/scope") == "Cluster" { "" } else { "namespaces/default/" };
                for version in object["spec"]["versions"].as_array().unwrap() {
                    let version = format!("{}/{}", text("/spec/group"), version["name"].as_str().unwrap());
                    let path = format!("/apis/{version}/{namespace}{}", text("/spec/names/plural"));
                    kinds.insert(
                        (version, text("/spec/names/kind")),
                        KindResult { path, accepted: false, refused: false },
                    );
                }
                continue;
            }
            let known = kinds.get_mut(&(api_version, kind.clone())).expect("definitions come before objects");
            let (code, response) = send(&server, "POST", &known.path, &object).await;
            let fields: Vec<&str> = response["details"]["causes"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|cause| cause["field"].as_str())
                .collect();
            match object["metadata"]["annotations"][REFUSED].as_str() {
                None => {
                    known.accepted = true;
                    if code != 201 {
                        wrong.push(format!("{kind} {name}: {code} {}", response["message"]));
                        continue;
                    }
                    if kind == "GatewayClass" {
                        assert_eq!(
                            response["status"]["conditions"][0]["reason"], "Waiting",
                            "the status has its default"
                        );
                    }
                    // A defaulted object is valid, and writing it again changes nothing.
                    let (code, again) = send(&server, "PUT", &format!("{}/{name}", known.path), &response).await;
                    if code != 200 || again != response {
                        wrong.push(format!("{kind} {name}: written again, {code} {again}"));
                    }
                }
                Some(expected) => {
                    known.refused = true;
                    let missing: Vec<&str> = expected.split(", ").filter(|field| !fields.contains(field)).collect();
                    if code != 422 || !missing.is_empty() {
                        wrong.push(format!(
                            "{kind} {name}: {code}, says nothing of {missing:?}: {}",
                            response["message"]
                        ));
                    }
                }
            }
        }
    }
    // Versions of one kind share a schema: objects of one version are sufficient.
    let mut results: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
    for ((_, kind), known) in &kinds {
        let (accepted, refused) = results.entry(kind).or_default();
        (*accepted, *refused) = (*accepted || known.accepted, *refused || known.refused);
    }
    let lacking = results.iter().filter(|(_, sorts)| **sorts != (true, true));
    wrong.extend(lacking.map(|(kind, _)| format!("{kind}: the corpus has not both a valid and an invalid one")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(kinds.len() > 40, "only {} kinds", kinds.len());
}
