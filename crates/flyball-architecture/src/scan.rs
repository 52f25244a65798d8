//! Parser of the modules of a crate: follows `mod` lines and reads the tokens of the files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};

use crate::tree::{Location, Module, ModulePath, Modules};
use crate::words::{self, Finding, Kind};

const CRATE_ROOTS: &[&str] = &["src/lib.rs", "src/main.rs"];

/// A parsed crate.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The modules of the library, or of the program if the crate has no library.
    pub(crate) modules: Modules,
    /// The files that `mod` lines reach.
    pub(crate) reached: BTreeSet<String>,
    pub(crate) words: Vec<Finding>,
    /// The items in the root of `modules`, except modules, imports and macros; an `impl` has no name.
    pub(crate) root_items: Vec<(Option<String>, Location)>,
    /// True if the crate has no library.
    pub(crate) is_program: bool,
}

impl Scan {
    /// Parses the files of a crate, by their paths in its directory.
    pub(crate) fn new(files: &BTreeMap<String, String>) -> Self {
        let mut scan = Self::default();
        let mut root_items = Vec::new();
        let bins = files.keys().filter(|file| file.starts_with("src/bin/") && file.matches('/').count() == 2);
        let roots = CRATE_ROOTS.iter().map(|root| (*root).to_owned()).filter(|root| files.contains_key(root));
        for (nth, root) in roots.chain(bins.cloned()).enumerate() {
            let mut tree = Modules::default();
            scan.file(files, &mut tree, &root, "src".into(), Vec::new(), false);
            if nth == 0 {
                scan.modules = tree;
                scan.is_program = root != CRATE_ROOTS[0];
                root_items = std::mem::take(&mut scan.root_items);
            }
        }
        scan.root_items = root_items;
        scan
    }

    /// Parses a file and the files that it reaches.
    fn file(
        &mut self,
        files: &BTreeMap<String, String>,
        modules: &mut Modules,
        file: &str,
        folder: PathBuf,
        path: ModulePath,
        test: bool,
    ) {
        let Some(text) = files.get(file) else {
            assert!(!file.starts_with("src/"), "{file}: a `mod` line leads to it, and it is missing");
            return;
        };
        self.reached.insert(file.to_owned());
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
        let (words, root_items) = (&mut self.words, &mut self.root_items);
        let mut reader = Reader { file, modules, words, root_items, found: Vec::new() };
        reader.tokens(&Scope { path, folder, test, is_body: false }, tokens);
        for ModFile { path, folder, named, test } in reader.found {
            let parent = Path::new(file).parent().unwrap_or(Path::new(""));
            let name = path.last().expect("a module has a name").clone();
            let (file, folder) = match named {
                Some(named) => {
                    let file = normalize(&parent.join(named));
                    let folder = Path::new(&file).parent().unwrap_or(Path::new("")).to_owned();
                    (file, folder)
                }
                None => {
                    let file = normalize(&folder.join(format!("{name}.rs")));
                    let folder = folder.join(name);
                    let long = normalize(&folder.join("mod.rs"));
                    (if files.contains_key(&long) { long } else { file }, folder)
                }
            };
            self.file(files, modules, &file, folder, path, test);
        }
    }
}

/// Returns the path without `.` and `..`.
fn normalize(path: &Path) -> String {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir if !parts.is_empty() => drop(parts.pop()),
            Component::CurDir => {}
            part => parts.push(part.as_os_str().to_string_lossy()),
        }
    }
    parts.join("/")
}

/// A `mod name;` line.
struct ModFile {
    path: ModulePath,
    folder: PathBuf,
    named: Option<String>,
    test: bool,
}

/// The module that tokens belong to.
#[derive(Clone)]
struct Scope {
    path: ModulePath,
    /// The directory of child modules.
    folder: PathBuf,
    test: bool,
    /// True within braces, where declared names are not items of the module.
    is_body: bool,
}

/// The parser of one file.
struct Reader<'a> {
    file: &'a str,
    modules: &'a mut Modules,
    words: &'a mut Vec<Finding>,
    root_items: &'a mut Vec<(Option<String>, Location)>,
    found: Vec<ModFile>,
}

