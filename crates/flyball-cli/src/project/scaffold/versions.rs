//! Additional versions of a kind.
//!
//! Its types begin as a copy of those of the first version, in which objects are stored. The generated conversions
//! below the copy are called by the operator's webhook. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>.

use super::api::{self, Names};
use super::changes::Changes;
use super::sample::name_of;
use super::template::fill;
use super::webhook;
use crate::error::{Error, Result};

/// Writes another version of a kind.
pub(crate) fn add(changes: &mut Changes, names: &Names, first: &Names, force: bool) -> Result<()> {
    let source = format!("src/api/{}.rs", first.module());
    let hint = format!("restore it, or write the types of {} by hand", names.resource.api_kind());
    let Some(text) = changes.read(&source)? else {
        return Err(Error::new(format!("{source} not found; the new version is a copy of it")).hint(hint));
    };
    let of = |names: &Names| format!("version = \"{}\"", names.resource.version);
    if text.matches(&of(first)).count() != 1 {
        let what = format!("{source} must contain `{}` exactly once", of(first));
        return Err(Error::new(what).hint(hint));
    }
    // Conversions of the first version are not copied.
    let text = text.split("\nimpl TryFrom<super::").next().unwrap_or(&text).replacen(&of(first), &of(names), 1);
    let mut text = text.replace(&format!("`{}`", first.api_version()), &format!("`{}`", names.api_version()));
    let hub = first.module();
    text += &names.fill(include_str!("../../../templates/conversion.rs"), &[("hub", &hub)]);
    changes.create(&format!("src/api/{}.rs", names.module()), text, force)?;
    api::definition(changes, names)?;

    let sample = match changes.read(&format!("config/samples/{}", first.sample))? {
        Some(text) => text.replacen(&first.api_version(), &names.api_version(), 1),
        None => names.fill(include_str!("../../../templates/sample.yaml"), &[]),
    };
    // Samples are applied together, and each is an object of its own.
    let (first_name, version) = (name_of(&sample, &first.sample)?, &names.resource.version);
    let sample = sample.replacen(&format!("name: {first_name}"), &format!("name: {first_name}-{version}"), 1);
    let name = name_of(&sample, &names.sample)?;
    changes.create(&format!("config/samples/{}", names.sample), sample, force)?;
    webhook::create(changes, first)?;
    webhook::add_conversion(changes, first, names)?;

    let mut uses = vec![
        "use flyball_cluster::testing::Test;".to_owned(),
        "use serde_json::json;".into(),
        format!("use {{{{crate}}}}::api::{hub}::{{{{type}}}} as Stored;"),
        "use {{crate}}::api::{{module}}::{{type}};".into(),
        "use {{crate}}::operator;".into(),
    ];
    uses.extend((!names.resource.namespaced).then(|| "use kube::Api;".into()));
    let stored = names.fill("{{objects}}", &[]).replace(&format!("<{}>", names.kind_type), "<Stored>");
    let gaps = [("uses", names.sorted(uses)), ("sample", name), ("stored", stored)];
    let gaps: Vec<(&str, &str)> = gaps.iter().map(|(gap, text)| (*gap, text.as_str())).collect();
    let test = names.fill(&fill(include_str!("../../../templates/test_versions.rs"), &gaps), &[]);
    changes.create(&format!("tests/{}.rs", names.module()), test, force)
}
