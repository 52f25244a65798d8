//! The modules without cluster access, and the common evaluation of arguments.

use super::tasks::{TaskResult, seconds};
use super::{Frame, Run, Stop};
use crate::job::{MIN_REQUEUE, TaskError};
use crate::metrics::Update;
use crate::playbook::{Literals, Module};
use crate::services::literal_host;
use crate::template::{OMIT, Scope};
use crate::value::{Map, Value, json};
use crate::yaml::to_text;
use flyball_core::time::parse_unsigned_duration;
use std::sync::Arc;
use std::time::Duration;

/// Evaluated arguments of a module.
pub(super) type Arguments = Map;

impl<'r> Run<'r> {
    pub(super) async fn module(
        &mut self,
        module: Module,
        arguments: &Map,
        scope: &Arc<Scope>,
        frame: &Frame<'r>,
    ) -> Result<TaskResult, Stop> {
        // Conditions and variable names are evaluated by their modules.
        match module {
            Module::Assert => {
                let done = self.evaluate(|| assert(arguments, scope)).await;
                return Ok(done.unwrap_or_else(|problem| TaskResult::failed(TaskError::new(problem))));
            }
            Module::Debug => {
                let done = {
                    let verbosity = self.job.verbosity;
                    self.evaluate(|| debug(arguments, scope, verbosity)).await
                };
                return Ok(done.unwrap_or_else(|problem| TaskResult::failed(TaskError::new(problem))));
            }
            _ => {}
        }
        let named = Literals::of(arguments);
        let literal_host = arguments.get("url").and_then(Value::as_str).and_then(literal_host);
        let arguments = match self.evaluate(|| evaluate(arguments, scope, module == Module::SetFact)).await {
            Ok(arguments) => arguments,
            Err(problem) => return Ok(TaskResult::failed(TaskError::new(problem))),
        };
        let done = match module {
            Module::K8s => Box::pin(self.k8s(&arguments, &named, scope)).await,
            Module::K8sInfo => Box::pin(self.k8s_info(&arguments)).await,
            Module::K8sScale => Box::pin(self.k8s_scale(&arguments, &named, scope)).await,
            Module::K8sStatus => self.k8s_status(&arguments),
            Module::Uri => Box::pin(self.uri(&arguments, literal_host)).await,
            Module::RequeueAfter => self.requeue_after(&arguments),
            Module::OsdkMetric => self.osdk_metric(&arguments),
            Module::SetFact => {
                for (name, value) in arguments.iter().filter(|(name, _)| name.as_str() != "cacheable") {
                    self.set_fact(name, value.clone())?;
                }
                Ok(TaskResult::with(json!({"ansible_facts": arguments, "changed": false})))
            }
            Module::Fail => {
                let message = arguments.get("msg").map_or("Failed as requested from task".to_owned(), to_text);
                Err(TaskError::new(message))
            }
            Module::Pause => {
                let minutes = arguments.get("minutes").map_or(Duration::ZERO, |minutes| seconds(minutes, 0.0) * 60);
                let pause = minutes + arguments.get("seconds").map_or(Duration::ZERO, |pause| seconds(pause, 0.0));
                self.pause(pause).await?;
                Ok(TaskResult::ok())
            }
            Module::Meta => return self.meta(&arguments, frame).await,
            Module::Assert | Module::Debug => unreachable!("these modules were handled above"),
        };
        match done {
            // Neither `ignore_errors` nor `rescue` apply.
            Err(failure) if failure.is_deferred => Err(Stop::Deferred),
            done => Ok(done.unwrap_or_else(TaskResult::failed)),
        }
    }

    async fn meta(&mut self, arguments: &Arguments, frame: &Frame<'r>) -> Result<TaskResult, Stop> {
        match arguments.get("action").and_then(Value::as_str) {
            Some("end_play" | "end_host") => return Err(Stop::Play),
            Some("end_role") => return Err(Stop::Role),
            Some("flush_handlers") => self.handlers(frame).await?,
            _ => {}
        }
        Ok(TaskResult { counts: false, ..TaskResult::ok() })
    }

