//! Loops of tasks: their items, variables and results.

use super::tasks::{TaskResult, of, seconds};
use super::{Frame, Run, Stop};
use crate::job::TaskError;
use crate::playbook::{Loop, LoopItems, Task};
use crate::template::{OMIT, Scope, Vars, arranged, data, weight};
use crate::value::memory;
use crate::value::{Value, json};
use crate::yaml::type_name;
use std::sync::Arc;

/// Size limit of all results of a loop, in bytes.
const MAX_RESULT_BYTES: usize = 32 << 20;

impl<'r> Run<'r> {
    /// Returns the items of a loop.
    pub(super) fn items_of(repeat: &Loop, scope: &Arc<Scope>) -> Result<Vec<Value>, String> {
        items(repeat, scope)
    }

    /// Runs a task for each item.
    pub(super) async fn run_items(
        &mut self,
        task: &'r Task,
        repeat: &'r Loop,
        items: Vec<Value>,
        frame: &Frame<'r>,
    ) -> Result<TaskResult, Stop> {
        let (mut results, mut failure, mut size_of_results) = (Vec::new(), None, 0);
        let count = items.len();
        for (index, item) in items.iter().enumerate() {
            let (looped, extended) = self.loop_variables(task, repeat, &items, index)?;
            let mut done = self.run_item(task, frame, &looped).await?;
            done.result.insert(repeat.variable.clone(), item.clone());
            done.result.insert("ansible_loop_var".into(), repeat.variable.as_str().into());
            if let Some(name) = &repeat.index {
                done.result.insert(name.clone(), index.into());
                done.result.insert("ansible_index_var".into(), name.as_str().into());
            }
            if let Some(extended) = extended {
                done.result.insert("ansible_loop".into(), extended);
            }
            if let Some(failed) = done.failure.take() {
                failure.get_or_insert(failed);
            }
            size_of_results += done.result.values().map(memory::of).sum::<usize>();
            if size_of_results > MAX_RESULT_BYTES {
                let problem = format!("the results of the loop exceed {MAX_RESULT_BYTES} bytes");
                return Err(Stop::Failed(TaskError { task: of(task), ..TaskError::new(problem) }));
            }
            results.push(Value::Object(done.result));
            if let Some(pause) = repeat.pause.as_ref().filter(|_| index + 1 < count) {
                self.pause(seconds(pause, 0.0)).await?;
            }
        }
        let any = |flag: &str| results.iter().any(|result| result[flag] == true);
        let (changed, skipped) = (any("changed"), results.iter().all(|result| result["skipped"] == true));
        let result = json!({"changed": changed, "failed": failure.is_some(), "skipped": skipped, "results": results});
        let Value::Object(mut result) = result else { unreachable!("the result is a map") };
        if let Some(failed) = &mut failure {
            failed.message = format!("One or more items failed: {}", failed.message);
            result.insert("msg".into(), failed.message.as_str().into());
        }
        Ok(TaskResult { result, failure, counts: true })
    }

    /// Returns the variables of an item of a loop, and the value of `ansible_loop`.
    fn loop_variables(
        &self,
        task: &Task,
        repeat: &Loop,
        items: &[Value],
        index: usize,
    ) -> Result<(Vars, Option<Value>), Stop> {
        let mut looped = data([
            (repeat.variable.clone(), items[index].clone()),
            ("ansible_loop_var".to_owned(), repeat.variable.as_str().into()),
        ]);
        if let Some(name) = &repeat.index {
            looped.extend(data([(name.clone(), index.into()), ("ansible_index_var".to_owned(), name.as_str().into())]));
        }
        let Some(extended) = repeat.extended else { return Ok((looped, None)) };
        let length = items.len();
        let mut variable = json!({
            "index": index + 1,
            "index0": index,
            "first": index == 0,
            "last": index + 1 == length,
            "length": length,
            "revindex": length - index,
            "revindex0": length - index - 1,
        });
        let (next, previous) = (items.get(index + 1), index.checked_sub(1).map(|previous| &items[previous]));
        // Each item has a copy of its neighbors, and of all.
        let all = if extended.has_all_items { items } else { &[] };
        let size = next.into_iter().chain(previous).chain(all).map(weight).sum::<Result<u64, _>>();
        let failed = |problem| Stop::Failed(TaskError { task: of(task), ..TaskError::new(problem) });
        self.charge(task, size.map_err(failed)?)?;
        if let Some(next) = next {
            variable["nextitem"] = next.clone();
        }
        if let Some(previous) = previous {
            variable["previtem"] = previous.clone();
        }
        if extended.has_all_items {
            variable["allitems"] = items.to_vec().into();
        }
        looped.extend(data([("ansible_loop".to_owned(), variable.clone())]));
        Ok((looped, Some(variable)))
    }
}

/// Returns the items of a loop.
fn items(repeat: &Loop, scope: &Arc<Scope>) -> Result<Vec<Value>, String> {
    let value = scope.render(&repeat.items)?;
    match (repeat.over, value) {
        (_, Value::String(omitted)) if omitted == *OMIT => Ok(Vec::new()),
        (LoopItems::List, Value::Array(items)) => Ok(items),
        (LoopItems::Flattened, Value::Array(items)) => arranged("items", items, &|work| scope.charge_work(work)),
        (LoopItems::Lookup(kind), value) => {
            let terms = if let Value::Array(terms) = value { terms } else { vec![value] };
            arranged(kind, terms, &|work| scope.charge_work(work))
        }
        (LoopItems::Flattened, item) => Ok(vec![item]),
        (LoopItems::List, other) => Err(format!("the value of the loop must be a list, not {}", type_name(&other))),
    }
}
