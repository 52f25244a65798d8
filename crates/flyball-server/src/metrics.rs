//! The server's metrics in the text format of Prometheus, with kube-apiserver's names where it has them.
//!
//! See <https://kubernetes.io/docs/reference/instrumentation/metrics/>.

use crate::bounds::{REJECTION_REASONS, RequestClass, SharedBounds};
use crate::catalog::Catalog;
use crate::request::{Query, RequestInfo};
use crate::response::{self, Body};
use crate::storage::Store;
use crate::watch::Readers;
use http::Response;
use http::request::Parts;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of series of requests; further ones are counted in a series without labels of the resource.
const MAX_SERIES: usize = 20_000;

/// Paths that requests are counted by; all others are one.
const PATHS: [&str; 10] = [
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/version",
    "/api",
    "/apis",
    "/openapi/v2",
    "/openapi/v3",
    "/.well-known",
];

/// The number of requests of each series.
#[derive(Default)]
pub(crate) struct Requests(RwLock<BTreeMap<Series, AtomicU64>>);

/// The labels that a request is counted with.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Series {
    resource: Arc<str>,
    subresource: &'static str,
    verb: &'static str,
    code: u16,
    group: Arc<str>,
    version: Arc<str>,
    scope: &'static str,
    dry_run: &'static str,
}

impl Series {
    /// Returns the labels of a request, without those of the response.
    pub(crate) fn of(catalog: &Catalog, parts: &Parts, query: &Query, request: &RequestInfo) -> Self {
        let verb = verb(parts, request);
        let Some(path) = &request.resource else {
            let known = |known: &&&str| {
                request.path.strip_prefix(**known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            // The longest one counts.
            let subresource = PATHS.iter().filter(known).max_by_key(|path| path.len()).copied().unwrap_or_default();
            return Self { verb, subresource, ..Self::default() };
        };
        // Requests of unknown resources have no labels of their own, since clients choose their names.
        let Some(resource) = catalog.get(&path.group, &path.version, &path.resource) else {
            return Self { verb, ..Self::default() };
        };
        let subresource = path.subresource.as_deref().and_then(|name| Some(resource.subresource(name)?.name));
        let scope = if path.name.is_some() || request.verb == "create" {
            "resource"
        } else if path.namespace.is_some() {
            "namespace"
        } else {
            "cluster"
        };
        let dry_run = match query.get("dryRun").unwrap_or_default() {
            "" => "",
            "All" => "All",
            _ => "invalid",
        };
        Self {
            verb,
            resource: resource.plural.clone(),
            group: resource.kind.group.clone(),
            version: resource.kind.version.clone(),
            subresource: subresource.unwrap_or_default(),
            scope,
            dry_run,
            code: 0,
        }
    }

    fn labels(&self, f: &mut String) {
        let Self { resource, subresource, verb, code, group, version, scope, dry_run } = self;
        let component = if subresource.starts_with('/') { "" } else { "apiserver" };
        let _ = write!(
            f,
            "code=\"{code}\",component=\"{component}\",dry_run=\"{dry_run}\",group=\"{group}\",resource=\"{resource}\",\
             scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\""
        );
    }
}

/// Returns the verb label of kube-apiserver's metrics: by method, with separate lists, watches and applies.
fn verb(parts: &Parts, request: &RequestInfo) -> &'static str {
    let applies = || {
        parts
            .headers
            .get(http::header::CONTENT_TYPE)
            .is_some_and(|ty| ty.as_bytes().starts_with(b"application/apply-patch"))
    };
    match request.verb {
        "watch" => "WATCH",
        "list" => "LIST",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" if applies() => "APPLY",
        "patch" => "PATCH",
        "delete" | "deletecollection" => "DELETE",
        "get" | "head" => "GET",
        _ => "other",
    }
}

impl Requests {
    /// Returns the number of requests by verb and resource, such as `LIST pods`, or by verb and path.
    pub(crate) fn by_resource(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (Series { resource, subresource, verb, .. }, count) in &*self.0.read() {
            let separator = if resource.is_empty() || subresource.is_empty() { "" } else { "/" };
            let name = format!("{verb} {resource}{separator}{subresource}");
            *counts.entry(name).or_default() += count.load(Ordering::Relaxed);
        }
        counts
    }

    /// Returns the number of all requests.
    pub(crate) fn total(&self) -> u64 {
        self.0.read().values().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Counts a request.
    pub(crate) fn count(&self, mut series: Series, code: u16) {
        series.code = code;
        if let Some(count) = self.0.read().get(&series) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut all = self.0.write();
        if all.len() >= MAX_SERIES {
            series = Series { verb: series.verb, code, ..Series::default() };
        }
        all.entry(series).or_default().fetch_add(1, Ordering::Relaxed);
    }
}

/// A page of metrics.
struct Page(String);

impl Page {
    /// Begins a family of series.
    fn family(&mut self, name: &str, ty: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {ty}\n");
    }

