//! The budget of a query: instructions, time and memory.
//!
//! SQLite calls the progress handler between instructions, and while it compiles a statement. Values are short enough
//! that no instruction takes long, and functions whose work exceeds the length of a value charge it.
//!
//! SQLite has no limit of memory for one connection, and a limit of the process would make the writer fail. So the
//! growth of this process is measured. If several queries run at the same time, each of them sees the sum; the caller
//! repeats a query alone that failed for it.

use super::Error;
use rusqlite::{Connection, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Instructions between two checks of the budget: at most some milliseconds, even with the longest values.
const CHECK_INTERVAL: i32 = 500;
/// Time between two measurements of memory.
const MEASURE_INTERVAL: Duration = Duration::from_millis(2);
/// Characters of a text that cost as much as an instruction.
const CHARACTERS_PER_INSTRUCTION: usize = 16;

/// The limits of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions of SQLite's virtual machine.
    pub instructions: u64,
    /// Time, by the clock of tokio: it does not pass in a simulation.
    pub time: Duration,
    /// Growth of the memory of this process in bytes; not measured without one, and on other systems than Linux.
    pub memory: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { instructions: 1_000_000_000, time: Duration::from_secs(60), memory: Some(512 << 20) }
    }
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    Instructions = 1,
    Time = 2,
    Memory = 3,
}

/// The budget of a connection. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<State>);

#[derive(Debug)]
struct State {
    limits: Limits,
    until: Instant,
    /// Memory of the process at the start.
    memory: Option<u64>,
    used: AtomicU64,
    reached: AtomicU8,
}

impl Budget {
    /// Starts a budget.
    pub(super) fn new(limits: Limits) -> Self {
        let memory = limits.memory.and_then(|_| anonymous_bytes());
        let until = Instant::now() + limits.time;
        Self(Arc::new(State { limits, until, memory, used: AtomicU64::new(0), reached: AtomicU8::new(0) }))
    }

    /// Adds the check of the budget to a connection.
    pub(super) fn attach(&self, connection: &mut Connection) -> Result<()> {
        let (budget, mut measured) = (self.clone(), Instant::now());
        let handler = move || {
            let now = Instant::now();
            let is_due = now - measured >= MEASURE_INTERVAL;
            if is_due {
                measured = now;
            }
            budget.spend(u64::from(CHECK_INTERVAL.unsigned_abs()), now, is_due)
        };
        connection.progress_handler(CHECK_INTERVAL, Some(handler))
    }

    /// Charges work on texts of this many characters.
    ///
    /// # Errors
    ///
    /// If a limit is reached.
    pub(super) fn charge(&self, characters: usize) -> Result<()> {
        let instructions = u64::try_from(characters / CHARACTERS_PER_INSTRUCTION).unwrap_or(u64::MAX);
        match self.spend(instructions, Instant::now(), false) {
            true => Err(rusqlite::Error::UserFunctionError("the budget is exceeded".into())),
            false => Ok(()),
        }
    }

    /// Charges instructions, and returns true if a limit is reached.
    fn spend(&self, instructions: u64, now: Instant, measures: bool) -> bool {
        let Self(state) = self;
        let used = state.used.fetch_add(instructions, Ordering::Relaxed).saturating_add(instructions);
        let reached = if used > state.limits.instructions {
            Reached::Instructions
        } else if now > state.until {
            Reached::Time
        } else if measures && self.has_grown() {
            Reached::Memory
        } else {
            return state.reached.load(Ordering::Relaxed) != 0;
        };
        let _ = state.reached.compare_exchange(0, reached as u8, Ordering::Relaxed, Ordering::Relaxed);
        true
    }

    fn has_grown(&self) -> bool {
        let Self(state) = self;
        let grown = state.memory.and_then(|start| Some(anonymous_bytes()?.saturating_sub(start)));
        grown.zip(state.limits.memory).is_some_and(|(grown, limit)| grown > limit)
    }

    /// Returns the error of the limit that was reached, if any.
    pub(super) fn error(&self, query: &str) -> Option<Error> {
        let (Self(state), query) = (self, query.to_owned());
        match state.reached.load(Ordering::Relaxed) {
            1 => Some(Error::Budget { query, limit: state.limits.instructions }),
            2 => Some(Error::Time { query, limit: state.limits.time }),
            3 => Some(Error::Memory { query, limit: state.limits.memory.unwrap_or_default() >> 20 }),
            _ => None,
        }
    }
}

/// Returns the memory of this process that is not a part of files.
fn anonymous_bytes() -> Option<u64> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(kibibytes.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}
