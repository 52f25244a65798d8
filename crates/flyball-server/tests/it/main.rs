//! Integration tests of the embedded API server, in process: no socket, no other program, no real time.

mod conformance;
mod robustness;

use flyball_core::Clock;
use flyball_server::{Options, Server};
use std::path::Path;
use std::time::Duration;

/// The longest that a step asks again for what only controllers bring about: there are none here.
const PATIENCE: Duration = Duration::from_millis(500);

#[test]
fn recorded_answers_are_repeated() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let server = async |clock: Clock| Server::new(Options::simulated(clock, 1));
    conformance::check(&folder, &folder.join("passing.txt"), PATIENCE, server);
}
