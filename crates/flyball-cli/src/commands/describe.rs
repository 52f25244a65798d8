//! `flyball describe`: prints the description of an operator.

use crate::cluster::connection::block_on;
use crate::error::{Result, ResultExt};
use crate::operator::program::{Program, SourceArgs};
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, paint, print_line};
use clap::{Args, Subcommand};
use flyball::description::{ControllerDescription, DefinitionDescription, Description};
use k8s_openapi::api::rbac::v1::PolicyRule;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Describe an operator
#[derive(Args, Debug)]
pub(crate) struct DescribeArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Operator(OperatorArgs),
}

/// Print the kinds, controllers, webhooks, policies and permissions of an operator without running it
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball describe operator
  flyball describe operator target/release/site-operator
  flyball describe operator watches.yaml -o json")]
struct OperatorArgs {
    /// Operator: a program, a watches.yaml, or the directory of a project; defaults to the project in this directory
    program: Option<PathBuf>,
    /// Flags of the operator, after `--`
    #[arg(last = true)]
    flags: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

pub(crate) fn cmd_describe(args: DescribeArgs) -> Result<()> {
    let Command::Operator(args) = args.command;
    let directory = args.program.as_ref().filter(|path| path.is_dir());
    if let Some(directory) = directory {
        std::env::set_current_dir(directory).context(format!("cannot enter {}", directory.display()))?;
    }
    let program = match &args.program {
        Some(path) if directory.is_none() => Program::of(path),
        _ => block_on(Program::find(&SourceArgs::default()))?,
    };
    let described = block_on(program.describe(&args.flags, &BTreeMap::new()))?;
    match args.output {
        Some(output) => output.print(&described)?,
        None => lines(&described).iter().for_each(|line| print_line(line)),
    }
    Ok(())
}

fn lines(described: &Description) -> Vec<String> {
    let version = described.version.iter().map(|version| format!(" {version}"));
    let mut lines = vec![paint(Style::Strong, &described.name) + &version.collect::<String>()];
    if !described.namespaces.is_empty() {
        lines.push(format!("limited to namespaces {}", described.namespaces.join(", ")));
    }
    if let Some(lease) = &described.lease {
        let place = lease.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        lines.push(format!("leader election: lease {place}{}, duration {} s", lease.name, lease.lease_duration));
    }
    let definitions = described.definitions.iter().flat_map(definition).collect();
    table(&mut lines, &["KIND", "CRD", "SCOPE", "VERSION", "COLUMNS"], definitions);
    let controllers = described.controllers.iter().map(controller).collect();
    table(&mut lines, &["CONTROLLER", "RECONCILES", "OWNS", "WATCHES", "FINALIZER", "WORKERS"], controllers);
    let webhooks = described.webhooks.iter().map(|webhook| vec![webhook.kind.clone(), webhook.calls.join(", ")]);
    table(&mut lines, &["WEBHOOK", "TYPES"], webhooks.collect());
    let policy = |policy: &flyball::description::PolicyDescription| {
        policy.rules.iter().map(|rule| vec![policy.kind.clone(), rule.clone()]).collect::<Vec<_>>()
    };
    table(&mut lines, &["POLICY", "RULE"], described.policies.iter().flat_map(policy).collect());
    table(&mut lines, &["RESOURCE", "VERBS", "NAMES"], described.rules.iter().map(rule).collect());
    lines
}

fn definition(definition: &DefinitionDescription) -> Vec<Vec<String>> {
    let row = |version: &flyball::description::VersionDescription| {
        let state = match (version.served, version.storage) {
            (true, true) => " (stored)",
            (true, false) => "",
            (false, true) => " (stored, not served)",
            (false, false) => " (not served)",
        };
        vec![
            definition.kind.clone(),
            definition.name.clone(),
            definition.scope.clone(),
            format!("{}{state}", version.name),
            version.columns.join(", "),
        ]
    };
    definition.versions.iter().map(row).collect()
}

fn controller(controller: &ControllerDescription) -> Vec<String> {
    vec![
        controller.name.clone(),
        controller.reconciles.clone(),
        controller.owns.join(", "),
        controller.watches.join(", "),
        controller.finalizer.clone().unwrap_or_default(),
        controller.concurrency.to_string(),
    ]
}

fn rule(rule: &PolicyRule) -> Vec<String> {
    let list = |texts: &Option<Vec<String>>| texts.clone().unwrap_or_default();
    let group = list(&rule.api_groups).into_iter().find(|group| !group.is_empty());
    // In kubectl's notation, the subresource follows the group.
    let resource = |resource: String| match (&group, resource.split_once('/')) {
        (None, _) => resource,
        (Some(group), None) => format!("{resource}.{group}"),
        (Some(group), Some((resource, subresource))) => format!("{resource}.{group}/{subresource}"),
    };
    let what: Vec<String> =
        list(&rule.resources).into_iter().map(resource).chain(list(&rule.non_resource_urls)).collect();
    vec![what.join(", "), rule.verbs.join(", "), list(&rule.resource_names).join(", ")]
}

/// Adds a table unless it is empty; empty columns are omitted.
fn table(lines: &mut Vec<String>, heading: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let shown: Vec<usize> =
        (0..heading.len()).filter(|column| rows.iter().any(|row| !row[*column].is_empty())).collect();
    let cut = |row: &[String]| shown.iter().map(|column| row[*column].clone()).collect();
    let heading: Vec<String> = heading.iter().map(|text| (*text).to_owned()).collect();
    lines.push(String::new());
    lines.extend(columns(std::iter::once(cut(&heading)).chain(rows.iter().map(|row| cut(row))).collect()));
}
