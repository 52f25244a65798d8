//! `flyball crd migrate`: rewrites all objects of a CRD, so that an old version can be removed.
//!
//! An update without changes makes the API server store the object in the storage version, if it is stored in another
//! one. Concurrent writes of other clients are stored in that version too. So after every object was updated once, or
//! changed by others, no other version is stored any more, and `status.storedVersions` can be updated. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#upgrade-existing-objects-to-a-new-stored-version>.

use crate::cluster::connection::ContextArgs;
use crate::error::{Error, Result, ResultExt};
use crate::render::output::Output;
use crate::render::progress::Progress;
use crate::render::terminal::{Style, paint, print_labeled, print_line};
use clap::Args;
use flyball_core::json::RawJson;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Maximum number of concurrent updates.
const MAX_CONCURRENT_UPDATES: usize = 8;
/// Attempts to write the definition on conflicts.
const MAX_ATTEMPTS: u32 = 5;

/// Rewrite all objects of a CRD in its storage version and remove other versions from status.storedVersions
#[derive(Args, Debug)]
pub(crate) struct MigrateArgs {
    /// Name of the CRD, such as vmgroups.vm.codeconnect.vmworld.com
    name: String,
    /// Make this version the storage version first, such as that of an older CRD
    #[arg(long, value_name = "VERSION")]
    to: Option<String>,
    #[command(flatten)]
    connection: ContextArgs,
    /// Validate with the API server without storing anything
    #[arg(long)]
    dry_run: bool,
    /// Resume an interrupted run after this object, given as namespace/name or name
    #[arg(long, value_name = "OBJECT")]
    after: Option<String>,
    /// Number of objects per list request
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    page: u32,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Result of a migration.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    definition: String,
    storage_version: String,
    stored_versions_before: Vec<String>,
    stored_versions: Vec<String>,
    /// Objects that the API server rewrote.
    rewritten: usize,
    /// Objects that were in the storage version already.
    unchanged: usize,
    /// Objects that other clients wrote or deleted concurrently, which has the same effect.
    left_to_others: usize,
    /// Objects that a dry run validated.
    checked: usize,
    failed: Vec<MigrationFailure>,
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct MigrationFailure {
    object: String,
    message: String,
}

/// Parts of a definition that a migration needs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Definition {
    group: String,
    plural: String,
    storage: String,
    /// The version that objects are read and written in.
    through: String,
    stored: Vec<String>,
    uid: String,
}

pub(crate) async fn cmd_migrate(args: &MigrateArgs) -> Result<()> {
    let client = args.connection.connect().await?.client;
    let definition = match &args.to {
        Some(version) => change_storage(&client, args, version).await?,
        None => read(&client, &args.name).await?.0,
    };
    let mut report = Report {
        definition: args.name.clone(),
        storage_version: definition.storage.clone(),
        stored_versions_before: definition.stored.clone(),
        stored_versions: definition.stored.clone(),
        dry_run: args.dry_run,
        ..Report::default()
    };
    let due = definition.stored != [definition.storage.clone()];
    let stored = if due { store_all(&client, args, &definition, &mut report).await } else { Ok(()) };
    if stored.is_ok() && due && report.failed.is_empty() && !args.dry_run {
        report.stored_versions = update_stored_versions(&client, &args.name, &definition).await?;
    }
    match args.output {
        Some(output) => output.print(&report)?,
        None => print(&report),
    }
    stored?;
    match report.failed.len() {
        0 => Ok(()),
        n => Err(Error::new(format!("{n} objects could not be stored; status.storedVersions is unchanged"))
            .hint("fix or delete them, then run the command again")),
    }
}

fn print(report: &Report) {
    let versions = |versions: &[String]| versions.join(", ");
    for failed in &report.failed {
        print_labeled("failed", &format!("{}: {}", failed.object, failed.message));
    }
    if report.stored_versions_before == [report.storage_version.clone()] {
        print_line(&format!("{} is stored only in {}: nothing to do", report.definition, report.storage_version));
        return;
    }
    let Report { rewritten, unchanged, left_to_others, checked, .. } = report;
    if report.dry_run {
        print_line(&format!("{checked} objects can be stored in {} (dry run)", report.storage_version));
        return;
    }
    print_line(&format!("{rewritten} rewritten, {unchanged} unchanged, {left_to_others} updated by other clients"));
    if report.stored_versions != report.stored_versions_before {
        let (before, now) = (versions(&report.stored_versions_before), versions(&report.stored_versions));
        print_line(&format!("{} status.storedVersions: {before} → {now}", paint(Style::Good, "done")));
    }
}

