//! Connection of a command to a cluster: kubectl's default, or the one of its flags.

use crate::error::{Error, Result, ResultExt};
use clap::Args;
use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};
use kube::{Client, Config};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

/// The `User-Agent` of requests. Its first word is the default field manager of writes.
const AGENT: &str = concat!("flyball/", env!("CARGO_PKG_VERSION"));
const HINT: &str = "start one with `flyball cluster up`, or pass --kubeconfig FILE";

/// Flags for the connection, without a namespace.
#[derive(Args, Clone, Debug)]
pub(crate) struct ContextArgs {
    /// Path of the kubeconfig; defaults to KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; defaults to the current one
    #[arg(long)]
    pub(crate) context: Option<String>,
}

/// Flags for the connection, with a namespace.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConnectionArgs {
    #[command(flatten)]
    pub(crate) cluster: ContextArgs,
    /// Namespace; defaults to the context's
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
}

/// A connection to a cluster.
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// URL of the API server.
    pub(crate) server: String,
    /// Default namespace.
    pub(crate) namespace: String,
}

impl ContextArgs {
    pub(crate) async fn connect(&self) -> Result<Connection> {
        self.open(self.config().await?).await
    }

    /// Connects with a configuration of these flags.
    async fn open(&self, config: Config) -> Result<Connection> {
        let named = self.kubeconfig.as_ref();
        let hint = named.map(|path| format!("check the address of the server in {}", path.display()));
        Connection::open_with(config, hint.as_deref().unwrap_or(HINT)).await
    }

    /// Returns the name of the context; empty if there is none, as in a pod.
    pub(crate) fn context_name(&self) -> String {
        let current = || {
            let config = self.kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
            config.ok()?.current_context
        };
        self.context.clone().or_else(current).unwrap_or_default()
    }

    /// Reads the configuration without connecting.
    pub(crate) async fn config(&self) -> Result<Config> {
        match &self.kubeconfig {
            Some(path) => config_of(path, self.context.as_deref()).await,
            None => {
                let options = options(self.context.as_deref());
                let found = Config::from_kubeconfig(&options).await;
                let contexts = || Kubeconfig::read().map(|config| names(&config)).unwrap_or_default();
                found.map_err(|error| kubeconfig_error(error, "no cluster to connect to", contexts).hint(HINT))
            }
        }
    }
}

impl ConnectionArgs {
    pub(crate) async fn connect(&self) -> Result<Connection> {
        self.cluster.open(self.config().await?).await
    }

    /// Reads the configuration without connecting.
    pub(crate) async fn config(&self) -> Result<Config> {
        let mut config = self.cluster.config().await?;
        config.default_namespace = self.namespace.clone().unwrap_or(config.default_namespace);
        Ok(config)
    }
}

impl Connection {
    /// Connects, and verifies that the API server responds.
    pub(crate) async fn open(config: Config) -> Result<Self> {
        Self::open_with(config, HINT).await
    }

    async fn open_with(mut config: Config, hint: &str) -> Result<Self> {
        config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
        let url = config.cluster_url.clone();
        let namespace = config.default_namespace.clone();
        let client = flyball::connect(config).context(format!("cannot connect to {url}"))?;
        let version = client.apiserver_version().await;
        version.map_err(|error| {
            // Without a connection, the cause names the URL.
            let is_named = matches!(error, kube::Error::Service(_));
            let what =
                if is_named { "the cluster did not respond".to_owned() } else { format!("{url} did not respond") };
            Error::caused(what, error).hint(hint)
        })?;
        Ok(Self { client, server: url.to_string(), namespace })
    }
}

/// Reads the configuration from a kubeconfig.
pub(crate) async fn config_of(path: &Path, context: Option<&str>) -> Result<Config> {
    let read = Kubeconfig::read_from(path);
    let contexts = read.as_ref().map(names).unwrap_or_default();
    let explain = |error: KubeconfigError| match error {
        KubeconfigError::ReadConfig(error, _) => {
            let is_absent = error.kind() == ErrorKind::NotFound;
            let error = Error::caused(format!("cannot read kubeconfig {}", path.display()), error);
            if is_absent { error.hint("check the path, or start a cluster: flyball cluster up") } else { error }
        }
        error => kubeconfig_error(error, &format!("cannot use kubeconfig {}", path.display()), || contexts.clone()),
    };
    let read = read.map_err(explain)?;
    Config::from_custom_kubeconfig(read, &options(context)).await.map_err(explain)
}

/// Returns the names of the contexts.
fn names(config: &Kubeconfig) -> Vec<String> {
    config.contexts.iter().map(|context| context.name.clone()).collect()
}

/// Explains why a kubeconfig is unusable, with each path once.
fn kubeconfig_error(error: KubeconfigError, what: &str, contexts: impl FnOnce() -> Vec<String>) -> Error {
    match error {
        KubeconfigError::ReadConfig(error, path) => {
            Error::caused(format!("{what}: cannot read kubeconfig {}", path.display()), error)
        }
        KubeconfigError::LoadCertificateAuthority(LoadDataError::ReadFile(error, path)) => {
            Error::caused(format!("{what}: cannot read certificate authority {}", path.display()), error)
        }
        // After `flyball cluster down` there may be no current context.
        KubeconfigError::LoadContext(name) if name.is_empty() => Error::new(format!("{what}: no current context")),
        KubeconfigError::CurrentContextNotSet => Error::new(format!("{what}: no current context")),
        KubeconfigError::LoadContext(name) => {
            let error = Error::new(format!("{what}: context {name:?} not found"));
            match &contexts()[..] {
                [] => error,
                contexts => error.hint(format!("the contexts are {}", contexts.join(", "))),
            }
        }
        error => Error::caused(what, error),
    }
}

fn options(context: Option<&str>) -> KubeConfigOptions {
    KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() }
}

/// Runs a future that waits for a cluster.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    // Boxed, since the future would be compiled in three places otherwise.
    let work: Pin<Box<dyn Future<Output = _>>> = Box::pin(work);
    runtime.context("cannot start the runtime")?.block_on(work)
}

/// Time for running tasks to end after a command.
const MAX_SHUTDOWN: Duration = Duration::from_secs(2);

/// Runs a command that serves a cluster, on as many threads as there are processors.
///
/// A runtime that is merely dropped waits until each thread returns from the request that it computes.
pub(crate) fn block_on_threads<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(MAX_SHUTDOWN);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;
    use std::time::Instant;

    #[test]
    fn name_of_the_context_is_that_of_the_flag_or_the_current_one() {
        let path = std::env::temp_dir().join(format!("flyball-context-{}", std::process::id()));
        let config = "apiVersion: v1\nkind: Config\ncurrent-context: staging\ncontexts: []\nclusters: []\nusers: []\n";
        std::fs::write(&path, config).expect("written");
        let name = |context: Option<&str>, kubeconfig: &Path| {
            let (kubeconfig, context) = (Some(kubeconfig.to_owned()), context.map(str::to_owned));
            ContextArgs { kubeconfig, context }.context_name()
        };
        assert_eq!((name(None, &path), name(Some("test"), &path)), ("staging".to_owned(), "test".to_owned()));
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(name(None, &path), "");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a thread with computations has no paused clock")]
    fn command_ends_during_a_blocking_request() {
        let began = Instant::now();
        let done = block_on_threads(async {
            let (started, has_started) = tokio::sync::oneshot::channel();
            tokio::spawn(async {
                tokio::task::block_in_place(|| {
                    let _ = started.send(());
                    sleep(Duration::from_secs(60));
                });
            });
            has_started.await.context("the request did not start")
        });
        assert!(done.is_ok() && began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
}
