//! The steps of a plan, listed before the first one is executed.

use super::draft::Draft;
use super::manifest::shorten;
use crate::api::labels::PROPERTIES;
use crate::api::{Approval, ClusterServiceVersion, GROUP, Step, StepResource, StepStatus};
use crate::bundle::Property;
use crate::catalog::CatalogKey;
use crate::install;
use crate::manifests::Manifests;
use crate::resolution::Choice;
use flyball::Result;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A bundle to install.
pub(crate) struct Chosen {
    pub(crate) choice: Choice,
    pub(crate) package: String,
    /// False if it gets a generated Subscription.
    pub(crate) is_subscribed: bool,
    pub(crate) properties: Vec<Property>,
    pub(crate) manifests: Arc<Manifests>,
}

/// Lists the steps of a plan: ClusterServiceVersions and CRDs of all bundles, then the other objects of each bundle.
///
/// # Errors
///
/// If a ClusterServiceVersion does not decode.
pub(crate) fn steps(namespace: &str, chosen: &[Chosen], approval: Approval) -> Result<Vec<Step>> {
    let (mut csvs, mut definitions, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for bundle in chosen {
        let csv = csv_of(namespace, bundle);
        csvs.push(draft(bundle, &csv, false));
        definitions.extend(bundle.manifests.definitions().map(|object| draft(bundle, object, true)));
        others.extend(bundle.manifests.others().map(|object| draft(bundle, object, true)));
        let parsed: ClusterServiceVersion = serde_json::from_value(csv)
            .map_err(|error| flyball::Error::from(error).context(format_args!("bundle {}", bundle.choice.name)))?;
        others.extend(install::permissions(&parsed).iter().map(|object| draft_of_permission(bundle, &parsed, object)));
        if !bundle.is_subscribed {
            others.push(draft_without_type(bundle, &subscription_of(namespace, bundle, approval)));
        }
    }
    let mut drafts = csvs;
    drafts.extend(definitions);
    drafts.extend(others);
    Ok(shorten(drafts))
}

fn csv_of(namespace: &str, bundle: &Chosen) -> Value {
    let mut csv = bundle.manifests.csv().clone();
    let properties = go_json(&json!({"properties": bundle.properties}));
    let metadata = field(&mut csv, "metadata");
    metadata.insert("namespace".to_owned(), namespace.into());
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[PROPERTIES] = properties.into();
    let spec = field(&mut csv, "spec");
    match &bundle.choice.replaces {
        Some(replaces) => drop(spec.insert("replaces".to_owned(), replaces.as_str().into())),
        None => drop(spec.remove("replaces")),
    }
    csv["status"] = json!({"cleanup": {}});
    csv
}

/// Encodes JSON as Go does, which escapes HTML.
fn go_json(value: &Value) -> String {
    value.to_string().replace('<', r"\u003c").replace('>', r"\u003e").replace('&', r"\u0026")
}

/// Returns an object in a field, which is created if it is missing.
fn field<'v>(object: &'v mut Value, name: &str) -> &'v mut Map<String, Value> {
    if !object[name].is_object() {
        object[name] = json!({});
    }
    object[name].as_object_mut().expect("it was made an object")
}

fn draft<'c>(bundle: &'c Chosen, object: &Value, is_from_bundle: bool) -> Draft<'c> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&object["apiVersion"]);
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let CatalogKey { namespace, name } = bundle.choice.catalog.clone();
    let resource = StepResource {
        source_name: name,
        source_namespace: namespace,
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text(&object["kind"]),
        name: text(&object["metadata"]["name"]),
        manifest: object.to_string(),
    };
    let step = Step { resolving: bundle.choice.name.clone(), resource, optional: false, status: StepStatus::Unknown };
    Draft { step, package: &bundle.package, is_from_bundle }
}

/// Returns the step of an object whose manifest has no type, as in OLM. Its owner, the ClusterServiceVersion, has no
/// UID yet.
fn draft_without_type<'c>(bundle: &'c Chosen, object: &Value) -> Draft<'c> {
    let mut draft = draft(bundle, object, false);
    let mut manifest = object.clone();
    if let Some(fields) = manifest.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    let metadata = &mut manifest["metadata"];
    for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
        owner["uid"] = "".into();
    }
    draft.step.resource.manifest = manifest.to_string();
    draft
}

/// Returns the step of a service account, role or binding, with the namespace where OLM has it.
fn draft_of_permission<'c>(bundle: &'c Chosen, csv: &ClusterServiceVersion, object: &Value) -> Draft<'c> {
    let mut object = object.clone();
    let details = csv.spec.details();
    let is_cluster_only =
        |name: &Value| !details.permissions.iter().any(|of| *name == of.service_account_name.as_str());
    match object["kind"].as_str() {
        Some("ClusterRoleBinding") => object["metadata"]["namespace"] = json!(csv.metadata.namespace),
        Some("ServiceAccount") if is_cluster_only(&object["metadata"]["name"]) => {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("namespace");
            }
        }
        _ => {}
    }
    draft_without_type(bundle, &object)
}

/// Returns the Subscription of a dependency.
fn subscription_of(namespace: &str, bundle: &Chosen, approval: Approval) -> Value {
    let CatalogKey { namespace: source_namespace, name: source } = &bundle.choice.catalog;
    let (package, channel) = (&bundle.package, &bundle.choice.channel);
    json!({
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "kind": "Subscription",
        "metadata": {"name": format!("{package}-{channel}-{source}-{source_namespace}"), "namespace": namespace},
        "spec": {
            "channel": channel, "installPlanApproval": approval, "name": package, "source": source,
            "sourceNamespace": source_namespace, "startingCSV": bundle.choice.name,
        },
        "status": {"lastUpdated": null},
    })
}
