//! The module `uri` of the built-in executor. These tests use real time, since they open connections.

use crate::project::{Project, api, change, condition, data, shops};
use flyball_ansible::{Executor, Watches, operator};
use flyball_cluster::testing::Test;
use serde_json::json;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const SHOP: &str = "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}, spec: {firstWord: hello}}";
const SERVICES: &str = "[api, other.elsewhere]";

/// Serves HTTP until the end of the test.
async fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = Vec::new();
                let is_complete = |request: &[u8]| {
                    let text = String::from_utf8_lossy(request).to_lowercase();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
                    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
                    body.len() >= length.map_or(0, |length| length.parse().unwrap())
                };
                while !is_complete(&request) {
                    stream.read_buf(&mut request).await.unwrap();
                }
                let request = String::from_utf8(request).unwrap();
                let (head, body) = request.split_once("\r\n\r\n").unwrap();
                let path = head.split(' ').nth(1).unwrap();
                let response = |status: &str, headers: &str, body: &str| {
                    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
                };
                let response = match path {
                    "/json" => {
                        let echo = json!({"head": head, "body": body}).to_string();
                        response("200 OK", "Content-Type: application/json; charset=utf-8\r\nX-Two: 2\r\n", &echo)
                    }
                    "/move" => response("302 Found", "Location: /json\r\n", ""),
                    "/away" => response("302 Found", "Location: http://other.elsewhere.svc/json\r\n", ""),
                    "/large" => response("200 OK", "", &"x".repeat((1 << 20) + 1)),
                    "/slow" => std::future::pending().await,
                    _ => response("404 Not Found", "", "no"),
                };
                let _ = stream.write_all(response.as_bytes()).await;
            });
        }
    });
    address
}

async fn test_of(name: &str, tasks: &str) -> Test {
    let watches =
        format!("- {{group: shop.example.com, version: v1, kind: Shop, role: a, allowServices: {SERVICES}}}\n");
    let written = Project::new(name, &[("watches.yaml", &watches), ("roles/a/tasks/main.yml", tasks)]);
    let (folder, address) = (written.folder().join("watches.yaml"), serve().await);
    let create = move || {
        let resolve = move |host: &str| host.ends_with(".svc").then_some(address);
        operator(&Watches::read(&folder).unwrap().resolve_services(resolve), Executor::BuiltIn).unwrap()
    };
    Test::of(create).start().await
}

#[tokio::test]
async fn responses_of_services_are_registered() {
    let tasks = "
- uri:
    url: 'http://{{ service | default(\"api\") }}.{{ ansible_operator_meta.namespace }}.svc:8000/json'
    method: POST
    body: {name: '{{ first_word }}'}
    body_format: json
    headers: {X-Token: secret}
    return_content: true
  register: posted
- ansible.builtin.uri: {url: 'http://api.test.svc/move', follow_redirects: safe}
  register: moved
- uri: {url: 'http://api.test.svc/away'}
  register: away
  ignore_errors: true
- uri: {url: 'http://api.test.svc/large'}
  register: large
  ignore_errors: true
- uri: {url: 'http://api.test.svc/slow', timeout: 1}
  register: slow
  ignore_errors: true
- uri: {url: 'http://other.elsewhere.svc/none', status_code: [200, 404]}
  register: missing
- k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: page}
      data:
        status: '{{ posted.status | string }}'
        body: '{{ posted.json.body }}'
        head: '{{ posted.json.head }}'
        content: '{{ (posted.content | from_json).body }}'
        header: '{{ posted.x_two }}'
        moved: '{{ moved.redirected | string }} {{ moved.url }} {{ moved.content is defined }}'
        away: '{{ away.status | string }} {{ away.msg }}'
        large: '{{ large.status | string }} {{ large.msg }}'
        slow: '{{ slow.msg }}'
        missing: '{{ missing.status | string }}'
";
    let test = test_of("uri", tasks).await;
    test.apply(SHOP).await;
    test.eventually("it is written", async || !data(&test, "page").await.is_null()).await;
    let page = data(&test, "page").await;
    let text = |name: &str| page[name].as_str().unwrap().to_owned();
    assert_eq!(text("status"), "200");
    assert_eq!((text("body"), text("content")), ("{\"name\":\"hello\"}".into(), "{\"name\":\"hello\"}".into()));
    let head = text("head").to_lowercase();
    for line in [
        "post /json http/1.1",
        "host: api.test.svc:8000",
        "content-type: application/json",
        "x-token: secret",
        "user-agent: ansible-httpget",
    ] {
        assert!(head.contains(line), "{line}: {head}");
    }
    assert_eq!(text("header"), "2");
    assert_eq!(text("moved"), "True http://api.test.svc/json False");
    assert_eq!(text("away"), "302 Status code was 302 and not [200]: HTTP Error 302: Found");
    assert!(text("large").starts_with("-1 Status code was -1") && text("large").contains("up to 1048576 bytes"));
    assert!(text("slow").contains("timed out after 1 s"), "{}", text("slow"));
    assert_eq!(text("missing"), "404");
}

#[tokio::test]
async fn users_choose_neither_other_hosts_nor_services() {
    let test = test_of("uri-hosts", "- uri: {url: '{{ url }}'}\n").await;
    test.apply(&SHOP.replace("firstWord: hello", "url: 'http://api.test.svc/json'")).await;
    let objects = api(&test, &shops());
    let failure = async || condition(&objects.get("corner").await.unwrap(), "Failure");
    test.eventually("it succeeds", async || failure().await["status"] == "False").await;
    for (url, problem) in [
        ("http://169.254.169.254/latest/meta-data", "is not a service"),
        ("http://localhost:8080/", "is not a service"),
        ("http://[::1]/", "is not a service"),
        ("http://api.test.svc.example.com/", "is not a service"),
        ("http://web.test.svc/", "add it to allowServices"),
        ("http://api.elsewhere.svc/", "add it to allowServices"),
        ("http://other.elsewhere.svc/", "must be literal in the task"),
        ("http://x@api.test.svc/", "no user"),
    ] {
        change(&objects, "corner", json!({"spec": {"url": url}})).await;
        let is_refused = async || failure().await["message"].as_str().is_some_and(|message| message.contains(problem));
        test.eventually(&format!("{url}: {problem}"), is_refused).await;
    }
}
