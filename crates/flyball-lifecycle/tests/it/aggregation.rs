//! PackageManifests through an API server: TLS, certificates of the API server, discovery.

use crate::recorded;
use flyball_lifecycle::packages::{FrontProxy, PackageServer, Reach, publish, serve};
use flyball_server::{Dialer, Options, Server, User};
use flyball_tls::{Authority, Identity, Purpose, Trust, Validity};
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tower::ServiceExt;

const PACKAGES: &str = "/apis/packages.operators.coreos.com/v1";

fn authority(name: &str) -> Authority {
    Authority::new(name, Validity::UNLIMITED).unwrap()
}

fn client(authority: &Authority, name: &str) -> Identity {
    authority.issue(name, Purpose::Client(None), Validity::UNLIMITED).unwrap()
}

/// Serves the recorded catalog behind an APIService, and returns an API server with this certificate.
async fn api_server(proxy: &Authority, identity: Identity) -> Server {
    let serving = authority("packages");
    let names = vec!["packages.olm.svc".to_owned()];
    let certificate = serving.issue("packages", Purpose::Server(&names), Validity::UNLIMITED).unwrap();
    let front_proxy = FrontProxy { authority: proxy.certificate().to_owned(), names: vec!["front-proxy".to_owned()] };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = front_proxy.tls(&certificate).unwrap();
    tokio::spawn(serve(recorded::server(), listener, tls, front_proxy, pending()));

    let dialer = Arc::new(Dialer::default().with_identity(identity));
    let server = Server::new(Options { aggregated: dialer, ..Options::system().unwrap() });
    create(&server, "/api/v1/namespaces", json!({"metadata": {"name": "olm"}})).await;
    let service =
        json!({"metadata": {"name": "packages"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    create(&server, "/api/v1/namespaces/olm/services", service).await;
    let bundle = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, serving.certificate());
    let api_service = json!({"metadata": {"name": "v1.packages.operators.coreos.com"}, "spec": {
        "group": "packages.operators.coreos.com", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 15,
        "caBundle": bundle, "service": {"namespace": "olm", "name": "packages", "port": port},
    }});
    create(&server, "/apis/apiregistration.k8s.io/v1/apiservices", api_service).await;
    server
}

async fn ask(server: &Server, method: Method, path: &str, body: Value) -> (u16, Value) {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
    let mut request = request.body(Full::new(bytes::Bytes::from(bytes))).unwrap();
    request.extensions_mut().insert(User::admin());
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into()))
}

async fn create(server: &Server, path: &str, body: Value) {
    let (code, answer) = ask(server, Method::POST, path, body).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test]
async fn packages_are_read_through_the_api_server() {
    let proxy = authority("front-proxy-ca");
    let identity = client(&proxy, "front-proxy");
    let server = api_server(&proxy, identity).await;
    let (code, list) =
        ask(&server, Method::GET, &format!("{PACKAGES}/namespaces/a/packagemanifests"), Value::Null).await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(8)), "{list}");
    let (code, memo) =
        ask(&server, Method::GET, &format!("{PACKAGES}/namespaces/a/packagemanifests/memo"), Value::Null).await;
    assert_eq!((code, &memo["status"]["defaultChannel"]), (200, &json!("stable")));
    let (code, resources) = ask(&server, Method::GET, PACKAGES, Value::Null).await;
    assert_eq!((code, &resources["resources"][0]["name"]), (200, &json!("packagemanifests")));
    let (code, root) = ask(&server, Method::GET, "/openapi/v3", Value::Null).await;
    let document = format!("/openapi/v3{PACKAGES}");
    let url = &root["paths"][PACKAGES.trim_start_matches('/')]["serverRelativeURL"];
    assert_eq!((code, url), (200, &json!(document)));
    let (code, described) = ask(&server, Method::GET, &document, Value::Null).await;
    let is_manifest = |(name, _): &(&String, &Value)| name.ends_with(".PackageManifest");
    let schemas = described["components"]["schemas"].as_object().unwrap();
    assert!(code == 200 && schemas.iter().any(|schema| is_manifest(&schema)), "{described}");
}

