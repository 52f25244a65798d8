//! The variables in scope of a template, and its evaluation.

use super::expression::Expression;
use super::guards::{expression_handles, handles};
use super::includes::in_folder;
use super::prepared::{prepared, prepared_expression};
use super::syntax::{compile, compile_expression};
use super::{
    BYTES_PER_FUEL, Budget, ENGINES, FUNCTIONS, Files, Includes, LimitedText, Sources, check_defined, explain,
    from_json, is_template, literal_backslashes, normal, sole_expression, to_json, weight,
};
use crate::value::{Map, Value as Json};
use indexmap::IndexMap;
use minijinja::value::{Enumerator, Object, Value};
use minijinja::{Environment, Error, ErrorKind, State};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// Placeholder for an omitted argument. Random per process, so that templates cannot contain it; never shown.
pub(crate) static OMIT: LazyLock<String> = LazyLock::new(|| {
    let drawn = ring::rand::generate::<[u8; 16]>(&ring::rand::SystemRandom::new());
    let drawn = drawn.map(ring::rand::Random::expose).unwrap_or_default();
    format!("\u{e0f1}{:032x}\u{e0f2}", u128::from_be_bytes(drawn))
});

/// Environment variables of the operator that roles may read by default: those for finding programs and collections,
/// and for the output format.
pub(crate) const PASSED: [&str; 9] = [
    "ANSIBLE_GATHERING",
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "ANSIBLE_CONFIG",
    "ANSIBLE_COLLECTIONS_PATH",
];

/// The only host of a run.
const HOST: &str = "localhost";

/// Nesting limit of variables that refer to one another.
const MAX_DEPTH: usize = 24;

/// The stack size for a template with namespaces, with memory allocated on demand: sufficient for the deepest value
/// that [`FUEL`](super::FUEL) permits.
const NAMESPACE_STACK_BYTES: usize = 256 << 20;

/// A variable.
#[derive(Clone, Debug)]
pub(crate) enum Var {
    /// A value.
    Data(Arc<Json>),
    /// Templates that are evaluated on each use.
    Template(Arc<Json>),
}

/// Variables by name, in the order of their definition.
pub(crate) type Vars = IndexMap<String, Var>;

/// Creates variables from a map whose strings are templates.
pub(crate) fn templates<'a>(fields: impl IntoIterator<Item = (&'a String, &'a Json)>) -> Vars {
    fields.into_iter().map(|(name, value)| (name.clone(), Var::Template(Arc::new(value.clone())))).collect()
}

/// Creates variables from a map of data.
pub(crate) fn data(fields: impl IntoIterator<Item = (String, Json)>) -> Vars {
    fields.into_iter().map(|(name, value)| (name, Var::Data(Arc::new(value)))).collect()
}

/// The variables in scope at one point of a run.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// In order of precedence.
    layers: Vec<Arc<Vars>>,
    files: Vec<Arc<Files>>,
    evaluation: Mutex<Evaluation>,
    budget: Arc<Budget>,
    /// The variables of hosts; `None` outside of runs.
    host: Option<Arc<HostVars>>,
}

#[derive(Debug, Default)]
struct Evaluation {
    /// Cached values of evaluated variables.
    known: BTreeMap<String, Value>,
    /// Variables being evaluated, and the enclosing templates.
    resolving: Vec<String>,
    /// Undefined names that were used, each once, the last one last.
    missed: Vec<String>,
}

impl Scope {
    /// Creates a scope from layers of variables in order of precedence, and the directories of files.
    pub(crate) fn new(layers: Vec<Arc<Vars>>, files: Vec<Arc<Files>>) -> Arc<Self> {
        Self::within(Arc::default(), layers, files)
    }

    /// The same with the budget of a run.
    pub(crate) fn within(budget: Arc<Budget>, layers: Vec<Arc<Vars>>, files: Vec<Arc<Files>>) -> Arc<Self> {
        Arc::new(Self { layers, files, budget, ..Self::default() })
    }

    /// Creates the scope of a task, with the variables of the host.
    pub(crate) fn of_task(
        budget: Arc<Budget>,
        layers: Vec<Arc<Vars>>,
        files: Vec<Arc<Files>>,
        host: Vec<Arc<Vars>>,
    ) -> Arc<Self> {
        let host = Some(Arc::new(HostVars(Self::within(budget.clone(), host, Vec::new()))));
        Arc::new(Self { layers, files, budget, host, ..Self::default() })
    }

    /// Returns true if roles may read an environment variable.
    pub(super) fn may_read_environment(&self, variable: &str) -> bool {
        PASSED.contains(&variable) || self.budget.environment.contains(variable)
    }

    /// Returns the scope of a template.
    pub(super) fn of(state: &State<'_, '_>) -> Result<Arc<Self>, Error> {
        let scope = state.lookup("vars").and_then(|vars| vars.downcast_object::<Self>());
        scope.ok_or_else(|| super::reject("lookups are not available if a variable is named vars"))
    }

