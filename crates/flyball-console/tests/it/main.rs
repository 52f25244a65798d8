//! Integration tests.

mod architecture;
mod discovered;
mod serve;
