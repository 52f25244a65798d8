//! Project of an image, from cargo and git.

use crate::error::{Error, Result, ResultExt};
use crate::operator::program::{Program, cargo};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// A project from `cargo metadata`.
#[derive(Debug, Deserialize)]
pub(crate) struct Project {
    packages: Vec<Package>,
    resolve: Option<Resolve>,
    pub(crate) workspace_root: PathBuf,
    #[serde(default)]
    workspace_members: Vec<String>,
    #[serde(skip)]
    checksums: BTreeMap<(String, String), String>,
}

/// A package of the project or a dependency.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) repository: Option<String>,
    source: Option<String>,
    targets: Vec<Target>,
    /// Checksum from the lock file.
    #[serde(skip)]
    pub(crate) checksum: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
    /// The package in the current directory.
    root: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

impl Package {
    /// Returns its name as a package URL, see <https://github.com/package-url/purl-spec>.
    pub(crate) fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version.replace('+', "%2B"))
    }

    /// Returns true if it runs in the compiler and is not part of the program.
    fn is_macro(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
    }
}

/// Refuses a project that has no crates: one of charts, roles or playbooks.
pub(crate) fn check_program() -> Result<()> {
    match Program::here() {
        None => Ok(()),
        Some(watches) => Err(Error::new(format!(
            "an SBOM lists the crates of a Rust program; this project consists of charts or roles ({watches})"
        ))
        .hint("`flyball image build` attaches the SBOM of its image")),
    }
}

impl Project {
    /// Runs `cargo metadata` for the project in this directory and a target.
    pub(crate) async fn load(target: Option<&str>) -> Result<Self> {
        let mut cargo = cargo();
        cargo.args(["metadata", "--format-version=1"]).stdout(Stdio::piped());
        cargo.args(target.map(|target| format!("--filter-platform={target}")));
        let response = cargo
            .spawn()
            .context("cannot start cargo")
            .map_err(|error| error.hint("install Rust from https://rustup.rs, or pass --program FILE"))?;
        let response = response.wait_with_output().await.context("cannot run cargo")?;
        if !response.status.success() {
            return Err(Error::new("cargo metadata failed"));
        }
        let mut project: Self =
            serde_json::from_slice(&response.stdout).context("cannot parse the output of cargo metadata")?;
        let lock = fs::read_to_string(project.workspace_root.join("Cargo.lock")).unwrap_or_default();
        project.checksums = checksums(&lock);
        Ok(project)
    }

    /// Finds a package.
    pub(crate) fn package(&self, id: &str) -> Result<Package> {
        let found = self.packages.iter().find(|package| package.id == id).cloned();
        let mut package = found.ok_or_else(|| Error::new(format!("package {id} not found")))?;
        // A path dependency with the same name and version is another package.
        if package.source.is_some() {
            package.checksum = self.checksums.get(&(package.name.clone(), package.version.clone())).cloned();
        }
        Ok(package)
    }

    /// Returns the workspace's package of this name, or the one in this directory.
    pub(crate) fn member(&self, name: Option<&str>) -> Result<Package> {
        let root = self.resolve.as_ref().and_then(|resolve| resolve.root.as_ref());
        let found = match name {
            None => root.map(String::as_str),
            Some(name) => {
                let mut members = self.packages.iter().filter(|package| self.workspace_members.contains(&package.id));
                members.find(|package| package.name == name).map(|package| package.id.as_str())
            }
        };
        match (found, name) {
            (Some(id), _) => self.package(id),
            (None, Some(name)) => Err(Error::new(format!("package {name} not found in the workspace"))),
            (None, None) => Err(Error::new("no package in this directory").hint("pass --package NAME")),
        }
    }

    /// Returns the packages in a program of this package, each with its dependencies, sorted by name. Build and dev
    /// dependencies are omitted.
    pub(crate) fn program_packages(&self, root: &str) -> Result<Vec<(Package, Vec<Package>)>> {
        let nodes: BTreeMap<&str, &Node> =
            self.resolve.iter().flat_map(|resolve| &resolve.nodes).map(|node| (node.id.as_str(), node)).collect();
        let (mut seen, mut queue, mut parts) = (BTreeSet::from([root]), vec![root], Vec::new());
        while let Some(id) = queue.pop() {
            let mut needs = Vec::new();
            for dependency in nodes.get(id).iter().flat_map(|node| &node.deps) {
                if dependency.dep_kinds.iter().all(|kind| kind.kind.is_some()) {
                    continue;
                }
                let package = self.package(&dependency.pkg)?;
                if package.is_macro() {
                    continue;
                }
                needs.push(package);
                if seen.insert(&dependency.pkg) {
                    queue.push(&dependency.pkg);
                }
            }
            needs.sort_by_key(Package::purl);
            parts.push((self.package(id)?, needs));
        }
        parts.sort_by_key(|(package, _)| package.purl());
        Ok(parts)
    }
}

