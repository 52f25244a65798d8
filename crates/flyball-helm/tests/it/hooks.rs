//! Hooks: execution order, waiting, delete policies, and the effects of failures.

use crate::project::{api, apply_site, condition, history, operator_of, patch, project, revisions, sites};
use flyball_cluster::Faults;
use flyball_cluster::testing::{Test, explore_crashes};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::sleep;

const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-page\ndata:\n  title: {{ .Values.title }}\n";

fn job(name: &str, events: &str, weight: i32, policy: &str) -> String {
    let policy = if policy.is_empty() { String::new() } else { format!("\n    helm.sh/hook-delete-policy: {policy}") };
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {{{{ .Release.Name }}}}-{name}\n  annotations:\n    helm.sh/hook: {events}\n    \
         helm.sh/hook-weight: \"{weight}\"{policy}\nspec:\n  backoffLimit: 0\n  template:\n    metadata:\n      annotations:\n        \
         flyball.dev/complete-after: 5s\n        flyball.dev/fail: \"{{{{ .Values.fails }}}}\"\n    spec:\n      \
         restartPolicy: Never\n      containers: [{{name: run, image: run}}]\n"
    )
}

fn site(name: &str) -> PathBuf {
    let first = job("first", "pre-install,pre-upgrade", -5, "before-hook-creation,hook-succeeded");
    let second = job("second", "pre-install", 5, "");
    let after = job("after", "post-install,post-upgrade", 0, "");
    let last = job("last", "pre-delete", 0, "hook-succeeded");
    project(
        name,
        &[
            ("charts/site/values.yaml", "title: Hello\nfails: false\n"),
            ("charts/site/templates/page.yaml", PAGE),
            ("charts/site/templates/second.yaml", &second),
            ("charts/site/templates/first.yaml", &first),
            ("charts/site/templates/after.yaml", &after),
            ("charts/site/templates/last.yaml", &last),
        ],
    )
}

async fn trace_of_jobs(test: &Test) -> Vec<String> {
    let jobs = test.api::<Job>().list(&Default::default()).await.expect("they can be listed");
    jobs.into_iter().filter_map(|job| job.metadata.name).collect()
}

