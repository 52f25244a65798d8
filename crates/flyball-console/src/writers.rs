//! Writers of observed changes, by the log of an embedded control plane.
//!
//! Managed fields do not contain every write: a binding or a request for deletion leaves no entry. The log of an
//! embedded control plane names the writer of each version. Other clusters have no such log.

use crate::claims::{LoggedWrite, logged_writes};
use crate::kind::Kind;
use crate::object::ObjectRef;
use crate::store::Change;
use crate::summary::{bounded, writer_name};
use flyball_core::time::{SignedDuration, Timestamp};
use futures_util::StreamExt;
use futures_util::stream::iter;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Limit of objects whose logs one answer requests, and of requests at a time.
const MAX_OBJECTS: usize = 32;
const MAX_CONCURRENT: usize = 8;
/// Time for which a cluster without a log is not asked again.
const ABSENCE_AGE: SignedDuration = SignedDuration::from_secs(60);

/// Reads the log of writes, and remembers that a cluster has none.
#[derive(Debug, Default)]
pub(crate) struct WriteLog {
    absent_since: Mutex<Option<Timestamp>>,
}

/// The logged writes of some objects.
#[derive(Debug, Default)]
pub(crate) struct LoggedWriters(BTreeMap<ObjectRef, Vec<LoggedWrite>>);

impl WriteLog {
    /// Reads the writes of these objects, as far as the cluster has a log and the user may read it.
    pub(crate) async fn read(
        &self,
        client: &kube::Client,
        kinds: &[Kind],
        objects: impl IntoIterator<Item = ObjectRef>,
        now: Timestamp,
    ) -> LoggedWriters {
        if self.absent_since.lock().is_some_and(|since| now.duration_since(since) < ABSENCE_AGE) {
            return LoggedWriters::default();
        }
        let mut requested = BTreeSet::new();
        let objects = objects.into_iter().filter(|object| requested.insert(object.clone()));
        let mut requests = objects
            .filter_map(|object| {
                let kind = kinds.iter().find(|kind| kind.group == object.group && kind.kind == object.kind)?.clone();
                Some(async move {
                    let place = (object.namespace.as_str(), object.name.as_str());
                    let writes = logged_writes(client, (&kind.group, &kind.plural), place).await?;
                    Some((object, writes))
                })
            })
            .take(MAX_OBJECTS)
            .collect::<Vec<_>>()
            .into_iter();
        // The first answer shows whether there is a log.
        let Some(first) = requests.next() else { return LoggedWriters::default() };
        let Some(first) = first.await else {
            *self.absent_since.lock() = Some(now);
            return LoggedWriters::default();
        };
        let rest: Vec<Option<(ObjectRef, Vec<LoggedWrite>)>> =
            iter(requests).buffer_unordered(MAX_CONCURRENT).collect().await;
        LoggedWriters(rest.into_iter().flatten().chain([first]).collect())
    }
}

impl LoggedWriters {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the changes with the writers of the log, where it has them.
    pub(crate) fn attribute(
        &self,
        changes: Vec<Arc<Change>>,
        refers: &dyn Fn(&Change) -> ObjectRef,
    ) -> Vec<Arc<Change>> {
        if self.is_empty() {
            return changes;
        }
        let attributed = changes.into_iter().map(|change| {
            let logged = self.0.get(&refers(&change)).and_then(|log| logged(&change, log));
            match logged.map(writer) {
                Some(writer) if writer != change.writer => Arc::new(Change { writer, ..(*change).clone() }),
                _ => change,
            }
        });
        attributed.collect()
    }
}

/// Returns the write that made a change, of a log with the newest write first.
fn logged<'a>(change: &Change, log: &'a [LoggedWrite]) -> Option<&'a LoggedWrite> {
    if !change.after.is_empty() {
        return log.iter().find(|write| write.revision == change.after);
    }
    // The version of a deletion is unknown: it is the next write of the object.
    let before: u64 = change.before.parse().ok()?;
    let is_later = |write: &&LoggedWrite| write.revision.parse().is_ok_and(|revision: u64| revision > before);
    let next = log.iter().take_while(is_later).last()?;
    next.verb.starts_with("delete").then_some(next)
}

