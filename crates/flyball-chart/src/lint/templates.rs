//! Rules for templates and rendered documents.

use super::source::{Entry, Source};
use super::{Lint, LintOptions, Severity, deprecations, names};
use crate::chart::{CrdFile, File};
use crate::helm::HelmVersion;
use crate::quote::quote;
use crate::release::Release;
use crate::render::{LintOutput, RenderOptions, lint_templates};
use crate::text::lossy;
use crate::yaml::{self, Data, Error};
use regex::bytes::Regex;
use std::sync::LazyLock;

const DIRECTORY: &str = "templates/";

static CRD_HOOK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#""?helm\.sh/hook"?:[\t\n\f\r ]+crd-install"#).expect("a constant pattern"));
static RELEASE_TIME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\.Release\.Time").expect("a constant pattern"));

pub(super) fn check(source: &Source, options: &LintOptions<'_>, lint: &mut Lint) {
    let helm = options.helm();
    match (source.entry("templates"), helm) {
        (Some(Entry::Folder), _) | (None, HelmVersion::V3) => {}
        (None, HelmVersion::V4) => {
            lint.rule(Severity::Warning, DIRECTORY, Err("directory does not exist".to_owned()));
            return;
        }
        (Some(Entry::File), _) => {
            let severity = helm.choose(Severity::Warning, Severity::Error);
            lint.rule(severity, DIRECTORY, Err("not a directory".to_owned()));
            return;
        }
    }
    let chart = match source.load(helm) {
        Ok(chart) => chart,
        Err(error) => {
            lint.rule(Severity::Error, DIRECTORY, Err(helm.go_types(&error.to_string())));
            return;
        }
    };
    lint.warnings.extend(chart.warnings().iter().cloned());
    chart.visit_crds(&mut |path, text| {
        lint.crds.push(CrdFile { path: inner_path(path).to_owned(), text: text.to_owned() });
    });
    let release = Release {
        name: "test-release".to_owned(),
        namespace: options.namespace.to_owned(),
        revision: 0,
        is_upgrade: false,
    };
    let render = RenderOptions {
        clock: options.clock.clone(),
        seed: options.seed.clone(),
        skip_schema_validation: options.skip_schema_validation,
        ..RenderOptions::default()
    };
    let linted = lint_templates(&chart, options.values, &release, options.capabilities, &render);
    let LintOutput { files, log, is_incomplete, error, manifests, problems } = linted;
    lint.warnings.extend(log);
    lint.is_incomplete = is_incomplete;
    // Values that do not match subcharts are reported by the installation.
    let Some(files) = files else {
        if let Some(error) = error {
            lint.rule(Severity::Error, DIRECTORY, Err(error.to_string()));
        }
        return;
    };
    check_files(chart.templates(), chart.name(), &files, options, lint);
    let inner = |path: &str| inner_path(path).to_owned();
    lint.objects = manifests;
    lint.objects.iter_mut().for_each(|object| object.path = inner(&object.path));
    lint.problems = problems.into_iter().map(|(path, message)| (inner(&path), message)).collect();
}

/// Returns a path relative to the chart.
fn inner_path(path: &str) -> &str {
    path.split_once('/').map_or(path, |(_, inner)| inner)
}

fn check_files(templates: &[File], chart: &str, files: &super::Files, options: &LintOptions<'_>, lint: &mut Lint) {
    let helm = options.helm();
    for template in templates {
        let path = template.path.as_str();
        lint.rule(Severity::Error, path, extension(path));
        if helm == HelmVersion::V3 {
            lint.rule(Severity::Warning, path, crd_hook(&template.data));
            lint.rule(Severity::Error, path, release_time(&template.data));
        }
        let end = extension_of(path);
        let is_yaml = match helm {
            HelmVersion::V3 => end == ".yaml",
            HelmVersion::V4 => end.eq_ignore_ascii_case(".yaml") || end.eq_ignore_ascii_case(".yml"),
        };
        let Some(text) = files.get(&format!("{chart}/{path}")).filter(|_| is_yaml) else { continue };
        if lossy(text).trim().is_empty() {
            continue;
        }
        lint.rule(Severity::Warning, path, top_indent(text));
        for document in yaml::documents(text) {
            let head = match document.and_then(|document| Head::read(document, helm)) {
                Ok(head) => head,
                Err(message) => {
                    lint.rule(Severity::Error, path, Err(format!("unable to parse YAML: {message}")));
                    return;
                }
            };
            let Some(head) = head else { continue };
            lint.rule(Severity::Warning, path, names::check(&head.kind, &head.name));
            let deprecation = deprecations::check(&head.api_version, &head.kind, options.capabilities);
            lint.rule(Severity::Warning, path, deprecation);
            lint.rule(Severity::Error, path, selector(&head, text));
            lint.rule(Severity::Error, path, list_annotations(&head, text, helm));
        }
    }
}

fn extension_of(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rfind('.').map_or("", |at| &name[at..])
}

fn extension(path: &str) -> Result<(), String> {
    match extension_of(path) {
        ".yaml" | ".yml" | ".tpl" | ".txt" => Ok(()),
        end => Err(format!("file extension '{end}' not valid. Valid extensions are .yaml, .yml, .tpl, or .txt")),
    }
}

