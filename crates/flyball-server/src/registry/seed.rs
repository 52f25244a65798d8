//! Bootstrap objects, stored without admission and validation before the first request.
//!
//! They are many and servers must start fast, so each is built once in a process and then copied: only UID, time and
//! revision differ between servers.

use super::managed::Conversions;
use super::{Registry, candidate, managed, meta};
use crate::auth::bootstrap;
use crate::catalog::{Catalog, Resource, decode};
use crate::kinds::{Kind, Part};
use crate::storage::{Entry, Revision, SelectableFields};
use bytes::Bytes;
use flyball_core::time::Timestamp;
use flyball_core::{Clock, Object, ObjectKey, Rng};
use std::sync::{Arc, LazyLock};

/// An object without the fields that differ between servers.
struct Template {
    resource: Arc<Resource>,
    key: ObjectKey,
    facts: SelectableFields,
    depth: u8,
    body: Vec<Piece>,
}

#[derive(Clone, Copy, PartialEq)]
enum Placeholder {
    Uid,
    Time,
    Revision,
}

enum Piece {
    Text(Box<str>),
    Placeholder(Placeholder),
}

static TEMPLATES: LazyLock<Vec<Template>> = LazyLock::new(|| {
    let catalog = Catalog::built_in();
    let objects = bootstrap::objects().into_iter();
    objects.map(|(kind, object)| Template::new(&catalog, kind, object)).collect()
});

impl Template {
    fn new(catalog: &Catalog, kind: &Kind, object: Object) -> Self {
        let resource = catalog.of(kind);
        let object = built_in_object(catalog, &resource, object);
        let (key, facts, uid) = (object.key(), resource.facts(&object), object.uid().to_owned());
        let entry = Entry::new(key.clone(), object, Revision::MAX, facts.clone(), 0);
        let placeholders = [
            (format!("\"{uid}\""), Placeholder::Uid),
            (format!("\"{}\"", epoch().now_rfc3339()), Placeholder::Time),
            (format!("\"{}\"", Revision::MAX), Placeholder::Revision),
        ];
        let mut rest = std::str::from_utf8(&entry.body).expect("JSON is text");
        let mut body = Vec::new();
        let next = |rest: &str| {
            placeholders
                .iter()
                .filter_map(|(text, placeholder)| Some((rest.find(text)?, text.len(), *placeholder)))
                .min_by_key(|at| at.0)
        };
        while let Some((at, length, placeholder)) = next(rest) {
            body.extend([Piece::Text(rest[..at].into()), Piece::Placeholder(placeholder)]);
            rest = &rest[at + length..];
        }
        body.push(Piece::Text(rest.into()));
        Self { resource, key, facts, depth: entry.depth, body }
    }

    fn entry(&self, uid: &str, now: &str, revision: Revision) -> Entry {
        let mut body = String::with_capacity(self.body.len() * 64);
        for piece in &self.body {
            match piece {
                Piece::Text(text) => body.push_str(text),
                Piece::Placeholder(placeholder) => {
                    body.push('"');
                    match placeholder {
                        Placeholder::Uid => body.push_str(uid),
                        Placeholder::Time => body.push_str(now),
                        Placeholder::Revision => body.push_str(&revision.to_string()),
                    }
                    body.push('"');
                }
            }
        }
        let body = Bytes::copy_from_slice(body.as_bytes());
        let (key, facts) = (self.key.clone(), self.facts.clone());
        Entry {
            key,
            revision,
            body,
            facts,
            schema: 0,
            depth: self.depth,
            past: Default::default(),
            identity: Default::default(),
        }
    }
}

/// The creation time of templates.
fn epoch() -> Clock {
    Clock::new(|| Timestamp::UNIX_EPOCH)
}

/// Prepares an object as a create does.
fn built_in_object(catalog: &Catalog, resource: &Resource, mut object: Object) -> Object {
    let (clock, rng, status) = (epoch(), Rng::from_seed(0), object.remove("status"));
    object.set_kind(&resource.kind);
    let (mut object, _) = decode::read(resource, object).expect("built-in objects can be decoded");
    resource.default(&mut object);
    let now = clock.now_rfc3339();
    let name = match &*resource.kind.group {
        "flowcontrol.apiserver.k8s.io" => "api-priority-and-fairness-config-producer-v1",
        _ => "kube-apiserver",
    };
    let by = managed::FieldManager { name, part: Part::Whole, now: &now, conversions: &Conversions::default() };
    managed::update(catalog, resource, None, &mut object, &by).expect("built-in objects have few fields");
    candidate::clear_status(resource, &mut object);
    meta::set_system_fields(&mut object, &clock, &rng);
    if resource.counts_generations() {
        object.metadata_mut().insert("generation".into(), 1.into());
    }
    resource.prepare(&mut object, None, Part::Whole, &clock);
    if let Some(status) = status {
        object.insert("status".into(), status);
    }
    object
}

impl Registry {
    /// Stores the bootstrap objects that do not exist.
    pub(crate) fn seed(&self) {
        let now = self.clock.now_rfc3339();
        for template in &*TEMPLATES {
            let (resource, key) = (&*template.resource, &template.key);
            let Some(entry) = self.store.get(&resource.table, key) else {
                let uid = self.rng.uuid();
                self.store.seed(&resource.table, key, |revision| template.entry(&uid, &now, revision));
                continue;
            };
            // Quarantined objects are not replaced.
            let (Ok(mut known), Ok(fresh)) = (entry.object(), template.entry("", &now, 0).object()) else { continue };
            if bootstrap::add_rules(&mut known, &fresh) {
                self.store.seed(&resource.table, key, |revision| self.codec.encode(resource, key, known, revision));
            }
        }
        self.addresses.read();
    }
}
