//! One reconcile in a ledger.

use super::{ChangedFields, Denial, Flap};
use crate::cache::StoreId;
use crate::external::ExternalCalls;
use crate::kind::Kind;
use crate::queue::{Causes, Effect};
use flyball_core::ObjectKey;
use flyball_core::time::Timestamp;
use std::time::Duration;

/// Limit of the bytes of an error message.
pub(crate) const MAX_ERROR_BYTES: usize = 1024;
/// Limit of reads that are kept for a reconcile.
pub(crate) const MAX_READS: usize = 16;
/// Limit of writes that are kept for a reconcile.
pub(crate) const MAX_WRITES: usize = 32;

/// A reconcile that ended.
#[derive(Clone, Debug)]
pub(crate) struct ReconcileRecord {
    pub(crate) id: u64,
    pub(crate) key: ObjectKey,
    /// Resource version of the object as it was read; 0 if it did not exist.
    pub(crate) version: u64,
    pub(crate) generation: i64,
    /// True if the object was read from the API server, since the cache had not caught up.
    pub(crate) from_server: bool,
    pub(crate) began: Timestamp,
    pub(crate) waited: Duration,
    pub(crate) took: Duration,
    pub(crate) causes: Causes,
    pub(crate) accesses: Accesses,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<RecordedError>,
    /// Failures in a row, including this one.
    pub(crate) failures: u32,
    pub(crate) next: Next,
}

/// The error of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedError {
    pub(crate) message: Box<str>,
    /// HTTP status of the request that failed, if the API server responded.
    pub(crate) status: Option<u16>,
    /// The stage that denied the request.
    pub(crate) denial: Option<Denial>,
}

/// The outcome of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Requeue,
    RequeueAfter,
    /// The reconcile waits for a change.
    Wait,
    Error,
    /// The reconcile failed, and is not retried until the object changes.
    Terminal,
    Panic,
    Deadline,
    Paused,
    /// The object is being deleted, and nothing is left to do.
    Ignored,
    /// The object does not exist.
    Gone,
    /// The reconcile waits for the memory budget.
    Memory,
}

/// The next step for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing until a change.
    Change,
    RequeueAfter(Duration),
    Backoff,
}

/// The reads and writes of a reconcile. Most have none: then there is no list of them, and a record stays small.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accesses {
    /// Applies that were not sent, since they would change nothing.
    pub(crate) skipped: u32,
    list: Option<Box<AccessList>>,
}

/// The reads and writes of a reconcile that has some.
#[derive(Clone, Debug)]
pub(crate) struct AccessList {
    pub(crate) reads: Vec<Read>,
    pub(crate) reads_omitted: u32,
    pub(crate) writes: Vec<WriteRecord>,
    pub(crate) writes_omitted: u32,
    pub(crate) flaps: Vec<Flap>,
    pub(crate) external: Vec<ExternalCalls>,
}

/// The list of a reconcile without accesses.
static NO_ACCESSES: AccessList = AccessList::new();

/// The kind of an object that was read.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Store(StoreId),
    /// A kind without a cache.
    Kind(Kind),
}

/// A read.
#[derive(Clone, Debug)]
pub(crate) enum Read {
    /// An object; the version is 0 if it did not exist.
    Object(Target, ObjectKey, u64),
    /// The objects of a namespace, or of all, with their number.
    List(Target, Option<Box<str>>, usize),
}

/// The verb of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Apply,
    Update,
    Delete,
    /// A change of the finalizers, or of an annotation of the runtime.
    Finalizer,
    /// A write through the author's own client.
    Client,
}

/// A write.
#[derive(Clone, Debug)]
pub(crate) struct WriteRecord {
    pub(crate) store: StoreId,
    pub(crate) object: ObjectKey,
    pub(crate) verb: Verb,
    pub(crate) subresource: &'static str,
    /// The version in the cache before, 0 if it had none.
    pub(crate) before: u64,
    pub(crate) effect: Effect,
    pub(crate) fields: ChangedFields,
}

