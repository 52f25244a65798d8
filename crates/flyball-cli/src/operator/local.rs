//! An operator as a process on this machine: built, installed in the cluster, started, and replaced by a newer one.
//!
//! The CRDs, webhook configurations and policies of its `manifests` are applied, and its roles if it has an [`Account`]
//! of its own.

mod args;
mod webhooks;

pub(crate) use args::LocalArgs;

use args::variables;
use webhooks::{WEBHOOK_TIMEOUT, WebhookTarget, without_conversion};

use crate::cluster::account::Account;
use crate::cluster::apply::{self, Outcome};
use crate::cluster::connection::Connection;
use crate::cluster::created::CreatedObjects;
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::error::{Error, Result, ResultExt};
use crate::files::watcher::{self, FileWatcher};
use crate::operator::charts;
use crate::operator::metrics::{HEALTH_VARIABLE, METRICS_PORT, METRICS_VARIABLE, free_address};
use crate::operator::ports::{PAGES, Page, PortReservation, configured_metrics, is_free};
use crate::operator::process::{self, LineSink, Process};
use crate::operator::program::Program;
use crate::operator::registry::{Registration, cluster_id};
use crate::render::terminal::{self, Style, paint, print_labeled, print_line};
use flyball::description::Description;
use http::Request;
use kube::Config;
use kube::api::DeleteParams;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// Help of the flag `--namespace` of commands that run an operator here.
pub(crate) const NAMESPACE_HELP: &str = "Namespace of the samples and of --env-from; defaults to the context's. \
                                         It does not limit the operator: `-- --namespace NAME` does";

/// Reaction to changes of the files of an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reload {
    /// None.
    #[default]
    Never,
    /// Restart the operator on changes. The first start must succeed, and the end of the operator is the end.
    AfterStart,
    /// Rebuild and restart on changes. Errors are printed, and the next change is awaited.
    Always,
}

/// Callback for started programs.
pub(crate) type OnStart = dyn Fn(&Program, &BTreeMap<String, String>) + Send + Sync;

/// An operator on this machine.
pub(crate) struct LocalOperator {
    pub(crate) args: LocalArgs,
    pub(crate) connection: Connection,
    /// Cluster connection of the operator.
    pub(crate) flags: Vec<OsString>,
    /// Additional environment variables.
    pub(crate) variables: BTreeMap<String, String>,
    /// Service account of the operator and its kubeconfig, if it has its own.
    pub(crate) own_account: Option<(Config, PathBuf)>,
    /// The file or directory of objects to apply.
    pub(crate) samples: Option<PathBuf>,
    /// Reaction to changes of its files.
    pub(crate) reload: Reload,
    pub(crate) sinks: LineSinks,
    /// Do not print applied objects.
    pub(crate) quiet: bool,
    /// Called with each program that is started, and its environment variables.
    pub(crate) on_start: Option<Box<OnStart>>,
    /// Objects created in the cluster, in order, if tracked.
    pub(crate) created: Option<CreatedObjects>,
    account: Option<Account>,
    /// The program that is installed, its files as they were then, and the samples that are applied.
    current: Option<(Program, FileWatcher)>,
    applied: Vec<Value>,
    /// The webhook configurations and converted definitions that the operator points at itself, as they were applied.
    webhook_targets: Vec<WebhookTarget>,
    /// The address of its metrics, for `flyball why`.
    registration: Option<Registration>,
    metrics_address: Option<String>,
    /// The usual ports that no other operator of this user gets.
    reserved: Vec<PortReservation>,
}

/// Timeout of the deletion of samples.
const SAMPLE_DELETION_TIMEOUT: Duration = Duration::from_secs(20);

/// The flag of an operator of roles that describes it without the entries whose files cannot be decrypted.
const ALLOW_LOCKED_ENTRIES: &str = "--allow-locked-entries";

