//! Templates and their results.

use super::budget::MAX_WORK;
use super::{Budget, Files, OMIT, Scope, check_expression, check_text, data, templates};
use crate::value::{Map, Value, json};
use std::sync::Arc;

fn scope() -> Arc<Scope> {
    let object = |value: Value| value.as_object().unwrap().clone();
    let user = json!({"size": 3, "name": "ex", "evil": "{{ size }}", "flag": "no", "list": [1, 2], "map": {"a": {"b": 1}},
        "empty": "", "again": "again", "nothing": null, "result": {"changed": true, "failed": false}});
    let role = json!({"image": "memcached:{{ tag }}", "tag": "1.6", "labels": {"app": "{{ name }}", "n": "{{ size }}"},
        "copy": "{{ evil }}", "a": "{{ b }}", "b": "{{ a }}", "broken": "{{ nowhere.x }}", "size": 1});
    let mut files = Files::default();
    files
        .templates
        .insert("x.yaml.j2".into(), ("x.yaml.j2".into(), "{% if size > 1 %}\nkind: {{ name }}\n{% endif %}\n".into()));
    files.templates.insert("again".into(), ("again".into(), "{{ lookup('template', again) }}".into()));
    files.files.insert("motd".into(), ("motd".into(), "{{ hello }}\n".into()));
    Scope::new(vec![Arc::new(data(object(user))), Arc::new(templates(&object(role)))], vec![Arc::new(files)])
}

#[track_caller]
fn gives(template: &str, expected: Value) {
    check_text(template).unwrap();
    assert_eq!(scope().render_text(template), Ok(expected), "{template}");
}

#[track_caller]
fn fails(template: &str, problem: &str) {
    let error = scope().render_text(template).unwrap_err();
    assert!(error.contains(problem), "{template}: {error}");
}

#[test]
fn single_expression_keeps_its_type() {
    gives("{{ size }}", json!(3));
    gives(" {{ size + 1 }} ", json!(4));
    gives("{{ size }} of {{ size }}", json!("3 of 3"));
    gives("{{ '{{' }}", json!("{{"));
    gives("{{ {'a': {'b': size}} }}", json!({"a": {"b": 3}}));
    gives("{{ nothing }}", json!(null));
    gives("x{{ nothing }}", json!("x"));
    gives("on: {{ size > 1 }}", json!("on: True"));
    gives("invalid template", json!("invalid template"));
}

#[test]
fn variables_are_templates_and_data_is_not() {
    gives("{{ image }}", json!("memcached:1.6"));
    gives("{{ labels }}", json!({"app": "ex", "n": 3}));
    gives("{{ evil }}", json!("{{ size }}"));
    gives("{{ copy }}", json!("{{ size }}"));
    gives("<{{ copy }}>", json!("<{{ size }}>"));
    gives("{{ vars['tag'] }}", json!("1.6"));
    gives("{{ omit }}", json!(*OMIT));
    fails("{{ a }}", "refers to itself");
    fails("{{ broken }}", "'nowhere' is undefined");
}

