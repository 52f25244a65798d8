//! Parser of templates, with the error messages of Go's `text/template/parse`.

use super::lexer::{Kind, Lexer, Token};
use super::node::{Arg, Branch, Command, Node, Operand, Pipe, Source, Tree, Word};
use crate::functions::{self, FunctionSet};
use crate::message;
use crate::number::{Number, parse_number};
use crate::quote::unquote;
use crate::text::{Marks, Text};
use std::borrow::Cow;
use std::rc::Rc;

/// Nesting limit of parentheses and blocks.
const DEPTH: usize = 1_000;

/// Parses a string: the template itself, and its definitions, in the order of their ends.
///
/// # Errors
///
/// Returns Go's message: `template: file:line: message`.
pub(crate) fn parse(source: Source, functions: FunctionSet) -> Result<Vec<Tree>, String> {
    let source = Rc::new(source);
    let data: &[std::ops::Range<usize>] = if source.is_evaluated { &[] } else { &source.data };
    let mut parser = Parser {
        lexer: Lexer::new(&source.text, data),
        source: Rc::clone(&source),
        functions,
        tokens: std::array::from_fn(|_| Token { kind: Kind::Eof, at: 0, text: Cow::Borrowed(""), line: 0 }),
        peeked: 0,
        vars: vec!["$".into()],
        action_line: 0,
        ranges: 0,
        depth: 0,
        trees: Vec::new(),
    };
    parser.file(&source.name)?;
    Ok(parser.trees)
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    source: Rc<Source>,
    functions: FunctionSet,
    /// Lookahead tokens; the last of them comes first.
    tokens: [Token<'a>; 3],
    peeked: usize,
    vars: Vec<Cow<'a, str>>,
    action_line: usize,
    ranges: usize,
    depth: usize,
    trees: Vec<Tree>,
}

/// The end of a node list.
enum Item {
    Node(Node),
    End,
    Else,
}

type ParseResult<T> = Result<T, String>;

impl<'a> Parser<'a> {
    fn next(&mut self) -> Token<'a> {
        if self.peeked > 0 {
            self.peeked -= 1;
        } else {
            self.tokens[0] = self.lexer.next_token();
        }
        self.tokens[self.peeked].clone()
    }

    fn backup(&mut self) {
        self.peeked += 1;
    }

    fn backup_two(&mut self, first: Token<'a>) {
        self.tokens[1] = first;
        self.peeked = 2;
    }

    fn backup_three(&mut self, first: Token<'a>, second: Token<'a>) {
        self.tokens[1] = second;
        self.tokens[2] = first;
        self.peeked = 3;
    }

    fn peek(&mut self) -> Token<'a> {
        if self.peeked > 0 {
            return self.tokens[self.peeked - 1].clone();
        }
        self.peeked = 1;
        self.tokens[0] = self.lexer.next_token();
        self.tokens[0].clone()
    }

    fn next_not_space(&mut self) -> Token<'a> {
        loop {
            let token = self.next();
            if token.kind != Kind::Space {
                return token;
            }
        }
    }

    fn peek_not_space(&mut self) -> Token<'a> {
        let token = self.next_not_space();
        self.backup();
        token
    }

    fn error<T>(&self, message: &str) -> ParseResult<T> {
        Err(message::write(format_args!("template: {}:{}: {message}", self.source.name, self.tokens[0].line)))
    }

    fn unexpected<T>(&self, token: &Token<'_>, context: &str) -> ParseResult<T> {
        if token.kind != Kind::Error {
            return self.error(&format!("unexpected {token} in {context}"));
        }
        let mut extra = String::new();
        if self.action_line != 0 && self.action_line != token.line {
            extra = format!(" in action started at {}:{}", self.source.name, self.action_line);
            if token.text.ends_with(" action") {
                extra.drain(.." in action".len());
            }
        }
        self.error(&format!("{token}{extra}"))
    }

    fn expect(&mut self, kind: Kind, context: &str) -> ParseResult<Token<'a>> {
        let token = self.next_not_space();
        if token.kind == kind { Ok(token) } else { self.unexpected(&token, context) }
    }

    /// Descends one level, and grows the stack if needed.
    fn nested<T>(&mut self, go: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth == DEPTH {
            return self.error("max expression depth exceeded");
        }
        self.depth += 1;
        let result = stacker::maybe_grow(128 << 10, 1 << 20, || go(self));
        self.depth -= 1;
        result
    }

    fn file(&mut self, name: &str) -> ParseResult<()> {
        let mut root = Vec::new();
        while self.peek().kind != Kind::Eof {
            if self.peek().kind == Kind::LeftDelim {
                let delimiter = self.next();
                if self.next_not_space().kind == Kind::Define {
                    self.definition()?;
                    continue;
                }
                self.backup_two(delimiter);
            }
            match self.text_or_action()? {
                Item::Node(node) => root.push(node),
                Item::End => return self.error("unexpected {{end}}"),
                Item::Else => return self.error("unexpected {{else}}"),
            }
        }
        self.add(name.to_owned(), root)
    }

    fn add(&mut self, name: String, root: Vec<Node>) -> ParseResult<()> {
        let tree = Tree { name, source: Rc::clone(&self.source), root };
        match self.trees.iter().position(|other| other.name == tree.name) {
            None => self.trees.push(tree),
            Some(at) if self.trees[at].is_empty() => self.trees[at] = tree,
            Some(_) if tree.is_empty() => {}
            Some(_) => {
                let name = message::quoted(&tree.name);
                return self.error(&format!("template: multiple definition of template {name}"));
            }
        }
        Ok(())
    }

    /// Parses a template definition within the text: variables and ranges outside of it are not in scope.
    fn inner(&mut self, name: String, context: &str) -> ParseResult<()> {
        let vars = std::mem::replace(&mut self.vars, vec!["$".into()]);
        let ranges = std::mem::take(&mut self.ranges);
        let (list, end) = self.items()?;
        if matches!(end, Item::Else) {
            return self.error(&format!("unexpected {{{{else}}}} in {context}"));
        }
        self.add(name, list)?;
        self.vars = vars;
        self.ranges = ranges;
        Ok(())
    }

    fn definition(&mut self) -> ParseResult<()> {
        let token = self.next_not_space();
        if !matches!(token.kind, Kind::String | Kind::RawString) {
            return self.unexpected(&token, "define clause");
        }
        let name = self.name(&token)?;
        self.expect(Kind::RightDelim, "define clause")?;
        self.inner(name, "define clause")
    }

    fn word(&self, token: &Token<'_>) -> Word {
        Word::new(&self.source, token.at..token.at + token.text.len())
    }

    /// Returns the name after the point.
    fn field_name(&self, token: &Token<'_>) -> Word {
        Word::new(&self.source, token.at + 1..token.at + token.text.len())
    }

    fn name(&mut self, token: &Token<'_>) -> ParseResult<String> {
        match unquote(&token.text) {
            Some(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            None => self.error("invalid syntax"),
        }
    }

    fn items(&mut self) -> ParseResult<(Vec<Node>, Item)> {
        let mut list = Vec::new();
        while self.peek_not_space().kind != Kind::Eof {
            match self.text_or_action()? {
                Item::Node(node) => list.push(node),
                end => {
                    list.shrink_to_fit();
                    return Ok((list, end));
                }
            }
        }
        self.error("unexpected EOF")
    }

    fn text_or_action(&mut self) -> ParseResult<Item> {
        let token = self.next_not_space();
        match token.kind {
            Kind::Text => {
                let range = token.at..token.at + token.text.len();
                Ok(Item::Node(Node::Text(Word::new(&self.source, range.clone()), self.source.marks(range))))
            }
            Kind::LeftDelim => {
                self.action_line = token.line;
                let item = self.nested(Self::action)?;
                self.action_line = 0;
                Ok(item)
            }
            _ => self.unexpected(&token, "input"),
        }
    }

    fn action(&mut self) -> ParseResult<Item> {
        let token = self.next_not_space();
        Ok(Item::Node(match token.kind {
            Kind::Block => self.block()?,
            Kind::Break | Kind::Continue => self.jump(&token)?,
            Kind::Else => {
                if !matches!(self.peek_not_space().kind, Kind::If | Kind::With) {
                    self.expect(Kind::RightDelim, "else")?;
                }
                return Ok(Item::Else);
            }
            Kind::End => {
                self.expect(Kind::RightDelim, "end")?;
                return Ok(Item::End);
            }
            Kind::If => Node::If(self.control("if")?),
            Kind::Range => Node::Range(self.control("range")?),
            Kind::With => Node::With(self.control("with")?),
            Kind::Template => self.template()?,
            _ => {
                self.backup();
                Node::Action(self.pipeline("command", Kind::RightDelim)?)
            }
        }))
    }

    fn jump(&mut self, word: &Token<'_>) -> ParseResult<Node> {
        let token = self.next_not_space();
        let written = format!("{{{{{}}}}}", word.text);
        if token.kind != Kind::RightDelim {
            return self.unexpected(&token, &written);
        }
        if self.ranges == 0 {
            return self.error(&format!("{written} outside {{{{range}}}}"));
        }
        Ok(if word.kind == Kind::Break { Node::Break } else { Node::Continue })
    }

    fn control(&mut self, context: &str) -> ParseResult<Branch> {
        let vars = self.vars.len();
        let pipe = self.pipeline(context, Kind::RightDelim)?;
        self.ranges += usize::from(context == "range");
        let (list, end) = self.items()?;
        self.ranges -= usize::from(context == "range");
        let mut otherwise = None;
        if matches!(end, Item::Else) {
            let next = self.peek().kind;
            otherwise = Some(if context == "if" && next == Kind::If {
                self.next();
                vec![Node::If(self.nested(|parser| parser.control("if"))?)]
            } else if context == "with" && next == Kind::With {
                self.next();
                vec![Node::With(self.nested(|parser| parser.control("with"))?)]
            } else {
                let (list, end) = self.items()?;
                if matches!(end, Item::Else) {
                    return self.error("expected end; found {{else}}");
                }
                list
            });
        }
        self.vars.truncate(vars);
        Ok(Branch { at: pipe.at, pipe, list, otherwise })
    }

    fn block(&mut self) -> ParseResult<Node> {
        let token = self.next_not_space();
        let name = self.template_name(&token, "block clause")?;
        let pipe = self.pipeline("block clause", Kind::RightDelim)?;
        self.inner(name.clone(), "block clause")?;
        Ok(Node::Template { at: token.at, name, pipe: Some(pipe) })
    }

    fn template(&mut self) -> ParseResult<Node> {
        let token = self.next_not_space();
        let name = self.template_name(&token, "template clause")?;
        let mut pipe = None;
        if self.next_not_space().kind != Kind::RightDelim {
            self.backup();
            pipe = Some(self.pipeline("template clause", Kind::RightDelim)?);
        }
        Ok(Node::Template { at: token.at, name, pipe })
    }

    fn template_name(&mut self, token: &Token<'_>, context: &str) -> ParseResult<String> {
        if matches!(token.kind, Kind::String | Kind::RawString) {
            return self.name(token);
        }
        self.unexpected(token, context)
    }

    fn pipeline(&mut self, context: &str, end: Kind) -> ParseResult<Pipe> {
        let (at, commands) = (self.peek_not_space().at, Vec::with_capacity(1));
        let mut pipe = Pipe { at, is_assignment: false, variables: Vec::new(), commands };
        self.declarations(&mut pipe, context)?;
        loop {
            let token = self.next_not_space();
            match token.kind {
                kind if kind == end => {
                    self.check_pipeline(&pipe, context)?;
                    return Ok(pipe);
                }
                Kind::Bool
                | Kind::CharConstant
                | Kind::Complex
                | Kind::Dot
                | Kind::Field
                | Kind::Identifier
                | Kind::Number
                | Kind::Nil
                | Kind::RawString
                | Kind::String
                | Kind::Variable
                | Kind::LeftParen => {
                    self.backup();
                    let command = self.command()?;
                    pipe.commands.push(command);
                }
                _ => return self.unexpected(&token, context),
            }
        }
    }

    /// `$x :=`, `$x =` and, in a range, `$k, $v :=`.
    fn declarations(&mut self, pipe: &mut Pipe, context: &str) -> ParseResult<()> {
        loop {
            let variable = self.peek_not_space();
            if variable.kind != Kind::Variable {
                return Ok(());
            }
            self.next();
            let after = self.peek();
            let next = self.peek_not_space();
            match next.kind {
                Kind::Assign | Kind::Declare => {
                    pipe.is_assignment = next.kind == Kind::Assign;
                    self.next_not_space();
                    pipe.variables.push(self.word(&variable));
                    self.vars.push(variable.text);
                    return Ok(());
                }
                Kind::Char if next.text == "," => {
                    self.next_not_space();
                    pipe.variables.push(self.word(&variable));
                    self.vars.push(variable.text);
                    if context == "range" && pipe.variables.len() < 2 {
                        match self.peek_not_space().kind {
                            Kind::Variable | Kind::RightDelim | Kind::RightParen => continue,
                            _ => return self.error("range can only initialize variables"),
                        }
                    }
                    return self.error(&format!("too many declarations in {context}"));
                }
                _ if after.kind == Kind::Space => self.backup_three(variable, after),
                _ => self.backup_two(variable),
            }
            return Ok(());
        }
    }

    fn check_pipeline(&self, pipe: &Pipe, context: &str) -> ParseResult<()> {
        if pipe.commands.is_empty() {
            return self.error(&format!("missing value for {context}"));
        }
        for (at, command) in pipe.commands.iter().enumerate().skip(1) {
            let first = &command.args[0].what;
            if matches!(
                first,
                Operand::Bool(_) | Operand::Dot | Operand::Nil | Operand::Number(_) | Operand::String(..)
            ) {
                return self.error(&format!("non executable command in pipeline stage {}", at + 1));
            }
        }
        Ok(())
    }

    fn command(&mut self) -> ParseResult<Command> {
        // Charts have so many commands that spare capacity takes megabytes.
        let mut command = Command { at: self.peek_not_space().at, args: Vec::with_capacity(1) };
        loop {
            self.peek_not_space();
            if let Some(operand) = self.operand()? {
                command.args.push(operand);
            }
            let token = self.next();
            match token.kind {
                Kind::Space => continue,
                Kind::RightDelim | Kind::RightParen => self.backup(),
                Kind::Pipe => {}
                _ => return self.unexpected(&token, "operand"),
            }
            break;
        }
        if command.args.is_empty() {
            return self.error("empty command");
        }
        command.args.shrink_to_fit();
        Ok(command)
    }

    fn operand(&mut self) -> ParseResult<Option<Arg>> {
        let Some(mut arg) = self.term()? else { return Ok(None) };
        if self.peek().kind != Kind::Field {
            return Ok(Some(arg));
        }
        let at = self.peek().at;
        let mut names = Vec::new();
        while self.peek().kind == Kind::Field {
            let field = self.next();
            names.push(self.field_name(&field));
        }
        arg = match arg.what {
            Operand::Field(mut first) => {
                first.extend(names);
                Arg { at, what: Operand::Field(first) }
            }
            Operand::Variable(mut first) => {
                first.extend(names);
                Arg { at, what: Operand::Variable(first) }
            }
            Operand::Function(..) | Operand::Pipe(_) | Operand::Chain(..) => {
                Arg { at, what: Operand::Chain(Box::new(arg), names) }
            }
            _ => {
                let written = message::quoted(&arg.to_string());
                return self.error(&format!("unexpected . after term {written}"));
            }
        };
        Ok(Some(arg))
    }

    fn term(&mut self) -> ParseResult<Option<Arg>> {
        let token = self.next_not_space();
        let what = match token.kind {
            Kind::Identifier => {
                let Some(function) = functions::find(&token.text, self.functions) else {
                    return self.error(&format!("function {} not defined", message::quoted(&token.text)));
                };
                Operand::Function(self.word(&token), function)
            }
            Kind::Dot => Operand::Dot,
            Kind::Nil => Operand::Nil,
            Kind::Variable => {
                if !self.vars.contains(&token.text) {
                    return self.error(&format!("undefined variable {}", message::quoted(&token.text)));
                }
                Operand::Variable(vec![self.word(&token)])
            }
            Kind::Field => Operand::Field(vec![self.field_name(&token)]),
            Kind::Bool => Operand::Bool(token.text == "true"),
            Kind::CharConstant | Kind::Complex | Kind::Number => match self.number(&token) {
                Ok(number) => Operand::Number(number),
                Err(message) => return self.error(&message),
            },
            Kind::LeftParen => {
                let pipe = self.nested(|parser| parser.pipeline("parenthesized pipeline", Kind::RightParen))?;
                return Ok(Some(Arg { at: pipe.at, what: Operand::Pipe(Box::new(pipe)) }));
            }
            Kind::String | Kind::RawString => match unquote(&token.text) {
                Some(bytes) => Operand::String(self.word(&token), Text::new(&bytes, Marks::new())),
                None => return self.error("invalid syntax"),
            },
            _ => {
                self.backup();
                return Ok(None);
            }
        };
        Ok(Some(Arg { at: token.at, what }))
    }

    fn number(&self, token: &Token<'_>) -> ParseResult<Number> {
        let text = token.text.clone().into_owned();
        if token.kind == Kind::CharConstant {
            let c = unquote(&text)
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .filter(|text| text.chars().count() == 1)
                .and_then(|text| text.chars().next());
            let Some(c) = c else { return Err(format!("malformed character constant: {text}")) };
            let code = i64::from(u32::from(c));
            #[allow(clippy::cast_precision_loss, reason = "code points are far below 2^53")]
            let float = Some(code as f64);
            return Ok(Number { text, int: Some(code), float, is_complex: false, is_char: true });
        }
        if token.kind == Kind::Complex || text.ends_with('i') {
            return Ok(Number { text, int: None, float: None, is_complex: true, is_char: false });
        }
        parse_number(text)
    }
}
