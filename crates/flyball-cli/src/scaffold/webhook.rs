//! The webhooks of a kind.

use super::api::{LIB, Names};
use super::changes::Changes;
use super::template::fill;
use super::versions::name_of;
use crate::error::{Error, Result};

/// Makes sure that there is a file for the webhooks of a kind, and that the operator knows it.
pub(crate) fn open(changes: &mut Changes, names: &Names) -> Result<()> {
    let part = names.part();
    if changes.read(&path(names))?.is_none() {
        let text = names.fill(include_str!("../../templates/webhook.rs"), &[]);
        changes.create(&path(names), text, false)?;
    }
    changes.insert(LIB, "webhooks", &[format!("pub mod {part};")])?;
    changes.insert(LIB, "operator", &[format!("    .webhook(webhooks::{part}::webhook())")])
}

fn path(names: &Names) -> String {
    format!("src/webhooks/{}.rs", names.part())
}

/// Has objects converted to another version and back.
pub(crate) fn converts(changes: &mut Changes, names: &Names, other: &Names) -> Result<()> {
    let line = format!("    .converts::<crate::api::{}::{}>()", other.module(), other.kind_type);
    changes.insert(&path(names), "webhook", &[line])
}

/// Has objects completed.
pub(crate) fn completes(changes: &mut Changes, names: &Names) -> Result<()> {
    function(changes, names, "complete", "    .defaults(complete)", include_str!("../../templates/defaulting.rs"))?;
    changes.import(&path(names), "use flyball::{AdmissionRequest, Result};")
}

/// Has objects judged.
pub(crate) fn judges(changes: &mut Changes, names: &Names) -> Result<()> {
    function(changes, names, "judge", "    .validates(judge)", include_str!("../../templates/validation.rs"))?;
    for line in
        ["use flyball::webhook::Verdict;", "use flyball::{AdmissionRequest, Result};", "use flyball::FieldError;"]
    {
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
    changes.put(&path(names), text + &names.fill(template, &[]))
}

/// Writes the test of what a kind is asked about.
pub(crate) fn test(changes: &mut Changes, names: &Names, completes: bool, judges: bool, force: bool) -> Result<()> {
    let file = &names.sample;
    let Some(sample) = changes.read(&format!("config/samples/{file}"))? else {
        return Err(Error::new(format!("there is no config/samples/{file}, with which the webhook is to be tested"))
            .hint(format!("write one {} there, with a metadata.name", names.resource.kind)));
    };
    let name = name_of(&sample, file)?;
    let mut uses = vec![
        "use flyball_cluster::testing::Test;".to_owned(),
        "use {{crate}}::api::{{module}}::{{type}};".into(),
        "use {{crate}}::operator;".into(),
    ];
    uses.extend(judges.then(|| "use kube::api::{ObjectMeta, PostParams};".into()));
    uses.extend((!names.resource.namespaced).then(|| "use kube::Api;".into()));
    let mut text = include_str!("../../templates/test_webhook_head.rs").to_owned();
    if completes {
        text += include_str!("../../templates/test_defaulting.rs");
    }
    if judges {
        text += include_str!("../../templates/test_validation.rs");
    }
    let text = names.fill(&fill(&text, &[("uses", &names.sorted(uses)), ("sample", &name)]), &[]);
    let duties = if completes && judges {
        "webhook"
    } else if completes {
        "defaulting"
    } else {
        "validation"
    };
    changes.create(&format!("tests/{}_{duties}.rs", names.stem), text, force)
}
