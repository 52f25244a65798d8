//! `Chart.lock`: the versions of the subcharts that the constraints of `Chart.yaml` were resolved to.

use super::metadata::Fields;
use super::{ChartError, Dependency, metadata};
use crate::functions::{crypto, json};
use crate::value::{List, ListKind, Value};
use crate::yaml;
use ring::digest;

/// The locked dependencies of a chart: `Chart.lock`, or `requirements.lock` of charts with `apiVersion: v1`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lock {
    /// Time of creation, in RFC 3339.
    pub generated: String,
    /// Digest of the constraints and versions, see [`Lock::digest_of`].
    pub digest: String,
    /// Subcharts with their versions.
    pub dependencies: Vec<Dependency>,
}

impl Lock {
    /// Reads a lock.
    ///
    /// # Errors
    ///
    /// If the text is not YAML, or a field has an unexpected type.
    pub fn read(file: &'static str, bytes: &[u8]) -> Result<Self, ChartError> {
        Self::parse(bytes).map_err(|error| ChartError::File { file, message: error.to_string() })
    }

    fn parse(bytes: &[u8]) -> Result<Self, yaml::Error> {
        let document = yaml::read(bytes)?;
        let Some(fields) = Fields::of(&document, "Lock", "", "chart.Lock")? else { return Ok(Self::default()) };
        let dependencies = fields.list("dependencies", "[]*chart.Dependency")?;
        Ok(Self {
            generated: fields.text("generated")?,
            digest: fields.text("digest")?,
            dependencies: dependencies.iter().map(Dependency::read).collect::<Result<_, _>>()?,
        })
    }