/// The attributes of an item.
#[derive(Default)]
struct Attributes {
    path: Option<String>,
    is_test: bool,
    has_doc: bool,
}

impl Reader<'_> {
    fn at(&self, span: Span) -> Location {
        Location { file: self.file.to_owned(), line: span.start().line }
    }

    /// The module of a scope; `None` under `cfg(test)`.
    fn module(&mut self, scope: &Scope) -> Option<&mut Module> {
        (!scope.test).then(|| self.modules.entry(&scope.path))
    }

    fn tokens(&mut self, scope: &Scope, tokens: TokenStream) {
        let mut scope = scope.clone();
        self.module(&scope);
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut attributes = Attributes::default();
        let mut next = 0;
        while next < tokens.len() {
            if is_punct(tokens.get(next), '#') {
                let is_inner = is_punct(tokens.get(next + 1), '!');
                if let Some(TokenTree::Group(group)) = tokens.get(next + 1 + usize::from(is_inner)) {
                    self.attribute(&scope, &mut attributes, group);
                    scope.test |= is_inner && attributes.is_test;
                    next += 2 + usize::from(is_inner);
                    continue;
                }
            }
            let attributes = std::mem::take(&mut attributes);
            if attributes.is_test && !scope.test {
                let end = next + item_length(&tokens[next..]);
                let item = Scope { test: true, ..scope.clone() };
                let mut rest = next;
                while rest < end {
                    rest += self.token(&item, &attributes, &tokens[rest..end]);
                }
                next = end;
            } else {
                next += self.token(&scope, &attributes, &tokens[next..]);
            }
        }
    }

    /// Parses the first token and the tokens that belong to it, and returns their number.
    fn token(&mut self, scope: &Scope, attributes: &Attributes, tokens: &[TokenTree]) -> usize {
        match &tokens[0] {
            TokenTree::Group(group) => {
                self.tokens(&Scope { is_body: true, ..scope.clone() }, group.stream());
                1
            }
            TokenTree::Ident(ident) => match &*ident.to_string() {
                "mod" => self.module_item(scope, attributes, tokens),
                "use" => self.import(scope, tokens),
                "pub" => 1 + usize::from(is_restriction(tokens.get(1))),
                keyword => {
                    self.declaration(scope, keyword, tokens);
                    self.path(scope, tokens)
                }
            },
            // `::path` and `<T>::path` do not start in this module, and `.name` is a field or a method.
            TokenTree::Punct(_) if is_colons(tokens) && is_ident(tokens.get(2)) => 2 + path(&tokens[2..]).1,
            TokenTree::Punct(punct) if punct.as_char() == '.' && is_ident(tokens.get(1)) => 2,
            _ => 1,
        }
    }

    fn attribute(&mut self, scope: &Scope, attributes: &mut Attributes, group: &Group) {
        let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
        let Some(TokenTree::Ident(name)) = tokens.first() else { return };
        let value = tokens.get(2).filter(|_| is_punct(tokens.get(1), '=')).and_then(string);
        match (&*name.to_string(), value) {
            ("doc", Some(line)) => {
                if !attributes.has_doc {
                    let at = self.at(group.span_open());
                    self.words.extend(words::doc(&line, at));
                }
                attributes.has_doc = true;
            }
            ("path", Some(path)) => attributes.path = Some(path),
            ("cfg", None) => attributes.is_test |= tokens.get(1).is_some_and(is_test_predicate),
            _ => {
                self.tokens(scope, group.stream());
                self.quoted_paths(scope, group.stream());
            }
        }
    }

    /// Parses the paths in the strings of an attribute: `#[serde(with = "crate::quantity")]`.
    fn quoted_paths(&mut self, scope: &Scope, tokens: TokenStream) {
        for token in tokens {
            if let TokenTree::Group(group) = &token {
                self.quoted_paths(scope, group.stream());
            }
            let text = string(&token).unwrap_or_default();
            if ["crate::", "super::", "self::"].iter().any(|prefix| text.starts_with(prefix))
                && let Ok(path) = text.parse::<TokenStream>()
            {
                let here = |mut part: TokenTree| {
                    part.set_span(token.span());
                    part
                };
                self.tokens(scope, path.into_iter().map(here).collect());
            }
        }
    }

    fn module_item(&mut self, scope: &Scope, attributes: &Attributes, tokens: &[TokenTree]) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.get(1) else { return 1 };
        let name = plain(&name.to_string());
        let path = [&*scope.path, std::slice::from_ref(&name)].concat();
        match tokens.get(2) {
            Some(TokenTree::Group(body)) => {
                let folder = scope.folder.join(name);
                self.tokens(&Scope { path, folder, test: scope.test, is_body: false }, body.stream());
                3
            }
            Some(semicolon) if is_punct(Some(semicolon), ';') => {
                let (folder, named) = (scope.folder.clone(), attributes.path.clone());
                self.found.push(ModFile { path, folder, named, test: scope.test });
                3
            }
            _ => 1,
        }
    }

    /// Records the name that a keyword declares.
    fn declaration(&mut self, scope: &Scope, keyword: &str, tokens: &[TokenTree]) {
        let is_in_root = scope.path.is_empty() && !scope.is_body && !scope.test;
        let kind = match keyword {
            "impl" if is_in_root => {
                let at = self.at(tokens[0].span());
                self.root_items.push((None, at));
                return;
            }
            "struct" | "enum" | "union" | "trait" | "type" => Kind::Type,
            "fn" => Kind::Function,
            "const" | "static" => Kind::Constant,
            "macro_rules" => {
                if let Some(TokenTree::Ident(name)) = tokens.get(2) {
                    self.declare(scope, name.to_string());
                }
                return;
            }
            _ => return,
        };
        let is_mutable = tokens.get(1).is_some_and(|token| token.to_string() == "mut");
        let Some(TokenTree::Ident(ident)) = tokens.get(1 + usize::from(is_mutable)) else { return };
        let name = plain(&ident.to_string());
        let at = self.at(ident.span());
        if is_in_root {
            self.root_items.push((Some(name.clone()), at.clone()));
        }
        self.words.extend(words::name(kind, &name, at));
        self.declare(scope, name);
    }

    fn declare(&mut self, scope: &Scope, name: String) {
        if let Some(module) = self.module(scope).filter(|_| !scope.is_body) {
            module.items.insert(name);
        }
    }

    /// Records a path in code, and its identifiers.
    fn path(&mut self, scope: &Scope, tokens: &[TokenTree]) -> usize {
        let (path, length) = path(tokens);
        let at = self.at(tokens[0].span());
        if let Some(module) = self.module(scope) {
            module.identifiers.extend(path.iter().map(|name| (name.clone(), at.clone())));
            // The import of a single name is already recorded as an arrow, unless it is a glob import.
            let is_type = path[0].starts_with(char::is_uppercase);
            if path.len() > 1 || is_type && !module.globs.is_empty() {
                module.paths.push((path, at));
            }
        }
        length
    }

    fn import(&mut self, scope: &Scope, tokens: &[TokenTree]) -> usize {
        let end = tokens.iter().position(|token| is_punct(Some(token), ';')).unwrap_or(tokens.len());
        // `use<'a>` in a type is not an import.
        if !is_punct(tokens.get(1), '<') {
            self.import_tree(scope, Vec::new(), &tokens[1..end]);
            return end;
        }
        1
    }

    fn import_tree(&mut self, scope: &Scope, mut path: Vec<String>, tokens: &[TokenTree]) {
        let at = tokens.first().map(|token| self.at(token.span()));
        let mut rest = tokens;
        loop {
            match rest {
                [TokenTree::Ident(name), ..] if name == "as" => break,
                [TokenTree::Ident(name), ..] => {
                    let name = plain(&name.to_string());
                    let at = self.at(rest[0].span());
                    if let Some(module) = self.module(scope) {
                        module.identifiers.push((name.clone(), at));
                    }
                    path.push(name);
                    rest = &rest[1..];
                }
                [TokenTree::Punct(_), TokenTree::Punct(_), ..] if is_colons(rest) && path.is_empty() => return,
                [TokenTree::Punct(_), TokenTree::Punct(_), ..] if is_colons(rest) => rest = &rest[2..],
                [TokenTree::Group(group)] => {
                    let branches: Vec<TokenTree> = group.stream().into_iter().collect();
                    for branch in branches.split(|token| is_punct(Some(token), ',')) {
                        self.import_tree(scope, path.clone(), branch);
                    }
                    return;
                }
                _ => break,
            }
        }
        let (Some(at), Some(module)) = (at, self.module(scope)) else { return };
        if path.is_empty() {
            return;
        }
        if is_punct(rest.first(), '*') {
            module.globs.push(path.clone());
        } else {
            if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let alias = rest.get(1).map(|name| plain(&name.to_string()));
            let name = alias.unwrap_or_else(|| path[path.len() - 1].clone());
            module.imports.entry(name).or_default().push(path.clone());
        }
        module.paths.push((path, at));
    }
}

