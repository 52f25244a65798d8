//! Charts with what the real Helm says of them.

mod cases;
