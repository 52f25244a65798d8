//! Differences that an upgrade makes, and custom resources that it breaks.

use super::stage::Stage;
use crate::error::Result;
use http::Method;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Limit of the fields of an object that are listed.
const MAX_FIELDS: usize = 8;
/// Depth to which differences are followed.
const MAX_DEPTH: usize = 12;
/// Longest value that is shown.
const MAX_VALUE_CHARS: usize = 60;
/// Number of characters before a difference that are shown.
const MAX_CONTEXT_CHARS: usize = 16;
/// Takes the place of a value of a Secret.
const CONFIDENTIAL: &str = "(confidential)";
/// Fields of a Secret that contain its values. Tools keep copies in annotations.
const CONFIDENTIAL_FIELDS: [&str; 3] = ["data", "stringData", "metadata.annotations"];
/// Fields that change without a change of meaning, and the approval of the Subscription, which the rehearsal sets.
const IGNORED: [&str; 8] = [
    "spec.installPlanApproval",
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.uid",
    "metadata.ownerReferences",
    "metadata.creationTimestamp",
    "status",
];

/// Prefix of the paths of labels that name the UID of an OperatorGroup: on the copy, it has another one.
const GROUP_UIDS: &str = "metadata.labels.olm.operatorgroup.uid/";

/// Differences between two states of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Changes {
    pub(super) created: Vec<String>,
    pub(super) removed: Vec<String>,
    pub(super) changed: Vec<ChangedObject>,
    /// Permissions that operators gain.
    pub(super) granted: Vec<String>,
    /// Permissions that operators lose.
    pub(super) revoked: Vec<String>,
}

/// An object with different fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangedObject {
    pub(super) object: String,
    pub(super) fields: Vec<ChangedField>,
    /// Number of changed fields that are not listed.
    pub(super) more_fields: usize,
}

/// A field with different values, as JSON of limited length. A value is absent if the field is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangedField {
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) old: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) new: Option<String>,
}

impl fmt::Display for ChangedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "(none)".to_owned());
        write!(f, "{}: {} -> {}", self.path, text(&self.old), text(&self.new))
    }
}

/// A custom resource that a CRD rejects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InvalidResource {
    pub(super) object: String,
    pub(super) why: String,
}

impl Changes {
    pub(super) fn between(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Self {
        let missing = |one: &BTreeMap<String, Value>, other: &BTreeMap<String, Value>| -> Vec<String> {
            one.keys().filter(|key| !other.contains_key(*key)).cloned().collect()
        };
        let changed = after.iter().filter_map(|(key, new)| {
            let mut differences = Vec::new();
            compare(before.get(key)?, new, "", 0, &mut differences);
            let more_fields = differences.len().saturating_sub(MAX_FIELDS);
            let field = |difference: &Difference<'_>| difference.field(key.starts_with("Secret "));
            let fields: Vec<ChangedField> = differences.iter().take(MAX_FIELDS).map(field).collect();
            (!fields.is_empty()).then(|| ChangedObject { object: key.clone(), fields, more_fields })
        });
        let (old, new) = (permissions(before), permissions(after));
        Self {
            created: missing(after, before),
            removed: missing(before, after),
            changed: changed.collect(),
            granted: new.difference(&old).cloned().collect(),
            revoked: old.difference(&new).cloned().collect(),
        }
    }
}

/// A field with its old and its new value, which are null if the field is absent.
struct Difference<'v> {
    path: String,
    old: &'v Value,
    new: &'v Value,
}

impl Difference<'_> {
    fn field(&self, is_secret: bool) -> ChangedField {
        let is_in = |parent: &&str| self.path == **parent || self.path.starts_with(&format!("{parent}."));
        let is_confidential = is_secret && CONFIDENTIAL_FIELDS.iter().any(is_in);
        let [old, new] = [self.old, self.new].map(|value| (!value.is_null()).then(|| value.to_string()));
        let start = match (&old, &new) {
            (Some(old), Some(new)) => start_of_difference(old, new),
            _ => 0,
        };
        let shown = |text: String| if is_confidential { CONFIDENTIAL.to_owned() } else { shortened(&text, start) };
        let [old, new] = [old, new].map(|text| text.map(shown));
        ChangedField { path: self.path.clone(), old, new }
    }
}

/// Returns the number of characters that two texts have in common at their beginning, and that can be left out so that
/// the difference is shown.
fn start_of_difference(old: &str, new: &str) -> usize {
    let common = old.chars().zip(new.chars()).take_while(|(one, other)| one == other).count();
    let is_short = |text: &str| text.chars().nth(MAX_VALUE_CHARS).is_none();
    if is_short(old) && is_short(new) { 0 } else { common.saturating_sub(MAX_CONTEXT_CHARS) }
}

