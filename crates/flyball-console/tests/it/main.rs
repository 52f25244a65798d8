//! Integration tests.

mod architecture;
mod serve;
