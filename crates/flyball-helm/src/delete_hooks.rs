//! Hooks of a release being deleted, compared with those that the chart renders.
//!
//! Others may have written the Secret of the release, and the operator may create more than they may. So a hook runs
//! only as the chart renders it, and each rendered hook at most once. The comparison takes linear time, since others
//! determine the number of hooks in the Secret.

use crate::hooks;
use crate::resources;
use crate::storage::{Hook, Revision};
use crate::verified::describe;
use std::collections::BTreeMap;

/// Limit of hooks in an event about skipped ones, and of characters of their names.
const MAX_NAMED_HOOKS: usize = 5;
const MAX_NAME_CHARS: usize = 100;

const EVENTS: [&str; 2] = ["pre-delete", "post-delete"];

/// Returns true if a hook runs when the release is uninstalled.
pub(crate) fn is_delete_hook(hook: &Hook) -> bool {
    delete_events(hook).contains(&true)
}

/// Replaces the hooks of a release being deleted by those that the chart renders. Empties those that it does not
/// render, and returns some of their names.
pub(crate) fn replace_unverified(revision: &mut Revision, rendered: &Revision) -> Vec<String> {
    let mut rendered = RenderedHooks::of(rendered);
    let hooks = revision.hooks.iter_mut().filter(|hook| is_delete_hook(hook) && !hooks::is_empty(hook));
    // Other hooks must not be matched with one that is in the Secret as rendered.
    let unverified: Vec<&mut Hook> = hooks.filter(|hook| rendered.remove_same(hook).is_none()).collect();
    let mut skipped = Vec::new();
    for hook in unverified {
        match rendered.remove_namesake(hook) {
            Some(other) => {
                hook.path.clone_from(&other.path);
                hook.manifest.clone_from(&other.manifest);
                hook.delete_policies.clone_from(&other.delete_policies);
            }
            None => {
                // Its position remains: completed steps are counted.
                hook.manifest.clear();
                hook.delete_policies.clear();
                if skipped.len() < MAX_NAMED_HOOKS {
                    skipped.push(hook.name.chars().take(MAX_NAME_CHARS).collect());
                }
            }
        }
    }
    skipped
}

/// The delete events that run a hook: `pre-delete` and `post-delete`.
type DeleteEvents = [bool; 2];

fn delete_events(hook: &Hook) -> DeleteEvents {
    EVENTS.map(|event| hook.events.iter().any(|known| known == event))
}

/// Kind, name and namespace of a hook's object.
type Identity = (String, String, String);

/// The delete hooks of a rendering that are not matched yet.
struct RenderedHooks<'r> {
    namespace: &'r str,
    hooks: Vec<Option<&'r Hook>>,
    /// Indices of hooks by their description.
    by_description: BTreeMap<String, Vec<usize>>,
    /// Indices of hooks by their object and events.
    by_identity: BTreeMap<(Identity, DeleteEvents), Vec<usize>>,
}

impl<'r> RenderedHooks<'r> {
    fn of(rendered: &'r Revision) -> Self {
        let hooks = rendered.hooks.iter().filter(|hook| is_delete_hook(hook)).map(Some).collect();
        let namespace = &rendered.namespace;
        let mut found = Self { namespace, hooks, by_description: BTreeMap::new(), by_identity: BTreeMap::new() };
        // The indices of equal hooks are popped from the end.
        for (index, hook) in found.hooks.iter().enumerate().rev() {
            let Some(hook) = hook else { continue };
            found.by_description.entry(describe(hook)).or_default().push(index);
            if let Some(identity) = identity(hook, namespace) {
                found.by_identity.entry((identity, delete_events(hook))).or_default().push(index);
            }
        }
        found
    }

