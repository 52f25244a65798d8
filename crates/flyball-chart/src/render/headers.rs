//! Versions and kinds of the objects that templates may render, also under conditions that do not hold.
//!
//! Many charts compute the version of an object, as by `{{ include "common.capabilities.ingress.apiVersion" . }}`, or
//! select it by the version of Kubernetes. So the lines around `apiVersion` and `kind` are executed on their own, in
//! the context of their chart, without the conditions around them.

use super::{Release, Scope, Values, coalesce, release_value, scope};
use crate::capabilities::Capabilities;
use crate::chart::{Chart, File};
use crate::context::{Budget, RenderContext};
use crate::memory;
use crate::message;
use crate::seed::Seed;
use crate::text::lossy;
use crate::value::Value;
use crate::yaml::from_yaml;
use flyball_core::Clock;
use regex::Regex;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The control actions of templates.
static CONTROL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{-?\s*(if|with|range|define|block|else|end)\b").expect("the pattern is constant and valid")
});

/// An annotation with the events of a hook.
static HOOK: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?m)^\s*["']?helm\.sh/hook["']?\s*:\s*(.*)$"#;
    Regex::new(pattern).expect("the pattern is constant and valid")
});

/// Limit of headers that are executed.
const MAX_HEADERS: usize = 2_000;

/// The version and the kind of a document, where a template computes or selects them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The template: `chart/templates/x.yaml`.
    pub path: String,
    /// Text of the lines with the version and the kind.
    pub text: String,
    /// The version and the kind for the default values; `None` if they cannot be determined.
    pub object: Option<(String, String)>,
}

/// A header before it is executed.
struct Snippet {
    /// Path of the file in its chart.
    file: String,
    /// The lines to execute.
    lines: String,
    header: Header,
}

impl Chart {
    /// Returns the headers of documents whose version or kind is not literal: of the chart and of all subcharts, also
    /// of disabled ones.
    pub fn headers(&self, values: &Values, release: &Release, capabilities: &Capabilities) -> Vec<Header> {
        stacker::grow(super::STACK, || {
            let budget = Budget::trusted();
            let _bounds = (memory::Scope::new(budget.bytes), message::Scope::new(budget.message));
            let (mut chart, mut snippets) = (self.clone(), BTreeMap::new());
            extract(&mut chart, self.name(), &mut snippets);
            let run = |snippets: &BTreeMap<String, Snippet>| {
                let mut chart = chart.clone();
                insert(&mut chart, self.name(), snippets);
                execute(&chart, values, release, capabilities)
            };
            let found = match run(&snippets) {
                Some(found) => found,
                // One of them fails.
                None => {
                    let mut found = BTreeMap::new();
                    for (path, snippet) in std::mem::take(&mut snippets) {
                        let one = BTreeMap::from([(path, snippet)]);
                        found.extend(run(&one).unwrap_or_default());
                        snippets.extend(one);
                    }
                    found
                }
            };
            let header = |(path, snippet): (String, Snippet)| {
                let object = found.get(&path).and_then(|text| object_of(text));
                Header { object, ..snippet.header }
            };
            snippets.into_iter().map(header).collect()
        })
    }
}

/// Removes all templates except partials from a chart, and adds their headers by the paths of their renderings.
fn extract(chart: &mut Chart, path: &str, found: &mut BTreeMap<String, Snippet>) {
    let is_library = chart.metadata.chart_type == "library";
    let is_partial = |file: &File| file.path.rsplit('/').next().is_some_and(|name| name.starts_with('_'));
    let (partials, others) = chart.templates.drain(..).partition(is_partial);
    chart.templates = partials;
    for file in others.iter().filter(|file| !is_library && !file.path.ends_with(super::NOTES)) {
        for (text, lines) in headers_of(&lossy(&file.data)) {
            if found.len() >= MAX_HEADERS {
                return;
            }
            // Not the name of another file.
            let name = format!("templates/header/{}", found.len());
            let header = Header { path: format!("{path}/{}", file.path), text, object: None };
            found.insert(format!("{path}/{name}"), Snippet { file: name, lines, header });
        }
    }
    for child in &mut chart.dependencies {
        let path = format!("{path}/charts/{}", child.name());
        extract(child, &path, found);
    }
}

