//! Which key is reconciled next: a work queue as a plain structure, with time as an argument.
//!
//! A key is in one lane at most, in the hands of one worker at most, and has one delay at most. A key that is wanted while
//! a worker has it, or while it is held back, is remembered once and comes when it may.

use flyball_core::{ObjectKey, Rng};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::time::Duration;
use tokio::time::Instant;

/// How urgent a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Start-up, retries and resyncs: nobody looks at the screen and waits.
    Background,
    /// Something changed.
    Fresh,
}

/// Of so many keys handed out, one is taken from the background even while there are fresh ones.
const BACKGROUND_SHARE: u32 = 16;

/// The longest delay; a later time is the same as never.
const LONGEST_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long a key waits after failures in a row: `first` after one, twice as long after each further one, never more
/// than `longest`.
///
/// ```
/// # use flyball::Backoff;
/// # use std::time::Duration;
/// // For a world outside that does not like to be asked again at once.
/// let patient = Backoff { first: Duration::from_secs(5), ..Backoff::default() };
/// assert_eq!(patient.longest, Duration::from_secs(1000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl Default for Backoff {
    /// 5 ms, 10 ms, 20 ms … 1,000 s, as client-go's controllers wait.
    fn default() -> Self {
        Self { first: Duration::from_millis(5), longest: Duration::from_secs(1000) }
    }
}

impl Backoff {
    fn after(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.longest).min(LONGEST_DELAY)
    }
}

/// What is to become of a key that a worker gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, until something changes.
    Rest,
    /// Once more after the backoff.
    Retry,
    /// Once more after this time.
    After(Duration),
}

/// Names a key while it is in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u32);

/// A key that a worker got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) ticket: Ticket,
    pub(crate) key: ObjectKey,
    /// How long it was ready.
    pub(crate) waited: Duration,
    /// How often it failed in a row.
    pub(crate) failures: u32,
}

/// The queue of one controller.
#[derive(Debug)]
pub(crate) struct State {
    backoff: Backoff,
    tickets: HashMap<ObjectKey, Ticket, Keyed>,
    slots: Vec<Slot>,
    free: Vec<Ticket>,
    fresh: VecDeque<(Ticket, u64)>,
    background: VecDeque<(Ticket, u64)>,
    /// Fresh keys handed out since the last one of the background.
    streak: u32,
    delayed: BTreeSet<(Instant, u64, Ticket)>,
    /// Numbers places in lanes and delays, so that a stale one is told from the one that counts, and equal ones keep
    /// the order in which they were asked for.
    sequence: u64,
    ready: usize,
    pub(crate) adds: u64,
    pub(crate) retries: u64,
}

/// Everything about one key. A slot with nothing to tell is given to another key.
#[derive(Debug)]
struct Slot {
    key: ObjectKey,
    place: Place,
    /// Wanted once the worker gives it back, or once it is no longer held back.
    again: Option<Priority>,
    held: bool,
    delay: Option<(Instant, u64)>,
    failures: u32,
    /// Whether the run under way was started by the backoff, and not by a change in the meantime.
    retried: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    /// In a lane since this time, at the place with this number.
    Lane(Priority, Instant, u64),
    /// In the hands of a worker since this time.
    Worker(Instant),
}

impl Place {
    /// Returns the place in a lane if it has this number, else none.
    fn if_numbered(self, number: u64) -> Self {
        match self {
            Self::Lane(.., current) if current == number => self,
            Self::Nowhere | Self::Lane(..) | Self::Worker(_) => Self::Nowhere,
        }
    }
}

/// Hashes keys in a way that nobody outside can foresee and a simulation can repeat.
#[derive(Clone, Debug)]
struct Keyed(u64);

impl BuildHasher for Keyed {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

impl State {
    /// Makes an empty queue.
    pub(crate) fn new(backoff: Backoff, rng: &Rng) -> Self {
        Self {
            backoff,
            tickets: HashMap::with_hasher(Keyed(rng.next())),
            slots: Vec::new(),
            free: Vec::new(),
            fresh: VecDeque::new(),
            background: VecDeque::new(),
            streak: 0,
            delayed: BTreeSet::new(),
            sequence: 0,
            ready: 0,
            adds: 0,
            retries: 0,
        }
    }

    /// Wants a key to be reconciled as soon as may be.
    pub(crate) fn add(&mut self, key: &ObjectKey, priority: Priority, now: Instant) {
        self.adds += 1;
        let ticket = self.ticket(key);
        self.want(ticket, priority, now);
    }

