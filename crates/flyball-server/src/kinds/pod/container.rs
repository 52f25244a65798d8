//! Containers.

use super::super::field::Field;
use super::super::rules::{path, port, resource, text};
use super::{probe, security};
use flyball_core::field::FieldError;
use flyball_core::names::{self, dns_label, dns_subdomain};
use serde_json::Value;

type Errors = Vec<FieldError>;

/// What containers of a pod share.
pub(super) struct Around<'a> {
    pub(super) volumes: Vec<&'a Value>,
    pub(super) claims: Vec<&'a str>,
    pub(super) grace: Option<i64>,
    pub(super) restart_policy: &'a str,
    pub(super) host_users: bool,
    pub(super) os: Option<&'a str>,
}

/// The containers of a pod.
pub(super) fn containers(containers: &Field<'_>, around: &Around<'_>) -> Errors {
    if containers.is_empty() {
        return vec![containers.required("")];
    }
    let mut errors = Errors::new();
    let mut names: Vec<String> = Vec::new();
    for container in containers.items() {
        errors.extend(common(&container, around));
        let name = container.at("name");
        if names.iter().any(|known| known == name.text()) {
            errors.push(name.duplicate_of(name.text()));
        }
        names.push(name.text().to_owned());
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

/// The containers that run before those of the pod.
pub(super) fn init_containers(containers: &Field<'_>, regular: &Field<'_>, around: &Around<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut names: Vec<String> = regular.items().map(|container| container.at("name").text().to_owned()).collect();
    for container in containers.items() {
        errors.extend(common(&container, around));
        errors.extend(restart_policy(&container));
        let always = container.at("restartPolicy").text() == "Always";
        let name = container.at("name");
        if names.iter().any(|known| known == name.text()) {
            errors.push(name.duplicate_of(name.text()));
        } else if !name.is_empty() {
            names.push(name.text().to_owned());
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

/// Fields that a container may have which is added to a pod that runs.
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

/// Containers that are added to a pod that runs.
pub(super) fn ephemeral_containers(containers: &Field<'_>, spec: &Field<'_>, around: &Around<'_>) -> Errors {
    let mut errors = Errors::new();
    let lists = ["containers", "initContainers"].map(|list| spec.at(list));
    let others: Vec<&str> =
        lists.iter().flat_map(|list| list.list()).filter_map(|container| container["name"].as_str()).collect();
    let mut names: Vec<String> = others.iter().map(ToString::to_string).collect();
    for container in containers.items() {
        errors.extend(common(&container, around));
        errors.extend(trimmed_image(&container));
        let name = container.at("name");
        if names.iter().any(|known| known == name.text()) {
            errors.push(name.duplicate_of(name.text()));
        }
        names.push(name.text().to_owned());
        let target = container.at("targetContainerName");
        if !target.is_empty() && !others.contains(&target.text()) {
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

/// Images are named without spaces around them.
pub(super) fn trimmed_image(container: &Field<'_>) -> Option<FieldError> {
    let image = container.at("image");
    (image.text().trim() != image.text()).then(|| image.invalid("must not have leading or trailing whitespace"))
}

/// What holds for all containers.
fn common(container: &Field<'_>, around: &Around<'_>) -> Errors {
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
    let mut names: Vec<String> = Vec::new();
    for item in ports.items() {
        let (name, number, host) = (item.at("name"), item.at("containerPort"), item.at("hostPort"));
        let wrong = name.may_obey(port::name);
        if wrong.is_empty() && !name.is_empty() {
            if names.iter().any(|known| known == name.text()) {
                errors.push(name.duplicate());
            }
            names.push(name.text().to_owned());
        }
        errors.extend(wrong);
        errors.extend(if number.int() == 0 { Some(number.required("")) } else { port::number(&number) });
        errors.extend(if host.int() == 0 { None } else { port::number(&host) });
        errors.extend(item.at("protocol").must_be_one_of(port::PROTOCOLS));
    }
    errors
}

/// No two containers take the same port of the node.
fn host_ports<'a>(containers: impl Iterator<Item = Field<'a>>) -> Errors {
    let mut errors = Errors::new();
    let mut taken: Vec<String> = Vec::new();
    for container in containers {
        for item in container.at("ports").items() {
            let host = item.at("hostPort");
            let key = format!("{}/{}/{}", item.at("protocol").text(), item.at("hostIP").text(), host.int());
            if host.int() != 0 && taken.contains(&key) {
                errors.push(host.duplicate_of(key.as_str()));
            }
            taken.push(key);
        }
    }
    errors
}

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

fn env(variable: &Field<'_>) -> Errors {
    let mut errors = variable
        .at("name")
        .must_be_set()
        .map_or_else(|| variable.at("name").obeys(text::env_name), |error| vec![error]);
    let from = variable.at("valueFrom");
    if !from.is_set() {
        return errors;
    }
    let mut count = 0;
    for source in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let field = from.at(source);
        if !field.is_set() {
            continue;
        }
        count += 1;
        match source {
            "fieldRef" => errors.extend(object_field(&field, ENV_FIELDS)),
            "resourceFieldRef" => errors.extend(resource_field(&field, false)),
            "fileKeyRef" => {
                errors.extend(field.at("key").must_obey(text::env_name));
                errors.extend(field.at("volumeName").must_obey(dns_label));
                errors.extend(field.at("path").must_be_set());
                errors.extend(path::unreserved(&field.at("path")));
            }
            _ => errors.extend(key_of(&field)),
        }
    }
    if count == 0 {
        let why =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.push(from.invalid_as("", why));
    } else if !variable.at("value").is_empty() {
        errors.push(from.invalid_as("", "may not be specified when `value` is not empty"));
    } else if count > 1 {
        errors.push(from.invalid_as("", "may not have more than one field specified at a time"));
    }
    errors
}

/// A key of a config map or a secret.
fn key_of(selector: &Field<'_>) -> Errors {
    let mut errors = selector.at("name").obeys(dns_subdomain);
    errors.extend(selector.at("key").must_obey(names::config_key));
    errors
}

fn env_from(sources: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    for source in sources.items() {
        errors.extend(source.at("prefix").may_obey(text::env_name));
        let given = ["configMapRef", "secretRef"]
            .map(|name| source.at(name))
            .into_iter()
            .filter(Field::is_set)
            .collect::<Vec<_>>();
        for reference in &given {
            errors.extend(reference.at("name").must_obey(dns_subdomain));
        }
        match given.len() {
            0 => errors.push(sources.invalid_as("", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.push(sources.invalid_as("", "may not have more than one field specified at a time")),
        }
    }
    errors
}

/// Fields of pods by the names that one may ask for.
const FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];

/// A field of the pod itself; which are allowed depends on where the value goes.
pub(super) fn object_field(selector: &Field<'_>, allowed: &[&str]) -> Errors {
    let (version, at) = (selector.at("apiVersion"), selector.at("fieldPath"));
    if let Some(missing) = version.must_be_set().or_else(|| at.must_be_set()) {
        return vec![missing];
    }
    let text = at.text();
    let subscript = text.strip_suffix("']").and_then(|text| text.split_once("['"));
    let base = subscript.map_or(text, |(base, _)| base);
    if version.text() != "v1" {
        return vec![at.invalid(format!("error converting fieldPath: unsupported pod version: {}", version.text()))];
    }
    if !FIELDS.contains(&base) || subscript.is_some() && !matches!(base, "metadata.annotations" | "metadata.labels") {
        let why = if subscript.is_some() && FIELDS.contains(&base) {
            "field label does not support subscript"
        } else {
            "field label not supported"
        };
        return vec![at.invalid(format!(
            "error converting fieldPath: {why}: {}",
            if why.contains("subscript") { text } else { base }
        ))];
    }
    match subscript {
        Some((_, key)) => {
            let key = if base == "metadata.annotations" { key.to_lowercase() } else { key.to_owned() };
            names::qualified_name(&key).into_iter().map(|wrong| selector.invalid_as(key.as_str(), wrong)).collect()
        }
        None if allowed.contains(&base) => Errors::new(),
        None => {
            let mut allowed = allowed.to_vec();
            allowed.sort_unstable();
            vec![FieldError::not_supported(at.path(), base, allowed)]
        }
    }
}

const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// How much of a resource a container has.
pub(super) fn resource_field(selector: &Field<'_>, of_volume: bool) -> Errors {
    let (container, name) = (selector.at("containerName"), selector.at("resource"));
    let mut errors = Errors::new();
    if of_volume && container.is_empty() {
        errors.push(container.required(""));
    } else if name.is_empty() {
        errors.push(name.required(""));
    } else if !RESOURCES.contains(&name.text())
        && !["limits.hugepages-", "requests.hugepages-"].iter().any(|prefix| name.text().starts_with(prefix))
    {
        errors.push(name.not_supported(RESOURCES));
    }
    let divisor = selector.at("divisor");
    let allowed: &[&str] = match name.text() {
        "limits.cpu" | "requests.cpu" => &["1", "1m"],
        "" => &[],
        _ => &["1", "1E", "1Ei", "1G", "1Gi", "1Ki", "1M", "1Mi", "1P", "1Pi", "1T", "1Ti", "1k"],
    };
    let unset = matches!(divisor.text(), "" | "0");
    if !unset && !allowed.is_empty() && !allowed.contains(&divisor.text()) {
        let kind = match name.text() {
            "limits.cpu" | "requests.cpu" => "only divisor's values 1m and 1 are supported with the cpu resource",
            "limits.memory" | "requests.memory" => {
                "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource"
            }
            _ => {
                "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the local ephemeral storage resource"
            }
        };
        errors.push(divisor.invalid_as(name.text(), kind));
    }
    errors
}

fn mounts(container: &Field<'_>, around: &Around<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut taken: Vec<String> = Vec::new();
    let (mounts, devices) = (container.at("volumeMounts"), container.at("volumeDevices"));
    for mount in mounts.items() {
        let (name, at) = (mount.at("name"), mount.at("mountPath"));
        errors.extend(name.must_be_set());
        if !around.volumes.iter().any(|volume| volume["name"] == name.text()) {
            errors.push(name.not_found());
        }
        errors.extend(at.must_be_set());
        if taken.iter().any(|taken| taken == at.text()) {
            errors.push(at.invalid_as(at.text(), "must be unique"));
        }
        taken.push(at.text().to_owned());
        if devices.list().iter().any(|device| device["name"] == name.text()) {
            errors.push(name.invalid("must not already exist in volumeDevices"));
        }
        if last_paths(&devices, "devicePath").contains(&at.text()) {
            errors.push(at.invalid("must not already exist as a path in volumeDevices"));
        }
        let (sub, expression) = (mount.at("subPath"), mount.at("subPathExpr"));
        let shown = |field: &str, value| path::descending(&Field::new(*mounts.at(field).path(), value));
        if !sub.is_empty() {
            errors.extend(shown("subPath", sub.value()));
        }
        if !expression.is_empty() {
            if !sub.is_empty() {
                errors.push(expression.invalid("subPathExpr and subPath are mutually exclusive"));
            }
            errors.extend(shown("subPathExpr", expression.value()));
        }
        let propagation = mount.at("mountPropagation");
        if propagation.is_set() {
            let field = mounts.at("mountPropagation");
            let field = Field::new(*field.path(), propagation.value());
            errors.extend(field.must_be_in(&["Bidirectional", "HostToContainer", "None"]));
            if propagation.text() == "Bidirectional" && !container.at("securityContext.privileged").flag() {
                errors.push(
                    field.forbidden("Bidirectional mount propagation is available only to privileged containers"),
                );
            }
        }
        errors.extend(recursive_read_only(&mounts, &mount));
    }
    errors
}

/// Lists the path at which each volume is used, of several the last.
fn last_paths<'a>(list: &Field<'a>, path: &str) -> Vec<&'a str> {
    let list = list.list();
    let last =
        list.iter().enumerate().filter(|(i, item)| list[i + 1..].iter().all(|later| later["name"] != item["name"]));
    last.filter_map(|(_, item)| item[path].as_str()).collect()
}

fn recursive_read_only(mounts: &Field<'_>, mount: &Field<'_>) -> Errors {
    // The real server leaves the index out here.
    let placed = mounts.at("recursiveReadOnly");
    let given = mount.at("recursiveReadOnly");
    let policy = Field::new(*placed.path(), given.value());
    let mut errors = Errors::new();
    match policy.text() {
        _ if !policy.is_set() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.at("readOnly").flag() {
                errors.push(policy.forbidden("may only be specified when readOnly is true"));
            }
            if !matches!(mount.at("mountPropagation").text(), "" | "None") {
                errors.push(policy.forbidden("may only be specified when mountPropagation is None or not specified"));
            }
        }
        _ => errors.push(policy.not_supported(&["Disabled", "IfPossible", "Enabled"])),
    }
    errors
}

fn devices(container: &Field<'_>, around: &Around<'_>) -> Errors {
    let mut errors = Errors::new();
    let mounts = container.at("volumeMounts");
    let (mut names, mut paths): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for device in container.at("volumeDevices").items() {
        let (name, at) = (device.at("name"), device.at("devicePath"));
        errors.extend(name.must_be_set());
        if names.iter().any(|known| known == name.text()) {
            errors.push(name.invalid_as(name.text(), "must be unique"));
        }
        match around.volumes.iter().find(|volume| volume["name"] == name.text()) {
            None => errors.push(name.not_found()),
            Some(volume) if volume["persistentVolumeClaim"].is_object() || volume["ephemeral"].is_object() => {}
            Some(_) => errors.push(
                name.invalid("can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"),
            ),
        }
        errors.extend(at.must_be_set());
        if paths.iter().any(|known| known == at.text()) {
            errors.push(at.invalid_as(at.text(), "must be unique"));
        }
        if path::climbs(at.text()) {
            errors.push(at.invalid("can not contain backsteps ('..')"));
        } else {
            paths.push(at.text().to_owned());
        }
        if mounts.list().iter().any(|mount| mount["name"] == name.text()) {
            errors.push(name.invalid("must not already exist in volumeMounts"));
        }
        if last_paths(&mounts, "mountPath").contains(&at.text()) {
            errors.push(at.invalid("must not already exist as a path in volumeMounts"));
        }
        if !name.is_empty() {
            names.push(name.text().to_owned());
        }
    }
    errors
}

fn resize_policy(policies: &Field<'_>, restart_policy: &str) -> Errors {
    let mut errors = Errors::new();
    let mut seen: Vec<String> = Vec::new();
    for policy in policies.items() {
        let (name, restart) = (policy.at("resourceName").text(), policy.at("restartPolicy").text());
        if seen.iter().any(|seen| seen == name) {
            errors.push(policy.duplicate_of(name));
        }
        seen.push(name.to_owned());
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
