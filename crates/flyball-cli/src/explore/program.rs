//! Explorations of an operator built with Flyball, as a process with its own manifests.

use crate::cluster::apply;
use crate::error::{Error, Result};
use crate::operator::metrics::{HEALTH_VARIABLE, METRICS_VARIABLE};
use crate::operator::process::supervised_line;
use crate::operator::program::Program;
use flyball_explore::OperatorCommand;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Default number of runs at the same time for each processor: operators wait most of the time.
const JOBS_PER_PROCESSOR: usize = 3;

/// Returns the default number of runs at the same time.
pub(crate) fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) * JOBS_PER_PROCESSOR
}

/// Returns the command of an operator built with Flyball: it has the roles of its manifests, and serves neither metrics
/// nor health checks.
pub(crate) async fn command(
    program: &Program,
    args: &[String],
    variables: &BTreeMap<String, String>,
) -> Result<OperatorCommand> {
    let manifests = program.manifests(args, variables).await?;
    let name = program.describe(args, variables).await?.name;
    let mut line = program.command_line();
    line.push("run".into());
    line.extend(args.iter().map(Into::into));
    let own = [(METRICS_VARIABLE, "0"), (HEALTH_VARIABLE, "0"), ("FLYBALL_OPERATOR_NAMESPACE", "operator-system")];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let all = variables.clone().into_iter().chain(own);
    let command = OperatorCommand::new(name, supervised_line(&line)).manifests(manifests);
    Ok(all.fold(command, |command, (name, value)| command.variable(name, value)))
}

/// Reads the objects of files and directories.
pub(crate) fn objects(paths: &[PathBuf]) -> Result<Vec<Value>> {
    let read: Result<Vec<Vec<Value>>> = paths.iter().map(|path| apply::read(path)).collect();
    Ok(read?.concat())
}

/// Reads the samples of an exploration, of which there must be one.
pub(crate) fn samples(paths: &[PathBuf]) -> Result<Vec<Value>> {
    let objects = objects(paths)?;
    match objects.is_empty() {
        true => Err(Error::usage("no samples found: an exploration applies custom resources")
            .hint("pass --samples PATH or --scenario FILE")),
        false => Ok(objects),
    }
}
