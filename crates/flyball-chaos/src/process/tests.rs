use super::*;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn killed_processes_start_again_with_their_kubeconfig() {
    let folder = std::env::temp_dir().join(format!("flyball-chaos-process-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let output = folder.join("log");
    let command = "echo $KUBECONFIG $POD_NAMESPACE; sleep 600 & wait";
    let process = Process::new(command, "/config".into(), "sites", Some(output.clone()));
    let running = process.clone();
    let task = tokio::spawn(async move { running.run().await });
    let lines = || std::fs::read_to_string(&output).unwrap_or_default().lines().count();
    let until = async |count: usize| {
        let began = Instant::now();
        while lines() < count {
            assert!(began.elapsed() < Duration::from_secs(30), "{count} starts");
            sleep(Duration::from_millis(20)).await;
        }
    };
    until(1).await;
    assert!(process.is_running());
    process.kill();
    until(2).await;
    assert_eq!(process.crashes(), 0, "a fault is no crash");
    let group = process.0.group.lock().unwrap();
    kill_process_group(group, Signal::KILL).unwrap();
    until(3).await;
    assert_eq!(process.crashes(), 1);
    assert!(std::fs::read_to_string(&output).unwrap().starts_with("/config sites\n"));
    task.abort();
    let _ = task.await;
    std::fs::remove_dir_all(folder).unwrap();
}
