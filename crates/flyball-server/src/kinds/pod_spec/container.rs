//! Containers.

use super::super::field::Field;
use super::super::rules::{port, resource};
use super::env::{env, env_from};
use super::mount::{devices, mounts};
use super::surroundings::PodContext;
use super::{probe, security};
use flyball_core::field::FieldError;
use flyball_core::names::dns_label;
use serde_json::Value;
use std::collections::BTreeSet;

type Errors = Vec<FieldError>;

/// The containers of a pod.
pub(super) fn containers(containers: &Field<'_>, around: &PodContext<'_>) -> Errors {
    if containers.is_empty() {
        return vec![containers.required("")];
    }
    let mut errors = Errors::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for container in containers.items() {
        errors.extend(common(&container, around));
        let name = container.at("name");
        if names.contains(name.text()) {
            errors.push(name.duplicate_of(name.text()));
        }
        names.insert(name.text().to_owned());
        errors.extend(probe::all(&container, around.grace, around.os));
        errors.extend(restart_policy(&container));
    }
    errors.extend(host_ports(containers.items()));
    errors
}

const POLICIES: &[&str] = &["Always", "Never", "OnFailure"];

fn restart_policy(container: &Field<'_>) -> Errors {
    let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
    let mut errors = Errors::new();
    if !policy.is_set() {
        if rules.is_empty() {
            return errors;
        }
        errors.push(policy.required("must specify restartPolicy when restart rules are used"));
    } else {
        errors.extend(policy.must_be_in(POLICIES));
    }
    if rules.len() > 20 {
        errors.push(rules.too_many(20));
    }
    for rule in rules.items() {
        errors.extend(rule.at("action").must_be_in(&["Restart", "RestartAllContainers"]));
        let codes = rule.at("exitCodes");
        if !codes.is_set() {
            errors.push(codes.required("must be specified"));
            continue;
        }
        errors.extend(codes.at("operator").must_be_in(&["In", "NotIn"]));
        if codes.at("values").len() > 255 {
            errors.push(codes.at("values").too_many(255));
        }
    }
    errors
}

/// Validates the init containers of a pod.
pub(super) fn init_containers(containers: &Field<'_>, regular: &Field<'_>, around: &PodContext<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut names: BTreeSet<String> = regular.items().map(|container| container.at("name").text().to_owned()).collect();
    for container in containers.items() {
        errors.extend(common(&container, around));
        errors.extend(restart_policy(&container));
        let always = container.at("restartPolicy").text() == "Always";
        let name = container.at("name");
        if names.contains(name.text()) {
            errors.push(name.duplicate_of(name.text()));
        } else if !name.is_empty() {
            names.insert(name.text().to_owned());
        }
        errors.extend(host_ports(std::iter::once(container)));
        if always {
            errors.extend(probe::all(&container, around.grace, around.os));
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                let field = container.at(field);
                if field.is_set() {
                    errors.push(field.forbidden("may not be set for init containers without restartPolicy=Always"));
                }
            }
            for policy in container
                .at("resizePolicy")
                .items()
                .filter(|policy| policy.at("restartPolicy").text() == "RestartContainer")
            {
                let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                errors.push(policy.at("restartPolicy").invalid(why));
            }
        }
    }
    errors
}

/// Allowed fields of ephemeral containers.
const EPHEMERAL: &[&str] = &[
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "env",
    "envFrom",
    "volumeMounts",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
    "targetContainerName",
];

