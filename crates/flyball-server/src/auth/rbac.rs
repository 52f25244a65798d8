//! RBAC: what roles allow, and to whom they are bound.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>.

use super::{Action, Decision, MASTERS, On, User};
use crate::storage::{Entry, Revision, Store};
use flyball_core::{GroupResource, Object};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Decides what may be done.
#[derive(Default)]
pub(crate) struct Rbac {
    /// The rules as they were last read, and the versions of the tables that they were read from.
    policy: Mutex<Option<(Versions, Arc<Policy>)>>,
}

type Versions = [Revision; 4];

/// All roles and bindings.
#[derive(Debug, Default)]
struct Policy {
    /// Rules by namespace (`None` for cluster roles) and name.
    roles: BTreeMap<(Option<String>, String), Known<[Rule]>>,
    cluster_bindings: Vec<Known<Binding>>,
    /// Bindings by namespace.
    bindings: BTreeMap<String, Vec<Known<Binding>>>,
}

/// What was read of a state of an object.
type Known<T> = (Revision, Arc<T>);

#[derive(Debug)]
struct Binding {
    name: String,
    namespace: Option<String>,
    subjects: Vec<Subject>,
    role_kind: String,
    role_name: String,
}

#[derive(Debug)]
struct Subject {
    kind: String,
    namespace: String,
    name: String,
}

/// A rule of a role: these verbs on these resources, or on these paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub(crate) groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) verbs: Vec<String>,
    pub(crate) paths: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|known| known == "*" || known == wanted)
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

    /// Tells whether the rule allows a verb on something.
    pub(crate) fn allows(&self, verb: &str, on: &On<'_>) -> bool {
        if !has(&self.verbs, verb) {
            return false;
        }
        match on {
            On::Path(path) => self.paths.iter().any(|known| {
                known == "*" || known == path || known.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
            }),
            On::Resource { group, resource, subresource, name, .. } => {
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

    /// Splits the rule into such as allow one verb on one resource of one group, or on one path.
    pub(crate) fn atoms(&self) -> Vec<Rule> {
        let one = |text: &String| vec![text.clone()];
        let mut atoms = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let names: Vec<Vec<String>> =
                        if self.names.is_empty() { vec![Vec::new()] } else { self.names.iter().map(one).collect() };
                    for names in names {
                        atoms.push(Rule {
                            groups: one(group),
                            resources: one(resource),
                            verbs: one(verb),
                            names,
                            paths: Vec::new(),
                        });
                    }
                }
            }
        }
        for path in &self.paths {
            for verb in &self.verbs {
                atoms.push(Rule { paths: one(path), verbs: one(verb), ..Rule::default() });
            }
        }
        atoms
    }

    /// Tells whether the rule allows all that an atom does.
    pub(crate) fn covers(&self, atom: &Rule) -> bool {
        let all = |ours: &[String], theirs: &[String]| theirs.iter().all(|wanted| has(ours, wanted));
        if !all(&self.verbs, &atom.verbs) {
            return false;
        }
        if let [path] = &atom.paths[..] {
            return self
                .paths
                .iter()
                .any(|known| known == path || known.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix)));
        }
        let resources = atom.resources.iter().all(|wanted| {
            let subresource = wanted.split_once('/').map(|(_, sub)| format!("*/{sub}"));
            has(&self.resources, wanted) || subresource.is_some_and(|any| self.resources.contains(&any))
        });
        let names =
            self.names.is_empty() || !atom.names.is_empty() && atom.names.iter().all(|name| self.names.contains(name));
        all(&self.groups, &atom.groups) && resources && names
    }
}

