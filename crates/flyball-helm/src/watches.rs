//! `watches.yaml`: the chart of each kind of custom resources.

use crate::selector;
use crate::storage::MAX_HISTORY;
use crate::yaml;
use flyball::{GroupVersionKind, Kind};
use flyball_chart::{HelmVersion, Values, ValuesError, override_value};
use flyball_core::time::{parse_duration, parse_unsigned_duration};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Size limit of `watches.yaml`.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The fields of an entry.
const FIELDS: [&str; 18] = [
    "group",
    "version",
    "kind",
    "chart",
    "watchDependentResources",
    "overrideValues",
    "selector",
    "reconcilePeriod",
    "maxConcurrentReconciles",
    "evaluateTemplates",
    "structureFromValues",
    "helmVersion",
    "dryRunOption",
    "wait",
    "timeout",
    "rollbackOnFailure",
    "maxHistory",
    "upgradeCRDs",
];
/// The time limit of a hook and of a wait, unless an entry sets another one; as in Helm.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_mins(5);
/// Values of `dryRunOption`. `lookup` always reads from the cluster, as with `server`.
const DRY_RUN_OPTIONS: [&str; 3] = ["none", "client", "server"];

/// A `watches.yaml`: an entry for each kind.
///
/// The format is that of [operator-sdk's Helm
/// operators](https://sdk.operatorframework.io/docs/building-operators/helm/reference/watches/):
///
/// ```yaml
/// - group: cache.example.com
///   version: v1alpha1
///   kind: Memcached
///   chart: helm-charts/memcached
///   overrideValues:
///     image.repository: $MEMCACHED_IMAGE
///   selector:
///     matchLabels: {tier: cache}
///   reconcilePeriod: 5m
/// ```
///
/// Chart paths are relative to the file's directory, which is the project directory: it may contain `config/crd/bases`
/// and `config/samples`.
#[derive(Clone, Debug, PartialEq)]
#[doc(alias = "LoadWatches")]
pub struct Watches {
    folder: PathBuf,
    entries: Vec<Watch>,
    reloads: bool,
    is_deterministic: bool,
}

/// One entry: the custom resources of one kind become releases of one chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// The kind of the custom resources.
    pub kind: GroupVersionKind,
    /// The chart: a directory or an archive.
    pub chart: PathBuf,
    /// True if changes of a release's objects trigger a reconcile; true by default.
    #[doc(alias = "SkipDependentWatches")]
    pub watch_dependent_resources: bool,
    /// Values that override those of all custom resources, in the syntax of `--set-string`. Environment variables are
    /// replaced and [templates](flyball_chart::override_value) executed.
    #[doc(alias = "WithOverrideValues")]
    pub override_values: BTreeMap<String, String>,
    /// Label selector of custom resources; empty selects all.
    pub selector: String,
    /// Reconcile period of each release.
    pub reconcile_period: Option<Duration>,
    /// Limit of concurrent reconciles.
    pub max_concurrent_reconciles: Option<usize>,
    /// True if `tpl` evaluates text of custom resources and of objects from `lookup`. Otherwise such text is data,
    /// since evaluation would allow any author of a custom resource to run templates in the operator.
    pub evaluate_templates: bool,
    /// True if values of custom resources may determine the structure of objects outside of their namespace: fields,
    /// items of lists, and the text around values. Otherwise they are limited to scalars, since the author of a custom
    /// resource would determine these objects.
    pub structure_from_values: bool,
    /// The Helm version that charts are rendered with: 3, unless the entry sets 4.
    pub helm_version: HelmVersion,
    /// True if a revision counts as deployed only once its objects are ready, as with `helm install --wait`.
    pub wait: bool,
    /// Time limit of each hook, and of the objects that a revision waits for; 5 minutes by default.
    pub timeout: Duration,
    /// True if a failed upgrade is rolled back: the deployed revision is installed again; true by default.
    pub rollback_on_failure: bool,
    /// Limit of stored revisions of a release.
    #[doc(alias = "WithMaxReleaseHistory")]
    pub max_history: usize,
    /// True if upgrades also change the CRDs in the chart's directory `crds`, if all stored objects remain valid.
    pub upgrade_crds: bool,
}

