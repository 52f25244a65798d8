//! Fuzz targets: charts and archives of chart authors, and values of users.

use crate::engine;
use flate2::Compression;
use flate2::write::GzEncoder;
use flyball_chart::{Budget, Capabilities, Chart, Release, RenderOptions, Values};
use serde_json::{Map, Value, json};
use std::io::Write;

/// A target: returns a short description of the outcome.
pub(crate) struct Target {
    seeds: fn() -> Vec<String>,
    play: fn(&[u8]) -> String,
}

impl engine::Target for Target {
    type World = ();

    fn seeds(&self) -> Vec<Vec<u8>> {
        (self.seeds)().into_iter().map(String::into_bytes).collect()
    }

    async fn open(&self) {}

    async fn play(&self, (): &mut (), input: &[u8]) -> String {
        (self.play)(input)
    }
}

/// Marks the start of a file in an archive; each nesting level has its own mark.
const MARKS: [&str; 2] = ["\u{1}", "\u{2}"];
const CHART: &str = "apiVersion: v2\nname: site\nversion: 0.1.0\n";
const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {text: {{ .Values.text | quote }}}\n";

/// The first words of a message.
fn outline(message: &str) -> String {
    let words = message.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() > 1);
    words.take(12).collect::<Vec<_>>().join(" ")
}

fn outline_of<T, E: std::fmt::Display>(result: &Result<T, E>) -> String {
    result.as_ref().map_or_else(|error| outline(&error.to_string()), |_| "taken".into())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Packs text into an archive: files start with the mark of the level and their path; nested archives are packed the
/// same way.
fn pack(text: &str, marks: &[&str]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let Some((mark, inner)) = marks.split_first() else { return text.as_bytes().to_vec() };
    for file in text.split(mark).skip(1) {
        let (path, data) = file.split_once('\n').unwrap_or((file, ""));
        let data = if path.ends_with(".tgz") { pack(data, inner) } else { data.as_bytes().to_vec() };
        let mut header = tar::Header::new_gnu();
        // The path is not validated: it may be absolute, or outside of the directory.
        let name = &mut header.as_old_mut().name;
        let length = path.len().min(name.len());
        name[..length].copy_from_slice(&path.as_bytes()[..length]);
        header.set_size(data.len() as u64);
        header.set_cksum();
        archive.append(&header, data.as_slice()).unwrap();
    }
    gzip(&archive.into_inner().unwrap())
}

/// Renders with untrusted values, within a budget for builds without optimization.
fn render(chart: &Chart, values: &Values, evaluates_data: bool) -> String {
    let budget = Budget { steps: 1_000_000, ..Budget::untrusted() };
    let output = budget.output;
    let options = RenderOptions { budget, evaluates_data, sub_notes: true, ..RenderOptions::default() };
    let release = Release { name: "blue".into(), namespace: "tenant".into(), revision: 1, is_upgrade: false };
    let rendered = chart.render_with(values, &release, &Capabilities::default(), &options);
    for manifest in rendered.iter().flat_map(|rendered| &rendered.manifests) {
        assert!(manifest.text.len() <= output, "a template wrote {} bytes", manifest.text.len());
    }
    outline_of(&rendered)
}

fn open_and_render(archive: &[u8]) -> String {
    match Chart::from_archive(archive) {
        Ok(chart) => {
            chart.crds();
            format!(
                "{} {}",
                outline_of(&chart.check_dependencies()),
                render(&chart, &Values::untrusted(Map::new()), false)
            )
        }
        Err(error) => outline(&error.to_string()),
    }
}

/// Returns an archive of these files in the directory of a chart.
fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let text: String = files.iter().map(|(path, text)| format!("{}site/{path}\n{text}", MARKS[0])).collect();
    // Marks are not allowed within a file here.
    pack(&text, &MARKS[..1])
}

