//! External plugins: programs that extend `init`, `create` and `edit`.
//!
//! A plugin is at `FOLDER/NAME/VERSION/NAME`, receives a request in JSON on its standard input, and responds on its
//! standard output, as kubebuilder's do: the request contains all files of the project, the response new and changed
//! files. Files are written only after all plugins have responded, and only within the project. See
//! <https://book.kubebuilder.io/plugins/extending/external-plugins>.

mod flags;
mod program;
mod protocol;

use crate::cluster::connection::block_on;
use crate::error::{Error, Result, ResultExt};
use crate::project::scaffold::changes::Changes;
use crate::project::{FILE, ProjectType};
use crate::render::terminal::{columns, print_line};
use clap::Args;
use flags::Flag;
use program::{Name, Plugin};
use protocol::{Request, Response};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path};

/// Larger files are not considered as source files.
const MAX_SOURCE_BYTES: u64 = 1 << 20;

/// Files and directories with passwords or keys.
#[rustfmt::skip]
const SECRET_NAMES: &[&str] = &[
    ".aws", ".azure", ".docker", ".git-credentials", ".gnupg", ".htpasswd", ".kube", ".netrc", ".npmrc", ".pypirc", ".ssh",
    ".vault-token", "_netrc", "credentials", "credentials.json", "credentials.toml", "htpasswd", "id_dsa", "id_ecdsa",
    "id_ed25519", "id_rsa", "kubeconfig",
];
/// Name suffixes of files with secrets.
#[rustfmt::skip]
const SECRET_ENDINGS: &[&str] = &[
    ".age", ".env", ".gpg", ".jks", ".key", ".keystore", ".kubeconfig", ".p12", ".pem", ".pfx", ".tfstate",
    "secret.json", "secret.yaml", "secret.yml", "secrets.json", "secrets.toml", "secrets.yaml", "secrets.yml",
];

/// The flags for plugins.
#[derive(Args, Debug)]
pub(crate) struct PluginArgs {
    /// External plugins that add to the output, separated by commas and run in this order, see docs/plugins.md
    #[arg(long, value_name = "NAME[/VERSION]", value_delimiter = ',')]
    plugins: Vec<Name>,
    /// Flags of the plugins; --help lists them
    #[arg(last = true, requires = "plugins")]
    plugin_args: Vec<String>,
}

/// The command that calls plugins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PluginCommand {
    Init,
    CreateApi,
    CreateWebhook,
    Edit,
}

impl PluginCommand {
    /// Returns the command, and its flag in requests for flags and metadata.
    fn command_and_flag(self) -> (&'static str, &'static str) {
        match self {
            Self::Init => ("init", "--init"),
            Self::CreateApi => ("create api", "--api"),
            Self::CreateWebhook => ("create webhook", "--webhook"),
            Self::Edit => ("edit", "--edit"),
        }
    }
}

impl PluginArgs {
    /// Returns the type of project that a plugin of operator-sdk creates, if one is named.
    pub(crate) fn project_type(&self) -> Option<ProjectType> {
        self.plugins.iter().find_map(built_in)
    }

    /// Returns the external plugins of a command.
    fn external(&self, command: PluginCommand) -> impl Iterator<Item = &Name> {
        let is_scaffold = matches!(command, PluginCommand::Init | PluginCommand::CreateApi);
        self.plugins.iter().filter(move |name| !is_scaffold || built_in(name).is_none())
    }

    /// Calls the plugins, which extend the pending changes. `args` are the flags of the command.
    ///
    /// # Errors
    ///
    /// When one is not there, fails, does not keep to the protocol, or would write where it must not.
    pub(crate) fn extend(&self, command: PluginCommand, args: &[(&str, &str)], changes: &mut Changes) -> Result<()> {
        let plugins: Vec<Plugin> = self.external(command).map(Name::find).collect::<Result<_>>()?;
        if plugins.is_empty() {
            return Ok(());
        }
        block_on(async {
            if !self.plugin_args.is_empty() {
                self.check(command, &plugins).await?;
            }
            let (command, _) = command.command_and_flag();
            let flags = args.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]);
            let mut request = Request::new(command, flags.chain(self.plugin_args.iter().cloned()).collect());
            request.plugin_chain = plugins.iter().map(|plugin| plugin.full_name.clone()).collect();
            for plugin in &plugins {
                request.universe = universe(changes)?;
                let response = plugin.call(changes.root(), &request).await?;
                apply_response(plugin, response, &request.universe, changes)?;
            }
            Ok(())
        })
    }

    /// Validates the flags for plugins, or prints the known flags and exits.
    async fn check(&self, command: PluginCommand, plugins: &[Plugin]) -> Result<()> {
        let (command, flag) = command.command_and_flag();
        let mut flags: Vec<Flag> = Vec::new();
        for plugin in plugins {
            let here = Path::new(".");
            flags.extend(plugin.call(here, &Request::new("flags", vec![flag.into()])).await?.flags);
            if self.plugin_args.iter().any(|arg| arg == "--help") {
                let about = plugin.call(here, &Request::new("metadata", vec![flag.into()])).await?.metadata;
                print_line(&format!("{}: {}", plugin.full_name, about.description));
                if !about.examples.is_empty() {
                    print_line(&format!("\nExamples:\n{}\n", about.examples.trim_end()));
                }
            }
        }
        if self.plugin_args.iter().any(|arg| arg == "--help") {
            let rows =
                flags.iter().map(|flag| vec![format!("  --{} {}", flag.name, flag.kind), flag.usage()]).collect();
            columns(rows).iter().for_each(|line| print_line(line));
            std::process::exit(0);
        }
        let plugins = &self.plugins[0].0;
        flags::check(&flags, &self.plugin_args).map_err(|wrong| {
            Error::usage(wrong).hint(format!("list the flags: flyball {command} --plugins {plugins} -- --help"))
        })
    }
}

