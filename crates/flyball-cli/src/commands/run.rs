//! `flyball run`: an operator as a process on this machine, against the current context.
//!
//! What the operator needs of the cluster comes from itself: its `manifests`, of which the definitions, the webhook
//! configurations and the policies are applied. Its rights are those of the kubeconfig's user.

use crate::apply;
use crate::connection::{Connection, ConnectionArgs, block_on};
use crate::error::{Error, Result, ResultExt};
use crate::program;
use crate::terminal::{Style, paint, say};
use clap::Args;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

/// Run an operator on this machine, against the current context
///
/// Builds the program of the project in this folder, installs its custom resource definitions, and runs it until Ctrl-C.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball run                                    the project in this folder
  flyball run --samples                          the same, with its samples applied
  flyball run --env-from secret/vc-credentials   with the variables that its pod would have
  flyball run --program ./vmgroup -- --resync 10s")]
pub(crate) struct RunArgs {
    /// A program that is built already, instead of the project in this folder
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bin", "release"])]
    program: Option<PathBuf>,
    /// Which program of the project, if it has several
    #[arg(long)]
    bin: Option<String>,
    /// Build with optimizations
    #[arg(long)]
    release: bool,
    /// Apply the objects of this file or folder once the definitions are there; `samples` or `config/samples` unless given
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    samples: Option<Option<PathBuf>>,
    /// Give the operator the variables of a Secret or a ConfigMap, as `envFrom` gives them to a pod
    #[arg(long, value_name = "secret/NAME|configmap/NAME")]
    env_from: Vec<Source>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// What the operator's own command line says
    #[arg(last = true)]
    args: Vec<String>,
}

/// An object that holds variables.
#[derive(Clone, Debug)]
enum Source {
    ConfigMap(String),
    Secret(String),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some(("secret", name)) if !name.is_empty() => Ok(Self::Secret(name.into())),
            Some(("configmap", name)) if !name.is_empty() => Ok(Self::ConfigMap(name.into())),
            _ => Err("give secret/NAME or configmap/NAME".into()),
        }
    }
}

pub(crate) fn cmd_run(args: RunArgs) -> Result<()> {
    block_on(run(args))
}

async fn run(args: RunArgs) -> Result<()> {
    let samples = args.samples.as_ref().map(|named| samples(named.as_deref())).transpose()?;
    let connection = args.connection.connect().await?;
    let variables = variables(&connection, &args.env_from).await?;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => program::build(args.bin.as_deref(), args.release).await?,
    };
    let mut webhooks = Vec::new();
    for object in program::manifests(&program, &args.args, &variables).await? {
        let told = match object["kind"].as_str() {
            Some("CustomResourceDefinition") => connection.apply_definition(&without_conversion(object)).await?,
            Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
                // The operator points it at itself; that of an earlier run points at a process that is no more.
                connection.delete(&object).await?;
                let told = connection.apply(&object).await?;
                webhooks.push(object);
                told
            }
            Some(
                "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding",
            ) => connection.apply(&object).await?,
            _ => continue,
        };
        say(&paint(Style::Faint, &format!("applied {told}")));
    }
    let mut operator = start(&program, &args, variables)?;
    if let Some(samples) = samples {
        callable(&connection, &webhooks).await;
        for object in samples {
            let told = connection.apply(&object).await?;
            say(&paint(Style::Faint, &format!("applied {told}")));
        }
    }
    until_it_ends(&mut operator).await
}

/// Reads the objects to apply before anything is done, so that a mistake in them costs nothing.
fn samples(named: Option<&Path>) -> Result<Vec<Value>> {
    let usual = ["samples", "config/samples"].map(Path::new);
    match named.or_else(|| usual.into_iter().find(|folder| folder.is_dir())) {
        Some(path) => apply::read(path),
        None => {
            Err(Error::new("there is neither a folder samples nor config/samples here")
                .hint("name one: --samples=PATH"))
        }
    }
}

async fn variables(connection: &Connection, sources: &[Source]) -> Result<BTreeMap<String, String>> {
    let (client, namespace) = (&connection.client, &connection.namespace);
    let mut all = BTreeMap::new();
    for source in sources {
        match source {
            Source::ConfigMap(name) => {
                let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
                let map = maps.get(name).await.when(format!("cannot read ConfigMap {namespace}/{name}"))?;
                all.extend(map.data.unwrap_or_default());
            }
            Source::Secret(name) => {
                let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
                let secret = secrets.get(name).await.when(format!("cannot read Secret {namespace}/{name}"))?;
                for (key, value) in secret.data.unwrap_or_default() {
                    let text = String::from_utf8(value.0);
                    let text =
                        text.map_err(|_| Error::new(format!("{key} of Secret {namespace}/{name} is no text")))?;
                    all.insert(key, text);
                }
            }
        }
    }
    Ok(all)
}

/// Takes the conversion out of a definition: the operator writes where it is to be asked.
fn without_conversion(mut definition: Value) -> Value {
    definition["spec"].as_object_mut().map(|spec| spec.remove("conversion"));
    definition
}

/// Waits until the operator has told the API server where its webhooks are, but not long: it says itself what keeps it.
async fn callable(connection: &Connection, webhooks: &[Value]) {
    let told = async |object: &Value| match connection.read(object).await {
        Ok(found) => {
            found["webhooks"].as_array().is_none_or(|all| all.iter().all(|one| one["clientConfig"]["url"].is_string()))
        }
        Err(_) => false,
    };
    let wait = async {
        for object in webhooks {
            while !told(object).await {
                sleep(Duration::from_millis(50)).await;
            }
        }
    };
    let _ = timeout(Duration::from_secs(10), wait).await;
}

fn start(program: &Path, args: &RunArgs, variables: BTreeMap<String, String>) -> Result<Child> {
    let mut command = Command::new(program);
    command.arg("run").args(&args.args).envs(variables).kill_on_drop(true);
    let connection = &args.connection;
    if let Some(path) = &connection.kubeconfig {
        command.arg("--kubeconfig").arg(path);
    }
    if let Some(context) = &connection.context {
        command.args(["--context", context]);
    }
    command.spawn().when(format!("cannot start {}", program.display()))
}

/// Waits for the operator, which hears Ctrl-C as this process does; SIGTERM is passed on.
async fn until_it_ends(operator: &mut Child) -> Result<()> {
    let what = "cannot listen to signals";
    let mut terminated = signal(SignalKind::terminate()).when(what)?;
    let mut interrupted = signal(SignalKind::interrupt()).when(what)?;
    let status = loop {
        tokio::select! {
            biased;
            status = operator.wait() => break status.when("cannot wait for the operator")?,
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {
                let pid = operator.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
                if let Some(pid) = pid {
                    // It may have ended by itself meanwhile.
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                }
            }
        }
    };
    if status.success() { Ok(()) } else { Err(Error::new(format!("the operator ended with {status}"))) }
}
