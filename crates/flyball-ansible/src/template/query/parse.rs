//! Parses queries.

use crate::value::Value as Json;

/// Limit of the tokens of a query: parsing and evaluation recurse into them.
const MAX_TOKENS: usize = 400;
/// Operators that bind less end a projection.
const PROJECTION_STOP: u8 = 10;

/// A node of a query.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Current,
    Literal(Json),
    Field(String),
    Index(i64),
    Slice(Slice),
    /// The second one applies to the result of the first one.
    Then(Box<Node>, Box<Node>),
    Project(Box<Node>, Box<Node>),
    ProjectValues(Box<Node>, Box<Node>),
    /// A list, a condition, and a node for each chosen item.
    Filter(Box<Node>, Box<Node>, Box<Node>),
    Flatten(Box<Node>),
    Or(Box<Node>, Box<Node>),
    And(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Compare(&'static str, Box<Node>, Box<Node>),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
    Call(String, Vec<Node>),
    /// An expression as argument of a function.
    Reference(Box<Node>),
}

/// Start, end and step.
pub(super) type Slice = [Option<i64>; 3];

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Quoted(String),
    Number(i64),
    Literal(Json),
    Sign(&'static str),
}

/// The signs, longer ones before their beginnings.
const SIGNS: [&str; 24] = [
    "[?", "[]", "||", "&&", "==", "!=", "<=", ">=", "<", ">", "!", "|", "&", "@", ".", "*", "[", "]", "{", "}", "(",
    ")", ",", ":",
];

/// Parses a query.
pub(super) fn parse(text: &str) -> Result<Node, String> {
    let tokens = tokens(text)?;
    if tokens.len() > MAX_TOKENS {
        return Err(format!("the query has more than {MAX_TOKENS} parts"));
    }
    let mut parser = Parser { tokens, next: 0 };
    let node = parser.expression(0)?;
    match parser.peek() {
        None => Ok(node),
        Some(token) => Err(format!("unexpected {} in {text}", describe_token(token))),
    }
}

fn describe_token(token: &Token) -> String {
    match token {
        Token::Name(text) | Token::Quoted(text) => format!("{text:?}"),
        Token::Number(number) => number.to_string(),
        Token::Literal(literal) => format!("`{literal}`"),
        Token::Sign(sign) => format!("'{sign}'"),
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            'a'..='z' | 'A'..='Z' | '_' => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                (Token::Name(rest[..end].to_owned()), end)
            }
            '0'..='9' | '-' => {
                let end = rest[1..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |end| end + 1);
                let number = rest[..end].parse().map_err(|_| format!("invalid number {}", &rest[..end]))?;
                (Token::Number(number), end)
            }
            '"' | '\'' | '`' => {
                let (inner, end) = quoted(rest, first)?;
                let json = |text: &str| serde_json::from_str::<Json>(text);
                let token = match first {
                    '"' => match json(&rest[..end]) {
                        Ok(Json::String(name)) => Token::Quoted(name),
                        _ => return Err(format!("invalid name {}", &rest[..end])),
                    },
                    '\'' => Token::Literal(inner.replace("\\'", "'").into()),
                    // Literals without quotes are strings, as in old versions.
                    _ => {
                        let inner = inner.replace("\\`", "`");
                        Token::Literal(json(&inner).unwrap_or_else(|_| inner.trim_start().into()))
                    }
                };
                (token, end)
            }
            _ => {
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
                let sign = sign.ok_or_else(|| format!("unexpected character {first:?} in {text}"))?;
                (Token::Sign(sign), sign.len())
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

/// Returns the content of a quoted text, and its end.
fn quoted(text: &str, quote: char) -> Result<(&str, usize), String> {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        if letter == quote && !escaped {
            return Ok((&text[1..at], at + 1));
        }
        escaped = letter == '\\' && !escaped;
    }
    Err(format!("unclosed {quote} in {text}"))
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn is_next(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Token::Sign(next)) if *next == sign)
    }

    fn skip(&mut self, sign: &str) -> bool {
        let is_next = self.is_next(sign);
        self.next += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.skip(sign) { Ok(()) } else { Err(self.unexpected(&format!("'{sign}'"))) }
    }

    fn unexpected(&self, expected: &str) -> String {
        format!("expected {expected}, found {}", self.peek().map_or("the end".to_owned(), describe_token))
    }

    fn advance(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).cloned();
        self.next += 1;
        token
    }

    /// Parses an expression of operators that bind more than a limit.
    fn expression(&mut self, limit: u8) -> Result<Node, String> {
        let mut left = self.first()?;
        while let Some(Token::Sign(sign)) = self.peek() {
            let sign = *sign;
            if binding(sign) <= limit {
                break;
            }
            self.next += 1;
            left = self.operator(sign, left)?;
        }
        Ok(left)
    }

    /// Parses the beginning of an expression.
    fn first(&mut self) -> Result<Node, String> {
        let Some(token) = self.advance() else { return Err("the query is incomplete".into()) };
        match token {
            Token::Literal(literal) => Ok(Node::Literal(literal)),
            Token::Name(name) if self.skip("(") => self.arguments().map(|arguments| Node::Call(name, arguments)),
            Token::Name(name) | Token::Quoted(name) => Ok(Node::Field(name)),
            Token::Sign("@") => Ok(Node::Current),
            Token::Sign("*") => {
                let each = self.projected(binding("*"))?;
                Ok(Node::ProjectValues(Box::new(Node::Current), Box::new(each)))
            }
            Token::Sign("[?") => self.filter(Node::Current),
            Token::Sign("[]") => self.flatten(Node::Current),
            Token::Sign("[") => match self.bracket(Node::Current)? {
                Some(node) => Ok(node),
                None => self.list(),
            },
            Token::Sign("{") => self.map(),
            Token::Sign("!") => Ok(Node::Not(Box::new(self.expression(45)?))),
            Token::Sign("&") => Ok(Node::Reference(Box::new(self.expression(0)?))),
            Token::Sign("(") => {
                let inner = self.expression(0)?;
                self.expect(")")?;
                Ok(inner)
            }
            other => Err(format!("unexpected {}", describe_token(&other))),
        }
    }

    fn operator(&mut self, sign: &'static str, left: Node) -> Result<Node, String> {
        let left = Box::new(left);
        match sign {
            "." if self.skip("*") => {
                let each = self.projected(binding("."))?;
                Ok(Node::ProjectValues(left, Box::new(each)))
            }
            "." => Ok(Node::Then(left, Box::new(self.after_dot(binding("."))?))),
            "|" => Ok(Node::Then(left, Box::new(self.expression(binding("|"))?))),
            "||" => Ok(Node::Or(left, Box::new(self.expression(binding("||"))?))),
            "&&" => Ok(Node::And(left, Box::new(self.expression(binding("&&"))?))),
            "==" | "!=" | "<" | "<=" | ">" | ">=" => {
                Ok(Node::Compare(sign, left, Box::new(self.expression(binding(sign))?)))
            }
            "[?" => self.filter(*left),
            "[]" => self.flatten(*left),
            "[" => self.bracket(*left)?.ok_or_else(|| self.unexpected("an index, a slice or '*'")),
            other => Err(format!("unexpected '{other}'")),
        }
    }

    /// Parses the part after a dot.
    fn after_dot(&mut self, limit: u8) -> Result<Node, String> {
        match self.peek() {
            Some(Token::Name(_) | Token::Quoted(_) | Token::Sign("*")) => self.expression(limit),
            Some(Token::Sign("[")) => {
                self.next += 1;
                self.list()
            }
            Some(Token::Sign("{")) => {
                self.next += 1;
                self.map()
            }
            _ => Err(self.unexpected("a name, '*', '[' or '{' after '.'")),
        }
    }

    /// Parses the part of a projection that applies to each item.
    fn projected(&mut self, limit: u8) -> Result<Node, String> {
        match self.peek() {
            Some(Token::Sign(sign)) if binding(sign) >= PROJECTION_STOP => match *sign {
                "[" | "[?" => self.expression_of_item(limit),
                "." => {
                    self.next += 1;
                    self.after_dot(limit)
                }
                _ => Err(self.unexpected("'.', '[' or the end")),
            },
            _ => Ok(Node::Current),
        }
    }

    /// Parses an expression that begins with brackets, which select from each item.
    fn expression_of_item(&mut self, limit: u8) -> Result<Node, String> {
        self.expression(limit)
    }

    fn filter(&mut self, list: Node) -> Result<Node, String> {
        let condition = self.expression(0)?;
        self.expect("]")?;
        let each = if self.is_next("[]") { Node::Current } else { self.projected(binding("[?"))? };
        Ok(Node::Filter(Box::new(list), Box::new(condition), Box::new(each)))
    }

    fn flatten(&mut self, list: Node) -> Result<Node, String> {
        let each = self.projected(binding("[]"))?;
        Ok(Node::Project(Box::new(Node::Flatten(Box::new(list))), Box::new(each)))
    }

    /// Parses an index, a slice or a projection after an opening bracket; `None` if it is something else.
    fn bracket(&mut self, left: Node) -> Result<Option<Node>, String> {
        match self.peek() {
            Some(Token::Number(_) | Token::Sign(":")) => {}
            Some(Token::Sign("*")) if self.tokens.get(self.next + 1) == Some(&Token::Sign("]")) => {
                self.next += 2;
                let each = self.projected(binding("*"))?;
                return Ok(Some(Node::Project(Box::new(left), Box::new(each))));
            }
            _ => return Ok(None),
        }
        let (mut parts, mut part): (Slice, usize) = Default::default();
        loop {
            match self.advance() {
                Some(Token::Number(number)) if parts[part].is_none() => parts[part] = Some(number),
                Some(Token::Sign(":")) if part < 2 => part += 1,
                Some(Token::Sign("]")) => break,
                _ => return Err("invalid index or slice".into()),
            }
        }
        let node = match (part, parts[0]) {
            (0, Some(index)) => return Ok(Some(Node::Then(Box::new(left), Box::new(Node::Index(index))))),
            _ => Node::Then(Box::new(left), Box::new(Node::Slice(parts))),
        };
        let each = self.projected(binding("*"))?;
        Ok(Some(Node::Project(Box::new(node), Box::new(each))))
    }

    fn list(&mut self) -> Result<Node, String> {
        let mut nodes = Vec::new();
        loop {
            nodes.push(self.expression(0)?);
            if !self.skip(",") {
                break;
            }
        }
        self.expect("]")?;
        Ok(Node::List(nodes))
    }

    fn map(&mut self) -> Result<Node, String> {
        let mut fields = Vec::new();
        loop {
            let (Some(Token::Name(name)) | Some(Token::Quoted(name))) = self.advance() else {
                return Err("expected a name in '{'".into());
            };
            self.expect(":")?;
            fields.push((name, self.expression(0)?));
            if !self.skip(",") {
                break;
            }
        }
        self.expect("}")?;
        Ok(Node::Map(fields))
    }

    fn arguments(&mut self) -> Result<Vec<Node>, String> {
        let mut arguments = Vec::new();
        while !self.skip(")") {
            if !arguments.is_empty() {
                self.expect(",")?;
            }
            arguments.push(self.expression(0)?);
        }
        Ok(arguments)
    }
}

