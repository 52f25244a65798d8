//! Seeds of the random values of templates.

use flyball_core::Rng;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::cell::Cell;
use std::fmt;
use std::io;

/// A secret from which random values, such as passwords, keys and certificates, are generated. The seed reproduces
/// them; it cannot be derived from generated values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Seed([u8; 32]);

impl Seed {
    /// Creates a seed from the operating system.
    ///
    /// # Errors
    ///
    /// Fails if the operating system has no source of randomness.
    pub fn from_os() -> io::Result<Self> {
        let mut seed = Self::default();
        SystemRandom::new().fill(&mut seed.0).map_err(|_| io::Error::other("no randomness available"))?;
        Ok(seed)
    }

    /// Generates a seed for reproducible simulations. It is not secure: other numbers of the same source determine it.
    pub fn from_rng(rng: &Rng) -> Self {
        let mut seed = Self::default();
        seed.0.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&rng.next().to_le_bytes()));
        seed
    }

    /// Parses a seed from hexadecimal digits; `None` if the text is invalid.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut seed = Self::default();
        let digits = text.as_bytes();
        if digits.len() != 2 * seed.0.len() {
            return None;
        }
        for (byte, digits) in seed.0.iter_mut().zip(digits.chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(seed)
    }

    /// Formats the seed as hexadecimal digits.
    pub fn to_hex(&self) -> String {
        flyball_core::hex::encode(&self.0)
    }
}

/// The seed is secret, so it is not printed.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(…)")
    }
}

/// A stream of random numbers from a seed.
pub(crate) struct RandomStream {
    key: hmac::Key,
    drawn: Cell<u64>,
    block: Cell<[u8; 32]>,
}

impl RandomStream {
    pub(crate) fn new(seed: &Seed) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &seed.0), drawn: Cell::new(0), block: Cell::default() }
    }

    /// Generates 64 bits.
    pub(crate) fn next(&self) -> u64 {
        let drawn = self.drawn.replace(self.drawn.get() + 1);
        let (block, part) = (drawn / 4, (drawn % 4) as usize);
        if part == 0 {
            let mut bytes = [0; 32];
            bytes.copy_from_slice(hmac::sign(&self.key, &block.to_le_bytes()).as_ref());
            self.block.set(bytes);
        }
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.block.get()[8 * part..][..8]);
        u64::from_le_bytes(bytes)
    }

    /// Generates a number below `bound`; 0 if `bound` is 0.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        // The bias of the high half of a 64 × 64 bit product is negligible.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_round_trips_as_text() {
        let seed = Seed::from_rng(&Rng::from_seed(1));
        let again = Seed::from_hex(&seed.to_hex()).unwrap();
        let draw = |seed: &Seed| {
            let draws = RandomStream::new(seed);
            (0..9).map(|_| draws.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(&seed), draw(&again));
        let mut all = draw(&seed);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 9);
        assert_ne!(draw(&seed), draw(&Seed::from_os().unwrap()));
        assert!((0..1000).all(|_| RandomStream::new(&seed).below(7) < 7));
        for bad in ["", "0g", &"zz".repeat(32), &"+1".repeat(32)] {
            assert_eq!(Seed::from_hex(bad), None, "{bad}");
        }
        assert_eq!(format!("{seed:?}"), "Seed(…)");
    }
}