/// A change that filters of a controller dropped.
#[derive(Clone, Debug)]
pub(crate) struct FilteredChange {
    pub(crate) store: StoreId,
    pub(crate) object: ObjectKey,
    pub(crate) before: u64,
    /// 0 if it was deleted.
    pub(crate) after: u64,
    pub(crate) at: Timestamp,
}

impl Outcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Requeue => "requeue",
            Self::RequeueAfter => "requeue_after",
            Self::Wait => "wait",
            Self::Error => "error",
            Self::Terminal => "terminal",
            Self::Panic => "panic",
            Self::Deadline => "deadline",
            Self::Paused => "paused",
            Self::Ignored => "ignored",
            Self::Gone => "gone",
            Self::Memory => "memory",
        }
    }

    fn is_failure(self) -> bool {
        matches!(self, Self::Error | Self::Terminal | Self::Panic | Self::Deadline | Self::Wait)
    }
}

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Apply => "apply",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Finalizer => "finalizer",
            Self::Client => "client",
        }
    }
}

impl Accesses {
    /// Creates accesses without reads and writes.
    #[cfg(feature = "bench")]
    pub(crate) fn skipping(skipped: u32) -> Self {
        Self { skipped, list: None }
    }

    /// Returns the reads and writes.
    pub(crate) fn list(&self) -> &AccessList {
        self.list.as_deref().unwrap_or(&NO_ACCESSES)
    }

    /// Returns the reads and writes, to add some.
    pub(crate) fn list_mut(&mut self) -> &mut AccessList {
        self.list.get_or_insert_with(|| Box::new(AccessList::new()))
    }

    /// Adds a read, unless there are too many.
    pub(crate) fn read(&mut self, read: impl FnOnce() -> Read) {
        let list = self.list_mut();
        if list.reads.len() < MAX_READS {
            list.reads.push(read());
        } else {
            list.reads_omitted = list.reads_omitted.saturating_add(1);
        }
    }

    /// Adds a write, unless there are too many.
    pub(crate) fn write(&mut self, write: impl FnOnce() -> WriteRecord) {
        let list = self.list_mut();
        if list.writes.len() < MAX_WRITES {
            list.writes.push(write());
        } else {
            list.writes_omitted = list.writes_omitted.saturating_add(1);
        }
    }
}

impl AccessList {
    const fn new() -> Self {
        Self {
            reads: Vec::new(),
            reads_omitted: 0,
            writes: Vec::new(),
            writes_omitted: 0,
            flaps: Vec::new(),
            external: Vec::new(),
        }
    }

    fn bytes(&self) -> usize {
        let read = |read: &Read| match read {
            Read::Object(_, key, _) => key.as_str().len(),
            Read::List(_, namespace, _) => namespace.as_ref().map_or(0, |namespace| namespace.len()),
        };
        let uid = |effect: &Effect| match effect {
            Effect::Deleted(uid) => uid.len(),
            Effect::Version(_) | Effect::Unknown => 0,
        };
        let write = |write: &WriteRecord| write.object.as_str().len() + uid(&write.effect) + write.fields.heap_bytes();
        size_of::<Self>()
            + self.reads.capacity() * size_of::<Read>()
            + self.reads.iter().map(read).sum::<usize>()
            + self.writes.capacity() * size_of::<WriteRecord>()
            + self.writes.iter().map(write).sum::<usize>()
            + self.flaps.iter().map(Flap::bytes).sum::<usize>()
            + self.external.capacity() * size_of::<ExternalCalls>()
    }
}

impl ReconcileRecord {
    /// Returns true if it neither wrote nor failed.
    pub(super) fn is_quiet(&self) -> bool {
        self.accesses.list().writes.is_empty() && !self.outcome.is_failure()
    }

    /// Returns its size in memory.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.key.as_str().len()
            + self.causes.heap_bytes()
            + self.accesses.list.as_ref().map_or(0, |list| list.bytes())
            + self.error.as_ref().map_or(0, |error| error.message.len())
    }
}