/// Sinks for the output of cargo and the operator; inherited by default.
#[derive(Clone, Default)]
pub(crate) struct LineSinks {
    pub(crate) build: Option<LineSink>,
    pub(crate) operator: Option<LineSink>,
}

impl LocalOperator {
    pub(crate) fn new(args: LocalArgs, connection: Connection) -> Self {
        Self {
            args,
            connection,
            flags: Vec::new(),
            variables: BTreeMap::new(),
            own_account: None,
            account: None,
            samples: None,
            reload: Reload::Never,
            sinks: LineSinks::default(),
            quiet: false,
            on_start: None,
            created: None,
            current: None,
            applied: Vec::new(),
            webhook_targets: Vec::new(),
            registration: None,
            metrics_address: None,
            reserved: Vec::new(),
        }
    }

    /// Runs the operator as in its pod: as its service account, with its own kubeconfig. Metrics and health are served
    /// at these addresses.
    pub(crate) fn configure_as_pod(&mut self, config: Config, kubeconfig: PathBuf, metrics: &str, health: &str) {
        self.flags = vec!["--kubeconfig".into(), kubeconfig.clone().into()];
        self.own_account = Some((config, kubeconfig));
        self.variables = [
            (METRICS_VARIABLE, metrics),
            ("FLYBALL_METRICS_SECURE", "false"),
            (HEALTH_VARIABLE, health),
            ("FLYBALL_OPERATOR_NAMESPACE", &self.connection.namespace),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    }

    /// Runs the operator until it is stopped or exits; if it is [reloaded](Self::reload), the newest version that
    /// builds, until it is stopped. It has ended when this returns.
    ///
    /// # Errors
    ///
    /// If it cannot be built, installed or started, or fails, see [`Reload`].
    pub(crate) async fn run(&mut self, stop: impl Future<Output = ()>) -> Result<()> {
        self.args.check_project()?;
        let mut running = None;
        let result = tokio::select! {
            biased;
            () = stop => Ok(()),
            result = self.run_and_reload(&mut running) => result,
        };
        let result = match &mut running {
            None => result,
            Some(process) => {
                // Samples are deleted while the operator still runs to remove finalizers.
                if let Some(created) = &self.created {
                    self.connection.remove_samples(created.samples()).await;
                }
                let stopped = process.stop().await.and_then(|status| status.map_or(Ok(()), check_exit_status));
                // The reason of the stop takes precedence over the exit status.
                result.and(stopped)
            }
        };
        self.unregister_webhooks().await;
        result
    }

    async fn run_and_reload(&mut self, running: &mut Option<Process>) -> Result<()> {
        let mut watcher = FileWatcher::default();
        loop {
            watcher.add(self.files());
            match self.update(running).await {
                Err(error) if self.reload == Reload::Never => return Err(error),
                Err(error) if self.reload == Reload::AfterStart && running.is_none() => return Err(error),
                Err(error) => {
                    terminal::print_error(&error);
                    let state = if running.is_some() { "the operator continues" } else { "nothing is running" };
                    print_line(&paint(Style::Busy, &format!("{state}; waiting for a file change")));
                }
                Ok(()) => {}
            }
            // The build reports further files.
            watcher.add(self.files());
            tokio::select! {
                biased;
                status = wait_for_exit(running) => {
                    *running = None;
                    let status = check_exit_status(status?);
                    if self.reload != Reload::Always {
                        return status;
                    }
                    let why = status.map_or_else(|error| error.to_string(), |()| "the operator exited".into());
                    print_labeled("error", &format!("{why}; waiting for a file change"));
                    self.current = None;
                    print_change(&watcher.change(|| self.files()).await);
                }
                changed = watcher.change(|| self.files()), if self.reload != Reload::Never => print_change(&changed),
                () = keep_renewing(self.account.as_ref()) => unreachable!("tokens are renewed forever"),
            }
        }
    }

    /// Builds, installs and starts the operator once; samples are not applied.
    pub(crate) async fn launch(&mut self) -> Result<Process> {
        let program = self.args.build(self.sinks.build.clone()).await?;
        let variables = self.variables().await?;
        self.install(&program, &variables).await?;
        self.start(&program, &variables)
    }

    async fn variables(&self) -> Result<BTreeMap<String, String>> {
        let mut variables = variables(&self.connection, &self.args.env_from).await?;
        variables.extend(self.variables.clone());
        Ok(variables)
    }

    /// Returns the files whose changes have an effect.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = match (self.args.prebuilt(), &self.current) {
            (Some(program), _) => program.files(),
            (None, current) => {
                let built = current.as_ref().and_then(|(program, _)| match program {
                    Program::File(path) => Some(path.as_path()),
                    Program::Watches(_) | Program::Lifecycle => None,
                });
                watcher::sources(&std::env::current_dir().unwrap_or_default(), built)
            }
        };
        if let Some(samples) = &self.samples {
            watcher::collect_files(samples, &mut files);
        }
        files
    }

    /// Updates the program and the applied objects to the files.
    async fn update(&mut self, running: &mut Option<Process>) -> Result<()> {
        // Validate the samples before any change.
        let samples = self.samples.as_deref().map(apply::read).transpose()?.unwrap_or_default();
        let program = self.args.build(self.sinks.build.clone()).await?;
        let mut files = FileWatcher::default();
        files.add(program.files());
        let current = Some((program.clone(), files));
        let mut webhooks = Vec::new();
        if running.is_none() || current != self.current {
            if let (Some(_), Program::Watches(path)) = (&running, &program) {
                charts::check(path)?;
            }
            let variables = self.variables().await?;
            webhooks = self.install(&program, &variables).await?;
            if let Some(old) = running {
                print_line(&paint(Style::Faint, "stopping the previous program"));
                old.stop().await?;
                *running = None;
            }
            *running = Some(self.start(&program, &variables)?);
            self.on_start.iter().for_each(|callback| callback(&program, &variables));
            self.current = current;
            if let (Some(address), Some(cluster)) =
                (self.metrics_address.take(), cluster_id(&self.connection.client).await)
            {
                self.registration = Registration::new(&address, &cluster, &self.connection.server);
            }
        }
        if samples != self.applied {
            self.connection.wait_for_webhooks(&webhooks).await;
            for sample in &samples {
                let (description, outcome) = self.apply_sample(sample).await?;
                print_line(&paint(Style::Faint, &format!("applied {description}")));
                if let (Some(created), Outcome::Created) = (&mut self.created, outcome) {
                    created.add_sample(sample)?;
                }
            }
            self.applied = samples;
        }
        if let Some(account) = &self.account {
            account.renew().await?;
        }
        Ok(())
    }

    /// Applies a sample. The API server cannot call the webhooks of an operator that has just started: until it can,
    /// the sample is applied again.
    async fn apply_sample(&self, sample: &Value) -> Result<(String, Outcome)> {
        let applied = poll_until(WEBHOOK_TIMEOUT, POLL_INTERVAL, async || {
            match self.connection.apply_with(sample, false, false).await {
                Err(error) if error.code() == Some(500) && !self.webhook_targets.is_empty() => Ok(Err(error)),
                applied => applied.map(Ok),
            }
        });
        applied.await?
    }

    /// Installs the objects that the operator needs, and returns its webhook configurations.
    async fn install(&mut self, program: &Program, variables: &BTreeMap<String, String>) -> Result<Vec<Value>> {
        let mut webhooks = Vec::new();
        let is_watches = matches!(program, Program::Watches(_));
        let mut args = self.args.args.clone();
        // With an account of its own, the operator would lack the permissions of such an entry.
        if self.own_account.is_none() && program.has_roles() {
            args.push(ALLOW_LOCKED_ENTRIES.to_owned());
        }
        // Each of them starts the program, so both start at once.
        let description = async {
            let is_needed = is_watches || self.own_account.is_some();
            if is_needed { program.describe(&args, variables).await.map(Some) } else { Ok(None) }
        };
        let (manifests, description) = tokio::join!(program.manifests(&args, variables), description);
        let (manifests, description) = (manifests?, description?);
        program.check_executors()?;
        if self.current.is_none() && !manifests.iter().any(|object| object["kind"] == "CustomResourceDefinition") {
            self.note_without_kinds(program, variables).await;
        }
        if let (Some((config, kubeconfig)), Some(description)) = (&self.own_account, &description) {
            let account = Account::new(&self.connection.client, config, &description.name, kubeconfig)?;
            let object = account.object();
            self.account = Some(account);
            self.apply(&object).await?;
        }
        for object in manifests {
            match object["kind"].as_str().unwrap_or_default() {
                "CustomResourceDefinition" => {
                    let is_converted = object["spec"]["conversion"]["webhook"].is_object();
                    let definition = without_conversion(object);
                    self.apply(&definition).await?;
                    if is_converted {
                        self.record_webhook_target(&definition).await?;
                    }
                }
                "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
                    // An earlier run left a URL of an ended process; the operator sets its own.
                    self.connection.delete(&object).await?;
                    self.apply(&object).await?;
                    self.record_webhook_target(&object).await?;
                    webhooks.push(object);
                }
                "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding" => self.apply(&object).await?,
                "ClusterRole" | "Role" => {
                    if let Some(account) = &self.account {
                        let binding = account.binding(&object);
                        self.apply(&object).await?;
                        self.apply(&binding).await?;
                    }
                }
                _ => {}
            }
        }
        if let (Program::Watches(path), Some(description)) = (program, &description) {
            self.check_kinds(description, path).await?;
        }
        if let Some(account) = &self.account {
            account.renew().await?;
        }
        Ok(webhooks)
    }

    /// Prints a note if an operator has nothing to do.
    async fn note_without_kinds(&self, program: &Program, variables: &BTreeMap<String, String>) {
        // An error of the description is reported where it is needed.
        if let Ok(described) = program.describe(&self.args.args, variables).await
            && described.controllers.is_empty()
        {
            let remedy = "add one: flyball create api --group cache --version v1alpha1 --kind Redis";
            print_labeled("note", &format!("the operator has no kinds; {remedy}"));
        }
    }

    /// Refuses to run an operator whose kinds the cluster does not have: a definition that a watches.yaml needs is not
    /// in the project.
    async fn check_kinds(&self, described: &Description, watches: &Path) -> Result<()> {
        for controller in &described.controllers {
            let mut parts = controller.reconciles.splitn(3, '.');
            let (Some(plural), Some(version), group) = (parts.next(), parts.next(), parts.next()) else { continue };
            let (root, api_version) = match group {
                Some(group) => (format!("/apis/{group}/{version}"), format!("{group}/{version}")),
                None => (format!("/api/{version}"), version.to_owned()),
            };
            let what = || format!("cannot list {}", controller.reconciles);
            let request = Request::get(format!("{root}/{plural}?limit=1")).body(Vec::new()).context(what())?;
            if let Err(kube::Error::Api(status)) = self.connection.client.request::<Value>(request).await
                && status.code == 404
            {
                let folder = watches.parent().unwrap_or(Path::new("")).join("config/crd/bases");
                return Err(Error::new(format!(
                    "no matches for kind: the cluster does not serve {plural} of {api_version}, which {} names",
                    watches.display()
                ))
                .hint(format!(
                    "add its CustomResourceDefinition to {}, or apply it to the cluster first",
                    folder.display()
                )));
            }
        }
        Ok(())
    }

    async fn apply(&mut self, object: &Value) -> Result<()> {
        let (description, outcome) = self.connection.apply_with(object, false, false).await?;
        if let (Some(created), Outcome::Created) = (&mut self.created, outcome)
            && !created.parts().iter().any(|created| is_same_object(created, object))
        {
            created.add_part(object)?;
        }
        // Unchanged objects were printed before.
        if !self.quiet && (outcome != Outcome::Unchanged || self.current.is_none()) {
            print_line(&paint(Style::Faint, &format!("applied {description}")));
        }
        Ok(())
    }

    fn start(&mut self, program: &Program, variables: &BTreeMap<String, String>) -> Result<Process> {
        let mut command = process::supervised(&program.command_line());
        command.arg("run").args(&self.args.args).args(&self.flags).envs(variables);
        self.metrics_address = configured_metrics(&self.args.args, variables);
        let usual: Vec<&Page> = PAGES.iter().filter(|page| !page.is_configured(&self.args.args, variables)).collect();
        if usual.iter().any(|page| page.port == METRICS_PORT) {
            self.metrics_address = Some(format!("127.0.0.1:{METRICS_PORT}"));
        }
        for page in usual {
            if self.reserve(page.port) {
                continue;
            }
            let address = free_address()?;
            if page.port == METRICS_PORT {
                self.metrics_address = Some(address.clone());
            }
            print_line(&paint(
                Style::Faint,
                &format!("127.0.0.1:{} is in use: {} at http://{address}{}", page.port, page.what, page.path),
            ));
            command.env(page.variable, address);
        }
        Process::start(command, self.sinks.operator.clone())
    }

    /// Reserves a usual port, which a restarted operator keeps. Returns false if another process has it.
    fn reserve(&mut self, port: u16) -> bool {
        if self.reserved.iter().any(|reserved| reserved.port == port) {
            return is_free(port);
        }
        let reserved = PortReservation::new(port);
        let is_reserved = reserved.is_some();
        self.reserved.extend(reserved);
        is_reserved
    }
}