    /// Changes a metric of the operator, without a request to its server for other executors.
    fn osdk_metric(&self, arguments: &Arguments) -> Result<TaskResult, TaskError> {
        let update = Update::parse(arguments).map_err(TaskError::new)?;
        self.job.role_metrics.apply(update, self.job.cx.now()).map_err(TaskError::new)?;
        Ok(TaskResult::with(json!({"changed": true})))
    }

    fn requeue_after(&mut self, arguments: &Arguments) -> Result<TaskResult, TaskError> {
        let time = arguments.get("time").map(to_text).unwrap_or_default();
        let period = parse_unsigned_duration(&time)
            .ok_or_else(|| TaskError::new(format!("time: invalid duration {time:?}: use a duration such as 30s")))?;
        self.outcome.requeue_after = Some(period.max(MIN_REQUEUE));
        Ok(TaskResult::with(json!({"period": time})))
    }
}

fn assert(arguments: &Map, scope: &Arc<Scope>) -> Result<TaskResult, String> {
    let that = match arguments.get("that") {
        Some(Value::Array(conditions)) => conditions.clone(),
        Some(condition) => vec![condition.clone()],
        None => Vec::new(),
    };
    for condition in &that {
        if !scope.holds(condition)? {
            let message = ["fail_msg", "msg"].iter().find_map(|name| arguments.get(*name));
            let message = match message {
                Some(message) => to_text(&scope.render(message)?),
                None => format!("Assertion failed: {}", to_text(condition)),
            };
            return Err(message);
        }
    }
    let message =
        arguments.get("success_msg").map_or(Ok("All assertions passed".into()), |message| scope.render(message))?;
    Ok(TaskResult::with(json!({"changed": false, "msg": message})))
}

fn debug(arguments: &Map, scope: &Arc<Scope>, verbosity: u8) -> Result<TaskResult, String> {
    let required = arguments.get("verbosity").map_or(Ok(Value::Null), |required| scope.render(required))?;
    if seconds(&required, 0.0) > Duration::from_secs(verbosity.into()) {
        return Ok(TaskResult::with(
            json!({"skipped": true, "changed": false, "skipped_reason": "Verbosity threshold not met."}),
        ));
    }
    let result = match (arguments.get("var").and_then(Value::as_str), arguments.get("msg")) {
        (Some(name), _) => {
            let name = name.trim().trim_start_matches("{{").trim_end_matches("}}").trim();
            let value = scope.evaluate(name).unwrap_or_else(|_| "VARIABLE IS NOT DEFINED!".into());
            json!({name: value})
        }
        (None, Some(message)) => json!({"msg": scope.render(message)?}),
        (None, None) => json!({"msg": "Hello world!"}),
    };
    let mut done = TaskResult::with(result);
    done.result.insert("changed".into(), false.into());
    Ok(done)
}

/// Evaluates arguments, and removes omitted ones.
/// Evaluates arguments. For most modules, null is the same as an absent argument.
fn evaluate(arguments: &Map, scope: &Arc<Scope>, keeps_null: bool) -> Result<Arguments, String> {
    let mut evaluated = Arguments::new();
    for (name, argument) in arguments {
        let mut value = scope.render(argument).map_err(|problem| format!("{name}: {problem}"))?;
        if !omitted(&value) && (keeps_null || !value.is_null()) {
            remove_omitted(&mut value);
            evaluated.insert(name.clone(), value);
        }
    }
    Ok(evaluated)
}

fn omitted(value: &Value) -> bool {
    value.as_str() == Some(OMIT.as_str())
}

fn remove_omitted(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.retain(|item| !omitted(item));
            items.iter_mut().for_each(remove_omitted);
        }
        Value::Object(fields) => {
            fields.retain(|_, field| !omitted(field));
            fields.values_mut().for_each(remove_omitted);
        }
        _ => {}
    }
}
