//! Access of a run to objects that it does not own.
//!
//! Roles have the operator's permissions in all namespaces, and the custom resource may determine the names in them.
//! So a run for a namespaced custom resource can access its own namespace, and others that the role or `watches.yaml`
//! names literally. An existing object is changed only if it belongs to the custom resource, by its owner references or
//! annotations, or if the role names it literally. Objects outside of the namespace, and those that grant permissions,
//! are written only if a task or `watches.yaml` names their kind, since text of a user can become another document of a
//! template. Both executors use these checks.

use crate::job::Job;
use crate::playbook::{ALL_NAMESPACES, Kinds, Literals, SERVICE_ACCOUNT_TOKEN};
use serde_json::Value;
use std::sync::Arc;

/// Annotations with the owner of objects without owner reference, as in operator-sdk.
pub(crate) const PRIMARY: &str = "operator-sdk/primary-resource";
pub(crate) const PRIMARY_TYPE: &str = "operator-sdk/primary-resource-type";

/// Group and kind of service account token requests.
pub(crate) const TOKEN_REQUEST: (&str, &str) = ("authentication.k8s.io", "TokenRequest");

/// The API group of objects that grant permissions.
const RBAC: &str = "rbac.authorization.k8s.io";

/// The access of one run.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    kinds: Arc<Kinds>,
    /// The namespace of the reconciled object; a cluster-scoped one may access everything.
    own: Option<String>,
    key: String,
    uid: Option<String>,
    primary_type: String,
}

impl Access {
    pub(crate) fn of(job: &Job<'_>) -> Self {
        let types = job.object.types.clone().unwrap_or_default();
        let group = group_of(&types.api_version);
        Self {
            kinds: job.kinds.clone(),
            own: job.cx.key().namespace().map(str::to_owned),
            key: job.cx.key().to_string(),
            uid: job.object.metadata.uid.clone(),
            primary_type: format!("{}.{group}", types.kind),
        }
    }

    pub(crate) fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// Returns true if a namespace is that of the custom resource. A cluster-scoped one may access all namespaces.
    pub(crate) fn is_own(&self, namespace: Option<&str>) -> bool {
        self.own.as_deref().is_none_or(|own| Some(own) == namespace)
    }

    /// Rejects a namespace that neither the role nor `watches.yaml` names.
    pub(crate) fn check_namespace(&self, namespace: &str) -> Result<(), String> {
        match self.is_own(Some(namespace)) || self.kinds.is_namespace_named(namespace) {
            true => Ok(()),
            false => Err(format!(
                "a custom resource in namespace {} may not change objects in namespace {namespace:?}: \
                 name it literally in the role, or add it to allowNamespaces in watches.yaml",
                self.own.as_deref().unwrap_or_default()
            )),
        }
    }

    /// Rejects listing a kind in all namespaces unless the role does so literally.
    pub(crate) fn check_listing_all_namespaces(&self, kind: &str) -> Result<(), String> {
        match self.own.is_none()
            || self.kinds.listed_in_all_namespaces.contains(kind)
            || self.kinds.namespaces.contains(ALL_NAMESPACES)
        {
            true => Ok(()),
            false => Err(format!(
                "listing {kind} in all namespaces requires a literal request in the role: \
                 set the namespace, or add \"*\" to allowNamespaces in watches.yaml"
            )),
        }
    }

