//! The registry API: messages on the wire, and the client against the server.

use crate::recorded::recorded_blobs;
use flyball_lifecycle::content::{BundleBlob, Content};
use flyball_lifecycle::grpc::messages::{self, *};
use flyball_lifecycle::grpc::{Connection, ConnectionError, Service, serve};
use flyball_lifecycle::source::{CatalogClient, Location, SourceError, Sources};
use flyball_lifecycle::{CatalogKey, Property};
use prost::Message;
use serde_json::json;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Splits a message into its fields: number and text. Texts in nested messages are joined.
fn fields(mut bytes: &[u8]) -> Vec<(u64, String)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        assert_eq!(key & 7, 2, "all fields are strings or messages");
        let length = varint(&mut bytes) as usize;
        let (value, rest) = bytes.split_at(length);
        bytes = rest;
        found.push((key >> 3, String::from_utf8_lossy(value).into_owned()));
    }
    found
}

fn check(message: &impl Message, expected: &[&str]) {
    let found = fields(&message.encode_to_vec());
    let names: Vec<&str> =
        found.iter().map(|(_, text)| text.trim_start_matches(|c: char| !c.is_alphabetic())).collect();
    assert_eq!(names, expected);
    let numbers: Vec<u64> = found.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=expected.len() as u64).collect::<Vec<_>>(), "{expected:?}");
}

