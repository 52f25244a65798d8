//! Catalogs and manifests, generated from the descriptions of packages.

use crate::sample::{Api, Bundle, Package};
use flyball_lifecycle::Property;
use flyball_lifecycle::content::{Blobs, BundleBlob, ChannelBlob, ChannelEntry, Content, PackageBlob};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The package that provides what the package of a walk requires.
const PLATFORM: &str = "platform";
const STABLE: &str = "stable";

/// Returns a catalog with one channel of a package, and a package with all APIs that it requires from elsewhere.
pub(crate) fn catalog(package: &Package, channel: &str, entries: &[Bundle]) -> Content {
    let versions = package.versions();
    let mut blobs = Blobs {
        packages: vec![PackageBlob {
            name: package.name.clone(),
            default_channel: channel.to_owned(),
            ..PackageBlob::default()
        }],
        channels: vec![ChannelBlob {
            name: channel.to_owned(),
            package: package.name.clone(),
            entries: entries.iter().map(entry).collect(),
            ..ChannelBlob::default()
        }],
        bundles: entries.iter().map(|bundle| blob(&package.name, bundle, &versions)).collect(),
        ..Blobs::default()
    };
    let required: BTreeSet<String> = entries.iter().flat_map(foreign).collect();
    let platform = platform(required.into_iter().collect());
    blobs.packages.push(PackageBlob {
        name: PLATFORM.to_owned(),
        default_channel: STABLE.to_owned(),
        ..PackageBlob::default()
    });
    blobs.channels.push(ChannelBlob {
        name: STABLE.to_owned(),
        package: PLATFORM.to_owned(),
        entries: vec![entry(&platform)],
        ..ChannelBlob::default()
    });
    blobs.bundles.push(blob(PLATFORM, &platform, &BTreeMap::new()));
    // Some channels have no single head, as published: the resolver refuses them.
    Content::unchecked(blobs)
}

fn platform(provided: Vec<String>) -> Bundle {
    let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
    Bundle {
        name: format!("{PLATFORM}.v1.0.0"),
        version: "1.0.0".to_owned(),
        channels: vec![STABLE.to_owned()],
        replaces: String::new(),
        skips: Vec::new(),
        skip_range: String::new(),
        min_kube_version: String::new(),
        install_modes: modes.map(str::to_owned).into(),
        webhooks: Vec::new(),
        provided,
        required: Vec::new(),
        install: [1, 0, 0],
    }
}

fn entry(bundle: &Bundle) -> ChannelEntry {
    ChannelEntry {
        name: bundle.name.clone(),
        replaces: bundle.replaces.clone(),
        skips: bundle.skips.clone(),
        skip_range: bundle.skip_range.clone(),
    }
}

fn blob(package: &str, bundle: &Bundle, versions: &BTreeMap<String, BTreeSet<String>>) -> BundleBlob {
    let apis = |list: &[String], kind: &str| -> Vec<Property> {
        let value = |api: Api| json!({"group": api.group, "version": api.version, "kind": api.kind});
        list.iter().map(|api| Property::new(kind, &value(Api::parse(api)))).collect()
    };
    let value = json!({"packageName": package, "version": bundle.version});
    let mut properties = vec![Property::new("olm.package", &value)];
    properties.extend(apis(&bundle.provided, "olm.gvk"));
    properties.extend(apis(&foreign(bundle), "olm.gvk.required"));
    let mut objects = vec![csv(package, bundle).to_string().into()];
    objects.extend(definitions(bundle, versions).into_iter().map(|object| object.to_string().into()));
    BundleBlob { name: bundle.name.clone(), package: package.to_owned(), properties, objects, ..BundleBlob::default() }
}

/// Returns the APIs that a bundle requires from others.
fn foreign(bundle: &Bundle) -> Vec<String> {
    bundle.required.iter().filter(|api| !bundle.provided.contains(api)).cloned().collect()
}

/// Returns the CRDs of a bundle, each with all versions that the package ever provided.
fn definitions(bundle: &Bundle, versions: &BTreeMap<String, BTreeSet<String>>) -> Vec<Value> {
    let mut provided: BTreeMap<String, BTreeSet<Api>> = BTreeMap::new();
    for api in bundle.provided.iter().map(|api| Api::parse(api)) {
        provided.entry(api.definition()).or_default().insert(api);
    }
    let mut definitions = Vec::new();
    for (name, apis) in provided {
        let Some(api) = apis.first() else { continue };
        let own = || apis.iter().map(|api| api.version.clone()).collect();
        let served: BTreeSet<String> = versions.get(&name).cloned().unwrap_or_else(own);
        let version = |version: &String| {
            json!({
                "name": version, "served": true, "storage": *version == api.version,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            })
        };
        let (kind, plural) = (&api.kind, api.plural());
        definitions.push(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "https://example.com"}},
            "spec": {
                "group": api.group, "scope": "Namespaced",
                "names": {
                    "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase(),
                },
                "versions": served.iter().map(version).collect::<Vec<_>>(),
            },
        }));
    }
    definitions
}

