//! An operator and its samples on a control plane: from the start of its process to the end, with a crash in between.
//!
//! It runs as in its pod, see [`TestEnvironment`].

use super::definitions::is_of;
use super::inventory::inventory_of;
use super::{Check, CheckOutcome, Source, join_some};
use crate::cluster::connection::Connection;
use crate::cluster::failure::failures;
use crate::cluster::kinds::Kinds;
use crate::cluster::wait::poll_until;
use crate::error::{Error, Result};
use crate::operator::local::LocalArgs;
use crate::operator::metrics::Metrics;
use crate::operator::process;
use crate::operator::test_environment::TestEnvironment;
use flyball_cluster::Inventory;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Objects without writes for this period are idle.
const IDLE_PERIOD: Duration = Duration::from_secs(3);
/// Hint for unexpected behavior of the operator.
const LOG: &str = "see its output with -v";

struct ScorecardRun<'a> {
    environment: TestEnvironment,
    connection: Connection,
    source: Source,
    definitions: &'a [Value],
    /// Names of the CRDs that charts install, and that outlive their releases.
    lasting: &'a [String],
    /// Samples that the API server accepted.
    samples: Vec<&'a Value>,
    kinds: Option<Kinds>,
    /// Inventory before the samples.
    before: Inventory,
    timeout: Duration,
}

/// The checks so far, and the reason why later ones cannot run.
#[derive(Default)]
struct Checks {
    done: Vec<Check>,
    skip: Option<&'static str>,
}

impl Checks {
    async fn run(&mut self, name: &'static str, work: impl Future<Output = Result<CheckOutcome>>) -> bool {
        let found = match self.skip {
            Some(why) => CheckOutcome::skipped(why),
            None => work.await.unwrap_or_else(|error| CheckOutcome::failed(error.to_string(), LOG)),
        };
        self.done.push(Check { name, found });
        self.done.last().is_some_and(|check| check.found == CheckOutcome::Passed)
    }
}

/// Runs all steps. Only failures that the operator did not cause are errors.
pub(super) async fn run(
    args: LocalArgs,
    source: Source,
    definitions: &[Value],
    lasting: &[String],
    samples: &[Value],
    timeout: Duration,
) -> Result<Vec<Check>> {
    let mut run = ScorecardRun::new(args, source, definitions, lasting, timeout).await?;
    let mut checks = Checks::default();
    if !checks.run("the operator starts", run.check_start()).await {
        checks.skip = Some("the operator does not start");
    }
    checks.run("samples are accepted", run.check_samples(samples)).await;
    let runs = checks.skip.or(run.samples.is_empty().then_some("no samples found on the control plane"));
    let starts = std::mem::replace(&mut checks.skip, runs);
    checks.run("each sample gets a status", run.check_status()).await;
    checks.run("the operator converges", run.check_convergence()).await;
    checks.run("a crash changes nothing", run.check_crash()).await;
    checks.run("deleted samples leave nothing behind", run.check_deletion()).await;
    checks.skip = starts;
    checks.run("metrics are served", run.check_metrics()).await;
    checks.run("the operator stops on SIGTERM", run.check_stop()).await;
    checks.skip = None;
    checks.run("the roles permit all requests", run.check_permissions()).await;
    Ok(checks.done)
}

impl<'a> ScorecardRun<'a> {
    async fn new(
        args: LocalArgs,
        source: Source,
        definitions: &'a [Value],
        lasting: &'a [String],
        timeout: Duration,
    ) -> Result<Self> {
        let environment = TestEnvironment::new(args, "flyball-scorecard").await?;
        let connection = Connection::open(environment.control_plane.config.clone()).await?;
        let (samples, before) = (Vec::new(), Inventory::default());
        Ok(Self { environment, connection, source, definitions, lasting, samples, kinds: None, before, timeout })
    }

    async fn check_start(&mut self) -> Result<CheckOutcome> {
        let found = self.launch().await?;
        self.kinds = Some(Kinds::discover(&self.connection.client).await?);
        self.before = self.inventory().await?;
        Ok(found)
    }

    async fn launch(&mut self) -> Result<CheckOutcome> {
        let launched = self.environment.launch(self.timeout).await?;
        Ok(launched.map_or_else(|why| CheckOutcome::failed(why, LOG), |()| CheckOutcome::Passed))
    }

