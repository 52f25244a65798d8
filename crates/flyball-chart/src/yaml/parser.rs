//! Parser of YAML documents, with go-yaml's error messages.

use super::scanner::{Kind, Problem, Scanner, Style};
use crate::memory::{self, MemoryCharge};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A node of a document.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Scalar { tag: String, text: String, is_plain: bool, line: u32 },
    Sequence { items: Vec<Rc<Node>> },
    Mapping { entries: Vec<(Rc<Node>, Rc<Node>)> },
}

impl Node {
    /// Collects duplicate keys of mappings, with their lines.
    pub(super) fn duplicates(&self, found: &mut Vec<(usize, String)>) {
        stacker::maybe_grow(128 << 10, 1 << 20, || match self {
            Node::Scalar { .. } => {}
            Node::Sequence { items } => items.iter().for_each(|item| item.duplicates(found)),
            Node::Mapping { entries } => {
                let mut keys = BTreeSet::new();
                for (key, value) in entries {
                    if let Node::Scalar { text, line, .. } = &**key
                        && !keys.insert(text)
                    {
                        found.push((*line as usize, text.clone()));
                    }
                    value.duplicates(found);
                }
            }
        });
    }
}

/// Nesting limit of nodes.
const DEPTH: usize = 1_000;
/// Limit of nodes of a document, with aliases expanded.
const MAX_NODES: usize = 4_000_000;

/// Estimated size of a node with its data, in bytes.
const NODE: usize = 400;

/// Parses the first document of a stream; `None` if there is none.
pub(super) fn parse(text: &str) -> Result<Option<Rc<Node>>, Problem> {
    let mut parser = Parser {
        scanner: Scanner::new(text),
        tags: BTreeMap::new(),
        anchors: BTreeMap::new(),
        depth: 0,
        aliased: 0,
        charge: MemoryCharge::default(),
    };
    parser.document()
}

struct Parser<'a> {
    scanner: Scanner<'a>,
    tags: BTreeMap<String, String>,
    /// The target of an alias and its size; `None` while it is being parsed.
    anchors: BTreeMap<String, Option<(Rc<Node>, usize)>>,
    depth: usize,
    aliased: usize,
    charge: MemoryCharge,
}

type Parse<T> = Result<T, Problem>;

fn plain_problem<T>(message: String) -> Parse<T> {
    Err(Problem { line: 0, message })
}

