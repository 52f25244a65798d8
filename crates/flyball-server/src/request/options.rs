//! The options of each verb, and their validation.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/>.

use super::Query;
use flyball_core::field::FieldError;
use flyball_core::{FieldSelector, GroupVersionKind, LabelSelector, Status};
use serde_json::{Value, json};

/// The strictness by which a body is held to its schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// Options of create, update, patch and apply.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    /// The manager of fields, if the client names one.
    pub(crate) field_manager: Option<String>,
    pub(crate) field_validation: FieldValidation,
    /// True if the client specified the strictness.
    pub(crate) validation_given: bool,
    /// True for a forced apply.
    pub(crate) force: bool,
}

/// The verb whose options are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Create,
    Update,
    Patch,
    Apply,
}

fn options_kind(kind: &str) -> GroupVersionKind {
    GroupVersionKind::new("meta.k8s.io", "", kind)
}

fn reject(kind: &str, errors: Vec<FieldError>) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(&options_kind(kind), "", &errors)) }
}

fn check_dry_run(values: &[&str]) -> Option<FieldError> {
    let wrong = values.iter().any(|value| *value != "All");
    wrong.then(|| FieldError::not_supported("dryRun", Value::from(values.to_vec()), ["All"]))
}

impl WriteOptions {
    /// Reads and checks the options of a write.
    pub(crate) fn read(query: &Query, write: Write) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let dry_run = query.all("dryRun");
        errors.extend(check_dry_run(&dry_run));
        let manager = query.text("fieldManager");
        let forced = query.get("force").is_some();
        match write {
            Write::Apply if manager.is_empty() => {
                errors.push(FieldError::required("fieldManager", "is required for apply patch"))
            }
            Write::Patch if forced => {
                errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"))
            }
            _ => {}
        }
        errors.extend(check_manager(manager));
        let validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(FieldError::not_supported("fieldValidation", other, ["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Warn
            }
        };
        let kind = match write {
            Write::Create => "CreateOptions",
            Write::Update => "UpdateOptions",
            Write::Patch | Write::Apply => "PatchOptions",
        };
        reject(kind, errors)?;
        Ok(Self {
            dry_run: !dry_run.is_empty(),
            field_manager: Some(manager).filter(|manager| !manager.is_empty()).map(str::to_owned),
            field_validation: validation,
            validation_given: !query.text("fieldValidation").is_empty(),
            force: query.flag("force"),
        })
    }

    /// Returns the options as an object, for webhooks and policies.
    pub(crate) fn as_value(&self, kind: &str) -> Value {
        let mut value = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind});
        if self.dry_run {
            value["dryRun"] = json!(["All"]);
        }
        if let Some(manager) = &self.field_manager {
            value["fieldManager"] = manager.as_str().into();
        }
        if self.validation_given {
            value["fieldValidation"] = format!("{:?}", self.field_validation).into();
        }
        value
    }
}

fn check_manager(manager: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > 128 {
        errors.push(FieldError::too_long("fieldManager", 128));
    }
    for (at, c) in manager.char_indices() {
        if !is_printable(c) {
            let detail = format!("invalid character U+{:04X} (at position {at})", c as u32);
            errors.push(FieldError::invalid("fieldManager", manager, detail));
        }
    }
    errors
}

/// Returns true for characters that Go's `unicode.IsPrint` accepts, and for unassigned ones: no controls, no spaces
/// other than U+0020, and no characters that separate lines, format text, or are private.
fn is_printable(c: char) -> bool {
    let is_format = matches!(
        c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}'..='\u{e007f}'
    );
    let is_private = matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..);
    c == ' ' || !(c.is_control() || c.is_whitespace() || is_format || is_private)
}

/// The fate of the objects that a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// Options of delete and deletecollection.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) grace_period_seconds: Option<i64>,
    /// UID that the object must have.
    pub(crate) uid: Option<String>,
    /// Version that the object must have.
    pub(crate) resource_version: Option<String>,
}

