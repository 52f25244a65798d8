//! Flow schemas, which map requests to priority levels.

use super::{EXEMPT, GROUP, bootstrap, check_status, fixed};
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{Heading, NONE, Row, View, text};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::Object;
use flyball_core::names::{dns_label, dns_subdomain};
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "FlowSchema", "flowschemas")
    .printed(COLUMNS, row)
    .default(default)
    .checks(Checks::Whole)
    .validate(validate)
    .cluster()
    .generation()
    .subresources(&[Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("PriorityLevel", "`name` is the name of the priority level configuration being referenced Required."),
    Heading::text(
        "MatchingPrecedence",
        "`matchingPrecedence` is used to choose among the FlowSchemas that match a given request. The chosen \
         FlowSchema is among those with the numerically lowest (which we take to be logically highest) \
         MatchingPrecedence.  Each MatchingPrecedence value must be ranged in [1,10000]. Note that if the precedence \
         is not specified, it will be set to 1000 as default.",
    ),
    Heading::text(
        "DistinguisherMethod",
        "`distinguisherMethod` defines how to compute the flow distinguisher for requests that match this schema. \
         `nil` specifies that the distinguisher is disabled and thus will always be the empty string.",
    ),
    Heading::AGE,
    Heading::text("MissingPL", "`conditions` is a list of the current states of FlowSchema."),
];

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

const SUBJECTS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

fn default(schema: &mut Object) {
    let spec = schema.inner_or_new("spec");
    if spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or_default() == 0 {
        spec.set("matchingPrecedence", 1000);
    }
}

fn validate(object: &Object, _: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    if part == Part::Status {
        return check_status(&root);
    }
    let spec = root.at("spec");
    let precedence = spec.at("matchingPrecedence");
    let mut errors = Errors::new();
    if precedence.int() <= 0 {
        errors.push(precedence.invalid("must be a positive value"));
    }
    if precedence.int() > 10_000 {
        errors.push(precedence.invalid("must not be greater than 10000"));
    }
    if precedence.int() == 1 && object.name() != EXEMPT {
        errors.push(precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1"));
    }
    let method = spec.at("distinguisherMethod");
    if method.is_set() {
        errors.extend(method.at("type").must_be_in(&["ByNamespace", "ByUser"]));
    }
    let level = spec.at("priorityLevelConfiguration");
    let level = level.at("name");
    if level.is_empty() {
        errors.push(level.required("must reference a priority level"));
    } else {
        errors.extend(level.obeys(dns_subdomain));
    }
    errors.extend(spec.at("rules").items().flat_map(|rule| policy_rule(&rule)));
    errors.extend(fixed(&spec, object.name(), bootstrap::mandatory_schema(object.name())));
    errors.extend(check_status(&root));
    errors
}

fn policy_rule(rule: &Field<'_>) -> Errors {
    let (subjects, resources, others) = (rule.at("subjects"), rule.at("resourceRules"), rule.at("nonResourceRules"));
    let mut errors: Errors = subjects.items().flat_map(|each| subject(&each)).collect();
    if subjects.is_empty() {
        errors.push(subjects.required("subjects must contain at least one value"));
    }
    if resources.is_empty() && others.is_empty() {
        errors.push(rule.required("at least one of resourceRules and nonResourceRules has to be non-empty"));
    }
    errors.extend(resources.items().flat_map(|each| resource_rule(&each)));
    errors.extend(others.items().flat_map(|each| non_resource_rule(&each)));
    errors
}

fn subject(subject: &Field<'_>) -> Errors {
    let kind = subject.at("kind");
    let Some((_, own)) = SUBJECTS.iter().find(|(known, _)| *known == kind.text()) else {
        return vec![kind.not_supported(&["Group", "ServiceAccount", "User"])];
    };
    let named = subject.at(own);
    let mut errors = Errors::new();
    if named.is_set() {
        let name = named.at("name");
        if name.is_empty() {
            errors.push(name.required(""));
        } else if kind.text() == "ServiceAccount" && name.text() != "*" {
            errors.extend(name.obeys(dns_subdomain));
        }
        let namespace = named.at("namespace");
        if kind.text() == "ServiceAccount" {
            match namespace.is_empty() {
                true => errors.push(namespace.required("must specify namespace for service account")),
                false => errors.extend(namespace.obeys(dns_label)),
            }
        }
    } else {
        errors.push(named.required(format!("{own} is required when subject kind is '{}'", kind.text())));
    }
    for (kind, other) in SUBJECTS.iter().filter(|(_, other)| other != own) {
        let other = subject.at(other);
        if other.is_set() {
            let field = other.path().to_string();
            let field = field.rsplit('.').next().unwrap_or_default().to_owned();
            errors.push(other.forbidden(format!("{field} is forbidden when subject kind is not '{kind}'")));
        }
    }
    errors
}

fn has_wildcard(list: &Field<'_>) -> bool {
    list.texts().any(|text| text == "*")
}

fn verbs(verbs: &Field<'_>) -> Errors {
    if verbs.is_empty() {
        return vec![verbs.required("verbs must contain at least one value")];
    }
    if has_wildcard(verbs) {
        let alone = (verbs.len() > 1).then(|| verbs.invalid("if '*' is present, must not specify other verbs"));
        return alone.into_iter().collect();
    }
    if verbs.texts().all(|verb| VERBS.contains(&verb)) { Errors::new() } else { vec![verbs.not_supported(VERBS)] }
}

fn resource_rule(rule: &Field<'_>) -> Errors {
    let mut errors = verbs(&rule.at("verbs"));
    for (list, one, what) in [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")] {
        let list = rule.at(list);
        if list.is_empty() {
            errors.push(list.required(format!("resource rules must supply at least one {one}")));
        } else if list.len() > 1 && has_wildcard(&list) {
            errors.push(list.invalid(format!("if '*' is present, must not specify other {what}")));
        }
    }
    let namespaces = rule.at("namespaces");
    if namespaces.is_empty() && !rule.at("clusterScope").flag() {
        let why = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.push(namespaces.required(why));
    } else if has_wildcard(&namespaces) {
        if namespaces.len() > 1 {
            errors.push(namespaces.invalid("if '*' is present, must not specify other namespaces"));
        }
    } else {
        const INTRO: &str = "each member of this list must be '*' or a DNS-1123 label; ";
        for namespace in namespaces.items() {
            let wrong = dns_label(namespace.text()).into_iter();
            errors.extend(wrong.map(|why| namespace.invalid(format!("{INTRO}{why}"))));
        }
    }
    errors
}

fn non_resource_rule(rule: &Field<'_>) -> Errors {
    let mut errors = verbs(&rule.at("verbs"));
    let paths = rule.at("nonResourceURLs");
    if paths.is_empty() {
        errors.push(paths.required("nonResourceURLs must contain at least one value"));
    } else if has_wildcard(&paths) {
        if paths.len() > 1 {
            errors.push(paths.invalid("if '*' is present, must not specify other non-resource URLs"));
        }
    } else {
        errors.extend(paths.items().filter_map(|path| Some(path.invalid(wrong_path(path.text())?))));
    }
    errors
}

fn wrong_path(path: &str) -> Option<&'static str> {
    let stars = path.matches('*').count();
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || stars == 1 && !path.ends_with("/*") => Some("wildcard can only do suffix matching"),
        _ => None,
    }
}

fn row(view: &View<'_>) -> Row {
    let dangling = view.list("status.conditions").iter().rfind(|condition| text(condition, "type") == "Dangling");
    Row::from([
        view.name(),
        view.text("spec.priorityLevelConfiguration.name").into(),
        view.int("spec.matchingPrecedence").into(),
        view.text_or("spec.distinguisherMethod.type", NONE),
        view.age(),
        dangling.map_or("?", |condition| text(condition, "status")).into(),
    ])
}
