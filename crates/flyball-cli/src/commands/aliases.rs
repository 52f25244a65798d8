//! Verbs of other tools, with the command to use instead.

use super::manifests::{ManifestsArgs, cmd_manifests};
use crate::error::{Error, Result};
use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct AliasArgs {
    /// Arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Generate an operator's manifests, as `manifests` does
#[derive(Args, Debug)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    manifests: ManifestsArgs,
    /// Kind of files, in other tools
    #[arg(hide = true)]
    what: Option<String>,
}

pub(crate) fn cmd_generate(args: &GenerateArgs) -> Result<()> {
    match &args.what {
        Some(what) => Err(replacement_error("generate", what)),
        None => cmd_manifests(&args.manifests),
    }
}

/// Verbs with their arguments, and the equivalent command.
const INSTEAD: &[(&str, &str, &str)] = &[
    ("add", "api", "flyball create api --group cache --version v1alpha1 --kind Redis"),
    ("add", "controller", "flyball create api --group cache --version v1alpha1 --kind Redis --resource=false"),
    ("add", "crd", "flyball create api --group cache --version v1alpha1 --kind Redis --controller=false"),
    ("add", "webhook", "flyball create webhook --group cache --version v1alpha1 --kind Redis --validation"),
    ("add", "", "flyball create api, flyball create webhook"),
    ("ansible-operator", "", "flyball run, in the directory of watches.yaml"),
    ("generate", "k8s", "cargo build: the types derive what they need, and nothing has to be generated"),
    ("generate", "crds", "flyball manifests"),
    ("generate", "kustomize", "flyball manifests, which writes kustomization.yaml as well"),
    ("generate", "openapi", "flyball manifests: schemas are in the definitions"),
    ("generate", "", "flyball manifests"),
    ("helm-operator", "", "flyball run, in the directory of watches.yaml"),
    ("new", "", "flyball init --domain acme.io redis-operator, with --helm or --ansible if not in Rust"),
    ("run", "--local", "flyball run: it always runs the operator on this machine"),
    ("build", "", "cargo build, or flyball image build"),
    ("up", "", "flyball run"),
];

/// Fails with the command to type instead.
pub(crate) fn cmd_alias(verb: &str, args: &AliasArgs) -> Result<()> {
    Err(replacement_error(verb, args.words.first().map_or("", String::as_str)))
}

/// Creates the error with the command to type instead.
pub(super) fn replacement_error(verb: &str, next: &str) -> Error {
    let found = INSTEAD.iter().find(|(known, what, _)| *known == verb && (*what == next || what.is_empty()));
    let what = if found.is_some_and(|(_, what, _)| !what.is_empty()) { format!(" {next}") } else { String::new() };
    let error = Error::usage(format!("no such command: flyball {verb}{what}"));
    found.into_iter().fold(error, |error, (_, _, instead)| error.hint(format!("use {instead}")))
}
