//! The file `PROJECT`, in which scaffolding commands record the generated kinds.
//!
//! It is beside the project's Cargo.toml. Unknown content is preserved.

use super::names;
use crate::error::{Error, Result, ResultExt, yaml_problem_with_excerpt};
use crate::files::WATCHES;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the file.
pub(crate) const FILE: &str = "PROJECT";
/// Version of the layout of a project.
pub(crate) const LAYOUT: &str = "flyball/1";
/// First lines of the file.
const HEAD: &str = "# Written by `flyball init` and `flyball create`, which read and extend it.\n";

/// A project, from its file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Project {
    pub(crate) layout: String,
    /// Domain of its API groups, such as `acme.io`.
    pub(crate) domain: String,
    /// Name of the package and of the operator.
    pub(crate) project_name: String,
    #[serde(default, rename = "type", skip_serializing_if = "ProjectType::is_rust")]
    pub(crate) project_type: ProjectType,
    /// Source repository, such as `github.com/acme/redis-operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) repo: Option<String>,
    /// In the order in which they were created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Budget::is_none")]
    pub(crate) budget: Budget,
    #[serde(flatten)]
    unknown: Map<String, Value>,
    /// The directory that the file is in.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}

/// Language or kind of content of an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProjectType {
    /// A crate.
    #[default]
    Rust,
    /// Charts, in a `watches.yaml`.
    Helm,
    /// Roles and playbooks, in a `watches.yaml`.
    Ansible,
}

impl ProjectType {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_rust(&self) -> bool {
        *self == Self::Rust
    }
}

impl fmt::Display for ProjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rust => "Rust",
            Self::Helm => "Helm",
            Self::Ansible => "Ansible",
        })
    }
}

/// Budget of API calls, see `flyball bench`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Budget {
    /// API calls for each object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calls_per_object: Option<f64>,
    /// API calls in an hour without work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calls_per_idle_hour: Option<f64>,
}

/// One version of a kind that the project deals with.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    /// Whole group, such as `cache.acme.io` or `apps`; empty for Kubernetes' core group.
    #[serde(default)]
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    #[serde(default)]
    pub(crate) namespaced: bool,
    /// Types belong to the project; the definition is among its manifests.
    #[serde(default)]
    pub(crate) resource: bool,
    /// Reconciled by a controller of the project.
    #[serde(default)]
    pub(crate) controller: bool,
    #[serde(default, skip_serializing_if = "Webhooks::is_none")]
    pub(crate) webhooks: Webhooks,
    /// Defined by Kubernetes or another operator.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) foreign: bool,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

/// Webhooks of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Webhooks {
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) defaulting: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) validation: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) conversion: bool,
}

/// Returns true if the file of a project is one of kubebuilder's or of the operator-sdk's.
fn is_of_another_tool(text: &str) -> bool {
    let layout = serde_saphyr::from_str::<Value>(text).map(|project| project["layout"].clone()).unwrap_or_default();
    let theirs = [".kubebuilder.io/", ".operatorframework.io/"];
    layout.is_array() || layout.as_str().is_some_and(|layout| theirs.iter().any(|name| layout.contains(name)))
}

impl Budget {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Webhooks {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Resource {
    /// Returns its name in messages, such as `cache.acme.io/v1alpha1 Redis`.
    pub(crate) fn api_kind(&self) -> String {
        let slash = if self.group.is_empty() { "" } else { "/" };
        format!("{}{slash}{} {}", self.group, self.version, self.kind)
    }

    fn check(&self) -> Result<(), String> {
        let wrong = |what: &str, error: String| format!("resource {}: {what} {error}", self.api_kind());
        if !self.group.is_empty() {
            names::group(&self.group).map_err(|error| wrong("group", error))?;
        }
        names::version(&self.version).map_err(|error| wrong("version", error))?;
        names::kind(&self.kind).map_err(|error| wrong("kind", error))?;
        names::plural(&self.plural).map_err(|error| wrong("plural", error))?;
        Ok(())
    }
}

impl Project {
    pub(crate) fn new(folder: &Path, name: &str, domain: &str, project_type: ProjectType, repo: Option<&str>) -> Self {
        Self {
            layout: LAYOUT.into(),
            domain: domain.into(),
            project_name: name.into(),
            project_type,
            repo: repo.map(str::to_owned),
            resources: Vec::new(),
            budget: Budget::default(),
            unknown: Map::new(),
            folder: folder.into(),
        }
    }

