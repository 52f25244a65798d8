//! The target of a request to the API server, derived from its path alone.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris>. Invariant: a path that servers
//! could interpret differently is rejected.

use flyball::Kind;

/// The resource in a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) namespace: Option<String>,
    /// `None` for a collection.
    pub(super) name: Option<String>,
    /// The subresource, such as `status`, with the rest of the path.
    pub(super) subresource: Option<String>,
    /// The path of the object, or of the collection, up to the name: longer paths may have side effects, such as
    /// `proxy`.
    pub(super) path: String,
}

impl Target {
    /// Parses a path; `Ok(None)` if it has no resource, such as the list of APIs.
    pub(super) fn of(path: &str) -> Result<Option<Self>, String> {
        let ambiguous = || format!("the path {path} is ambiguous");
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let parts: Option<Vec<String>> = segments.iter().copied().map(decoded).collect();
        let parts = parts.ok_or_else(ambiguous)?;
        let is_plain =
            |part: &String| !part.is_empty() && part != "." && part != ".." && !part.contains(['/', '\\', '%']);
        if path != "/" && !parts.iter().all(is_plain) {
            return Err(ambiguous());
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return Ok(None),
        };
        let target = |resource: &str, namespace: Option<&str>, rest: &[&str]| Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: rest.first().map(|name| (*name).to_owned()),
            subresource: (rest.len() > 1).then(|| rest[1..].join("/")),
            path: format!("/{}", segments[..segments.len() - rest.len().saturating_sub(1)].join("/")),
        };
        Ok(match rest {
            [] => None,
            ["watch" | "proxy", ..] => return Err(format!("{path} belongs to a removed API")),
            ["namespaces", name, part @ ("status" | "finalize")] if group.is_empty() => {
                Some(target("namespaces", None, &[name, part]))
            }
            ["namespaces", namespace, resource, rest @ ..] => Some(target(resource, Some(namespace), rest)),
            [resource, rest @ ..] => Some(target(resource, None, rest)),
        })
    }

    /// Returns true if its objects have a kind.
    pub(super) fn is_of(&self, kind: &Kind) -> bool {
        *kind.gvk().group == *self.group && kind.api_resource().plural == self.resource
    }

    /// Returns true for connections to a container or an application, with any method.
    pub(super) fn is_connection(&self) -> bool {
        let part = self.subresource.as_deref().and_then(|rest| rest.split('/').next());
        part.is_some_and(|part| ["exec", "attach", "portforward", "proxy"].contains(&part))
    }

    /// Returns true for access reviews, which change nothing.
    pub(super) fn is_review(&self) -> bool {
        self.group.ends_with("authorization.k8s.io") && self.resource.ends_with("reviews")
    }
}

/// Decodes percent-encoding; `None` if the result is not UTF-8.
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(match byte {
            b'%' => u8::try_from(digit()? * 16 + digit()?).ok()?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_paths_are_truncated_after_the_name() {
        for (path, object) in [
            ("/api/v1/nodes", "/api/v1/nodes"),
            ("/api/v1/nodes/n", "/api/v1/nodes/n"),
            ("/api/v1/nodes/n/status/", "/api/v1/nodes/n"),
            ("/api/v1/nodes/n/proxy/run/kube-system/p/c", "/api/v1/nodes/n"),
            ("/api/v1/namespaces/a/services/b/proxy/shut/down", "/api/v1/namespaces/a/services/b"),
            ("/api/v1/namespaces/a/finalize", "/api/v1/namespaces/a"),
            ("/apis/apps/v1/namespaces/%61/deployments/b/scale", "/apis/apps/v1/namespaces/%61/deployments/b"),
        ] {
            assert_eq!(Target::of(path).unwrap().unwrap().path, object, "{path}");
        }
    }

    #[test]
    fn connections_are_recognized() {
        for (path, is_connection) in [
            ("/api/v1/namespaces/a/pods/b/exec", true),
            ("/api/v1/namespaces/a/pods/b/%65xec", true),
            ("/api/v1/namespaces/a/pods/b/attach", true),
            ("/api/v1/namespaces/a/pods/b/portforward", true),
            ("/api/v1/namespaces/a/services/b:80/proxy/admin", true),
            ("/api/v1/nodes/n/proxy/run/kube-system/p/c", true),
            ("/api/v1/namespaces/a/pods/exec", false),
            ("/api/v1/namespaces/a/pods/b/log", false),
            ("/api/v1/namespaces/a/pods/b", false),
        ] {
            assert_eq!(Target::of(path).unwrap().unwrap().is_connection(), is_connection, "{path}");
        }
    }

    #[test]
    fn paths_are_parsed_into_resources() {
        type Expected<'a> = (&'a str, &'a str, Option<&'a str>, Option<&'a str>, Option<&'a str>);
        let check = |path: &str, expected: Option<Expected<'_>>| {
            let found = Target::of(path).unwrap();
            let found = found.as_ref().map(|found| {
                let text = Option::as_deref;
                (&*found.group, &*found.resource, text(&found.namespace), text(&found.name), text(&found.subresource))
            });
            assert_eq!(found, expected, "{path}");
        };
        for path in ["/", "/api", "/api/v1", "/apis", "/apis/apps/v1", "/version", "/openapi/v3"] {
            check(path, None);
        }
        check("/api/v1/namespaces/a/pods", Some(("", "pods", Some("a"), None, None)));
        check("/api/v1/namespaces/a/pods/b/exec", Some(("", "pods", Some("a"), Some("b"), Some("exec"))));
        check("/apis/apps/v1/namespaces/%61/deployments/b", Some(("apps", "deployments", Some("a"), Some("b"), None)));
        check("/apis/apps/v1/deployments", Some(("apps", "deployments", None, None, None)));
        check("/api/v1/namespaces", Some(("", "namespaces", None, None, None)));
        check("/api/v1/namespaces/a", Some(("", "namespaces", None, Some("a"), None)));
        check("/api/v1/namespaces/a/status", Some(("", "namespaces", None, Some("a"), Some("status"))));
        for path in [
            "/api/v1/namespaces//secrets",
            "/api/v1/namespaces/a/../b/secrets",
            "/api/v1/namespaces/a%2Fsecrets",
            "/api/v1/namespaces/%2e%2e/secrets",
            "/api/v1/watch/secrets",
            "/api/v1/namespaces/a/secrets/%zz",
            "/api/v1/namespaces/%252e/x",
        ] {
            assert!(Target::of(path).is_err(), "{path}");
        }
    }
}