    pub(super) fn sources(&self) -> &Sources {
        &self.budget.sources
    }

    /// Returns the reason why a file is not available.
    pub(super) fn absence(&self, name: &str) -> String {
        self.files.first().map_or_else(|| format!("{name} not found"), |files| files.absence(name))
    }

    pub(super) fn files(&self) -> &[Arc<Files>] {
        &self.files
    }

    /// Evaluates the templates in a value.
    pub(crate) fn render(self: &Arc<Self>, value: &Json) -> Result<Json, String> {
        Ok(match value {
            Json::String(text) => self.render_text(text)?,
            Json::Array(items) => Json::Array(items.iter().map(|item| self.render(item)).collect::<Result<_, _>>()?),
            Json::Object(fields) => {
                let mut rendered = Map::new();
                for (key, field) in fields {
                    let key = match self.render_text(key)? {
                        Json::String(key) => key,
                        other => other.to_string(),
                    };
                    rendered.insert(key, self.render(field)?);
                }
                Json::Object(rendered)
            }
            scalar => scalar.clone(),
        })
    }

    /// Evaluates a string: to a typed value if it is a single expression, else to a string.
    pub(crate) fn render_text(self: &Arc<Self>, text: &str) -> Result<Json, String> {
        if !is_template(text) {
            return Ok(text.into());
        }
        let text = literal_backslashes(text);
        match sole_expression(&text) {
            Some(expression) => self.evaluate(expression),
            None => self.render_template(&text).map(Json::from),
        }
    }

    /// Evaluates a string to a string.
    pub(crate) fn render_template(self: &Arc<Self>, text: &str) -> Result<String, String> {
        self.render_with(None, "<string>", text)
    }

