//! `flyball lint`: checks an operator against best practices.

mod chaos;

use crate::cluster::connection::block_on;
use crate::error::{Error, Result};
use crate::operator::installation::{Installation, TargetArgs, is_webhook_configuration};
use crate::operator::overlay::OverlayArgs;
use crate::operator::program::Program;
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, paint, print_line};
use chaos::Chaos;
use clap::Args;
use flyball::description::Description;
use serde::Serialize;
use serde_json::Value;

/// Check an operator against best practices
///
/// The rules apply to the patched manifests and to the results of the project's chaos tests, whose names begin with
/// chaos_.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball lint
  flyball lint --no-tests
  flyball lint --program ./site-operator --patch env.yaml -o json")]
pub(crate) struct LintArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    overlay: OverlayArgs,
    /// Skip the rules that run tests of the project
    #[arg(long)]
    no_tests: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// A rule and its result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    rule: &'static str,
    /// None if it was not checked.
    passed: Option<bool>,
    /// Problem and remedy, or reason why it was not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

pub(crate) fn cmd_lint(args: &LintArgs) -> Result<()> {
    let installation = block_on(Installation::load(&args.target, None, None))?;
    let mut objects = installation.objects(false);
    args.overlay.apply(&mut objects, &installation.target)?;
    let mut findings = findings(&installation.description, &objects);
    findings.extend(chaos(args)?);
    // An operator without webhooks cannot break this one.
    if objects.iter().any(is_webhook_configuration) {
        findings.push(Finding::of("no webhook that can block the operator's own pods", lockout(&objects)));
    }
    match args.output {
        Some(output) => output.print(&findings)?,
        None => lines(&findings).iter().for_each(|line| print_line(line)),
    }
    match findings.iter().filter(|finding| finding.passed == Some(false)).count() {
        0 => Ok(()),
        count => Err(Error::new(format!("{count} of {} rules violated", findings.len()))),
    }
}

fn lines(findings: &[Finding]) -> Vec<String> {
    let head = ["RULE", "OUTCOME", ""].map(|word| paint(Style::Strong, word)).to_vec();
    let row = |finding: &Finding| {
        let outcome = match finding.passed {
            Some(true) => paint(Style::Good, "passed"),
            Some(false) => paint(Style::Bad, "violated"),
            None => paint(Style::Faint, "not checked"),
        };
        vec![finding.rule.to_owned(), outcome, finding.why.clone().unwrap_or_default()]
    };
    columns(std::iter::once(head).chain(findings.iter().map(row)).collect())
}

fn findings(description: &Description, objects: &[Value]) -> Vec<Finding> {
    let deployments: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "Deployment").collect();
    let rules: [(&'static str, Option<String>); 6] = [
        ("one Deployment", one_deployment(&deployments)),
        ("one controller per kind", one_controller(description)),
        ("no wildcard permissions", wildcard(objects)),
        ("leader election with several replicas", leader(description, &deployments)),
        ("probes and memory limits", probes(&deployments)),
        ("no root user", root(&deployments)),
    ];
    rules.into_iter().map(|(rule, why)| Finding::of(rule, why)).collect()
}

/// Checks the rules that run tests.
fn chaos(args: &LintArgs) -> Result<[Finding; 2]> {
    let rules = ["the chaos suite exists and passes", "an outage of ten minutes changes nothing"];
    let unchecked = match () {
        () if args.no_tests => "skipped by --no-tests",
        () if !args.target.source.is_of_project() => {
            "--program has no tests; run without it in the project's directory"
        }
        () if Program::here().is_some() => "charts and roles have no chaos tests; `flyball scorecard` checks a crash",
        () => {
            let chaos = Chaos::run()?;
            return Ok([Finding::of(rules[0], chaos.suite_problem()), Finding::of(rules[1], chaos.outage_problem())]);
        }
    };
    Ok(rules.map(|rule| Finding { rule, passed: None, why: Some(unchecked.into()) }))
}

impl Finding {
    /// Creates a finding, which is a violation if there is a reason.
    fn of(rule: &'static str, why: Option<String>) -> Self {
        Self { rule, passed: Some(why.is_none()), why }
    }
}

fn one_deployment(deployments: &[&Value]) -> Option<String> {
    let name = |object: &&Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match deployments {
        [_] => None,
        [] => Some("no Deployment found".into()),
        several => Some(format!("there are {}", several.iter().map(name).collect::<Vec<_>>().join(", "))),
    }
}

fn one_controller(description: &Description) -> Option<String> {
    let mut kinds: Vec<&str> = description.controllers.iter().map(|one| one.reconciles.as_str()).collect();
    kinds.sort_unstable();
    let twice = kinds.windows(2).find(|pair| pair[0] == pair[1])?;
    Some(format!("two controllers reconcile {}: merge them, or split the kind", twice[0]))
}

fn wildcard(objects: &[Value]) -> Option<String> {
    let bound: Vec<&Value> = objects.iter().filter(|object| object["roleRef"].is_object()).collect();
    let is_bound = |role: &&Value| bound.iter().any(|binding| binding["roleRef"]["name"] == role["metadata"]["name"]);
    let everything = |rule: &Value| {
        let has = |field: &str| rule[field].as_array().is_some_and(|all| all.iter().any(|word| word == "*"));
        has("verbs") || has("resources") || has("apiGroups")
    };
    let role = objects
        .iter()
        .filter(|object| object["rules"].is_array())
        .filter(is_bound)
        .find(|role| role["rules"].as_array().is_some_and(|rules| rules.iter().any(everything)))?;
    let name = role["metadata"]["name"].as_str().unwrap_or_default();
    Some(format!("{name} has a rule with *: list the permissions"))
}

