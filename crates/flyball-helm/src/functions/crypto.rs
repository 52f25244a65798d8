//! Sums of texts.

use super::{STR, Table, bytes};
use crate::template::value::Value;
use ring::digest;

pub(super) fn add(table: &mut Table) {
    table.add("sha1sum", &[STR], |_, args| Ok(sum(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes(&args[0]))));
    table.add("sha256sum", &[STR], |_, args| Ok(sum(&digest::SHA256, bytes(&args[0]))));
    table.add("sha512sum", &[STR], |_, args| Ok(sum(&digest::SHA512, bytes(&args[0]))));
    table.add("adler32sum", &[STR], |_, args| Ok(Value::str(adler32(bytes(&args[0])).to_string())));
}

fn sum(algorithm: &'static digest::Algorithm, bytes: &[u8]) -> Value {
    Value::str(digest::digest(algorithm, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn adler32(bytes: &[u8]) -> u32 {
    const PRIME: u32 = 65521;
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % PRIME;
        (low, (high + low) % PRIME)
    });
    high << 16 | low
}
