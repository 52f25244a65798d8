//! RBAC: what roles allow, and to whom they are bound.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>.

use super::{Action, Decision, MASTERS, On, User};
use crate::kinds::{self, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind, ROLE, ROLE_BINDING};
use crate::storage::{Entry, Event, Revision, Store};
use flyball_core::{GroupResource, Object, ObjectKey};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// A sort of subjects.
const SERVICE_ACCOUNT: &str = kinds::SERVICE_ACCOUNT.kind;

/// Decides what may be done.
#[derive(Default)]
pub(crate) struct Rbac {
    /// The rules as they were last read, and the versions of the tables that they were read from. Held for a moment
    /// only: nothing is read under it.
    policy: Mutex<Option<(Versions, Arc<Policy>)>>,
    /// Held by whoever reads roles and bindings, which takes long if there are very many subjects.
    reading: Mutex<()>,
}

type Versions = [Revision; 4];

/// The kinds that the rules are read from.
static KINDS: [&Kind; 4] = [&ROLE, &CLUSTER_ROLE, &ROLE_BINDING, &CLUSTER_ROLE_BINDING];

/// All roles and bindings, by namespace; `None` has those of the cluster.
#[derive(Clone, Debug, Default)]
struct Policy(BTreeMap<Option<String>, Arc<Scope>>);

/// The roles and bindings of a namespace or of the cluster.
#[derive(Clone, Debug, Default)]
struct Scope {
    roles: BTreeMap<String, Arc<[Rule]>>,
    bindings: BTreeMap<String, Arc<Binding>>,
    /// Bindings, and the rules of their roles: an upper bound of what one decision looks at. A role of the cluster
    /// counts as it was when the scope last changed.
    checks: usize,
}

#[derive(Debug)]
struct Binding {
    name: String,
    namespace: Option<String>,
    subjects: Vec<Subject>,
    /// The places of the subjects in the order of their keys: a check costs as many searches as a user has groups,
    /// however many subjects there are.
    order: Vec<usize>,
    role_kind: String,
    role_name: String,
}

#[derive(Debug)]
struct Subject {
    kind: String,
    namespace: String,
    name: String,
}

impl Subject {
    /// Returns what tells the subject from others, in a binding of a namespace.
    fn key<'s>(&'s self, binding_namespace: &'s str) -> (&'s str, &'s str, &'s str) {
        let namespace = match &*self.kind {
            SERVICE_ACCOUNT if self.namespace.is_empty() => binding_namespace,
            SERVICE_ACCOUNT => &self.namespace,
            _ => "",
        };
        (&self.kind, namespace, &self.name)
    }
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

    /// Returns whether the rule allows a verb on something.
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
        let subjects: Vec<Subject> = subjects
            .map(|s| Subject { kind: text(&s["kind"]), namespace: text(&s["namespace"]), name: text(&s["name"]) })
            .collect();
        let here = object.namespace().unwrap_or_default();
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        // Stable: of equal subjects the first comes first.
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

    /// Returns the first subject by which the binding holds for a user.
    fn subject_of(&self, user: &User) -> Option<&Subject> {
        let account = user.name.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
        let account = account.map(|(namespace, name)| (SERVICE_ACCOUNT, namespace, name));
        let groups = user.groups.iter().map(|group| ("Group", "", &**group));
        let keys = groups.chain([("User", "", &*user.name)]).chain(account);
        keys.filter_map(|key| self.place_of(key)).min().map(|at| &self.subjects[at])
    }

    /// Returns the place of the first subject of a key.
    fn place_of(&self, key: (&str, &str, &str)) -> Option<usize> {
        let here = self.namespace.as_deref().unwrap_or_default();
        let first = self.order.partition_point(|at| self.subjects[*at].key(here) < key);
        self.order.get(first).copied().filter(|at| self.subjects[*at].key(here) == key)
    }

    fn reason(&self, subject: &Subject) -> String {
        let (kind, name) = match &self.namespace {
            Some(namespace) => (ROLE_BINDING.kind, format!("{}/{namespace}", self.name)),
            None => (CLUSTER_ROLE_BINDING.kind, self.name.clone()),
        };
        let whom = match &*subject.kind {
            SERVICE_ACCOUNT => format!("{}/{}", subject.name, subject.namespace),
            _ => subject.name.clone(),
        };
        format!(
            "RBAC: allowed by {kind} {name:?} of {} {:?} to {} {whom:?}",
            self.role_kind, self.role_name, subject.kind
        )
    }
}

/// A role or a binding that was written or, without content, removed.
struct Change {
    namespace: Option<String>,
    name: String,
    content: Content,
}

enum Content {
    Role(Option<Arc<[Rule]>>),
    Binding(Option<Arc<Binding>>),
}