/// Prints as refusals of escalation do: `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`.
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
        let role = object.get("roleRef").cloned().unwrap_or_default();
        Self {
            name: object.name().to_owned(),
            namespace: object.namespace().map(str::to_owned),
            subjects: subjects
                .map(|s| Subject { kind: text(&s["kind"]), namespace: text(&s["namespace"]), name: text(&s["name"]) })
                .collect(),
            role_kind: text(&role["kind"]),
            role_name: text(&role["name"]),
        }
    }

    /// Returns the subject by which the binding holds for a user.
    fn subject_of(&self, user: &User) -> Option<&Subject> {
        self.subjects.iter().find(|subject| match &*subject.kind {
            "User" => subject.name == user.name,
            "Group" => user.is_in(&subject.name),
            "ServiceAccount" => {
                let namespace = if subject.namespace.is_empty() {
                    self.namespace.as_deref().unwrap_or_default()
                } else {
                    &subject.namespace
                };
                user.name == format!("system:serviceaccount:{namespace}:{}", subject.name)
            }
            _ => false,
        })
    }

    fn reason(&self, subject: &Subject) -> String {
        let (kind, name) = match &self.namespace {
            Some(namespace) => ("RoleBinding", format!("{}/{namespace}", self.name)),
            None => ("ClusterRoleBinding", self.name.clone()),
        };
        let whom = match &*subject.kind {
            "ServiceAccount" => format!("{}/{}", subject.name, subject.namespace),
            _ => subject.name.clone(),
        };
        format!(
            "RBAC: allowed by {kind} {name:?} of {} {:?} to {} {whom:?}",
            self.role_kind, self.role_name, subject.kind
        )
    }
}

impl Policy {
    /// Reads all roles and bindings; those that are as they were are taken over.
    fn read(store: &Store, before: &Self) -> Self {
        let entries = |resource: &str| store.list(&GroupResource::new(GROUP, resource), None).entries.into_iter();
        let mut policy = Self::default();
        for entry in entries("roles").chain(entries("clusterroles")) {
            let key = (entry.key.namespace().map(str::to_owned), entry.key.name().to_owned());
            let known = before.roles.get(&key).filter(|known| known.0 == entry.revision).cloned();
            let read = || {
                let role = entry.object();
                let rules = role.get("rules").and_then(Value::as_array).into_iter().flatten();
                (entry.revision, rules.map(Rule::read).collect())
            };
            policy.roles.insert(key, known.unwrap_or_else(read));
        }
        let bindings = before.bindings.values().flatten().chain(&before.cluster_bindings);
        let bindings: BTreeMap<Revision, &Arc<Binding>> =
            bindings.map(|(revision, binding)| (*revision, binding)).collect();
        let binding = |entry: &Entry| {
            let known = bindings.get(&entry.revision).copied().cloned();
            (entry.revision, known.unwrap_or_else(|| Arc::new(Binding::read(&entry.object()))))
        };
        policy.cluster_bindings = entries("clusterrolebindings").map(|entry| binding(&entry)).collect();
        for entry in entries("rolebindings") {
            let namespace = entry.key.namespace().unwrap_or_default().to_owned();
            policy.bindings.entry(namespace).or_default().push(binding(&entry));
        }
        policy
    }

    fn rules(&self, binding: &Binding) -> &[Rule] {
        let namespace = if binding.role_kind == "Role" { binding.namespace.clone() } else { None };
        self.roles.get(&(namespace, binding.role_name.clone())).map_or(&[], |(_, rules)| rules)
    }

    /// Returns the bindings that hold for a user in a namespace (empty: the cluster), with the subject they hold by.
    fn held<'p>(&'p self, user: &'p User, namespace: &str) -> impl Iterator<Item = (&'p Binding, &'p Subject)> {
        let local = self.bindings.get(namespace).into_iter().flatten();
        let all = self.cluster_bindings.iter().chain(local);
        all.filter_map(|(_, binding)| Some((&**binding, binding.subject_of(user)?)))
    }
}

impl Rbac {
    /// Returns the same for a store that goes on from an image of this one's.
    pub(crate) fn image(&self) -> Self {
        Self { policy: Mutex::new(self.policy.lock().expect("nothing panics while it reads the rules").clone()) }
    }

