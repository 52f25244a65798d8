//! `flyball olm approve`.

use super::objects;
use crate::cluster::connection::{Connection, ConnectionArgs, block_on};
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::error::{Error, Result};
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, one_line, paint, print_line};
use clap::Args;
use flyball_lifecycle::api::labels::APPROVED;
use flyball_lifecycle::api::{InstallPlan, InstallPlanPhase, Subscription};
use kube::ResourceExt;
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// Time in which the lifecycle manager begins an approved plan, or replaces it.
const REPLACEMENT_TIME: Duration = Duration::from_secs(2);

/// Approve an InstallPlan, selected by its name or by its Subscription
///
/// If the plan of a Subscription also installs operators of other Subscriptions, only the operator of this one is
/// approved, with its dependencies: the lifecycle manager moves it to a plan of its own. --all approves the whole plan.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball olm approve memo -n demo               the plan of Subscription memo
  flyball olm approve install-x7k2p -n demo
  flyball olm approve memo -n demo --dry-run     lists the steps")]
pub(super) struct ApproveArgs {
    /// InstallPlan or Subscription
    #[arg(value_name = "PLAN|SUBSCRIPTION")]
    name: String,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Also approve the operators of other Subscriptions in the same plan
    #[arg(long)]
    all: bool,
    /// List the steps without approving them
    #[arg(long)]
    dry_run: bool,
    /// Print only errors
    #[arg(short, long, conflicts_with = "output")]
    quiet: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// An approved plan.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Approval {
    plan: String,
    namespace: String,
    operators: Vec<String>,
    steps: Vec<StepReport>,
    approved: bool,
    /// False if it was approved before, or in a dry run.
    changed: bool,
    /// The plan that is executed instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_by: Option<String>,
}

#[derive(Serialize)]
struct StepReport {
    kind: String,
    name: String,
    bundle: String,
    status: String,
}

pub(super) fn cmd_approve(args: &ApproveArgs) -> Result<()> {
    block_on(async {
        let connection = args.connection.connect().await?;
        let (plan, alone) = find(&connection, &args.name).await?;
        let alone = alone.filter(|_| !args.all);
        let changes = !args.dry_run && !plan.spec.approved;
        match &alone {
            Some(own) if changes => approve_operator(&connection, own).await?,
            None if changes => approve_plan(&connection, &plan).await?,
            _ => {}
        }
        let replacement = match changes {
            true => replacement(&connection, &plan, alone.as_ref()).await?,
            false => None,
        };
        report(args, &connection, &plan, (alone.as_ref(), replacement), changes)
    })
}

/// Approves the operator of a Subscription.
pub(super) async fn approve_operator(connection: &Connection, subscription: &Subscription) -> Result<()> {
    let body = json!({"metadata": {"annotations": {APPROVED: subscription.status.current_csv}}});
    objects::patch::<Subscription>(connection, &subscription.name_any(), &body).await.map(drop)
}

/// Approves a plan. A user who may not change it, such as the administrator of a namespace, approves the operators of
/// its Subscriptions instead.
pub(super) async fn approve_plan(connection: &Connection, plan: &InstallPlan) -> Result<()> {
    let body = json!({"metadata": {"uid": plan.uid()}, "spec": {"approved": true}});
    match objects::patch::<InstallPlan>(connection, &plan.name_any(), &body).await {
        Err(error) if error.is_forbidden() => {
            let subscriptions: Vec<Subscription> = objects::list(connection, Some(&connection.namespace)).await?;
            let mut own = subscriptions.iter().filter(|of| installs(plan, of)).peekable();
            if own.peek().is_none() {
                return Err(error);
            }
            for subscription in own {
                approve_operator(connection, subscription).await?;
            }
            Ok(())
        }
        patched => patched.map(drop),
    }
}

/// Returns true if a plan installs the version of a Subscription.
fn installs(plan: &InstallPlan, subscription: &Subscription) -> bool {
    let status = &subscription.status;
    let refers = status.install_plan_ref.as_ref().is_some_and(|of| of.name.as_deref() == Some(&*plan.name_any()));
    refers && plan.spec.cluster_service_version_names.contains(&status.current_csv)
}

/// Returns the plan that is executed instead of the approved one: the lifecycle manager moves an operator to a plan of
/// its own, and replaces a plan that is no longer the result of a resolution.
async fn replacement(
    connection: &Connection,
    plan: &InstallPlan,
    alone: Option<&Subscription>,
) -> Result<Option<String>> {
    let operators = match alone {
        Some(own) => vec![own.status.current_csv.clone()],
        None => plan.spec.cluster_service_version_names.clone(),
    };
    let found = poll_until(REPLACEMENT_TIME, POLL_INTERVAL, async || {
        // Without permission, nothing is known about it.
        let plans: Vec<InstallPlan> = match objects::list(connection, Some(&connection.namespace)).await {
            Err(error) if error.is_forbidden() => return Ok(Ok(None)),
            listed => listed?,
        };
        Ok(executed(&plans, &plan.name_any(), &operators).ok_or(()))
    });
    Ok(found.await?.ok().flatten())
}

