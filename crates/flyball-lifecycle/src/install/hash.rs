//! Hashes in names and labels.

use ring::digest::{SHA256, digest};
use serde::Serialize;

/// Digits of hashes: those of labels without punctuation.
const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Bytes of the digest that are used: as many as fit into a label with their digits, together with a name.
const BYTES: usize = 28;
/// Digits of these bytes.
pub(crate) const LENGTH: usize = 38;

/// Returns a hash of the JSON of a value, of 38 letters and digits.
pub(crate) fn content_hash(value: &impl Serialize) -> String {
    // Values that cannot be encoded are equal to each other. Those of this crate can.
    let json = serde_json::to_vec(value).unwrap_or_default();
    let digest = digest(&SHA256, &json);
    let mut number: Vec<u8> = digest.as_ref()[..BYTES].to_vec();
    let mut digits = vec![b'0'; LENGTH];
    for digit in digits.iter_mut().rev() {
        let mut remainder = 0_u32;
        for byte in &mut number {
            let value = remainder << 8 | u32::from(*byte);
            *byte = u8::try_from(value / 62).expect("the remainder is less than 62");
            remainder = value % 62;
        }
        *digit = DIGITS[remainder as usize];
    }
    digits.into_iter().map(char::from).collect()
}

/// Returns a name of at most 63 characters: the base, shortened if necessary, and a hash of a value.
pub(crate) fn hashed_name(base: &str, value: &impl Serialize) -> String {
    let hash = content_hash(value);
    let base: String = base.chars().take(63 - LENGTH - 1).collect();
    format!("{base}-{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_have_a_fixed_length_and_differ() {
        let (one, other) = (content_hash(&"a"), content_hash(&"b"));
        assert_eq!((one.len(), other.len()), (LENGTH, LENGTH));
        assert_ne!(one, other);
        assert_eq!(one, content_hash(&"a"));
    }

    #[test]
    fn long_names_are_cut_off_before_the_hash() {
        let name = hashed_name("memo.v2.0.0-memo-controller", &1);
        assert_eq!(name.len(), 63);
        assert!(name.starts_with("memo.v2.0.0-memo-control-"), "{name}");
        assert!(hashed_name("a", &1).starts_with("a-"));
    }
}