/// Prints the file because of which the operator is restarted.
fn print_change(file: &Path) {
    let folder = std::env::current_dir().unwrap_or_default();
    let file = file.strip_prefix(&folder).or_else(|_| file.strip_prefix(".")).unwrap_or(file);
    print_line(&paint(Style::Faint, &format!("{} changed", file.display())));
}

async fn wait_for_exit(running: &mut Option<Process>) -> Result<ExitStatus> {
    match running {
        Some(process) => process.wait().await,
        None => pending().await,
    }
}

async fn keep_renewing(account: Option<&Account>) {
    match account {
        Some(account) => account.keep_renewing().await,
        None => pending().await,
    }
}

fn check_exit_status(status: ExitStatus) -> Result<()> {
    if status.success() { Ok(()) } else { Err(Error::new(format!("the operator failed with {status}"))) }
}

/// Finds the samples of the project in this directory, or those that are named.
pub(crate) fn samples(named: Option<&Path>) -> Option<PathBuf> {
    let usual = ["samples", "config/samples"].map(Path::new);
    named.or_else(|| usual.into_iter().find(|folder| folder.is_dir())).map(Path::to_owned)
}

fn is_same_object(one: &Value, other: &Value) -> bool {
    let key = |object: &Value| {
        [&object["kind"], &object["metadata"]["namespace"], &object["metadata"]["name"]].map(Value::clone)
    };
    key(one) == key(other)
}

impl Connection {
    /// Deletes samples in reverse order, and waits for their deletion with a timeout. Dependents are deleted first:
    /// after the removal of their kind, the garbage collector can no longer resolve the owner.
    async fn remove_samples(&self, samples: &[Value]) {
        for sample in samples.iter().rev() {
            if let Err(error) = self.delete_with(sample, &DeleteParams::foreground()).await {
                terminal::print_error(&error);
            }
        }
        let are_deleted = poll_until(SAMPLE_DELETION_TIMEOUT, POLL_INTERVAL, async || {
            for sample in samples {
                if self.read(sample).await.is_ok() {
                    return Ok(Err(()));
                }
            }
            Ok(Ok(()))
        });
        if !matches!(are_deleted.await, Ok(Ok(()))) {
            print_labeled("note", "some samples are still being deleted: their finalizers wait for the operator");
        }
    }
}
