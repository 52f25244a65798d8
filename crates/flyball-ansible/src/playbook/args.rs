//! The modules with their names and arguments.

use super::Module;
use super::arguments::{ArgumentsError, UnsupportedArgument, unsupported_in};
use super::core_modules::CORE_MODULES;
use crate::metrics::check_name;
use crate::value::{Map, Value};

/// A module, its collections, and its arguments.
struct ModuleArguments {
    module: Module,
    names: &'static [&'static str],
    collections: &'static [&'static str],
    /// `None` if all arguments are accepted.
    arguments: Option<&'static [&'static str]>,
    /// The argument that a plain string stands for.
    text: Option<&'static str>,
}

const KUBERNETES: &[&str] = &["kubernetes.core", "community.kubernetes", "operator_sdk.util"];
const OPERATOR_SDK: &[&str] = &["operator_sdk.util"];
const BUILTIN: &[&str] = &["ansible.builtin", "ansible.legacy"];

const MODULES: [ModuleArguments; 13] = [
    ModuleArguments {
        module: Module::K8s,
        names: &["k8s", "k8s_raw"],
        collections: KUBERNETES,
        arguments: Some(&[
            "definition",
            "resource_definition",
            "inline",
            "src",
            "template",
            "state",
            "api_version",
            "api",
            "version",
            "kind",
            "name",
            "namespace",
            "merge_type",
            "generate_name",
            "delete_all",
            "all",
            "wait",
            "wait_timeout",
            "wait_sleep",
            "wait_condition",
            "apply",
            "force",
            "label_selectors",
            "continue_on_error",
            "validate",
            "validate_certs",
            "verify_ssl",
            "persist_config",
            "append_hash",
            "delete_options",
            "hidden_fields",
            "server_side_apply",
        ]),
        text: None,
    },
    ModuleArguments {
        module: Module::K8sScale,
        names: &["k8s_scale"],
        collections: KUBERNETES,
        arguments: Some(&[
            "definition",
            "resource_definition",
            "inline",
            "src",
            "api_version",
            "api",
            "version",
            "kind",
            "name",
            "namespace",
            "replicas",
            "label_selectors",
            "continue_on_error",
            "current_replicas",
            "resource_version",
            "wait",
            "wait_timeout",
            "wait_sleep",
            "validate_certs",
            "verify_ssl",
        ]),
        text: None,
    },
    ModuleArguments {
        module: Module::K8sInfo,
        names: &["k8s_info", "k8s_facts"],
        collections: KUBERNETES,
        arguments: Some(&[
            "api_version",
            "api",
            "version",
            "kind",
            "name",
            "namespace",
            "label_selectors",
            "field_selectors",
            "wait",
            "wait_timeout",
            "wait_sleep",
            "wait_condition",
            "validate_certs",
            "verify_ssl",
            "hidden_fields",
        ]),
        text: None,
    },
    ModuleArguments {
        module: Module::K8sStatus,
        names: &["k8s_status"],
        collections: KUBERNETES,
        arguments: Some(&[
            "api_version",
            "api",
            "version",
            "kind",
            "name",
            "namespace",
            "status",
            "conditions",
            "force",
            "replace_lists",
            "validate_certs",
            "verify_ssl",
        ]),
        text: None,
    },
    ModuleArguments {
        module: Module::RequeueAfter,
        names: &["requeue_after"],
        collections: KUBERNETES,
        arguments: Some(&["time"]),
        text: None,
    },
    ModuleArguments {
        module: Module::OsdkMetric,
        names: &["osdk_metric"],
        collections: OPERATOR_SDK,
        arguments: Some(&["name", "description", "address", "counter", "gauge", "histogram", "summary"]),
        text: None,
    },
    ModuleArguments {
        module: Module::SetFact,
        names: &["set_fact"],
        collections: BUILTIN,
        arguments: None,
        text: None,
    },
    ModuleArguments {
        module: Module::Debug,
        names: &["debug"],
        collections: BUILTIN,
        arguments: Some(&["msg", "var", "verbosity"]),
        text: None,
    },
    ModuleArguments {
        module: Module::Assert,
        names: &["assert"],
        collections: BUILTIN,
        arguments: Some(&["that", "fail_msg", "msg", "success_msg", "quiet"]),
        text: None,
    },
    ModuleArguments {
        module: Module::Fail,
        names: &["fail"],
        collections: BUILTIN,
        arguments: Some(&["msg"]),
        text: None,
    },
    ModuleArguments {
        module: Module::Meta,
        names: &["meta"],
        collections: BUILTIN,
        arguments: Some(&["action"]),
        text: Some("action"),
    },
    ModuleArguments {
        module: Module::Pause,
        names: &["pause"],
        collections: BUILTIN,
        arguments: Some(&["seconds", "minutes"]),
        text: None,
    },
    ModuleArguments {
        module: Module::Uri,
        names: &["uri"],
        collections: BUILTIN,
        arguments: Some(&[
            "url",
            "method",
            "body",
            "body_format",
            "headers",
            "status_code",
            "return_content",
            "timeout",
            "validate_certs",
            "follow_redirects",
        ]),
        text: None,
    },
];

