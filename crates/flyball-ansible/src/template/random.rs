//! Random values: from the sources of the run, or from a seed as Python's `random.Random` draws them, so that a role
//! has the same values with every executor.

use super::{Scope, Sources, from_json, reject, to_json, weigh};
use crate::value::Value as Json;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, State};
use ring::digest::{SHA512, digest};
use std::sync::Arc;

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("random", random);
    env.add_filter("shuffle", |state: &State<'_, '_>, list: Value, seed: Option<Value>, options: Kwargs| {
        let mut drawer = Drawer::of(state, seed.or(options.get("seed")?))?;
        options.assert_all_used()?;
        weigh(state, &list)?;
        let mut items: Vec<Value> = list.try_iter()?.collect();
        for at in (1..items.len()).rev() {
            let other = drawer.below(at as u64 + 1)?;
            items.swap(at, other as usize);
        }
        Ok::<_, Error>(items)
    });
}

/// Returns a random number below a limit, or a random item of a list.
fn random(
    state: &State<'_, '_>,
    end: Value,
    start: Option<i64>,
    step: Option<i64>,
    options: Kwargs,
) -> Result<Value, Error> {
    let start = start.or(options.get("start")?);
    let step = step.or(options.get("step")?);
    let mut drawer = Drawer::of(state, options.get("seed")?)?;
    options.assert_all_used()?;
    match i64::try_from(end.clone()) {
        Ok(end) => {
            let (start, step) = (start.unwrap_or(0), step.filter(|step| *step != 0).unwrap_or(1));
            let Ok(step) = u64::try_from(step) else { return Err(reject("random: step must be positive")) };
            let span = u64::try_from(end.saturating_sub(start)).unwrap_or(0);
            let drawn = drawer.below(span.div_ceil(step))?.saturating_mul(step);
            Ok(Value::from(start.saturating_add(i64::try_from(drawn).unwrap_or(i64::MAX))))
        }
        Err(_) if start.is_some() || step.is_some() => {
            Err(reject("start and step can only be used with integer values"))
        }
        Err(_) => {
            weigh(state, &end)?;
            let Json::Array(mut items) = to_json(&end)? else {
                return Err(reject("random can only be used on sequences and integers"));
            };
            let drawn = drawer.below(items.len() as u64)?;
            Ok(from_json(items.swap_remove(drawn as usize)))
        }
    }
}

/// Draws numbers.
enum Drawer {
    Run(Arc<Scope>),
    Seed(Box<Twister>),
}

impl Drawer {
    fn of(state: &State<'_, '_>, seed: Option<Value>) -> Result<Self, Error> {
        let scope = Scope::of(state)?;
        let Some(seed) = seed.filter(|seed| !seed.is_none()) else { return Ok(Self::Run(scope)) };
        // The state has 624 words.
        state.consume_fuel(64)?;
        let twister = match (seed.as_str(), u64::try_from(seed.clone()), i64::try_from(seed.clone())) {
            (Some(text), ..) => Twister::of_text(text),
            (_, Ok(number), _) => Twister::of_number(number),
            (.., Ok(number)) => Twister::of_number(number.unsigned_abs()),
            _ => return Err(reject("the built-in executor supports only strings and integers as a seed")),
        };
        Ok(Self::Seed(Box::new(twister)))
    }

    fn below(&mut self, bound: u64) -> Result<u64, Error> {
        match (bound, self) {
            (0, _) => Err(reject("random: the range is empty")),
            (_, Self::Run(scope)) => Sources::below(scope.sources(), bound).map_err(reject),
            (_, Self::Seed(twister)) => Ok(twister.below(bound)),
        }
    }
}

const WORDS: usize = 624;
const SHIFT: usize = 397;

/// The Mersenne Twister MT19937, seeded as in CPython.
struct Twister {
    state: [u32; WORDS],
    at: usize,
}

impl Twister {
    fn of_number(number: u64) -> Self {
        let key = [number as u32, (number >> 32) as u32];
        Self::of_key(if key[1] == 0 { &key[..1] } else { &key })
    }

    /// Strings are numbers of their bytes and their digest, with the most significant byte first.
    fn of_text(text: &str) -> Self {
        let digest = digest(&SHA512, text.as_bytes());
        let bytes: Vec<u8> = text.bytes().chain(digest.as_ref().iter().copied()).collect();
        let word = |part: &[u8]| part.iter().fold(0_u32, |word, byte| (word << 8) | u32::from(*byte));
        let mut key: Vec<u32> = bytes.rchunks(4).map(word).collect();
        while key.len() > 1 && key.last() == Some(&0) {
            key.pop();
        }
        Self::of_key(&key)
    }

    fn of_key(key: &[u32]) -> Self {
        let mut state = [0_u32; WORDS];
        state[0] = 19_650_218;
        for at in 1..WORDS {
            let before = state[at - 1];
            state[at] = 1_812_433_253_u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(at as u32);
        }
        let (mut at, mut word) = (1, 0);
        let mixed = |state: &[u32; WORDS], at: usize, factor: u32| {
            let before = state[at - 1];
            state[at] ^ (before ^ (before >> 30)).wrapping_mul(factor)
        };
        let next = |state: &mut [u32; WORDS], at: usize| {
            if at + 1 < WORDS {
                return at + 1;
            }
            state[0] = state[WORDS - 1];
            1
        };
        for _ in 0..WORDS.max(key.len()) {
            state[at] = mixed(&state, at, 1_664_525).wrapping_add(key[word]).wrapping_add(word as u32);
            at = next(&mut state, at);
            word = (word + 1) % key.len();
        }
        for _ in 1..WORDS {
            state[at] = mixed(&state, at, 1_566_083_941).wrapping_sub(at as u32);
            at = next(&mut state, at);
        }
        state[0] = 0x8000_0000;
        Self { state, at: WORDS }
    }

    fn refill(&mut self) {
        for at in 0..WORDS {
            let joined = (self.state[at] & 0x8000_0000) | (self.state[(at + 1) % WORDS] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[at] = self.state[(at + SHIFT) % WORDS] ^ (joined >> 1) ^ odd;
        }
        self.at = 0;
    }

    fn word(&mut self) -> u32 {
        if self.at == WORDS {
            self.refill();
        }
        let mut word = self.state[self.at];
        self.at += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// Returns a number below a bound other than 0, as `_randbelow` does.
    fn below(&mut self, bound: u64) -> u64 {
        let bits = u64::BITS - bound.leading_zeros();
        loop {
            let drawn = match bits.checked_sub(32) {
                None | Some(0) => u64::from(self.word() >> (32 - bits)),
                Some(high) => {
                    let low = u64::from(self.word());
                    low | (u64::from(self.word() >> (32 - high)) << 32)
                }
            };
            if drawn < bound {
                return drawn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeded_numbers_are_those_of_python() {
        // `[random.Random(seed).randrange(bound) …]`, three numbers each.
        let check = |mut twister: Twister, bound: u64, expected: [u64; 3]| {
            assert_eq!([(); 3].map(|()| twister.below(bound)), expected);
        };
        check(Twister::of_number(0), 10, [6, 6, 0]);
        check(Twister::of_number(42), 1000, [654, 114, 25]);
        check(Twister::of_number(1_099_511_627_781), 60, [32, 33, 17]);
        check(Twister::of_text("localhost"), 60, [42, 29, 25]);
        check(Twister::of_text(""), 7, [3, 4, 1]);
        check(Twister::of_text("myhost-1"), 1 << 40, [811528963933, 101684500804, 1042520534737]);
        check(Twister::of_text("é"), 100, [53, 12, 22]);
    }
}
