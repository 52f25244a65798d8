//! `flyball catalog`: file-based catalogs of operators.

mod diff;
mod graph;
mod render;
mod serve;
mod validate;

use crate::catalog::images::Images;
use crate::error::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Render, validate, compare, draw and serve catalogs of operators
#[derive(Args, Debug)]
pub(crate) struct CatalogArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Render(render::RenderArgs),
    Validate(validate::ValidateArgs),
    Diff(diff::DiffArgs),
    Graph(graph::GraphArgs),
    Serve(serve::ServeArgs),
}

/// The flags for images.
#[derive(Args, Clone, Debug)]
struct ImageFlags {
    /// Use HTTP without TLS; defaults to true only for a registry on this machine
    #[arg(long)]
    insecure: bool,
}

impl ImageFlags {
    fn images(&self) -> Images {
        Images { is_insecure: self.insecure }
    }
}

pub(crate) fn cmd_catalog(args: CatalogArgs) -> Result<ExitCode> {
    let done = match args.command {
        Command::Render(args) => render::cmd_render(&args),
        Command::Validate(args) => validate::cmd_validate(&args),
        Command::Diff(args) => return diff::cmd_diff(&args),
        Command::Graph(args) => graph::cmd_graph(&args),
        Command::Serve(args) => serve::cmd_serve(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Formats a number of things.
fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}
