//! The environment of a rendering: clock, seed, cluster for `lookup`, and budget.

use crate::helm::HelmVersion;
use crate::memory;
use crate::seed::{RandomStream, Seed};
use crate::text::Text;
use crate::value::Value;
use flyball_core::Clock;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Limit of cached patterns of a rendering.
const MAX_PATTERNS: usize = 256;
/// Nesting limit of values that are written, copied or compared.
pub(crate) const VALUE_DEPTH: usize = 1_000;
/// Bytes of a string per step.
const BYTES_PER_STEP: usize = 64;
/// Maximum number of copies of a value that a function creates.
const MAX_COPIES_PER_CALL: usize = 4;
/// Memory of an escape such as `\u0000` in all copies that a function creates, while the longest of them grows.
const BYTES_PER_ESCAPE: usize = 28;
/// Length of a key from which it counts as special characters.
const LONG_KEY: usize = 256;
/// Estimated size of a value in addition to its strings, in bytes.
const VALUE_SIZE: usize = 64;
/// Interval of calls to the budget's guard, in steps.
const STEPS_PER_CHECK: u64 = 20_000;
/// Interval of calls to the budget's guard, in bytes.
const BYTES_PER_CHECK: usize = 1 << 20;
/// Monitors a rendering: receives the number of steps taken and the used bytes; an error aborts the rendering.
pub type Guard = Arc<dyn Fn(u64, usize) -> Result<(), String> + Send + Sync>;

/// The limits of one rendering.
#[derive(Clone)]
pub struct Budget {
    /// Maximum number of steps: function calls, iterations and templates. Expensive functions count as several steps.
    pub steps: u64,
    /// Maximum number of bytes of all values, including output.
    pub bytes: usize,
    /// Maximum number of bytes of the output of one template.
    pub output: usize,
    /// Maximum number of bytes of an error message; the middle of a longer one is removed.
    pub message: usize,
    /// Maximum nesting depth of template calls.
    pub depth: usize,
    /// Called regularly; may abort the rendering.
    pub guard: Option<Guard>,
}

impl Budget {
    /// Creates a budget for trusted charts and values, with limits that no chart should reach.
    pub fn trusted() -> Self {
        Self { steps: 20_000_000_000, bytes: 2 << 30, output: 64 << 20, message: 1 << 30, depth: 10_000, guard: None }
    }

