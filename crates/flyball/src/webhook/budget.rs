//! Memory budgets of reviews.
//!
//! The port is open to the whole cluster, so limits do not depend on data of the sender. There are three budgets.
//! Bodies are charged with the bytes that are allocated as they arrive, until their response is written. Larger
//! reviews are charged with an estimate of their parsed tree before they are parsed: eight bytes such as `{"a":0},`
//! become several hundred. Typed objects are charged with the sizes of their values while they are decoded, see
//! `meter`. This module is independent of HTTP and of the contents of a review.
//!
//! Invariants: a body smaller than its share of the budget is never rejected because of others: if the budget is
//! exhausted, some unfinished body exceeds its share, and the largest is rejected. A review of ordinary size never
//! waits for larger ones: its body is not charged, and its tree and typed objects have reserved memory, see [`Pool`].
//! The holder of a part of a budget waits only for those after it, so they cannot block each other.

use super::meter::Meter;
use bytes::{Buf, BufMut};
use http_body::Body;
use http_body_util::BodyExt;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Limit of concurrent connections, each with one body.
pub(super) const MAX_CONNECTIONS: usize = 256;
/// Memory limit of all bodies together, unless a single one may be larger.
const MAX_BODIES_BYTES: usize = 64 << 20;
/// Bytes of each body that are not charged, so that it waits for no other.
const SMALL_BODY_BYTES: usize = 64 << 10;
/// Limit of the charged bytes of all bodies.
const MAX_CHARGED_BODIES_BYTES: usize = MAX_BODIES_BYTES - MAX_CONNECTIONS * SMALL_BODY_BYTES;
/// A body's share of that limit when all connections have one, in units.
const SHARE_UNITS: u32 = (MAX_CHARGED_BODIES_BYTES / MAX_CONNECTIONS / UNIT) as u32;
/// Limits of the estimated bytes of all parsed reviews together, and of a single one.
const MAX_TREES_BYTES: usize = 96 << 20;
/// Memory limit of the typed objects of a single review, with the response to it.
const MAX_TYPED_BYTES: usize = 64 << 20;
/// Memory limit of the typed objects of all reviews of writes together, in relation to that of a single one: the
/// largest must not wait until no other is processed. An update of the largest object has the stored one as well.
const TYPED_REVIEWS: usize = 2;
/// Bytes below which a tree, and the typed objects of a review, are not charged.
const UNCHARGED_BYTES: usize = 256 << 10;
/// Size limit of charges that may use reserved memory: the tree of an ordinary review of 64 KiB takes 2 MiB.
const SMALL_CHARGE_BYTES: usize = 4 << 20;
/// Memory of a pool that is reserved for small charges.
const RESERVED_BYTES: usize = 8 << 20;
/// Size of the largest body, with its response twice, in relation to the limits of parsed reviews.
const BODY_COPIES: usize = 4;
/// Bytes that are allocated when a body starts.
const FIRST_BYTES: usize = 16 << 10;
/// Bytes per permit of a semaphore.
const UNIT: usize = 1 << 10;

/// The budgets of one operator.
#[derive(Debug)]
pub(super) struct Budget {
    bodies: Arc<Semaphore>,
    trees: Pool,
    max_trees: usize,
    /// The typed objects of reviews of writes.
    pub(super) typed: TypedBudget,
    /// The typed objects of conversions: a validator may wait for a read that needs one.
    pub(super) converted: TypedBudget,
    unfinished: Mutex<PendingBodies>,
}

/// Memory that is charged in order of arrival.
///
/// Guarantee: a charge of up to [`SMALL_CHARGE_BYTES`] never waits for a larger one, whether that is being processed or
/// waits as well. A user who writes large objects through the API server delays only reviews of large objects.
/// This depends on sizes instead of users, because conversion reviews contain no user, and the sender of other
/// reviews can claim any user.
#[derive(Debug)]
struct Pool {
    shared: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
}

/// The budget of typed objects.
#[derive(Debug)]
pub(super) struct TypedBudget {
    pool: Pool,
    /// Limit of a single review.
    max: usize,
}

/// A part of a pool; `None` if it is too small to be charged.
pub(super) type PoolCharge = Option<OwnedSemaphorePermit>;

/// The bodies that are being read, and their charges.
#[derive(Debug, Default)]
struct PendingBodies {
    last: u64,
    charges: BTreeMap<u64, Charge>,
}

