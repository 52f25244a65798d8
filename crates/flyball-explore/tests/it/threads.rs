//! The number of threads of an exploration.

use flyball_explore::{Budget, Explorer};

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