/// Reads a definition, parsed and as JSON.
async fn read(client: &Client, name: &str) -> Result<(Definition, Value)> {
    let crd: Value = match get(client, &url(name)).await {
        Ok(crd) => crd,
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            let error = Error::new(format!("CustomResourceDefinition {name} not found"));
            return Err(error.hint("kubectl get customresourcedefinitions"));
        }
        other => other.context(format!("cannot read definition {name}"))?,
    };
    Ok((parse(name, &crd)?, crd))
}

/// Reads the parts of a definition.
fn parse(name: &str, crd: &Value) -> Result<Definition> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = crd["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let storage = versions.iter().find(|version| version["storage"] == true);
    let storage =
        storage.map(|version| text(&version["name"])).ok_or_else(|| Error::new("it has no storage version"))?;
    let mut served = versions.iter().filter(|version| version["served"] == true).map(|version| text(&version["name"]));
    // The storage version needs no conversion, but it need not be served.
    let first = served.next().ok_or_else(|| Error::new(format!("no version of {name} is served")))?;
    let through = if first == storage || served.any(|version| version == storage) { storage.clone() } else { first };
    Ok(Definition {
        group: text(&crd["spec"]["group"]),
        plural: text(&crd["spec"]["names"]["plural"]),
        storage,
        through,
        stored: crd["status"]["storedVersions"].as_array().into_iter().flatten().map(text).collect(),
        uid: text(&crd["metadata"]["uid"]),
    })
}

fn url(name: &str) -> String {
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
}

async fn get<T: serde::de::DeserializeOwned>(client: &Client, url: &str) -> kube::Result<T> {
    client.request(Request::get(url).body(Vec::new()).map_err(kube::Error::HttpError)?).await
}

async fn get_text(client: &Client, url: &str) -> kube::Result<String> {
    client.request_text(Request::get(url).body(Vec::new()).map_err(kube::Error::HttpError)?).await
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default, rename = "continue")]
    next: String,
    #[serde(default)]
    remaining_item_count: usize,
}

#[derive(Deserialize)]
struct Object {
    metadata: ObjectMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    resource_version: String,
}

impl ObjectMeta {
    /// Returns the key of an object; the API server lists objects in the order of keys.
    fn key(&self) -> String {
        self.namespace.as_ref().map_or_else(|| self.name.clone(), |namespace| format!("{namespace}/{}", self.name))
    }
}

/// Rewrites all objects, page by page in the order of their keys.
async fn store_all(client: &Client, args: &MigrateArgs, definition: &Definition, report: &mut Report) -> Result<()> {
    let Definition { group, plural, through, .. } = definition;
    let root = format!("/apis/{group}/{through}");
    let mut progress = Progress::new(&format!("{plural}: reading the first page"));
    let (mut token, mut last_key, mut seen) = (String::new(), args.after.clone().unwrap_or_default(), 0);
    loop {
        let text = match get_text(client, &format!("{root}/{plural}?limit={}&continue={token}", args.page)).await {
            // The continue token has expired: the list continues with the current objects.
            Err(kube::Error::Api(status)) if status.code == 410 && !token.is_empty() => {
                token = status.metadata.and_then(|metadata| metadata.continue_).unwrap_or_default();
                continue;
            }
            Err(error) => return Err(migration_error(error, &last_key)),
            Ok(text) => text,
        };
        let page: List = serde_json::from_str(&text).context("cannot parse the list")?;
        let items = RawJson(&text).find("items").context("cannot parse the list")?.and_then(RawJson::elements);
        for objects in items.unwrap_or_default().chunks(MAX_CONCURRENT_UPDATES) {
            let mut stored = JoinSet::new();
            for raw in objects {
                let object: Object = serde_json::from_str(raw.0).context("cannot parse an object of the list")?;
                if object.metadata.key() > last_key {
                    stored.spawn(store(
                        client.clone(),
                        root.clone(),
                        plural.clone(),
                        object.metadata,
                        raw.0.to_owned(),
                        args.dry_run,
                    ));
                }
            }
            let mut results: Vec<_> = stored.join_all().await;
            results.sort_by(|(a, _), (b, _)| a.cmp(b));
            seen += results.len();
            for (key, result) in results {
                match result {
                    Ok(StoreOutcome::Rewritten) => report.rewritten += 1,
                    Ok(StoreOutcome::Unchanged) => report.unchanged += 1,
                    Ok(StoreOutcome::Checked) => report.checked += 1,
                    Ok(StoreOutcome::ByOthers) => report.left_to_others += 1,
                    Err(kube::Error::Api(status))
                        if status.code < 500 && status.code != 401 && status.code != 403 && status.code != 429 =>
                    {
                        report.failed.push(MigrationFailure { object: key.clone(), message: status.message.clone() });
                    }
                    Err(error) => return Err(migration_error(error, &last_key)),
                }
                last_key = key;
            }
        }
        progress.show(format!("{seen} of {} objects", seen + page.metadata.remaining_item_count));
        token = page.metadata.next;
        if token.is_empty() {
            return Ok(());
        }
    }
}

