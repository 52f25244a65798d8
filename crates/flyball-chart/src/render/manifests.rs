//! Splits the output of templates into documents, and separates hooks from manifests by their annotations.

use super::coalesce::Log;
use super::order::sort_by_kind;
use super::outline;
use super::{DeletePolicy, Hook, HookEvent, Manifest, NOTES, RenderError, RenderedChart};
use crate::context::RenderContext;
use crate::helm::HelmVersion;
use crate::memory::{MemoryCharge, size_of_json};
use crate::message;
use crate::quote::quote;
use crate::text::{Text, lossy};

use crate::yaml::{self, Data, Error};
use regex::bytes::Regex;
use std::collections::BTreeMap;
use std::sync::LazyLock;

static SEPARATOR: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:^|[\t\n\f\r ]*\n)---[\t\n\f\r ]*").expect("a constant pattern"));

/// Documents of a release.
const MAX_DOCUMENTS: usize = 100_000;

/// The documents of a string.
pub(crate) fn split(text: &[u8]) -> Vec<&[u8]> {
    let trimmed = text.trim_ascii();
    SEPARATOR.split(trimmed).filter(|part| !part.is_empty()).map(<[u8]>::trim_ascii).collect()
}

/// The fields of a document that Helm decodes.
struct Head {
    kind: String,
    annotations: BTreeMap<String, String>,
}

impl Head {
    fn read(data: &Data, helm: HelmVersion) -> Result<Head, Error> {
        let mut head = Head { kind: String::new(), annotations: BTreeMap::new() };
        let fields = match data {
            Data::Null => return Ok(head),
            Data::Map(fields) => fields,
            other => return Err(other.mismatch("Go value", helm.choose("releaseutil.SimpleHead", "util.SimpleHead"))),
        };
        const METADATA: &str =
            "struct { Name string \"json:\\\"name\\\"\"; Annotations map[string]string \"json:\\\"annotations\\\"\" }";
        if let Some(version) = fields.get("apiVersion") {
            version.to_text("SimpleHead.apiVersion")?;
        }
        if let Some(kind) = fields.get("kind") {
            head.kind = kind.to_text("SimpleHead.kind")?;
        }
        let metadata = match fields.get("metadata") {
            None | Some(Data::Null) => return Ok(head),
            Some(Data::Map(metadata)) => metadata,
            Some(other) => return Err(other.mismatch("Go struct field SimpleHead.metadata", METADATA)),
        };
        if let Some(name) = metadata.get("name") {
            name.to_text(".metadata.name")?;
        }
        match metadata.get("annotations") {
            None | Some(Data::Null) => {}
            Some(Data::Map(annotations)) => {
                for (key, value) in annotations {
                    head.annotations.insert(key.clone(), value.to_text(".metadata.annotations")?);
                }
            }
            Some(other) => return Err(other.mismatch("Go struct field .metadata.annotations", "map[string]string")),
        }
        Ok(head)
    }
}

/// Replaces all data with numbered placeholders.
pub(super) fn outlined(text: &Text) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    for (number, mark) in text.marks().iter().enumerate() {
        out.extend(&text[at..mark.start]);
        out.extend(outline::placeholder(number).bytes());
        at = mark.end;
    }
    out.extend(&text[at..]);
    out
}

/// Sorts the output of templates into manifests and hooks.
pub(super) fn collect(
    files: &BTreeMap<String, Text>,
    context: &RenderContext<'_>,
    log: &mut Log,
) -> Result<RenderedChart, RenderError> {
    let mut manifests = Vec::new();
    let mut hooks = Vec::new();
    let mut charge = MemoryCharge::default();
    for (path, text) in files.iter().filter(|(path, _)| !path.ends_with(NOTES)) {
        context.charge(text.len() / 4, text.len() * 4).map_err(RenderError::Template)?;
        let documents = split(text);
        let has_data = !text.marks().is_empty();
        let outlined = if has_data { outlined(text) } else { Vec::new() };
        let outlines = split(&outlined);
        for (at, document) in documents.iter().copied().enumerate() {
            let problem =
                |message: String| RenderError::Manifest { path: path.clone(), message, output: String::new() };
            if manifests.len() + hooks.len() >= MAX_DOCUMENTS {
                return Err(problem(format!("more than {MAX_DOCUMENTS} documents")));
            }
            let data = yaml::read(document).map_err(|error| problem(message::write(error)))?;
            let head = Head::read(&data, context.helm).map_err(|error| problem(message::write(error)))?;
            let text = lossy(document).into_owned();
            let object = data.into_json();
            charge.add(size_of_json(&object) * 2 + text.len());
            context.charge(1, 0).map_err(RenderError::Template)?;
            // If data contains document separators, the outlines cannot be assigned to documents.
            let outline = match outlines.get(at).filter(|_| outlines.len() == documents.len()) {
                _ if !has_data => None,
                Some(outline) if *outline == document => None,
                Some(outline) => Some(yaml::read(outline).map_or(serde_json::Value::Null, Data::into_json)),
                None => Some(serde_json::Value::Null),
            };
            let manifest = Manifest { path: path.clone(), text, object, outline };
            match head.annotations.get("helm.sh/hook") {
                None => manifests.push((head.kind, manifest)),
                Some(events) => match hook(manifest, events, &head.annotations) {
                    Some(hook) => hooks.push((head.kind, hook)),
                    None => log.push(context.helm.choose(
                        format!("info: skipping unknown hook: {}", quote(events.as_bytes())),
                        format!("level=INFO msg=\"skipping unknown hooks\" hookTypes={events}"),
                    )),
                },
            }
        }
    }
    sort_by_kind(context.helm, &mut manifests, |(kind, _)| kind);
    sort_by_kind(context.helm, &mut hooks, |(kind, _)| kind);
    Ok(RenderedChart {
        manifests: manifests.into_iter().map(|(_, manifest)| manifest).collect(),
        hooks: hooks.into_iter().map(|(_, hook)| hook).collect(),
        ..RenderedChart::default()
    })
}

/// Returns a hook; `None` if one of its events is unknown.
fn hook(manifest: Manifest, events: &str, annotations: &BTreeMap<String, String>) -> Option<Hook> {
    let words = |text: &str| text.split(',').map(|word| word.trim().to_lowercase()).collect::<Vec<_>>();
    let events = words(events)
        .iter()
        .map(|word| {
            Some(match word.as_str() {
                "pre-install" => HookEvent::PreInstall,
                "post-install" => HookEvent::PostInstall,
                "pre-delete" => HookEvent::PreDelete,
                "post-delete" => HookEvent::PostDelete,
                "pre-upgrade" => HookEvent::PreUpgrade,
                "post-upgrade" => HookEvent::PostUpgrade,
                "pre-rollback" => HookEvent::PreRollback,
                "post-rollback" => HookEvent::PostRollback,
                "test" | "test-success" => HookEvent::Test,
                _ => return None,
            })
        })
        .collect::<Option<_>>()?;
    let policies = annotations.get("helm.sh/hook-delete-policy").map(|text| words(text)).unwrap_or_default();
    let policy = |word: &String| match word.as_str() {
        "before-hook-creation" => Some(DeletePolicy::BeforeHookCreation),
        "hook-succeeded" => Some(DeletePolicy::HookSucceeded),
        "hook-failed" => Some(DeletePolicy::HookFailed),
        _ => None,
    };
    let weight = annotations.get("helm.sh/hook-weight").and_then(|text| text.parse().ok()).unwrap_or(0);
    Some(Hook { manifest, events, weight, delete_policies: policies.iter().filter_map(policy).collect() })
}
