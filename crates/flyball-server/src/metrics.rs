//! The server's own figures, as Prometheus reads them.

use crate::response::{self, Body};
use crate::server::Inner;
use http::Response;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// Answers `/metrics`.
pub(crate) fn page(inner: &Inner) -> Response<Body> {
    let mut page = String::new();
    let objects =
        "# HELP apiserver_storage_objects Number of stored objects.\n# TYPE apiserver_storage_objects gauge\n";
    page.push_str(objects);
    for (table, count) in inner.store.counts() {
        let _ = writeln!(page, "apiserver_storage_objects{{resource=\"{table}\"}} {count}");
    }
    let revision = inner.store.revision();
    let slow = inner.slow_watches.load(Ordering::Relaxed);
    let _ = write!(
        page,
        "# HELP flyball_storage_revision Revision of the latest write.\n# TYPE flyball_storage_revision counter\nflyball_storage_revision {revision}\n\
         # HELP apiserver_terminated_watchers_total Watches that were cut off because they read too slowly.\n\
         # TYPE apiserver_terminated_watchers_total counter\napiserver_terminated_watchers_total {slow}\n"
    );
    response::answer(200, "text/plain; version=0.0.4; charset=utf-8", page)
}
