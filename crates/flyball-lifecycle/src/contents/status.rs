//! The status of a CatalogSource.

use crate::api::{CatalogSource, CatalogSourceStatus, ConnectionState, RegistryService};
use flyball::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// State of a connection that is not established.
pub(super) const IDLE: &str = "IDLE";
/// State of a catalog whose content is known.
pub(super) const READY: &str = "READY";
/// State of a catalog that cannot be loaded.
pub(super) const TRANSIENT_FAILURE: &str = "TRANSIENT_FAILURE";

/// Maximum length of the message of a condition in the CRD, in characters.
const MAX_MESSAGE: usize = 32 << 10;

/// Returns the state of the connection.
pub(super) fn state_of(source: &CatalogSource) -> &str {
    source.status.connection_state.as_ref().map_or("", |state| &state.last_observed_state)
}

/// Returns the address of the registry in the status: that of the spec, or the name of the content.
fn address_of(source: &CatalogSource) -> &str {
    let spec = &source.spec;
    [&spec.address, &spec.image, &spec.config_map].into_iter().find(|text| !text.is_empty()).map_or("", |text| text)
}

/// Returns the status for a state of the connection.
pub(super) fn status_of(
    source: &CatalogSource,
    state: &str,
    problem: Option<(&str, &str)>,
    now: Time,
) -> CatalogSourceStatus {
    let mut status = source.status.clone();
    let (reason, message) = problem.unwrap_or_default();
    (status.reason, status.message) = (reason.to_owned(), message.to_owned());
    status.registry_service.get_or_insert_with(|| RegistryService {
        protocol: "grpc".to_owned(),
        created_at: Some(now.clone()),
        ..RegistryService::default()
    });
    status.conditions = vec![ready(state, reason, message)];
    let address = address_of(source);
    let is_same = status
        .connection_state
        .as_ref()
        .is_some_and(|known| known.last_observed_state == state && known.address == address);
    if !is_same {
        status.connection_state = Some(ConnectionState {
            address: address.to_owned(),
            last_observed_state: state.to_owned(),
            last_connect_time: Some(now),
        });
    }
    status
}

/// Returns the condition of a state, for `kubectl wait`. OLM sets none.
fn ready(state: &str, reason: &str, message: &str) -> Condition {
    let message: String = message.chars().take(MAX_MESSAGE).collect();
    let reason_or = |usual| if reason.is_empty() { usual } else { reason };
    match state {
        READY => Condition::new("Ready", true, reason_or("Loaded")).message(message),
        IDLE => {
            let connecting = Condition::new("Ready", false, "Connecting").message("the content is being loaded");
            Condition { status: "Unknown".to_owned(), ..connecting }
        }
        _ => Condition::new("Ready", false, reason_or("LoadFailed")).message(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_follows_the_state() {
        let check = |state: &str, problem: Option<(&str, &str)>, expected: (&str, &str, &str)| {
            let now = Time("2026-01-01T00:00:00Z".parse().unwrap());
            let status = status_of(&CatalogSource::new(Some("demo"), "demo"), state, problem, now);
            let [condition] = &status.conditions[..] else { panic!("{:?}", status.conditions) };
            let found = (condition.status.as_str(), condition.reason.as_str(), condition.message.as_str());
            assert_eq!(found, expected, "{state} {problem:?}");
        };
        check(IDLE, None, ("Unknown", "Connecting", "the content is being loaded"));
        check(READY, None, ("True", "Loaded", ""));
        check(READY, Some(("InvalidPackages", "memo")), ("True", "InvalidPackages", "memo"));
        check(TRANSIENT_FAILURE, Some(("UntrustedContent", "no label")), ("False", "UntrustedContent", "no label"));
        let long = "x".repeat(MAX_MESSAGE + 1);
        check(TRANSIENT_FAILURE, Some(("LoadFailed", &long)), ("False", "LoadFailed", &long[1..]));
    }
}
