//! Compiled expressions.

use super::budget::Budget;
use super::error::Error;
use super::location::located;
use super::memory;
use super::meter;
use super::rewrite::rewrite;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedEntryExpr};
use kube_cel::cel::objects::Value as Cel;
use kube_cel::cel::parser::{ExpressionReferences, ParseErrors, Parser};
use kube_cel::cel::{Context, ExecutionError, IdedExpr};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Program {
    /// The syntax tree of the source, with the standard macros expanded.
    written: IdedExpr,
    /// The syntax tree for the interpreter.
    ready: IdedExpr,
    /// Maximum stack size in bytes of a traversal.
    stack: usize,
}

/// Maximum number of characters of an expression.
const MAX_CHARS: usize = 100_000;
/// Maximum nesting depth of an expression; the operands of an operator are nested. No expression may overflow the stack
/// of the process.
const MAX_DEPTH: usize = 250;
/// Maximum number of reported errors.
const MAX_ERRORS: usize = 100;
/// Stack size of the parser in bytes: several times the usage of an expression at these limits without optimizations,
/// which exceeds the stack of most threads. Untouched pages use no memory.
const PARSER_STACK_BYTES: usize = 64 << 20;
/// Stack size of the interpreter for each level of nesting in bytes: twice its usage without optimizations.
const STACK_BYTES_PER_LEVEL: usize = 48 << 10;

/// Returns true if an expression is nested too deep for the parser.
fn too_deep(expression: &str) -> bool {
    /// A pair of brackets: the number of conditionals in it so far, and of operators since the last of them.
    #[derive(Default)]
    struct Level {
        choices: usize,
        operators: usize,
    }
    let (mut levels, mut level, mut quote) = (Vec::new(), Level::default(), None);
    let mut above = 0;
    let mut chars = expression.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => {
                above += 1 + level.choices + level.operators;
                levels.push(std::mem::take(&mut level));
            }
            (None, ')' | ']' | '}') => {
                level = levels.pop().unwrap_or_default();
                above = above.saturating_sub(1 + level.choices + level.operators);
            }
            (None, ',') => level = Level::default(),
            // The parser balances the tree of the operands of these operators.
            (None, '&' | '|') => level.operators = 0,
            (None, '?' | ':') => level = Level { choices: level.choices + 1, operators: 0 },
            (None, '!' | '-' | '+' | '*' | '/' | '%' | '<' | '>' | '=' | '.') => level.operators += 1,
            (None, _) => {}
        }
        if above + level.choices + level.operators > MAX_DEPTH {
            return true;
        }
    }
    false
}

/// Returns the nesting depth of an expression.
fn depth(of: &IdedExpr) -> usize {
    fn deepest<'a>(parts: impl IntoIterator<Item = &'a IdedExpr>) -> usize {
        parts.into_iter().map(depth).max().unwrap_or_default()
    }
    let parts = |entry: &IdedEntryExpr| match &entry.expr {
        EntryExpr::MapEntry(entry) => deepest([&entry.key, &entry.value]),
        EntryExpr::StructField(field) => depth(&field.value),
    };
    1 + match &of.expr {
        Expr::Call(call) => deepest(call.target.as_deref().into_iter().chain(&call.args)),
        Expr::Comprehension(of) => deepest([&of.iter_range, &of.accu_init, &of.loop_cond, &of.loop_step, &of.result]),
        Expr::List(list) => deepest(&list.elements),
        Expr::Map(map) => map.entries.iter().map(parts).max().unwrap_or_default(),
        Expr::Select(select) => depth(&select.operand),
        Expr::Struct(of) => of.entries.iter().map(parts).max().unwrap_or_default(),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => 0,
    }
}

/// Compiles an expression; `Err` lists its errors.
pub fn compile(expression: &str) -> Result<Program, String> {
    let size = expression.chars().count();
    if size > MAX_CHARS {
        return Err(format!(
            "ERROR: <input>:-1:0: expression code point size exceeds limit: size: {size}, limit {MAX_CHARS}"
        ));
    }
    if too_deep(expression) {
        return Err(format!("ERROR: <input>:-1:0: expression recursion limit exceeded: {MAX_DEPTH}"));
    }
    // The parser is third-party code with untrusted input: a panic in it is a compile error.
    let parse = || {
        let parser = Parser::new().max_recursion_depth(MAX_DEPTH as u16).enable_optional_syntax(true);
        let written = parser.parse(expression)?;
        let ready = memory::bound(meter::meter(rewrite(written.clone())));
        let stack = depth(&ready) * STACK_BYTES_PER_LEVEL;
        Ok::<_, ParseErrors>(Program { written, ready, stack })
    };
    match stacker::grow(PARSER_STACK_BYTES, || catch_unwind(AssertUnwindSafe(parse))) {
        Ok(Ok(program)) => Ok(program),
        Ok(Err(errors)) => {
            let position = |at: isize| usize::try_from(at).unwrap_or_default();
            let reported = errors.errors.iter().take(MAX_ERRORS);
            let reported =
                reported.map(|error| located(expression, position(error.pos.0), position(error.pos.1), &error.msg));
            let truncated = (errors.errors.len() > MAX_ERRORS).then(|| "1 more errors were truncated".into());
            Err(reported.chain(truncated).collect::<Vec<String>>().join("\n"))
        }
        Err(_) => Err("the expression cannot be parsed".into()),
    }
}

impl Program {
    /// Returns the syntax tree of the source.
    pub(super) fn expression(&self) -> &IdedExpr {
        &self.written
    }