/// Archives: files named by the input, the input as a tar, and the input itself.
pub(crate) fn archives() -> Target {
    Target {
        seeds: || {
            let file = |level: usize, path: &str, text: &str| format!("{}{path}\n{text}", MARKS[level]);
            let chart = format!(
                "{}{}",
                file(0, "site/Chart.yaml", CHART),
                file(0, "site/templates/page.yaml", "a: {{ .Values.a }}\n")
            );
            let sub = format!(
                "{}{}",
                file(1, "sub/Chart.yaml", "apiVersion: v1\nname: sub\nversion: 1.0.0\n"),
                file(1, "sub/templates/a.yaml", "b: 1")
            );
            let needs = "apiVersion: v2\nname: site\nversion: 1.0.0\ndependencies: [{name: sub, version: 1.x, alias: other, condition: sub.on, tags: [t], import-values: [{child: a, parent: b}]}]\n";
            vec![
                format!("{chart}{}", file(0, "site/values.yaml", "a: 1\n")),
                format!("{}{}", file(0, "site/Chart.yaml", needs), file(0, "site/charts/sub-1.0.0.tgz", &sub)),
                format!("{chart}{}", file(0, "site/charts/../../../x", "y")),
                format!("{chart}{}", file(0, "/etc/passwd", "y")),
                format!("{chart}{}", file(0, "site/crds/a.yaml", "kind: CustomResourceDefinition\n---\n---\n")),
                format!("{chart}{}", file(0, "site/.helmignore", "*.tmp\n!a\n/b/**\n[a-\n")),
                format!("{chart}{}", file(0, "site\\c:\\x", "y")),
            ]
        },
        play: |input| {
            let text = String::from_utf8_lossy(input);
            [pack(&text, &MARKS), gzip(input), input.to_vec()].map(|archive| open_and_render(&archive)).join(" ")
        },
    }
}

/// `Chart.yaml`, `values.yaml`, `values.schema.json`, `requirements.yaml` and `.helmignore` with any content.
pub(crate) fn chart_files() -> Target {
    Target {
        seeds: || {
            [
                CHART,
                "apiVersion: v2\nname: site\nversion: 1.2.3-a+b\nkubeVersion: '>=1.20 <2 || ^1.30'\ntype: application\nmaintainers: [{name: a, email: b}]\nannotations: {a: b}\n",
                "dependencies:\n- {name: sub, version: ~1.2, repository: 'https://x', import-values: [a, {child: b, parent: c}]}\n",
                "a: &a [x, x]\nb: &b [*a, *a]\nc: {<<: {d: 1}, e: 0x1F, f: 1e3, g: !!binary AAE=, h: ~}\n",
                "? {complex: key}\n: |+2\n   text\n--- {second: document}\n",
                r##"{"type":"object","properties":{"text":{"type":"string","pattern":"^(a+)+$","minLength":1}},"required":["text"],"additionalProperties":{"$ref":"#/properties/text"}}"##,
                r##"{"$ref":"#","allOf":[{"$ref":"#/definitions/a"}],"definitions":{"a":{"not":{"$ref":"#/definitions/a"}}}}"##,
                "# comment\n*.swp\n!keep\n/templates/**/x?[a-z]\n",
            ]
            .map(str::to_owned)
            .to_vec()
        },
        play: |input| {
            let text = String::from_utf8_lossy(input).replace(MARKS[0], "");
            let with = |file: &str| {
                let mut files = vec![("templates/page.yaml", PAGE), (file, text.as_str())];
                if file != "Chart.yaml" {
                    files.push(("Chart.yaml", CHART));
                }
                open_and_render(&archive(&files))
            };
            ["Chart.yaml", "values.yaml", "values.schema.json", "requirements.yaml", ".helmignore"].map(with).join(" ")
        },
    }
}

