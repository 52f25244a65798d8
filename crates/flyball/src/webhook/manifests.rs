//! Manifests of webhooks: service, configurations, and the roles to keep them up to date.

use super::service::CONVERT_PATH;
use super::{ADMISSION, Certificates, Declaration, lockout};
use crate::kind::Kind;
use flyball_core::GroupResource;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Annotation by which cert-manager sets the authority.
const INJECT: &str = "cert-manager.io/inject-ca-from";

impl Declaration {
    /// Returns the path of a webhook, as in controller-runtime.
    pub(super) fn path(&self, duty: &str) -> String {
        let gvk = self.scope.kind.gvk();
        let group = gvk.group.replace('.', "-");
        format!("/{duty}-{group}-{}-{}", gvk.version, gvk.kind.to_lowercase())
    }

    /// Returns the name of a webhook within its configuration.
    fn name(&self, duty: &str) -> String {
        let GroupResource { group, resource } = self.scope.kind.resource();
        let group = if group.is_empty() { "core.k8s.io" } else { group };
        format!("{duty}.{resource}.{group}")
    }

    /// Returns the name of the CRD whose objects are converted.
    fn converted(&self) -> Option<String> {
        self.converts.is_some().then(|| self.scope.kind.resource().to_string())
    }

    fn webhook(&self, duty: &str, client: Value, namespace: &str) -> Value {
        let mut operations = vec!["CREATE", "UPDATE"];
        if self.deletions && duty == "validate" {
            operations.push("DELETE");
        }
        let mut webhook = self.scope.constraints("rules", &operations);
        webhook["name"] = self.name(duty).into();
        webhook["clientConfig"] = client;
        webhook["admissionReviewVersions"] = json!(["v1"]);
        webhook["failurePolicy"] = self.scope.failure_policy().into();
        webhook["sideEffects"] = "None".into();
        webhook["timeoutSeconds"] = self.timeout.as_secs().into();
        if duty == "mutate" {
            // A later webhook may change fields that the default depends on.
            webhook["reinvocationPolicy"] = "IfNeeded".into();
        }
        if !self.scope.conditions.is_empty() {
            webhook["matchConditions"] = json!(self.scope.conditions);
        }
        lockout::exclude(&mut webhook, &self.scope.kind, namespace);
        webhook
    }
}

/// The address by which the API server calls webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WebhookAddress {
    /// Through the operator's service in this namespace.
    Service { namespace: String, name: String },
    /// At this URL, without a path.
    Url(String),
}

impl WebhookAddress {
    /// Returns the endpoint for webhooks at a URL; port 0 is replaced by this port.
    pub(crate) fn url(base: &str, port: u16) -> Self {
        let base = base.trim_end_matches('/');
        Self::Url(base.strip_suffix(":0").map_or_else(|| base.to_owned(), |host| format!("{host}:{port}")))
    }

    /// Parses the endpoint of a `clientConfig`.
    pub(super) fn of(client: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let service = &client["service"];
        match (text(&service["namespace"]), text(&service["name"])) {
            (Some(namespace), Some(name)) => Some(Self::Service { namespace, name }),
            _ => text(&client["url"]).map(Self::Url),
        }
    }

    /// Returns the server name that the API server verifies.
    pub(super) fn host(&self) -> String {
        self.names().into_iter().next().unwrap_or_default()
    }

    /// Builds a `clientConfig`, without the authority.
    pub(super) fn client(&self, path: &str) -> Value {
        match self {
            Self::Service { namespace, name } => {
                json!({"service": {"namespace": namespace, "name": name, "path": path, "port": 443}})
            }
            Self::Url(base) => json!({"url": format!("{base}{path}")}),
        }
    }

    /// Returns the names of the serving certificate.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Service { namespace, name } => {
                vec![format!("{name}.{namespace}.svc"), format!("{name}.{namespace}.svc.cluster.local")]
            }
            Self::Url(base) => {
                let host = base.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
                vec![host.unwrap_or_default().trim_matches(['[', ']']).to_owned()]
            }
        }
    }
}

/// Returns the name of the service of an operator, which is also that of the configurations.
pub(crate) fn service_name(operator: &str) -> String {
    format!("{operator}-webhook")
}

/// Returns the name of the secret of an operator.
pub(super) fn secret_name(operator: &str) -> String {
    format!("{operator}-webhook-certificates")
}

/// An object that configures the addresses of webhooks in the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its resource, and the parent of its URL.
    pub(super) resource: &'static str,
    pub(super) group: &'static str,
    pub(super) name: String,
    /// Paths by the names of its webhooks; for a CRD, the path of its conversion, without a name.
    pub(super) paths: BTreeMap<String, String>,
}