#[test]
fn undefined_variables_are_errors_unless_handled() {
    gives("{{ nowhere | default('x') }}", json!("x"));
    gives("{{ nowhere.at.all | default(omit) }}", json!(*OMIT));
    gives("{{ empty | default('x', true) }}", json!("x"));
    gives("{{ empty | default('x', boolean=true) }}", json!("x"));
    gives("{{ nowhere is defined }}", json!(false));
    gives("{{ map.a.c is not defined }}", json!(true));
    fails("{{ nowhere }}", "'nowhere' is undefined");
    fails("a {{ nowhere }}", "'nowhere' is undefined");
    fails("{{ nowhere > 1 }}", "'nowhere' is undefined");
    fails("{{ map.c }}", "'map.c' is undefined");
    fails("a {{ map.c }}", "undefined");
    // A guard is for the variables of its own section.
    fails("{{ nowhere | default('x') }}{% if other is number %}y{% endif %}", "'other' is undefined");
    fails("{{ nowhere | default('x') }}{% if other > 1 %}y{% endif %}", "'other' is undefined");
    fails("{{ zero | default('x') }}{% for a in other %}{{ a }}{% endfor %}", "'other' is undefined");
    fails("{{ zero | default('x') }}{{ other }}", "'other' is undefined");
    fails("namespace: default{% if other %}x{% endif %}", "'other' is undefined");
    // Within one section, it is for its operand.
    gives("{{ (nowhere | default('x')) ~ size }}", json!("x3"));
    fails("{{ (nowhere | default('x')) ~ typo }}", "'typo' is undefined");
    fails("a {{ typo ~ nowhere | default('x') }}", "'typo' is undefined");
    fails("{{ (nowhere ~ 'x') | default('y') }}", "'nowhere' is undefined");
    gives("{% if nowhere is defined %}{{ nowhere }}{% endif %}x", json!("x"));
    gives("{% set a = nowhere %}{{ a | default('x') }}", json!("x"));
    let holds = |condition: &str| scope().holds(&json!(condition));
    assert_eq!(holds("size > 1"), Ok(true));
    assert_eq!(holds("{{ size > 1 }}"), Ok(true));
    assert_eq!(holds("flag"), Ok(false));
    assert_eq!(holds("nowhere is defined and nowhere > 1"), Ok(false));
    assert_eq!(holds("nowhere is not defined and typo"), Err("'typo' is undefined".into()));
    assert_eq!(holds("nowhere > 1"), Err("'nowhere' is undefined".into()));
    assert_eq!(holds("result is changed and result is not failed"), Ok(true));
}

