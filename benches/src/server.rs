//! Benchmarks of the server: startup, idle memory, and throughput over TLS.

use crate::{Result, connect};
use kube::Client;
use serde_json::{Value, json};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Number of process starts for the median.
const STARTS: usize = 21;
/// Concurrent clients, each with its own connection.
const CLIENTS: usize = 16;
/// Number of requests of each kind.
const REQUESTS: usize = 8_000;
/// The namespace of the benchmark, which is created and deleted.
const NAMESPACE: &str = "flyball-bench";

pub(crate) async fn measure(flyball: &str, peer: Option<&str>) -> Result<()> {
    let path = std::env::temp_dir().join(format!("flyball-bench-{}", std::process::id()));
    let path = path.to_str().ok_or("the path of the kubeconfig is no UTF-8")?;
    let mut ready = Vec::new();
    for _ in 0..STARTS {
        let (mut child, took) = start(flyball, path).await?;
        ready.push(took);
        stop(&mut child)?;
    }
    ready.sort();
    println!("process start to /readyz over TLS: {:.1} ms (median of {STARTS})", ready[STARTS / 2].as_secs_f64() * 1e3);

    let (mut child, _) = start(flyball, path).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    println!("idle memory, controllers included: {:.1} MiB", resident(child.id())?);
    let ours = throughput(path).await?;
    println!("memory after {} writes: {:.1} MiB", 4 * REQUESTS, resident(child.id())?);
    let theirs = match peer {
        Some(peer) => Some(throughput(peer).await?),
        None => None,
    };
    println!("requests a second, {CLIENTS} connections:");
    for (i, (what, ours)) in ours.iter().enumerate() {
        match &theirs {
            Some(theirs) => {
                println!("  {what:24} {ours:>8.0}   peer {:>8.0}   × {:.1}", theirs[i].1, ours / theirs[i].1)
            }
            None => println!("  {what:24} {ours:>8.0}"),
        }
    }
    stop(&mut child)?;
    let _ = std::fs::remove_file(path);
    Ok(())
}

async fn start(flyball: &str, path: &str) -> Result<(Child, Duration)> {
    let _ = std::fs::remove_file(path);
    let name = format!("bench-{}", std::process::id());
    let began = Instant::now();
    let mut command = Command::new(flyball);
    command.args(["cluster", "up", "--foreground", "--quiet", "--name", &name, "--kubeconfig", path]);
    let child = command.spawn()?;
    while began.elapsed() < Duration::from_secs(10) {
        if std::fs::metadata(path).is_ok_and(|file| file.len() > 0) {
            let client = connect(path).await?;
            client.request_text(http::Request::get("/readyz").body(Vec::new())?).await?;
            return Ok((child, began.elapsed()));
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    Err("it does not get ready".into())
}

fn stop(child: &mut Child) -> Result<()> {
    Command::new("kill").arg(child.id().to_string()).status()?;
    child.wait()?;
    Ok(())
}

fn resident(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().next().ok_or("no number")?.parse::<f64>()? / 1024.0)
}

/// Sends a number of requests from concurrent clients; returns the requests per second.
async fn throughput(kubeconfig: &str) -> Result<Vec<(&'static str, f64)>> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(connect(kubeconfig).await?);
    }
    let namespaces = "/api/v1/namespaces";
    send(&clients[0], "POST", namespaces, &json!({"metadata": {"name": NAMESPACE}})).await?;
    let definition = json!({
        "metadata": {"name": "gadgets.bench.flyball.dev"},
        "spec": {"group": "bench.flyball.dev", "scope": "Namespaced",
                 "names": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                     "type": "object", "properties": {"spec": {"type": "object", "properties": {
                         "size": {"type": "integer", "minimum": 0}, "payload": {"type": "string"}}}}}}}]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&clients[0], "POST", definitions, &definition).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;

    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let gadgets = format!("/apis/bench.flyball.dev/v1/namespaces/{NAMESPACE}/gadgets");
    let payload = "x".repeat(1024);
    let map = |i: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c-{i}")}, "data": {"a": payload}});
    let gadget = |i: usize| {
        json!({"apiVersion": "bench.flyball.dev/v1", "kind": "Gadget", "metadata": {"name": format!("g-{i}")},
               "spec": {"size": i, "payload": payload}})
    };
    let one = |i: usize| format!("{maps}/c-{i}");
    let mut rates = Vec::new();
    rates.push(("create ConfigMap", rate(&clients, |i| ("POST", maps.clone(), map(i))).await?));
    rates.push(("create custom resource", rate(&clients, |i| ("POST", gadgets.clone(), gadget(i))).await?));
    rates.push(("get ConfigMap", rate(&clients, |i| ("GET", one(i), Value::Null)).await?));
    rates.push(("merge patch ConfigMap", rate(&clients, |i| ("PATCH", one(i), json!({"data": {"b": "c"}}))).await?));
    rates.push((
        "apply custom resource",
        rate(&clients, |i| ("APPLY", format!("{gadgets}/g-{i}?fieldManager=bench&force=true"), gadget(i + 1))).await?,
    ));
    rates.push(("delete ConfigMap", rate(&clients, |i| ("DELETE", one(i), Value::Null)).await?));
    send(&clients[0], "DELETE", &format!("{definitions}/gadgets.bench.flyball.dev"), &Value::Null).await?;
    send(&clients[0], "DELETE", &format!("{namespaces}/{NAMESPACE}"), &Value::Null).await?;
    Ok(rates)
}

async fn rate(clients: &[Client], request: impl Fn(usize) -> (&'static str, String, Value)) -> Result<f64> {
    let mut running = Vec::new();
    let began = Instant::now();
    for (at, client) in clients.iter().enumerate() {
        let requests: Vec<_> = (at..REQUESTS)
            .step_by(clients.len())
            .map(|i| {
                let (verb, path, body) = request(i);
                // Applies identify the object by name.
                let body = if verb == "APPLY" { with_name(body, &path) } else { body };
                (verb, path, body)
            })
            .collect();
        let client = client.clone();
        running.push(tokio::spawn(async move {
            for (verb, path, body) in requests {
                send(&client, verb, &path, &body).await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        }));
    }
    for task in running {
        task.await??;
    }
    Ok(REQUESTS as f64 / began.elapsed().as_secs_f64())
}

fn with_name(mut body: Value, path: &str) -> Value {
    let name = path.rsplit('/').next().and_then(|last| last.split('?').next()).unwrap_or_default();
    body["metadata"]["name"] = name.into();
    body
}

async fn send(client: &Client, verb: &str, path: &str, body: &Value) -> Result<()> {
    let (method, media) = match verb {
        "PATCH" => ("PATCH", "application/merge-patch+json"),
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        other => (other, "application/json"),
    };
    let request = http::Request::builder().method(method).uri(path).header("content-type", media);
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
    client.request_text(request.body(body)?).await?;
    Ok(())
}