fn writer(write: &LoggedWrite) -> String {
    // Field managers usually begin with the name of the program.
    let program = write.agent.split(['/', ' ']).next().unwrap_or_default();
    let manager = if write.manager.is_empty() { program } else { &write.manager };
    writer_name(&bounded(manager), &bounded(&write.subresource))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::LastWrites;
    use http::Response;
    use kube::client::Body;
    use serde_json::json;

    fn change(verb: &'static str, before: &str, after: &str) -> Arc<Change> {
        Arc::new(Change {
            sequence: 1,
            time: String::new(),
            id: "u".into(),
            kind: 0,
            namespace: "ns".into(),
            name: "p".into(),
            owner: String::new(),
            verb,
            before: before.into(),
            after: after.into(),
            parts: Vec::new(),
            writer: "kubelet (status)".into(),
            last_writes: LastWrites::default(),
        })
    }

    /// Returns the writers of changes, with the number of requests for the log.
    async fn writers(log: Option<serde_json::Value>, changes: Vec<Arc<Change>>) -> (Vec<String>, usize) {
        let requests: Arc<Mutex<usize>> = Arc::default();
        let counted = requests.clone();
        let respond = move |request: http::Request<Body>| {
            *counted.lock() += 1;
            assert_eq!(request.uri().path(), "/debug/api/writes");
            let (code, body) = match &log {
                Some(writes) => (200, json!({"writes": writes})),
                None => (404, json!({"kind": "Status", "message": "no such page", "code": 404})),
            };
            let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, kube::Error>(response.expect("valid")))
        };
        let client = kube::Client::new(tower::service_fn(respond), "default");
        let text = |text: &str| text.to_owned();
        let (group, version, kind, plural) = (text(""), text("v1"), text("Pod"), text("pods"));
        let kinds = [Kind { group, version, kind, plural, namespaced: true }];
        let pod = ObjectRef { group: text(""), kind: text("Pod"), namespace: text("ns"), name: text("p") };
        let other = ObjectRef { kind: text("Other"), ..pod.clone() };
        let write_log = WriteLog::default();
        let now = Timestamp::UNIX_EPOCH;
        write_log.read(&client, &kinds, [pod.clone()], now).await;
        let found = write_log.read(&client, &kinds, [other, pod.clone(), pod.clone()], now).await;
        let changes = found.attribute(changes, &|_| pod.clone());
        let requests = *requests.lock();
        (changes.iter().map(|change| change.writer.clone()).collect(), requests)
    }

    #[tokio::test]
    async fn log_names_writers_that_managed_fields_do_not_contain() {
        let write = |revision: &str, verb: &str, manager: &str, subresource: &str| {
            let agent = "kubectl/v1.36 (linux)";
            json!({"revision": revision, "verb": verb, "manager": manager, "subresource": subresource, "agent": agent})
        };
        let log = json!([
            write("20", "create", "kubectl-create", ""),
            write("9", "delete", "kubelet", ""),
            write("7", "delete", "", ""),
            write("5", "create", "kube-scheduler", "binding"),
        ]);
        let changes = vec![
            change("delete", "7", ""),
            change("change", "5", "7"),
            change("change", "4", "5"),
            change("change", "3", "4"),
            change("delete", "9", ""),
        ];
        let (found, requests) = writers(Some(log), changes).await;
        // The log has dropped version 4, and the write after version 9 is no deletion.
        let expected = ["kubelet", "kubectl", "kube-scheduler (binding)", "kubelet (status)", "kubelet (status)"];
        assert_eq!((found, requests), (expected.map(str::to_owned).to_vec(), 2));
    }

    #[tokio::test]
    async fn cluster_without_a_log_is_not_asked_again() {
        let (found, requests) = writers(None, vec![change("change", "3", "4")]).await;
        assert_eq!((found, requests), (vec!["kubelet (status)".to_owned()], 1));
    }
}
