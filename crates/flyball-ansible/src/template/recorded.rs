//! Expressions and their results with the real Ansible, see `tests/data/record_templates.py`.

use super::{Budget, Scope, Sources, UNDEFINED, data, templates};
use crate::value::Value;
use flyball_core::Rng;
use flyball_core::time::Timestamp;
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Known differences: hashes of MD5, other types of versions, the identity of
/// small numbers, and attributes of attributes that a list's items lack.
const DIFFERENT: [&str; 6] = [
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

/// Returns true if values are equal, with the same order of fields; `1` and `1.0` are.
fn is_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| left.0 == right.0 && is_equal(left.1, right.1))
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

#[test]
fn statements_keep_the_order_of_fields() {
    // With the results of ansible-core 2.19.
    let gives = |template: &str, expected: &str| {
        let text = "ordered: {zebra: 1, apple: {y: 1, x: 2}, mango: 3}
role: {b: '{{ ordered }}', a: '{{ ordered.zebra }}'}";
        let vars = crate::yaml::documents(text, &crate::vault::Vault::default()).unwrap().remove(0);
        let scope = Scope::new(vec![Arc::new(templates(vars.as_object().unwrap()))], Vec::new());
        assert_eq!(scope.render_template(template).unwrap(), expected, "{template}");
    };
    gives("{% for k, v in ordered.items() %}{{ k }}={{ v }};{% endfor %}", "zebra=1;apple={'y': 1, 'x': 2};mango=3;");
    gives("{% for k in ordered %}{{ k }},{% endfor %}", "zebra,apple,mango,");
    gives("{% for k, v in {'b': 1, 'a': 2}.items() if v > 0 %}{{ k }}{{ v }}{% endfor %}", "b1a2");
    gives("{% for k, v in ordered | dictsort %}{{ k }},{% endfor %}", "apple,mango,zebra,");
    gives(
        "{% set d = dict(ordered, b=1) %}{{ d.keys() | list }} {{ d }}",
        "['zebra', 'apple', 'mango', 'b'] {'zebra': 1, 'apple': {'y': 1, 'x': 2}, 'mango': 3, 'b': 1}",
    );
    gives("{{ role }}", "{'b': {'zebra': 1, 'apple': {'y': 1, 'x': 2}, 'mango': 3}, 'a': 1}");
    gives(
        "{{ role | to_json }} {{ role.b.values() | first }}",
        r#"{"b": {"zebra": 1, "apple": {"y": 1, "x": 2}, "mango": 3}, "a": 1} 1"#,
    );
}