/// Serves packages as to an API server, and returns a function that begins watches.
async fn watcher(packages: &PackageServer) -> impl AsyncFn(&str, &str) -> http::Response<hyper::body::Incoming> {
    let (serving, proxy, name) = (authority("packages"), authority("front-proxy-ca"), "packages.olm.svc");
    let certificate = serving.issue("packages", Purpose::Server(&[name.to_owned()]), Validity::UNLIMITED).unwrap();
    let front_proxy = FrontProxy { authority: proxy.certificate().to_owned(), names: vec!["front-proxy".to_owned()] };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = front_proxy.tls(&certificate).unwrap();
    tokio::spawn(serve(packages.clone(), listener, tls, front_proxy, pending()));
    let trust = Trust::Bundle(serving.certificate().as_bytes());
    let tls = flyball_tls::identified_client_config(trust, &client(&proxy, "front-proxy")).unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
    async move |query: &str, accept: &str| {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let stream = connector.connect(name.try_into().unwrap(), stream).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let path = format!("{PACKAGES}/namespaces/a/packagemanifests?{query}");
        let request = Request::get(path).header("host", name).header("accept", accept);
        sender.send_request(request.body(Full::new(bytes::Bytes::new())).unwrap()).await.unwrap()
    }
}

/// Returns the next event of a watch: its type, the name of the package, and the version.
async fn versioned_event(watch: &mut http::Response<hyper::body::Incoming>) -> Option<(String, String, String)> {
    // A large event is split into several frames.
    let mut text = Vec::new();
    while text.last() != Some(&b'\n') {
        let frame = watch.body_mut().frame().await?.unwrap();
        text.extend_from_slice(frame.data_ref().unwrap());
    }
    let event: Value = serde_json::from_slice(&text).unwrap();
    let object = &event["object"];
    let name = object["metadata"]["name"].as_str().or(object["rows"][0]["cells"][0].as_str());
    let name = name.unwrap_or_else(|| panic!("{event}"));
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("{event}"));
    let row = &object["rows"][0]["object"]["metadata"];
    assert!(row.is_null() || row["resourceVersion"] == version, "{event}");
    Some((event["type"].as_str().unwrap().to_owned(), name.to_owned(), version.to_owned()))
}

/// Returns the next event of a watch: its type, and the name of the package.
async fn event(watch: &mut http::Response<hyper::body::Incoming>) -> Option<(String, String)> {
    versioned_event(watch).await.map(|(kind, name, _)| (kind, name))
}

#[tokio::test]
async fn packages_are_watched() {
    const JSON: &str = "application/json";
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let packages = recorded::server();
    let ask = watcher(&packages).await;
    let newest = async || {
        let list = ask("limit=500", JSON).await.into_body().collect().await.unwrap().to_bytes();
        let list: Value = serde_json::from_slice(&list).unwrap();
        list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    };
    let version = newest().await;
    let query = format!("watch=true&resourceVersion={version}&fieldSelector=metadata.name%3Dmemo");
    let (mut objects, mut rows) = (ask(&query, JSON).await, ask(&query, TABLE).await);
    packages.remove(&recorded::catalog_key());
    let deleted = Some(("DELETED".to_owned(), "memo".to_owned(), newest().await));
    assert_eq!((versioned_event(&mut objects).await, versioned_event(&mut rows).await), (deleted.clone(), deleted));
    recorded::insert(&packages);
    let added = Some(("ADDED".to_owned(), "memo".to_owned(), newest().await));
    let events = (versioned_event(&mut objects).await, versioned_event(&mut rows).await);
    assert_eq!(events, (added.clone(), added.clone()));

    let mut new = ask("watch=true&fieldSelector=metadata.name%3Dmemo&timeoutSeconds=1", JSON).await;
    assert_eq!(versioned_event(&mut new).await, added, "without a version, everything is new");
    assert_eq!(event(&mut new).await, None, "it ends after its time");
    assert_eq!(ask(&format!("watch=true&resourceVersion={version}"), JSON).await.status(), 410);
    assert_eq!(ask("watch=true&sendInitialEvents=true", JSON).await.status(), 422);
}

