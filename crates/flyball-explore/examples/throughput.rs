//! Measures the number of runs per minute of CPU: `cargo run --release -p flyball-explore --example throughput`.

use flyball_explore::{Budget, Explorer};
use std::time::Duration;

#[expect(clippy::print_stdout, reason = "the output of a measurement")]
fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20);
    let report = Explorer::of(memcached::operator)
        .sample(include_str!("../../../operators/memcached/config/samples/cache_v1alpha1_memcached.yaml"))
        .budget(Budget::time(Duration::from_secs(seconds)))
        .threads(1)
        .run();
    println!("{report}");
}
