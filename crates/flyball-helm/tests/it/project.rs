//! Projects of Helm operators, created for one test each.

use flyball::Operator;
use flyball_cluster::testing::Test;
use flyball_helm::Watches;
use flyball_helm::storage::{PAYLOAD, Revision};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

/// The entry of most projects.
pub(crate) const WATCHES: &str = "- {group: web.example.com, version: v1, kind: Site, chart: charts/site}\n";
/// The chart's `Chart.yaml`.
pub(crate) const CHART: &str = "apiVersion: v2\nname: site\nversion: 0.1.0\nappVersion: \"1\"\n";

/// Writes a project with these files into a directory of this name, with defaults for `watches.yaml` and `Chart.yaml`.
pub(crate) fn project(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // The directory exists if the test has run before.
    let _ = fs::remove_dir_all(&folder);
    let always = [("watches.yaml", WATCHES), ("charts/site/Chart.yaml", CHART)];
    for (path, text) in always.iter().chain(files) {
        let file = folder.join(path);
        fs::create_dir_all(file.parent().expect("it is in the folder")).expect("folders can be made");
        fs::write(file, text).expect("files can be written");
    }
    folder
}

/// Creates the operator of a project.
pub(crate) fn operator(folder: &Path) -> Operator {
    let watches = Watches::read(folder.join("watches.yaml")).unwrap_or_else(|error| panic!("{error}"));
    flyball_helm::operator(&watches.deterministic())
        .unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)))
}

/// Returns a function that creates the operator of a project, for restarts.
pub(crate) fn operator_of(folder: PathBuf) -> impl Fn() -> Operator + Send + Sync + Clone + 'static {
    move || operator(&folder)
}

/// Returns the custom resources of a kind.
pub(crate) fn api(test: &Test, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(test.client(), test.namespace(), &resource)
}

/// Returns the sites.
pub(crate) fn sites(test: &Test) -> Api<DynamicObject> {
    api(test, "web.example.com", "v1", "Site")
}

/// Applies a site with this spec.
pub(crate) async fn apply_site(test: &Test, name: &str, spec: &str) {
    test.apply(&format!("{{apiVersion: web.example.com/v1, kind: Site, metadata: {{name: {name}}}, spec: {spec}}}"))
        .await;
}

/// Changes an object by a merge patch.
pub(crate) async fn patch(api: &Api<DynamicObject>, name: &str, change: Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.expect("it can be changed");
}

/// Returns a condition of a custom resource as `status reason: message`, or an empty string.
pub(crate) async fn condition(api: &Api<DynamicObject>, name: &str, kind: &str) -> String {
    let object = api.get(name).await.expect("it is there");
    let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let Some(found) = conditions.into_iter().find(|condition| condition["type"] == kind) else { return String::new() };
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
}

/// Returns the notes of events with a reason.
pub(crate) async fn notes(test: &Test, reason: &str) -> String {
    // Events are sent in the background.
    sleep(Duration::from_secs(10)).await;
    let events = test.api::<Event>().list(&ListParams::default()).await.expect("they can be listed").items;
    let of_reason = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    of_reason.filter_map(|event| event.note).collect::<Vec<_>>().join("\n")
}

/// Returns the revisions of a release from its Secrets, the oldest first.
pub(crate) async fn revisions(test: &Test, release: &str) -> Vec<Revision> {
    let selector = format!("owner=helm,name={release}");
    let secrets =
        test.api::<Secret>().list(&ListParams::default().labels(&selector)).await.expect("they can be listed");
    let payload = |secret: Secret| secret.data.expect("it has data").remove(PAYLOAD).expect("it has a payload").0;
    let revision = |secret| Revision::decode(&payload(secret)).expect("it is a release");
    let mut revisions: Vec<Revision> = secrets.into_iter().map(revision).collect();
    revisions.sort_by_key(|revision| revision.version);
    revisions
}

/// Returns the revisions of a release as `number state`.
pub(crate) async fn history(test: &Test, release: &str) -> Vec<String> {
    let line = |revision: Revision| format!("{} {}", revision.version, revision.info.status.as_str());
    revisions(test, release).await.into_iter().map(line).collect()
}
