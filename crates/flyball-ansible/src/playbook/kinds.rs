//! Kinds of objects that a role uses, as far as its source names them.
//!
//! An operator watches the objects that it creates, and only has permissions for their kinds. So the kinds must be
//! known before anything runs: they are those with `apiVersion` and `kind` in tasks, templates, files and variables,
//! either literally or as templates of the role's own variables.

use super::literals::{Literals, VERSION, kind_of};
use super::{Action, Module, Play, Playbook, Role, Task};
use crate::error::Result;
use crate::template::{Files, Scope, Var, Vars, queried_kinds, templates, walk};
use crate::value::{Map, Value};
use crate::vault::Vault;
use crate::yaml;
use flyball::Kind;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Nesting limit of values that are searched.
const MAX_DEPTH: usize = 16;

/// Folders of a role that Ansible loads. Others contain tests and examples, whose objects are not created by the role.
const SOURCES: [&str; 7] = ["defaults", "files", "handlers", "meta", "tasks", "templates", "vars"];
/// Folders of a project that do not belong to its playbooks: CRDs, samples and tests.
const OTHERS: [&str; 4] = ["config", "deploy", "molecule", "tests"];

/// Selects all namespaces in `allowNamespaces`.
pub(crate) const ALL_NAMESPACES: &str = "*";

/// The kinds that a role uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds {
    /// Kinds that it creates, changes or deletes.
    pub(crate) created: BTreeSet<Kind>,
    /// Kinds that it only reads.
    pub(crate) read: BTreeSet<Kind>,
    /// True if it may create objects in other namespaces than that of the reconciled object.
    pub(crate) other_namespaces: bool,
    /// Namespaces that the role names independently of an object: literally, or by its own variables.
    pub(crate) namespaces: BTreeSet<String>,
    /// Kinds and names of objects that it names that way.
    pub(crate) names: BTreeSet<(String, String)>,
    /// Kinds that it lists in all namespaces.
    pub(crate) listed_in_all_namespaces: BTreeSet<String>,
    /// Literals in its tasks.
    pub(crate) literals: Literals,
    /// Groups and kinds that `watches.yaml` allows in any case.
    pub(crate) allowed: BTreeSet<(String, String)>,
}

impl Kinds {
    /// Finds the kinds of a role or playbook.
    ///
    /// The author's variables are those of `watches.yaml`.
    pub(crate) fn of(playbook: &Playbook, author: &Map) -> Self {
        let mut found = Self::default();
        let author = &Arc::new(templates(author));
        for role in playbook.roles.values() {
            found.search_role(role, author);
        }
        for play in &playbook.plays {
            found.search_play(play, author);
        }
        found.read.retain(|kind| !found.created.contains(kind));
        found
    }

    /// Finds the kinds in all texts of roles.
    pub(crate) fn of_roles(folders: &BTreeSet<PathBuf>, author: &Map, vault: &Vault) -> Result<Self> {
        let mut found = Self::default();
        for folder in folders {
            found.join(Self::of_texts(folder, is_of_role, author, vault)?);
        }
        Ok(found)
    }

    /// Finds the kinds in all texts of a project, whose playbooks may use all of its roles and files.
    pub(crate) fn of_project(folder: &Path, author: &Map, vault: &Vault) -> Result<Self> {
        Self::of_texts(folder, is_of_project, author, vault)
    }

    fn of_texts(folder: &Path, is_source: fn(&Path) -> bool, author: &Map, vault: &Vault) -> Result<Self> {
        let mut found = Self::default();
        let mut layers = vec![Arc::new(templates(author))];
        for part in ["vars", "defaults"] {
            for path in walk(&folder.join(part))?.iter().filter(|path| yaml::is_yaml(path)) {
                for document in yaml::read_documents(path, vault).unwrap_or_default() {
                    layers.extend(document.as_object().map(|vars| Arc::new(templates(vars))));
                }
            }
        }
        let mut search = Search { kinds: &mut found, layers, files: Arc::default() };
        for path in walk(folder)? {
            let is_text = path
                .extension()
                .is_some_and(|ending| ["yml", "yaml", "j2", "json"].iter().any(|known| ending == *known));
            // A file that cannot be decrypted creates no objects.
            if is_text && path.strip_prefix(folder).is_ok_and(is_source) && !yaml::is_locked(&path, vault)? {
                let text = yaml::read_text(&path, vault)?;
                search.record_objects_in_text(&text);
                match yaml::documents(&text, vault) {
                    Ok(documents) if yaml::is_yaml(&path) => {
                        documents.iter().for_each(|document| search.unvalidated_tasks(document, 0));
                    }
                    _ => search.nested(&text),
                }
            }
        }
        found.read.retain(|kind| !found.created.contains(kind));
        Ok(found)
    }

