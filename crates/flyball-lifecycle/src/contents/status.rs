//! The status of a CatalogSource.

use crate::api::{CatalogSource, CatalogSourceStatus, ConnectionState, RegistryService};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// State of a connection that is not established.
pub(super) const IDLE: &str = "IDLE";
/// State of a catalog whose content is known.
pub(super) const READY: &str = "READY";
/// State of a catalog that cannot be loaded.
pub(super) const TRANSIENT_FAILURE: &str = "TRANSIENT_FAILURE";

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