fn crd_hook(template: &[u8]) -> Result<(), String> {
    match CRD_HOOK.is_match(template) {
        true => Err("manifest is a crd-install hook. This hook is no longer supported in v3 and all CRDs should also \
                     exist the crds/ directory at the top level of the chart"
            .to_owned()),
        false => Ok(()),
    }
}

fn release_time(template: &[u8]) -> Result<(), String> {
    match RELEASE_TIME.is_match(template) {
        true => {
            Err(".Release.Time has been removed in v3, please replace with the `now` function in your templates"
                .to_owned())
        }
        false => Ok(()),
    }
}

/// Checks that the first nonempty line is not indented.
fn top_indent(text: &[u8]) -> Result<(), String> {
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    match lines.into_iter().find(|line| !lossy(line).trim().is_empty()) {
        Some(line) if line.starts_with(b" ") || line.starts_with(b"\t") => {
            Err(format!("document starts with an illegal indent: {}, which may cause parsing problems", quote(line)))
        }
        _ => Ok(()),
    }
}

fn selector(head: &Head, text: &[u8]) -> Result<(), String> {
    let text = lossy(text);
    let is_workload = matches!(head.kind.as_str(), "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet");
    if !is_workload || text.contains("matchLabels") || text.contains("matchExpressions") {
        return Ok(());
    }
    let (kind, name) = (&head.kind, quote(head.name.as_bytes()));
    Err(format!("a {kind} must contain matchLabels or matchExpressions, and {name} does not"))
}

/// Checks that no item of a list has the annotation of Helm that applies only to objects.
fn list_annotations(head: &Head, text: &[u8], helm: HelmVersion) -> Result<(), String> {
    if head.kind != "List" {
        return Ok(());
    }
    const ITEM: &str = "struct { Metadata struct { Annotations map[string]string } }";
    const METADATA: &str = "struct { Annotations map[string]string }";
    let yaml_error = |error: Error| format!("unable to parse YAML: {error}");
    let list = yaml::read(text).map_err(yaml_error)?;
    let items = match field(&list, "items") {
        Data::Null => return Ok(()),
        Data::List(items) => items,
        other => return Err(yaml_error(other.mismatch("Go struct field .Items", &format!("[]{ITEM}")))),
    };
    let mut is_annotated = false;
    for item in items {
        let context = "Go struct field .Items";
        let metadata = field(map_or_null(item).ok_or_else(|| yaml_error(item.mismatch(context, ITEM)))?, "metadata");
        let context = "Go struct field .Items.Metadata";
        let metadata = map_or_null(metadata).ok_or_else(|| yaml_error(metadata.mismatch(context, METADATA)))?;
        match field(metadata, "annotations") {
            Data::Null => {}
            Data::Map(annotations) => {
                for (key, value) in annotations {
                    value.to_text(".Items.Metadata.Annotations").map_err(yaml_error)?;
                    is_annotated |= key == "helm.sh/resource-policy";
                }
            }
            other => {
                let context = "Go struct field .Items.Metadata.Annotations";
                return Err(yaml_error(other.mismatch(context, "map[string]string")));
            }
        }
    }
    let first = helm.choose("Annotation", "annotation");
    match is_annotated {
        true => Err(format!("{first} 'helm.sh/resource-policy' within List objects are ignored")),
        false => Ok(()),
    }
}

fn map_or_null(data: &Data) -> Option<&Data> {
    matches!(data, Data::Map(_) | Data::Null).then_some(data)
}

/// Returns a field of a mapping. Go's JSON decoder ignores the case of names.
fn field<'d>(data: &'d Data, name: &str) -> &'d Data {
    let Data::Map(fields) = data else { return &Data::Null };
    let found = fields
        .get(name)
        .or_else(|| fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value));
    found.unwrap_or(&Data::Null)
}

/// The fields of a document that the rules use.
pub(super) struct Head {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
}

impl Head {
    /// Parses a document; `None` if it has only comments.
    ///
    /// # Errors
    ///
    /// Returns the message of sigs.k8s.io/yaml if the document is not YAML, or a field has the wrong type.
    pub(super) fn read(text: &[u8], helm: HelmVersion) -> Result<Option<Head>, String> {
        let data = yaml::read(text).map_err(|error| error.to_string())?;
        let record = helm.choose("K8sYamlStruct", "k8sYamlStruct");
        Self::of(&data, record).map_err(|error| error.to_string())
    }

    fn of(data: &Data, record: &str) -> Result<Option<Head>, Error> {
        match data {
            Data::Null => return Ok(None),
            Data::Map(_) => {}
            other => return Err(other.mismatch("Go value", &format!("rules.{record}"))),
        }
        let api_version = field(data, "apiVersion").to_text(&format!("{record}.apiVersion"))?;
        let kind = field(data, "kind").to_text(&format!("{record}.Kind"))?;
        let metadata = field(data, "metadata");
        let metadata = map_or_null(metadata)
            .ok_or_else(|| metadata.mismatch(&format!("Go struct field {record}.Metadata"), "rules.k8sYamlMetadata"))?;
        let name = field(metadata, "name").to_text("k8sYamlMetadata.Metadata.Name")?;
        field(metadata, "namespace").to_text("k8sYamlMetadata.Metadata.Namespace")?;
        Ok(Some(Head { api_version, kind, name }))
    }
}