fn insert(chart: &mut Chart, path: &str, snippets: &BTreeMap<String, Snippet>) {
    let own = snippets.iter().filter(|(full, snippet)| **full == format!("{path}/{}", snippet.file));
    let file = |(_, snippet): (_, &Snippet)| File { path: snippet.file.clone(), data: snippet.lines.as_bytes().into() };
    chart.templates.extend(own.map(file));
    for child in &mut chart.dependencies {
        let path = format!("{path}/charts/{}", child.name());
        insert(child, &path, snippets);
    }
}

/// Executes all templates of a chart and of its subcharts; `None` if one of them fails. `required` and `fail` do not.
fn execute(
    chart: &Chart,
    values: &Values,
    release: &Release,
    capabilities: &Capabilities,
) -> Option<BTreeMap<String, String>> {
    let all = coalesce::coalesce(chart, values.as_map(), coalesce::Nulls::Delete, &mut Vec::new()).ok()?;
    let scope: Scope = scope(chart, all, values, Value::map(release_value(release)), capabilities);
    let clock = Clock::new(|| jiff::Timestamp::UNIX_EPOCH);
    let context = RenderContext::new(clock, &Seed::default(), None, Budget::trusted(), false);
    let context = context.of(capabilities.helm()).linting();
    let files = scope.execute(&context).ok()?;
    Some(files.into_iter().map(|(path, text)| (path, lossy(&text).into_owned())).collect())
}

