//! An operator as a whole.

use crate::api::Api;
use crate::widgets::*;
use flyball::{Action, Controller, Operator, Predicate, RunError};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::CustomResourceExt;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn controllers_share_one_watch_per_kind() {
    let (api, first, second) =
        (Api::default(), Widgets::usual(), Widgets::new(|_, _| Box::pin(async { Ok(Action::done()) })));
    widget(&api, "a", 1);
    let operator = operator()
        .controller(Controller::new(first.clone()).owns::<ConfigMap>())
        .controller(Controller::new(second.clone()).name("second").watches::<ConfigMap>(|_, _| Ok(Vec::new())));
    let _stage = Stage::operator(&api, &first, operator);
    settle().await;
    assert_eq!((api.watches("widgets"), api.watches("configmaps")), (1, 1));
    // Writes of the first controller are echoes for itself, and changes for the second.
    assert_eq!((first.calls().len(), second.calls().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn operator_is_limited_to_its_namespaces() {
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
async fn shutdown_waits_for_running_reconciles_and_starts_none() {
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
fn permissions_follow_from_declarations() {
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
async fn invalid_operator_does_not_start() {
    let client = || Api::default().client();
    let controller = || Controller::new(Widgets::usual());
    let twice = Operator::new("op").controller(controller()).controller(controller());
    assert_eq!(
        twice.run(client(), async {}).await.unwrap_err().to_string(),
        r#"two controllers are named "widget" (widgets.example.com, widgets.example.com): rename one with Controller::name"#
    );
    let named = Operator::new("no name").run(client(), async {}).await;
    assert!(named.unwrap_err().to_string().starts_with(r#"invalid operator name "no name""#));
}

#[tokio::test(start_paused = true)]
async fn deferred_reconciler_is_created_when_the_operator_runs() {
    let declare = |made: Result<Widgets, &'static str>| {
        Operator::new("op").crd(Widget::crd()).controller(Controller::deferred(|| made).owns::<ConfigMap>())
    };
    let kinds: Vec<String> = declare(Err("no TOKEN")).manifests().iter().map(|m| m["kind"].to_string()).collect();
    assert_eq!(kinds, [r#""CustomResourceDefinition""#, r#""ClusterRole""#]);
    let error = declare(Err("no TOKEN")).run(Api::default().client(), async {}).await.unwrap_err();
    assert!(
        matches!(error, RunError::SetUp { controller, source } if controller == "widget" && source.to_string() == "no TOKEN")
    );

    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let _stage = Stage::operator(&api, &widgets, declare(Ok(widgets.clone())));
    settle().await;
    assert_eq!(widgets.calls(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_unsynced_caches() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    api.serve("widgets", false);
    let stage = Stage::start(&api, &widgets).await;
    let began = Instant::now();
    stage.stop().await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn panic_in_mapping_or_filter_stops_nothing() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let stage = Stage::with(&api, &widgets, |controller| {
        controller.filter(Predicate::<Widget>::new(|_, _| panic!("filter"))).watches::<Secret>(|_, _| panic!("map"))
    })
    .await;
    api.edit("secrets", "ns", "key", |_| {});
    settle().await;
    assert!(!stage.running.is_finished());
    widgets.calls();
    // A failing filter hides nothing.
    widget(&api, "a", 2);
    settle().await;
    assert_eq!(widgets.calls(), ["a"]);
}

/// The log output, without trailing spaces.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn log_contains_each_step_of_a_reconcile() {
    let (api, widgets, log) = (Api::default(), Widgets::usual(), Log::default());
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).without_time().with_ansi(false);
    // With a single subscriber, events that other tests log first would be cached as disabled.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(lines.with_writer(move || writer.clone()).finish());
    let _stage = Stage::start(&api, &widgets).await;
    widget(&api, "a", 1);
    settle().await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let span = r#"reconcile{controller="widget" kind="Widget" namespace="ns" name="a" id="#;
    let steps: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| line.contains("flyball::") && (line.contains(span) || line.contains(" changed ")))
        .map(|line| line.rsplit_once("flyball::").unwrap().1.split_once(": ").unwrap().1.to_owned())
        .collect();
    assert_eq!(
        steps,
        [
            r#"changed controller="widget" key=ns/a resource=widgets.example.com object=ns/a version=1"#,
            "reconciling waited=0.0",
            "read version=1 read_past=false",
            "wrote resource=configmaps object=ns/a version=2",
            r#"changed controller="widget" key=ns/a resource=configmaps object=ns/a version=2"#,
            "wrote resource=widgets.example.com object=ns/a version=3",
            "reconciled outcome=Success writes=2",
            r#"changed controller="widget" key=ns/a resource=widgets.example.com object=ns/a before=1 version=3"#,
        ],
        "{text}"
    );
    let usual = text.lines().filter(|line| line.contains(" INFO ")).count();
    assert_eq!(usual, 1, "without -v, a reconcile with writes is logged in one line");
}

#[tokio::test(start_paused = true)]
async fn controller_writes_through_its_own_client() {
    let (api, first, second) = (Api::default(), Widgets::usual(), Widgets::usual());
    widget(&api, "a", 1);
    let (theirs, sent) = (api.client(), Arc::new(Mutex::new(Vec::new())));
    let own = kube::Client::new(
        tower::service_fn({
            let sent = sent.clone();
            move |request: http::Request<kube::client::Body>| {
                sent.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
                let theirs = theirs.clone();
                async move { theirs.send(request).await }
            }
        }),
        "default",
    );
    let operator = operator().controller(Controller::new(first.clone()).owns::<ConfigMap>().client(own)).controller(
        Controller::new(second.clone()).name("second").owns::<ConfigMap>().filter::<Widget>(Predicate::never()),
    );
    let _stage = Stage::operator(&api, &first, operator);
    settle().await;
    assert_eq!((api.watches("widgets"), api.watches("configmaps")), (1, 1));
    let sent = sent.lock().unwrap();
    // The widget is confirmed, since it was created before the operator started.
    let root = "/apis/example.com/v1/namespaces/ns/widgets/a";
    let expected =
        [format!("GET {root}"), "PATCH /api/v1/namespaces/ns/configmaps/a".into(), format!("PATCH {root}/status")];
    assert_eq!(*sent, expected);
}