impl Change {
    fn written(kind: &Kind, entry: &Entry) -> Self {
        // What cannot be read allows nothing.
        let object = entry.object().ok();
        Self::of(kind, &entry.key, object.as_ref())
    }

    fn of(kind: &Kind, key: &ObjectKey, object: Option<&Object>) -> Self {
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

/// Reads what was written to a table after a revision; `None` if that is not known any more.
fn changes(store: &Store, kind: &Kind, since: Revision) -> Option<Vec<Change>> {
    let (events, _) = store.events_after(&kind.table(), since, usize::MAX).ok()?;
    let change = |event: Arc<Event>| match event.removed {
        true => Change::of(kind, &event.after.key, None),
        false => Change::written(kind, &event.after),
    };
    Some(events.into_iter().map(change).collect())
}

impl Policy {
    fn read(store: &Store) -> Self {
        let entries = KINDS.into_iter().flat_map(|kind| {
            let entries = store.list(&kind.table(), None).entries;
            entries.into_iter().map(move |entry| Change::written(kind, &entry))
        });
        Self::default().with(entries)
    }

    /// Returns the policy after changes. Scopes that they are not about are shared with the one before.
    fn with(mut self, changes: impl IntoIterator<Item = Change>) -> Self {
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

    fn role(&self, binding: &Binding) -> Option<&Arc<[Rule]>> {
        let namespace = if binding.role_kind == ROLE.kind { &binding.namespace } else { &None };
        self.0.get(namespace)?.roles.get(&binding.role_name)
    }

    fn rules(&self, binding: &Binding) -> &[Rule] {
        self.role(binding).map_or(&[], |rules| &rules[..])
    }

    /// Returns the scopes that hold in a namespace (empty: the cluster).
    fn scopes(&self, namespace: &str) -> impl Iterator<Item = &Scope> {
        let local = if namespace.is_empty() { None } else { self.0.get(&Some(namespace.to_owned())) };
        self.0.get(&None).into_iter().chain(local).map(|scope| &**scope)
    }

    /// Returns the bindings that hold for a user in a namespace (empty: the cluster), with the subject they hold by.
    fn held<'p>(&'p self, user: &'p User, namespace: &str) -> impl Iterator<Item = (&'p Binding, &'p Subject)> {
        let all = self.scopes(namespace).flat_map(|scope| scope.bindings.values());
        all.filter_map(|binding| Some((&**binding, binding.subject_of(user)?)))
    }
}

impl Rbac {
    /// Returns the same for a store that goes on from an image of this one's.
    pub(crate) fn image(&self) -> Self {
        Self { policy: Mutex::new(self.known().clone()), reading: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Option<(Versions, Arc<Policy>)>> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rules as they are now, or as they were before a write that is not answered yet.
    fn policy(&self, store: &Store) -> Arc<Policy> {
        let known = self.known().clone();
        match known {
            Some((read, policy)) if read == versions(store) => policy,
            // Somebody reads them already, and answers only then: see `refresh`.
            Some((_, policy)) => match self.reading.try_lock() {
                Err(TryLockError::WouldBlock) => policy,
                Err(TryLockError::Poisoned(reading)) => self.read(store, &reading.into_inner()),
                Ok(reading) => self.read(store, &reading),
            },
            None => self.read(store, &self.reading()),
        }
    }

    /// Brings the rules up to date with what was written. A write of a role or a binding is answered only after that,
    /// so that whatever is asked after the answer is decided by it.
    pub(crate) fn refresh(&self, store: &Store) {
        self.read(store, &self.reading());
    }

    fn reading(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what has changed, while others decide by the rules as they were.
    fn read(&self, store: &Store, _reading: &MutexGuard<'_, ()>) -> Arc<Policy> {
        let versions = versions(store);
        // Nobody else brings them up to date meanwhile.
        let read = self.known().as_ref().map(|(read, _)| *read);
        let changes = read.and_then(|read| {
            let moved = KINDS.into_iter().zip(read).zip(versions).filter(|((_, read), now)| read != now);
            let changes: Option<Vec<_>> = moved.map(|((kind, read), _)| changes(store, kind, read)).collect();
            Some(changes?.into_iter().flatten().collect::<Vec<_>>())
        });
        // Nobody waits for this: the lock is taken for a moment before, and after.
        let before = self.known().as_ref().map(|(_, policy)| policy.clone());
        let policy = match (changes, before) {
            (Some(changes), Some(before)) if changes.is_empty() => before,
            (Some(changes), Some(before)) => Arc::new(Policy::clone(&before).with(changes)),
            // Without knowing what has changed, all is read anew.
            _ => Arc::new(Policy::read(store)),
        };
        *self.known() = Some((versions, policy.clone()));
        policy
    }

    /// Decides whether something may be done.
    pub(crate) fn decide(&self, store: &Store, action: &Action<'_>) -> Decision {
        if action.user.is_in(MASTERS) {
            return Decision::Allowed(String::new());
        }
        let policy = self.policy(store);
        let allowing = policy
            .held(action.user, action.on.namespace())
            .find(|(binding, _)| policy.rules(binding).iter().any(|rule| rule.allows(action.verb, &action.on)));
        allowing.map_or(Decision::NoOpinion, |(binding, subject)| Decision::Allowed(binding.reason(subject)))
    }

    /// Returns how many bindings and rules a decision in a namespace looks at, at most.
    pub(crate) fn checks(&self, store: &Store, namespace: &str) -> usize {
        self.policy(store).scopes(namespace).map(|scope| scope.checks).sum()
    }

    /// Returns the same for the namespace where it is most.
    pub(crate) fn most_checks(&self, store: &Store) -> usize {
        let policy = self.policy(store);
        policy.0.values().map(|scope| scope.checks).max().unwrap_or_default()
    }

    /// Returns the roles whose rules hold for a user in a namespace, each once.
    pub(crate) fn roles_of(&self, store: &Store, user: &User, namespace: &str) -> Vec<Arc<[Rule]>> {
        let policy = self.policy(store);
        let mut known = BTreeSet::new();
        let held = policy.held(user, namespace).filter_map(|(binding, _)| policy.role(binding));
        let mut roles: Vec<_> = held.filter(|role| known.insert(role.as_ptr())).cloned().collect();
        if user.is_in(MASTERS) {
            let all = || vec!["*".to_owned()];
            let resources = Rule { groups: all(), resources: all(), verbs: all(), ..Rule::default() };
            roles.push(Arc::new([resources, Rule { paths: all(), verbs: all(), ..Rule::default() }]));
        }
        roles
    }

    /// Returns the rules of a role, if there is one.
    pub(crate) fn rules_of_role(&self, store: &Store, namespace: Option<&str>, name: &str) -> Option<Arc<[Rule]>> {
        let policy = self.policy(store);
        policy.0.get(&namespace.map(str::to_owned))?.roles.get(name).cloned()
    }
}

/// The versions of the tables as they are now.
fn versions(store: &Store) -> Versions {
    KINDS.map(|kind| store.changed(&kind.table()))
}

/// Returns whether rules are read from a table.
pub(crate) fn is_policy(table: &GroupResource) -> bool {
    &*table.group == ROLE.group
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Facts;
    use futures_util::FutureExt;
    use serde_json::json;

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

    fn binding(namespace: Option<&str>, subjects: Value) -> Binding {
        let object =
            json!({"kind": "RoleBinding", "metadata": {"name": "b", "namespace": namespace}, "subjects": subjects});
        Binding::read(&Object::try_from(object).expect("an object"))
    }

    #[test]
    fn the_first_subject_that_is_a_user_is_found_among_very_many() {
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
    fn subjects_are_those_of_looking_at_each() {
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
                    let account = user.name.strip_prefix("system:serviceaccount:").and_then(|a| a.split_once(':'));
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

    #[test]
    fn others_are_decided_about_while_somebody_reads_a_binding() {
        let store = Store::new(crate::storage::Limits::of(&crate::Bounds::default()));
        let put = |table: &str, object: Value| {
            let object = Object::try_from(object).expect("an object");
            let table = GroupResource::new(ROLE.group, table);
            let key = object.key();
            let make = |revision| Ok(Entry::new(key.clone(), object, revision, Facts::default(), 0));
            store.put(&table, &key, None, make).now_or_never().expect("no journal").expect("stored");
        };
        let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
        put("roles", json!({"metadata": {"name": "r", "namespace": "a"}, "rules": [rule]}));
        let rbac = Rbac::default();
        let may = |name: &str| {
            let user = User::new(name, &[]);
            rbac.decide(&store, &Action { user: &user, verb: "get", on: on("pods", "", "x") }) != Decision::NoOpinion
        };
        let bind = |name: &str| {
            let subject = json!({"kind": "User", "name": name});
            put(
                "rolebindings",
                json!({"metadata": {"name": name, "namespace": "a"},
                "roleRef": {"kind": "Role", "name": "r"}, "subjects": [subject]}),
            );
        };
        bind("ann");
        assert!(may("ann") && !may("bob"));
        let reading = rbac.reading.lock();
        bind("bob");
        assert!(may("ann") && !may("bob"), "nobody waits, and the write is not answered yet");
        drop(reading);
        rbac.refresh(&store);
        let reading = rbac.reading.lock();
        assert!(may("ann") && may("bob"), "what was read needs no reading");
        drop(reading);
    }
}
