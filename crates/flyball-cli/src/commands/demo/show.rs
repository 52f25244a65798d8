//! Steps of demos, which are printed and fail the demo on timeout.

use super::stage::Stage;
use crate::cluster::wait;
use crate::error::{Error, Result, ResultExt};
use crate::render::last_seen::summary;
use crate::render::table;
use crate::render::terminal::{Board, Style, paint, say};
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
pub(super) const GLANCE: Duration = Duration::from_millis(25);
/// Field manager of the demos.
pub(super) const MANAGER: &str = "flyball-demo";

/// Shows the table of a kind until one of its objects meets a condition.
pub(super) async fn until<T, F>(
    stage: &Stage,
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
    let mut board = Board::default();
    let held = wait::until(STEP_TIMEOUT, GLANCE, async || {
        let object = objects.get(name).await.when(format!("step {what:?}: cannot read {name}"))?;
        board.show(table::fetch(&stage.admin, path).await?);
        if holds(&object).await {
            // The condition may be met after the table was fetched, so fetch it again.
            board.show(table::fetch(&stage.admin, path).await?);
            return Ok(Ok(()));
        }
        Ok(Err(object))
    });
    held.await?.or_else(|object| Err(late(what, &object)?))?;
    done(what);
    Ok(())
}

/// Returns the error of a step that takes too long.
pub(super) fn late<T>(what: &str, object: &T) -> Result<Error>
where
    T: Resource<DynamicType = ()> + Serialize,
{
    let step = format!("step {what:?} was not reached within {} s", STEP_TIMEOUT.as_secs());
    let mut value = serde_json::to_value(object).when(step.clone())?;
    value["kind"] = T::kind(&()).into();
    Ok(Error::new(format!("{step}; last seen:\n{}", summary(&value))))
}

pub(super) fn title(text: &str) {
    say("");
    say(&format!("{} {}", paint(Style::Strong, "▸"), paint(Style::Strong, text)));
}

pub(super) fn done(text: &str) {
    say(&format!("{} {text}", paint(Style::Good, "✓")));
}

/// Prints the next steps: the sample and kubectl commands.
pub(super) fn how_to_go_on(stage: &Stage, keep: bool, sample: &Value, commands: &[&str]) -> Result<()> {
    if !keep {
        say("Next: `flyball demo --keep` leaves everything running for kubectl,");
        say("      `flyball cluster up` starts your own control plane.");
        return Ok(());
    }
    let name = format!("{}.yaml", sample["metadata"]["name"].as_str().unwrap_or("sample"));
    let path = stage.kubeconfig.with_file_name(&name);
    let flags = stage.kubectl_flags();
    let file = yaml::write(sample);
    // No file is written beside a user's kubeconfig.
    let apply = if stage.is_own() && fs::write(&path, &file).is_ok() {
        format!("apply -f {}", path.display())
    } else {
        format!("apply -f {name}   # with:\n\n{file}")
    };
    say("Running until Ctrl-C. In another terminal, try:");
    for command in [apply.as_str()].iter().chain(commands) {
        say(&format!("  kubectl {flags} {command}"));
    }
    Ok(())
}
