//! Execution of templates, with the semantics and messages of Go's `text/template`.

use super::node::{Arg, Branch, Command, Node, Operand, Pipe, Source, Tree, Word};
use crate::context::{Call, RenderContext};
use crate::format;
use crate::functions::{Function, FunctionSet, Handling};
use crate::message;
use crate::number::Number;
use crate::text::{Text, Writer};
use crate::value::{IntKind, MapKind, Type, Value};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Stack size for a function: values may be nested a thousand levels deep.
const VALUE_STACK: usize = 4 << 20;

/// Memory of a parsed template per byte of its text.
const PARSED_BYTES_PER_BYTE: usize = 32;

/// Templates by name.
#[derive(Default)]
pub(crate) struct Templates {
    trees: BTreeMap<String, Rc<Tree>>,
    /// The templates of the chart, if these are templates of a string.
    of_chart: Option<Rc<Templates>>,
}

impl Templates {
    /// Returns templates to which those of a string can be added without changing these. Copies only those of strings,
    /// because a chart has many and evaluates many strings.
    ///
    /// # Errors
    ///
    /// Fails if the budget is exhausted.
    pub(crate) fn with_string(self: &Rc<Self>, context: &RenderContext<'_>) -> Result<Templates, String> {
        let Some(of_chart) = &self.of_chart else {
            return Ok(Templates { trees: BTreeMap::new(), of_chart: Some(Rc::clone(self)) });
        };
        context.charge(self.trees.len() / 4, 0)?;
        Ok(Templates { trees: self.trees.clone(), of_chart: Some(Rc::clone(of_chart)) })
    }

    fn get(&self, name: &str) -> Option<&Rc<Tree>> {
        self.trees.get(name).or_else(|| self.of_chart.as_ref()?.get(name))
    }

    /// Parses a string and adds its definitions; an empty template does not replace a non-empty one.
    ///
    /// # Errors
    ///
    /// Fails if the text cannot be parsed.
    pub(crate) fn add(&mut self, source: Source, context: &RenderContext<'_>) -> Result<(), String> {
        context.charge(source.text.len(), source.text.len().saturating_mul(PARSED_BYTES_PER_BYTE))?;
        let functions = match context.variables {
            None => FunctionSet::Helm(context.helm),
            Some(_) => FunctionSet::Slim,
        };
        for tree in super::parser::parse(source, functions)? {
            if !tree.is_empty() || self.get(&tree.name).is_none() {
                self.trees.insert(tree.name.clone(), Rc::new(tree));
            }
        }
        Ok(())
    }

    /// Executes the template with a name.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or if it fails.
    pub(crate) fn execute(
        self: &Rc<Self>,
        context: &RenderContext<'_>,
        name: &str,
        data: Value,
    ) -> Result<Text, String> {
        let Some(tree) = self.get(name) else {
            let name = message::quoted(name);
            return Err(format!("template: no template {name} associated with template \"gotpl\""));
        };
        if context.depth.get() >= context.budget.depth {
            let message = format!("exceeded maximum template depth ({})", context.budget.depth);
            context.record_failure(name, &message);
            return Err(message::write(format_args!("template: {name}: {message}")));
        }
        context.depth.set(context.depth.get() + 1);
        let data = Slot::exact(data);
        let result = stacker::maybe_grow(128 << 10, 1 << 20, || {
            let mut out = Writer::default();
            let vars = vec![("$", data.clone())];
            State { context, templates: self, tree, out: &mut out, vars, position: Position::Start }
                .list(&data, &tree.root)?;
            context.charge(1, out.len())?;
            Ok(out.text())
        });
        context.depth.set(context.depth.get() - 1);
        result
    }
}

/// A value like in Go's `reflect`: missing, a value in an interface, or a value with a static type.
#[derive(Clone)]
enum Slot {
    Nothing,
    Any(Value),
    Exact(Value),
}

impl Slot {
    fn exact(value: Value) -> Slot {
        if matches!(value, Value::Nil) { Slot::Nothing } else { Slot::Exact(value) }
    }

    fn interface_if(holds_any: bool, value: Value) -> Slot {
        if holds_any { Slot::Any(value) } else { Slot::exact(value) }
    }

    fn value(&self) -> &Value {
        match self {
            Slot::Nothing => &Value::Nil,
            Slot::Any(value) | Slot::Exact(value) => value,
        }
    }

    fn into_value(self) -> Value {
        match self {
            Slot::Nothing => Value::Nil,
            Slot::Any(value) | Slot::Exact(value) => value,
        }
    }
}

