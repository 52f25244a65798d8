//! Workloads: deployments, sets and jobs.

use super::{NONE, Row, UNSET, View};
use flyball_core::time::{human_duration, parse_rfc3339};
use serde_json::Value;

const CONTAINERS: &str = "spec.template.spec.containers";

pub(crate) fn deployment(view: &View<'_>) -> Row {
    let [names, images] = view.containers(CONTAINERS);
    Row::from([
        view.name(),
        format!("{}/{}", view.int("status.readyReplicas"), view.int("spec.replicas")).into(),
        view.int("status.updatedReplicas").into(),
        view.int("status.availableReplicas").into(),
        view.age(),
        names,
        images,
        super::selector(view.at("spec.selector")).into(),
    ])
}

pub(crate) fn replica_set(view: &View<'_>) -> Row {
    replicas(view, view.selector("spec.selector"))
}

pub(crate) fn replication_controller(view: &View<'_>) -> Row {
    replicas(view, view.labels("spec.selector"))
}

fn replicas(view: &View<'_>, selector: Value) -> Row {
    let [names, images] = view.containers(CONTAINERS);
    let [wanted, there, ready] =
        ["spec.replicas", "status.replicas", "status.readyReplicas"].map(|path| view.int(path).into());
    Row::from([view.name(), wanted, there, ready, view.age(), names, images, selector])
}

pub(crate) fn stateful_set(view: &View<'_>) -> Row {
    let [names, images] = view.containers(CONTAINERS);
    let ready = format!("{}/{}", view.int("status.readyReplicas"), view.int("spec.replicas"));
    Row::from([view.name(), ready.into(), view.age(), names, images])
}

pub(crate) fn daemon_set(view: &View<'_>) -> Row {
    let [names, images] = view.containers(CONTAINERS);
    let count = |field: &str| Value::from(view.int(&format!("status.{field}")));
    Row::from([
        view.name(),
        count("desiredNumberScheduled"),
        count("currentNumberScheduled"),
        count("numberReady"),
        count("updatedNumberScheduled"),
        count("numberAvailable"),
        view.labels("spec.template.spec.nodeSelector"),
        view.age(),
        names,
        images,
        view.selector("spec.selector"),
    ])
}

pub(crate) fn pod_template(view: &View<'_>) -> Row {
    let [names, images] = view.containers("template.spec.containers");
    Row::from([view.name(), names, images, view.labels("template.metadata.labels")])
}

pub(crate) fn controller_revision(view: &View<'_>) -> Row {
    let controller = view.object.owner_references().find(|owner| owner.controller);
    let controller = controller.map_or_else(
        || NONE.to_owned(),
        |owner| {
            let group = owner.api_version.split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
            format!("{}{group}/{}", owner.kind.to_lowercase(), owner.name)
        },
    );
    Row::from([view.name(), controller.into(), view.int("revision").into(), view.age()])
}

/// The conditions that are printed as the status of a job: the first of these that is true.
const JOB_CONDITIONS: [&str; 2] = ["Complete", "Failed"];
const JOB_LATER_CONDITIONS: [(&str, &str); 3] =
    [("Suspended", "Suspended"), ("FailureTarget", "FailureTarget"), ("SuccessCriteriaMet", "SuccessCriteriaMet")];

pub(crate) fn job(view: &View<'_>) -> Row {
    let succeeded = view.int("status.succeeded");
    let completions = match (view.at("spec.completions").as_i64(), view.int("spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let later = JOB_LATER_CONDITIONS.iter().find(|(condition, _)| view.is_true(condition)).map(|(_, status)| *status);
    let status = match JOB_CONDITIONS.iter().find(|condition| view.is_true(condition)) {
        Some(status) => status,
        None if view.is_deleted() => "Terminating",
        None => later.unwrap_or("Running"),
    };
    let start = parse_rfc3339(view.text("status.startTime"));
    let end = parse_rfc3339(view.text("status.completionTime")).unwrap_or_else(|| view.clock.now());
    let duration = start.map_or_else(String::new, |start| human_duration(end.duration_since(start)));
    let [names, images] = view.containers(CONTAINERS);
    Row::from([
        view.name(),
        status.into(),
        completions.into(),
        duration.into(),
        view.age(),
        names,
        images,
        view.selector("spec.selector"),
    ])
}

pub(crate) fn cron_job(view: &View<'_>) -> Row {
    let last = view.text("status.lastScheduleTime");
    let [names, images] = view.containers("spec.jobTemplate.spec.template.spec.containers");
    let suspended = match view.at("spec.suspend").as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => UNSET,
    };
    Row::from([
        view.name(),
        view.text("spec.schedule").into(),
        view.at("spec.timeZone").as_str().unwrap_or(NONE).into(),
        suspended.into(),
        view.list("status.active").len().into(),
        if last.is_empty() { NONE.into() } else { view.since(last).into() },
        view.age(),
        names,
        images,
        view.selector("spec.jobTemplate.spec.selector"),
    ])
}

pub(crate) fn disruption_budget(view: &View<'_>) -> Row {
    let count = |path: &str| match view.at(path) {
        Value::Null => Value::from("N/A"),
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    };
    let allowed = view.int("status.disruptionsAllowed").into();
    Row::from([view.name(), count("spec.minAvailable"), count("spec.maxUnavailable"), allowed, view.age()])
}