    /// Returns true if the role or `watches.yaml` names a namespace.
    pub(crate) fn is_namespace_named(&self, namespace: &str) -> bool {
        self.namespaces.contains(namespace) || self.namespaces.contains(ALL_NAMESPACES)
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.created.extend(other.created);
        self.read.extend(other.read);
        self.other_namespaces |= other.other_namespaces;
        self.namespaces.extend(other.namespaces);
        self.names.extend(other.names);
        self.listed_in_all_namespaces.extend(other.listed_in_all_namespaces);
        self.literals.join(other.literals);
        self.allowed.extend(other.allowed);
        self.read.retain(|kind| !self.created.contains(kind));
    }

    fn search_role(&mut self, role: &Role, author: &Arc<Vars>) {
        let layers = vec![author.clone(), role.vars.clone(), role.defaults.clone()];
        let mut search = Search { kinds: self, layers, files: role.files.clone() };
        search.files();
        search.vars(&role.vars);
        search.vars(&role.defaults);
        role.var_files.values().for_each(|vars| search.vars(vars));
        role.tasks.values().for_each(|tasks| search.tasks(tasks));
        search.tasks(&role.handlers);
    }

    fn search_play(&mut self, play: &Play, author: &Arc<Vars>) {
        let layers = vec![author.clone(), play.vars.clone()];
        let mut search = Search { kinds: self, layers, files: play.files.clone() };
        // A playbook's folder may contain other files; the roles have already been searched.
        if !play.tasks.iter().all(|task| matches!(task.action, Action::Role { .. })) {
            search.files();
        }
        search.vars(&play.vars);
        play.var_files.values().for_each(|vars| search.vars(vars));
        search.tasks(&play.tasks);
        search.tasks(&play.handlers);
        play.includes.values().for_each(|tasks| search.tasks(tasks));
    }
}

struct Search<'k> {
    kinds: &'k mut Kinds,
    layers: Vec<Arc<Vars>>,
    files: Arc<Files>,
}

