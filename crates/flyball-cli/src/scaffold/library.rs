//! Where a project gets the library from.

use crate::error::{Error, Result, ResultExt};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};

/// The flags that say it.
#[derive(Args, Clone, Debug)]
pub(crate) struct LibraryArgs {
    /// Take the library from this tree of Flyball's source; that which this program was built from unless given
    #[arg(long, value_name = "PATH", conflicts_with = "flyball_git")]
    flyball_path: Option<PathBuf>,
    /// Take the library from a git repository: URL, or URL#REVISION
    #[arg(long, value_name = "URL")]
    flyball_git: Option<String>,
}

/// A source of the library.
#[derive(Clone, Debug)]
pub(crate) enum Library {
    Path(PathBuf),
    Git { url: String, revision: Option<String> },
}

/// The tree that this program was built from.
const BUILT_FROM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

impl Library {
    pub(crate) fn named(args: &LibraryArgs) -> Result<Self> {
        if let Some(url) = &args.flyball_git {
            let (url, revision) = url.split_once('#').map_or((url.as_str(), None), |(url, rev)| (url, Some(rev)));
            return Ok(Self::Git { url: url.into(), revision: revision.map(str::to_owned) });
        }
        let path = args.flyball_path.as_deref().unwrap_or(Path::new(BUILT_FROM));
        if !path.join("crates/flyball/Cargo.toml").is_file() {
            let what = match &args.flyball_path {
                Some(path) => format!("{} is no tree of Flyball's source: it has no crates/flyball", path.display()),
                None => format!("the tree that this program was built from is not at {} any more", path.display()),
            };
            return Err(Error::new(what).hint("say where the library is: --flyball-path PATH or --flyball-git URL"));
        }
        Ok(Self::Path(path.canonicalize().when(format!("cannot read {}", path.display()))?))
    }

    /// Returns what Cargo.toml says of one of its crates.
    pub(crate) fn dependency(&self, name: &str) -> String {
        match self {
            Self::Path(root) => {
                format!("path = {}", quoted(&root.join("crates").join(name).display().to_string()))
            }
            Self::Git { url, revision } => {
                let revision = revision.as_ref().map(|rev| format!(", rev = {}", quoted(rev))).unwrap_or_default();
                format!("git = {}{revision}", quoted(url))
            }
        }
    }

    /// Returns the versions of other crates that it is known to work with, and that are there without a network.
    pub(crate) fn lock(&self) -> Option<String> {
        match self {
            Self::Path(root) => fs::read_to_string(root.join("Cargo.lock")).ok(),
            Self::Git { .. } => None,
        }
    }
}

/// Returns a text as TOML writes it.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
