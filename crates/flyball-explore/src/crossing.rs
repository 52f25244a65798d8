//! Replays that stop at each crossing of a port, for a person with a debugger.
//!
//! A function that observes crossings may block: the time of a simulated run stands still meanwhile.

use crate::fault::Fault;
use crate::site::Site;
use parking_lot::Mutex;
use std::io::{self, BufRead, BufReader, Write};
use std::time::Duration;

/// A crossing of a port in a replay, before it takes effect.
#[derive(Clone, Copy, Debug)]
pub struct Crossing<'a> {
    /// Time since the start of the run.
    pub at: Duration,
    /// The site that is crossed.
    pub site: &'a Site,
    /// The faults that occur at it.
    pub faults: &'a [Fault],
}

/// Observes the crossings of a replay.
pub(crate) type OnCrossing = dyn Fn(&Crossing<'_>) + Send + Sync;

const HELP: &str = "replay: Enter continues to the next site, f to the next fault, c to the end";

/// The next crossing at which a replay stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stop {
    #[default]
    Site,
    Fault,
    Never,
}

/// A prompt at each crossing.
struct Prompt<R, W> {
    input: R,
    output: W,
    stop: Stop,
}

impl<R: BufRead, W: Write> Prompt<R, W> {
    fn new(input: R, mut output: W) -> io::Result<Self> {
        writeln!(output, "{HELP}")?;
        Ok(Self { input, output, stop: Stop::default() })
    }

    /// Shows a crossing, and waits for a line if the replay stops there. The end of the input continues to the end.
    fn cross(&mut self, crossing: &Crossing<'_>) -> io::Result<()> {
        let Crossing { at, site, faults } = crossing;
        let faults: String = faults.iter().map(|fault| format!(" ✱ {fault}")).collect();
        writeln!(self.output, "{:>10.3} s  {site}{faults}", at.as_secs_f64())?;
        let stops = match self.stop {
            Stop::Site => true,
            Stop::Fault => !faults.is_empty(),
            Stop::Never => false,
        };
        if stops {
            self.output.flush()?;
            let mut line = String::new();
            let is_end = self.input.read_line(&mut line)? == 0;
            self.stop = match line.trim() {
                "c" => Stop::Never,
                _ if is_end => Stop::Never,
                "f" => Stop::Fault,
                _ => Stop::Site,
            };
        }
        Ok(())
    }
}

/// Returns a function that prompts at the terminal. Without one, the replay continues without prompts.
pub(crate) fn prompt() -> impl Fn(&Crossing<'_>) + Send + Sync {
    // Not the macros, whose output the test harness captures.
    let prompt = Mutex::new(Prompt::new(BufReader::new(io::stdin()), io::stderr()).ok());
    move |crossing| {
        let mut prompt = prompt.lock();
        *prompt = prompt.take().and_then(|mut open| open.cross(crossing).is_ok().then_some(open));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Port;

    /// Crosses four sites, the third of which has a fault; returns the number of lines of the input that were read.
    fn lines_read(input: &str) -> usize {
        let mut prompt = Prompt::new(input.as_bytes(), Vec::new()).unwrap();
        for n in 1..=4 {
            let site = Site { process: 0, port: Port::Step, name: n.to_string(), occurrence: 1 };
            let faults = if n == 3 { vec![Fault::Restart] } else { Vec::new() };
            prompt.cross(&Crossing { at: Duration::from_millis(1500), site: &site, faults: &faults }).unwrap();
        }
        let output = String::from_utf8(prompt.output).unwrap();
        assert_eq!(output.lines().count(), 5, "{output}");
        assert_eq!(output.lines().nth(3), Some("     1.500 s  step:3 ✱ restart"), "{output}");
        input.lines().count() - prompt.input.lines().count()
    }

    #[test]
    fn replay_stops_where_the_person_wants() {
        assert_eq!(lines_read("\n\n\n\n\n"), 4);
        assert_eq!(lines_read("f\n\n\n"), 3, "the first site, the fault and the one after it");
        assert_eq!(lines_read("\nc\n\n\n"), 2);
        assert_eq!(lines_read(""), 0);
    }
}
