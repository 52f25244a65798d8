//! `flyball olm pin`.

use super::objects;
use crate::cluster::connection::{ConnectionArgs, block_on};
use crate::error::{Error, Result};
use crate::render::terminal::{Style, one_line, paint, print_labeled, print_line};
use clap::Args;
use flyball_lifecycle::api::labels::{ROLLBACK, VERSIONS};
use flyball_lifecycle::api::{ClusterServiceVersion, Subscription};
use flyball_lifecycle::{VersionRange, parse_tolerant};
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
    #[arg(conflicts_with = "remove")]
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
    let parse = |range: &String| {
        VersionRange::parse(range).map_err(|error| {
            Error::usage(format!("{range:?} is not a range of versions: {error}"))
                .hint("write comparisons such as '>=1.0.0 <2.0.0'; || separates alternatives")
        })
    };
    let range = args.versions.as_ref().map(parse).transpose()?;
    if range.is_none() && !args.remove {
        let name = &args.subscription;
        return Err(Error::usage("no range of versions is given")
            .hint(format!("restrict the versions: flyball olm pin {name} '>=1.0.0 <2.0.0'"))
            .hint(format!("or allow all versions again: flyball olm pin {name} --remove")));
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
        if let Some(range) = &range {
            let installed = &subscription.status.installed_csv;
            let csv: Option<ClusterServiceVersion> = match installed.is_empty() {
                true => None,
                false => objects::find(&connection, installed).await?,
            };
            if let Some(csv) = csv.filter(|csv| is_outside(range, csv)) {
                let version = &csv.spec.version;
                print_labeled(
                    "warning",
                    &one_line(&format!(
                        "{installed} is installed, and its version {version} is outside of the range: it stays until \
                         an upgrade leads into the range; to install an older one: flyball olm rollback {name} -n {}",
                        connection.namespace
                    )),
                );
            }
        }
        Ok(())
    })
}

/// Returns true if the version of an operator is not in a range.
fn is_outside(range: &VersionRange, csv: &ClusterServiceVersion) -> bool {
    parse_tolerant(&csv.spec.version).is_some_and(|version| !range.includes(&version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_version_outside_of_the_range_is_noticed() {
        let range = VersionRange::parse("<2.0.0").unwrap();
        let mut csv = ClusterServiceVersion::new(Some("demo"), "memo");
        for (version, expected) in [("1.9.0", false), ("2.0.0", true), ("", false)] {
            csv.spec.version = version.to_owned();
            assert_eq!(is_outside(&range, &csv), expected, "{version}");
        }
    }
}
