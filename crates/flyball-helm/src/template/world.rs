//! What templates may know of the world around them: a clock, a seed, and a cluster to look things up in.

use super::exec::Templates;
use super::value::Value;
use crate::functions::{Function, functions};
use crate::seed::{Draws, Seed};
use flyball_core::Clock;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How often a template may include itself, by way of others or not. The bound is Helm's.
const NESTED: usize = 1_000;
/// How many function calls, iterations and templates one rendering may take.
const STEPS: u64 = 50_000_000;
/// How large the output of one template may be.
const LARGEST_OUTPUT: usize = 64 << 20;

/// Finds objects of a cluster for `lookup`.
///
/// With an empty name, the answer is a list of the kind; with an empty namespace, of all namespaces. `None` means that there
/// is no such object, which templates see as an empty map. See
/// <https://helm.sh/docs/chart_template_guide/functions_and_pipelines/#using-the-lookup-function>.
pub trait Lookup {
    /// Finds one object, or a list.
    ///
    /// # Errors
    /// A message: the cluster does not answer, or does not know the kind. Rendering fails with it.
    fn lookup(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<serde_json::Value>, String>;
}

/// What a rendering shares between its templates.
pub(crate) struct World<'w> {
    pub(crate) clock: Clock,
    pub(crate) draws: Draws,
    pub(crate) lookup: Option<&'w dyn Lookup>,
    pub(crate) depth: Cell<usize>,
    pub(crate) largest_output: usize,
    steps: Cell<u64>,
    included: RefCell<BTreeMap<String, usize>>,
    functions: BTreeMap<&'static str, Function>,
}

/// What a function may use beside its arguments.
pub(crate) struct Call<'c> {
    pub(crate) world: &'c World<'c>,
    pub(crate) templates: &'c Rc<Templates>,
}

impl<'w> World<'w> {
    pub(crate) fn new(clock: Clock, seed: &Seed, lookup: Option<&'w dyn Lookup>) -> Self {
        Self {
            clock,
            draws: Draws::new(seed),
            lookup,
            depth: Cell::new(0),
            largest_output: LARGEST_OUTPUT,
            steps: Cell::new(0),
            included: RefCell::default(),
            functions: functions(),
        }
    }

    pub(crate) fn function(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// Counts a step.
    ///
    /// # Errors
    /// It is one too many.
    pub(crate) fn step(&self) -> Result<(), String> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > STEPS {
            return Err(format!("the templates take more than {STEPS} steps; they may not end"));
        }
        Ok(())
    }
}

impl Call<'_> {
    /// `include`: what a template gives.
    ///
    /// # Errors
    /// There is none, it fails, or it includes itself without an end.
    pub(crate) fn include(&self, name: &str, data: Value) -> Result<Value, String> {
        {
            let mut included = self.world.included.borrow_mut();
            let count = included.entry(name.to_owned()).or_insert(0);
            if *count > NESTED {
                return Err(format!(
                    "rendering template has a nested reference name: {name}: unable to execute template"
                ));
            }
            *count += 1;
        }
        let result = self.templates.execute(self.world, name, data);
        if let Some(count) = self.world.included.borrow_mut().get_mut(name) {
            *count -= 1;
        }
        result.map(Value::str)
    }

    /// `tpl`: a text as a template, which sees those that are there.
    ///
    /// # Errors
    /// It does not parse, or fails.
    pub(crate) fn tpl(&self, text: &str, data: Value) -> Result<Value, String> {
        let quoted = || super::format::quote(text.as_bytes());
        let mut templates = Templates::clone(self.templates);
        templates
            .add("gotpl", text, self.world)
            .map_err(|message| format!("cannot parse template {}: {message}", quoted()))?;
        let out = Rc::new(templates)
            .execute(self.world, "gotpl", data)
            .map_err(|message| format!("error during tpl function execution for {}: {message}", quoted()))?;
        Ok(Value::str(without_no_value(&out)))
    }
}

/// Drops the words that Go writes for what is not there.
pub(crate) fn without_no_value(out: &[u8]) -> Vec<u8> {
    const WORDS: &[u8] = b"<no value>";
    let mut kept = Vec::with_capacity(out.len());
    let mut at = 0;
    while at < out.len() {
        if out[at..].starts_with(WORDS) {
            at += WORDS.len();
        } else {
            kept.push(out[at]);
            at += 1;
        }
    }
    kept
}
