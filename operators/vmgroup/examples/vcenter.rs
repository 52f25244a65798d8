//! A simulated vCenter on a local port, for tests of the operator's program.
//!
//! It prints the variables of the operator, and serves until it is stopped:
//!
//! ```text
//! VC_HOST=http://127.0.0.1:40123 VC_USER=… VC_PASS=…
//! ```
#![allow(clippy::print_stdout, reason = "a tool that prints its address")]

use tokio::net::TcpListener;
use vmgroup::simulator::{Options, Simulator};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let credentials = Simulator::credentials();
    println!("VC_HOST=http://{} VC_USER={} VC_PASS={}", listener.local_addr()?, credentials.user, credentials.password);
    Simulator::new(Options::default()).serve(listener).await
}
