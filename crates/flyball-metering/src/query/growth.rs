//! An upper limit of the size of a query after SQLite has expanded it, from its text.
//!
//! SQLite copies a common table expression, a view and a subquery to each place that reads it, and puts the expressions
//! of its columns in place of their names. Both grow exponentially with the depth, and SQLite checks neither budget nor
//! memory meanwhile. So such queries are rejected before SQLite reads them.
//!
//! The limit: a select has its own tokens once for each select that it reads, since SQLite may merge it into each arm
//! of a union. The expressions that it reads occur as often as the most frequent name in its text, unless they are
//! materialized: then only their names do.

use super::lexer::{Token, tokens};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

/// Largest expanded query in nodes: some 200 MiB at most.
pub(super) const MAX_NODES: u64 = 2_000_000;
/// Deepest nesting of parentheses.
const MAX_DEPTH: usize = 100;
/// Most tokens that are read to find the size.
const MAX_WORK: usize = 4_000_000;

/// Keywords that cannot be names.
const RESERVED: &[&str] = &[
    "and", "as", "between", "case", "distinct", "else", "exists", "from", "group", "having", "in", "is", "limit",
    "not", "null", "on", "or", "order", "select", "then", "union", "using", "values", "when", "where",
];

/// The size of an expanded select.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Nodes that may be copied to each place that names a column.
    nodes: u64,
    /// Nodes that are copied to each select that reads it only.
    materialized: u64,
    selects: u64,
}

impl Size {
    /// The size of a table, whose columns are names.
    const TABLE: Self = Self { nodes: 64, materialized: 0, selects: 1 };
    const ONE: Self = Self { nodes: 1, materialized: 0, selects: 1 };
    const UNKNOWN: Self = Self { nodes: u64::MAX, materialized: u64::MAX, selects: u64::MAX };

    fn add(&mut self, other: Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.materialized = self.materialized.saturating_add(other.materialized);
        self.selects = self.selects.saturating_add(other.selects);
    }

    /// Returns the size of a view of this program.
    pub(super) fn of_view(sql: &str, is_fenced: bool) -> Self {
        const NODES_OF_SELECT: u64 = 20;
        let selects = u64::try_from(sql.matches("SELECT").count()).unwrap_or(u64::MAX);
        let materialized = selects.saturating_mul(NODES_OF_SELECT);
        Self { materialized, selects: if is_fenced { 1 } else { selects }, ..Self::TABLE }
    }

    /// Returns the size of a materialized select with these contents.
    pub(super) fn fenced(self) -> Self {
        Self { materialized: self.nodes.saturating_add(self.materialized), ..Self::TABLE }
    }

    /// Returns the size as a part of an expression.
    fn scalar(self) -> Self {
        Self { nodes: self.nodes.saturating_add(self.materialized), materialized: 0, ..self }
    }

    /// Returns true if SQLite may expand it.
    pub(super) fn is_allowed(self) -> bool {
        self.nodes.saturating_add(self.materialized) <= MAX_NODES
    }
}

/// Sizes of tables by name in lower case.
pub(super) type Sizes = BTreeMap<String, Size>;

/// Returns the size of a select over tables. Other tables have columns that are names.
pub(super) fn size(sql: &str, tables: &Sizes) -> Size {
    let tokens = tokens(sql);
    let Some(closing) = closing(&tokens) else { return Size::UNKNOWN };
    Text { tokens: &tokens, closing: &closing, work: Cell::new(0) }.select(0..tokens.len(), tables)
}

/// Returns the position of the parenthesis that closes each opening one; none if they are too deep or do not match.
fn closing(tokens: &[Token]) -> Option<BTreeMap<usize, usize>> {
    let (mut open, mut closing) = (Vec::new(), BTreeMap::new());
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Symbol('(') if open.len() == MAX_DEPTH => return None,
            Token::Symbol('(') => open.push(at),
            Token::Symbol(')') => drop(closing.insert(open.pop()?, at)),
            _ => {}
        }
    }
    open.is_empty().then_some(closing)
}

struct Text<'t> {
    tokens: &'t [Token],
    closing: &'t BTreeMap<usize, usize>,
    /// Tokens that were read.
    work: Cell<usize>,
}

/// A common table expression.
struct Definition {
    name: String,
    body: Range<usize>,
    is_materialized: bool,
}

