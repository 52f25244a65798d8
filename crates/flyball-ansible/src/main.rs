//! The operator of a project with a `watches.yaml`: `flyball-ansible --watches-file FILE`, and what every operator takes.

use flyball_ansible::{Watches, operator};
use std::ffi::OsString;
use std::io::{Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;

/// As operator-sdk's ansible operator calls it.
const FLAG: &str = "--watches-file";

fn main() -> ExitCode {
    let (file, rest) = split(std::env::args_os());
    match Watches::read(file).and_then(|watches| operator(&watches)) {
        Ok(operator) => operator.main_from(rest),
        Err(error) => {
            // There is nobody to tell if that fails.
            let _ = writeln!(stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Takes the file out of the command line; without one it is `watches.yaml` in this folder.
fn split(arguments: impl IntoIterator<Item = OsString>) -> (PathBuf, Vec<OsString>) {
    let mut file = PathBuf::from("watches.yaml");
    let mut rest = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let given = argument.to_str().and_then(|argument| argument.strip_prefix(FLAG));
        match given {
            Some("") => file = arguments.next().unwrap_or_default().into(),
            Some(given) if given.starts_with('=') => file = given[1..].into(),
            _ => rest.push(argument),
        }
    }
    (file, rest)
}
