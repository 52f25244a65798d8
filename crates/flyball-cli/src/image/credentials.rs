//! Credentials of registries from Docker's configuration.
//!
//! See <https://docs.docker.com/reference/cli/docker/login/#credential-stores> for credential helpers, and
//! <https://github.com/docker/docker-credential-helpers> for their protocol. Messages and logs never contain secrets:
//! their type cannot be printed.

use crate::error::{Error, Result, ResultExt};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// Timeout of credential helpers, which may prompt the user.
const HELPER_TIMEOUT: Duration = Duration::from_secs(60);

/// Credentials for a registry.
#[derive(Clone)]
pub(crate) enum Credentials {
    Password {
        user: String,
        password: String,
    },
    /// A refresh token.
    Identity(String),
}

impl Credentials {
    /// Describes the identity for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Password { user, .. } => format!("user {user}"),
            Self::Identity(_) => "this identity token".into(),
        }
    }

    /// Returns the Authorization header, see <https://www.rfc-editor.org/rfc/rfc7617>.
    pub(crate) fn basic(&self) -> Option<String> {
        match self {
            Self::Password { user, password } => {
                Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
            }
            Self::Identity(_) => None,
        }
    }

    pub(crate) fn new(user: String, secret: String) -> Self {
        if user == "<token>" { Self::Identity(secret) } else { Self::Password { user, password: secret } }
    }

    /// Finds the credentials for a registry in these configurations, the first of which wins; `None` means anonymous
    /// access.
    ///
    /// # Errors
    ///
    /// If a configuration cannot be read, or the credential helper fails.
    pub(crate) async fn find(files: &[PathBuf], registry: &str) -> Result<Option<Self>> {
        for path in files {
            let text = match fs::read(path) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error).context(format!("cannot read {}", path.display())),
            };
            // The position in the error is safe to print, values may be secret.
            let config: Config = serde_json::from_slice(&text).map_err(|error| {
                let (line, column) = (error.line(), error.column());
                Error::new(format!("{} is not a Docker configuration (line {line}, column {column})", path.display()))
            })?;
            let found = config.find(registry).await.map_err(|error| error.hint(format!("see {}", path.display())))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

impl Credentials {
    /// Finds the credentials for a registry in the text of a pull secret. Its author does not decide which programs run
    /// here, so that it names no credential helpers.
    ///
    /// # Errors
    ///
    /// If the text is not a configuration of Docker.
    pub(crate) fn of_secret(text: &str, registry: &str) -> Result<Option<Self>> {
        // The position in the error is safe to print, values may be secret.
        let config: Config = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            Error::new(format!("a pull secret is not a Docker configuration (line {line}, column {column})"))
        })?;
        config.entry(registry)
    }
}

/// Returns where Docker's configuration is.
pub(crate) fn path() -> Option<PathBuf> {
    let folder = std::env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    Some(folder.or_else(|| Some(std::env::home_dir()?.join(".docker")))?.join("config.json"))
}

/// The part of the configuration that is about secrets.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Config {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

/// Response of a credential helper.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperResponse {
    username: String,
    secret: String,
}

impl Config {
    async fn find(&self, registry: &str) -> Result<Option<Credentials>> {
        let server = server(registry);
        let store = self.cred_helpers.get(server).or_else(|| self.cred_helpers.get(registry));
        if let Some(program) = store.or(self.creds_store.as_ref().filter(|name| !name.is_empty()))
            && let Some(found) = run_helper(program, server).await?
        {
            return Ok(Some(found));
        }
        self.entry(registry)
    }

    /// Reads the entry of a registry, without credential helpers.
    fn entry(&self, registry: &str) -> Result<Option<Credentials>> {
        let server = server(registry);
        let same = |key: &&String| *key == server || host(key) == host(server);
        let Some(key) = self.auths.keys().find(same) else { return Ok(None) };
        self.auths[key].read(key)
    }
}

