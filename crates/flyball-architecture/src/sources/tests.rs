use super::Sources;
use crate::{arrow, document, page, root};

fn sources(files: &[(&str, &str)]) -> Sources {
    Sources::parse(files.iter().map(|(file, text)| (format!("src/{file}"), (*text).to_owned())).collect())
}

/// Returns the arrows between top-level modules as `from to`, for a crate with the modules `a`, `b` and `c`.
fn arrows(lib: &str, a: &str) -> Vec<String> {
    let lib = format!("mod a; mod b; mod c; {lib}");
    let crate_ = sources(&[
        ("lib.rs", &lib),
        ("a.rs", a),
        ("b.rs", "pub struct B; pub mod inner {}"),
        ("c.rs", "pub struct C;"),
    ]);
    crate_.arrows.iter().map(|arrow| format!("{} {}", arrow.from, arrow.to)).collect()
}

#[test]
fn paths_are_arrows_in_any_position() {
    for code in [
        "use crate::b::B;",
        "use super::b::{self};",
        "use crate::{b::B};",
        "use {serde::Serialize, crate::b as other};",
        "fn f() -> crate::b::B { todo!() }",
        "fn f() { let x = super::b::B; }",
        "fn f() { use crate::b::B; }",
        "fn f() { println!(\"{:?}\", crate::b::B); }",
        "macro_rules! m { () => { $crate::b::B } }",
        "#[derive(crate::b::Derive)] struct A;",
        "struct A { #[serde(with = \"crate::b\")] x: u8 }",
        "pub(in crate::c) struct A(crate::b::B);",
        "mod inner { fn f() { super::super::b::f() } }",
        "#[cfg(not(test))] use crate::b;",
        "#[cfg(any(test, feature = \"testing\"))] use crate::b;",
    ] {
        assert_eq!(arrows("", code), ["a b"], "{code}");
    }
}

#[test]
fn foreign_and_local_paths_are_not_arrows() {
    for code in [
        "use serde::b::B;",
        "use ::b::B;",
        "fn f() { ::b::f(); <B>::b::f(); x.b::<u8>(); }",
        "pub(crate) fn f(b: u8) { b.c(); }",
        "// crate::b\n/// [`crate::b`]\nstruct A;",
        "const TEXT: &str = \"crate::b\";",
        "fn f() -> impl Sized + use<'static> { crate::a::f() }",
    ] {
        assert_eq!(arrows("", code), Vec::<String>::new(), "{code}");
    }
}

#[test]
fn code_under_cfg_test_has_no_arrows() {
    for code in [
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(all(test, unix))] fn f() { crate::b::f() }",
        "#[cfg(test)] use crate::{b::B, c::C};",
        "#[cfg(test)] impl A { fn f() { crate::b::f() } }",
        "struct A { #[cfg(test)] b: crate::b::B, c: u8 }",
        "#![cfg(test)] use crate::b;",
        "#[cfg(doctest)] use crate::b;",
    ] {
        assert_eq!(arrows("", code), Vec::<String>::new(), "{code}");
    }
    assert_eq!(arrows("", "#[cfg(test)] use crate::b; use crate::c;"), ["a c"]);
    assert_eq!(arrows("", "struct A { #[cfg(test)] b: u8, c: crate::c::C }"), ["a c"]);
}

#[test]
fn reexports_resolve_to_their_origin() {
    assert_eq!(arrows("pub use b::B;", "use crate::B;"), ["a b"]);
    assert_eq!(arrows("pub use b::B as Other;", "fn f(x: crate::Other) {}"), ["a b"]);
    assert_eq!(arrows("pub use b::*;", "use crate::B;"), ["a b"]);
    assert_eq!(arrows("use b::B;", "use super::*; struct A(B);"), ["a b"]);
    assert_eq!(arrows("pub use b; pub use serde::B;", "use crate::B;"), Vec::<String>::new());
    assert_eq!(arrows("pub struct Own;", "use crate::Own;"), Vec::<String>::new());
    assert_eq!(arrows("pub use loops; pub use self::again as again;", "use crate::again;"), Vec::<String>::new());
    assert_eq!(arrows("", "use crate::b; fn f() { b::inner::f() }"), ["a b", "a b"]);
}