#[tokio::test]
async fn watches_continue_from_the_version_of_the_last_event() {
    const JSON: &str = "application/json";
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    for accept in [JSON, TABLE] {
        let packages = recorded::server();
        let ask = watcher(&packages).await;
        let mut watch = ask("watch=true", accept).await;
        let mut versions = Vec::new();
        for _ in 0..8 {
            versions.push(versioned_event(&mut watch).await.unwrap().2);
        }
        // A client without the last event lists again: it would miss the rest.
        assert_eq!(ask(&format!("watch=true&resourceVersion={}", versions[6]), accept).await.status(), 410);
        let mut next = ask(&format!("watch=true&resourceVersion={}", versions[7]), accept).await;
        packages.remove(&recorded::catalog_key());
        assert_eq!(event(&mut next).await.unwrap().0, "DELETED");
    }
}

#[tokio::test]
async fn other_certificates_are_rejected() {
    let proxy = authority("front-proxy-ca");
    for identity in [client(&proxy, "somebody"), client(&authority("front-proxy-ca"), "front-proxy")] {
        let server = api_server(&proxy, identity).await;
        let (code, answer) = ask(&server, Method::GET, &format!("{PACKAGES}/packagemanifests"), Value::Null).await;
        assert!(matches!(code, 401 | 503), "{code} {answer}");
    }
}