/// Reads the checksums of a lock file, whose form cargo keeps.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut all = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
            Some(line.trim().trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) = (field("name"), field("version"), field("checksum")) {
            all.insert((name, version), checksum);
        }
    }
    all
}

/// Returns the git commit of this directory, and true if it has changes; `None` without git.
pub(crate) async fn revision() -> Option<String> {
    let ask = async |args: &[&str]| {
        let response = Command::new("git").args(args).stderr(Stdio::null()).stdin(Stdio::null()).output().await.ok()?;
        response.status.success().then(|| String::from_utf8_lossy(&response.stdout).trim().to_owned())
    };
    let commit = ask(&["rev-parse", "HEAD"]).await.filter(|commit| !commit.is_empty())?;
    let changes = ask(&["status", "--porcelain", "--untracked-files=no"]).await?;
    Some(if changes.is_empty() { commit } else { format!("{commit}-dirty") })
}

/// Returns the version of the compiler.
pub(crate) async fn compiler() -> Option<String> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let response = Command::new(compiler).arg("--version").output().await.ok()?;
    Some(String::from_utf8_lossy(&response.stdout).trim().to_owned())
}

/// Returns the annotations with the metadata of a project, see
/// <https://github.com/opencontainers/image-spec/blob/main/annotations.md#pre-defined-annotation-keys>.
pub(crate) fn labels(package: &Package, revision: Option<&str>, created: &str) -> BTreeMap<String, String> {
    let labels = [
        ("title", Some(package.name.as_str())),
        ("version", Some(&package.version)),
        ("description", package.description.as_deref()),
        ("source", package.repository.as_deref()),
        ("licenses", package.license.as_deref()),
        ("revision", revision),
        ("created", Some(created)),
    ];
    let label =
        |(name, value): (&str, Option<&str>)| Some((format!("org.opencontainers.image.{name}"), value?.to_owned()));
    labels.into_iter().filter_map(label).collect()
}

/// Describes a prebuilt program.
pub(crate) fn prebuilt_package(program: &Path) -> Package {
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    package_of_program(name, "latest", None)
}

/// Describes an operator of charts or roles, and the program that runs it: this one.
pub(crate) fn watches_packages(name: &str) -> (Package, Package) {
    let license = Some(env!("CARGO_PKG_LICENSE"));
    (
        package_of_program(name.to_owned(), "latest", None),
        package_of_program("flyball-cli".to_owned(), env!("CARGO_PKG_VERSION"), license),
    )
}

fn package_of_program(name: String, version: &str, license: Option<&str>) -> Package {
    Package {
        id: name.clone(),
        name,
        version: version.into(),
        license: license.map(str::to_owned),
        description: None,
        repository: None,
        source: None,
        targets: Vec::new(),
        checksum: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project() -> Project {
        let package = |id: &str, kind: &str| {
            serde_json::json!({"id": id, "name": id, "version": "1.0.0+x", "license": "MIT", "description": null,
                "repository": null, "source": (id != "op").then_some("registry"), "targets": [{"kind": [kind]}]})
        };
        let dependency = |id: &str, kind: Option<&str>| serde_json::json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let mut project: Project = serde_json::from_value(serde_json::json!({
            "workspace_root": "/w",
            "packages": [package("op", "bin"), package("lib", "lib"), package("derive", "proc-macro"),
                package("cc", "lib"), package("deep", "lib")],
            "resolve": {"nodes": [
                {"id": "op", "deps": [dependency("lib", None), dependency("derive", None), dependency("cc", Some("build"))]},
                {"id": "lib", "deps": [dependency("deep", None), dependency("op", Some("dev"))]},
                {"id": "deep", "deps": []},
            ]},
        }))
        .unwrap();
        project.checksums = checksums(
            "version = 4\n\n[[package]]\nname = \"lib\"\nversion = \"1.0.0+x\"\nsource = \"r\"\nchecksum = \"ab12\"\n\
             dependencies = [\n \"deep\",\n]\n\n[[package]]\nname = \"op\"\nversion = \"1.0.0+x\"\n",
        );
        project
    }

    #[test]
    fn build_and_dev_dependencies_are_excluded() {
        let parts = project().program_packages("op").unwrap();
        let found: Vec<(&str, Vec<&str>, Option<&str>)> = parts
            .iter()
            .map(|(package, needs)| {
                (&*package.name, needs.iter().map(|need| &*need.name).collect(), package.checksum.as_deref())
            })
            .collect();
        assert_eq!(found, [("deep", vec![], None), ("lib", vec!["deep"], Some("ab12")), ("op", vec!["lib"], None)]);
        assert_eq!(parts[0].0.purl(), "pkg:cargo/deep@1.0.0%2Bx");
        assert!(project().program_packages("other").is_err());
    }
}
