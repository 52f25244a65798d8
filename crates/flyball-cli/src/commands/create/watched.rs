//! Adds a kind to a project of charts or roles.

use super::prompt::prompt_names;
use crate::error::{Error, Result};
use crate::project::scaffold::api::Names;
use crate::project::scaffold::changes::Changes;
use crate::project::scaffold::chart::{self, CHARTS, ExistingChart};
use crate::project::scaffold::definition::{self, Column};
use crate::project::scaffold::role::{self, ROLES};
use crate::project::scaffold::{sample, watches};
use crate::project::{FILE, Project, ProjectType, Resource, names};
use crate::render::terminal::complain;
use crate::render::yaml;
use flyball_schema::{openapi, validate};
use serde_json::Value;
use std::path::Path;

/// Group of the kinds of existing charts, as in operator-sdk.
const GROUP: &str = "charts";
/// Version of the kinds of existing charts, as in operator-sdk.
const VERSION: &str = "v1alpha1";

/// Columns of the kinds of roles.
const COLUMNS: [Column; 3] = [
    ["Successful", "string", r#".status.conditions[?(@.type=="Successful")].status"#],
    ["Message", "string", r#".status.conditions[?(@.status=="True")].message"#],
    ["Age", "date", ".metadata.creationTimestamp"],
];

/// A kind to add.
#[derive(Debug, Default)]
pub(crate) struct NewKind<'a> {
    pub(crate) group: Option<&'a str>,
    pub(crate) version: Option<&'a str>,
    pub(crate) kind: Option<&'a str>,
    pub(crate) plural: Option<&'a str>,
    /// An existing chart: its name on the command line, and its path.
    pub(crate) chart: Option<(&'a str, &'a Path)>,
    pub(crate) force: bool,
}

/// A kind that was added.
#[derive(Debug)]
pub(crate) struct AddedKind {
    pub(crate) resource: Resource,
    /// Errors of the sample: values that the schema of the chart requires, and that have no default.
    errors: Vec<String>,
}

impl AddedKind {
    /// Prints a note if the sample is invalid.
    pub(crate) fn print_errors(&self) {
        for error in &self.errors {
            complain("note", error);
        }
    }
}

/// Rejects a chart for a project without charts.
pub(crate) fn check_chart(project: &Project, chart: Option<&str>) -> Result<()> {
    let (name, of) = (&project.project_name, project.project_type);
    match chart.filter(|_| of != ProjectType::Helm) {
        None => Ok(()),
        Some(chart) => Err(Error::new(format!("--chart {chart}: project {name} is of type {of} and has no charts"))
            .hint("create a project for it: flyball init --helm --chart CHART DIR")),
    }
}

/// Adds a kind with its chart or role, the entry in `watches.yaml`, the CRD and a sample.
pub(crate) fn add(changes: &mut Changes, project: &mut Project, new: &NewKind<'_>) -> Result<AddedKind> {
    let existing = new.chart.map(|(given, path)| ExistingChart::open(given, path)).transpose()?;
    let resource = resource(project, new, existing.as_ref())?;
    check_new(project, &resource, new.force)?;

    let lower = resource.kind.to_lowercase();
    let (values, field, path, columns) = match (project.project_type, &existing) {
        (ProjectType::Ansible, _) => {
            (role::create(changes, &lower, &resource.kind, new.force)?, "role", lower, &COLUMNS[..])
        }
        (_, Some(chart)) => {
            let path = format!("{CHARTS}/{}", chart.name);
            (chart.copy(changes, new.force)?, "chart", path, &flyball_helm::COLUMNS[..])
        }
        (_, None) => {
            let values = chart::create(changes, &lower, &resource.kind, new.force)?;
            (values, "chart", format!("{CHARTS}/{lower}"), &flyball_helm::COLUMNS[..])
        }
    };
    watches::add_entry(changes, &resource, field, &path)?;
    let kind = &resource.kind;
    let (description, spec, note) = match field {
        "role" => (
            format!("{kind} is reconciled by the role in {ROLES}/{path}."),
            "Variables of the role.",
            format!("Variables of {ROLES}/{path}, in camel case, with their defaults."),
        ),
        _ => (
            format!("{kind} is a release of the chart in {path}."),
            "Values of the chart.",
            format!("Values of {path}, with their defaults."),
        ),
    };
    let mut schema = values.spec_schema();
    schema["description"] = spec.into();
    let definition = definition::of(&resource, &description, schema, columns);
    let file = format!("config/crd/bases/{}_{}.yaml", resource.group, resource.plural);
    changes.create(&file, yaml::write(&definition), new.force)?;
    let file = format!("config/samples/{}", Names::new(project, &resource).sample);
    let sample = sample::of_values(&resource, &note, &values.text, &values.values);
    let errors = errors_of(&sample, &definition).into_iter();
    let errors = errors.map(|error| format!("{file} is invalid: {error}; edit it before you apply it")).collect();
    changes.create(&file, sample, new.force)?;
    if project.resource(&resource.group, &resource.version, &resource.kind).is_none() {
        project.resources.push(resource.clone());
    }
    changes.put(FILE, project.text()?)?;
    Ok(AddedKind { resource, errors })
}

/// Validates a sample against a CRD of one version.
fn errors_of(sample: &str, definition: &Value) -> Vec<String> {
    let object: Value = serde_saphyr::from_str(sample).unwrap_or_default();
    let schema = openapi::read(definition.pointer("/spec/versions/0/schema/openAPIV3Schema"));
    validate::validate(schema.node(), &object, None, "").iter().map(ToString::to_string).collect()
}

/// Determines the names of the kind.
fn resource(project: &Project, new: &NewKind<'_>, chart: Option<&ExistingChart>) -> Result<Resource> {
    let [group, version, kind] = match chart {
        None => prompt_names([new.group, new.version, new.kind])?,
        Some(chart) => {
            let kind = match new.kind {
                Some(kind) => kind.to_owned(),
                None => names::kind(&chart.kind()).map_err(|error| {
                    Error::new(format!("the name of chart {} is no name of a kind: {error}", chart.name))
                        .hint("name the kind: --kind Site")
                })?,
            };
            [new.group.unwrap_or(GROUP).to_owned(), new.version.unwrap_or(VERSION).to_owned(), kind]
        }
    };
    if group.is_empty() {
        return Err(Error::new("--group is empty: kinds of charts and roles cannot be in the core group")
            .hint("pass a group such as --group cache"));
    }
    let plural = new.plural.map_or_else(|| names::pluralized(&kind), str::to_owned);
    let (resource, controller, namespaced) = (true, true, true);
    Ok(Resource {
        group: project.group(&group),
        version,
        kind,
        plural,
        namespaced,
        resource,
        controller,
        ..Resource::default()
    })
}

/// Rejects a kind that the project has, and further versions, which one chart or role cannot distinguish.
fn check_new(project: &Project, resource: &Resource, force: bool) -> Result<()> {
    let is_of_kind = |other: &&Resource| (&other.group, &other.kind) == (&resource.group, &resource.kind);
    let Some(known) = project.resources.iter().find(is_of_kind) else { return Ok(()) };
    let file = format!("config/crd/bases/{}_{}.yaml", known.group, known.plural);
    match known.version == resource.version {
        true if force => Ok(()),
        true => Err(Error::new(format!("{} already exists in the project", resource.api_kind()))
            .hint("overwrite its files with --force")),
        false => Err(Error::new(format!("{} already exists in version {}", resource.kind, known.version))
            .hint(format!("add version {} to spec.versions of {file}", resource.version))),
    }
}