/// Splits a name into its collection, if any, and the rest.
fn split(name: &str) -> (Option<&str>, &str) {
    name.rsplit_once('.').map_or((None, name), |(collection, rest)| (Some(collection), rest))
}

/// Returns true if a key names this action of Ansible, such as `include_tasks`.
pub(super) fn is_builtin(key: &str, name: &str) -> bool {
    let (collection, rest) = split(key);
    rest == name && collection.is_none_or(|collection| BUILTIN.contains(&collection))
}

/// Finds a module by its name.
fn find(name: &str) -> Option<&'static ModuleArguments> {
    let (collection, rest) = split(name);
    MODULES.iter().find(|known| {
        known.names.contains(&rest) && collection.is_none_or(|collection| known.collections.contains(&collection))
    })
}

/// Returns true if a key names a supported module, or another action such as `include_tasks`.
pub(super) fn is_action(key: &str) -> bool {
    let includes = ["include", "include_tasks", "import_tasks", "include_vars", "include_role", "import_role"];
    includes.iter().any(|name| is_builtin(key, name)) || find(key).is_some()
}

/// Returns true if a key of a task names a module, also an unsupported one.
pub(super) fn is_module(key: &str) -> bool {
    is_action(key) || key.contains('.') || CORE_MODULES.contains(&key)
}

/// Finds a module by name and validates its arguments.
pub(super) fn module(name: &str, arguments: Value) -> Result<(Module, Map), ArgumentsError> {
    let Some(known) = find(name) else {
        if let (None | Some("kubernetes.core" | "community.kubernetes"), "k8s_exec" | "k8s_cp" | "k8s_log") =
            split(name)
        {
            return Err(format!(
                "module {name} needs ansible-playbook, since the built-in executor has no connections to containers: \
                 install ansible-core and the collection kubernetes.core"
            )
            .into());
        }
        let names: Vec<_> = MODULES.iter().map(|known| known.names[0]).collect();
        return Err(format!(
            "the built-in executor does not support module {name}; supported: {}, block, include_tasks, import_tasks, include_role, \
             import_role, include_vars: have the role run by ansible-playbook if it needs others",
            names.join(", ")
        )
        .into());
    };
    let arguments = match arguments {
        Value::Null => Map::new(),
        Value::Object(arguments) => arguments,
        Value::String(text) => match known.text {
            Some(argument) => [(argument.to_owned(), text.trim().into())].into_iter().collect(),
            None => pairs(&text).map_err(|problem| format!("{name}: {problem}"))?,
        },
        other => {
            let problem = format!("{name}: arguments must be a map, not {}", crate::yaml::type_name(&other));
            return Err(ArgumentsError::invalid(problem));
        }
    };
    if let Some(unsupported) = unsupported_arguments(name, &arguments).into_iter().next() {
        return Err(unsupported.error);
    }
    check(known.module, name, &arguments)?;
    Ok((known.module, arguments))
}