/// Parses `a::b::c` at the start, and returns its segments and its number of tokens.
fn path(tokens: &[TokenTree]) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    let mut length = 0;
    while let Some(TokenTree::Ident(name)) = tokens.get(length) {
        path.push(plain(&name.to_string()));
        length += 1;
        if !is_colons(&tokens[length..]) || !is_ident(tokens.get(length + 2)) {
            break;
        }
        length += 2;
    }
    (path, length)
}

/// Returns the number of tokens up to the end of an item, a statement, a field or a variant.
fn item_length(tokens: &[TokenTree]) -> usize {
    let front = &tokens[..tokens.len().min(4)];
    let starts_with = |words: &[&str]| {
        let idents = front.iter().filter(|token| matches!(token, TokenTree::Ident(_))).map(ToString::to_string);
        idents.into_iter().any(|ident| words.contains(&&*ident))
    };
    let has_braces = starts_with(&["fn", "impl", "mod", "struct", "enum", "trait", "union"]);
    let ends_with_semicolon = !has_braces && starts_with(&["use", "static", "const", "type", "let"]);
    let is_item = has_braces || ends_with_semicolon;
    let is_end = |token: &TokenTree| match token {
        TokenTree::Punct(punct) => punct.as_char() == ';' || punct.as_char() == ',' && !is_item,
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && !ends_with_semicolon,
        _ => false,
    };
    tokens.iter().position(is_end).map_or(tokens.len(), |end| end + 1)
}

