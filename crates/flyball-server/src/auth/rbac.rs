//! RBAC: what roles allow, and to whom they are bound.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>.

use super::{Action, Decision, MASTERS, On, User};
use crate::storage::{Entry, Revision, Store};
use flyball_core::{GroupResource, Object, ObjectKey};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Decides what may be done.
#[derive(Default)]
pub(crate) struct Rbac {
    /// The rules as they were last read, and the versions of the tables that they were read from.
    policy: Mutex<Option<(Versions, Arc<Policy>)>>,
}

type Versions = [Revision; 4];

/// What the rules are read from.
const TABLES: [&str; 4] = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];

/// All roles and bindings.
#[derive(Clone, Debug, Default)]
struct Policy {
    /// Rules by namespace (`None` for cluster roles) and name.
    roles: BTreeMap<(Option<String>, String), Arc<[Rule]>>,
    /// Bindings by namespace (`None` for cluster role bindings) and name.
    bindings: BTreeMap<Option<String>, BTreeMap<String, Arc<Binding>>>,
}

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
        // There may be very many subjects.
        let account = user.name.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
        self.subjects.iter().find(|subject| match &*subject.kind {
            "User" => subject.name == user.name,
            "Group" => user.is_in(&subject.name),
            "ServiceAccount" => account.is_some_and(|(namespace, name)| {
                let at = if subject.namespace.is_empty() {
                    self.namespace.as_deref().unwrap_or_default()
                } else {
                    &subject.namespace
                };
                name == subject.name && namespace == at
            }),
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
    fn read(store: &Store) -> Self {
        let mut policy = Self::default();
        for table in TABLES {
            let entries = store.list(&GroupResource::new(GROUP, table), None).entries;
            entries.iter().for_each(|entry| policy.put(table, entry));
        }
        policy
    }

    /// Brings the rules up to date with what was written to a table after a revision; `false` if that is not known any
    /// more.
    fn follow(&mut self, store: &Store, table: &str, since: Revision) -> bool {
        let Ok((events, _)) = store.events_after(&GroupResource::new(GROUP, table), since, usize::MAX) else {
            return false;
        };
        for event in events {
            if event.removed {
                self.remove(table, &event.after.key);
            } else {
                self.put(table, &event.after);
            }
        }
        true
    }

    fn put(&mut self, table: &str, entry: &Entry) {
        // What cannot be read allows nothing.
        let Ok(object) = entry.object() else { return self.remove(table, &entry.key) };
        let (namespace, name) = (entry.key.namespace().map(str::to_owned), entry.key.name().to_owned());
        if is_role(table) {
            let rules = object.get("rules").and_then(Value::as_array).into_iter().flatten().map(Rule::read).collect();
            self.roles.insert((namespace, name), rules);
        } else {
            self.bindings.entry(namespace).or_default().insert(name, Arc::new(Binding::read(&object)));
        }
    }

    fn remove(&mut self, table: &str, key: &ObjectKey) {
        let namespace = key.namespace().map(str::to_owned);
        if is_role(table) {
            self.roles.remove(&(namespace, key.name().to_owned()));
        } else if let Some(bindings) = self.bindings.get_mut(&namespace) {
            bindings.remove(key.name());
        }
    }

    fn rules(&self, binding: &Binding) -> &[Rule] {
        let namespace = if binding.role_kind == "Role" { binding.namespace.clone() } else { None };
        self.roles.get(&(namespace, binding.role_name.clone())).map_or(&[], |rules| &rules[..])
    }

    /// Returns the bindings that hold for a user in a namespace (empty: the cluster), with the subject they hold by.
    fn held<'p>(&'p self, user: &'p User, namespace: &str) -> impl Iterator<Item = (&'p Binding, &'p Subject)> {
        let local = if namespace.is_empty() { None } else { self.bindings.get(&Some(namespace.to_owned())) };
        let all = self.bindings.get(&None).into_iter().chain(local).flat_map(BTreeMap::values);
        all.filter_map(|binding| Some((&**binding, binding.subject_of(user)?)))
    }
}

impl Rbac {
    /// Returns the same for a store that goes on from an image of this one's.
    pub(crate) fn image(&self) -> Self {
        Self { policy: Mutex::new(self.known().clone()) }
    }

    /// Rules that were being brought up to date when something panicked are brought up to date once more.
    fn known(&self) -> MutexGuard<'_, Option<(Versions, Arc<Policy>)>> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rules as they are now.
    fn policy(&self, store: &Store) -> Arc<Policy> {
        let versions = TABLES.map(|table| store.changed(&GroupResource::new(GROUP, table)));
        let mut known = self.known();
        match &mut *known {
            Some((read, policy)) if *read == versions => return policy.clone(),
            Some((read, policy)) => {
                let changing = Arc::make_mut(policy);
                let mut moved = TABLES.iter().zip(*read).zip(versions).filter(|((_, read), now)| read != now);
                if moved.all(|((table, read), _)| changing.follow(store, table, read)) {
                    *read = versions;
                    return policy.clone();
                }
            }
            None => {}
        }
        let policy = Arc::new(Policy::read(store));
        *known = Some((versions, policy.clone()));
        policy
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
        self.policy(store).roles.get(&(namespace.map(str::to_owned), name.to_owned())).map(|rules| rules.to_vec())
    }
}

fn is_role(table: &str) -> bool {
    matches!(table, "roles" | "clusterroles")
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
}