/// Returns the arguments that a module does not support.
pub(super) fn unsupported_arguments(name: &str, arguments: &Map) -> Vec<UnsupportedArgument> {
    let Some(known) = find(name) else { return Vec::new() };
    let connects = known.collections == KUBERNETES;
    known.arguments.map_or_else(Vec::new, |takes| unsupported_in(known.module, name, connects, takes, arguments))
}

/// Validates arguments as far as possible without evaluation.
fn check(module: Module, name: &str, arguments: &Map) -> Result<(), ArgumentsError> {
    let literal = |argument: &str| {
        arguments.get(argument).and_then(Value::as_str).filter(|text| !crate::template::is_template(text))
    };
    let one_of = |argument: &str, values: &[&str]| match literal(argument) {
        Some(value) if !values.contains(&value) => {
            let problem = format!("{name}: {argument} is {value}, but must be one of {}", values.join(", "));
            // Some actions of Ansible's `meta` have no use here.
            Err(ArgumentsError { problem, is_invalid: module == Module::K8s && argument == "state" })
        }
        _ => Ok(()),
    };
    let missing = |argument: &str| ArgumentsError::invalid(format!("{name}: missing argument {argument}"));
    match module {
        Module::K8s => {
            one_of("state", &["present", "absent", "patched"])?;
            one_of("merge_type", &["merge", "strategic-merge"])?;
            let first = arguments.get("merge_type").and_then(|types| types.get(0)).and_then(Value::as_str);
            if first == Some("json") {
                return Err(format!("{name}: the built-in executor does not support merge_type json").into());
            }
            let template = arguments.get("template").map_or(&[][..], std::slice::from_ref);
            let templates = template.iter().flat_map(|one| one.as_array().map_or(template, |all| all));
            let mut options = templates.filter_map(Value::as_object).flat_map(Map::keys);
            if let Some(option) = options.find(|option| *option != "path") {
                let problem = format!("{name}: the built-in executor does not support option {option} of template");
                return Err(problem.into());
            }
        }
        Module::K8sScale if !arguments.contains_key("replicas") => {
            return Err(missing("replicas"));
        }
        Module::Meta => one_of(
            "action",
            &["end_play", "end_host", "end_role", "noop", "flush_handlers", "clear_facts", "refresh_inventory"],
        )?,
        Module::Uri => {
            one_of("body_format", &["json", "raw", "form-urlencoded"])?;
            if !arguments.contains_key("url") {
                return Err(missing("url"));
            }
        }
        Module::Assert if !arguments.contains_key("that") => return Err(missing("that")),
        Module::RequeueAfter if !arguments.contains_key("time") => {
            return Err(missing("time"));
        }
        Module::OsdkMetric => check_metric(arguments).map_err(|problem| format!("{name}: {problem}"))?,
        _ => {}
    }
    Ok(())
}

/// Validates the arguments of `osdk_metric`.
fn check_metric(arguments: &Map) -> Result<(), String> {
    let literal = |argument: &str| {
        arguments.get(argument).and_then(Value::as_str).filter(|text| !crate::template::is_template(text))
    };
    check_name(literal("name").ok_or("name: must be literal, since users could add metrics otherwise")?)?;
    if !arguments.contains_key("description") {
        return Err("missing argument description".to_owned());
    }
    let kinds = ["counter", "gauge", "histogram", "summary"];
    if kinds.iter().filter(|kind| arguments.contains_key(**kind)).count() != 1 {
        return Err(format!("one of the arguments {} is required", kinds.join(", ")));
    }
    let is_of_operator =
        |address: &str| ["http://localhost:", "http://127.0.0.1:"].iter().any(|prefix| address.starts_with(prefix));
    match arguments.contains_key("address") && !literal("address").is_some_and(is_of_operator) {
        true => {
            Err("the built-in executor supports only an address on localhost, since it sends no request".to_owned())
        }
        false => Ok(()),
    }
}

