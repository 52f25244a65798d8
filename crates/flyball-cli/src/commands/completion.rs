//! `flyball completion`: prints completion scripts.

use crate::render::terminal::print_line;
use clap::{Args, Command};
use clap_complete::{Shell, generate};

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball completion bash > ~/.local/share/bash-completion/completions/flyball
  flyball completion zsh > ~/.zfunc/_flyball
  flyball completion fish > ~/.config/fish/completions/flyball.fish")]
pub(crate) struct CompletionArgs {
    /// Shell
    shell: Shell,
}

pub(crate) fn cmd_completion(args: &CompletionArgs, mut program: Command) {
    let mut script = Vec::new();
    generate(args.shell, &mut program, "flyball", &mut script);
    print_line(String::from_utf8_lossy(&script).trim_end());
}
