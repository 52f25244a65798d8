//! Operators with kinds that are known at run time only, on a complete API server with their declared permissions.

use flyball::{
    Action, Cache, Children, Client, Context, Controller, GroupVersionKind, Kind, ObjectKey, Operator, Predicate,
    Reconcile, Result,
};
use flyball_cluster::testing::Test;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

fn site() -> Kind {
    Kind::new("example.com", "v1", "Site")
}

fn page() -> Kind {
    Kind::new("", "v1", "ConfigMap")
}

fn key() -> Kind {
    Kind::new("", "v1", "Secret")
}

fn account() -> Kind {
    Kind::new("", "v1", "ServiceAccount")
}

/// Creates a page for every site, with a shared key; counts reconciles and cleanups.
#[derive(Clone, Default)]
struct Pages(Arc<Mutex<Vec<String>>>);

impl Pages {
    fn log(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Reconcile for Pages {
    type Resource = DynamicObject;
    const FINALIZER: Option<&'static str> = Some("example.com/page");

    async fn reconcile(&self, object: &DynamicObject, cx: &Context<DynamicObject>) -> Result<Action> {
        let kind = object.types.as_ref().map(|types| types.kind.clone());
        self.0.lock().unwrap().push(format!("{} {}", kind.unwrap_or_default(), object.name_any()));
        // The data of secrets is not cached.
        let shared = cx.dynamic(&key()).get(&cx.sibling("key")).await?;
        let shared = shared.map(|secret| secret.data["data"]["key"].clone()).unwrap_or_default();
        let data = json!({"title": object.data["spec"]["title"], "key": shared.as_str().unwrap_or("none")});
        let page_of = DynamicObject::new(&object.name_any(), &page().api_resource()).data(json!({"data": data}));
        let rollout = cx.apply_all(&Children::new().child(&page_of)).await?;
        let known = cx.dynamic(&account()).get(&cx.sibling("default")).await?.is_some();
        let (pages, sites) =
            (cx.dynamic(&page()).children().await?, cx.dynamic(&site()).list(cx.key().namespace()).await?);
        let named = pages.iter().all(|page| page.types.as_ref().is_some_and(|types| types.kind == "ConfigMap"));
        let counts = json!({"pages": pages.len(), "sites": sites.len(), "named": named && known});
        cx.set_status(&json!({"counts": counts, "conditions": [rollout.condition("Ready")]})).await?;
        Ok(Action::done())
    }

    async fn finalize(&self, object: &DynamicObject, _: &Context<DynamicObject>) -> Result<Action> {
        self.0.lock().unwrap().push(format!("clean {}", object.name_any()));
        Ok(Action::done())
    }
}

fn operator(pages: Pages) -> Operator {
    let controller = Controller::of(&site(), pages)
        .dynamic(&site())
        .filter(Predicate::generation())
        .dynamic(&page())
        .owns()
        .dynamic(&account())
        .reads()
        .dynamic(&key())
        .watches(|secret, caches| {
            let sites = caches.dynamic(&site()).keys(secret.metadata.namespace.as_deref())?;
            Ok(sites.into_iter().filter(|_| secret.name_any() == "key").collect())
        });
    Operator::new("pages").controller(controller).cache(Cache::of(&page()).labels("!theirs"))
}

async fn install(client: &Client, names: Value, scope: &str) {
    let plural = names["plural"].as_str().unwrap();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com",
            "names": names,
            "scope": scope,
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
            }],
        },
    });
    definitions(client)
        .patch(&format!("{plural}.example.com"), &PatchParams::apply("test"), &Patch::Apply(definition))
        .await
        .unwrap();
}

fn definitions(client: &Client) -> Api<DynamicObject> {
    let kind = Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition").cluster_scoped();
    Api::all_with(client.clone(), &kind.api_resource())
}