#[derive(Debug)]
struct Charge {
    units: u32,
    /// Rejects the body.
    cut: Arc<Notify>,
}

/// Reason for rejecting a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Rejection {
    #[error("the review has more than {limit} bytes")]
    TooLong { limit: usize },
    #[error("the review has too many values")]
    TooManyValues,
    #[error("too many concurrent reviews")]
    Crowded,
    #[error("the review is incomplete")]
    BrokeOff,
    #[error("{0}")]
    Invalid(String),
}

/// The typed objects of a review exceed the limit of a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object takes more than {} MiB of memory when it is decoded: reduce the number of its list items", .limit >> 20)]
pub(super) struct TooLarge {
    limit: usize,
}

/// A complete body with its charge.
#[derive(Debug, Default)]
pub(super) struct Review {
    pub(super) text: Vec<u8>,
    charge: Option<OwnedSemaphorePermit>,
}

/// A response to a review.
#[derive(Debug, Default)]
pub(super) struct Response {
    pub(super) text: String,
    pub(super) charge: PoolCharge,
}

impl From<String> for Response {
    fn from(text: String) -> Self {
        Self { text, charge: None }
    }
}

/// A response that keeps its charge and that of its review until it is written.
struct ChargedResponse(
    Vec<u8>,
    #[expect(dead_code, reason = "held until the response is written")] [Option<OwnedSemaphorePermit>; 2],
);

impl AsRef<[u8]> for ChargedResponse {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Review {
    /// Replaces the body by its response.
    pub(super) fn into_response(self, response: Response) -> bytes::Bytes {
        let text = response.text.into_bytes();
        let charge = response.charge.map(|charge| shrink(charge, text.capacity()));
        bytes::Bytes::from_owner(ChargedResponse(text, [self.charge, charge]))
    }
}

impl Budget {
    /// Creates budgets that admit bodies of at least this size.
    pub(super) fn new(longest: usize) -> Self {
        let longest_parsed = longest.saturating_mul(BODY_COPIES);
        let (max_trees, max_typed) = (longest_parsed.max(MAX_TREES_BYTES), longest_parsed.max(MAX_TYPED_BYTES));
        Self {
            bodies: Arc::new(Semaphore::new(units(longest.max(MAX_CHARGED_BODIES_BYTES)) as usize)),
            trees: Pool::new(max_trees),
            max_trees,
            typed: TypedBudget::new(max_typed, TYPED_REVIEWS),
            converted: TypedBudget::new(max_typed, 1),
            unfinished: Mutex::default(),
        }
    }

    /// Reads a body of at most this size. A larger `Content-Length` is rejected before the body is read.
    pub(super) async fn read<B: Body<Data: Send> + Send>(&self, body: B, limit: usize) -> Result<Review, Rejection> {
        if body.size_hint().lower() > limit as u64 {
            return Err(Rejection::TooLong { limit });
        }
        let reading = self.begin();
        let read = async {
            let (mut body, mut review) = (pin!(body), Review::default());
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map_err(|_| Rejection::BrokeOff)?.into_data() else { continue };
                let length = review.text.len() + data.remaining();
                if length > limit {
                    return Err(Rejection::TooLong { limit });
                }
                if length > review.text.capacity() {
                    let capacity = length.max(2 * review.text.capacity()).max(FIRST_BYTES).min(limit.max(FIRST_BYTES));
                    reading.charge(&mut review.charge, units(capacity.saturating_sub(SMALL_BODY_BYTES))).await;
                    review.text.reserve_exact(capacity - review.text.len());
                }
                review.text.put(data);
            }
            Ok(review)
        };
        tokio::select! {
            biased;
            () = reading.cut.notified() => Err(Rejection::Crowded),
            read = read => read,
        }
    }

    /// Waits until a review with this estimate may be parsed.
    pub(super) async fn parse(&self, estimate: usize) -> Result<PoolCharge, Rejection> {
        if estimate > self.max_trees {
            return Err(Rejection::TooManyValues);
        }
        Ok(self.trees.charge(estimate).await)
    }

