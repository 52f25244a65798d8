//! RBAC: roles, bindings, and the rules that they grant.
//!
//! Takes objects, returns rules and the bindings of a user. It does not depend on the store: `authorize` reads it. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>.

use super::{ActionTarget, User};
use crate::kinds::{self, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind, ROLE, ROLE_BINDING};
use crate::storage::Entry;
use flyball_core::service_account::split_user_name;
use flyball_core::{Object, ObjectKey};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A kind of subjects.
const SERVICE_ACCOUNT: &str = kinds::SERVICE_ACCOUNT.kind;

/// All roles and bindings, by namespace; `None` has those of the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Policy(BTreeMap<Option<String>, Arc<Scope>>);

/// The roles and bindings of a namespace or of the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    roles: BTreeMap<String, Arc<[Rule]>>,
    bindings: BTreeMap<String, Arc<Binding>>,
    /// The number of bindings and of the rules of their roles, which bounds the checks of a decision. A cluster role
    /// counts as it was when the scope last changed.
    checks: usize,
}

#[derive(Debug)]
pub(super) struct Binding {
    name: String,
    namespace: Option<String>,
    subjects: Vec<Subject>,
    /// Indexes of the subjects, sorted by key: a check takes one search for each group of the user, however many
    /// subjects there are.
    order: Vec<usize>,
    role_kind: String,
    role_name: String,
}

#[derive(Debug)]
pub(super) struct Subject {
    kind: String,
    namespace: String,
    name: String,
}

impl Subject {
    /// Returns the key of the subject in a binding of a namespace.
    fn key<'s>(&'s self, binding_namespace: &'s str) -> (&'s str, &'s str, &'s str) {
        let namespace = match &*self.kind {
            SERVICE_ACCOUNT if self.namespace.is_empty() => binding_namespace,
            SERVICE_ACCOUNT => &self.namespace,
            _ => "",
        };
        (&self.kind, namespace, &self.name)
    }
}

/// A rule of a role: verbs on resources, or on paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub(crate) groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) verbs: Vec<String>,
    pub(crate) paths: Vec<String>,
}

fn has(list: &[String], expected: &str) -> bool {
    list.iter().any(|known| known == "*" || known == expected)
}

impl Rule {
    pub(crate) fn read(rule: &Value) -> Self {
        let list = |field: &str| {
            rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            verbs: list("verbs"),
            paths: list("nonResourceURLs"),
        }
    }

    /// Returns about how many bytes the rule has as JSON.
    pub(crate) fn bytes(&self) -> usize {
        const FRAME: usize = 64;
        let lists = [&self.groups, &self.resources, &self.names, &self.verbs, &self.paths];
        FRAME + lists.into_iter().flatten().map(|text| text.len() + 3).sum::<usize>()
    }

    pub(crate) fn write(&self) -> Value {
        let mut rule = serde_json::Map::new();
        let mut put = |field: &str, list: &[String]| {
            if !list.is_empty() {
                rule.insert(field.to_owned(), list.into());
            }
        };
        put("verbs", &self.verbs);
        put("apiGroups", &self.groups);
        put("resources", &self.resources);
        put("resourceNames", &self.names);
        put("nonResourceURLs", &self.paths);
        Value::Object(rule)
    }

    /// Returns true if the rule allows a verb on a resource or path.
    pub(crate) fn allows(&self, verb: &str, on: &ActionTarget<'_>) -> bool {
        if !has(&self.verbs, verb) {
            return false;
        }
        match on {
            ActionTarget::Path(path) => self.paths.iter().any(|known| {
                known == "*" || known == path || known.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
            }),
            ActionTarget::Resource { group, resource, subresource, name, .. } => {
                let full =
                    if subresource.is_empty() { (*resource).to_owned() } else { format!("{resource}/{subresource}") };
                let any = (!subresource.is_empty()).then(|| format!("*/{subresource}"));
                let resource =
                    self.resources.iter().any(|known| known == "*" || *known == full || Some(known) == any.as_ref());
                resource
                    && has(&self.groups, group)
                    && (self.names.is_empty() || self.names.iter().any(|known| known == name))
            }
        }
    }
}

