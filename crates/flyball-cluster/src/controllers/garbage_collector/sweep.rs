//! The check of one object: deletes or updates it depending on its owners and dependents.

use super::graph::{FOREGROUND, Graph, Node, ORPHAN};
use crate::controllers::discovery::ServedResource;
use flyball_core::ObjectKey;
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::core::{DynamicObject, PartialObjectMeta};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

type Metadata = PartialObjectMeta<DynamicObject>;

/// The dependencies of a check.
pub(super) struct Sweep<'a> {
    pub(super) client: &'a kube::Client,
    pub(super) graph: &'a Mutex<Graph>,
    /// True if the check may be put off until all kinds are listed.
    pub(super) may_wait: bool,
}

/// The reason why an object must be processed again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("some kinds are not listed yet")]
    Unlisted,
}

/// State of the owner of a reference.
enum Owner {
    /// An object that is not being deleted in the foreground.
    Solid,
    /// An object that waits for the deletion of its dependents.
    Waiting,
    /// No object.
    Absent,
}

/// Combined state of the owners of an object.
#[derive(Default)]
struct Owners {
    solid: Vec<OwnerReference>,
    waiting: Vec<OwnerReference>,
    absent: Vec<OwnerReference>,
}

impl Sweep<'_> {
    /// Processes an object. After an error, the object should be processed again.
    pub(super) async fn process_item(&self, uid: &str) -> Result<(), Error> {
        let Some(node) = self.read(|graph| graph.get(uid).cloned()) else { return Ok(()) };
        // These need all dependents.
        let needs_all = node.orphans() || node.waits();
        if needs_all && self.may_wait && !self.read(|graph| graph.is_complete(Instant::now())) {
            return Err(Error::Unlisted);
        }
        if node.orphans() {
            return Ok(self.orphan_dependents(uid, &node).await?);
        }
        if node.waits() {
            if self.read(|graph| graph.is_blocked(uid)) {
                return Ok(()); // their deletion queues this one again
            }
            return Ok(self.remove_finalizer(uid, &node, FOREGROUND).await?);
        }
        if node.deleting || node.owners.is_empty() {
            return Ok(());
        }
        Ok(self.attempt_to_delete_item(uid, &node).await?)
    }

    /// Deletes an object if all of its owners are gone or waiting; otherwise removes their references.
    async fn attempt_to_delete_item(&self, uid: &str, node: &Node) -> kube::Result<()> {
        let Some(live) = self.get(&node.kind, &node.key).await?.filter(|live| live.uid().as_deref() == Some(uid))
        else {
            return Ok(());
        };
        if live.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let Some(owners) = self.owners(uid, node.key.namespace(), live.owner_references()).await? else {
            return Ok(());
        };
        if !owners.solid.is_empty() {
            if owners.absent.is_empty() && owners.waiting.is_empty() {
                return Ok(());
            }
            return self.patch(node, &live, json!({"ownerReferences": owners.solid})).await;
        }
        if owners.waiting.is_empty() && owners.absent.is_empty() {
            return Ok(());
        }
        let dependents = || self.read(|graph| graph.dependents(uid));
        if owners.waiting.is_empty() || !self.read(|graph| graph.has_dependents(uid)) {
            let has = |finalizer: &str| live.finalizers().iter().any(|known| known == finalizer);
            let policy = if has(ORPHAN) {
                "Orphan"
            } else if has(FOREGROUND) {
                "Foreground"
            } else {
                "Background"
            };
            return self.delete(node, &live, policy).await;
        }
        if dependents().iter().any(|(_, node)| node.waits()) {
            // In a cycle, each object waits for the next: unblock this one.
            let free = |owner: &OwnerReference| OwnerReference { block_owner_deletion: Some(false), ..owner.clone() };
            let owners: Vec<OwnerReference> = live.owner_references().iter().map(free).collect();
            if owners != live.owner_references() {
                self.patch(node, &live, json!({"ownerReferences": owners})).await?;
            }
        }
        self.delete(node, &live, "Foreground").await
    }

    /// Resolves references; `None` if that is not possible.
    async fn owners(
        &self,
        uid: &str,
        namespace: Option<&str>,
        references: &[OwnerReference],
    ) -> kube::Result<Option<Owners>> {
        let mut owners = Owners::default();
        for reference in references {
            match self.owner(uid, namespace, reference).await? {
                None => return Ok(None),
                Some(Owner::Solid) => owners.solid.push(reference.clone()),
                Some(Owner::Waiting) => owners.waiting.push(reference.clone()),
                Some(Owner::Absent) => owners.absent.push(reference.clone()),
            }
        }
        Ok(Some(owners))
    }

    async fn owner(
        &self,
        uid: &str,
        namespace: Option<&str>,
        reference: &OwnerReference,
    ) -> kube::Result<Option<Owner>> {
        let known = self.read(|graph| {
            graph
                .get(&reference.uid)
                .filter(|node| node.is_referenced_by(reference.into(), namespace))
                .map(|node| node.waits())
        });
        if let Some(waits) = known {
            return Ok(Some(if waits { Owner::Waiting } else { Owner::Solid }));
        }
        if self.read(|graph| graph.is_absent(reference, namespace)) {
            return Ok(Some(Owner::Absent));
        }
        let Some(kind) = self.read(|graph| graph.kind(reference)) else {
            self.read(|graph| graph.defer_object(uid));
            return Ok(None);
        };
        if kind.namespaced && namespace.is_none() {
            tracing::warn!(
                uid,
                owner = reference.name,
                "a cluster-scoped object has a namespaced owner; it is ignored"
            );
            return Ok(None);
        }
        let key = ObjectKey::new(namespace.filter(|_| kind.namespaced), &reference.name);
        let live = self.get(&kind, &key).await?.filter(|live| live.uid().as_deref() == Some(&reference.uid));
        Ok(Some(match live {
            None => {
                self.read(|graph| graph.found_absent(reference, namespace));
                Owner::Absent
            }
            Some(live) => {
                let waits =
                    live.metadata.deletion_timestamp.is_some() && live.finalizers().iter().any(|f| f == FOREGROUND);
                if waits { Owner::Waiting } else { Owner::Solid }
            }
        }))
    }

    /// Removes the owner references of all dependents, and then the finalizer of the owner.
    async fn orphan_dependents(&self, uid: &str, node: &Node) -> kube::Result<()> {
        for (dependent, at) in self.read(|graph| graph.dependents(uid)) {
            let Some(live) =
                self.get(&at.kind, &at.key).await?.filter(|live| live.uid().as_deref() == Some(&*dependent))
            else {
                continue;
            };
            let rest: Vec<_> = live.owner_references().iter().filter(|owner| owner.uid != uid).collect();
            if rest.len() < live.owner_references().len() {
                self.patch(&at, &live, json!({"ownerReferences": rest})).await?;
            }
        }
        self.remove_finalizer(uid, node, ORPHAN).await
    }

    async fn remove_finalizer(&self, uid: &str, node: &Node, finalizer: &str) -> kube::Result<()> {
        let Some(live) = self.get(&node.kind, &node.key).await?.filter(|live| live.uid().as_deref() == Some(uid))
        else {
            return Ok(());
        };
        let rest: Vec<_> = live.finalizers().iter().filter(|known| *known != finalizer).collect();
        if rest.len() == live.finalizers().len() {
            return Ok(());
        }
        self.patch(node, &live, json!({"finalizers": rest})).await
    }

    /// Patches the metadata of an object, unless it has changed since it was read.
    async fn patch(&self, node: &Node, live: &Metadata, mut metadata: Value) -> kube::Result<()> {
        metadata["uid"] = json!(live.uid());
        metadata["resourceVersion"] = json!(live.resource_version());
        let Some(path) = node.kind.object_path(&node.key) else { return Ok(()) };
        let patch = Request::patch(path).header(http::header::CONTENT_TYPE, "application/merge-patch+json");
        self.send(patch, json!({"metadata": metadata})).await
    }

    /// Deletes an object, unless it has changed since it was read.
    async fn delete(&self, node: &Node, live: &Metadata, policy: &str) -> kube::Result<()> {
        let Some(path) = node.kind.object_path(&node.key) else { return Ok(()) };
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": policy,
            "preconditions": {"uid": live.uid(), "resourceVersion": live.resource_version()},
        });
        let delete = Request::delete(path).header(http::header::CONTENT_TYPE, "application/json");
        self.send(delete, options).await
    }

    async fn send(&self, request: http::request::Builder, body: Value) -> kube::Result<()> {
        let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        match self.client.request_text(request).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }

    async fn get(&self, kind: &ServedResource, key: &ObjectKey) -> kube::Result<Option<Metadata>> {
        if kind.object_path(key).is_none() {
            return Ok(None);
        }
        let request =
            kube::core::Request::new(kind.path(key.namespace())).get_metadata(key.name(), &Default::default());
        match self.client.request(request.map_err(kube::Error::BuildRequest)?).await {
            Ok(live) => Ok(Some(live)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read<T>(&self, read: impl FnOnce(&mut Graph) -> T) -> T {
        read(&mut self.graph.lock())
    }
}
