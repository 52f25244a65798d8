//! The reasons why an InstallPlan cannot change a CRD: stored versions and custom resources that the new CRD rejects.
//!
//! The lifecycle manager reports the first one. Here, the CRDs of the plan are compared with those of the cluster, so
//! that all are listed, each with its remedy.

use super::alternatives::{self, Alternatives};
use super::breaking;
use super::unread::Unread;
use crate::cluster::connection::Connection;
use crate::cluster::safety::BreakingChange;
use crate::error::Result;
use flyball_lifecycle::api::{InstallPlan, InstallPlanPhase};
use flyball_lifecycle::diagnosis::{Cause, Severity, Snapshot};
use flyball_lifecycle::planned_definitions;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Prefix of the labels that name the operators of an object, as `PACKAGE.NAMESPACE`.
const COMPONENT: &str = "operators.coreos.com/";
/// Limit of the causes.
const MAX_CAUSES: usize = 10;
/// Limit of the operators that a message names.
const MAX_NAMES: usize = 5;

/// Returns the reasons why plans cannot change their CRDs.
pub(super) async fn causes(
    connection: &Connection,
    snapshot: &Snapshot,
    plans: &[&InstallPlan],
    unread: &mut Unread,
) -> Result<Vec<Cause>> {
    let mut causes = Vec::new();
    for plan in plans.iter().filter(|plan| fails(plan)) {
        let definitions = planned_definitions(plan);
        let mut known: BTreeMap<String, (Vec<String>, Alternatives)> = BTreeMap::new();
        for change in breaking::changes(connection, &definitions, unread).await? {
            let name = &change.definition;
            let definition = definitions.iter().find(|of| of["metadata"]["name"] == *name).unwrap_or(&Value::Null);
            if !known.contains_key(name) {
                let users = users(connection, name).await;
                let others = alternatives::find(connection, snapshot, plan, definition, &users).await?;
                known.insert(name.clone(), (users, others));
            }
            let (users, others) = &known[name];
            causes.push(cause(&change, definition, users, others));
        }
    }
    let more = causes.len().saturating_sub(MAX_CAUSES);
    causes.truncate(MAX_CAUSES);
    if let Some(last) = causes.last_mut().filter(|_| more > 0) {
        last.message = format!("{}; and {more} more of this kind", last.message);
    }
    Ok(causes)
}

/// Replaces the remedies of causes about plans by that of the cause which prevents the change of their CRDs.
pub(super) fn specify(known: &mut [Cause], plans: &[&InstallPlan], found: &[Cause]) {
    let Some(first) = found.iter().find(|cause| !cause.remedy.is_empty()) else { return };
    let name = |plan: &InstallPlan| format!("InstallPlan {}/{}", plan.namespace().unwrap_or_default(), plan.name_any());
    let names: Vec<String> = plans.iter().map(|plan| name(plan)).collect();
    for cause in known.iter_mut().filter(|cause| names.contains(&cause.object)) {
        cause.remedy = format!("{}; the manager then goes on by itself, at the latest after a minute", first.remedy);
    }
}

fn fails(plan: &InstallPlan) -> bool {
    !plan.status.message.is_empty()
        && matches!(plan.status.phase, InstallPlanPhase::Installing | InstallPlanPhase::Failed)
}

/// Returns the operators that have installed a CRD, as `PACKAGE.NAMESPACE`.
async fn users(connection: &Connection, name: &str) -> Vec<String> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
    });
    // The labels are only an addition to the message.
    let Ok(Some(found)) = connection.find(&definition).await else { return Vec::new() };
    let labels = found["metadata"]["labels"].as_object();
    let names = labels.into_iter().flatten().filter_map(|(label, _)| label.strip_prefix(COMPONENT));
    names.map(str::to_owned).collect()
}

/// Makes a cause of a change. `others` are the remedies by other versions.
fn cause(change: &BreakingChange, definition: &Value, users: &[String], others: &Alternatives) -> Cause {
    let BreakingChange { definition: name, object, field, why } = change;
    let absences: String = others.absences.iter().map(|absence| format!("; {absence}")).collect();
    let others = others.remedies.join("; or ");
    let (object, message, remedy) = match object {
        Some(object) => {
            let object = format!("{} {object}", definition["spec"]["names"]["kind"].as_str().unwrap_or(name));
            let message = format!("{why} (new CRD {name}){absences}");
            let remedy = format!("set or remove {field} in {object}, so that the new CRD accepts it");
            let others = if others.is_empty() { others } else { format!("; or {others}") };
            (object, message, format!("{remedy}{others}"))
        }
        None => {
            let mut listed = users.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
            if users.len() > MAX_NAMES {
                listed = format!("{listed} and {} more", users.len() - MAX_NAMES);
            }
            let message = match users.is_empty() {
                true => format!("the new CRD {why}{absences}"),
                false => format!("the new CRD {why}; the present CRD is that of operators {listed}{absences}"),
            };
            (format!("CustomResourceDefinition {name}"), message, others)
        }
    };
    Cause { severity: Severity::Blocking, object, field: field.clone(), message, remedy }
}

