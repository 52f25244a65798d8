//! Checks of changes of a definition against stored objects.
//!
//! An API server accepts CRD changes that invalidate stored objects: later writes of such an object fail, and fields
//! that the schema no longer has are dropped. This module checks all stored objects against the new schema first. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>.

use crate::cluster::connection::Connection;
use crate::error::{Error, Result, ResultExt};
use flyball_lifecycle::{SchemaChange, schema_changes, schema_of};
use http::Request;
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// Number of objects per list request.
const PAGE: usize = 500;
/// Maximum number of breaking changes in an error.
const MAX_LISTED: usize = 10;
/// Maximum size of an object that an API server with etcd stores.
const MAX_OBJECT_BYTES: usize = 3 * 512 * 1024;

/// A breaking change of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BreakingChange {
    /// Name of the definition.
    pub(crate) definition: String,
    /// The affected object, such as `default/web`; `None` for all objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<String>,
    /// The field, such as `spec.size`.
    pub(crate) field: String,
    pub(crate) why: String,
}

impl fmt::Display for BreakingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { definition, object, field, why } = self;
        let object = object.as_ref().map(|object| format!(" {object}")).unwrap_or_default();
        write!(f, "{definition}{object}: {field} {why}")
    }
}

/// Rejects breaking changes of definitions, unless they are forced.
pub(crate) async fn check(connection: &Connection, definitions: &[Value], force: bool) -> Result<()> {
    let changes = find(connection, definitions).await?;
    if changes.is_empty() || force {
        return Ok(());
    }
    Err(Error::new(format!("the change would break stored objects:{}", list(&changes)))
        .hint("change the objects first, or add the schema as a new version; override with --force"))
}

/// Lists breaking changes, one on a line.
pub(crate) fn list(changes: &[BreakingChange]) -> String {
    let mut lines: Vec<String> = changes.iter().take(MAX_LISTED).map(|change| format!("\n  {change}")).collect();
    if changes.len() > MAX_LISTED {
        lines.push(format!("\n  and {} more", changes.len() - MAX_LISTED));
    }
    lines.concat()
}

/// Returns the breaking changes of definitions for all stored objects.
pub(crate) async fn find(connection: &Connection, definitions: &[Value]) -> Result<Vec<BreakingChange>> {
    find_in(connection, None, definitions).await
}

/// Returns the breaking changes of definitions for the stored objects of a namespace, or of all.
pub(crate) async fn find_in(
    connection: &Connection,
    namespace: Option<&str>,
    definitions: &[Value],
) -> Result<Vec<BreakingChange>> {
    let mut changes = Vec::new();
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let size = definition.to_string().len();
        if size > MAX_OBJECT_BYTES {
            return Err(Error::new(format!(
                "{name} has {size} bytes; an API server stores at most {MAX_OBJECT_BYTES}"
            ))
            .hint("shrink its schema: drop descriptions or unused versions"));
        }
        changes.extend(breaking_changes(connection, namespace, definition).await?);
    }
    Ok(changes)
}

