//! Names of images, see <https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests>.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The annotation that holds the tag.
pub(crate) const NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation that holds the full name, for containerd and tools based on it.
pub(crate) const FULL_NAME: &str = "io.containerd.image.name";
/// Default registry.
const DOCKER: &str = "docker.io";

/// A name, such as `registry.example.com:5000/team/site-operator:1.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Host and port of the registry.
    pub(crate) registry: String,
    pub(crate) repository: String,
    pub(crate) tag: String,
}

impl Reference {
    /// Creates a name in a registry.
    ///
    /// # Errors
    ///
    /// If the registry, the repository or the tag has an invalid form.
    pub(crate) fn new(registry: &str, repository: &str, tag: &str) -> Result<Self, String> {
        if registry.parse::<http::uri::Authority>().is_err() || registry.contains('@') {
            return Err(format!("{registry:?} is not a host such as registry.example.com:5000"));
        }
        if !repository.split('/').all(is_component) || repository.len() > 255 {
            return Err(format!(
                "{repository:?} is not an image name: expected lower case letters and digits, separated by . _ - or /"
            ));
        }
        let tail = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if !(1..=128).contains(&tag.len()) || !tag.bytes().all(tail) || tag.starts_with(['.', '-']) {
            return Err(format!("{tag:?} is not a tag: expected at most 128 letters, digits, _ . -"));
        }
        Ok(Self { registry: registry.into(), repository: repository.into(), tag: tag.into() })
    }

    /// Returns the host and port that speak the protocol.
    pub(crate) fn server(&self) -> &str {
        if self.registry == DOCKER { "registry-1.docker.io" } else { &self.registry }
    }

    /// Returns true if the registry is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = match self.registry.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => self.registry.split(':').next().unwrap_or_default(),
        };
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.registry, self.repository, self.tag)
    }
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (registry, rest) = match text.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
            _ => (DOCKER, text),
        };
        if rest.contains('@') {
            return Err("expected a tag, not a digest: the image determines the digest".into());
        }
        let (repository, tag) = rest.split_once(':').unwrap_or((rest, "latest"));
        let library = if registry == DOCKER && !repository.contains('/') { "library/" } else { "" };
        let mut read = Self::new(registry, repository, tag)?;
        read.repository.insert_str(0, library);
        Ok(read)
    }
}

/// Returns true if a part of a repository's name is one: words of lower case letters and digits, with `.`, `_`, `__` or
/// dashes between.
fn is_component(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    let ends_well = bytes.first().copied().is_some_and(is_word) && bytes.last().copied().is_some_and(is_word);
    let mut between =
        part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()).filter(|text| !text.is_empty());
    ends_well && between.all(|text| [".", "_", "__"].contains(&text) || text.bytes().all(|byte| byte == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_parsed_as_by_docker() {
        for (text, expected) in [
            ("redis", "docker.io/library/redis:latest"),
            ("team/redis:7", "docker.io/team/redis:7"),
            ("localhost/redis", "localhost/redis:latest"),
            ("127.0.0.1:5000/a/b__c/d-e.f:v1_0.1-x", "127.0.0.1:5000/a/b__c/d-e.f:v1_0.1-x"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
        ] {
            let read: Result<Reference, String> = text.parse();
            assert_eq!(read.map(|read| read.to_string()).as_deref(), Ok(expected), "{text}");
        }
        for wrong in
            ["", "A", "a/", "/a", "a:", "a:-x", "a b", "a..b", "a_-b", "x.y/a@sha256:00", "x.y:/a:b:c", "u@x.y/a"]
        {
            assert!(wrong.parse::<Reference>().is_err(), "{wrong}");
        }
        let loopback = |text: &str| text.parse::<Reference>().is_ok_and(|read| read.is_loopback());
        assert!(loopback("localhost:5000/a") && loopback("127.0.0.2/a") && loopback("[::1]:1/a"));
        assert!(!loopback("127.0.0.1.example.com/a") && !loopback("redis"));
    }
}
