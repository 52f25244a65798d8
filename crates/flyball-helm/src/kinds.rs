//! Kinds in the releases of a chart, as far as they are known before the first release.
//!
//! Watches, caches and permissions are declared when the operator starts. So they are derived from the objects that
//! the chart renders with its default values and the samples of the project, and from the kinds that its templates
//! name literally.

use crate::rbac;
use crate::resources::{self, ManifestError, Resource};
use flyball::Kind;
use flyball_chart::{Header, is_test_hook};
use flyball_core::scope::CLUSTER_SCOPED;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// A call of `lookup` with a literal kind, and optionally with a literal namespace and name.
static LOOKUP: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"\blookup\s+["`]([^"`]+)["`]\s+["`]([^"`]+)["`](?:\s+["`]([^"`]*)["`]\s+["`]([^"`]+)["`])?"#;
    Regex::new(pattern).expect("the pattern is constant and valid")
});

/// A quoted version, as an argument of a function.
static VERSION: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"["`]((?:[a-z0-9.-]+/)?v[0-9]+(?:(?:alpha|beta)[0-9]+)?)["`]"#;
    Regex::new(pattern).expect("the pattern is constant and valid")
});

/// A field with a literal namespace.
static NAMESPACE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"\bnamespace["']?:\s*["']?([a-z0-9][a-z0-9-]*)"#).expect("the pattern is constant and valid")
});

/// The kinds that releases of a chart may consist of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds {
    known: BTreeMap<(String, String), CreatedKind>,
    /// Rules of the Roles and ClusterRoles among the objects, and the bound ones: granting them requires having them.
    pub(crate) rules: Vec<PolicyRule>,
    /// Namespaces of objects outside of the release's namespace.
    pub(crate) namespaces: BTreeSet<String>,
    definitions: Vec<Definition>,
    /// Templates with the lines of documents whose version or kind is unknown.
    unknown: Vec<(String, String)>,
    /// The templates that rendered objects.
    rendered: BTreeSet<String>,
    /// Kinds that templates only look up.
    read: BTreeMap<(String, String), LookedUpKind>,
}

/// A kind in calls of `lookup`.
#[derive(Clone, Debug)]
struct LookedUpKind {
    kind: Kind,
    /// The literal names in its lookups; `None` if some call has no literal name.
    names: Option<BTreeSet<String>>,
}

/// A kind that the operator may create.
#[derive(Clone, Debug)]
pub(crate) struct CreatedKind {
    pub(crate) kind: Kind,
    /// Some objects of this kind cannot have the custom resource as owner.
    pub(crate) unowned: bool,
    /// Objects of this kind are neither changed nor deleted.
    pub(crate) is_created_only: bool,
}

/// Names of a kind in its CRD.
#[derive(Clone, Debug)]
struct Definition {
    group: String,
    kind: String,
    plural: String,
    namespaced: bool,
}

impl Kinds {
    /// Returns the kind of an object, if the operator declared it.
    pub(crate) fn declared(&self, resource: &Resource) -> Result<&Kind, ManifestError> {
        let undeclared = || ManifestError::UndeclaredKind {
            path: resource.path.clone(),
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
        };
        Ok(&self.get(&resource.api_version, &resource.kind).ok_or_else(undeclared)?.kind)
    }

    /// Returns the kinds that these CRDs define.
    pub(crate) fn defined_by(definitions: &[CustomResourceDefinition]) -> Self {
        let definition = |crd: &CustomResourceDefinition| Definition {
            group: crd.spec.group.clone(),
            kind: crd.spec.names.kind.clone(),
            plural: crd.spec.names.plural.clone(),
            namespaced: crd.spec.scope != "Cluster",
        };
        Self { definitions: definitions.iter().map(definition).collect(), ..Self::default() }
    }

    /// Adds a kind.
    pub(crate) fn add(&mut self, api_version: &str, kind: &str) -> &mut CreatedKind {
        let known = self.entry(api_version, kind);
        known.is_created_only = false;
        known
    }

