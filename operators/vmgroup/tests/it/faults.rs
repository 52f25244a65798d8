use super::*;
use http::StatusCode;
use vmgroup::simulator::{Fault, Faults};

/// Creates a group and tears it down with faulty calls; each final state equals that without faults.
async fn check(faults: impl Fn() -> Faults) {
    let (reference, groups) = world();
    settle(&groups, &group(4), Goal::Present).await;

    let (simulator, groups) = world();
    simulator.set_faults(faults());
    settle(&groups, &group(4), Goal::Present).await;
    simulator.set_faults(Faults::None);
    settle(&groups, &group(4), Goal::Present).await;
    assert_eq!(sorted(&simulator), sorted(&reference));

    simulator.set_faults(faults());
    settle(&groups, &group(4), Goal::Absent).await;
    // Tasks of broken connections end later.
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((simulator.vms().len(), simulator.folders().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn single_fault_at_any_call_is_recovered() {
    let ways = [
        Fault::LostRequest,
        Fault::LostResponse,
        Fault::Delay(Duration::from_secs(31)),
        Fault::Status(StatusCode::SERVICE_UNAVAILABLE),
        Fault::Rejection("HostCommunication"),
        Fault::FailedTask("FileFault"),
        Fault::EndOfSessions,
    ];
    for way in ways {
        for call in 0..40 {
            check(|| Faults::script([(call, way)])).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_consecutive_lost_responses_are_recovered() {
    for call in 0..40 {
        check(|| Faults::script([(call, Fault::LostResponse), (call + 1, Fault::LostResponse)])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn random_faults_are_recovered() {
    for seed in 0..50 {
        check(|| Faults::random(seed, 100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_error_is_retried_until_it_is_resolved() {
    let (simulator, groups) = world();
    simulator.set_faults(Faults::Always(Fault::Status(StatusCode::SERVICE_UNAVAILABLE)));
    for _ in 0..20 {
        let error = pass(&groups, &group(2), Goal::Present).await.unwrap_err();
        assert!(!error.is_permanent());
        assert_eq!(
            error.to_string(),
            "vCenter returned an invalid response to RetrieveServiceContent: HTTP status 503 Service Unavailable"
        );
    }
    simulator.set_faults(Faults::None);
    assert!(settle(&groups, &group(2), Goal::Present).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn slow_task_is_awaited_and_not_repeated() {
    let tasks = TaskTimes { clone: Duration::from_secs(700), ..options().tasks };
    let simulator = Simulator::new(Options { tasks, ..options() });
    let groups = Groups::new(client(simulator.transport()), 3);
    assert!(settle(&groups, &group(2), Goal::Present).await.is_empty());
    assert_eq!((simulator.vms().len(), simulator.peak_tasks()), (2, 2));
}
