//! Runs test cases with an operator on a control plane.

use super::format::{Case, DeletedObject, ReadObject, Step, StepCommand, Suite};
use super::matching::differences;
use super::reports;
use crate::cluster::connection::Connection;
use crate::cluster::wait::poll_until;
use crate::error::{Error, Result, ResultExt};
use crate::operator::local::LocalArgs;
use crate::operator::metrics::Metrics;
use crate::operator::test_environment::TestEnvironment;
use kube::api::{DeleteParams, ListParams};
use kube::core::{DynamicObject, Selector};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

/// Polling interval of expected objects.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout of the start of the operator.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Minimum timeout of a command that asserts, at the end of its step.
const MIN_CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// Length limit of the end of a command's output in a message, in bytes.
const MAX_OUTPUT: usize = 4096;
/// Length limit of the part of a case's name in the name of its namespace.
const MAX_NAME: usize = 50;

/// Result of one case.
#[derive(Debug)]
pub(crate) struct CaseResult {
    pub(crate) name: String,
    /// Message of the failure.
    pub(crate) failure: Option<String>,
    pub(crate) took: Duration,
}

/// Permissions that an operator used and lacked, such as `list pods`.
#[derive(Debug)]
pub(crate) struct UsedPermissions {
    pub(crate) used: BTreeSet<String>,
    pub(crate) denied: BTreeSet<String>,
}

/// Starts a control plane and the operator, and runs all cases, each in a namespace of its own. The function is called
/// after each case. Returns the results, and the permissions of the operator if they are requested.
///
/// # Errors
///
/// If the operator does not start. Failures of cases are results.
pub(crate) async fn run(
    args: LocalArgs,
    suite: &Suite,
    records_permissions: bool,
    mut on_result: impl FnMut(&CaseResult),
) -> Result<(Vec<CaseResult>, Option<UsedPermissions>)> {
    let mut environment = TestEnvironment::new(args, "flyball-cases").await?;
    let config = environment.control_plane.config.clone();
    let connection = Connection::open(config.clone()).await?;
    for object in &suite.manifests {
        connection.apply_with(object, true, false).await?;
    }
    let kubeconfig = environment.control_plane.kubeconfig.clone();
    for shell in &suite.commands {
        let limit = shell.timeout(suite.command_timeout);
        run_command(shell, limit, Path::new("."), &kubeconfig, "default").await.map_err(Error::new)?;
    }
    if let Err(why) = environment.launch(START_TIMEOUT).await? {
        return Err(Error::new(format!("the operator does not start: {why}")).hint("see its output with -v"));
    }
    let mut results = Vec::new();
    for (at, case) in suite.cases.iter().enumerate() {
        let began = Instant::now();
        let namespace = namespace(&case.name, at);
        let mut connection = Connection::open(config.clone()).await?;
        connection.namespace.clone_from(&namespace);
        let runner = CaseRunner { connection, case, kubeconfig: &kubeconfig };
        let failure = runner.run().await.err();
        let result = CaseResult { name: case.name.clone(), failure, took: began.elapsed() };
        on_result(&result);
        results.push(result);
    }
    if let Some(mut process) = environment.process.take() {
        process.stop().await?;
    }
    if !records_permissions {
        return Ok((results, None));
    }
    let metrics = Metrics::of_server(&connection.client).await?;
    Ok((results, Some(UsedPermissions { used: metrics.used(), denied: metrics.denied().into_iter().collect() })))
}

/// Returns the namespace of a case: its name in letters that namespaces may have. The number makes it unique.
fn namespace(name: &str, number: usize) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().map(letter).take(MAX_NAME).collect();
    format!("test-{number}-{}", name.trim_matches('-')).trim_matches('-').to_owned()
}

/// Runs one case.
struct CaseRunner<'a> {
    connection: Connection,
    case: &'a Case,
    kubeconfig: &'a Path,
}

