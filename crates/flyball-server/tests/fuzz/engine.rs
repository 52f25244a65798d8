//! The loop of fuzzing, included by the fuzz tests of several crates. It is independent of targets.
//!
//! A run begins with the seeds of a target and its file in `tests/fuzz/corpus` (an input on each line, in base64),
//! changes them, and continues from each input with a new response: responses replace coverage. Inputs come from a
//! seed, so a short run in `cargo test` is the same each time. `just fuzz` runs for longer: `FLYBALL_FUZZ_SECONDS` for
//! each target, with another seed (`FLYBALL_FUZZ_SEED`) and inputs of up to 3 MiB, and adds what it found to the corpus
//! (`FLYBALL_FUZZ_KEEP`), of which it removes the inputs that have the response of a shorter one. The last input of each target and its slowest are in `target/tmp/fuzz`; `FLYBALL_FUZZ_INPUT`
//! plays the input of one such file again, and nothing else.
//!
//! Invariant: no input panics, takes longer than its limit, or leaves more memory than [`MAX_MEMORY_MIB`] behind.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "how long an input takes, and how long to go on, is real time")]
#![expect(clippy::print_stdout, reason = "a test says what it did")]

use crate::mutate;
use base64::prelude::{BASE64_STANDARD, Engine};
use flyball_core::Rng;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// CPU time of one input.
const INPUT_TIMEOUT: Duration = Duration::from_secs(20);
/// Additional CPU time for each MiB of an input: the build is not optimized.
const TIMEOUT_PER_MIB: Duration = Duration::from_secs(20);
/// Real time of an input, as a multiple of its CPU time: a deadlock takes no CPU, and a busy machine gives little.
const MAX_SLOWDOWN: u32 = 30;
/// Maximum memory of a run, in MiB.
const MAX_MEMORY_MIB: u64 = 1500;
/// Number of inputs after which a world is replaced.
const INPUTS_PER_WORLD: u64 = 300;
/// Maximum size of an input in bytes: the limit of a request.
const MAX_INPUT: usize = 3 << 20;
/// Maximum size of an input of a short run, in bytes.
const MAX_SHORT_INPUT: usize = 128 << 10;
/// Maximum size of an input of the pool, in bytes.
const MAX_POOL_INPUT: usize = 64 << 10;
/// Maximum size of an input that is written to the corpus, in bytes.
const MAX_CORPUS_INPUT: usize = 512;
/// Maximum number of inputs of the corpus: all of them are played in each short run.
const MAX_CORPUS: usize = 100;
/// Maximum number of inputs of the pool.
const MAX_POOL: usize = 400;
/// Number of changed inputs in a short run.
const SHORT_RUN: u64 = 120;

/// A fuzz target: seeds, setup, and execution of an input.
pub(crate) trait Target {
    /// The environment of inputs.
    type World;

    /// The initial inputs.
    fn seeds(&self) -> Vec<Vec<u8>>;

    /// Creates a new world.
    async fn open(&self) -> Self::World;

    /// Plays an input, and returns a short summary of the result. Panics if it violates an invariant.
    async fn play(&self, world: &mut Self::World, input: &[u8]) -> String;
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Returns the memory of this process in MiB; 0 without `/proc`.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / 1024
}

/// Returns the CPU time of this process; 0 without `/proc`.
fn cpu_time() -> Duration {
    /// Clock ticks per second in `/proc`, on every architecture that Linux runs Rust on.
    const TICKS: u64 = 100;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS)
}

/// The stored inputs of a target, one on each line.
struct Corpus {
    path: PathBuf,
    /// True if this run changes it.
    is_kept: bool,
    inputs: Vec<Vec<u8>>,
}

impl Corpus {
    fn read(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut inputs: Vec<Vec<u8>> = text.lines().map(|line| BASE64_STANDARD.decode(line).unwrap()).collect();
        inputs.sort_by_key(Vec::len);
        Self { path, is_kept: std::env::var_os("FLYBALL_FUZZ_KEEP").is_some(), inputs }
    }

    /// Keeps only the inputs of which the run found a new response.
    fn minimize(&mut self, had_new_response: &[bool]) {
        let mut had = had_new_response.iter();
        self.inputs.retain(|_| *had.next().unwrap());
        self.write();
    }

    fn add(&mut self, input: &[u8]) {
        if self.inputs.len() < MAX_CORPUS && input.len() <= MAX_CORPUS_INPUT {
            self.inputs.push(input.to_vec());
            self.write();
        }
    }

    fn write(&self) {
        if self.is_kept && !self.inputs.is_empty() {
            let lines: String = self.inputs.iter().map(|input| BASE64_STANDARD.encode(input) + "\n").collect();
            std::fs::create_dir_all(self.path.parent().unwrap()).unwrap();
            std::fs::write(&self.path, lines).unwrap();
        }
    }
}

