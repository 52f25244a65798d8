//! Test targets of the project in this directory, from cargo metadata.

use crate::error::{Error, Result, ResultExt};
use serde::Deserialize;
use std::process::{Command, Stdio};

/// Packages that cargo would test here.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Targets {
    pub(crate) has_library: bool,
    pub(crate) has_integration_tests: bool,
    /// Programs of packages that use Flyball: some of them may be operators.
    pub(crate) programs: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_default_members: Vec<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    targets: Vec<Target>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
}

impl Targets {
    /// Reads the targets with `cargo metadata`.
    pub(crate) fn here() -> Result<Self> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["metadata", "--no-deps", "--format-version=1"]).stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = cargo.output().context("cannot start cargo")?;
        if !output.status.success() {
            return Err(Error::new("cargo metadata failed"));
        }
        Self::read(&output.stdout)
    }

    fn read(metadata: &[u8]) -> Result<Self> {
        let metadata: Metadata =
            serde_json::from_slice(metadata).context("cannot parse the output of cargo metadata")?;
        let mut found = Self::default();
        for package in
            metadata.packages.iter().filter(|package| metadata.workspace_default_members.contains(&package.id))
        {
            let uses_flyball = package.dependencies.iter().any(|dependency| dependency.name == "flyball");
            for target in &package.targets {
                let is = |kind: &str| target.kind.iter().any(|one| one == kind);
                found.has_library |= ["lib", "rlib", "dylib", "cdylib", "staticlib", "proc-macro"].into_iter().any(is);
                found.has_integration_tests |= is("test");
                found.programs.extend((is("bin") && uses_flyball).then(|| target.name.clone()));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn targets_of_other_packages_are_excluded() {
        let target = |name: &str, kind: &str| json!({"name": name, "kind": [kind]});
        let package = |id: &str, uses: &str, targets: &[serde_json::Value]| json!({"id": id, "dependencies": [{"name": uses}], "targets": targets});
        let metadata = json!({"workspace_default_members": ["a", "b"], "packages": [
            package("a", "flyball", &[target("op", "bin")]),
            package("b", "serde", &[target("tool", "bin"), target("it", "test")]),
            package("c", "flyball", &[target("other", "bin"), target("other", "lib")]),
        ]});
        let expected = Targets { has_library: false, has_integration_tests: true, programs: vec!["op".into()] };
        assert_eq!(Targets::read(metadata.to_string().as_bytes()).expect("the fields are cargo's"), expected);
        assert!(Targets::read(b"no").is_err());
    }
}
