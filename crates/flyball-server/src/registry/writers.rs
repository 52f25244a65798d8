//! Log of writes: user, program and field manager of the newest ones, by revision.
//!
//! An audit log has the same data; this is a bounded window in memory, so that `flyball why` can name the origin of a
//! change on an embedded control plane. It contains no content of objects. A recording contains all origins.

use super::Registry;
use crate::admission::Writer;
use crate::catalog::Target;
use crate::storage::{Origin, Revision};
use flyball_core::ObjectKey;
use flyball_core::time::rfc3339_micro;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Limit of writes that are kept.
const MAX_WRITES: usize = 2048;
/// Limit of writes in a response.
const MAX_RESPONSE: usize = 100;
/// Limit of the bytes of a name.
const MAX_NAME_BYTES: usize = 256;

/// The newest writes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct WriteLog(Mutex<VecDeque<LoggedWrite>>);

#[derive(Debug)]
struct LoggedWrite {
    group: Arc<str>,
    resource: Arc<str>,
    key: ObjectKey,
    origin: Arc<Origin>,
}

/// The object whose writes are requested; absent parts select all.
#[derive(Debug)]
pub(crate) struct WrittenBy<'q> {
    pub(crate) group: Option<&'q str>,
    pub(crate) resource: Option<&'q str>,
    pub(crate) namespace: Option<&'q str>,
    pub(crate) name: Option<&'q str>,
}

impl Registry {
    /// Records the origin of a write that resulted in a revision.
    pub(super) fn record_write(&self, target: &Target, key: &ObjectKey, revision: Revision, writer: &Writer<'_>) {
        let origin = Arc::new(Origin {
            revision,
            time: self.clock.now(),
            subresource: target.part.name(),
            user: shortened(&writer.user.name).into(),
            agent: shortened(writer.agent).into(),
            manager: shortened(&writer.manager).into(),
            verb: shortened(writer.verb).into(),
        });
        self.store.record_origin(&origin);
        let table = &target.resource.table;
        self.writes.record(LoggedWrite {
            group: shortened(&table.group).into(),
            resource: shortened(&table.resource).into(),
            key: key.clone(),
            origin,
        });
    }
}

impl WriteLog {
    fn record(&self, write: LoggedWrite) {
        let mut writes = self.0.lock();
        let oldest = if writes.len() >= MAX_WRITES { writes.pop_front() } else { None };
        writes.push_back(write);
        drop(writes);
        drop(oldest);
    }

    /// Returns the users of the newest writes, by revision.
    pub(crate) fn users_after(&self, revision: Revision) -> HashMap<Revision, Box<str>> {
        let writes = self.0.lock();
        let origins = writes.iter().map(|write| &*write.origin);
        origins
            .filter(|origin| origin.revision > revision)
            .map(|origin| (origin.revision, origin.user.clone()))
            .collect()
    }

    /// Returns the writes of an object, newest first.
    pub(crate) fn page(&self, of: &WrittenBy<'_>) -> Value {
        let is = |expected: Option<&str>, found: &str| expected.is_none_or(|expected| expected == found);
        let matches = |write: &&LoggedWrite| {
            is(of.group, &write.group)
                && is(of.resource, &write.resource)
                && is(of.namespace, write.key.namespace().unwrap_or_default())
                && is(of.name, write.key.name())
        };
        let encode = |write: &LoggedWrite| {
            let Origin { revision, time, subresource, user, agent, manager, verb } = &*write.origin;
            json!({
                "revision": revision.to_string(),
                "time": rfc3339_micro(*time),
                "group": &*write.group,
                "resource": &*write.resource,
                "subresource": subresource,
                "namespace": write.key.namespace(),
                "name": write.key.name(),
                "user": &**user,
                "agent": &**agent,
                "manager": &**manager,
                "verb": &**verb,
            })
        };
        let writes = self.0.lock();
        let found: Vec<Value> = writes.iter().rev().filter(matches).take(MAX_RESPONSE).map(encode).collect();
        json!({"writes": found})
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_NAME_BYTES)]
}
