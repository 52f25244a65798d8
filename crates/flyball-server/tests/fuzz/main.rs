//! Bad input, in ever new forms: no input makes the server panic, hang or grow.
//!
//! Each target is a way for input to come in. A run begins with what is written in [`targets`] and kept in
//! `tests/fuzz/corpus` (an input on each line, in base64), changes it, and goes on from whatever made the server say
//! something that it had not said before: what it says takes the place of coverage. Inputs come from a seed, so a short
//! run in `cargo test` is the same each time. `just fuzz` runs for longer: `FLYBALL_FUZZ_SECONDS` for each target, with
//! another seed (`FLYBALL_FUZZ_SEED`), and keeps what it found (`FLYBALL_FUZZ_KEEP`). The last input of each target and its
//! slowest stand in `target/tmp/fuzz`, so that what ends the process, or holds it up, can be looked at.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "how long an input takes, and how long to go on, is real time")]
#![expect(clippy::print_stdout, reason = "a test says what it did")]

mod mutate;
mod targets;

use base64::prelude::{BASE64_STANDARD, Engine};
use flyball_core::Rng;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use targets::{Target, World};

/// How long one input may take, on a machine that does other things as well.
const PATIENCE: Duration = Duration::from_secs(20);
/// How much memory a run may hold, in MiB.
const MEMORY: u64 = 1500;
/// How many inputs a server gets before a new one takes its place.
const LIFE: u64 = 300;
/// The longest input that is worth to go on from.
const LONGEST: usize = 2 << 10;
/// How many inputs there are at most to go on from.
const MOST: usize = 400;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The memory that this process holds, in MiB; nothing where there is no `/proc`.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / 1024
}

/// Ends the process if an input takes too long: there is no other way to be heard.
fn watch(name: &'static str, done: Weak<AtomicU64>) {
    std::thread::spawn(move || {
        let mut before = 0;
        loop {
            std::thread::park_timeout(PATIENCE);
            let Some(done) = done.upgrade().map(|done| done.load(Ordering::Relaxed)) else { return };
            if done == before {
                println!("{name}: an input takes more than {PATIENCE:?}; it is in {}", last(name).display());
                std::process::abort();
            }
            before = done;
        }
    });
}

fn last(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fuzz").join(name)
}

fn run(name: &'static str, target: Target) {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name);
    let mut pool: Vec<Vec<u8>> = (target.seeds)().into_iter().map(String::into_bytes).collect();
    let kept = std::fs::read_to_string(&corpus).unwrap_or_default();
    pool.extend(kept.lines().map(|line| BASE64_STANDARD.decode(line).unwrap()));

    let rng = Rng::from_seed(number("FLYBALL_FUZZ_SEED").unwrap_or(1)).fork(name);
    let until = number("FLYBALL_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let keep = std::env::var_os("FLYBALL_FUZZ_KEEP").is_some();
    std::fs::create_dir_all(last(name).parent().unwrap()).unwrap();
    let done = Arc::new(AtomicU64::new(0));
    watch(name, Arc::downgrade(&done));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let mut said = BTreeSet::new();
    let (mut tried, mut slowest, begun) = (0_u64, Duration::ZERO, pool.len());
    let mut world = runtime.block_on(World::new(&target));
    loop {
        let fresh = tried < begun as u64;
        if !fresh && until.map_or(tried >= begun as u64 + 120, |until| Instant::now() >= until) {
            break;
        }
        if tried % LIFE == LIFE - 1 {
            world = runtime.block_on(World::new(&target));
        }
        let input = if fresh { pool[tried as usize].clone() } else { mutate::mutate(&pool, &rng) };
        std::fs::write(last(name), &input).unwrap();
        let start = Instant::now();
        let answer = runtime.block_on((target.play)(&mut world, &input));
        if start.elapsed() > slowest {
            slowest = start.elapsed();
            std::fs::write(last(name).with_extension("slowest"), &input).unwrap();
        }
        tried += 1;
        done.store(tried, Ordering::Relaxed);
        if said.insert(answer) && !fresh && input.len() <= LONGEST && pool.len() < MOST {
            if keep {
                let file = std::fs::OpenOptions::new().create(true).append(true).open(&corpus);
                writeln!(file.unwrap(), "{}", BASE64_STANDARD.encode(&input)).unwrap();
            }
            pool.push(input);
        }
        assert!(tried % 64 != 0 || memory() < MEMORY, "{name}: {} MiB are held", memory());
    }
    println!(
        "{name}: {tried} inputs, {} answers, {} kept, the slowest took {slowest:?}, {} MiB",
        said.len(),
        pool.len(),
        memory()
    );
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name), targets::$name());
        })*
    };
}

targets! { requests bodies patches managed_fields selectors cel schemas continue_tokens watches webhooks }