    /// Rejects writing an object outside of the namespace, or one that grants permissions, if neither a task nor
    /// `watches.yaml` names its kind.
    pub(crate) fn check_write(
        &self,
        group: &str,
        kind: &str,
        namespace: Option<&str>,
        object: &Value,
        named: &Literals,
    ) -> Result<(), String> {
        let id = (group.to_owned(), kind.to_owned());
        if self.own.is_none() || self.kinds.allowed.contains(&id) {
            return Ok(());
        }
        let is_token = group.is_empty() && kind == "Secret" && object["type"] == SERVICE_ACCOUNT_TOKEN;
        let is_guarded = !self.is_own(namespace) || group == RBAC || (group, kind) == TOKEN_REQUEST;
        let what = match () {
            () if is_guarded && !named.kinds.contains(&id) => "apiVersion and kind",
            () if is_token && !named.tokens => "type",
            () => return Ok(()),
        };
        Err(format!(
            "a {kind} that grants permissions, or is outside of the namespace of the custom resource, requires literal {what} in a definition \
             of the task, not from a template or variable: write them into the task, or add the kind to allowKinds in watches.yaml"
        ))
    }

    /// Rejects changing an existing object that does not belong to this run, unless the role or `watches.yaml` allows
    /// it.
    ///
    /// A literal name of the role allows it for objects without a controller. In the namespace of the custom resource,
    /// a kind in `allowKinds` allows it for all objects.
    pub(crate) fn check_change(
        &self,
        group: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        live: &Value,
    ) -> Result<(), String> {
        if self.own.is_none() || self.owns(live) {
            return Ok(());
        }
        let is_named = self.kinds.names.contains(&(kind.to_owned(), name.to_owned()));
        if !self.is_own(namespace) {
            return match is_named || self.annotations_match(live) == Some(true) {
                true => Ok(()),
                false => Err(format!(
                    "{kind} {name} was not created for {}, and the role does not name it literally: it is not changed",
                    self.key
                )),
            };
        }
        let reason = match self.other_owner(live) {
            _ if self.is_kind_allowed(group, kind) => return Ok(()),
            Some(owner) => format!("belongs to {owner}"),
            None if is_named || self.annotations_match(live) == Some(true) => return Ok(()),
            None => "was not created for it, and the role does not name it literally".to_owned(),
        };
        Err(format!(
            "{kind} {name} is not changed for {}: it {reason}. If users may change such objects, add the kind to \
             allowKinds in watches.yaml",
            self.key
        ))
    }

    /// Returns true if `watches.yaml` allows a kind in any case.
    pub(crate) fn is_kind_allowed(&self, group: &str, kind: &str) -> bool {
        self.kinds.allowed.contains(&(group.to_owned(), kind.to_owned()))
    }

    /// Returns true for the custom resource itself and for objects that it owns.
    fn owns(&self, live: &Value) -> bool {
        self.is_own_uid(&live["metadata"]["uid"]) || self.is_among_owners(live)
    }

    fn is_among_owners(&self, live: &Value) -> bool {
        owners(live).any(|owner| self.is_own_uid(&owner["uid"]))
    }

    fn is_own_uid(&self, uid: &Value) -> bool {
        uid.is_string() && uid.as_str() == self.uid.as_deref()
    }

    /// Returns true for an object that belongs to the custom resource by its owner references or annotations, but not
    /// for the custom resource itself.
    pub(crate) fn is_owner_of(&self, live: &Value) -> bool {
        self.is_among_owners(live) || (self.annotations_match(live) == Some(true) && self.other_owner(live).is_none())
    }

    /// Returns the controller of an object, or another custom resource of the operator to which it belongs.
    ///
    /// A role may set another controller for its own objects, such as its Deployment: annotations for this custom
    /// resource outweigh it. Only those who may write the object can annotate it, since runs annotate only objects that
    /// they create or that belong to them. Another custom resource of the operator always remains the owner.
    fn other_owner(&self, live: &Value) -> Option<String> {
        let is_annotated = self.annotations_match(live) == Some(true);
        let is_foreign = |owner: &&Value| {
            let (group, kind) = (group_of(owner["apiVersion"].as_str()?), owner["kind"].as_str()?);
            let is_controlled = owner["controller"] == true && !is_annotated;
            Some(is_controlled || format!("{kind}.{group}") == self.primary_type)
        };
        let owner = owners(live).find(|owner| is_foreign(owner) == Some(true));
        let owner = owner.map(|owner| format!("{} {}", text_of(&owner["kind"]), text_of(&owner["name"])));
        let marked = self.annotations_match(live) == Some(false);
        owner.or_else(|| marked.then(|| text_of(&live["metadata"]["annotations"][PRIMARY]).to_owned()))
    }

