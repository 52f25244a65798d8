//! Adds a kind to a project of charts or roles.

use super::prompt::prompt_names;
use crate::error::{Error, Result, yaml_problem};
use crate::project::scaffold::api::Names;
use crate::project::scaffold::changes::Changes;
use crate::project::scaffold::chart::{self, CHARTS, ExistingChart};
use crate::project::scaffold::definition;
use crate::project::scaffold::role::{self, ExistingRole, ROLES};
use crate::project::scaffold::{case, sample, watches};
use crate::project::{FILE, Project, ProjectType, Resource, names};
use crate::render::terminal::print_labeled;
use crate::render::yaml;
use flyball_helm::Column;
use flyball_schema::{openapi, validate};
use serde_json::Value;
use std::path::Path;

/// Group of the kinds of existing charts, as in operator-sdk.
const GROUP: &str = "charts";
/// Version of the kinds of existing charts, as in operator-sdk.
const VERSION: &str = "v1alpha1";

/// Columns of the kinds of roles.
const COLUMNS: [Column; 3] = [
    ("Successful", "string", r#".status.conditions[?(@.type=="Successful")].status"#, 0),
    ("Message", "string", r#".status.conditions[?(@.status=="True")].message"#, 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
];

/// A kind to add.
#[derive(Debug, Default)]
pub(crate) struct NewKind<'a> {
    pub(crate) group: Option<&'a str>,
    pub(crate) version: Option<&'a str>,
    pub(crate) kind: Option<&'a str>,
    pub(crate) plural: Option<&'a str>,
    pub(crate) is_cluster_scoped: bool,
    /// An existing chart: its name on the command line, and its path.
    pub(crate) chart: Option<(&'a str, &'a Path)>,
    /// An existing role.
    pub(crate) role: Option<&'a Path>,
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
            print_labeled("note", error);
        }
    }
}

/// Rejects a role for a project without roles.
pub(crate) fn check_role(project: &Project, role: Option<&Path>) -> Result<()> {
    let (name, of) = (&project.project_name, project.project_type);
    match role.filter(|_| of != ProjectType::Ansible) {
        None => Ok(()),
        Some(role) => {
            let shown = role.display();
            Err(Error::new(format!("--role {shown}: project {name} is of type {of} and has no roles"))
                .hint("create a project for it: flyball init --ansible DIR"))
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

/// Adds a kind with its chart or role, the entry in `watches.yaml`, the CRD, a sample and a test case.
pub(crate) fn add(changes: &mut Changes, project: &mut Project, new: &NewKind<'_>) -> Result<AddedKind> {
    let existing = new.chart.map(|(given, path)| ExistingChart::open(given, path)).transpose()?;
    let existing_role = new.role.map(ExistingRole::open).transpose()?;
    let resource = resource(project, new, existing.as_ref())?;
    if let Some(known) = known(project, &resource) {
        if known.version != resource.version {
            let known = known.clone();
            return add_version(changes, project, &known, resource);
        }
        if !new.force {
            return Err(Error::new(format!("{} already exists in the project", resource.api_kind()))
                .hint("overwrite its files with --force"));
        }
    }

    let lower = resource.kind.to_lowercase();
    let (values, field, path, columns) = match (project.project_type, &existing, &existing_role) {
        (_, _, Some(role)) => (role.copy(changes)?, "role", role.name.clone(), &COLUMNS[..]),
        (ProjectType::Ansible, ..) => {
            (role::create(changes, &lower, &resource, new.force)?, "role", lower, &COLUMNS[..])
        }
        (_, Some(chart), _) => {
            let path = format!("{CHARTS}/{}", chart.name);
            (chart.copy(changes, new.force)?, "chart", path, &flyball_helm::COLUMNS[..])
        }
        (_, None, _) => {
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
    let sample_file = Names::new(project, &resource).sample;
    let file = format!("config/samples/{sample_file}");
    let sample = sample::of_values(&resource, &note, &values.text, &values.values);
    let errors = errors_of(&sample, &definition).into_iter();
    let errors = errors.map(|error| format!("{file} is invalid: {error}; edit it before you apply it")).collect();
    changes.create(&file, sample, new.force)?;
    let expected = match field {
        // Other roles and charts have other objects.
        "role" if existing_role.is_some() => vec![case::successful(&resource)],
        "role" => vec![case::deployment(&resource)],
        _ if existing.is_some() => vec![case::release(&resource)],
        _ => vec![case::release(&resource), case::deployment(&resource)],
    };
    case::create(changes, &resource, &sample_file, &expected, new.force)?;
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
                    Error::new(format!("the name of chart {} is not a kind name: {error}", chart.name))
                        .hint("set the kind: --kind Site")
                })?,
            };
            [new.group.unwrap_or(GROUP).to_owned(), new.version.unwrap_or(VERSION).to_owned(), kind]
        }
    };
    if group.is_empty() {
        return Err(Error::new("--group is empty: kinds of charts and roles cannot be in the core group")
            .hint("pass a group such as --group cache"));
    }
    let plural = new.plural.map_or_else(|| names::pluralize(&kind), str::to_owned);
    let (resource, controller, namespaced) = (true, true, !new.is_cluster_scoped);
    if !namespaced && project.project_type == ProjectType::Helm {
        return Err(Error::new(format!("{kind} cannot be cluster-scoped: a release and its objects need a namespace"))
            .hint("drop --namespaced=false, or use a role: flyball init --ansible DIR"));
    }
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

/// Finds the newest version of a kind that the project has.
fn known<'p>(project: &'p Project, resource: &Resource) -> Option<&'p Resource> {
    let is_of_kind = |other: &&Resource| (&other.group, &other.kind) == (&resource.group, &resource.kind);
    let same = project.resources.iter().filter(is_of_kind).find(|other| other.version == resource.version);
    same.or_else(|| project.resources.iter().rfind(is_of_kind))
}

/// Adds a version to a kind: to its CRD, in which it is the stored one, and with a sample. The chart or role reconciles
/// all objects in the new version.
fn add_version(
    changes: &mut Changes,
    project: &mut Project,
    known: &Resource,
    resource: Resource,
) -> Result<AddedKind> {
    let file = format!("config/crd/bases/{}_{}.yaml", known.group, known.plural);
    let text = changes.read(&file)?.ok_or_else(|| {
        Error::new(format!("{} exists in version {}, but {file} does not", known.kind, known.version))
            .hint("restore the file, or add the version to spec.versions of the CRD by hand")
    })?;
    let broken = |why: String| Error::new(format!("cannot add version {} to {file}: {why}", resource.version));
    let mut definition: Value = serde_saphyr::from_str(&text).map_err(|error| broken(yaml_problem(&error)))?;
    definition::add_version(&mut definition, &resource.version).map_err(broken)?;
    changes.put(&file, yaml::write(&definition))?;
    watches::set_version(changes, known, &resource.version)?;
    let [old, new] = [known, &resource].map(|resource| Names::new(project, resource).sample);
    let [old, new] = [old, new].map(|sample| format!("config/samples/{sample}"));
    let lines = [known, &resource].map(|resource| format!("apiVersion: {}/{}\n", resource.group, resource.version));
    if let Some(sample) = changes.read(&old)? {
        changes.create(&new, sample.replacen(&lines[0], &lines[1], 1), false)?;
    }
    project.resources.push(resource.clone());
    changes.put(FILE, project.text()?)?;
    Ok(AddedKind { resource, errors: Vec::new() })
}