/// Returns true if the predicate of a `cfg` is true only in tests: `test`, `doctest`, or `all` with one of them.
fn is_test_predicate(predicate: &TokenTree) -> bool {
    let TokenTree::Group(group) = predicate else { return false };
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    tokens.split(|token| is_punct(Some(token), ',')).any(|part| match part {
        [TokenTree::Ident(name)] => name == "test" || name == "doctest",
        [TokenTree::Ident(name), predicate] => name == "all" && is_test_predicate(predicate),
        _ => false,
    })
}

/// Returns true if the token is the `(crate)` or `(in path)` of `pub`.
fn is_restriction(token: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = token else { return false };
    let first = group.stream().into_iter().next().map(|token| token.to_string());
    first.is_some_and(|first| ["crate", "super", "self", "in"].contains(&&*first))
}

fn is_punct(token: Option<&TokenTree>, char: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == char)
}

fn is_colons(tokens: &[TokenTree]) -> bool {
    is_punct(tokens.first(), ':') && is_punct(tokens.get(1), ':')
}

fn is_ident(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Ident(_)))
}

/// Returns the text of a string literal.
fn string(token: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else { return None };
    let text = literal.to_string();
    Some(text.strip_prefix('"')?.strip_suffix('"')?.to_owned())
}

/// Returns an identifier without `r#`.
fn plain(name: &str) -> String {
    name.strip_prefix("r#").unwrap_or(name).to_owned()
}