    async fn check_samples(&mut self, samples: &'a [Value]) -> Result<CheckOutcome> {
        let mut rejected = Vec::new();
        for sample in samples {
            match self.connection.apply(sample).await {
                Ok(_) => self.samples.push(sample),
                Err(error) => rejected.push(error.to_string()),
            }
        }
        Ok(match () {
            () if samples.is_empty() => CheckOutcome::skipped("no samples found; pass --samples PATH"),
            () if rejected.is_empty() => CheckOutcome::Passed,
            () => CheckOutcome::failed(rejected.join("; "), "fix the samples or the validation of the kind"),
        })
    }

    async fn check_status(&self) -> Result<CheckOutcome> {
        let set = poll_until(self.timeout, POLL_INTERVAL, async || {
            let (mut judged, mut lacking) = (0, Vec::new());
            for sample in &self.samples {
                let Some(schema) = self.status_schema(sample) else { continue };
                judged += 1;
                let found = self.connection.read(sample).await?;
                let missing = missing_status_part(&found, &schema["properties"]["conditions"]);
                lacking.extend(missing.map(|what| {
                    format!(
                        "{} {} {what}",
                        sample["kind"].as_str().unwrap_or_default(),
                        sample["metadata"]["name"].as_str().unwrap_or_default()
                    )
                }));
            }
            Ok(match judged {
                0 => Ok(CheckOutcome::skipped("no sample is of a kind of the operator that has a status")),
                _ if lacking.is_empty() => Ok(CheckOutcome::Passed),
                _ => Err(lacking),
            })
        });
        let remedy = self.source.choose(
            "set it in each reconcile with cx.set_status, including all conditions (Condition::new)",
            LOG,
            "remove manageStatus: false from watches.yaml, or set the status with the module k8s_status",
        );
        Ok(set.await?.unwrap_or_else(|lacking| CheckOutcome::failed(join_some(&lacking), remedy)))
    }

