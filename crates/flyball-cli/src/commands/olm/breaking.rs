//! Changes of CRDs that would break what is stored.

use super::unread::Unread;
use crate::cluster::connection::Connection;
use crate::cluster::safety::{self, BreakingChange};
use crate::error::Result;
use serde_json::Value;

/// Returns the changes of CRDs that would break stored objects, as far as the user may read them.
pub(super) async fn changes(
    connection: &Connection,
    definitions: &[Value],
    unread: &mut Unread,
) -> Result<Vec<BreakingChange>> {
    const OTHERS: &str = "custom resources of other namespaces: which of them the new CRDs reject is unknown";
    const DEFINITIONS: &str = "the CRDs: what prevents their change is unknown";
    let own = Some(connection.namespace.as_str());
    match unread.or_none(OTHERS, safety::find(connection, definitions).await)? {
        Some(changes) => Ok(changes),
        None => unread.or_default(DEFINITIONS, safety::find_in(connection, own, definitions).await),
    }
}