/// Parses `key=value` pairs of a one-line task.
pub(super) fn pairs(text: &str) -> Result<Map, String> {
    let mut pairs = Map::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (key, after) = rest
            .split_once('=')
            .filter(|(key, _)| is_word(key.trim()))
            .ok_or_else(|| format!("{rest} is not an argument of the form key=value"))?;
        let (value, remaining) = value(after)?;
        pairs.insert(key.trim().to_owned(), value.into());
        rest = remaining.trim_start();
    }
    Ok(pairs)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Parses a value up to the next space outside of quotes and braces.
pub(super) fn value(text: &str) -> Result<(String, &str), String> {
    let mut out = String::new();
    let (mut quote, mut depth) = (None, 0_usize);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') if depth == 0 => {
                quote = Some(letter);
                continue;
            }
            (None, '{') => depth += 1,
            (None, '}') => depth = depth.saturating_sub(1),
            (None, letter) if letter.is_whitespace() && depth == 0 => return Ok((out, &text[at..])),
            _ => {}
        }
        let closes = quote.is_none() && matches!(letter, '\'' | '"') && depth == 0;
        if !closes {
            out.push(letter);
        }
    }
    if quote.is_some() { Err(format!("unclosed quotes in {text}")) } else { Ok((out, "")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json;

    #[test]
    fn modules_are_found_by_all_their_names() {
        for name in ["k8s", "kubernetes.core.k8s", "community.kubernetes.k8s"] {
            assert_eq!(module(name, json!({"state": "absent", "kind": "Pod"})).unwrap().0, Module::K8s);
        }
        assert_eq!(module("meta", json!("end_play")).unwrap().1["action"], "end_play");
        let check = |name: &str, arguments: Value, problem: &str| {
            let found = module(name, arguments).unwrap_err();
            assert!(found.problem.contains(problem), "{found:?}");
        };
        check("shell", json!("ls"), "not support module shell; supported: k8s");
        check("amazon.aws.k8s", json!({}), "not support module amazon.aws.k8s");
        check("k8s", json!({"host": "x"}), "of the operator");
        check(
            "k8s",
            json!({"sate": "x"}),
            "Unsupported parameters for (k8s) module: sate. Supported parameters include: all, ",
        );
        check("fail", json!({"sate": "x"}), "Invalid options for fail: sate");
        let is_invalid = |name: &str, arguments: Value| module(name, arguments).unwrap_err().is_invalid;
        assert!(is_invalid("debug", json!({"a": 1})) && is_invalid("assert", json!({})));
        assert!(!is_invalid("uri", json!({"url": "a", "dest": "b"})) && !is_invalid("pause", json!({"prompt": "a"})));
        assert!(!is_invalid("k8s", json!({"host": "x"})) && !is_invalid("shell", json!("ls")));
        check("k8s", json!({"state": "running"}), "state is running");
        check("debug", json!(["a"]), "a list");
        let metric = |name: &str, address: &str| json!({"name": name, "description": "a", "address": address, "counter": {"increment": true}});
        let local = "http://localhost:5050/metrics";
        assert_eq!(module("operator_sdk.util.osdk_metric", metric("a", local)).unwrap().0, Module::OsdkMetric);
        check("osdk_metric", metric("{{ a }}", local), "name: must be literal");
        check("osdk_metric", metric("flyball_a", local), "prefix flyball_ is reserved");
        check("osdk_metric", metric("a", "http://metrics.example.com:5050/"), "only an address on localhost");
        check("osdk_metric", metric("a", "http://{{ host }}:5050/"), "only an address on localhost");
        check("osdk_metric", json!({"name": "a", "description": "a"}), "one of the arguments counter, gauge");
    }

    #[test]
    fn arguments_are_parsed_from_one_line() {
        let read = |text: &str| pairs(text).map(Value::Object);
        assert_eq!(
            read("a=1 b='two words' c={{ x | default('y z') }}"),
            Ok(json!({"a": "1", "b": "two words", "c": "{{ x | default('y z') }}"}))
        );
        assert_eq!(read("msg=\"it's\""), Ok(json!({"msg": "it's"})));
        assert!(read("hello").is_err() && read("a='b").is_err());
    }
}