    /// Creates a budget for untrusted values, with limits of about a second and 64 MiB.
    pub fn untrusted() -> Self {
        Self { steps: 50_000_000, bytes: 64 << 20, output: 8 << 20, message: 64 << 10, depth: 1_000, guard: None }
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget").field("steps", &self.steps).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Source of cluster objects for the template function `lookup`.
///
/// An empty name lists the kind; an empty namespace lists all namespaces. `None` means that the object does not
/// exist, which templates see as an empty map. See
/// <https://helm.sh/docs/chart_template_guide/functions_and_pipelines/#using-the-lookup-function>.
pub trait Lookup {
    /// Finds one object, or a list.
    ///
    /// # Errors
    ///
    /// Returns a message if the request fails or the kind is unknown. The rendering then fails.
    fn lookup(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<serde_json::Value>, String>;

    /// Finds an object whose kind, namespace and name are literals in the template, independent of values. The
    /// default implementation is the same as [`Lookup::lookup`].
    ///
    /// # Errors
    ///
    /// See [`Lookup::lookup`].
    fn lookup_literal(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<serde_json::Value>, String> {
        self.lookup(api_version, kind, namespace, name)
    }
}

/// The template calls of an error, beside its text, which has Helm's format and may quote any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedCalls {
    /// The message of the innermost template.
    pub(crate) reason: String,
    /// The locations in the innermost and in the outermost template.
    pub(crate) innermost: String,
    pub(crate) outermost: String,
    /// Number of templates.
    pub(crate) count: usize,
}

/// Returns an environment variable.
pub(crate) type Variables<'w> = &'w dyn Fn(&str) -> Option<String>;

/// The shared state of a rendering's templates.
pub(crate) struct RenderContext<'w> {
    pub(crate) clock: Clock,
    pub(crate) draws: RandomStream,
    pub(crate) lookup: Option<&'w dyn Lookup>,
    pub(crate) depth: Cell<usize>,
    pub(crate) budget: Budget,
    /// True if `tpl` evaluates untrusted data.
    pub(crate) evaluates: bool,
    pub(crate) helm: HelmVersion,
    /// Environment variables, for templates of the operator's author.
    pub(crate) variables: Option<Variables<'w>>,
    /// Compiled patterns of the chart.
    patterns: RefCell<BTreeMap<String, Rc<dyn Any>>>,
    steps: Cell<u64>,
    check_at: Cell<(u64, usize)>,
    pub(crate) included: RefCell<BTreeMap<String, usize>>,
    /// Messages of `required` and `fail` if the templates are linted, in which case they do not stop the rendering.
    missing: Option<RefCell<Vec<String>>>,
    failed_calls: RefCell<FailedCalls>,
}

/// The functions that execute templates, implemented in `template`.
pub(crate) trait Executor {
    /// `include`: executes a template by its name.
    ///
    /// # Errors
    ///
    /// Fails if there is none, if it fails, or if it includes itself infinitely.
    fn include(&self, context: &RenderContext<'_>, name: &str, data: Value) -> Result<Value, String>;

    /// `tpl`: executes a string as a template with access to the other ones. Data in it remains data.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be parsed, or if it fails.
    fn tpl(&self, context: &RenderContext<'_>, text: &Text, data: Value, is_evaluated: bool) -> Result<Value, String>;
}

/// The context of a function call, in addition to its arguments.
pub(crate) struct Call<'c> {
    pub(crate) context: &'c RenderContext<'c>,
    pub(crate) templates: &'c dyn Executor,
    /// True if all arguments are literals in a template of the chart.
    pub(crate) is_literal: bool,
    /// True if the call is in a string with untrusted data.
    pub(crate) is_evaluated: bool,
}

impl<'w> RenderContext<'w> {
    pub(crate) fn new(
        clock: Clock,
        seed: &Seed,
        lookup: Option<&'w dyn Lookup>,
        budget: Budget,
        evaluates: bool,
    ) -> Self {
        Self {
            clock,
            draws: RandomStream::new(seed),
            lookup,
            depth: Cell::new(0),
            budget,
            evaluates,
            helm: HelmVersion::default(),
            variables: None,
            patterns: RefCell::default(),
            steps: Cell::new(0),
            check_at: Cell::new((STEPS_PER_CHECK, memory::used_bytes() + BYTES_PER_CHECK)),
            included: RefCell::default(),
            missing: None,
            failed_calls: RefCell::default(),
        }
    }

    /// Records that a template failed: first the innermost one, and then each one that calls it.
    pub(crate) fn record_failure(&self, location: &str, message: &str) {
        let mut calls = self.failed_calls.borrow_mut();
        if calls.count == 0 {
            (calls.reason, calls.innermost) = (message.to_owned(), location.to_owned());
        }
        location.clone_into(&mut calls.outermost);
        calls.count += 1;
    }

    /// Removes and returns the calls of the error that ended the templates.
    pub(crate) fn take_failed_calls(&self) -> FailedCalls {
        self.failed_calls.take()
    }

    /// Returns the cached compiled form of a pattern of the chart.
    ///
    /// # Errors
    ///
    /// Returns the error of `make`.
    pub(crate) fn pattern<T: Any>(
        &self,
        pattern: &str,
        make: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Rc<T>, String> {
        let known = self.patterns.borrow().get(pattern).cloned();
        if let Some(compiled) = known.and_then(|compiled| compiled.downcast().ok()) {
            return Ok(compiled);
        }
        let compiled = Rc::new(make(pattern)?);
        let mut patterns = self.patterns.borrow_mut();
        if patterns.len() < MAX_PATTERNS {
            patterns.insert(pattern.to_owned(), Rc::clone(&compiled) as Rc<dyn Any>);
        }
        Ok(compiled)
    }

    /// Continues after failures of `required` and `fail`.
    pub(crate) fn linting(self) -> Self {
        Self { missing: Some(RefCell::default()), ..self }
    }

    /// Logs the error of a function if the templates are linted; returns true in this case.
    pub(crate) fn is_linted(&self, entry: impl FnOnce() -> String) -> bool {
        let log = self.missing.as_ref().map(|missing| missing.borrow_mut().push(entry()));
        log.is_some()
    }

    /// Removes and returns the logged messages.
    pub(crate) fn take_missing(&self) -> Vec<String> {
        self.missing.as_ref().map(RefCell::take).unwrap_or_default()
    }

    /// Permits access to environment variables, and only the functions of slim-sprig.
    pub(crate) fn with_variables(self, variables: Variables<'w>) -> Self {
        Self { variables: Some(variables), ..self }
    }

    /// Sets the version of Helm.
    pub(crate) fn of(self, helm: HelmVersion) -> Self {
        Self { helm, ..self }
    }

    /// Returns the number of steps taken.
    #[cfg(test)]
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Charges steps, and checks the memory limit before this number of bytes is allocated.
    ///
    /// # Errors
    ///
    /// Fails if the budget is exhausted, or its guard aborts the rendering.
    pub(crate) fn charge(&self, steps: impl TryInto<u64>, bytes: usize) -> Result<(), String> {
        let steps = self.steps.get().saturating_add(steps.try_into().unwrap_or(u64::MAX));
        self.steps.set(steps);
        if steps > self.budget.steps {
            return Err(format!(
                "the templates exceed the limit of {} steps: they may loop infinitely",
                self.budget.steps
            ));
        }
        if bytes > memory::Scope::room() || memory::is_exhausted() {
            return Err(format!("the templates exceed the limit of {} bytes of memory", self.budget.bytes));
        }
        let (at_steps, at_bytes) = self.check_at.get();
        let used = memory::used_bytes().saturating_add(bytes);
        if steps >= at_steps || used >= at_bytes {
            self.check_at.set((steps + STEPS_PER_CHECK, used + BYTES_PER_CHECK));
            if let Some(guard) = &self.budget.guard {
                guard(steps, self.budget.bytes.saturating_sub(memory::Scope::room()).saturating_add(bytes))?;
            }
        }
        Ok(())
    }

    /// Charges one iteration over lists and maps, without descending into their items.
    ///
    /// # Errors
    ///
    /// See [`RenderContext::charge`].
    pub(crate) fn charge_shallow(&self, weight: u64, values: &[Value]) -> Result<(), String> {
        let length = |value: &Value| match value {
            Value::Str(text) => text.len() / BYTES_PER_STEP,
            Value::Bytes(bytes) => bytes.len(),
            Value::List(list) => list.items.len(),
            Value::Map(map) => map.entries.borrow().len(),
            _ => 0,
        };
        let length: usize = values.iter().map(length).sum();
        self.charge(weight.saturating_add(length as u64 / 4), length.saturating_mul(VALUE_SIZE))
    }

    /// Charges a complete traversal of values, and returns its number of steps. Shared values count each time.
    ///
    /// # Errors
    ///
    /// See [`RenderContext::charge`]. Also fails if the values are nested too deep, which limits the recursion over
    /// them.
    pub(crate) fn weigh(&self, values: &[Value]) -> Result<u64, String> {
        let mut weight = Weight::default();
        values.iter().try_for_each(|value| self.add_weight(&mut weight, value, 0))?;
        let bytes =
            weight.bytes.saturating_add(weight.values.saturating_mul(VALUE_SIZE)).saturating_mul(MAX_COPIES_PER_CALL);
        let steps = (weight.values / 4 + weight.bytes / BYTES_PER_STEP) as u64;
        self.charge(steps, bytes)?;
        Ok(steps + 1)
    }

    /// Charges processing each character of strings and building something from each value: about 10 ns per character,
    /// where a traversal takes a fraction of 1 ns.
    ///
    /// # Errors
    ///
    /// See [`RenderContext::weigh`].
    pub(crate) fn weigh_letters(&self, values: &[Value]) -> Result<(), String> {
        const TIMES: u64 = 32;
        let steps = self.weigh(values)?.saturating_sub(1);
        self.charge(steps.saturating_mul(TIMES - 1).saturating_add(1), 0)
    }

    /// Checks the memory limit before special characters of values are escaped, after they were weighed.
    ///
    /// # Errors
    ///
    /// See [`RenderContext::charge`].
    pub(crate) fn charge_escapes(&self, values: &[Value]) -> Result<(), String> {
        self.charge(0_u64, special_bytes(values).saturating_mul(BYTES_PER_ESCAPE))
    }

    fn add_weight(&self, weight: &mut Weight, value: &Value, depth: usize) -> Result<(), String> {
        if depth > VALUE_DEPTH {
            return Err(format!("the value is nested deeper than {VALUE_DEPTH}"));
        }
        weight.values += 1;
        if weight.values.is_multiple_of(1 << 16) {
            self.charge(1 << 14, weight.values.saturating_mul(VALUE_SIZE).saturating_add(weight.bytes))?;
        }
        match value {
            Value::Str(text) => weight.bytes = weight.bytes.saturating_add(text.len()),
            Value::Bytes(bytes) => weight.bytes = weight.bytes.saturating_add(bytes.len()),
            Value::List(list) => {
                list.items.iter().try_for_each(|item| self.add_weight(weight, item, depth + 1))?;
            }
            Value::Map(map) => {
                for (key, value) in map.entries.borrow().iter() {
                    weight.bytes = weight.bytes.saturating_add(key.len());
                    self.add_weight(weight, value, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the number of bytes that may be escaped in another format.
fn special_bytes(values: &[Value]) -> usize {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b" -_.,:/".contains(byte);
    let of = |value: &Value| match value {
        Value::Str(text) => text.iter().filter(|byte| !is_plain(byte)).count(),
        Value::List(list) => special_bytes(&list.items),
        Value::Map(map) => {
            let mut sum = 0;
            for (key, value) in map.entries.borrow().iter() {
                sum += special_bytes(std::slice::from_ref(value)) + if key.len() > LONG_KEY { key.len() } else { 0 };
            }
            sum
        }
        _ => 0,
    };
    values.iter().map(of).sum()
}

/// The size of values.
#[derive(Default)]
struct Weight {
    values: usize,
    bytes: usize,
}
