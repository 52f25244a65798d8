//! The readers of watches, as the server sees them: who leaves unread what it is told is cut off.
//!
//! A watch costs a place in the window and what was told last. A client that neither reads nor hangs up would keep even
//! that for ever, and the connection tells nothing of it where many watches share one.

use super::Watch;
use crate::server::Inner;
use bytes::Bytes;
use flyball_core::GroupResource;
use futures_core::Stream;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

type Step = Pin<Box<dyn Future<Output = Option<(Bytes, Watch)>> + Send>>;

fn step(mut watch: Watch) -> Step {
    Box::pin(async move { watch.next().await.map(|frames| (frames, watch)) })
}

/// Whether a connection was broken off because its other end did not read.
#[derive(Clone, Default)]
pub(crate) struct Broken(Arc<AtomicBool>);

impl Broken {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A watch that somebody reads.
struct Reader {
    table: GroupResource,
    connection: Option<Broken>,
    state: Mutex<State>,
}

struct State {
    /// What the reader waits for; nothing at the end.
    step: Option<Step>,
    /// Since when the reader has not come back for more.
    told: Option<Instant>,
}

impl Reader {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The frames of a watch as a stream.
pub(super) struct Frames {
    reader: Arc<Reader>,
    inner: Arc<Inner>,
}

impl Drop for Frames {
    fn drop(&mut self) {
        let Reader { table, connection, .. } = &*self.reader;
        if connection.as_ref().is_some_and(Broken::is_set) && self.reader.lock().step.take().is_some() {
            self.inner.readers.count_cut_off(table);
        }
    }
}

impl Stream for Frames {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let State { step: waited, told } = &mut *self.reader.lock();
        *told = None;
        let Some(waiting) = waited else { return Poll::Ready(None) };
        match std::task::ready!(waiting.as_mut().poll(cx)) {
            Some((frames, watch)) => {
                *waited = Some(step(watch));
                *told = Some(Instant::now());
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
    all: Mutex<Vec<Weak<Reader>>>,
    cut_off: Mutex<BTreeMap<GroupResource, u64>>,
}

impl Readers {
    fn all(&self) -> MutexGuard<'_, Vec<Weak<Reader>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a watch read, over a connection if it is not in process.
    pub(super) fn read(watch: Watch, connection: Option<Broken>) -> Frames {
        let (inner, table) = (watch.show.inner.clone(), watch.show.resource.table.clone());
        let state = Mutex::new(State { step: Some(step(watch)), told: None });
        let reader = Arc::new(Reader { table, connection, state });
        let mut all = inner.readers.all();
        if all.len() == all.capacity() {
            // Those that ended are let go when room is needed.
            all.retain(|reader| reader.strong_count() > 0);
        }
        all.push(Arc::downgrade(&reader));
        drop(all);
        Frames { reader, inner }
    }

    /// Counts a watch that was cut off.
    pub(super) fn count_cut_off(&self, table: &GroupResource) {
        *self.cut_off.lock().unwrap_or_else(PoisonError::into_inner).entry(table.clone()).or_default() += 1;
    }

    /// Cuts off those who have left unread for so long what they were told.
    pub(crate) fn cut_off_slow(&self, patience: Duration) {
        let readers: Vec<Arc<Reader>> = self.all().iter().filter_map(Weak::upgrade).collect();
        for reader in readers {
            let mut state = reader.lock();
            if state.told.is_some_and(|told| told.elapsed() >= patience) && state.step.take().is_some() {
                state.told = None;
                drop(state);
                tracing::warn!(resource = %reader.table, "a watch is cut off: its client does not read");
                self.count_cut_off(&reader.table);
            }
        }
    }

    /// Counts the watches under way.
    pub(crate) fn counts(&self) -> BTreeMap<GroupResource, u64> {
        let readers: Vec<Arc<Reader>> = self.all().iter().filter_map(Weak::upgrade).collect();
        let mut counts = BTreeMap::new();
        for reader in readers.iter().filter(|reader| reader.lock().step.is_some()) {
            *counts.entry(reader.table.clone()).or_default() += 1;
        }
        counts
    }

    /// Counts the watches that were cut off.
    pub(crate) fn cut_off(&self) -> BTreeMap<GroupResource, u64> {
        self.cut_off.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
