//! A replica of the API server that is frozen at a revision: its lists show the state of that revision.
//!
//! Reads of single objects are quorum reads, and are not affected. Events after the revision are held by
//! [`Hub::until_visible`](crate::hub::Hub::until_visible).

use crate::site::{Port, RequestTarget};
use http::{Method, Uri};

/// Returns the request of a list as of a revision; other requests are unchanged.
pub(crate) fn at(uri: &Uri, revision: u64) -> Uri {
    let is_list = RequestTarget::of(&Method::GET, uri).is_some_and(|target| target.port == Port::List);
    let query = uri.query().unwrap_or_default();
    if !is_list || query.contains("continue=") {
        return uri.clone();
    }
    let kept = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("resourceVersion"));
    let mut query: Vec<String> = kept.map(str::to_owned).collect();
    query.push(format!("resourceVersion={revision}&resourceVersionMatch=Exact"));
    format!("{}?{}", uri.path(), query.join("&")).parse().unwrap_or_else(|_| uri.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_show_the_revision() {
        let check = |uri: &str, expected: &str| assert_eq!(at(&uri.parse().unwrap(), 7).to_string(), expected);
        let exact = "resourceVersion=7&resourceVersionMatch=Exact";
        check("/api/v1/pods", &format!("/api/v1/pods?{exact}"));
        check("/api/v1/pods?limit=5&resourceVersion=9", &format!("/api/v1/pods?limit=5&{exact}"));
        check("/api/v1/namespaces/a/pods/b", "/api/v1/namespaces/a/pods/b");
        check("/api/v1/pods?watch=true&resourceVersion=7", "/api/v1/pods?watch=true&resourceVersion=7");
    }
}
