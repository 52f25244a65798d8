//! The threads of an exploration, and its end by a flag.

use crate::parts::explorer;
use flyball_explore::{Budget, Explorer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn number_of_threads_does_not_change_the_result() {
    let explorer = Explorer::of(crontab::operator)
        .prerequisites(include_str!("../../../../operators/crontab/config/foreign/crontabs.stable.example.com.yaml"))
        .sample(include_str!("../../../../samples/crontab/cron.yaml"));
    let report = |threads| explorer.clone().budget(Budget::schedules(100)).threads(threads).run().to_json();
    let (mut one, mut four) = (report(1), report(4));
    for value in [&mut one, &mut four] {
        value["seconds"].take();
        value["runs"].take();
        value["findings"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .for_each(|finding| drop(finding["foundAfterSeconds"].take()));
        assert_eq!(value["error"], serde_json::Value::Null);
    }
    assert_eq!(one, four);
}

#[test]
fn flag_ends_the_search_early() {
    let flag = Arc::new(AtomicBool::new(false));
    let (setter, calls) = (flag.clone(), Arc::new(AtomicUsize::new(0)));
    let counter = calls.clone();
    let report = explorer()
        .budget(Budget::schedules(100_000))
        .stop_flag(flag)
        .on_progress(move |progress| {
            counter.fetch_add(1, Ordering::Relaxed);
            assert!(progress.violations.is_empty() && !progress.is_shrinking);
            setter.store(true, Ordering::Relaxed);
        })
        .run();
    report.assert_clean();
    assert_eq!(calls.load(Ordering::Relaxed), 1, "no further wave");
    assert!((1..1000).contains(&report.schedules()), "{}", report.schedules());
}