impl Target {
    /// Finds the targets of a set of webhooks.
    pub(crate) fn all(operator: &str, declared: &[Declaration]) -> Vec<Self> {
        let configuration = |resource, duty: &str, is_declared: &dyn Fn(&Declaration) -> bool| {
            let paths: BTreeMap<_, _> = declared
                .iter()
                .filter(|each| is_declared(each))
                .map(|each| (each.name(duty), each.path(duty)))
                .collect();
            (!paths.is_empty()).then(|| Self { resource, group: ADMISSION, name: service_name(operator), paths })
        };
        let mutating = configuration("mutatingwebhookconfigurations", "mutate", &|each| each.defaults.is_some());
        let validating = configuration("validatingwebhookconfigurations", "validate", &|each| each.validates.is_some());
        let crds = declared.iter().filter_map(Declaration::converted).map(|name| Self {
            resource: "customresourcedefinitions",
            group: "apiextensions.k8s.io",
            name,
            paths: [(String::new(), CONVERT_PATH.to_owned())].into(),
        });
        mutating.into_iter().chain(validating).chain(crds).collect()
    }

    /// Names the object in messages.
    pub(super) fn describe(&self) -> String {
        format!("{}/{}", self.resource, self.name)
    }

    /// Returns the kind of the object.
    pub(super) fn kind(&self) -> Kind {
        match self.resource {
            "mutatingwebhookconfigurations" => Kind::of::<MutatingWebhookConfiguration>(),
            "validatingwebhookconfigurations" => Kind::of::<ValidatingWebhookConfiguration>(),
            _ => Kind::of::<CustomResourceDefinition>(),
        }
    }

    /// Returns the URL of the object.
    pub(super) fn url(&self) -> String {
        format!("/apis/{}/v1/{}/{}", self.group, self.resource, self.name)
    }
}

/// Returns the cluster-wide rules: bundles are always verified, and written if the certificate is the operator's own.
pub(crate) fn cluster_rules(operator: &str, certificates: &Certificates, declared: &[Declaration]) -> Vec<PolicyRule> {
    let verbs: &[&str] = match certificates {
        Certificates::Own => &["get", "list", "update", "watch"],
        Certificates::Files(_) | Certificates::CertManager { .. } => &["get", "list", "watch"],
    };
    let rule = |target: Target| rule(target.group, target.resource, verbs, Some(target.name));
    Target::all(operator, declared).into_iter().map(rule).collect()
}

fn rule(group: &str, resource: &str, verbs: &[&str], name: Option<String>) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: name.map(|name| vec![name]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

/// Creates the configurations, the service, and the role that lets the operator keep its secret.
pub(crate) fn manifests(
    operator: &str,
    namespace: &str,
    port: u16,
    certificates: &Certificates,
    declared: &[Declaration],
) -> Vec<Value> {
    if declared.is_empty() {
        return Vec::new();
    }
    let address = WebhookAddress::Service { namespace: namespace.to_owned(), name: service_name(operator) };
    let configuration = |kind: &str, duty: &str, is_declared: &dyn Fn(&Declaration) -> bool| {
        let webhook = |each: &Declaration| each.webhook(duty, address.client(&each.path(duty)), namespace);
        let webhooks: Vec<Value> = declared.iter().filter(|each| is_declared(each)).map(webhook).collect();
        let mut manifest = json!({
            "apiVersion": format!("{ADMISSION}/v1"), "kind": kind, "metadata": {"name": service_name(operator)}, "webhooks": webhooks,
        });
        annotate(&mut manifest, certificates);
        (!webhooks.is_empty()).then_some(manifest)
    };
    let mutating = configuration("MutatingWebhookConfiguration", "mutate", &|each| each.defaults.is_some());
    let validating = configuration("ValidatingWebhookConfiguration", "validate", &|each| each.validates.is_some());
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service_name(operator), "namespace": namespace},
        "spec": {
            "selector": {"app.kubernetes.io/name": operator},
            "ports": [{"name": "webhook", "port": 443, "targetPort": port, "protocol": "TCP"}],
        },
    });
    let role = (*certificates == Certificates::Own).then(|| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": service_name(operator), "namespace": namespace},
            "rules": [
                // The verb `create` cannot be restricted by name.
                rule("", "secrets", &["create"], None),
                rule("", "secrets", &["get", "update"], Some(secret_name(operator))),
            ],
        })
    });
    mutating.into_iter().chain(validating).chain([service]).chain(role).collect()
}

/// Sets the conversion webhook of a CRD, if there is one.
pub(crate) fn convert_crd(
    crd: &mut Value,
    operator: &str,
    namespace: &str,
    certificates: &Certificates,
    declared: &[Declaration],
) {
    let name = crd["metadata"]["name"].as_str().map(str::to_owned);
    if name.is_none() || !declared.iter().any(|each| each.converted() == name) {
        return;
    }
    let address = WebhookAddress::Service { namespace: namespace.to_owned(), name: service_name(operator) };
    crd["spec"]["conversion"] = conversion(address.client(CONVERT_PATH));
    annotate(crd, certificates);
}

/// Sets the `conversion` of a CRD.
pub(super) fn conversion(client: Value) -> Value {
    json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}})
}

fn annotate(object: &mut Value, certificates: &Certificates) {
    if let Certificates::CertManager { certificate, .. } = certificates {
        object["metadata"]["annotations"][INJECT] = certificate.as_str().into();
    }
}