/// The fields of the public `registry.proto`, in the order of their numbers.
#[test]
fn fields_have_the_numbers_of_the_public_protocol() {
    let text = |name: &str| name.to_owned();
    let deprecation = || Some(Deprecation { message: text("deprecation") });
    check(&Deprecation { message: text("message") }, &["message"]);
    check(
        &Channel { name: text("name"), csv_name: text("csvName"), deprecation: deprecation() },
        &["name", "csvName", "deprecation"],
    );
    check(&PackageName { name: text("name") }, &["name"]);
    let channel = Channel { name: text("channels"), ..Channel::default() };
    let package = Package {
        name: text("name"),
        channels: vec![channel],
        default_channel_name: text("defaultChannelName"),
        deprecation: deprecation(),
    };
    check(&package, &["name", "channels", "defaultChannelName", "deprecation"]);
    let api =
        GroupVersionKind { group: text("group"), version: text("version"), kind: text("kind"), plural: text("plural") };
    check(&api, &["group", "version", "kind", "plural"]);
    check(&Dependency { r#type: text("type"), value: text("value") }, &["type", "value"]);
    let property =
        |name: &str| flyball_lifecycle::grpc::messages::Property { r#type: text(name), value: String::new() };
    check(&property("type"), &["type"]);
    let api = |name: &str| GroupVersionKind { group: text(name), ..GroupVersionKind::default() };
    let bundle = Bundle {
        csv_name: text("csvName"),
        package_name: text("packageName"),
        channel_name: text("channelName"),
        csv_json: text("csvJson"),
        object: vec![text("object")],
        bundle_path: text("bundlePath"),
        provided_apis: vec![api("providedApis")],
        required_apis: vec![api("requiredApis")],
        version: text("version"),
        skip_range: text("skipRange"),
        dependencies: vec![Dependency { r#type: text("dependencies"), value: String::new() }],
        properties: vec![property("properties")],
        replaces: text("replaces"),
        skips: vec![text("skips")],
        deprecation: deprecation(),
    };
    let names = [
        "csvName",
        "packageName",
        "channelName",
        "csvJson",
        "object",
        "bundlePath",
        "providedApis",
        "requiredApis",
        "version",
        "skipRange",
        "dependencies",
        "properties",
        "replaces",
        "skips",
        "deprecation",
    ];
    check(&bundle, &names);
    let entry = ChannelEntry {
        package_name: text("packageName"),
        channel_name: text("channelName"),
        bundle_name: text("bundleName"),
        replaces: text("replaces"),
    };
    check(&entry, &["packageName", "channelName", "bundleName", "replaces"]);
    check(&GetPackageRequest { name: text("name") }, &["name"]);
    let request =
        GetBundleRequest { pkg_name: text("pkgName"), channel_name: text("channelName"), csv_name: text("csvName") };
    check(&request, &["pkgName", "channelName", "csvName"]);
    let request = GetBundleInChannelRequest { pkg_name: text("pkgName"), channel_name: text("channelName") };
    check(&request, &["pkgName", "channelName"]);
    check(&GetAllReplacementsRequest { csv_name: text("csvName") }, &["csvName"]);
    let request = GetReplacementRequest {
        csv_name: text("csvName"),
        pkg_name: text("pkgName"),
        channel_name: text("channelName"),
    };
    check(&request, &["csvName", "pkgName", "channelName"]);
}

/// Serves a catalog on a free port, and returns its address.
async fn served(content: Content) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(serve(Service::new(Arc::new(content)), listener, pending()));
    address
}

/// The recorded catalog, with one more package whose bundle is an image.
fn catalog() -> Content {
    let mut blobs = recorded_blobs();
    let property = |kind: &str, value: serde_json::Value| Property::new(kind, &value);
    blobs.add(
        "more.yaml",
        b"schema: olm.package\nname: more\ndefaultChannel: stable\n---\nschema: olm.channel\npackage: more\nname: stable\n\
          entries: [{name: more.v1, skips: [more.v0], skipRange: <1.0.0}]\n",
    )
    .unwrap();
    blobs.bundles.push(BundleBlob {
        name: "more.v1".into(),
        package: "more".into(),
        image: "quay.io/team/more:v1".into(),
        properties: vec![
            property("olm.package", json!({"packageName": "more", "version": "1.0.0"})),
            property("olm.gvk", json!({"group": "demo.flyball.dev", "version": "v1", "kind": "Extra"})),
        ],
        csv_metadata: vec![json!({"displayName": "More", "description": "Text"}).to_string().into()],
        ..BundleBlob::default()
    });
    let content = Content::new(blobs);
    assert!(content.problems().is_empty(), "{:?}", content.problems());
    content
}

#[tokio::test]
async fn client_loads_what_the_server_offers() {
    let content = catalog();
    let location = location(&served(content.clone()).await, "1");
    let loaded = Sources::default().load(&location, None).await.unwrap().unwrap().content;
    let key = || CatalogKey { namespace: "ns".into(), name: "c".into() };
    let entries = |content: &Content| {
        let entries = content.to_catalog(key(), 0).entries;
        let mut entries: Vec<String> = entries
            .iter()
            .map(|entry| {
                let properties: Vec<_> = entry.bundle.properties().iter().map(|property| json!(property)).collect();
                format!(
                    "{}/{}/{} {} {:?} {:?} {:?} {:?} {properties:?}",
                    entry.package,
                    entry.channel,
                    entry.name(),
                    entry.is_default_channel,
                    entry.replaces,
                    entry.skips,
                    entry.skip_range.is_some(),
                    entry.bundle.version(),
                )
            })
            .collect();
        entries.sort();
        entries
    };
    assert_eq!(entries(&loaded), entries(&content));
    for package in content.packages() {
        let found = loaded.package(&package.name).unwrap();
        assert_eq!(found.deprecation, package.deprecation);
        for (name, bundle) in &package.bundles {
            assert_eq!(found.bundles[name].objects(), bundle.objects(), "{name}");
            assert_eq!(found.bundles[name].image, bundle.image);
            assert_eq!(found.bundles[name].deprecation, bundle.deprecation);
        }
    }
    let more = loaded.package("more").unwrap();
    assert_eq!(more.description, "Text");
    assert_eq!(more.csv(&more.bundles["more.v1"]).unwrap()["spec"]["displayName"], "More");
    let manifests = Sources::default().manifests(&loaded.package("memo").unwrap().bundles["memo.v2.0.0"], &[]).await;
    assert_eq!(manifests.unwrap().definitions().count(), 1);
    let error = Sources::default().manifests(&more.bundles["more.v1"], &[]).await.unwrap_err();
    assert!(matches!(error, SourceError::NoRegistry(_)), "{error}");
}

#[tokio::test]
async fn methods_answer_as_operator_registry_does() {
    let mut connection = Connection::open(&served(catalog()).await).await.unwrap();
    assert!(connection.is_healthy().await.unwrap());
    let packages = connection.list_packages().await.unwrap();
    assert_eq!(packages, ["broken", "clash", "front", "gate", "hooked", "memo", "more", "pool", "worn"]);
    let memo = connection.get_package("memo").await.unwrap();
    let channels: Vec<_> = memo.channels.iter().map(|channel| (&*channel.name, &*channel.csv_name)).collect();
    let expected = [
        ("candidate", "memo.v2.1.0"),
        ("dropping", "memo.v3.0.0"),
        ("stable", "memo.v2.0.0"),
        ("strict", "memo.v1.9.0"),
    ];
    assert_eq!(channels, expected);
    let bundle = connection.get_bundle("memo", "stable", "memo.v1.1.0").await.unwrap();
    assert_eq!((&*bundle.version, &*bundle.replaces), ("1.1.0", ""), "only lists contain the edges of the graph");
    assert!(bundle.csv_json.contains("\"memo.v1.1.0\"") && bundle.object.len() == 2);
    assert_eq!(connection.get_bundle_for_channel("memo", "stable").await.unwrap().csv_name, "memo.v2.0.0");
    let all = connection.list_bundles().await.unwrap();
    let listed = |name: &str| all.iter().find(|bundle| bundle.csv_name == name).unwrap();
    assert_eq!(listed("memo.v2.0.0").replaces, "memo.v1.1.0");
    assert!(!listed("memo.v2.0.0").csv_json.is_empty() && listed("more.v1").csv_json.is_empty());
    assert_eq!(listed("front.v1.0.0").dependencies.len(), 2);

    let request = GetReplacementRequest {
        csv_name: "memo.v1.1.0".into(),
        pkg_name: "memo".into(),
        channel_name: "stable".into(),
    };
    let bundle: Bundle = connection.unary("GetBundleThatReplaces", &request).await.unwrap();
    assert_eq!(bundle.csv_name, "memo.v2.0.0");
    let request = GetAllReplacementsRequest { csv_name: "more.v0".into() };
    let entries: Vec<ChannelEntry> = connection.stream("GetChannelEntriesThatReplace", &request).await.unwrap();
    assert_eq!(entries.iter().map(|entry| &*entry.bundle_name).collect::<Vec<_>>(), ["more.v1"]);
    let api = GroupVersionKind {
        group: "demo.flyball.dev".into(),
        version: "v1".into(),
        kind: "Extra".into(),
        plural: String::new(),
    };
    let entries: Vec<ChannelEntry> = connection.stream("GetChannelEntriesThatProvide", &api).await.unwrap();
    assert_eq!(entries.iter().map(|entry| &*entry.replaces).collect::<Vec<_>>(), ["", "more.v0"]);
    let entries: Vec<ChannelEntry> = connection.stream("GetLatestChannelEntriesThatProvide", &api).await.unwrap();
    assert_eq!(entries.iter().map(|entry| &*entry.replaces).collect::<Vec<_>>(), [""], "more.v0 is in no channel");
    let bundle: Bundle = connection.unary("GetDefaultBundleThatProvides", &api).await.unwrap();
    assert_eq!((&*bundle.csv_name, &*bundle.bundle_path), ("more.v1", "quay.io/team/more:v1"));
}

#[tokio::test]
async fn failures_name_the_method_and_the_address() {
    let address = served(catalog()).await;
    let mut connection = Connection::open(&address).await.unwrap();
    for (result, expected) in [
        (connection.get_package("x").await.map(|_| ()), "GetPackage of the catalog at {}: package \"x\" not found"),
        (
            connection.get_bundle("memo", "x", "y").await.map(|_| ()),
            "GetBundle of the catalog at {}: package \"memo\", channel \"x\" not found",
        ),
        (
            connection.unary::<Bundle>("Other", &ListBundlesRequest {}).await.map(|_| ()),
            "Other of the catalog at {}: unknown method Other",
        ),
    ] {
        let error = result.unwrap_err().to_string();
        let expected = expected.replace("{}:", &format!("{address} failed:"));
        assert!(error.starts_with(&expected), "{error}");
    }
    let error = Connection::open("127.0.0.1:1").await.unwrap_err();
    assert!(matches!(error, ConnectionError::Connect { .. }), "{error}");
    for invalid in ["", "catalog", "a b:1"] {
        assert!(matches!(Connection::open(invalid).await, Err(ConnectionError::Address { .. })), "{invalid}");
    }
}

/// Returns the location of a registry for the CatalogSource with a UID.
fn location(address: &str, uid: &str) -> Location {
    Location::Grpc { address: address.to_owned(), source: uid.to_owned() }
}

#[tokio::test]
async fn restarted_server_is_noticed_by_the_next_check() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let first = tokio::spawn(serve(Service::new(Arc::new(catalog())), listener, async { drop(stopped.await) }));
    let (sources, location) = (Sources::default(), location(&address, "1"));
    let other = self::location(&address, "2");
    sources.check(&location).await.unwrap_err();
    let loaded = sources.load(&location, None).await.unwrap().unwrap();
    sources.check(&other).await.unwrap_err();
    sources.load(&other, None).await.unwrap();
    for _ in 0..3 {
        sources.check(&location).await.unwrap();
        sources.check(&other).await.unwrap();
    }
    assert!(sources.is_unchanged(&location, &loaded.revision).await.unwrap());
    sources.check(&location).await.unwrap();
    stop.send(()).unwrap();
    first.await.unwrap();
    sources.is_unchanged(&location, &loaded.revision).await.unwrap_err();
    let listener = TcpListener::bind(&address).await.unwrap();
    tokio::spawn(serve(Service::new(Arc::new(Content::new(recorded_blobs()))), listener, pending()));
    sources.check(&location).await.unwrap_err();
    assert!(!sources.is_unchanged(&location, &loaded.revision).await.unwrap());
    sources.check(&location).await.unwrap();
    let again = sources.load(&location, Some(&loaded.revision)).await.unwrap().unwrap();
    assert_ne!(again.revision, loaded.revision, "it has another content");
    sources.check(&location).await.unwrap();
    sources.check(&other).await.unwrap_err();
}

#[tokio::test]
async fn servers_of_another_protocol_are_errors() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        }
    });
    let error = Sources::default().load(&location(&address, "1"), None).await.unwrap_err().to_string();
    assert!(error.contains(&address), "{error}");
}

