//! An operator and its samples on a control plane: from the start of its process to the end, with a crash in between.
//!
//! It is a service account with the roles of its manifests and no others, as it will be in its pod.

use super::definitions::is_of;
use super::look::Look;
use super::{Check, Found, few};
use crate::connection::Connection;
use crate::embedded::Embedded;
use crate::error::{Error, Result, ResultExt};
use crate::kinds::Kinds;
use crate::local::{Heard, Local, LocalArgs};
use crate::metrics::{Metrics, free_address};
use crate::private::PrivateFolder;
use crate::process::Process;
use crate::web::Web;
use bytes::Bytes;
use http::Request;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// What was not written to for so long has come to rest.
const REST: Duration = Duration::from_secs(3);
/// Where to look when the operator does something strange.
const LOG: &str = "see what it says with -v";

struct Play<'a> {
    operator: Local,
    /// None before it is started.
    process: Option<Process>,
    connection: Connection,
    web: Web,
    health: String,
    metrics: String,
    definitions: &'a [Value],
    /// Those that the API server took.
    samples: Vec<&'a Value>,
    kinds: Option<Kinds>,
    /// What there was before the samples.
    before: Look,
    patience: Duration,
    // It is there for as long as this is.
    _own: Embedded,
    _folder: PrivateFolder,
}

/// The checks so far, and why the next ones cannot be made.
#[derive(Default)]
struct Checks {
    made: Vec<Check>,
    skip: Option<&'static str>,
}

impl Checks {
    async fn make(&mut self, name: &'static str, work: impl Future<Output = Result<Found>>) -> bool {
        let found = match self.skip {
            Some(why) => Found::skipped(why),
            None => work.await.unwrap_or_else(|error| Found::failed(error.to_string(), LOG)),
        };
        self.made.push(Check { name, found });
        self.made.last().is_some_and(|check| check.found == Found::Passed)
    }
}

/// Plays all of it. Only what is no fault of the operator is an error.
pub(super) async fn play(
    args: LocalArgs,
    definitions: &[Value],
    samples: &[Value],
    patience: Duration,
) -> Result<Vec<Check>> {
    let mut play = Play::new(args, definitions, patience).await?;
    let mut checks = Checks::default();
    if !checks.make("it starts", play.start()).await {
        checks.skip = Some("it does not start");
    }
    checks.make("samples are accepted", play.accept(samples)).await;
    let runs = checks.skip.or(play.samples.is_empty().then_some("there are no samples on the control plane"));
    let starts = std::mem::replace(&mut checks.skip, runs);
    checks.make("each sample gets a status", play.status()).await;
    checks.make("it comes to rest", play.comes_to_rest()).await;
    checks.make("killed, it leaves what it made as it was", play.survive()).await;
    checks.make("nothing is left of deleted samples", play.leave_nothing()).await;
    checks.skip = starts;
    checks.make("metrics are served", play.measure()).await;
    checks.make("told to stop, it ends", play.stop()).await;
    checks.skip = None;
    checks.make("it asks for nothing that its roles do not permit", play.is_permitted()).await;
    Ok(checks.made)
}

impl<'a> Play<'a> {
    async fn new(args: LocalArgs, definitions: &'a [Value], patience: Duration) -> Result<Self> {
        let own = Embedded::start("flyball-scorecard", 1).await?;
        let folder = PrivateFolder::new("flyball-scorecard-operator")?;
        let connection = Connection::open(own.config.clone()).await?;
        let (health, metrics) = (free_address()?, free_address()?);
        let mut operator = Local::new(args, Connection::open(own.config.clone()).await?);
        operator.be_as_in_pod(own.config.clone(), folder.path().join("kubeconfig"), &metrics, &health);
        operator.quiet = true;
        // Its log goes where this command's own does.
        operator.hear = Heard { build: None, operator: Some(Arc::new(|line| tracing::info!("{line}"))) };
        Ok(Self {
            operator,
            process: None,
            connection,
            web: Web::new(Duration::from_secs(5))?,
            health,
            metrics,
            definitions,
            samples: Vec::new(),
            kinds: None,
            before: Look::default(),
            patience,
            _own: own,
            _folder: folder,
        })
    }

