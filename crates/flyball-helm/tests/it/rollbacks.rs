//! Failed upgrades, their rollbacks, and the time limits of hooks and waits.

use crate::project::{apply_site, condition, history, operator_of, patch, project, revisions, sites};
use flyball_cluster::testing::{Test, explore_crashes};
use flyball_helm::storage::PAYLOAD;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::sleep;

const VALUES: &str = "title: Hello\nport: 80\n";
const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-page\ndata:\n  title: {{ .Values.title }}\n";
/// The API server rejects ports over 65535. Services are created after ConfigMaps.
const DOOR: &str = "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Release.Name }}-door\nspec:\n  ports: [{port: {{ .Values.port }}}]\n";
/// An object that only the failing upgrade has, outside of the namespace.
const EXTRA: &str = "{{- if gt (int .Values.port) 65535 }}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-extra\n  \
                     namespace: kube-public\n{{- end }}\n";
const BAD: u32 = 70_000;

fn site_with(name: &str, entry: &str, files: &[(&str, &str)]) -> PathBuf {
    let watches = format!("- {{group: web.example.com, version: v1, kind: Site, chart: charts/site{entry}}}\n");
    let mut all = vec![("watches.yaml", &*watches), ("charts/site/values.yaml", VALUES)];
    all.extend(files);
    project(name, &all)
}

fn site(name: &str, entry: &str) -> PathBuf {
    let files = [("charts/site/templates/page.yaml", PAGE), ("charts/site/templates/door.yaml", DOOR)];
    site_with(name, entry, &files)
}

async fn title(test: &Test) -> String {
    let page = test.api::<ConfigMap>().get_opt("blue-page").await.expect("it can be read");
    page.and_then(|page| page.data?.remove("title")).unwrap_or_default()
}

async fn failure(test: &Test) -> String {
    condition(&sites(test), "blue", "ReleaseFailed").await
}

async fn events(test: &Test, reason: &str) -> Vec<String> {
    // Events are sent in the background.
    sleep(Duration::from_secs(10)).await;
    let events = test.api::<Event>().list(&ListParams::default()).await.expect("they can be listed");
    let of_reason = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    of_reason.map(|event| event.note.unwrap_or_default()).collect()
}

async fn fail_upgrade(test: &Test, title: &str) {
    patch(&sites(test), "blue", json!({"spec": {"title": title, "port": BAD}})).await;
    test.eventually("the failure", async || failure(test).await.contains("roll")).await;
}

