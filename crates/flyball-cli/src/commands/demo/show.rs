//! Steps of demos, which are printed and fail the demo on timeout.

use super::cluster::DemoCluster;
use crate::cluster::wait;
use crate::error::{Error, Result, ResultExt};
use crate::render::last_seen::summary;
use crate::render::table;
use crate::render::terminal::{LiveLines, Style, paint, print_line};
use crate::render::yaml;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;
use std::fs;
use std::time::Duration;

/// Timeout of a step.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// Polling interval.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Field manager of the demos.
pub(super) const MANAGER: &str = "flyball-demo";

/// Shows the table of a kind until one of its objects meets a condition.
pub(super) async fn wait_until<T, F>(
    cluster: &DemoCluster,
    objects: &Api<T>,
    name: &str,
    what: &str,
    holds: impl Fn(&T) -> F,
) -> Result<()>
where
    T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
    F: Future<Output = bool>,
{
    let path = objects.resource_url();
    let mut live = LiveLines::default();
    let held = wait::poll_until(STEP_TIMEOUT, POLL_INTERVAL, async || {
        let object = objects.get(name).await.context(format!("step {what:?}: cannot read {name}"))?;
        live.show(table::fetch(&cluster.admin, path).await?);
        if holds(&object).await {
            // The condition may be met after the table was fetched, so fetch it again.
            live.show(table::fetch(&cluster.admin, path).await?);
            return Ok(Ok(()));
        }
        Ok(Err(object))
    });
    held.await?.or_else(|object| Err(timeout_error(what, &object)?))?;
    print_done(what);
    Ok(())
}

/// Returns the error of a step that takes too long.
pub(super) fn timeout_error<T>(what: &str, object: &T) -> Result<Error>
where
    T: Resource<DynamicType = ()> + Serialize,
{
    let step = format!("step {what:?} was not reached within {} s", STEP_TIMEOUT.as_secs());
    let mut value = serde_json::to_value(object).context(step.clone())?;
    value["kind"] = T::kind(&()).into();
    Ok(Error::new(format!("{step}; last seen:\n{}", summary(&value))))
}

pub(super) fn print_title(text: &str) {
    print_line("");
    print_line(&format!("{} {}", paint(Style::Strong, "▸"), paint(Style::Strong, text)));
}

pub(super) fn print_done(text: &str) {
    print_line(&format!("{} {text}", paint(Style::Good, "✓")));
}

/// Prints the next steps: the sample and kubectl commands.
///
/// `demo` is the command that showed it.
pub(super) fn print_next_steps(
    cluster: &DemoCluster,
    keep: bool,
    demo: &str,
    sample: &Value,
    commands: &[&str],
) -> Result<()> {
    if !keep {
        print_line(&format!("Next: `{demo} --keep` leaves everything running for kubectl,"));
        print_line("      `flyball cluster up` starts your own control plane.");
        return Ok(());
    }
    let name = format!("{}.yaml", sample["metadata"]["name"].as_str().unwrap_or("sample"));
    let path = cluster.kubeconfig.with_file_name(&name);
    let flags = cluster.kubectl_flags();
    let file = yaml::write(sample);
    // No file is written beside a user's kubeconfig.
    let apply = if cluster.is_own() && fs::write(&path, &file).is_ok() {
        format!("apply -f {}", path.display())
    } else {
        format!("apply -f {name}   # with:\n\n{file}")
    };
    print_line("Running until Ctrl-C. In another terminal, try:");
    for command in [apply.as_str()].iter().chain(commands) {
        print_line(&format!("  kubectl {flags} {command}"));
    }
    Ok(())
}