/// The state of a run for the watchdog.
#[derive(Default)]
struct Progress {
    inputs: AtomicU64,
    /// CPU time of the input that is being played, in milliseconds.
    limit: AtomicU64,
}

/// Ends the process if an input takes too long: a thread that hangs cannot be stopped in another way.
fn watch(name: &'static str, progress: Weak<Progress>) {
    std::thread::spawn(move || {
        let (mut before, mut since, mut used) = (u64::MAX, Instant::now(), cpu_time());
        loop {
            std::thread::park_timeout(Duration::from_secs(1));
            let Some(progress) = progress.upgrade() else { return };
            let inputs = progress.inputs.load(Ordering::Acquire);
            if inputs != before {
                (before, since, used) = (inputs, Instant::now(), cpu_time());
            }
            let limit = Duration::from_millis(progress.limit.load(Ordering::Acquire));
            if cpu_time() - used > limit || since.elapsed() > limit * MAX_SLOWDOWN {
                println!("{name}: an input takes more than {limit:?} of CPU; it is in {}", last(name).display());
                std::process::abort();
            }
        }
    });
}

/// CPU time of an input of this size.
fn limit(size: usize) -> Duration {
    INPUT_TIMEOUT + TIMEOUT_PER_MIB.mul_f64(size as f64 / f64::from(1 << 20))
}

fn last(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fuzz").join(name)
}

/// Returns the size of the next input, if it is amplified. Small sizes are as likely as large ones.
fn amplified(is_short: bool, rng: &Rng) -> Option<usize> {
    let (chance, most) = if is_short { (32, MAX_SHORT_INPUT) } else { (8, MAX_INPUT) };
    (rng.below(chance) == 0).then(|| most >> rng.below(8))
}

/// Plays inputs on a target, configured by the environment.
pub(crate) fn run(name: &'static str, target: &impl Target) {
    let mut corpus = Corpus::read(name);
    let mut pool = target.seeds();
    let seeds = pool.len();
    pool.extend(corpus.inputs.iter().cloned());

    let replayed = std::env::var_os("FLYBALL_FUZZ_INPUT").map(|path| std::fs::read(path).unwrap());
    if let Some(input) = &replayed {
        pool = vec![input.clone()];
    }
    let initial = pool.len() as u64;

    let rng = Rng::from_seed(number("FLYBALL_FUZZ_SEED").unwrap_or(1)).fork(name);
    let until = number("FLYBALL_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    std::fs::create_dir_all(last(name).parent().unwrap()).unwrap();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (mut answers, mut had_new_response) = (BTreeSet::new(), Vec::new());
    let (mut played, mut large, mut slowest) = (0_u64, 0_u64, Duration::ZERO);
    let mut world = runtime.block_on(target.open());
    let progress = Arc::new(Progress::default());
    progress.limit.store(limit(0).as_millis() as u64, Ordering::Release);
    watch(name, Arc::downgrade(&progress));
    let start = Instant::now();
    loop {
        let fresh = played < initial;
        let is_over = || until.map_or(played >= initial + SHORT_RUN, |until| Instant::now() >= until);
        if !fresh && (replayed.is_some() || is_over()) {
            break;
        }
        if played % INPUTS_PER_WORLD == INPUTS_PER_WORLD - 1 {
            world = runtime.block_on(target.open());
        }
        let input = match fresh {
            true => pool[played as usize].clone(),
            false => mutate::mutate(&pool, amplified(until.is_none(), &rng), &rng),
        };
        if replayed.is_none() {
            std::fs::write(last(name), &input).unwrap();
        }
        progress.limit.store(limit(input.len()).as_millis() as u64, Ordering::Release);
        let start_of_input = Instant::now();
        let answer = runtime.block_on(target.play(&mut world, &input));
        if start_of_input.elapsed() > slowest {
            slowest = start_of_input.elapsed();
            std::fs::write(last(name).with_extension("slowest"), &input).unwrap();
        }
        played += 1;
        large += u64::from(input.len() > MAX_POOL_INPUT);
        progress.inputs.store(played, Ordering::Release);
        let is_new = answers.insert(answer);
        if fresh {
            had_new_response.push(is_new);
            if played == initial && replayed.is_none() {
                corpus.minimize(&had_new_response[seeds..]);
            }
        } else if is_new && input.len() <= MAX_POOL_INPUT && pool.len() < MAX_POOL {
            corpus.add(&input);
            pool.push(input);
        }
        assert!(played % 64 != 0 || memory() < MAX_MEMORY_MIB, "{name}: {} MiB are held", memory());
    }
    println!(
        "{name}: {played} inputs in {:.0?} ({:.0?} of CPU for all targets of this process; {large} above 64 KiB), {} answers, {} in the pool, the slowest took {slowest:?}, {} MiB",
        start.elapsed(),
        cpu_time(),
        answers.len(),
        pool.len(),
        memory()
    );
}
