//! `flyball olm pin`.

use super::objects;
use crate::cluster::connection::{ConnectionArgs, block_on};
use crate::error::{Error, Result};
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use flyball_lifecycle::VersionRange;
use flyball_lifecycle::api::Subscription;
use flyball_lifecycle::api::labels::{ROLLBACK, VERSIONS};
use kube::ResourceExt;
use serde_json::json;

/// Restrict the versions that a Subscription installs, or end a restriction or a rollback
///
/// Sets the annotation olm.flyball.dev/versions. An installed version outside of the range stays until an upgrade leads
/// into the range; `flyball olm rollback` installs an older one.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball olm pin memo '>=1.0.0 <2.0.0' -n demo
  flyball olm pin memo 1.1.0 -n demo
  flyball olm pin memo --remove -n demo          also ends a rollback")]
pub(super) struct PinArgs {
    /// Subscription
    subscription: String,
    /// Version, or range of versions
    #[arg(required_unless_present = "remove", conflicts_with = "remove")]
    versions: Option<String>,
    /// Allow all versions again
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn cmd_pin(args: &PinArgs) -> Result<()> {
    if let Some(range) = &args.versions {
        VersionRange::parse(range).map_err(|error| {
            Error::usage(format!("{range:?} is not a range of versions: {error}"))
                .hint("write comparisons such as '>=1.0.0 <2.0.0'; || separates alternatives")
        })?;
    }
    block_on(async {
        let connection = args.connection.connect().await?;
        let subscription = objects::subscription(&connection, &args.subscription).await?;
        let name = subscription.name_any();
        let annotations = match &args.versions {
            Some(range) => json!({VERSIONS: range}),
            None => json!({VERSIONS: null, ROLLBACK: null}),
        };
        objects::patch::<Subscription>(&connection, &name, &json!({"metadata": {"annotations": annotations}})).await?;
        if !args.quiet {
            let state = match &args.versions {
                Some(range) => format!("installs only versions {range}"),
                None => "installs all versions".to_owned(),
            };
            print_line(&format!("Subscription {}/{name} {}", connection.namespace, paint(Style::Good, &state)));
        }
        Ok(())
    })
}
