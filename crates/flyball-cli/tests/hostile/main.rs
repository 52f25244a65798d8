//! The server under attack: whatever an account sends, and however its connections behave, others are served and
//! memory stays bounded.
//!
//! The server is a process of its own, `flyball cluster up`; so are the attackers, a child of this very program that
//! has less of the processor than the server (what is tried is the server, not the machine). An account without rights
//! attacks first, then one with ordinary rights in one namespace. `FLYBALL_HOSTILE_SECONDS` says for how long each
//! (10), `FLYBALL_HOSTILE_ONLY` which attacks, by the beginning of their names, `FLYBALL_HOSTILE_PROGRAM` which
//! `flyball`. `FLYBALL_HOSTILE_AIMS` asserts latency, memory and recovery as they are aimed at for a release build on a
//! machine that does nothing else; unset, that the server answers throughout and stays within bounds of memory.
#![expect(clippy::print_stdout, reason = "a test says what it saw")]
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

/// How long an unanswered request of `/healthz` counts.
const UNANSWERED: Duration = Duration::from_secs(10);

/// By how much the memory of a debug build may grow.
const MAX_GROWTH_DEBUG: u64 = 512 << 20;

/// The longest that one request of a hundred of `/healthz` may take.
const MAX_P99: Duration = Duration::from_millis(50);

/// By how much the server's memory may grow.
const MAX_GROWTH: u64 = 128 << 20;

/// How long afterwards the server may take until nothing is left of an attack.
const MAX_RECOVERY: Duration = Duration::from_secs(35);

fn seconds() -> u64 {
    std::env::var("FLYBALL_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// The attackers, in the child; nothing by itself.
#[test]
fn attackers() {
    let Ok(text) = std::env::var(TARGET) else { return };
    let target: Target = serde_json::from_str(&text).unwrap();
    let only = std::env::var("FLYBALL_HOSTILE_ONLY").unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut attacks = tokio::task::JoinSet::new();
        bodies::begin(&target, &only, &mut attacks);
        connections::begin(&target, &only, &mut attacks);
        assert!(!attacks.is_empty(), "no attack begins with {only:?}");
        let _ = tokio::time::timeout(Duration::from_secs(seconds()), attacks.join_all()).await;
    });
}

#[test]
fn neither_an_account_without_rights_nor_an_ordinary_one_harms_the_others() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::start().await;
        for account in ["nobody", "dev"] {
            let target = cluster.target(account).await;
            attack(&cluster, &target).await;
        }
    });
}

/// Attacks as an account, and looks at how the others fare.
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
    let _ = tokio::time::timeout(MAX_RECOVERY, async {
        while child.try_wait().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let ended = child.try_wait().unwrap();
    let _ = child.kill();
    let max_recovery = if std::env::var_os("FLYBALL_HOSTILE_AIMS").is_some() { MAX_RECOVERY } else { Duration::ZERO };
    let recovered = restored.within(max_recovery).await;
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
    assert!(ended.is_some_and(|status| status.success()), "the attackers: {ended:?}");
    assert!(under_attack.max() < UNANSWERED, "/healthz is not answered");
    let growth = peak.saturating_sub(before);
    assert!(growth < MAX_GROWTH_DEBUG, "memory grows by {} MiB", growth >> 20);
    if std::env::var_os("FLYBALL_HOSTILE_AIMS").is_some() {
        assert!(under_attack.p99() < MAX_P99, "/healthz has to wait: {:?}", under_attack.p99());
        assert!(growth < MAX_GROWTH, "memory grows by {} MiB", growth >> 20);
        assert!(recovered.is_some(), "something is left of the attack: {}", restored.left());
    }
}