/// Returns the key of a registry in a configuration: Docker Hub's is its legacy address.
fn server(registry: &str) -> &str {
    let is_docker = ["docker.io", "registry-1.docker.io"].contains(&registry);
    if is_docker { "https://index.docker.io/v1/" } else { registry }
}

/// Returns an address without its scheme and path.
fn host(address: &str) -> &str {
    let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://")).unwrap_or(address);
    rest.split('/').next().unwrap_or_default()
}

impl Auth {
    fn read(&self, key: &str) -> Result<Option<Credentials>> {
        if let Some(token) = self.identitytoken.as_ref().filter(|token| !token.is_empty()) {
            return Ok(Some(Credentials::Identity(token.clone())));
        }
        if let Some(auth) = self.auth.as_ref().filter(|auth| !auth.is_empty()) {
            let text = STANDARD.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let pair = text.as_ref().and_then(|text| text.trim_end_matches('\0').split_once(':'));
            let (user, password) = pair.ok_or_else(|| {
                Error::new(format!("the auths entry for {key} is not a user and password")).hint("log in again")
            })?;
            return Ok(Some(Credentials::new(user.into(), password.into())));
        }
        Ok(match (&self.username, &self.password) {
            (Some(user), Some(password)) => Some(Credentials::new(user.clone(), password.clone())),
            _ => None,
        })
    }
}

/// Queries a credential helper.
async fn run_helper(name: &str, server: &str) -> Result<Option<Credentials>> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !name.bytes().all(is_plain) {
        return Err(Error::new(format!("invalid credential helper name {name:?}")));
    }
    let program = format!("docker-credential-{name}");
    let what = || format!("cannot run {program} for {server}");
    let mut command = Command::new(&program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let work = async {
        let mut child = command.spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // A helper may respond without reading its input.
            let _ = input.write_all(server.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let response = timeout(HELPER_TIMEOUT, work).await.context(what())?.context(what())?;
    if !response.status.success() {
        let output = String::from_utf8_lossy(&response.stdout);
        // The protocol's message for missing credentials.
        return match output.contains("credentials not found") {
            true => Ok(None),
            false => Err(Error::new(format!("{program} failed with {} for {server}", response.status))),
        };
    }
    let response: HelperResponse = serde_json::from_slice(&response.stdout)
        .map_err(|_| Error::new(format!("{program} returned an invalid response")))?;
    Ok(Some(Credentials::new(response.username, response.secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(config: &str, registry: &str) -> Option<String> {
        let config: Config = serde_json::from_str(config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(config.find(registry)).unwrap().map(|found| match found {
            Credentials::Password { user, password } => format!("{user}:{password}"),
            Credentials::Identity(token) => format!("token {token}"),
        })
    }

    #[test]
    fn registry_has_several_names() {
        let auth = |key: &str| format!(r#"{{"auths": {{"{key}": {{"auth": "{}"}}}}}}"#, STANDARD.encode("me:se:cret"));
        for (key, registry) in [
            ("r.example.com", "r.example.com"),
            ("https://r.example.com", "r.example.com"),
            ("https://r.example.com/v2/", "r.example.com"),
            ("127.0.0.1:5000", "127.0.0.1:5000"),
            ("https://index.docker.io/v1/", "docker.io"),
            ("https://index.docker.io/v1/", "registry-1.docker.io"),
        ] {
            assert_eq!(found(&auth(key), registry).as_deref(), Some("me:se:cret"), "{key}");
            assert_eq!(found(&auth(key), "other.example.com"), None);
        }
        let token = r#"{"auths": {"r.io": {"auth": "", "identitytoken": "t"}, "s.io": {"username": "a", "password": "b"}, "e.io": {}}}"#;
        assert_eq!(found(token, "r.io").as_deref(), Some("token t"));
        assert_eq!(found(token, "s.io").as_deref(), Some("a:b"));
        assert_eq!(found(token, "e.io"), None);
    }
}
