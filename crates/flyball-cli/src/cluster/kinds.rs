//! Kinds of a cluster, and their names.

use crate::error::{Error, Result, ResultExt};
use crate::files::spelling::meant;
use flyball_core::GroupResource;
use http::Request;
use http::header::ACCEPT;
use kube::Client;
use serde_json::Value;
use std::borrow::Cow;

/// All groups and versions in one response; see
/// <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery>.
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Number of objects of one page of a list.
const PAGE: usize = 500;

/// Hint to an error about a kind that the cluster does not have.
pub(crate) const KINDS_HINT: &str = "custom kinds need a CustomResourceDefinition; list them: flyball get crds";

/// One kind, in the version that its group prefers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    group: String,
    version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    singular: String,
    short_names: Vec<String>,
    /// Categories, such as `all`.
    categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) can_list: bool,
}

impl Kind {
    /// Returns the path of all objects, or of one.
    pub(crate) fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let Self { group, version, plural, .. } = self;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let scope = namespace.filter(|_| self.namespaced);
        let place = scope.map(|name| format!("/namespaces/{}", segment(name))).unwrap_or_default();
        format!("{root}{place}/{plural}{}", name.map(|name| format!("/{}", segment(name))).unwrap_or_default())
    }

    /// Returns its resource.
    pub(crate) fn resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.plural)
    }

    /// Returns its `apiVersion`.
    pub(crate) fn api_version(&self) -> String {
        let Self { group, version, .. } = self;
        if group.is_empty() { version.clone() } else { format!("{group}/{version}") }
    }

    /// Lists all objects, page by page. The query selects them, such as `labelSelector=…`; it may be empty.
    pub(crate) async fn list(&self, client: &Client, namespace: Option<&str>, query: &str) -> Result<Vec<Value>> {
        let what = || format!("cannot list {}", self.plural);
        let (path, mut found, mut next) = (self.path(namespace, None), Vec::new(), String::new());
        loop {
            let page = format!("{path}?limit={PAGE}&{query}{next}");
            let response: Value =
                client.request(Request::get(page).body(Vec::new()).context(what())?).await.context(what())?;
            let token = response["metadata"]["continue"].as_str().filter(|token| !token.is_empty());
            next = token.map(|token| format!("&continue={token}")).unwrap_or_default();
            found.extend(self.items(response));
            if next.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Returns the objects of a response: the items of a list, or the object. Items get the kind, which lists omit.
    pub(crate) fn items(&self, mut response: Value) -> Vec<Value> {
        match response.get_mut("items").map(Value::take) {
            Some(Value::Array(mut items)) => {
                items.iter_mut().for_each(|item| self.set_type(item));
                items
            }
            _ => vec![response],
        }
    }

    /// Sets `apiVersion` and `kind`, which items of lists lack.
    pub(crate) fn set_type(&self, item: &mut Value) {
        if let Some(fields) = item.as_object_mut() {
            fields.insert("apiVersion".into(), self.api_version().into());
            fields.insert("kind".into(), self.kind.as_str().into());
        }
    }

    /// Returns the name of an object in commands, such as `deployment.apps/web`.
    pub(crate) fn object_name(&self, name: &str) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}/{name}", self.singular, self.group)
    }
}

/// All kinds of a cluster, in the order of discovery.
#[derive(Debug)]
pub(crate) struct Kinds(Vec<Kind>);

impl Kinds {
    pub(crate) async fn discover(client: &Client) -> Result<Self> {
        let mut kinds = Vec::new();
        for path in ["/api", "/apis"] {
            let what = || "cannot discover the kinds of the cluster";
            let request = Request::get(path).header(ACCEPT, AGGREGATED).body(Vec::new()).context(what())?;
            let response = client.request(request).await.context(what())?;
            read(&response, &mut kinds);
        }
        Ok(Self(kinds))
    }

    pub(crate) fn all(&self) -> &[Kind] {
        &self.0
    }

    /// Finds a kind by any of its names, which the group may follow: `deploy`, `deployments.apps`.
    pub(crate) fn find(&self, name: &str) -> Option<&Kind> {
        let name = name.to_lowercase();
        self.0.iter().find(|kind| {
            let bare = match kind.group.as_str() {
                "" => name.as_str(),
                group => name.strip_suffix(group).and_then(|name| name.strip_suffix('.')).unwrap_or(&name),
            };
            let mut names = [&kind.plural, &kind.singular].into_iter().chain(&kind.short_names);
            kind.kind.to_lowercase() == bare || names.any(|name| name == bare)
        })
    }