impl Text<'_> {
    /// Returns the size of a select, with the common table expressions at its begin.
    fn select(&self, range: Range<usize>, tables: &Sizes) -> Size {
        let definitions = self.definitions(range.clone());
        let work = self.work.get() + (range.len() + tables.len()) * (1 + definitions.len());
        self.work.set(work);
        if work > MAX_WORK {
            return Size::UNKNOWN;
        }
        let mut tables = tables.clone();
        tables.extend(definitions.iter().map(|definition| (definition.name.clone(), Size::ONE)));
        if !self.define(&definitions, &mut tables) {
            return Size::UNKNOWN;
        }
        let bodies: Vec<Range<usize>> = definitions.into_iter().map(|definition| definition.body).collect();
        let read = self.read(range.clone(), &bodies, &tables);
        let (length, frequency) = self.frequency(range, &bodies);
        Size {
            nodes: length.saturating_mul(read.selects.max(1)).saturating_add(frequency.saturating_mul(read.nodes)),
            ..read
        }
    }

    /// Adds the sizes of common table expressions. Returns false if they are too large or read each other in a cycle.
    fn define(&self, definitions: &[Definition], tables: &mut Sizes) -> bool {
        // An expression may read those that follow it. Without a cycle, one round for each of them suffices.
        for _ in 0..=definitions.len() {
            let mut is_changed = false;
            for Definition { name, body, is_materialized } in definitions {
                // A recursive expression reads itself as a table.
                let known = tables.insert(name.clone(), Size::TABLE).unwrap_or_default();
                let size = self.select(body.clone(), tables);
                if !size.is_allowed() {
                    return false;
                }
                let size = if *is_materialized { size.fenced() } else { size };
                is_changed |= size != known;
                tables.insert(name.clone(), size);
            }
            if !is_changed {
                return true;
            }
        }
        false
    }

    /// Returns the common table expressions of a select, without those of its subqueries.
    fn definitions(&self, range: Range<usize>) -> Vec<Definition> {
        let (mut definitions, mut at) = (Vec::new(), range.start);
        while at < range.end {
            at = match self.definition(at) {
                Some(definition) => {
                    let end = definition.body.end;
                    definitions.push(definition);
                    end
                }
                None => self.closing.get(&at).copied().unwrap_or(at) + 1,
            };
        }
        definitions
    }

    /// Returns the definition that begins with a token: `name [(columns)] AS [[NOT] MATERIALIZED] (body)`.
    fn definition(&self, at: usize) -> Option<Definition> {
        let (name, mut at) = (self.name(at)?, at + 1);
        if let Some(end) = self.closing.get(&at) {
            at = end + 1;
        }
        if !self.is_word(at, "as") {
            return None;
        }
        at += 1;
        let is_not = self.is_word(at, "not");
        at += usize::from(is_not);
        let is_materialized = self.is_word(at, "materialized");
        at += usize::from(is_materialized);
        let body = self.closing.get(&at).map(|end| at + 1..*end)?;
        let is_materialized = is_materialized && !is_not;
        self.is_subquery(body.start).then_some(Definition { name, body, is_materialized })
    }

    /// Returns the sum of all that a select reads, and the number of its selects.
    fn read(&self, range: Range<usize>, without: &[Range<usize>], tables: &Sizes) -> Size {
        let (mut read, mut at) = (Size::default(), range.start);
        while at < range.end {
            if let Some(body) = without.iter().find(|body| body.start == at) {
                at = body.end;
                continue;
            }
            if ["select", "values"].iter().any(|word| self.is_word(at, word)) {
                read.add(Size::ONE);
            }
            let is_source = ["from", "join"].iter().any(|word| at > 0 && self.is_word(at - 1, word));
            if self.is_table_name(at) {
                let size = self.name(at).and_then(|name| tables.get(&name).copied());
                read.add(size.unwrap_or(if is_source { Size::TABLE } else { Size::default() }));
            }
            match self.closing.get(&at) {
                Some(end) if self.is_subquery(at + 1) => {
                    let size = self.select(at + 1..*end, tables);
                    read.add(if is_source { size } else { size.scalar() });
                    at = *end;
                }
                _ => at += 1,
            }
        }
        read
    }

    fn is_subquery(&self, at: usize) -> bool {
        ["select", "with", "values"].iter().any(|word| self.is_word(at, word))
    }

    /// Returns the number of tokens, and how often the most frequent name occurs.
    fn frequency(&self, range: Range<usize>, without: &[Range<usize>]) -> (u64, u64) {
        let (mut names, mut length) = (BTreeMap::<String, u64>::new(), 0);
        for at in range.filter(|at| !without.iter().any(|body| body.contains(at))) {
            length += 1;
            let is_alias = at > 0 && self.is_word(at - 1, "as");
            if let Some(name) = self.name(at).filter(|_| !is_alias && self.is_table_name(at)) {
                *names.entry(name).or_default() += 1;
            }
        }
        (length, names.into_values().max().unwrap_or(1))
    }

    /// Returns the token in lower case if it can be a name.
    fn name(&self, at: usize) -> Option<String> {
        match self.tokens.get(at)? {
            Token::Word(word) => {
                let word = word.to_ascii_lowercase();
                let is_name = !RESERVED.contains(&word.as_str()) && !word.starts_with(|c: char| c.is_ascii_digit());
                is_name.then_some(word)
            }
            Token::Quoted(name) | Token::Text(name) => Some(name.to_ascii_lowercase()),
            Token::Symbol(_) => None,
        }
    }

    /// Returns true if the token is neither the name of a function nor of the table before a column.
    fn is_table_name(&self, at: usize) -> bool {
        self.name(at).is_some() && !matches!(self.tokens.get(at + 1), Some(Token::Symbol('(' | '.')))
    }

    fn is_word(&self, at: usize, word: &str) -> bool {
        matches!(self.tokens.get(at), Some(Token::Word(found)) if found.eq_ignore_ascii_case(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(sql: &str) -> bool {
        size(sql, &Sizes::new()).is_allowed()
    }

    /// A chain of common table expressions, each of which reads the one before.
    fn chain(length: usize, read: impl Fn(usize) -> String) -> String {
        let mut expressions: Vec<String> = (1..=length).map(|at| format!("a{at} AS ({})", read(at - 1))).collect();
        expressions.insert(0, "a0 AS (SELECT 1 AS x)".to_owned());
        format!("WITH {} SELECT x FROM a{length}", expressions.join(", "))
    }

    #[test]
    fn queries_that_grow_exponentially_are_too_large() {
        let unions = |at: usize| [format!("SELECT x FROM a{at}").as_str(); 50].join(" UNION ALL ");
        for sql in [
            chain(4, unions),
            chain(4, |at| unions(at).replace("FROM a", "FROM \"A").replace(" UNION", "\" UNION") + "\""),
            chain(30, |at| format!("SELECT x + x AS x FROM a{at}")),
            chain(30, |at| format!("SELECT a{at}.x || a{at} . x x FROM a{at}")),
            chain(30, |at| format!("SELECT (SELECT x + x) AS x FROM a{at}")),
            chain(60, |at| format!("SELECT y AS x, x + y AS y FROM a{at}")),
            (0..30).fold("SELECT 1 AS x".to_owned(), |sql, _| format!("SELECT x + x AS x FROM ({sql})")),
            // In reverse order, and in a cycle.
            chain(30, |at| format!("SELECT x + x AS x FROM a{}", at + 2)).replace("FROM a31", "FROM t"),
            "WITH a AS (SELECT x, x FROM b), b AS (SELECT x, x FROM a) SELECT * FROM a".to_owned(),
            "SELECT ((1)".to_owned(),
            format!("SELECT {}1{}", "(".repeat(200), ")".repeat(200)),
        ] {
            assert!(!is_allowed(&sql), "{sql}");
        }
    }

    #[test]
    fn ordinary_queries_are_allowed() {
        for name in crate::query::builtin_names() {
            let query = crate::query::builtin(name).unwrap();
            assert!(is_allowed(&query.sql), "{name}");
        }
        for sql in [
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 10) SELECT x FROM n".to_owned(),
            chain(6, |at| format!("SELECT namespace, sum(x) AS x FROM a{at} GROUP BY namespace ORDER BY namespace")),
            chain(40, |at| format!("SELECT x FROM a{at}")),
            chain(30, |at| format!("SELECT x + x AS x FROM a{at}")).replace(" AS (", " AS MATERIALIZED ("),
            "SELECT sum(x) OVER w AS x FROM t WINDOW w AS (PARTITION BY y ORDER BY z)".to_owned(),
        ] {
            assert!(is_allowed(&sql), "{sql}");
        }
    }
}