    /// Hands out the next key, if one is ready.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Item> {
        self.wake(now);
        loop {
            let background = self.fresh.is_empty() || self.streak >= BACKGROUND_SHARE - 1;
            let lane = match background && !self.background.is_empty() {
                true => &mut self.background,
                false => &mut self.fresh,
            };
            let (ticket, number) = lane.pop_front()?;
            let slot = &mut self.slots[ticket.0 as usize];
            // A key that became fresh, or was forgotten, left a stale place behind.
            let Place::Lane(priority, since, _) = slot.place.if_numbered(number) else { continue };
            self.streak = if priority == Priority::Fresh { self.streak + 1 } else { 0 };
            self.ready -= 1;
            slot.place = Place::Worker(now);
            slot.retried = slot.delay.is_none();
            let (key, failures) = (slot.key.clone(), slot.failures);
            self.undelay(ticket);
            return Some(Item { ticket, key, waited: now - since, failures });
        }
    }

    /// Takes a key back from its worker. A key that is `held` stays out of the lanes until it is released.
    pub(crate) fn done(&mut self, ticket: Ticket, next: Next, held: bool, now: Instant) {
        let slot = self.slot(ticket);
        slot.place = Place::Nowhere;
        slot.held = held;
        match next {
            Next::Rest => slot.failures = 0,
            Next::After(delay) => {
                slot.failures = 0;
                self.delay(ticket, now + delay.min(LONGEST_DELAY));
            }
            Next::Retry => {
                // Runs that changes started do not count: ten changes in a second are no reason to wait for long.
                if slot.retried || slot.failures == 0 {
                    slot.failures = slot.failures.saturating_add(1);
                }
                let failures = slot.failures;
                self.retries += 1;
                self.delay(ticket, now + self.backoff.after(failures));
            }
        }
        if let Some(priority) = self.slot(ticket).again.take() {
            self.want(ticket, priority, now);
        }
        self.forget_if_idle(ticket);
    }

    /// Lets a key go on that was held back, and tells whether it was wanted.
    pub(crate) fn release(&mut self, key: &ObjectKey, now: Instant) -> bool {
        let Some(ticket) = self.tickets.get(key).copied() else { return false };
        let slot = self.slot(ticket);
        slot.held = false;
        let wanted = match slot.place {
            Place::Nowhere => slot.again.take(),
            Place::Lane(..) | Place::Worker(_) => None,
        };
        if let Some(priority) = wanted {
            self.want(ticket, priority, now);
        }
        self.forget_if_idle(ticket);
        wanted.is_some()
    }

