//! Making changes, and undoing them.
//!
//! Both are idempotent: a response that is lost, or a process that dies between the two, leaves a state from which the
//! undo works. Edits and creations are *lifted*, which ends a fault; deleted objects are *restored* later, unless the
//! operator has created them again.

use crate::api::{Cluster, Reference};
use crate::change::{Change, EXPERIMENT_ANNOTATION, Progress, RUN_LABEL, UNDO_ANNOTATION, uid};
use crate::edit::{Edit, unchanged};
use crate::error::{Error, Result};
use crate::journal::{Entry, Journal};
use crate::text::clean;
use flyball_core::pointer::escape;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum size of the annotation with the edits.
const MAX_ANNOTATION: usize = 8 << 10;
/// Attempts of an undo while other clients change the object.
const MAX_CONFLICTS: u32 = 20;
/// Attempts of an edit while other clients change the object.
const MAX_ATTEMPTS: u32 = 5;
/// Interval of attempts.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time after which a request without a response has no effect anymore.
const LOST_REQUEST: Duration = Duration::from_secs(2);
/// Time of an undo until it is left to the next one.
const UNDO_TIMEOUT: Duration = Duration::from_secs(120);

/// A phase of an undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Edits and creations, which ends a fault.
    Lift,
    /// Deletions.
    Restore,
}

/// Records changes, and makes them in order.
pub(crate) async fn inject(
    cluster: &Cluster,
    journal: &mut Journal,
    experiment: &str,
    changes: &[Change],
) -> Result<()> {
    let mark = format!("{}/{experiment}", journal.state().run);
    let mut exact = Vec::new();
    for change in changes {
        exact.push(match change {
            // The undo compares with the stored form, which may have defaults: it has to be on disk before.
            Change::Edit { .. } => make(cluster, change, &mark, true).await?,
            change => change.clone(),
        });
    }
    let first = journal.plan(experiment, &exact)?;
    for (offset, change) in changes.iter().enumerate() {
        let stored = make(cluster, change, &mark, false).await?;
        journal.confirm(first + offset, stored)?;
    }
    Ok(())
}

/// Makes a change. Returns it as the API server stored it. With `is_dry`, edits are only checked.
async fn make(cluster: &Cluster, change: &Change, mark: &str, is_dry: bool) -> Result<Change> {
    match change {
        Change::Edit { object, uid, edits } => {
            let stored = make_edits(cluster, object, uid, edits, mark, is_dry).await?;
            let mut edits = edits.clone();
            edits.iter_mut().for_each(|edit| edit.record_stored(&stored));
            Ok(Change::Edit { object: object.clone(), uid: uid.clone(), edits })
        }
        Change::Create { object } => {
            cluster.create(object, false).await?;
            Ok(change.clone())
        }
        Change::Delete { object, uid, original } => {
            cluster.delete(object, uid, original.is_none()).await?;
            Ok(change.clone())
        }
    }
}

async fn make_edits(
    cluster: &Cluster,
    object: &Reference,
    expected: &str,
    edits: &[Edit],
    mark: &str,
    is_dry: bool,
) -> Result<Value> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let live = cluster.get(object).await?.filter(|live| uid(live) == expected);
        let live = live.ok_or_else(|| Error::NotApplicable(format!("{object} was replaced meanwhile")))?;
        let mut operations = annotate(&live, object, edits, mark);
        for edit in edits {
            let edit = edit.inject(&live);
            operations.extend(edit.map_err(|error| Error::NotApplicable(format!("{object}: {error}")))?);
        }
        match cluster.patch(object, &operations, is_dry).await {
            // A test has failed, since another client has changed the object.
            Err(error) if matches!(error.code(), Some(409 | 422)) && attempts < MAX_ATTEMPTS => sleep(INTERVAL).await,
            patched => return patched,
        }
    }
}

/// Returns the operations that add the annotations of an edited object.
fn annotate(live: &Value, object: &Reference, edits: &[Edit], mark: &str) -> Vec<Value> {
    let mut operations = Vec::new();
    if !live["metadata"]["annotations"].is_object() {
        operations.push(unchanged(live));
        operations.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
    }
    let mut add = |key: &str, value: String| {
        operations.push(json!({"op": "add", "path": format!("/metadata/annotations/{}", escape(key)), "value": value}));
    };
    add(EXPERIMENT_ANNOTATION, mark.to_owned());
    let text = json!(edits).to_string();
    if text.len() <= MAX_ANNOTATION && !object.is_secret() {
        add(UNDO_ANNOTATION, text);
    }
    operations
}

/// Undoes the changes from an index on: the fault first, then deletions. Returns remarks on values of other clients,
/// which stay.
///
/// # Errors
///
/// The first error, after all changes were tried.
pub async fn undo(cluster: &Cluster, journal: &mut Journal, first: usize) -> Result<Vec<String>> {
    let lifted = lift(cluster, journal, first, |_| true).await;
    let restored = undo_phase(cluster, journal, first, Phase::Restore, |_| true).await;
    restored.and(lifted)
}

/// Undoes edits and creations of some experiments from an index on, in reverse order.
pub(crate) async fn lift(
    cluster: &Cluster,
    journal: &mut Journal,
    first: usize,
    fits: impl Fn(&str) -> bool,
) -> Result<Vec<String>> {
    undo_phase(cluster, journal, first, Phase::Lift, fits).await
}

