//! The parts of DER and PEM that private keys need.

use super::super::encoding::from_base64;
use super::super::json::base64;
use num_bigint::BigUint;

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const BITS: u8 = 0x03;

/// Encodes a value with tag and length.
pub(super) fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut out = vec![tag];
    if length < 0x80 {
        out.push(u8::try_from(length).unwrap_or(0));
    } else {
        let bytes = length.to_be_bytes();
        let used = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
        out.push(0x80 | u8::try_from(used.len()).unwrap_or(0));
        out.extend(used);
    }
    out.extend(content);
    out
}

pub(super) fn integer(number: &BigUint) -> Vec<u8> {
    let mut bytes = number.to_bytes_be();
    if bytes[0] & 0x80 != 0 {
        bytes.insert(0, 0);
    }
    wrap(0x02, &bytes)
}

/// Encodes a PEM block with 64 characters per line.
pub(super) fn pem(kind: &str, der: &[u8]) -> String {
    let letters = base64(der);
    let lines: Vec<&str> = letters.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

/// Decodes the first PEM block of a string: its label and its bytes.
pub(super) fn from_pem(text: &str) -> Option<(String, Vec<u8>)> {
    let (_, rest) = text.split_once("-----BEGIN ")?;
    let (kind, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once("-----END ")?;
    let letters: String = body.chars().filter(|c| !c.is_whitespace()).collect();
    Some((kind.to_owned(), from_base64(letters.as_bytes()).ok()?))
}