    /// Returns the status schema of a sample's kind.
    fn status_schema(&self, sample: &Value) -> Option<&'a Value> {
        let definition = self.definitions.iter().find(|definition| is_of(sample, definition))?;
        let name = sample["apiVersion"].as_str()?.rsplit('/').next()?;
        let version = definition["spec"]["versions"].as_array()?.iter().find(|version| version["name"] == name)?;
        Some(&version["schema"]["openAPIV3Schema"]["properties"]["status"]).filter(|status| status.is_object())
    }

    async fn check_convergence(&self) -> Result<CheckOutcome> {
        let moving = self.wait_until_idle().await?;
        let why = format!("after {} s still writing to {}", self.timeout.as_secs(), join_some(&moving));
        let remedy = self.source.choose(
            "write only changes: a reconcile's writes must not cause the next reconcile to write",
            "templates must render the same objects each time, without random values or the time",
            "a task must not change an object that is as intended: the second run must report changed=0",
        );
        if !moving.is_empty() {
            return Ok(CheckOutcome::failed(why, remedy));
        }
        let failed = self.wait_for_success().await?;
        let remedy = self.source.choose(
            "the reconcile of a sample must succeed: fix the operator, or the sample if it is wrong",
            "the release of a sample must be deployed: fix the chart, or the sample if it is wrong",
            "the run for a sample must succeed: fix the task, or the sample if it is wrong",
        );
        Ok(if failed.is_empty() { CheckOutcome::Passed } else { CheckOutcome::failed(join_some(&failed), remedy) })
    }

    /// Waits until no sample reports a failure, since another attempt may succeed; on timeout, returns the failures.
    async fn wait_for_success(&self) -> Result<Vec<String>> {
        let succeeded = poll_until(self.timeout, POLL_INTERVAL, async || {
            let mut failed = Vec::new();
            for sample in &self.samples {
                let found = self.connection.read(sample).await?;
                let [kind, name] =
                    [&sample["kind"], &sample["metadata"]["name"]].map(|text| text.as_str().unwrap_or_default());
                failed.extend(failures(&found).into_iter().map(|failure| format!("{kind} {name} reports {failure}")));
            }
            Ok(if failed.is_empty() { Ok(failed) } else { Err(failed) })
        });
        Ok(succeeded.await?.unwrap_or_else(|failed| failed))
    }

    async fn check_crash(&mut self) -> Result<CheckOutcome> {
        let created = self.inventory().await?;
        if let Some(process) = &mut self.environment.process {
            process.kill().await?;
        }
        let launched = self.launch().await?;
        if launched != CheckOutcome::Passed {
            return Ok(launched);
        }
        // Convergence is a separate check.
        let _ = self.wait_until_idle().await?;
        let harmed = created.disruptions(&self.inventory().await?);
        let remedy = self.source.choose(
            "do not rewrite existing objects: cx.apply changes only differences, cx.create creates missing objects",
            "templates must render the same objects each time, without random values or the time",
            "do not rewrite existing objects: k8s changes only differences",
        );
        Ok(if harmed.is_empty() { CheckOutcome::Passed } else { CheckOutcome::failed(join_some(&harmed), remedy) })
    }

    async fn check_deletion(&self) -> Result<CheckOutcome> {
        for sample in self.samples.iter().rev() {
            self.connection.delete(sample).await?;
        }
        let deleted = poll_until(self.timeout, POLL_INTERVAL, async || {
            let inventory = self.inventory().await?;
            let remaining: Vec<String> =
                inventory.names().filter(|name| !self.outlives(name)).map(str::to_owned).collect();
            Ok(if remaining.is_empty() { Ok(CheckOutcome::Passed) } else { Err(remaining) })
        });
        Ok(deleted.await?.unwrap_or_else(|remaining| {
            let why = format!("after {} s these still exist: {}", self.timeout.as_secs(), join_some(&remaining));
            let remedy = self.source.choose(
                "create it with cx.apply or cx.create, so that a sample owns it, or delete it in finalize; \
                 an object with a finalizer is deleted when finalize returns Action::done()",
                "remove helm.sh/resource-policy: keep from its template, or give its hook a helm.sh/hook-delete-policy",
                "create it with k8s in the namespace of the sample, so that the sample owns it, or delete it in the \
                 role of a finalizer in watches.yaml",
            );
            CheckOutcome::failed(why, remedy)
        }))
    }

    /// Returns true if an object of the inventory is a CRD of a chart, which its releases do not delete.
    fn outlives(&self, name: &str) -> bool {
        let definition = name.strip_prefix("CustomResourceDefinition ");
        definition.is_some_and(|name| self.lasting.iter().any(|lasting| lasting == name))
    }

    async fn check_metrics(&self) -> Result<CheckOutcome> {
        let remedy = self.source.choose("run the operator with Operator::main, which serves them", LOG, LOG);
        Ok(match Metrics::fetch(&self.environment.web, &self.environment.metrics).await {
            Ok(metrics) if metrics.series("controller_runtime_reconcile_total").next().is_some() => {
                CheckOutcome::Passed
            }
            Ok(_) if self.definitions.is_empty() => CheckOutcome::skipped("the operator defines no kinds"),
            Ok(_) => CheckOutcome::failed("/metrics has no reconcile counters", remedy),
            Err(error) => CheckOutcome::failed(format!("/metrics is not served: {error}"), remedy),
        })
    }

    async fn check_stop(&mut self) -> Result<CheckOutcome> {
        let Some(mut process) = self.environment.process.take() else {
            return Ok(CheckOutcome::skipped("the operator is not running"));
        };
        let limit = self.timeout.min(process::STOP_TIMEOUT);
        let remedy = self.source.choose(
            "run the operator with Operator::main, and finish tasks and reconciles within Operator::grace",
            LOG,
            LOG,
        );
        process.terminate();
        let Ok(status) = tokio::time::timeout(limit, process.wait()).await else {
            process.kill().await?;
            return Ok(CheckOutcome::failed(format!("still running {} s after SIGTERM", limit.as_secs()), remedy));
        };
        Ok(match status? {
            status if status.success() => CheckOutcome::Passed,
            status => CheckOutcome::failed(format!("exited with {status} after SIGTERM"), remedy),
        })
    }

    /// Reads the denied requests of the control plane. No other client lacks permissions.
    async fn check_permissions(&self) -> Result<CheckOutcome> {
        let denied = Metrics::of_server(&self.connection.client).await?.denied();
        let remedy = self.source.choose(
            "declare them on its controllers: Controller::owns, watches, reads, replaces or allows",
            "name the kinds literally in the templates; `flyball rbac` prints the derived permissions",
            "name the kinds literally in the tasks; `flyball rbac` prints the derived permissions",
        );
        let why = format!("denied: {}", join_some(&denied));
        Ok(if denied.is_empty() { CheckOutcome::Passed } else { CheckOutcome::failed(why, remedy) })
    }

    /// Lists the samples and the objects created since they were applied.
    async fn inventory(&self) -> Result<Inventory> {
        let kinds = self.kinds.as_ref().ok_or_else(|| Error::new("the control plane's kinds are unknown"))?;
        Ok(inventory_of(&self.connection.client, kinds).await?.without(&self.before))
    }

    /// Waits until there were no writes to them for a while; on timeout, returns the last written objects.
    async fn wait_until_idle(&self) -> Result<Vec<String>> {
        let (mut last, mut since, mut moving) = (self.inventory().await?, Instant::now(), Vec::new());
        let rested = poll_until(self.timeout, POLL_INTERVAL, async || {
            let next = self.inventory().await?;
            let moved = last.changed(&next);
            if !moved.is_empty() {
                (last, since, moving) = (next, Instant::now(), moved);
            }
            Ok(if since.elapsed() >= IDLE_PERIOD { Ok(Vec::new()) } else { Err(moving.clone()) })
        });
        Ok(rested.await?.unwrap_or_else(|moving| moving))
    }
}

