//! Access to repositories and registries: TLS, credentials, and downloads within bounds.

use crate::error::{Error, Result, ResultExt};
use crate::image::credentials::{self, Credentials};
use crate::render::progress::Progress;
use crate::web::{Receiver, Web};
use bytes::Bytes;
use flyball::web::Trust;
use flyball_chart::AccessArgs;
use http::header::{AUTHORIZATION, LOCATION, USER_AGENT};
use http::{Request, Response, StatusCode};
use std::env;
use std::fs;
use std::io::{BufRead, stdin};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::{Host, Url};

/// Timeout of a download.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Limit of redirects of a download.
const MAX_REDIRECTS: usize = 5;
/// Some servers refuse requests without it.
const AGENT: &str = concat!("flyball/", env!("CARGO_PKG_VERSION"));

/// Flags of Helm that are rejected, with the reason and the remedy.
const UNSUPPORTED: [(&str, &str, &str); 3] = [
    (
        "--cert-file",
        "client certificates are not sent",
        "download with Helm, and pass the file: helm pull --cert-file FILE --key-file FILE CHART",
    ),
    ("--insecure-skip-tls-verify", "charts are code", "trust the authority of the server: --ca-file FILE"),
    (
        "--pass-credentials",
        "credentials are sent to one server only",
        "download the archive from the other server: flyball helm pull URL --username NAME --password-stdin",
    ),
];

/// A client of repositories and registries.
pub(crate) struct Access {
    web: Web,
    /// Credentials on the command line.
    login: Option<Credentials>,
    /// Configurations with credentials of registries.
    files: Vec<PathBuf>,
    has_plain_http: bool,
    /// The keys that sign charts, if charts are verified.
    keyring: Option<PathBuf>,
    /// True if provenance files are saved beside archives.
    keeps_provenance: bool,
}

impl Access {
    /// Creates a client; reads the password from standard input if requested.
    ///
    /// # Errors
    ///
    /// If a flag is not supported, or a file cannot be read.
    pub(crate) fn new(args: &AccessArgs) -> Result<Self> {
        let has_client_certificate = args.cert_file.is_some() || args.key_file.is_some();
        let is_set = [has_client_certificate, args.insecure_skip_tls_verify, args.pass_credentials];
        if let Some((_, (flag, why, remedy))) = is_set.iter().zip(UNSUPPORTED).find(|(is_set, _)| **is_set) {
            return Err(Error::new(format!("{flag} is not supported: {why}")).hint(remedy));
        }
        let bundle = match &args.ca_file {
            Some(file) => Some(fs::read(file).context(format!("--ca-file: cannot read {file}"))?),
            None => None,
        };
        let trust = bundle.as_deref().map_or(Trust::System, Trust::Bundle);
        let files = match &args.registry_config {
            Some(file) => vec![PathBuf::from(file)],
            None => helm_file().into_iter().chain(credentials::path()).collect(),
        };
        let web = Web::trusting(trust, TIMEOUT)?;
        Ok(Self {
            web,
            login: login(args)?,
            files,
            has_plain_http: args.plain_http,
            keyring: keyring(args),
            keeps_provenance: args.verify,
        })
    }

    /// Saves provenance files beside archives, also if they are not verified.
    pub(crate) fn keep_provenance(mut self) -> Self {
        self.keeps_provenance = true;
        self
    }

    pub(super) fn keyring(&self) -> Option<&Path> {
        self.keyring.as_deref()
    }

    pub(super) fn keeps_provenance(&self) -> bool {
        self.keeps_provenance
    }

    pub(super) fn web(&self) -> Web {
        self.web.clone()
    }

    /// Returns true if there are credentials on the command line.
    pub(super) fn has_login(&self) -> bool {
        self.login.is_some()
    }

    pub(super) fn has_plain_http(&self) -> bool {
        self.has_plain_http
    }

    /// Finds the credentials for a registry. Those on the command line are for the server that it names.
    pub(super) async fn credentials(&self, registry: &str, is_named: bool) -> Result<Option<Credentials>> {
        match &self.login {
            Some(login) if is_named => Ok(Some(login.clone())),
            _ => Credentials::find(&self.files, registry).await,
        }
    }

    /// Downloads a file. Credentials are sent to the server of `home` only.
    ///
    /// # Errors
    ///
    /// If an address is not allowed, there is no response in time, or the file is too large.
    pub(super) async fn download(&self, url: &Url, home: &Url, max_bytes: usize, what: &str) -> Result<Bytes> {
        let mut progress = Progress::new(what);
        let mut at = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            check(&at, home)?;
            let mut request = Request::get(at.as_str()).header(USER_AGENT, AGENT);
            let login = self.login.as_ref().filter(|_| at.origin() == home.origin());
            if let Some(basic) = login.and_then(Credentials::basic) {
                request = request.header(AUTHORIZATION, basic);
            }
            let request = request.body(Bytes::new()).context(format!("{} is not a valid URL", display_url(&at)))?;
            let mut on_received = |received, total| progress.update(received, total);
            let mut receiver = Receiver { max_bytes, on_received: Some(&mut on_received) };
            let response = self.web.receive(request, &mut receiver).await?;
            if response.status() == StatusCode::OK {
                return Ok(response.into_body());
            }
            let location = response.headers().get(LOCATION).filter(|_| response.status().is_redirection());
            let Some(location) = location.and_then(|location| location.to_str().ok()) else {
                return Err(self.response_error(&at, &response));
            };
            at = at.join(location).context(format!("{} redirects to an invalid URL", display_url(&at)))?;
            at.set_fragment(None);
        }
        Err(Error::new(format!("{} redirects more than {MAX_REDIRECTS} times", display_url(url))))
    }

    fn response_error(&self, url: &Url, response: &Response<Bytes>) -> Error {
        let error = Error::new(format!("{} is not available ({})", display_url(url), response.status()));
        match response.status() {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if self.login.is_some() => {
                error.hint("check --username and the password; they are sent only to the server of the URL")
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                error.hint("pass credentials: --username NAME --password-stdin")
            }
            StatusCode::NOT_FOUND => error.hint("check the spelling"),
            status if status.is_server_error() => error.hint("the server failed; try again later"),
            _ => error,
        }
    }
}