/// Returns the type of project that a plugin of operator-sdk creates: its name, with or without domain and version.
fn built_in(name: &Name) -> Option<ProjectType> {
    let name = name.0.split('/').next().unwrap_or_default();
    match name.strip_suffix(".sdk.operatorframework.io").unwrap_or(name) {
        "helm" => Some(ProjectType::Helm),
        "ansible" => Some(ProjectType::Ansible),
        _ => None,
    }
}

/// Returns all files of the project, with the pending changes.
fn universe(changes: &Changes) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    if changes.root().is_dir() {
        read(changes.root(), changes.root(), &mut files)?;
    }
    let pending = changes.pending().filter(|(path, _)| path_error(Path::new(path), changes.root()).is_none());
    files.extend(pending.map(|(path, text)| (path.to_owned(), text.to_owned())));
    Ok(files)
}

fn read(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) -> Result<()> {
    let what = || format!("cannot read {}", folder.display());
    for entry in fs::read_dir(folder).context(what())? {
        let entry = entry.context(what())?;
        let (path, kind) = (entry.path(), entry.file_type().context(what())?);
        // Symbolic links, build output and version control data are not source files.
        if is_secret(&entry.file_name().to_string_lossy()) {
            continue;
        }
        if kind.is_dir() && ![".git", "target"].iter().any(|name| entry.file_name() == *name) {
            read(root, &path, files)?;
        } else if kind.is_file() && entry.metadata().context(what())?.len() <= MAX_SOURCE_BYTES {
            let name = path.strip_prefix(root).ok().and_then(Path::to_str);
            if let (Some(name), Ok(text)) = (name, fs::read_to_string(&path)) {
                files.insert(name.to_owned(), text);
            }
        }
    }
    Ok(())
}

/// Returns true if a file or directory may contain passwords or keys, by its name. These are not sent to plugins.
fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRET_NAMES.contains(&&*name) || name.starts_with(".env.") || SECRET_ENDINGS.iter().any(|end| name.ends_with(end))
}

/// Adds new and changed files of a plugin's response.
fn apply_response(
    plugin: &Plugin,
    response: Response,
    before: &BTreeMap<String, String>,
    changes: &mut Changes,
) -> Result<()> {
    for (path, text) in response.universe {
        if before.get(&path) == Some(&text) {
            continue;
        }
        let wrong = match path.as_str() {
            FILE => Some("flyball itself manages this file"),
            // The existing content was not sent to the plugin.
            path if Path::new(path).iter().any(|part| is_secret(&part.to_string_lossy()))
                && changes.root().join(path).exists() =>
            {
                Some("the file may contain secrets")
            }
            path => path_error(Path::new(path), changes.root()),
        };
        if let Some(wrong) = wrong {
            return Err(Error::new(format!("plugin {} must not write {path:?}: {wrong}", plugin.full_name))
                .hint("nothing was written; plugins use paths relative to the project"));
        }
        changes.put(&path, text)?;
    }
    Ok(())
}

/// Returns the reason why a path may be outside of the project, if it may.
fn path_error(path: &Path, root: &Path) -> Option<&'static str> {
    let mut whole = root.to_owned();
    for part in path.components() {
        match part {
            Component::Normal(name) if name == ".git" => return Some("the path is inside .git"),
            Component::Normal(name) => whole.push(name),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
                return Some("the path must be relative, without `.` and `..`");
            }
        }
        if whole.is_symlink() {
            return Some("the path contains a symbolic link");
        }
    }
    if whole.is_dir() { Some("the path is a directory") } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_files_are_hidden_from_plugins() {
        for name in [
            ".env",
            ".env.local",
            "prod.env",
            "tls.KEY",
            "id_ed25519",
            "kubeconfig",
            ".aws",
            "db-secrets.yaml",
            ".netrc",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in
            ["environment.rs", "secret.rs", "keys.rs", ".gitignore", ".github", "Cargo.toml", "id_rsa.pub", "monkey"]
        {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn paths_outside_the_project_are_rejected() {
        let root = std::env::temp_dir().join(format!("flyball-plugins-{}", std::process::id()));
        fs::create_dir_all(root.join("src")).unwrap();
        std::os::unix::fs::symlink("/tmp", root.join("link")).unwrap();
        for path in ["a", "src/a.rs", "new/folder/a", ".gitignore", ".github/a.yaml"] {
            assert_eq!(path_error(Path::new(path), &root), None, "{path}");
        }
        for path in ["", "/etc/passwd", "../a", "src/../../a", "./a", "link", "link/a", ".git/hooks/pre-commit", "src"]
        {
            assert!(path_error(Path::new(path), &root).is_some(), "{path}");
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