    /// Evaluates a string, which may include these templates.
    fn render_with(self: &Arc<Self>, includes: Option<&Includes>, name: &str, text: &str) -> Result<String, String> {
        let source = prepared(text).map_err(|error| explain(&error))?;
        let render = |engine: &Environment<'static>| {
            let mut out = LimitedText::default();
            let template = compile(engine, name, &source)?;
            template.render_captured_to(Value::from_dyn_object(self.clone()), &mut out)?;
            out.text()
        };
        // Each iteration of a loop may nest a namespace one level deeper, limited only by fuel. Included templates
        // recurse as well.
        let is_deep = includes.is_some() || ["{%", "set", "namespace"].iter().all(|part| text.contains(part));
        self.strictly(text, handles, includes, |engine| match is_deep {
            true => stacker::grow(NAMESPACE_STACK_BYTES, || render(engine)),
            false => render(engine),
        })
    }

    /// Evaluates a template file. Such files may refer to one another, within the nesting limit of variables.
    pub(super) fn render_file(self: &Arc<Self>, files: &Files, name: &str, text: &str) -> Result<String, String> {
        self.evaluation().resolving.push(name.to_owned());
        let rendered =
            self.render_with(files.includes.as_ref(), in_folder(&normal(Path::new(name)).to_string_lossy()), text);
        self.evaluation().resolving.pop();
        rendered
    }

    /// Evaluates an expression.
    pub(crate) fn evaluate(self: &Arc<Self>, expression: &str) -> Result<Json, String> {
        let value = self.value(expression)?;
        let value = check_defined(&value).and_then(|()| to_json(&value)).map_err(|error| explain(&error))?;
        self.charge(&value)?;
        Ok(value)
    }

    /// Returns true if a condition holds.
    pub(crate) fn holds(self: &Arc<Self>, condition: &Json) -> Result<bool, String> {
        match condition {
            Json::Bool(truth) => Ok(*truth),
            Json::String(text) => {
                // Braces around a condition are superfluous, but common.
                let expression = sole_expression(text).unwrap_or(text);
                Ok(truth(&self.value(expression)?))
            }
            other => Err(format!("the condition must be an expression, not {}", crate::yaml::type_name(other))),
        }
    }

    fn value(self: &Arc<Self>, expression: &str) -> Result<Value, String> {
        let source = prepared_expression(expression).map_err(|error| explain(&error))?;
        let evaluate = |engine: &Environment<'static>| {
            compile_expression(engine, &source)?.eval(Value::from_dyn_object(self.clone()))
        };
        let value = self.strictly(expression, expression_handles, None, evaluate)?;
        match value.is_undefined() {
            true => Err(format!("'{expression}' is undefined")),
            false => Ok(value),
        }
    }

    /// Evaluates a template; an undefined variable is an error unless the template handles it.
    fn strictly<T>(
        &self,
        text: &str,
        handles: fn(&str, &str) -> bool,
        includes: Option<&Includes>,
        evaluate: impl Fn(&Environment<'static>) -> Result<T, Error>,
    ) -> Result<T, String> {
        let around = {
            let mut evaluation = self.evaluation();
            if evaluation.resolving.len() > MAX_DEPTH {
                return Err(format!("variables refer to one another infinitely: {}", evaluation.resolving.join(" → ")));
            }
            take(&mut evaluation.missed)
        };
        // A nested evaluation belongs to the enclosing template.
        let is_outermost = self.evaluation().resolving.is_empty();
        let evaluate = || {
            self.budget.charge((text.len() / BYTES_PER_FUEL) as u64).map_err(super::reject)?;
            self.budget.evaluate(includes.map_or(&ENGINES, |includes| &includes.engines), evaluate)
        };
        let value = if is_outermost { self.budget.spend(evaluate) } else { evaluate() };
        let missed = std::mem::replace(&mut self.evaluation().missed, around);
        let is_handled = |name: &str| includes.is_some_and(|includes| includes.are_guarded) || handles(text, name);
        match value {
            Err(error) => match missed.last().filter(|_| error.kind() == ErrorKind::UndefinedError) {
                Some(name) => Err(format!("'{name}' is undefined")),
                None => Err(explain(&error)),
            },
            Ok(value) => match missed.iter().find(|name| !is_handled(name)) {
                Some(name) => Err(format!("'{name}' is undefined")),
                None => Ok(value),
            },
        }
    }

    /// Returns the evaluated value of a variable.
    pub(super) fn variable(self: &Arc<Self>, name: &str) -> Option<Value> {
        if let Some(known) = self.evaluation().known.get(name) {
            return Some(known.clone());
        }
        let value = match self.layers.iter().find_map(|layer| layer.get(name))? {
            Var::Data(data) => match self.charge(data) {
                Ok(()) => from_json(&**data),
                Err(problem) => return Some(Value::from(super::reject(problem))),
            },
            Var::Template(template) => {
                if self.evaluation().resolving.iter().any(|around| around == name) {
                    return Some(Value::from(super::reject(format!("the variable {name} refers to itself"))));
                }
                self.evaluation().resolving.push(name.to_owned());
                // Rendering recurses, so the depth is checked in advance.
                let rendered = super::weight(template).and_then(|_| self.render(template));
                self.evaluation().resolving.pop();
                match rendered.and_then(|rendered| self.charge(&rendered).map(|()| rendered)) {
                    Ok(rendered) => from_json(&rendered),
                    Err(problem) => return Some(Value::from(super::reject(format!("variable {name}: {problem}")))),
                }
            }
        };
        self.evaluation().known.insert(name.to_owned(), value.clone());
        Some(value)
    }

    /// Returns the names of variables that a regular expression matches.
    pub(super) fn names(&self, state: &State<'_, '_>, pattern: &str) -> Result<Vec<String>, Error> {
        let names: BTreeSet<&String> = self.layers.iter().flat_map(|layer| layer.keys()).collect();
        state.consume_fuel(names.len() as u64)?;
        let mut expression = Expression::new(state, pattern, false, false)?;
        let mut found = Vec::new();
        for name in names {
            if expression.find(state, name)?.is_some() {
                found.push(name.clone());
            }
        }
        Ok(found)
    }

    /// Charges work to the budget of the run.
    pub(crate) fn charge_work(&self, work: u64) -> Result<(), String> {
        self.budget.charge(work)
    }

    /// Charges the traversal of a value. Every value read from or stored in a variable is charged here.
    fn charge(&self, value: &Json) -> Result<(), String> {
        self.budget.charge(weight(value)?)
    }

    fn evaluation(&self) -> MutexGuard<'_, Evaluation> {
        self.evaluation.lock()
    }
}

/// Returns the truth of a value as in Ansible: strings by their content.
fn truth(value: &Value) -> bool {
    match value.as_str() {
        Some(text) => crate::yaml::truth(&text.into()).unwrap_or(!text.is_empty()),
        None => value.is_true(),
    }
}

impl Object for Scope {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        match name {
            // Variables with computed names.
            "vars" if !self.layers.iter().any(|layer| layer.contains_key(name)) => {
                Some(Value::from_dyn_object(self.clone()))
            }
            "hostvars" if self.host.is_some() => self.host.clone().map(Value::from_dyn_object),
            "omit" => Some(OMIT.as_str().into()),
            _ => {
                let found = self.variable(name);
                if found.is_none() && !FUNCTIONS.contains(name) {
                    let mut evaluation = self.evaluation();
                    evaluation.missed.retain(|known| known != name);
                    evaluation.missed.push(name.to_owned());
                }
                found
            }
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::NonEnumerable
    }
}

/// The variables of the only host, by its name: as in Ansible, without those of plays, roles and tasks.
#[derive(Debug)]
struct HostVars(Arc<Scope>);

impl Object for HostVars {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (key.as_str()? == HOST).then(|| Value::from_dyn_object(self.0.clone()))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Str(&[HOST])
    }
}
