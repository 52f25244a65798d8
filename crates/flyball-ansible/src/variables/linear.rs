//! The cost of creating variables is linear in the size of the spec.

use super::{Names, explain, of};
use crate::watches::Watch;
use flyball::GroupVersionKind;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Maximum ratio of CPU times for twice the size.
const RATIO: f64 = 2.5;

/// A spec by size, and a size that takes some milliseconds.
type Shape = (&'static str, usize, fn(usize) -> Value);

fn fields(count: usize, name: impl Fn(usize) -> String) -> Value {
    Value::Object((0..count).map(|n| (name(n), json!(n))).collect::<Map<_, _>>())
}

const SHAPES: &[Shape] = &[
    ("fields", 1_000, |n| fields(n, |n| format!("fieldNumber{n}"))),
    ("fields that become no variables", 1_000, |n| fields(n, |n| format!("ansible-{n}"))),
    ("fields that have the same name", 1_000, |n| {
        fields(n, |n| format!("a{n:016b}").replace('0', "_").replace('1', "-"))
    }),
    ("letters of a name", 20_000, |n| json!({"aB".repeat(n): 1})),
    ("capitals of a name", 20_000, |n| json!({"A".repeat(n): 1})),
    ("numbers in a name", 20_000, |n| json!({"a1".repeat(n): 1})),
    ("digits of a name", 20_000, |n| json!({format!("a{}", "1".repeat(n)): 1})),
    ("abbreviations in a name", 20_000, |n| json!({"IPsURLs".repeat(n): 1})),
    ("delimiters in a name", 20_000, |n| json!({"_".repeat(n): 1})),
    ("fields within a field", 1_000, |n| json!({"within": fields(n, |n| format!("fieldNumber{n}"))})),
    ("fields within items", 500, |n| json!({"items": vec![json!({"fieldName": {"otherName": 1}}); n]})),
    ("texts", 20_000, |n| json!({"texts": vec!["text"; n]})),
    ("levels", 50, |n| json!({"levels": vec![(0..n).fold(json!(1), |inner, _| json!({"aB": inner})); 100]})),
];

/// The CPU time of this thread.
fn cpu() -> Duration {
    // The kernel updates the time when a thread yields, else every few milliseconds.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

/// Returns the minimum CPU time for creating the variables of a spec and listing its rejected fields.
fn cost(spec: &Value) -> Duration {
    let gvk = GroupVersionKind::new("example.com", "v1", "Shop");
    let watch = Watch { gvk, snake_case: true, ..Watch::default() };
    let object = json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a", "namespace": "b"}, "spec": spec});
    let object = serde_json::from_value(object).unwrap();
    let once = || {
        let start = cpu();
        let variables = of(&object, &watch, &Names::default(), false);
        let explanation = explain(&variables.rejected);
        let elapsed = cpu() - start;
        drop((variables, explanation));
        elapsed
    };
    (0..4).map(|_| once()).min().unwrap()
}

#[test]
fn cost_is_linear() {
    let mut worst = Vec::new();
    for (name, size, spec) in SHAPES {
        // On a loaded machine, one measurement may be wrong, but hardly three.
        let measured = (0..3).map(|_| {
            let [once, twice] = [*size, 2 * size].map(|size| cost(&spec(size)));
            (twice.as_secs_f64() / once.as_secs_f64(), once, twice)
        });
        let mut measured = measured.take_while(|(ratio, ..)| *ratio > RATIO).collect::<Vec<_>>();
        if measured.len() == 3 {
            worst.push((name, measured.pop()));
        }
    }
    assert!(worst.is_empty(), "{worst:#?}");
}