    /// Runs a recursive function on a separate stack if the stack of the thread may be too small.
    pub(super) fn with_sufficient_stack<T>(&self, go: impl FnOnce() -> T) -> T {
        stacker::maybe_grow(self.stack, self.stack, go)
    }

    /// Returns the names that the expression uses.
    pub fn references(&self) -> ExpressionReferences<'_> {
        self.written.references()
    }

    /// Evaluates the program and charges the budget.
    pub(crate) fn run(&self, context: &Context<'_>, budget: &Budget) -> Result<Cel, Error> {
        if budget.is_stopped() {
            return Err(Error::OutOfBudget);
        }
        let resolve = || meter::measure(&self.ready, context);
        let before = budget.patterns.take().make_current();
        let outcome = self.with_sufficient_stack(|| catch_unwind(AssertUnwindSafe(resolve)));
        *budget.patterns.borrow_mut() = before.make_current();
        match outcome {
            Ok((_, cost)) if !budget.spend(cost) => Err(Error::OutOfBudget),
            Ok((_, cost)) if meter::is_exceeded(cost) => Err(Error::CostLimit),
            Ok((Ok(value), _)) => Ok(value),
            Ok((Err(error), _)) => Err(explain(error)),
            Err(_) => Err(Error::Function("the expression could not be evaluated".into())),
        }
    }
}

/// Converts an error of the interpreter into one with the message of the real server.
fn explain(error: ExecutionError) -> Error {
    Error::Function(match error {
        ExecutionError::NoSuchKey(key) => return Error::NoSuchKey(key.to_string()),
        ExecutionError::NoSuchOverload => return Error::NoSuchOverload,
        ExecutionError::DivisionByZero(_) => "division by zero".into(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".into(),
        ExecutionError::IndexOutOfBounds(index) => format!("index out of bounds: {index:?}"),
        ExecutionError::FunctionError { function, message } => match &*function {
            "quantity" => {
                r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".into()
            }
            "duration" => "type conversion error from 'string' to 'google.protobuf.Duration'".into(),
            "timestamp" => "type conversion error from 'string' to 'google.protobuf.Timestamp'".into(),
            _ => message,
        },
        error => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::BASE;
    use super::super::check::check_among;
    use super::*;

    #[test]
    fn deepest_allowed_nesting_fits_a_small_stack() {
        for (opening, closing) in
            [("ip(nsIP(", "))"), ("[f(", ")]"), ("(!(", "))"), ("{1: f(", ")}"), ("a.map(x, ", ")")]
        {
            let n = (MAX_DEPTH - 2) / opening.matches(['(', '[', '{', '!', '.', ':']).count();
            for end in [closing.repeat(n), String::new()] {
                let expression = format!("{}true{end}", opening.repeat(n));
                let small = std::thread::Builder::new().stack_size(512 << 10);
                let parsed = small.spawn(move || compile(&expression).is_ok()).unwrap().join().unwrap();
                assert_eq!(parsed, !end.is_empty(), "{opening}");
            }
        }
    }

    #[test]
    fn longest_allowed_chain_fits_a_small_stack() {
        let cases = [
            ("{}", ".a"),
            ("1", " + 1"),
            ("true", " ? true : true"),
            ("[1]", ".map(x, x)"),
            ("'a'", ".replace('a', 'b')"),
            ("optional.of({})", ".?a"),
        ];
        for (first, next) in cases {
            let operators = next.matches(['.', '+', '?', ':']).count();
            let expression = format!("{first}{}", next.repeat((MAX_DEPTH - 2) / operators));
            let small = std::thread::Builder::new().stack_size(512 << 10);
            let gone_through = move || {
                drop(check_among(&expression, &[]));
                compile(&expression).map(|program| drop(program.run(&BASE, &Budget::of_rules())))
            };
            assert_eq!(small.spawn(gone_through).unwrap().join().unwrap(), Ok(()), "{next}");
        }
    }

    #[test]
    fn too_deep_nesting_is_rejected_before_parsing() {
        for opening in ["(", "[", "!", "- ", "1+", "a?b:", "f(-"] {
            assert!(
                compile(&(opening.repeat(MAX_DEPTH + 1) + "true"))
                    .is_err_and(|reason| reason.contains("recursion limit")),
                "{opening}"
            );
        }
        for fine in [
            "'((((((((((((((((((((((((((((((((((' == \"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"",
            "((((((((((1))))))))))==1",
            "a.b.c.all(x, !x.d)",
            &format!("true{}", " && a.b.c == 1 || false".repeat(1000)),
        ] {
            assert!(compile(fine).is_ok(), "{fine}");
        }
    }

    #[test]
    fn errors_report_large_columns() {
        for column in [65_535, 65_536, 99_000] {
            let error = compile(&format!("{}$", " ".repeat(column))).unwrap_err();
            assert!(error.starts_with(&format!("ERROR: <input>:1:{}: ", column + 1)), "{error}");
        }
    }

    #[test]
    fn error_messages_are_bounded() {
        let errors = compile(&"$".repeat(3 * MAX_ERRORS)).unwrap_err();
        assert_eq!(errors.matches("ERROR").count(), MAX_ERRORS);
        assert!(errors.ends_with("\n1 more errors were truncated"), "{errors}");
        let error = compile(&" ".repeat(MAX_CHARS + 1)).unwrap_err();
        assert!(error.ends_with("size exceeds limit: size: 100001, limit 100000"), "{error}");
    }
}
