//! Generates `docs/commands.md` from the command definitions.
//!
//! `FLYBALL_BLESS=1 cargo test -p flyball-cli reference` updates it.

use crate::Cli;
use clap::{Command, CommandFactory};
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "# Commands

This page contains the output of `flyball COMMAND --help` for all commands. It is generated: to update it, run
`FLYBALL_BLESS=1 cargo test -p flyball-cli reference`.
";

/// Appends the help of a command and its subcommands to the page.
fn describe(command: &mut Command, name: &str, page: &mut String) {
    let help = command.clone().bin_name(name).render_long_help().to_string();
    // No trailing spaces.
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let heading = "#".repeat(name.split(' ').count().clamp(2, 4));
    write!(page, "\n{heading} {name}\n\n```text\n{}\n```\n", lines.join("\n").trim_end()).unwrap();
    for below in command.get_subcommands_mut().filter(|below| below.get_name() != "help" && !below.is_hide_set()) {
        let name = format!("{name} {}", below.get_name());
        describe(below, &name, page);
    }
}

#[test]
fn commands_page_is_up_to_date() {
    let mut program = Cli::command();
    program.build();
    let mut page = HEAD.to_owned();
    describe(&mut program, "flyball", &mut page);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os("FLYBALL_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = page.lines().zip(found.lines()).find(|(new, old)| new != old);
    assert!(
        found == page,
        "docs/commands.md is stale ({differs:?}); FLYBALL_BLESS=1 cargo test -p flyball-cli reference"
    );
}
