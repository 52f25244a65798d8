//! `flyball helm lint`: the rules of Helm, and the checks of an API server.

use super::{print, server, warn};
use flyball_chart::{LintArgs, Seed};
use flyball_core::Clock;
use std::path::Path;

pub(super) fn lint(args: &LintArgs) -> Result<(), String> {
    let seed = Seed::from_os().map_err(|error| error.to_string())?;
    let mut check = |lint: &_| server::check(lint, &args.namespace, args.helm_version);
    let report = flyball_chart::lint(args, Path::new("."), &Clock::system(), &seed, &mut check)?;
    warn(&report.warnings);
    match args.output {
        Some(_) => print(&format!("{}\n", serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?)),
        None => print(&report.text(args)),
    }
    if report.failed > 0 { Err(report.summary()) } else { Ok(()) }
}
