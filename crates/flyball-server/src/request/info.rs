//! Request info: the resource that a URL names and the verb for it, or a path that names none.
//!
//! The rules are those of `k8s.io/apiserver/pkg/endpoints/request`, since authorization depends on their result.

use super::Query;
use super::query::decode;
use flyball_core::FieldSelector;
use http::Method;

/// The attributes of a request from its URL and method: `RequestInfo` in `k8s.io/apiserver`.
#[derive(Clone, Debug)]
pub(crate) struct RequestInfo {
    /// The original path.
    pub(crate) path: String,
    /// The verb, in the word that RBAC uses.
    pub(crate) verb: &'static str,
    /// The resource, if the path names one.
    pub(crate) resource: Option<ResourcePath>,
    /// True if the path is that of a deprecated watch, `/watch/namespaces/a/pods/x`.
    pub(crate) watched_by_path: bool,
}

/// A resource as a path names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    /// True if the path is that of the namespace itself, `/namespaces/a`, and not of something in it.
    pub(crate) is_namespace: bool,
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// Path segments after the subresource, which only proxies use.
    pub(crate) rest: Vec<String>,
}

impl RequestInfo {
    /// Reads a request line.
    pub(crate) fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let parts: Vec<String> = path.trim_matches('/').split('/').map(|part| decode(part, false)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let plain =
            || Self { path: path.to_owned(), verb: method_verb(method), resource: None, watched_by_path: false };
        let (group, version, mut steps) = match parts[..] {
            ["api", version, ref steps @ ..] if !steps.is_empty() => ("", version, steps),
            ["apis", group, version, ref steps @ ..] if !steps.is_empty() => (group, version, steps),
            _ => return plain(),
        };
        let mut verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        let mut watched_by_path = false;
        if let ["watch", ref inner @ ..] = steps[..]
            && !inner.is_empty()
        {
            // The deprecated path of a watch; a resource of that name does not exist.
            (steps, verb, watched_by_path) = (inner, "watch", true);
        }
        let mut found = ResourcePath { group: group.into(), version: version.into(), ..ResourcePath::default() };
        let steps = match *steps {
            ["namespaces", namespace, ref inner @ ..] => {
                found.namespace = Some(namespace.to_owned());
                // A namespace has only these two subresources; other names are resources in it.
                found.is_namespace = inner.is_empty() || matches!(inner[0], "finalize" | "status");
                if found.is_namespace { steps } else { inner }
            }
            _ => steps,
        };
        let mut steps = steps.iter().map(|step| (*step).to_owned());
        found.resource = steps.next().unwrap_or_default();
        found.name = steps.next().filter(|name| !name.is_empty());
        found.subresource = steps.next();
        found.rest = steps.collect();
        if found.resource.is_empty() {
            return plain();
        }
        if found.name.is_none() {
            verb = match verb {
                "get" if query.flag("watch") => "watch",
                "get" => "list",
                "delete" => "deletecollection",
                verb => verb,
            };
        }
        if matches!(verb, "list" | "watch" | "deletecollection") && !watched_by_path {
            // Rules that name objects cover lists of that one object too.
            let selector = FieldSelector::parse(query.text("fieldSelector")).ok();
            let name = selector.as_ref().and_then(|selector| selector.required("metadata.name"));
            found.name = name.filter(|name| !name.is_empty()).map(str::to_owned);
        }
        Self { path: path.to_owned(), verb, resource: Some(found), watched_by_path }
    }

    /// Returns true if a list or a watch is meant.
    pub(crate) fn is_collection(&self) -> bool {
        matches!(self.verb, "list" | "watch" | "deletecollection")
    }
}

fn method_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: Method, url: &str) -> String {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let info = RequestInfo::parse(&method, path, &Query::parse(query));
        match info.resource {
            None => format!("{} {}", info.verb, info.path),
            Some(r) => {
                let part = |part: Option<String>| part.unwrap_or_else(|| "-".into());
                let gv = [r.group, r.version].join("/");
                format!(
                    "{} {gv} {} {} {} {}",
                    info.verb,
                    part(r.namespace),
                    r.resource,
                    part(r.name),
                    part(r.subresource)
                )
            }
        }
    }

    #[test]
    fn paths_resolve_to_resources() {
        let cases = [
            (Method::GET, "/api/v1/pods", "list /v1 - pods - -"),
            (Method::GET, "/api/v1/namespaces/a/pods/x", "get /v1 a pods x -"),
            (Method::GET, "/api/v1/namespaces/a/pods?watch=1", "watch /v1 a pods - -"),
            (Method::GET, "/api/v1/namespaces/a/pods/x?watch=1", "get /v1 a pods x -"),
            (Method::GET, "/api/v1/watch/namespaces/a/pods/x", "watch /v1 a pods x -"),
            (Method::GET, "/api/v1/namespaces/a", "get /v1 a namespaces a -"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", "update /v1 a namespaces a finalize"),
            (Method::PATCH, "/apis/apps/v1/namespaces/a/deployments/x/scale", "patch apps/v1 a deployments x scale"),
            (Method::DELETE, "/apis/g.io/v1/widgets", "deletecollection g.io/v1 - widgets - -"),
            (Method::GET, "/api/v1/pods?fieldSelector=metadata.name%3Dx", "list /v1 - pods x -"),
            (Method::GET, "/api/v1/namespaces/a/configmaps/", "list /v1 a configmaps - -"),
            (Method::GET, "/apis/apps/v1", "get /apis/apps/v1"),
            (Method::POST, "/version", "post /version"),
            (Method::GET, "/", "get /"),
        ];
        for (method, url, expected) in cases {
            assert_eq!(parse(method, url), expected, "{url}");
        }
    }
}
