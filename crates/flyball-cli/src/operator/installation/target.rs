//! Target of an installation: namespace, prefix and image.

use crate::error::{Error, Result};
use crate::operator::program::SourceArgs;
use clap::Args;
use flyball::description::Description;
use flyball_core::names::dns_label;
use serde_json::{Value, json};

/// The default image, which kustomize overlays replace.
const IMAGE: &str = "controller:latest";

/// Label of the objects that commands install.
pub(crate) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "flyball");

/// Help of `--namespace` in commands about installed operators.
pub(crate) const NAMESPACE: &str = "Namespace of the operator; defaults to the name prefix followed by `system`";

/// The flags for the operator and its names.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Name prefix of the operator's objects; defaults to the operator's name and a dash. Two copies in one cluster
    /// need two prefixes
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    pub(crate) name_prefix: Option<String>,
    /// Arguments of the operator, here and in its pod
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
}

fn parse_prefix(text: &str) -> Result<String, String> {
    let Some(name) = text.strip_suffix('-') else { return Err("end it with a dash, such as team-a-".into()) };
    let wrong = dns_label(name);
    if wrong.is_empty() { Ok(text.to_owned()) } else { Err(wrong.join("; ")) }
}

/// Target of an installation.
#[derive(Clone, Debug)]
pub(crate) struct InstallTarget {
    /// Prefix of all object names, ending with a dash.
    pub(crate) prefix: String,
    pub(crate) namespace: String,
    pub(crate) image: String,
    /// Flags of the operator itself.
    pub(super) args: Vec<String>,
}

impl InstallTarget {
    pub(super) fn of(
        description: &Description,
        args: &TargetArgs,
        namespace: Option<&str>,
        image: Option<&str>,
    ) -> Result<Self> {
        let prefix = match &args.name_prefix {
            Some(prefix) => prefix.clone(),
            None => {
                let name = &description.name;
                let wrong = dns_label(name);
                if !wrong.is_empty() {
                    return Err(Error::new(format!(
                        "{name:?} is not a valid prefix of object names: {}",
                        wrong.join("; ")
                    ))
                    .hint("set a prefix: --name-prefix my-operator-"));
                }
                format!("{name}-")
            }
        };
        let namespace = namespace.map_or_else(|| format!("{prefix}system"), str::to_owned);
        let wrong = dns_label(&namespace);
        if !wrong.is_empty() {
            return Err(Error::new(format!("invalid namespace {namespace:?}: {}", wrong.join("; ")))
                .hint("pass --namespace NAME"));
        }
        Ok(Self { prefix, namespace, image: image.unwrap_or(IMAGE).to_owned(), args: args.args.clone() })
    }

    /// Returns the name under which the operator is installed.
    pub(crate) fn name(&self) -> &str {
        self.prefix.trim_end_matches('-')
    }

    /// Returns the full name of something of the operator.
    pub(crate) fn object_name(&self, part: &str) -> String {
        format!("{}{part}", self.prefix)
    }

    /// Returns a name without the common prefix.
    pub(super) fn without_prefix<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(&self.prefix).unwrap_or(name)
    }

    /// Returns the flags of the operator for its description.
    pub(super) fn flags(&self, description: &Description) -> Vec<String> {
        let mut flags = vec!["--metrics-secure".to_owned(), format!("--operator-namespace={}", self.namespace)];
        flags.extend(self.rename(description));
        flags
    }

    /// Returns the flag with the operator's name, if it is not the default.
    pub(super) fn rename(&self, description: &Description) -> Option<String> {
        (self.name() != description.name).then(|| format!("--installed-as={}", self.name()))
    }

    /// Returns the label of the operator's pods.
    pub(super) fn selector(&self) -> Value {
        json!({"app.kubernetes.io/name": self.name()})
    }

    /// Marks an object as the operator's. Definitions are not: they may serve several operators.
    pub(super) fn label(&self, object: &mut Value) {
        if object["kind"] != "CustomResourceDefinition" {
            object["metadata"]["labels"]["app.kubernetes.io/name"] = self.name().into();
            object["metadata"]["labels"][MANAGED_BY.0] = MANAGED_BY.1.into();
        }
    }

    /// Returns the name of the account that the operator runs as.
    pub(crate) fn account(&self) -> String {
        self.object_name("controller-manager")
    }
}
