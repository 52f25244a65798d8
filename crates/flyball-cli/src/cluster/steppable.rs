//! A runtime on a thread of its own whose time can be paused and stepped, for a whole control plane.
//!
//! Everything that runs on it takes the time from tokio, or from its [clock](SteppableRuntime::clock), which follows
//! tokio. It runs in real time until it is paused. While time is paused, tokio advances it to the next timer whenever
//! no task can run; a [`TimeHold`] prevents that. A step releases the hold until its end is reached. So every timer
//! fires in order and at its own time, and what it causes is done before the next one.
//!
//! Decision: `docs/decisions/051-steppable-time.md`.
//!
//! Invariant: what is not idle although no task can run, such as a request to a process, has a hold.

use flyball_core::Clock;
use flyball_core::time::{SignedDuration, Timestamp, saturating_add};
use parking_lot::Mutex;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{self, Instant, sleep, sleep_until};

/// Limit of one step.
pub(crate) const MAX_STEP: Duration = Duration::from_secs(30 * 24 * 3600);
/// Limit of the real time of one step.
const MAX_STEP_TIME: Duration = Duration::from_secs(120);
/// Number of parts of a step, and their shortest duration. Clients get real time between them.
const PARTS: u32 = 200;
const MIN_PART: Duration = Duration::from_secs(1);
/// Real time between two parts.
const PART_INTERVAL: Duration = Duration::from_millis(5);

/// Rejections of a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StepError {
    #[error("another step runs; wait for its end, or pause it")]
    Busy,
    #[error("a step must be longer than 0 and at most {} hours", MAX_STEP.as_secs() / 3600)]
    Range,
}

/// The state of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeState {
    pub(crate) is_paused: bool,
    /// The remaining time of the step that runs.
    pub(crate) remaining: Option<Duration>,
    /// The time that the last step did not reach, if it took too long.
    pub(crate) missed: Option<Duration>,
}

/// A runtime whose time can be paused and stepped. It ends when this is dropped.
pub(crate) struct SteppableRuntime {
    handle: Handle,
    clock: Clock,
    control: Arc<Control>,
}

#[derive(Default)]
struct Control {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    mode: Mode,
    /// Number of requests, so that a step notices the next one.
    requests: u64,
    /// End of the step that runs.
    end: Option<Instant>,
    missed: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Running,
    Paused,
    Stepping(Duration),
    Ended,
}

/// Prevents that paused time advances, until this is dropped.
pub(crate) struct TimeHold {
    _released_by_drop: mpsc::Sender<()>,
}

impl TimeHold {
    /// Holds the time of the current runtime. Tokio does not advance it while a blocking task exists.
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel::<()>();
        spawn_blocking(move || receiver.recv());
        Self { _released_by_drop: sender }
    }
}

