//! A kind: its types, its controller, a sample, a test.

use super::built_in::{self, BuiltInKind};
use super::changes::{Changes, order};
use super::template::fill;
use crate::error::Result;
use crate::project::names::escape_keyword;
use crate::project::{Project, Resource};

/// Path of the file that assembles the operator.
pub(crate) const LIB: &str = "src/lib.rs";

/// Names that the written code uses for other things. A kind of such a name has a type of another.
const TAKEN: &[&str] = &[
    "Action",
    "AdmissionRequest",
    "Api",
    "Box",
    "Condition",
    "ConfigMap",
    "Context",
    "Controller",
    "CustomResource",
    "CustomResourceExt",
    "Debug",
    "Default",
    "DeleteParams",
    "Deserialize",
    "Duration",
    "Err",
    "FieldError",
    "JsonSchema",
    "Namespace",
    "None",
    "ObjectMeta",
    "Ok",
    "Operator",
    "Option",
    "PostParams",
    "Reconcile",
    "ResourceExt",
    "Result",
    "Self",
    "Serialize",
    "Some",
    "Status",
    "Stored",
    "String",
    "Test",
    "ToString",
    "Vec",
    "Verdict",
    "Webhook",
];

/// Names of one version of a kind in the code.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) resource: Resource,
    /// The library, in which hyphens are underscores.
    pub(crate) library: String,
    /// The kind in small letters, with its group in front where another kind is called so.
    pub(crate) stem: String,
    /// Its type.
    pub(crate) kind_type: String,
    /// File name of the sample.
    pub(crate) sample: String,
}

impl Names {
    pub(crate) fn new(project: &Project, resource: &Resource) -> Self {
        let lower = resource.kind.to_lowercase();
        let short = resource.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
        let first = project.resources.iter().find(|other| other.kind.to_lowercase() == lower);
        let is_first = first.is_none_or(|first| first.group == resource.group);
        let is_known = built_in::find(&resource.group, &resource.version, &resource.kind).is_some();
        let is_used = TAKEN.contains(&resource.kind.as_str()) && !is_known;
        Self {
            library: project.project_name.replace('-', "_"),
            stem: if is_first { lower.clone() } else { format!("{}_{lower}", short.replace('-', "_")) },
            kind_type: if is_used { format!("{}Resource", resource.kind) } else { resource.kind.clone() },
            sample: format!("{short}_{}_{lower}.yaml", resource.version),
            resource: resource.clone(),
        }
    }

    /// Returns the module of its types within `api`.
    pub(crate) fn module(&self) -> String {
        format!("{}_{}", self.stem, self.resource.version)
    }

    /// Returns the path of its type: Kubernetes' own, or one in a module of the project, which is called so.
    pub(crate) fn type_path(&self, project: &str) -> String {
        let Resource { group, version, kind, foreign, .. } = &self.resource;
        match built_in::find(group, version, kind).filter(|_| *foreign) {
            Some(known) => known.path(),
            None => format!("{project}::api::{}::{}", self.module(), self.kind_type),
        }
    }

    /// Returns the module name of the kind.
    pub(crate) fn part(&self) -> String {
        escape_keyword(&self.stem)
    }

    /// Returns its group and version.
    pub(crate) fn api_version(&self) -> String {
        let Resource { group, version, .. } = &self.resource;
        if group.is_empty() { version.clone() } else { format!("{group}/{version}") }
    }

    /// Fills `use` lines and puts them in order.
    pub(crate) fn sorted(&self, lines: Vec<String>) -> String {
        let mut lines: Vec<String> = lines.iter().map(|line| self.fill(line, &[])).collect();
        lines.sort_by_key(|line| order(line));
        lines.join("\n")
    }

    /// Renders a template with the names of the kind, and further values.
    pub(crate) fn fill(&self, template: &str, more: &[(&str, &str)]) -> String {
        let Resource { group, version, kind, namespaced, .. } = &self.resource;
        let lower = kind.to_lowercase();
        let article = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { ["an", "An"] } else { ["a", "A"] };
        let objects = |of: &str| match namespaced {
            true => format!("test.api::<{of}>()"),
            false => format!("Api::<{of}>::all(test.client())"),
        };
        let text = fill(template, more);
        fill(
            &text,
            &[
                ("kind", kind.as_str()),
                ("a_kind", &format!("{} `{kind}`", article[0])),
                ("A_kind", &format!("{} {kind}", article[1])),
                ("group", group),
                ("version", version),
                ("api_version", &self.api_version()),
                ("lower", &lower),
                ("variable", &escape_keyword(&lower)),
                ("plural", &self.resource.plural),
                ("type", &self.kind_type),
                ("module", &self.module()),
                ("crate", &self.library),
                ("file", &self.sample),
                ("objects", &objects(&self.kind_type)),
                ("child", if *namespaced { "ConfigMap" } else { "Namespace" }),
                ("children", &objects(if *namespaced { "ConfigMap" } else { "Namespace" })),
            ],
        )
    }
}

/// Writes the types of a kind of the project, and adds its definition to the operator.
pub(crate) fn types(changes: &mut Changes, names: &Names, force: bool) -> Result<()> {
    let Resource { kind, plural, namespaced, .. } = &names.resource;
    let mut attributes = String::new();
    if names.kind_type != *kind {
        attributes += &format!("    root = \"{}\",\n", names.kind_type);
    }
    // The other values are the defaults of the derive macro.
    if *plural != crate::project::names::pluralize(kind) {
        attributes += &format!("    plural = \"{plural}\",\n");
    }
    if *namespaced {
        attributes += "    namespaced,\n";
    }
    let text = names.fill(include_str!("../../../templates/api.rs"), &[("attributes", &attributes)]);
    changes.create(&format!("src/api/{}.rs", names.module()), text, force)?;
    let sample = names.fill(include_str!("../../../templates/sample.yaml"), &[]);
    changes.create(&format!("config/samples/{}", names.sample), sample, force)?;
    definition(changes, names)
}