#[tokio::test(start_paused = true)]
async fn connections_without_a_call_are_closed() {
    let mut silent = TcpStream::connect(served(catalog()).await).await.unwrap();
    let closed = timeout(Duration::from_secs(40), silent.read_to_end(&mut Vec::new())).await;
    assert!(closed.is_ok(), "a silent connection holds a slot");
}

/// Calls a method on a connection with windows of this size; returns the response, and the end of the connection.
async fn call_with_window(
    address: &str,
    method: &str,
    window: u32,
) -> (http::Response<hyper::body::Incoming>, impl Future<Output = ()>) {
    use http_body_util::Full;
    use hyper::body::Bytes;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let mut client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = client.initial_stream_window_size(window).handshake(stream).await.unwrap();
    let ended = tokio::spawn(async move { drop(connection.await) });
    let request = http::Request::post(format!("http://{address}/{method}"))
        .header(http::header::CONTENT_TYPE, "application/grpc")
        .body(Full::new(Bytes::from_static(&[0; 5])))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    // The connection ends with its sender.
    let ended = async move {
        ended.await.unwrap();
        drop(sender);
    };
    (response, ended)
}

/// Returns true if something ends within 40 seconds: after the server's write timeout, before that of its pings.
async fn ends_soon(ended: impl Future<Output = ()>) -> bool {
    tokio::time::pause();
    let has_ended = timeout(Duration::from_secs(40), ended).await.is_ok();
    tokio::time::resume();
    has_ended
}

