//! The reasons for which a key is in the queue.

use super::Trigger;

/// Limit of causes that are kept for one reconcile; further ones are counted.
pub(crate) const MAX_CAUSES: usize = 8;

/// A reason for a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An object changed. Its version is 0 if it was deleted.
    Change(Trigger),
    /// The first list contained the object.
    Start,
    /// A list after an interruption may have merged changes.
    Relist,
    /// A source of the author: a timer, a poll or a channel.
    Source(&'static str),
    /// A change could not be mapped, so that all objects are reconciled.
    UnmappedChange,
    /// The time that the last reconcile requested is over.
    RequeueAfter,
    /// The backoff after a failure is over.
    Backoff,
    /// The key waited for memory.
    Memory,
}

/// The causes of one reconcile, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Causes {
    /// Most reconciles have one cause, which needs no allocation.
    first: Option<Cause>,
    others: Vec<Cause>,
    omitted: u32,
}

impl Causes {
    /// Adds a cause, unless it repeats the last one.
    pub(crate) fn push(&mut self, cause: Cause) {
        match (&self.first, self.others.last()) {
            (None, _) => self.first = Some(cause),
            (Some(last), None) | (Some(_), Some(last)) if *last == cause => {}
            (Some(_), _) if self.others.len() + 1 < MAX_CAUSES => self.others.push(cause),
            (Some(_), _) => self.omitted = self.omitted.saturating_add(1),
        }
    }

    /// Returns the causes that are kept.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cause> {
        self.first.iter().chain(&self.others)
    }

    /// Returns the number of causes that are not kept.
    pub(crate) fn omitted(&self) -> u32 {
        self.omitted
    }

    /// Returns the bytes that it has allocated, including names of objects.
    pub(crate) fn heap_bytes(&self) -> usize {
        let name = |cause: &Cause| match cause {
            Cause::Change(trigger) => trigger.object.as_str().len(),
            _ => 0,
        };
        self.others.capacity() * size_of::<Cause>() + self.iter().map(name).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::ObjectKey;

    #[test]
    fn causes_are_bounded_and_not_repeated() {
        let change =
            |version| Cause::Change(Trigger { store: 0, object: ObjectKey::new(None, "a"), before: 0, version });
        let mut causes = Causes::default();
        causes.push(Cause::Start);
        causes.push(Cause::Start);
        assert_eq!((causes.iter().count(), causes.omitted()), (1, 0));
        for version in 0..20 {
            causes.push(change(version));
            causes.push(change(version));
        }
        let kept: Vec<&Cause> = causes.iter().collect();
        assert_eq!((kept.len(), kept[0], kept[1]), (MAX_CAUSES, &Cause::Start, &change(0)));
        // The repetition of a change that was not kept counts as well.
        assert_eq!(causes.omitted(), 2 * 13);
        assert!(causes.heap_bytes() >= 7 * size_of::<Cause>() + 7);
    }
}
