//! Manifests without the contents of Secrets, for readers of custom resources.
//!
//! Invariant: a document that may contain a Secret is written as it was parsed, or the whole manifest is omitted.

use flyball_chart::{BoundedYaml, Budget, to_yaml};
use serde_json::Value;

/// Replaces each value of a Secret.
const MARKER: &str = "(hidden)";

/// Nesting depth up to which items of lists are searched for Secrets.
const MAX_DEPTH: usize = 8;

/// Returns a manifest in which the values of Secrets are replaced; `None` if it cannot be read.
pub(crate) fn redacted(manifest: &str) -> Option<String> {
    // An escape sequence in YAML may hide the name of the kind.
    let is_suspect = |text: &str| text.contains("Secret") || text.contains('\\');
    if !is_suspect(manifest) {
        return Some(manifest.to_owned());
    }
    let mut yaml = BoundedYaml::new(Budget::untrusted().bytes);
    let mut shown = String::new();
    for document in split(manifest) {
        if !is_suspect(document) {
            shown.push_str(document);
            continue;
        }
        let mut value = yaml.read(document).ok().filter(|_| !yaml.is_exhausted())?;
        let is_stream = document.lines().skip(1).any(|line| line.starts_with("---") || line.starts_with("..."));
        if hide(&mut value, MAX_DEPTH)? || is_stream {
            let head = document.lines().take_while(|line| line.starts_with("---") || line.starts_with('#'));
            head.for_each(|line| shown.extend([line, "\n"]));
            shown.push_str(&to_yaml(&value, str::cmp));
        } else {
            shown.push_str(document);
        }
    }
    Some(shown)
}

/// Splits a manifest into documents, with their separators.
fn split(manifest: &str) -> Vec<&str> {
    let (mut documents, mut start, mut at) = (Vec::new(), 0, 0);
    for line in manifest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            documents.push(&manifest[start..at]);
            start = at;
        }
        at += line.len();
    }
    documents.push(&manifest[start..]);
    documents
}

/// Hides the values of a Secret or of those in a list, and returns true if there are any; `None` if the lists are
/// nested too deeply.
fn hide(object: &mut Value, depth: usize) -> Option<bool> {
    let mut found = false;
    if object["kind"] == "Secret" {
        for field in ["data", "stringData"] {
            match object.get_mut(field) {
                Some(Value::Object(values)) => values.values_mut().for_each(|value| *value = MARKER.into()),
                Some(value) if !value.is_null() => *value = MARKER.into(),
                _ => {}
            }
        }
        found = true;
    }
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        let depth = depth.checked_sub(1)?;
        for item in items {
            found |= hide(item, depth)?;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_chart::from_yaml;

    /// A document without a Secret.
    const PAGE: &str =
        "---\n# Source: site/templates/page.yaml\napiVersion: v1\nkind: ConfigMap\ndata: {b: a,  a: b}\n";

    fn documents(manifest: &str) -> Vec<Value> {
        split(manifest)
            .into_iter()
            .map(|document| from_yaml(document).unwrap())
            .filter(|value| !value.is_null())
            .collect()
    }

    #[test]
    fn values_of_secrets_are_hidden_and_other_documents_are_unchanged() {
        for secret in [
            "apiVersion: v1\nkind: Secret\ndata: {key: cGFzcw==}\nstringData:\n  key: pass\n",
            "apiVersion: v1\nkind: \"\\x53ecret\"\ndata: {key: cGFzcw==}\nstringData: {key: pass}\n",
            "{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"data\": {\"key\": \"cGFzcw==\"}, \"stringData\": {\"key\": \"pass\"}}\n",
            "apiVersion: v1\nkind: Secret\ndata: {key: (hidden)}\nstringData: {key: (hidden)}\n--- # pass\nkey: cGFzcw==\n",
        ] {
            let head = "---\n# Source: site/templates/key.yaml\n";
            let shown = redacted(&format!("{PAGE}{head}{secret}{PAGE}")).unwrap();
            let middle = shown.strip_prefix(PAGE).and_then(|rest| rest.strip_suffix(PAGE)).unwrap();
            assert!(middle.starts_with(head) && !middle.contains("pass") && !middle.contains("cGFz"), "{middle}");
            assert_eq!(from_yaml(middle).unwrap()["data"]["key"], MARKER, "{middle}");
            assert_eq!(from_yaml(middle).unwrap()["stringData"]["key"], MARKER, "{middle}");
        }
        let odd = "apiVersion: v1\nkind: Secret\ndata: pass\n";
        assert!(!redacted(odd).unwrap().contains("pass"));
    }

    #[test]
    fn values_of_secrets_in_lists_are_hidden() {
        let list = "apiVersion: v1\nkind: List\nitems:\n- kind: List\n  items: [{kind: Secret, data: {a: cGFzcw==}}]\n";
        let shown = redacted(list).unwrap();
        assert_eq!(documents(&shown)[0]["items"][0]["items"][0]["data"]["a"], MARKER);
        let nested = format!("{}{{kind: Secret, data: {{a: b}}}}{}", "{items: [".repeat(9), "]}".repeat(9));
        assert_eq!(redacted(&nested), None);
    }

    #[test]
    fn manifest_without_secrets_is_unchanged_and_an_unreadable_one_is_left_out() {
        let named = format!("{PAGE}---\napiVersion: v1\nkind: Pod\nspec: {{volume: {{secretName: Secret}}}}\n");
        for manifest in ["", PAGE, &named] {
            assert_eq!(redacted(manifest).as_deref(), Some(manifest));
        }
        assert_eq!(redacted("---\nkind: Secret\ndata: {a: [\n"), None);
    }
}