    async fn start(&mut self) -> Result<Found> {
        let found = self.launch().await?;
        self.kinds = Some(Kinds::discover(&self.connection.client).await?);
        self.before = self.look().await?;
        Ok(found)
    }

    /// Starts the process, and waits until it says that it is ready.
    async fn launch(&mut self) -> Result<Found> {
        let process = self.process.insert(self.operator.launch().await?);
        let page = format!("http://{}/readyz", self.health);
        let ready = async {
            loop {
                let request = Request::get(&page).body(Bytes::new()).when("no such address")?;
                if self.web.send(request).await.is_ok_and(|answer| answer.status().is_success()) {
                    return Ok(Found::Passed);
                }
                sleep(LOOK).await;
            }
        };
        tokio::select! {
            biased;
            ended = process.ended() => Ok(Found::failed(format!("it ended with {}", ended?), LOG)),
            ready = ready => ready,
            () = sleep(self.patience) => Ok(Found::failed(
                format!("/readyz does not say that it is ready within {} s", self.patience.as_secs()), LOG,
            )),
        }
    }

    async fn accept(&mut self, samples: &'a [Value]) -> Result<Found> {
        let mut refused = Vec::new();
        for sample in samples {
            match self.connection.apply(sample).await {
                Ok(_) => self.samples.push(sample),
                Err(error) => refused.push(error.to_string()),
            }
        }
        Ok(match () {
            () if samples.is_empty() => Found::skipped("there are none: --samples PATH"),
            () if refused.is_empty() => Found::Passed,
            () => Found::failed(refused.join("; "), "correct the samples, or the rules of the kind"),
        })
    }

    async fn status(&self) -> Result<Found> {
        let begun = Instant::now();
        loop {
            let (mut judged, mut lacking) = (0, Vec::new());
            for sample in &self.samples {
                let Some(schema) = self.status_schema(sample) else { continue };
                judged += 1;
                let found = self.connection.read(sample).await?;
                let lacks = lacks(&found, !schema["properties"]["conditions"].is_null());
                lacking.extend(lacks.map(|what| {
                    format!(
                        "{} {} {what}",
                        sample["kind"].as_str().unwrap_or_default(),
                        sample["metadata"]["name"].as_str().unwrap_or_default()
                    )
                }));
            }
            if judged == 0 {
                return Ok(Found::skipped("no sample is of a kind of the operator that has a status"));
            }
            if lacking.is_empty() {
                return Ok(Found::Passed);
            }
            if begun.elapsed() >= self.patience {
                return Ok(Found::failed(
                    few(&lacking),
                    "write it in each reconcile: cx.set_status, with Condition::new",
                ));
            }
            sleep(LOOK).await;
        }
    }

