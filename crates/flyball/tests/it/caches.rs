//! Selection of the objects and fields that are watched and cached.

use crate::api::Api;
use crate::widgets::*;
use flyball::{
    Action, Cache, Context, Controller, Error, Kind, ObjectKey, Operator, Predicate, Result, RunError, Task,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube::ResourceExt;
use kube::core::{ObjectMeta, PartialObjectMeta};
use serde_json::json;
use std::sync::{Arc, Mutex};

/// Runs an operator whose widgets each request something, and returns their last answers.
async fn stage_with(
    api: &Api,
    ask: impl for<'a> Fn(&'a Context<Widget>) -> std::pin::Pin<Box<dyn Future<Output = Result<String>> + Send + 'a>>
    + Send
    + Sync
    + 'static,
    declare: impl FnOnce(Controller<Widgets>) -> Operator,
) -> (Stage, Arc<Mutex<String>>) {
    let answer = Arc::new(Mutex::new(String::new()));
    let (log, ask) = (answer.clone(), Arc::new(ask));
    let widgets = Widgets::new(move |_, cx| {
        let (log, ask) = (log.clone(), ask.clone());
        Box::pin(async move {
            let answer = ask(cx).await;
            *log.lock().unwrap() = answer.as_ref().map_or_else(ToString::to_string, Clone::clone);
            answer.map(|_| Action::done()).map_err(Error::wait)
        })
    });
    let stage = Stage::operator(api, &widgets, declare(Controller::new(widgets.clone())));
    settle().await;
    (stage, answer)
}

/// Returns the answers since the last call.
fn last(answer: &Mutex<String>) -> String {
    std::mem::take(&mut *answer.lock().unwrap())
}

/// Triggers widget `a`.
fn for_a<T>(_: &T, _: &flyball::Caches) -> Result<Vec<ObjectKey>> {
    Ok(vec![ObjectKey::new(Some("ns"), "a")])
}

fn pod(api: &Api, name: &str, app: &str) {
    api.edit("pods", "ns", name, |pod| {
        pod["metadata"]["labels"] = json!({"app": app});
        pod["spec"] = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]});
        pod["status"] = json!({"phase": "Running"});
    });
}

async fn names(cx: &Context<Widget>) -> Result<String> {
    let pods = cx.list::<Pod>(None).await?;
    Ok(pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>().join(" "))
}

#[tokio::test(start_paused = true)]
async fn cache_holds_only_selected_objects() {
    let api = Api::default();
    widget(&api, "a", 1);
    pod(&api, "web", "web");
    pod(&api, "db", "db");
    let (stage, answer) = stage_with(
        &api,
        |cx| Box::pin(names(cx)),
        |controller| {
            operator().controller(controller.watches(for_a::<Pod>)).cache(Cache::<Pod>::new().labels("app=web"))
        },
    )
    .await;
    assert_eq!(last(&answer), "web");
    let queries: Vec<String> =
        api.seen().into_iter().filter(|seen| seen.what.ends_with("/pods")).map(|seen| seen.query).collect();
    assert_eq!(queries.len(), 2);
    assert!(queries.iter().all(|query| query.contains("labelSelector=app%3Dweb")), "{queries:?}");
    // Objects outside of the selection trigger nothing; objects that enter or leave the selection do.
    stage.widgets.calls();
    pod(&api, "other", "db");
    settle().await;
    assert_eq!(stage.widgets.calls().len(), 0);
    pod(&api, "other", "web");
    settle().await;
    assert_eq!(last(&answer), "other web");
    pod(&api, "web", "db");
    settle().await;
    assert_eq!(last(&answer), "other");
}

