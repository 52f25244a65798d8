//! Names and amounts of resources.

use super::super::field::Field;
use flyball_core::field::FieldError;
use flyball_core::{Quantity, names};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Resources of containers that the kubelet accounts for.
const OF_CONTAINERS: &[&str] = &["cpu", "ephemeral-storage", "memory"];

/// Objects that a quota counts.
const OBJECTS: &[&str] = &[
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

/// Sums that a quota limits.
const SUMS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
];

pub(crate) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Returns true if a resource is a native resource of Kubernetes.
pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns true if a resource may be overcommitted.
pub(crate) fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Returns true if a resource is provided by a device plugin.
pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Returns true if a quota may limit a resource of this name.
pub(crate) fn is_for_quotas(name: &str) -> bool {
    let known = OF_CONTAINERS.contains(&name) || OBJECTS.contains(&name) || SUMS.contains(&name);
    known || is_huge_page(name) || name.starts_with("requests.hugepages-")
}

/// Parses the amount of a field.
pub(crate) fn amount(field: &Field<'_>) -> Quantity {
    amount_of(field.value()).unwrap_or(Quantity::ZERO)
}

/// Parses an amount.
pub(crate) fn amount_of(value: &Value) -> Option<Quantity> {
    value.as_str()?.parse().ok()
}

/// Validates the name of a resource of any object.
fn general_name(field: &Field<'_>, name: &str) -> Vec<FieldError> {
    let wrong: Vec<FieldError> =
        names::qualified_name(name).into_iter().map(|wrong| field.invalid_as(name, wrong)).collect();
    if wrong.is_empty() && !name.contains('/') && name != "storage" && !is_for_quotas(name) {
        return vec![field.invalid_as(name, "must be a standard resource type or fully qualified")];
    }
    wrong
}

/// The key of the field must be the name of a resource.
pub(crate) fn name(field: &Field<'_>, name: &str) -> Vec<FieldError> {
    general_name(field, name)
}