    /// Adds CRDs in a chart's directory `crds`, which are created only.
    pub(crate) fn add_crds(&mut self) {
        self.entry("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    }

    fn entry(&mut self, api_version: &str, kind: &str) -> &mut CreatedKind {
        let found = self.kind_of(api_version, kind);
        let unowned = !found.is_namespaced();
        let names = (api_version.to_owned(), kind.to_owned());
        self.known.entry(names).or_insert(CreatedKind { kind: found, unowned, is_created_only: true })
    }

    /// Adds the kinds of the rendered objects of a chart, and the rules that they grant.
    pub(crate) fn add_rendered(&mut self, rendered: &[Resource], namespace: &str) {
        for resource in rendered {
            self.rendered.insert(resource.path.clone());
            let outside = resource.namespace().filter(|there| *there != namespace);
            self.namespaces.extend(outside.map(str::to_owned));
            let known = self.add(&resource.api_version, &resource.kind);
            known.unowned |= outside.is_some() || resource.is_kept();
        }
        for rule in rbac::granted(rendered) {
            if !self.rules.contains(&rule) {
                self.rules.push(rule);
            }
        }
    }

    /// Adds the kinds that the text of a template names literally: one `apiVersion`, and each `kind` at a line start of
    /// a document. Adds its literal namespaces as well.
    pub(crate) fn add_literal(&mut self, template: &str) {
        self.namespaces.extend(NAMESPACE.captures_iter(template).map(|found| found[1].to_owned()));
        // The operator does not run tests.
        for document in template.split("\n---").filter(|document| !is_test_hook(document)) {
            if let [Some(api_version)] = &*literals(document, "apiVersion:") {
                for kind in literals(document, "kind:").into_iter().flatten() {
                    if !resources::is_list(api_version, kind) {
                        self.add(api_version, kind);
                    }
                }
            }
        }
    }

    /// Adds the kinds whose versions or names templates compute or select: those for the default values, and those in
    /// the text.
    pub(crate) fn add_headers(&mut self, headers: &[Header]) {
        for Header { path, text, object } in headers {
            let mut found: Vec<(String, String)> = object.iter().cloned().collect();
            // The cluster may select another version, and values another kind.
            let computed = VERSION.captures_iter(text).filter_map(|found| found.get(1)).map(|found| found.as_str());
            let literal = literals(text, "apiVersion:").into_iter().flatten().chain(computed);
            let versions: BTreeSet<&str> = object.iter().map(|(version, _)| &**version).chain(literal).collect();
            let kinds = object.iter().map(|(_, kind)| &**kind);
            let kinds: BTreeSet<&str> = kinds.chain(literals(text, "kind:").into_iter().flatten()).collect();
            for kind in kinds {
                found.extend(versions.iter().map(|version| ((*version).to_owned(), kind.to_owned())));
            }
            if found.is_empty() {
                self.unknown.push((path.clone(), text.replace('\n', ", ")));
            }
            for (api_version, kind) in found.iter().filter(|(version, kind)| !resources::is_list(version, kind)) {
                self.add(api_version, kind);
            }
        }
    }

    /// Describes the documents in templates whose version or kind is unknown: neither default values nor samples render
    /// them.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = String> {
        let unknown = self.unknown.iter().filter(|(path, _)| !self.rendered.contains(path));
        unknown.map(|(path, text)| format!("{path}: {text}"))
    }

    /// Adds the kinds that the text of a template looks up, as far as they are named literally.
    pub(crate) fn add_lookups(&mut self, template: &str) {
        for found in LOOKUP.captures_iter(template) {
            let (api_version, kind) = (&found[1], &found[2]);
            let kind_of = self.kind_of(api_version, kind);
            let read = LookedUpKind { kind: kind_of, names: Some(BTreeSet::new()) };
            let read = self.read.entry((api_version.to_owned(), kind.to_owned())).or_insert(read);
            match (&mut read.names, found.get(4)) {
                (Some(names), Some(name)) => _ = names.insert(name.as_str().to_owned()),
                _ => read.names = None,
            }
        }
    }

    /// Returns true if all lookups of a kind have literal names.
    pub(crate) fn is_named(&self, api_version: &str, kind: &str) -> bool {
        let names = (api_version.to_owned(), kind.to_owned());
        !self.known.contains_key(&names) && self.read.get(&names).is_some_and(|read| read.names.is_some())
    }

    /// Returns the rules for reading objects that templates look up by literal names.
    pub(crate) fn named_rules(&self) -> impl Iterator<Item = PolicyRule> {
        self.read.iter().filter(|(names, _)| !self.known.contains_key(names)).filter_map(|(_, read)| {
            let resource = read.kind.api_resource();
            Some(PolicyRule {
                api_groups: Some(vec![resource.group]),
                resources: Some(vec![resource.plural]),
                resource_names: Some(read.names.as_ref()?.iter().cloned().collect()),
                verbs: vec!["get".into()],
                ..PolicyRule::default()
            })
        })
    }

    /// Returns a kind that templates may look up.
    pub(crate) fn readable(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        let names = (api_version.to_owned(), kind.to_owned());
        self.known.get(&names).map(|known| &known.kind).or_else(|| self.read.get(&names).map(|read| &read.kind))
    }

    /// Returns the kinds that are only looked up, by names that are unknown at startup.
    pub(crate) fn read_only(&self) -> impl Iterator<Item = &Kind> {
        let is_only = |(names, read): &(&(String, String), &LookedUpKind)| {
            read.names.is_none() && !self.known.contains_key(*names)
        };
        self.read.iter().filter(is_only).map(|(_, read)| &read.kind)
    }

    /// Returns the entry of a kind; `None` if the operator did not declare it.
    pub(crate) fn get(&self, api_version: &str, kind: &str) -> Option<&CreatedKind> {
        self.known.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// Returns all kinds, in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CreatedKind> {
        self.known.values()
    }

    /// Names a kind, with its plural and its scope if they are known.
    pub(crate) fn kind_of(&self, api_version: &str, name: &str) -> Kind {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let kind = Kind::new(group, version, name);
        if let Some(definition) = self.definitions.iter().find(|known| known.group == group && known.kind == name) {
            let kind = kind.plural(&definition.plural);
            return if definition.namespaced { kind } else { kind.cluster_scoped() };
        }
        if CLUSTER_SCOPED.contains(&(group, name)) { kind.cluster_scoped() } else { kind }
    }
}

/// Returns the values of a field at line starts; `None` for those that are computed.
fn literals<'t>(document: &'t str, field: &str) -> Vec<Option<&'t str>> {
    let value = |line: &'t str| {
        let value = line.strip_prefix(field)?;
        let value = value.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\'']);
        Some((!value.is_empty() && !value.contains("{{")).then_some(value))
    };
    document.lines().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_kinds_are_found_in_templates() {
        let mut kinds = Kinds::default();
        kinds.add_literal(
            "{{- if .Values.a }}\napiVersion: apps/v1\nkind: Deployment # one\nspec:\n  kind: Inner\n{{- end }}\n---\n\
             kind: ClusterRole\napiVersion: \"rbac.authorization.k8s.io/v1\"\n---\napiVersion: {{ include \"v\" . }}\nkind: Ingress\n\
             ---\napiVersion: v1\nkind: List\n---\napiVersion: apps/v1\n{{ if $a }}\nkind: StatefulSet\n{{ else }}\nkind: DaemonSet\n{{ end }}",
        );
        let found: Vec<_> = kinds.iter().map(|known| (known.kind.name(), known.unowned)).collect();
        assert_eq!(found, [("DaemonSet", false), ("Deployment", false), ("StatefulSet", false), ("ClusterRole", true)]);
        let header = |text: &str, object: Option<(&str, &str)>| {
            let object = object.map(|(version, kind)| (version.to_owned(), kind.to_owned()));
            Header { path: "site/templates/a.yaml".into(), text: text.into(), object }
        };
        let mut computed = Kinds::default();
        computed.add_literal("{{ if $new }}\napiVersion: a/v1\n{{ else }}\napiVersion: a/v2\n{{ end }}\nkind: A\n");
        assert_eq!(computed.iter().count(), 0, "it is selected");
        computed.add_headers(&[
            header("apiVersion: {{ $v }}\nkind: Ingress", Some(("networking.k8s.io/v1", "Ingress"))),
            header("apiVersion: a/v1\napiVersion: a/v2\nkind: A", None),
            header("apiVersion: {{ $v }}\nkind: B", None),
            header("apiVersion: c/v1\nkind: C\napiVersion: c/v2\nkind: D", Some(("c/v1", "C"))),
            header(
                "apiVersion: {{ ternary \"d/v1\" \"d/v1beta1\" ($has \"d/v1/E\") }}\nkind: E",
                Some(("d/v1beta1", "E")),
            ),
        ]);
        let found: Vec<_> = computed.known.keys().map(|(version, kind)| format!("{version} {kind}")).collect();
        assert_eq!(
            found,
            [
                "a/v1 A",
                "a/v2 A",
                "c/v1 C",
                "c/v1 D",
                "c/v2 C",
                "c/v2 D",
                "d/v1 E",
                "d/v1beta1 E",
                "networking.k8s.io/v1 Ingress"
            ]
        );
        let unknown = |kinds: &Kinds| kinds.unknown().collect::<Vec<_>>();
        assert_eq!(unknown(&computed), ["site/templates/a.yaml: apiVersion: {{ $v }}, kind: B"]);
        let object = serde_json::json!({"apiVersion": "b/v1", "kind": "B", "metadata": {"name": "b"}});
        computed.add_rendered(&Resource::of("site/templates/a.yaml", &object).unwrap(), "default");
        assert_eq!(unknown(&computed), [""; 0]);
        kinds.add_lookups(
            "{{ $s := (lookup \"v1\" \"Secret\" .Release.Namespace \"a\").data }}{{ lookup $v \"Pod\" \"\" \"\" }}",
        );
        kinds.add_lookups("{{ lookup \"apps/v1\" \"Deployment\" \"\" \"\" }}");
        assert_eq!(kinds.read_only().map(Kind::name).collect::<Vec<_>>(), ["Secret"]);
        kinds.add_lookups("{{ lookup \"v1\" \"Node\" \"\" \"one\" }}{{ lookup \"v1\" \"Node\" `` `two` }}");
        assert!(kinds.is_named("v1", "Node") && !kinds.is_named("v1", "Secret"));
        let rules: Vec<String> = kinds.named_rules().map(|rule| serde_json::json!(rule).to_string()).collect();
        let expected = r#"{"apiGroups":[""],"resourceNames":["one","two"],"resources":["nodes"],"verbs":["get"]}"#;
        assert_eq!(rules, [expected]);
        kinds.add_lookups("{{ lookup \"v1\" \"Node\" \"\" .Values.node }}");
        assert!(!kinds.is_named("v1", "Node") && kinds.named_rules().next().is_none());
        assert!(kinds.readable("apps/v1", "Deployment").is_some() && kinds.readable("v1", "Pod").is_none());
        assert!(kinds.get("apps/v1", "Deployment").is_some() && kinds.get("v1", "Deployment").is_none());
    }
}
