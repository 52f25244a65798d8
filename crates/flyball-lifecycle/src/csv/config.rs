//! The controller of OLMConfig: reports whether copies are enabled.

use super::copies::{CONFIG, are_enabled};
use super::index::{CopiesOf, CsvName};
use crate::api::{ClusterServiceVersion, OlmConfig, labels};
use flyball::{Action, Condition, Context, Controller, ObjectKey, Reconcile, Result};
use kube::ResourceExt;
use serde_json::json;

struct Configs;

impl Reconcile for Configs {
    type Resource = OlmConfig;

    async fn reconcile(&self, config: &OlmConfig, cx: &Context<OlmConfig>) -> Result<Action> {
        if config.name_any() != CONFIG {
            return Ok(Action::done());
        }
        let surplus = match are_enabled(Some(config)) {
            true => 0,
            false => surplus(cx).await?,
        };
        cx.set_status(&json!({"conditions": [condition(are_enabled(Some(config)), surplus)]})).await?;
        Ok(Action::done())
    }
}

/// Returns the number of copied operators that watch all namespaces.
async fn surplus(cx: &Context<OlmConfig>) -> Result<usize> {
    let mut origins: Vec<CsvName> =
        cx.caches().range_by::<CopiesOf>(..)?.into_iter().map(|(origin, _)| origin).collect();
    origins.dedup();
    let mut surplus = 0;
    for (namespace, name) in origins {
        let original = cx.get::<ClusterServiceVersion>(&ObjectKey::new(Some(&namespace), &name)).await?;
        let targets_all = |csv: &ClusterServiceVersion| {
            csv.annotations().get(labels::TARGET_NAMESPACES).is_some_and(String::is_empty)
        };
        surplus += usize::from(original.as_ref().is_none_or(targets_all));
    }
    Ok(surplus)
}

fn condition(enabled: bool, surplus: usize) -> Condition {
    const KIND: &str = "DisabledCopiedCSVs";
    match (enabled, surplus) {
        (true, _) => Condition::new(KIND, false, "CopiedCSVsEnabled")
            .message("Copied CSVs are enabled and present across the cluster"),
        (false, 0) => Condition::new(KIND, true, "CopiedCSVsDisabled").message(
            "Copied CSVs are disabled and no unexpected copied CSVs were found for operators installed in \
             AllNamespace mode",
        ),
        (false, _) => Condition::new(KIND, false, "CopiedCSVsDisabled").message(
            "Copied CSVs are disabled and at least one unexpected copied CSV was found for an operator installed in \
             AllNamespace mode",
        ),
    }
}

/// Returns the controller of OLMConfig.
pub(super) fn controller() -> Controller<impl Reconcile> {
    Controller::new(Configs)
        .index::<CopiesOf>()
        .watches_by_key::<ClusterServiceVersion>(|_, caches| caches.keys::<OlmConfig>(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_tells_whether_copies_are_left() {
        assert_eq!(condition(true, 3).status, "False");
        assert_eq!((condition(false, 0).status, condition(false, 1).status), ("True".into(), "False".into()));
    }
}