    /// Returns the rules as they are now.
    fn policy(&self, store: &Store) -> Arc<Policy> {
        let versions = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"]
            .map(|resource| store.changed(&GroupResource::new(GROUP, resource)));
        let mut known = self.policy.lock().expect("nothing panics while it reads the rules");
        match &*known {
            Some((read, policy)) if *read == versions => policy.clone(),
            before => {
                let empty = Policy::default();
                let before = before.as_ref().map_or(&empty, |(_, policy)| policy);
                let policy = Arc::new(Policy::read(store, before));
                *known = Some((versions, policy.clone()));
                policy
            }
        }
    }

    /// Decides whether something may be done.
    pub(crate) fn decide(&self, store: &Store, action: &Action<'_>) -> Decision {
        if action.user.is_in(MASTERS) {
            return Decision::Allowed(String::new());
        }
        let policy = self.policy(store);
        let namespace = match action.on {
            On::Resource { namespace, .. } => namespace,
            On::Path(_) => "",
        };
        let allowing = policy
            .held(action.user, namespace)
            .find(|(binding, _)| policy.rules(binding).iter().any(|rule| rule.allows(action.verb, &action.on)));
        allowing.map_or(Decision::NoOpinion, |(binding, subject)| Decision::Allowed(binding.reason(subject)))
    }

    /// Returns all rules that hold for a user in a namespace.
    pub(crate) fn rules_of(&self, store: &Store, user: &User, namespace: &str) -> Vec<Rule> {
        let policy = self.policy(store);
        let mut rules: Vec<Rule> =
            policy.held(user, namespace).flat_map(|(binding, _)| policy.rules(binding)).cloned().collect();
        if user.is_in(MASTERS) {
            let all = || vec!["*".to_owned()];
            rules.push(Rule { groups: all(), resources: all(), verbs: all(), ..Rule::default() });
            rules.push(Rule { paths: all(), verbs: all(), ..Rule::default() });
        }
        rules
    }

    /// Returns the rules of a role, if there is one.
    pub(crate) fn rules_of_role(&self, store: &Store, namespace: Option<&str>, name: &str) -> Option<Vec<Rule>> {
        let policy = self.policy(store);
        policy.roles.get(&(namespace.map(str::to_owned), name.to_owned())).map(|(_, rules)| rules.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        Rule::read(&serde_json::from_str(text).expect("JSON"))
    }

    fn on(resource: &'static str, subresource: &'static str, name: &'static str) -> On<'static> {
        On::Resource { group: "", resource, subresource, namespace: "a", name }
    }

    #[test]
    fn a_subresource_is_a_resource_of_its_own() {
        let pods = rule(r#"{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}"#);
        assert!(pods.allows("get", &on("pods", "", "x")));
        assert!(!pods.allows("get", &on("pods", "log", "x")));
        assert!(!pods.allows("list", &on("pods", "", "")));
        let any = rule(r#"{"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["*"]}"#);
        assert!(any.allows("update", &on("pods", "scale", "x")));
        assert!(!any.allows("update", &on("pods", "", "x")));
    }

    #[test]
    fn names_narrow_a_rule() {
        let one =
            rule(r#"{"apiGroups": [""], "resources": ["pods"], "resourceNames": ["x"], "verbs": ["get", "list"]}"#);
        assert!(one.allows("get", &on("pods", "", "x")));
        assert!(!one.allows("get", &on("pods", "", "y")));
        assert!(!one.allows("list", &on("pods", "", "")));
    }

    #[test]
    fn paths_may_end_in_a_star() {
        let paths = rule(r#"{"nonResourceURLs": ["/healthz", "/apis/*"], "verbs": ["get"]}"#);
        assert!(paths.allows("get", &On::Path("/apis/apps/v1")));
        assert!(paths.allows("get", &On::Path("/healthz")));
        assert!(!paths.allows("get", &On::Path("/healthz/x")));
    }

    #[test]
    fn a_rule_covers_what_it_allows_and_no_more() {
        let mine = rule(r#"{"apiGroups": [""], "resources": ["pods", "*/scale"], "verbs": ["get"]}"#);
        let asked = rule(r#"{"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get"]}"#);
        let missing: Vec<String> =
            asked.atoms().iter().filter(|atom| !mine.covers(atom)).map(ToString::to_string).collect();
        assert_eq!(missing, [r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#]);
    }
}