/// Prints the rule as in escalation errors: `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("ResourceNames", &self.names),
            ("NonResourceURLs", &self.paths),
            ("Verbs", &self.verbs),
        ];
        let parts = parts.iter().filter(|(_, list)| !list.is_empty()).map(|(name, list)| {
            let list: Vec<String> = list.iter().map(|text| flyball_core::field::go_quote(text)).collect();
            format!("{name}:[{}]", list.join(" "))
        });
        write!(f, "{{{}}}", parts.collect::<Vec<_>>().join(", "))
    }
}

impl Binding {
    fn read(object: &Object) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let subjects = object.get("subjects").and_then(Value::as_array).into_iter().flatten();
        let subjects: Vec<Subject> = subjects
            .map(|s| Subject { kind: text(&s["kind"]), namespace: text(&s["namespace"]), name: text(&s["name"]) })
            .collect();
        let here = object.namespace().unwrap_or_default();
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        // The sort is stable: equal subjects keep their order.
        order.sort_by_key(|at| subjects[*at].key(here));
        let role = object.get("roleRef").cloned().unwrap_or_default();
        Self {
            name: object.name().to_owned(),
            namespace: object.namespace().map(str::to_owned),
            subjects,
            order,
            role_kind: text(&role["kind"]),
            role_name: text(&role["name"]),
        }
    }

    /// Returns the first subject that matches a user.
    fn subject_of(&self, user: &User) -> Option<&Subject> {
        let account = split_user_name(&user.name);
        let account = account.map(|(namespace, name)| (SERVICE_ACCOUNT, namespace, name));
        let groups = user.groups.iter().map(|group| ("Group", "", &**group));
        let keys = groups.chain([("User", "", &*user.name)]).chain(account);
        keys.filter_map(|key| self.index_of(key)).min().map(|at| &self.subjects[at])
    }

    /// Returns the index of the first subject with a key.
    fn index_of(&self, key: (&str, &str, &str)) -> Option<usize> {
        let here = self.namespace.as_deref().unwrap_or_default();
        let first = self.order.partition_point(|at| self.subjects[*at].key(here) < key);
        self.order.get(first).copied().filter(|at| self.subjects[*at].key(here) == key)
    }

    pub(super) fn reason(&self, subject: &Subject) -> String {
        let (kind, name) = match &self.namespace {
            Some(namespace) => (ROLE_BINDING.kind, format!("{}/{namespace}", self.name)),
            None => (CLUSTER_ROLE_BINDING.kind, self.name.clone()),
        };
        let subject_name = match &*subject.kind {
            SERVICE_ACCOUNT => format!("{}/{}", subject.name, subject.namespace),
            _ => subject.name.clone(),
        };
        format!(
            "RBAC: allowed by {kind} {name:?} of {} {:?} to {} {subject_name:?}",
            self.role_kind, self.role_name, subject.kind
        )
    }
}

/// A role or binding that was written or, without content, removed.
pub(super) struct Change {
    namespace: Option<String>,
    name: String,
    content: Content,
}

enum Content {
    Role(Option<Arc<[Rule]>>),
    Binding(Option<Arc<Binding>>),
}

impl Change {
    pub(super) fn written(kind: &Kind, entry: &Entry) -> Self {
        // Unreadable roles and bindings grant nothing.
        let object = entry.object().ok();
        Self::of(kind, &entry.key, object.as_ref())
    }

    pub(super) fn of(kind: &Kind, key: &ObjectKey, object: Option<&Object>) -> Self {
        let content = if [&ROLE, &CLUSTER_ROLE].iter().any(|role| role.kind == kind.kind) {
            let rules = |object: &Object| {
                object.get("rules").and_then(Value::as_array).into_iter().flatten().map(Rule::read).collect()
            };
            Content::Role(object.map(rules))
        } else {
            Content::Binding(object.map(|object| Arc::new(Binding::read(object))))
        };
        Self { namespace: key.namespace().map(str::to_owned), name: key.name().to_owned(), content }
    }
}