#[test]
fn layers_follow_the_table() {
    let crate_ =
        sources(&[("lib.rs", "mod a; mod b; use a::A;"), ("a.rs", "\nuse crate::b::B;"), ("b.rs", "struct B;")]);
    assert_eq!(crate_.layer_errors(&[("b", &[]), ("a", &["b"])]), Vec::<String>::new());
    assert_eq!(
        crate_.layer_errors(&[("b", &[]), ("a", &[])]),
        ["src/a.rs:2: a → b (`crate::b::B`): not in the table of layers"]
    );
    assert_eq!(
        crate_.layer_errors(&[("a", &["b"]), ("b", &[])]),
        ["the row \"a\" of the table names \"b\", which has no row above it"]
    );
    assert_eq!(
        crate_.layer_errors(&[("b", &[]), ("a", &["b"]), ("c", &[])]),
        ["the row \"c\" of the table names no module"]
    );
    assert_eq!(crate_.layer_errors(&[("b", &[]), ("b", &[]), ("a", &["b"])]), ["the table has two rows for \"b\""]);
    assert_eq!(crate_.layer_errors(&[("b", &[])]), ["the table has no row for the module \"a\""]);
}

#[test]
#[should_panic(expected = "src/a.rs:1: a → b (`crate::b::B`): not in the table of layers")]
fn check_panics_with_its_findings() {
    sources(&[("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "")])
        .check(&[("a", &[]), ("b", &[])]);
}

#[test]
fn cycles_are_found_in_nested_modules() {
    let nested = |c: &str| {
        let files = [
            ("lib.rs", "mod a;"),
            ("a.rs", "mod b; mod c; mod d;"),
            ("a/b.rs", "use super::c::C;"),
            ("a/c.rs", c),
            ("a/d.rs", ""),
        ];
        arrow::cycles(&sources(&files).arrows)
    };
    assert_eq!(nested("use super::d::D; use super::A;"), Vec::<String>::new());
    assert_eq!(
        nested("mod inner { use crate::a::b::B; fn f() { super::super::b::f() } }"),
        [
            "cycle in a: b, c\n  src/a/b.rs:1: b → c (`super::c::C`)\n  src/a/c.rs:1: c → b (`crate::a::b::B`), and 1 more"
        ]
    );
}

#[test]
fn cycles_of_several_modules_are_found() {
    let cycles = |c: &str| {
        let files =
            [("lib.rs", "mod a; mod b; mod c;"), ("a.rs", "use crate::b;"), ("b.rs", "use crate::c;"), ("c.rs", c)];
        arrow::cycles(&sources(&files).arrows)
    };
    assert_eq!(cycles(""), Vec::<String>::new());
    let found = cycles("use crate::a;");
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("cycle in crate: a, b, c\n"), "{found:?}");
}

#[test]
fn files_without_mod_line_are_unreachable() {
    let crate_ = sources(&[
        (
            "lib.rs",
            "mod a; #[cfg(feature = \"x\")] mod b; #[cfg(not(feature = \"x\"))] #[path = \"without/x.rs\"] mod b;",
        ),
        ("a/mod.rs", "mod inner { mod deep; } #[cfg(test)] mod tests;"),
        ("a/inner/deep.rs", ""),
        ("a/tests.rs", ""),
        ("a/lost.rs", ""),
        ("b.rs", "mod c;"),
        ("b/c.rs", ""),
        ("without/x.rs", "use crate::a;"),
        ("main.rs", "mod program;"),
        ("program.rs", ""),
        ("bin/tool.rs", ""),
    ]);
    assert_eq!(crate_.unreachable_files(), ["src/a/lost.rs: no `mod` line leads here"]);
    assert_eq!(crate_.arrows.len(), 1, "both files of `b` belong to it");
}

#[test]
#[should_panic(expected = "src/b.rs: a `mod` line leads to it, and it is missing")]
fn missing_file_is_reported() {
    sources(&[("lib.rs", "mod a; mod b;"), ("a.rs", "")]);
}

/// Returns the banned words of a library.
fn banned_words(lib: &str) -> Vec<String> {
    sources(&[("lib.rs", lib)]).scan.words.iter().map(ToString::to_string).collect()
}

#[test]
fn banned_words_are_reported_in_names_and_doc_comments() {
    let text = "//! Where the queue is.\n/// Holds keys.\n/// What else.\nstruct Known;\n\n/// How keys wait.\nfn whole() { const LONGEST: u8 = 0; }\n\
                /// Whatever.\nenum Cached { Known, Seen }\n/// Tells the time.\n#[cfg(test)]\nmod tests { fn told() {} }\n/// Why not.\nfn f() {}";
    assert_eq!(
        banned_words(text),
        [
            "src/lib.rs:1: doc comment begins with \"Where\": Where the queue is.",
            "src/lib.rs:4: the name `type Known` is banned",
            "src/lib.rs:6: doc comment begins with \"How\": How keys wait.",
            "src/lib.rs:7: the name `fn whole` is banned",
            "src/lib.rs:7: the name `const LONGEST` is banned",
            "src/lib.rs:10: doc comment begins with \"Tells\": Tells the time.",
            "src/lib.rs:12: the name `fn told` is banned",
            "src/lib.rs:13: doc comment begins with \"Why\": Why not.",
        ]
    );
}

#[test]
fn banned_words_are_found_inside_names() {
    let text = "struct ChangeBell; enum Belly {}\ntype V1PatienceOf = u8;\nstruct Pass; struct Passage; struct FirstPass;\n\
                const LONGEST_WAIT: u8 = 0; static SLOT_PATIENCE: u8 = 0; const ALMOST_ALL: u8 = 0;\nfn at_most() {}\n\
                const DEEPEST: u8 = 0;";
    assert_eq!(
        banned_words(text),
        [
            "src/lib.rs:1: the name `type ChangeBell` is banned",
            "src/lib.rs:2: the name `type V1PatienceOf` is banned",
            "src/lib.rs:3: the name `type Pass` is banned",
            "src/lib.rs:4: the name `const LONGEST_WAIT` is banned",
            "src/lib.rs:4: the name `const SLOT_PATIENCE` is banned",
            "src/lib.rs:6: the name `const DEEPEST` is banned",
        ]
    );
}

/// Returns the errors of a root with a module `a`.
fn root_errors(file: &str, text: &str, a: &str) -> Vec<String> {
    root::errors(&sources(&[(file, &format!("mod a; {text}")), ("a.rs", a)]).scan)
}

#[test]
fn root_of_a_library_with_modules_has_no_items() {
    for item in [
        "fn f() {}",
        "pub async fn f() {}",
        "#[derive(Debug)] pub(crate) struct A { a: u8 }",
        "enum A {}",
        "trait A {}",
        "type A = u8;",
        "const A: u8 = 1;",
        "static A: u8 = 1;",
        "impl crate::a::A { fn g() {} }",
        "#[cfg(feature = \"x\")] fn f() {}",
        "pub unsafe extern \"C\" fn f() {}",
    ] {
        assert_eq!(root_errors("lib.rs", item, "").len(), 1, "{item}");
        assert_eq!(root::errors(&sources(&[("lib.rs", item)]).scan), Vec::<String>::new(), "{item}");
    }
    assert_eq!(
        root_errors("lib.rs", "\nstruct A; impl A {}", ""),
        [
            "src/lib.rs:2: the root of a crate with modules declares `A`",
            "src/lib.rs:2: the root of a crate with modules has an `impl`"
        ]
    );
    for allowed in [
        "pub use a::A;",
        "pub mod inner { pub use crate::a::A; struct B; fn f() {} }",
        "extern crate alloc;",
        "macro_rules! m { () => { fn f() {} } }",
        "#[macro_export] macro_rules! m { () => {} } m!();",
        "#[cfg(doctest)] #[doc = include_str!(\"README.md\")] struct Readme;",
        "#[cfg(test)] fn f() {}",
    ] {
        assert_eq!(root_errors("lib.rs", allowed, ""), Vec::<String>::new(), "{allowed}");
    }
}

#[test]
fn modules_of_a_program_do_not_use_its_root() {
    let main = "struct Args; fn main() { a::f() } use std::fs; macro_rules! m { () => {} }";
    for code in [
        "use crate::Args;",
        "fn f(x: super::Args) {}",
        "use super::*; fn f(x: Args) {}",
        "fn f() { crate::Args::new() }",
    ] {
        assert_eq!(root_errors("main.rs", main, code).len(), 1, "{code}");
    }
    assert_eq!(root_errors("main.rs", main, "\nuse crate::Args;"), ["src/a.rs:2: a uses `crate::Args` of the root"]);
    for code in ["use crate::fs;", "crate::m!();", "mod main {} fn f() { main::f() }", "#[cfg(test)] use crate::Args;"]
    {
        assert_eq!(root_errors("main.rs", main, code), Vec::<String>::new(), "{code}");
    }
}

#[test]
fn forbidden_identifiers_are_found_in_submodules() {
    let crate_ = sources(&[
        ("lib.rs", "mod a; mod b; pub use core::Status;"),
        ("a.rs", "mod c; /// Status\nmod d { #[cfg(test)] use core::Status; }"),
        ("a/c.rs", "\nfn f() -> core::Status { \"Status\" }"),
        ("b.rs", "struct StatusCode;"),
    ]);
    assert_eq!(crate_.occurrences(&["b", "a::d"], "Status"), Vec::<String>::new());
    assert_eq!(crate_.occurrences(&["a"], "Status"), ["src/a/c.rs:2: Status must not occur in a::c"]);
    assert_eq!(crate_.occurrences(&["crate"], "Status").len(), 2);
    assert_eq!(crate_.occurrences(&["gone"], "Status"), ["there is no module \"gone\""]);
}

#[test]
fn document_matches_the_table_of_layers() {
    let table: &[(&str, &[&str])] = &[("a", &[]), ("b", &["a"]), ("c", &["a", "b"])];
    let errors = |rows: &str| {
        let text = format!(
            "# Layers\n\n| `x` | |\n\n## here\n\n| Module | Imports |\n|---|---|\n{rows}\n## next\n| `y` | |\n"
        );
        document::errors(&text, "here", table)
    };
    assert_eq!(errors("| `a` | | the ground |\n| `b` | `a` | |\n| `c` | `a`, `b` | |\n"), Vec::<String>::new());
    assert_eq!(
        errors("| `a` | | |\n| `b` | | |\n| `c` | `a`, `b` | |\n"),
        ["here: no row \"| `b` | `a`\"", "here: unexpected row \"| `b` |\""]
    );
    assert_eq!(
        errors("| `b` | `a` | |\n| `a` | | |\n| `c` | `a`, `b` | |\n"),
        ["here: the rows are in another order than those of the table of layers"]
    );
    assert_eq!(document::errors("", "here", table), ["there is no heading \"here\""]);
}

#[test]
fn breakable_wide_lines_are_reported() {
    let wide = |before: &str, filler: &str, after: &str| {
        let text = format!("fn f() {{}}\n{before}{}{after}\nfn g() {{}}\n", filler.repeat(60));
        sources(&[("lib.rs", &text)]).wide_lines
    };
    assert_eq!(wide("// ", "a ", ""), ["src/lib.rs:2: 123 columns, 120 at most"]);
    for (before, after) in [("/// ", "\nstruct A;"), ("//! \"", "\""), ("const A: [u8; 0] = [", "];"), ("// é ", "")] {
        assert_eq!(wide(before, "  ", after).len(), 1, "{before}");
    }
    for (before, after) in
        [("const A: &str = \"", "\";"), ("const A: &str = \"\n// ", "\";"), ("//! | ", ""), ("/// <https://a.io/", ">")]
    {
        assert_eq!(wide(before, "ab", after), Vec::<String>::new(), "{before}");
    }
    assert_eq!(wide("// ", "a", ""), Vec::<String>::new());
    assert_eq!(wide("", "é", &"é".repeat(60)), Vec::<String>::new(), "120 characters of two bytes each");
}

#[test]
fn wide_prose_and_banned_phrases_of_pages_are_reported() {
    let wide = "a ".repeat(61);
    let errors = |text: &str| page::errors("a.md", text);
    assert_eq!(errors(&format!("# A\n\n{wide}\n")), ["a.md:3: 122 columns, 120 at most"]);
    for exempt in
        [format!("| {wide} |"), format!("<!-- {wide} -->"), format!("```text\n{wide}\n```"), format!("    {wide}")]
    {
        assert_eq!(errors(&format!("text\n\n{exempt}\n\ntext")), Vec::<String>::new(), "{exempt}");
    }
    assert_eq!(errors(&format!("- item\n    {wide}")).len(), 1, "a continued item is no code block");
    let phrases = "Whoever\nsays\nso.\n\nNot any\nmore.\n\n| begun |\n\n```\nbegun\n```\n\n    begun\n\nHas any\n\nmore begunk.\n";
    assert_eq!(
        errors(phrases),
        [
            "a.md:2: the phrase \"says so\" is banned",
            "a.md:1: the phrase \"whoever\" is banned",
            "a.md:5: the phrase \"any more\" is banned",
            "a.md:8: the phrase \"begun\" is banned",
        ]
    );
}
