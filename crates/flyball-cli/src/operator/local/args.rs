//! Arguments of an operator on this machine: its program, and the sources of its environment variables.

use crate::cluster::connection::Connection;
use crate::error::{Error, Result, ResultExt};
use crate::operator::process::LineSink;
use crate::operator::program::{Build, Program, check_project};
use clap::Args;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use std::collections::BTreeMap;
use std::str::FromStr;

/// The flags for the operator.
#[derive(Args, Clone, Debug)]
pub(crate) struct LocalArgs {
    /// Use a prebuilt program or a watches.yaml instead of the project in this directory
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bin", "release"])]
    pub(crate) program: Option<Program>,
    /// Binary target of the project, if it has several
    #[arg(long)]
    pub(crate) bin: Option<String>,
    /// Build with optimizations
    #[arg(long)]
    pub(crate) release: bool,
    /// Set environment variables from a Secret or ConfigMap, like `envFrom` of a pod
    #[arg(long, value_name = "secret/NAME|configmap/NAME")]
    pub(crate) env_from: Vec<Source>,
    /// Arguments of the operator
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
}

impl LocalArgs {
    /// Returns the program that needs not be built.
    pub(super) fn prebuilt(&self) -> Option<Program> {
        self.program.clone().or_else(Program::here)
    }

    /// Returns true if it is an operator of a watches.yaml.
    pub(crate) fn needs_no_build(&self) -> bool {
        matches!(self.prebuilt(), Some(Program::Watches(_)))
    }

    /// Fails in a directory without a project, unless a program is given, before connecting to a cluster.
    pub(crate) fn check_project(&self) -> Result<()> {
        self.prebuilt().map_or_else(check_project, |_| Ok(()))
    }

    /// Returns true if the operator's arguments request its help or version instead of a run.
    pub(crate) fn requests_help(&self) -> bool {
        self.args.iter().any(|arg| matches!(arg.as_str(), "-h" | "--help" | "-V" | "--version"))
    }

    /// Builds the program and runs it with its arguments, which request its help. It needs no cluster.
    pub(crate) async fn print_help(&self) -> Result<()> {
        self.check_project()?;
        self.build(None).await?.print_help(&self.args).await
    }

    /// Builds the program if needed, with an optional sink for cargo's output.
    pub(crate) async fn build(&self, sink: Option<LineSink>) -> Result<Program> {
        match self.prebuilt() {
            Some(program) => Ok(program),
            None => Build { sink, ..Build::new(self.bin.as_deref(), self.release) }.run().await.map(Program::File),
        }
    }
}

/// An object with environment variables.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    ConfigMap(String),
    Secret(String),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some(("secret", name)) if !name.is_empty() => Ok(Self::Secret(name.into())),
            Some(("configmap", name)) if !name.is_empty() => Ok(Self::ConfigMap(name.into())),
            _ => Err("expected secret/NAME or configmap/NAME".into()),
        }
    }
}

/// Reads the environment variables from Secrets and ConfigMaps.
pub(super) async fn variables(connection: &Connection, sources: &[Source]) -> Result<BTreeMap<String, String>> {
    let (client, namespace) = (&connection.client, &connection.namespace);
    let mut all = BTreeMap::new();
    for source in sources {
        match source {
            Source::ConfigMap(name) => {
                let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
                let map = maps.get(name).await.context(format!("cannot read ConfigMap {namespace}/{name}"))?;
                all.extend(map.data.unwrap_or_default());
            }
            Source::Secret(name) => {
                let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
                let secret = secrets.get(name).await.context(format!("cannot read Secret {namespace}/{name}"))?;
                for (key, value) in secret.data.unwrap_or_default() {
                    let text = String::from_utf8(value.0);
                    let text =
                        text.map_err(|_| Error::new(format!("{key} of Secret {namespace}/{name} is not text")))?;
                    all.insert(key, text);
                }
            }
        }
    }
    Ok(all)
}
