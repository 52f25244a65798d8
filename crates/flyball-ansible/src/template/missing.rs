//! Names that the built-in executor does not support: filters, tests, lookups, functions, methods, and variables of
//! Ansible.
//!
//! The loader and the coverage report use the same tables as the engine: what the engine has registered. Invariant: a
//! name that is not found here is known to the engine, is a variable of the role, or is computed.

use super::lookups::{NO_FILE, date_format, is_supported, short, unknown_lookup};
use super::methods::{OTHER_METHODS, STRING_METHODS};
use super::syntax::{OPERATOR_WORDS, Token, compile_expression, first_name, sections, statements, tokens};
use super::texts::HASHES;
use super::{ENGINE, FUNCTIONS, sole_expression};
use minijinja::context;
use std::collections::BTreeSet;

const REMEDY: &str = "use another one, or install ansible-playbook (pip install ansible-core kubernetes)";

/// Functions of the engine within macros, loops and blocks.
const LOCAL_FUNCTIONS: [&str; 4] = ["caller", "loop", "self", "super"];

/// Methods besides those of [`methods`](super::methods): of strings in the engine, of lists, maps, loops and times.
const METHODS: [&str; 12] = [
    "changed",
    "count",
    "cycle",
    "format",
    "get",
    "isoformat",
    "items",
    "join",
    "keys",
    "strftime",
    "timestamp",
    "values",
];

/// Special variables of Ansible without a value here; see
/// <https://docs.ansible.com/ansible/latest/reference_appendices/special_variables.html>.
const SPECIAL: [&str; 17] = [
    "ansible_collection_name",
    "ansible_config_file",
    "ansible_delegated_vars",
    "ansible_dependent_role_names",
    "ansible_inventory_sources",
    "ansible_limit",
    "ansible_local",
    "ansible_play_name",
    "ansible_play_role_names",
    "ansible_playbook_python",
    "ansible_role_names",
    "ansible_search_path",
    "delegated_vars",
    "inventory_dir",
    "inventory_file",
    "role_names",
    "role_uuid",
];

/// Facts that Ansible gathers of a host, without the prefix `ansible_`. The built-in executor gathers none.
const FACTS: [&str; 60] = [
    "all_ipv4_addresses",
    "all_ipv6_addresses",
    "apparmor",
    "architecture",
    "bios_date",
    "bios_vendor",
    "bios_version",
    "board_name",
    "chassis_vendor",
    "cmdline",
    "date_time",
    "default_ipv4",
    "default_ipv6",
    "device_links",
    "devices",
    "distribution",
    "distribution_file_variety",
    "distribution_major_version",
    "distribution_release",
    "distribution_version",
    "dns",
    "domain",
    "effective_group_id",
    "effective_user_id",
    "env",
    "fibre_channel_wwn",
    "fips",
    "form_factor",
    "fqdn",
    "hostname",
    "hostnqn",
    "interfaces",
    "is_chroot",
    "iscsi_iqn",
    "kernel",
    "kernel_version",
    "loadavg",
    "lsb",
    "machine",
    "machine_id",
    "memfree_mb",
    "memory_mb",
    "memtotal_mb",
    "mounts",
    "nodename",
    "os_family",
    "pkg_mgr",
    "processor",
    "processor_cores",
    "processor_count",
    "processor_vcpus",
    "product_name",
    "python",
    "python_version",
    "real_user_id",
    "service_mgr",
    "system",
    "uptime_seconds",
    "user_dir",
    "user_id",
];

/// A name that the built-in executor does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingName {
    Filter(String),
    Test(String),
    Lookup(String),
    /// A function such as `lipsum`, or a method such as `append`.
    Function(String),
    /// A variable that Ansible sets.
    Variable(String),
}

/// Returns the unsupported names in a text with expressions, each with its position.
pub(crate) fn missing_in_text(text: &str) -> Vec<(usize, MissingName)> {
    let declared = declared_in(text);
    let of = |(at, section): (usize, &str)| {
        missing_names(section, &declared).into_iter().map(move |name| (at, name)).collect()
    };
    sections(text).into_iter().flat_map::<Vec<_>, _>(of).collect()
}

/// Returns the unsupported names in a condition.
pub(crate) fn missing_in_expression(text: &str) -> Vec<MissingName> {
    missing_names(sole_expression(text).unwrap_or(text), &BTreeSet::new())
}

pub(super) fn check_names_in_text(text: &str) -> Result<(), String> {
    missing_in_text(text).into_iter().next().map_or(Ok(()), |(_, name)| Err(unsupported(name)))
}

pub(super) fn check_names(expression: &str) -> Result<(), String> {
    missing_names(expression, &BTreeSet::new()).into_iter().next().map_or(Ok(()), |name| Err(unsupported(name)))
}

