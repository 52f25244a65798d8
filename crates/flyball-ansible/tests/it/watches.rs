//! The fields of `watches.yaml` and their effects.

use crate::project::{Project, api, change, condition, data, operator_of, shops};
use flyball::Kind;
use flyball_cluster::testing::{Setup, Test};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

const SHOP: &str = "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}, spec: {firstWord: hello}}";
const PAGE: &str = "
- k8s:
    state: '{{ state | default(omit) }}'
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: page}
      data: {word: '{{ first_word | default(firstWord | default(\"none\")) }}'}
";

/// Creates a test of a project whose entry has these additional fields.
fn test_of(name: &str, options: &str, tasks: &str) -> Setup {
    let watches = format!("- {{group: shop.example.com, version: v1, kind: Shop, role: a{options}}}\n");
    let written = Project::new(name, &[("watches.yaml", &watches), ("roles/a/tasks/main.yml", tasks)]);
    let folder = written.folder().to_owned();
    Test::of(move || operator_of(&folder))
}

async fn drift(test: &Test) {
    change(&api(test, &Kind::new("", "v1", "ConfigMap")), "page", json!({"data": {"word": "drift"}})).await;
}

#[tokio::test(start_paused = true)]
async fn unmanaged_status_is_not_written() {
    let mut test = test_of("unmanaged", ", manageStatus: false", PAGE).start().await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    assert_eq!(data(&test, "page").await, json!({"word": "hello"}));
    assert_eq!(api(&test, &shops()).get("corner").await.unwrap().data.get("status"), None);
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn rejected_names_are_reported_by_an_event_if_the_status_is_unmanaged() {
    let test = test_of("unmanaged-names", ", manageStatus: false", PAGE).start().await;
    test.apply(&SHOP.replace("hello", "hello, hostvars: {}")).await;
    test.assert_converges().await;
    sleep(Duration::from_secs(60)).await;
    let events = test.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    let rejections = |event: &Event| (event.type_.clone(), event.reason.clone(), event.note.clone());
    let rejections: Vec<_> =
        events.iter().filter(|event| event.reason.as_deref() == Some("NamesRefused")).map(rejections).collect();
    let [(Some(kind), Some(_), Some(note))] = &rejections[..] else { panic!("{rejections:?}") };
    assert_eq!(kind, "Warning");
    assert!(note.contains("not passed to the role as variables: hostvars ("), "{note}");
    assert_eq!(api(&test, &shops()).get("corner").await.unwrap().data.get("status"), None);
}

#[tokio::test(start_paused = true)]
async fn snake_case_conversion_can_be_disabled() {
    let test = test_of("camel", ", snakeCaseParameters: false", "- k8s: {definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: page}, data: {word: '{{ firstWord }}'}}}").start().await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    assert_eq!(data(&test, "page").await, json!({"word": "hello"}));
}

#[tokio::test(start_paused = true)]
async fn unwatched_dependents_are_repaired_periodically() {
    for (name, options) in [
        ("period", ", watchDependentResources: false, reconcilePeriod: 30s"),
        ("blacklist", ", blacklist: [{group: '', version: v1, kind: ConfigMap}], reconcilePeriod: 30s"),
    ] {
        let test = test_of(name, options, PAGE).start().await;
        test.apply(SHOP).await;
        sleep(Duration::from_secs(5)).await;
        drift(&test).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(data(&test, "page").await, json!({"word": "drift"}), "{name}");
        sleep(Duration::from_secs(31)).await;
        assert_eq!(data(&test, "page").await, json!({"word": "hello"}), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn role_that_always_changes_something_is_repeated_once() {
    let tasks = PAGE.replace("first_word | default(", "1000000000 | random | string | default(");
    assert_ne!(tasks, PAGE);
    let test = test_of("always", ", watchDependentResources: false, reconcilePeriod: 1h", &tasks).start().await;
    test.apply(SHOP).await;
    let writes = || {
        let trace = test.trace();
        trace.lines().filter(|line| line.contains("PATCH") && line.contains("/configmaps/page")).count()
    };
    sleep(Duration::from_secs(3000)).await;
    assert_eq!(writes(), 2, "{}", test.trace());
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(writes(), 3, "{}", test.trace());
    change(&api(&test, &shops()), "corner", json!({"spec": {"replicas": 2}})).await;
    sleep(Duration::from_secs(1000)).await;
    assert_eq!(writes(), 5, "{}", test.trace());
}

#[tokio::test(start_paused = true)]
async fn annotation_sets_the_reconcile_period() {
    let test = test_of("annotation", ", watchDependentResources: false", PAGE).start().await;
    test.apply(SHOP).await;
    let objects = api(&test, &shops());
    let period = "ansible.sdk.operatorframework.io/reconcile-period";
    change(&objects, "corner", json!({"metadata": {"annotations": {period: "soon"}}})).await;
    sleep(Duration::from_secs(5)).await;
    let failure = condition(&objects.get("corner").await.unwrap(), "Failure");
    assert!(
        failure["message"].as_str().unwrap().contains("is \"soon\", but must be a duration such as 30s"),
        "{failure}"
    );
    change(&objects, "corner", json!({"metadata": {"annotations": {period: "10s"}}})).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(condition(&objects.get("corner").await.unwrap(), "Failure")["status"], "False");
    drift(&test).await;
    sleep(Duration::from_secs(11)).await;
    assert_eq!(data(&test, "page").await, json!({"word": "hello"}));
}

#[tokio::test(start_paused = true)]
async fn task_may_request_a_requeue() {
    let tasks = format!("{PAGE}\n- operator_sdk.util.requeue_after: {{time: 10s}}\n");
    let test = test_of("requeue", ", watchDependentResources: false", &tasks).start().await;
    test.apply(SHOP).await;
    sleep(Duration::from_secs(5)).await;
    drift(&test).await;
    sleep(Duration::from_secs(11)).await;
    assert_eq!(data(&test, "page").await, json!({"word": "hello"}));
}

#[tokio::test(start_paused = true)]
async fn unselected_objects_are_ignored() {
    let test = test_of("selector", ", selector: {matchLabels: {open: 'yes'}}", PAGE).start().await;
    test.apply(SHOP).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(data(&test, "page").await, Value::Null);
    change(&api(&test, &shops()), "corner", json!({"metadata": {"labels": {"open": "yes"}}})).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(data(&test, "page").await, json!({"word": "hello"}));
}

#[tokio::test(start_paused = true)]
async fn finalizer_may_be_the_role_with_other_variables() {
    let options = ", finalizer: {name: shop.example.com/own, vars: {state: absent}}";
    let test = test_of("own", options, PAGE).start().await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    api(&test, &shops()).delete("corner", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(api(&test, &shops()).get_opt("corner").await.unwrap().is_none());
    assert_eq!(data(&test, "page").await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn failing_finalizer_keeps_its_object_and_reports_the_reason() {
    let options = ", finalizer: {name: shop.example.com/own, vars: {closing: true}}";
    let tasks = "- {fail: {msg: there are guests}, when: closing | default(false) and guests | default(0) > 0}\n";
    let test = test_of("held", options, tasks).start().await;
    test.apply(SHOP).await;
    let objects = api(&test, &shops());
    change(&objects, "corner", json!({"spec": {"guests": 1}})).await;
    sleep(Duration::from_secs(5)).await;
    objects.delete("corner", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    let failure = condition(&objects.get("corner").await.unwrap(), "Failure");
    assert_eq!((&failure["status"], &failure["message"]), (&json!("True"), &json!("there are guests")));
    change(&objects, "corner", json!({"spec": {"guests": 0}})).await;
    sleep(Duration::from_secs(5)).await;
    assert!(objects.get_opt("corner").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn large_object_is_finalized() {
    let options = ", finalizer: {name: shop.example.com/own, vars: {state: absent}}";
    let test = test_of("large", options, PAGE).start().await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    let objects = api(&test, &shops());
    let failure = async || condition(&objects.get("corner").await.unwrap(), "Failure")["message"].to_string();
    change(&objects, "corner", json!({"spec": {"items": vec![json!({"a": 0}); 40_000]}})).await;
    sleep(Duration::from_secs(5)).await;
    assert!(failure().await.contains("the limit is 150994944"));
    objects.delete("corner", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(objects.get_opt("corner").await.unwrap().is_none());
    assert_eq!(data(&test, "page").await, Value::Null, "its finalizer ran");
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_dependents_are_watched_if_enabled() {
    let tasks = "
- k8s:
    state: '{{ state | default(\"present\") }}'
    definition:
      apiVersion: storage.k8s.io/v1
      kind: StorageClass
      metadata: {name: shelves, labels: {word: '{{ first_word }}'}}
      provisioner: example.com/shelves
";
    let options = ", watchClusterScopedResources: true, finalizer: {name: shop.example.com/own, vars: {state: absent}}";
    let mut test = test_of("cluster", options, tasks).allows_changes_of::<StorageClass>().start().await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    let kind = Kind::new("storage.k8s.io", "v1", "StorageClass").cluster_scoped();
    let classes: Api<DynamicObject> = Api::all_with(test.client(), &kind.api_resource());
    let label = async || classes.get("shelves").await.unwrap().metadata.labels.unwrap()["word"].clone();
    assert_eq!(label().await, "hello");
    let drift = Patch::Merge(json!({"metadata": {"labels": {"word": "drift"}}}));
    classes.patch("shelves", &PatchParams::default(), &drift).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(label().await, "hello");
    test.assert_idempotent().await;
    api(&test, &shops()).delete("corner", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(classes.get_opt("shelves").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_and_equally_named_kinds_are_reconciled() {
    let definition = |group: &str| {
        let text =
            std::fs::read_to_string(crate::project::project("shop").join("config/crd/bases/shops.yaml")).unwrap();
        text.replace("shop.example.com", group).replace("scope: Namespaced", "scope: Cluster")
    };
    let watches = "
- {group: shop.example.com, version: v1, kind: Shop, role: a}
- {group: mall.example.com, version: v1, kind: Shop, role: a, vars: {place: test}}
";
    let tasks = "
- k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: '{{ ansible_operator_meta.name }}', namespace: '{{ place | default(ansible_operator_meta.namespace) }}'}
      data: {size: '{{ size | string }}'}
";
    let malls = definition("mall.example.com");
    let files =
        [("watches.yaml", watches), ("config/crd/bases/malls.yaml", &*malls), ("roles/a/tasks/main.yml", tasks)];
    let written = Project::new("namesakes", &files);
    let folder = written.folder().to_owned();
    let mut test = Test::of(move || operator_of(&folder)).start().await;
    test.apply("{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: small}, spec: {size: 1}}").await;
    test.apply("{apiVersion: mall.example.com/v1, kind: Shop, metadata: {name: large}, spec: {size: 9}}").await;
    test.assert_converges().await;
    assert_eq!(data(&test, "small").await, json!({"size": "1"}));
    assert_eq!(data(&test, "large").await, json!({"size": "9"}));
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn missing_kinds_can_be_queried() {
    let tasks = "
- k8s_info: {api_version: route.openshift.io/v1, kind: Route}
  register: routes
- k8s_info: {kind: ConfigMap, namespace: test, label_selectors: [kind=menu], field_selectors: [data.day=monday]}
  register: menus
- k8s: {kind: ConfigMap, name: page, definition: {data: {routes: '{{ routes.api_found | string }}', menus: '{{ menus.resources | length | string }}'}}}
";
    let mut test = test_of("info", "", tasks).start().await;
    for (name, day) in [("a", "monday"), ("b", "tuesday")] {
        test.apply(&format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{kind: menu}}}}, data: {{day: {day}}}}}")).await;
    }
    test.apply(SHOP).await;
    test.assert_converges().await;
    let failure = condition(&api(&test, &shops()).get("corner").await.unwrap(), "Failure");
    assert_eq!(failure["status"], "False", "{failure}");
    assert_eq!(data(&test, "page").await, json!({"routes": "False", "menus": "1"}));
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn objects_are_reconciled_after_ten_hours_without_a_change() {
    let test = test_of("ten-hours", ", watchDependentResources: false", PAGE).start().await;
    test.apply(SHOP).await;
    sleep(Duration::from_secs(5)).await;
    drift(&test).await;
    sleep(Duration::from_secs(9 * 3600)).await;
    assert_eq!(data(&test, "page").await, json!({"word": "drift"}));
    sleep(Duration::from_secs(3601)).await;
    assert_eq!(data(&test, "page").await, json!({"word": "hello"}));
}

#[tokio::test(start_paused = true)]
async fn annotations_trigger_a_reconcile_if_watched() {
    for (name, options, repaired) in [("unseen", "", "drift"), ("seen", ", watchAnnotationsChanges: true", "hello")] {
        let test = test_of(name, &format!(", watchDependentResources: false{options}"), PAGE).start().await;
        test.apply(SHOP).await;
        sleep(Duration::from_secs(5)).await;
        drift(&test).await;
        change(&api(&test, &shops()), "corner", json!({"metadata": {"annotations": {"a": "b"}}})).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(data(&test, "page").await, json!({"word": repaired}), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn verbosity_decides_on_debug_tasks() {
    let tasks = "
- {debug: {msg: quiet, verbosity: 2}, register: quiet}
- {debug: {msg: loud, verbosity: 4}, register: loud}
- k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: page}
      data: {ran: '{{ [quiet is skipped, loud is skipped, ansible_verbosity] | to_json }}'}
";
    let test = test_of("verbosity", ", maxRunnerArtifacts: 1, markUnsafe: true", tasks).start().await;
    test.apply(SHOP).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(data(&test, "page").await, json!({"ran": "[false, true, 2]"}));
    let objects = api(&test, &shops());
    for (verbosity, ran) in
        [("5", "[false, false, 5]"), ("99", "[false, false, 7]"), ("-1", "[true, true, 0]"), ("x", "[false, true, 2]")]
    {
        let name = "ansible.sdk.operatorframework.io/verbosity";
        let changes = json!({"metadata": {"annotations": {name: verbosity}}, "spec": {"round": verbosity}});
        change(&objects, "corner", changes).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(data(&test, "page").await, json!({"ran": ran}), "{verbosity}");
    }
}