    /// Removes and returns a hook that equals another one, apart from its outcome.
    fn remove_same(&mut self, hook: &Hook) -> Option<&'r Hook> {
        remove(&mut self.hooks, self.by_description.get_mut(&describe(hook))?)
    }

    /// Removes and returns a hook with the same kind, namespace and name that runs at all delete events of another one.
    fn remove_namesake(&mut self, hook: &Hook) -> Option<&'r Hook> {
        let (identity, events) = (identity(hook, self.namespace)?, delete_events(hook));
        for superset in [events, [true, true]] {
            let indices = self.by_identity.get_mut(&(identity.clone(), superset));
            if let Some(found) = indices.and_then(|indices| remove(&mut self.hooks, indices)) {
                return Some(found);
            }
        }
        None
    }
}

/// Removes and returns the last of these hooks that is not removed yet.
fn remove<'r>(hooks: &mut [Option<&'r Hook>], indices: &mut Vec<usize>) -> Option<&'r Hook> {
    while let Some(index) = indices.pop() {
        if let Some(hook) = hooks[index].take() {
            return Some(hook);
        }
    }
    None
}

fn identity(hook: &Hook, namespace: &str) -> Option<Identity> {
    // The hook may be forged: this way of parsing is bounded.
    let resource = resources::of_manifest(&hook.manifest).ok()?.into_iter().next()?;
    let namespace = resource.namespace().unwrap_or(namespace).to_owned();
    Some((hook.kind.clone(), hook.name.clone(), namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(kind: &str, namespace: &str, events: &[&str]) -> Hook {
        Hook {
            name: "a".into(),
            kind: kind.into(),
            manifest: format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: a, namespace: '{namespace}'}}\n"),
            events: events.iter().map(|event| (*event).to_owned()).collect(),
            ..Hook::default()
        }
    }

    fn replaced(hooks: Vec<Hook>, rendered: Vec<Hook>) -> (Vec<Hook>, Vec<String>) {
        let rendered = Revision { hooks: rendered, namespace: "default".into(), ..Revision::default() };
        let mut revision = Revision { hooks, ..Revision::default() };
        let skipped = replace_unverified(&mut revision, &rendered);
        (revision.hooks, skipped)
    }

    #[test]
    fn namesakes_have_the_same_object_and_run_at_the_same_delete_events() {
        let rendered = hook("Job", "", &["pre-delete", "post-install"]);
        let is_namesake = |hook: &Hook| replaced(vec![hook.clone()], vec![rendered.clone()]).1.is_empty();
        assert!(is_namesake(&hook("Job", "default", &["pre-delete"])));
        assert!(is_namesake(&hook("Job", "", &["pre-delete", "pre-install"])));
        assert!(!is_namesake(&hook("Job", "kube-system", &["pre-delete"])));
        assert!(!is_namesake(&hook("Pod", "", &["pre-delete"])));
        assert!(!is_namesake(&hook("Job", "", &["pre-delete", "post-delete"])));
        assert!(!is_namesake(&Hook { manifest: "{".into(), ..hook("Job", "", &["pre-delete"]) }));
        assert!(!is_namesake(&Hook { name: "b".into(), ..hook("Job", "", &["pre-delete"]) }));
        assert!(replaced(vec![hook("Job", "", &["post-delete"])], vec![hook("Job", "", &EVENTS)]).1.is_empty());
    }

    #[test]
    fn rendered_hook_is_matched_once() {
        let rendered = hook("Job", "", &["pre-delete"]);
        let forged = Hook { path: "forged".into(), ..rendered.clone() };
        let hooks = vec![forged.clone(), rendered.clone(), rendered.clone(), forged];
        let (hooks, skipped) = replaced(hooks, vec![rendered.clone()]);
        assert_eq!(hooks.iter().map(hooks::is_empty).collect::<Vec<_>>(), [true, false, true, true]);
        assert_eq!((&hooks[1], skipped.len()), (&rendered, 3));
    }

    #[test]
    fn many_forged_hooks_are_compared_in_linear_time() {
        // Comparing all pairs would take hours.
        const COUNT: usize = 20_000;
        let hooks = |path: &str| vec![Hook { path: path.into(), ..hook("Job", "", &["pre-delete"]) }; COUNT];
        let (_, skipped) = replaced(hooks("forged"), hooks("rendered"));
        assert!(skipped.is_empty());
    }
}
