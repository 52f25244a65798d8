//! Source of the library of a project.

use crate::error::{Error, Result, ResultExt};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};

/// Repository of the library.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
/// The version of this program, and so of the library that it belongs to.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Names a tree of Flyball's source, as `--flyball-path` does.
const PATH_VARIABLE: &str = "FLYBALL_PATH";

/// The flags for the source of the library.
#[derive(Args, Clone, Debug)]
pub(crate) struct LibraryArgs {
    /// Use the library from a local source tree; also set by the variable FLYBALL_PATH
    #[arg(long, value_name = "PATH", conflicts_with_all = ["flyball_git", "flyball_rev", "flyball_version"])]
    flyball_path: Option<PathBuf>,
    /// Use the library from a git repository; defaults to Flyball's, at the version of this program
    #[arg(long, value_name = "URL", conflicts_with = "flyball_version")]
    flyball_git: Option<String>,
    /// Tag, branch or commit of the git repository
    #[arg(long, value_name = "REVISION", conflicts_with = "flyball_version")]
    flyball_rev: Option<String>,
    /// Use this version of the library from crates.io
    #[arg(long, value_name = "VERSION", value_parser = version)]
    flyball_version: Option<String>,
}

impl LibraryArgs {
    /// Returns true if a flag selects the source.
    pub(crate) fn is_given(&self) -> bool {
        self.flyball_path.is_some()
            || [&self.flyball_git, &self.flyball_rev, &self.flyball_version].iter().any(|flag| flag.is_some())
    }
}

fn version(text: &str) -> Result<String, String> {
    let good = text.starts_with(|c: char| c.is_ascii_digit() || "^=~".contains(c))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "^=~.-+".contains(c));
    if good { Ok(text.into()) } else { Err("expected a version such as 0.1.0".into()) }
}

/// A source of the library.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Library {
    /// The source of the library in Cargo.toml.
    Path {
        root: PathBuf,
        dependency: PathBuf,
    },
    Git {
        url: String,
        revision: Option<String>,
        version: Option<String>,
    },
    Registry {
        version: String,
    },
}

impl Library {
    /// Returns the selected source for a project in a directory.
    ///
    /// An explicit path is written unchanged: a relative one is relative to the project. By default no path is written,
    /// since it would be valid on this machine only.
    pub(crate) fn named(args: &LibraryArgs, folder: &Path) -> Result<Self> {
        let variable = || std::env::var_os(PATH_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let elsewhere = args.flyball_git.is_some() || args.flyball_rev.is_some() || args.flyball_version.is_some();
        if let Some(path) = args.flyball_path.clone().or_else(|| if elsewhere { None } else { variable() }) {
            if !path.join("crates/flyball/Cargo.toml").is_file() {
                let what = format!("{} is not a Flyball source tree: it has no crates/flyball", path.display());
                return Err(Error::new(what).hint("pass --flyball-path PATH or --flyball-git URL"));
            }
            let root = path.canonicalize().context(format!("cannot read {}", path.display()))?;
            let dependency = if path.is_absolute() { root.clone() } else { relative(&root, folder) };
            return Ok(Self::Path { root, dependency });
        }
        if let Some(version) = &args.flyball_version {
            return Ok(Self::Registry { version: version.clone() });
        }
        let (url, revision) = match args.flyball_git.as_deref().map(|url| url.split_once('#').unwrap_or((url, ""))) {
            None => {
                let revision = args.flyball_rev.clone();
                let version = revision.is_none().then(|| VERSION.to_owned());
                let revision = revision.or_else(|| revision_of(env!("CARGO_MANIFEST_DIR")).map(str::to_owned));
                return Ok(Self::Git { url: REPOSITORY.into(), revision, version });
            }
            Some((url, revision)) => (url, Some(revision).filter(|revision| !revision.is_empty())),
        };
        if let (Some(_), Some(revision)) = (revision, &args.flyball_rev) {
            return Err(Error::usage(format!(
                "--flyball-git contains a revision that differs from --flyball-rev {revision}"
            )));
        }
        let revision = revision.map(str::to_owned).or_else(|| args.flyball_rev.clone());
        Ok(Self::Git { url: url.into(), revision, version: None })
    }

    /// Returns the dependency on one of its crates for Cargo.toml.
    pub(crate) fn dependency(&self, name: &str) -> String {
        match self {
            Self::Path { dependency, .. } => {
                format!("path = {}", quoted(&dependency.join("crates").join(name).display().to_string()))
            }
            Self::Git { url, revision, version } => {
                let field = |name: &str, value: &Option<String>| {
                    value.as_ref().map(|value| format!(", {name} = {}", quoted(value))).unwrap_or_default()
                };
                format!("git = {}{}{}", quoted(url), field("rev", revision), field("version", version))
            }
            Self::Registry { version } => format!("version = {}", quoted(version)),
        }
    }

    /// Returns the tested versions of other crates, which are available offline.
    pub(crate) fn lock(&self) -> Option<String> {
        match self {
            Self::Path { root, .. } => fs::read_to_string(root.join("Cargo.lock")).ok(),
            Self::Git { .. } | Self::Registry { .. } => None,
        }
    }
}

/// Returns the commit that this program was built from, if it is known: from cargo's checkout of `cargo install --git`,
/// or from the build.
fn revision_of(manifest_dir: &str) -> Option<&str> {
    let (_, checkout) = manifest_dir.split_once("/git/checkouts/").unwrap_or_default();
    let commit = checkout.split('/').nth(1).or(option_env!("FLYBALL_REVISION"))?;
    (commit.len() >= 7 && commit.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(commit)
}

/// Returns the relative path from a directory, which may not exist yet, to another one.
fn relative(to: &Path, folder: &Path) -> PathBuf {
    let shared = to.components().zip(folder.components()).take_while(|(one, other)| one == other).count();
    let up = folder.components().skip(shared).map(|_| "..");
    up.map(PathBuf::from).chain(to.components().skip(shared).map(|part| PathBuf::from(part.as_os_str()))).collect()
}

/// Returns a string as TOML writes it.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_checkout_contains_the_commit() {
        let checkout = "/home/me/.cargo/git/checkouts/flyball-0a1b2c/51ca79d/crates/flyball-cli";
        assert_eq!(revision_of(checkout), Some("51ca79d"));
        let unknown = option_env!("FLYBALL_REVISION");
        for other in
            ["/home/me/flyball/crates/flyball-cli", "/x/git/checkouts/flyball", "/git/checkouts/a/main/crates/b"]
        {
            assert!(revision_of(other).is_none() || revision_of(other) == unknown, "{other}");
        }
    }

    #[test]
    fn relative_path_leads_from_project_to_library() {
        for (to, folder, expected) in [
            ("/src/flyball", "/src/redis-operator", "../flyball"),
            ("/src/flyball", "/src/ops/redis", "../../flyball"),
            ("/src", "/src/ops/redis", "../.."),
            ("/other/flyball", "/src/redis", "../../other/flyball"),
        ] {
            assert_eq!(relative(Path::new(to), Path::new(folder)), Path::new(expected));
        }
    }
}
