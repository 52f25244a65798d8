//! Template files that include or import others of the same role: `{% include %}`, `{% import %}` and `{% from %}`.
//!
//! Names are literals, searched in the directory of the template and in the role's directory `templates` as in Ansible,
//! and resolved at load time. Invariant: a template includes only those that it names literally, so no variable selects
//! another file.

use super::guards::has_guard;
use super::prepared::prepared;
use super::syntax::{INCLUDES, Token, compile, statements, with_parser_stack};
use super::{ENGINE, ENGINES, FUNCTIONS};
use crate::error::{Error, Result};
use minijinja::Environment;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Templates by their paths within the directory, with their full paths.
pub(super) type Templates = BTreeMap<String, (PathBuf, Arc<str>)>;

/// The engines of a role whose templates include others.
#[derive(Debug)]
pub(crate) struct Includes {
    /// One for each limit of fuel, as [`ENGINES`].
    pub(super) engines: Vec<Environment<'static>>,
    /// True if any template may handle undefined variables.
    pub(super) are_guarded: bool,
}

/// A statement that includes or imports a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reference<'t> {
    /// The names of the file; the first that exists is used.
    pub(super) names: Vec<&'t str>,
    ignores_missing: bool,
    /// True if the template has the variables of the including one.
    has_context: bool,
}

impl<'t> Reference<'t> {
    /// Parses a statement; `None` if it is another one.
    pub(super) fn of(statement: &[Token<'t>]) -> Option<Result<Self, String>> {
        let statement = match statement {
            [Token::Sign('-' | '+'), rest @ ..] => rest,
            all => all,
        };
        let (keyword, rest) = match statement {
            [Token::Name(keyword), rest @ ..] if INCLUDES.contains(keyword) => (*keyword, rest),
            _ => return None,
        };
        let (names, mut rest) = match rest {
            [Token::Text(name), rest @ ..] => (vec![*name], rest),
            [Token::Sign('['), rest @ ..] => {
                let end = rest.iter().position(|token| *token == Token::Sign(']')).unwrap_or(rest.len());
                let name = |token: &Token<'t>| if let Token::Text(name) = token { Some(*name) } else { None };
                let names: Option<Vec<_>> = rest[..end]
                    .split(|token| *token == Token::Sign(','))
                    .map(|name_tokens| if let [token] = name_tokens { name(token) } else { None })
                    .collect();
                (names.unwrap_or_default(), rest.get(end + 1..).unwrap_or_default())
            }
            _ => (Vec::new(), rest),
        };
        let mut found = Self { names, ignores_missing: false, has_context: keyword == "include" };
        if let [before @ .., Token::Sign('-' | '+')] = rest {
            rest = before;
        }
        loop {
            rest = match rest {
                [before @ .., Token::Name(marker @ ("with" | "without")), Token::Name("context")] => {
                    found.has_context = *marker == "with";
                    before
                }
                [before @ .., Token::Name("ignore"), Token::Name("missing")] => {
                    found.ignores_missing = true;
                    before
                }
                _ => break,
            };
        }
        let is_literal = match keyword {
            "include" => rest.is_empty(),
            "import" => matches!(rest, [Token::Name("as"), ..]),
            _ => matches!(rest, [Token::Name("import"), ..]),
        };
        Some(match is_literal && !found.names.is_empty() {
            true => Ok(found),
            false => Err(format!("the built-in executor supports {keyword} only with a literal name of a template")),
        })
    }
}

impl Includes {
    /// Creates the engines, if a template includes another one.
    ///
    /// # Errors
    /// If a template that it names does not exist, or differs from the one that Ansible uses.
    pub(super) fn of(templates: &Templates) -> Result<Option<Self>> {
        let mut included = BTreeMap::new();
        for (name, (path, text)) in templates {
            let found = included_in(templates, name, text).map_err(|problem| Error::file(path, problem))?;
            included.insert(name.clone(), found);
        }
        let names: BTreeSet<&String> = included.values().flat_map(BTreeMap::values).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let mut engines = (*ENGINES).clone();
        for engine in &mut engines {
            for name in &names {
                let (path, text) = &templates[*name];
                // Unlike the template of a lookup, included ones lose their last line break.
                let text = text.strip_suffix('\n').unwrap_or(text);
                let text = text.strip_suffix('\r').unwrap_or(text);
                let text = prepared(text).map_err(|error| Error::file(path, super::explain(&error)))?;
                with_parser_stack(|| engine.add_template_owned((*name).clone(), text))
                    .map_err(|error| Error::file(path, error.detail().unwrap_or("invalid template")))?;
            }
            let included = included.clone();
            engine.set_path_join_callback(move |name, parent| {
                let found = included.get(parent).and_then(|found| found.get(name));
                found.cloned().unwrap_or_default().into()
            });
        }
        let are_guarded = templates.values().any(|(_, text)| has_guard(text));
        Ok(Some(Self { engines, are_guarded }))
    }
}

/// Returns the statements of a template that include or import others.
fn references(text: &str) -> impl Iterator<Item = Result<Reference<'_>, String>> {
    statements(text).filter_map(|statement| Reference::of(&statement))
}