/// Returns the version and the kind in an executed header.
fn object_of(text: &str) -> Option<(String, String)> {
    let document = from_yaml(text).ok()?;
    let field = |name: &str| document[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Some((field("apiVersion")?, field("kind")?))
}

/// Returns the headers in the text of a template that are not literal: their lines as written, and as executed.
fn headers_of(template: &str) -> Vec<(String, String)> {
    template.split("\n---").filter(|document| !is_test_hook(document)).filter_map(header_of).collect()
}

/// Returns true if a document of a template is a hook that only `helm test` runs.
pub fn is_test_hook(document: &str) -> bool {
    let is_test = |event: &str| matches!(event.trim(), "test" | "test-success" | "test-failure");
    let events = |annotation: &str| annotation.split(" #").next().unwrap_or_default().trim().to_owned();
    let mut hooks = HOOK.captures_iter(document).map(|found| events(&found[1])).peekable();
    hooks.peek().is_some() && hooks.all(|events| events.trim_matches(['"', '\'']).split(',').all(is_test))
}

fn header_of(document: &str) -> Option<(String, String)> {
    let lines: Vec<&str> = document.lines().collect();
    let is_field = |line: &str| line.starts_with("apiVersion:") || line.starts_with("kind:");
    let kind = lines.iter().position(|line| line.starts_with("kind:"))?;
    let is_action = |line: &str| line.trim_start().starts_with("{{") && line.trim_end().ends_with("}}");
    let is_part = |line: &&&str| is_field(line) || is_action(line) || line.trim().is_empty() || line.starts_with('#');
    let begin = kind - lines[..kind].iter().rev().take_while(is_part).count();
    let end = kind + lines[kind..].iter().take_while(is_part).count();
    let part = &lines[begin..end];
    let fields: Vec<&str> = part.iter().copied().filter(|line| is_field(line)).collect();
    let versions = part.iter().filter(|line| line.contains("apiVersion:")).count();
    let is_literal = versions == 1 && !fields.iter().any(|line| line.contains("{{"));
    let text = part.iter().copied().filter(|line| line.contains("apiVersion:") || line.contains("kind:"));
    (versions > 0 && !is_literal).then(|| (text.collect::<Vec<_>>().join("\n"), balanced(part)))
}

/// Returns the lines without control actions whose counterpart is elsewhere.
fn balanced(lines: &[&str]) -> String {
    let (mut open, mut removed): (Vec<Vec<usize>>, Vec<usize>) = (Vec::new(), Vec::new());
    for (at, line) in lines.iter().enumerate() {
        for found in CONTROL.captures_iter(line) {
            match (&found[1], open.last_mut()) {
                ("end", Some(_)) => drop(open.pop()),
                ("else", Some(block)) => block.push(at),
                ("end" | "else", None) => removed.push(at),
                _ => open.push(vec![at]),
            }
        }
    }
    removed.extend(open.into_iter().flatten());
    let kept = lines.iter().enumerate().filter(|(at, _)| !removed.contains(at));
    kept.map(|(_, line)| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helm::HelmVersion;

    const PARTIALS: &str = r#"{{- define "ingress.version" -}}
{{- if semverCompare "<1.19-0" .Capabilities.KubeVersion.Version -}}extensions/v1beta1{{- else -}}networking.k8s.io/v1{{- end -}}
{{- end -}}"#;

    fn chart(templates: &[(&str, &str)]) -> Chart {
        let file = |path: &str, text: &str| File { path: path.into(), data: text.as_bytes().into() };
        let mut files = vec![file("Chart.yaml", "apiVersion: v2\nname: site\nversion: 0.1.0\n")];
        files.push(file("values.yaml", "kind: Deployment\n"));
        files.push(file("templates/_helpers.tpl", PARTIALS));
        files.extend(templates.iter().map(|(path, text)| file(path, text)));
        Chart::from_files(files, HelmVersion::V3).unwrap()
    }

    fn check(template: &str, expected: &[Option<(&str, &str)>]) {
        let chart =
            chart(&[("templates/a.yaml", template), ("templates/b.yaml", "apiVersion: v1\nkind: {{ $none }}\n")]);
        let release = Release { name: "r".into(), namespace: "n".into(), revision: 1, is_upgrade: false };
        let found = chart.headers(&Values::default(), &release, &Capabilities::of(HelmVersion::V3));
        let own = found.iter().filter(|header| header.path == "site/templates/a.yaml");
        let objects: Vec<_> = own.map(|header| header.object.clone()).collect();
        let expected: Vec<_> =
            expected.iter().map(|object| object.map(|(v, k)| (v.to_owned(), k.to_owned()))).collect();
        assert_eq!(objects, expected, "{template}");
        let other = found.iter().find(|header| header.path == "site/templates/b.yaml").unwrap();
        assert_eq!((&*other.text, &other.object), ("apiVersion: v1\nkind: {{ $none }}", &None));
    }

    #[test]
    fn test_hooks_are_recognized() {
        let check = |annotation: &str, expected: bool| {
            let document = format!("kind: Pod\nmetadata:\n  annotations:\n    {annotation}\nspec: {{}}\n");
            assert_eq!(is_test_hook(&document), expected, "{annotation}");
        };
        for annotation in
            ["\"helm.sh/hook\": test", "helm.sh/hook: test-success", "'helm.sh/hook': \"test, test-failure\" # a"]
        {
            check(annotation, true);
        }
        for annotation in
            ["a: b", "helm.sh/hook: test,post-install", "helm.sh/hook: {{ .Values.hook }}", "helm.sh/hook-weight: test"]
        {
            check(annotation, false);
        }
        check("helm.sh/hook: test\n    helm.sh/hook: {{ .Values.hook }}", false);
    }

    #[test]
    fn computed_versions_and_kinds_are_executed_without_outer_conditions() {
        check("apiVersion: v1\nkind: ConfigMap\n", &[]);
        check(
            "{{- if .Values.ingress }}\n{{- $name := \"a\" }}\napiVersion: {{ include \"ingress.version\" . }}\nkind: Ingress\nmetadata:\n  \
             name: {{ $name }}\n{{- end }}\n",
            &[Some(("networking.k8s.io/v1", "Ingress"))],
        );
        check(
            "{{- if .Values.ingress -}}\n{{- if .Capabilities.APIVersions.Has \"networking.k8s.io/v1\" }}\napiVersion: networking.k8s.io/v1\n\
             {{- else }}\napiVersion: extensions/v1beta1\n{{- end }}\nkind: Ingress\nmetadata: {}\n{{- end }}\n",
            &[Some(("networking.k8s.io/v1", "Ingress"))],
        );
        check("kind: {{ .Values.kind }}\napiVersion: apps/v1\nspec: {}\n", &[Some(("apps/v1", "Deployment"))]);
        check(
            "{{- with .Values.none }}\n---\napiVersion: {{ .version }}\nkind: A\n{{- else }}\n---\napiVersion: {{ fail \"no\" }}\nkind: B\n",
            &[None, None],
        );
        check("{{- range $v := .Values.all }}\napiVersion: {{ $v }}\nkind: A\n{{- end }}\n", &[None]);
    }
}
