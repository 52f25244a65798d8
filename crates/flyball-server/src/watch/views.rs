//! The encoded views of recent events, which watches share.
//!
//! An event is decoded once for all watches with the same view. Invariant: the views take a limited amount of memory;
//! those of the oldest events are removed first.

use crate::catalog::Resource;
use crate::encoder::ResponseEncoder;
use crate::request::accept::{Form, View};
use crate::storage::{Entry, Revision};
use crate::table::Include;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Maximum number of bytes of all encoded views, besides those of the latest event.
const MAX_BYTES: usize = 8 << 20;

/// All that an encoded object depends on, besides the revision of its event.
#[derive(Clone)]
pub(super) struct ViewKey {
    /// The revision of the state: an object that gets out of sight is shown as it was before.
    state: Revision,
    resource: Weak<Resource>,
    form: Form,
    include: Include,
    has_headings: bool,
    /// The second of the ages in a table.
    second: i64,
}

impl ViewKey {
    pub(super) fn new(encoder: &ResponseEncoder, entry: &Entry, has_headings: bool) -> Self {
        let ResponseEncoder { clock, resource, form, include, .. } = encoder;
        let second = if form.view == View::Table { clock.now().as_second() } else { 0 };
        let resource = Arc::downgrade(resource);
        Self { state: entry.revision, resource, form: *form, include: *include, has_headings, second }
    }

    /// Returns true if the keys differ at most in the second.
    fn is_same_view(&self, other: &Self) -> bool {
        let Self { state, resource, form, include, has_headings, second: _ } = other;
        self.resource.ptr_eq(resource)
            && (self.state, self.form, self.include, self.has_headings) == (*state, *form, *include, *has_headings)
    }
}

/// The encoded views of recent events.
#[derive(Default)]
pub(crate) struct EncodedViews(Mutex<Views>);

#[derive(Default)]
struct Views {
    /// Encoded objects, by the revision of the event.
    events: BTreeMap<Revision, Vec<(ViewKey, Bytes)>>,
    bytes: usize,
}

fn size(object: &Bytes) -> usize {
    size_of::<(ViewKey, Bytes)>() + object.len()
}

impl EncodedViews {
    /// Returns the encoded object of an event, if it is known.
    pub(super) fn get(&self, revision: Revision, key: &ViewKey) -> Option<Bytes> {
        let views = self.0.lock();
        let mut of_event = views.events.get(&revision)?.iter();
        let (known, object) = of_event.find(|(known, _)| known.is_same_view(key))?;
        (known.second == key.second).then(|| object.clone())
    }

    /// Adds the encoded object of an event.
    pub(super) fn put(&self, revision: Revision, key: ViewKey, object: Bytes) {
        let views = &mut *self.0.lock();
        views.bytes += size(&object);
        let of_event = views.events.entry(revision).or_default();
        match of_event.iter_mut().find(|(known, _)| known.is_same_view(&key)) {
            Some(known) => views.bytes -= size(&std::mem::replace(known, (key, object)).1),
            None => of_event.push((key, object)),
        }
        while views.bytes > MAX_BYTES && views.events.len() > 1 {
            let oldest = views.events.pop_first().into_iter().flat_map(|(_, views)| views);
            views.bytes -= oldest.map(|(_, object)| size(&object)).sum::<usize>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(second: i64, has_headings: bool) -> ViewKey {
        ViewKey { state: 1, resource: Weak::new(), form: Form::PLAIN, include: Include::Nothing, has_headings, second }
    }

    #[test]
    fn views_take_limited_memory() {
        let views = EncodedViews::default();
        let object = Bytes::from(vec![b'x'; MAX_BYTES / 4]);
        for revision in 0..10 {
            for second in 0..10 {
                views.put(revision, key(second, true), object.clone());
            }
            assert_eq!(views.get(revision, &key(9, true)), Some(object.clone()));
            assert_eq!((views.get(revision, &key(8, true)), views.get(revision, &key(9, false))), (None, None));
        }
        assert_eq!(views.get(0, &key(9, true)), None);
        let held = views.0.lock();
        assert_eq!((held.events.len(), held.bytes), (3, 3 * size(&object)));
    }
}
