use super::*;
use crate::network::NetworkFault;
use flyball_cluster::{Cluster, Options, simulated_clock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

/// A client without a library, since it has to see broken connections.
struct Caller {
    address: String,
    token: String,
}

impl Caller {
    async fn start() -> (Self, Network, Client, JoinSet<()>) {
        let cluster = Cluster::new(Options::simulated(simulated_clock(), 1));
        let (admin, network) = (cluster.admin(), Network::default());
        let proxy = Proxy::bind(admin.clone(), network.clone()).await.unwrap();
        let config = proxy.kubeconfig("default");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let address = text(&config["clusters"][0]["cluster"]["server"]).replace("http://", "");
        let token = text(&config["users"][0]["user"]["token"]);
        let mut tasks = JoinSet::new();
        tasks.spawn(proxy.serve());
        (Self { address, token }, network, admin, tasks)
    }

    /// Sends a request, and reads until the connection ends.
    async fn call(&self, token: &str, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        // A reset is the end of the connection as well.
        let _ = stream.read_to_end(&mut response).await;
        String::from_utf8_lossy(&response).into_owned()
    }

    async fn get(&self) -> String {
        self.call(&self.token, "GET", "/api/v1/namespaces/default", "").await
    }
}

#[tokio::test]
async fn requests_need_the_token() {
    let (caller, network, _, _tasks) = Caller::start().await;
    let denied = caller.call("guessed", "GET", "/api/v1/namespaces/default", "").await;
    assert!(denied.starts_with("HTTP/1.1 401"), "{denied}");
    let allowed = caller.get().await;
    assert!(allowed.starts_with("HTTP/1.1 200") && allowed.contains("\"kind\":\"Namespace\""), "{allowed}");
    assert_eq!(network.requests(), 1);
}

#[tokio::test]
async fn faults_concern_requests_and_end() {
    let (caller, network, admin, _tasks) = Caller::start().await;
    network.inject(NetworkFault::Errors { code: 429, every: 2 });
    assert!(caller.get().await.starts_with("HTTP/1.1 200"));
    let rejected = caller.get().await;
    assert!(rejected.starts_with("HTTP/1.1 429") && rejected.contains("\"reason\":\"TooManyRequests\""), "{rejected}");

    network.inject(NetworkFault::LostResponses { every: 1 });
    let map = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}"#;
    let path = "/api/v1/namespaces/default/configmaps";
    assert_eq!(caller.call(&caller.token, "POST", path, map).await, "", "the response is lost");
    let request = Request::get(format!("{path}/a")).body(Vec::new()).unwrap();
    let stored: Value = admin.request(request).await.unwrap();
    assert_eq!(stored["metadata"]["name"], "a", "the write is not lost");

    network.inject(NetworkFault::Latency(Duration::from_millis(200)));
    let began = Instant::now();
    assert!(caller.get().await.starts_with("HTTP/1.1 200") && began.elapsed() >= Duration::from_millis(200));

    network.inject(NetworkFault::Partition);
    let mut hanging = Box::pin(caller.get());
    assert!(timeout(Duration::from_millis(200), hanging.as_mut()).await.is_err(), "no response");
    network.clear();
    assert_eq!(hanging.await, "", "the connection breaks");
    assert!(caller.get().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn watches_are_cut_at_an_interval() {
    let (caller, network, _, _tasks) = Caller::start().await;
    let watch = "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=0";
    network.inject(NetworkFault::WatchCut(Duration::from_millis(100)));
    let broken = timeout(Duration::from_secs(10), caller.call(&caller.token, "GET", watch, "")).await.unwrap();
    assert!(broken.is_empty() || broken.starts_with("HTTP/1.1 200"), "{broken}");
}