fn leader(description: &Description, deployments: &[&Value]) -> Option<String> {
    let several = deployments.iter().any(|one| one["spec"]["replicas"].as_u64().unwrap_or(1) > 1);
    let none = description.lease.is_none();
    (several && none).then(|| "all replicas would reconcile at the same time: pass --leader-elect".into())
}

/// Finds the containers of the operator.
fn containers<'a>(deployments: &'a [&Value]) -> impl Iterator<Item = &'a Value> {
    let lists = deployments.iter().filter_map(|one| one["spec"]["template"]["spec"]["containers"].as_array());
    lists.flatten()
}

fn probes(deployments: &[&Value]) -> Option<String> {
    let lacks = |container: &Value| {
        let fields = ["/livenessProbe", "/readinessProbe", "/resources/limits/memory"];
        let missing = fields.into_iter().find(|field| container.pointer(field).is_none_or(Value::is_null))?;
        let name = container["name"].as_str().unwrap_or_default();
        Some(format!("container {name} has no {}", missing.trim_start_matches('/').replace('/', ".")))
    };
    containers(deployments).find_map(lacks)
}

fn root(deployments: &[&Value]) -> Option<String> {
    let unsafe_pod = deployments.iter().any(|one| {
        let context = &one["spec"]["template"]["spec"]["securityContext"];
        context["runAsNonRoot"] != true || context["runAsUser"] == 0
    });
    let unsafe_container = containers(deployments).find(|container| {
        let context = &container["securityContext"];
        context["allowPrivilegeEscalation"] != false || context["privileged"] == true || context["runAsUser"] == 0
    });
    match (unsafe_pod, unsafe_container) {
        (true, _) => Some("the pod may run as root: set securityContext.runAsNonRoot".into()),
        (false, Some(container)) => {
            Some(format!("container {} may gain privileges", container["name"].as_str().unwrap_or_default()))
        }
        (false, None) => None,
    }
}

/// Finds a webhook for objects that the operator needs to run: the operator could never be restarted.
fn lockout(objects: &[Value]) -> Option<String> {
    let webhooks = |object: &'_ Value| object["webhooks"].as_array().cloned().unwrap_or_default();
    let all = objects.iter().filter(|object| is_webhook_configuration(object)).flat_map(webhooks);
    let needed: Vec<Value> = all.filter(is_needed_to_run).collect();
    let deployments = objects.iter().filter(|object| object["kind"] == "Deployment");
    let namespaces = deployments.filter_map(|deployment| deployment["metadata"]["namespace"].as_str());
    namespaces.flat_map(|namespace| needed.iter().map(move |webhook| (namespace, webhook))).find_map(
        |(namespace, webhook)| {
            let name = webhook["name"].as_str().unwrap_or_default();
            (!excludes_namespace(webhook, namespace)).then(|| {
                format!(
                    "{name} applies to namespace {namespace}, where no pod starts while the webhook is unavailable: \
                     exclude the namespace by namespaceSelector, or set failurePolicy: Ignore"
                )
            })
        },
    )
}

/// Returns true if a webhook with failure policy `Fail` applies to namespaced built-in objects.
fn is_needed_to_run(webhook: &Value) -> bool {
    const GROUPS: [&str; 7] = ["", "*", "apps", "autoscaling", "batch", "extensions", "policy"];
    let groups = |rule: &Value| rule["apiGroups"].as_array().cloned().unwrap_or_default();
    let is_of_kubernetes = |group: &str| GROUPS.contains(&group) || group.ends_with(".k8s.io");
    let mut rules = webhook["rules"].as_array().into_iter().flatten().filter(|rule| rule["scope"] != "Cluster");
    webhook["failurePolicy"] != "Ignore"
        && rules.any(|rule| groups(rule).iter().filter_map(Value::as_str).any(is_of_kubernetes))
}

/// Returns true if a webhook excludes a namespace by its name label.
fn excludes_namespace(webhook: &Value, namespace: &str) -> bool {
    const NAME_LABEL: &str = "kubernetes.io/metadata.name";
    let selector = &webhook["namespaceSelector"];
    let named = &selector["matchLabels"][NAME_LABEL];
    let is_other = |expression: &Value| {
        let listed = expression["values"].as_array().is_some_and(|values| values.iter().any(|one| one == namespace));
        expression["key"] == NAME_LABEL
            && match expression["operator"].as_str() {
                Some("NotIn") => listed,
                Some("In") => !listed,
                _ => false,
            }
    };
    named.as_str().is_some_and(|name| name != namespace)
        || selector["matchExpressions"].as_array().into_iter().flatten().any(is_other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn webhook_that_reviews_its_own_namespace_is_found() {
        let deployment = json!({"kind": "Deployment", "metadata": {"namespace": "sites"}});
        let found = |group: &str, policy: &str, selector: Value| {
            let rules = json!([{"apiGroups": [group], "scope": "Namespaced"}]);
            let webhook =
                json!({"name": "judge", "rules": rules, "failurePolicy": policy, "namespaceSelector": selector});
            let configuration = json!({"kind": "ValidatingWebhookConfiguration", "webhooks": [webhook]});
            lockout(&[configuration, deployment.clone()]).is_some()
        };
        let by_name = |operator: &str, name: &str| json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": operator, "values": [name]}]});
        assert!(found("", "Fail", Value::Null) && found("apps", "Fail", by_name("NotIn", "other")));
        assert!(found("*", "Fail", by_name("In", "sites")) && found("coordination.k8s.io", "Fail", json!({})));
        assert!(!found("", "Fail", by_name("NotIn", "sites")) && !found("", "Fail", by_name("In", "other")));
        assert!(!found("", "Ignore", Value::Null) && !found("example.com", "Fail", Value::Null));
        assert!(!found("", "Fail", json!({"matchLabels": {"kubernetes.io/metadata.name": "other"}})));
    }
}
