//! Selection of proofs from test results.

use crate::testing::{Outcome, Report, Test};
use serde::Serialize;

/// A test that proves a level of an operator, with its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Proof {
    #[serde(skip)]
    pub(super) level: u8,
    pub(super) test: String,
    pub(super) outcome: Outcome,
}

/// Returns the proofs of one level or of all levels.
pub(super) fn find(report: &Report, only: Option<u8>) -> Vec<Proof> {
    let proof = |test: &Test| {
        let (level, _) = test.own_name().strip_prefix("level_")?.split_once('_')?;
        let level = level.parse().ok().filter(|level| (1..=5).contains(level))?;
        Some(Proof { level, test: test.name.clone(), outcome: test.outcome })
    };
    report.tests().filter_map(proof).filter(|proof| only.is_none_or(|only| only == proof.level)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_proofs_are_found() {
        let output = "
running 5 tests
test levels::level_1_install ... ok
test level_2_upgrade - should panic ... FAILED
test a::level_5_tunes ... ignored, needs time
test level_6_flies ... ok
test my_level_1_is_no_proof ... ok
test result: FAILED. 1 passed
";
        let mut report = Report::default();
        output.lines().for_each(|line| report.parse_line(line));
        let proof = |level, test: &str, outcome| Proof { level, test: test.into(), outcome };
        let all = [
            proof(1, "levels::level_1_install", Outcome::Passed),
            proof(2, "level_2_upgrade", Outcome::Failed),
            proof(5, "a::level_5_tunes", Outcome::Ignored),
        ];
        assert_eq!(find(&report, None), all);
        assert_eq!(find(&report, Some(2)), all[1..2]);
    }
}