    /// Resolves a word: a kind, or all kinds of a category such as `all`.
    pub(crate) fn resolve(&self, word: &str) -> Result<Vec<&Kind>> {
        if let Some(found) = self.find(word) {
            return Ok(vec![found]);
        }
        let word = word.to_lowercase();
        let category: Vec<&Kind> =
            self.0.iter().filter(|kind| kind.categories.contains(&word) && kind.can_list).collect();
        if !category.is_empty() {
            return Ok(category);
        }
        let error = Error::new(format!("the cluster has no kind {word:?}"));
        Err(match meant(&word, self.0.iter().map(|kind| kind.plural.as_str())) {
            Some(name) => error.hint(format!("did you mean {name}?")),
            None => error.hint(KINDS_HINT),
        })
    }

    /// Returns the name of an object in commands; without its group if the cluster does not serve its kind.
    pub(crate) fn object_name(&self, object: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let served = self.of(&text(&object["apiVersion"]), &kind);
        served.map_or_else(|| format!("{}/{name}", kind.to_lowercase()), |kind| kind.object_name(&name))
    }

    /// Finds the kind of an owner reference, in any version.
    pub(crate) fn of(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.0.iter().find(|known| known.group == group && known.kind == kind)
    }
}

/// Escapes a segment of a path: names in owner references and ledgers are text of others.
fn segment(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte);
    if name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let mut escaped = String::new();
    for byte in name.bytes() {
        match byte {
            plain if is_plain(plain) => escaped.push(char::from(plain)),
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    Cow::Owned(escaped)
}

fn read(response: &Value, kinds: &mut Vec<Kind>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for group in list(&response["items"]) {
        // The first version is the preferred one; other versions are used for kinds that only they have.
        for version in list(&group["versions"]) {
            for resource in list(&version["resources"]) {
                let kind = Kind {
                    group: text(&group["metadata"]["name"]),
                    version: text(&version["version"]),
                    kind: text(&resource["responseKind"]["kind"]),
                    plural: text(&resource["resource"]),
                    singular: match text(&resource["singularResource"]) {
                        none if none.is_empty() => text(&resource["responseKind"]["kind"]).to_lowercase(),
                        singular => singular,
                    },
                    short_names: list(&resource["shortNames"]).iter().map(text).collect(),
                    categories: list(&resource["categories"]).iter().map(text).collect(),
                    namespaced: resource["scope"] == "Namespaced",
                    can_list: list(&resource["verbs"]).iter().any(|verb| verb == "list"),
                };
                let known = |known: &Kind| (&known.group, &known.plural) == (&kind.group, &kind.plural);
                if !kinds.iter().any(known) {
                    kinds.push(kind);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kind_is_found_by_each_of_its_names() {
        let resource = |plural: &str, kind: &str, short: &str| {
            json!({"resource": plural, "responseKind": {"kind": kind}, "singularResource": kind.to_lowercase(),
                "shortNames": [short], "categories": ["all"], "scope": "Namespaced", "verbs": ["get", "list"]})
        };
        let mut kinds = Vec::new();
        let group = |name: &str, resource: Value| {
            json!({"items": [{"metadata": {"name": name}, "versions": [
                {"version": "v1", "resources": [resource]}, {"version": "v1beta1", "resources": [resource]},
            ]}]})
        };
        read(&group("", resource("pods", "Pod", "po")), &mut kinds);
        read(&group("apps", resource("deployments", "Deployment", "deploy")), &mut kinds);
        let kinds = Kinds(kinds);
        for name in ["deployments", "deployment", "Deployment", "deploy", "deployments.apps", "deploy.apps"] {
            let path = kinds.find(name).map(|kind| kind.path(Some("ns"), Some("web")));
            assert_eq!(path.as_deref(), Some("/apis/apps/v1/namespaces/ns/deployments/web"), "{name}");
        }
        assert_eq!(kinds.find("po").map(|kind| kind.path(None, None)).as_deref(), Some("/api/v1/pods"));
        let hostile = kinds.find("po").map(|kind| kind.path(Some("a/b"), Some("p/proxy/x?y=1#%2e")));
        assert_eq!(hostile.as_deref(), Some("/api/v1/namespaces/a%2Fb/pods/p%2Fproxy%2Fx%3Fy%3D1%23%252e"));
        assert!(kinds.find("deployments.other").is_none() && kinds.of("apps/v1beta2", "Deployment").is_some());
        assert_eq!(kinds.resolve("all").unwrap().len(), 2);
        assert!(kinds.resolve("pod").is_ok() && kinds.resolve("podz").is_err());
        assert_eq!(kinds.find("deploy").map(|kind| kind.object_name("web")).as_deref(), Some("deployment.apps/web"));
    }
}
