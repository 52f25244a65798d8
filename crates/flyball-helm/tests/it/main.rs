//! Charts with what the real Helm says of them, and the library as a program uses it.

mod cases;
mod library;
