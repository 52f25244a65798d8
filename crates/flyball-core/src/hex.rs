//! Bytes as hexadecimal digits.

/// Returns the lowercase hexadecimal digits of bytes, two for each.
///
/// ```
/// assert_eq!(flyball_core::hex::encode(&[0x0f, 0xa0]), "0fa0");
/// ```
#[doc(alias = "EncodeToString")]
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}
