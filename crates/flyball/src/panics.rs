//! Caught panics of the author's code, and the hooks that report them.
//!
//! A panic affects one object, one change or one review: it is caught at the call of the author's code, becomes an
//! error there, and is reported to the operator's [hooks](crate::Operator::on_panic). The hooks are task-local, since
//! indexes and predicates have no reference to an operator. This module is independent of objects.
//!
//! Invariant: all futures of an operator that call its author's code run [within](Hooks::within) its hooks.

use crate::error::Result;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A hook that gets the location of a panic and its message.
pub(crate) type OnPanic = dyn Fn(&str, &str) + Send + Sync;

tokio::task_local! {
    static HOOKS: Hooks;
}

/// The hooks of one operator.
#[derive(Clone, Default)]
pub(crate) struct Hooks(Arc<[Arc<OnPanic>]>);

impl Hooks {
    /// Runs a future with these hooks for caught panics.
    pub(crate) fn within<F: Future>(&self, run: F) -> impl Future<Output = F::Output> + use<F> {
        HOOKS.scope(self.clone(), run)
    }
}

impl FromIterator<Arc<OnPanic>> for Hooks {
    fn from_iter<I: IntoIterator<Item = Arc<OnPanic>>>(hooks: I) -> Self {
        Self(hooks.into_iter().collect())
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hooks").field(&self.0.len()).finish()
    }
}

/// Runs code of the operator's author, and converts a panic to an error.
pub(crate) fn guarded<T>(place: fmt::Arguments<'_>, run: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| format!("panicked: {}", caught(place, &*panic)).into())
}

/// Reports a panic that was caught, and returns its message.
pub(crate) fn caught(place: fmt::Arguments<'_>, panic: &(dyn Any + Send)) -> String {
    let text = panic_text(panic);
    // Outside of an operator there are no hooks.
    let hooks = HOOKS.try_with(Hooks::clone).unwrap_or_default();
    for hook in hooks.0.iter() {
        if catch_unwind(AssertUnwindSafe(|| hook(&place.to_string(), &text))).is_err() {
            tracing::error!("the on_panic hook panicked");
        }
    }
    text
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[tokio::test]
    async fn panic_is_reported_to_the_hooks_of_its_task() {
        let reports = Arc::<Mutex<Vec<String>>>::default();
        let hook = {
            let reports = reports.clone();
            move |place: &str, text: &str| reports.lock().push(format!("{place}: {text}"))
        };
        let broken: Arc<OnPanic> = Arc::new(|_, _| panic!("of a hook"));
        let hooks = Hooks::from_iter([broken, Arc::new(hook) as Arc<OnPanic>]);
        let error = hooks.within(async { guarded(format_args!("index {}", 1), || -> () { panic!("no {}", 2) }) }).await;
        assert_eq!(error.unwrap_err().to_string(), "panicked: no 2");
        assert!(guarded(format_args!("elsewhere"), || -> () { panic!("no 3") }).is_err());
        assert_eq!(*reports.lock(), ["index 1: no 2"]);
    }
}