    /// Finds the project of a directory: its own, or that of the nearest parent directory. Projects of other tools,
    /// with a file of the same name, are ignored.
    pub(crate) fn find(folder: &Path) -> Result<Option<Self>> {
        let folder = folder.canonicalize().context(format!("cannot read {}", folder.display()))?;
        let Some(folder) = folder.ancestors().find(|folder| folder.join(FILE).is_file()) else { return Ok(None) };
        let path = folder.join(FILE);
        let text = fs::read_to_string(&path).context(format!("cannot read {}", path.display()))?;
        if is_of_another_tool(&text) {
            return Ok(None);
        }
        let remedy = "fix it, or restore it from version control";
        let broken = |error: String| Error::new(format!("cannot parse {}: {error}", path.display())).hint(remedy);
        let project = Self::parse(&text).map_err(broken)?;
        Ok(Some(Self { folder: folder.into(), ..project }))
    }

    /// Finds the project that the current directory is in.
    pub(crate) fn here() -> Result<Self> {
        Self::find(Path::new("."))?.ok_or_else(|| {
            let error = Error::new("no Flyball project found here or in a parent directory");
            match Path::new(WATCHES).is_file() {
                true => error.hint(format!(
                    "for this {WATCHES}, write a file {FILE}, instead of one of operator-sdk, with the fields layout: \
                     {LAYOUT}, domain: example.com, projectName: NAME and type: helm or ansible"
                )),
                false => {
                    error.hint("create one: flyball init --domain example.com, with --helm or --ansible if not in Rust")
                }
            }
        })
    }

    /// Finds the project that the current directory is in, for a command that generates Rust code.
    pub(crate) fn of_rust(command: &str) -> Result<Self> {
        let project = Self::here()?;
        if project.project_type.is_rust() {
            return Ok(project);
        }
        let (name, of) = (&project.project_name, project.project_type);
        Err(Error::new(format!("{command} generates Rust code, and project {name} is of type {of}"))
            .hint("write this part as an operator in Rust: flyball init --domain example.com DIR"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let project: Self = serde_saphyr::from_str(text).map_err(|error| yaml_problem_with_excerpt(&error))?;
        if project.layout != LAYOUT {
            return Err(format!("unsupported layout {:?} (expected {LAYOUT:?})", project.layout));
        }
        names::domain(&project.domain).map_err(|error| format!("domain {error}"))?;
        names::project(&project.project_name).map_err(|error| format!("projectName {error}"))?;
        for (at, resource) in project.resources.iter().enumerate() {
            resource.check()?;
            if project.resources[..at].iter().any(|other| other.is(&resource.group, &resource.version, &resource.kind))
            {
                return Err(format!("resource {} is listed twice", resource.api_kind()));
            }
        }
        Ok(project)
    }

    /// Returns the deterministic content of the file.
    pub(crate) fn text(&self) -> Result<String> {
        Ok(format!("{HEAD}{}", serde_saphyr::to_string(self).context(format!("cannot write {FILE}"))?))
    }

    /// Finds one version of a kind.
    pub(crate) fn resource(&self, group: &str, version: &str, kind: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.is(group, version, kind))
    }

    /// Returns the full name of a group: `cache` is `cache.acme.io`. A name with a dot is already full.
    pub(crate) fn group(&self, named: &str) -> String {
        let whole = named.is_empty() || named == self.domain || named.contains('.');
        if whole { named.to_owned() } else { format!("{named}.{}", self.domain) }
    }
}

/// Changes to the directory of the project that this directory is in. These paths, which are relative to this
/// directory, become absolute.
pub(crate) fn enter_project<'p>(paths: impl IntoIterator<Item = &'p mut PathBuf>) -> Result<()> {
    let here = Path::new(".");
    if here.join(WATCHES).is_file() || here.join("Cargo.toml").is_file() {
        return Ok(());
    }
    // A file of another form is not a project of Flyball.
    let Ok(Some(project)) = Project::find(here) else { return Ok(()) };
    for path in paths {
        *path = std::path::absolute(&*path).context(format!("cannot find {}", path.display()))?;
    }
    std::env::set_current_dir(&project.folder).context(format!("cannot enter {}", project.folder.display()))
}

impl Resource {
    /// Returns true if it has this group, version and kind.
    pub(crate) fn is(&self, group: &str, version: &str, kind: &str) -> bool {
        (self.group.as_str(), self.version.as_str(), self.kind.as_str()) == (group, version, kind)
    }
}

#[cfg(test)]
mod tests;
