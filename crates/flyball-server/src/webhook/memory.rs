//! The memory of responses of webhooks and aggregated API servers, and of the objects that webhooks convert, charged to
//! the user of the request.

use crate::bounds::{Flow, Hold, Pool};
use crate::limits::MAX_WEBHOOK_RESPONSE_BYTES;
use flyball_core::Status;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The memory for the response of a webhook or of an aggregated API server, which is charged to the user of the
/// request. Clones share it.
///
/// Responses of webhooks of one configuration or CRD take at most a quarter of the user's share, so that a webhook
/// cannot use up the memory for the responses of others.
///
/// The default limits the length of the response to that of webhooks, and charges nobody.
#[derive(Clone, Default)]
pub struct ResponseMemory(Option<Arc<Reservation>>);

struct Reservation {
    /// The memory for the responses of this configuration or CRD to the user.
    owner: Option<Arc<Pool>>,
    /// The memory of all users.
    pool: Pool,
    flow: Flow,
    max_wait: Duration,
    max_bytes: usize,
    /// Parts of both.
    holds: Mutex<Holds>,
}

#[derive(Default)]
struct Holds {
    of_owner: Option<Hold>,
    of_all: Option<Hold>,
}

/// Adds another part to a hold.
fn add(hold: &mut Option<Hold>, more: Hold) {
    match hold {
        Some(hold) => hold.add(more),
        None => *hold = Some(more),
    }
}

/// Reserves more bytes of the memory for responses of one configuration or CRD.
async fn reserve_of_owner(
    owner: &Pool,
    flow: &Flow,
    held: usize,
    bytes: usize,
    max_wait: Duration,
) -> Result<Hold, String> {
    // A response that is longer than the limit waits until it is the only one.
    let own = match owner.limit().saturating_sub(held) {
        0 => Some(owner.charge(flow, bytes)),
        room => owner.acquire(flow, bytes.min(room), max_wait).await,
    };
    let mut own = own.ok_or("responses of this webhook to this user take too much memory, try again later")?;
    own.resize(bytes);
    Ok(own)
}

impl ResponseMemory {
    /// Creates the memory for the response of a webhook, without bytes yet.
    pub(super) fn of_webhook(owner: Arc<Pool>, pool: Pool, flow: Flow, max_wait: Duration) -> Self {
        let (owner, max_bytes, holds) = (Some(owner), MAX_WEBHOOK_RESPONSE_BYTES, Mutex::default());
        Self(Some(Arc::new(Reservation { owner, pool, flow, max_wait, max_bytes, holds })))
    }

    /// Creates the memory for a response of an aggregated API server, without bytes yet.
    pub(crate) fn of_aggregation(pool: Pool, flow: Flow, max_wait: Duration, max_bytes: usize) -> Self {
        let holds = Mutex::default();
        Self(Some(Arc::new(Reservation { owner: None, pool, flow, max_wait, max_bytes, holds })))
    }

    /// Returns the maximum number of bytes of the response.
    pub fn max_bytes(&self) -> usize {
        self.0.as_deref().map_or(MAX_WEBHOOK_RESPONSE_BYTES, |memory| memory.max_bytes)
    }

    fn held(&self) -> Option<usize> {
        self.0.as_deref().and_then(|memory| memory.holds.lock().of_all.as_ref().map(Hold::amount))
    }

    /// Waits until a response of this length may be in memory, or returns why it may not.
    pub async fn reserve(&self, bytes: usize) -> Result<(), String> {
        let max_bytes = self.max_bytes();
        if bytes > max_bytes {
            return Err(format!("the response has more than {max_bytes} bytes"));
        }
        let Some(Reservation { owner, pool, flow, max_wait, holds, .. }) = self.0.as_deref() else { return Ok(()) };
        let held = self.held().unwrap_or(0);
        let Some(bytes) = bytes.checked_sub(held).filter(|bytes| *bytes > 0) else { return Ok(()) };
        let own = match owner {
            Some(owner) => Some(reserve_of_owner(owner, flow, held, bytes, *max_wait).await?),
            None => None,
        };
        let more = match (owner, (pool.limit() / 2).saturating_sub(held)) {
            // A response that is longer than the share of a user waits until it is the user's only one.
            (None, 0) => Some(pool.charge(flow, bytes)),
            (None, room) => pool.acquire(flow, bytes.min(room), *max_wait).await,
            (Some(_), _) => pool.acquire(flow, bytes, *max_wait).await,
        };
        let what = if owner.is_some() { "webhooks" } else { "aggregated API servers" };
        let why = || format!("responses of {what} to this user take too much memory, try again later");
        let mut more = more.ok_or_else(why)?;
        more.resize(bytes);
        // Both or none: a response that waits in vain holds nothing.
        let mut holds = holds.lock();
        own.into_iter().for_each(|own| add(&mut holds.of_owner, own));
        add(&mut holds.of_all, more);
        Ok(())
    }

    /// Charges more memory for the decoded response, also beyond the limit: it is decoded and used without a wait.
    pub(crate) fn charge(&self, bytes: usize) {
        let Some(memory) = self.0.as_deref() else { return };
        let holds = &mut *memory.holds.lock();
        for hold in [&mut holds.of_owner, &mut holds.of_all].into_iter().flatten() {
            hold.resize(hold.amount() + bytes);
        }
    }
}

impl fmt::Debug for ResponseMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResponseMemory").field(&self.held()).finish()
    }
}

/// The memory of converted objects that are in use together, which is charged to the user of the request.
pub(crate) struct ConversionMemory {
    pool: Pool,
    flow: Flow,
    max_wait: Duration,
    /// Bytes that are not charged.
    free: usize,
    hold: Option<Hold>,
}

/// Bytes of converted objects that are not charged, so that few small objects may grow.
const FREE_CONVERTED_BYTES: usize = 1 << 20;

impl ConversionMemory {
    /// Creates the memory of no objects.
    pub(super) fn new(pool: Pool, flow: Flow, max_wait: Duration) -> Self {
        Self { pool, flow, max_wait, free: FREE_CONVERTED_BYTES, hold: None }
    }

    /// Adds a converted object. Only objects that are converted to more than twice their stored size are charged: the
    /// stored size has limits.
    pub(crate) async fn add(&mut self, stored: usize, converted: usize) -> Result<(), Status> {
        self.free += 2 * stored;
        let charged = converted.saturating_sub(self.free);
        self.free = self.free.saturating_sub(converted);
        self.charge(charged).await
    }

    /// Sets the memory of all converted objects, whatever their stored size.
    pub(crate) async fn set(&mut self, bytes: usize) -> Result<(), Status> {
        let bytes = bytes.saturating_sub(self.free);
        let held = self.hold.as_ref().map_or(0, Hold::amount);
        self.hold.iter_mut().filter(|_| bytes < held).for_each(|hold| hold.resize(bytes));
        self.charge(bytes.saturating_sub(held)).await
    }

    async fn charge(&mut self, bytes: usize) -> Result<(), Status> {
        if bytes > 0 {
            let more = self.pool.acquire(&self.flow, bytes, self.max_wait).await;
            let why = "objects that webhooks convert for this user take too much memory, try again later";
            let more = more.ok_or_else(|| Status::too_many_requests(why, 1))?;
            add(&mut self.hold, more);
        }
        Ok(())
    }
}

impl fmt::Debug for ConversionMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConversionMemory").field(&self.hold.as_ref().map(Hold::amount)).finish()
    }
}