impl CaseRunner<'_> {
    /// Runs all steps; returns the message of the first failure.
    async fn run(&self) -> Result<(), String> {
        let namespace = &self.connection.namespace;
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        self.connection.apply(&object).await.map_err(|error| error.to_string())?;
        for step in &self.case.steps {
            if let Err(why) = self.run_step(step).await {
                let lines = std::iter::once(why).chain(self.reports().await).collect::<Vec<_>>();
                return Err(format!("step {}: {}", step.name, lines.join("\n")));
            }
        }
        Ok(())
    }

    /// Returns what the operator reports about the applied objects: the reason of a failed step may be there.
    async fn reports(&self) -> Vec<String> {
        let mut objects = Vec::new();
        for ReadObject { object, .. } in self.case.steps.iter().flat_map(|step| &step.apply) {
            // An object of a later step does not exist.
            objects.extend(self.connection.find(object).await.ok().flatten());
        }
        let kind = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {}});
        let events = self.list(&kind, &BTreeMap::new()).await.unwrap_or_default();
        reports::of(&objects, &events)
    }

    async fn run_step(&self, step: &Step) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        for deleted in &step.delete {
            self.delete(deleted, step.timeout).await.map_err(text)?;
        }
        for shell in &step.commands {
            self.run_command(shell, shell.timeout(step.command_timeout)).await?;
        }
        for ReadObject { object, file } in &step.apply {
            let applied = self.connection.apply_with(object, true, false).await;
            applied.map_err(|error| format!("{}: {error}", file.display()))?;
        }
        let end = Instant::now() + step.timeout;
        let met = poll_until(step.timeout, POLL_INTERVAL, async || Ok(self.check_step(step, end).await)).await;
        met.map_err(text)?.map_err(|unmet| format!("after {} s:\n{}", step.timeout.as_secs(), unmet.join("\n")))
    }

    /// Checks the expectations of a step, which ends at this time; returns those that are not met.
    async fn check_step(&self, step: &Step, end: Instant) -> Result<(), Vec<String>> {
        let mut unmet = Vec::new();
        for expected in &step.asserts {
            if let Err(why) = self.check(expected).await {
                unmet.push(format!("{}: {why}", expected.file.display()));
            }
        }
        for unexpected in &step.errors {
            match self.matching(&unexpected.object).await {
                Ok(found) => unmet.extend(found.into_iter().filter_map(|(name, differences)| {
                    let is_there = differences.is_empty();
                    is_there.then(|| format!("{}: {name} exists, but must not", unexpected.file.display()))
                })),
                // Its kind does not exist.
                Err(error) if error.is_absence() => {}
                Err(error) => unmet.push(format!("{}: {error}", unexpected.file.display())),
            }
        }
        for shell in &step.checks {
            let remaining = end.saturating_duration_since(Instant::now()).max(MIN_CHECK_TIMEOUT);
            unmet.extend(self.run_command(shell, shell.timeout(remaining)).await.err());
        }
        if unmet.is_empty() { Ok(()) } else { Err(unmet) }
    }

    /// Checks that an expected object exists; returns the reason if it does not.
    async fn check(&self, expected: &ReadObject) -> Result<(), String> {
        let found = self.matching(&expected.object).await.map_err(|error| error.to_string())?;
        // Of several objects, the most similar one is reported.
        match found.into_iter().min_by_key(|(_, differences)| differences.len()) {
            None => Err(format!("no {} found", describe(&expected.object))),
            Some((_, differences)) if differences.is_empty() => Ok(()),
            Some((name, differences)) => Err(format!("{name} differs\n  {}", differences.join("\n  "))),
        }
    }

    /// Returns the objects that an expectation is about, with their differences: the one with its name, or all of its
    /// kind with its labels.
    async fn matching(&self, expected: &Value) -> Result<Vec<(String, Vec<String>)>> {
        let actual = match expected["metadata"]["name"].as_str() {
            Some(_) => self.connection.find(expected).await?.into_iter().collect(),
            None => {
                let labels = string_fields(&expected["metadata"]["labels"]);
                self.list(expected, &labels).await?
            }
        };
        let compared = |object: Value| {
            let differences = differences(expected, &object);
            (describe(&object), differences)
        };
        Ok(actual.into_iter().map(compared).collect())
    }

    /// Lists the objects of a kind with these labels.
    async fn list(&self, kind: &Value, labels: &BTreeMap<String, String>) -> Result<Vec<Value>> {
        let mut named = kind.clone();
        named["metadata"]["name"] = "any".into();
        let (objects, _, _) = self.connection.resolve(&named).await?;
        let what = || format!("cannot list {}", kind["kind"].as_str().unwrap_or_default());
        let params = ListParams::default().labels_from(&labels.clone().into_iter().collect::<Selector>());
        let found = objects.list(&params).await.context(what())?;
        let whole = |object: DynamicObject| {
            let mut object = serde_json::to_value(object).context(what())?;
            // Items of a list have neither.
            ["apiVersion", "kind"].iter().for_each(|name| object[*name] = kind[*name].clone());
            Ok(object)
        };
        found.items.into_iter().map(whole).collect()
    }

    /// Deletes objects, and waits until they do not exist.
    async fn delete(&self, deleted: &DeletedObject, limit: Duration) -> Result<()> {
        let mut kind = json!({"apiVersion": deleted.api_version, "kind": deleted.kind, "metadata": {}});
        if let Some(namespace) = &deleted.namespace {
            kind["metadata"]["namespace"] = namespace.as_str().into();
        }
        let objects = match &deleted.name {
            Some(name) => {
                kind["metadata"]["name"] = name.as_str().into();
                vec![kind]
            }
            None => self.list(&kind, &deleted.labels).await?,
        };
        for object in &objects {
            self.connection.delete_with(object, &DeleteParams::background()).await?;
        }
        for object in &objects {
            let gone = poll_until(limit, POLL_INTERVAL, async || {
                Ok(match self.connection.find(object).await? {
                    None => Ok(()),
                    Some(found) => Err(found),
                })
            });
            if let Err(found) = gone.await? {
                let finalizers = &found["metadata"]["finalizers"];
                let why = if finalizers.is_null() { String::new() } else { format!("; finalizers: {finalizers}") };
                return Err(Error::new(format!(
                    "{} still exists {} s after its deletion{why}",
                    describe(object),
                    limit.as_secs()
                )));
            }
        }
        Ok(())
    }

    async fn run_command(&self, shell: &StepCommand, limit: Duration) -> Result<(), String> {
        run_command(shell, limit, &self.case.folder, self.kubeconfig, &self.connection.namespace).await
    }
}

