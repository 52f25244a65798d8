//! `flyball rbac`: prints the permissions that an operator needs, and compares them with the roles in `config`.

use crate::cluster::apply;
use crate::cluster::connection::block_on;
use crate::error::{Error, Result};
use crate::operator::installation::permissions::{Comparison, Permission};
use crate::operator::installation::{Installation, SYSTEM, TargetArgs};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use crate::render::yaml;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Print the roles that an operator needs, or compare them with those in config/rbac
///
/// The permissions of an operator in Rust are those that its controllers declare. The permissions of charts and roles
/// are derived from the rendered templates, the tasks and the samples.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball rbac
  flyball rbac --check                       fails if config/rbac lacks a permission
  flyball rbac --check --from deploy/rbac")]
pub(crate) struct RbacArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Namespace of the operator; defaults to the name prefix followed by `system`
    #[arg(short, long)]
    namespace: Option<String>,
    /// Compare with the roles in --from, and report missing and unused permissions
    #[arg(long)]
    check: bool,
    /// Directory of the roles
    #[arg(long, value_name = "DIR", default_value = "config/rbac", requires = "check")]
    from: PathBuf,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

pub(crate) fn cmd_rbac(args: &RbacArgs) -> Result<()> {
    let installation = block_on(Installation::load(&args.target, args.namespace.as_deref(), None))?;
    let roles = installation.bound_roles();
    if !args.check {
        return match args.output {
            Some(Output::Json) => Output::Json.print(&json!({"apiVersion": "v1", "kind": "List", "items": roles})),
            Some(Output::Yaml) | None => {
                print_line(roles.iter().map(yaml::write).collect::<Vec<_>>().join("---\n").trim_end());
                Ok(())
            }
        };
    }
    let needed = roles.iter().flat_map(|role| Permission::of_role(role, role["metadata"]["namespace"].as_str()));
    let granted = granted_permissions(&args.from, &installation.target.namespace)?;
    let found = Comparison::of(&granted, &needed.collect());
    let texts = |all: &[Permission]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let [missing, unused, wide] = [&found.missing, &found.unused, &found.wide].map(|all| texts(all));
    match args.output {
        Some(output) => output.print(&json!({"missing": missing, "unused": unused, "wide": wide}))?,
        None => {
            print(Style::Bad, "missing", &missing, "");
            print(Style::Busy, "unused ", &unused, "");
            print(Style::Busy, "wide   ", &wide, ": list the resources and verbs");
            if missing.is_empty() && unused.is_empty() && wide.is_empty() {
                print_line(&paint(Style::Good, "all granted permissions are used, none are missing"));
            }
        }
    }
    match missing.len() {
        0 => Ok(()),
        count => {
            let is = if count == 1 { "permission is" } else { "permissions are" };
            Err(Error::new(format!("{count} {is} missing in {}", args.from.display()))
                .hint("add the rules that `flyball rbac` prints, or generate the roles: flyball manifests"))
        }
    }
}

fn print(style: Style, word: &str, permissions: &[String], more: &str) {
    permissions.iter().for_each(|permission| print_line(&format!("{} {permission}{more}", paint(style, word))));
}

/// Reads the permissions of the roles in a directory that a binding in it refers to. The roles of users are not bound.
fn granted_permissions(folder: &Path, namespace: &str) -> Result<BTreeSet<Permission>> {
    let objects = apply::read(folder).map_err(|error| error.hint("write the roles first: flyball manifests"))?;
    let mut granted = BTreeSet::new();
    for binding in objects.iter().filter(|object| object["roleRef"].is_object()) {
        let role_ref = &binding["roleRef"];
        let is_role = |object: &&Value| {
            object["kind"] == role_ref["kind"]
                && object["metadata"]["name"] == role_ref["name"]
                && object["rules"].is_array()
        };
        let limit = (binding["kind"] == "RoleBinding").then(|| {
            let written = binding["metadata"]["namespace"].as_str().filter(|written| *written != SYSTEM);
            written.unwrap_or(namespace)
        });
        granted.extend(objects.iter().filter(is_role).flat_map(|role| Permission::of_role(role, limit)));
    }
    Ok(granted)
}