/// Templates of authors, and of users with `evaluateTemplates`: the budget aborts endless ones.
pub(crate) fn templates() -> Target {
    Target {
        seeds: || {
            [
                r#"{{- range $i, $e := until 5 }}{{ if eq $i 3 }}{{ break }}{{ else }}{{ printf "%05d %v" $i $e | quote }}{{ end }}{{ end -}}"#,
                r#"{{ define "t" }}{{ .a | default "x" | upper | nindent 2 }}{{ end }}{{ include "t" (dict "a" (list 1 2 3 | join ",")) }}"#,
                r#"{{ with $x := dict "a" (dict "b" 1) }}{{ $x.a.b | add 1 | mul 3 | toString | b64enc | sha256sum | trunc 5 }}{{ end }}"#,
                r#"{{ tpl "{{ .Values.text }}" . }}{{ toYaml .Values | fromYaml | toJson | fromJson | toPrettyJson }}"#,
                r#"{{ regexReplaceAll "(a|b)*c{1,9}" "aabbcc" "${1}x" }}{{ semverCompare "^1.2 || >3" "1.3.0" }}{{ now | date "2006" }}"#,
                r#"{{ $l := list 1 }}{{ range until 60 }}{{ $l = list $l $l }}{{ end }}{{ toJson $l }}"#,
                r#"{{ define "x" }}{{ template "x" . }}{{ end }}{{ template "x" . }}"#,
                r#"{{ repeat 1000000 "ab" | replace "a" (repeat 1000 "b") | len }}{{ printf "%*d" 99999999 1 }}"#,
                r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ toYaml $d }}{{ merge $d (dict "a" 1) | deepCopy | keys | sortAlpha }}"#,
                r#"{{/* c */}}{{ `raw` }}{{ 'a' }}{{ 0x1p4 }}{{ 1i }}{{ -9223372036854775808 | div 1 }}{{ mod 1 0 }}{{ index (list 1) -1 }}"#,
                r#"{{ urlParse "http://a:b@c:1/d?e=f#g" | urlJoin }}{{ genSignedCert "a" nil nil 1 (genCA "b" 1) | toJson | len }}{{ toDate "2006-01-02" "2020-99-99" }}"#,
                r#"{{ slice (list 1 2 3) 1 9 }}{{ substr 2 1 "äö" }}{{ wrapWith 3 "-" "abcdef" }}{{ splitn "," 2 "a,b,c" }}{{ seq 1 2 9 }}{{ untilStep 0 9 0 }}"#,
            ]
            .map(str::to_owned)
            .to_vec()
        },
        play: |input| {
            let text = String::from_utf8_lossy(input).replace(MARKS[0], "");
            let own = archive(&[("Chart.yaml", CHART), ("templates/page.yaml", &text), ("values.yaml", "text: a\n")]);
            let as_author = open_and_render(&own);
            let page = "a: {{ tpl .Values.text . | quote }}\n";
            let chart = archive(&[("Chart.yaml", CHART), ("templates/page.yaml", page)]);
            let spec = json!({"text": text}).as_object().unwrap().clone();
            let as_user = render(&Chart::from_archive(&chart).unwrap(), &Values::untrusted(spec), true);
            format!("{as_author} {as_user}")
        },
    }
}

/// Specs of users as values, with the functions that charts use on them; and arguments of `--set` and `--values`.
pub(crate) fn values() -> Target {
    Target {
        seeds: || {
            vec![
                json!({"text": "{{ .Release.Name }}", "list": ["a", {"b": "{{ 1 }}"}], "map": {"{{ 1 }}": "x"}}).to_string(),
                json!({"yaml": "a: &a [x]\nb: [*a, *a]", "json": "[[1]]", "pattern": "(a+)+$", "date": "2020-01-01", "count": 3, "width": 3}).to_string(),
                json!({"count": 1e18, "width": -1, "pattern": "a{1000}{1000}", "raw": "x\n---\nkind: ClusterRole"}).to_string(),
                json!({"sub": {"a": null}, "global": {"b": [1]}, "text": null}).to_string(),
                "a.b[0].c=1,d={x,y},e\\.f=null,g=".into(),
                "a[99999999]=1".into(),
            ]
        },
        play: |input| {
            let page = "a: {{ tpl (toYaml .Values.map) . | quote }}\nb: {{ .Values.yaml | default \"a: b\" | fromYaml | toJson | quote }}\n\
                c: {{ regexMatch (.Values.pattern | default \"a\" | toString) \"aaaaaaaaaaaaaaaaaaaaaaaab\" }}\n\
                d: {{ len (until (int .Values.count)) }}\ne: {{ printf \"%*d\" (int .Values.width) 1 | len }}\n\
                f: {{ fromJson (.Values.json | default \"{}\" | toString) | toJson | quote }}\ng: {{ .Values.raw }}\n\
                h: {{ range $k, $v := .Values }}{{ $k | upper | trunc 5 }}{{ tpl (toYaml $v) $ | nindent 4 }}{{ end }}\n\
                i: {{ mergeOverwrite (deepCopy .Values) (dict \"text\" 1) | toYaml | sha256sum }}\n\
                j: {{ .Values.list | default list | toStrings | sortAlpha | uniq | join \",\" | quote }}\n";
            let files =
                [("Chart.yaml", CHART), ("templates/page.yaml", page), ("values.yaml", "text: a\nmap: {a: b}\n")];
            let chart = Chart::from_archive(&archive(&files)).unwrap();
            let mut outcome = String::new();
            if let Ok(Value::Object(spec)) = serde_json::from_slice(input) {
                outcome += &render(&chart, &Values::untrusted(spec), false);
            }
            let text = String::from_utf8_lossy(input);
            let mut values = Values::default();
            outcome += &outline_of(&values.set(&text));
            outcome += &outline_of(&values.set_string(&text));
            outcome += &outline_of(&values.set_json(&text));
            outcome += &outline_of(&values.merge_yaml("input", input));
            outcome + &render(&chart, &values, false)
        },
    }
}