/// Returns the name of another plan that installs the operators, `None` inside if it is the approved one itself, and
/// `None` if neither has begun.
fn executed(plans: &[InstallPlan], approved: &str, operators: &[String]) -> Option<Option<String>> {
    let has_begun = |plan: &InstallPlan| {
        plan.spec.approved || matches!(plan.status.phase, InstallPlanPhase::Installing | InstallPlanPhase::Complete)
    };
    let installs = |plan: &&InstallPlan| {
        let names = &plan.spec.cluster_service_version_names;
        has_begun(plan) && operators.iter().any(|operator| names.contains(operator))
    };
    let newest = plans.iter().filter(installs).max_by_key(|plan| plan.spec.generation)?;
    let name = newest.name_any();
    match name == approved {
        // An approved plan may still be replaced.
        true if newest.status.phase == InstallPlanPhase::RequiresApproval => None,
        true => Some(None),
        false => Some(Some(name)),
    }
}

/// Finds the plan of this name, or that of the Subscription of this name. Also returns the Subscription if the plan
/// installs operators of others as well.
async fn find(connection: &Connection, name: &str) -> Result<(InstallPlan, Option<Subscription>)> {
    let name = name.rsplit('/').next().unwrap_or(name);
    let plans: Vec<InstallPlan> = objects::list(connection, Some(&connection.namespace)).await?;
    let named = |name: &str| plans.iter().find(|plan| plan.name_any() == name).cloned();
    if let Some(plan) = named(name) {
        return Ok((plan, None));
    }
    let subscriptions: Vec<Subscription> = objects::list(connection, Some(&connection.namespace)).await?;
    let Some(found) = subscriptions.iter().find(|found| found.name_any() == name) else {
        let known: Vec<String> =
            subscriptions.iter().map(ResourceExt::name_any).chain(plans.iter().map(ResourceExt::name_any)).collect();
        return Err(objects::unknown(connection, name, "InstallPlan or Subscription", &known));
    };
    let reference = found.status.install_plan_ref.as_ref().and_then(|reference| reference.name.as_deref());
    let plan = reference.and_then(named).ok_or_else(|| {
        Error::new(format!("Subscription {}/{name} has no InstallPlan", connection.namespace))
            .hint(format!("find out why: flyball olm why {name} -n {}", connection.namespace))
    })?;
    let is_shared = has_others(&plan, found, &subscriptions);
    Ok((plan, is_shared.then(|| found.clone())))
}

/// Returns true if a plan installs operators of other Subscriptions: they would be approved with it.
fn has_others(plan: &InstallPlan, own: &Subscription, subscriptions: &[Subscription]) -> bool {
    subscriptions.iter().any(|other| other.uid() != own.uid() && installs(plan, other))
}

fn report(
    args: &ApproveArgs,
    connection: &Connection,
    plan: &InstallPlan,
    (alone, replacement): (Option<&Subscription>, Option<String>),
    changed: bool,
) -> Result<()> {
    let step = |step: &flyball_lifecycle::api::Step| StepReport {
        kind: step.resource.kind.clone(),
        name: step.resource.name.clone(),
        bundle: step.resolving.clone(),
        status: format!("{:?}", step.status),
    };
    let approval = Approval {
        plan: plan.name_any(),
        namespace: connection.namespace.clone(),
        operators: match alone {
            Some(own) => vec![own.status.current_csv.clone()],
            None => plan.spec.cluster_service_version_names.clone(),
        },
        steps: plan.status.plan.iter().map(step).collect(),
        approved: changed || plan.spec.approved,
        changed,
        replaced_by: replacement,
    };
    if let Some(output) = args.output {
        return output.print(&approval);
    }
    if args.quiet {
        return Ok(());
    }
    let (name, operators) =
        (format!("InstallPlan {}/{}", approval.namespace, approval.plan), approval.operators.join(", "));
    let state = match (changed, plan.status.phase) {
        (true, _) => paint(Style::Good, "approved"),
        (false, InstallPlanPhase::Complete) => "already complete".to_owned(),
        (false, _) if plan.spec.approved => "already approved".to_owned(),
        (false, _) => "not approved (dry run)".to_owned(),
    };
    print_line(&format!("{} {state}: {}", one_line(&name), one_line(&operators)));
    if alone.is_some() && changed {
        print_line("  it gets a plan of its own; the other operators of this plan still wait");
    }
    if let Some(other) = &approval.replaced_by {
        print_line(&one_line(&format!("  InstallPlan {}/{other} is executed instead", approval.namespace)));
    }
    if args.dry_run {
        let heading = ["BUNDLE", "KIND", "NAME"].map(str::to_owned).to_vec();
        let cell = |text: &String| one_line(text).into_owned();
        let rows = approval.steps.iter().map(|step| [&step.bundle, &step.kind, &step.name].map(cell).to_vec());
        columns(std::iter::once(heading).chain(rows).collect()).iter().for_each(|line| print_line(line));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_that_is_executed_instead_is_found() {
        let plan = |name: &str, generation: i64, phase: &str, approved: bool| -> InstallPlan {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"approval": "Manual", "approved": approved, "generation": generation,
                    "clusterServiceVersionNames": ["memo.v2"]},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        let operators = ["memo.v2".to_owned()];
        let check = |plans: &[InstallPlan], expected: Option<Option<&str>>| {
            let found = executed(plans, "old", &operators);
            assert_eq!(found, expected.map(|name| name.map(str::to_owned)), "{plans:?}");
        };
        check(&[], None);
        check(&[plan("old", 1, "RequiresApproval", true)], None);
        check(&[plan("old", 1, "Installing", true)], Some(None));
        check(&[plan("old", 1, "RequiresApproval", false), plan("new", 2, "RequiresApproval", false)], None);
        check(&[plan("old", 1, "RequiresApproval", true), plan("new", 2, "Installing", true)], Some(Some("new")));
        check(&[plan("new", 2, "Complete", true)], Some(Some("new")));
    }
}