#[tokio::test(start_paused = true)]
async fn hooks_run_in_order_and_are_awaited() -> kube::Result<()> {
    let mut test = Test::of(operator_of(site("hooks"))).nodes(1).start().await;
    apply_site(&test, "blue", "{}").await;
    let pages = test.api::<ConfigMap>();
    let has_page = async || pages.get_opt("blue-page").await.is_ok_and(|page| page.is_some());
    test.eventually("the first hook", async || trace_of_jobs(&test).await == ["blue-first"]).await;
    assert!(!has_page().await);
    assert_eq!(history(&test, "blue").await, ["1 pending-install"]);
    sleep(Duration::from_secs(1)).await;
    let waits = condition(&sites(&test), "blue", "Deployed").await;
    assert_eq!(waits, "False Installing: pre-install hook Job blue-first is not complete");
    test.eventually("the second hook", async || trace_of_jobs(&test).await.contains(&"blue-second".to_owned())).await;
    assert!(!has_page().await);
    test.assert_converges().await;
    assert!(has_page().await);
    // The policy deletes the first one; the others stay until they are created again.
    assert_eq!(trace_of_jobs(&test).await, ["blue-after", "blue-second"]);
    assert_eq!(history(&test, "blue").await, ["1 deployed"]);
    let revision = &revisions(&test, "blue").await[0];
    let runs: Vec<(&str, &str)> = revision.hooks.iter().map(|hook| (&*hook.name, &*hook.last_run.phase)).collect();
    let ran = |name: &str| runs.iter().find(|(hook, _)| *hook == name).map(|(_, phase)| *phase);
    assert_eq!(
        (ran("blue-first"), ran("blue-after"), ran("blue-last")),
        (Some("Succeeded"), Some("Succeeded"), Some(""))
    );
    test.assert_idempotent().await;

    let before = test.api::<Job>().get("blue-after").await?.metadata.uid;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Blue"}})).await;
    test.assert_converges().await;
    assert_ne!(test.api::<Job>().get("blue-after").await?.metadata.uid, before, "the hook runs again");
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);

    sites(&test).delete("blue", &DeleteParams::default()).await?;
    test.eventually("the hook before the end", async || trace_of_jobs(&test).await.contains(&"blue-last".to_owned()))
        .await;
    assert!(has_page().await, "no object is deleted before the hook is done");
    test.assert_converges().await;
    let remaining: Vec<String> = test.state().await.into_keys().filter(|name| name.contains("blue")).collect();
    assert_eq!(remaining, Vec::<String>::new());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn tests_are_not_run() -> kube::Result<()> {
    // An unknown kind does not matter, because only `helm test` runs the hook.
    let unknown =
        "apiVersion: {{ .Values.group }}/v1\nkind: Probe\nmetadata:\n  name: a\n  annotations: {helm.sh/hook: test}\n";
    let files = [
        ("charts/site/values.yaml", "title: Hello\nfails: false\ngroup: example.org\n"),
        ("charts/site/templates/page.yaml", PAGE),
        ("charts/site/templates/tests/job.yaml", &*job("test", "test", 0, "")),
        ("charts/site/templates/tests/old.yaml", &*job("old", "test-success", 0, "")),
        ("charts/site/templates/tests/unknown.yaml", unknown),
    ];
    let test = Test::of(operator_of(project("tests", &files))).nodes(1).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: ");
    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer"}})).await;
    test.assert_converges().await;
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);
    // `helm test` finds them in the Secret.
    let stored: Vec<String> =
        revisions(&test, "blue").await[1].hooks.iter().map(|hook| hook.events.join(",")).collect();
    assert_eq!(stored, ["test", "test", "test"]);
    sites(&test).delete("blue", &DeleteParams::default()).await?;
    test.assert_converges().await;
    let trace = test.trace();
    assert!(!trace.lines().any(|line| line.contains("POST") && line.contains("/jobs")));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failing_hook_fails_the_release_and_retries_with_backoff() -> kube::Result<()> {
    let test = Test::of(operator_of(site("failing-hooks"))).nodes(1).start().await;
    apply_site(&test, "blue", "{fails: true}").await;
    test.eventually("the failure", async || !condition(&sites(&test), "blue", "ReleaseFailed").await.is_empty()).await;
    let failed = condition(&sites(&test), "blue", "ReleaseFailed").await;
    assert!(
        failed.starts_with("True InstallError: failed to install release: pre-install hooks failed: Job blue-first failed: BackoffLimitExceeded"),
        "{failed}"
    );
    assert_eq!(history(&test, "blue").await, ["1 failed"]);
    assert!(test.api::<ConfigMap>().get_opt("blue-page").await?.is_none());
    let before = test.requests();
    sleep(Duration::from_secs(3600)).await;
    let writes = test.requests().since(&before).writes;
    assert!((20..120).contains(&writes), "{writes} writes in an hour");

    patch(&sites(&test), "blue", json!({"spec": {"fails": false}})).await;
    test.assert_converges().await;
    assert_eq!(history(&test, "blue").await, ["1 deployed"]);
    assert_eq!(condition(&sites(&test), "blue", "ReleaseFailed").await, "");
    // A failed upgrade keeps the existing objects, and is rolled back.
    patch(&sites(&test), "blue", json!({"spec": {"fails": true, "title": "Blue"}})).await;
    test.eventually("the failure", async || !condition(&sites(&test), "blue", "ReleaseFailed").await.is_empty()).await;
    let failed = condition(&sites(&test), "blue", "ReleaseFailed").await;
    assert!(failed.starts_with("True UpgradeError: failed to upgrade release: pre-upgrade hooks failed: "), "{failed}");
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 failed", "3 deployed"]);
    assert!(condition(&sites(&test), "blue", "Deployed").await.starts_with("True UpgradeSuccessful"));
    // The desired state exists already.
    patch(&sites(&test), "blue", json!({"spec": {"fails": false, "title": null}})).await;
    test.assert_converges().await;
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 failed", "3 deployed"]);
    assert_eq!(condition(&sites(&test), "blue", "ReleaseFailed").await, "");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failing_delete_hook_keeps_the_release_until_it_succeeds() -> kube::Result<()> {
    let fails = job("last", "pre-delete", 0, "").replace("{{ .Values.fails }}", "true");
    let files = [
        ("charts/site/values.yaml", "title: Hello\n"),
        ("charts/site/templates/page.yaml", PAGE),
        ("charts/site/templates/last.yaml", &fails),
    ];
    let test = Test::of(operator_of(project("failing-at-the-end", &files))).nodes(1).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    sites(&test).delete("blue", &DeleteParams::default()).await?;
    test.eventually("the failure", async || !condition(&sites(&test), "blue", "ReleaseFailed").await.is_empty()).await;
    let failed = condition(&sites(&test), "blue", "ReleaseFailed").await;
    let expected = "True UninstallError: failed to uninstall release: pre-delete hooks failed: Job blue-last failed";
    assert!(failed.starts_with(expected), "{failed}");
    let first = test.api::<Job>().get("blue-last").await?.metadata.uid;
    sleep(Duration::from_secs(60)).await;
    assert_ne!(test.api::<Job>().get("blue-last").await?.metadata.uid, first, "the hook is retried");
    // The backoff is an hour now.
    sleep(Duration::from_secs(7200)).await;
    let before = test.api::<Job>().get("blue-last").await?.metadata.uid;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(test.api::<Job>().get("blue-last").await?.metadata.uid, before);
    let wait = json!({"metadata": {"annotations": {"helm.sdk.operatorframework.io/uninstall-wait": "true"}}});
    patch(&sites(&test), "blue", wait).await;
    sleep(Duration::from_secs(10)).await;
    let after = test.api::<Job>().get_opt("blue-last").await?.and_then(|job| job.metadata.uid);
    assert_ne!(after, before, "a changed option ends the backoff");
    assert!(test.api::<ConfigMap>().get_opt("blue-page").await?.is_some());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn uninstallation_continues_after_an_upgrade_of_the_chart_without_its_hook() -> kube::Result<()> {
    let files = [
        ("charts/site/values.yaml", "title: Hello\nfails: false\n"),
        ("charts/site/templates/page.yaml", PAGE),
        ("charts/site/templates/last.yaml", &*job("last", "pre-delete", 0, "hook-succeeded")),
    ];
    let folder = project("hook-dropped", &files);
    let mut test = Test::of(operator_of(folder.clone())).nodes(1).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    // The page stays for a while, and the release with it.
    let wait = json!({"metadata": {"annotations": {"helm.sdk.operatorframework.io/uninstall-wait": "true"}}});
    patch(&sites(&test), "blue", wait).await;
    let pages = api(&test, "", "v1", "ConfigMap");
    patch(&pages, "blue-page", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    sites(&test).delete("blue", &DeleteParams::default()).await?;
    let is_deleted = async || pages.get("blue-page").await.is_ok_and(|page| page.metadata.deletion_timestamp.is_some());
    test.eventually("the deletion after the hook", is_deleted).await;
    test.crash().await;
    std::fs::remove_file(folder.join("charts/site/templates/last.yaml")).expect("it can be removed");
    test.restart().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(history(&test, "blue").await, ["1 uninstalling"], "the page still exists");
    patch(&pages, "blue-page", json!({"metadata": {"finalizers": null}})).await;
    test.assert_converges().await;
    let remaining: Vec<String> = test.state().await.into_keys().filter(|name| name.contains("blue")).collect();
    assert_eq!(remaining, Vec::<String>::new());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn faults_do_not_change_the_result() -> kube::Result<()> {
    let folder = site("faults");
    for seed in 0..20 {
        let faults = Faults {
            conflict: 0.05,
            server_error: 0.05,
            lost_response: 0.05,
            broken_watch: 0.02,
            late: 0.1,
            repeated: 0.1,
            expired: 0.05,
            slow: 0.1,
        };
        let test = Test::of(operator_of(folder.clone())).seed(seed).nodes(1).faults(faults).start().await;
        apply_site(&test, "blue", "{}").await;
        test.assert_converges().await;
        patch(&sites(&test), "blue", json!({"spec": {"title": "Blue"}})).await;
        test.assert_converges().await;
        assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"], "seed {seed}");
        assert!(
            condition(&sites(&test), "blue", "Deployed").await.starts_with("True UpgradeSuccessful"),
            "seed {seed}"
        );
        for kind in ["ReleaseFailed", "Irreconcilable"] {
            assert_eq!(condition(&sites(&test), "blue", kind).await, "", "seed {seed}");
        }
        let page = test.api::<ConfigMap>().get("blue-page").await?;
        assert_eq!(page.data.unwrap_or_default()["title"], "Blue", "seed {seed}");
        sites(&test).delete("blue", &DeleteParams::default()).await?;
        test.assert_converges().await;
        let remaining: Vec<String> = test.state().await.into_keys().filter(|name| name.contains("blue")).collect();
        assert_eq!(remaining, Vec::<String>::new(), "seed {seed}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_run_no_hook_twice() {
    let operator = operator_of(site("crashes-in-hooks"));
    explore_crashes(
        || Test::of(operator.clone()).nodes(1),
        async |test| {
            apply_site(test, "blue", "{}").await;
            test.assert_converges().await;
            // If a hook had run twice, its object would have another UID.
            let jobs = test.api::<Job>().list(&Default::default()).await.expect("they can be listed");
            jobs.iter().filter_map(|job| job.metadata.name.clone()).collect::<Vec<_>>()
        },
    )
    .await;
}