    /// Drops what is known of a key whose object is gone.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        let Some(ticket) = self.tickets.get(key).copied() else { return };
        self.undelay(ticket);
        let slot = self.slot(ticket);
        (slot.again, slot.failures, slot.held) = (None, 0, false);
        if let Place::Lane(..) = slot.place {
            slot.place = Place::Nowhere;
            self.ready -= 1;
        }
        self.forget_if_idle(ticket);
    }

    /// Returns the time at which the next delayed key becomes ready.
    pub(crate) fn next_delay(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, ..)| *at)
    }

    /// Tells whether a worker has this key.
    pub(crate) fn is_running(&self, key: &ObjectKey) -> bool {
        self.tickets.get(key).is_some_and(|ticket| matches!(self.slots[ticket.0 as usize].place, Place::Worker(_)))
    }

    /// Returns how many keys are ready.
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// Returns the keys that workers have.
    pub(crate) fn running_keys(&self) -> Vec<ObjectKey> {
        let running = self.slots.iter().filter(|slot| matches!(slot.place, Place::Worker(_)));
        running.map(|slot| slot.key.clone()).collect()
    }

    /// Returns since when each running key has been running.
    pub(crate) fn running(&self) -> impl Iterator<Item = Instant> {
        self.slots.iter().filter_map(|slot| match slot.place {
            Place::Worker(since) => Some(since),
            Place::Nowhere | Place::Lane(..) => None,
        })
    }

    fn slot(&mut self, ticket: Ticket) -> &mut Slot {
        &mut self.slots[ticket.0 as usize]
    }

    fn ticket(&mut self, key: &ObjectKey) -> Ticket {
        if let Some(ticket) = self.tickets.get(key) {
            return *ticket;
        }
        let slot = Slot {
            key: key.clone(),
            place: Place::Nowhere,
            again: None,
            held: false,
            delay: None,
            failures: 0,
            retried: false,
        };
        let ticket = match self.free.pop() {
            Some(ticket) => {
                self.slots[ticket.0 as usize] = slot;
                ticket
            }
            None => {
                self.slots.push(slot);
                Ticket(u32::try_from(self.slots.len() - 1).expect("a cache of 4 billion objects fits in no memory"))
            }
        };
        self.tickets.insert(key.clone(), ticket);
        ticket
    }

    /// Gives the slot to whoever comes next, unless there is something to remember.
    fn forget_if_idle(&mut self, ticket: Ticket) {
        let slot = &self.slots[ticket.0 as usize];
        let idle = slot.place == Place::Nowhere && slot.again.is_none() && !slot.held && slot.delay.is_none();
        if idle && slot.failures == 0 && self.tickets.remove(&slot.key).is_some() {
            self.free.push(ticket);
        }
    }

    fn want(&mut self, ticket: Ticket, priority: Priority, now: Instant) {
        let slot = &mut self.slots[ticket.0 as usize];
        match slot.place {
            Place::Nowhere if !slot.held => {
                self.ready += 1;
                self.enter(ticket, priority, now);
            }
            Place::Lane(current, since, _) if current < priority => self.enter(ticket, priority, since),
            Place::Lane(..) => {}
            Place::Nowhere | Place::Worker(_) => slot.again = slot.again.max(Some(priority)),
        }
    }

    fn enter(&mut self, ticket: Ticket, priority: Priority, since: Instant) {
        self.sequence += 1;
        let number = self.sequence;
        self.slot(ticket).place = Place::Lane(priority, since, number);
        let lane = match priority {
            Priority::Fresh => &mut self.fresh,
            Priority::Background => &mut self.background,
        };
        lane.push_back((ticket, number));
        // Stale places are few, unless objects come and go while no worker takes any: then they are swept out.
        if lane.len() > 2 * self.ready + 1024 {
            let slots = &self.slots;
            lane.retain(|(ticket, number)| slots[ticket.0 as usize].place.if_numbered(*number) != Place::Nowhere);
        }
    }

    /// Delays a key; of two delays the earlier one counts.
    fn delay(&mut self, ticket: Ticket, at: Instant) {
        if self.slot(ticket).delay.is_some_and(|(earlier, _)| earlier <= at) {
            return;
        }
        self.undelay(ticket);
        self.sequence += 1;
        let sequence = self.sequence;
        self.slot(ticket).delay = Some((at, sequence));
        self.delayed.insert((at, sequence, ticket));
    }

    fn undelay(&mut self, ticket: Ticket) {
        if let Some((at, sequence)) = self.slot(ticket).delay.take() {
            self.delayed.remove(&(at, sequence, ticket));
        }
    }

    /// Readies the keys whose delay is over.
    pub(crate) fn wake(&mut self, now: Instant) {
        while let Some((at, _, ticket)) = self.delayed.first().copied().filter(|(at, ..)| *at <= now) {
            self.undelay(ticket);
            self.want(ticket, Priority::Background, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::Rng;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(name: impl ToString) -> ObjectKey {
        ObjectKey::new(None, &name.to_string())
    }

    fn queue() -> State {
        State::new(Backoff::default(), &Rng::from_seed(1))
    }

    /// Takes all keys that are ready, and gives them back as done.
    fn drain(queue: &mut State, now: Instant) -> String {
        let mut order = String::new();
        while let Some(item) = queue.next(now) {
            order.push_str(item.key.name());
            queue.done(item.ticket, Next::Rest, false, now);
        }
        order
    }

    #[test]
    fn fresh_keys_come_first_and_the_others_are_not_forgotten() {
        let (mut queue, now) = (queue(), Instant::now());
        for name in ["a", "b", "c"] {
            queue.add(&key(name), Priority::Background, now);
        }
        for name in 10..30 {
            queue.add(&key(name), Priority::Fresh, now);
        }
        queue.add(&key("c"), Priority::Fresh, now);
        assert_eq!(drain(&mut queue, now), "101112131415161718192021222324a2526272829cb");
    }

    #[test]
    fn the_wait_grows_with_failures_and_is_forgotten_after_success() {
        let (mut queue, mut now) = (queue(), Instant::now());
        queue.add(&key("a"), Priority::Fresh, now);
        let mut fail = |next| {
            let item = queue.next(now).unwrap();
            queue.done(item.ticket, next, false, now);
            let wait = queue.next_delay().map(|at| at - now);
            now += wait.unwrap_or_default();
            wait.map(|wait| wait.as_millis())
        };
        let waits: Vec<_> = (0..20).map(|_| fail(Next::Retry).unwrap()).collect();
        assert_eq!(waits[..5], [5, 10, 20, 40, 80]);
        assert_eq!(waits[17..], [655_360, 1_000_000, 1_000_000]);
        assert_eq!(fail(Next::After(Duration::from_secs(1))), Some(1000));
        assert_eq!(fail(Next::Retry), Some(5));
    }

    #[test]
    fn a_delay_of_a_thousand_years_is_a_long_one() {
        let (mut queue, now) = (queue(), Instant::now());
        queue.add(&key("a"), Priority::Fresh, now);
        let item = queue.next(now).unwrap();
        queue.done(item.ticket, Next::After(Duration::MAX), false, now);
        assert_eq!(queue.next_delay(), Some(now + LONGEST_DELAY));
    }

    #[test]
    fn keys_that_come_and_go_leave_nothing_behind() {
        let (mut queue, now) = (queue(), Instant::now());
        for name in 0..10_000 {
            queue.add(&key(name), Priority::Background, now);
            queue.add(&key(name), Priority::Fresh, now);
            queue.forget(&key(name));
        }
        assert_eq!((queue.slots.len(), queue.free.len(), queue.tickets.len(), queue.ready()), (1, 1, 0, 0));
        assert!(queue.fresh.len() + queue.background.len() <= 2 * 1025);
        assert_eq!(queue.next(now), None);
    }

    /// What a key is in, told as simply as possible.
    #[derive(Clone, Debug, Default)]
    struct Model {
        ready: bool,
        running: Option<Ticket>,
        again: bool,
        held: bool,
        due: Option<Instant>,
    }

    impl Model {
        fn want(&mut self) {
            if self.running.is_some() || self.held { self.again = true } else { self.ready = true }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u8, bool),
        Next,
        Done(u8, Option<u64>, bool),
        Fail(u8),
        Release(u8),
        Forget(u8),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = 0..6u8;
        prop_oneof![
            4 => (key.clone(), any::<bool>()).prop_map(|(key, fresh)| Step::Add(key, fresh)),
            5 => Just(Step::Next),
            3 => (key.clone(), proptest::option::of(0..50u64), any::<bool>()).prop_map(|(k, a, h)| Step::Done(k, a, h)),
            1 => key.clone().prop_map(Step::Fail),
            1 => key.clone().prop_map(Step::Release),
            1 => key.prop_map(Step::Forget),
            2 => (0..20u64).prop_map(Step::Pass),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_queue_does_what_the_model_does(steps in prop::collection::vec(step(), 0..80)) {
            let (mut queue, mut now) = (queue(), Instant::now());
            let mut model: BTreeMap<u8, Model> = (0..6).map(|key| (key, Model::default())).collect();
            // At the end, everything held is released and everything delayed comes due.
            let end = (0..6).map(Step::Release).chain([Step::Pass(2_000_000)]).chain((0..6).map(|_| Step::Next));
            for step in steps.into_iter().chain(end) {
                match step {
                    Step::Add(k, fresh) => {
                        queue.add(&key(k), if fresh { Priority::Fresh } else { Priority::Background }, now);
                        model.get_mut(&k).unwrap().want();
                    }
                    Step::Next => {
                        for key in model.values_mut() {
                            if key.due.take_if(|due| *due <= now).is_some() {
                                key.want();
                            }
                        }
                        match queue.next(now) {
                            Some(item) => {
                                let key = model.get_mut(&item.key.name().parse().unwrap()).unwrap();
                                prop_assert!(key.ready && key.running.is_none() && !key.held, "{item:?}");
                                (key.ready, key.running, key.due) = (false, Some(item.ticket), None);
                            }
                            None => prop_assert!(model.values().all(|key| !key.ready)),
                        }
                    }
                    Step::Done(k, after, held) => {
                        let key = model.get_mut(&k).unwrap();
                        let Some(ticket) = key.running.take() else { continue };
                        let after = after.map(Duration::from_millis);
                        queue.done(ticket, after.map_or(Next::Rest, Next::After), held, now);
                        (key.due, key.held) = (after.map(|after| now + after), held);
                        if std::mem::take(&mut key.again) {
                            key.want();
                        }
                    }
                    Step::Fail(k) => {
                        let key = model.get_mut(&k).unwrap();
                        let Some(ticket) = key.running.take() else { continue };
                        let before = queue.next_delay();
                        queue.done(ticket, Next::Retry, false, now);
                        // How long is another test's business; here it has to be some time, and not for ever.
                        let slot = &queue.slots[ticket.0 as usize];
                        key.due = Some(slot.delay.unwrap().0);
                        prop_assert!(key.due > Some(now) && before.is_none_or(|_| queue.next_delay() <= key.due));
                        if std::mem::take(&mut key.again) {
                            key.want();
                        }
                    }
                    Step::Release(k) => {
                        let key = model.get_mut(&k).unwrap();
                        let wanted = key.running.is_none() && key.again;
                        prop_assert_eq!(queue.release(&super::tests::key(k), now), wanted);
                        key.held = false;
                        if wanted {
                            key.again = false;
                            key.want();
                        }
                    }
                    Step::Forget(k) => {
                        queue.forget(&key(k));
                        let key = model.get_mut(&k).unwrap();
                        *key = Model { running: key.running, ..Model::default() };
                    }
                    Step::Pass(time) => now += Duration::from_millis(time),
                }
                prop_assert_eq!(queue.ready(), model.values().filter(|key| key.ready).count());
                prop_assert_eq!(queue.running().count(), model.values().filter(|key| key.running.is_some()).count());
            }
            prop_assert!(model.values().all(|key| !key.ready && key.due.is_none() && !key.held));
        }
    }
}