impl DeleteOptions {
    /// Returns the options as an object, for webhooks and policies.
    pub(crate) fn as_value(&self) -> Value {
        let mut value = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"});
        if self.dry_run {
            value["dryRun"] = json!(["All"]);
        }
        if let Some(seconds) = self.grace_period_seconds {
            value["gracePeriodSeconds"] = seconds.into();
        }
        if let Some(propagation) = self.propagation {
            value["propagationPolicy"] = format!("{propagation:?}").into();
        }
        for (field, precondition) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(precondition) = precondition {
                value["preconditions"][field] = precondition.as_str().into();
            }
        }
        value
    }

    /// Reads the options from the query, or from the body if there is one: then the query is ignored.
    pub(crate) fn read(query: &Query, body: Option<&Value>) -> Result<Self, Status> {
        let from_query;
        let source = match body {
            Some(body) => body,
            None => {
                from_query = Self::query_as_body(query)?;
                &from_query
            }
        };
        let text = |field: &str| source.get(field).and_then(Value::as_str);
        let mut errors = Vec::new();
        let dry_run: Vec<&str> =
            source.get("dryRun").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let orphan = source.get("orphanDependents").and_then(Value::as_bool);
        let policy = text("propagationPolicy");
        let mut propagation = match policy {
            None => None,
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Background") => Some(Propagation::Background),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    other,
                    ["Foreground", "Background", "Orphan", "nil"],
                ));
                None
            }
        };
        if let (Some(policy), true, true) = (policy, orphan.is_some(), errors.is_empty()) {
            errors.push(FieldError::invalid(
                "propagationPolicy",
                policy,
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        errors.extend(check_dry_run(&dry_run));
        reject("DeleteOptions", errors)?;
        if let Some(orphan) = orphan {
            propagation = Some(if orphan { Propagation::Orphan } else { Propagation::Background });
        }
        let precondition = |field: &str| source.get("preconditions")?.get(field)?.as_str().map(str::to_owned);
        Ok(Self {
            dry_run: !dry_run.is_empty(),
            propagation,
            grace_period_seconds: source.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
        })
    }

    fn query_as_body(query: &Query) -> Result<Value, Status> {
        let mut body = serde_json::Map::new();
        if let Some(policy) = query.get("propagationPolicy") {
            body.insert("propagationPolicy".into(), policy.into());
        }
        if query.get("orphanDependents").is_some() {
            body.insert("orphanDependents".into(), query.flag("orphanDependents").into());
        }
        if let Some(seconds) = query.get("gracePeriodSeconds") {
            body.insert("gracePeriodSeconds".into(), integer(seconds)?.into());
        }
        let dry_run = query.all("dryRun");
        if !dry_run.is_empty() {
            body.insert("dryRun".into(), dry_run.into());
        }
        Ok(Value::Object(body))
    }
}

/// Parses an integer of a query, with Go's error message.
fn integer(text: &str) -> Result<i64, Status> {
    text.parse().map_err(|_| {
        Status::bad_request(format!(
            "strconv.ParseInt: parsing {}: invalid syntax",
            flyball_core::field::go_quote(text)
        ))
    })
}

/// The meaning of a list's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    NotOlderThan,
    Exact,
}

/// Maximum duration of a watch, regardless of its timeout.
const MAX_TIMEOUT_SECONDS: u64 = 24 * 60 * 60;

/// Options of list and watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    pub(crate) resource_version: String,
    pub(crate) version_match: Option<VersionMatch>,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) bookmarks: bool,
    pub(crate) initial_events: Option<bool>,
}

