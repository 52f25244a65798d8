//! Creation of many objects in growing batches.

use futures_util::future::join_all;

/// Runs `make` many times, in batches: `first` calls, then twice as many as in the batch before, until a call fails.
///
/// Use it to create many children. If all creates fail, for example because of a quota, the API server gets `first`
/// requests, not `count`. The requests of a batch run concurrently.
///
/// `make` gets a number below `count`. The results are returned in the order of the numbers, with the first error of
/// the last batch. The controller of [replica
/// sets](https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/) creates pods in the same way.
///
/// ```
/// # use flyball::{Context, Resource, Result, slow_start_batch};
/// # use k8s_openapi::api::core::v1::Pod;
/// async fn add<K: Resource>(pod: &Pod, missing: usize, cx: &Context<K>) -> Result<()> {
///     let (_made, result) = slow_start_batch(missing, 1, |_| cx.create(pod)).await;
///     result
/// }
/// ```
pub async fn slow_start_batch<T, E, F>(
    count: usize,
    first: usize,
    mut make: impl FnMut(usize) -> F,
) -> (Vec<T>, Result<(), E>)
where
    F: Future<Output = Result<T, E>>,
{
    let (mut results, mut done, mut size) = (Vec::new(), 0, first.max(1));
    while done < count {
        let end = count.min(done.saturating_add(size));
        let mut failure = Ok(());
        for result in join_all((done..end).map(&mut make)).await {
            match result {
                Ok(value) => results.push(value),
                Err(error) => failure = failure.and(Err(error)),
            }
        }
        if failure.is_err() {
            return (results, failure);
        }
        (done, size) = (end, size.saturating_mul(2));
    }
    (results, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::cell::{Cell, RefCell};

    /// Makes `count` calls, of which those from `good` on fail, and checks the sizes of the batches and the number of
    /// successes.
    fn check(count: usize, first: usize, good: usize, batches: &[usize], expect: usize) {
        let (sizes, under_way) = (RefCell::new(Vec::new()), Cell::new(0));
        let make = |number: usize| {
            under_way.set(under_way.get() + 1);
            let (sizes, under_way) = (&sizes, &under_way);
            async move {
                // All futures of a batch are created before the first one runs.
                if under_way.get() > 0 {
                    sizes.borrow_mut().push(under_way.take());
                }
                if number < good { Ok(number) } else { Err(number) }
            }
        };
        let (results, result) = slow_start_batch(count, first, make).now_or_never().expect("nothing waits");
        assert_eq!((&**sizes.borrow(), results.len()), (batches, expect), "{count} from {first}, {good} good");
        assert_eq!(results, (0..expect).collect::<Vec<_>>());
        assert_eq!(result, if good < count { Err(good) } else { Ok(()) });
    }

    #[test]
    fn batches_double_until_one_fails() {
        let always = usize::MAX;
        check(0, 1, always, &[], 0);
        check(1, 1, always, &[1], 1);
        check(15, 1, always, &[1, 2, 4, 8], 15);
        check(10, 1, always, &[1, 2, 4, 3], 10);
        check(10, 5, always, &[5, 5], 10);
        check(3, 0, always, &[1, 2], 3);
        // The first one fails, so no further batch follows.
        check(500, 1, 0, &[1], 0);
        check(500, 1, 5, &[1, 2, 4], 5);
    }
}