#[tokio::test]
async fn connections_whose_clients_take_no_messages_are_closed() {
    let address = served(catalog()).await;
    const LIST: &str = "api.Registry/ListBundles";
    for (method, window) in [(LIST, 0), (LIST, 100), ("grpc.health.v1.Health/Check", 0)] {
        let (response, ended) = call_with_window(&address, method, window).await;
        assert!(response.status() == 200 && !response.headers().contains_key("grpc-status"), "{response:?}");
        assert!(ends_soon(ended).await, "{method} holds a slot with window {window}");
        drop(response);
    }
}

#[tokio::test]
async fn connections_stay_after_their_messages_are_taken() {
    let address = served(catalog()).await;
    let (response, ended) = call_with_window(&address, "api.Registry/ListBundles", 65_535).await;
    let messages = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    assert_eq!(messages.trailers().unwrap()["grpc-status"], "0");
    assert!(!ends_soon(ended).await);
}

/// Serves messages, encoded as they are, for each method; returns the address.
async fn served_by(respond: impl Fn(&str) -> Vec<Vec<u8>> + Clone + Send + 'static) -> String {
    use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
    use hyper::body::{Bytes, Frame, Incoming};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let respond = respond.clone();
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let framed = |message: Vec<u8>| {
                    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
                    Frame::data(Bytes::from([&[0], &length[..], &message].concat()))
                };
                let method = request.uri().path().rsplit('/').next().unwrap();
                let mut frames: Vec<_> = respond(method).into_iter().map(framed).collect();
                let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
                frames.push(Frame::trailers(HeaderMap::from_iter([status])));
                let frames = futures_util::stream::iter(frames.into_iter().map(Ok::<_, Infallible>));
                let body = http_body_util::StreamBody::new(frames);
                async { Ok::<_, Infallible>(Response::new(body)) }
            });
            let connection = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
            tokio::spawn(connection.serve_connection(hyper_util::rt::TokioIo::new(stream), service));
        }
    });
    address
}