impl Parser<'_> {
    /// Returns the kind of the next token, without copying the token, which may be long.
    fn peek(&mut self) -> Parse<&Kind> {
        Ok(&self.scanner.peek()?.kind)
    }

    fn is_next(&mut self, kind: &Kind) -> Parse<bool> {
        Ok(self.peek()? == kind)
    }

    /// Rejects the next token.
    fn problem<T>(&mut self, message: &str) -> Parse<T> {
        Err(Problem { line: self.scanner.peek()?.start.line, message: message.to_owned() })
    }

    /// Consumes the next token.
    fn consume(&mut self) -> Parse<Kind> {
        Ok(self.scanner.next()?.kind)
    }

    fn skip(&mut self) -> Parse<()> {
        self.scanner.next().map(|_| ())
    }

    fn document(&mut self) -> Parse<Option<Rc<Node>>> {
        let mut has_version = false;
        let node = match self.peek()? {
            Kind::StreamEnd => return Ok(None),
            Kind::VersionDirective(..) | Kind::TagDirective(..) | Kind::DocumentStart => {
                loop {
                    match self.peek()?.clone() {
                        Kind::VersionDirective(..) if has_version => {
                            return self.problem("found duplicate %YAML directive");
                        }
                        Kind::VersionDirective(1, 1) => has_version = true,
                        Kind::VersionDirective(..) => return self.problem("found incompatible YAML document"),
                        Kind::TagDirective(handle, prefix) => {
                            if self.tags.insert(handle, prefix).is_some() {
                                return self.problem("found duplicate %TAG directive");
                            }
                        }
                        Kind::DocumentStart => break,
                        _ => return self.problem("did not find expected <document start>"),
                    }
                    self.skip()?;
                }
                self.skip()?;
                match self.peek()? {
                    Kind::VersionDirective(..)
                    | Kind::TagDirective(..)
                    | Kind::DocumentStart
                    | Kind::DocumentEnd
                    | Kind::StreamEnd => Rc::new(empty()),
                    _ => self.node(true, false)?.0,
                }
            }
            _ => self.node(true, false)?.0,
        };
        // The rest of the stream is not parsed, except the token that ends the document.
        self.peek()?;
        Ok(Some(node))
    }

    /// Returns a node, and the number of its nodes.
    fn node(&mut self, is_block: bool, is_indentless: bool) -> Parse<(Rc<Node>, usize)> {
        if self.depth >= DEPTH {
            return plain_problem(format!("exceeded max depth of {DEPTH}"));
        }
        self.charge.add(NODE);
        if memory::is_exhausted() {
            return plain_problem("the document takes too much memory".to_owned());
        }
        self.depth += 1;
        let result = stacker::maybe_grow(128 << 10, 1 << 20, || self.node_at_position(is_block, is_indentless));
        self.depth -= 1;
        result
    }

    fn node_at_position(&mut self, is_block: bool, is_indentless: bool) -> Parse<(Rc<Node>, usize)> {
        if matches!(self.peek()?, Kind::Alias(_)) {
            let Kind::Alias(name) = self.consume()? else { unreachable!("it is the token that was seen") };
            return match self.anchors.get(&name) {
                Some(Some((node, size))) => {
                    self.aliased += size;
                    self.charge.add(size.saturating_mul(NODE));
                    if self.aliased > MAX_NODES || memory::is_exhausted() {
                        return plain_problem("document contains excessive aliasing".to_owned());
                    }
                    Ok((Rc::clone(node), *size))
                }
                Some(None) => plain_problem(format!("anchor '{name}' value contains itself")),
                None => plain_problem(format!("unknown anchor '{name}' referenced")),
            };
        }
        let (mut anchor, mut tag) = (None, None);
        for _ in 0..2 {
            match self.peek()? {
                Kind::Anchor(name) if anchor.is_none() => anchor = Some(name.clone()),
                Kind::Tag(handle, suffix) if tag.is_none() => {
                    let (handle, suffix) = (handle.clone(), suffix.clone());
                    let prefix = match handle.as_str() {
                        "" => String::new(),
                        handle => match (self.tags.get(handle), handle) {
                            (Some(prefix), _) => prefix.clone(),
                            (None, "!") => "!".to_owned(),
                            (None, "!!") => "tag:yaml.org,2002:".to_owned(),
                            _ => return self.problem("found undefined tag handle"),
                        },
                    };
                    tag = Some(format!("{prefix}{suffix}"));
                }
                _ => break,
            }
            self.skip()?;
        }
        if let Some(name) = &anchor {
            self.anchors.insert(name.clone(), None);
        }
        let has_properties = anchor.is_some() || tag.is_some();
        let (node, size) = self.content(is_block, is_indentless, tag, has_properties)?;
        let node = Rc::new(node);
        if let Some(name) = anchor {
            self.anchors.insert(name, Some((Rc::clone(&node), size)));
        }
        Ok((node, size))
    }

    fn content(
        &mut self,
        is_block: bool,
        is_indentless: bool,
        tag: Option<String>,
        has_properties: bool,
    ) -> Parse<(Node, usize)> {
        match self.peek()? {
            Kind::BlockEntry if is_indentless => self.block_sequence(true),
            Kind::Scalar(..) => {
                let token = self.scanner.next()?;
                let Kind::Scalar(text, style) = token.kind else { unreachable!("it is the token that was seen") };
                let line = u32::try_from(token.start.line + 1).unwrap_or(u32::MAX);
                let is_plain = style == Style::Plain && tag.as_deref() != Some("!");
                let tag = tag.filter(|tag| tag != "!").unwrap_or_default();
                Ok((Node::Scalar { tag, text, is_plain, line }, 1))
            }
            Kind::FlowSequenceStart => self.flow_sequence(),
            Kind::FlowMappingStart => self.flow_mapping(),
            Kind::BlockSequenceStart if is_block => self.block_sequence(false),
            Kind::BlockMappingStart if is_block => self.block_mapping(),
            _ if has_properties => {
                let tag = tag.filter(|tag| tag != "!").unwrap_or_default();
                Ok((Node::Scalar { tag, text: String::new(), is_plain: true, line: 0 }, 1))
            }
            _ => self.problem("did not find expected node content"),
        }
    }

    fn block_sequence(&mut self, is_indentless: bool) -> Parse<(Node, usize)> {
        if !is_indentless {
            self.skip()?;
        }
        let (mut items, mut size) = (Vec::new(), 1);
        loop {
            match self.peek()? {
                Kind::BlockEntry => self.skip()?,
                _ if is_indentless => break,
                Kind::BlockEnd => {
                    self.skip()?;
                    break;
                }
                _ => return self.problem("did not find expected '-' indicator"),
            }
            let is_empty = match self.peek()? {
                Kind::BlockEntry | Kind::BlockEnd => true,
                Kind::Key | Kind::Value => is_indentless,
                _ => false,
            };
            let (node, inner) = if is_empty { (Rc::new(empty()), 1) } else { self.node(true, false)? };
            size += inner;
            items.push(node);
        }
        Ok((Node::Sequence { items }, size))
    }

    fn block_mapping(&mut self) -> Parse<(Node, usize)> {
        self.skip()?;
        let (mut entries, mut size) = (Vec::new(), 1);
        loop {
            let key = match self.peek()? {
                Kind::Key => {
                    self.skip()?;
                    match self.peek()? {
                        Kind::Key | Kind::Value | Kind::BlockEnd => (Rc::new(empty()), 1),
                        _ => self.node(true, true)?,
                    }
                }
                Kind::Value => (Rc::new(empty()), 1),
                Kind::BlockEnd => {
                    self.skip()?;
                    break;
                }
                _ => return self.problem("did not find expected key"),
            };
            let mut value = (Rc::new(empty()), 1);
            if self.is_next(&Kind::Value)? {
                self.skip()?;
                if !matches!(self.peek()?, Kind::Key | Kind::Value | Kind::BlockEnd) {
                    value = self.node(true, true)?;
                }
            }
            size += key.1 + value.1;
            entries.push((key.0, value.0));
        }
        Ok((Node::Mapping { entries }, size))
    }

    fn flow_sequence(&mut self) -> Parse<(Node, usize)> {
        self.skip()?;
        let (mut items, mut size) = (Vec::new(), 1);
        loop {
            if self.is_next(&Kind::FlowSequenceEnd)? {
                break;
            }
            if !items.is_empty() {
                if *self.peek()? != Kind::FlowEntry {
                    return self.problem("did not find expected ',' or ']'");
                }
                self.skip()?;
                if self.is_next(&Kind::FlowSequenceEnd)? {
                    break;
                }
            }
            let (node, inner) = if self.is_next(&Kind::Key)? { self.single_pair()? } else { self.node(false, false)? };
            size += inner;
            items.push(node);
        }
        self.skip()?;
        Ok((Node::Sequence { items }, size))
    }

    /// `[a: b]`: a mapping without braces.
    fn single_pair(&mut self) -> Parse<(Rc<Node>, usize)> {
        self.skip()?;
        let ends = |kind: &Kind| matches!(kind, Kind::FlowEntry | Kind::FlowSequenceEnd);
        let next = self.peek()?;
        let key = if ends(next) || *next == Kind::Value { (Rc::new(empty()), 1) } else { self.node(false, false)? };
        let mut value = (Rc::new(empty()), 1);
        if self.is_next(&Kind::Value)? {
            self.skip()?;
            if !ends(self.peek()?) {
                value = self.node(false, false)?;
            }
        }
        let size = key.1 + value.1 + 1;
        Ok((Rc::new(Node::Mapping { entries: vec![(key.0, value.0)] }), size))
    }

    fn flow_mapping(&mut self) -> Parse<(Node, usize)> {
        self.skip()?;
        let (mut entries, mut size) = (Vec::new(), 1);
        loop {
            if self.is_next(&Kind::FlowMappingEnd)? {
                break;
            }
            if !entries.is_empty() {
                if *self.peek()? != Kind::FlowEntry {
                    return self.problem("did not find expected ',' or '}'");
                }
                self.skip()?;
                if self.is_next(&Kind::FlowMappingEnd)? {
                    break;
                }
            }
            let ends = |kind: &Kind| matches!(kind, Kind::FlowEntry | Kind::FlowMappingEnd);
            let has_key = self.is_next(&Kind::Key)?;
            if has_key {
                self.skip()?;
            }
            let next = self.peek()?;
            let key = if *next == Kind::Value || (has_key && ends(next)) {
                (Rc::new(empty()), 1)
            } else {
                self.node(false, false)?
            };
            let mut value = (Rc::new(empty()), 1);
            if self.is_next(&Kind::Value)? {
                self.skip()?;
                if !ends(self.peek()?) {
                    value = self.node(false, false)?;
                }
            }
            size += key.1 + value.1;
            entries.push((key.0, value.0));
        }
        self.skip()?;
        Ok((Node::Mapping { entries }, size))
    }
}

fn empty() -> Node {
    Node::Scalar { tag: String::new(), text: String::new(), is_plain: true, line: 0 }
}