/// Finds the templates that a template includes, by their names in it.
pub(super) fn included_in(templates: &Templates, name: &str, text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    for reference in references(text) {
        let reference = reference?;
        if name.contains("..") {
            return Err("the built-in executor supports include and import only in templates of the role".into());
        }
        for included in &reference.names {
            let Some(resolved) = resolve(templates, name, included)? else { continue };
            if !reference.has_context {
                check_independent(templates, &resolved, &mut BTreeSet::new())?;
            }
            found.insert((*included).to_owned(), resolved);
        }
        if !reference.ignores_missing && !reference.names.iter().any(|name| found.contains_key(*name)) {
            let names = reference.names.join(", ");
            return Err(format!("template {names} not found in the directory templates of the role"));
        }
    }
    Ok(found)
}

/// Finds a template that another one includes.
fn resolve(templates: &Templates, from: &str, name: &str) -> Result<Option<String>, String> {
    let (beside, name) = (beside(name, from), in_folder(name));
    let found = |name: &str| !name.contains("..") && templates.contains_key(name);
    match (found(&beside), found(name)) {
        // Ansible searches the directory of the outermost template, whichever includes this one.
        (true, true) if beside != name => Err(format!("the included template is ambiguous: rename {beside} or {name}")),
        (true, _) => Ok(Some(beside)),
        (false, true) => Ok(Some(name.to_owned())),
        (false, false) => Ok(None),
    }
}

/// Rejects a template without context that uses variables: in the engine, they would be those of the including
/// template, while in Ansible they are undefined.
fn check_independent(templates: &Templates, name: &str, seen: &mut BTreeSet<String>) -> Result<(), String> {
    if !seen.insert(name.to_owned()) {
        return Ok(());
    }
    let (_, text) = &templates[name];
    let source = prepared(text).map_err(|error| super::explain(&error))?;
    let template = compile(&ENGINE, "<string>", &source).map_err(|error| super::explain(&error))?;
    let mut variables: Vec<_> = template.undeclared_variables(false).into_iter().collect();
    variables.retain(|variable| !FUNCTIONS.contains(variable));
    variables.sort();
    if let Some(variable) = variables.first() {
        return Err(format!("{name} is imported without context, but uses the variable {variable}: add with context"));
    }
    for reference in references(text) {
        for included in reference?.names {
            if let Some(included) = resolve(templates, name, included)? {
                check_independent(templates, &included, seen)?;
            }
        }
    }
    Ok(())
}

/// Returns the path of a template beside another one.
fn beside(name: &str, parent: &str) -> String {
    let folder = Path::new(parent).parent().unwrap_or(Path::new(""));
    folder.join(name).to_string_lossy().into_owned()
}

