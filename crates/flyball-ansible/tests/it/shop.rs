//! A role that uses most features of the built-in executor.

use crate::project::{api, change, condition, data, operator_of, project, shops};
use flyball::Operator;
use flyball_ansible::{Executor, Watches};
use flyball_cluster::testing::{Test, explore_crashes};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

fn operator() -> Operator {
    operator_of(&project("shop"))
}

const SHOP: &str = "
apiVersion: shop.example.com/v1
kind: Shop
metadata: {name: corner}
spec:
  motto: 'Say \"please\": {{ greeting }}'
  colors: {color: blue}
  shelves: [{name: fruit, goods: apples}, {name: empty}]
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: guestbook}}
";

#[tokio::test(start_paused = true)]
async fn role_runs_on_separate_threads() {
    let operator = || {
        flyball_ansible::operator(&Watches::read(project("shop").join("watches.yaml")).unwrap(), Executor::BuiltIn)
            .unwrap()
    };
    let test = Test::of(operator).nodes(1).start().await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    assert_eq!(data(&test, "corner-shelf-0").await, json!({"name": "fruit", "goods": "apples"}));
    assert_eq!(condition(&api(&test, &shops()).get("corner").await.unwrap(), "Successful")["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn role_with_loops_blocks_templates_and_includes_runs() {
    let mut test = Test::of(operator).nodes(1).start().await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    let page = json!({"greeting": "Welcome to corner", "region": "north", "motto": "Say \"please\": {{ greeting }}"});
    assert_eq!(data(&test, "corner-page").await, page);
    assert_eq!(data(&test, "corner-shelf-0").await, json!({"name": "fruit", "goods": "apples"}));
    assert_eq!(data(&test, "corner-shelf-1").await, json!({"name": "empty"}));
    let state = json!({"state": "open", "color": "blue", "pages": "[\"corner-page\"]"});
    assert_eq!(data(&test, "corner-state").await, state);
    let shops = api(&test, &shops());
    let shop = shops.get("corner").await.unwrap();
    assert_eq!(shop.data["status"]["state"], "open");
    assert_eq!(condition(&shop, "Successful")["status"], "True", "{:#}", shop.data);
    change(&shops, "corner", json!({"spec": {"closed": true}})).await;
    test.assert_converges().await;
    assert_eq!(data(&test, "corner-state").await["state"], "closed: closed");
    let shop = shops.get("corner").await.unwrap();
    assert_eq!(shop.data["status"]["state"], "closed: closed");
    assert_eq!(condition(&shop, "Successful")["status"], "True", "a rescued failure is not a failure");
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn role_awaits_created_objects_and_removes_absent_ones() {
    let test = Test::of(operator).nodes(1).start().await;
    test.apply(SHOP).await;
    let shops = api(&test, &shops());
    change(&shops, "corner", json!({"spec": {"cellar": true}})).await;
    test.assert_converges().await;
    let cellars = api(&test, &flyball::Kind::new("apps", "v1", "Deployment"));
    assert_eq!(cellars.get("corner-cellar").await.unwrap().data["status"]["readyReplicas"], 1);
    assert_eq!(condition(&shops.get("corner").await.unwrap(), "Successful")["status"], "True");
    change(&shops, "corner", json!({"spec": {"cellar": false}})).await;
    test.assert_converges().await;
    assert!(cellars.get_opt("corner-cellar").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn finalizer_runs_before_deletion() {
    let test = Test::of(operator).start().await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    let shops = api(&test, &shops());
    assert_eq!(shops.get("corner").await.unwrap().metadata.finalizers.unwrap(), ["shop.example.com/farewell"]);
    shops.delete("corner", &DeleteParams::default()).await.unwrap();
    let are_deleted = async || {
        let maps = test.api::<ConfigMap>().list(&ListParams::default()).await.unwrap();
        maps.items.iter().all(|map| !map.metadata.name.as_deref().unwrap_or_default().starts_with("corner"))
    };
    test.eventually("all is gone", are_deleted).await;
    assert_eq!(data(&test, "guestbook").await, json!({"corner": "bye"}));
    assert!(shops.get_opt("corner").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing() {
    let scenario = async |test: &Test| {
        test.apply(SHOP).await;
        test.assert_converges().await;
        change(&api(test, &shops()), "corner", json!({"spec": {"shelves": [], "colors": {"color": "green"}}})).await;
    };
    explore_crashes(|| Test::of(operator), scenario).await;
}
