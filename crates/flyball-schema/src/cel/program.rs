//! An expression, parsed and made ready to run.

use super::meter::{self, Budget};
use super::rewrite::rewrite;
use kube_cel::cel::objects::Value as Cel;
use kube_cel::cel::parser::{ExpressionReferences, Parser};
use kube_cel::cel::{Context, ExecutionError, IdedExpr};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Program {
    /// As it was written, but for the language's own macros.
    written: IdedExpr,
    /// In the words that the interpreter knows.
    ready: IdedExpr,
}

/// How deep an expression may nest. The real server takes 250, but the parser here needs much stack for each level, and
/// whoever writes an expression must not be able to end the process.
const DEPTH: usize = 24;
/// How many operators may follow one another on a level, each of which nests in the one before.
const CHAIN: usize = 200;
/// How much stack the parser gets for itself: several times what an expression at these limits takes of it without
/// optimizations, which is more than most threads have in all. Only what it touches is ever taken.
const PARSING: usize = 64 << 20;
/// How much stack has to be left for an expression to run on the thread's own.
const RUNNING: usize = 1 << 20;

/// Tells whether an expression nests too deep, before anything is asked to parse it.
fn too_deep(expression: &str) -> bool {
    let (mut levels, mut prefixes, mut quote) = (vec![0_usize], 0_usize, None);
    let mut chars = expression.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => (quote, prefixes) = (Some(c), 0),
            (None, '(' | '[' | '{') => levels.push(0),
            (None, ')' | ']' | '}') => drop((levels.len() > 1).then(|| levels.pop())),
            (None, ',') => levels.last_mut().into_iter().for_each(|chain| *chain = 0),
            (None, '!' | '-' | '+' | '*' | '/' | '%' | '<' | '>' | '=' | '&' | '|' | '?' | ':' | '.') => {
                prefixes += usize::from(matches!(c, '!' | '-'));
                levels.last_mut().into_iter().for_each(|chain| *chain += 1);
            }
            (None, c) if c.is_whitespace() => {}
            (None, _) => prefixes = 0,
        }
        if levels.len() + prefixes > DEPTH || levels.iter().sum::<usize>() > CHAIN {
            return true;
        }
    }
    false
}

/// Compiles an expression; `Err` says what is wrong with it.
pub fn compile(expression: &str) -> Result<Program, String> {
    if too_deep(expression) {
        return Err(format!("ERROR: <input>:-1:0: expression recursion limit exceeded: {DEPTH}"));
    }
    // The parser is another's code and its input a user's: a panic in it is a refusal like any other.
    let parse = || Parser::new().enable_optional_syntax(true).parse(expression);
    match stacker::grow(PARSING, || catch_unwind(AssertUnwindSafe(parse))) {
        Ok(Ok(written)) => {
            let ready = meter::meter(rewrite(written.clone()));
            Ok(Program { written, ready })
        }
        Ok(Err(errors)) => Err(errors.to_string().replace("\n| ", "\n | ")),
        Err(_) => Err("the expression cannot be parsed".into()),
    }
}

impl Program {
    /// Returns the syntax tree as it was written.
    pub(super) fn expression(&self) -> &IdedExpr {
        &self.written
    }

    /// Returns the names that the expression uses.
    pub fn references(&self) -> ExpressionReferences<'_> {
        self.written.references()
    }

    /// Runs the program, at the cost of a budget; an error says why in the words of the real server.
    pub(super) fn run(&self, context: &Context<'_>, budget: &Budget) -> Result<Cel, String> {
        let resolve = || meter::measure(&self.ready, context);
        match stacker::maybe_grow(RUNNING, PARSING, || catch_unwind(AssertUnwindSafe(resolve))) {
            Ok((_, cost)) if !budget.take(cost) => Err(meter::OUT_OF_BUDGET.into()),
            Ok((_, cost)) if meter::is_exceeded(cost) => Err(meter::EXCEEDED.into()),
            Ok((Ok(value), _)) => Ok(value),
            Ok((Err(error), _)) => Err(explain(error)),
            Err(_) => Err("the expression could not be evaluated".into()),
        }
    }
}

fn explain(error: ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload => "no such overload".into(),
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nests_as_deep_as_may_be_takes_no_stack_of_the_thread() {
        for (opening, closing) in
            [("ip(nsIP(", "))"), ("[f(", ")]"), ("(!(", "))"), ("{1: f(", ")}"), ("a.map(x, ", ")")]
        {
            let n = (DEPTH - 2) / opening.matches(['(', '[', '{', '!']).count();
            for end in [closing.repeat(n), String::new()] {
                let expression = format!("{}true{end}", opening.repeat(n));
                let small = std::thread::Builder::new().stack_size(512 << 10);
                let parsed = small.spawn(move || compile(&expression).is_ok()).unwrap().join().unwrap();
                assert_eq!(parsed, !end.is_empty(), "{opening}");
            }
        }
    }

    #[test]
    fn what_nests_too_deep_is_not_parsed() {
        for (opening, n) in [("(", 60), ("[", 60), ("!", 2000), ("- ", 2000), ("1+", 3000), ("a?b:", 900), ("f(-", 60)]
        {
            assert!(
                compile(&(opening.repeat(n) + "true")).is_err_and(|why| why.contains("recursion limit")),
                "{opening}"
            );
        }
        for fine in [
            "'((((((((((((((((((((((((((((((((((' == \"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"",
            "((((((((((1))))))))))==1",
            "a.b.c.all(x, !x.d)",
        ] {
            assert!(compile(fine).is_ok(), "{fine}");
        }
    }
}