/// The key of the field must be the name of a container resource.
pub(crate) fn container_name(field: &Field<'_>, name: &str) -> Vec<FieldError> {
    let mut errors = general_name(field, name);
    if !name.contains('/') {
        if !OF_CONTAINERS.contains(&name) && !is_huge_page(name) {
            errors.push(field.invalid_as(name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(field.invalid_as(name, "doesn't follow extended resource name standard"));
    }
    errors
}

/// The key of the field must be the name of a pod-level resource.
pub(crate) fn pod_name(field: &Field<'_>, name: &str) -> Vec<FieldError> {
    let errors = general_name(field, name);
    if errors.is_empty() && !is_of_pods(name) {
        return vec![FieldError::not_supported(field.path(), name, ["cpu", "memory"])];
    }
    errors
}

/// Returns true if a pod may request a resource at pod level.
pub(crate) fn is_of_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

/// The key of the field must be the name of a resource that a quota may limit.
pub(crate) fn quota_name(field: &Field<'_>, name: &str) -> Vec<FieldError> {
    let mut errors = general_name(field, name);
    if !name.contains('/') && !is_for_quotas(name) {
        errors.push(field.invalid_as(name, "must be a standard resource for quota"));
    }
    errors
}

/// The field must be an amount of a resource: not negative, and an integer for integer resources.
pub(crate) fn amount_for(field: &Field<'_>, name: &str) -> Vec<FieldError> {
    let amount = amount(field);
    let mut errors = Vec::new();
    if amount.is_negative() {
        errors.push(field.invalid("must be greater than or equal to 0"));
    }
    if (OBJECTS.contains(&name) || is_extended(name)) && amount.milli_value() % 1000 != 0 {
        errors.push(field.invalid("must be an integer"));
    }
    errors
}

/// The field must be positive.
pub(crate) fn positive_amount(field: &Field<'_>) -> Option<FieldError> {
    (amount(field) <= Quantity::ZERO).then(|| field.invalid("must be greater than zero"))
}

/// The field must be a nonnegative amount.
pub(crate) fn basic_amount(field: &Field<'_>) -> Option<FieldError> {
    let value = amount(field).value();
    (value < 0).then(|| field.invalid_as(value, "must be a valid resource quantity"))
}

/// Warns about fractional bytes.
pub(crate) fn warn_of_fraction(field: &Field<'_>) -> Option<String> {
    let path = field.path();
    let fraction = amount(field).milli_value() % 1000 != 0;
    fraction.then(|| format!("{path}: fractional byte value {:?} is invalid, must be an integer", field.text()))
}

/// Requests and limits must name allowed resources, and match each other.
pub(crate) fn requirements(
    field: &Field<'_>,
    name_rule: fn(&Field<'_>, &str) -> Vec<FieldError>,
    claims: &[&str],
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (limits, requests) = (field.at("limits"), field.at("requests"));
    for (name, limit) in limits.entries() {
        errors.extend(name_rule(&limit, name));
        errors.extend(amount_for(&limit, name));
        errors.extend(whole_pages(&limit, name));
    }
    for (name, request) in requests.entries() {
        errors.extend(name_rule(&request, name));
        errors.extend(amount_for(&request, name));
        errors.extend(within_limit(name, &request, &requests, &limits));
        errors.extend(whole_pages(&request, name));
    }
    let all: Vec<&str> = limits.entries().chain(requests.entries()).map(|(name, _)| name).collect();
    if all.iter().any(|name| is_huge_page(name)) && !all.iter().any(|name| matches!(*name, "cpu" | "memory")) {
        errors.push(field.forbidden("HugePages require cpu or memory"));
    }
    errors.extend(claim_names(&field.at("claims"), claims));
    errors
}

/// A request must not exceed the limit, and must equal it if the resource cannot be overcommitted.
fn within_limit(name: &str, request: &Field<'_>, requests: &Field<'_>, limits: &Field<'_>) -> Option<FieldError> {
    let limit = limits.key(name);
    if !limit.is_set() {
        return (!may_overcommit(name)).then(|| limits.required("Limit must be set for non overcommitable resources"));
    }
    let (requested, limit_amount) = (amount(request), amount(&limit));
    if requested != limit_amount && !may_overcommit(name) {
        return Some(requests.invalid_as(request.text(), format!("must be equal to {name} limit of {}", limit.text())));
    }
    (requested > limit_amount).then(|| {
        requests.invalid_as(request.text(), format!("must be less than or equal to {name} limit of {}", limit.text()))
    })
}

/// Amounts of huge pages must be multiples of the page size.
fn whole_pages(field: &Field<'_>, name: &str) -> Option<FieldError> {
    let size = name.strip_prefix("hugepages-")?.parse::<Quantity>().ok();
    let size = size.filter(|size| *size > Quantity::ZERO && size.is_whole());
    let whole = size.is_some_and(|size| amount(field).value() % size.value() == 0);
    (!whole).then(|| field.invalid(format!("{} is not positive integer multiple of {name}", field.text())))
}

/// Validates that containers use claims of their pod, each at most once.
fn claim_names(claims: &Field<'_>, known: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut used: BTreeSet<String> = BTreeSet::new();
    // The number of requests of a claim that are used by name.
    let mut requests: BTreeMap<String, usize> = BTreeMap::new();
    for claim in claims.items() {
        let (name, request) = (claim.at("name").text(), claim.at("request").text());
        if name.is_empty() {
            errors.push(claim.required(""));
            continue;
        }
        let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
        if used.contains(name) {
            errors.push(claim.duplicate_of(name));
        } else {
            errors.extend(claim.at("request").may_obey(names::dns_label));
            if used.contains(&key) {
                errors.push(claim.duplicate_of(key.as_str()));
            } else if request.is_empty() {
                let parts = requests.get(name).copied().unwrap_or_default();
                errors.extend((0..parts).map(|_| claim.duplicate_of(name)));
            }
            if used.insert(key) && !request.is_empty() {
                *requests.entry(name.to_owned()).or_default() += 1;
            }
        }
        if !known.contains(&name) {
            let list = if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", known.join(", ")) };
            let error = FieldError::not_found(claim.path(), name);
            errors.push(FieldError {
                detail: format!("must be one of the names in pod.spec.resourceClaims{list}"),
                ..error
            });
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::field::Path;
    use serde_json::json;

    fn messages(value: &Value) -> Vec<String> {
        requirements(&Field::new(Path::new("r"), value), container_name, &["c"])
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn requests_must_fit_limits() {
        let check = |value: Value, expected: &[&str]| assert_eq!(messages(&value), expected, "{value}");
        check(
            json!({"limits": {"cpu": "1", "example.com/gpu": "2"}, "requests": {"cpu": "500m", "example.com/gpu": "2"}}),
            &[],
        );
        check(
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            &["r.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"],
        );
        check(
            json!({"requests": {"example.com/gpu": "1"}}),
            &["r.limits: Required value: Limit must be set for non overcommitable resources"],
        );
        check(
            json!({"limits": {"memory": "-1"}}),
            &["r.limits[memory]: Invalid value: \"-1\": must be greater than or equal to 0"],
        );
        check(
            json!({"limits": {"disk": "1"}}),
            &[
                "r.limits[disk]: Invalid value: \"disk\": must be a standard resource type or fully qualified",
                "r.limits[disk]: Invalid value: \"disk\": must be a standard resource for containers",
            ],
        );
        check(
            json!({"limits": {"hugepages-2Mi": "3Mi"}}),
            &[
                "r.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                "r: Forbidden: HugePages require cpu or memory",
            ],
        );
        check(json!({"claims": [{"name": "c"}, {"name": "c"}]}), &["r.claims[1]: Duplicate value: \"c\""]);
        check(
            json!({"claims": [{"name": "d"}]}),
            &["r.claims[0]: Not found: \"d\": must be one of the names in pod.spec.resourceClaims: c"],
        );
    }
}
