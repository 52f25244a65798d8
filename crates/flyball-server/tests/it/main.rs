//! Integration tests of the embedded API server, in process: no socket, no other program, no real time.

mod robustness;
