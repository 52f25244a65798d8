//! Arguments that the built-in executor does not support, and those that no executor does.
//!
//! A module of Ansible rejects unknown arguments when it runs. So a task with one is invalid for each executor, and the
//! message has Ansible's words; arguments that only Ansible has are a limit of the built-in executor.

use super::Module;
use crate::value::Map;

/// A problem of a module's arguments.
#[derive(Debug, PartialEq)]
pub(super) struct ArgumentsError {
    pub(super) problem: String,
    /// True if Ansible has the same problem.
    pub(super) is_invalid: bool,
}

impl From<String> for ArgumentsError {
    fn from(problem: String) -> Self {
        Self { problem, is_invalid: false }
    }
}

impl ArgumentsError {
    pub(super) fn invalid(problem: String) -> Self {
        Self { problem, is_invalid: true }
    }
}

/// An argument that a module does not support.
pub(super) struct UnsupportedArgument {
    pub(super) name: String,
    pub(super) error: ArgumentsError,
}

/// The arguments of the modules for Kubernetes that select a cluster and an account.
const CONNECTION: [&str; 18] = [
    "kubeconfig",
    "context",
    "host",
    "api_key",
    "username",
    "password",
    "ca_cert",
    "ssl_ca_cert",
    "client_cert",
    "cert_file",
    "client_key",
    "key_file",
    "proxy",
    "no_proxy",
    "proxy_headers",
    "impersonate_user",
    "impersonate_groups",
    "persist_config",
];

/// The arguments of `uri` that only Ansible has.
const URI_OF_ANSIBLE: &[&str] = &[
    "attr",
    "attributes",
    "ca_path",
    "ciphers",
    "client_cert",
    "client_key",
    "creates",
    "decompress",
    "dest",
    "force",
    "force_basic_auth",
    "group",
    "http_agent",
    "mode",
    "owner",
    "password",
    "remote_src",
    "removes",
    "selevel",
    "serole",
    "setype",
    "seuser",
    "src",
    "unix_socket",
    "unredirected_headers",
    "unsafe_writes",
    "url_password",
    "url_username",
    "use_gssapi",
    "use_netrc",
    "use_proxy",
    "user",
];

/// Returns the arguments of a task that a module does not take. Modules for Kubernetes connect to a cluster.
pub(super) fn unsupported_in(
    module: Module,
    name: &str,
    connects: bool,
    takes: &[&str],
    arguments: &Map,
) -> Vec<UnsupportedArgument> {
    let error = |argument: &str| -> ArgumentsError {
        if connects && CONNECTION.contains(&argument) {
            let remedy = "tasks use the connection and account of the operator: remove it";
            format!("{name}: unsupported argument {argument}: {remedy}").into()
        } else if of_ansible_alone(module).contains(&argument) {
            let supported = takes.join(", ");
            format!("{name}: unsupported argument {argument}: the built-in executor supports {supported}").into()
        } else {
            ArgumentsError::invalid(unknown_argument(module, name, argument, takes))
        }
    };
    let unknown = arguments.keys().filter(|argument| !takes.contains(&argument.as_str()));
    unknown.map(|unknown| UnsupportedArgument { name: unknown.clone(), error: error(unknown) }).collect()
}

/// Returns the arguments that a module has in Ansible alone.
fn of_ansible_alone(module: Module) -> &'static [&'static str] {
    match module {
        Module::Pause => &["echo", "prompt"],
        Module::Uri => URI_OF_ANSIBLE,
        _ => &[],
    }
}

/// Returns the message about an argument that a module does not have, in Ansible's words.
fn unknown_argument(module: Module, name: &str, argument: &str, takes: &[&str]) -> String {
    if module == Module::Fail {
        return format!("Invalid options for {name}: {argument}");
    }
    let mut supported: Vec<&str> = takes.iter().chain(of_ansible_alone(module)).copied().collect();
    supported.sort_unstable();
    let supported = supported.join(", ");
    format!("Unsupported parameters for ({name}) module: {argument}. Supported parameters include: {supported}")
}