    fn begin(&self) -> BodyReader<'_> {
        let (mut unfinished, cut) = (self.unfinished(), Arc::<Notify>::default());
        unfinished.last += 1;
        let id = unfinished.last;
        unfinished.charges.insert(id, Charge { units: 0, cut: cut.clone() });
        BodyReader { budget: self, id, cut }
    }

    /// Rejects the largest unfinished bodies until this number of units is free.
    fn cut(&self, units: u32) {
        let mut unfinished = self.unfinished();
        let mut missing = units.saturating_sub(u32::try_from(self.bodies.available_permits()).unwrap_or(u32::MAX));
        while missing > 0 {
            // Bodies that were rejected before and have not released their charge yet are no longer among them.
            let above_share = unfinished.charges.iter().filter(|(_, charge)| charge.units > SHARE_UNITS);
            let largest = above_share.max_by_key(|(_, charge)| charge.units).map(|(id, _)| *id);
            let Some(charge) = largest.and_then(|id| unfinished.charges.remove(&id)) else { return };
            charge.cut.notify_one();
            missing = missing.saturating_sub(charge.units);
        }
    }

    fn unfinished(&self) -> MutexGuard<'_, PendingBodies> {
        self.unfinished.lock()
    }
}

impl Pool {
    /// Creates a pool of this many bytes, and reserved ones.
    fn new(bytes: usize) -> Self {
        let semaphore = |bytes| Arc::new(Semaphore::new(units(bytes) as usize));
        Self { shared: semaphore(bytes), reserved: semaphore(RESERVED_BYTES) }
    }

    /// Waits for this many bytes.
    async fn charge(&self, bytes: usize) -> PoolCharge {
        let acquire = |semaphore: &Arc<Semaphore>| semaphore.clone().acquire_many_owned(units(bytes));
        if bytes <= UNCHARGED_BYTES {
            return None;
        }
        let acquired = match bytes <= SMALL_CHARGE_BYTES {
            true => tokio::select! {
                biased;
                acquired = acquire(&self.shared) => acquired,
                acquired = acquire(&self.reserved) => acquired,
            },
            false => acquire(&self.shared).await,
        };
        Some(acquired.expect("the semaphore is never closed"))
    }
}

impl TypedBudget {
    /// Creates a budget for a number of the largest reviews.
    fn new(max: usize, reviews: usize) -> Self {
        Self { pool: Pool::new(max.saturating_mul(reviews)), max }
    }

    /// Decodes the typed objects of a review, and returns the result with its charge.
    pub(super) async fn decode<T>(&self, decode: impl FnMut(&Meter) -> T) -> Result<(T, PoolCharge), TooLarge> {
        self.decode_within(self.max, decode).await
    }

    /// Decodes the typed objects of a review, and after [`Meter::begin_old`] a stored object that may be as large.
    pub(super) async fn decode_with_old<T>(
        &self,
        decode: impl FnMut(&Meter) -> T,
    ) -> Result<(T, PoolCharge), TooLarge> {
        self.decode_within(self.max.saturating_mul(2), decode).await
    }

    /// Decodes within a memory limit. The function is repeated with more memory if it exceeds its meter: its size is
    /// not known in advance.
    async fn decode_within<T>(
        &self,
        max: usize,
        mut decode: impl FnMut(&Meter) -> T,
    ) -> Result<(T, PoolCharge), TooLarge> {
        let mut limit = UNCHARGED_BYTES;
        loop {
            let charge = self.pool.charge(limit).await;
            let meter = Meter::new(limit.min(self.max)).with_old(limit);
            let decoded = decode(&meter);
            if !meter.is_exceeded() {
                return Ok((decoded, charge.map(|charge| shrink(charge, meter.peak()))));
            }
            if limit >= max {
                return Err(TooLarge { limit: self.max });
            }
            limit = limit.saturating_mul(4).min(max);
        }
    }
}

/// A body that is being read.
struct BodyReader<'a> {
    budget: &'a Budget,
    id: u64,
    cut: Arc<Notify>,
}

impl BodyReader<'_> {
    /// Raises a charge to this number of units.
    async fn charge(&self, charge: &mut Option<OwnedSemaphorePermit>, units: u32) {
        let acquired = charge.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = units.saturating_sub(u32::try_from(acquired).unwrap_or(u32::MAX));
        if more == 0 {
            return;
        }
        let bodies = &self.budget.bodies;
        let got = match bodies.clone().try_acquire_many_owned(more) {
            Ok(got) => got,
            Err(_) => {
                self.budget.cut(more);
                bodies.clone().acquire_many_owned(more).await.expect("the semaphore is never closed")
            }
        };
        match charge {
            Some(charge) => charge.merge(got),
            None => *charge = Some(got),
        }
        if let Some(charge) = self.budget.unfinished().charges.get_mut(&self.id) {
            charge.units = units;
        }
    }
}