#[tokio::test]
async fn strangers_cannot_take_the_places_of_the_api_server() {
    let (serving, proxy, name) = (authority("packages"), authority("front-proxy-ca"), "packages.olm.svc");
    let certificate = serving.issue("packages", Purpose::Server(&[name.to_owned()]), Validity::UNLIMITED).unwrap();
    let front_proxy = FrontProxy { authority: proxy.certificate().to_owned(), names: Vec::new() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = front_proxy.tls(&certificate).unwrap();
    tokio::spawn(serve(recorded::server(), listener, tls, front_proxy, pending()));
    let trust = || Trust::Bundle(serving.certificate().as_bytes());
    let connect = async |tls| {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
        let stream = connector.connect(name.try_into().unwrap(), stream).await.ok()?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.ok()?;
        Some((sender, tokio::spawn(connection)))
    };
    let request = || {
        let request = Request::get(format!("{PACKAGES}/packagemanifests")).header("host", name);
        request.body(Full::new(bytes::Bytes::new())).unwrap()
    };
    let mut strangers = Vec::new();
    for _ in 0..300 {
        let tls = flyball_tls::client_config(trust()).unwrap();
        let (mut sender, connection) = connect(tls).await.expect("a new connection replaces an old one");
        assert_eq!(sender.send_request(request()).await.unwrap().status(), 401);
        strangers.push((sender, connection));
    }
    // More connections than a stranger may have.
    let mut trusted = Vec::new();
    for _ in 0..20 {
        let tls = flyball_tls::identified_client_config(trust(), &client(&proxy, "front-proxy")).unwrap();
        trusted.push(connect(tls).await.expect("a connection"));
    }
    for (sender, _) in &mut trusted {
        assert_eq!(sender.send_request(request()).await.unwrap().status(), 200);
    }
    for (_, connection) in strangers {
        let ended = tokio::time::timeout(Duration::from_secs(30), connection).await;
        assert!(ended.is_ok(), "a stranger keeps its connection");
    }
}

#[tokio::test]
async fn publication_creates_the_api_service() {
    let proxy = authority("front-proxy-ca");
    let dialer = Arc::new(Dialer::default().with_identity(client(&proxy, "front-proxy")));
    let server = Server::new(Options { aggregated: dialer, ..Options::system().unwrap() });
    create(&server, "/api/v1/namespaces", json!({"metadata": {"name": "olm"}})).await;
    let admin = |mut request: Request<kube::client::Body>| {
        request.extensions_mut().insert(User::admin());
        request
    };
    let kube = kube::Client::new(server.clone().map_request(admin), "olm");
    let error = publish(&recorded::server(), &kube, "olm", &Reach::Local, pending()).await.unwrap_err().to_string();
    assert_eq!(error, "cannot read ConfigMap kube-system/extension-apiserver-authentication");
    let data = json!({
        "requestheader-client-ca-file": proxy.certificate(), "requestheader-allowed-names": "[\"front-proxy\"]",
    });
    let map = json!({"metadata": {"name": "extension-apiserver-authentication"}, "data": data});
    create(&server, "/api/v1/namespaces/kube-system/configmaps", map).await;
    let packages = recorded::server();
    tokio::spawn(async move { publish(&packages, &kube, "olm", &Reach::Local, pending()).await });
    let path = format!("{PACKAGES}/namespaces/a/packagemanifests/memo");
    let mut answer = (0, Value::Null);
    for _ in 0..500 {
        answer = ask(&server, Method::GET, &path, Value::Null).await;
        if answer.0 == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((answer.0, &answer.1["status"]["defaultChannel"]), (200, &json!("stable")), "{answer:?}");
}

#[tokio::test]
async fn manager_in_a_pod_is_reached_through_a_service() {
    let proxy = authority("front-proxy-ca");
    let server = Server::new(Options::system().unwrap());
    create(&server, "/api/v1/namespaces", json!({"metadata": {"name": "olm"}})).await;
    let data = json!({"requestheader-client-ca-file": proxy.certificate()});
    let map = json!({"metadata": {"name": "extension-apiserver-authentication"}, "data": data});
    create(&server, "/api/v1/namespaces/kube-system/configmaps", map).await;
    let admin = |mut request: Request<kube::client::Body>| {
        request.extensions_mut().insert(User::admin());
        request
    };
    let kube = kube::Client::new(server.clone().map_request(admin), "olm");
    let port = TcpListener::bind("[::]:0").await.unwrap().local_addr().unwrap().port();
    let selector = [("app.kubernetes.io/name".to_owned(), "flyball-olm".to_owned())].into();
    let (packages, reach) = (recorded::server(), Reach::Pod { selector, port });
    tokio::spawn(async move { publish(&packages, &kube, "olm", &reach, pending()).await });
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1.packages.operators.coreos.com";
    let mut answer = (0, Value::Null);
    for _ in 0..500 {
        answer = ask(&server, Method::GET, path, Value::Null).await;
        if answer.0 == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let service = json!({"namespace": "olm", "name": "packageserver-service", "port": 443});
    assert_eq!((answer.0, &answer.1["spec"]["service"]), (200, &service), "{answer:?}");
    let path = "/api/v1/namespaces/olm/services/packageserver-service";
    let (_, service) = ask(&server, Method::GET, path, Value::Null).await;
    assert_eq!(service["spec"]["selector"], json!({"app.kubernetes.io/name": "flyball-olm"}));
    assert_eq!(
        (&service["spec"]["ports"][0]["port"], &service["spec"]["ports"][0]["targetPort"]),
        (&json!(443), &json!(port))
    );

    // The API server of the cluster finds the pod by the name of its certificate.
    let bundle = answer.1["spec"]["caBundle"].as_str().unwrap();
    let bundle = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, bundle).unwrap();
    let name = "packageserver-service.olm.svc";
    let ask_pod = async |identity: Identity| {
        let tls = flyball_tls::identified_client_config(Trust::Bundle(&bundle), &identity).unwrap();
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(tls));
        let stream = connector.connect(name.try_into().unwrap(), stream).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let path = format!("{PACKAGES}/namespaces/a/packagemanifests/memo");
        let request = Request::get(path).header("host", name).body(Full::new(bytes::Bytes::new())).unwrap();
        sender.send_request(request).await.map(|response| response.status().as_u16())
    };
    assert_eq!(ask_pod(client(&proxy, "front-proxy")).await.unwrap(), 200);
    let stranger = ask_pod(client(&authority("front-proxy-ca"), "front-proxy")).await;
    assert!(stranger.is_err() || stranger.is_ok_and(|code| code == 401));
}

#[test]
fn certificates_of_the_api_server_are_in_a_config_map() {
    let value = |key: &str| match key {
        "requestheader-client-ca-file" => Some("PEM"),
        "requestheader-allowed-names" => Some("[\"front-proxy-client\"]"),
        _ => None,
    };
    let read = FrontProxy::read(value).unwrap();
    assert_eq!((read.authority.as_str(), &read.names[..]), ("PEM", &["front-proxy-client".to_owned()][..]));
    let error = FrontProxy::read(|_| None).unwrap_err().to_string();
    assert!(error.contains("requestheader-client-ca-file is missing"), "{error}");
    assert!(FrontProxy::read(|key| (key == "requestheader-allowed-names").then_some("x").or(Some("y"))).is_err());
}
