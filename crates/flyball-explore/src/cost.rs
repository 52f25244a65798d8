//! The cost of runs: CPU time by phase, and numbers of what they do.
//!
//! For measurements only: a run does not depend on it.

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::time::Duration;

/// A part of a run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The control plane is forked, and the tasks of the run are created.
    Fork,
    /// The scenario, until the first fault occurs.
    BeforeFault,
    /// The scenario after the first fault.
    AfterFault,
    /// The wait until nothing changes.
    Quiescence,
    /// The final state is read and compared, and the operator restarted if that is checked.
    FinalState,
    /// All tasks end, and the cluster is dropped.
    Teardown,
    /// The rules judge the run.
    Rules,
}

impl Phase {
    const ALL: [Self; 7] = [
        Self::Fork,
        Self::BeforeFault,
        Self::AfterFault,
        Self::Quiescence,
        Self::FinalState,
        Self::Teardown,
        Self::Rules,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Fork => "fork of the control plane",
            Self::BeforeFault => "scenario before the first fault",
            Self::AfterFault => "scenario after it",
            Self::Quiescence => "wait until nothing changes",
            Self::FinalState => "final state",
            Self::Teardown => "teardown",
            Self::Rules => "rules",
        }
    }
}

/// The cost of runs, as sums. The CPU time of an operator in another process is not measured.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Cost {
    /// Number of runs.
    pub runs: u64,
    pub(crate) cpu: [Duration; Phase::ALL.len()],
    /// Requests to the API server, of all clients.
    pub requests: u64,
    /// Requests of the operator.
    pub operator_requests: u64,
    /// Writes to the store, with those of events and leases.
    pub writes: u64,
    /// Events of watches that were delivered to the operator.
    pub events: u64,
    /// Starts of the operator.
    pub starts: u64,
    /// Number of times that all tasks waited, so that the clock advanced to the next timer.
    pub clock_steps: u64,
    /// Virtual time.
    pub time: Duration,
}

impl Cost {
    /// Returns the CPU time of all phases.
    pub fn cpu(&self) -> Duration {
        self.cpu.iter().sum()
    }

    /// Adds the cost of other runs.
    pub(crate) fn add(&mut self, other: &Self) {
        self.cpu.iter_mut().zip(other.cpu).for_each(|(sum, cpu)| *sum += cpu);
        self.runs += other.runs;
        self.requests += other.requests;
        self.operator_requests += other.operator_requests;
        self.writes += other.writes;
        self.events += other.events;
        self.starts += other.starts;
        self.clock_steps += other.clock_steps;
        self.time += other.time;
    }

    /// Adds CPU time to a phase.
    pub(crate) fn spend(&mut self, phase: Phase, cpu: Duration) {
        self.cpu[phase as usize] += cpu;
    }
}

/// A table with the mean of one run.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mean = |count: u64| count as f64 / self.runs.max(1) as f64;
        let millis = |time: Duration| mean(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)) / 1e6;
        writeln!(f, "mean of {} runs", self.runs)?;
        for (phase, cpu) in Phase::ALL.into_iter().zip(self.cpu) {
            writeln!(f, "  {:<32} {:>9.3} ms of CPU", phase.name(), millis(cpu))?;
        }
        writeln!(f, "  {:<32} {:>9.3} ms of CPU", "all phases", millis(self.cpu()))?;
        let rows = [
            ("requests of all clients", self.requests),
            ("requests of the operator", self.operator_requests),
            ("writes to the store", self.writes),
            ("watch events of the operator", self.events),
            ("starts of the operator", self.starts),
            ("steps of the clock", self.clock_steps),
        ];
        rows.into_iter().try_for_each(|(name, count)| writeln!(f, "  {name:<32} {:>9.1}", mean(count)))?;
        writeln!(f, "  {:<32} {:>9.1} s", "virtual time", millis(self.time) / 1e3)
    }
}

/// Measures the CPU time of the current thread by phase.
#[derive(Debug)]
pub(crate) struct Meter(Mutex<Measured>);

#[derive(Debug)]
struct Measured {
    phase: Phase,
    since: Duration,
    cost: Cost,
}

impl Meter {
    /// Begins a phase.
    pub(crate) fn start(phase: Phase) -> Self {
        Self(Mutex::new(Measured { phase, since: thread_cpu(), cost: Cost::default() }))
    }

    /// Ends the current phase, and begins another one.
    pub(crate) fn enter(&self, phase: Phase) {
        let (mut measured, now) = (self.0.lock(), thread_cpu());
        let Measured { phase: ended, since, cost } = &mut *measured;
        cost.spend(*ended, now.saturating_sub(*since));
        (*ended, *since) = (phase, now);
    }

    /// Begins a phase if another one is under way.
    pub(crate) fn pass(&self, from: Phase, to: Phase) {
        let is_under_way = self.0.lock().phase == from;
        if is_under_way {
            self.enter(to);
        }
    }

    /// Ends the current phase, and returns the CPU time of all.
    pub(crate) fn stop(&self) -> Cost {
        let phase = self.0.lock().phase;
        self.enter(phase);
        self.0.lock().cost
    }
}

/// Returns the CPU time of the current thread.
pub(crate) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_counts_for_the_phase_in_which_it_is_spent() {
        let spin = || {
            let since = thread_cpu();
            while thread_cpu() - since < Duration::from_millis(2) {}
        };
        let meter = Meter::start(Phase::Fork);
        meter.enter(Phase::BeforeFault);
        spin();
        meter.pass(Phase::AfterFault, Phase::Quiescence);
        meter.pass(Phase::BeforeFault, Phase::AfterFault);
        spin();
        let mut cost = meter.stop();
        cost.add(&Cost { runs: 2, requests: 5, ..Cost::default() });
        let of = |phase: Phase| cost.cpu[phase as usize];
        assert!(
            of(Phase::BeforeFault) >= Duration::from_millis(2) && of(Phase::AfterFault) >= Duration::from_millis(2)
        );
        assert!(of(Phase::Fork) < Duration::from_millis(2) && of(Phase::Quiescence).is_zero());
        assert!(cost.to_string().contains("requests of all clients                2.5"), "{cost}");
    }
}
