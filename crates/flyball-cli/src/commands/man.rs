//! `flyball man`: prints manual pages.

use crate::error::{Result, ResultExt};
use crate::render::terminal::print_line;
use clap::{Args, Command};
use clap_mangen::{Man, generate_to};
use std::fs;
use std::path::PathBuf;

/// Print the manual page, or write all manual pages to a directory
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball man | man -l -
  flyball man --out ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Output directory for flyball.1, flyball-run.1 and so on
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn cmd_man(args: &ManArgs, program: Command) -> Result<()> {
    match &args.out {
        Some(folder) => {
            let what = || format!("cannot write manual pages to {}", folder.display());
            fs::create_dir_all(folder).context(what())?;
            generate_to(program, folder).context(what())
        }
        None => {
            let mut page = Vec::new();
            Man::new(program).render(&mut page).context("cannot write the manual page")?;
            print_line(String::from_utf8_lossy(&page).trim_end());
            Ok(())
        }
    }
}