/// Returns the keyring of `--verify`; by default, that of Helm.
pub(crate) fn keyring(args: &AccessArgs) -> Option<PathBuf> {
    let default = || {
        let of_variable = env::var_os("GNUPGHOME").filter(|path| !path.is_empty()).map(PathBuf::from);
        let folder = of_variable.unwrap_or_else(|| env::home_dir().unwrap_or_default().join(".gnupg"));
        let files = ["pubring.gpg", "pubring.kbx"].map(|name| folder.join(name));
        files.iter().find(|file| file.exists()).unwrap_or(&files[0]).clone()
    };
    args.verify.then(|| args.keyring.as_ref().map_or_else(default, PathBuf::from))
}

/// Reads the credentials on the command line.
fn login(args: &AccessArgs) -> Result<Option<Credentials>> {
    let mut password = args.password.clone();
    if args.password_stdin {
        let mut line = String::new();
        stdin().lock().read_line(&mut line).context("--password-stdin: cannot read standard input")?;
        password = Some(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    match (&args.username, password) {
        (Some(user), Some(password)) => Ok(Some(Credentials::new(user.clone(), password))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Error::usage("--username needs a password").hint("pass it in a pipe: --password-stdin")),
        (None, Some(_)) => Err(Error::usage("the password needs --username")),
    }
}

/// Returns where Helm keeps the credentials of registries.
fn helm_file() -> Option<PathBuf> {
    let path = |name: &str| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let folder = || {
        let of_user = || path("XDG_CONFIG_HOME").or_else(|| Some(env::home_dir()?.join(".config")));
        path("HELM_CONFIG_HOME").or_else(|| Some(of_user()?.join("helm")))
    };
    path("HELM_REGISTRY_CONFIG").or_else(|| Some(folder()?.join("registry/config.json")))
}

/// Reads a URL that a user or a file names.
///
/// # Errors
///
/// If it is none, or must not be used.
pub(super) fn parse(text: &str) -> Result<Url> {
    let mut url = Url::parse(text).context(format!("{text} is not a URL"))?;
    url.set_fragment(None);
    check(&url, &url)?;
    Ok(url)
}

/// Checks an address that the server of `home` leads to: TLS, unless both servers are on this machine.
fn check(url: &Url, home: &Url) -> Result<()> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::new(format!("{} contains credentials, which other users may read", display_url(url)))
            .hint("pass them as flags: --username NAME --password-stdin"));
    }
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_loopback(url) && is_loopback(home) => Ok(()),
        "http" if is_loopback(url) => {
            Err(Error::new(format!("{} redirects or links to this machine: {}", display_url(home), display_url(url)))
                .hint("use another server"))
        }
        "http" => Err(Error::new(format!("{} has no TLS", display_url(url)))
            .hint("use https; http is supported for servers on this machine only")),
        scheme => Err(Error::new(format!("{}: unsupported scheme {scheme}", display_url(url)))
            .hint("use an https:// URL, or oci:// for a registry")),
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Returns a URL for messages, without the parts that may be secret.
pub(super) fn display_url(url: &Url) -> String {
    let mut plain = url.clone();
    plain.set_query(None);
    plain.set_fragment(None);
    // These fail for URLs without a host only, which have no such parts.
    let _ = plain.set_username("");
    let _ = plain.set_password(None);
    String::from(plain).trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_tls_are_on_this_machine() {
        for (home, url, expected) in [
            ("https://a.example.com/x", "https://b.example.com/y", None),
            ("https://a.example.com/x", "http://a.example.com/y", Some("has no TLS")),
            ("https://a.example.com/x", "http://127.0.0.1/y", Some("links to this machine")),
            ("http://127.0.0.1:80/x", "http://[::1]:81/y", None),
            ("http://localhost/x", "https://a.example.com/y", None),
            ("http://localhost/x", "http://a.example.com/y", Some("has no TLS")),
            ("http://localhost/x", "http://127.0.0.1.example.com/y", Some("has no TLS")),
            ("https://a.example.com/x", "https://me:secret@a.example.com/y", Some("contains credentials")),
            ("https://a.example.com/x", "file:///etc/passwd", Some("unsupported scheme file")),
        ] {
            let checked = check(&Url::parse(url).unwrap(), &Url::parse(home).unwrap());
            let message = checked.err().map(|error| error.to_string());
            assert_eq!(message.is_some(), expected.is_some(), "{home} {url}: {message:?}");
            assert!(message.as_deref().unwrap_or_default().contains(expected.unwrap_or_default()), "{message:?}");
            assert!(!message.unwrap_or_default().contains("secret"));
        }
    }
}