    /// Returns true if the annotations of an object refer to the custom resource of this run, and false if they refer
    /// to another one of its kind.
    fn annotations_match(&self, live: &Value) -> Option<bool> {
        let annotation = |name: &str| live["metadata"]["annotations"][name].as_str();
        let is_kind = annotation(PRIMARY_TYPE) == Some(&*self.primary_type);
        annotation(PRIMARY).filter(|_| is_kind).map(|key| key == self.key)
    }

    /// Annotates an object with the custom resource of this run.
    pub(crate) fn annotate(&self, object: &mut Value) {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(PRIMARY.into(), self.key.as_str().into());
            annotations.insert(PRIMARY_TYPE.into(), self.primary_type.as_str().into());
        }
    }
}

fn owners(live: &Value) -> impl Iterator<Item = &Value> {
    live["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// The access of the object `b/a` with a role that names these.
    pub(crate) fn access(kinds: Kinds) -> Access {
        let primary_type = "Shop.example.com".to_owned();
        Access {
            kinds: Arc::new(kinds),
            own: Some("b".to_owned()),
            key: "b/a".to_owned(),
            uid: Some("u1".to_owned()),
            primary_type,
        }
    }

    #[test]
    fn foreign_and_permission_granting_kinds_need_literal_names() {
        let check =
            |access: &Access, named: &Literals, group: &str, kind: &str, namespace: Option<&str>, object: Value| {
                access.check_write(group, kind, namespace, &object, named).is_ok()
            };
        let id = |group: &str, kind: &str| (group.to_owned(), kind.to_owned());
        let all: [(&str, &str, Option<&str>, Value); 6] = [
            (RBAC, "ClusterRoleBinding", None, json!({})),
            (RBAC, "RoleBinding", Some("b"), json!({})),
            ("", "ConfigMap", Some("shared"), json!({})),
            ("", "Namespace", None, json!({})),
            ("", "Secret", Some("b"), json!({"type": SERVICE_ACCOUNT_TOKEN})),
            (TOKEN_REQUEST.0, TOKEN_REQUEST.1, Some("b"), json!({})),
        ];
        for (group, kind, namespace, object) in all {
            let named = Literals { kinds: [id(group, kind)].into(), tokens: true };
            let allowed = Kinds { allowed: [id(group, kind)].into(), ..Kinds::default() };
            let bare = access(Kinds::default());
            assert!(!check(&bare, &Literals::default(), group, kind, namespace, object.clone()), "{kind}");
            assert!(check(&bare, &named, group, kind, namespace, object.clone()), "{kind}");
            assert!(check(&access(allowed), &Literals::default(), group, kind, namespace, object), "{kind}");
        }
        assert!(check(
            &access(Kinds::default()),
            &Literals::default(),
            "",
            "Secret",
            Some("b"),
            json!({"type": "Opaque"})
        ));
    }

    #[test]
    fn other_namespaces_need_literal_names() {
        let kinds = Kinds { namespaces: ["shared".to_owned()].into(), ..Kinds::default() };
        let access = access(kinds);
        assert!(access.check_namespace("b").is_ok() && access.check_namespace("shared").is_ok());
        assert!(
            access.check_namespace("kube-system").is_err()
                && access.check_namespace("").is_err()
                && access.check_namespace("*").is_err()
        );
        let all = super::tests::access(Kinds { namespaces: ["*".to_owned()].into(), ..Kinds::default() });
        assert!(all.check_namespace("kube-system").is_ok() && all.check_listing_all_namespaces("Pod").is_ok());
        assert!(access.check_listing_all_namespaces("Secret").is_err());
    }

    #[test]
    fn objects_in_other_namespaces_must_be_marked_or_named() {
        let names = [("ClusterRole".to_owned(), "known".to_owned())].into();
        let access = access(Kinds { names, ..Kinds::default() });
        let mut mine = json!({"metadata": {}});
        access.annotate(&mut mine);
        let change = |kind: &str, name: &str, live: &Value| access.check_change(RBAC, kind, None, name, live);
        assert!(change("ClusterRole", "mine", &mine).is_ok());
        assert!(change("ClusterRole", "known", &json!({})).is_ok());
        assert!(change("ClusterRole", "cluster-admin", &json!({})).is_err());
        mine["metadata"]["annotations"][PRIMARY] = "c/a".into();
        assert!(change("ClusterRole", "mine", &mine).is_err());
    }

    #[test]
    fn annotations_outweigh_a_controller_of_another_kind() {
        let access = access(Kinds::default());
        let controlled = |kind: &str| {
            let owner =
                json!({"apiVersion": "example.com/v1", "kind": kind, "name": "x", "uid": "u2", "controller": true});
            json!({"metadata": {"ownerReferences": [owner]}})
        };
        let change = |live: &Value| access.check_change("", "Secret", Some("b"), "any", live).is_ok();
        for (kind, is_changed) in [("Deployment", true), ("Shop", false)] {
            let mut live = controlled(kind);
            assert!(!change(&live) && !access.is_owner_of(&live), "{kind}");
            access.annotate(&mut live);
            assert_eq!((change(&live), access.is_owner_of(&live)), (is_changed, is_changed), "{kind}");
            live["metadata"]["annotations"][PRIMARY] = "b/z".into();
            assert!(!change(&live) && !access.is_owner_of(&live), "{kind}");
        }
        assert!(!access.is_owner_of(&json!({"metadata": {"uid": "u1"}})), "the custom resource itself");
    }

    #[test]
    fn objects_of_others_in_the_same_namespace_are_not_changed() {
        let names = [("Deployment".to_owned(), "known".to_owned())].into();
        let bare = access(Kinds { names, ..Kinds::default() });
        let allowing =
            access(Kinds { allowed: [("apps".to_owned(), "Deployment".to_owned())].into(), ..Kinds::default() });
        let owner = |uid: &str, kind: &str, controller: bool| json!({"metadata": {"ownerReferences": [{"apiVersion": "example.com/v1", "kind": kind, "name": "x", "uid": uid, "controller": controller}]}});
        let check = |access: &Access, name: &str, live: &Value| {
            access.check_change("apps", "Deployment", Some("b"), name, live)
        };
        let mut mine = json!({"metadata": {}});
        bare.annotate(&mut mine);
        for live in
            [&owner("u1", "Shop", true), &owner("u1", "Shop", false), &mine, &json!({"metadata": {"uid": "u1"}})]
        {
            assert_eq!(check(&bare, "any", live), Ok(()), "{live}");
        }
        assert_eq!(check(&bare, "known", &json!({"metadata": {"uid": "u9"}})), Ok(()));
        mine["metadata"]["annotations"][PRIMARY] = "b/z".into();
        for live in [&owner("u2", "Shop", true), &owner("u2", "Shop", false), &owner("u2", "Other", true), &mine] {
            let error = check(&bare, "known", live).unwrap_err();
            assert!(error.contains("belongs to ") && error.contains("allowKinds"), "{error}");
            assert_eq!(check(&allowing, "any", live), Ok(()), "{live}");
        }
        for live in [&json!({}), &json!({"metadata": {"uid": "u9"}}), &owner("u2", "Other", false)] {
            let error = check(&bare, "any", live).unwrap_err();
            assert!(error.contains("was not created for it"), "{error}");
            assert_eq!(check(&allowing, "any", live), Ok(()), "{live}");
        }
    }
}