fn unsupported(name: MissingName) -> String {
    let (what, name) = match name {
        MissingName::Lookup(kind) => return unknown_lookup(&kind),
        MissingName::Filter(name) => ("filter", name),
        MissingName::Test(name) => ("test", name),
        MissingName::Function(name) => ("function", name),
        MissingName::Variable(name) => ("variable", name),
    };
    format!("the built-in executor does not support {what} {name}: {REMEDY}")
}

/// Returns the names that the statements of a text define: macros, imports and variables.
fn declared_in(text: &str) -> BTreeSet<&str> {
    let mut declared = BTreeSet::new();
    for tokens in statements(text) {
        let named = |tokens: &[Token<'_>]| matches!(tokens, [Token::Name(_), ..]);
        let start = tokens.iter().position(|token| matches!(token, Token::Name(_))).unwrap_or(tokens.len());
        let rest = tokens.get(start + 1..).unwrap_or_default();
        let until =
            |end: &[Token<'_>]| rest.iter().position(|token| end.contains(token)).map_or(rest, |at| &rest[..at]);
        let names: Vec<_> = match first_name(&tokens) {
            Some("set") => until(&[Token::Sign('=')]).to_vec(),
            Some("for") => until(&[Token::Name("in")]).to_vec(),
            Some("import" | "from") => rest.to_vec(),
            // Names of parameters; their defaults are expressions.
            Some("macro" | "call" | "with") => {
                let begins = |at: usize| at == 0 || matches!(rest[at - 1], Token::Sign('(' | ','));
                (0..rest.len()).filter(|at| begins(*at) && named(&rest[*at..])).map(|at| rest[at]).collect()
            }
            _ => Vec::new(),
        };
        declared.extend(
            names.into_iter().filter_map(|token| if let Token::Name(name) = token { Some(name) } else { None }),
        );
    }
    declared
}

fn missing_names(expression: &str, declared: &BTreeSet<&str>) -> Vec<MissingName> {
    let tokens = tokens(expression);
    (0..tokens.len()).flat_map(|at| missing_at(&tokens, at, declared)).collect()
}

/// Returns the unsupported names at a position.
fn missing_at(tokens: &[Token<'_>], at: usize, declared: &BTreeSet<&str>) -> Vec<MissingName> {
    let before = |offset: usize| at.checked_sub(offset).map(|at| tokens[at]);
    match &tokens[at..] {
        [Token::Sign('|'), Token::Name(_), ..] => {
            let name = dotted(&tokens[at + 1..]);
            let end = at + 2 + 2 * name.matches('.').count();
            let inner = inner_function(&name, tokens.get(end..).unwrap_or_default());
            let outer = Some(MissingName::Filter(name)).filter(|name| !is_known(name));
            outer.into_iter().chain(inner.filter(|name| !is_known(name))).collect()
        }
        [Token::Name("is"), Token::Name("not"), rest @ ..] | [Token::Name("is"), rest @ ..] => {
            let name = dotted(rest);
            let end = 1 + 2 * name.matches('.').count();
            let option = version_option(&name, rest.get(end..).unwrap_or_default());
            let name = Some(MissingName::Test(name)).filter(|name| !is_known(name));
            name.or(option).into_iter().collect()
        }
        // Operands of filters and tests were handled with their operators.
        _ if matches!(before(1), Some(Token::Sign('|') | Token::Name("is"))) => Vec::new(),
        _ if matches!((before(1), before(2)), (Some(Token::Name("not")), Some(Token::Name("is")))) => Vec::new(),
        [Token::Name("lookup" | "query" | "q"), Token::Sign('('), rest @ ..] if before(1) != Some(Token::Sign('.')) => {
            missing_lookup(rest).into_iter().collect()
        }
        [Token::Name(name), rest @ ..] => {
            let is_attribute = before(1) == Some(Token::Sign('.'));
            let is_called = rest.first() == Some(&Token::Sign('('));
            let is_of_declared = || matches!(before(2), Some(Token::Name(of)) if declared.contains(of));
            let is_missing = match (is_attribute, is_called) {
                // A part of the name of a filter or test of a collection.
                (true, _) if is_function_name(tokens, at) => false,
                (true, true) => !is_method(name) && !is_of_declared(),
                (true, false) => false,
                (false, true) => !is_function(name, declared),
                (false, false) => return missing_variable(name, rest, declared).into_iter().collect(),
            };
            Some(MissingName::Function((*name).to_owned())).filter(|_| is_missing).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn is_method(name: &str) -> bool {
    [&METHODS[..], &STRING_METHODS, &OTHER_METHODS].iter().any(|methods| methods.contains(&name))
}

fn is_function(name: &str, declared: &BTreeSet<&str>) -> bool {
    FUNCTIONS.contains(name)
        || declared.contains(name)
        || LOCAL_FUNCTIONS.contains(&name)
        || OPERATOR_WORDS.contains(&name)
}

/// Returns true if a name is a part of a dotted name of a filter or test.
fn is_function_name(tokens: &[Token<'_>], at: usize) -> bool {
    let mut first = at;
    while first >= 2 && tokens[first - 1] == Token::Sign('.') && matches!(tokens[first - 2], Token::Name(_)) {
        first -= 2;
    }
    let before = |offset: usize| first.checked_sub(offset).map(|at| tokens[at]);
    matches!(before(1), Some(Token::Sign('|') | Token::Name("is")))
        || (before(1), before(2)) == (Some(Token::Name("not")), Some(Token::Name("is")))
}

/// Returns the filter or test that a filter such as `map('upper')` applies to each item.
fn inner_function(filter: &str, arguments: &[Token<'_>]) -> Option<MissingName> {
    let filter = filter.strip_prefix("ansible.builtin.").unwrap_or(filter);
    match (filter, arguments) {
        ("hash", [Token::Sign('('), Token::Text(kind), ..]) if !HASHES.contains(kind) => {
            Some(MissingName::Filter(format!("hash('{kind}')")))
        }
        ("map", [Token::Sign('('), Token::Text(name), ..]) => Some(MissingName::Filter((*name).to_owned())),
        ("select" | "reject", [Token::Sign('('), Token::Text(name), ..])
        | ("selectattr" | "rejectattr", [Token::Sign('('), Token::Text(_), Token::Sign(','), Token::Text(name), ..]) => {
            Some(MissingName::Test((*name).to_owned()))
        }
        _ => None,
    }
}

/// Returns the test `version` if an argument selects another type of versions.
fn version_option(test: &str, arguments: &[Token<'_>]) -> Option<MissingName> {
    if !matches!(test.strip_prefix("ansible.builtin.").unwrap_or(test), "version" | "version_compare") {
        return None;
    }
    let end = arguments.iter().position(|token| *token == Token::Sign(')')).unwrap_or(arguments.len());
    let option = arguments[..end].iter().find_map(|token| match token {
        Token::Name(name @ ("strict" | "version_type")) => Some(*name),
        _ => None,
    });
    option.map(|option| MissingName::Test(format!("{test} with {option}")))
}

/// Returns the lookup with these arguments if it is unsupported.
fn missing_lookup(arguments: &[Token<'_>]) -> Option<MissingName> {
    // A name in a variable is checked when it is evaluated.
    let Some(Token::Text(kind)) = arguments.first() else { return None };
    let term = arguments.get(2).filter(|_| arguments.get(1) == Some(&Token::Sign(',')));
    let is_supported_here = match (short(kind), term) {
        ("pipe", Some(Token::Text(command))) => date_format(command).is_some(),
        ("pipe", _) => false,
        ("password", Some(Token::Text(path))) => path.starts_with(NO_FILE),
        (kind, _) => is_supported(kind),
    };
    (!is_supported_here).then(|| MissingName::Lookup(short(kind).to_owned()))
}

/// Returns a variable of Ansible that has no value here.
fn missing_variable(name: &str, rest: &[Token<'_>], declared: &BTreeSet<&str>) -> Option<MissingName> {
    let is_argument = matches!(rest, [Token::Sign('='), ..]) && !matches!(rest, [_, Token::Sign('='), ..]);
    if is_argument || declared.contains(name) {
        return None;
    }
    let name = match (name, rest) {
        ("ansible_facts", [Token::Sign('.'), Token::Name(fact), ..] | [Token::Sign('['), Token::Text(fact), ..]) => {
            // A method such as `get` is no fact.
            let is_fact = FACTS.contains(&fact.strip_prefix("ansible_").unwrap_or(fact));
            is_fact.then(|| format!("ansible_facts.{fact}"))
        }
        (name, _) => {
            let is_fact = name.strip_prefix("ansible_").is_some_and(|fact| FACTS.contains(&fact));
            (is_fact || SPECIAL.contains(&name)).then(|| name.to_owned())
        }
    };
    name.map(MissingName::Variable)
}

fn is_known(name: &MissingName) -> bool {
    match name {
        MissingName::Filter(name) => exists("name is filter", name),
        MissingName::Test(name) => name.is_empty() || exists("name is test", name),
        MissingName::Lookup(_) | MissingName::Function(_) | MissingName::Variable(_) => false,
    }
}

/// Joins the parts of a name such as `ansible.builtin.default`.
fn dotted(tokens: &[Token<'_>]) -> String {
    let mut name = String::new();
    for pair in tokens.chunks(2) {
        let Some(Token::Name(part)) = pair.first() else { break };
        name.push_str(part);
        match pair.get(1) {
            Some(Token::Sign('.')) => name.push('.'),
            _ => break,
        }
    }
    name
}

fn exists(question: &str, name: &str) -> bool {
    let response = compile_expression(&ENGINE, question).and_then(|question| question.eval(context! { name }));
    response.is_ok_and(|response| response.is_true())
}