impl Policy {
    /// Returns the policy after changes. It shares unchanged scopes with the one before.
    pub(super) fn with(mut self, changes: impl IntoIterator<Item = Change>) -> Self {
        let mut changed = BTreeSet::new();
        for Change { namespace, name, content } in changes {
            if !changed.contains(&namespace) {
                changed.insert(namespace.clone());
            }
            let scope = Arc::make_mut(self.0.entry(namespace).or_default());
            match content {
                Content::Role(Some(rules)) => drop(scope.roles.insert(name, rules)),
                Content::Role(None) => drop(scope.roles.remove(&name)),
                Content::Binding(Some(binding)) => drop(scope.bindings.insert(name, binding)),
                Content::Binding(None) => drop(scope.bindings.remove(&name)),
            }
        }
        for namespace in changed {
            let bindings = self.0[&namespace].bindings.values();
            let checks = bindings.map(|binding| 1 + self.rules(binding).len()).sum();
            match self.0.get_mut(&namespace) {
                Some(scope) if scope.roles.is_empty() && scope.bindings.is_empty() => drop(self.0.remove(&namespace)),
                Some(scope) => Arc::make_mut(scope).checks = checks,
                None => {}
            }
        }
        self
    }

    pub(super) fn role(&self, binding: &Binding) -> Option<&Arc<[Rule]>> {
        let namespace = if binding.role_kind == ROLE.kind { &binding.namespace } else { &None };
        self.0.get(namespace)?.roles.get(&binding.role_name)
    }

    pub(super) fn rules(&self, binding: &Binding) -> &[Rule] {
        self.role(binding).map_or(&[], |rules| &rules[..])
    }

    /// Returns the rules of a role, or of a cluster role without a namespace.
    pub(super) fn rules_of_role(&self, namespace: Option<&str>, name: &str) -> Option<&Arc<[Rule]>> {
        self.0.get(&namespace.map(str::to_owned))?.roles.get(name)
    }

    /// Returns how many bindings and rules a decision in a namespace checks at most.
    pub(super) fn checks(&self, namespace: &str) -> usize {
        self.scopes(namespace).map(|scope| scope.checks).sum()
    }

    /// Returns the maximum of [`checks`](Self::checks) of a single scope.
    pub(super) fn max_checks(&self) -> usize {
        self.0.values().map(|scope| scope.checks).max().unwrap_or_default()
    }

    /// Returns the scopes of a namespace (empty: the cluster).
    fn scopes(&self, namespace: &str) -> impl Iterator<Item = &Scope> {
        let local = if namespace.is_empty() { None } else { self.0.get(&Some(namespace.to_owned())) };
        self.0.get(&None).into_iter().chain(local).map(|scope| &**scope)
    }