/// Returns a part of a text that is not too long.
fn shortened(text: &str, start: usize) -> String {
    let mut rest = text.chars().skip(start);
    let shown: String = rest.by_ref().take(MAX_VALUE_CHARS).collect();
    let (before, after) = (if start > 0 { "…" } else { "" }, if rest.next().is_some() { "…" } else { "" });
    format!("{before}{shown}{after}")
}

/// Collects different fields.
fn compare<'v>(old: &'v Value, new: &'v Value, path: &str, depth: usize, fields: &mut Vec<Difference<'v>>) {
    if old == new || IGNORED.contains(&path) || path.starts_with(GROUP_UIDS) {
        return;
    }
    match (old, new) {
        (Value::Object(_) | Value::Null, Value::Object(_)) | (Value::Object(_), Value::Null) if depth < MAX_DEPTH => {
            let keys = |value: &'v Value| value.as_object().into_iter().flat_map(Map::keys);
            let names: BTreeSet<&String> = keys(old).chain(keys(new)).collect();
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                compare(&old[name], &new[name], &path, depth + 1, fields);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() && depth < MAX_DEPTH => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                compare(old, new, &format!("{path}[{index}]"), depth + 1, fields);
            }
        }
        _ => fields.push(Difference { path: path.to_owned(), old, new }),
    }
}

/// Returns the permissions of roles that the lifecycle manager created: one text for each verb on a resource.
fn permissions(objects: &BTreeMap<String, Value>) -> BTreeSet<String> {
    let mut permissions = BTreeSet::new();
    let is_role = |key: &String| key.starts_with("Role ") || key.starts_with("ClusterRole ");
    for object in objects.iter().filter(|(key, _)| is_role(key)).map(|(_, object)| object) {
        if object["metadata"]["labels"]["olm.owner.kind"] != "ClusterServiceVersion" {
            continue;
        }
        let place = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in the cluster".to_owned(),
        };
        let list = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        for rule in object["rules"].as_array().into_iter().flatten() {
            for (resource, group) in list(&rule["resources"])
                .iter()
                .flat_map(|resource| list(&rule["apiGroups"]).into_iter().map(move |group| (resource.clone(), group)))
            {
                let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                let verbs = list(&rule["verbs"]);
                permissions.extend(verbs.iter().map(|verb| format!("{verb} {resource}{group} {place}")));
            }
        }
    }
    permissions
}

/// Returns the custom resources that the CRDs reject now, and the number of those that were validated. Each one is
/// replaced by itself in a dry run.
pub(super) async fn invalid_resources(
    stage: &Stage,
    objects: &BTreeMap<String, Value>,
) -> Result<(Vec<InvalidResource>, usize)> {
    let (mut invalid, mut validated) = (Vec::new(), 0);
    let is_definition = |key: &String| key.starts_with("CustomResourceDefinition ");
    for (_, definition) in objects.iter().filter(|(key, _)| is_definition(key)) {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, plural, kind) =
            (text(&spec["group"]), text(&spec["names"]["plural"]), text(&spec["names"]["kind"]));
        if group == flyball_lifecycle::api::GROUP {
            continue;
        }
        let versions = spec["versions"].as_array().into_iter().flatten();
        let served: Vec<String> =
            versions.filter(|version| version["served"] == true).map(|version| text(&version["name"])).collect();
        let resources = objects.iter().filter(|(_, object)| {
            object["kind"] == *kind && text(&object["apiVersion"]).starts_with(&format!("{group}/"))
        });
        for (key, object) in resources {
            validated += 1;
            let namespace = object["metadata"]["namespace"].as_str();
            let place = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
            for version in &served {
                let path = format!("/apis/{group}/{version}{place}/{plural}/{}", text(&object["metadata"]["name"]));
                if let Some(why) = rejection(stage, &path).await {
                    let object = format!("{key} ({group}/{version})");
                    invalid.push(InvalidResource { object, why });
                }
            }
        }
    }
    Ok((invalid, validated))
}