/// The part of a template under evaluation, for error messages.
#[derive(Clone, Copy)]
enum Position<'t> {
    Start,
    Node(&'t Node, usize),
    Pipe(&'t Pipe),
    Command(&'t Command),
    Arg(&'t Arg),
}

/// The control flow after a node.
#[derive(PartialEq)]
enum Flow {
    Next,
    Break,
    Continue,
}

type Run<T> = Result<T, String>;

struct State<'t, 'o> {
    context: &'t RenderContext<'t>,
    templates: &'t Rc<Templates>,
    tree: &'t Tree,
    out: &'o mut Writer,
    vars: Vec<(&'t str, Slot)>,
    position: Position<'t>,
}

impl<'t> State<'t, '_> {
    fn error<T>(&self, message: impl std::fmt::Display) -> Run<T> {
        let message = message::write(message);
        let (at, context) = match self.position {
            Position::Start => {
                let name = message::excerpt(&self.tree.name);
                self.context.record_failure(&name, &message);
                return Err(message::write(format_args!("template: {name}: {message}")));
            }
            Position::Node(node, at) => (at, node.to_string()),
            Position::Pipe(pipe) => (pipe.at, pipe.to_string()),
            Position::Command(command) => (command.at, command.to_string()),
            Position::Arg(arg) => (arg.at, arg.to_string()),
        };
        let location = self.tree.source.location(at);
        self.context.record_failure(&location, &message);
        let (name, context) = (message::quoted(&self.tree.name), message::excerpt(&context));
        Err(message::write(format_args!("template: {location}: executing {name} at <{context}>: {message}")))
    }

    fn list(&mut self, dot: &Slot, nodes: &'t [Node]) -> Run<Flow> {
        for node in nodes {
            match self.node(dot, node)? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, dot: &Slot, node: &'t Node) -> Run<Flow> {
        match node {
            Node::Text(text, marks) => {
                self.out.marked(text.as_bytes(), marks);
                self.bounded()?;
            }
            Node::Action(pipe) => {
                self.position = Position::Node(node, pipe.at);
                let value = self.pipeline(dot, pipe)?;
                if pipe.variables.is_empty() {
                    match value {
                        Slot::Nothing => self.out.add(b"<no value>"),
                        other => {
                            self.context
                                .weigh(std::slice::from_ref(other.value()))
                                .or_else(|message| self.error(message))?;
                            format::write(self.out, other.value());
                        }
                    }
                    self.bounded()?;
                }
            }
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
            Node::If(branch) => return self.branch(dot, branch, false),
            Node::With(branch) => return self.branch(dot, branch, true),
            Node::Range(branch) => {
                self.position = Position::Node(node, branch.at);
                return self.range(dot, branch);
            }
            Node::Template { at, name, pipe } => {
                self.position = Position::Node(node, *at);
                self.template(dot, name, pipe.as_ref())?;
            }
        }
        Ok(Flow::Next)
    }

    fn bounded(&self) -> Run<()> {
        if self.out.len() > self.context.budget.output {
            return self.error(format_args!("the output is larger than {} bytes", self.context.budget.output));
        }
        self.context.charge(1, 0).or_else(|message| self.error(message))
    }

    fn branch(&mut self, dot: &Slot, branch: &'t Branch, is_with: bool) -> Run<Flow> {
        let mark = self.vars.len();
        let value = self.pipeline(dot, &branch.pipe)?;
        let flow = if value.value().truth() {
            self.list(if is_with { &value } else { dot }, &branch.list)?
        } else if let Some(otherwise) = &branch.otherwise {
            self.list(dot, otherwise)?
        } else {
            Flow::Next
        };
        self.vars.truncate(mark);
        Ok(flow)
    }

    fn range(&mut self, dot: &Slot, branch: &'t Branch) -> Run<Flow> {
        let outer = self.vars.len();
        let value = self.pipeline(dot, &branch.pipe)?.into_value();
        let mut ran = false;
        let mut each = |state: &mut Self, key: Slot, item: Slot| -> Run<bool> {
            ran = true;
            state.iteration(branch, key, item)
        };
        match &value {
            Value::List(list) => {
                for (at, item) in list.items.iter().enumerate() {
                    let at = Value::int(i64::try_from(at).unwrap_or(i64::MAX));
                    if !each(self, Slot::Exact(at), Slot::interface_if(list.kind.holds_any(), item.clone()))? {
                        break;
                    }
                }
            }
            Value::Bytes(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    let at = Value::int(i64::try_from(at).unwrap_or(i64::MAX));
                    if !each(self, Slot::Exact(at), Slot::Exact(Value::Int(IntKind::Uint8, i64::from(*byte))))? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                let entries: Vec<(Value, Value)> =
                    map.entries.borrow().iter().map(|(key, item)| (key.to_value(), item.clone())).collect();
                for (key, item) in entries {
                    if !each(self, Slot::Exact(key), Slot::interface_if(map.kind.holds_any(), item))? {
                        break;
                    }
                }
            }
            Value::Int(kind, count) => {
                if branch.pipe.variables.len() > 1 {
                    return self.error(format_args!("can't use {count} to iterate over more than one variable"));
                }
                for number in 0..*count {
                    if !each(self, Slot::Nothing, Slot::Exact(Value::Int(*kind, number)))? {
                        break;
                    }
                }
            }
            Value::Nil => {}
            other => {
                self.context.weigh(std::slice::from_ref(other)).or_else(|message| self.error(message))?;
                return self.error(format_args!("range can't iterate over {}", format::display(other)));
            }
        }
        let mut flow = Flow::Next;
        if let (false, Some(otherwise)) = (ran, &branch.otherwise) {
            flow = self.list(dot, otherwise)?;
        }
        self.vars.truncate(outer);
        Ok(flow)
    }

    /// Executes the body of a range with one item; returns whether to continue.
    fn iteration(&mut self, branch: &'t Branch, key: Slot, item: Slot) -> Run<bool> {
        self.context.charge(1, 0).or_else(|message| self.error(message))?;
        let names = &branch.pipe.variables;
        let mark = self.vars.len();
        if branch.pipe.is_assignment {
            match names.as_slice() {
                [one] => self.assign(one, item.clone())?,
                [first, second, ..] => {
                    self.assign(first, key)?;
                    self.assign(second, item.clone())?;
                }
                [] => {}
            }
        } else if let Some(top) = mark.checked_sub(1).filter(|_| !names.is_empty()) {
            self.vars[top].1 = item.clone();
            if names.len() > 1 {
                self.vars[top - 1].1 = key;
            }
        }
        let flow = self.list(&item, &branch.list)?;
        self.vars.truncate(mark);
        Ok(flow != Flow::Break)
    }

    fn template(&mut self, dot: &Slot, name: &str, pipe: Option<&'t Pipe>) -> Run<()> {
        let Some(tree) = self.templates.get(name) else {
            return self.error(format_args!("template {} not defined", message::quoted(name)));
        };
        if self.context.depth.get() >= self.context.budget.depth {
            return self.error(format_args!("exceeded maximum template depth ({})", self.context.budget.depth));
        }
        self.context.charge(1, 0).or_else(|message| self.error(message))?;
        let dot = match pipe {
            Some(pipe) => self.pipeline(dot, pipe)?,
            None => Slot::Nothing,
        };
        self.context.depth.set(self.context.depth.get() + 1);
        let result = stacker::maybe_grow(128 << 10, 1 << 20, || {
            let vars = vec![("$", dot.clone())];
            let (context, templates) = (self.context, self.templates);
            State { context, templates, tree, out: self.out, vars, position: Position::Start }.list(&dot, &tree.root)
        });
        self.context.depth.set(self.context.depth.get() - 1);
        result.map(|_| ())
    }

    fn assign(&mut self, name: &str, value: Slot) -> Run<()> {
        match self.vars.iter_mut().rev().find(|(other, _)| *other == name) {
            Some(variable) => variable.1 = value,
            None => return self.error(format_args!("undefined variable: {name}")),
        }
        Ok(())
    }

    fn variable(&self, name: &str) -> Run<Slot> {
        match self.vars.iter().rev().find(|(other, _)| *other == name) {
            Some((_, value)) => Ok(value.clone()),
            None => self.error(format_args!("undefined variable: {name}")),
        }
    }

    fn pipeline(&mut self, dot: &Slot, pipe: &'t Pipe) -> Run<Slot> {
        stacker::maybe_grow(128 << 10, 1 << 20, || {
            self.position = Position::Pipe(pipe);
            let mut value = None;
            for command in &pipe.commands {
                // Values in interfaces are unwrapped.
                value = Some(Slot::exact(self.command(dot, command, value)?.into_value()));
            }
            let value = value.unwrap_or(Slot::Nothing);
            for name in &pipe.variables {
                if pipe.is_assignment {
                    self.assign(name, value.clone())?;
                } else {
                    self.vars.push((name, value.clone()));
                }
            }
            Ok(value)
        })
    }

    /// Evaluates a command; `last` is the result of the previous one in the pipeline.
    fn command(&mut self, dot: &Slot, command: &'t Command, last: Option<Slot>) -> Run<Slot> {
        let first = &command.args[0];
        match &first.what {
            Operand::Field(names) => {
                self.position = Position::Arg(first);
                return self.chain(dot, dot.clone(), first, names, &command.args, last);
            }
            Operand::Chain(base, names) => {
                let receiver = self.chain_base(dot, first, base)?;
                return self.chain(dot, receiver, first, names, &command.args, last);
            }
            Operand::Function(name, function) => {
                self.position = Position::Arg(first);
                return self.function(dot, (name, function), Position::Command(command), &command.args, last);
            }
            Operand::Variable(names) => {
                self.position = Position::Arg(first);
                let value = self.variable(&names[0])?;
                if names.len() > 1 {
                    return self.chain(dot, value, first, &names[1..], &command.args, last);
                }
                self.not_a_function(&command.args, last.as_ref())?;
                return Ok(value);
            }
            Operand::Pipe(pipe) => {
                self.not_a_function(&command.args, last.as_ref())?;
                return self.pipeline(dot, pipe);
            }
            _ => {}
        }
        self.position = Position::Arg(first);
        self.not_a_function(&command.args, last.as_ref())?;
        match &first.what {
            Operand::Bool(is) => Ok(Slot::Exact(Value::Bool(*is))),
            Operand::Dot => Ok(dot.clone()),
            Operand::Number(number) => self.constant(number),
            Operand::String(_, bytes) => Ok(Slot::Exact(Value::Str(bytes.clone()))),
            _ => self.error("nil is not a command"),
        }
    }

    fn not_a_function(&self, args: &[Arg], last: Option<&Slot>) -> Run<()> {
        if args.len() > 1 || last.is_some() {
            return self.error(format_args!("can't give argument to non-function {}", args[0]));
        }
        Ok(())
    }

    fn constant(&self, number: &Number) -> Run<Slot> {
        if number.is_complex {
            return self.error(format_args!("complex number {} is not supported", number.text));
        }
        let is_float = number.float.is_some()
            && !number.is_char
            && !number.text.to_ascii_lowercase().contains("0x")
            && number.text.contains(['.', 'e', 'E', 'p', 'P']);
        match (number.float, number.int) {
            (Some(float), _) if is_float => Ok(Slot::Exact(Value::Float(float))),
            (_, Some(whole)) if number.is_char => Ok(Slot::Exact(Value::Int(IntKind::Int, whole))),
            (_, Some(whole)) => Ok(Slot::Exact(Value::int(whole))),
            _ => self.error(format_args!("{} overflows int", number.text)),
        }
    }

    fn chain_base(&mut self, dot: &Slot, whole: &'t Arg, base: &'t Arg) -> Run<Slot> {
        self.position = Position::Arg(whole);
        match &base.what {
            Operand::Nil => self.error(format_args!("indirection through explicit nil in {whole}")),
            Operand::Pipe(pipe) => self.pipeline(dot, pipe),
            Operand::Function(name, function) => {
                self.function(dot, (name, function), Position::Arg(base), std::slice::from_ref(base), None)
            }
            _ => self.error(format_args!("can't evaluate {base}")),
        }
    }

    fn chain(
        &mut self,
        dot: &Slot,
        mut receiver: Slot,
        node: &'t Arg,
        names: &[Word],
        args: &'t [Arg],
        last: Option<Slot>,
    ) -> Run<Slot> {
        let (end, start) = names.split_last().expect("a chain has a name");
        for name in start {
            receiver = self.field(dot, name, node, &[], None, receiver)?;
        }
        self.field(dot, end, node, args, last, receiver)
    }

    fn field(
        &mut self,
        dot: &Slot,
        name: &str,
        node: &'t Arg,
        args: &'t [Arg],
        last: Option<Slot>,
        receiver: Slot,
    ) -> Run<Slot> {
        let is_any = match &receiver {
            Slot::Nothing => return Ok(Slot::Nothing),
            Slot::Any(Value::Nil) => return self.error(format_args!("nil pointer evaluating interface {{}}.{name}")),
            Slot::Any(_) => true,
            Slot::Exact(_) => false,
        };
        let value = receiver.into_value();
        if let Some((params, call)) = super::method::find(&value, name) {
            let values = self.arguments(dot, name, params, false, args.get(1..).unwrap_or_default(), last)?;
            let weight = self.context.weigh(&values).or_else(|message| self.error(message))?;
            let receiver = std::slice::from_ref(&value);
            let weighed = match name {
                "YAML" | "AsConfig" | "AsSecrets" => self.context.weigh_letters(receiver),
                // Compiles a pattern.
                "Glob" => self.context.charge_shallow(weight.saturating_mul(5_000), receiver),
                _ => self.context.charge_shallow(1, receiver),
            };
            weighed.or_else(|message| self.error(message))?;
            // Parts of a date or a version may be parts of the string that it was parsed from.
            let is_data = values.iter().any(Value::is_data)
                || matches!(&value, Value::Object(object) if object.is_made_of_texts())
                || matches!(&value, Value::Map(map) if matches!(map.kind, MapKind::Values(_)) && name == "YAML");
            return match call(self.context, &value, &values) {
                Ok(value) if is_data => Ok(Slot::exact(value.to_data())),
                Ok(value) => Ok(Slot::exact(value)),
                Err(message) => {
                    self.position = Position::Arg(node);
                    self.error(format_args!("error calling {name}: {message}"))
                }
            };
        }
        let has_args = args.len() > 1 || last.is_some();
        match &value {
            Value::Object(object) => {
                if let Some(field) = object.field(name) {
                    if has_args {
                        return self.error(format_args!("{name} has arguments but cannot be invoked as function"));
                    }
                    return Ok(Slot::exact(field));
                }
            }
            Value::Map(map) => {
                if has_args {
                    return self.error(format_args!("{name} is not a method but has arguments"));
                }
                return Ok(match (map.get(name), map.kind) {
                    (Some(item), kind) => Slot::interface_if(kind.holds_any(), item),
                    (None, MapKind::Any | MapKind::Values(_)) => Slot::Any(Value::Nil),
                    (None, MapKind::Strings) => Slot::Exact(Value::str("")),
                    (None, MapKind::Files) => Slot::Exact(Value::Bytes(Arc::from([]))),
                });
            }
            _ => {}
        }
        let type_name = if is_any { Type::Any.to_string() } else { value.type_name() };
        self.error(format_args!("can't evaluate field {name} in type {type_name}"))
    }

    fn function(
        &mut self,
        dot: &Slot,
        (name, function): (&str, &'static Function),
        node: Position<'t>,
        args: &'t [Arg],
        last: Option<Slot>,
    ) -> Run<Slot> {
        if matches!(name, "and" | "or") {
            return self.short_circuit(dot, name, &args[1..], last);
        }
        let Function { params, is_variadic, call, handling, cost } = *function;
        let mut values = self.arguments(dot, name, params, is_variadic, &args[1..], last)?;
        if name == "call" {
            values.insert(0, Value::str(args.get(1).map(ToString::to_string).unwrap_or_default()));
        }
        let is_literal = !self.tree.source.is_evaluated
            && values.len() + 1 == args.len()
            && args[1..].iter().all(|arg| matches!(arg.what, Operand::String(..)));
        let is_evaluated = self.tree.source.is_evaluated;
        let context = Call { context: self.context, templates: self.templates, is_literal, is_evaluated };
        // Functions traverse values recursively; the cost function has checked their nesting depth.
        let result = stacker::maybe_grow(VALUE_STACK, 4 * VALUE_STACK, || {
            cost(&context, &values).map_err(|message| (false, message))?;
            let is_data = handling == Handling::Makes && values.iter().any(Value::is_data);
            let value = call(&context, &values).map_err(|message| (true, message))?;
            if handling != Handling::Moves {
                // A small input may have a long result.
                self.context.charge_shallow(0, std::slice::from_ref(&value)).map_err(|message| (false, message))?;
            }
            Ok(if is_data { value.to_data() } else { value })
        });
        match result {
            Ok(value) => Ok(Slot::exact(value)),
            Err((false, message)) => self.error(message),
            Err((true, message)) => {
                self.position = node;
                self.error(format_args!("error calling {name}: {message}"))
            }
        }
    }

    /// `and` and `or` short-circuit.
    fn short_circuit(&mut self, dot: &Slot, name: &str, args: &'t [Arg], last: Option<Slot>) -> Run<Slot> {
        let count = args.len() + usize::from(last.is_some());
        if count == 0 {
            return self.error(format_args!("wrong number of args for {name}: want at least 1 got 0"));
        }
        let mut value = Value::Nil;
        for arg in args {
            value = self.argument(dot, Type::Reflect, arg)?;
            if value.truth() == (name == "or") {
                return Ok(Slot::exact(value));
            }
        }
        Ok(Slot::exact(last.map_or(value, Slot::into_value)))
    }

    fn arguments(
        &mut self,
        dot: &Slot,
        name: &str,
        params: &[Type],
        is_variadic: bool,
        args: &'t [Arg],
        last: Option<Slot>,
    ) -> Run<Vec<Value>> {
        let count = args.len() + usize::from(last.is_some());
        let fixed = params.len() - usize::from(is_variadic);
        if is_variadic && count < fixed {
            return self
                .error(format_args!("wrong number of args for {name}: want at least {fixed} got {}", args.len()));
        }
        if !is_variadic && count != fixed {
            return self.error(format_args!("wrong number of args for {name}: want {fixed} got {count}"));
        }
        let type_at = |at: usize| if at < fixed { params[at] } else { params[params.len() - 1] };
        let mut values = Vec::with_capacity(count);
        for (at, arg) in args.iter().enumerate() {
            values.push(self.argument(dot, type_at(at), arg)?);
        }
        if let Some(last) = last {
            values.push(self.validate(last, type_at(count - 1))?);
        }
        Ok(values)
    }

    fn argument(&mut self, dot: &Slot, expected: Type, arg: &'t Arg) -> Run<Value> {
        self.position = Position::Arg(arg);
        let slot = match &arg.what {
            Operand::Dot => dot.clone(),
            Operand::Nil if expected.takes_nil() => return Ok(Value::Nil),
            Operand::Nil => return self.error(format_args!("cannot assign nil to {expected}")),
            Operand::Field(names) => self.chain(dot, dot.clone(), arg, names, &[], None)?,
            Operand::Variable(names) => {
                let value = self.variable(&names[0])?;
                if names.len() > 1 { self.chain(dot, value, arg, &names[1..], &[], None)? } else { value }
            }
            Operand::Pipe(pipe) => self.pipeline(dot, pipe)?,
            Operand::Function(name, function) => {
                self.function(dot, (name, function), Position::Arg(arg), std::slice::from_ref(arg), None)?
            }
            Operand::Chain(base, names) => {
                let receiver = self.chain_base(dot, arg, base)?;
                self.chain(dot, receiver, arg, names, &[], None)?
            }
            literal => return self.literal(arg, literal, expected),
        };
        self.validate(slot, expected)
    }

    /// Converts a constant to the expected type, if possible.
    fn literal(&self, arg: &Arg, literal: &Operand, expected: Type) -> Run<Value> {
        match (expected, literal) {
            (Type::Any | Type::Reflect, Operand::Number(number)) => Ok(self.constant(number)?.into_value()),
            (Type::Bool | Type::Any | Type::Reflect, Operand::Bool(is)) => Ok(Value::Bool(*is)),
            (Type::Str | Type::Any | Type::Reflect, Operand::String(_, bytes)) => Ok(Value::Str(bytes.clone())),
            (Type::Int(kind), Operand::Number(number)) if number.int.is_some() => {
                Ok(Value::Int(kind, number.int.unwrap_or_default()))
            }
            (Type::Float, Operand::Number(number)) if number.float.is_some() => {
                Ok(Value::Float(number.float.unwrap_or_default()))
            }
            (Type::Bool, _) => self.error(format_args!("expected bool; found {arg}")),
            (Type::Str, _) => self.error(format_args!("expected string; found {arg}")),
            (Type::Int(_), _) => self.error(format_args!("expected integer; found {arg}")),
            (Type::Float, _) => self.error(format_args!("expected float; found {arg}")),
            _ => self.error(format_args!("can't handle {arg} for arg of type {expected}")),
        }
    }

    fn validate(&self, slot: Slot, expected: Type) -> Run<Value> {
        match slot {
            Slot::Nothing if expected.takes_nil() => Ok(Value::Nil),
            Slot::Nothing => self.error(format_args!("invalid value; expected {expected}")),
            Slot::Any(Value::Nil) if !matches!(expected, Type::Any | Type::Reflect) => {
                self.error(format_args!("wrong type for value; expected {expected}; got interface {{}}"))
            }
            Slot::Any(value) | Slot::Exact(value) => match value.type_of() {
                Some(actual) if !expected.accepts(actual) => {
                    self.error(format_args!("wrong type for value; expected {expected}; got {actual}"))
                }
                _ => Ok(value),
            },
        }
    }
}
