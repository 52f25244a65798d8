//! Resource quotas: what a namespace may have in all is not exceeded.
//!
//! What a write takes is added to the quota's status before the write, so that two writes at a time cannot both take the
//! rest. What then comes of it, and what goes, a controller counts anew. See
//! <https://kubernetes.io/docs/concepts/policy/resource-quotas/>.

use super::{Attributes, Operation};
use crate::kinds::Part;
use crate::quota::{self, Amounts};
use crate::registry::{Change, Target, Writer};
use crate::request::options::WriteOptions;
use crate::response::Warnings;
use crate::server::Inner;
use flyball_core::{GroupResource, Object, Quantity, Status};
use serde_json::Value;

/// Takes from the quotas of a namespace what a write asks for, or refuses it.
pub(super) async fn take(
    inner: &Inner,
    attributes: &Attributes<'_>,
    object: &Object,
    old: Option<&Object>,
) -> Result<(), Status> {
    let resource = attributes.resource.group_resource();
    let is_counted_anew = ["services", "persistentvolumeclaims"].iter().any(|plural| attributes.is("", plural));
    let may_take =
        attributes.operation == Operation::Create || attributes.operation == Operation::Update && is_counted_anew;
    let (Some(namespace), Part::Whole, true) = (attributes.namespace, attributes.part, may_take) else { return Ok(()) };
    let catalog = inner.catalog();
    let Some(quotas) = catalog.get("", "v1", "resourcequotas") else { return Ok(()) };
    let all = inner.store.list(&GroupResource::new("", "resourcequotas"), Some(namespace)).entries;
    let now = inner.clock.now();
    let mut asked = quota::usage(&resource, object, now);
    if let Some(old) = old {
        for (name, amount) in quota::usage(&resource, old, now) {
            let rest = asked.get(&name).copied().unwrap_or(Quantity::ZERO).minus(&amount);
            asked.insert(name, rest);
        }
    }
    asked.retain(|_, amount| *amount != Quantity::ZERO);
    let refuse = |why: String| Status::forbidden(&resource, attributes.known_name(), why);
    let mut taken = Vec::new();
    // All are asked before one is changed.
    for entry in &all {
        let Ok(known) = entry.object() else { continue };
        let spec = known.at(&["spec"]).cloned().unwrap_or_default();
        if !quota::is_about(&spec, &resource, object) {
            continue;
        }
        let hard = amounts(&known, "hard");
        if attributes.is("", "pods") {
            must_say(&known, &hard, object).map_err(&refuse)?;
        }
        let asked: Amounts =
            asked.iter().filter(|(name, _)| hard.contains_key(*name)).map(|(n, a)| (n.clone(), *a)).collect();
        if !asked.is_empty() {
            fits(&known, &asked).map_err(&refuse)?;
            taken.push((known.name().to_owned(), asked));
        }
    }
    if attributes.dry_run {
        return Ok(());
    }
    for (name, asked) in taken {
        let target = Target {
            resource: quotas.clone(),
            namespace: Some(namespace.to_owned()),
            name: Some(name),
            part: Part::Status,
        };
        let (resource, of) = (resource.clone(), attributes.name.to_owned());
        let add = move |known: &mut Object| {
            let used = fits(known, &asked).map_err(|why| Status::forbidden(&resource, &of, why))?;
            known.change(|value| {
                for (name, amount) in used {
                    value["status"]["used"][name] = amount.to_string().into();
                }
            });
            Ok(())
        };
        let warnings = Warnings::default();
        let options = WriteOptions::default();
        let writer = Writer {
            user: attributes.user,
            manager: "kube-apiserver".into(),
            options,
            warnings: &warnings,
            reviewed: false,
        };
        Box::pin(inner.change(&target, &Change::With(Box::new(add)), &writer)).await?;
    }
    Ok(())
}

fn amounts(quota: &Object, field: &str) -> Amounts {
    let amounts = quota.at(&["status", field]).and_then(Value::as_object).into_iter().flatten();
    amounts.filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.parse().ok()?))).collect()
}

/// Returns what is used with what is asked for, or why that is too much.
fn fits(quota: &Object, asked: &Amounts) -> Result<Amounts, String> {
    let (hard, used) = (amounts(quota, "hard"), amounts(quota, "used"));
    let name = quota.name();
    let unknown: Vec<&str> = asked.keys().filter(|name| !used.contains_key(*name)).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(format!("status unknown for quota: {name}, resources: {}", unknown.join(",")));
    }
    let sums: Amounts = asked.iter().map(|(name, amount)| (name.clone(), used[name].plus(amount))).collect();
    let is_over = |name: &String| hard.get(name).is_some_and(|most| sums[name] > *most) && !asked[name].is_negative();
    let over: Vec<&String> = asked.keys().filter(|name| is_over(name)).collect();
    if over.is_empty() {
        return Ok(sums);
    }
    let print =
        |amounts: &Amounts| over.iter().map(|name| format!("{name}={}", amounts[*name])).collect::<Vec<_>>().join(",");
    Err(format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        print(asked),
        print(&used),
        print(&hard)
    ))
}

/// Refuses a pod that does not say what a quota counts.
fn must_say(quota: &Object, hard: &Amounts, pod: &Object) -> Result<(), String> {
    let unsaid = quota::unsaid(pod, hard.keys());
    if unsaid.is_empty() {
        return Ok(());
    }
    let mut by_name: std::collections::BTreeMap<String, Vec<String>> = std::collections::BTreeMap::new();
    for (container, names) in unsaid {
        for name in names {
            by_name.entry(name).or_default().push(container.clone());
        }
    }
    let told: Vec<String> = by_name.iter().map(|(name, of)| format!("{name} for: {}", of.join(","))).collect();
    Err(format!("failed quota: {}: must specify {}", quota.name(), told.join("; ")))
}
