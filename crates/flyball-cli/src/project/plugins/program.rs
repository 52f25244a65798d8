//! Finds and runs the programs of plugins.

use super::protocol::{Request, Response, VERSION};
use crate::error::{Error, Result, ResultExt};
use crate::files::entries;
use crate::project::names;
use flyball_core::names::dns_subdomain;
use std::env::var_os;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

/// Maximum size of a response.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// Timeout of a plugin.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// Overrides the timeout, in seconds.
const TIMEOUT_VARIABLE: &str = "FLYBALL_PLUGIN_TIMEOUT";

fn plugin_timeout() -> Duration {
    let seconds = std::env::var(TIMEOUT_VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
    seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs)
}

/// Name of a plugin, with or without its version.
#[derive(Clone, Debug)]
pub(super) struct Name(pub(super) String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, version) = text.split_once('/').map_or((text, None), |(name, version)| (name, Some(version)));
        let wrong = dns_subdomain(name);
        if !wrong.is_empty() {
            return Err(wrong.join("; "));
        }
        version.map(names::version).transpose()?;
        Ok(Self(text.into()))
    }
}

/// An installed plugin.
#[derive(Debug)]
pub(super) struct Plugin {
    /// Its name and version.
    pub(super) full_name: String,
    program: PathBuf,
}

/// Returns the directory of all plugins.
fn directory() -> PathBuf {
    let config = || match var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => Path::new(&var_os("HOME").unwrap_or_default()).join(".config"),
    };
    var_os("EXTERNAL_PLUGINS_PATH").map_or_else(|| config().join("flyball/plugins"), PathBuf::from)
}

/// Returns the names in a directory, in order; none if it is not there.
fn names_in(folder: &Path) -> Vec<String> {
    let paths = entries(folder).unwrap_or_default();
    paths.iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect()
}

impl Name {
    /// Finds the program.
    pub(super) fn find(&self) -> Result<Plugin> {
        let (name, version) = self.0.split_once('/').map_or((self.0.as_str(), None), |(name, of)| (name, Some(of)));
        let folder = directory().join(name);
        let known = names_in(&folder);
        let version = match (version, &known[..]) {
            (Some(version), _) => version.to_owned(),
            (None, [only]) => only.clone(),
            (None, []) => "v1".to_owned(),
            (None, several) => {
                let error = Error::new(format!("plugin {name} has several versions: {}", several.join(", ")));
                return Err(error.hint(format!("choose one: --plugins {name}/{}", several[0])));
            }
        };
        let folder = folder.join(&version);
        // As kubebuilder has it, the program may have an extension.
        let is_it = |file: &String| Path::new(file).file_stem().is_some_and(|stem| stem == name) || file == name;
        let program = folder.join(names_in(&folder).into_iter().find(is_it).unwrap_or_else(|| name.to_owned()));
        if !program.is_file() {
            return Err(Error::new(format!("plugin {name}/{version} not found"))
                .hint(format!("expected its program at {}", program.display())));
        }
        Ok(Plugin { full_name: format!("{name}/{version}"), program })
    }
}

impl Plugin {
    /// Runs the plugin in the directory of the project, and returns its response.
    ///
    /// # Errors
    ///
    /// If it cannot be run, reports an error, or violates the protocol.
    pub(super) async fn call(&self, folder: &Path, request: &Request) -> Result<Response> {
        let Self { full_name, program } = self;
        let what = || format!("cannot run plugin {full_name}");
        let question = serde_json::to_vec(request).context(what())?;
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        if folder.is_dir() {
            command.current_dir(folder);
        }
        let spawned = command.spawn();
        let is_denied = spawned.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        let spawned = spawned.context(what());
        let mut child = spawned.map_err(|error| match is_denied {
            true => error.hint(format!("chmod +x {}", program.display())),
            false => error,
        })?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut response = Vec::new();
        let work = async {
            let ((), read) = tokio::join!(
                async {
                    // A plugin may respond without reading all of its input.
                    let _ = input.expect("it is piped").write_all(&question).await;
                },
                async {
                    output.expect("it is piped").take(MAX_RESPONSE_BYTES).read_to_end(&mut response).await.map(drop)
                }
            );
            read?;
            child.wait().await
        };
        let status = timeout(plugin_timeout(), work).await.map_err(|_| {
            Error::new(format!("plugin {full_name} timed out after {} s", plugin_timeout().as_secs()))
                .hint(format!("nothing was written; raise the timeout with {TIMEOUT_VARIABLE}=SECONDS"))
        })?;
        let status = status.context(what())?;
        if !status.success() {
            return Err(Error::new(format!("plugin {full_name} failed with {status}")));
        }
        let response: Response =
            serde_json::from_slice(&response).context(format!("plugin {full_name} returned an invalid response"))?;
        if response.error {
            let error = Error::new(format!("plugin {full_name} failed"));
            return Err(response.error_msgs.into_iter().fold(error, Error::hint));
        }
        if (response.api_version.as_str(), response.command.as_str()) != (VERSION, request.command) {
            return Err(Error::new(format!(
                "plugin {full_name} returned a response to `{}` of {}, not to `{}` of {VERSION}",
                response.command, response.api_version, request.command
            )));
        }
        Ok(response)
    }
}