/// Error in a `watches.yaml`.
#[derive(Debug, thiserror::Error)]
pub enum WatchesError {
    /// The file cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is too large.
    #[error("{} is larger than {MAX_FILE_BYTES} bytes", file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// The file is not a YAML list.
    #[error("{} is not a valid YAML list of watches: {problem}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// The problem and its position.
        problem: String,
    },
    /// An entry is invalid.
    #[error("{}: entry {number}{}: {field}: {problem}", file.display(), if kind.is_empty() { String::new() } else { format!(" ({kind})") })]
    Entry {
        /// The file.
        file: PathBuf,
        /// The entry, from 1 on.
        number: usize,
        /// Its kind, if it has one.
        kind: String,
        /// The field.
        field: String,
        /// The problem.
        problem: String,
    },
}

impl Watches {
    /// Reads a `watches.yaml`. Variables in `overrideValues` are environment variables of the process.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or an entry has an unknown field, lacks a required one, or names a chart that does
    /// not exist.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, WatchesError> {
        let file = path.as_ref();
        let failed = |source| WatchesError::Read { file: file.to_owned(), source };
        if std::fs::metadata(file).map_err(failed)?.len() > MAX_FILE_BYTES {
            return Err(WatchesError::TooLarge { file: file.to_owned() });
        }
        let text = std::fs::read_to_string(file).map_err(failed)?;
        Self::parse(&text, file, |name| std::env::var(name).ok())
    }

    /// Parses the text of a `watches.yaml` with these variables. Errors contain the path of the file; chart paths are
    /// relative to its directory.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn parse(text: &str, file: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<Self, WatchesError> {
        let blank = text.lines().all(|line| matches!(line.trim(), "" | "---") || line.trim_start().starts_with('#'));
        let entries: Vec<Value> = if blank {
            Vec::new()
        } else {
            let syntax = |problem: String| WatchesError::Syntax { file: file.to_owned(), problem };
            serde_saphyr::from_str(text).map_err(|error| syntax(yaml::problem(&error)))?
        };
        let folder = match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let (mut watches, mut seen) = (Vec::new(), BTreeSet::new());
        for (index, entry) in entries.iter().enumerate() {
            let wrong = |(field, problem): (String, String)| {
                let kind = entry.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
                WatchesError::Entry { file: file.to_owned(), number: index + 1, kind, field, problem }
            };
            let watch = Watch::read(entry, &folder, &variable).map_err(wrong)?;
            if !seen.insert(watch.kind.clone()) {
                return Err(wrong((
                    "kind".into(),
                    format!("an earlier entry has kind {} as well: merge the entries", watch.kind),
                )));
            }
            watches.push(watch);
        }
        Ok(Self { folder, entries: watches, reloads: false, is_deterministic: false })
    }

    /// Reloads charts when their files change; the files are checked every second. Changed charts upgrade their
    /// releases. New kinds require a restart of the operator, as reported in the status of custom resources.
    pub fn reloading(mut self, reloads: bool) -> Self {
        self.reloads = reloads;
        self
    }

    /// Makes renderings reproducible in a simulation: random values of templates come from the operator's own source.
    /// Such values are not secure as secrets; by default, they come from the operating system.
    pub fn deterministic(mut self) -> Self {
        self.is_deterministic = true;
        self
    }

    pub(crate) fn is_deterministic(&self) -> bool {
        self.is_deterministic
    }

    pub(crate) fn reloads(&self) -> bool {
        self.reloads
    }

    /// Returns the directory of the project.
    pub fn directory(&self) -> &Path {
        &self.folder
    }

    /// Returns the name of the project: the `projectName` in the file `PROJECT`, or the name of the project directory,
    /// reduced to a valid name in a cluster.
    pub fn name(&self) -> String {
        let folder = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
        let of_folder = || folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = project_name(&folder).or_else(of_folder).unwrap_or_default().to_lowercase();
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(50).collect();
        match name.trim_matches('-') {
            "" => "helm-operator".to_owned(),
            name => name.to_owned(),
        }
    }

    /// Returns the entries.
    pub fn entries(&self) -> &[Watch] {
        &self.entries
    }
}

/// Reads the name of a project from its file `PROJECT`.
fn project_name(folder: &Path) -> Option<String> {
    let path = folder.join("PROJECT");
    let is_small = std::fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() <= MAX_FILE_BYTES);
    let text = is_small.then(|| std::fs::read_to_string(&path).ok()).flatten()?;
    let project: Value = serde_saphyr::from_str(&text).ok()?;
    project["projectName"].as_str().map(str::to_owned)
}

