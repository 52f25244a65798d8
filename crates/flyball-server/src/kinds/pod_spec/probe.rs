//! Probes and lifecycle handlers of containers.

use super::super::field::Field;
use super::super::rules::{port, text};
use flyball_core::field::FieldError;

type Errors = Vec<FieldError>;

type Rule = fn(&Field<'_>, Option<i64>) -> Errors;

const HANDLERS: &[(&str, Rule)] = &[
    ("exec", |exec, _| exec.at("command").must_be_set().into_iter().collect()),
    ("httpGet", |get, _| http_get(get)),
    ("tcpSocket", |socket, _| port::number_or_name(&socket.at("port"))),
    ("grpc", |grpc, _| port::number(&grpc.at("port")).into_iter().collect()),
    ("sleep", sleep),
];

fn handler(of: &Field<'_>, grace: Option<i64>) -> Errors {
    let mut errors = Errors::new();
    let mut found = false;
    for (name, rule) in HANDLERS {
        let handler = of.at(name);
        if !handler.is_set() {
            continue;
        }
        if found {
            errors.push(handler.forbidden("may not specify more than 1 handler type"));
        } else {
            found = true;
            errors.extend(rule(&handler, grace));
        }
    }
    if !found {
        errors.push(of.required("must specify a handler type"));
    }
    errors
}

fn http_get(get: &Field<'_>) -> Errors {
    let mut errors: Errors = get.at("path").must_be_set().into_iter().collect();
    errors.extend(port::number_or_name(&get.at("port")));
    errors.extend(get.at("scheme").must_be_in(&["HTTP", "HTTPS"]));
    let headers = get.at("httpHeaders");
    for header in headers.items() {
        let name = header.at("name").text();
        errors.extend(text::header_name(name).into_iter().map(|wrong| headers.invalid_as(name, wrong)));
    }
    errors
}

fn sleep(sleep: &Field<'_>, grace: Option<i64>) -> Errors {
    let seconds = sleep.at("seconds").int();
    match grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
        Some(grace) => vec![sleep.invalid_as(
            seconds,
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
        )],
        None => Errors::new(),
    }
}

fn probe(probe: &Field<'_>, grace: Option<i64>) -> Errors {
    let mut errors = handler(probe, grace);
    for count in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        errors.extend(probe.at(count).not_negative());
    }
    let own = probe.at("terminationGracePeriodSeconds");
    if own.int_if_set().is_some_and(|seconds| seconds <= 0) {
        errors.push(own.invalid("must be greater than 0"));
    }
    errors
}

/// Validates the probes and the lifecycle of a container.
pub(super) fn all(container: &Field<'_>, grace: Option<i64>, os: Option<&str>) -> Errors {
    let mut errors = Errors::new();
    let lifecycle = container.at("lifecycle");
    for hook in ["postStart", "preStop"] {
        let hook = lifecycle.at(hook);
        if hook.is_set() {
            errors.extend(handler(&hook, grace));
        }
    }
    let signal = lifecycle.at("stopSignal");
    if signal.is_set() && os.is_none() {
        errors.push(signal.forbidden("may not be set for containers with empty `spec.os.name`"));
    }
    for (name, once) in [("livenessProbe", true), ("readinessProbe", false), ("startupProbe", true)] {
        let field = container.at(name);
        if !field.is_set() {
            continue;
        }
        errors.extend(probe(&field, grace));
        let own = field.at("terminationGracePeriodSeconds");
        if !once && own.is_set() {
            errors.push(own.invalid("must not be set for readinessProbes"));
        }
        let successes = field.at("successThreshold");
        if once && successes.int() != 1 {
            errors.push(successes.invalid_as(successes.int(), "must be 1"));
        }
    }
    errors
}
