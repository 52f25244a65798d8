//! Tests of function costs: for all arguments, the charge of a call covers its run time.

use super::{Function, FunctionSet, Handling, find, functions};
use crate::context::{Budget, Call, RenderContext, VALUE_DEPTH};
use crate::helm::HelmVersion;
use crate::seed::Seed;
use crate::value::{IntKind, List, ListKind, Type, Value};
use flyball_core::{Clock, Rng};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Time limit of a step without optimization; optimized, a step takes about 20 ns.
const NANOSECONDS_PER_STEP: u64 = 2_000;
/// Times below this are ignored: the clock of a thread is too coarse.
const NOISE: u64 = 4_000_000;
/// Calls with a higher charge are expensive for all arguments, and skipped.
const EXPENSIVE: u64 = 500_000;

fn context() -> RenderContext<'static> {
    RenderContext::new(Clock::system(), &Seed::default(), None, Budget::trusted(), false)
}

/// Returns the CPU time of this thread in nanoseconds.
fn thread_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

/// Returns an argument of about this size; `shape` selects one of the values that a parameter accepts.
fn argument(context: &RenderContext<'_>, param: Type, shape: usize, size: usize) -> Value {
    let word = |at: usize| format!("word-{at} ");
    let text = |size: usize| (0..size / 8).map(word).collect::<String>();
    let items = |size: usize| (0..size / 32).map(|at| Value::str(word(at))).collect::<Vec<_>>();
    let map =
        |size: usize| Value::map((0..size / 32).map(|at| (word(at), Value::str(word(at)))).collect::<BTreeMap<_, _>>());
    match param {
        Type::Any | Type::Reflect => match shape % 5 {
            0 => Value::str(text(size)),
            1 => Value::list(items(size)),
            2 => map(size),
            3 => Value::int(size as i64),
            _ => Value::list(vec![map(size / 2), Value::list(items(size / 2))]),
        },
        Type::Bool => Value::Bool(shape.is_multiple_of(2)),
        Type::Int(IntKind::Int) => Value::int([2, 16, size as i64, -1][shape % 4]),
        Type::Int(kind) => Value::Int(kind, size as i64),
        Type::Float => Value::Float(size as f64),
        Type::Str => match shape % 5 {
            0 => Value::str(text(size)),
            1 => Value::str("a".repeat(size)),
            2 => Value::str("a"),
            3 => Value::str("word-[0-9]+ ".repeat(size / 512 + 1)),
            _ => Value::str("/.\n\"<".repeat(size / 8)),
        },
        Type::Bytes => Value::Bytes(text(size).into_bytes().into()),
        Type::List(ListKind::Strings) => Value::strings((0..size / 32).map(word)),
        Type::List(kind) => Value::List(List::new(kind, items(size))),
        Type::Map(_) => map(size),
        Type::Object(_) => {
            let now = *find("now", FunctionSet::Helm(HelmVersion::V3)).unwrap();
            call(context, &now, &[]).1.unwrap()
        }
    }
}

/// Calls a function like a template, unless it is expensive; returns its charge, its result and its duration.
fn call(context: &RenderContext<'_>, function: &Function, args: &[Value]) -> (u64, Option<Value>, u64) {
    let call = Call { context, templates: &Rc::default(), is_literal: false, is_evaluated: false };
    let before = context.steps();
    if (function.cost)(&call, args).is_err() || context.steps() - before > EXPENSIVE {
        return (context.steps() - before, None, 0);
    }
    let began = thread_time();
    let result = (function.call)(&call, args).ok();
    let took = thread_time() - began;
    if let Some(result) = &result {
        context.charge_shallow(0, std::slice::from_ref(result)).unwrap();
    }
    (context.steps() - before, result, took)
}

/// Returns charge and time of a call whose arguments have about this size.
fn measured(function: &Function, shapes: &[usize], size: usize) -> (u64, u64) {
    // The minimum of two measurements, because other threads share the processor caches.
    let measured = (0..2).map(|_| {
        let context = context();
        let argument = |(param, shape): (&Type, &usize)| argument(&context, *param, *shape, size);
        let args: Vec<Value> = function.params.iter().zip(shapes).map(argument).collect();
        let (charge, _, took) = call(&context, function, &args);
        (charge, took)
    });
    measured.min_by_key(|(_, took)| *took).unwrap()
}