#[tokio::test(start_paused = true)]
async fn failed_upgrade_is_rolled_back() -> kube::Result<()> {
    let folder = site("rolled-back", "");
    std::fs::write(folder.join("charts/site/templates/extra.yaml"), EXTRA).expect("it can be written");
    let test = Test::of(operator_of(folder)).allows_changes_in("kube-public").start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    fail_upgrade(&test, "Bluer").await;
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 failed", "3 deployed"]);
    assert_eq!(title(&test).await, "Blue", "the title of the failed upgrade was applied before");
    let public: Api<ConfigMap> = Api::namespaced(test.client(), "kube-public");
    assert!(public.get_opt("blue-extra").await?.is_none(), "objects of the failed upgrade are deleted");
    let [first, _, third] = &*revisions(&test, "blue").await else { panic!("there are three revisions") };
    assert_eq!((&*third.info.description, third.info.rollback_revision), ("Rollback to 1", 1));
    assert_eq!((&third.manifest, &third.config), (&first.manifest, &first.config));
    let failed = failure(&test).await;
    assert!(
        failed.starts_with("True UpgradeError: failed to upgrade release: ") && failed.contains("70000"),
        "{failed}"
    );
    assert!(failed.ends_with("; rolled back to revision 1"), "{failed}");
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True UpgradeSuccessful: ");
    // As `helm list` and `helm history` show it: revision 3 is deployed, and revision 2 failed.
    let release = sites(&test).get("blue").await?.data["status"]["release"].clone();
    assert_eq!((&release["status"], &release["reason"]), (&json!("failed"), &json!("UpgradeError")), "{release}");
    assert_eq!((&release["revision"], &release["failedRevision"]), (&json!(3), &json!(2)), "{release}");
    assert_eq!(failed, format!("True UpgradeError: {}", release["message"].as_str().unwrap_or_default()));
    let done = "Release blue, revision 3 of chart site-0.1.0: Rollback to 1";
    assert_eq!(events(&test, "RollbackSuccessful").await, [done]);

    // Meanwhile, drift is corrected.
    let change = Patch::Merge(json!({"data": {"title": "Red"}}));
    test.api::<ConfigMap>().patch("blue-page", &PatchParams::default(), &change).await?;
    test.eventually("the repair", async || title(&test).await == "Blue").await;

    // Other values are an upgrade.
    patch(&sites(&test), "blue", json!({"spec": {"port": 81}})).await;
    test.assert_converges().await;
    assert_eq!((title(&test).await, failure(&test).await), ("Bluer".into(), String::new()));
    let release = sites(&test).get("blue").await?.data["status"]["release"].clone();
    assert!(release.get("failedRevision").is_none() && release.get("message").is_none(), "{release}");
    let states: Vec<String> = history(&test, "blue").await;
    assert!(states.last().is_some_and(|last| last.ends_with("deployed")), "{states:?}");
    let number = |state: &str| states.iter().filter(|line| line.ends_with(state)).count();
    assert!(number("deployed") == 1 && number("superseded") == number("failed") + 1, "{states:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn changed_option_in_an_annotation_ends_the_backoff() {
    let test = Test::of(operator_of(site("rollback-options", ""))).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    fail_upgrade(&test, "Bluer").await;
    let number = async || revisions(&test, "blue").await.last().map_or(0, |revision| revision.version);
    let option = |name: &str, value: &str| {
        let name = format!("helm.sdk.operatorframework.io/{name}");
        json!({"metadata": {"annotations": {name: value}}})
    };
    // The backoff is an hour now.
    sleep(Duration::from_secs(7200)).await;
    test.eventually("the rollback", async || failure(&test).await.contains("rolled back")).await;
    for (change, attempts) in [
        (option("upgrade-force", "true"), 1),
        (option("rollback-force", "false"), 1),
        (option("rollback-force", "0"), 0),
        (option("reconcile-period", "2h"), 0),
    ] {
        let before = number().await;
        patch(&sites(&test), "blue", change.clone()).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(number().await, before + 2 * attempts, "{change}: an upgrade and its rollback");
        assert_eq!(title(&test).await, "Blue");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_option_in_an_annotation_ends_the_backoff_without_rollbacks() {
    let test = Test::of(operator_of(site("install-options", ", rollbackOnFailure: false"))).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer", "port": BAD}})).await;
    sleep(Duration::from_secs(7200)).await;
    let attempt = async || {
        let last = revisions(&test, "blue").await.pop();
        last.map(|revision| revision.info.last_deployed).unwrap_or_default()
    };
    let before = attempt().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(attempt().await, before, "the backoff is an hour");
    patch(
        &sites(&test),
        "blue",
        json!({"metadata": {"annotations": {"helm.sdk.operatorframework.io/upgrade-force": "true"}}}),
    )
    .await;
    sleep(Duration::from_secs(5)).await;
    assert_ne!(attempt().await, before);
}

#[tokio::test(start_paused = true)]
async fn rolled_back_upgrade_is_attempted_again_with_backoff() {
    let mut test = Test::of(operator_of(site("rollback-backoff", ""))).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    fail_upgrade(&test, "Bluer").await;
    let number = async || revisions(&test, "blue").await.last().map_or(0, |revision| revision.version);
    sleep(Duration::from_secs(3600)).await;
    // Attempts after 10 s, 20 s … are 8 within an hour; each one has two revisions.
    let after = number().await;
    assert!((11..=21).contains(&after), "{after} revisions in an hour");
    assert!(history(&test, "blue").await.len() <= 10);
    assert_eq!(title(&test).await, "Blue");
    assert!(failure(&test).await.ends_with("; rolled back to revision 1"), "{}", failure(&test).await);
    assert_eq!(events(&test, "Flapping").await, [""; 0], "upgrade and rollback are different desired states");

    // A restart neither upgrades at once, nor does it lose the revision for the rollback.
    test.crash().await;
    test.restart().await;
    sleep(Duration::from_secs(60)).await;
    let number = async || revisions(&test, "blue").await.last().map_or(0, |revision| revision.version);
    assert_eq!(number().await, after);
    test.eventually("the next attempt", async || number().await > after + 1).await;
    test.eventually("its rollback", async || {
        failure(&test).await.contains("rolled back") && title(&test).await == "Blue"
    })
    .await;

    // With the values of the deployed revision, there is nothing to do.
    let before = number().await;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Blue", "port": null}})).await;
    test.assert_converges().await;
    assert_eq!((number().await, failure(&test).await), (before, String::new()));
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn rollback_can_be_disabled() {
    let test = Test::of(operator_of(site("not-rolled-back", ", rollbackOnFailure: false"))).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer", "port": BAD}})).await;
    test.eventually("the failure", async || !failure(&test).await.is_empty()).await;
    assert_eq!(history(&test, "blue").await, ["1 deployed", "2 failed"]);
    assert!(!failure(&test).await.contains("rolled back"));
}

#[tokio::test(start_paused = true)]
async fn forged_revision_is_not_rolled_back_to() -> kube::Result<()> {
    let mut test = Test::of(operator_of(site("forged-rollback", ""))).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    test.crash().await;
    let mut revision = revisions(&test, "blue").await.pop().expect("there is one");
    revision.manifest = revision.manifest.replace("Blue", "Forged");
    let data = json!({"data": {PAYLOAD: ByteString(revision.encode().expect("it is small"))}});
    test.api::<Secret>().patch(&revision.secret_name(), &PatchParams::default(), &Patch::Merge(data)).await?;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer", "port": BAD}})).await;
    test.restart().await;
    test.eventually("the failure", async || failure(&test).await.contains("not rolled back")).await;
    let failed = failure(&test).await;
    assert!(failed.ends_with("; not rolled back: the chart does not render revision 1 from its values"), "{failed}");
    assert_eq!(
        (title(&test).await.as_str(), history(&test, "blue").await),
        ("Bluer", vec!["1 deployed".into(), "2 failed".into()])
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn rollback_runs_its_hooks() {
    let hook = |name: &str, event: &str, fails: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {{{{ .Release.Name }}}}-{name}\n  annotations: {{helm.sh/hook: {event}}}\n\
             spec:\n  backoffLimit: 0\n  template:\n    metadata:\n      annotations:\n        flyball.dev/complete-after: 5s\n        \
             flyball.dev/fail: \"{fails}\"\n    spec:\n      restartPolicy: Never\n      containers: [{{name: run, image: run}}]\n"
        )
    };
    let (check, before, after) = (
        hook("check", "pre-upgrade", "{{ eq .Values.title \\\"bad\\\" }}"),
        hook("before", "pre-rollback", "false"),
        hook("after", "post-rollback", "false"),
    );
    let files = [
        ("charts/site/templates/page.yaml", PAGE),
        ("charts/site/templates/check.yaml", &*check.replace('\\', "")),
        ("charts/site/templates/before.yaml", &*before),
        ("charts/site/templates/after.yaml", &*after),
    ];
    let test = Test::of(operator_of(site_with("rollback-hooks", "", &files))).nodes(1).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    patch(&sites(&test), "blue", json!({"spec": {"title": "bad"}})).await;
    test.eventually("the rollback", async || failure(&test).await.contains("rolling back to revision 1")).await;
    assert_eq!(history(&test, "blue").await, ["1 deployed", "2 failed", "3 pending-rollback"]);
    let waits = condition(&sites(&test), "blue", "Progressing").await;
    assert_eq!(waits, "True RollingBack: pre-rollback hook Job blue-before is not complete");
    let release = sites(&test).get("blue").await.expect("it exists").data["status"]["release"].clone();
    assert_eq!((&release["status"], &release["failedRevision"]), (&json!("pending-rollback"), &json!(2)), "{release}");
    test.eventually("its end", async || failure(&test).await.ends_with("rolled back to revision 1")).await;
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 failed", "3 deployed"]);
    let jobs = test.api::<Job>().list(&ListParams::default()).await.expect("they can be listed");
    let names: Vec<String> = jobs.into_iter().filter_map(|job| job.metadata.name).collect();
    assert_eq!(names, ["blue-after", "blue-before", "blue-check"]);
    let revision = revisions(&test, "blue").await.pop().expect("there are three");
    let phase = |name: &str| revision.hooks.iter().find(|hook| hook.name == name).map(|hook| &*hook.last_run.phase);
    assert_eq!((phase("blue-before"), phase("blue-after")), (Some("Succeeded"), Some("Succeeded")));
}

#[tokio::test(start_paused = true)]
async fn forced_upgrades_and_rollbacks_recreate_objects() {
    let page = format!("{PAGE}immutable: true\n");
    let files = [("charts/site/templates/page.yaml", &*page), ("charts/site/templates/door.yaml", DOOR)];
    let test = Test::of(operator_of(site_with("forced", "", &files))).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    let annotate = async |annotation: &str, value: Option<&str>| {
        let name = format!("helm.sdk.operatorframework.io/{annotation}");
        patch(&sites(&test), "blue", json!({"metadata": {"annotations": {name: value}}})).await;
    };
    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer"}})).await;
    test.eventually("the rollback", async || failure(&test).await.contains("rolled back")).await;
    assert!(failure(&test).await.contains("immutable") && title(&test).await == "Blue", "{}", failure(&test).await);

    annotate("upgrade-force", Some("true")).await;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluest"}})).await;
    test.assert_converges().await;
    assert_eq!((title(&test).await, failure(&test).await), ("Bluest".into(), String::new()));

    // The rollback has to recreate the object, too, which is the default.
    fail_upgrade(&test, "Red").await;
    test.eventually("the rollback", async || failure(&test).await.contains("rolled back")).await;
    assert_eq!(title(&test).await, "Bluest");
    annotate("rollback-force", Some("false")).await;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Redder"}})).await;
    test.eventually("its failure", async || failure(&test).await.contains("failed to roll back release: ")).await;
    assert_eq!(title(&test).await, "Redder");
    let states: Vec<String> = history(&test, "blue").await.into_iter().rev().take(3).collect();
    assert_eq!(states.iter().filter(|state| state.ends_with("failed")).count(), 2, "{states:?}");
    // The next attempt is an upgrade again.
    annotate("rollback-force", None).await;
    test.eventually("the rollback", async || title(&test).await == "Bluest").await;
}

#[tokio::test(start_paused = true)]
async fn upgrade_that_waits_states_the_reason_and_times_out() -> kube::Result<()> {
    let web = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}-web\nspec:\n  \
               selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      \
               nodeSelector: {disk: \"{{ .Values.title }}\"}\n      containers: [{name: web, image: web}]\n";
    let web = web.replace("      nodeSelector", "{{- if ne .Values.title \"any\" }}\n      nodeSelector");
    let web = web.replace("\"}\n      containers", "\"}\n{{- end }}\n      containers");
    let files = [("charts/site/templates/web.yaml", &*web)];
    let test = Test::of(operator_of(site_with("waiting", ", wait: true, timeout: 2m", &files))).nodes(1).start().await;
    apply_site(&test, "blue", "{title: any}").await;
    test.assert_converges().await;
    let is_available = |web: Deployment| web.status.and_then(|status| status.available_replicas) == Some(1);
    assert!(is_available(test.api::<Deployment>().get("blue-web").await?), "the release waits for it");
    patch(&sites(&test), "blue", json!({"spec": {"title": "ssd"}})).await;
    sleep(Duration::from_secs(60)).await;
    let waits = condition(&sites(&test), "blue", "Progressing").await;
    assert!(waits.starts_with("True Upgrading: Deployment blue-web: "), "{waits}");
    assert_eq!(sites(&test).get("blue").await?.data["status"]["release"]["status"], "pending-upgrade");
    assert_eq!(history(&test, "blue").await, ["1 deployed", "2 pending-upgrade"]);
    assert_eq!(events(&test, "Upgrading").await.len(), 1, "one event for the whole wait");
    test.eventually("the rollback", async || failure(&test).await.contains("rolled back to revision 1")).await;
    let failed = failure(&test).await;
    assert!(failed.contains(" after 2m0s, the timeout in watches.yaml; rolled back"), "{failed}");
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 failed", "3 deployed"]);
    assert_eq!(condition(&sites(&test), "blue", "Progressing").await, "");
    Ok(())
}

/// A hook that takes as long as the title of the site.
const SLOW_HOOK: &str = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {{ .Release.Name }}-first\n  \
                         annotations: {helm.sh/hook: pre-install}\nspec:\n  template:\n    metadata: \
                         {annotations: {flyball.dev/complete-after: \"{{ .Values.title }}\"}}\n    spec:\n      \
                         restartPolicy: Never\n      containers: [{name: run, image: run}]\n";

/// The timeout ends between two polls.
#[tokio::test(start_paused = true)]
async fn short_timeouts_end_on_time() {
    let pending = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}-web\nspec:\n  \
                   selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      \
                   nodeSelector: {disk: none}\n      containers: [{name: web, image: web}]\n";
    for (name, fields, path, text) in [
        ("short-hooks", ", timeout: 8s", "charts/site/templates/hook.yaml", SLOW_HOOK),
        ("short-waits", ", wait: true, timeout: 8s", "charts/site/templates/web.yaml", pending),
    ] {
        let files = [("charts/site/templates/page.yaml", PAGE), (path, text)];
        let test = Test::of(operator_of(site_with(name, fields, &files))).nodes(1).start().await;
        apply_site(&test, "blue", "{title: 10h}").await;
        sleep(Duration::from_secs(6)).await;
        assert_eq!(failure(&test).await, "", "{name}");
        sleep(Duration::from_secs(4)).await;
        let failed = failure(&test).await;
        assert!(failed.ends_with(" after 8s, the timeout in watches.yaml"), "{name}: {failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn hook_fails_after_its_timeout() {
    let files = [("charts/site/templates/page.yaml", PAGE), ("charts/site/templates/hook.yaml", SLOW_HOOK)];
    let test = Test::of(operator_of(site_with("slow-hooks", ", timeout: 1m", &files))).nodes(1).start().await;
    apply_site(&test, "blue", "{title: 10h}").await;
    sleep(Duration::from_secs(50)).await;
    assert_eq!(failure(&test).await, "");
    test.eventually("the failure", async || !failure(&test).await.is_empty()).await;
    let expected = "True InstallError: failed to install release: pre-install hooks failed: Job blue-first is not complete after 1m0s, the \
                    timeout in watches.yaml";
    assert_eq!(failure(&test).await, expected);
    assert_eq!(history(&test, "blue").await, ["1 failed"]);
    patch(&sites(&test), "blue", json!({"spec": {"title": "5s"}})).await;
    test.assert_converges().await;
    assert_eq!(title(&test).await, "5s");
}

#[tokio::test(start_paused = true)]
async fn history_is_bounded_by_the_entry() {
    let entry = ", maxHistory: 2, helmVersion: 4";
    let mut test = Test::of(operator_of(site("max-history", entry))).start().await;
    apply_site(&test, "blue", "{}").await;
    for number in 1..=4 {
        patch(&sites(&test), "blue", json!({"spec": {"title": format!("no. {number}")}})).await;
        test.assert_converges().await;
    }
    assert_eq!(history(&test, "blue").await, ["4 superseded", "5 deployed"]);
    // A rollback needs the deployed and the failed revision.
    fail_upgrade(&test, "Red").await;
    assert_eq!(history(&test, "blue").await, ["5 superseded", "6 failed", "7 deployed"]);
    assert_eq!(title(&test).await, "no. 4");
    let revision = revisions(&test, "blue").await.pop().expect("there is one");
    assert_eq!((&*revision.apply_method, revision.info.deleted), ("ssa", None), "the form of Helm 4");
    patch(&sites(&test), "blue", json!({"spec": {"port": 80}})).await;
    test.assert_converges().await;
    assert_eq!(history(&test, "blue").await, ["7 superseded", "8 deployed"]);
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_do_not_prevent_a_rollback() {
    let operator = operator_of(site("crashes-in-rollbacks", ""));
    explore_crashes(
        || Test::of(operator.clone()),
        async |test| {
            apply_site(test, "blue", "{title: Blue}").await;
            test.assert_converges().await;
            patch(&sites(test), "blue", json!({"spec": {"title": "Bluer", "port": BAD}})).await;
            test.eventually("the rollback", async || failure(test).await.ends_with("rolled back to revision 1")).await;
            patch(&sites(test), "blue", json!({"spec": {"port": 80}})).await;
            test.assert_converges().await;
            vec![title(test).await]
        },
    )
    .await;
}
