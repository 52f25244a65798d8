//! URLs, with Go's errors.
//!
//! The order of the checks is that of Go's `url.Parse`: the first error is reported.

/// The parts of a URL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// The scheme in lower case, empty if there is none.
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) host: String,
    pub(crate) query: String,
    pub(crate) fragment: String,
}

impl Url {
    /// Parses a URL, or returns the error.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
        let url = Self::without_fragment(whole).map_err(|why| format!("parse {whole:?}: {why}"))?;
        check_escapes(fragment).map_err(|why| format!("parse {text:?}: {why}"))?;
        Ok(Self { fragment: fragment.to_owned(), ..url })
    }

    fn without_fragment(text: &str) -> Result<Self, String> {
        if text.bytes().any(|b| b.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".into());
        }
        let (scheme, rest) = split_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self {
            scheme: scheme.to_lowercase(),
            user: None,
            host: String::new(),
            query: query.to_owned(),
            fragment: String::new(),
        };
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                return Ok(url);
            }
            if rest.split('/').next().unwrap_or_default().contains(':') {
                return Err("first path segment in URL cannot contain colon".into());
            }
        }
        let named = rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///"));
        let Some(named) = named else {
            check_escapes(rest)?;
            return Ok(url);
        };
        let (authority, path) = named.split_at(named.find('/').unwrap_or(named.len()));
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        check_host(host)?;
        if let Some(user) = user {
            if !user.chars().all(|c| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c)) {
                return Err("net/url: invalid userinfo".into());
            }
            check_escapes(user)?;
        }
        check_escapes(path)?;
        url.user = user.map(str::to_owned);
        url.host = host.to_owned();
        Ok(url)
    }
}

/// Splits off the scheme, if there is one.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let Some((scheme, rest)) = text.split_once(':') else { return Ok(("", text)) };
    if scheme.is_empty() {
        return Err("missing protocol scheme".into());
    }
    let is_one = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    Ok(if is_one { (scheme, rest) } else { ("", text) })
}

fn check_host(host: &str) -> Result<(), String> {
    let port = if host.starts_with('[') {
        let Some(end) = host.rfind(']') else { return Err("missing ']' in host".into()) };
        &host[end + 1..]
    } else {
        host.rfind(':').map_or("", |colon| &host[colon..])
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if digits.bytes().any(|b| !b.is_ascii_digit()) || (digits.len() == port.len() && !port.is_empty()) {
        return Err(format!("invalid port {port:?} after host"));
    }
    for (at, c) in host.char_indices() {
        if c == '%' {
            let escape = escape(host, at)?;
            // In a host, only non-ASCII bytes and the separator of a zone may be escaped.
            if escape.as_bytes()[1] < b'8' && escape != "%25" {
                return Err(format!("invalid URL escape {escape:?}"));
            }
        } else if c.is_ascii() && !c.is_ascii_alphanumeric() && !"-_.~!$&'()*+,;=:[]<>\"".contains(c) {
            return Err(format!("invalid character {:?} in host name", c.to_string()));
        }
    }
    Ok(())
}

fn check_escapes(text: &str) -> Result<(), String> {
    text.match_indices('%').try_for_each(|(at, _)| escape(text, at).map(drop))
}

/// Returns the escape that begins with a percent sign.
fn escape(text: &str, at: usize) -> Result<&str, String> {
    let rest = &text[at..];
    let hex = rest.bytes().skip(1).take(2).filter(u8::is_ascii_hexdigit).count();
    if hex == 2 {
        return Ok(&rest[..3]);
    }
    let escape: String = rest.chars().take(3).collect();
    Err(format!("invalid URL escape {escape:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_urls_are_rejected_for_the_first_error() {
        for (text, why) in [
            ("://", r#"parse "://": missing protocol scheme"#),
            (":x#f", r#"parse ":x": missing protocol scheme"#),
            ("1a:b", r#"parse "1a:b": first path segment in URL cannot contain colon"#),
            ("https://h:p", r#"parse "https://h:p": invalid port ":p" after host"#),
            ("https://[::1", r#"parse "https://[::1": missing ']' in host"#),
            ("https://[::1]x", r#"parse "https://[::1]x": invalid port "x" after host"#),
            ("https://a b", r#"parse "https://a b": invalid character " " in host name"#),
            ("https://a%20b", r#"parse "https://a%20b": invalid URL escape "%20""#),
            ("https://h/%zz", r#"parse "https://h/%zz": invalid URL escape "%zz""#),
            ("https://h/%é", r#"parse "https://h/%é": invalid URL escape "%é""#),
            ("https://h/%2", r#"parse "https://h/%2": invalid URL escape "%2""#),
            ("https://u[@h", r#"parse "https://u[@h": net/url: invalid userinfo"#),
            ("https://h#%", r#"parse "https://h#%": invalid URL escape "%""#),
            ("https://h\n", r#"parse "https://h\n": net/url: invalid control character in URL"#),
        ] {
            assert_eq!(Url::parse(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn urls_are_split_into_parts() {
        for (text, scheme, user, host, query, fragment) in [
            ("HTTPS://u:p@h:1/p?q#f", "https", Some("u:p"), "h:1", "q", "f"),
            ("https://[::1]:8443/p", "https", None, "[::1]:8443", "", ""),
            ("https:h", "https", None, "", "", ""),
            ("//h", "", None, "h", "", ""),
            ("///h", "", None, "", "", ""),
            ("https:///p", "https", None, "", "", ""),
            ("h/a:b", "", None, "", "", ""),
            ("https://@h", "https", Some(""), "h", "", ""),
            ("", "", None, "", "", ""),
        ] {
            let owned = str::to_owned;
            let expected = Url {
                scheme: owned(scheme),
                user: user.map(owned),
                host: owned(host),
                query: owned(query),
                fragment: owned(fragment),
            };
            assert_eq!(Url::parse(text), Ok(expected), "{text}");
        }
    }
}