impl Search<'_> {
    fn files(&mut self) {
        let files = self.files.clone();
        files.templates.values().chain(files.files.values()).for_each(|(_, text)| self.text(text));
        files.templates.values().for_each(|(_, text)| self.queried(text));
    }

    fn vars(&mut self, vars: &Vars) {
        for var in vars.values() {
            let (Var::Data(value) | Var::Template(value)) = var;
            self.value(value, 0);
            self.queries(value, 0);
        }
    }

    fn tasks(&mut self, tasks: &[Task]) {
        for task in tasks {
            self.vars(&task.vars);
            task.repeat.iter().for_each(|repeat| self.value(&repeat.items, 0));
            let conditions =
                [Some(&task.when), Some(&task.until), task.failed_when.as_ref(), task.changed_when.as_ref()];
            let conditions = conditions.into_iter().flatten().flatten();
            conditions.chain(task.repeat.iter().map(|repeat| &repeat.items)).for_each(|value| self.queries(value, 0));
            if let Action::Module(_, arguments) = &task.action {
                arguments.values().for_each(|argument| self.queries(argument, 0));
            }
            match &task.action {
                Action::Module(Module::K8s | Module::K8sScale, arguments) => self.search_k8s_arguments(arguments),
                Action::Module(Module::K8sInfo, arguments) => {
                    self.record_kind_argument(arguments, false);
                    self.record_listing(arguments);
                }
                Action::Module(Module::SetFact, arguments) => arguments.values().for_each(|fact| self.value(fact, 0)),
                Action::Module(..) | Action::IncludeTasks(_) | Action::IncludeVars { .. } | Action::Role { .. } => {}
                Action::Block { tasks, rescue, always } => {
                    [tasks, rescue, always].into_iter().for_each(|t| self.tasks(t))
                }
            }
        }
    }

    /// Searches the arguments of a module that creates objects.
    fn search_k8s_arguments(&mut self, arguments: &Map) {
        self.kinds.literals.join(Literals::of(arguments));
        self.record_kind_argument(arguments, true);
        let kind = arguments.get("kind");
        self.record_object(kind, arguments);
        for argument in ["definition", "resource_definition", "inline"] {
            let Some(definition) = arguments.get(argument) else { continue };
            self.value(definition, 0);
            self.record_object(kind, definition["metadata"].as_object().unwrap_or(&Map::new()));
            // A definition without apiVersion has that of the module.
            if let (Value::Object(fields), None) = (definition, definition.get("apiVersion")) {
                let named = fields.get("kind").map(|kind| ("kind".to_owned(), kind.clone()));
                let version = arguments.iter().filter(|(name, _)| VERSION.contains(&name.as_str()));
                let version = version.map(|(name, version)| (name.clone(), version.clone()));
                self.record_kind_argument(&named.into_iter().chain(version).collect(), true);
                fields
                    .get("metadata")
                    .and_then(Value::as_object)
                    .into_iter()
                    .for_each(|metadata| self.record_object(fields.get("kind"), metadata));
            }
        }
    }

    /// Records that objects of all namespaces are listed.
    fn record_listing(&mut self, arguments: &Map) {
        if !arguments.contains_key("namespace") && !arguments.contains_key("name") {
            let kind = arguments.get("kind").and_then(Value::as_str).and_then(|kind| self.literal(kind));
            self.kinds.listed_in_all_namespaces.extend(kind);
        }
    }

    /// Records the kinds of lookups in a value.
    fn queries(&mut self, value: &Value, depth: usize) {
        match value {
            Value::String(text) => self.queried(text),
            Value::Array(items) if depth < MAX_DEPTH => items.iter().for_each(|item| self.queries(item, depth + 1)),
            Value::Object(fields) if depth < MAX_DEPTH => {
                fields.values().for_each(|field| self.queries(field, depth + 1));
            }
            _ => {}
        }
    }

    fn queried(&mut self, text: &str) {
        for queried in queried_kinds(text) {
            let kind = kind_of(queried.api_version.as_deref().unwrap_or("v1"), &queried.kind);
            self.kinds.read.extend(kind);
            self.kinds.listed_in_all_namespaces.extend(queried.is_everywhere.then_some(queried.kind));
        }
    }

    /// Evaluates a text without an object; `None` if it depends on one.
    fn literal(&self, text: &str) -> Option<String> {
        let scope = Scope::new(self.layers.clone(), vec![self.files.clone()]);
        let text = scope.render_text(text).ok()?.as_str()?.to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// Searches a document with tasks that may use any module: for objects, and for arguments of modules.
    fn unvalidated_tasks(&mut self, value: &Value, depth: usize) {
        if depth > 4 * MAX_DEPTH {
            return;
        }
        match value {
            Value::Object(fields) => {
                let kind = fields.get("kind").filter(|kind| kind.is_string());
                if kind.is_some() {
                    self.record_object(kind, fields);
                    self.record_object(kind, fields.get("metadata").and_then(Value::as_object).unwrap_or(&Map::new()));
                }
                let text = |name: &str| fields.get(name).and_then(Value::as_str);
                if let (Some(version), Some(kind)) = (text("apiVersion").or(text("api_version")), text("kind"))
                    && kind != "List"
                {
                    self.record_kind(version, kind, true);
                }
                for (key, field) in fields {
                    match (key.rsplit('.').next(), field) {
                        (Some("k8s"), Value::Object(arguments)) => self.search_k8s_arguments(arguments),
                        (Some("k8s_info" | "k8s_facts"), Value::Object(arguments)) => {
                            self.record_object(arguments.get("kind"), arguments);
                            self.record_kind_argument(arguments, false);
                            self.record_listing(arguments);
                            continue;
                        }
                        _ => {}
                    }
                    self.unvalidated_tasks(field, depth + 1);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.unvalidated_tasks(item, depth + 1)),
            Value::String(text) if text.contains("kind:") => self.nested(text),
            _ => {}
        }
    }

    /// Records namespaces and names of objects.
    fn record_object(&mut self, kind: Option<&Value>, fields: &Map) {
        let namespace = fields.get("namespace").and_then(Value::as_str);
        self.kinds.other_namespaces |= namespace.is_some_and(|namespace| !is_own(namespace));
        let namespace = namespace.and_then(|namespace| self.literal(namespace));
        self.kinds.namespaces.extend(namespace);
        let literal = |value: Option<&Value>| value.and_then(Value::as_str).and_then(|text| self.literal(text));
        let name = literal(kind).zip(literal(fields.get("name")));
        self.kinds.names.extend(name);
    }

    /// The same for a string, line by line.
    fn record_objects_in_text(&mut self, text: &str) {
        let (mut kind, mut names, mut in_metadata) = (None, Vec::new(), false);
        let unquoted =
            |value: &str| value.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\'']).to_owned();
        for line in text.lines().chain(["---"]) {
            if line.starts_with("---") {
                let kind: Option<String> = kind.take();
                self.kinds.names.extend(names.drain(..).filter_map(|name| Some((kind.clone()?, name))));
            }
            if !line.starts_with([' ', '#', '{']) && !line.is_empty() {
                in_metadata = line.starts_with("metadata:");
            }
            let content = line.trim_start_matches([' ', '-']);
            if let Some(namespace) = content.strip_prefix("namespace:") {
                self.kinds.other_namespaces |= !is_own(namespace);
                let namespace = self.literal(&unquoted(namespace));
                self.kinds.namespaces.extend(namespace);
            }
            if let Some(named) = line.strip_prefix("kind:") {
                kind = self.literal(&unquoted(named));
            }
            // Deeper `name` fields belong to something else.
            if let Some(name) = line.strip_prefix("  name:").filter(|_| in_metadata) {
                names.extend(self.literal(&unquoted(name)));
            }
        }
    }

    /// Searches the arguments of a module with an argument `kind`.
    fn record_kind_argument(&mut self, arguments: &Map, created: bool) {
        let version = VERSION.iter().find_map(|name| arguments.get(*name));
        let version = version.and_then(Value::as_str).unwrap_or("v1");
        if let Some(kind) = arguments.get("kind").and_then(Value::as_str) {
            self.record_kind(version, kind, created);
        }
    }

    /// Searches a value for objects: maps with `apiVersion` and `kind`, and texts that contain such maps.
    fn value(&mut self, value: &Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match value {
            Value::Object(fields) => match (fields.get("apiVersion"), fields.get("kind")) {
                (Some(Value::String(_)), Some(Value::String(kind))) if kind == "List" => {
                    fields.get("items").into_iter().for_each(|items| self.value(items, depth + 1));
                }
                // Values within an object are references, not objects.
                (Some(Value::String(version)), Some(Value::String(kind))) => {
                    self.record_kind(version, kind, true);
                    self.record_object(
                        fields.get("kind"),
                        fields.get("metadata").and_then(Value::as_object).unwrap_or(&Map::new()),
                    );
                }
                _ => fields.values().for_each(|field| self.value(field, depth + 1)),
            },
            Value::Array(items) => items.iter().for_each(|item| self.value(item, depth + 1)),
            Value::String(text) if text.contains("kind:") => self.text(text),
            _ => {}
        }
    }

    /// Searches a string, possibly a YAML template, for lines with `apiVersion` and `kind`.
    fn text(&mut self, text: &str) {
        self.record_objects_in_text(text);
        let (mut version, mut kind) = (None, None);
        for line in text.lines().chain(["---"]) {
            let value = |key: &str| {
                let value = line.strip_prefix(key)?.split(" #").next()?.trim();
                Some(value.trim_matches(['"', '\'']).to_owned())
            };
            if line.starts_with("---") {
                (version, kind) = (None, None);
            }
            version = value("apiVersion:").or(version);
            kind = value("kind:").or(kind);
            if let (Some(known), Some(name)) = (&version, &kind) {
                self.record_kind(known, name, true);
                (version, kind) = (None, None);
            }
        }
    }

    /// Searches a string for objects at any depth, by pairs of lines with equal indentation.
    fn nested(&mut self, text: &str) {
        let mut open: Vec<(usize, &str, &str)> = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let content = line.trim_start_matches([' ', '-']);
            let column = line.len() - content.len();
            open.retain(|(at, _, _)| *at <= column);
            for (key, other) in [
                ("apiVersion:", "kind:"),
                ("api_version:", "kind:"),
                ("kind:", "apiVersion:"),
                ("kind:", "api_version:"),
            ] {
                let Some(value) = content.strip_prefix(key) else { continue };
                let value = value.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\'']);
                let pair =
                    open.iter().find(|(at, known, _)| *at == column && *known == other).map(|(_, _, value)| *value);
                match (pair, key) {
                    (Some(kind), "apiVersion:" | "api_version:") => self.record_kind(value, kind, true),
                    (Some(version), _) => self.record_kind(version, value, true),
                    (None, _) => open.push((column, key, value)),
                }
            }
        }
    }

    /// Records a kind, unless its names are only known in a run.
    fn record_kind(&mut self, version: &str, kind: &str, created: bool) {
        let scope = Scope::new(self.layers.clone(), vec![self.files.clone()]);
        let text = |text: &str| scope.render_text(text).ok().and_then(|text| text.as_str().map(str::to_owned));
        if let (Some(version), Some(kind)) = (text(version), text(kind))
            && let Some(kind) = kind_of(&version, &kind)
        {
            let kinds = if created { &mut self.kinds.created } else { &mut self.kinds.read };
            kinds.insert(kind);
        }
    }
}

