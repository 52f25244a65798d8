//! Names of images, see <https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests>.

use flyball_lifecycle::{ImageName, InvalidImageName};
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
        Self::of(ImageName::in_registry(registry, &format!("{repository}:{tag}")))
    }

    fn of(name: Result<ImageName, InvalidImageName>) -> Result<Self, String> {
        let name = name.map_err(|error| error.to_string())?;
        if name.digest.is_some() {
            return Err("expected a tag, not a digest: the image determines the digest".into());
        }
        let tag = name.tag.unwrap_or_else(|| "latest".to_owned());
        Ok(Self { registry: name.registry, repository: name.repository, tag })
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
        Self::of(text.parse())
    }
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