impl ListOptions {
    /// Reads and checks the options of a list, or of a watch.
    pub(crate) fn read(query: &Query, watch: bool) -> Result<Self, Status> {
        let number = |name: &str| query.get(name).filter(|text| !text.is_empty()).map(integer).transpose();
        let (limit, timeout) = (number("limit")?, number("timeoutSeconds")?);
        let bad = |e: flyball_core::selector::Error| Status::bad_request(e.0);
        let labels = LabelSelector::parse(query.text("labelSelector")).map_err(bad)?;
        let fields = FieldSelector::parse(query.text("fieldSelector")).map_err(bad)?;
        let initial_events =
            query.get("sendInitialEvents").filter(|text| !text.is_empty()).map(|_| query.flag("sendInitialEvents"));
        reject("ListOptions", check_match(query, watch, initial_events))?;
        Ok(Self {
            labels,
            fields,
            resource_version: query.text("resourceVersion").to_owned(),
            version_match: match query.text("resourceVersionMatch") {
                "Exact" => Some(VersionMatch::Exact),
                "NotOlderThan" => Some(VersionMatch::NotOlderThan),
                _ => None,
            },
            limit: limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0),
            continue_token: query.text("continue").to_owned(),
            timeout_seconds: timeout
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0)
                .map(|seconds| seconds.min(MAX_TIMEOUT_SECONDS)),
            bookmarks: query.flag("allowWatchBookmarks"),
            initial_events,
        })
    }
}

/// Checks that version, its match and the rest go together.
fn check_match(query: &Query, watch: bool, initial_events: Option<bool>) -> Vec<FieldError> {
    const FIELD: &str = "resourceVersionMatch";
    let (version, version_match) = (query.text("resourceVersion"), query.text(FIELD));
    let forbidden = |detail: &str| FieldError::forbidden(FIELD, detail);
    let continued = || {
        let given = !query.text("continue").is_empty();
        given.then(|| forbidden("resourceVersionMatch is forbidden when continue is provided"))
    };
    let mut errors = Vec::new();
    if watch {
        if initial_events.is_some() && version_match != "NotOlderThan" {
            errors.push(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        if version_match.is_empty() {
            return errors;
        }
        if initial_events.is_none() {
            errors.push(forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
        }
        if version_match != "NotOlderThan" {
            errors.push(FieldError::not_supported(FIELD, version_match, ["NotOlderThan"]));
        }
        errors.extend(continued());
        return errors;
    }
    if !version_match.is_empty() {
        if version.is_empty() {
            errors.push(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        errors.extend(continued());
        if !matches!(version_match, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(FIELD, version_match, ["Exact", "NotOlderThan", ""]));
        }
        if version_match == "Exact" && version == "0" {
            errors.push(forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
    }
    if initial_events.is_some() {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message<T>(result: Result<T, Status>) -> String {
        result.err().expect("a refusal").message
    }

    #[test]
    fn invalid_options_are_rejected_by_name() {
        let write = |query: &str, write| message(WriteOptions::read(&Query::parse(query), write));
        assert_eq!(
            write("dryRun=Some", Write::Create),
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""
        );
        assert_eq!(
            write("", Write::Apply),
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        );
        assert!(
            write("force=true&fieldManager=a", Write::Patch)
                .ends_with("force: Forbidden: may not be specified for non-apply patch")
        );
        for (text, character) in [("%01", "0001"), ("%c2%9b", "009B"), ("%e2%80%ae", "202E"), ("%c2%a0", "00A0")] {
            let message = write(&format!("fieldManager=a{text}b"), Write::Update);
            assert!(message.ends_with(&format!("invalid character U+{character} (at position 1)")), "{message}");
        }
        assert!(check_manager("ä b").is_empty());
        let list = |query: &str, watch| message(ListOptions::read(&Query::parse(query), watch));
        assert_eq!(list("limit=x", false), "strconv.ParseInt: parsing \"x\": invalid syntax");
        assert!(
            list("resourceVersionMatch=Exact&resourceVersion=0", false).contains("\\\"exact\\\"")
                || list("resourceVersionMatch=Exact&resourceVersion=0", false).contains("\"exact\"")
        );
        assert!(list("sendInitialEvents=true", true).contains("requires setting resourceVersionMatch to NotOlderThan"));
    }

    #[test]
    fn delete_options_in_the_body_override_the_query() {
        let query = Query::parse("dryRun=All&propagationPolicy=Orphan");
        let options = DeleteOptions::read(&query, None).unwrap();
        assert!(options.dry_run && options.propagation == Some(Propagation::Orphan));
        let options = DeleteOptions::read(&query, Some(&json!({"preconditions": {"uid": "x"}}))).unwrap();
        assert!(!options.dry_run && options.propagation.is_none());
        assert_eq!(options.uid.as_deref(), Some("x"));
    }
}
