//! Results of experiments, from observations. This module reads neither a cluster nor a clock.

use crate::experiment::Expectation;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Result of an experiment.
#[doc(alias = "ChaosResult")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// The experiment does not apply to the operator.
    Skipped,
    /// The operator recovered in time.
    Resilient,
    /// The operator recovered late, or changed more than it had to.
    Degraded,
    /// The operator was not in its steady state before, or the fault had no effect.
    Inconclusive,
    /// The operator did not recover.
    Failed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Skipped => "Skipped",
            Self::Resilient => "Resilient",
            Self::Degraded => "Degraded",
            Self::Inconclusive => "Inconclusive",
            Self::Failed => "Failed",
        })
    }
}

/// Observations of an experiment.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    /// The expected reaction.
    pub(crate) expectation: Expectation,
    /// Time to recover, if the operator did.
    pub(crate) recovered: Option<Duration>,
    /// Time to recover, for the result Resilient.
    pub(crate) recovery: Duration,
    /// Differences that remained at the end.
    pub(crate) remaining: Vec<String>,
    /// Changes in addition to the fault.
    pub(crate) collateral: Vec<String>,
    /// The reason why the fault had no effect.
    pub(crate) ineffective: Option<String>,
}

impl Observation {
    /// Returns the result and its reasons.
    pub(crate) fn verdict(&self) -> (Verdict, Vec<String>) {
        if let Some(reason) = &self.ineffective {
            return (Verdict::Inconclusive, vec![reason.clone()]);
        }
        match self.recovered {
            None => {
                let when = match self.expectation {
                    Expectation::Repair => "not repaired by the operator",
                    Expectation::Survive => "not recovered after the end of the fault",
                };
                let mut reasons = vec![when.to_owned()];
                reasons.extend(self.remaining.iter().cloned());
                (Verdict::Failed, reasons)
            }
            Some(time) => {
                let late = (time > self.recovery).then(|| format!("recovered later than {:?}", self.recovery));
                let reasons: Vec<String> = late.into_iter().chain(self.collateral.iter().cloned()).collect();
                (if reasons.is_empty() { Verdict::Resilient } else { Verdict::Degraded }, reasons)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_collateral_decide() {
        let observation = |recovered: Option<u64>, collateral: &[&str]| Observation {
            expectation: Expectation::Repair,
            recovered: recovered.map(Duration::from_secs),
            recovery: Duration::from_secs(10),
            remaining: vec!["ConfigMap a/b: /data/c differs".to_owned()],
            collateral: collateral.iter().map(|&text| text.to_owned()).collect(),
            ineffective: None,
        };
        for (recovered, collateral, expected) in [
            (Some(10), &[][..], Verdict::Resilient),
            (Some(11), &[], Verdict::Degraded),
            (Some(1), &["Service a/b was deleted and created again"], Verdict::Degraded),
            (None, &[], Verdict::Failed),
        ] {
            assert_eq!(observation(recovered, collateral).verdict().0, expected);
        }
        let mut ineffective = observation(None, &[]);
        ineffective.ineffective = Some("no network policies".to_owned());
        assert_eq!(ineffective.verdict().0, Verdict::Inconclusive);
        assert!(Verdict::Failed > Verdict::Degraded && Verdict::Degraded > Verdict::Resilient);
    }
}