    /// Returns the file, as Helm writes it.
    pub fn to_yaml(&self) -> String {
        let dependencies = Value::list(self.dependencies.iter().map(Dependency::as_written).collect());
        let fields = [
            ("dependencies", dependencies),
            ("digest", Value::str(&self.digest)),
            ("generated", Value::str(&self.generated)),
        ];
        metadata::document(&Value::map(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }

    /// Returns the digest of constraints in `Chart.yaml` and of the versions in a lock. The lock is up to date if it
    /// has this digest.
    ///
    /// # Errors
    ///
    /// If a dependency has no form in JSON.
    pub fn digest_of(required: &[Dependency], locked: &[Dependency]) -> Result<String, ChartError> {
        Ok(sha256(&format!("[{},{}]", to_json(required)?, to_json(locked)?)))
    }

    /// Returns the digest that Helm 2 wrote, which covers the constraints only.
    ///
    /// # Errors
    ///
    /// If a dependency has no form in JSON.
    pub fn legacy_digest_of(required: &[Dependency]) -> Result<String, ChartError> {
        Ok(sha256(&format!("{{\"dependencies\":{}}}", to_json(required)?)))
    }
}

/// Encodes dependencies as Go does.
fn to_json(dependencies: &[Dependency]) -> Result<String, ChartError> {
    let items = dependencies.iter().map(Dependency::as_written).collect();
    let list = Value::List(List::new(ListKind::Named("[]*chart.Dependency"), items));
    json::write(&list, true).map_err(|message| {
        let is_invalid = |dependency: &&Dependency| json::write(&dependency.as_written(), true).is_err();
        let name = dependencies.iter().find(is_invalid).map(|dependency| dependency.name.clone()).unwrap_or_default();
        ChartError::Dependency { name, message }
    })
}

fn sha256(text: &str) -> String {
    format!("sha256:{}", crypto::hex_digest(&digest::SHA256, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Chart;
    use crate::chart::File;

    /// `Chart.yaml` and the lock that Helm 4.2.3 wrote for it.
    const CHART: &str = r#"apiVersion: v2
name: site
version: 3.1.0
description: part "site"
dependencies:
- name: cache
  version: ">=1.0.0 <1.9"
  repository: http://127.0.0.1:18099
  condition: cache.enabled,global.cache
  tags: [fast, "a&b"]
  import-values:
  - data
  - child: a.b
    parent: c
- name: queue
  version: ~0.4
  repository: http://127.0.0.1:18099
  alias: jobs
- name: local
  version: 0.x
  repository: file://../local
"#;
    const LOCK: &str = r#"dependencies:
- name: cache
  repository: http://127.0.0.1:18099
  version: 1.3.0+build.5
- name: queue
  repository: http://127.0.0.1:18099
  version: 0.4.2
- name: local
  repository: file://../local
  version: 0.7.0
digest: sha256:8e6419050d4a3291f026110a40835af0dc6b08d2f90777b76ee84b4e586e2980
generated: "2026-11-26T11:29:28.815368422Z"
"#;
    /// Output of `helm show chart`, without the empty line at its end.
    const SHOWN: &str = r#"apiVersion: v2
dependencies:
- condition: cache.enabled,global.cache
  import-values:
  - data
  - child: a.b
    parent: c
  name: cache
  repository: http://127.0.0.1:18099
  tags:
  - fast
  - a&b
  version: '>=1.0.0 <1.9'
- alias: jobs
  name: queue
  repository: http://127.0.0.1:18099
  version: ~0.4
- name: local
  repository: file://../local
  version: 0.x
description: part "site"
name: site
version: 3.1.0
"#;

    fn chart(files: &[(&str, &str)]) -> Chart {
        let file = |(path, text): &(&str, &str)| File { path: (*path).into(), data: text.as_bytes().into() };
        Chart::from_files(files.iter().map(file).collect(), crate::HelmVersion::default()).unwrap()
    }

    #[test]
    fn lock_equals_that_of_helm() {
        let required = chart(&[("Chart.yaml", CHART)]).metadata.dependencies;
        let lock = Lock::read("Chart.lock", LOCK.as_bytes()).unwrap();
        assert_eq!(lock.to_yaml(), LOCK);
        assert_eq!(Lock::digest_of(&required, &lock.dependencies).unwrap(), lock.digest);
        let mut other = required;
        other[1].alias = "job".into();
        assert_ne!(Lock::digest_of(&other, &lock.dependencies).unwrap(), lock.digest);
    }

    #[test]
    fn lock_of_first_version_equals_that_of_helm() {
        let requirements = "dependencies:\n- name: queue\n  version: 0.4.2\n  repository: http://127.0.0.1:18099\n";
        let old = chart(&[("Chart.yaml", "name: old\nversion: 1.0.0\n"), ("requirements.yaml", requirements)]);
        let required = old.metadata.dependencies.clone();
        assert_eq!(
            Lock::digest_of(&required, &required).unwrap(),
            "sha256:bd6a67ec9ab916ccd462378e3b29f1b95e516ac73ed2d3728921d490b901fb5c"
        );
        let legacy = Lock::legacy_digest_of(&required).unwrap();
        assert_ne!(legacy, Lock::digest_of(&required, &required).unwrap());
        let shown = "apiVersion: v1\ndependencies:\n- name: queue\n  repository: http://127.0.0.1:18099\n  \
                     version: 0.4.2\nname: old\nversion: 1.0.0\n";
        assert_eq!(old.metadata.to_yaml(), shown);
    }

    #[test]
    fn metadata_is_written_as_by_helm() {
        assert_eq!(chart(&[("Chart.yaml", CHART)]).metadata.to_yaml(), SHOWN);
    }

    #[test]
    fn malformed_locks_are_rejected() {
        for (text, expected) in [
            ("[]", "cannot unmarshal array into Go value of type chart.Lock"),
            ("x", "cannot unmarshal string into Go value of type chart.Lock"),
            ("dependencies: x", "Go struct field Lock.dependencies of type []*chart.Dependency"),
            ("dependencies: [x]", "Go struct field dependencies of type chart.Dependency"),
            ("dependencies: [{name: []}]", "Go struct field Dependency.dependencies.name of type string"),
            ("digest: {}", "Go struct field Lock.digest of type string"),
            ("generated: []", "Go struct field Lock.generated of type string"),
            ("dependencies: [{import-values: [.nan]}]", "unsupported value: NaN"),
            ("a: [", ""),
        ] {
            let error = Lock::read("Chart.lock", text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("cannot load Chart.lock: ") && error.contains(expected), "{text}: {error}");
        }
        for empty in ["", "null", "dependencies: null\ndigest: null\n"] {
            assert_eq!(Lock::read("Chart.lock", empty.as_bytes()).unwrap(), Lock::default());
        }
    }
}