/// Returns true if a path relative to a role is in a folder that Ansible loads.
fn is_of_role(path: &Path) -> bool {
    path.components().next().is_some_and(|first| SOURCES.iter().any(|source| first.as_os_str() == *source))
}

/// Returns true if a path relative to a project may be that of a playbook, a role, or one of their files.
fn is_of_project(path: &Path) -> bool {
    if let Ok(path) = path.strip_prefix("roles") {
        return is_of_role(path.components().skip(1).collect::<PathBuf>().as_path());
    }
    let first = path.components().next().map(|first| first.as_os_str().to_string_lossy());
    first.is_some_and(|first| !first.starts_with('.') && !OTHERS.contains(&&*first))
}

/// Returns true if a namespace is that of the reconciled object.
fn is_own(namespace: &str) -> bool {
    namespace.contains("meta.namespace") || namespace.contains("metadata.namespace")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json;

    fn found(value: Value) -> Vec<String> {
        let mut kinds = Kinds::default();
        let layers = vec![Arc::new(templates(json!({"api": "apps/v1"}).as_object().unwrap()))];
        Search { kinds: &mut kinds, layers, files: Arc::default() }.value(&value, 0);
        kinds.created.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn kinds_are_found_in_objects() {
        assert_eq!(
            found(json!({"apiVersion": "v1", "kind": "Service", "spec": {"x": {"apiVersion": "v1", "kind": "Pod"}}})),
            ["services"]
        );
        assert_eq!(found(json!({"apiVersion": "{{ api }}", "kind": "Deployment"})), ["deployments.apps"]);
        assert_eq!(found(json!({"apiVersion": "{{ other }}", "kind": "Deployment"})), Vec::<String>::new());
        assert_eq!(
            found(
                json!([{"a": {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Secret"}]}}])
            ),
            ["secrets"]
        );
        let text = "apiVersion: v1 # so\nkind: \"ConfigMap\"\n---\nkind: Job\nmetadata: {}\napiVersion: batch/v1\nspec:\n  kind: X\n";
        assert_eq!(found(json!(text)), ["configmaps", "jobs.batch"]);
    }

    #[test]
    fn tests_of_a_role_name_no_namespaces() {
        let folder = std::env::temp_dir().join(format!("flyball-kinds-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let object = |namespace: &str| format!("kind: Secret\nmetadata:\n  namespace: {namespace}\n");
        for part in [&SOURCES[..], &["molecule/default", "tests", "examples", ".github"]].concat() {
            for role in ["", "roles/a"] {
                let path = folder.join(role).join(part);
                std::fs::create_dir_all(&path).unwrap();
                let name = part.trim_matches('.').replace('/', "-");
                std::fs::write(path.join("main.yml"), object(&name)).unwrap();
            }
        }
        std::fs::write(folder.join("play.yml"), "- tasks: [{k8s: {namespace: play}}]\n").unwrap();
        let found = |kinds: Result<Kinds>| kinds.unwrap().namespaces.into_iter().collect::<Vec<_>>();
        let (author, vault) = (Map::new(), Vault::default());
        assert_eq!(found(Kinds::of_roles(&BTreeSet::from([folder.join("roles/a")]), &author, &vault)), SOURCES);
        let mut expected = [&SOURCES[..], &["examples", "play"]].concat();
        expected.sort_unstable();
        assert_eq!(found(Kinds::of_project(&folder, &author, &vault)), expected);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn namespaces_and_names_are_recorded_if_literal() {
        let mut kinds = Kinds::default();
        let layers = vec![Arc::new(templates(json!({"home": "shared"}).as_object().unwrap()))];
        let mut search = Search { kinds: &mut kinds, layers, files: Arc::default() };
        let object = |namespace: &str, name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}});
        search.value(&object("{{ home }}", "{{ chosen }}"), 0);
        search.value(&object("{{ chosen }}", "literal"), 0);
        search.text(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: page\n  namespace: monitoring\nspec:\n  name: other\n",
        );
        search.unvalidated_tasks(&json!([{"kubernetes.core.k8s_info": {"kind": "Pod"}}, {"k8s_info": {"kind": "Secret", "namespace": "{{ x }}"}}]), 0);
        assert_eq!(kinds.namespaces.into_iter().collect::<Vec<_>>(), ["monitoring", "shared"]);
        let name = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
        assert_eq!(kinds.names.into_iter().collect::<Vec<_>>(), [name("ConfigMap", "page"), name("Secret", "literal")]);
        assert_eq!(kinds.listed_in_all_namespaces.into_iter().collect::<Vec<_>>(), ["Pod"]);
    }

    #[test]
    fn kinds_of_unvalidated_tasks_are_created_or_only_read() {
        let tasks = "
- k8s: {api_version: v1, kind: ConfigMap, name: x}
- kubernetes.core.k8s: {kind: Pod, name: x, state: absent}
- kubernetes.core.k8s: {definition: {apiVersion: v1, kind: List, items: [{apiVersion: batch/v1, kind: Job}]}}
- block:
  - kubernetes.core.k8s_info:
      api_version: v1
      kind: Secret
      name: known
      namespace: other
- kubernetes.core.k8s_scale: {api_version: apps/v1, kind: Deployment, name: x, replicas: 1}
- shell: |
    kubectl apply -f - <<EOF
      apiVersion: v1
      kind: Service
    EOF
";
        let mut kinds = Kinds::default();
        let mut search = Search { kinds: &mut kinds, layers: Vec::new(), files: Arc::default() };
        yaml::documents(tasks, &Vault::default())
            .unwrap()
            .iter()
            .for_each(|document| search.unvalidated_tasks(document, 0));
        let names = |kinds: &BTreeSet<Kind>| kinds.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(&kinds.created), ["configmaps", "pods", "services", "deployments.apps", "jobs.batch"]);
        assert_eq!(names(&kinds.read), ["secrets"]);
        assert!(kinds.namespaces.contains("other"));
    }

    #[test]
    fn invalid_names_are_no_kinds() {
        assert!(
            kind_of("v1", "{{ x }}").is_none() && kind_of("", "Pod").is_none() && kind_of("a/b/c", "Pod").is_none()
        );
        assert!(!kind_of("rbac.authorization.k8s.io/v1", "ClusterRole").unwrap().is_namespaced());
        assert!(!kind_of("networking.k8s.io/v1", "ServiceCIDR").unwrap().is_namespaced());
        for group in ["example.com", "example.k8s.io", "apps"] {
            assert!(kind_of(&format!("{group}/v1"), "Node").unwrap().is_namespaced());
        }
    }
}
