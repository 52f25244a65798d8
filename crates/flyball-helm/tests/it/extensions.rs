//! Functions in Rust that extend the releases of a kind.

use crate::project::{apply_site, condition, history, patch, project, revisions, sites};
use flyball::{Event, Operator};
use flyball_cluster::testing::Test;
use flyball_helm::{Builder, Watches};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::json;
use std::path::Path;

const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-page\ndata:\n  \
                    replicas: {{ .Values.replicas | quote }}\n  text: {{ tpl .Values.text . | quote }}\n";
/// A kind that the chart renders only with mapped values of the sample.
const MORE: &str = "{{- if eq (int .Values.replicas) 5 }}\napiVersion: {{ \"policy/v1\" }}\nkind: PodDisruptionBudget\nmetadata:\n  \
                    name: {{ .Release.Name }}\nspec: {maxUnavailable: 1}\n{{- end }}\n";
const SAMPLE: &str = "apiVersion: web.example.com/v1\nkind: Site\nmetadata: {name: sample}\nspec: {size: large}\n";

fn operator(folder: &Path) -> Operator {
    let watches = Watches::read(folder.join("watches.yaml")).expect("it is valid").deterministic();
    Builder::new(&watches)
        .map_values("Site", |site, mut values| {
            let replicas = match values.remove("size").as_ref().and_then(|size| size.as_str()) {
                Some("large") => 5,
                Some("none") => return Err(flyball::Error::from("spec.size must not be none").terminal()),
                _ => 1,
            };
            values.insert("replicas".into(), replicas.into());
            let name = site.metadata.name.clone().unwrap_or_default();
            values.insert("text".into(), format!("{name} {{{{ .Release.Name }}}}").into());
            Ok(values)
        })
        .pre_hook("Site", |cx, _, values| {
            Box::pin(async move {
                cx.event(Event::normal("Before", format!("{} replicas", values["replicas"])));
                match values.get("stop") {
                    Some(_) => Err(flyball::Error::from("stopped").terminal()),
                    None => Ok(()),
                }
            })
        })
        .post_hook("Site", |cx, site, revision| {
            let name = site.metadata.name.clone().unwrap_or_default();
            Box::pin(async move {
                cx.event(Event::normal("After", format!("{name} has revision {}", revision.version)));
                Ok(())
            })
        })
        .allows(
            "Site",
            PolicyRule {
                verbs: vec!["get".into()],
                non_resource_urls: Some(vec!["/livez".into()]),
                ..PolicyRule::default()
            },
        )
        .build()
        .expect("the project is valid")
}

#[tokio::test(start_paused = true)]
async fn functions_map_values_and_run_around_releases() -> kube::Result<()> {
    let files = [
        ("charts/site/values.yaml", "replicas: 0\ntext: \"\"\n"),
        ("charts/site/templates/page.yaml", PAGE),
        ("charts/site/templates/more.yaml", MORE),
        ("config/samples/site.yaml", SAMPLE),
    ];
    let folder = project("extended", &files);
    let rules = operator(&folder).rules();
    let has = |is: &dyn Fn(&PolicyRule) -> bool| rules.iter().any(is);
    assert!(has(&|rule| rule.resources.iter().flatten().any(|resource| resource == "poddisruptionbudgets")));
    assert!(has(&|rule| rule.non_resource_urls.iter().flatten().any(|url| url == "/livez")));

    let test = Test::of(move || operator(&folder)).start().await;
    apply_site(&test, "blue", "{size: large}").await;
    test.assert_converges().await;
    let page = test.api::<ConfigMap>().get("blue-page").await?.data.unwrap_or_default();
    // Text of the mapper is data.
    assert_eq!((&*page["replicas"], &*page["text"]), ("5", "blue {{ .Release.Name }}"));
    assert_eq!(revisions(&test, "blue").await[0].config["replicas"], 5);
    patch(&sites(&test), "blue", json!({"spec": {"size": "small"}})).await;
    test.assert_converges().await;
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);
    let notes = async || {
        // Events are sent in the background.
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
        let events = test.api::<k8s_openapi::api::events::v1::Event>().list(&Default::default()).await.unwrap();
        let of_hooks = events.into_iter().filter(|event| matches!(event.reason.as_deref(), Some("Before" | "After")));
        of_hooks.filter_map(|event| event.note).collect::<Vec<_>>()
    };
    for expected in ["5 replicas", "1 replicas", "blue has revision 1", "blue has revision 2"] {
        assert!(notes().await.iter().any(|note| note == expected), "{:?}", notes().await);
    }

    patch(&sites(&test), "blue", json!({"spec": {"stop": true}})).await;
    test.assert_converges().await;
    let stopped = "True ReconcileError: the function before the release failed: stopped";
    assert_eq!(condition(&sites(&test), "blue", "Irreconcilable").await, stopped);
    patch(&sites(&test), "blue", json!({"spec": {"size": "none"}})).await;
    test.assert_converges().await;
    let failed = condition(&sites(&test), "blue", "Irreconcilable").await;
    assert!(failed.ends_with("cannot map the spec to values: spec.size must not be none"), "{failed}");
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);
    Ok(())
}

#[test]
fn functions_of_unknown_kinds_are_rejected() {
    let folder = project("extended-wrongly", &[("charts/site/templates/page.yaml", PAGE)]);
    let watches = Watches::read(folder.join("watches.yaml")).expect("it is valid");
    let error = Builder::new(&watches).map_values("Sight", |_, values| Ok(values)).build().unwrap_err();
    assert_eq!(error.to_string(), "watches.yaml has no entry of kind Sight, which a function extends");
}
