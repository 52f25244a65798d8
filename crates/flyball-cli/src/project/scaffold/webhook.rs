//! The webhooks of a kind.

use super::api::{LIB, Names};
use super::changes::Changes;
use super::sample::name_of;
use super::template::fill;
use crate::error::{Error, Result, ResultExt};
use serde_json::{Value, json};

/// Creates the file for the webhooks of a kind unless it exists, and registers it with the operator.
pub(crate) fn create(changes: &mut Changes, names: &Names) -> Result<()> {
    let part = names.part();
    if changes.read(&path(names))?.is_none() {
        let uses =
            names.sorted(vec![format!("use {};", names.type_path("crate")), "use flyball::webhook::Webhook;".into()]);
        let text = names.fill(include_str!("../../../templates/webhook.rs"), &[("uses", &uses)]);
        changes.create(&path(names), text, false)?;
    }
    changes.insert(LIB, "webhooks", &[format!("pub mod {part};")])?;
    changes.insert(LIB, "operator", &[format!("    .webhook(webhooks::{part}::webhook())")])
}

fn path(names: &Names) -> String {
    format!("src/webhooks/{}.rs", names.part())
}

/// Adds a conversion webhook.
pub(crate) fn add_conversion(changes: &mut Changes, names: &Names, other: &Names) -> Result<()> {
    let line = format!("    .converts::<crate::api::{}::{}>()", other.module(), other.kind_type);
    changes.insert(&path(names), "webhook", &[line])
}

/// Adds a defaulting webhook.
pub(crate) fn add_defaulting(changes: &mut Changes, names: &Names) -> Result<()> {
    function(
        changes,
        names,
        "set_defaults",
        "    .defaults(set_defaults)",
        include_str!("../../../templates/defaulting.rs"),
    )?;
    for line in ["use flyball::webhook::AdmissionRequest;", "use flyball::Result;"] {
        changes.import(&path(names), line)?;
    }
    Ok(())
}

/// Adds a validating webhook.
pub(crate) fn add_validation(changes: &mut Changes, names: &Names) -> Result<()> {
    function(changes, names, "validate", "    .validates(validate)", include_str!("../../../templates/validation.rs"))?;
    for line in [
        "use flyball::webhook::AdmissionRequest;",
        "use flyball::webhook::Verdict;",
        "use flyball::FieldError;",
        "use flyball::Result;",
    ] {
        changes.import(&path(names), line)?;
    }
    Ok(())
}

fn function(changes: &mut Changes, names: &Names, name: &str, line: &str, template: &str) -> Result<()> {
    changes.insert(&path(names), "webhook", &[line.to_owned()])?;
    let text = changes.read(&path(names))?.unwrap_or_default();
    if text.contains(&format!("fn {name}(")) {
        return Ok(());
    }
    // For foreign kinds, tests call the functions directly.
    let visibility = if names.resource.foreign { "pub " } else { "" };
    changes.put(&path(names), text + &names.fill(template, &[("pub", visibility)]))
}

/// Writes the webhook test of a foreign kind, given a valid object.
pub(crate) fn test_of_foreign(
    changes: &mut Changes,
    names: &Names,
    defaulting: bool,
    validation: bool,
    sample: Option<Value>,
    force: bool,
) -> Result<()> {
    let functions = match (defaulting, validation) {
        (true, true) => "{set_defaults, validate}",
        (true, false) => "set_defaults",
        _ => "validate",
    };
    let mut object = sample.unwrap_or_else(|| json!({"apiVersion": names.api_version(), "kind": names.resource.kind}));
    object["metadata"] = json!({"name": "NAME"});
    let object = serde_json::to_string(&object).context("cannot write a sample")?.replacen(r#""NAME""#, "name", 1);
    let uses = names.sorted(vec![
        format!("use {};", names.type_path(&names.library)),
        "use flyball::webhook::AdmissionRequest;".into(),
        "use serde_json::{from_value, json};".into(),
        format!("use {{{{crate}}}}::webhooks::{}::{functions};", names.part()),
    ]);
    let gaps = [("uses", uses.as_str()), ("object", &object)];
    let mut text = fill(include_str!("../../../templates/test_webhook_foreign.rs"), &gaps);
    if defaulting {
        text += include_str!("../../../templates/test_defaulting_foreign.rs");
    }
    if validation {
        text += include_str!("../../../templates/test_validation_foreign.rs");
    }
    let text = names.fill(&text, &[]);
    changes.create(&format!("tests/{}_{}.rs", names.stem, test_name(defaulting, validation)), text, force)
}

/// Returns the name of the test for these webhooks.
fn test_name(defaulting: bool, validation: bool) -> &'static str {
    match (defaulting, validation) {
        (true, true) => "webhook",
        (true, false) => "defaulting",
        _ => "validation",
    }
}

/// Writes the webhook test of a kind.
pub(crate) fn test(
    changes: &mut Changes,
    names: &Names,
    defaulting: bool,
    validation: bool,
    force: bool,
) -> Result<()> {
    let file = &names.sample;
    let Some(sample) = changes.read(&format!("config/samples/{file}"))? else {
        return Err(Error::new(format!("config/samples/{file} not found; the webhook's test needs it"))
            .hint(format!("add a {} there, with a metadata.name", names.resource.kind)));
    };
    let name = name_of(&sample, file)?;
    let mut uses = vec![
        "use flyball_cluster::testing::Test;".to_owned(),
        "use {{crate}}::api::{{module}}::{{type}};".into(),
        "use {{crate}}::operator;".into(),
    ];
    uses.extend(validation.then(|| "use kube::api::{ObjectMeta, PostParams};".into()));
    uses.extend((!names.resource.namespaced).then(|| "use kube::Api;".into()));
    let mut text = include_str!("../../../templates/test_webhook_head.rs").to_owned();
    if defaulting {
        text += include_str!("../../../templates/test_defaulting.rs");
    }
    if validation {
        text += include_str!("../../../templates/test_validation.rs");
    }
    let text = names.fill(&fill(&text, &[("uses", &names.sorted(uses)), ("sample", &name)]), &[]);
    changes.create(&format!("tests/{}_{}.rs", names.stem, test_name(defaulting, validation)), text, force)
}