#[test]
fn charges_cover_the_work_of_each_function() {
    let (rng, mut violations) = (Rng::from_seed(1), BTreeMap::new());
    for _ in 0..3 {
        let shapes: [usize; 5] = std::array::from_fn(|_| rng.below(20) as usize);
        for (name, function) in functions() {
            let [(charge, took), (twice, took_twice)] =
                [12 << 10, 24 << 10].map(|size| measured(&function, &shapes, size));
            for (charge, took) in [(charge, took), (twice, took_twice)] {
                if took > charge * NANOSECONDS_PER_STEP + NOISE {
                    violations.insert(name, format!("{took} ns for {charge} steps, arguments {shapes:?}"));
                }
            }
            let grows = took_twice as f64 * charge as f64 / (took.max(NOISE) as f64 * twice as f64);
            if grows > 2.5 {
                violations
                    .insert(name, format!("{grows} times the time for a step at twice the size, arguments {shapes:?}"));
            }
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn traversal_of_arguments_is_charged_completely() {
    let deep = (0..VALUE_DEPTH + 2).fold(Value::int(1), |inner, _| Value::list(vec![inner]));
    let looks_through = |function: &Function| matches!(function.handling, Handling::Makes | Handling::Marks);
    for (name, function) in functions().into_iter().filter(|(_, function)| looks_through(function)) {
        for (at, param) in function.params.iter().enumerate() {
            if !matches!(param, Type::Any | Type::Reflect | Type::List(_) | Type::Map(_)) {
                continue;
            }
            let context = context();
            let argument = |(other, param): (usize, &Type)| match param {
                Type::Map(_) if other == at => Value::map(BTreeMap::from([("deep".to_owned(), deep.clone())])),
                _ if other == at => deep.clone(),
                _ => argument(&context, *param, 0, 64),
            };
            let args: Vec<Value> = function.params.iter().enumerate().map(argument).collect();
            let call = Call { context: &context, templates: &Rc::default(), is_literal: false, is_evaluated: false };
            assert!((function.cost)(&call, &args).is_err(), "{name} is not charged for all of argument {at}");
        }
    }
}

#[test]
fn each_pattern_match_is_charged_for_the_remaining_text() {
    for name in ["regexFindAll", "regexReplaceAll", "regexReplaceAllLiteral", "regexSplit"] {
        let function = functions()[name];
        let charge = |size: usize| {
            let context = context();
            let (pattern, subject) = (Value::str("a"), Value::str("a".repeat(size)));
            let args = match name {
                "regexFindAll" | "regexSplit" => [pattern, subject, Value::int(-1)],
                _ => [pattern, subject, Value::str("b")],
            };
            call(&context, &function, &args).0
        };
        let (once, twice) = (charge(20_000), charge(40_000));
        assert!(once >= 20_000 * 20_000 / 2 / 64, "{name}: {once}");
        assert!(twice >= 3 * once, "{name}: {once}, and {twice} for a text twice as long");
    }
}

#[test]
fn searches_are_charged_for_the_states_of_their_pattern() {
    let subject = "ab".repeat(600_000);
    for name in [
        "regexMatch",
        "mustRegexMatch",
        "regexFind",
        "regexFindAll",
        "regexReplaceAll",
        "regexReplaceAllLiteral",
        "regexSplit",
    ] {
        let function = functions()[name];
        let run = |pattern: &str, subject: &str| {
            let budget = Budget::untrusted();
            let context = RenderContext::new(Clock::system(), &Seed::default(), None, budget, false);
            let last = if function.params.get(2) == Some(&Type::Str) { Value::str("x") } else { Value::int(-1) };
            let args = [Value::str(pattern), Value::str(subject), last];
            let call = Call { context: &context, templates: &Rc::default(), is_literal: false, is_evaluated: false };
            let args = &args[..function.params.len()];
            (function.cost)(&call, args).and_then(|()| (function.call)(&call, args)).map(drop)
        };
        let error = run("[ab]*a[ab]{900}c", &subject).unwrap_err();
        assert!(error.contains("limit of 50000000 steps"), "{name}: {error}");
        // Each match scans the rest: one search is within the budget, all together are not.
        let many = run("[ab]*a[ab]{90}c|a", &subject[..100_000]);
        assert_eq!(many.is_err(), !["regexMatch", "mustRegexMatch", "regexFind"].contains(&name), "{name}");
        for ordinary in [
            "[^a-z0-9]+",
            "a+[0-9]*$",
            "kubernetes\\.default\\.svc\\.cluster\\.local",
            "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        ] {
            assert_eq!(
                run(ordinary, &"kubernetes.default.svc.cluster.local\n".repeat(1_000)),
                Ok(()),
                "{name} {ordinary}"
            );
        }
    }
}