#[tokio::test(start_paused = true)]
async fn read_outside_the_selection_is_an_error() {
    let api = Api::default();
    widget(&api, "a", 1);
    let ask = |cx: &Context<Widget>| cx.sibling("other");
    let (_stage, answer) = stage_with(
        &api,
        move |cx| Box::pin(async move { cx.get::<Pod>(&ask(cx)).await.map(|pod| pod.is_some().to_string()) }),
        |controller| {
            let cache = Cache::<Pod>::new().fields("metadata.name=one");
            operator().controller(controller.watches(for_a::<Pod>)).cache(cache)
        },
    )
    .await;
    let expected = "pods ns/other cannot be in the cache, which selects metadata.name=one: extend the selection in Operator::cache";
    assert_eq!(last(&answer), expected);
    let (_stage, answer) = stage_with(
        &api,
        move |cx| Box::pin(async move { cx.get::<Pod>(&ask(cx)).await.map(|pod| pod.is_some().to_string()) }),
        |controller| {
            let cache = Cache::<Pod>::new().namespaces(["elsewhere"]);
            operator().controller(controller.watches(for_a::<Pod>)).cache(cache)
        },
    )
    .await;
    assert!(
        last(&answer).starts_with(r#"pods in namespace "ns" has no cache: the operator does not watch this namespace"#)
    );
    let watched = api.seen().into_iter().any(|seen| seen.what == "GET /api/v1/namespaces/elsewhere/pods");
    assert!(watched && api.watches("pods") > 0);
}

#[tokio::test(start_paused = true)]
async fn object_outside_the_selection_is_not_applied() {
    let api = Api::default();
    widget(&api, "a", 1);
    let (_stage, answer) = stage_with(
        &api,
        |cx| Box::pin(async move { cx.apply(&config_map("a", 1)).await.map(|map| map.name_any()) }),
        |controller| {
            operator().controller(controller.owns::<ConfigMap>()).cache(Cache::<ConfigMap>::new().labels("app=web"))
        },
    )
    .await;
    assert_eq!(
        last(&answer),
        "configmaps ns/a cannot be in the cache, which selects app=web: extend the selection in Operator::cache"
    );
    assert_eq!(api.names("configmaps").len(), 0);
    let (_stage, answer) = stage_with(
        &api,
        |cx| {
            Box::pin(async move {
                let mut map = config_map("a", 1);
                map.labels_mut().insert("app".into(), "web".into());
                cx.apply(&map).await.map(|map| map.name_any())
            })
        },
        |controller| {
            operator().controller(controller.owns::<ConfigMap>()).cache(Cache::<ConfigMap>::new().labels("app=web"))
        },
    )
    .await;
    assert_eq!(last(&answer), "a");
}

#[tokio::test(start_paused = true)]
async fn invalid_cache_is_rejected() {
    let run = |cache: Cache<Pod>| operator().cache(cache).run(Api::default().client(), async {});
    let wrong = run(Cache::new().labels("a in b")).await.unwrap_err();
    assert!(matches!(&wrong, RunError::Cache { kind, .. } if kind == "pods"), "{wrong}");
    let twice = operator().cache(Cache::<Pod>::new()).cache(Cache::<Pod>::new());
    let twice = twice.run(Api::default().client(), async {}).await.unwrap_err().to_string();
    assert_eq!(twice, "invalid cache of pods: declared twice");
    let replaces = operator().controller(Controller::new(Widgets::usual()).replaces::<Pod>().owns::<ConfigMap>());
    let replaces = replaces.cache(Cache::<Pod>::new().without("status")).run(Api::default().client(), async {}).await;
    let expected = "invalid cache of pods: controller widget replaces its objects, which would drop the fields that are not cached";
    assert_eq!(replaces.unwrap_err().to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn filter_on_uncached_fields_is_rejected() {
    let controller = Controller::new(Widgets::usual()).watches(for_a::<PartialObjectMeta<Pod>>);
    let controller = controller.filter::<Pod>(Predicate::new(|old: &Pod, new| old.spec != new.spec));
    let error = operator().controller(controller).run(Api::default().client(), async {}).await.unwrap_err();
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        why.starts_with("filter of ") && why.ends_with("the controller neither reconciles, owns nor watches this type"),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_is_requested_if_sufficient() {
    let api = Api::default();
    widget(&api, "a", 1);
    pod(&api, "web", "web");
    let seen = |api: &Api| api.seen().into_iter().filter(|s| s.what.ends_with("/pods")).map(|s| s.metadata).collect();
    let meta = |cx: &Context<Widget>| cx.sibling("web");
    let ask = move |cx: &'_ Context<Widget>| {
        let key = meta(cx);
        let pods = cx.caches().get::<PartialObjectMeta<Pod>>(&key);
        pods.map(|pod| pod.map(|pod| pod.labels()["app"].clone()).unwrap_or_default())
    };
    let (stage, answer) = stage_with(
        &api,
        move |cx| Box::pin(std::future::ready(ask(cx))),
        |controller| operator().controller(controller.watches(for_a::<PartialObjectMeta<Pod>>)),
    )
    .await;
    assert_eq!((last(&answer), seen(&api)), ("web".to_owned(), vec![true, true]));
    pod(&api, "web", "db");
    settle().await;
    assert_eq!(last(&answer), "db");
    stage.stop().await;
    // Another controller reads complete objects: there is still one watch.
    let (_stage, answer) = stage_with(
        &api,
        move |cx| Box::pin(std::future::ready(ask(cx))),
        |controller| {
            let second = Controller::new(Widgets::usual()).name("second").owns::<ConfigMap>().watches(for_a::<Pod>);
            operator().controller(controller.watches(for_a::<PartialObjectMeta<Pod>>)).controller(second)
        },
    )
    .await;
    assert_eq!((last(&answer), seen(&api)), ("db".to_owned(), vec![false, false]));
}

#[tokio::test(start_paused = true)]
async fn metadata_of_a_dynamic_kind_is_requested_if_declared() {
    let api = Api::default();
    widget(&api, "a", 1);
    pod(&api, "web", "web");
    let kind = Kind::new("", "v1", "Pod");
    let ask = |cx: &'_ Context<Widget>| -> Result<String> {
        let pod = cx.caches().dynamic(&Kind::new("", "v1", "Pod")).get(&cx.sibling("web"))?.unwrap();
        Ok(format!("{} {} {}", pod.types.as_ref().unwrap().kind, pod.labels()["app"], pod.data))
    };
    let (_stage, answer) = stage_with(
        &api,
        move |cx| Box::pin(std::future::ready(ask(cx))),
        |controller| {
            let controller = controller.dynamic(&kind).watches(|_, _| Ok(vec![ObjectKey::new(Some("ns"), "a")]));
            operator().controller(controller).cache(Cache::of(&kind).metadata_only())
        },
    )
    .await;
    assert_eq!(last(&answer), "Pod web {}");
    pod(&api, "web", "db");
    settle().await;
    assert_eq!(last(&answer), "Pod db {}");
    let of_pods = api.seen().into_iter().filter(|seen| seen.what.ends_with("/pods"));
    assert!(of_pods.map(|seen| seen.metadata).eq([true, true]));

    let whole = Controller::new(Widgets::usual()).owns::<ConfigMap>().watches(for_a::<Pod>);
    let whole = operator().controller(whole).cache(Cache::of(&kind).metadata_only());
    let error = whole.run(Api::default().client(), async {}).await.unwrap_err().to_string();
    assert!(error.starts_with("invalid cache of pods: it keeps metadata, but"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn dropped_fields_are_absent() {
    let api = Api::default();
    widget(&api, "a", 1);
    pod(&api, "web", "web");
    let ask = |cx: &'_ Context<Widget>| -> Result<String> {
        let pod = cx.caches().get::<Pod>(&cx.sibling("web"))?.unwrap();
        let (spec, phase) = (pod.spec.unwrap(), pod.status.and_then(|status| status.phase));
        Ok(format!("{:?} {:?} {phase:?}", spec.node_name, spec.containers[0].image))
    };
    let (stage, answer) = stage_with(
        &api,
        move |cx| Box::pin(std::future::ready(ask(cx))),
        |controller| {
            let cache = Cache::<Pod>::new().without("spec.containers.image").without("status");
            operator().controller(controller.watches(for_a::<Pod>)).cache(cache)
        },
    )
    .await;
    assert_eq!(last(&answer), r#"Some("n") None None"#);
    stage.stop().await;
    // With `declared_only`, the type determines the fields.
    let ask = |cx: &'_ Context<Widget>| -> Result<String> {
        Ok(format!("{:?}", cx.caches().get::<Phase>(&cx.sibling("web"))?.unwrap().status.phase))
    };
    let (_stage, answer) = stage_with(
        &api,
        move |cx| Box::pin(std::future::ready(ask(cx))),
        |controller| {
            operator().controller(controller.watches(for_a::<Phase>)).cache(Cache::<Phase>::new().declared_only())
        },
    )
    .await;
    assert_eq!(last(&answer), r#"Some("Running")"#);
}

#[derive(Clone, Debug, serde::Deserialize, kube::Resource)]
#[resource(inherit = Pod)]
struct Phase {
    metadata: ObjectMeta,
    status: PhaseStatus,
}

#[derive(Clone, Debug, serde::Deserialize)]
struct PhaseStatus {
    phase: Option<String>,
}

#[tokio::test(start_paused = true)]
async fn tasks_read_declared_caches() {
    let api = Api::default();
    api.edit("nodes", "", "n", |node| node["status"] = json!({"images": [{"names": ["i"]}]}));
    let seen = Arc::new(Mutex::new(None));
    let noted = seen.clone();
    let task = Task::new("look", |cx| async move {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        *noted.lock().unwrap() = cx.caches().list::<Node>(None).map_err(|error| error.to_string())?.pop();
        Ok(())
    });
    let operator = operator().cache(Cache::<Node>::new().without("status.images")).task(task);
    assert_eq!(serde_json::to_value(operator.rules()).unwrap()[0]["resources"], json!(["nodes"]));
    let _stage = Stage::operator(&api, &Widgets::usual(), operator);
    settle().await;
    let node = seen.lock().unwrap().take().unwrap();
    assert_eq!((node.name_any().as_str(), node.status.unwrap().images), ("n", None));
}

fn secret(api: &Api, name: &str, value: &str) {
    api.edit("secrets", "ns", name, |secret| {
        secret["data"] = json!({"key": value});
        secret["type"] = "Opaque".into();
    });
}

fn gets(api: &Api) -> Vec<String> {
    api.seen().into_iter().filter(|s| s.what.contains("/secrets/")).map(|s| s.what).collect()
}

#[tokio::test(start_paused = true)]
async fn secret_data_is_read_live_and_not_cached() {
    let api = Api::default();
    widget(&api, "a", 1);
    secret(&api, "key", "YQ==");
    let get = |cx: &'_ Context<Widget>| {
        let key = cx.sibling("key");
        let known = cx.caches().get::<Secret>(&key).map(|secret| secret.is_some());
        (key, known)
    };
    let (stage, answer) = stage_with(
        &api,
        move |cx| {
            Box::pin(async move {
                let (key, known) = get(cx);
                let secret = cx.get::<Secret>(&key).await?.unwrap();
                let metadata = cx.caches().get::<PartialObjectMeta<Secret>>(&key)?.unwrap();
                let data = String::from_utf8(secret.data.unwrap()["key"].0.clone()).unwrap();
                Ok(format!(
                    "{data} {} {}",
                    metadata.name_any(),
                    known.map_or_else(|e| e.to_string(), |k| k.to_string())
                ))
            })
        },
        |controller| {
            // Updates that cannot be compared are not filtered.
            let hides = Predicate::<Secret>::new(|old, new| old.data != new.data);
            let controller = controller.watches(for_a::<Secret>).watches(for_a::<PartialObjectMeta<Secret>>);
            operator().controller(controller.filter(hides))
        },
    )
    .await;
    let refused = "what is in secrets ns/key is not kept in memory: ask Context::get for it, be content with \
                   PartialObjectMeta, or have the operator keep it by Operator::cache";
    assert_eq!(
        (last(&answer), gets(&api)),
        (format!("a key {refused}"), vec!["GET /api/v1/namespaces/ns/secrets/key".into()])
    );
    secret(&api, "key", "Yg==");
    settle().await;
    assert_eq!(last(&answer), format!("b key {refused}"));
    stage.stop().await;

    // A controller that requests them gets them.
    gets(&api);
    let (_stage, answer) = stage_with(
        &api,
        move |cx| Box::pin(std::future::ready(get(cx).1.map(|k| k.to_string()))),
        |controller| operator().controller(controller.watches(for_a::<Secret>)).cache(Cache::<Secret>::new()),
    )
    .await;
    assert_eq!((last(&answer), gets(&api).len()), ("true".to_owned(), 0));
}

#[tokio::test(start_paused = true)]
async fn own_secrets_are_read_from_the_cache() {
    let api = Api::default();
    widget(&api, "a", 1);
    secret(&api, "key", "YQ==");
    let (stage, answer) = stage_with(
        &api,
        |cx| {
            Box::pin(async move {
                let metadata = ObjectMeta { name: Some("own".into()), ..ObjectMeta::default() };
                let data = Some([("key".into(), k8s_openapi::ByteString(b"own".to_vec()))].into());
                cx.apply(&Secret { metadata, data, ..Secret::default() }).await?;
                let own = cx.get::<Secret>(&cx.sibling("own")).await?.unwrap();
                let children = cx.children::<Secret>().await?.len();
                Ok(format!("{} {children}", own.data.unwrap().len()))
            })
        },
        |controller| operator().controller(controller.owns::<Secret>()),
    )
    .await;
    assert_eq!(last(&answer), "1 1");
    assert_eq!(gets(&api), ["PATCH /api/v1/namespaces/ns/secrets/own"]);
    widget(&api, "a", 2);
    settle().await;
    assert_eq!((last(&answer), gets(&api).len(), stage.widgets.calls().len()), ("1 1".to_owned(), 0, 2));
}

#[tokio::test(start_paused = true)]
async fn few_secrets_are_requested_individually() {
    let api = Api::default();
    widget(&api, "a", 1);
    let uid = api.get("widgets", "ns", "a").unwrap()["metadata"]["uid"].clone();
    for n in 0..20 {
        secret(&api, &format!("s{n:02}"), "YQ==");
    }
    for name in ["s03", "s07"] {
        let owner = json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "a", "uid": uid}]);
        api.edit("secrets", "ns", name, |secret| secret["metadata"]["ownerReferences"] = owner);
    }
    let (_stage, answer) = stage_with(
        &api,
        |cx| {
            Box::pin(async move {
                let whole = |secrets: Vec<Secret>| secrets.iter().filter(|secret| secret.data.is_some()).count();
                let children = whole(cx.children::<Secret>().await?);
                Ok(format!("{children} {}", whole(cx.list::<Secret>(Some("ns")).await?)))
            })
        },
        |controller| operator().controller(controller.owns::<Secret>()),
    )
    .await;
    let requests: Vec<String> =
        api.seen().into_iter().map(|s| s.what).filter(|what| what.contains("/secrets")).collect();
    let (all, one) = ("GET /api/v1/secrets", "GET /api/v1/namespaces/ns/secrets");
    let expected = [all.to_owned(), all.to_owned(), format!("{one}/s03"), format!("{one}/s07"), one.to_owned()];
    assert_eq!((last(&answer).as_str(), requests), ("2 20", expected.to_vec()));
}
