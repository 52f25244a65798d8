//! Type-checks the expressions of admission policies against their matched kinds, and writes warnings to their status.
//!
//! Warnings do not disable a policy. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#type-checking>.

use flyball::{Action, Context, Controller, Predicate, Reconcile, Result};
use flyball_core::GroupVersionKind;
use flyball_schema::cel::{self, Type};
use http::Request;
use k8s_openapi::api::admissionregistration::v1::{NamedRuleWithOperations, ValidatingAdmissionPolicy};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "validatingadmissionpolicy-status";

/// Maximum number of kinds of a rule that are checked.
const MAX_KINDS: usize = 10;

pub(super) fn controller() -> Controller<impl Reconcile> {
    Controller::new(Policies).filter(Predicate::<ValidatingAdmissionPolicy>::generation())
}

struct Policies;

impl Reconcile for Policies {
    type Resource = ValidatingAdmissionPolicy;

    async fn reconcile(
        &self,
        policy: &ValidatingAdmissionPolicy,
        cx: &Context<ValidatingAdmissionPolicy>,
    ) -> Result<Action> {
        let (name, generation) = (policy.name_any(), policy.metadata.generation);
        if generation <= policy.status.as_ref().and_then(|status| status.observed_generation) {
            return Ok(Action::done());
        }
        let warnings = PolicySchemas::of(policy, cx.client()).await?.warnings(policy);
        let checked = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
        let desired = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name}, "status": {"observedGeneration": generation, "typeChecking": checked},
        });
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(cx.client().clone());
        let written = policies.patch_status(&name, &PatchParams::apply(NAME).force(), &Patch::Apply(desired)).await?;
        cx.record_write(&written);
        Ok(Action::done())
    }
}

/// The schemas of the variables of a policy.
struct PolicySchemas {
    objects: BTreeMap<GroupVersionKind, Map<String, Value>>,
    /// `None` if the policy has no parameters; no schema if it is unknown.
    params: Option<Option<Map<String, Value>>>,
}

impl PolicySchemas {
    async fn of(policy: &ValidatingAdmissionPolicy, client: &Client) -> Result<Self> {
        let spec = policy.spec.as_ref();
        let rules = spec.and_then(|spec| spec.match_constraints.as_ref()?.resource_rules.as_ref());
        let mut published = PublishedSchemas { client, documents: BTreeMap::new() };
        let mut objects = BTreeMap::new();
        for rule in rules.into_iter().flatten() {
            for gvk in published.kinds(rule).await? {
                if let Some(schema) = published.schema(&gvk).await? {
                    objects.insert(gvk, schema);
                }
            }
        }
        let params = match spec.and_then(|spec| spec.param_kind.as_ref()) {
            Some(kind) => {
                let api_version = kind.api_version.as_deref().unwrap_or_default();
                let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
                let gvk = GroupVersionKind::new(group, version, kind.kind.as_deref().unwrap_or_default());
                Some(published.schema(&gvk).await?)
            }
            None => None,
        };
        Ok(Self { objects, params })
    }

