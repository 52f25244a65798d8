//! The reference of commands, `docs/commands.md`, which is made from the commands themselves.
//!
//! `FLYBALL_BLESS=1 cargo test -p flyball-cli reference` writes it anew.

use crate::Cli;
use clap::{Command, CommandFactory};
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "# Commands

What `flyball COMMAND --help` says, for all commands. This page is made from the program: do not edit it, but run
`FLYBALL_BLESS=1 cargo test -p flyball-cli reference`.
";

/// Writes down a command and those below it.
fn describe(command: &mut Command, name: &str, page: &mut String) {
    let help = command.clone().bin_name(name).render_long_help().to_string();
    // `cat` of a file with spaces at ends of lines is no pleasure.
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let heading = "#".repeat(name.split(' ').count().clamp(2, 4));
    write!(page, "\n{heading} {name}\n\n```text\n{}\n```\n", lines.join("\n").trim_end()).unwrap();
    for below in command.get_subcommands_mut().filter(|below| below.get_name() != "help" && !below.is_hide_set()) {
        let name = format!("{name} {}", below.get_name());
        describe(below, &name, page);
    }
}

#[test]
fn the_page_is_what_the_commands_say() {
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
