//! The files of test cases: `tests/e2e/CASE/NN-NAME.yaml`, see <https://kuttl.dev/docs/testing/steps.html>.

use crate::cluster::apply;
use crate::error::{Error, Result, ResultExt};
use crate::files::entries;
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of test cases.
pub(crate) const DIRECTORY: &str = "tests/e2e";
/// The file with the settings of a suite.
const SETTINGS: &str = "kuttl-test.yaml";
/// The group of the kinds that are settings.
const GROUP: &str = "kuttl.dev/";
/// Limit of the cases of a project.
const MAX_CASES: usize = 1000;
/// Default timeout of a step, as in KUTTL.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// Upper limit of all timeouts. It applies where KUTTL has no timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// The test cases of a project, and their common settings.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) cases: Vec<Case>,
    /// Objects that are applied before the first case.
    pub(super) manifests: Vec<Value>,
    /// Commands that run after that.
    pub(super) commands: Vec<StepCommand>,
    /// Timeout of these commands. KUTTL has none by default.
    pub(super) command_timeout: Duration,
}

/// A test case.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The directory of its files, in which its commands run.
    pub(super) folder: PathBuf,
    pub(super) steps: Vec<Step>,
}

/// The files with one number.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) delete: Vec<DeletedObject>,
    pub(super) commands: Vec<StepCommand>,
    pub(super) apply: Vec<ReadObject>,
    pub(super) asserts: Vec<ReadObject>,
    pub(super) errors: Vec<ReadObject>,
    /// Commands that must succeed before the timeout.
    pub(super) checks: Vec<StepCommand>,
    /// Timeout of deletions and asserts.
    pub(super) timeout: Duration,
    /// Timeout of each command: that of the suite.
    pub(super) command_timeout: Duration,
}

/// An object, and its file.
#[derive(Clone, Debug)]
pub(super) struct ReadObject {
    pub(super) object: Value,
    pub(super) file: PathBuf,
}

/// The settings of a suite. Those of KUTTL's own clusters have no effect.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TestSuite {
    test_dirs: Vec<PathBuf>,
    manifest_dirs: Vec<PathBuf>,
    crd_dir: Option<PathBuf>,
    commands: Vec<StepCommand>,
    timeout: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct TestStep {
    name: Option<String>,
    apply: Vec<PathBuf>,
    assert: Vec<PathBuf>,
    error: Vec<PathBuf>,
    delete: Vec<DeletedObject>,
    commands: Vec<StepCommand>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct TestAssert {
    timeout: Option<u32>,
    commands: Vec<StepCommand>,
    /// Output of a failed test in KUTTL; not used.
    #[serde(rename = "collectors")]
    _collectors: Vec<Value>,
}

/// Objects to delete: one, or those with labels, or all of the kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DeletedObject {
    pub(super) api_version: String,
    pub(super) kind: String,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
}

/// A command of a step.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StepCommand {
    pub(super) command: Option<String>,
    pub(super) script: Option<String>,
    /// Adds `--namespace` to the command.
    pub(super) namespaced: bool,
    pub(super) ignore_failure: bool,
    /// Seconds; 0 means the default, a negative number no timeout.
    pub(super) timeout: Option<i64>,
    pub(super) skip_log_output: bool,
    /// KUTTL's commands that run beside the next steps.
    #[serde(rename = "background", deserialize_with = "not_background")]
    pub(super) _background: (),
}

impl StepCommand {
    /// Returns the timeout of the command, with this default.
    pub(super) fn timeout(&self, default: Duration) -> Duration {
        match u64::try_from(self.timeout.unwrap_or(0)) {
            Ok(0) => default.min(MAX_TIMEOUT),
            Ok(seconds) => Duration::from_secs(seconds).min(MAX_TIMEOUT),
            Err(_) => MAX_TIMEOUT,
        }
    }
}

/// Rejects `background: true`, with the remedy.
fn not_background<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    match bool::deserialize(deserializer)? {
        false => Ok(()),
        true => Err(de::Error::custom(
            "background: commands in the background are not supported; use the field script, with `&` after the \
             command and its output in a file",
        )),
    }
}

