//! The readers of watches: the current ones, and those that were cut off because they read too slowly.
//!
//! A watch costs a position in the window and its last sent events. The transport closes clients that do not read them
//! (`serve`); here they are counted.

use super::Watch;
use super::views::EncodedViews;
use crate::connection::RequestConnection;
use bytes::Bytes;
use flyball_core::GroupResource;
use futures_core::Stream;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

type Step = Pin<Box<dyn Future<Output = Option<(Bytes, Watch)>> + Send>>;

fn step(mut watch: Watch) -> Step {
    Box::pin(async move { watch.next().await.map(|frames| (frames, watch)) })
}

/// A watch with a client.
struct Reader {
    table: GroupResource,
    connection: Option<RequestConnection>,
    /// The step that the reader waits for; nothing at the end.
    step: Mutex<Option<Step>>,
}

impl Reader {
    fn step(&self) -> MutexGuard<'_, Option<Step>> {
        self.step.lock()
    }
}

/// The frames of a watch as a stream.
pub(super) struct Frames {
    reader: Arc<Reader>,
    readers: Arc<Readers>,
}

impl Drop for Frames {
    fn drop(&mut self) {
        let Reader { table, connection, .. } = &*self.reader;
        if connection.as_ref().is_some_and(RequestConnection::is_slow) && self.reader.step().take().is_some() {
            self.readers.count_terminated(table);
        }
    }
}

impl Stream for Frames {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let waited = &mut *self.reader.step();
        let Some(waiting) = waited else { return Poll::Ready(None) };
        match std::task::ready!(waiting.as_mut().poll(cx)) {
            Some((frames, watch)) => {
                *waited = Some(step(watch));
                Poll::Ready(Some(frames))
            }
            None => {
                *waited = None;
                Poll::Ready(None)
            }
        }
    }
}

/// The readers of all watches.
#[derive(Default)]
pub(crate) struct Readers {
    pub(super) views: Arc<EncodedViews>,
    all: Mutex<Vec<Weak<Reader>>>,
    terminated: Mutex<BTreeMap<GroupResource, u64>>,
}

impl Readers {
    fn all(&self) -> MutexGuard<'_, Vec<Weak<Reader>>> {
        self.all.lock()
    }

    /// Adds a watch, with its connection if it is not in process.
    pub(super) fn read(watch: Watch, connection: Option<RequestConnection>) -> Frames {
        let (readers, table) = (watch.readers.clone(), watch.events.encoder.resource.table.clone());
        let reader = Arc::new(Reader { table, connection, step: Mutex::new(Some(step(watch))) });
        let mut all = readers.all();
        if all.len() == all.capacity() {
            // Ended ones are removed when the list is full.
            all.retain(|reader| reader.strong_count() > 0);
        }
        all.push(Arc::downgrade(&reader));
        drop(all);
        Frames { reader, readers }
    }

    /// Counts a watch that was cut off.
    pub(super) fn count_terminated(&self, table: &GroupResource) {
        *self.terminated.lock().entry(table.clone()).or_default() += 1;
    }

    /// Counts the watches under way.
    pub(crate) fn counts(&self) -> BTreeMap<GroupResource, u64> {
        let readers: Vec<Arc<Reader>> = self.all().iter().filter_map(Weak::upgrade).collect();
        let mut counts = BTreeMap::new();
        for reader in readers.iter().filter(|reader| reader.step().is_some()) {
            *counts.entry(reader.table.clone()).or_default() += 1;
        }
        counts
    }

    /// Counts the watches that were cut off.
    pub(crate) fn terminated(&self) -> BTreeMap<GroupResource, u64> {
        self.terminated.lock().clone()
    }
}
