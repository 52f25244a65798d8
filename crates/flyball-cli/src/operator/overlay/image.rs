//! Names of images, see <https://github.com/distribution/reference>.

/// Checks the reference of an image: a host if any, a path, and a tag, a digest, or both.
pub(crate) fn parse_image(text: &str) -> Result<String, String> {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (text, None),
    };
    if let Some(digest) = digest {
        let hex = digest.split_once(':').map(|(_, hex)| hex).unwrap_or_default();
        if hex.len() < 32 || !hex.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)) {
            return Err(format!("{digest:?} is not a digest: expected sha256: and 64 hexadecimal digits"));
        }
    }
    let path = without_tag(rest);
    if let Some(tag) = rest.strip_prefix(path).and_then(|tag| tag.strip_prefix(':')) {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if tag.is_empty() || tag.len() > 128 || !tag.chars().all(fits) || tag.starts_with(['.', '-']) {
            return Err(format!("{tag:?} is not a tag: expected at most 128 letters, digits, _ . -"));
        }
    }
    let (host, path) = match path.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (Some(host), path),
        _ => (None, path),
    };
    if let Some(host) = host {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        if !host.chars().all(fits) || host.starts_with([':', '.', '-']) {
            return Err(format!("{host:?} is not a registry host"));
        }
    }
    let separators = ['.', '_', '-'];
    let fits = |part: &str| {
        let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || separators.contains(&c);
        !part.is_empty() && part.chars().all(inside) && !part.starts_with(separators) && !part.ends_with(separators)
    };
    match path.split('/').find(|part| !fits(part)) {
        None => Ok(text.to_owned()),
        Some(part) => {
            Err(format!("{part:?} is not an image name: expected lower case letters and digits, separated by . _ -"))
        }
    }
}

/// Returns the name of an image without its tag and its digest.
pub(super) fn without_tag(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    let last = image.rfind('/').map_or(0, |at| at + 1);
    image[last..].find(':').map_or(image, |at| &image[..last + at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_has_a_path_and_optional_parts() {
        let digest = format!("a@sha256:{}", "0a".repeat(32));
        for right in
            ["a", "a:1.0", "library/a", "localhost:5000/a/b:x", "ghcr.io/acme/op_1:v1-a", "[::1]:5000/a", &digest]
        {
            assert_eq!(parse_image(right).as_deref(), Ok(right));
        }
        for wrong in ["", "A", "a:", "a b", "a/", "/a", "a:-x", "a@sha256:12", "ghcr.io/", "-a", "a//b", "https://a/b"]
        {
            assert!(parse_image(wrong).is_err(), "{wrong}");
        }
        for (image, expected) in [("a:1", "a"), ("h:5000/a", "h:5000/a"), ("h:5000/a:1@sha256:0", "h:5000/a")] {
            assert_eq!(without_tag(image), expected);
        }
    }
}
