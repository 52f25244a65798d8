//! Scorecard of an operator: checks of its manifests, as by operator-sdk, and of its behavior on a control plane.
//!
//! See <https://sdk.operatorframework.io/docs/testing-operators/scorecard/>.

mod definitions;
mod inventory;
mod run;

use crate::cluster::apply;
use crate::error::Result;
use crate::operator::charts;
use crate::operator::local::LocalArgs;
use crate::operator::program::Program;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// One check of an operator, and its result.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    #[serde(flatten)]
    pub(crate) found: CheckOutcome,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "camelCase")]
pub(crate) enum CheckOutcome {
    Passed,
    Failed { why: String, remedy: String },
    Skipped { why: String },
}

impl CheckOutcome {
    fn failed(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Failed { why: why.into(), remedy: remedy.into() }
    }

    fn skipped(why: impl Into<String>) -> Self {
        Self::Skipped { why: why.into() }
    }
}

/// Checks the definitions and samples of an operator, and runs it with them on a control plane of its own. Each step
/// has this timeout; everything is removed afterwards.
///
/// # Errors
///
/// If the program does not exist or is not an operator, or the samples cannot be read.
pub(crate) async fn run_checks(mut local: LocalArgs, samples: Option<&Path>, timeout: Duration) -> Result<Vec<Check>> {
    let samples = samples.map(apply::read).transpose()?.unwrap_or_default();
    let program = local.build(None).await?;
    let mut definitions = program.manifests(&local.args, &BTreeMap::new()).await?;
    let source = Source::of(&program);
    let lasting = charts::lasting_definitions(&program);
    definitions.retain(|object| object["kind"] == "CustomResourceDefinition");
    local.program = Some(program);
    let mut checks = vec![definitions::samples(&definitions, &samples), definitions::fields(&definitions, source)];
    checks.extend(run::run(local, source, &definitions, &lasting, &samples, timeout).await?);
    Ok(checks)
}

/// The type of an operator's project, which determines the remedies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Rust,
    Chart,
    Role,
}

impl Source {
    fn of(program: &Program) -> Self {
        match program {
            Program::File(_) | Program::Lifecycle => Self::Rust,
            Program::Watches(_) if program.has_roles() => Self::Role,
            Program::Watches(_) => Self::Chart,
        }
    }

    /// Selects the text for this source.
    fn choose(self, rust: &'static str, chart: &'static str, role: &'static str) -> &'static str {
        match self {
            Self::Rust => rust,
            Self::Chart => chart,
            Self::Role => role,
        }
    }
}

/// Names a few of many.
fn join_some(all: &[String]) -> String {
    const NAMED: usize = 3;
    let named = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if all.len() > NAMED { format!("{named} and {} more", all.len() - NAMED) } else { named }
}