/// Returns the missing part of a status, whose conditions have a schema unless the kind has none.
fn missing_status_part(object: &Value, conditions_schema: &Value) -> Option<&'static str> {
    let status = object["status"].as_object().filter(|status| !status.is_empty());
    let Some(status) = status else { return Some("has none") };
    let conditions = status.get("conditions").and_then(Value::as_array).filter(|all| !all.is_empty());
    match conditions {
        None if !conditions_schema.is_null() => Some("has no conditions"),
        Some(all)
            if !drops_generation(conditions_schema)
                && all.iter().any(|one| one["observedGeneration"] != object["metadata"]["generation"]) =>
        {
            Some("has a condition whose observedGeneration is not the object's")
        }
        None | Some(_) => None,
    }
}

/// Returns true if the API server drops `observedGeneration` from conditions, because their schema does not have it.
fn drops_generation(conditions_schema: &Value) -> bool {
    let items = &conditions_schema["items"];
    items["properties"].is_object()
        && items["properties"]["observedGeneration"].is_null()
        && items["x-kubernetes-preserve-unknown-fields"] != true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn status_must_reflect_the_current_generation() {
        let object = |status: Value| json!({"metadata": {"generation": 2}, "status": status});
        let conditions =
            |generation: Value| json!({"conditions": [{"type": "Ready", "observedGeneration": generation}]});
        for (status, expected) in [
            (Value::Null, Some("has none")),
            (json!({}), Some("has none")),
            (json!({"phase": "x"}), Some("has no conditions")),
            (conditions(json!(2)), None),
            (conditions(json!(1)), Some("has a condition whose observedGeneration is not the object's")),
            (conditions(Value::Null), Some("has a condition whose observedGeneration is not the object's")),
        ] {
            assert_eq!(missing_status_part(&object(status.clone()), &json!({"type": "array"})), expected, "{status}");
        }
        assert_eq!(missing_status_part(&object(json!({"phase": "x"})), &Value::Null), None);
    }

    #[test]
    fn generation_is_required_unless_the_schema_lacks_it() {
        let object = json!({"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Ready"}]}});
        let field = json!({"type": "integer"});
        for (items, is_required) in [
            (json!({"properties": {"type": {}, "observedGeneration": field}}), true),
            (json!({"properties": {"type": {}}}), false),
            (json!({"properties": {"type": {}}, "x-kubernetes-preserve-unknown-fields": true}), true),
            (json!({"x-kubernetes-preserve-unknown-fields": true}), true),
        ] {
            let missing = missing_status_part(&object, &json!({"type": "array", "items": items}));
            assert_eq!(missing.is_some(), is_required, "{items}");
        }
    }
}
