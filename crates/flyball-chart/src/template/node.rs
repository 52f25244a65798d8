//! The tree of a parsed template. Each node is formatted as in Go, because error messages quote it.

use crate::functions::Function;
use crate::memory::MemoryCharge;
use crate::number::Number;
use crate::quote;
use crate::text::{Marks, Text};
use std::fmt;
use std::ops::{Deref, Range};
use std::rc::Rc;

/// A template with a name: its nodes, and its source.
pub(crate) struct Tree {
    pub(crate) name: String,
    pub(crate) source: Rc<Source>,
    pub(crate) root: Vec<Node>,
}

/// A parsed text, for positions in error messages.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
    /// Ranges of untrusted data.
    pub(crate) data: Marks,
    /// True if it contains untrusted data and is evaluated because the author of the operator allows this.
    pub(crate) is_evaluated: bool,
    _charge: MemoryCharge,
}

impl Source {
    /// Creates a source without data.
    pub(crate) fn new(name: &str, text: impl Into<String>) -> Self {
        Self::with_data(name, text.into(), Marks::new(), false)
    }

    /// Creates a source with ranges of data.
    pub(crate) fn with_data(name: &str, text: String, data: Marks, is_evaluated: bool) -> Self {
        // Nodes copy the ranges of their texts.
        let charge = MemoryCharge::new(text.len() + 2 * size_of_val(&*data));
        Self { name: name.to_owned(), text, data, is_evaluated, _charge: charge }
    }

    /// Returns the ranges of data within a range, relative to its start.
    pub(crate) fn marks(&self, Range { start: from, end: to }: Range<usize>) -> Marks {
        let part = |mark: &Range<usize>| mark.start.max(from)..mark.end.min(to);
        let parts = self.data.iter().map(part).filter(|part| part.start < part.end);
        parts.map(|part| part.start - from..part.end - from).collect()
    }

    /// Formats a position as `file:line:column`; columns count bytes from 0.
    pub(crate) fn location(&self, at: usize) -> String {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let newlines = before.iter().filter(|byte| **byte == b'\n').count();
        let column = match before.iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => at - newline - 1,
            None => at,
        };
        format!("{}:{}:{column}", self.name, newlines + 1)
    }
}

/// A part of the text of a template, which is not copied.
#[derive(Clone)]
pub(crate) struct Word {
    source: Rc<Source>,
    range: Range<usize>,
}

impl Word {
    pub(crate) fn new(source: &Rc<Source>, range: Range<usize>) -> Self {
        Self { source: Rc::clone(source), range }
    }
}

impl Deref for Word {
    type Target = str;

    fn deref(&self) -> &str {
        &self.source.text[self.range.clone()]
    }
}

impl Tree {
    /// Returns true if it only has white space.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.iter().all(|node| match node {
            Node::Text(text, _) => text.trim().is_empty(),
            _ => false,
        })
    }
}

/// A node of a template.
pub(crate) enum Node {
    /// The text, and its ranges of data.
    Text(Word, Marks),
    Action(Pipe),
    Break,
    Continue,
    If(Branch),
    With(Branch),
    Range(Branch),
    Template {
        at: usize,
        name: String,
        pipe: Option<Pipe>,
    },
}

/// A condition or a range, with its branches.
pub(crate) struct Branch {
    pub(crate) at: usize,
    pub(crate) pipe: Pipe,
    pub(crate) list: Vec<Node>,
    pub(crate) otherwise: Option<Vec<Node>>,
}

/// A pipeline: each command gets the result of the previous one.
pub(crate) struct Pipe {
    pub(crate) at: usize,
    pub(crate) is_assignment: bool,
    pub(crate) variables: Vec<Word>,
    pub(crate) commands: Vec<Command>,
}

/// A function, field or value, with arguments.
pub(crate) struct Command {
    pub(crate) at: usize,
    pub(crate) args: Vec<Arg>,
}

/// An element of a command.
pub(crate) struct Arg {
    pub(crate) at: usize,
    pub(crate) what: Operand,
}

/// An operand.
pub(crate) enum Operand {
    Bool(bool),
    Dot,
    Nil,
    Field(Vec<Word>),
    Function(Word, &'static Function),
    Variable(Vec<Word>),
    Number(Number),
    /// The quoted source, and the value.
    String(Word, Text),
    Pipe(Box<Pipe>),
    Chain(Box<Arg>, Vec<Word>),
}

fn joined(words: &[Word], separator: &str) -> String {
    words.iter().map(|word| &**word).collect::<Vec<&str>>().join(separator)
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            write!(f, "{} {} ", joined(&self.variables, ", "), if self.is_assignment { "=" } else { ":=" })?;
        }
        for (at, command) in self.commands.iter().enumerate() {
            write!(f, "{}{command}", if at > 0 { " | " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, arg) in self.args.iter().enumerate() {
            write!(f, "{}{arg}", if at > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Operand::Bool(is) => write!(f, "{is}"),
            Operand::Dot => f.write_str("."),
            Operand::Nil => f.write_str("nil"),
            Operand::Field(names) => write!(f, ".{}", joined(names, ".")),
            Operand::Function(name, _) => f.write_str(name),
            Operand::Variable(names) => f.write_str(&joined(names, ".")),
            Operand::Number(number) => f.write_str(&number.text),
            Operand::String(written, _) => f.write_str(written),
            Operand::Pipe(pipe) => write!(f, "({pipe})"),
            Operand::Chain(base, names) => write!(f, "{base}.{}", joined(names, ".")),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let branch = |f: &mut fmt::Formatter<'_>, word: &str, branch: &Branch| {
            write!(f, "{{{{{word} {}}}}}", branch.pipe)?;
            branch.list.iter().try_for_each(|node| write!(f, "{node}"))?;
            if let Some(otherwise) = &branch.otherwise {
                f.write_str("{{else}}")?;
                otherwise.iter().try_for_each(|node| write!(f, "{node}"))?;
            }
            f.write_str("{{end}}")
        };
        match self {
            Node::Text(text, _) => f.write_str(text),
            Node::Action(pipe) => write!(f, "{{{{{pipe}}}}}"),
            Node::Break => f.write_str("{{break}}"),
            Node::Continue => f.write_str("{{continue}}"),
            Node::If(inner) => branch(f, "if", inner),
            Node::With(inner) => branch(f, "with", inner),
            Node::Range(inner) => branch(f, "range", inner),
            Node::Template { name, pipe, .. } => {
                write!(f, "{{{{template {}", quote::quote(name.as_bytes()))?;
                if let Some(pipe) = pipe {
                    write!(f, " {pipe}")?;
                }
                f.write_str("}}")
            }
        }
    }
}
