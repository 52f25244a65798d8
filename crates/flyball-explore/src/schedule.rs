//! Schedules: the faults of one run as data, on one line of text.
//!
//! `default; seed=1; steps=1,2; without=/spec/size; patch:apps/statefulsets/web#2 crash-after` is the scenario
//! `default`, reduced to its first two steps and without a field of its objects, with one crash.

use crate::fault::{Fault, FaultError};
use crate::site::{Site, SiteError, escaped, unescaped};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A fault and the site at which it occurs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Injection {
    /// The point of the run.
    pub at: Site,
    /// The fault.
    pub fault: Fault,
}

impl Injection {
    /// Creates an injection.
    pub fn new(at: Site, fault: Fault) -> Self {
        Self { at, fault }
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.at, self.fault)
    }
}

/// The inputs of a run: with an operator, a schedule determines a run completely.
#[doc(alias("fault plan", "nemesis"))]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Schedule {
    /// The name of the scenario.
    pub scenario: String,
    /// The seed of all randomness.
    pub seed: u64,
    /// Maximum delay of each request and event in milliseconds, from the seed.
    pub jitter: u32,
    /// The steps of the scenario that remain, counted from 1 on; `None` for all.
    pub steps: Option<BTreeSet<usize>>,
    /// JSON pointers of fields that are removed from the objects of the scenario.
    pub without: Vec<String>,
    /// The faults.
    pub injections: Vec<Injection>,
}

impl Schedule {
    /// Creates a schedule without faults.
    pub fn undisturbed(scenario: impl Into<String>, seed: u64) -> Self {
        let (steps, without, injections) = (None, Vec::new(), Vec::new());
        Self { scenario: scenario.into(), seed, jitter: 0, steps, without, injections }
    }

    /// Replaces the faults.
    #[must_use]
    pub fn with(&self, injections: Vec<Injection>) -> Self {
        Self { injections, ..self.clone() }
    }

    /// Returns true if a step of the scenario remains.
    pub(crate) fn has_step(&self, number: usize) -> bool {
        self.steps.as_ref().is_none_or(|steps| steps.contains(&number))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; seed={}", escaped(&self.scenario), self.seed)?;
        if self.jitter > 0 {
            write!(f, "; jitter={}", self.jitter)?;
        }
        if let Some(steps) = &self.steps {
            let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
            write!(f, "; steps={}", steps.join(","))?;
        }
        for pointer in &self.without {
            write!(f, "; without={}", escaped(pointer))?;
        }
        self.injections.iter().try_for_each(|injection| write!(f, "; {injection}"))
    }
}

/// Error of parsing a schedule.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// A site is invalid.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// A fault is invalid.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// A fault cannot be injected at its site.
    #[error("the fault {fault} cannot be injected at {site}")]
    Unfit {
        /// The fault.
        fault: String,
        /// The site.
        site: String,
    },
    /// Another part is invalid.
    #[error("invalid part {0:?} of a schedule: expected seed=, jitter=, steps=, without=, or SITE FAULT")]
    Part(String),
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let mut parts = text.split(';').map(str::trim);
        let invalid = |part: &str| ScheduleError::Part(part.to_owned());
        let scenario = parts.next().and_then(unescaped).ok_or_else(|| invalid(text))?;
        let mut schedule = Self::undisturbed(scenario, 1);
        for part in parts.filter(|part| !part.is_empty()) {
            if let Some((site, fault)) = part.split_once(' ') {
                let injection = Injection::new(site.parse()?, fault.trim().parse()?);
                if !injection.fault.fits(injection.at.port) {
                    return Err(ScheduleError::Unfit { fault: fault.to_owned(), site: site.to_owned() });
                }
                schedule.injections.push(injection);
                continue;
            }
            let (name, value) = part.split_once('=').ok_or_else(|| invalid(part))?;
            match name {
                "seed" => schedule.seed = value.parse().map_err(|_| invalid(part))?,
                "jitter" => schedule.jitter = value.parse().map_err(|_| invalid(part))?,
                "steps" => {
                    let numbers = value.split(',').filter(|number| !number.is_empty());
                    let steps: Result<BTreeSet<usize>, _> = numbers.map(str::parse).collect();
                    schedule.steps = Some(steps.map_err(|_| invalid(part))?);
                }
                "without" => schedule.without.push(unescaped(value).ok_or_else(|| invalid(part))?),
                _ => return Err(invalid(part)),
            }
        }
        Ok(schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Port;
    use proptest::prelude::*;

    fn injection() -> impl Strategy<Value = Injection> {
        let faults = Fault::all();
        let sites = (0u8..2, "[a-z/ ;#=%é.*-]{1,12}", 1u32..9);
        (sites, 0..faults.len(), 0usize..13).prop_map(move |((process, name, occurrence), fault, port)| {
            let fault = faults[fault].clone();
            let ports: Vec<Port> = Port::ALL.into_iter().filter(|port| fault.fits(*port)).collect();
            let port = ports[port % ports.len()];
            let occurrence = if port == Port::Step { 1 } else { occurrence };
            Injection::new(Site { process, port, name, occurrence }, fault)
        })
    }

    proptest! {
        #[test]
        fn schedules_round_trip(
            scenario in "[a-z/;= -]{0,9}[a-z]",
            seed in any::<u64>(),
            jitter in 0u32..50,
            steps in proptest::option::of(proptest::collection::btree_set(1usize..9, 0..4)),
            without in proptest::collection::vec("/[a-z/;~1]{1,9}", 0..3),
            injections in proptest::collection::vec(injection(), 0..5),
        ) {
            let schedule = Schedule { scenario, seed, jitter, steps, without, injections };
            prop_assert_eq!(schedule.to_string().parse::<Schedule>(), Ok(schedule));
        }
    }

    #[test]
    fn faults_that_do_not_fit_are_rejected() {
        let error = "default; watch:pods/a#1 crash-after".parse::<Schedule>().unwrap_err();
        assert_eq!(error.to_string(), "the fault crash-after cannot be injected at watch:pods/a#1");
        for text in ["a; b", "a; seed=x", "a; steps=b", "a; patch:x fly"] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }
}