fn csv(package: &str, bundle: &Bundle) -> Value {
    let [deployments, permissions, cluster_permissions] = bundle.install;
    let deployments: Vec<Value> = (0..deployments.max(1)).map(|at| deployment(package, at)).collect();
    let rule =
        |group: &str| json!({"apiGroups": [group], "resources": ["configmaps", "leases"], "verbs": ["get", "list"]});
    let permission =
        |group: &str, at: usize| json!({"serviceAccountName": format!("{package}-{at}"), "rules": [rule(group)]});
    let list = |group: &str, count: usize| (0..count).map(|at| permission(group, at)).collect::<Vec<_>>();
    let descriptions = |apis: &[String]| {
        let of = |api: Api| json!({"name": api.definition(), "version": api.version, "kind": api.kind});
        apis.iter().map(|api| of(Api::parse(api))).collect::<Vec<_>>()
    };
    let all_modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
    let modes =
        all_modes.map(|mode| json!({"type": mode, "supported": bundle.install_modes.iter().any(|own| own == mode)}));
    let mut spec = json!({
        "displayName": package, "version": bundle.version, "installModes": modes,
        "customresourcedefinitions": {
            "owned": descriptions(&bundle.provided), "required": descriptions(&foreign(bundle)),
        },
        "webhookdefinitions": webhooks(package, bundle),
        "install": {"strategy": "deployment", "spec": {
            "deployments": deployments,
            "permissions": list("", permissions),
            "clusterPermissions": list("coordination.k8s.io", cluster_permissions),
        }},
    });
    for (field, text) in [("replaces", &bundle.replaces), ("minKubeVersion", &bundle.min_kube_version)] {
        if !text.is_empty() {
            spec[field] = json!(text);
        }
    }
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": bundle.name, "namespace": "placeholder"}, "spec": spec,
    })
}

fn deployment(package: &str, at: usize) -> Value {
    let labels = json!({"app": package, "part": at.to_string()});
    let container = json!({"name": "manager", "image": format!("quay.io/example/{package}:1")});
    let pod = json!({"serviceAccountName": format!("{package}-0"), "containers": [container]});
    json!({"name": format!("{package}-{at}"), "spec": {
        "replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }})
}

/// Returns the webhooks. The descriptions do not contain their rules: the provided APIs are dealt out to those of the
/// same type, as generators write one webhook for each kind.
fn webhooks(package: &str, bundle: &Bundle) -> Vec<Value> {
    let apis: Vec<Api> = bundle.provided.iter().map(|api| Api::parse(api)).collect();
    let definitions: BTreeSet<String> = apis.iter().map(Api::definition).collect();
    let webhook = |(at, kind): (usize, &String)| {
        let of_type = |webhooks: &[String]| webhooks.iter().filter(|other| *other == kind).count();
        let (count, position) = (of_type(&bundle.webhooks), of_type(&bundle.webhooks[..at]));
        // Each gets one at least.
        let is_own = |index: usize, all: usize| index % count == position % all.max(1);
        let mut webhook = json!({
            "type": kind, "generateName": format!("w{at}.example.com"), "deploymentName": format!("{package}-0"),
            "containerPort": 443, "targetPort": 9443, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "webhookPath": format!("/webhook-{at}"),
        });
        if kind == "ConversionWebhook" {
            let own = definitions.iter().enumerate().filter(|(index, _)| is_own(*index, definitions.len()));
            webhook["conversionCRDs"] = own.map(|(_, name)| Value::from(name.as_str())).collect();
        } else {
            let rule = |api: &Api| {
                json!({
                    "apiGroups": [api.group], "apiVersions": [api.version], "operations": ["CREATE", "UPDATE"],
                    "resources": [api.plural()],
                })
            };
            let own = apis.iter().enumerate().filter(|(index, _)| is_own(*index, apis.len()));
            webhook["rules"] = own.map(|(_, api)| rule(api)).collect();
        }
        webhook
    };
    bundle.webhooks.iter().enumerate().map(webhook).collect()
}
