//! The lifecycle of a release.

use crate::project::{api, apply_site, condition, history, notes, operator_of, patch, project, revisions, sites};
use flyball_cluster::testing::{Test, explore_crashes};
use flyball_helm::Watches;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

const VALUES: &str = "title: Hello\nreplicas: 2\nextra: false\n";
const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-page\ndata:\n  title: {{ .Values.title }}\n";
const WEB: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}-web\nspec:\n  replicas: {{ .Values.replicas }}\n  \
                   selector: {matchLabels: {app: \"{{ .Release.Name }}\"}}\n  template:\n    metadata: {labels: {app: \"{{ .Release.Name }}\"}}\n    \
                   spec: {containers: [{name: web, image: web}]}\n";
const EXTRA: &str = "{{- if .Values.extra }}\napiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Release.Name }}-extra\nstringData: {a: b}\n{{- end }}\n";

fn site(name: &str) -> std::path::PathBuf {
    project(
        name,
        &[
            ("charts/site/values.yaml", VALUES),
            ("charts/site/templates/page.yaml", PAGE),
            ("charts/site/templates/web.yaml", WEB),
            ("charts/site/templates/extra.yaml", EXTRA),
            ("charts/site/templates/NOTES.txt", "The title is {{ .Values.title }}."),
        ],
    )
}

async fn title(test: &Test) -> String {
    let page = test.api::<ConfigMap>().get_opt("blue-page").await.expect("it can be read");
    page.and_then(|page| page.data?.remove("title")).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn custom_resource_becomes_a_release() -> kube::Result<()> {
    let mut test = Test::of(operator_of(site("installed"))).nodes(1).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    let pods = test.api::<Pod>().list(&ListParams::default().labels("app=blue")).await?;
    assert_eq!((pods.items.len(), title(&test).await.as_str()), (2, "Blue"));
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: The title is Blue.");
    let site = sites(&test).get("blue").await?;
    assert_eq!(
        site.metadata.finalizers.as_deref(),
        Some(&["helm.sdk.operatorframework.io/uninstall-release".to_owned()][..])
    );

    let [revision] = &*revisions(&test, "blue").await else { panic!("there is one revision") };
    assert_eq!(site.data["status"]["deployedRelease"], json!({"name": "blue", "manifest": revision.manifest}));
    assert!(
        revision.manifest.starts_with("---\n# Source: site/templates/page.yaml\napiVersion: v1\n"),
        "{}",
        revision.manifest
    );
    assert_eq!((revision.config["title"].as_str(), &*revision.info.description), (Some("Blue"), "Install complete"));
    assert_eq!((revision.chart_name(), &*revision.info.notes), (Some("site"), "The title is Blue."));
    let secret = test.api::<Secret>().get("sh.helm.release.v1.blue.v1").await?;
    assert_eq!(secret.type_.as_deref(), Some("helm.sh/release.v1"));
    let labels = secret.metadata.labels.unwrap_or_default();
    assert_eq!((&*labels["owner"], &*labels["status"], &*labels["version"]), ("helm", "deployed", "1"));

    let page = test.api::<ConfigMap>().get("blue-page").await?.metadata;
    assert_eq!(page.labels.unwrap_or_default()["app.kubernetes.io/managed-by"], "Helm");
    let annotations = page.annotations.unwrap_or_default();
    assert_eq!(annotations["meta.helm.sh/release-name"], "blue");
    assert_eq!(annotations["meta.helm.sh/release-namespace"], test.namespace());
    assert_eq!(page.owner_references.unwrap_or_default()[0].kind, "Site");
    test.assert_idempotent().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn changed_values_cause_an_upgrade() -> kube::Result<()> {
    let mut test = Test::of(operator_of(site("upgraded"))).nodes(1).start().await;
    apply_site(&test, "blue", "{title: Blue, extra: true}").await;
    test.assert_converges().await;
    assert!(
        test.api::<Secret>().get_opt("blue-extra").await?.is_some(),
        "{:?}",
        sites(&test).get("blue").await?.data["status"]
    );
    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer", "extra": false, "replicas": 1}})).await;
    test.assert_converges().await;
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True UpgradeSuccessful: The title is Bluer.");
    assert_eq!(title(&test).await, "Bluer");
    assert!(
        test.api::<Secret>().get_opt("blue-extra").await?.is_none(),
        "objects that are no longer rendered are deleted"
    );
    // Values that no template uses create no revision.
    patch(&sites(&test), "blue", json!({"spec": {"nobody": "asks"}})).await;
    test.assert_converges().await;
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);
    test.assert_idempotent().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn columns_and_events_report_releases() -> kube::Result<()> {
    let loops =
        "{{- define \"loop\" }}{{ include \"loop\" . }}{{ end }}{{ if .Values.loop }}{{ include \"loop\" . }}{{ end }}";
    let folder = project(
        "told",
        &[
            ("charts/site/values.yaml", VALUES),
            ("charts/site/templates/page.yaml", PAGE),
            ("charts/site/templates/loop.yaml", loops),
        ],
    );
    let test = Test::of(operator_of(folder)).start().await;
    // With `-o wide`, kubectl shows the columns with a priority as well.
    let row_of = async |is_wide: bool| {
        let path = format!("/apis/web.example.com/v1/namespaces/{}/sites", test.namespace());
        let request = http::Request::get(path).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
        let table: Value = test.client().request(request.body(Vec::new()).unwrap()).await.unwrap();
        let columns = table["columnDefinitions"].as_array().unwrap().iter();
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        let is_shown = |column: &&Value| {
            column["name"] != "Name" && column["name"] != "Age" && (column["priority"] != 0) == is_wide
        };
        let row = columns.zip(cells).filter(|(column, _)| is_shown(column));
        row.map(|(column, cell)| format!("{}={cell}", column["name"].as_str().unwrap_or_default()))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let row = async || row_of(false).await;
    let events = async || {
        // Events are sent in the background.
        sleep(Duration::from_secs(10)).await;
        let events = test.api::<Event>().list(&ListParams::default()).await.unwrap().items;
        let of_site = events
            .into_iter()
            .filter(|event| event.regarding.as_ref().and_then(|about| about.kind.as_deref()) == Some("Site"));
        let mut messages: Vec<String> = of_site
            .map(|event| [event.type_, event.reason, event.note].map(Option::unwrap_or_default).join(" "))
            .collect();
        messages.sort();
        messages
    };
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    assert_eq!(row().await, r#"Status="deployed" Reason="InstallSuccessful" Chart="site-0.1.0" Revision=1"#);
    let installed = "Normal InstallSuccessful Release blue, revision 1 of chart site-0.1.0: Install complete";
    assert_eq!(events().await, [installed]);

    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer"}})).await;
    test.assert_converges().await;
    assert_eq!(row().await, r#"Status="deployed" Reason="UpgradeSuccessful" Chart="site-0.1.0" Revision=2"#);
    assert_eq!(row_of(true).await, "Failed Revision=null Message=null");
    let upgraded = "Normal UpgradeSuccessful Release blue, revision 2 of chart site-0.1.0: Upgrade complete";
    assert_eq!(events().await, [installed, upgraded]);

    patch(&sites(&test), "blue", json!({"spec": {"loop": true}})).await;
    test.assert_converges().await;
    assert_eq!(row().await, r#"Status="failed" Reason="ReconcileError" Chart="site-0.1.0" Revision=2"#);
    let wide = row_of(true).await;
    assert!(wide.starts_with("Failed Revision=null Message=\"failed to get candidate release: exceeded"), "{wide}");
    let [.., failed] = &*events().await else { panic!("there are events") };
    for message in [failed, &condition(&sites(&test), "blue", "Irreconcilable").await] {
        // The cause comes before the thousand nested calls.
        assert!(message.len() < 600 && message.contains("site/templates/loop.yaml:1:"), "{} {message}", message.len());
        assert!(
            message.contains("failed to get candidate release: exceeded maximum template depth (1000) (at"),
            "{message}"
        );
    }
    // Reconciling again publishes no further event.
    patch(&sites(&test), "blue", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    test.assert_converges().await;
    assert_eq!(events().await.len(), 3);
    sites(&test).delete("blue", &DeleteParams::default()).await?;
    test.assert_converges().await;
    assert!(events().await.contains(&"Normal UninstallSuccessful Release blue is uninstalled".to_owned()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn history_is_bounded() {
    let test = Test::of(operator_of(site("history"))).start().await;
    apply_site(&test, "blue", "{replicas: 0}").await;
    for number in 1..=12 {
        patch(&sites(&test), "blue", json!({"spec": {"title": format!("no. {number}")}})).await;
        test.assert_converges().await;
    }
    let history = history(&test, "blue").await;
    assert_eq!((history.len(), &*history[0], &*history[9]), (10, "4 superseded", "13 deployed"), "{history:?}");
}

#[tokio::test(start_paused = true)]
async fn drift_is_repaired_at_once() -> kube::Result<()> {
    let test = Test::of(operator_of(site("drift"))).nodes(1).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    let (pages, webs) = (test.api::<ConfigMap>(), test.api::<Deployment>());
    pages.delete("blue-page", &DeleteParams::default()).await?;
    let change = json!({"spec": {"replicas": 7}});
    webs.patch("blue-web", &PatchParams::default(), &Patch::Merge(change)).await?;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(title(&test).await, "Blue");
    assert_eq!(webs.get("blue-web").await?.spec.and_then(|spec| spec.replicas), Some(2));
    // Fields of other managers stay.
    let change = json!({"metadata": {"annotations": {"note": "mine"}}});
    pages.patch("blue-page", &PatchParams::default(), &Patch::Merge(change)).await?;
    test.assert_converges().await;
    assert_eq!(pages.get("blue-page").await?.metadata.annotations.unwrap_or_default()["note"], "mine");
    assert_eq!(history(&test, "blue").await, ["1 deployed"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn other_objects_and_uncharted_fields_stay() -> kube::Result<()> {
    let test = Test::of(operator_of(site("drift-kept"))).nodes(1).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    let pages = test.api::<ConfigMap>();
    let mut other = pages.get("blue-page").await?;
    other.metadata.name = Some("blue-other".into());
    (other.metadata.resource_version, other.metadata.owner_references) = (None, None);
    pages.create(&PostParams::default(), &other).await?;
    let container = json!([{"name": "sidecar", "image": "sidecar"}]);
    let change =
        json!({"spec": {"template": {"spec": {"containers": container}}}, "metadata": {"labels": {"team": "a"}}});
    let webs = test.api::<Deployment>();
    webs.patch("blue-web", &PatchParams::default(), &Patch::Strategic(change)).await?;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer"}})).await;
    test.assert_converges().await;
    assert_eq!((title(&test).await.as_str(), pages.get_opt("blue-other").await?.is_some()), ("Bluer", true));
    let web = webs.get("blue-web").await?;
    let containers = web.spec.and_then(|spec| spec.template.spec).map(|spec| spec.containers).unwrap_or_default();
    let mut names: Vec<String> = containers.into_iter().map(|container| container.name).collect();
    names.sort();
    assert_eq!((names, &*web.metadata.labels.unwrap_or_default()["team"]), (vec!["sidecar".into(), "web".into()], "a"));
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn object_given_to_another_release_is_reported() -> kube::Result<()> {
    let test = Test::of(operator_of(site("drift-given"))).nodes(1).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    let change =
        json!({"metadata": {"annotations": {"meta.helm.sh/release-name": "green"}}, "data": {"title": "Green"}});
    test.api::<ConfigMap>().patch("blue-page", &PatchParams::default(), &Patch::Merge(change)).await?;
    let reported = async || condition(&sites(&test), "blue", "Irreconcilable").await;
    test.eventually("the failure", async || !reported().await.is_empty()).await;
    let failed = reported().await;
    assert!(failed.contains("cannot be imported into the current release") && failed.contains("green"), "{failed}");
    assert_eq!(title(&test).await, "Green");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn uninstall_leaves_nothing_behind() -> kube::Result<()> {
    let test = Test::of(operator_of(site("uninstalled"))).nodes(1).start().await;
    apply_site(&test, "green", "{}").await;
    test.assert_converges().await;
    let before: Vec<String> = test.state().await.into_keys().filter(|name| !name.contains("green")).collect();
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    sites(&test).delete("blue", &DeleteParams::default()).await?;
    test.assert_converges().await;
    let after: Vec<String> = test.state().await.into_keys().filter(|name| !name.contains("green")).collect();
    assert_eq!(after, before);
    assert_eq!(history(&test, "green").await, ["1 deployed"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn uninstall_may_wait_for_the_deletion_of_objects() -> kube::Result<()> {
    let test = Test::of(operator_of(site("waits"))).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    let annotation = json!({"helm.sdk.operatorframework.io/uninstall-wait": "true"});
    patch(&sites(&test), "blue", json!({"metadata": {"annotations": annotation}})).await;
    let hold = |finalizers: serde_json::Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let pages = test.api::<ConfigMap>();
    pages.patch("blue-page", &PatchParams::default(), &hold(json!(["example.com/mine"]))).await?;
    sites(&test).delete("blue", &DeleteParams::default()).await?;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(history(&test, "blue").await, ["1 uninstalling"]);
    assert!(sites(&test).get_opt("blue").await?.is_some());
    pages.patch("blue-page", &PatchParams::default(), &hold(json!(null))).await?;
    test.assert_converges().await;
    assert!(sites(&test).get_opt("blue").await?.is_none());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failing_template_is_reported_once() -> kube::Result<()> {
    let folder = site("bad-values");
    std::fs::write(
        folder.join("charts/site/templates/guard.yaml"),
        "{{- if eq .Values.title \"bad\" }}{{ fail \"title must not be bad\" }}{{ end }}",
    )
    .expect("it can be written");
    let mut test = Test::of(operator_of(folder)).nodes(1).start().await;
    apply_site(&test, "blue", "{title: bad}").await;
    test.assert_converges().await;
    let failed = condition(&sites(&test), "blue", "ReleaseFailed").await;
    assert!(failed.starts_with("True InstallError: failed to install release: "), "{failed}");
    assert!(failed.contains("title must not be bad") && failed.contains("guard.yaml"), "{failed}");
    assert_eq!(history(&test, "blue").await, Vec::<String>::new());
    let before = test.requests();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(test.requests().since(&before).writes, 0);

    patch(&sites(&test), "blue", json!({"spec": {"title": "good"}})).await;
    test.assert_converges().await;
    assert_eq!(condition(&sites(&test), "blue", "ReleaseFailed").await, "");
    patch(&sites(&test), "blue", json!({"spec": {"title": "bad"}})).await;
    test.assert_converges().await;
    let failed = condition(&sites(&test), "blue", "Irreconcilable").await;
    assert!(failed.starts_with("True ReconcileError: failed to get candidate release: "), "{failed}");
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: The title is good.");
    assert_eq!((title(&test).await.as_str(), history(&test, "blue").await.len()), ("good", 1));
    test.assert_idempotent().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_kind_that_the_chart_no_longer_has_are_reported() -> kube::Result<()> {
    let last = "charts/site/templates/last.yaml";
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {{ .Release.Name }}-last\n";
    let page = ("charts/site/templates/page.yaml", PAGE);
    let folder = project("kind-dropped", &[("charts/site/values.yaml", VALUES), page, (last, account)]);
    let mut test = Test::of(operator_of(folder.clone())).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    test.crash().await;
    std::fs::remove_file(folder.join(last)).expect("it can be removed");
    test.restart().await;
    test.assert_converges().await;
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);
    assert!(api(&test, "", "v1", "ServiceAccount").get_opt("blue-last").await?.is_some());
    let events = test.api::<Event>().list(&ListParams::default()).await?;
    let notes: Vec<String> = events
        .items
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some("ObjectsKept"))
        .filter_map(|event| event.note)
        .collect();
    assert_eq!(
        notes,
        [
            "not deleted, since the chart no longer contains objects of their kinds: ServiceAccount blue-last; delete them \
          with kubectl"
        ]
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn edited_template_causes_an_upgrade_without_a_restart() {
    let folder = site("reloaded");
    let page = folder.join("charts/site/templates/page.yaml");
    let operator = move || {
        let watches = Watches::read(folder.join("watches.yaml")).unwrap_or_else(|error| panic!("{error}"));
        flyball_helm::operator(&watches.reloading(true)).unwrap_or_else(|error| panic!("{error}"))
    };
    let test = Test::of(operator).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    std::fs::write(&page, PAGE.replace("{{ .Values.title }}", "The {{ .Values.title }}")).expect("it can be written");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(title(&test).await, "The Blue");
    // An unparsable template changes no object.
    std::fs::write(&page, "{{ if }}").expect("it can be written");
    sleep(Duration::from_secs(2)).await;
    assert!(condition(&sites(&test), "blue", "Irreconcilable").await.contains("page.yaml"));
    assert_eq!((title(&test).await.as_str(), history(&test, "blue").await.len()), ("The Blue", 2));
}

#[tokio::test(start_paused = true)]
async fn override_values_take_precedence_over_the_spec() {
    let folder = site("overridden");
    let watches = "- group: web.example.com\n  version: v1\n  kind: Site\n  chart: charts/site\n  overrideValues: {title: '{{ upper \"o\" }}urs'}\n  \
                   selector: {matchLabels: {tier: web}}\n";
    std::fs::write(folder.join("watches.yaml"), watches).expect("it can be written");
    let test = Test::of(operator_of(folder)).start().await;
    apply_site(&test, "blue", "{title: Theirs}").await;
    test.assert_converges().await;
    assert_eq!(title(&test).await, "", "the selector excludes it");
    patch(&sites(&test), "blue", json!({"metadata": {"labels": {"tier": "web"}}})).await;
    test.assert_converges().await;
    assert_eq!(title(&test).await, "Ours");
    let note = notes(&test, "OverrideValuesInUse").await;
    assert!(note.contains("title") && !note.contains("Ours"), "{note}");
}

#[tokio::test(start_paused = true)]
async fn paused_release_is_not_reconciled() {
    let test = Test::of(operator_of(site("paused"))).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    let pause =
        |value: &str| json!({"metadata": {"annotations": {"helm.sdk.operatorframework.io/pause-reconcile": value}}});
    patch(&sites(&test), "blue", pause("true")).await;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer"}})).await;
    test.assert_converges().await;
    assert_eq!(condition(&sites(&test), "blue", "Paused").await, "True PauseReconcileAnnotationTrue: ");
    assert_eq!(title(&test).await, "Blue");
    patch(&sites(&test), "blue", pause("false")).await;
    test.assert_converges().await;
    assert_eq!((condition(&sites(&test), "blue", "Paused").await.as_str(), title(&test).await.as_str()), ("", "Bluer"));
}

#[tokio::test(start_paused = true)]
async fn paused_release_is_not_uninstalled() {
    let test = Test::of(operator_of(site("paused-at-the-end"))).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    let pause =
        |value: &str| json!({"metadata": {"annotations": {"helm.sdk.operatorframework.io/pause-reconcile": value}}});
    patch(&sites(&test), "blue", pause("true")).await;
    sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    sleep(Duration::from_hours(2)).await;
    assert_eq!(condition(&sites(&test), "blue", "Paused").await, "True PauseReconcileAnnotationTrue: ");
    assert_eq!((title(&test).await.as_str(), history(&test, "blue").await.len()), ("Blue", 1));
    patch(&sites(&test), "blue", pause("false")).await;
    sleep(Duration::from_secs(5)).await;
    assert!(sites(&test).get_opt("blue").await.expect("the server answers").is_none());
    assert_eq!((title(&test).await.as_str(), history(&test, "blue").await.len()), ("", 0));
}

#[tokio::test(start_paused = true)]
async fn release_of_another_chart_is_not_adopted() {
    let folder = site("two-charts");
    let watches = "- {group: web.example.com, version: v1, kind: Site, chart: charts/site}\n\
                   - {group: web.example.com, version: v1, kind: Page, chart: charts/page}\n";
    for (file, text) in [
        ("watches.yaml", watches),
        ("charts/page/Chart.yaml", "apiVersion: v2\nname: page\nversion: 1.0.0\n"),
        (
            "charts/page/templates/page.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}-other\"}\n",
        ),
    ] {
        let file = folder.join(file);
        std::fs::create_dir_all(file.parent().expect("it has one")).expect("it can be made");
        std::fs::write(file, text).expect("it can be written");
    }
    let test = Test::of(operator_of(folder)).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    test.expect_errors("belongs to Site blue");
    test.apply("{apiVersion: web.example.com/v1, kind: Page, metadata: {name: blue}, spec: {}}").await;
    test.assert_converges().await;
    let pages = api(&test, "web.example.com", "v1", "Page");
    assert_eq!(
        condition(&pages, "blue", "Irreconcilable").await,
        "True ReconcileError: failed to get helm release name: duplicate release name: release \"blue\" belongs to Site blue: rename one of the custom resources"
    );
    pages.delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    assert_eq!(history(&test, "blue").await, ["1 deployed"]);
}

#[tokio::test(start_paused = true)]
async fn runs_repeat_by_seed() {
    let folder = site("repeats");
    let mut traces = Vec::new();
    for _ in 0..2 {
        let test = Test::of(operator_of(folder.clone())).seed(7).nodes(1).start().await;
        apply_site(&test, "blue", "{}").await;
        test.assert_converges().await;
        patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer"}})).await;
        test.assert_converges().await;
        traces.push(test.trace());
    }
    assert!(!traces[0].is_empty() && traces[0] == traces[1]);
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing() {
    let operator = operator_of(site("crashes"));
    explore_crashes(
        || Test::of(operator.clone()).nodes(1),
        async |test| {
            apply_site(test, "blue", "{extra: true}").await;
            test.assert_converges().await;
            patch(&sites(test), "blue", json!({"spec": {"title": "Bluer", "extra": false}})).await;
            test.assert_converges().await;
            assert_eq!(notes(test, "ReleaseSecretsDeleted").await, "");
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_during_uninstall_leave_nothing_behind() {
    let operator = operator_of(site("crashes-at-the-end"));
    explore_crashes(
        || Test::of(operator.clone()).nodes(1),
        async |test| {
            apply_site(test, "blue", "{replicas: 1}").await;
            test.assert_converges().await;
            sites(test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
            test.assert_converges().await;
            assert_eq!(notes(test, "ReleaseSecretsDeleted").await, "");
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn chaos_an_outage_changes_nothing() {
    let mut test = Test::of(operator_of(site("outage"))).nodes(1).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_outage_is_harmless(Duration::from_secs(600)).await;
}