impl Watch {
    fn read(entry: &Value, folder: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, (String, String)> {
        let Some(entry) = entry.as_object() else {
            return Err(("entry".into(), "must be a mapping with group, version, kind and chart".into()));
        };
        if let Some(unknown) = entry.keys().find(|field| !FIELDS.contains(&field.as_str())) {
            return Err((unknown.clone(), format!("unknown field; expected one of {}", FIELDS.join(", "))));
        }
        let needed = |field: &str| match text(entry, field)? {
            Some(text) => Ok(text),
            None => {
                let remedy = match field {
                    "version" => "set the version of the custom resources, such as v1alpha1",
                    "kind" => "set the kind of the custom resources, such as Memcached",
                    _ => "set the path of a chart (a directory or an archive), relative to this file",
                };
                Err((field.to_owned(), format!("required field is missing: {remedy}")))
            }
        };
        let group = text(entry, "group")?.unwrap_or_default();
        let (version, kind) = (needed("version")?, needed("kind")?);
        let chart = folder.join(needed("chart")?);
        if !chart.exists() {
            let problem =
                format!("no chart directory or archive at {}: set its path relative to this file", chart.display());
            return Err(("chart".into(), problem));
        }
        let flag = |field: &str, otherwise: bool| match entry.get(field) {
            None | Some(Value::Null) => Ok(otherwise),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err((field.to_owned(), format!("{other} must be true or false, without quotes"))),
        };
        let number = |field: &str, limit: usize| match entry.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(number) => match number.as_u64().map(|number| number as usize) {
                Some(number) if (1..=limit).contains(&number) => Ok(Some(number)),
                _ => Err((field.to_owned(), format!("must be a number from 1 to {limit}"))),
            },
        };
        check_dry_run_option(entry)?;
        Ok(Self {
            kind: GroupVersionKind::new(&group, &version, &kind),
            chart,
            watch_dependent_resources: flag("watchDependentResources", true)?,
            evaluate_templates: flag("evaluateTemplates", false)?,
            structure_from_values: flag("structureFromValues", false)?,
            helm_version: helm_version(entry)?,
            override_values: override_values(entry, variable)?,
            selector: selector::read(entry.get("selector")).map_err(|problem| ("selector".to_owned(), problem))?,
            reconcile_period: duration(entry, "reconcilePeriod")?,
            max_concurrent_reconciles: number("maxConcurrentReconciles", 1000)?,
            wait: flag("wait", false)?,
            timeout: duration(entry, "timeout")?.unwrap_or(DEFAULT_TIMEOUT),
            rollback_on_failure: flag("rollbackOnFailure", true)?,
            max_history: number("maxHistory", MAX_HISTORY)?.unwrap_or(MAX_HISTORY),
            upgrade_crds: flag("upgradeCRDs", false)?,
        })
    }

    /// Overrides values by those of the entry.
    ///
    /// # Errors
    ///
    /// Returns the first path that is invalid, and the error. The values are not changed.
    pub fn override_in(&self, values: &mut Values) -> Result<(), (String, ValuesError)> {
        let mut overrides = Values::default();
        for (path, value) in &self.override_values {
            overrides.set_string(&format!("{path}={value}")).map_err(|error| (path.clone(), error))?;
        }
        // As in operator-sdk, an override of an item replaces the list.
        values.merge(&overrides);
        Ok(())
    }

    /// Returns the kind with the regular plural.
    pub(crate) fn primary(&self) -> Kind {
        Kind::new(&self.kind.group, &self.kind.version, &self.kind.kind)
    }
}

fn text(entry: &Map<String, Value>, field: &str) -> Result<Option<String>, (String, String)> {
    match entry.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err((field.to_owned(), format!("{other} must be a string: put it in quotes"))),
    }
}

fn helm_version(entry: &Map<String, Value>) -> Result<HelmVersion, (String, String)> {
    match entry.get("helmVersion") {
        None | Some(Value::Null) => Ok(HelmVersion::default()),
        Some(Value::String(text)) => text.parse().map_err(|problem| ("helmVersion".to_owned(), problem)),
        Some(other) => other.to_string().parse().map_err(|problem| ("helmVersion".to_owned(), problem)),
    }
}

