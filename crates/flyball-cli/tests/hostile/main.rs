//! The server under attack: regardless of an account's requests and connections, other users are served and memory
//! stays within limits.
//!
//! The server is a separate process, `flyball cluster up`; so are the attackers, a child process of this program with a
//! lower CPU priority than the server (the test is about the server, not the machine). An account without permissions
//! attacks first, then one with ordinary permissions in one namespace. `FLYBALL_HOSTILE_SECONDS` is the duration of
//! each attack (10), `FLYBALL_HOSTILE_ONLY` selects attacks by a name prefix, `FLYBALL_HOSTILE_PROGRAM` is the path of
//! `flyball`. The test asserts that the server responds throughout, stays within its memory limit, recovers, and does
//! not panic. `FLYBALL_HOSTILE_AIMS` asserts the target latency as well, for a release build on an idle machine.
#![expect(clippy::print_stdout, reason = "a test prints its measurements")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bodies;
mod connections;
mod server;
mod target;

use server::Cluster;
use std::process::{Command, Stdio};
use std::time::Duration;
use target::Target;

/// Environment variable with the target and the user of the child's attack.
const TARGET: &str = "FLYBALL_HOSTILE_TARGET";

/// Latency of a `/healthz` request without response.
const UNANSWERED: Duration = Duration::from_secs(10);

/// Maximum p99 latency of `/healthz`.
const MAX_P99: Duration = Duration::from_millis(50);

/// Maximum memory growth of the server.
const MAX_GROWTH: u64 = 128 << 20;

/// Maximum recovery time of the server after an attack.
const MAX_RECOVERY: Duration = Duration::from_secs(35);

/// Time in which the attackers end. They get little processor time on a busy machine.
const MAX_LATENESS: Duration = Duration::from_secs(120);

fn seconds() -> u64 {
    std::env::var("FLYBALL_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// The attackers, in the child process; without its environment it does nothing.
#[test]
fn attackers() {
    let Ok(text) = std::env::var(TARGET) else { return };
    let target: Target = serde_json::from_str(&text).unwrap();
    let only = std::env::var("FLYBALL_HOSTILE_ONLY").unwrap_or_default();
    // Some attacks compute long between two waits. The time is checked after each, so that the attack ends in time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1).build().unwrap();
    runtime.block_on(async {
        let mut attacks = tokio::task::JoinSet::new();
        bodies::begin(&target, &only, &mut attacks);
        connections::begin(&target, &only, &mut attacks);
        assert!(!attacks.is_empty(), "no attack begins with {only:?}");
        let _ = tokio::time::timeout(Duration::from_secs(seconds()), attacks.join_all()).await;
    });
}

#[test]
fn attackers_do_not_affect_other_clients() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::start().await;
        for account in ["nobody", "dev"] {
            let target = cluster.target(account).await;
            attack(&cluster, &target).await;
        }
    });
}

/// Attacks as an account, and measures the service of others.
async fn attack(cluster: &Cluster, target: &Target) {
    let calm = cluster.healthz_for(Duration::from_secs(2)).await;
    let before = cluster.memory();
    let mut child = Command::new("nice");
    child
        .args(["-n", "10"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "attackers", "--nocapture"])
        .env(TARGET, serde_json::to_string(target).unwrap());
    let mut child = child.stdout(Stdio::null()).spawn().unwrap();
    let under_attack = cluster.healthz_for(Duration::from_secs(seconds())).await;
    let (peak, mut restored) = (cluster.peak(), cluster.recovery());
    let _ = tokio::time::timeout(MAX_LATENESS, async {
        while child.try_wait().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let exit = child.try_wait().unwrap();
    let _ = child.kill();
    let recovered = restored.within(MAX_RECOVERY).await;
    println!(
        "as {}: /healthz p99 {:?} calm, {:?} under attack (of {}), {:?} at most; {} MiB before, {} MiB at most; recovered after {:?}",
        target.account,
        calm.p99(),
        under_attack.p99(),
        under_attack.count(),
        under_attack.max(),
        before >> 20,
        peak >> 20,
        recovered,
    );
    assert!(exit.is_some_and(|status| status.success()), "the attackers: {exit:?}");
    assert!(under_attack.max() < UNANSWERED, "/healthz is not answered");
    let growth = peak.saturating_sub(before);
    assert!(growth < MAX_GROWTH, "memory grows by {} MiB", growth >> 20);
    assert!(recovered.is_some(), "something is left of the attack: {}", restored.remains());
    let panics = cluster.panics();
    assert!(panics.is_empty(), "the server has panicked:\n{}", panics.join("\n"));
    if std::env::var_os("FLYBALL_HOSTILE_AIMS").is_some() {
        assert!(under_attack.p99() < MAX_P99, "/healthz has to wait: {:?}", under_attack.p99());
    }
}