#[tokio::test]
async fn responses_of_a_registry_are_bounded_by_their_memory() {
    let name = PackageName { name: "a".into() }.encode_to_vec();
    let channel = Channel { name: "s".into(), csv_name: "a.v1".into(), deprecation: None };
    let package =
        Package { name: "a".into(), channels: vec![channel], default_channel_name: "s".into(), deprecation: None };
    let package = package.encode_to_vec();
    let bundle = Bundle { csv_name: "a.v1".into(), package_name: "a".into(), ..Bundle::default() };
    let long = Bundle { csv_json: format!("\"{}\"", "x".repeat(4 << 20)), ..bundle.clone() }.encode_to_vec();
    let nested = messages::Property { r#type: "t".into(), value: format!("[{}0]", "{\"\":0},".repeat(1_000_000)) };
    let nested = Bundle { properties: vec![nested], ..bundle.clone() }.encode_to_vec();
    // Empty APIs, of two bytes each.
    let dense = [0x3a, 0].repeat(6 << 20);
    let small = bundle.encode_to_vec();
    for (bundles, expected) in [
        (vec![small.clone(); 3], false),
        // Each of them would get a copy of the CSV.
        (vec![small; 200], true),
        (vec![nested], true),
        (vec![dense], true),
    ] {
        let (name, package, long) = (name.clone(), package.clone(), long.clone());
        let respond = move |method: &str| match method {
            "ListPackages" => vec![name.clone()],
            "GetPackage" => vec![package.clone()],
            "ListBundles" => bundles.clone(),
            _ => vec![long.clone()],
        };
        let loaded = Sources::default().load(&location(&served_by(respond).await, "1"), None).await;
        let is_too_large =
            |error: &SourceError| matches!(error, SourceError::Registry(ConnectionError::TooLarge { .. }));
        assert_eq!(loaded.as_ref().is_err_and(is_too_large), expected, "{:?}", loaded.err());
    }
}
