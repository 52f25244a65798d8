//! The past states that unfinished lists keep in memory: at most so many, or the lists that began first are closed.
//!
//! A list sends the objects in the states of its revision. When objects are rewritten faster than its client reads, it
//! keeps up to a copy of all of them. A client that reads at the rate of a usual network keeps few, and is not closed
//! unless it has more than any other user.

use crate::bounds::Flow;
use crate::connection::RequestConnection;
use std::collections::{BTreeMap, VecDeque};

/// The unfinished lists of a user that keep past states, with their bytes.
#[derive(Default)]
struct UserLists<'l> {
    bytes: usize,
    lists: VecDeque<(&'l RequestConnection, usize)>,
}

/// Closes responses until they keep fewer past states, by the number of excess bytes: the first one of the user with
/// the most bytes, then again. The connections are in the order in which their requests began.
pub(super) fn close_excess(connections: &[RequestConnection], mut excess: usize) {
    if excess == 0 {
        return;
    }
    let mut users: BTreeMap<&Flow, UserLists<'_>> = BTreeMap::new();
    for connection in connections {
        let bytes = connection.past_bytes();
        if let Some(flow) = connection.flow().filter(|_| bytes > 0) {
            let user = users.entry(flow).or_default();
            user.bytes += bytes;
            user.lists.push_back((connection, bytes));
        }
    }
    while excess > 0 {
        let Some(user) = users.values_mut().max_by_key(|user| user.bytes) else { return };
        let Some((connection, bytes)) = user.lists.pop_front() else { return };
        tracing::warn!(bytes, "closed a list that keeps too many past states of objects: its client reads too slowly");
        connection.close();
        user.bytes -= bytes;
        excess = excess.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(user: &str, bytes: usize) -> RequestConnection {
        let connection = RequestConnection::default();
        connection.identify(&Flow::of(user, false, true));
        connection.count_past_bytes(move || bytes);
        connection
    }

    #[test]
    fn first_lists_of_the_user_with_the_most_bytes_are_closed() {
        let lists = [("bob", 60), ("ann", 50), ("ann", 0), ("ann", 40), ("cid", 1), ("ann", 30)];
        for (excess, closed) in
            [(0, &[][..]), (1, &[1]), (50, &[1]), (51, &[1, 3]), (91, &[0, 1, 3]), (999, &[0, 1, 3, 4, 5])]
        {
            let connections = lists.map(|(user, bytes)| list(user, bytes));
            close_excess(&connections, excess);
            let found: Vec<usize> = (0..connections.len()).filter(|at| connections[*at].is_slow()).collect();
            assert_eq!(found, closed, "{excess}");
        }
    }
}
