//! An operator as a whole.

use crate::api::Api;
use crate::widgets::*;
use flyball::{Action, Controller, Operator, RunError};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn a_kind_is_watched_once_however_many_controllers_use_it() {
    let (api, first, second) =
        (Api::default(), Widgets::usual(), Widgets::new(|_, _| Box::pin(async { Ok(Action::done()) })));
    widget(&api, "a", 1);
    let operator = operator()
        .controller(Controller::new(first.clone()).owns::<ConfigMap>())
        .controller(Controller::new(second.clone()).name("second").watches::<ConfigMap>(|_, _| Ok(Vec::new())));
    let _stage = Stage::operator(&api, &first, operator);
    settle().await;
    assert_eq!((api.watches("widgets"), api.watches("configmaps")), (1, 1));
    // What the first writes is an echo to itself, and news to the second.
    assert_eq!((first.calls().len(), second.calls().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn an_operator_keeps_to_its_namespaces() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    for namespace in ["a", "a-b", "c"] {
        api.edit("widgets", namespace, "w", |object| object["spec"] = json!({"size": 1}));
    }
    let controller = Controller::new(widgets.clone()).owns::<ConfigMap>();
    let _stage = Stage::operator(&api, &widgets, operator().namespaces(["a", "a-b"]).controller(controller));
    settle().await;
    assert_eq!(api.names("configmaps"), ["a/w", "a-b/w"]);
    assert_eq!((api.watches("widgets"), api.watches("configmaps")), (2, 2));
    assert!(
        api.seen().iter().all(|seen| seen.what.contains("/namespaces/a/") || seen.what.contains("/namespaces/a-b/"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_what_is_under_way_and_begins_nothing() {
    let slow = || {
        Widgets::new(|_, _| {
            Box::pin(async {
                sleep(Duration::from_secs(10)).await;
                Ok(Action::done())
            })
        })
    };
    for (grace, expected) in [(25, 10), (3, 3)] {
        let (api, widgets) = (Api::default(), slow());
        widget(&api, "a", 1);
        widget(&api, "b", 1);
        let controller = Controller::new(widgets.clone()).concurrency(1);
        let operator = operator().grace(Duration::from_secs(grace)).controller(controller);
        let stage = Stage::operator(&api, &widgets, operator);
        settle().await;
        let began = Instant::now();
        stage.stop().await;
        assert_eq!(((began.elapsed() + Duration::from_millis(500)).as_secs(), widgets.calls().len()), (expected, 1));
        assert_eq!(api.watches("widgets"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn kinds_without_a_cache_are_read_from_the_server() {
    let widgets = Widgets::new(|_, cx| {
        Box::pin(async {
            let secret = cx.get::<Secret>(&cx.sibling("key")).await?.ok_or("no secret")?;
            assert_eq!(secret.metadata.name.as_deref(), Some("key"));
            assert_eq!(cx.get::<Secret>(&cx.sibling("other")).await?, None);
            assert_eq!(cx.list::<Secret>(None).await?.len(), 1);
            Ok(Action::done())
        })
    });
    let api = Api::default();
    widget(&api, "a", 1);
    api.edit("secrets", "ns", "key", |_| {});
    let _stage = Stage::with(&api, &widgets, |controller| controller.reads::<Secret>()).await;
    assert_eq!((widgets.errors(), widgets.calls().len(), api.watches("secrets")), (vec![], 1, 0));
}

#[test]
fn permissions_follow_from_what_is_declared() {
    let controller = Controller::new(Widgets::usual()).owns::<ConfigMap>().reads::<Secret>();
    let rules = Operator::new("op").controller(controller).rules();
    let texts: Vec<String> = rules
        .iter()
        .map(|rule| {
            let one = |list: &Option<Vec<String>>| list.clone().unwrap().join(",");
            format!("{}/{} {}", one(&rule.api_groups), one(&rule.resources), rule.verbs.join(","))
        })
        .collect();
    assert_eq!(
        texts,
        [
            "/configmaps create,delete,get,list,patch,watch",
            "/secrets get,list",
            "events.k8s.io/events create,patch",
            "example.com/widgets get,list,watch",
            "example.com/widgets/finalizers update",
            "example.com/widgets/status patch",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_declared_wrongly_does_not_start() {
    let client = || Api::default().client();
    let controller = || Controller::new(Widgets::usual());
    let twice = Operator::new("op").controller(controller()).controller(controller());
    assert!(matches!(twice.run(client(), async {}).await, Err(RunError::SameName(name)) if name == "widget"));
    let named = Operator::new("no name").run(client(), async {}).await;
    assert!(named.unwrap_err().to_string().starts_with(r#"the name "no name" is of no use to the API server"#));
}
