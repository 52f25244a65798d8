//! `flyball install`: installs the CRDs of an operator that runs outside of the cluster.

use crate::cluster::connection::{Connection, ContextArgs, block_on};
use crate::cluster::rollout::{self, RolloutArgs};
use crate::cluster::safety;
use crate::error::{Error, Result};
use crate::operator::installation::{Installation, TargetArgs};
use clap::Args;
use serde_json::Value;

/// Install the CRDs of an operator
///
/// Uses server-side apply, so large CRDs work. CRDs that would make stored objects invalid are rejected.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball install
  flyball install --program ./site-operator --context staging --dry-run")]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    connection: ContextArgs,
    #[command(flatten)]
    rollout: RolloutArgs,
}

pub(crate) fn cmd_install(args: &InstallArgs) -> Result<()> {
    let applied = block_on(async {
        let connection = args.connection.connect().await?;
        let installation = Installation::load(&args.target, None, None).await?;
        let mut definitions = installation.definitions();
        if definitions.is_empty() {
            return Err(Error::new(format!("{} has no CustomResourceDefinitions", installation.description.name))
                .hint("add one with Operator::crd"));
        }
        for definition in &mut definitions {
            if !is_deployed(&connection, definition).await? {
                without_conversion(definition);
            }
        }
        safety::check(&connection, &definitions, args.rollout.force).await?;
        rollout::apply_in_order(&connection, &definitions, &args.rollout).await
    })?;
    args.rollout.output.map_or(Ok(()), |output| output.print(&applied))
}

/// Returns true if a deployed operator converts the versions.
async fn is_deployed(connection: &Connection, definition: &Value) -> Result<bool> {
    // A missing definition has no conversion.
    let found = connection.find(definition).await?.unwrap_or_default();
    Ok(found["spec"]["conversion"]["webhook"]["clientConfig"]["service"].is_object())
}

/// Removes the conversion from a definition: an operator outside of the cluster sets the URL itself.
fn without_conversion(definition: &mut Value) {
    if let Some(spec) = definition["spec"].as_object_mut() {
        spec.remove("conversion");
    }
}