/// Removes the directory `templates` from a path.
pub(super) fn in_folder(name: &str) -> &str {
    name.strip_prefix("./").unwrap_or(name).strip_prefix("templates/").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Files, Scope, data};
    use crate::value::json;

    fn files(templates: &[(&str, &str)]) -> Files {
        let entry = |(name, text): &(&str, &str)| ((*name).to_owned(), (Path::new(name).to_owned(), Arc::from(*text)));
        Files { templates: templates.iter().map(entry).collect(), ..Files::default() }
    }

    fn rendered(templates: &[(&str, &str)], name: &str) -> Result<String, String> {
        let files = files(templates).with_includes().map_err(|error| error.to_string())?;
        let vars = data([("title".to_owned(), json!("T")), ("chosen".to_owned(), json!("secret.j2"))]);
        let scope = Scope::new(vec![Arc::new(vars)], vec![Arc::new(files)]);
        let text = scope.evaluate(&format!("lookup('template', '{name}')"))?;
        Ok(text.as_str().unwrap().to_owned())
    }

    /// The expected texts are those of ansible-core 2.19.
    #[test]
    fn included_templates_render_as_with_ansible() {
        let macros = "{% macro a(x) %}{{ x }}-{{ title | default('none') }}{% endmacro %}\n";
        let templates = [
            ("m.j2", macros),
            ("pure.j2", "{% macro a(x, y=2) %}{{ x }}/{{ y }}{% for z in x %}{{ z }}{% endfor %}{% endmacro %}\n"),
            ("inc.j2", "inc {{ title | default('none') }} {{ local | default('nolocal') }}\n"),
            ("sub/deep.j2", "inc {{ title }} {{ local | default('nolocal') }}\n"),
            ("sub/beside.j2", "beside {{ 1 }}\n"),
            (
                "page.j2",
                "{% import 'm.j2' as c with context %}\n{% from 'pure.j2' import a %}\n{{ a('b') }} {{ c.a(3) }}\n\
                 {% set local = 'L' %}\n{% include 'inc.j2' %}\n{% include 'sub/deep.j2' %}\n\
                 {% include 'templates/inc.j2' ignore missing %}\n\
                 {% for local in [1,2] %}{% include 'inc.j2' %}{% endfor %}\n\
                 {%- include ['none.j2', 'inc.j2'] -%}\n{% include 'none.j2' ignore missing %}\nend\n",
            ),
            ("sub/page.j2", "{% include 'beside.j2' ignore missing %}{% include \"inc.j2\" with context %}|\n"),
        ];
        assert_eq!(
            rendered(&templates, "page.j2").unwrap(),
            "b/2b 3-T\ninc T Linc T Linc T Linc T 1inc T 2inc T Lend\n"
        );
        for name in ["sub/page.j2", "./sub/page.j2", "templates/sub/page.j2"] {
            assert_eq!(rendered(&templates, name).unwrap(), "beside 1inc T nolocal|\n", "{name}");
        }
    }

    #[test]
    fn included_names_are_literal_and_belong_to_the_role() {
        let check = |text: &str, problem: &str| {
            let templates = [
                ("secret.j2", "{{ title }}"),
                ("m.j2", "{% macro a() %}{{ title | default('') }}{% endmacro %}"),
                ("indirect.j2", "{% macro a() %}{% include 'secret.j2' %}{% endmacro %}"),
                ("sub/secret.j2", ""),
                ("sub/page.j2", text),
            ];
            let error = rendered(&templates, "sub/page.j2").unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        };
        for text in [
            "{% include chosen %}",
            "{% include 'm.j2' if chosen else 'secret.j2' %}",
            "{% include ['m.j2', chosen] %}",
            "{% include 'm' ~ '.j2' %}",
            "{% import chosen as m %}",
            "{% from chosen import a %}",
        ] {
            check(text, "only with a literal name of a template");
        }
        check("{% include '../../../etc/passwd' %}", "not found in the directory templates");
        check("{% include '/etc/passwd' %}", "not found in the directory templates");
        check("{% include 'secret.j2' %}", "ambiguous: rename sub/secret.j2 or secret.j2");
        check("{% import 'm.j2' as m %}", "uses the variable title: add with context");
        check("{% import 'indirect.j2' as m %}", "uses the variable title: add with context");
        // The quotes hide the statement from the check at load time.
        check("{% include 'm.j2' %}{{ '}} {#' }}{% include chosen %}", "non-existing template");
    }

    #[test]
    fn endless_inclusion_is_an_error() {
        let error = rendered(&[("a.j2", "{% include 'a.j2' %}")], "a.j2").unwrap_err();
        assert!(error.contains("recursion"), "{error}");
        let both = [("a.j2", "{% include 'b.j2' %}"), ("b.j2", "{{ lookup('template', 'a.j2') }}")];
        assert!(rendered(&both, "a.j2").is_err());
    }
}