/// Returns the InstallPlan of a version that is not complete.
pub(super) fn plans_of<'p>(plans: &'p [InstallPlan], csv: &str) -> Vec<&'p InstallPlan> {
    let installs = |plan: &&InstallPlan| plan.spec.cluster_service_version_names.iter().any(|name| name == csv);
    let newest = plans.iter().filter(installs).max_by_key(|plan| (plan.spec.generation, plan.name_any()));
    newest.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_of_a_failing_plan_are_read() {
        let definition = json!({"kind": "CustomResourceDefinition", "metadata": {"name": "memos.demo"},
            "spec": {"group": "demo", "names": {"kind": "Memo"}}});
        let step = |manifest: String| {
            json!({"resolving": "memo.v2", "resource": {
            "group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition", "name": "memos.demo", "version": "v1",
            "sourceName": "", "sourceNamespace": "", "manifest": manifest}, "status": "Unknown"})
        };
        let mut plan: InstallPlan = serde_json::from_value(json!({
            "metadata": {"name": "install-1"},
            "spec": {"approval": "Automatic", "clusterServiceVersionNames": ["memo.v2"]},
            "status": {"phase": "Installing", "plan": [
                step(definition.to_string()), step("{\"kind\": \"ConfigMap\"}".into()),
            ]},
        }))
        .unwrap();
        assert_eq!(planned_definitions(&plan), [definition]);
        assert!(!fails(&plan));
        plan.status.message = "retrying".into();
        assert!(fails(&plan));
        let plans = [plan];
        assert_eq!((plans_of(&plans, "memo.v2").len(), plans_of(&plans, "memo.v3").len()), (1, 0));
    }

    #[test]
    fn plan_has_the_remedy_of_its_definitions() {
        let cause = |object: &str, remedy: &str| Cause {
            severity: Severity::Blocking,
            object: object.into(),
            field: String::new(),
            message: "it fails".into(),
            remedy: remedy.into(),
        };
        let plan: InstallPlan = serde_json::from_value(json!({
            "metadata": {"name": "install-1", "namespace": "demo"}, "spec": {"approval": "Automatic"},
        }))
        .unwrap();
        let mut known = [cause("InstallPlan demo/install-1", "remove the cause"), cause("Pod demo/a", "see its log")];
        specify(&mut known, &[&plan], &[]);
        assert_eq!(known[0].remedy, "remove the cause");
        specify(&mut known, &[&plan], &[cause("CustomResourceDefinition memos.demo", "install memo.v1")]);
        assert_eq!(
            known[0].remedy,
            "install memo.v1; the manager then goes on by itself, at the latest after a minute"
        );
        assert_eq!(known[1].remedy, "see its log");
    }

    #[test]
    fn causes_name_the_object_and_the_remedy() {
        let definition = json!({"spec": {"names": {"kind": "Memo"}}});
        let mut change = BreakingChange {
            definition: "memos.demo".into(),
            object: Some("demo/first".into()),
            field: "spec.owner".into(),
            why: "would become invalid: Required value".into(),
        };
        let mut others =
            Alternatives { remedies: vec!["install memo.v1.1.0 instead".to_owned()], ..Alternatives::default() };
        let found = cause(&change, &definition, &[], &others);
        assert_eq!((&*found.object, &*found.field), ("Memo demo/first", "spec.owner"));
        assert!(found.remedy.starts_with("set or remove spec.owner in Memo demo/first"), "{found:?}");
        assert!(found.remedy.ends_with("; or install memo.v1.1.0 instead"), "{found:?}");
        change.object = None;
        change.why = "no longer has the storage version v2: run `flyball crd migrate memos.demo --to v1` first".into();
        let found = cause(&change, &definition, &["memo.other".to_owned()], &others);
        assert_eq!(found.object, "CustomResourceDefinition memos.demo");
        assert!(found.message.ends_with("the present CRD is that of operators memo.other"), "{found:?}");
        assert_eq!(found.remedy, others.remedies[0]);

        // Without a remedy here, the plan keeps its own.
        others = Alternatives { remedies: Vec::new(), absences: vec!["no other version helps".to_owned()] };
        let found = cause(&change, &definition, &[], &others);
        assert!(found.message.ends_with("; no other version helps") && found.remedy.is_empty(), "{found:?}");
    }
}
