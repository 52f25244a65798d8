//! Schema numbers: the version and schema with which a stored object was written.
//!
//! The number of an entry is the only record of its version: the stored JSON has no `apiVersion`. Equal schemas of a
//! version have equal numbers, in every process; numbers of one version agree in [`VERSION`], for all of its schemas.

use serde_json::Value;
use std::hash::{Hash, Hasher};

/// Set in the numbers of all custom resources: built-in kinds have 0 and 1.
const CUSTOM: u64 = 1 << 1;

/// Set if the object lacks a default of the schema: it was written through another version.
const INCOMPLETE: u64 = 1;

/// The bits that only depend on the version.
const VERSION: u64 = 0xffff_fffc;

/// FNV-1a, which the standard library's hasher is not bound to be.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = (self.0 ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    of.hash(&mut hasher);
    hasher.finish()
}

/// Numbers the schema of a version.
pub(crate) fn of(schema: Option<&Value>, version: &str) -> u64 {
    hash((schema.map(Value::to_string), version)) & !(VERSION | INCOMPLETE) | hash(version) & VERSION | CUSTOM
}

/// Marks the number of an object that lacks defaults.
pub(crate) fn incomplete(number: u64) -> u64 {
    number | INCOMPLETE
}

/// Returns true if two numbers are of the same version.
pub(crate) fn same_version(a: u64, b: u64) -> bool {
    a & VERSION == b & VERSION
}

/// Returns true if two numbers are of the same version with the same schema.
pub(crate) fn same_schema(a: u64, b: u64) -> bool {
    a | INCOMPLETE == b | INCOMPLETE
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_identify_version_and_schema() {
        let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
        let [a, b, other] = [of(Some(&text), "v1"), of(Some(&number), "v1"), of(Some(&text), "v2")];
        assert!(same_version(a, b) && !same_schema(a, b));
        assert!(!same_version(a, other) && !same_schema(a, other));
        assert!(same_schema(a, incomplete(a)) && a != incomplete(a));
        assert!([a, b, other].iter().all(|number| *number > 1));
    }
}
