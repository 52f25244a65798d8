//! Tests of the state of a queue.

use super::*;
use flyball_core::Rng;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn key(name: impl ToString) -> ObjectKey {
    ObjectKey::new(None, &name.to_string())
}

impl State {
    fn add_key(&mut self, key: &ObjectKey, priority: Priority, now: Instant) {
        self.add(self.salt.hashed(key), priority, Cause::Start, now);
    }
}

fn queue() -> State {
    of_workers(usize::MAX, false)
}

fn of_workers(count: usize, are_shared: bool) -> State {
    let (workers, rng) = (Workers { count, are_shared }, Rng::from_seed(1));
    State::new(Backoff::default(), RetryRate::default(), workers, &rng)
}

/// Pops all ready keys and marks them as done.
fn drain(queue: &mut State, now: Instant) -> String {
    let mut order = String::new();
    while let Some(item) = queue.next(now) {
        order.push_str(item.key.name());
        queue.done(item.ticket, NextStep::Rest, false, now);
    }
    order
}

#[test]
fn fresh_keys_precede_background_keys() {
    let (mut queue, now) = (queue(), Instant::now());
    for name in ["a", "b", "c"] {
        queue.add_key(&key(name), Priority::Background, now);
    }
    for name in 10..30 {
        queue.add_key(&key(name), Priority::Fresh, now);
    }
    queue.add_key(&key("c"), Priority::Fresh, now);
    assert_eq!(drain(&mut queue, now), "101112131415161718192021222324a2526272829cb");
}

#[test]
fn backoff_grows_with_failures_and_resets_on_success() {
    let (mut queue, mut now) = (queue(), Instant::now());
    queue.add_key(&key("a"), Priority::Fresh, now);
    let mut fail = |next| {
        let item = queue.next(now).unwrap();
        queue.done(item.ticket, next, false, now);
        let wait = queue.next_delay(now).map(|at| at - now);
        now += wait.unwrap_or_default();
        wait.map(|wait| wait.as_millis())
    };
    let waits: Vec<_> = (0..20).map(|_| fail(NextStep::Retry).unwrap()).collect();
    assert_eq!(waits[..5], [5, 10, 20, 40, 80]);
    assert_eq!(waits[17..], [655_360, 1_000_000, 1_000_000]);
    assert_eq!(fail(NextStep::After(Duration::from_secs(1))), Some(1000));
    assert_eq!(fail(NextStep::Retry), Some(5));
}

#[test]
fn delay_is_capped() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.add_key(&key("a"), Priority::Fresh, now);
    let item = queue.next(now).unwrap();
    queue.done(item.ticket, NextStep::After(Duration::MAX), false, now);
    assert_eq!(queue.next_delay(now), Some(now + MAX_DELAY));
}

#[test]
fn forgotten_keys_release_memory() {
    let (mut queue, now) = (queue(), Instant::now());
    for name in 0..10_000 {
        queue.add_key(&key(name), Priority::Background, now);
        queue.add_key(&key(name), Priority::Fresh, now);
        queue.forget(&key(name));
    }
    assert_eq!((queue.keys.size(), queue.namespaces.size(), queue.ready()), ((0, 1), (0, 1), 0));
    assert_eq!(queue.next(now), None);
}

#[test]
fn retries_are_rate_limited_and_namespaces_take_turns() {
    let (mut queue, mut now) = (queue(), Instant::now());
    let names = |namespace: &'static str, n: u32| (0..n).map(move |i| ObjectKey::new(Some(namespace), &i.to_string()));
    for key in names("many", 1000).chain(names("few", 2)) {
        queue.add_key(&key, Priority::Fresh, now);
    }
    let fail_all = |queue: &mut State, now| {
        let mut order = Vec::new();
        while let Some(item) = queue.next(now) {
            order.push(item.key.to_string());
            queue.done(item.ticket, NextStep::Retry, false, now);
        }
        order
    };
    assert_eq!(fail_all(&mut queue, now).len(), 1002, "first attempts are not rate-limited");
    now += Duration::from_millis(5);
    let order = fail_all(&mut queue, now);
    assert_eq!(order.len(), 100);
    assert!(order[..4].iter().filter(|key| key.starts_with("few")).count() == 2, "{:?}", &order[..4]);
    assert_eq!(queue.throttled(), 902);
    for _ in 0..10 {
        assert!(queue.next_delay(now) <= Some(now + Duration::from_millis(100)));
        now += Duration::from_millis(100);
        assert_eq!(fail_all(&mut queue, now).len(), 1);
    }
    queue.add_key(&ObjectKey::new(Some("many"), "999"), Priority::Fresh, now);
    assert_eq!(fail_all(&mut queue, now), ["many/999"], "a change is not rate-limited");
}

