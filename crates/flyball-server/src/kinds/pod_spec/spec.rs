//! The spec of a pod or pod template.

use super::super::field::Field;
use super::super::rules::{address, label, resource, text};
use super::surroundings::PodContext;
use super::{container, placement, security, volume};
use flyball_core::field::FieldError;
use flyball_core::metadata::validate_annotations;
use flyball_core::names::{dns_label, dns_subdomain, qualified_name};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};

type Errors = Vec<FieldError>;

/// Validates the spec of a pod, or of a template if it has no name.
pub(crate) fn check(spec: &Field<'_>, pod: &str, is_pod: bool) -> Errors {
    let mut errors = Errors::new();
    let grace = spec.at("terminationGracePeriodSeconds");
    if !grace.is_set() {
        errors.push(grace.required(""));
    }
    let volumes = spec.at("volumes");
    let (good, wrong) = volume::volumes(&volumes, pod);
    errors.extend(wrong);
    errors.extend(claims(&spec.at("resourceClaims")));
    let around = PodContext {
        volumes: good.into_iter().filter_map(|volume| Some((volume["name"].as_str()?, volume))).collect(),
        claims: spec.at("resourceClaims").list().iter().filter_map(|claim| claim["name"].as_str()).collect(),
        grace: grace.int_if_set(),
        restart_policy: spec.at("restartPolicy").text(),
        host_users: spec.at("hostUsers").value() != false,
        os: spec.at("os.name").text_if_set(),
    };
    let containers = spec.at("containers");
    errors.extend(container::containers(&containers, &around));
    errors.extend(container::init_containers(&spec.at("initContainers"), &containers, &around));
    errors.extend(container::ephemeral_containers(&spec.at("ephemeralContainers"), spec, &around));
    let resources = spec.at("resources");
    if resources.is_set() {
        errors.extend(resource::requirements(&resources, resource::pod_name, &around.claims));
    }
    if spec.at("hostNetwork").flag() {
        errors.extend(containers.items().flat_map(|container| same_ports(&container, is_pod)));
    }
    errors.extend(spec.at("restartPolicy").must_be_one_of(&["Always", "OnFailure", "Never"]));
    errors.extend(spec.at("dnsPolicy").must_be_one_of(&["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]));
    errors.extend(label::labels(&spec.at("nodeSelector")));
    errors.extend(security::pod(spec));
    errors.extend(placement::affinity(&spec.at("affinity")));
    errors.extend(dns(&spec.at("dnsConfig"), spec.at("dnsPolicy").text()));
    errors.extend(spec.at("readinessGates").items().flat_map(|gate| gate.at("conditionType").obeys(qualified_name)));
    errors.extend(gates(&spec.at("schedulingGates")));
    errors.extend(placement::spread(&spec.at("topologySpreadConstraints")));
    if !around.host_users {
        for field in ["hostPID", "hostIPC"].iter().filter(|field| spec.at(field).flag()) {
            let label = format!("H{}", &field[1..]);
            errors.push(spec.at(&label).forbidden("when `hostUsers` is false"));
        }
    }
    errors.extend(host_name(spec));
    errors.extend(spec.at("serviceAccountName").may_obey(dns_subdomain));
    errors.extend(spec.at("nodeName").may_obey(dns_subdomain));
    let deadline = spec.at("activeDeadlineSeconds");
    if deadline.is_set() {
        errors.extend(deadline.within(1, i64::from(i32::MAX)));
    }
    errors.extend(spec.at("hostname").may_obey(dns_label));
    errors.extend(spec.at("subdomain").may_obey(dns_label));
    errors.extend(placement::tolerations(&spec.at("tolerations")));
    for alias in spec.at("hostAliases").items() {
        errors.extend(address::check(&alias.at("ip")));
        errors.extend(alias.at("hostnames").items().flat_map(|name| name.obeys(dns_subdomain)));
    }
    errors.extend(spec.at("priorityClassName").may_obey(dns_subdomain));
    let runtime = spec.at("runtimeClassName");
    if runtime.is_set() {
        errors.extend(runtime.obeys(dns_subdomain));
    }
    errors.extend(spec.at("preemptionPolicy").may_be_one_of(&["PreemptLowerPriority", "Never"]));
    errors.extend(overhead(&spec.at("overhead")));
    errors.extend(os(spec));
    errors
}

/// Validates a pod template: labels, annotations and spec.
pub(crate) fn template(template: &Field<'_>) -> Errors {
    let mut errors = template_metadata(template);
    let spec = template.at("spec");
    errors.extend(check(&spec, "", false));
    let ephemeral = spec.at("ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.push(ephemeral.forbidden("ephemeral containers not allowed in pod template"));
    }
    errors
}

/// Validates the metadata of a template; error paths omit `metadata`.
pub(crate) fn template_metadata(template: &Field<'_>) -> Errors {
    let metadata = template.at("metadata");
    let (labels, annotations) = (template.at("labels"), template.at("annotations"));
    let mut errors = label::labels(&Field::new(*labels.path(), metadata.at("labels").value()));
    errors.extend(validate_annotations(metadata.at("annotations").value().as_object(), annotations.path()));
    errors
}

fn claims(claims: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for claim in claims.items() {
        let name = claim.at("name");
        if names.contains(name.text()) {
            errors.push(name.duplicate());
        }
        names.insert(name.text().to_owned());
        errors.extend(name.must_obey(dns_label));
        let sources = ["resourceClaimName", "resourceClaimTemplateName"].map(|source| claim.at(source));
        match sources.iter().filter(|source| source.is_set()).count() {
            0 => errors.push(claim.invalid("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")),
            1 => {}
            _ => errors.push(
                claim.invalid("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"),
            ),
        }
        errors.extend(sources.iter().filter(|source| source.is_set()).flat_map(|source| source.obeys(dns_subdomain)));
    }
    errors
}

/// Requires host ports to equal container ports on the host network.
fn same_ports(container: &Field<'_>, is_pod: bool) -> Errors {
    let mut errors = Errors::new();
    for port in container.at("ports").items() {
        let (host, own) = (port.at("hostPort"), port.at("containerPort"));
        if (is_pod || host.int() != 0) && host.int() != own.int() {
            errors.push(host.invalid_as(host.int(), "must match `containerPort` when `hostNetwork` is true"));
        }
    }
    errors
}

fn dns(config: &Field<'_>, policy: &str) -> Errors {
    let mut errors = Errors::new();
    let servers = config.at("nameservers");
    if policy == "None" {
        if !config.is_set() {
            return vec![config.required("must provide `dnsConfig` when `dnsPolicy` is None")];
        }
        if servers.is_empty() {
            return vec![servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None")];
        }
    }
    if servers.len() > 3 {
        errors.push(servers.invalid("must not have more than 3 nameservers"));
    }
    errors.extend(servers.items().flat_map(|server| address::check(&server)));
    let searches = config.at("searches");
    if searches.len() > 32 {
        errors.push(searches.invalid("must not have more than 32 search paths"));
    }
    if searches.texts().collect::<Vec<_>>().join(" ").len() > 2048 {
        errors.push(searches.invalid("must not have more than 2048 characters (including spaces) in the search list"));
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let text = search.text().strip_suffix('.').unwrap_or(search.text());
        errors.extend(text::subdomain_with_underscores(text).into_iter().map(|wrong| search.invalid_as(text, wrong)));
    }
    for option in config.at("options").items().filter(|option| option.at("name").is_empty()) {
        errors.push(option.required("must not be empty"));
    }
    errors
}

fn gates(gates: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut seen: HashSet<&Value> = HashSet::new();
    for gate in gates.items() {
        let name = gate.at("name").text();
        errors.extend(qualified_name(name).into_iter().map(|wrong| gate.invalid_as(name, wrong)));
        let value = gate.value();
        if !seen.insert(value) {
            errors.push(gate.duplicate_of(name));
        }
    }
    errors
}

fn host_name(spec: &Field<'_>) -> Errors {
    let name = spec.at("hostnameOverride");
    let mut errors = Errors::new();
    if !name.is_set() {
        return errors;
    }
    for (flag, why) in [
        ("setHostnameAsFQDN", "may not be specified when setHostnameAsFQDN is true"),
        ("hostNetwork", "may not be specified when hostNetwork is true"),
    ] {
        if spec.at(flag).flag() {
            errors.push(name.forbidden(why));
        }
    }
    if name.text().len() > 64 {
        errors.push(name.too_long(64));
    }
    errors.extend(name.obeys(dns_subdomain));
    errors
}

fn overhead(overhead: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    for (name, amount) in overhead.entries() {
        errors.extend(resource::container_name(&amount, name));
        errors.extend(resource::amount_for(&amount, name));
    }
    errors
}

/// Rejects fields of another operating system.
const OF_LINUX: &[&str] = &["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"];
const CONTEXT_OF_LINUX: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
const CONTAINER_OF_LINUX: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

fn os(spec: &Field<'_>) -> Errors {
    let os = spec.at("os");
    if !os.is_set() {
        return Errors::new();
    }
    let name = os.at("name");
    let mut errors = Errors::new();
    let (own, of_context, of_container, why) = match name.text() {
        "" => return vec![name.required("")],
        "linux" => {
            (&[][..], &["windowsOptions"][..], &["windowsOptions"][..], "windows options cannot be set for a linux pod")
        }
        "windows" => (OF_LINUX, CONTEXT_OF_LINUX, CONTAINER_OF_LINUX, "cannot be set for a windows pod"),
        other => return vec![FieldError::not_supported(os.path(), other, ["linux", "windows"])],
    };
    let mut forbid = |of: &Field<'_>, names: &[&str]| {
        let given = names.iter().map(|name| of.at(name)).filter(Field::is_set);
        errors.extend(given.map(|field| field.forbidden(why)));
    };
    forbid(&spec.at("securityContext"), of_context);
    forbid(spec, own);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.at(list).items() {
            forbid(&container.at("securityContext"), of_container);
        }
    }
    errors
}
