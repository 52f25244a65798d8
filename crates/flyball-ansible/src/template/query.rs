//! The filter `json_query`: JMESPath queries, whose work takes fuel.
//!
//! See <https://jmespath.org/specification.html>. As in Python's implementation, texts can be ordered too.

mod functions;
mod parse;

use super::{from_json, reject, to_json, weigh, weight};
use crate::value::{Map, Value as Json};
use minijinja::value::Value;
use minijinja::{Error, State};
use parse::Node;
use std::borrow::Cow;
use std::cmp::Ordering;

/// Applies a query to a value.
pub(super) fn json_query(state: &State<'_, '_>, value: Value, query: String) -> Result<Value, Error> {
    weigh(state, &value)?;
    state.consume_fuel(query.len() as u64)?;
    let rejected = |problem: String| reject(format!("json_query: {problem}"));
    let node = parse::parse(&query).map_err(rejected)?;
    let value = to_json(&value)?;
    let evaluation = Evaluation { charge: &|work| state.consume_fuel(work).map_err(|_| Problem::Fuel) };
    match evaluation.of(&node, Cow::Borrowed(&value)) {
        Ok(found) => Ok(from_json(found)),
        Err(Problem::Fuel) => Err(minijinja::ErrorKind::OutOfFuel.into()),
        Err(Problem::Query(problem)) => Err(rejected(problem)),
    }
}

/// Reason why a query has no result.
#[derive(Debug)]
enum Problem {
    Fuel,
    Query(String),
}

type Found<'v> = Result<Cow<'v, Json>, Problem>;

/// Evaluates nodes of a query, and charges each of them and each copy.
struct Evaluation<'c> {
    charge: &'c dyn Fn(u64) -> Result<(), Problem>,
}