impl Drop for BodyReader<'_> {
    fn drop(&mut self) {
        self.budget.unfinished().charges.remove(&self.id);
    }
}

/// Reduces a charge to a number of bytes.
fn shrink(mut charge: OwnedSemaphorePermit, bytes: usize) -> OwnedSemaphorePermit {
    let surplus = charge.num_permits().saturating_sub(bytes.div_ceil(UNIT));
    drop(charge.split(surplus));
    charge
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

/// Estimates an upper bound of the parsed size of a JSON text from its punctuation: a map allocates the first node of
/// a tree, an item twice the size of a value, since lists grow by doubling.
pub(super) fn tree_bytes(text: &[u8]) -> usize {
    let marks = text.iter().map(|byte| match byte {
        b'{' => 700,
        b'[' | b',' | b':' => 64,
        _ => 0,
    });
    text.len() + marks.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};
    use std::convert::Infallible;
    use std::future::pending;

    const PIECE: usize = 256 << 10;

    /// A body of `count` pieces, which then ends or stalls.
    fn pieces(count: usize, ends: bool) -> impl Body<Data = Bytes, Error = Infallible> + Send {
        let piece = Bytes::from(vec![b' '; PIECE]);
        StreamBody::new(stream::unfold(0, move |sent| {
            let piece = piece.clone();
            async move {
                tokio::task::yield_now().await;
                match sent == count {
                    true if ends => None,
                    true => pending().await,
                    false => Some((Ok(Frame::data(piece)), sent + 1)),
                }
            }
        }))
    }

    #[tokio::test]
    async fn body_over_the_limit_is_rejected_before_reading() {
        let budget = Budget::new(0);
        let long = Full::new(Bytes::from(vec![0; 11]));
        assert_eq!(budget.read(long, 10).await.unwrap_err(), Rejection::TooLong { limit: 10 });
        let grows = budget.read(pieces(5, true), 4 * PIECE).await;
        assert_eq!(grows.unwrap_err(), Rejection::TooLong { limit: 4 * PIECE }, "without a Content-Length");
        let whole = budget.read(pieces(4, true), 4 * PIECE).await.unwrap();
        assert_eq!((whole.text.len(), whole.text.capacity()), (4 * PIECE, 4 * PIECE));
        let charged = || (MAX_CHARGED_BODIES_BYTES / UNIT - budget.bodies.available_permits()) * UNIT;
        assert_eq!(charged(), 4 * PIECE - SMALL_BODY_BYTES);
        let response = whole.into_response("short".to_owned().into());
        assert_eq!(charged(), 4 * PIECE - SMALL_BODY_BYTES, "until the response is written");
        drop(response);
        assert_eq!(charged(), 0);
    }

    #[tokio::test]
    async fn largest_unfinished_bodies_are_evicted() {
        let budget = Arc::new(Budget::new(0));
        let mut greedy = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let budget = budget.clone();
            // A rejected sender starts again.
            greedy.spawn(async move {
                loop {
                    assert_eq!(budget.read(pieces(60, false), 16 << 20).await.unwrap_err(), Rejection::Crowded);
                }
            });
        }
        for _ in 0..100 {
            let small = Full::new(Bytes::from(vec![b' '; PIECE / 4]));
            let small = budget.read(small, 8 << 20).await.expect("a body below its share is always accepted");
            assert_eq!(small.text.len(), PIECE / 4);
            tokio::task::yield_now().await;
        }
        let whole = budget.read(pieces(4, true), 8 << 20).await;
        assert!(matches!(whole, Ok(_) | Err(Rejection::Crowded)));
        drop(whole);
        greedy.abort_all();
        while greedy.join_next().await.is_some() {}
        assert_eq!(budget.bodies.available_permits(), MAX_CHARGED_BODIES_BYTES / UNIT, "all charges are released");
        assert!(budget.unfinished().charges.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn body_with_many_values_waits_or_is_rejected() {
        let budget = Budget::new(0);
        assert!(budget.parse(tree_bytes(br#"{"a": [1, 2]}"#)).await.unwrap().is_none());
        let maps = r#"{"a":0},"#.repeat(1 << 17);
        assert_eq!(budget.parse(tree_bytes(maps.as_bytes())).await.unwrap_err(), Rejection::TooManyValues);
        let soon = std::time::Duration::from_secs(1);
        let first = budget.parse(tree_bytes("0,".repeat(1 << 19).as_bytes())).await.unwrap().unwrap();
        let mut waits = pin!(budget.parse(90 << 20));
        assert!(tokio::time::timeout(soon, &mut waits).await.is_err(), "there is no room for both");
        drop(first);
        assert!(tokio::time::timeout(soon, &mut waits).await.is_ok_and(|parses| parses.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn small_bodies_and_charges_wait_for_no_larger_ones() {
        let (budget, soon) = (Budget::new(0), std::time::Duration::from_secs(1));
        let mut large = Vec::new();
        // Complete bodies are not rejected: they wait for their responses.
        for _ in 0..MAX_CHARGED_BODIES_BYTES / (8 << 20) {
            large.push(budget.read(pieces(32, true), 8 << 20).await.unwrap());
        }
        let mut waits = pin!(budget.read(pieces(32, true), 8 << 20));
        assert!(tokio::time::timeout(soon, &mut waits).await.is_err(), "all memory of bodies is charged");
        let small = Full::new(Bytes::from(vec![b' '; SMALL_BODY_BYTES]));
        assert!(tokio::time::timeout(soon, budget.read(small, 8 << 20)).await.is_ok_and(|read| read.is_ok()));

        let _first = budget.parse(MAX_TREES_BYTES).await.unwrap();
        let mut waits = pin!(budget.parse(MAX_TREES_BYTES));
        assert!(tokio::time::timeout(soon, &mut waits).await.is_err(), "all shared memory is charged");
        let mut small = Vec::new();
        for _ in 0..RESERVED_BYTES / SMALL_CHARGE_BYTES {
            small.push(tokio::time::timeout(soon, budget.parse(SMALL_CHARGE_BYTES)).await.expect("it waits"));
        }
        let mut last = pin!(budget.parse(SMALL_CHARGE_BYTES));
        assert!(tokio::time::timeout(soon, &mut last).await.is_err(), "the reserved memory is bounded");
        small.pop();
        assert!(tokio::time::timeout(soon, &mut last).await.is_ok(), "it waits for a small one only");
    }

    #[tokio::test(start_paused = true)]
    async fn large_typed_objects_wait_neither_for_one_review_nor_for_conversions() {
        let (budget, soon) = (Budget::new(0), std::time::Duration::from_secs(1));
        let half = |meter: &Meter| meter.charge(MAX_TYPED_BYTES / 2).is_ok();
        let (_, first) = budget.typed.decode(half).await.unwrap();
        assert_eq!(first.as_ref().unwrap().num_permits(), MAX_TYPED_BYTES / 2 / UNIT, "what is used");
        let second = tokio::time::timeout(soon, budget.typed.decode(half)).await;
        let (_, second) = second.expect("there is room for a second one").unwrap();
        let (_, third) = budget.typed.decode(half).await.unwrap();
        let mut waits = pin!(budget.typed.decode(half));
        assert!(tokio::time::timeout(soon, &mut waits).await.is_err(), "it may need as much as a single review");
        let converted = tokio::time::timeout(soon, budget.converted.decode(half)).await;
        assert!(converted.is_ok_and(|converted| converted.is_ok()), "conversions do not wait for reviews");
        drop(first);
        assert!(tokio::time::timeout(soon, &mut waits).await.is_ok());
        drop((second, third));
        let all = |meter: &Meter| meter.charge(MAX_TYPED_BYTES + 1).is_ok();
        assert_eq!(budget.typed.decode(all).await.unwrap_err(), TooLarge { limit: MAX_TYPED_BYTES });
    }

    #[test]
    fn estimate_covers_the_size_of_the_tree() {
        // The sizes are those that `Value` allocates for the text.
        for (text, least) in [("[0,0,0,0]", 4 * 32), (r#"[{"a":0},{"a":0}]"#, 2 * (32 + 632)), ("[[],[],[]]", 3 * 32)] {
            assert!(tree_bytes(text.as_bytes()) >= least, "{text}");
        }
    }
}