#[test]
fn large_namespace_does_not_starve_a_small_one() {
    for priority in [Priority::Fresh, Priority::Background] {
        let (mut queue, now) = (queue(), Instant::now());
        for name in 0..10_000 {
            queue.add_key(&ObjectKey::new(Some("many"), &name.to_string()), priority, now);
        }
        for name in 0..10 {
            queue.add_key(&ObjectKey::new(Some("few"), &name.to_string()), priority, now);
        }
        let taken: Vec<_> = (0..20).map(|_| queue.next(now).unwrap().key).collect();
        assert_eq!(taken.iter().filter(|key| key.namespace() == Some("few")).count(), 10, "{taken:?}");
    }
}

fn in_namespace(namespace: &str, name: u32) -> ObjectKey {
    ObjectKey::new(Some(namespace), &name.to_string())
}

#[test]
fn namespaces_share_the_workers() {
    let (mut queue, now) = (of_workers(8, false), Instant::now());
    for name in 0..10 {
        queue.add_key(&in_namespace("many", name), Priority::Fresh, now);
    }
    let mut running: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
    assert_eq!(running.len(), 10, "one namespace alone has all workers");
    queue.add_key(&in_namespace("few", 0), Priority::Background, now);
    for item in running.drain(..) {
        queue.done(item.ticket, NextStep::Rest, false, now);
    }
    for name in 0..100 {
        queue.add_key(&in_namespace("many", name), Priority::Fresh, now);
    }
    let take = |queue: &mut State| {
        let taken: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
        let names: Vec<_> = taken.iter().map(|item| item.key.to_string()).collect();
        (taken, names)
    };
    let (first, names) = take(&mut queue);
    // A key of lower priority is taken as well, since others must wait.
    assert_eq!(names, ["many/0", "many/1", "many/2", "many/3", "few/0"]);
    queue.add_key(&in_namespace("third", 0), Priority::Fresh, now);
    assert_eq!(take(&mut queue).1, ["third/0"]);
    assert!(!queue.has_next(), "the others have two idle workers left");
    for item in first {
        queue.done(item.ticket, NextStep::Rest, false, now);
    }
    assert!(queue.has_next());
    assert_eq!(take(&mut queue).1, ["many/4", "many/5", "many/6", "many/7"], "in order");
}

#[test]
fn workers_remain_shared_while_a_namespace_is_idle() {
    let (mut queue, now) = (of_workers(4, false), Instant::now());
    queue.add_key(&in_namespace("few", 0), Priority::Fresh, now);
    assert_eq!(drain(&mut queue, now), "0");
    for name in 0..10 {
        queue.add_key(&in_namespace("many", name), Priority::Fresh, now);
    }
    assert_eq!(std::iter::from_fn(|| queue.next(now)).count(), 2, "others would have to wait for slow objects");
}

#[test]
fn workers_may_be_shared_from_the_start() {
    let (mut queue, now) = (of_workers(4, true), Instant::now());
    for name in 0..10 {
        queue.add_key(&key(name), Priority::Fresh, now);
    }
    let cluster_scoped: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
    assert_eq!(cluster_scoped.len(), 10);
    cluster_scoped.into_iter().for_each(|item| queue.done(item.ticket, NextStep::Rest, false, now));
    for name in 0..10 {
        queue.add_key(&in_namespace("a", name), Priority::Fresh, now);
    }
    assert_eq!(std::iter::from_fn(|| queue.next(now)).count(), 2);
}

