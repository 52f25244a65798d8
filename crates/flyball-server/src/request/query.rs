//! The query of a URL.

/// The parameters of a query, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query; undecodable parts are kept as they are.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name, true), decode(value, true))
        });
        Self(pairs.collect())
    }

    /// Returns the first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns a parameter's value, empty if it is absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Returns all values of a parameter.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Reads a flag: it is true if it is present, unless it is `false` or `0`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Encodes the query.
    pub(crate) fn encode(&self) -> String {
        let pairs = self.0.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        pairs.collect::<Vec<_>>().join("&")
    }
}

/// Encodes all characters except for unreserved ones.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            byte => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

/// Undoes percent encoding, and in queries the plus for a blank.
pub(crate) fn decode(text: &str, query: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |i: usize| bytes.get(i).and_then(|b| char::from(*b).to_digit(16));
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) if query => out.push(b' '),
            (b, ..) => out.push(b),
        }
        at += 1;
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&limit=5&dryRun=All&dryRun=x&empty&x=a+b%zz");
        assert_eq!(query.get("labelSelector"), Some("a=b,c"));
        assert_eq!(query.all("dryRun"), ["All", "x"]);
        assert_eq!(query.get("empty"), Some(""));
        assert_eq!(query.text("x"), "a b%zz");
        assert_eq!(query.encode(), "labelSelector=a%3Db%2Cc&limit=5&dryRun=All&dryRun=x&empty=&x=a%20b%25zz");
    }

    #[test]
    fn flags_are_set_unless_false() {
        let query = Query::parse("a=true&b=maybe&c=&d=False&e=0");
        assert_eq!(
            ["a", "b", "c", "d", "e", "f"].map(|name| query.flag(name)),
            [true, true, true, false, false, false]
        );
    }
}
