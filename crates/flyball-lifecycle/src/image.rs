//! Names of images, as Docker writes them.
//!
//! See <https://github.com/distribution/reference/blob/main/reference.go> for the grammar.

use std::fmt;
use std::str::FromStr;

/// Default registry.
const DOCKER: &str = "docker.io";

/// Text that is not the name of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an image: {why}")]
pub struct InvalidImageName {
    /// The text.
    pub text: String,
    /// The reason.
    pub why: &'static str,
}

/// The name of an image, such as `quay.io/team/operator:v1` or `quay.io/team/operator@sha256:…`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Ord, PartialOrd)]
pub struct ImageName {
    /// Host and port of the registry.
    pub registry: String,
    /// The repository in the registry.
    pub repository: String,
    /// The tag.
    pub tag: Option<String>,
    /// The digest of the manifest.
    pub digest: Option<String>,
}

impl ImageName {
    /// Parses the part of a name after the registry: the repository, the tag and the digest.
    ///
    /// # Errors
    ///
    /// If the registry is not a host, or the path has an invalid form.
    pub fn in_registry(registry: &str, path: &str) -> Result<Self, InvalidImageName> {
        let invalid = |why| InvalidImageName { text: format!("{registry}/{path}"), why };
        let (name, digest) = match path.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (path, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(invalid("expected a digest such as sha256:… after @"));
        }
        if !is_host(registry) {
            return Err(invalid("expected a host such as quay.io before the first slash"));
        }
        let (repository, tag) = match name.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (name, None),
        };
        if !repository.split('/').all(is_component) || repository.len() > 255 {
            return Err(invalid("expected lower case letters and digits, separated by . _ - or /"));
        }
        let is_tag_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        let is_tag =
            |tag: &str| (1..=128).contains(&tag.len()) && tag.bytes().all(is_tag_byte) && !tag.starts_with(['.', '-']);
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid("expected at most 128 letters, digits, _ . - after the colon"));
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }

    /// Returns the tag or digest that identifies the manifest; the digest if there are both.
    pub fn version(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest")
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        self.tag.iter().try_for_each(|tag| write!(f, ":{tag}"))?;
        self.digest.iter().try_for_each(|digest| write!(f, "@{digest}"))
    }
}

impl FromStr for ImageName {
    type Err = InvalidImageName;

    fn from_str(text: &str) -> Result<Self, InvalidImageName> {
        let (registry, path) = match text.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" || has_upper(first) => {
                (first, rest)
            }
            _ => (DOCKER, text),
        };
        let mut name = Self::in_registry(registry, path)
            .map_err(|error| InvalidImageName { text: text.to_owned(), why: error.why })?;
        if name.registry == DOCKER && !name.repository.contains('/') {
            if is_hex(&name.repository, 64) {
                return Err(InvalidImageName { text: text.to_owned(), why: "64 hexadecimal digits are an image ID" });
            }
            name.repository.insert_str(0, "library/");
        }
        Ok(name)
    }
}

fn has_upper(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns true for a digest of an algorithm that the specification registers.
fn is_digest(text: &str) -> bool {
    match text.split_once(':') {
        Some(("sha256", hex)) => is_hex(hex, 64),
        Some(("sha384", hex)) => is_hex(hex, 96),
        Some(("sha512", hex)) => is_hex(hex, 128),
        _ => false,
    }
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            let is_address = address.parse::<std::net::Ipv6Addr>().is_ok();
            return is_address && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
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
    fn names_are_parsed_as_by_docker() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, expected) in [
            ("redis".to_owned(), "docker.io/library/redis".to_owned()),
            ("team/redis:7".to_owned(), "docker.io/team/redis:7".to_owned()),
            ("localhost:5000/a".to_owned(), "localhost:5000/a".to_owned()),
            ("[::1]:5000/a:1".to_owned(), "[::1]:5000/a:1".to_owned()),
            (format!("quay.io/a/b:v1@{digest}"), format!("quay.io/a/b:v1@{digest}")),
        ] {
            assert_eq!(text.parse::<ImageName>().map(|name| name.to_string()), Ok(expected));
        }
        let name: ImageName = format!("quay.io/a/b:v1@{digest}").parse().unwrap();
        assert_eq!(name.version(), digest);
        assert_eq!("a".parse::<ImageName>().unwrap().version(), "latest");
        for wrong in
            ["", "A", "quay.io/A", "a:", "a:-x", "a b", "a..b", "a@sha256:00", "x.y/a:b:c", "-.x/a", &"0a".repeat(32)]
        {
            assert!(wrong.parse::<ImageName>().is_err(), "{wrong}");
        }
    }
}