/// Returns the binding power of an operator; 0 for other signs.
fn binding(sign: &str) -> u8 {
    match sign {
        "|" => 1,
        "||" => 2,
        "&&" => 3,
        "==" | "!=" | "<" | "<=" | ">" | ">=" => 5,
        "[]" => 9,
        "*" => 20,
        "[?" => 21,
        "." => 40,
        "[" => 55,
        _ => 0,
    }
}

/// Returns the positions of a slice of a list, as in Python.
pub(super) fn slice(length: usize, [start, end, step]: Slice) -> Result<Box<dyn Iterator<Item = usize>>, String> {
    let step = step.unwrap_or(1);
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let (low, high) = if step < 0 { (-1, length - 1) } else { (0, length) };
    let clamp = |at: i64| (if at < 0 { at.saturating_add(length) } else { at }).clamp(low, high);
    let (first, last) = match step {
        0 => return Err("the step of a slice must not be 0".into()),
        1.. => (start.map_or(low, clamp), end.map_or(high, clamp)),
        _ => (start.map_or(high, clamp), end.map_or(low, clamp)),
    };
    let positions = std::iter::successors(Some(first), move |at| at.checked_add(step));
    let within = positions.take_while(move |at| if step > 0 { *at < last } else { *at > last });
    Ok(Box::new(within.filter_map(|at| usize::try_from(at).ok())))
}