    /// Returns the warnings about the expressions of a policy, as in its status.
    fn warnings(&self, policy: &ValidatingAdmissionPolicy) -> Vec<Value> {
        let Some(spec) = &policy.spec else { return Vec::new() };
        let variables: Vec<(&str, &str)> =
            spec.variables.iter().flatten().map(|variable| (&*variable.name, &*variable.expression)).collect();
        let environments: Vec<_> =
            self.objects.iter().map(|(gvk, schema)| (gvk, self.environment(schema, &variables))).collect();
        let mut warnings = Vec::new();
        let mut check = |field: String, expression: &str| {
            let of_kind = |(gvk, known): &(&GroupVersionKind, Vec<(&str, Type<'_>)>)| {
                let why = cel::check_among(expression, known).err()?;
                Some(format!("{}/{}, Kind={}: {why}\n", gvk.group, gvk.version, gvk.kind))
            };
            let found: Vec<String> = environments.iter().filter_map(of_kind).collect();
            if !found.is_empty() {
                warnings.push(json!({"fieldRef": field, "warning": found.join("\n")}));
            }
        };
        for (at, validation) in spec.validations.iter().flatten().enumerate() {
            check(format!("spec.validations[{at}].expression"), &validation.expression);
            if let Some(message) = validation.message_expression.as_deref().filter(|text| !text.is_empty()) {
                check(format!("spec.validations[{at}].messageExpression"), message);
            }
        }
        warnings
    }

    /// Returns the variables of expressions on objects of a schema.
    fn environment<'s>(
        &'s self,
        schema: &'s Map<String, Value>,
        variables: &[(&str, &str)],
    ) -> Vec<(&'static str, Type<'s>)> {
        let object = cel::object(schema);
        let mut known = vec![
            ("object", object.clone()),
            ("oldObject", object),
            ("request", cel::request()),
            ("namespaceObject", cel::namespace()),
            ("authorizer", cel::AUTHORIZER),
        ];
        if let Some(params) = &self.params {
            known.push(("params", params.as_ref().map_or(Type::Dyn, cel::object)));
        }
        let mut own: Vec<(String, Type<'s>)> = Vec::new();
        for (name, expression) in variables {
            let mut known = known.clone();
            known.push(("variables", Type::Fields(own.clone().into())));
            // The status has no field for errors in variables, and expressions that use them get no warning.
            own.push(((*name).to_owned(), cel::check_among(expression, &known).unwrap_or(Type::Dyn)));
        }
        known.push(("variables", Type::Fields(own.into())));
        known
    }
}

/// OpenAPI schemas published by the API server.
struct PublishedSchemas<'c> {
    client: &'c Client,
    documents: BTreeMap<String, Option<Value>>,
}

impl PublishedSchemas<'_> {
    /// Returns the kinds that a rule names one by one.
    async fn kinds(&mut self, rule: &NamedRuleWithOperations) -> Result<BTreeSet<GroupVersionKind>> {
        let [groups, versions, resources] =
            [&rule.api_groups, &rule.api_versions, &rule.resources].map(|names| names.as_deref().unwrap_or_default());
        let mut kinds = BTreeSet::new();
        if [groups, versions].into_iter().flatten().any(|name| name.contains('*')) {
            return Ok(kinds);
        }
        let resources: BTreeSet<&String> = resources.iter().filter(|name| !name.contains(['*', '/'])).collect();
        for group in BTreeSet::from_iter(groups) {
            for version in BTreeSet::from_iter(versions) {
                let Some(list) = self.document(&root(group, version)).await? else { continue };
                let served = list["resources"].as_array().cloned().unwrap_or_default();
                for resource in served.iter().filter(|one| resources.iter().any(|name| one["name"] == **name)) {
                    if kinds.len() < MAX_KINDS {
                        kinds.insert(GroupVersionKind::new(
                            group,
                            version,
                            resource["kind"].as_str().unwrap_or_default(),
                        ));
                    }
                }
            }
        }
        Ok(kinds)
    }

    /// Returns the schema of a kind, if there is one.
    async fn schema(&mut self, gvk: &GroupVersionKind) -> Result<Option<Map<String, Value>>> {
        let document = self.document(&format!("/openapi/v3{}", root(&gvk.group, &gvk.version))).await?;
        Ok(document.and_then(|document| cel::published(document, &gvk.group, &gvk.version, &gvk.kind)))
    }

    /// Returns a document; `None` if there is none.
    async fn document(&mut self, path: &str) -> Result<Option<&Value>> {
        if !self.documents.contains_key(path) {
            let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
            let document = match self.client.request(request).await {
                Ok(document) => Some(document),
                Err(kube::Error::Api(status)) if status.code == 404 => None,
                Err(error) => return Err(error.into()),
            };
            self.documents.insert(path.to_owned(), document);
        }
        Ok(self.documents[path].as_ref())
    }
}

/// Returns the path of a group in a version.
fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}