impl Suite {
    /// Reads the test cases of a project; none if it has no such directory.
    ///
    /// # Errors
    ///
    /// If a file is invalid. The error contains the file.
    pub(crate) fn read(project: &Path) -> Result<Self> {
        let at = |path: &Path| if project == Path::new(".") { path.to_owned() } else { project.join(path) };
        let settings = at(Path::new(SETTINGS));
        let settings: TestSuite = match settings.is_file() {
            true => {
                let object = apply::read(&settings)?.into_iter().next();
                object.map_or_else(|| Ok(TestSuite::default()), |object| read_settings(object, &settings))?
            }
            false => TestSuite::default(),
        };
        let folders = if settings.test_dirs.is_empty() { vec![DIRECTORY.into()] } else { settings.test_dirs };
        let timeout = seconds(settings.timeout);
        let mut suite = Self {
            cases: Vec::new(),
            manifests: Vec::new(),
            commands: settings.commands,
            command_timeout: timeout.unwrap_or(MAX_TIMEOUT),
        };
        for folder in settings.crd_dir.iter().chain(&settings.manifest_dirs) {
            suite.manifests.extend(apply::read(&at(folder))?);
        }
        for folder in folders.iter().map(|folder| at(folder)) {
            for path in entries(&folder)?.into_iter().filter(|path| path.is_dir()) {
                let name = file_name(&path);
                let case = Case::read(name, path, timeout.unwrap_or(STEP_TIMEOUT))?;
                if !case.steps.is_empty() {
                    suite.cases.push(case);
                }
                if suite.cases.len() > MAX_CASES {
                    return Err(Error::new(format!("{} has more than {MAX_CASES} test cases", folder.display())));
                }
            }
        }
        Ok(suite)
    }
}

impl Case {
    fn read(name: String, folder: PathBuf, timeout: Duration) -> Result<Self> {
        let mut steps: BTreeMap<u64, Step> = BTreeMap::new();
        for file in entries(&folder)? {
            let name = file_name(&file);
            let Some((number, part)) = numbered(&name) else { continue };
            let new_step = || Step { timeout, command_timeout: timeout, ..Step::default() };
            let step = steps.entry(number).or_insert_with(new_step);
            step.read(&folder, &file, part)?;
        }
        for (number, step) in &mut steps {
            step.name = if step.name.is_empty() { number.to_string() } else { format!("{number} ({})", step.name) };
        }
        Ok(Self { name, folder, steps: steps.into_values().collect() })
    }
}

impl Step {
    fn read(&mut self, folder: &Path, file: &Path, part: &str) -> Result<()> {
        let objects = apply::read(file)?;
        for object in objects {
            let is_setting = object["apiVersion"].as_str().is_some_and(|version| version.starts_with(GROUP));
            match object["kind"].as_str() {
                Some("TestStep") if is_setting => self.add_step(folder, read_settings(object, file)?)?,
                Some("TestAssert") if is_setting => {
                    let settings: TestAssert = read_settings(object, file)?;
                    self.timeout = seconds(settings.timeout).unwrap_or(self.timeout);
                    self.checks.extend(settings.commands);
                }
                _ => {
                    let read = ReadObject { object, file: file.to_owned() };
                    match part {
                        "assert" => self.asserts.push(read),
                        "errors" => self.errors.push(read),
                        _ => self.apply.push(read),
                    }
                }
            }
        }
        if !matches!(part, "assert" | "errors") && self.name.is_empty() {
            part.clone_into(&mut self.name);
        }
        Ok(())
    }

    fn add_step(&mut self, folder: &Path, settings: TestStep) -> Result<()> {
        self.name = settings.name.unwrap_or_else(|| self.name.clone());
        self.delete.extend(settings.delete);
        self.commands.extend(settings.commands);
        let lists = [
            (&mut self.apply, settings.apply),
            (&mut self.asserts, settings.assert),
            (&mut self.errors, settings.error),
        ];
        for (list, paths) in lists {
            for file in paths.iter().map(|path| folder.join(path)) {
                let objects = apply::read(&file)?.into_iter();
                list.extend(objects.map(|object| ReadObject { object, file: file.clone() }));
            }
        }
        Ok(())
    }
}

/// Reads an object that is a setting. Its own fields are at the top, beside those of all objects.
fn read_settings<T: DeserializeOwned>(mut object: Value, file: &Path) -> Result<T> {
    let kind = object["kind"].as_str().unwrap_or("the document").to_owned();
    if let Value::Object(fields) = &mut object {
        fields.retain(|name, _| !["apiVersion", "kind", "metadata"].contains(&name.as_str()));
    }
    serde_json::from_value(object).context(format!("{}: {kind} is not valid", file.display()))
}

