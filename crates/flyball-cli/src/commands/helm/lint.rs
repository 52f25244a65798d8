//! `flyball helm lint`: the rules of Helm, and the checks of an API server.

use super::{HelmError, print, remote, server, warn};
use flyball_chart::{LintArgs, Seed};
use flyball_core::Clock;
use std::path::Path;

pub(super) fn lint(args: &LintArgs) -> Result<(), HelmError> {
    let mut local = args.clone();
    let _fetched = remote::localize(&mut local.charts, &args.path)?;
    let seed = Seed::from_os().map_err(|error| error.to_string())?;
    let mut check = |lint: &_| server::check(lint, &args.namespace, args.helm_version);
    let mut report = flyball_chart::lint(&local, Path::new("."), &Clock::system(), &seed, &mut check)?;
    // Findings name charts as on the command line.
    for (path, name) in local.charts.iter().zip(&args.charts) {
        report.charts.iter_mut().filter(|chart| chart.path == *path).for_each(|chart| chart.path.clone_from(name));
    }
    warn(&report.warnings);
    match args.output {
        Some(_) => print(&format!("{}\n", serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?)),
        None => print(&report.text(args)),
    }
    if report.failed > 0 { Err(report.summary().into()) } else { Ok(()) }
}