/// Returns the reason why an object can no longer be written as it is.
async fn rejection(stage: &Stage, path: &str) -> Option<String> {
    let sent = match stage.send(Method::GET, path, "application/json", &Value::Null).await {
        Ok(object) => {
            stage
                .send(Method::PUT, &format!("{path}?dryRun=All&fieldValidation=Strict"), "application/json", &object)
                .await
        }
        Err(error) => Err(error),
    };
    match sent {
        // A webhook was not reached: its server does not run here.
        Err(kube::Error::Api(status)) if status.code == 500 => None,
        Err(kube::Error::Api(status)) => Some(status.message),
        Err(error) => Some(error.to_string()),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn objects(list: Vec<(&str, Value)>) -> BTreeMap<String, Value> {
        list.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Returns the changed fields of the first object.
    fn texts(changes: &Changes) -> Vec<String> {
        changes.changed[0].fields.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_are_short_and_secrets_are_not_shown() {
        let secret = |value: &str| {
            let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": value});
            let metadata = json!({"annotations": annotations, "labels": {"a": value}});
            json!({"kind": "Secret", "metadata": metadata, "data": {"pw": value}, "type": value})
        };
        let objects = |object: Value| objects(vec![("Secret demo/s", object)]);
        let changes = Changes::between(&objects(secret("CANARY-1")), &objects(secret("CANARY-2")));
        let hidden = "(confidential) -> (confidential)";
        let expected = [
            format!("data.pw: {hidden}"),
            format!("metadata.annotations.kubectl.kubernetes.io/last-applied-configuration: {hidden}"),
            "metadata.labels.a: \"CANARY-1\" -> \"CANARY-2\"".to_owned(),
            "type: \"CANARY-1\" -> \"CANARY-2\"".to_owned(),
        ];
        assert_eq!(texts(&changes), expected);
        let mut gone = secret("CANARY-1");
        gone["data"] = json!({});
        let removed = Changes::between(&objects(secret("CANARY-1")), &objects(gone));
        assert_eq!(texts(&removed), ["data.pw: (confidential) -> (none)"]);

        let long = |letter: &str| objects(json!({"kind": "Memo", "spec": {"text": letter.repeat(1_000)}}));
        let changed = &Changes::between(&long("ä"), &long("ö")).changed[0];
        let value = changed.fields[0].new.clone().unwrap();
        assert!(value.starts_with("\"öö") && value.ends_with("ö…") && value.chars().count() == 61, "{value}");
        let text = |end: &str| objects(json!({"kind": "Memo", "spec": format!("{}{end}", "same ".repeat(30))}));
        let late = Changes::between(&text("old"), &text("new"));
        assert_eq!(texts(&late), ["spec: … same same same old\" -> … same same same new\""]);
        let many = |value: usize| {
            let fields: Map<String, Value> = (0..20).map(|n| (format!("f{n}"), json!(value))).collect();
            objects(json!({"kind": "Memo", "spec": fields}))
        };
        let changed = &Changes::between(&many(1), &many(2)).changed[0];
        assert_eq!((changed.fields.len(), changed.more_fields), (8, 12));
    }

    #[test]
    fn labels_with_the_uid_of_a_group_are_no_change() {
        let namespace = |labels: Value| objects(vec![("Namespace demo", json!({"metadata": {"labels": labels}}))]);
        let (before, after) = (json!({"olm.operatorgroup.uid/1": ""}), json!({"olm.operatorgroup.uid/2": ""}));
        assert_eq!(Changes::between(&namespace(before.clone()), &namespace(after)).changed, []);
        assert_eq!(Changes::between(&namespace(Value::Null), &namespace(before)).changed, []);
        let other = Changes::between(&namespace(json!({})), &namespace(json!({"team": "red"})));
        assert_eq!(texts(&other), ["metadata.labels.team: (none) -> \"red\""]);
    }

    #[test]
    fn fields_and_permissions_are_compared() {
        let role = |verbs: Value| {
            json!({"metadata": {"namespace": "demo", "labels": {"olm.owner.kind": "ClusterServiceVersion"}},
                "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": verbs}]})
        };
        let deployment =
            |image: &str| json!({"metadata": {"resourceVersion": image}, "spec": {"containers": [{"image": image}]}});
        let before = objects(vec![("Role demo/old", role(json!(["get"]))), ("Deployment demo/memo", deployment("v1"))]);
        let after = objects(vec![
            ("Role demo/new", role(json!(["get", "delete"]))),
            ("Deployment demo/memo", deployment("v2")),
        ]);
        let changes = Changes::between(&before, &after);
        assert_eq!(changes.created, ["Role demo/new"]);
        assert_eq!(changes.removed, ["Role demo/old"]);
        assert_eq!(texts(&changes), ["spec.containers[0].image: \"v1\" -> \"v2\""]);
        assert_eq!(changes.granted, ["delete deployments.apps in namespace demo"]);
        assert_eq!(changes.revoked, [""; 0]);
    }
}
