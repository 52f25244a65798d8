//! Questions to people, on a terminal.

use crate::error::{Result, ResultExt};
use std::io::{IsTerminal, Write, stderr, stdin};

/// Returns true if prompts are possible.
pub(crate) fn is_available() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Prompts for a text until it is valid. Enter accepts the default, if there is one.
pub(crate) fn read_text(
    question: &str,
    proposed: Option<&str>,
    check: impl Fn(&str) -> Result<String, String>,
) -> Result<String> {
    loop {
        let default = proposed.map(|text| format!(" [{text}]")).unwrap_or_default();
        let response = read_line(&format!("{question}{default}: "))?;
        let response = match (response.as_str(), proposed) {
            ("", Some(proposed)) => proposed.to_owned(),
            _ => response,
        };
        match check(&response) {
            Ok(text) => return Ok(text),
            Err(error) => write_prompt(&format!("{error}\n")),
        }
    }
}

/// Prompts with a yes-or-no question.
pub(crate) fn confirm(question: &str) -> Result<bool> {
    loop {
        match read_line(&format!("{question} [Y/n]: "))?.to_lowercase().as_str() {
            "" | "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => write_prompt("answer y or n\n"),
        }
    }
}

fn read_line(question: &str) -> Result<String> {
    write_prompt(question);
    let mut input = String::new();
    let read = stdin().read_line(&mut input).context("cannot read the answer")?;
    if read == 0 {
        return Err(crate::error::Error::new("no answer: the terminal was closed"));
    }
    Ok(input.trim().to_owned())
}

fn write_prompt(text: &str) {
    // A closed terminal ends the loop, since reading fails.
    let _ = stderr().write_all(text.as_bytes()).and_then(|()| stderr().flush());
}
