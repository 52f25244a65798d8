//! Expressions and their results with the real Ansible, see `tests/data/record_templates.py`.

use super::{Budget, Scope, Sources, UNDEFINED, data};
use flyball_core::Rng;
use flyball_core::time::Timestamp;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Known differences: fields in the order of their names, hashes of MD5, other types of versions, the identity of
/// small numbers, and attributes of attributes that a list's items lack.
const DIFFERENT: [&str; 7] = [
    "{'b': 1, 'a': 2} | to_json",
    "'abc' | hash('md5')",
    "'abc' | md5",
    "'1.0.0' is version('1.0.0-alpha', 'gt', version_type='semver')",
    "'4.10' is version('4.9', '>', strict=True)",
    "size is sameas(3)",
    "objects | selectattr('tags.x', 'undefined') | list | length",
];

/// Errors with another text: those of Python's types, and of names.
const OTHER_MESSAGES: [&str; 9] = [
    "map.nope in 'abc'",
    "map.nope | default(nope)",
    "map.nope | mandatory",
    "nope | mandatory",
    "list[map.nope:]",
    "{map.nope: 1}",
    "lookup('vars', 'nope')",
    "name.nope()",
    "vars.nope",
];

/// Errors of Ansible alone: items of other types than strings are joined as well, and these undefined values are not
/// seen: in lists and maps that are compared, arguments of tests without parentheses, and attributes that filters of
/// the engine read.
const LENIENT: [&str; 10] = [
    "'-'.join([1])",
    "[map.nope] == [1]",
    "{'a': map.nope} == {'a': 1}",
    "2 in [1, map.nope]",
    "1 is in map.nope",
    "1 is eq map.nope",
    "objects | selectattr('tags') | list | length",
    "objects | selectattr('nope', 'equalto', 1) | list",
    "objects | sort(attribute='tags')",
    "objects | sum(attribute='nope')",
];

/// Returns true if values are equal; `1` and `1.0` are.
fn is_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| is_equal(value, other)))
        }
        (left, right) => left == right,
    }
}

/// Evaluates an expression with the recorded variables.
fn evaluate(recorded: &Value, expression: &str) -> Result<Value, String> {
    let vars = Arc::new(data(recorded["vars"].as_object().unwrap().clone()));
    let sources = Sources::new(Some(Rng::from_seed(1)));
    // In November 2026; the expressions do not depend on the day.
    sources.begin(Timestamp::from_second(1_793_948_889).unwrap());
    let budget = Arc::new(Budget::new(BTreeSet::new(), sources));
    Scope::within(budget, vec![vars], Vec::new()).render_text(&format!("{{{{ {expression} }}}}"))
}

fn recorded() -> Value {
    serde_json::from_str(include_str!("../../tests/data/templates.json")).unwrap()
}

#[test]
fn results_are_those_of_ansible() {
    let recorded = recorded();
    let cases = recorded["cases"].as_array().unwrap();
    let (mut different, mut shown) = (BTreeSet::new(), String::new());
    for case in cases {
        let expression = case["expression"].as_str().unwrap();
        let found = evaluate(&recorded, expression);
        if !found.as_ref().is_ok_and(|found| is_equal(found, &case["result"])) {
            different.insert(expression);
            shown += &format!("{expression}\n  expected {}\n  found    {found:?}\n", case["result"]);
        }
    }
    assert!(cases.len() > 200);
    assert_eq!(different, BTreeSet::from(DIFFERENT), "{shown}");
}

/// Returns an error of Ansible as the built-in executor has it: without values, which may be secret, with the names of
/// types that Ansible only wraps, and without the full stop.
fn expected_error(recorded: &str) -> String {
    let mut text = recorded.trim_end_matches('.').to_owned();
    for (pattern, replacement) in [
        ("<class '(?:[^']*[.])?([^'.]+)'>", "$1"),
        ("_AnsibleLazyTemplateDict", "dict"),
        ("_AnsibleLazyTemplateList", "list"),
        (r"(items2dict requires .*), got \[.*\] instead$", "$1"),
        ("^object of type '.*' has no attribute .*$", UNDEFINED),
        ("^No (first|last|aggregated) item, sequence was empty$", UNDEFINED),
    ] {
        text = Regex::new(pattern).unwrap().replace(&text, replacement).into_owned();
    }
    text
}

#[test]
fn errors_are_those_of_ansible() {
    let recorded = recorded();
    let cases = recorded["failures"].as_array().unwrap();
    assert!(cases.len() > 60);
    let (mut shown, mut lenient) = (String::new(), Vec::new());
    for case in cases {
        let expression = case["expression"].as_str().unwrap();
        let expected = expected_error(case["error"].as_str().unwrap());
        // The value of the expression itself.
        let named = format!("'{expression}' is undefined");
        let exact = case["error"].as_str().unwrap();
        match evaluate(&recorded, expression) {
            Ok(_) => lenient.push(expression),
            Err(_) if OTHER_MESSAGES.contains(&expression) => {}
            Err(error) if error == expected || error == exact || expected == UNDEFINED && error == named => {}
            Err(error) => shown += &format!("{expression}\n  expected {expected}\n  found    {error}\n"),
        }
    }
    assert!(shown.is_empty(), "{shown}{lenient:#?}");
    assert_eq!(lenient, LENIENT);
}
