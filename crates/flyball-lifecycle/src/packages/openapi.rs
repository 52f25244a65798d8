//! The OpenAPI document of PackageManifests, for `kubectl explain` and for clients that generate types.
//!
//! The API server merges it into its own documents. See
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-v3>.

use super::manifest::{GROUP, RESOURCE, VERSION};
use serde_json::{Map, Value, json};

/// Prefix of the names of schemas.
const PREFIX: &str = "com.coreos.operators.packages.v1";

/// Returns the list of documents.
pub(super) fn root() -> Value {
    let path = format!("apis/{GROUP}/{VERSION}");
    // The content of the document depends on the program only.
    let url = format!("/openapi/v3/{path}?hash={}", env!("CARGO_PKG_VERSION"));
    json!({"paths": {path: {"serverRelativeURL": url}}})
}

/// Returns the document of the group version.
pub(super) fn document() -> Value {
    let kind = |kind: &str| json!([{"group": GROUP, "version": VERSION, "kind": kind}]);
    let mut manifest = object(
        "A package of a catalog, with the newest version of each channel. Read-only.",
        &[
            ("apiVersion", text("Version of the schema of this object.")),
            ("kind", text("Kind of this object.")),
            (
                "metadata",
                json!({
                    "type": "object", "description": "Standard metadata; the namespace is that of the request.",
                    "x-kubernetes-preserve-unknown-fields": true,
                }),
            ),
            ("spec", object("Has no fields.", &[])),
            ("status", status()),
        ],
    );
    manifest["x-kubernetes-group-version-kind"] = kind("PackageManifest");
    let items = list_of("The packages.", reference("PackageManifest"));
    let mut list = object(
        "A list of packages.",
        &[
            ("apiVersion", text("Version of the schema of this object.")),
            ("kind", text("Kind of this object.")),
            ("metadata", json!({"type": "object", "description": "Standard metadata of lists."})),
            ("items", items),
        ],
    );
    list["x-kubernetes-group-version-kind"] = kind("PackageManifestList");
    json!({
        "openapi": "3.0.0",
        "info": {"title": "PackageManifests", "version": VERSION},
        "paths": paths(),
        "components": {"schemas": {
            format!("{PREFIX}.PackageManifest"): manifest,
            format!("{PREFIX}.PackageManifestList"): list,
        }},
    })
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{PREFIX}.{schema}")})
}

fn paths() -> Value {
    let collection = format!("/apis/{GROUP}/{VERSION}/{RESOURCE}");
    let namespaced = format!("/apis/{GROUP}/{VERSION}/namespaces/{{namespace}}/{RESOURCE}");
    let parameter = |name: &str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
    let get = |action: &str, id: &str, schema: &str, parameters: Vec<Value>| {
        let content = json!({"application/json": {"schema": reference(schema)}});
        json!({"parameters": parameters, "get": {
            "operationId": id, "description": format!("{action} PackageManifests"),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": GROUP, "version": VERSION, "kind": "PackageManifest"},
            "responses": {"200": {"description": "OK", "content": content}},
        }})
    };
    let namespace = || vec![parameter("namespace")];
    let all = get("list", "listPackageManifestForAllNamespaces", "PackageManifestList", Vec::new());
    let list = get("list", "listNamespacedPackageManifest", "PackageManifestList", namespace());
    let one =
        get("get", "readNamespacedPackageManifest", "PackageManifest", [namespace(), vec![parameter("name")]].concat());
    json!({collection: all, namespaced.clone(): list, format!("{namespaced}/{{name}}"): one})
}

fn status() -> Value {
    object(
        "Content of the package.",
        &[
            ("catalogSource", text("Name of the CatalogSource.")),
            ("catalogSourceDisplayName", text("Name of the CatalogSource for people.")),
            ("catalogSourceNamespace", text("Namespace of the CatalogSource.")),
            ("catalogSourcePublisher", text("Publisher of the CatalogSource.")),
            ("channels", list_of("Channels of the package, by name.", channel())),
            ("defaultChannel", text("Channel of Subscriptions that name none.")),
            ("deprecation", deprecation()),
            ("packageName", text("Name of the package, for spec.name of a Subscription.")),
            ("provider", link("Provider of the package.")),
        ],
    )
}

fn channel() -> Value {
    let entry = object(
        "A version.",
        &[
            ("deprecation", deprecation()),
            ("name", text("Name of its ClusterServiceVersion, for spec.startingCSV of a Subscription.")),
            ("version", text("Semantic version.")),
        ],
    );
    object(
        "A channel.",
        &[
            ("currentCSV", text("Name of the ClusterServiceVersion at the head of the channel.")),
            ("currentCSVDesc", description()),
            ("deprecation", deprecation()),
            ("entries", list_of("Versions in the channel, newest first.", entry)),
            ("name", text("Name of the channel, for spec.channel of a Subscription.")),
        ],
    )
}

/// Returns the schema of the description of a ClusterServiceVersion.
fn description() -> Value {
    let mode = object(
        "An install mode.",
        &[
            ("supported", json!({"type": "boolean", "description": "True if the operator supports the mode."})),
            ("type", text("OwnNamespace, SingleNamespace, MultiNamespace or AllNamespaces.")),
        ],
    );
    let maintainer = object("A maintainer.", &[("email", text("Email address.")), ("name", text("Name."))]);
    let texts = |description: &str| list_of(description, json!({"type": "string"}));
    let annotations = json!({
        "type": "object", "description": "Annotations of the ClusterServiceVersion.",
        "additionalProperties": {"type": "string"},
    });
    object(
        "Description of the ClusterServiceVersion.",
        &[
            ("annotations", annotations),
            ("apiservicedefinitions", open("Aggregated APIs that the operator provides and requires.")),
            ("customresourcedefinitions", open("CRDs that the operator provides and requires.")),
            ("description", text("Description in Markdown.")),
            ("displayName", text("Name for people.")),
            ("installModes", list_of("OperatorGroups that the operator supports.", mode)),
            ("keywords", texts("Keywords for a search.")),
            ("links", list_of("Links to documentation.", link("A link."))),
            ("maintainers", list_of("Maintainers of the operator.", maintainer)),
            ("maturity", text("Maturity of the version.")),
            ("minKubeVersion", text("Oldest version of Kubernetes that is supported.")),
            ("nativeApis", list_of("Built-in APIs that the operator requires.", open("A group, version and kind."))),
            ("provider", link("Provider of the operator.")),
            ("relatedImages", texts("Images that the operator uses.")),
            ("version", text("Semantic version.")),
        ],
    )
}

fn object(description: &str, fields: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "description": description, "properties": properties})
}

fn open(description: &str) -> Value {
    json!({"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": true})
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn list_of(description: &str, items: Value) -> Value {
    json!({"type": "array", "description": description, "items": items})
}

fn link(description: &str) -> Value {
    object(description, &[("name", text("Name.")), ("url", text("Address."))])
}

fn deprecation() -> Value {
    object("Set if it is deprecated.", &[("message", text("Reason, and what to use instead."))])
}