async fn undo_phase(
    cluster: &Cluster,
    journal: &mut Journal,
    first: usize,
    phase: Phase,
    fits: impl Fn(&str) -> bool,
) -> Result<Vec<String>> {
    let (run, began) = (journal.state().run.clone(), Instant::now());
    let (mut notes, mut failure) = (Vec::new(), None);
    for (index, entry) in journal.pending(first).into_iter().rev() {
        let is_deletion = matches!(entry.change, Change::Delete { .. });
        if is_deletion != (phase == Phase::Restore) || !fits(&entry.experiment) {
            continue;
        }
        let undone = loop {
            match undo_entry(cluster, &entry, &run).await {
                // The API server may be back soon.
                Err(error) if began.elapsed() < UNDO_TIMEOUT && is_temporary(&error) => sleep(INTERVAL).await,
                undone => break undone,
            }
        };
        match undone {
            Ok(remarks) => {
                notes.extend(remarks);
                journal.finish(index)?;
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(notes), Err)
}

/// Returns true if the same request may succeed later.
fn is_temporary(error: &Error) -> bool {
    match error {
        Error::Timeout { .. } => true,
        Error::Api { .. } => error.code().is_none_or(|code| code >= 500 || code == 429),
        Error::NotApplicable(_) => true,
        _ => false,
    }
}

async fn undo_entry(cluster: &Cluster, entry: &Entry, run: &str) -> Result<Vec<String>> {
    if entry.progress == Progress::Planned {
        // The request may still be on its way.
        sleep(LOST_REQUEST).await;
    }
    match &entry.change {
        Change::Edit { object, uid, edits } => return undo_edits(cluster, object, uid, edits, run).await,
        Change::Create { object } => {
            let reference = Reference::of(object);
            if let Some(live) = cluster.get(&reference).await?
                && live["metadata"]["labels"][RUN_LABEL] == run
            {
                cluster.delete(&reference, &uid(&live), false).await?;
            }
        }
        Change::Delete { object, original: Some(original), .. } => restore(cluster, object, original).await?,
        Change::Delete { original: None, .. } => {}
    }
    Ok(Vec::new())
}

async fn undo_edits(
    cluster: &Cluster,
    object: &Reference,
    expected: &str,
    edits: &[Edit],
    run: &str,
) -> Result<Vec<String>> {
    for _ in 0..MAX_CONFLICTS {
        let live = cluster.get(object).await?.filter(|live| uid(live) == expected);
        let Some(live) = live else { return Ok(Vec::new()) };
        let overwritten = edits.iter().filter(|edit| edit.is_overwritten(&live));
        let notes = overwritten
            .map(|edit| format!("{object}: {} has a value of another client, which stays", clean(edit.path())))
            .collect();
        let mut operations: Vec<Value> = edits.iter().flat_map(|edit| edit.undo(&live)).collect();
        operations.extend(unannotate(&live, run));
        if operations.is_empty() {
            return Ok(notes);
        }
        match cluster.patch(object, &operations, false).await {
            Ok(_) => return Ok(notes),
            Err(error) if error.code() == Some(404) => return Ok(notes),
            // A test has failed, since another client has changed the object.
            Err(error) if matches!(error.code(), Some(409 | 422)) => sleep(INTERVAL).await,
            Err(error) => return Err(error),
        }
    }
    Err(Error::Target(format!("{object} changes all the time, or the API server rejects its former values")))
}

fn unannotate(live: &Value, run: &str) -> Vec<Value> {
    let annotations = &live["metadata"]["annotations"];
    let is_own = annotations[EXPERIMENT_ANNOTATION].as_str().and_then(|mark| mark.split_once('/'));
    if is_own.is_none_or(|(owner, _)| owner != run) {
        return Vec::new();
    }
    let keys = [EXPERIMENT_ANNOTATION, UNDO_ANNOTATION];
    let present = keys.iter().filter(|key| annotations[**key].is_string());
    let remove = |key: &&str| json!({"op": "remove", "path": format!("/metadata/annotations/{}", escape(key))});
    let mut operations: Vec<Value> = present.map(remove).collect();
    if annotations.as_object().is_some_and(|all| all.len() == operations.len()) {
        operations = vec![
            json!({"op": "test", "path": "/metadata/annotations", "value": annotations}),
            json!({"op": "remove", "path": "/metadata/annotations"}),
        ];
    }
    operations
}

/// Creates a deleted object again, unless it exists or its owner does not.
async fn restore(cluster: &Cluster, object: &Reference, original: &Value) -> Result<()> {
    if let Some(live) = cluster.get(object).await? {
        return match live["metadata"]["deletionTimestamp"].is_null() {
            true => Ok(()),
            false => Err(Error::NotApplicable(format!("{object} is still being deleted: remove its finalizers"))),
        };
    }
    for owner in original["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let group = crate::api::group_of(text("apiVersion"));
        let is_namespaced = cluster.kind(group, text("kind")).is_none_or(|kind| kind.is_namespaced);
        let namespace = object.namespace.as_deref().filter(|_| is_namespaced);
        let reference = Reference::new(group, text("kind"), namespace, text("name"));
        let live = cluster.get(&reference).await?;
        if live.is_none_or(|live| uid(&live) != text("uid")) {
            // The garbage collector would delete it.
            return Ok(());
        }
    }
    match cluster.create(original, false).await {
        Err(error) if error.code() == Some(409) => Ok(()),
        created => created.map(|_| ()),
    }
}
