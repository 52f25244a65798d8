//! Users who may write the objects that determine permissions.
//!
//! The manager grants the permissions that a ClusterServiceVersion requests. So anyone who can write
//! ClusterServiceVersions, InstallPlans, CatalogSources or OperatorGroups could give any permission to a service
//! account of their namespace. The API server therefore accepts such writes only from users who may grant any
//! permission anyway: those with the verb `escalate` on ClusterRoles, among them cluster administrators and the
//! manager. Subscriptions choose among the packages of catalogs that an administrator has added. Their configuration
//! becomes a part of the operator's pods, so it requires the permission to create Deployments in the namespace: whoever
//! may create pods there may use their service accounts anyway.
//!
//! A ConfigMap that a CatalogSource names contains ClusterServiceVersions, too. The policy cannot follow this
//! reference, so it covers the ConfigMaps with the label [`CATALOG`], and the manager uses no others.

use crate::api::Subscription;
use crate::api::labels::CATALOG;
use flyball::Resource;
use flyball::policy::{Policy, Reason, Rule};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// True if the user may grant any permission.
const MAY_GRANT: &str =
    "authorizer.group('rbac.authorization.k8s.io').resource('clusterroles').check('escalate').allowed()";
/// True if the user may create Deployments in the namespace of the object.
const MAY_DEPLOY: &str = "authorizer.group('apps').resource('deployments').namespace(object.metadata.namespace)\
                          .check('create').allowed()";
/// Prefixes of the labels and annotations that the manager reads.
const MARKS: [&str; 3] = ["olm.", "operatorframework.io/", "operators.coreos.com/"];
/// True if the spec is unchanged.
const SAME_SPEC: &str = "oldObject != null && oldObject.?spec.orValue({}) == object.?spec.orValue({})";

/// True if the status is unchanged.
const SAME_STATUS: &str = "oldObject.?status.orValue({}) == object.?status.orValue({})";

/// Returns an expression that is true if the labels and annotations of the manager are unchanged: it decides by them
/// which objects are copies, which APIs a group provides and which checks apply.
fn same_marks() -> String {
    let is_other = MARKS.map(|mark| format!("!key.startsWith('{mark}')")).join(" && ");
    let same = ["labels", "annotations"].map(|field| {
        let (old, new) =
            (format!("oldObject.metadata.?{field}.orValue({{}})"), format!("object.metadata.?{field}.orValue({{}})"));
        format!(
            "{old}.all(key, ({is_other}) || (key in {new} && {new}[key] == {old}[key])) && \
             {new}.all(key, ({is_other}) || key in {old})"
        )
    });
    same.join(" && ")
}

/// Returns a policy by which only users who may grant any permission create objects of a kind, or change their specs,
/// their status, or the labels and annotations of the manager.
pub(super) fn admins_only<T: Resource>() -> Policy<T> {
    let kind = T::kind(&()).into_owned();
    let message = format!("a {kind} determines permissions: only users who may grant any permission may write it");
    let rule = format!("({SAME_SPEC} && {SAME_STATUS} && {}) || {MAY_GRANT}", same_marks());
    guarded(rule, message)
}

/// Returns a policy for InstallPlans: others may only approve them. Their status contains the objects that are applied.
pub(super) fn approval_only<T: Resource>() -> Policy<T> {
    let fields = ["clusterServiceVersionNames", "approval", "generation", "source", "sourceNamespace"];
    let same = fields.map(|field| {
        let (old, new) = (format!("oldObject.spec.{field}"), format!("object.spec.{field}"));
        format!("has({old}) == has({new}) && (!has({old}) || {old} == {new})")
    });
    let (same, marks) = (same.join(" && "), same_marks());
    let rule = format!("(oldObject != null && {SAME_STATUS} && {same} && {marks}) || {MAY_GRANT}");
    let message = "an InstallPlan can only be approved, except by users who may grant any permission".to_owned();
    guarded(rule, message)
}

/// Returns a policy for the ConfigMaps with the content of a catalog: others may only change metadata other than the
/// labels and annotations of the manager.
pub(super) fn catalog_content() -> Policy<ConfigMap> {
    let same = [("data", "{}"), ("binaryData", "{}"), ("immutable", "false")]
        .map(|(field, absent)| format!("oldObject.?{field}.orValue({absent}) == object.?{field}.orValue({absent})"))
        .join(" && ");
    let rule = format!("(oldObject != null && {same} && {}) || {MAY_GRANT}", same_marks());
    let message = format!(
        "a ConfigMap with the label {CATALOG} determines permissions: only users who may grant any permission may write \
         it"
    );
    let is_labeled = LabelSelectorRequirement { key: CATALOG.into(), operator: "Exists".into(), values: None };
    let selector = LabelSelector { match_expressions: Some(vec![is_labeled]), match_labels: None };
    let rule = Rule::new(rule, message).reason(Reason::Forbidden);
    Policy::new().object_selector(selector).while_deleting().validates(rule)
}

/// Returns a policy for the configuration of Subscriptions.
pub(super) fn configuration() -> Policy<Subscription> {
    let before = "(oldObject == null ? {} : oldObject.?spec.?config.orValue({}))";
    let now = "object.?spec.?config.orValue({})";
    // Another package would get the variables and volumes of this one.
    let package = |of: &str| format!("{of}.?spec.?name.orValue('')");
    let same_package = format!("({now} == {{}} || {} == {})", package("oldObject"), package("object"));
    let rule = format!("({before} == {now} && {same_package}) || {MAY_DEPLOY} || {MAY_GRANT}");
    let message = "spec.config becomes a part of the operator's pods: it requires the permission to create deployments in \
                   the namespace";
    guarded(rule, message.to_owned())
}

/// Returns a policy that rejects writes for which a rule is false, also of the status and of objects that are being
/// deleted: a user can keep them with a finalizer. The removal of finalizers changes neither spec nor
/// status, so the rules accept it.
fn guarded<T: Resource>(rule: String, message: String) -> Policy<T> {
    Policy::new().with_status().while_deleting().validates(Rule::new(rule, message).reason(Reason::Forbidden))
}