#[test]
fn filters_match_ansible() {
    gives("{{ map | to_json }}", json!("{\"a\": {\"b\": 1}}"));
    gives("{{ map | to_nice_json(indent=1) }}", json!("{\n \"a\": {\n  \"b\": 1\n }\n}"));
    gives("{{ map | to_yaml }}", json!("a: {b: 1}\n"));
    gives("{{ 'a: [1, yes]' | from_yaml }}", json!({"a": [1, true]}));
    gives("{{ 'name: 1e3' | from_yaml }}", json!({"name": "1e3"}));
    gives(
        "{{ {'name': '1e3', 'time': '22:22', 'y': 'y'} | to_yaml | from_yaml }}",
        json!({"name": "1e3", "time": "22:22", "y": "y"}),
    );
    gives("{{ 'a: 1\n---\nb: 2' | from_yaml_all | list }}", json!([{"a": 1}, {"b": 2}]));
    gives("{{ '{\"a\": 1}' | from_json }}", json!({"a": 1}));
    gives("{{ ['yes' | bool, 'off' | bool, 1 | bool] }}", json!([true, false, true]));
    gives("{{ ['7' | int, 'x' | int(5), 2.9 | int, 'ff' | int(0, 16)] }}", json!([7, 5, 2, 255]));
    gives("{{ map | combine({'a': {'c': 2}}) }}", json!({"a": {"c": 2}}));
    gives("{{ map | combine({'a': {'c': 2}}, recursive=True) }}", json!({"a": {"b": 1, "c": 2}}));
    gives("{{ 'pass' | b64encode }}", json!("cGFzcw=="));
    gives("{{ 'cGFzcw==' | b64decode }}", json!("pass"));
    gives("{{ 'a-b' | regex_replace('(a)-(b)', '\\2-\\1$') }}", json!("b-a$"));
    gives("{{ 'v1.2' | regex_search('v([0-9]+)', '\\1') }}", json!(["1"]));
    gives("{{ list | length }}", json!(2));
    gives("{{ map | dict2items }}", json!([{"key": "a", "value": {"b": 1}}]));
    gives("{{ [{'key': 'x', 'value': 1}] | items2dict }}", json!({"x": 1}));
    gives("{{ (size > 1) | ternary('many', 'one') }}", json!("many"));
    gives("{{ list | union([2, 5]) | difference([1]) }}", json!([2, 5]));
    gives("{{ [[1, [2]], 3] | flatten }}", json!([1, 2, 3]));
    gives("{{ 'abc' | hash('sha256') }}", json!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    gives("{{ ('1.10' is version('1.9', '>=')) and 'abc' is match('a') and 'abc' is not match('b') }}", json!(true));
    gives("{{ [true | string, 3 | string, none | string] }}", json!(["True", "3", "None"]));
    gives("{{ 'a,b'.split(',') }}", json!(["a", "b"]));
    gives("{{ list | map('string') | join('-') }}", json!("1-2"));
}

#[test]
fn lookups_find_files_and_variables_of_the_role() {
    gives("{{ lookup('template', 'x.yaml.j2') }}", json!("kind: ex\n"));
    gives("{{ lookup('template', 'x.yaml.j2') | from_yaml }}", json!({"kind": "ex"}));
    gives("{{ lookup('ansible.builtin.file', 'motd') }}", json!("{{ hello }}"));
    gives("{{ lookup('vars', 'tag') }}", json!("1.6"));
    gives("{{ lookup('env', 'FLYBALL_NO_SUCH', default='x') }}", json!("x"));
    fails("{{ lookup('template', again) }}", "refer to one another infinitely");
    fails("{{ lookup('file', '../../etc/passwd') }}", "file ../../etc/passwd not found");
    fails("{{ lookup('file', '/etc/passwd') }}", "file /etc/passwd not found");
}

#[test]
fn errors_are_found_at_load_time() {
    let check = |text: &str, problem: &str| {
        let found = check_text(text).unwrap_err();
        assert!(found.contains(problem), "{text}: {found}");
    };
    check("{{ a | ipaddr }}", "not support filter ipaddr");
    check("{{ a | community.general.none('x') }}", "not support filter community.general.none");
    check("{% if a is blue %}x{% endif %}", "not support test blue");
    check("{{ lookup('password', 'secret.txt') }}", "only with the path /dev/null");
    check("{{ lookup('pipe', 'ls') }}", "only for the program date");
    check("{{ a", "invalid template");
    check("{% for x in y %}", "invalid template");
    assert!(check_text("{{ 'a | ipaddr' }} {# | nonsense #}").is_ok());
    assert!(check_expression("a is not blue").unwrap_err().contains("not support test blue"));
    assert!(check_expression("a ==").is_err() && check_expression("a b").is_err());
    assert!(check_expression("a is defined and a | bool or 'x' is in b").is_ok());
}

#[test]
fn evaluation_is_bounded() {
    fails("{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}", "fuel");
    let chain: Map = (0..100).map(|n| (format!("v{n}"), json!(format!("{{{{ v{} }}}}", n + 1)))).collect();
    let scope = Scope::new(vec![Arc::new(templates(&chain))], Vec::new());
    assert!(scope.render_text("{{ v0 }}").unwrap_err().contains("infinitely"));
    fails("{{ 'x' | regex_replace('(?=a)', '') }}", "look-around");
    fails("{{ 'x' is match('(a{1000}){1000}') }}", "not a supported regular expression");
    fails("{% for a in range(10000) %}{{ 'x' * 1000 }}{% endfor %}", "exceeds 4194304 bytes");
    fails("{{ 'x' * 100000000 }}", "fuel");
    fails("{{ ('[' * 100000) | from_yaml }}", "YAML");
    fails("{{ ('[' * 100000) | from_json }}", "from_json");
    fails("{{ '[' * 100000000 }}", "fuel");
}

#[test]
fn list_filters_are_charged_per_item() {
    let list = |count: i64| {
        json!({"list": (0..count).map(|n| json!({"n": n})).collect::<Vec<_>>()}).as_object().unwrap().clone()
    };
    let scope = |count: i64| Scope::new(vec![Arc::new(data(list(count)))], Vec::new());
    let all = "{{ (list | union(list) | difference([]) | intersect(list) | length) }}";
    assert_eq!(scope(10_000).render_text(all), Ok(json!(10_000)));
    // Once per item: quadratic work exceeds the budget of a template.
    let often = "{% for item in list %}{{ list | union(list) | length }}{% endfor %}";
    assert!(scope(30).render_text(often).is_ok());
    assert!(scope(5_000).render_text(often).unwrap_err().contains("fuel"));
    let often =
        "{% for item in list %}{{ list | type_debug }}{{ item in list }}{{ list is superset(list) }}{% endfor %}";
    assert!(scope(5_000).render_text(often).unwrap_err().contains("fuel"));
    // Each level of nested maps is compared with all maps within it.
    let deep = |leaf: i64| (0..300).fold(json!({"a": vec![1; 2_000], "b": leaf}), |inner, _| json!({"a": inner}));
    let vars = data([("left".to_owned(), deep(1)), ("right".to_owned(), deep(2))]);
    let scope = Scope::new(vec![Arc::new(vars)], Vec::new());
    assert!(scope.render_text("{{ left | combine(right) | length }}").is_ok());
    let error = scope.render_text("{{ left | combine(right, recursive=true) | length }}").unwrap_err();
    assert!(error.contains("fuel"), "{error}");
    gives("{{ [{'a': 1, 'b': 2}] is subset([{'b': 2, 'a': 1}]) }}", json!(true));
}

#[test]
fn results_of_methods_and_filters_are_bounded_in_advance() {
    let long = json!({"long": "a".repeat(700_000), "list": vec!["a"; 100_000], "with": "\\0".repeat(100_000)});
    let scope = Scope::new(vec![Arc::new(data(long.as_object().unwrap().clone()))], Vec::new());
    for (template, problem) in [
        ("{{ long.replace('a', long) }}", "result of replace exceeds"),
        ("{{ long.join(list) }}", "result of join exceeds"),
        ("{{ long | replace('a', long) }}", "fuel"),
        ("{{ list | join(long) }}", "fuel"),
        ("{{ long | regex_replace('a', long) }}", "result of regex_replace exceeds"),
        ("{{ long | regex_replace('a+', with) }}", "result of regex_replace exceeds"),
    ] {
        let error = scope.render_text(template).unwrap_err();
        assert!(error.contains(problem), "{template}: {error}");
    }
    assert_eq!(scope.render_text("{{ 'a-b-'.replace('-', '+') }}"), Ok(json!("a+b+")));
    assert_eq!(scope.render_text("{{ ', '.join(['a', 'b']) }}"), Ok(json!("a, b")));
    assert_eq!(scope.render_text("{{ 'a1b22' | regex_replace('[0-9]', '<\\0>', count=2) }}"), Ok(json!("a<1>b<2>2")));
    let deep = "{% set ns = namespace(x=1) %}{% for n in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}";
    assert!(scope.render_text(deep).unwrap_err().contains("nested deeper than 512"));
}

#[test]
fn parsed_values_are_charged_by_their_memory() {
    let layers = (1..60).map(|n| format!("a{n}: &a{n} [{}]\n", format!("*a{},", n - 1).repeat(9)));
    let bomb = format!("a0: &a0 [x]\n{}", layers.collect::<String>());
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(60_000), "*a,".repeat(2_000));
    let flow = format!("[{}]", vec!["{a}"; 30_000].join(","));
    let block = "- {a: }\n".repeat(30_000);
    let vars = json!({"yaml": [bomb, long, flow, block], "json": format!("[{}]", vec![r#"{"":0}"#; 30_000].join(",")), "fine": "a: [1]\n".to_owned() + &"# ...\n".repeat(100)});
    let scope = Scope::new(vec![Arc::new(data(vars.as_object().unwrap().clone()))], Vec::new());
    for expression in [
        "yaml[0] | from_yaml",
        "yaml[1] | from_yaml",
        "yaml[2] | from_yaml",
        "yaml[3] | from_yaml",
        "yaml[0] | from_yaml_all",
        "json | from_json",
    ] {
        let error = scope.render_text(&format!("{{{{ {expression} | length }}}}")).unwrap_err();
        assert!(error.contains("fuel"), "{expression}: {error}");
    }
    // Small values do not take the largest limit.
    assert_eq!(scope.render_text("{{ fine | from_yaml }}"), Ok(json!({"a": [1]})));
    assert_eq!(scope.render_text("{{ ('[' ~ '{\"a\": 1},' * 1000 ~ '1]') | from_json | length }}").map(drop), Ok(()));
}

#[test]
fn formatted_texts_are_bounded_in_advance() {
    let vars = json!({"long": "a".repeat(700_000), "with": {"a": "b".repeat(700_000)}, "map": (0..100).map(|n| (n.to_string(), json!(n))).collect::<Map>()});
    let scope = Scope::new(vec![Arc::new(data(vars.as_object().unwrap().clone()))], Vec::new());
    for template in [
        "{{ '{:>700000000}'.format(1) }}",
        "{{ '{:.700000000f}'.format(1.5) }}",
        "{{ '{:}>700000000}'.format('a') }}",
        "{{ '{0[}]:>700000000}'.format({'}': 'a'}) }}",
        "{{ ('{0}' * 10).format(long) }}",
        "{{ ('{0[a]}' * 10).format(with) }}",
        "{{ ('{w[a]}' * 10).format(w=with) }}",
        "{{ '%700000000d' | format(1) }}",
        "{{ '%.700000000f' | format(1.5) }}",
        "{{ ('%(a)s' * 10) % with }}",
        "{{ ('%(a)s' * 10) | format(a=long) }}",
        "{{ '%s%s%s%s%s%s%s%s%s%s' | format(long, long, long, long, long, long, long, long, long, long) }}",
        "{{ '%*d' % (700000000, 1) }}",
        "{{ 'a'.center(700000000) }}",
        "{{ '1'.zfill(700000000) }}",
        "{{ ('\t' * 10).expandtabs(700000000) }}",
        "{{ long.replace('', long) }}",
        "{{ long.join(map.values()) }}",
        "{{ map | dict2items(key_name=long) }}",
    ] {
        let error = scope.render_text(template).unwrap_err();
        assert!(error.contains("exceeds 4194304 bytes"), "{template}: {error}");
    }
    for template in ["{{ '{:.70000e}'.format(1.5) }}", "{{ '{0:9.65001f}'.format(1.5) }}"] {
        assert!(scope.render_text(template).unwrap_err().contains("precision"), "{template}");
    }
    for format in ["%.65534g", "%.65533g", "%.99999g", "%.65535f", "%.70000e", "%#.70000g"] {
        assert!(scope.render_text(&format!("{{{{ '{format}' % 0.0001 }}}}")).is_ok(), "{format}");
    }
    // Nested fields are not supported.
    assert!(scope.render_text("{{ '{:{w}}'.format(1, w=700000000) }}").is_err());
    gives("{{ '{:>5}|{:<3}|{:05.1f}'.format('a', 1, 2.25) }}", json!("    a|1  |002.2"));
    gives("{{ '%s-%03d-%.2f' | format('a', 7, 1.5) }}", json!("a-007-1.50"));
    gives("{{ '%(a)s' | format(a='b') }}", json!("b"));
    gives("{{ ', '.join({'a': 1, 'b': 2}.values()) }}", json!("1, 2"));
}

#[test]
fn indented_and_grouped_results_are_bounded_in_advance() {
    let deep = (0..60).fold(json!(vec![1; 60_000]), |value, _| json!([value]));
    let scope = Scope::new(
        vec![Arc::new(data(json!({"deep": deep, "text": "a".repeat(100_000)}).as_object().unwrap().clone()))],
        Vec::new(),
    );
    for filter in ["to_nice_json", "to_nice_json(indent=16)", "to_yaml", "tojson(indent=4)", "tojson(1000000000)"] {
        let error = scope.render_text(&format!("{{{{ deep | {filter} }}}}")).unwrap_err();
        assert!(error.contains("exceed") || error.contains("to_yaml"), "{filter}: {error}");
    }
    let groups = format!("{{{{ text | regex_findall('{}') | length }}}}", "()".repeat(200));
    assert!(scope.render_text(&groups).unwrap_err().contains("fuel"));
    gives("{{ [1, {'a': [2]}] | tojson }}", json!("[1, {\"a\": [2]}]"));
    gives("{{ {'a': [2]} | tojson(indent=1) }}", json!("{\n \"a\": [\n  2\n ]\n}"));
    gives("{{ 'a1b22' | regex_findall('([a-z])([0-9]+)') }}", json!([["a", "1"], ["b", "22"]]));
}

#[test]
fn search_is_charged_for_the_scanned_text() {
    let scope = |text: String| Scope::new(vec![Arc::new(data([("text".to_owned(), json!(text))]))], Vec::new());
    // A text without a period has an automaton with as many states as positions.
    let mut state = 1_u32;
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { 'a' } else { 'b' }
    };
    let mixed: String = (0..1_200_000).map(|_| letter()).collect();
    for (text, filter) in [
        ("a".repeat(1_200_000), "regex_replace('a.*z|a', '_')"),
        ("/*a".repeat(400_000), r"regex_replace('/\*.*?\*/|/', '_')"),
        ("a".repeat(1_200_000), "regex_findall('a.*z|a')"),
        ("a".repeat(1_200_000), "regex_replace('(a.*z)?', '_')"),
        (mixed.clone(), "regex_replace('[ab]*a[ab]{500}c', '_')"),
        (mixed, "regex_search('[ab]*a[ab]{500}c')"),
    ] {
        let error = scope(text).render_text(&format!("{{{{ text | {filter} | length }}}}")).unwrap_err();
        assert!(error.contains("fuel"), "{filter}: {error}");
    }
    for (text, filter, expected) in [
        ("a,bcdefghi".repeat(100_000), "regex_replace(',', '_') | length", 1_000_000),
        ("a,bcdefghi".repeat(100_000), "regex_findall(',') | length", 100_000),
        ("ab  ".repeat(20_000), r"regex_replace('\s+', '') | length", 40_000),
        ("key: value\n".repeat(20_000), "regex_replace('(k[a-z]*): (.*)', '\\2') | length", 120_000),
        ("grüße, welt ".repeat(5), r"regex_findall('\b\w+\b') | length", 10),
    ] {
        let found = scope(text).render_text(&format!("{{{{ text | {filter} }}}}"));
        assert_eq!(found, Ok(json!(expected)), "{filter}");
    }
}

#[test]
fn deeply_nested_variable_is_rejected_without_stack_overflow() {
    let nested = |depth: usize| (0..depth).fold(json!(1), |value, _| json!([value]));
    let scope = |var: Value| {
        let vars = data([("deep".to_owned(), var.clone())]);
        let template = json!({"lazy": var}).as_object().unwrap().clone();
        Scope::new(vec![Arc::new(vars), Arc::new(templates(&template))], Vec::new())
    };
    // Like a task that nests its own fact one level deeper in each iteration.
    let (mut value, mut turns) = (json!(1), 0);
    let error = loop {
        match scope(value).render(&json!(["{{ deep }}"])) {
            Ok(next) => value = next,
            Err(error) => break error,
        }
        turns += 1;
    };
    assert!(error.contains("nested deeper than 512") && turns > 400, "{error} after {turns} turns");
    let expression = format!("{{{{ {}deep{} }}}}", "[".repeat(100), "]".repeat(100));
    assert!(scope(nested(500)).render_text(&expression).is_err());
    assert!(scope(nested(500)).render_text("{{ lazy }}").is_ok());
    for text in ["{{ deep }}", "{{ lazy }}", "{{ deep == lazy }}", "a {{ deep | length }}"] {
        assert!(scope(nested(600)).render_text(text).unwrap_err().contains("nested deeper than 512"), "{text}");
    }
}

#[test]
fn namespace_nested_by_a_loop_overflows_no_stack() {
    let template = |turns: usize, end: &str| {
        format!(
            "{{% set ns = namespace(x=1, y=1) %}}{{% for n in range({turns}) %}}{{% set ns.x = [ns.x] %}}{{% set ns.y = {{'a': ns.y}} %}}{{% endfor %}}{end}"
        )
    };
    assert_eq!(scope().render_text(&template(10_000, "ok")), Ok(json!("ok")));
    for turns in [10_000, 20_000, 40_000, 80_000] {
        for end in [
            "ok",
            "{{ ns.x == ns.y }}",
            "{{ ns.x in [ns.y, [ns.x]] }}",
            "{{ ns.y | tojson }}",
            "{{ [ns.x, ns.y] | sort | length }}",
            "{{ {ns.x: 1, ns.y: 2} | length }}",
        ] {
            let _ = scope().render_text(&template(turns, end));
        }
    }
}

#[test]
fn evaluations_of_one_run_share_a_budget() {
    let items: Vec<_> = (0..20_000).collect();
    let vars = Arc::new(data(json!({ "items": items }).as_object().unwrap().clone()));
    // Most of the work was done before.
    let budget = Arc::new(Budget::default());
    budget.charge(MAX_WORK - 1_000_000).unwrap();
    let turns = (0..5_000).map(|_| {
        Scope::within(budget.clone(), vec![vars.clone()], Vec::new())
            .render_text("{{ items | difference([1]) | length }}")
    });
    let completed: Vec<_> = turns.take_while(Result::is_ok).collect();
    assert!((2..100).contains(&completed.len()), "{} turns", completed.len());
    assert!(budget.check().unwrap_err().contains("limit of 8000000 steps"));
    // Small evaluations are cheap, both successful and failing ones.
    let budget = Arc::new(Budget::default());
    for _ in 0..10_000 {
        let scope = Scope::within(budget.clone(), vec![Arc::new(data([("a".to_owned(), json!(1))]))], Vec::new());
        assert_eq!(scope.render_text("{{ a + 1 }}"), Ok(json!(2)));
        assert!(scope.render_text("{{ b }}").is_err());
    }
    budget.check().unwrap();
}

#[test]
fn omit_marker_cannot_be_guessed() {
    assert!(!OMIT.contains("omitted") && OMIT.len() > 32 && !OMIT.contains(&"0".repeat(32)));
}

#[test]
fn arbitrary_text_does_not_panic() {
    let parts = [
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "|",
        "'",
        "\"",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        " ",
        "is",
        "not",
        "if",
        "endif",
        "for",
        "in",
        "endfor",
        "size",
        "list",
        "map",
        "evil",
        "default",
        "to_json",
        "regex_replace",
        "lookup",
        "'file'",
        "é",
        "\\",
        "\n",
        "1",
        "-1",
        "*",
        "/",
        "**",
        "%",
        ".",
        ",",
        ":",
        "~",
        "+",
        "-",
        "==",
        ">",
        "combine",
        "int",
        "flatten",
        "=",
        "$",
    ];
    let rng = flyball::Rng::from_seed(11);
    for _ in 0..30_000 {
        let count = rng.below(12) + 1;
        let text: String = (0..count).map(|_| parts[rng.below(parts.len() as u64) as usize]).collect();
        for text in [text.clone(), format!("{{{{ {text} }}}}"), format!("{{% if {text} %}}a{{% endif %}}")] {
            let _ = (check_text(&text), scope().render_text(&text));
            let _ = check_expression(&text);
        }
    }
}

#[test]
fn nesting_overflows_no_small_stack() {
    let nested = |depth: usize| format!("{{{{ {}1{} }}}}", "abs(".repeat(depth), ")".repeat(depth));
    let check = move || {
        for depth in [10, 100, 140, 150, 200, 400] {
            let _ = scope().render_text(&format!("{{{{ {}1 % 2{} }}}}", "(".repeat(depth), ")".repeat(depth)));
            let text = nested(depth);
            let _ = (check_text(&text), scope().render_text(&text), check_expression(&text));
        }
    };
    std::thread::Builder::new().stack_size(512 << 10).spawn(check).unwrap().join().unwrap();
}