fn migration_error(error: kube::Error, last_key: &str) -> Error {
    let error = Err::<(), _>(error).context("the migration failed");
    let error = error.err().unwrap_or_else(|| Error::new("the migration failed"));
    match last_key {
        "" => error,
        last_key => error.hint(format!("continue with --after {last_key}")),
    }
}

/// Result for one object.
enum StoreOutcome {
    Rewritten,
    Unchanged,
    Checked,
    ByOthers,
}

/// Updates an object without changes. The received bytes are sent back, so that no data can be lost.
async fn store(
    client: Client,
    root: String,
    plural: String,
    object: ObjectMeta,
    raw: String,
    dry_run: bool,
) -> (String, kube::Result<StoreOutcome>) {
    let place = object.namespace.as_ref().map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
    let parameter = if dry_run { "&dryRun=All" } else { "" };
    let url = format!("{root}/{place}{plural}/{}?fieldManager=flyball-migrate{parameter}", object.name);
    let request = Request::builder().method(Method::PUT).uri(url).header(CONTENT_TYPE, "application/json");
    let stored = async {
        let request = request.body(raw.into_bytes()).map_err(kube::Error::HttpError)?;
        match client.request::<Object>(request).await {
            Ok(_) if dry_run => Ok(StoreOutcome::Checked),
            Ok(now) if now.metadata.resource_version == object.resource_version => Ok(StoreOutcome::Unchanged),
            Ok(_) => Ok(StoreOutcome::Rewritten),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                Ok(StoreOutcome::ByOthers)
            }
            Err(error) => Err(error),
        }
    };
    (object.key(), stored.await)
}

/// Makes a version the storage version, and returns the definition as it is then. A dry run only validates it.
async fn change_storage(client: &Client, args: &MigrateArgs, version: &str) -> Result<Definition> {
    let name = &args.name;
    let (definition, mut crd) = read(client, name).await?;
    if definition.storage == version {
        return Ok(definition);
    }
    let versions = crd["spec"]["versions"].as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    let names: Vec<String> = versions.iter().filter_map(|of| of["name"].as_str().map(str::to_owned)).collect();
    if !names.iter().any(|known| known == version) {
        let error = Error::new(format!("CustomResourceDefinition {name} has no version {version:?}"));
        return Err(error.hint(format!("it has {}", names.join(", "))));
    }
    for of in versions {
        of["storage"] = json!(of["name"] == version);
    }
    let parameter = if args.dry_run { "&dryRun=All" } else { "" };
    let request = Request::put(format!("{}?fieldManager=flyball-migrate{parameter}", url(name)));
    let request = request.header(CONTENT_TYPE, "application/json").body(crd.to_string().into_bytes());
    // The resource version is included, so that a concurrent change causes a conflict.
    let changed: kube::Result<Value> = client.request(request.map_err(kube::Error::HttpError).context(name)?).await;
    let changed = changed.context(format!("cannot make {version} the storage version of {name}"))?;
    parse(name, &changed)
}

/// Sets `status.storedVersions` to the storage version, provided that it has not changed.
async fn update_stored_versions(client: &Client, name: &str, migrated: &Definition) -> Result<Vec<String>> {
    let mut attempt = 1;
    loop {
        let (now, mut crd) = read(client, name).await?;
        if (&now.storage, &now.uid) != (&migrated.storage, &migrated.uid) {
            let error = Error::new(format!("the storage version of {name} changed during the migration"));
            return Err(error.hint("run the command again"));
        }
        // The resource version is included, so that a concurrent change causes a conflict.
        let status = crd.get_mut("status").and_then(Value::as_object_mut);
        let status = status.ok_or_else(|| Error::new(format!("CustomResourceDefinition {name}: status is missing")))?;
        status.insert("storedVersions".into(), json!([migrated.storage]));
        let request = Request::put(format!("{}/status?fieldManager=flyball-migrate", url(name)));
        let request = request.header(CONTENT_TYPE, "application/json").body(crd.to_string().into_bytes());
        match client.request::<Value>(request.context("cannot build the request")?).await {
            Ok(_) => return Ok(vec![migrated.storage.clone()]),
            Err(kube::Error::Api(status)) if status.is_conflict() && attempt < MAX_ATTEMPTS => attempt += 1,
            Err(error) => {
                return Err(error).context("all objects are stored, but status.storedVersions could not be updated");
            }
        }
    }
}