    /// Finds what a sample's kind says of its status.
    fn status_schema(&self, sample: &Value) -> Option<&'a Value> {
        let definition = self.definitions.iter().find(|definition| is_of(sample, definition))?;
        let name = sample["apiVersion"].as_str()?.rsplit('/').next()?;
        let version = definition["spec"]["versions"].as_array()?.iter().find(|version| version["name"] == name)?;
        Some(&version["schema"]["openAPIV3Schema"]["properties"]["status"]).filter(|status| status.is_object())
    }

    async fn comes_to_rest(&self) -> Result<Found> {
        let moving = self.rest().await?;
        let why = format!("after {} s there are still writes to {}", self.patience.as_secs(), few(&moving));
        let remedy = "write only what has changed: what a reconcile writes must not make the next one write";
        Ok(if moving.is_empty() { Found::Passed } else { Found::failed(why, remedy) })
    }

    async fn survive(&mut self) -> Result<Found> {
        let made = self.look().await?;
        if let Some(process) = &mut self.process {
            process.kill().await?;
        }
        let launched = self.launch().await?;
        if launched != Found::Passed {
            return Ok(launched);
        }
        // That it comes to rest is another matter.
        let _ = self.rest().await?;
        let harmed = made.harmed(&self.look().await?);
        let remedy = "apply what is desired, and leave alone what is there";
        Ok(if harmed.is_empty() { Found::Passed } else { Found::failed(few(&harmed), remedy) })
    }

    async fn leave_nothing(&self) -> Result<Found> {
        for sample in self.samples.iter().rev() {
            self.connection.delete(sample).await?;
        }
        let begun = Instant::now();
        loop {
            let left = self.look().await?;
            if left.0.is_empty() {
                return Ok(Found::Passed);
            }
            if begun.elapsed() >= self.patience {
                let why = format!("after {} s there are {}", self.patience.as_secs(), few(&left.names()));
                return Ok(Found::failed(
                    why,
                    "own what is made, or take it away in finalize, and let the finalizer go",
                ));
            }
            sleep(LOOK).await;
        }
    }

    async fn measure(&self) -> Result<Found> {
        let metrics = Metrics::ask(&self.web, &self.metrics).await?;
        let counts = metrics.series("controller_runtime_reconcile_total").next().is_some();
        let remedy = "run the operator by Operator::main, which serves them";
        Ok(if counts { Found::Passed } else { Found::failed("no reconciles are counted in /metrics", remedy) })
    }

    async fn stop(&mut self) -> Result<Found> {
        let Some(mut process) = self.process.take() else { return Ok(Found::skipped("it does not run")) };
        let remedy = "end what it has begun when it is told to: by SIGTERM, within 30 s";
        Ok(match process.stop().await? {
            Some(status) if status.success() => Found::Passed,
            Some(status) => Found::failed(format!("it ended with {status}"), remedy),
            None => Found::failed("it was ended by the signal, which it does not hear", remedy),
        })
    }

    /// Asks the control plane what it denied. Nobody else who asks it lacks a right.
    async fn is_permitted(&self) -> Result<Found> {
        let request = Request::get("/metrics").body(Vec::new()).when("no such address")?;
        let told = self.connection.client.request_text(request).await.when("cannot ask the control plane")?;
        let denied: Vec<String> = Metrics::from(&*told).denied();
        let remedy = "declare what its controllers do: Controller::owns, watches, reads, replaces or allows";
        Ok(if denied.is_empty() { Found::Passed } else { Found::failed(few(&denied), remedy) })
    }

    /// Looks at the samples and at what was made since they were applied.
    async fn look(&self) -> Result<Look> {
        let kinds = self.kinds.as_ref().ok_or_else(|| Error::new("the kinds of the control plane are not known"))?;
        Ok(Look::take(&self.connection.client, kinds).await?.without(&self.before))
    }

    /// Waits until nothing was written to them for a while; names what was written to last if that does not come about.
    async fn rest(&self) -> Result<Vec<String>> {
        let begun = Instant::now();
        let (mut last, mut since, mut moving) = (self.look().await?, begun, Vec::new());
        loop {
            sleep(LOOK).await;
            let next = self.look().await?;
            let moved = last.moved(&next);
            if !moved.is_empty() {
                (last, since, moving) = (next, Instant::now(), moved);
            } else if since.elapsed() >= REST {
                return Ok(Vec::new());
            }
            if begun.elapsed() >= self.patience {
                return Ok(moving);
            }
        }
    }
}

/// Says what a status lacks.
fn lacks(object: &Value, has_conditions: bool) -> Option<&'static str> {
    let status = object["status"].as_object().filter(|status| !status.is_empty());
    let Some(status) = status else { return Some("has none") };
    let conditions = status.get("conditions").and_then(Value::as_array).filter(|all| !all.is_empty());
    match conditions {
        None if has_conditions => Some("has no conditions"),
        Some(all) if all.iter().any(|one| one["observedGeneration"] != object["metadata"]["generation"]) => {
            Some("has a condition whose observedGeneration is not the object's")
        }
        None | Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_tells_of_the_object_as_it_is() {
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
            assert_eq!(lacks(&object(status.clone()), true), expected, "{status}");
        }
        assert_eq!(lacks(&object(json!({"phase": "x"})), false), None);
    }
}
