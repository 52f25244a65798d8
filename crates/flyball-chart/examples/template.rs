//! `helm template`, for `tests/cases` and for whoever wants to compare.

use flyball_chart::{Seed, TemplateArgs, template};
use flyball_core::Clock;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let output = TemplateArgs::parse(&arguments).and_then(|args| {
        let seed = Seed::from_os().map_err(|error| error.to_string())?;
        let output = template(&args, Path::new("."), Clock::system(), seed, None)?;
        output.write_files(Path::new("."))?;
        Ok(output)
    });
    let written = match output {
        Ok(output) => {
            let warnings = output.warnings.iter().map(|warning| format!("{warning}\n")).collect::<String>();
            std::io::stderr()
                .write_all(warnings.as_bytes())
                .and_then(|()| std::io::stdout().write_all(output.text.as_bytes()))
        }
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "Error: {message}");
            return ExitCode::FAILURE;
        }
    };
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