/// Makes the types a part of the library, and their definition one of the operator.
pub(crate) fn definition(changes: &mut Changes, names: &Names) -> Result<()> {
    changes.insert(LIB, "api", &[format!("pub mod {};", names.module())])?;
    changes.import(LIB, "use kube::CustomResourceExt;")?;
    changes.insert(LIB, "operator", &[format!("    .crd(api::{}::{}::crd())", names.module(), names.kind_type)])
}

/// Writes the controller of a kind of the project's own.
pub(crate) fn controller(changes: &mut Changes, names: &Names, force: bool) -> Result<()> {
    let body = match names.resource.namespaced {
        true => include_str!("../../../templates/body_namespaced.rs"),
        false => include_str!("../../../templates/body_cluster.rs"),
    };
    let text = names.fill(include_str!("../../../templates/controller.rs"), &[("body", body)]);
    reconciler(changes, names, text, force)
}

/// Writes the controller of a kind with existing types: built-in ones, or those in a module of the project.
pub(crate) fn controller_of_known(
    changes: &mut Changes,
    names: &Names,
    path: &str,
    definition: Option<&str>,
    force: bool,
) -> Result<()> {
    let uses = names
        .sorted(vec![format!("use {path};"), "use flyball::{Action, Context, Controller, Reconcile, Result};".into()]);
    let text = names.fill(include_str!("../../../templates/controller_known.rs"), &[("uses", &uses)]);
    reconciler(changes, names, text, force)?;
    let (constant, apply) = match definition {
        Some(path) => (
            format!("\nconst DEFINITION: &str = include_str!(\"../{path}\");\n"),
            "    test.apply(DEFINITION).await;\n",
        ),
        None => (String::new(), ""),
    };
    let gaps = [("definition", constant.as_str()), ("apply", apply)];
    let test = names.fill(include_str!("../../../templates/test_known.rs"), &gaps);
    changes.create(&format!("tests/{}.rs", names.stem), test, force)
}

fn reconciler(changes: &mut Changes, names: &Names, text: String, force: bool) -> Result<()> {
    let part = names.part();
    changes.create(&format!("src/controllers/{part}.rs"), text, force)?;
    changes.insert(LIB, "controllers", &[format!("pub mod {part};")])?;
    changes.insert(LIB, "operator", &[format!("    .controller(controllers::{part}::controller())")])
}

/// Writes the test of a kind of the project's own.
pub(crate) fn test(changes: &mut Changes, names: &Names, controller: bool, force: bool) -> Result<()> {
    let Resource { kind, namespaced, .. } = &names.resource;
    let mut own = [names.kind_type.clone(), format!("{kind}Spec")];
    own.sort();
    let mut uses = vec![
        format!("use {{{{crate}}}}::api::{{{{module}}}}::{{{}}};", own.join(", ")),
        "use {{crate}}::operator;".into(),
    ];
    if controller {
        uses.push("use flyball_cluster::testing::{Test, explore_crashes};".into());
        uses.push("use flyball_explore::Explorer;".into());
        uses.push("use kube::api::{DeleteParams, PostParams};".into());
        uses.push("use kube::core::ObjectMeta;".into());
        uses.push("use k8s_openapi::api::core::v1::{{child}};".into());
        uses.push("use std::time::Duration;".into());
    } else {
        uses.push("use flyball_cluster::testing::Test;".into());
        uses.push("use kube::api::PostParams;".into());
    }
    uses.extend((!namespaced).then(|| "use kube::Api;".into()));
    let uses = names.sorted(uses);
    let mut text = fill(include_str!("../../../templates/test_head.rs"), &[("uses", &uses)]);
    text += match controller {
        true => include_str!("../../../templates/test_controller.rs"),
        false => include_str!("../../../templates/test_sample.rs"),
    };
    text += include_str!("../../../templates/test_rules.rs");
    let value = match namespaced {
        true => "child.data.expect(\"it has data\")[\"message\"]",
        false => "child.metadata.annotations.expect(\"it has annotations\")[\"{{group}}/message\"]",
    };
    let sample = format!("{}-sample", kind.to_lowercase());
    let text = names.fill(&text, &[("says", value), ("sample", &sample)]);
    changes.create(&format!("tests/{}.rs", names.stem), text, force)
}

/// Writes the types of a foreign kind, and stores its definition for tests.
pub(crate) fn foreign(changes: &mut Changes, names: &Names, code: String, definition: &str, force: bool) -> Result<()> {
    changes.create(&format!("src/api/{}.rs", names.module()), code, force)?;
    changes.insert(LIB, "api", &[format!("pub mod {};", names.module())])?;
    let path = definition_path(names);
    // Another version of the kind has the same definition.
    let is_there = changes.read(&path)?.is_some_and(|known| known == definition);
    if is_there { Ok(()) } else { changes.create(&path, definition, force) }
}

/// Returns the path of the definition of a foreign kind.
pub(crate) fn definition_path(names: &Names) -> String {
    format!("config/foreign/{}.{}.yaml", names.resource.plural, names.resource.group)
}

/// Returns the project resource of a built-in kind.
pub(crate) fn known_resource(known: &BuiltInKind) -> Resource {
    Resource {
        group: known.group.into(),
        version: known.version.into(),
        kind: known.kind.into(),
        plural: known.plural.into(),
        namespaced: known.namespaced,
        foreign: true,
        ..Resource::default()
    }
}
