use super::*;
use http::{Request, Response};
use hyper::body::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt, service_fn};

/// The point at which the operator crashes.
#[derive(Clone, Copy, Debug)]
enum Crash {
    Before(u64),
    After(u64),
}

/// Creates a transport to a simulator that stops permanently at one call, and notifies when it does.
fn crashing(simulator: &Simulator, crash: Crash) -> (Transport, Arc<Notify>) {
    let (calls, crashed) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let (inner, notify) = (simulator.transport(), Arc::clone(&crashed));
    let transport = BoxCloneSyncService::new(service_fn(move |request: Request<Bytes>| {
        let (inner, notify, call) = (inner.clone(), Arc::clone(&notify), calls.fetch_add(1, Ordering::Relaxed));
        async move {
            let stop = || async {
                notify.notify_one();
                std::future::pending::<()>().await;
            };
            if matches!(crash, Crash::Before(n) if n == call) {
                stop().await;
            }
            let response = inner.oneshot(request).await;
            if matches!(crash, Crash::After(n) if n == call) {
                stop().await;
            }
            response as Result<Response<Bytes>, BoxError>
        }
    }));
    (transport, crashed)
}

/// Runs passes until the process crashes, and then with a new process; returns true if the first one crashed.
async fn interrupted(simulator: &Simulator, group: &Group, goal: Goal, crash: Crash) -> bool {
    let (transport, crashed) = crashing(simulator, crash);
    let first = Groups::new(client(transport), 3);
    let finished = tokio::select! {
        biased;
        () = crashed.notified() => false,
        _ = settle(&first, group, goal) => true,
    };
    drop(first);
    settle(&Groups::new(client(simulator.transport()), 3), group, goal).await;
    finished
}

/// Crashes at every call between a state and a goal, and compares the final states with an uninterrupted run.
async fn check(replicas_before: usize, replicas: usize, goal: Goal) {
    let start = async || {
        let (simulator, groups) = world();
        if replicas_before > 0 {
            settle(&groups, &group(replicas_before), Goal::Present).await;
        }
        (simulator, groups)
    };
    let (reference, groups) = start().await;
    settle(&groups, &group(replicas), goal).await;
    for crash in [Crash::Before as fn(u64) -> Crash, Crash::After] {
        for call in 0.. {
            let (simulator, _) = start().await;
            let finished = interrupted(&simulator, &group(replicas), goal, crash(call)).await;
            // Tasks of the first process may end later, and a resync observes their results.
            tokio::time::sleep(Duration::from_secs(300)).await;
            settle(&Groups::new(client(simulator.transport()), 3), &group(replicas), goal).await;
            assert_eq!(sorted(&simulator), sorted(&reference), "{:?}", crash(call));
            assert_eq!(simulator.folders(), reference.folders(), "{:?}", crash(call));
            if finished {
                assert!(call > 10, "only {call} calls were tried");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn crashes_during_creation_are_recovered() {
    check(0, 4, Goal::Present).await;
}

#[tokio::test(start_paused = true)]
async fn crashes_during_scale_up_are_recovered() {
    check(2, 4, Goal::Present).await;
}

#[tokio::test(start_paused = true)]
async fn crashes_during_scale_down_are_recovered() {
    check(4, 1, Goal::Present).await;
}

#[tokio::test(start_paused = true)]
async fn crashes_during_teardown_are_recovered() {
    check(3, 3, Goal::Absent).await;
}

#[tokio::test(start_paused = true)]
async fn group_deleted_during_cloning_leaves_nothing_behind() {
    let group = group(4);
    for call in 0..40 {
        let (simulator, _) = world();
        let (transport, crashed) = crashing(&simulator, Crash::After(call));
        let first = Groups::new(client(transport), 3);
        tokio::select! {
            biased;
            () = crashed.notified() => {}
            _ = settle(&first, &group, Goal::Present) => {}
        }
        drop(first);
        settle(&Groups::new(client(simulator.transport()), 3), &group, Goal::Absent).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!((simulator.vms().len(), simulator.folders().len()), (0, 0), "crash after call {call}");
    }
}