proptest! {
    #[test]
    fn namespace_takes_a_worker_only_if_it_has_fewer_than_are_idle(
        workers in 1..9usize,
        steps in prop::collection::vec((0..4u8, 0..4usize, 0..50u32, any::<bool>()), 0..300),
    ) {
        let (mut queue, now) = (of_workers(workers, false), Instant::now());
        let names = ["a", "b", "c", "d"];
        let mut running: Vec<Item> = Vec::new();
        for name in names {
            queue.add_key(&in_namespace(name, 0), Priority::Fresh, now);
        }
        let of = |running: &[Item], name: &str| {
            running.iter().filter(|item| item.key.namespace() == Some(name)).count()
        };
        for (step, namespace, name, is_fresh) in steps {
            match step {
                0 | 1 => {
                    let priority = if is_fresh { Priority::Fresh } else { Priority::Background };
                    queue.add_key(&in_namespace(names[namespace], name), priority, now);
                }
                2 if !running.is_empty() => {
                    let item = running.remove(name as usize % running.len());
                    queue.done(item.ticket, NextStep::Rest, false, now);
                }
                _ if running.len() < workers => {
                    let (idle, has_next) = (workers - running.len(), queue.has_next());
                    let ready: Vec<_> = queue.keys.iter()
                        .filter(|slot| matches!(slot.place, Location::Lane(..)))
                        .map(|slot| slot.key.namespace().unwrap().to_owned())
                        .collect();
                    match queue.next(now) {
                        Some(item) => {
                            prop_assert!(has_next && of(&running, item.key.namespace().unwrap()) < idle);
                            running.push(item);
                        }
                        None => {
                            prop_assert!(!has_next && ready.iter().all(|name| of(&running, name) >= idle));
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// The state of a key in the simplest form.
#[derive(Clone, Debug, Default)]
struct Model {
    ready: bool,
    throttled: bool,
    running: Option<Ticket>,
    again: Option<Priority>,
    held: bool,
    due: Option<(Instant, Priority)>,
}

impl Model {
    fn want(&mut self, priority: Priority) {
        match priority {
            _ if self.running.is_some() || self.held => self.again = self.again.max(Some(priority)),
            Priority::Retry => self.throttled = !self.ready,
            Priority::Background | Priority::Fresh => (self.ready, self.throttled) = (true, false),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8, bool),
    Next,
    Done(u8, Option<u64>, bool),
    Fail(u8, bool),
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
        2 => (key.clone(), any::<bool>()).prop_map(|(key, held)| Step::Fail(key, held)),
        1 => key.clone().prop_map(Step::Release),
        1 => key.prop_map(Step::Forget),
        2 => (0..20u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn queue_matches_model(steps in prop::collection::vec(step(), 0..80)) {
        const EVERY: u64 = 7;
        const BURST: u64 = 2;
        let rate = RetryRate { interval: Duration::from_millis(EVERY), burst: BURST as u32 };
        let workers = Workers { count: usize::MAX, are_shared: true };
        let mut queue = State::new(Backoff::default(), rate, workers, &Rng::from_seed(1));
        let key = |k: u8| ObjectKey::new([None, Some("a"), Some("b")][usize::from(k % 3)], &k.to_string());
        let mut now = Instant::now();
        let mut model: BTreeMap<u8, Model> = (0..6).map(|key| (key, Model::default())).collect();
        // The tokens of the bucket, in parts.
        let mut parts = EVERY * BURST;
        // At the end, all held keys are released and all delays expire.
        let end = (0..6).map(Step::Release).chain([Step::Pass(2_000_000)]);
        let end = end.chain((0..6).flat_map(|_| [Step::Next, Step::Pass(EVERY)]));
        for step in steps.into_iter().chain(end) {
            match step {
                Step::Add(k, fresh) => {
                    let priority = if fresh { Priority::Fresh } else { Priority::Background };
                    queue.add_key(&key(k), priority, now);
                    model.get_mut(&k).unwrap().want(priority);
                }
                Step::Next => {
                    queue.wake(now);
                    for key in model.values_mut() {
                        if let Some((_, priority)) = key.due.take_if(|(due, _)| *due <= now) {
                            key.want(priority);
                        }
                    }
                    let allowed = model.values().filter(|key| key.throttled).count().min((parts / EVERY) as usize);
                    let mut freed = 0;
                    for (k, model) in model.iter_mut().filter(|(_, key)| key.throttled) {
                        let ticket = queue.find(&key(*k)).unwrap();
                        if matches!(queue.keys[ticket.0].place, Location::Lane(Priority::Background, _)) {
                            (model.throttled, model.ready) = (false, true);
                            freed += 1;
                        }
                    }
                    prop_assert_eq!(freed, allowed);
                    parts -= freed as u64 * EVERY;
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
                    queue.done(ticket, after.map_or(NextStep::Rest, NextStep::After), held, now);
                    (key.due, key.held) = (after.map(|after| (now + after, Priority::Background)), held);
                    if let Some(priority) = key.again.take() {
                        key.want(priority);
                    }
                }
                Step::Fail(k, held) => {
                    let key = model.get_mut(&k).unwrap();
                    let Some(ticket) = key.running.take() else { continue };
                    queue.done(ticket, NextStep::Retry, held, now);
                    // Another test checks the exact time; here it must be positive and finite.
                    let due = queue.keys[ticket.0].delay.unwrap().until;
                    prop_assert!(due > now && queue.next_delay(now) <= Some(due));
                    (key.due, key.held) = (Some((due, Priority::Retry)), held);
                    if let Some(priority) = key.again.take() {
                        key.want(priority);
                    }
                }
                Step::Release(k) => {
                    let model = model.get_mut(&k).unwrap();
                    let added = if model.running.is_none() { model.again.take() } else { None };
                    prop_assert_eq!(queue.release(&key(k), now), added.is_some());
                    model.held = false;
                    if let Some(priority) = added {
                        model.want(priority);
                    }
                }
                Step::Forget(k) => {
                    queue.forget(&key(k));
                    let key = model.get_mut(&k).unwrap();
                    *key = Model { running: key.running, ..Model::default() };
                }
                Step::Pass(time) => {
                    now += Duration::from_millis(time);
                    parts = (parts + time).min(EVERY * BURST);
                }
            }
            prop_assert_eq!(queue.ready(), model.values().filter(|key| key.ready).count());
            prop_assert_eq!(queue.throttled(), model.values().filter(|key| key.throttled).count());
            prop_assert_eq!(queue.running().count(), model.values().filter(|key| key.running.is_some()).count());
        }
        prop_assert!(model.values().all(|key| !key.ready && !key.throttled && key.due.is_none() && !key.held));
        for k in 0..6 {
            if let Some(ticket) = model[&k].running {
                queue.done(ticket, NextStep::Rest, false, now);
            }
            queue.forget(&key(k));
        }
        prop_assert_eq!((queue.keys.size().0, queue.namespaces.size().0), (0, 0), "no state is left");
    }
}

#[test]
fn causes_are_those_since_the_last_run() {
    let (mut queue, now) = (queue(), Instant::now());
    let causes = |item: &Item| item.causes.iter().cloned().collect::<Vec<_>>();
    queue.add_key(&key("a"), Priority::Fresh, now);
    let item = queue.next(now).unwrap();
    assert_eq!(causes(&item), [Cause::Start]);
    queue.add(queue.salt.hashed(&key("a")), Priority::Fresh, Cause::Relist, now);
    assert_eq!(
        queue.details(&key("a")).map(|(place, _, again, _)| (place, again)),
        Some((KeyState::Running(now), true))
    );
    queue.done(item.ticket, NextStep::After(Duration::from_secs(9)), false, now);
    let item = queue.next(now).unwrap();
    assert_eq!(causes(&item), [Cause::Relist]);
    queue.done(item.ticket, NextStep::Retry, false, now);
    let Some((KeyState::Backoff(until), 1, false, _)) = queue.details(&key("a")) else { panic!("no backoff") };
    let item = queue.next(until).unwrap_or_else(|| {
        queue.wake(until);
        queue.next(until).unwrap()
    });
    assert_eq!((causes(&item), item.failures), (vec![Cause::Backoff], 1));
    queue.done(item.ticket, NextStep::After(Duration::from_secs(9)), false, until);
    let due = until + Duration::from_secs(9);
    assert_eq!(queue.places().collect::<Vec<_>>(), [(&key("a"), KeyState::Delayed(due))]);
    assert_eq!(causes(&queue.next(due).unwrap()), [Cause::RequeueAfter]);
}
