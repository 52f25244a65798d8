//! Seeded random numbers.

use std::sync::{Arc, Mutex};

/// A reproducible source of random numbers.
///
/// Clones share one stream, so two components of a process never get the same number. It is a SplitMix64 generator,
/// which is sufficient for names, UIDs and jitter, but not for keys and secrets.
#[derive(Clone, Debug)]
pub struct Rng(Arc<Mutex<u64>>);

impl Rng {
    /// Creates a stream that depends only on `seed`.
    pub fn from_seed(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    /// Creates a stream from the operating system's randomness.
    #[expect(clippy::disallowed_methods, reason = "the only source of seeds outside of simulations")]
    pub fn from_os() -> Self {
        use std::hash::{BuildHasher, Hasher};
        Self::from_seed(std::collections::hash_map::RandomState::new().build_hasher().finish())
    }

    /// Creates a separate stream for `label`, so that an additional number in one component does not change those of
    /// another.
    pub fn fork(&self, label: &str) -> Self {
        // FNV-1a: stable across processes and releases, which the hasher of std does not guarantee.
        let hash =
            label.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Self::from_seed(self.next() ^ hash)
    }

    /// Returns 64 random bits.
    pub fn next(&self) -> u64 {
        let mut state = self.0.lock().expect("no code panics while it draws");
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random number below `bound`; 0 if `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        // The high half of a 64 × 64 bit product: needs no division, and its bias is negligible.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a random number in `[0, 1)`.
    pub fn fraction(&self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a version 4 UUID, as in `metadata.uid`.
    pub fn uuid(&self) -> String {
        let (high, low) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | (low >> 48 & 0x3fff),
            low & 0xffff_ffff_ffff
        )
    }

    /// Returns the suffix of a generated name: `n` characters without vowels and similar characters.
    pub fn suffix(&self, n: usize) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..n).map(|_| char::from(ALPHABET[self.below(ALPHABET.len() as u64) as usize])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_repeat_the_sequence() {
        let draw = |seed| {
            let rng = Rng::from_seed(seed);
            (rng.uuid(), rng.suffix(5), rng.below(100), rng.fork("a").next())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn uuids_are_version_4() {
        let rng = Rng::from_seed(1);
        for _ in 0..1000 {
            let uuid = rng.uuid();
            assert_eq!(uuid.len(), 36);
            assert_eq!(uuid.as_bytes()[14], b'4');
            assert!(b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
        }
    }

    #[test]
    fn draws_stay_below_their_bound() {
        let rng = Rng::from_seed(3);
        assert!((0..10_000).all(|_| rng.below(27) < 27 && (0.0..1.0).contains(&rng.fraction())));
        assert_eq!(rng.below(0), 0);
    }
}