#[tokio::test(start_paused = true)]
async fn operator_with_dynamic_kinds_only_converges() {
    let pages = Pages::default();
    let theirs = pages.clone();
    let mut test = Test::of(move || operator(theirs.clone())).start().await;
    let client = test.client();
    let of =
        |kind: &Kind| Api::<DynamicObject>::namespaced_with(client.clone(), test.namespace(), &kind.api_resource());
    let (sites, maps) = (of(&site()), of(&page()));
    let get = async |api: &Api<DynamicObject>| match api.get_opt("a").await.ok().flatten() {
        Some(object) => object.data,
        None => Value::Null,
    };
    let secret = |value: &str| {
        format!("{{apiVersion: v1, kind: Secret, metadata: {{name: key}}, stringData: {{key: {value}}}}}")
    };

    // The definition is created, deleted with its objects, and created again.
    test.apply(&secret("one")).await;
    test.assert_converges().await;
    for (round, title) in ["first", "second"].into_iter().enumerate() {
        install(&client, json!({"plural": "sites", "singular": "site", "kind": "Site"}), "Namespaced").await;
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "a"}, "spec": {"title": title},
        });
        let params = PatchParams::apply("test");
        let is_applied = async || sites.patch("a", &params, &Patch::Apply(&object)).await.is_ok();
        test.eventually("the kind is served", is_applied).await;
        test.eventually("a page", async || get(&maps).await["data"]["title"] == title).await;
        test.assert_converges().await;
        let (data, status) = (get(&maps).await, get(&sites).await["status"].clone());
        assert_eq!(data["data"]["key"], if round == 0 { "b25l" } else { "dHdv" });
        assert_eq!(status["counts"], json!({"pages": 1, "sites": 1, "named": true}));
        assert_eq!(status["conditions"][0]["status"], "True");
        assert!(pages.log().iter().all(|entry| entry == "Site a"));

        // A label triggers no reconcile; drift and changes of the secret do.
        let patch = async |api: &Api<DynamicObject>, patch: Value| {
            api.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        };
        patch(&sites, json!({"metadata": {"labels": {"l": round.to_string()}}})).await;
        test.assert_converges().await;
        assert_eq!(pages.log(), [""; 0]);
        patch(&maps, json!({"data": {"title": "theirs"}})).await;
        test.eventually("drift is repaired", async || get(&maps).await["data"]["title"] == title).await;
        test.apply(&secret("two")).await;
        test.eventually("the key", async || get(&maps).await["data"]["key"] == "dHdv").await;
        test.assert_converges().await;
        assert!(!pages.log().is_empty());
        if round == 0 {
            definitions(&client).delete("sites.example.com", &DeleteParams::default()).await.unwrap();
            let is_deleted = async || definitions(&client).get_opt("sites.example.com").await.unwrap().is_none();
            test.eventually("the kind is gone", is_deleted).await;
            assert_eq!(pages.log(), ["clean a"]);
            // The garbage collector deletes the dependents only if it observes the deletion of the object before that
            // of the kind.
            let deleted = maps.delete("a", &DeleteParams::default()).await;
            assert!(deleted.is_ok() || get(&maps).await.is_null(), "{deleted:?}");
        }
    }
    test.assert_idempotent().await;
    pages.log();
    let sites: Api<DynamicObject> = Api::namespaced_with(client.clone(), test.namespace(), &site().api_resource());
    sites.delete("a", &DeleteParams::default()).await.unwrap();
    test.eventually("the site is gone", async || sites.get_opt("a").await.unwrap().is_none()).await;
    assert_eq!(pages.log(), ["clean a"]);
    assert_eq!(test.denials(), []);
}

#[test]
fn dynamic_kinds_have_the_rules_of_typed_kinds() {
    let rules = |operator: Operator| {
        let rule = |rule: k8s_openapi::api::rbac::v1::PolicyRule| {
            format!("{}/{} {}", rule.api_groups.unwrap()[0], rule.resources.unwrap()[0], rule.verbs.join(","))
        };
        operator.rules().into_iter().map(rule).collect::<Vec<_>>()
    };
    let expected = [
        "/configmaps create,delete,get,list,patch,watch",
        "/secrets get,list,watch",
        "/serviceaccounts get,list",
        "events.k8s.io/events create,patch",
        "example.com/sites get,list,patch,watch",
        "example.com/sites/finalizers update",
        "example.com/sites/status patch",
    ];
    assert_eq!(rules(operator(Pages::default())), expected);
}

#[tokio::test(start_paused = true)]
async fn kind_is_discovered_from_the_server() {
    let test = Test::of(|| operator(Pages::default())).start().await;
    let client = test.client();
    let discover = async |group: &str, version: &str, kind: &str| {
        let found = Kind::discover(&client, &GroupVersionKind::new(group, version, kind)).await.unwrap();
        found.map(|kind| (kind.resource().to_string(), kind.is_namespaced()))
    };
    assert_eq!(discover("apps", "v1", "Deployment").await, Some(("deployments.apps".into(), true)));
    assert_eq!(discover("", "v1", "Node").await, Some(("nodes".into(), false)));
    assert_eq!(discover("", "v1", "Nodes").await, None);
    assert_eq!(discover("example.com", "v1", "Sheep").await, None);
    install(&client, json!({"plural": "sheep", "singular": "sheep", "kind": "Sheep"}), "Cluster").await;
    let served = async || discover("example.com", "v1", "Sheep").await.is_some();
    test.eventually("the kind is served", served).await;
    assert_eq!(discover("example.com", "v1", "Sheep").await, Some(("sheep.example.com".into(), false)));
    assert_eq!(discover("example.com", "v2", "Sheep").await, None);
    // The guessed plural follows the most common rule.
    let guessed = Kind::new("example.com", "v1", "Sheep").plural("sheep").cluster_scoped();
    assert_eq!(
        (guessed.resource().to_string(), ObjectKey::new(None, "a").namespace()),
        ("sheep.example.com".into(), None)
    );
}