/// Runs a command in a directory; returns the reason if it fails. After the timeout, its process group is killed.
async fn run_command(
    shell: &StepCommand,
    limit: Duration,
    folder: &Path,
    kubeconfig: &Path,
    namespace: &str,
) -> Result<(), String> {
    let (text, line) = match (&shell.script, &shell.command) {
        (Some(script), None) => (script, script.clone()),
        // The shell splits it into words and replaces variables, as KUTTL does.
        (None, Some(command)) if shell.namespaced => (command, format!("{command} --namespace \"$NAMESPACE\"")),
        (None, Some(command)) => (command, command.clone()),
        _ => return Err("a command needs either the field command or the field script".to_owned()),
    };
    let mut process = Command::new("/bin/sh");
    process.arg("-c").arg(line).current_dir(folder).env("KUBECONFIG", kubeconfig).env("NAMESPACE", namespace);
    process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    // Commands call this very program.
    let this = std::env::current_exe().ok().and_then(|this| this.parent().map(PathBuf::from));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(this.into_iter().chain(std::env::split_paths(&path)));
    process.envs(path.ok().map(|path| ("PATH", path)));
    let failed = |error: io::Error| format!("cannot run `{text}`: {error}");
    let mut child = process.spawn().map_err(failed)?;
    let mut group = ProcessGroup(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let (out, err) = (read_end(child.stdout.take()), read_end(child.stderr.take()));
    let Ok((status, out, err)) = timeout(limit, async { tokio::join!(child.wait(), out, err) }).await else {
        return Err(format!("`{text}` did not end within {} s", limit.as_secs()));
    };
    group.0 = None;
    let status = status.map_err(failed)?;
    if status.success() || shell.ignore_failure {
        return Ok(());
    }
    if shell.skip_log_output {
        return Err(format!("`{text}` failed with {status}"));
    }
    let printed = [out, err].concat();
    let printed = String::from_utf8_lossy(&printed[printed.len().saturating_sub(MAX_OUTPUT)..]).trim().to_owned();
    Err(format!("`{text}` failed with {status}: {printed}"))
}

/// The process group of a command, which is killed if this is dropped before the command has ended.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // Its processes may have ended by themselves meanwhile.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// Reads an output to its end, and returns its last part.
async fn read_end(output: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let (mut end, mut part) = (Vec::new(), vec![0; MAX_OUTPUT]);
    let Some(mut output) = output else { return end };
    while let Ok(length @ 1..) = output.read(&mut part).await {
        end.extend_from_slice(&part[..length]);
        end.drain(..end.len().saturating_sub(MAX_OUTPUT));
    }
    end
}

fn string_fields(object: &Value) -> BTreeMap<String, String> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

/// Names an object, or the objects that an expectation is about.
fn describe(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("object");
    let metadata = &object["metadata"];
    match (metadata["name"].as_str(), metadata["namespace"].as_str()) {
        (Some(name), Some(namespace)) => format!("{kind} {namespace}/{name}"),
        (Some(name), None) => format!("{kind} {name}"),
        (None, _) if metadata["labels"].is_object() => format!("{kind} with the labels {}", metadata["labels"]),
        (None, _) => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn namespaces_are_valid_names() {
        assert_eq!(namespace("Redis cluster", 0), "test-0-redis-cluster");
        assert_eq!(namespace("__", 12), "test-12");
        assert!(flyball_core::names::dns_label(&namespace(&"ä/".repeat(99), 3)).is_empty());
    }

    #[tokio::test]
    async fn command_reports_its_output() {
        let limit = Duration::from_secs(30);
        let run = async |shell: StepCommand| run_command(&shell, limit, Path::new("/"), Path::new("/k"), "ns").await;
        let script = |text: &str| StepCommand { script: Some(text.into()), ..StepCommand::default() };
        assert_eq!(run(script("test $NAMESPACE$KUBECONFIG = ns/k")).await, Ok(()));
        let failed = run(script("echo why; exit 3")).await.unwrap_err();
        assert_eq!(failed, "`echo why; exit 3` failed with exit status: 3: why");
        assert_eq!(run(StepCommand { ignore_failure: true, ..script("exit 3") }).await, Ok(()));
        assert!(run(StepCommand::default()).await.is_err());
        let long = run(script("head -c 1000000 /dev/zero | tr '\\0' x; echo end; exit 3")).await.unwrap_err();
        assert!(long.ends_with("xend") && long.len() < 2 * MAX_OUTPUT, "{}", long.len());
        let namespaced =
            StepCommand { command: Some("test 1 -eq 1 -a x".into()), namespaced: true, ..StepCommand::default() };
        assert!(run(namespaced).await.unwrap_err().contains("failed with"));
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn processes_of_a_command_end_at_its_timeout() {
        let (mut reader, writer) = io::pipe().unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), writer.as_raw_fd());
        let script = format!("exec 3>{path}; sleep 60 & echo started >&3; wait");
        let slow = StepCommand { script: Some(script), ..StepCommand::default() };
        let began = Instant::now();
        let limit = Duration::from_secs(1);
        let failed = run_command(&slow, limit, Path::new("/"), Path::new("/k"), "ns").await.unwrap_err();
        assert!(failed.contains("did not end within 1 s"), "{failed}");
        drop(writer);
        // The end of the pipe is read when no process has it.
        let mut read = String::new();
        io::Read::read_to_string(&mut reader, &mut read).unwrap();
        assert_eq!(read, "started\n");
        assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    }
}