impl Evaluation<'_> {
    fn of<'v>(&self, node: &Node, value: Cow<'v, Json>) -> Found<'v> {
        (self.charge)(1)?;
        let null = || Ok(Cow::Owned(Json::Null));
        match node {
            Node::Current => Ok(value),
            Node::Literal(literal) => self.own(Cow::Borrowed(literal)).map(Cow::Owned),
            Node::Field(name) => Ok(match value {
                Cow::Borrowed(value) => value.get(name).map_or(Cow::Owned(Json::Null), Cow::Borrowed),
                Cow::Owned(mut value) => Cow::Owned(value.get_mut(name).map(std::mem::take).unwrap_or_default()),
            }),
            Node::Index(index) => Ok(match value {
                Cow::Borrowed(Json::Array(items)) => {
                    at(items.len(), *index).map_or(Cow::Owned(Json::Null), |at| Cow::Borrowed(&items[at]))
                }
                Cow::Owned(Json::Array(mut items)) => {
                    Cow::Owned(at(items.len(), *index).map(|at| items.swap_remove(at)).unwrap_or_default())
                }
                _ => Cow::Owned(Json::Null),
            }),
            Node::Slice(slice) => match &*value {
                Json::Array(items) => {
                    let items = parse::slice(items.len(), *slice).map_err(Problem::Query)?.map(|at| &items[at]);
                    self.list(items.map(|item| Ok(Cow::Borrowed(item)))).map(Cow::Owned)
                }
                _ => null(),
            },
            Node::Then(first, second) => {
                let value = self.of(first, value)?;
                self.of(second, value)
            }
            Node::Project(list, each) => match self.of(list, value)?.as_ref() {
                Json::Array(items) => self.project(items.iter(), each).map(Cow::Owned),
                _ => null(),
            },
            Node::ProjectValues(map, each) => match self.of(map, value)?.as_ref() {
                Json::Object(fields) => self.project(fields.values(), each).map(Cow::Owned),
                _ => null(),
            },
            Node::Filter(list, condition, each) => match self.of(list, value)?.as_ref() {
                Json::Array(items) => {
                    let mut chosen = Vec::new();
                    for item in items {
                        if is_true(&*self.of(condition, Cow::Borrowed(item))?) {
                            chosen.push(item);
                        }
                    }
                    self.project(chosen.into_iter(), each).map(Cow::Owned)
                }
                _ => null(),
            },
            Node::Flatten(list) => match self.of(list, value)?.as_ref() {
                Json::Array(items) => {
                    self.list(items.iter().flat_map(inner).map(|item| Ok(Cow::Borrowed(item)))).map(Cow::Owned)
                }
                _ => null(),
            },
            Node::Or(left, right) => {
                let found = self.of(left, Cow::Borrowed(&value))?.into_owned();
                if is_true(&found) { Ok(Cow::Owned(found)) } else { self.of(right, value) }
            }
            Node::And(left, right) => {
                let found = self.of(left, Cow::Borrowed(&value))?.into_owned();
                if is_true(&found) { self.of(right, value) } else { Ok(Cow::Owned(found)) }
            }
            Node::Not(inner) => Ok(Cow::Owned((!is_true(&*self.of(inner, value)?)).into())),
            Node::Compare(operator, left, right) => {
                let left = self.of(left, Cow::Borrowed(&value))?;
                let right = self.of(right, Cow::Borrowed(&value))?;
                (self.charge)(self.weight(&left)?.min(self.weight(&right)?))?;
                Ok(Cow::Owned(compare(operator, &left, &right)))
            }
            Node::List(nodes) => match value.is_null() {
                true => null(),
                false => self.list(nodes.iter().map(|node| self.of(node, Cow::Borrowed(&value)))).map(Cow::Owned),
            },
            Node::Map(_) if value.is_null() => null(),
            Node::Map(fields) => {
                let mut map = Map::new();
                for (name, node) in fields {
                    map.insert(name.clone(), self.own(self.of(node, Cow::Borrowed(&value))?)?);
                }
                Ok(Cow::Owned(map.into()))
            }
            Node::Call(name, arguments) => functions::call(self, name, arguments, &value).map(Cow::Owned),
            Node::Reference(_) => Err(Problem::Query("& is only allowed in arguments of functions".into())),
        }
    }

    /// Evaluates a node for each item; null results are omitted.
    fn project<'v>(&self, items: impl Iterator<Item = &'v Json>, each: &Node) -> Result<Json, Problem> {
        let mut found = Vec::new();
        for item in items {
            let result = self.of(each, Cow::Borrowed(item))?;
            if !result.is_null() {
                found.push(self.own(result)?);
            }
        }
        Ok(found.into())
    }

    fn list<'v>(&self, items: impl Iterator<Item = Found<'v>>) -> Result<Json, Problem> {
        items.map(|item| self.own(item?)).collect::<Result<Vec<_>, _>>().map(Json::from)
    }

    /// Copies a value, which takes fuel.
    fn own(&self, value: Cow<'_, Json>) -> Result<Json, Problem> {
        if let Cow::Borrowed(value) = value {
            (self.charge)(self.weight(value)?)?;
        }
        Ok(value.into_owned())
    }

    fn weight(&self, value: &Json) -> Result<u64, Problem> {
        weight(value).map_err(Problem::Query)
    }
}

/// Returns the items of a list, or a value as the only one.
fn inner(value: &Json) -> &[Json] {
    if let Json::Array(items) = value { items } else { std::slice::from_ref(value) }
}

/// Returns the position of an index, which counts from the end if it is negative.
fn at(length: usize, index: i64) -> Option<usize> {
    let at = if index < 0 {
        length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?
    } else {
        usize::try_from(index).ok()?
    };
    (at < length).then_some(at)
}

fn is_true(value: &Json) -> bool {
    match value {
        Json::Null | Json::Bool(false) => false,
        Json::Bool(true) | Json::Number(_) => true,
        Json::String(text) => !text.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Object(fields) => !fields.is_empty(),
    }
}

fn compare(operator: &str, left: &Json, right: &Json) -> Json {
    let order = order(left, right);
    match operator {
        "==" => is_equal(left, right).into(),
        "!=" => (!is_equal(left, right)).into(),
        "<" => order.map(Ordering::is_lt).into(),
        "<=" => order.map(Ordering::is_le).into(),
        ">" => order.map(Ordering::is_gt).into(),
        _ => order.map(Ordering::is_ge).into(),
    }
}

/// Returns true if values are equal; `1` and `1.0` are.
fn is_equal(left: &Json, right: &Json) -> bool {
    match (left, right) {
        (Json::Number(left), Json::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Json::Array(left), Json::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_equal(left, right))
        }
        (Json::Object(left), Json::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| is_equal(value, other)))
        }
        (left, right) => left == right,
    }
}

/// Returns the order of two numbers or two texts.
fn order(left: &Json, right: &Json) -> Option<Ordering> {
    match (left, right) {
        (Json::Number(left), Json::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?),
        (Json::String(left), Json::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}
