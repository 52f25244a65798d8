//! The table row of a pod, with the aggregate state of its containers.

use crate::kinds::printer::{NONE, Row, View, at, int, list, text};
use serde_json::{Value, json};

pub(super) fn of(view: &View<'_>) -> Row {
    let phase = view.text("status.phase");
    let progress = progress(view);
    let sidecars = view.list("spec.initContainers").iter().filter(|container| restarts_always(container)).count();
    let total = view.list("spec.containers").len() + sidecars;
    let mut reason = progress.reason;
    if view.is_deleted() && view.text("status.reason") == "NodeLost" {
        reason = "Unknown".into();
    } else if view.is_deleted() && !matches!(phase, "Failed" | "Succeeded") {
        reason = "Terminating".into();
    }
    let mut restarts = progress.restarts.to_string();
    if progress.restarts != 0 && !progress.last_restart.is_empty() {
        restarts += &format!(" ({} ago)", view.since(progress.last_restart));
    }
    let ip = view.list("status.podIPs").first().map_or("", |ip| text(ip, "ip"));
    let cells = [
        view.name(),
        format!("{}/{total}", progress.ready).into(),
        reason.into(),
        restarts.into(),
        view.age(),
        if ip.is_empty() { NONE.into() } else { ip.into() },
        view.text_or("spec.nodeName", NONE),
        view.text_or("status.nominatedNodeName", NONE),
        gates(view),
    ];
    let completed =
        |message: &str| json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]);
    let conditions = match phase {
        "Succeeded" => Some(completed("The pod has completed successfully.")),
        "Failed" => Some(completed("The pod failed.")),
        _ => None,
    };
    Row { conditions, ..Row::from(cells) }
}

/// The state of a pod's containers.
#[derive(Default)]
struct Progress<'a> {
    ready: usize,
    restarts: i64,
    last_restart: &'a str,
    reason: String,
}

impl<'a> Progress<'a> {
    fn count(&mut self, status: &'a Value) {
        self.restarts += int(status, "restartCount");
        let finished = text(status, "lastState.terminated.finishedAt");
        self.last_restart = self.last_restart.max(finished);
    }
}

fn restarts_always(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

fn gates(view: &View<'_>) -> Value {
    let gates = view.list("spec.readinessGates");
    let open = gates.iter().filter(|gate| view.is_true(text(gate, "conditionType"))).count();
    if gates.is_empty() { NONE.into() } else { format!("{open}/{}", gates.len()).into() }
}

fn progress<'a>(view: &View<'a>) -> Progress<'a> {
    let (mut init, mut sidecars) = (Progress::default(), Progress::default());
    let why = view.text("status.reason");
    let mut reason = if why.is_empty() { view.text("status.phase") } else { why }.to_owned();
    let gated = |condition: &&Value| {
        text(condition, "type") == "PodScheduled" && text(condition, "reason") == "SchedulingGated"
    };
    if view.list("status.conditions").iter().any(|condition| gated(&condition)) {
        reason = "SchedulingGated".into();
    }
    let containers = view.list("spec.initContainers");
    let mut initializing = false;
    for (i, status) in view.list("status.initContainerStatuses").iter().enumerate() {
        let container = containers.iter().find(|container| text(container, "name") == text(status, "name"));
        let sidecar = container.is_some_and(restarts_always);
        init.count(status);
        if sidecar {
            sidecars.count(status);
        }
        let terminated = at(status, "state.terminated");
        let waiting = text(status, "state.waiting.reason");
        if terminated.is_object() && int(terminated, "exitCode") == 0 {
            continue;
        }
        if sidecar && status["started"] == true {
            init.ready += usize::from(status["ready"] == true);
            continue;
        }
        reason = if terminated.is_object() {
            format!("Init:{}", ended(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{i}/{}", containers.len())
        };
        initializing = true;
        break;
    }
    if initializing && !view.is_true("Initialized") {
        return Progress { reason, ..init };
    }
    let mut all = Progress { ready: init.ready, reason, ..sidecars };
    let (mut running, mut failure) = (false, String::new());
    for status in list(view.object.as_value(), "status.containerStatuses").iter().rev() {
        all.count(status);
        let terminated = at(status, "state.terminated");
        let waiting = text(status, "state.waiting.reason");
        if !waiting.is_empty() {
            all.reason = waiting.to_owned();
        } else if terminated.is_object() {
            all.reason = ended(terminated);
            if int(terminated, "exitCode") != 0 {
                failure.clone_from(&all.reason);
            }
        } else if status["ready"] == true && at(status, "state.running").is_object() {
            running = true;
            all.ready += 1;
        }
    }
    if all.reason == "Completed" {
        if running && view.is_true("Ready") {
            all.reason = "Running".into();
        } else if !failure.is_empty() {
            all.reason = failure;
        } else if running {
            all.reason = "NotReady".into();
        }
    }
    all
}

/// Returns the termination reason of a container.
fn ended(terminated: &Value) -> String {
    match (text(terminated, "reason"), int(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", int(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::{Clock, Object};

    fn check(spec: Value, status: Value, expected: [&str; 3]) {
        let clock = Clock::new(|| "2026-01-02T00:00:00Z".parse().unwrap());
        let object = Object::try_from(json!({"metadata": {"name": "a"}, "spec": spec, "status": status})).unwrap();
        let row = of(&View { object: &object, clock: &clock });
        assert_eq!(row.cells[1..4], expected.map(Value::from), "{object:?}");
    }

    #[test]
    fn status_summarizes_the_containers() {
        let one = || json!({"containers": [{"name": "c"}]});
        check(one(), json!({"phase": "Pending"}), ["0/1", "Pending", "0"]);
        let running = json!({"name": "c", "ready": true, "state": {"running": {}}, "restartCount": 2,
            "lastState": {"terminated": {"finishedAt": "2026-01-01T23:00:00Z"}}});
        check(one(), json!({"phase": "Running", "containerStatuses": [running]}), ["1/1", "Running", "2 (60m ago)"]);
        let crashed = json!({"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
        check(one(), json!({"phase": "Running", "containerStatuses": [crashed]}), ["0/1", "CrashLoopBackOff", "0"]);
        let failed = json!({"name": "c", "state": {"terminated": {"exitCode": 3}}});
        check(one(), json!({"phase": "Failed", "containerStatuses": [failed]}), ["0/1", "ExitCode:3", "0"]);
    }

    #[test]
    fn status_shows_init_containers() {
        let spec = || json!({"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "c"}]});
        let status = |states: Value| json!({"phase": "Pending", "initContainerStatuses": states});
        check(
            spec(),
            status(json!([{"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}])),
            ["0/2", "Init:0/2", "0"],
        );
        check(
            spec(),
            status(json!([{"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}])),
            ["0/2", "Init:Error", "0"],
        );
        let done = json!([{"name": "i", "state": {"terminated": {"exitCode": 0}}}, {"name": "s", "started": true, "ready": true}]);
        check(spec(), status(done), ["1/2", "Pending", "0"]);
    }
}