/// Returns a timeout in seconds; `None` for 0, which means the default.
fn seconds(number: Option<u32>) -> Option<Duration> {
    number.filter(|number| *number > 0).map(|number| Duration::from_secs(number.into()).min(MAX_TIMEOUT))
}

/// Returns the number of a file, and the first word of its name: `00-assert-more.yaml` is `assert`.
fn numbered(file: &str) -> Option<(u64, &str)> {
    let (number, rest) = file.split_once('-')?;
    let (stem, ending) = rest.split_once('.').unwrap_or((rest, ""));
    let is_manifest = matches!(ending, "" | "yaml" | "yml");
    let word = stem.split('-').next().filter(|word| !word.is_empty())?;
    let word = if matches!(word, "assert" | "errors") { word } else { stem };
    (is_manifest && number.bytes().all(|byte| byte.is_ascii_digit())).then_some((number.parse().ok()?, word))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::private::PrivateDirectory;
    use serde_json::json;
    use std::fs;

    #[test]
    fn commands_in_the_background_are_rejected() {
        let read = |background: bool| {
            let command = json!({"command": "sleep 60", "background": background});
            let step = json!({"apiVersion": "kuttl.dev/v1beta1", "kind": "TestStep", "commands": [command]});
            read_settings::<TestStep>(step, Path::new("00-run.yaml"))
        };
        assert_eq!(read(false).unwrap().commands[0].command.as_deref(), Some("sleep 60"));
        let error = read(true).unwrap_err().to_string();
        assert!(error.contains("00-run.yaml: TestStep") && error.contains("background are not supported"), "{error}");
    }

    #[test]
    fn timeouts_have_the_defaults_of_kuttl() {
        let folder = PrivateDirectory::new("flyball-case-timeouts").unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let seconds = |duration: Duration| duration.as_secs();
        let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        write("tests/e2e/a/00-install.yaml", map);
        let assert = "apiVersion: kuttl.dev/v1beta1\nkind: TestAssert\ntimeout: 7\n";
        write("tests/e2e/a/01-assert.yaml", &format!("{assert}---\n{map}"));
        let timeouts = |settings: &str| {
            write("kuttl-test.yaml", &format!("apiVersion: kuttl.dev/v1beta1\nkind: TestSuite\n{settings}"));
            let suite = Suite::read(folder.path())?;
            let steps = suite.cases[0].steps.iter();
            let steps: Vec<_> = steps.map(|step| (seconds(step.timeout), seconds(step.command_timeout))).collect();
            Ok::<_, Error>((seconds(suite.command_timeout), steps))
        };
        assert_eq!(timeouts("").unwrap(), (3600, vec![(30, 30), (7, 30)]));
        assert_eq!(timeouts("timeout: 0\n").unwrap(), (3600, vec![(30, 30), (7, 30)]));
        assert_eq!(timeouts("timeout: 90\n").unwrap(), (90, vec![(90, 90), (7, 90)]));
        assert_eq!(timeouts("timeout: 86400\n").unwrap().0, 3600);
        let error = timeouts("timeout: -1\n").unwrap_err().to_string();
        assert!(error.contains("kuttl-test.yaml: TestSuite is not valid"), "{error}");
        for (timeout, expected) in [(0, 30), (5, 5), (-1, 3600), (i64::MAX, 3600)] {
            let shell = StepCommand { timeout: Some(timeout), ..StepCommand::default() };
            assert_eq!(seconds(shell.timeout(Duration::from_secs(30))), expected, "{timeout}");
        }
    }

    #[test]
    fn files_are_ordered_by_number() {
        for (file, expected) in [
            ("00-install.yaml", Some((0, "install"))),
            ("01-assert.yaml", Some((1, "assert"))),
            ("10-assert-more.yml", Some((10, "assert"))),
            ("2-errors.yaml", Some((2, "errors"))),
            ("03-a-b.yaml", Some((3, "a-b"))),
            ("04-folder", Some((4, "folder"))),
            ("README.md", None),
            ("05-notes.md", None),
            ("x-install.yaml", None),
            ("06-.yaml", None),
        ] {
            assert_eq!(numbered(file), expected, "{file}");
        }
    }
}