    fn value(&mut self, name: &str, labels: fmt::Arguments<'_>, value: impl Display) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    fn requests(&mut self, name: &str, requests: &Requests) {
        for (series, count) in &*requests.0.read() {
            let _ = write!(self.0, "{name}{{");
            series.labels(&mut self.0);
            let _ = writeln!(self.0, "}} {}", count.load(Ordering::Relaxed));
        }
    }
}

/// The sources of `/metrics`.
pub(crate) struct Metrics<'f> {
    pub(crate) shared: &'f SharedBounds,
    pub(crate) requests: &'f Requests,
    pub(crate) forbidden: &'f Requests,
    pub(crate) permitted: &'f Requests,
    pub(crate) readers: &'f Readers,
    pub(crate) store: &'f Store,
}

/// Responds to `/metrics`.
pub(crate) fn page(metrics: &Metrics<'_>) -> Response<Body> {
    let mut page = Page(String::new());
    let name = "apiserver_current_inflight_requests";
    page.family(name, "gauge", "Requests in progress by kind, without watches.");
    for (kind, classes) in [
        ("mutating", &[RequestClass::Write][..]),
        ("readOnly", &[RequestClass::Read]),
        ("exempt", &[RequestClass::Exempt]),
    ] {
        let count: usize = classes.iter().map(|class| metrics.shared.count(*class)).sum();
        page.value(name, format_args!("request_kind=\"{kind}\""), count);
    }
    let name = "apiserver_flowcontrol_rejected_requests_total";
    page.family(name, "counter", "Requests rejected with 429.");
    for (reason, count) in REJECTION_REASONS.iter().zip(metrics.shared.rejected()) {
        let labels = "flow_schema=\"global-default\",priority_level=\"global-default\"";
        page.value(name, format_args!("{labels},reason=\"{reason}\""), count);
    }
    let name = "flyball_unsent_bytes";
    page.family(name, "gauge", "Bytes of responses over connections that their clients have not read yet.");
    let _ = writeln!(page.0, "{name} {}", metrics.shared.unsent.used());
    let name = "flyball_decoded_bytes";
    page.family(
        name,
        "gauge",
        "Estimated bytes of memory of objects that requests with long bodies decode and change.",
    );
    let _ = writeln!(page.0, "{name} {}", metrics.shared.decoded_bytes());
    let name = "flyball_stored_bytes";
    page.family(name, "gauge", "Bytes of all stored objects.");
    let _ = writeln!(page.0, "{name} {}", metrics.store.stored_bytes());
    let name = "flyball_window_bytes";
    page.family(name, "gauge", "Bytes of past states of objects that are remembered for watches.");
    let _ = writeln!(page.0, "{name} {}", metrics.store.window_bytes());
    let name = "flyball_past_bytes";
    page.family(name, "gauge", "Bytes of past states of objects that unfinished lists keep in memory.");
    let _ = writeln!(page.0, "{name} {}", metrics.store.past_bytes());
    let name = "apiserver_request_total";
    page.family(name, "counter", "Requests by verb, dry run, group, version, resource, scope and response code.");
    page.requests(name, metrics.requests);
    let name = "flyball_forbidden_requests_total";
    page.family(name, "counter", "Requests rejected with 403, except those of administrators.");
    page.requests(name, metrics.forbidden);
    let name = "flyball_service_account_requests_total";
    page.family(name, "counter", "Successful requests of service accounts outside of kube-system.");
    page.requests(name, metrics.permitted);
    let name = "apiserver_registered_watchers";
    page.family(name, "gauge", "Open watches.");
    for (table, count) in metrics.readers.counts() {
        page.value(name, format_args!("group=\"{}\",resource=\"{}\"", table.group, table.resource), count);
    }
    let name = "apiserver_terminated_watchers_total";
    page.family(name, "counter", "Watches closed because their clients read too slowly.");
    for (table, count) in metrics.readers.terminated() {
        page.value(name, format_args!("group=\"{}\",resource=\"{}\"", table.group, table.resource), count);
    }
    let counts = metrics.store.counts();
    let name = "apiserver_resource_objects";
    page.family(name, "gauge", "Stored objects.");
    for (table, count) in &counts {
        page.value(name, format_args!("group=\"{}\",resource=\"{}\"", table.group, table.resource), count);
    }
    let name = "apiserver_storage_objects";
    page.family(name, "gauge", "Stored objects, under the name before Kubernetes 1.34.");
    for (table, count) in &counts {
        page.value(name, format_args!("resource=\"{table}\""), count);
    }
    let name = "flyball_storage_revision";
    page.family(name, "counter", "Revision of the latest write.");
    let _ = writeln!(page.0, "{name} {}", metrics.store.revision());
    response::new(200, "text/plain; version=0.0.4; charset=utf-8", page.0)
}