/// Returns the breaking changes of a definition for the stored objects.
async fn breaking_changes(
    connection: &Connection,
    namespace: Option<&str>,
    new: &Value,
) -> Result<Vec<BreakingChange>> {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let Some(old) = get(connection, &path).await? else { return Ok(Vec::new()) };
    let mut changes = definition_changes(name, &old, new);
    if !changes.is_empty() || !has_new_schema(&old, new) {
        return Ok(changes);
    }
    let converts = new["spec"]["conversion"]["strategy"] == "Webhook";
    for (read, validated) in version_pairs(&old, new, converts) {
        let Some(schema) = version(new, &validated).and_then(|version| version["schema"].get("openAPIV3Schema")) else {
            continue;
        };
        let root = schema_of(schema);
        let (group, plural) = (&old["spec"]["group"], &old["spec"]["names"]["plural"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let place = namespace.map(|name| format!("namespaces/{name}/")).unwrap_or_default();
        let path = format!("/apis/{}/{read}/{place}{}", text(group), text(plural));
        let mut next = String::new();
        loop {
            let after = if next.is_empty() { String::new() } else { format!("&continue={next}") };
            let Some(list) = get(connection, &format!("{path}?limit={PAGE}{after}")).await? else { break };
            for object in list["items"].as_array().into_iter().flatten() {
                changes.extend(object_changes(name, &root, object, &validated));
            }
            next = text(&list["metadata"]["continue"]);
            if next.is_empty() || changes.len() > MAX_LISTED {
                break;
            }
        }
    }
    changes.dedup();
    Ok(changes)
}

/// Returns the breaking changes that do not depend on objects.
fn definition_changes(name: &str, old: &Value, new: &Value) -> Vec<BreakingChange> {
    let change = |field: &str, why: String| BreakingChange {
        definition: name.to_owned(),
        object: None,
        field: field.to_owned(),
        why,
    };
    let mut changes = Vec::new();
    let scope = |definition: &Value| definition["spec"]["scope"].as_str().unwrap_or_default().to_owned();
    if scope(old) != scope(new) {
        let why = format!(
            "changes from {} to {}: objects cannot move between namespaces and the cluster",
            scope(old),
            scope(new)
        );
        changes.push(change("spec.scope", why));
    }
    for stored in old["status"]["storedVersions"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if version(new, stored).is_none() {
            let why = format!("no longer has the storage version {stored}: {}", migration(name, stored, old, new));
            changes.push(change("spec.versions", why));
        }
    }
    changes
}

/// Returns the way to remove a stored version that a new definition does not have. While it is the storage version of
/// the old one, objects have to be stored in another version that both have.
fn migration(name: &str, stored: &str, old: &Value, new: &Value) -> String {
    let versions = |definition: &'_ Value| definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let is_storage = |of: &Value, name: &str| version(of, name).is_some_and(|version| version["storage"] == true);
    if !is_storage(old, stored) {
        return format!("run `flyball crd migrate {name}` first");
    }
    let common = versions(new).into_iter().filter_map(|of| Some(of["name"].as_str()?.to_owned()));
    let common: Vec<String> = common.filter(|of| version(old, of).is_some()).collect();
    match common.iter().find(|of| is_storage(new, of)).or(common.first()) {
        Some(other) => format!("run `flyball crd migrate {name} --to {other}` first"),
        None => {
            let next = versions(new).first().and_then(|of| Some(of["name"].as_str()?.to_owned())).unwrap_or_default();
            format!(
                "install a definition with both {stored} and {next}, and run `flyball crd migrate {name} --to {next}`"
            )
        }
    }
}

fn version<'a>(definition: &'a Value, name: &str) -> Option<&'a Value> {
    definition["spec"]["versions"].as_array()?.iter().find(|version| version["name"] == name)
}

fn has_new_schema(old: &Value, new: &Value) -> bool {
    let versions = new["spec"]["versions"].as_array();
    versions.into_iter().flatten().any(|changed| {
        let known = changed["name"].as_str().and_then(|name| version(old, name));
        known.is_none_or(|known| known["schema"] != changed["schema"])
    })
}

/// Returns pairs of versions: the one in which objects are read, and the one whose schema validates them. Each version
/// is validated by its own schema; a new version is validated with objects of the stored one, unless a webhook converts
/// them.
fn version_pairs(old: &Value, new: &Value, converts: bool) -> Vec<(String, String)> {
    let name = |version: &Value| version["name"].as_str().unwrap_or_default().to_owned();
    let versions = |definition: &Value| definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let served: Vec<Value> = versions(old).into_iter().filter(|version| version["served"] == true).collect();
    let stored = served.iter().find(|version| version["storage"] == true).or(served.first()).map(name);
    let mut pairs = Vec::new();
    for validated in versions(new) {
        let known = served.iter().find(|version| name(version) == name(&validated));
        match (known, &stored) {
            (Some(known), _) if known["schema"] == validated["schema"] => {}
            (Some(known), _) => pairs.push((name(known), name(&validated))),
            (None, Some(stored)) if !converts => pairs.push((stored.clone(), name(&validated))),
            (None, _) => {}
        }
    }
    pairs
}

/// Returns the breaking changes for one object.
fn object_changes(
    definition: &str,
    schema: &flyball_schema::schema::Root,
    object: &Value,
    validated: &str,
) -> Vec<BreakingChange> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let object_name = match text(&metadata["namespace"]) {
        none if none.is_empty() => text(&metadata["name"]),
        namespace => format!("{namespace}/{}", text(&metadata["name"])),
    };
    let change = |field: String, why: String| BreakingChange {
        definition: definition.to_owned(),
        object: Some(object_name.clone()),
        field,
        why,
    };
    let changes = schema_changes(schema, object, validated).into_iter();
    changes.map(|SchemaChange { field, why }| change(field, why)).collect()
}

async fn get(connection: &Connection, path: &str) -> Result<Option<Value>> {
    let what = || format!("cannot read {path}");
    let request = Request::get(path).body(Vec::new()).context(what())?;
    match connection.client.request(request).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error).context(what()),
    }
}