impl SteppableRuntime {
    /// Starts a runtime whose time is that of a clock until it is paused.
    pub(crate) fn start(origin: Timestamp) -> std::io::Result<Self> {
        let real = Handle::current();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let control = Arc::new(Control::default());
        let clock = clock_of(handle.clone(), origin);
        let driven = control.clone();
        std::thread::Builder::new().name("steppable-time".into()).spawn(move || {
            runtime.block_on(drive(&driven, &real));
            // Tasks end here. A blocked one must not delay the end.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, clock, control })
    }

    /// Returns the handle, to spawn tasks.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the clock of the runtime, which can be read from everywhere.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the state of the time.
    pub(crate) fn state(&self) -> TimeState {
        let now = now_of(&self.handle);
        let state = self.control.state.lock();
        let remaining = match state.mode {
            Mode::Stepping(duration) => Some(state.end.map_or(duration, |end| end.saturating_duration_since(now))),
            _ => None,
        };
        let is_paused = matches!(state.mode, Mode::Paused | Mode::Stepping(_));
        TimeState { is_paused, remaining, missed: state.missed }
    }

    /// Pauses the time; a step that runs ends.
    pub(crate) fn pause(&self) {
        self.control.request(Mode::Paused);
    }

    /// Continues in real time; a step that runs ends.
    pub(crate) fn resume(&self) {
        self.control.request(Mode::Running);
    }

    /// Advances the time by a duration, and pauses it.
    ///
    /// # Errors
    ///
    /// If another step runs, or the duration is out of range.
    pub(crate) fn step(&self, duration: Duration) -> Result<(), StepError> {
        if duration.is_zero() || duration > MAX_STEP {
            return Err(StepError::Range);
        }
        let mut state = self.control.state.lock();
        if matches!(state.mode, Mode::Stepping(_)) {
            return Err(StepError::Busy);
        }
        state.request(Mode::Stepping(duration));
        drop(state);
        self.control.changed.notify_one();
        Ok(())
    }
}

impl Drop for SteppableRuntime {
    fn drop(&mut self) {
        self.control.request(Mode::Ended);
    }
}

impl State {
    fn request(&mut self, mode: Mode) {
        self.mode = mode;
        self.requests += 1;
        (self.end, self.missed) = (None, None);
    }
}

impl Control {
    fn request(&self, mode: Mode) {
        self.state.lock().request(mode);
        self.changed.notify_one();
    }

    /// Ends a step, unless something else was requested meanwhile.
    fn end_step(&self, request: u64, missed: Option<Duration>) {
        let mut state = self.state.lock();
        if state.requests == request {
            (state.mode, state.end, state.missed) = (Mode::Paused, None, missed);
        }
    }

    /// Waits until something else is requested.
    async fn other_than(&self, request: u64) {
        while self.state.lock().requests == request {
            self.changed.notified().await;
        }
    }
}

/// Returns the time of a runtime, from any thread.
fn now_of(handle: &Handle) -> Instant {
    let _entered = handle.enter();
    Instant::now()
}

fn clock_of(handle: Handle, origin: Timestamp) -> Clock {
    let began = now_of(&handle);
    Clock::new(move || {
        let elapsed = now_of(&handle).saturating_duration_since(began);
        saturating_add(origin, SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX))
    })
}

/// Pauses, steps and continues the time as requested, until the end of the runtime. `real` is a runtime in real time.
async fn drive(control: &Control, real: &Handle) {
    let mut hold: Option<TimeHold> = None;
    loop {
        let (mode, request) = {
            let state = control.state.lock();
            (state.mode, state.requests)
        };
        match mode {
            Mode::Ended => return,
            Mode::Running => {
                if hold.is_some() {
                    time::resume();
                    hold = None;
                }
            }
            Mode::Paused => hold = Some(paused(hold.take())),
            Mode::Stepping(duration) => {
                hold = Some(step(control, request, duration, paused(hold.take()), real).await);
            }
        }
        control.other_than(request).await;
    }
}

/// Pauses the time, unless it is paused already.
fn paused(hold: Option<TimeHold>) -> TimeHold {
    hold.unwrap_or_else(|| {
        // Held first, so that no timer fires early.
        let hold = TimeHold::new();
        time::pause();
        hold
    })
}

/// Sleeps on the runtime that polls it: tokio's `sleep` alone belongs to the runtime that calls it.
async fn real_sleep(duration: Duration) {
    sleep(duration).await;
}

/// Advances the time, in parts, between which clients of the network get real time.
async fn step(control: &Control, request: u64, duration: Duration, mut hold: TimeHold, real: &Handle) -> TimeHold {
    let end = Instant::now() + duration;
    control.state.lock().end = Some(end);
    let part = MIN_PART.max(duration / PARTS);
    let mut limit = JoinSet::new();
    limit.spawn_on(real_sleep(MAX_STEP_TIME), real);
    loop {
        let next = end.min(Instant::now() + part);
        drop(hold);
        let is_interrupted = tokio::select! {
            biased;
            () = control.other_than(request) => true,
            _ = limit.join_next() => true,
            () = sleep_until(next) => false,
        };
        hold = TimeHold::new();
        if is_interrupted || next >= end {
            let missed = end.saturating_duration_since(Instant::now());
            control.end_step(request, Some(missed).filter(|missed| !missed.is_zero()));
            return hold;
        }
        let mut interval = JoinSet::new();
        interval.spawn_on(real_sleep(PART_INTERVAL), real);
        interval.join_next().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits in real time until a condition holds.
    async fn until(condition: impl Fn() -> bool) {
        let waited = async {
            while !condition() {
                sleep(Duration::from_millis(2)).await;
            }
        };
        time::timeout(Duration::from_secs(30), waited).await.expect("the condition holds in time");
    }

    fn origin() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("a time")
    }

    fn seconds(runtime: &SteppableRuntime) -> f64 {
        runtime.clock().now().duration_since(origin()).as_secs_f64()
    }

    async fn paused_runtime() -> SteppableRuntime {
        let runtime = SteppableRuntime::start(origin()).expect("a runtime");
        runtime.pause();
        let control = runtime.control.clone();
        // The time stands still once the runtime has noticed.
        let (mut last, clock) = (runtime.clock().now(), runtime.clock().clone());
        for _ in 0..500 {
            sleep(Duration::from_millis(5)).await;
            let now = clock.now();
            if now == last && control.state.lock().mode == Mode::Paused {
                return runtime;
            }
            last = now;
        }
        panic!("the time moves")
    }

    #[tokio::test]
    async fn timers_fire_in_order_at_their_own_times() {
        let runtime = paused_runtime().await;
        let fired: Arc<Mutex<Vec<(u64, f64)>>> = Arc::default();
        for at in [3600_u64, 60, 7200, 90] {
            let (fired, clock) = (fired.clone(), runtime.clock().clone());
            runtime.handle().spawn(async move {
                let began = clock.now();
                sleep(Duration::from_secs(at)).await;
                fired.lock().push((at, clock.now().duration_since(began).as_secs_f64().round()));
            });
        }
        let began = seconds(&runtime);
        sleep(Duration::from_millis(50)).await;
        assert!(fired.lock().is_empty() && seconds(&runtime) == began, "paused time stands still");
        runtime.step(Duration::from_secs(3601)).expect("a step");
        assert_eq!(runtime.step(Duration::from_secs(1)), Err(StepError::Busy));
        until(|| runtime.state() == TimeState { is_paused: true, ..TimeState::default() }).await;
        assert_eq!(*fired.lock(), [(60, 60.0), (90, 90.0), (3600, 3600.0)]);
        assert!((seconds(&runtime) - began - 3601.0).abs() < 0.1, "{}", seconds(&runtime) - began);
        runtime.resume();
        let at = seconds(&runtime);
        until(|| seconds(&runtime) > at + 0.01).await;
        assert!(seconds(&runtime) < at + 30.0, "it continues in real time");
    }

    #[tokio::test]
    async fn steps_end_at_a_pause_and_wait_for_holds() {
        let runtime = paused_runtime().await;
        let began = seconds(&runtime);
        let (held, holds) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        runtime.handle().spawn({
            let (held, holds) = (held.clone(), holds.clone());
            async move {
                sleep(Duration::from_secs(10)).await;
                let _hold = TimeHold::new();
                holds.notify_one();
                held.notified().await;
            }
        });
        runtime.step(Duration::from_secs(3600)).expect("a step");
        holds.notified().await;
        sleep(Duration::from_millis(50)).await;
        assert!(seconds(&runtime) - began < 10.1, "a hold is waited for");
        held.notify_one();
        until(|| seconds(&runtime) - began > 10.2).await;
        runtime.pause();
        until(|| runtime.state().remaining.is_none()).await;
        assert!(runtime.state().is_paused);
        assert_eq!(runtime.step(Duration::ZERO), Err(StepError::Range));
        assert_eq!(runtime.step(MAX_STEP + Duration::from_secs(1)), Err(StepError::Range));
    }

    #[tokio::test]
    async fn tasks_end_with_the_runtime() {
        let runtime = paused_runtime().await;
        let task = runtime.handle().spawn(std::future::pending::<()>());
        drop(runtime);
        let ended = time::timeout(Duration::from_secs(10), task).await.expect("it ends");
        assert!(ended.expect_err("it is cancelled").is_cancelled());
    }
}