/// Validates ephemeral containers.
pub(super) fn ephemeral_containers(containers: &Field<'_>, spec: &Field<'_>, around: &PodContext<'_>) -> Errors {
    let mut errors = Errors::new();
    let lists = ["containers", "initContainers"].map(|list| spec.at(list));
    let others: BTreeSet<&str> =
        lists.iter().flat_map(|list| list.list()).filter_map(|container| container["name"].as_str()).collect();
    let mut names: BTreeSet<String> = others.iter().map(ToString::to_string).collect();
    for container in containers.items() {
        errors.extend(common(&container, around));
        errors.extend(trimmed_image(&container));
        let name = container.at("name");
        if names.contains(name.text()) {
            errors.push(name.duplicate_of(name.text()));
        }
        names.insert(name.text().to_owned());
        let target = container.at("targetContainerName");
        if !target.is_empty() && !others.contains(target.text()) {
            errors.push(target.not_found());
        }
        for (field, value) in container.value().as_object().into_iter().flatten() {
            let empty = matches!(value, Value::Object(fields) if fields.is_empty());
            if !EPHEMERAL.contains(&field.as_str()) && !empty {
                errors.push(container.at(field).forbidden("cannot be set for an Ephemeral Container"));
            }
        }
        for mount in container.at("volumeMounts").items() {
            for path in ["subPath", "subPathExpr"] {
                let path = mount.at(path);
                if !path.is_empty() {
                    errors.push(path.forbidden("cannot be set for an Ephemeral Container"));
                }
            }
        }
    }
    errors
}

/// Rejects image names with surrounding spaces.
pub(in crate::kinds) fn trimmed_image(container: &Field<'_>) -> Option<FieldError> {
    let image = container.at("image");
    (image.text().trim() != image.text()).then(|| image.invalid("must not have leading or trailing whitespace"))
}

/// Validates the fields of all containers.
fn common(container: &Field<'_>, around: &PodContext<'_>) -> Errors {
    let mut errors = container.at("name").must_obey(dns_label);
    errors.extend(container.at("image").must_be_set());
    errors.extend(container.at("terminationMessagePolicy").must_be_one_of(&["File", "FallbackToLogsOnError"]));
    errors.extend(ports(&container.at("ports")));
    errors.extend(container.at("env").items().flat_map(|variable| env(&variable)));
    errors.extend(env_from(&container.at("envFrom")));
    errors.extend(mounts(container, around));
    errors.extend(devices(container, around));
    errors.extend(container.at("imagePullPolicy").must_be_one_of(&["Always", "IfNotPresent", "Never"]));
    errors.extend(resource::requirements(&container.at("resources"), resource::container_name, &around.claims));
    errors.extend(resize_policy(&container.at("resizePolicy"), around.restart_policy));
    errors.extend(security::container(&container.at("securityContext"), around.host_users));
    errors
}

fn ports(ports: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for item in ports.items() {
        let (name, number, host) = (item.at("name"), item.at("containerPort"), item.at("hostPort"));
        let wrong = name.may_obey(port::name);
        if wrong.is_empty() && !name.is_empty() {
            if names.contains(name.text()) {
                errors.push(name.duplicate());
            }
            names.insert(name.text().to_owned());
        }
        errors.extend(wrong);
        errors.extend(if number.int() == 0 { Some(number.required("")) } else { port::number(&number) });
        errors.extend(if host.int() == 0 { None } else { port::number(&host) });
        errors.extend(item.at("protocol").must_be_one_of(port::PROTOCOLS));
    }
    errors
}

/// Validates that host ports of containers are unique.
fn host_ports<'a>(containers: impl Iterator<Item = Field<'a>>) -> Errors {
    let mut errors = Errors::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for container in containers {
        for item in container.at("ports").items() {
            let host = item.at("hostPort");
            let key = format!("{}/{}/{}", item.at("protocol").text(), item.at("hostIP").text(), host.int());
            if host.int() != 0 && taken.contains(&key) {
                errors.push(host.duplicate_of(key.as_str()));
            }
            taken.insert(key);
        }
    }
    errors
}

fn resize_policy(policies: &Field<'_>, restart_policy: &str) -> Errors {
    let mut errors = Errors::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for policy in policies.items() {
        let (name, restart) = (policy.at("resourceName").text(), policy.at("restartPolicy").text());
        if !seen.insert(name.to_owned()) {
            errors.push(policy.duplicate_of(name));
        }
        match name {
            "cpu" | "memory" => {}
            "" => errors.push(policies.required("")),
            other => errors.push(FieldError::not_supported(policies.path(), other, ["cpu", "memory"])),
        }
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => errors.push(policies.required("")),
            other => {
                errors.push(FieldError::not_supported(policies.path(), other, ["NotRequired", "RestartContainer"]))
            }
        }
        if restart_policy == "Never" && restart != "NotRequired" {
            errors.push(policies.invalid_as(restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"));
        }
    }
    errors
}
