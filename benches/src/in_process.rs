//! Benchmarks of the cluster as a library: startup, forks, and throughput without a socket.

use crate::Result;
use flyball_cluster::{Cluster, Controllers, Options};
use kube::Client;
use serde_json::json;
use std::time::{Duration, Instant};

const RUNS: usize = 51;
const WRITES: usize = 20_000;

pub(crate) async fn measure() -> Result<()> {
    let mut ready = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        let cluster = Cluster::new(Options::system()?);
        let running = tokio::spawn({
            let cluster = cluster.clone();
            async move { cluster.run(&Controllers::all()).await }
        });
        get(&cluster.admin(), "/readyz").await?;
        get(&cluster.admin(), "/api/v1/namespaces/default").await?;
        ready.push(began.elapsed());
        running.abort();
    }
    println!("new cluster to its first answer: {:.2} ms (median of {RUNS})", millis(median(&mut ready)));

    let cluster = Cluster::new(Options::system()?);
    let client = cluster.admin();
    for (count, before) in [(1_000, 0), (10_000, 1_000)] {
        for i in before..count {
            create(&client, i).await?;
        }
        let mut forks = Vec::new();
        for _ in 0..RUNS {
            let began = Instant::now();
            let fork = cluster.fork(Options::system()?);
            forks.push(began.elapsed());
            drop(fork);
        }
        println!("fork of {count} objects: {:.3} ms (median of {RUNS})", millis(median(&mut forks)));
    }
    let began = Instant::now();
    for i in 0..WRITES {
        create(&client, 10_000 + i).await?;
    }
    println!("creates, one after the other: {:.0} a second", WRITES as f64 / began.elapsed().as_secs_f64());
    Ok(())
}

async fn get(client: &Client, path: &str) -> Result<()> {
    client.request_text(http::Request::get(path).body(Vec::new())?).await?;
    Ok(())
}

async fn create(client: &Client, i: usize) -> Result<()> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c-{i}")}, "data": {"a": "x".repeat(1024)}});
    let request =
        http::Request::post("/api/v1/namespaces/default/configmaps").header("content-type", "application/json");
    client.request_text(request.body(serde_json::to_vec(&map)?)?).await?;
    Ok(())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
