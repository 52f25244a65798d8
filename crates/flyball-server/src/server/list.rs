//! Lists of objects, and the memory for them.

use super::Components;
use super::call::Call;
use crate::catalog::{Resource, Target};
use crate::registry::ListResult;
use crate::request::options::ListOptions;
use crate::storage::PendingEntries;
use flyball_core::Status;

/// Reserves memory for the references to the objects of a list. Over a connection, the past states among them count for
/// its connection until they are sent.
pub(super) async fn pending_entries(
    server: &Components,
    call: &Call,
    resource: &Resource,
) -> Result<PendingEntries, Status> {
    let Some(connection) = &call.connection else { return Ok(PendingEntries::default()) };
    let count = server.registry.store.count(&resource.table);
    let pending = PendingEntries::reserve(&server.shared, &call.flow, count).await.ok_or_else(|| {
        let why = "unfinished lists of this user take too much memory, read them first";
        Status::too_many_requests(why, 1)
    })?;
    let counted = pending.clone();
    connection.count_past_bytes(move || counted.past_bytes());
    Ok(pending)
}

/// Lists objects in the version of the target.
pub(super) async fn list(
    server: &Components,
    call: &Call,
    target: &Target,
    options: &ListOptions,
) -> Result<ListResult, Status> {
    let (registry, resource) = (&server.registry, &target.resource);
    let pending = pending_entries(server, call, resource).await?;
    let mut listed = registry.list(resource, target.namespace.as_deref(), options)?;
    (listed.entries, listed.memory) = registry.codec.convert_all(resource, listed.entries).await?;
    Ok(ListResult { pending, ..listed })
}
