//! The operator of the `watches.yaml` that `WATCHES_FILE` names, in the current folder if nothing does: see `--help`.

use flyball_helm::{Watches, operator};
use std::error::Error;
use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "it is a program")]
fn main() -> ExitCode {
    let file = std::env::var("WATCHES_FILE").unwrap_or_else(|_| "watches.yaml".to_owned());
    let operator =
        Watches::read(file).map_err(Box::<dyn Error>::from).and_then(|watches| Ok(operator(&watches.reloading(true))?));
    match operator {
        Ok(operator) => operator.main(),
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprintln!("  because {cause}");
                source = cause.source();
            }
            ExitCode::from(2)
        }
    }
}
