//! An operator and its samples on a control plane: from the start of its process to the end, with a crash in between.
//!
//! It is a service account with the roles of its manifests and no others, as it will be in its pod.

use super::definitions::is_of;
use super::look::look;
use super::{Check, Found, few};
use crate::cluster::connection::Connection;
use crate::cluster::embedded::Embedded;
use crate::cluster::kinds::Kinds;
use crate::error::{Error, Result, ResultExt};
use crate::files::private::PrivateFolder;
use crate::operator::local::{LineSinks, Local, LocalArgs};
use crate::operator::metrics::{Metrics, free_address};
use crate::operator::process::{self, Process};
use crate::web::Web;
use bytes::Bytes;
use flyball_cluster::Inventory;
use http::Request;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// What was not written to for so long has come to rest.
const REST: Duration = Duration::from_secs(3);
/// Where to look when the operator does something strange.
const LOG: &str = "see what it says with -v";

struct Play<'a> {
    operator: Local,
    /// The last line that it said.
    said: Arc<Mutex<String>>,
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
    before: Inventory,
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
    let runs = checks.skip.or(play.samples.is_empty().then_some("no samples found on the control plane"));
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
        let said = Arc::<Mutex<String>>::default();
        let last = said.clone();
        // Its log goes where this command's own does.
        let sink = move |line: &str| {
            tracing::info!("{line}");
            line.clone_into(&mut last.lock().unwrap_or_else(PoisonError::into_inner));
        };
        operator.sinks = LineSinks { build: None, operator: Some(Arc::new(sink)) };
        Ok(Self {
            operator,
            said,
            process: None,
            connection,
            web: Web::new(Duration::from_secs(5))?,
            health,
            metrics,
            definitions,
            samples: Vec::new(),
            kinds: None,
            before: Inventory::default(),
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
        let mut lacks = "nobody answers".to_owned();
        let ready = async {
            loop {
                let request = Request::get(&page).body(Bytes::new()).when("invalid address")?;
                match self.web.send(request).await {
                    Ok(answer) if answer.status().is_success() => return Ok(Found::Passed),
                    Ok(answer) => lacks = unready(&String::from_utf8_lossy(answer.body())),
                    Err(_) => {}
                }
                sleep(LOOK).await;
            }
        };
        tokio::select! {
            biased;
            ended = process.ended() => {
                let (ended, said) = (ended?, self.said.lock().unwrap_or_else(PoisonError::into_inner));
                let said = if said.is_empty() { "nothing" } else { &said };
                return Ok(Found::failed(format!("it ended with {ended}, and said last: {said}"), LOG));
            }
            ready = ready => return ready,
            () = sleep(self.patience) => {}
        }
        let why = format!("/readyz does not say that it is ready within {} s: {lacks}", self.patience.as_secs());
        Ok(Found::failed(why, LOG))
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
                    "set it in each reconcile, a Condition::new for each condition included: cx.set_status",
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
        let remedy =
            "leave alone what is there already: cx.apply changes what differs, and cx.create makes what is missing";
        Ok(if harmed.is_empty() { Found::Passed } else { Found::failed(few(&harmed), remedy) })
    }

    async fn leave_nothing(&self) -> Result<Found> {
        for sample in self.samples.iter().rev() {
            self.connection.delete(sample).await?;
        }
        let begun = Instant::now();
        loop {
            let left: Vec<String> = self.look().await?.names().map(str::to_owned).collect();
            if left.is_empty() {
                return Ok(Found::Passed);
            }
            if begun.elapsed() >= self.patience {
                let why = format!("{} s later there are still {}", self.patience.as_secs(), few(&left));
                let remedy = "make it by cx.apply or cx.create, by which samples own it, or take it away in finalize; \
                              what has a finalizer goes when finalize returns Action::done()";
                return Ok(Found::failed(why, remedy));
            }
            sleep(LOOK).await;
        }
    }

    async fn measure(&self) -> Result<Found> {
        let remedy = "run the operator by Operator::main, which serves them";
        Ok(match Metrics::ask(&self.web, &self.metrics).await {
            Ok(metrics) if metrics.series("controller_runtime_reconcile_total").next().is_some() => Found::Passed,
            Ok(_) => Found::failed("no reconciles are counted in /metrics", remedy),
            Err(error) => Found::failed(format!("nobody serves /metrics: {error}"), remedy),
        })
    }

    async fn stop(&mut self) -> Result<Found> {
        let Some(mut process) = self.process.take() else { return Ok(Found::skipped("it does not run")) };
        let patience = self.patience.min(process::PATIENCE);
        let remedy = "run the operator by Operator::main, and end what its tasks and reconciles have begun within Operator::grace";
        process.terminate();
        let Ok(status) = timeout(patience, process.ended()).await else {
            process.kill().await?;
            return Ok(Found::failed(format!("{} s after SIGTERM it still ran", patience.as_secs()), remedy));
        };
        Ok(match status? {
            status if status.success() => Found::Passed,
            status => Found::failed(format!("SIGTERM ended it with {status}"), remedy),
        })
    }

    /// Asks the control plane what it denied. Nobody else who asks it lacks a right.
    async fn is_permitted(&self) -> Result<Found> {
        let request = Request::get("/metrics").body(Vec::new()).when("invalid address")?;
        let told = self.connection.client.request_text(request).await.when("the control plane did not respond")?;
        let denied: Vec<String> = Metrics::from(&*told).denied();
        let remedy = "declare what its controllers do: Controller::owns, watches, reads, replaces or allows";
        let why = format!("it was denied {}", few(&denied));
        Ok(if denied.is_empty() { Found::Passed } else { Found::failed(why, remedy) })
    }

    /// Looks at the samples and at what was made since they were applied.
    async fn look(&self) -> Result<Inventory> {
        let kinds = self.kinds.as_ref().ok_or_else(|| Error::new("the control plane's kinds are unknown"))?;
        Ok(look(&self.connection.client, kinds).await?.without(&self.before))
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

/// Says what `/readyz` complains of.
fn unready(page: &str) -> String {
    let complaints: Vec<String> =
        page.lines().filter_map(|line| line.strip_prefix("[-]")).map(|line| line.trim_start().to_owned()).collect();
    if complaints.is_empty() { page.trim().to_owned() } else { few(&complaints) }
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
