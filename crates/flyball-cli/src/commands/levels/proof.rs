//! Proofs, as `cargo test` tells of them.

use serde::Serialize;

/// One test that proves, or does not, that an operator is of a level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Proof {
    #[serde(skip)]
    pub(super) level: u8,
    pub(super) test: String,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Passed,
    Failed,
    Ignored,
}

impl Outcome {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Ignored => "ignored",
        }
    }
}

/// Reads what tests told, of one level or of all.
///
/// A test that says something itself may have it stand between its name and its outcome, or at the end of a line before.
pub(super) fn read(said: &str, only: Option<u8>) -> Vec<Proof> {
    let mut proofs: Vec<Proof> = said.lines().filter_map(proof).collect();
    proofs.retain(|proof| only.is_none_or(|only| only == proof.level));
    proofs
}

/// Finds what failed tests said.
pub(super) fn failures(said: &str) -> impl Iterator<Item = &str> {
    let reports = said.split("\nfailures:\n\n").skip(1);
    reports.filter_map(|report| report.split("\nfailures:\n").next()).map(str::trim)
}

fn proof(line: &str) -> Option<Proof> {
    let (test, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    // What is expected to panic is marked behind the name.
    let test = test.split(" - ").next()?;
    let name = test.rsplit("::").next()?;
    let (level, _) = name.strip_prefix("level_")?.split_once('_')?;
    let level = level.parse().ok().filter(|level| (1..=5).contains(level))?;
    let outcome = match outcome.split([',', ' ']).next()? {
        "ok" => Outcome::Passed,
        "FAILED" => Outcome::Failed,
        "ignored" => Outcome::Ignored,
        _ => return None,
    };
    Some(Proof { level, test: test.into(), outcome })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_proofs_are_read() {
        let said = "
running 5 tests
test levels::level_1_install ... ok
test level_2_upgrade - should panic ... FAILED
test a::level_5_tunes ... ignored, needs time
test level_6_flies ... ok
test my_level_1_is_no_proof ... ok
test result: FAILED. 1 passed
";
        let proof = |level, test: &str, outcome| Proof { level, test: test.into(), outcome };
        let all = [
            proof(1, "levels::level_1_install", Outcome::Passed),
            proof(2, "level_2_upgrade", Outcome::Failed),
            proof(5, "a::level_5_tunes", Outcome::Ignored),
        ];
        assert_eq!(read(said, None), all);
        assert_eq!(read(said, Some(2)), all[1..2]);
    }

    #[test]
    fn what_failed_tests_said_is_found() {
        let said =
            "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nno\n\n\nfailures:\n    a\n\ntest result: FAILED.\n";
        assert_eq!(failures(said).collect::<Vec<_>>(), ["---- a stdout ----\nno"]);
        assert_eq!(failures("test a ... ok\n").count(), 0);
    }
}
