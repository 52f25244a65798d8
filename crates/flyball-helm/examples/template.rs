//! `helm template`, for `tests/cases` and for whoever wants to compare.

use clap::Parser;
use flyball_core::{Clock, Rng};
use flyball_helm::{TemplateArgs, template};
use std::io::Write;
use std::process::ExitCode;

#[derive(Parser)]
#[command(disable_version_flag = true)]
struct Cli {
    #[command(flatten)]
    args: TemplateArgs,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let argument = error.get(clap::error::ContextKind::InvalidArg).map(ToString::to_string);
            let message = match (error.kind(), argument) {
                (clap::error::ErrorKind::UnknownArgument, Some(flag)) => format!("unknown flag: {flag}"),
                _ => error.to_string(),
            };
            let _ = writeln!(std::io::stderr(), "Error: {message}");
            return ExitCode::FAILURE;
        }
    };
    match template(&cli.args, std::path::Path::new("."), Clock::system(), Rng::from_os()) {
        Ok(output) => {
            for warning in output.warnings {
                let _ = writeln!(std::io::stderr(), "{warning}");
            }
            let _ = std::io::stdout().write_all(output.text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "Error: {message}");
            ExitCode::FAILURE
        }
    }
}