    /// Returns the bindings of a user in a namespace (empty: the cluster), with the matching subject.
    pub(super) fn bindings_of<'p>(
        &'p self,
        user: &'p User,
        namespace: &str,
    ) -> impl Iterator<Item = (&'p Binding, &'p Subject)> {
        let all = self.scopes(namespace).flat_map(|scope| scope.bindings.values());
        all.filter_map(|binding| Some((&**binding, binding.subject_of(user)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(text: &str) -> Rule {
        Rule::read(&serde_json::from_str(text).expect("JSON"))
    }

    fn on(resource: &'static str, subresource: &'static str, name: &'static str) -> ActionTarget<'static> {
        ActionTarget::Resource { group: "", resource, subresource, namespace: "a", name }
    }

    #[test]
    fn subresources_are_separate_resources() {
        let pods = rule(r#"{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}"#);
        assert!(pods.allows("get", &on("pods", "", "x")));
        assert!(!pods.allows("get", &on("pods", "log", "x")));
        assert!(!pods.allows("list", &on("pods", "", "")));
        let any = rule(r#"{"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["*"]}"#);
        assert!(any.allows("update", &on("pods", "scale", "x")));
        assert!(!any.allows("update", &on("pods", "", "x")));
    }

    #[test]
    fn resource_names_restrict_a_rule() {
        let one =
            rule(r#"{"apiGroups": [""], "resources": ["pods"], "resourceNames": ["x"], "verbs": ["get", "list"]}"#);
        assert!(one.allows("get", &on("pods", "", "x")));
        assert!(!one.allows("get", &on("pods", "", "y")));
        assert!(!one.allows("list", &on("pods", "", "")));
    }

    #[test]
    fn paths_may_end_in_a_star() {
        let paths = rule(r#"{"nonResourceURLs": ["/healthz", "/apis/*"], "verbs": ["get"]}"#);
        assert!(paths.allows("get", &ActionTarget::Path("/apis/apps/v1")));
        assert!(paths.allows("get", &ActionTarget::Path("/healthz")));
        assert!(!paths.allows("get", &ActionTarget::Path("/healthz/x")));
    }

    fn binding(namespace: Option<&str>, subjects: Value) -> Binding {
        let object =
            json!({"kind": "RoleBinding", "metadata": {"name": "b", "namespace": namespace}, "subjects": subjects});
        Binding::read(&Object::try_from(object).expect("an object"))
    }

    #[test]
    fn first_matching_subject_is_found_among_many() {
        let many = |n: usize| json!({"kind": "ServiceAccount", "name": format!("x{n}")});
        let mut subjects: Vec<Value> = (0..20_000).map(many).collect();
        subjects.push(json!({"kind": "Group", "name": "g"}));
        subjects.push(json!({"kind": "User", "name": "ann"}));
        subjects.push(json!({"kind": "ServiceAccount", "name": "x7", "namespace": "b"}));
        let binding = binding(Some("a"), subjects.into());
        let found = |user: User| binding.subject_of(&user).map(|subject| (&*subject.kind, &*subject.name));
        assert_eq!(found(User::service_account("a", "x19999")), Some(("ServiceAccount", "x19999")));
        assert_eq!(found(User::service_account("b", "x7")), Some(("ServiceAccount", "x7")));
        assert_eq!(found(User::service_account("b", "x8")), None);
        assert_eq!(found(User::new("ann", &["g"])), Some(("Group", "g")));
        assert_eq!(found(User::new("ann", &["h"])), Some(("User", "ann")));
        assert_eq!(found(User::new("x7", &["ann"])), None);
        // Each search halves what is left.
        assert!(
            binding.order.len() == binding.subjects.len()
                && binding.order.is_sorted_by_key(|at| binding.subjects[*at].key("a"))
        );
    }

    #[test]
    fn subject_lookup_equals_a_linear_search() {
        let kinds = ["User", "Group", "ServiceAccount", "Robot"];
        let (namespaces, names) = (["", "a", "b"], ["p", "q", "r"]);
        let all: Vec<Value> = (0..36)
            .map(|n: usize| json!({"kind": kinds[n % 4], "namespace": namespaces[n / 4 % 3], "name": names[n / 12]}))
            .collect();
        let users = [
            User::service_account("a", "p"),
            User::service_account("b", "q"),
            User::service_account("", "r"),
            User::new("p", &["q", "r"]),
            User::new("r", &[]),
        ];
        for skip in 0..all.len() {
            for namespace in [None, Some("a")] {
                let binding = binding(namespace, all[skip..].to_vec().into());
                for user in &users {
                    let account = split_user_name(&user.name);
                    let is_user = |subject: &&Subject| match &*subject.kind {
                        "User" => subject.name == user.name,
                        "Group" => user.is_in(&subject.name),
                        "ServiceAccount" => {
                            account == Some((subject.key(namespace.unwrap_or_default()).1, &subject.name))
                        }
                        _ => false,
                    };
                    let expected = binding.subjects.iter().find(is_user).map(std::ptr::from_ref);
                    assert_eq!(binding.subject_of(user).map(std::ptr::from_ref), expected, "{user:?} {skip}");
                }
            }
        }
    }
}
