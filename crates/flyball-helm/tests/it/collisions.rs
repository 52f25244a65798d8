//! Releases whose names or objects collide with those of other custom resources, other releases and Helm itself.

use crate::project::{api, apply_site, condition, history, operator_of, patch, project, revisions, sites};
use crate::restarts::write_as_helm;
use flyball_cluster::testing::{Setup, Test};
use flyball_helm::storage::{Revision, State};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use kube::core::ObjectMeta;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::sleep;

/// Two kinds of the same chart.
const KINDS: &str = "- {group: web.example.com, version: v1, kind: Site, chart: charts/site}\n\
                     - {group: web.example.com, version: v1, kind: Page, chart: charts/site}\n";
const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-page\ndata: {a: {{ .Values.a | default \"b\" }}}\n";
const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {{ .Release.Name }}-role\n\
                    rules:\n- {apiGroups: [\"\"], resources: [pods], verbs: [get]}\n";

fn site(name: &str) -> PathBuf {
    let files =
        [("watches.yaml", KINDS), ("charts/site/templates/page.yaml", PAGE), ("charts/site/templates/role.yaml", ROLE)];
    project(name, &files)
}

fn test_of(folder: PathBuf) -> Setup {
    Test::of(operator_of(folder)).allows_changes_of::<ClusterRole>().allows_changes_in("default")
}

async fn apply_page(test: &Test, name: &str) {
    test.apply(&format!("{{apiVersion: web.example.com/v1, kind: Page, metadata: {{name: {name}}}, spec: {{}}}}"))
        .await;
}

fn pages(test: &Test) -> Api<DynamicObject> {
    api(test, "web.example.com", "v1", "Page")
}

async fn uids(test: &Test) -> [Option<String>; 3] {
    let page = test.api::<ConfigMap>().get_opt("blue-page").await.expect("the server answers");
    let role = Api::<ClusterRole>::all(test.client()).get_opt("blue-role").await.expect("the server answers");
    let secret = test.api::<Secret>().get_opt("sh.helm.release.v1.blue.v1").await.expect("the server answers");
    let metas = [page.map(|page| page.metadata), role.map(|role| role.metadata), secret.map(|secret| secret.metadata)];
    metas.map(|meta| meta?.uid)
}

#[tokio::test(start_paused = true)]
async fn release_of_another_kind_is_neither_taken_over_nor_deleted() {
    let test = test_of(site("another-kind")).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    let before = uids(&test).await;
    assert!(before.iter().all(Option::is_some));
    apply_page(&test, "blue").await;
    test.expect_errors("belongs to Site blue");
    test.assert_converges().await;
    assert_eq!(
        condition(&pages(&test), "blue", "Irreconcilable").await,
        "True ReconcileError: failed to get helm release name: duplicate release name: release \"blue\" belongs to Site \
         blue: rename one of the custom resources"
    );
    let status = pages(&test).get("blue").await.expect("it is there").data["status"].clone();
    assert!(status["deployedRelease"].is_null(), "the manifest of another release is not shown: {status}");
    patch(&pages(&test), "blue", json!({"spec": {"a": "changed"}})).await;
    test.assert_converges().await;
    pages(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    assert!(pages(&test).get_opt("blue").await.expect("the server answers").is_none());
    assert_eq!((uids(&test).await, history(&test, "blue").await), (before, vec!["1 deployed".to_owned()]));
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: ");
}

/// Writes a release as `helm install` does: its Secret and its objects, without owners.
async fn install_with_helm(test: &Test, state: State, chart: &str) {
    let annotations: BTreeMap<String, String> = [
        ("meta.helm.sh/release-name".to_owned(), "blue".to_owned()),
        ("meta.helm.sh/release-namespace".to_owned(), test.namespace().to_owned()),
    ]
    .into();
    let labels = Some([("app.kubernetes.io/managed-by".to_owned(), "Helm".to_owned())].into());
    let metadata = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        annotations: Some(annotations.clone()),
        labels: labels.clone(),
        ..ObjectMeta::default()
    };
    let page = ConfigMap { metadata: metadata("blue-page"), ..ConfigMap::default() };
    test.api::<ConfigMap>().create(&PostParams::default(), &page).await.expect("it can be created");
    let role = ClusterRole { metadata: metadata("blue-role"), ..ClusterRole::default() };
    let roles = Api::<ClusterRole>::all(test.client());
    roles.create(&PostParams::default(), &role).await.expect("it can be created");
    let manifest =
        "---\n# Source: site/templates/page.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: blue-page\n";
    let mut revision = Revision {
        name: "blue".into(),
        namespace: test.namespace().into(),
        version: 1,
        manifest: manifest.into(),
        chart: json!({"metadata": {"name": chart, "version": "0.0.1"}}),
        ..Revision::default()
    };
    revision.info.status = state;
    write_as_helm(test, &revision).await;
}

#[tokio::test(start_paused = true)]
async fn release_of_helm_is_adopted_with_its_objects_by_one_custom_resource() {
    let mut test = test_of(site("helms-release")).start().await;
    install_with_helm(&test, State::Deployed, "site").await;
    let before = uids(&test).await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True UpgradeSuccessful: ");
    assert_eq!((uids(&test).await, history(&test, "blue").await.len()), (before, 2));
    let page = test.api::<ConfigMap>().get("blue-page").await.expect("it is there");
    assert_eq!(page.metadata.owner_references.unwrap_or_default()[0].kind, "Site");
    assert_eq!(page.data.unwrap_or_default()["a"], "b");
    let first = test.api::<Secret>().get("sh.helm.release.v1.blue.v1").await.expect("it is there");
    assert_eq!(first.metadata.owner_references.unwrap_or_default()[0].kind, "Site");
    test.assert_idempotent().await;
    apply_page(&test, "blue").await;
    test.expect_errors("belongs to Site blue");
    test.assert_converges().await;
    assert!(condition(&pages(&test), "blue", "Irreconcilable").await.contains("belongs to Site blue"));
    sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    // The other one gets the name.
    sleep(Duration::from_secs(600)).await;
    assert_eq!(condition(&pages(&test), "blue", "Deployed").await, "True InstallSuccessful: ");
    let role = Api::<ClusterRole>::all(test.client()).get("blue-role").await.expect("it is there");
    assert_eq!(
        role.metadata.annotations.unwrap_or_default()["operator-sdk/primary-resource-type"],
        "Page.web.example.com"
    );
}

#[tokio::test(start_paused = true)]
async fn release_of_helm_that_was_never_taken_over_is_not_deleted() {
    let test = test_of(site("helms-own-release")).start().await;
    install_with_helm(&test, State::Deployed, "site").await;
    let before = uids(&test).await;
    assert!(before.iter().all(Option::is_some));
    test.apply(
        "{apiVersion: web.example.com/v1, kind: Site, spec: {}, metadata: {name: blue, annotations: \
         {helm.sdk.operatorframework.io/pause-reconcile: \"true\"}}}",
    )
    .await;
    test.assert_converges().await;
    sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    let pause = json!({"metadata": {"annotations": {"helm.sdk.operatorframework.io/pause-reconcile": "false"}}});
    patch(&sites(&test), "blue", pause).await;
    sleep(Duration::from_secs(5)).await;
    assert!(sites(&test).get_opt("blue").await.expect("the server answers").is_none());
    assert_eq!((uids(&test).await, history(&test, "blue").await), (before, vec!["1 deployed".to_owned()]));
    let secret = test.api::<Secret>().get("sh.helm.release.v1.blue.v1").await.expect("it is there");
    assert_eq!(secret.metadata.owner_references, None);
}

#[tokio::test(start_paused = true)]
async fn pending_release_of_another_chart_is_not_deleted() {
    let test = test_of(site("helms-pending-release")).start().await;
    install_with_helm(&test, State::PendingInstall, "database").await;
    let before = uids(&test).await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    assert_eq!(
        condition(&sites(&test), "blue", "Irreconcilable").await,
        "True ReconcileError: failed to get helm release name: duplicate release name: found existing release with name \
         \"blue\" for chart \"database\""
    );
    sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    assert_eq!(uids(&test).await, before);
}

#[tokio::test(start_paused = true)]
async fn object_is_adopted_only_with_the_label_and_both_annotations_of_helm() {
    let (label, missing) = ("label validation error: missing key", "annotation validation error: missing key");
    for (number, (metadata, reasons)) in [
        (
            json!({}),
            format!(
                "{label} \"app.kubernetes.io/managed-by\": must be set to \"Helm\"; {missing} \
                 \"meta.helm.sh/release-name\": must be set to \"blue\"; {missing} \
                 \"meta.helm.sh/release-namespace\": must be set to NAMESPACE"
            ),
        ),
        (
            json!({"labels": {"app.kubernetes.io/managed-by": "Kustomize"}, "annotations": {
                "meta.helm.sh/release-name": "blue", "meta.helm.sh/release-namespace": "NAMESPACE"}}),
            "label validation error: key \"app.kubernetes.io/managed-by\" must equal \"Helm\": current value is \
             \"Kustomize\""
                .to_owned(),
        ),
        (
            json!({"annotations": {"meta.helm.sh/release-name": "red", "meta.helm.sh/release-namespace": "NAMESPACE"}}),
            format!(
                "{label} \"app.kubernetes.io/managed-by\": must be set to \"Helm\"; annotation validation error: key \
                 \"meta.helm.sh/release-name\" must equal \"blue\": current value is \"red\""
            ),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let test = test_of(site(&format!("adoption-{number}"))).start().await;
        let metadata = metadata.to_string().replace("NAMESPACE", test.namespace());
        let mut metadata: ObjectMeta = serde_json::from_str(&metadata).expect("it is valid");
        metadata.name = Some("blue-page".to_owned());
        let maps = test.api::<ConfigMap>();
        maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await.expect("it is new");
        apply_site(&test, "blue", "{}").await;
        test.expect_errors("cannot be imported into the current release");
        test.assert_converges().await;
        let namespace = format!("{:?}", test.namespace());
        let expected = format!(
            "True InstallError: failed to install release: ConfigMap \"blue-page\" in namespace {namespace} exists and \
             cannot be imported into the current release: invalid ownership metadata; {}",
            reasons.replace("NAMESPACE", &namespace)
        );
        assert_eq!(condition(&sites(&test), "blue", "ReleaseFailed").await, expected);
        // An administrator adds them.
        let all = json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {
            "meta.helm.sh/release-name": "blue", "meta.helm.sh/release-namespace": test.namespace()}});
        let change = kube::api::Patch::Merge(json!({"metadata": all}));
        maps.patch("blue-page", &kube::api::PatchParams::default(), &change).await.expect("it can be changed");
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: ");
    }
}

/// Two ConfigMaps, of which one has a name that all releases share.
const SHARED: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-own\n---\n\
                      apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: shared\n  {{- if .Values.keep }}\n  \
                      annotations: {helm.sh/resource-policy: keep}\n  {{- end }}\ndata: {of: \"{{ .Release.Name }}\"}\n";

#[tokio::test(start_paused = true)]
async fn object_of_another_release_is_left_alone() {
    let folder = project(
        "shared-object",
        &[
            ("watches.yaml", KINDS),
            ("charts/site/values.yaml", "keep: false\n"),
            ("charts/site/templates/shared.yaml", SHARED),
        ],
    );
    let test = test_of(folder).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    let shared = async || test.api::<ConfigMap>().get("shared").await.expect("it is there");
    let before = shared().await.metadata.uid;
    apply_site(&test, "green", "{}").await;
    apply_site(&test, "keeper", "{keep: true}").await;
    apply_page(&test, "red").await;
    test.expect_errors("cannot be imported into the current release");
    test.assert_converges().await;
    let expected = |name: &str| {
        format!(
            "True InstallError: failed to install release: ConfigMap \"shared\" in namespace {:?} exists and cannot be \
             imported into the current release: invalid ownership metadata; annotation validation error: key \
             \"meta.helm.sh/release-name\" must equal {name:?}: current value is \"blue\"; it belongs to Site blue",
            test.namespace()
        )
    };
    assert_eq!(condition(&sites(&test), "green", "ReleaseFailed").await, expected("green"));
    assert_eq!(condition(&sites(&test), "keeper", "ReleaseFailed").await, expected("keeper"));
    assert_eq!(condition(&pages(&test), "red", "ReleaseFailed").await, expected("red"));
    let own = test.api::<ConfigMap>().get_opt("green-own").await.expect("the server answers");
    assert!(own.is_none(), "collisions are found before anything is created");
    for (api, name) in [(sites(&test), "green"), (sites(&test), "keeper"), (pages(&test), "red")] {
        api.delete(name, &DeleteParams::default()).await.expect("it can be deleted");
    }
    test.assert_converges().await;
    let found = shared().await;
    assert_eq!((found.metadata.uid, found.data.unwrap_or_default()["of"].as_str()), (before, "blue"));
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: ");
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_object_of_another_namespace_is_left_alone() {
    let test = test_of(site("shared-role")).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    let before = uids(&test).await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("web.example.com", "v1", "Site"));
    let others: Api<DynamicObject> = Api::namespaced_with(test.client(), "default", &kind);
    others.create(&PostParams::default(), &DynamicObject::new("blue", &kind)).await.expect("it can be created");
    test.expect_errors("cannot be imported into the current release");
    test.assert_converges().await;
    let failed = condition(&others, "blue", "ReleaseFailed").await;
    let expected = format!("current value is {0:?}; it belongs to Site.web.example.com {0}/blue", test.namespace());
    assert!(
        failed.contains("ClusterRole \"blue-role\" in namespace \"\" exists") && failed.ends_with(&expected),
        "{failed}"
    );
    others.delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    assert_eq!(uids(&test).await, before);
}

#[tokio::test(start_paused = true)]
async fn kept_object_is_not_adopted_by_another_release() {
    let folder = project(
        "kept-object",
        &[("charts/site/values.yaml", "keep: false\n"), ("charts/site/templates/shared.yaml", SHARED)],
    );
    let test = test_of(folder).start().await;
    apply_site(&test, "blue", "{keep: true}").await;
    test.assert_converges().await;
    sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    let maps = test.api::<ConfigMap>();
    let before = maps.get("shared").await.expect("it is kept").metadata.uid;
    apply_site(&test, "green", "{}").await;
    test.expect_errors("cannot be imported into the current release");
    test.assert_converges().await;
    let failed = condition(&sites(&test), "green", "ReleaseFailed").await;
    let expected = format!(
        "key \"meta.helm.sh/release-name\" must equal \"green\": current value is \"blue\"; it belongs to \
         Site.web.example.com {}/blue",
        test.namespace()
    );
    assert!(failed.ends_with(&expected), "{failed}");
    assert_eq!(maps.get("shared").await.expect("it is kept").data.unwrap_or_default()["of"], "blue");
    // The release that created it adopts it again.
    apply_site(&test, "blue", "{keep: true}").await;
    test.assert_converges().await;
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: ");
    sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    // An administrator hands it over.
    let annotations = json!({
        "meta.helm.sh/release-name": "green",
        "operator-sdk/primary-resource": null,
        "operator-sdk/primary-resource-type": null,
    });
    let change = kube::api::Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    maps.patch("shared", &kube::api::PatchParams::default(), &change).await.expect("it can be changed");
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(condition(&sites(&test), "green", "Deployed").await, "True InstallSuccessful: ");
    let found = maps.get("shared").await.expect("it is there");
    assert_eq!((found.metadata.uid, found.data.unwrap_or_default()["of"].as_str()), (before, "green"));
}

#[tokio::test(start_paused = true)]
async fn forged_revisions_do_not_block_a_release() {
    // Revision 2 without an owner would be one of `helm rollback`.
    for (name, version, is_owned) in
        [("forged-owner", 2, true), ("forged-last-owner", u32::MAX, true), ("forged-last", u32::MAX, false)]
    {
        let test = test_of(site(name)).start().await;
        apply_site(&test, "blue", "{}").await;
        apply_site(&test, "green", "{}").await;
        test.assert_converges().await;
        let mut forged = revisions(&test, "blue").await.pop().expect("there is one");
        forged.version = version;
        write_as_helm(&test, &forged).await;
        let secrets = test.api::<Secret>();
        let secret_name = forged.secret_name();
        if is_owned {
            let green = sites(&test).get("green").await.expect("it is there").metadata;
            let reference = json!({
                "apiVersion": "web.example.com/v1", "kind": "Site", "name": "green", "uid": green.uid, "controller": true,
            });
            let change = kube::api::Patch::Merge(json!({"metadata": {"ownerReferences": [reference]}}));
            secrets.patch(&secret_name, &kube::api::PatchParams::default(), &change).await.expect("it can be changed");
        }
        let before = secrets.get(&secret_name).await.expect("it is there");
        test.assert_converges().await;
        patch(&sites(&test), "blue", json!({"spec": {"a": "changed"}})).await;
        test.assert_converges().await;
        assert_eq!(condition(&sites(&test), "blue", "ReleaseFailed").await, "");
        let upgraded = if version == 2 { 3 } else { 2 };
        let mut expected = [(1, "superseded"), (upgraded, "deployed"), (version, "deployed")];
        expected.sort_unstable();
        let expected = expected.map(|(version, state)| format!("{version} {state}"));
        assert_eq!(history(&test, "blue").await, expected);
        assert_eq!(secrets.get(&secret_name).await.expect("it is there"), before, "it is not adopted");
        let page = test.api::<ConfigMap>().get("blue-page").await.expect("it is there");
        assert_eq!(page.data.unwrap_or_default()["a"], "changed");
        sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
        test.assert_converges().await;
        assert_eq!(uids(&test).await, [None, None, None]);
    }
}