fn check_dry_run_option(entry: &Map<String, Value>) -> Result<(), (String, String)> {
    let field = "dryRunOption";
    match text(entry, field)? {
        Some(option) if !DRY_RUN_OPTIONS.contains(&&*option) => {
            Err((field.to_owned(), format!("{option:?} must be {}", DRY_RUN_OPTIONS.join(", "))))
        }
        _ => Ok(()),
    }
}

/// Reads a duration; zero means none.
fn duration(entry: &Map<String, Value>, field: &str) -> Result<Option<Duration>, (String, String)> {
    let Some(text) = text(entry, field)?.filter(|text| parse_duration(text) != Ok(0)) else { return Ok(None) };
    let wrong =
        || (field.to_owned(), format!("{text:?} must be a duration of at least a second, such as 30s, 5m or 1h30m"));
    period(&text).map(Some).ok_or_else(wrong)
}

/// Parses a duration in Go's format, of at least a second.
pub(crate) fn period(text: &str) -> Option<Duration> {
    parse_unsigned_duration(text).filter(|period| *period >= Duration::from_secs(1))
}

fn override_values(
    entry: &Map<String, Value>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, (String, String)> {
    let values = match entry.get("overrideValues") {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(values)) => values,
        Some(_) => {
            return Err((
                "overrideValues".into(),
                "must be a mapping of paths to strings, such as image.tag: \"1.6\"".into(),
            ));
        }
    };
    let expanded = values.iter().map(|(path, value)| match value {
        Value::String(text) => match override_value(path, text, variable) {
            Ok(value) => Ok((path.clone(), value)),
            Err(problem) => Err((format!("overrideValues.{path}"), problem)),
        },
        _ => Err((format!("overrideValues.{path}"), format!("{value} must be a string: put it in quotes"))),
    });
    expanded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Watches, WatchesError> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("watches.yaml");
        Watches::parse(text, &file, |name| (name == "IMAGE").then(|| "memcached:1.6".to_owned()))
    }

    fn check(text: &str, expected: &str) {
        let file = format!("{}/watches.yaml", env!("CARGO_MANIFEST_DIR"));
        let error = parse(text).expect_err(text).to_string();
        assert_eq!(error.replace(&file, "FILE").replace(env!("CARGO_MANIFEST_DIR"), "FOLDER"), expected, "{text}");
    }

    #[test]
    fn entry_has_all_fields_of_operator_sdk() {
        let watches = parse(
            "- group: cache.example.com\n  version: v1\n  kind: Memcached\n  chart: src\n  overrideValues: {image: $IMAGE, a.b: 'x${IMAGE}y$NONE', tag: '{{ (\"$IMAGE\" | split \":\")._1 }}'}\n  \
             selector: {matchLabels: {tier: cache}, matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: d, operator: DoesNotExist}]}\n  \
             reconcilePeriod: 1m30s\n  maxConcurrentReconciles: 4\n  watchDependentResources: false\n  dryRunOption: server\n- {version: v1, kind: Other, chart: src}\n",
        )
        .unwrap();
        let [first, second] = watches.entries() else { panic!("{watches:?}") };
        assert_eq!(first.override_values["image"], "memcached:1.6");
        assert_eq!(first.override_values["a.b"], "xmemcached:1.6y");
        assert_eq!(first.override_values["tag"], "1.6");
        assert_eq!(first.selector, "tier=cache,a in (b,c),!d");
        assert_eq!(first.reconcile_period, Some(Duration::from_secs(90)));
        assert_eq!((first.max_concurrent_reconciles, first.watch_dependent_resources), (Some(4), false));
        assert_eq!((&*second.kind.group, second.watch_dependent_resources), ("", true));
        assert_eq!(parse("# nothing yet\n---\n").unwrap().entries(), []);
    }

    #[test]
    fn fields_about_upgrades_default_to_those_of_helm() {
        let of = |more: &str| {
            let watches = parse(&format!("- {{version: v1, kind: Memcached, chart: src{more}}}")).unwrap();
            let Watch { wait, timeout, rollback_on_failure, max_history, upgrade_crds, .. } = watches.entries()[0];
            (wait, timeout.as_secs(), rollback_on_failure, max_history, upgrade_crds)
        };
        assert_eq!(of(""), (false, 300, true, 10, false));
        for option in DRY_RUN_OPTIONS {
            assert_eq!(of(&format!(", dryRunOption: {option}")), of(""));
        }
        let all = ", wait: true, timeout: 1m30s, rollbackOnFailure: false, maxHistory: 2, upgradeCRDs: true";
        assert_eq!(of(all), (true, 90, false, 2, true));
    }

    #[test]
    fn helm_version_defaults_to_3() {
        let of = |more: &str| {
            let entry = format!("- {{version: v1, kind: Memcached, chart: src{more}}}");
            parse(&entry).unwrap().entries()[0].helm_version
        };
        assert_eq!([of(""), of(", helmVersion: 3")], [HelmVersion::V3; 2]);
        assert_eq!([of(", helmVersion: 4"), of(", helmVersion: '4'")], [HelmVersion::V4; 2]);
    }

    #[test]
    fn errors_name_entry_and_field() {
        let entry = |more: &str| format!("- {{version: v1, kind: Memcached, chart: src, {more}}}");
        check(
            "- {kind: A, chart: src, version: v1}\n- {version: v1, kind: B}",
            "FILE: entry 2 (B): chart: required field is missing: set the path of a chart (a directory or an archive), relative to this file",
        );
        check(
            "- {kind: A, chart: src}",
            "FILE: entry 1 (A): version: required field is missing: set the version of the custom resources, such as v1alpha1",
        );
        check(
            "- {version: v1, kind: A, chart: nowhere}",
            "FILE: entry 1 (A): chart: no chart directory or archive at FOLDER/nowhere: set its path relative to this file",
        );
        check("- 1", "FILE: entry 1: entry: must be a mapping with group, version, kind and chart");
        check(
            &entry("role: x"),
            "FILE: entry 1 (Memcached): role: unknown field; expected one of group, version, kind, chart, \
             watchDependentResources, overrideValues, selector, reconcilePeriod, maxConcurrentReconciles, evaluateTemplates, \
             structureFromValues, helmVersion, dryRunOption, wait, timeout, rollbackOnFailure, maxHistory, upgradeCRDs",
        );
        check(
            &entry("evaluateTemplates: 'yes'"),
            "FILE: entry 1 (Memcached): evaluateTemplates: \"yes\" must be true or false, without quotes",
        );
        check(
            &entry("structureFromValues: 1"),
            "FILE: entry 1 (Memcached): structureFromValues: 1 must be true or false, without quotes",
        );
        check(&entry("helmVersion: 5"), "FILE: entry 1 (Memcached): helmVersion: 5 must be 3 or 4");
        check(
            &entry("overrideValues: {size: 3}"),
            "FILE: entry 1 (Memcached): overrideValues.size: 3 must be a string: put it in quotes",
        );
        check(
            &entry("overrideValues: {image.tag: '{{ tag }}'}"),
            "FILE: entry 1 (Memcached): overrideValues.image.tag: invalid template string \"{{ tag }}\": template: image.tag:1: function \
             \"tag\" not defined",
        );
        check(
            &entry("reconcilePeriod: soon"),
            "FILE: entry 1 (Memcached): reconcilePeriod: \"soon\" must be a duration of at least a second, such as 30s, 5m or 1h30m",
        );
        check(
            &entry("maxConcurrentReconciles: 0"),
            "FILE: entry 1 (Memcached): maxConcurrentReconciles: must be a number from 1 to 1000",
        );
        check(
            &entry("dryRunOption: maybe"),
            "FILE: entry 1 (Memcached): dryRunOption: \"maybe\" must be none, client, server",
        );
        check(&entry("maxHistory: 11"), "FILE: entry 1 (Memcached): maxHistory: must be a number from 1 to 10");
        check(&entry("timeout: 300"), "FILE: entry 1 (Memcached): timeout: 300 must be a string: put it in quotes");
        check(
            &entry("selector: {matchExpressions: [{key: a, operator: Odd}]}"),
            "FILE: entry 1 (Memcached): selector: matchExpressions[0]: \"Odd\" must be In, NotIn, Exists or DoesNotExist",
        );
        check(
            &format!("{}\n{}", entry("group: ''"), entry("group: ''")),
            "FILE: entry 2 (Memcached): kind: an earlier entry has kind /v1, Kind=Memcached as well: merge the entries",
        );
        assert!(parse("a: [").unwrap_err().to_string().contains("is not a valid YAML list of watches: "));
    }
}
