//! The reconciler of ClusterServiceVersions: one step in each call.

use super::changes::definition_changes;
use super::desired::{self, Certificates};
use super::index::{ByOwner, CopiesOf, name_of};
use super::membership::{Membership, membership};
use super::observe::{self, Cx, ServerVersion};
use super::replacement::Siblings;
use super::transition::{Facts, Step, next};
use super::write::Identity;
use super::{cleanup, copies, kinds, status};
use crate::api::{
    ClusterServiceVersion, ClusterServiceVersionPhase as Phase, OlmConfig, OperatorCondition, OperatorGroup,
    RequirementStatus, Subscription, labels,
};
use crate::group::{api_roles, group_changes};
use crate::install::{
    ClusterObjects, Definition, ServingCertificate, check_webhooks, conversions, health, owners, requirements,
    role_names,
};
use crate::patch::merge_patch;
use crate::rules::rule;
use flyball::{Action, Controller, Error, Event, ObjectKey, Predicate, Reconcile, Resource, Result};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::time::Duration;

/// Time until the next step. The next reconcile waits for the caches anyway.
const NEXT_STEP: Duration = Duration::from_millis(1);
/// Time until an installation that lacks permissions is tried again: no change in the caches shows that they were
/// granted.
const PERMISSION_PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct ClusterServiceVersions {
    version: ServerVersion,
}

impl Reconcile for ClusterServiceVersions {
    type Resource = ClusterServiceVersion;

    async fn reconcile(&self, csv: &ClusterServiceVersion, cx: &Cx) -> Result<Action> {
        if copies::has_lost_label(csv) {
            copies::restore_label(csv, cx).await?;
            return Ok(Action::done());
        }
        if csv.copied_from().is_some() {
            copies::check(csv, cx).await?;
            return Ok(Action::done());
        }
        let has_finalizer = csv.finalizers().iter().any(|name| name == labels::CSV_CLEANUP);
        if csv.metadata.deletion_timestamp.is_some() {
            if has_finalizer && cleanup::clean_up(csv, cx).await? {
                set_finalizer(csv, false, cx).await?;
            }
            return Ok(Action::done());
        }
        if !has_finalizer {
            set_finalizer(csv, true, cx).await?;
            return Ok(Action::requeue_after(NEXT_STEP));
        }
        let condition = desired::condition(csv);
        Identity::default().apply(cx, &condition, Vec::new()).await?;
        // What is being replaced does not depend on the group any more.
        let is_obsolete = matches!(csv.status.phase, Phase::Replacing | Phase::Deleting);
        match membership(csv, cx).await? {
            Membership::Member(group) => self.advance(csv, &group, &condition, cx).await,
            _ if is_obsolete => self.advance(csv, &OperatorGroup::default(), &condition, cx).await,
            Membership::Annotate(annotations) => {
                let patch = json!({"metadata": {"annotations": annotations}});
                merge_patch(cx, csv, "", &patch).await?;
                Ok(Action::requeue_after(NEXT_STEP))
            }
            Membership::Wait => Ok(Action::done()),
            Membership::Failed(step) => self.fail(csv, step, cx).await,
        }
    }
}

impl ClusterServiceVersions {
    /// Records that the group prevents the installation. If another operator provides the same APIs, the Deployments
    /// are deleted, unless the operator has run: a change of another group must not stop it.
    async fn fail(&self, csv: &ClusterServiceVersion, step: Step, cx: &Cx) -> Result<Action> {
        let Step::Enter(phase, reason, message) = step else { return Ok(Action::done()) };
        let has_run = csv.status.conditions.iter().any(|entry| entry.phase == Phase::Succeeded);
        let has_conflict =
            matches!(reason, "InterOperatorGroupOwnerConflict" | "CannotModifyStaticOperatorGroupProvidedAPIs");
        if has_conflict && !has_run {
            for deployment in owned_deployments(csv, cx).await? {
                cx.delete(&deployment).await?;
            }
        }
        if csv.status.phase == phase && csv.status.reason == reason && csv.status.message == message {
            return Ok(Action::done());
        }
        enter(csv, phase, reason, &message, None, cx).await
    }

    /// Executes the next step of a member of a group.
    async fn advance(
        &self,
        csv: &ClusterServiceVersion,
        group: &OperatorGroup,
        condition: &Value,
        cx: &Cx,
    ) -> Result<Action> {
        let identity = match Identity::of(group) {
            Ok(identity) => identity,
            Err(why) => {
                cx.event(Event::warning("ServiceAccountNotFound", why.clone()));
                return Err(Error::from(why).wait());
            }
        };
        let siblings = observe::siblings(csv, cx).await?;
        let hold = match siblings.replaced_by(csv) {
            Some(replaced) if csv.status.phase == Phase::Pending => observe::hold(replaced, cx).await?,
            _ => None,
        };
        let installation = Installation { csv, group, condition, identity: &identity, cx };
        let rights = desired::rights(csv, group, &siblings);
        let denied = match hold.is_some() || observe::has_foreign_account(csv, &siblings) {
            true => None,
            false => installation.grant(&rights).await?,
        };
        if identity.wrote() {
            return Ok(Action::requeue_after(NEXT_STEP));
        }
        let observed = observe::requirements(csv, &siblings, &rights, &self.version, cx).await?;
        let certificates = observe::certificates(csv, cx).await?;
        let config = observe::config(csv, cx).await?;
        let workloads = desired::workloads(csv, config.as_ref(), &certificates);
        let facts = installation.facts(&siblings, hold, &observed, &certificates, &workloads).await?;
        if is_running(csv) && !facts.certificate_due {
            installation.serve(&certificates, &observed).await?;
        }
        if !matches!(csv.status.phase, Phase::None | Phase::Replacing | Phase::Deleting) {
            copies::copy(csv, group, &identity, condition, cx).await?;
        }
        let requirements = facts.requirements.1.clone();
        match next(csv, &facts) {
            Step::Enter(phase, reason, message) => enter(csv, phase, reason, &message, Some(requirements), cx).await,
            Step::Install => installation.install(certificates, config.as_ref(), &observed).await,
            Step::InstallAgain => {
                installation.apply(workloads).await?;
                Ok(Action::requeue())
            }
            Step::Delete => {
                cx.delete(csv).await?;
                Ok(Action::done())
            }
            Step::Wait(time) => {
                let mut denied = denied;
                if csv.status.phase == Phase::Succeeded {
                    denied = denied.or(installation.maintain(&observed, workloads).await?);
                }
                let time = if identity.wrote() { Some(NEXT_STEP) } else { time };
                self.rest(csv, requirements, time, denied, &certificates, cx).await
            }
        }
    }

    /// Waits for a change, and for times at which something is due.
    async fn rest(
        &self,
        csv: &ClusterServiceVersion,
        requirements: Vec<RequirementStatus>,
        time: Option<Duration>,
        denied: Option<String>,
        certificates: &Certificates,
        cx: &Cx,
    ) -> Result<Action> {
        let is_checked = matches!(csv.status.phase, Phase::Pending | Phase::Succeeded);
        if is_checked && csv.status.requirement_status != requirements {
            let mut wanted = csv.status.clone();
            wanted.requirement_status = requirements;
            merge_patch(cx, csv, "status", &status::patch(&wanted)).await?;
        }
        if let Some(why) = &denied {
            cx.event(Event::warning("PermissionsDenied", why.clone()));
        }
        // A certificate that is due now is renewed by the step of its phase, if there is one.
        let renewals = certificates.values().flatten().filter_map(ServingCertificate::renewal);
        let renewal = renewals.filter_map(|at| Duration::try_from(at.duration_since(cx.now())).ok()).min();
        let retry = denied.map(|_| PERMISSION_PERIOD);
        let next = [time, renewal, retry].into_iter().flatten().min();
        Ok(next.map_or_else(Action::done, |time| Action::requeue_after(time.max(NEXT_STEP))))
    }
}

/// A ClusterServiceVersion with all that is needed to apply its objects.
struct Installation<'a> {
    csv: &'a ClusterServiceVersion,
    group: &'a OperatorGroup,
    condition: &'a Value,
    identity: &'a Identity,
    cx: &'a Cx,
}

impl Installation<'_> {
    async fn apply(&self, objects: Vec<Value>) -> Result<()> {
        self.identity.apply(self.cx, self.condition, objects).await
    }

    /// Applies the service accounts and their permissions; returns an explanation if the API server refuses one.
    ///
    /// Permissions that were edited or deleted are restored as long as the operator is installed.
    async fn grant(&self, rights: &[Value]) -> Result<Option<String>> {
        let is_installed = !matches!(self.csv.status.phase, Phase::None | Phase::Replacing | Phase::Deleting);
        if !is_installed {
            return Ok(None);
        }
        match self.apply(rights.to_vec()).await {
            Err(error) if is_refusal(&error) => Ok(Some(error.to_string())),
            applied => applied.map(|()| None),
        }
    }

    /// Observes the facts that determine the next step.
    async fn facts<'f>(
        &self,
        siblings: &'f Siblings,
        hold: Option<String>,
        observed: &ClusterObjects,
        certificates: &Certificates,
        workloads: &[Value],
    ) -> Result<Facts<'f>> {
        let (csv, cx) = (self.csv, self.cx);
        let certificate = |deployment: &str| certificates.get(deployment).cloned().flatten();
        let conversions = conversions(csv, certificate);
        let invalid_webhook = check_webhooks(csv).and(conversions.as_ref().map(|_| ()).map_err(Clone::clone)).err();
        let conversions = conversions.unwrap_or_default();
        let (now, deployments) = (cx.now(), observe::deployments(csv, cx).await?);
        let is_due = |found: &Option<ServingCertificate>| found.as_ref().is_none_or(|found| found.is_due(now));
        Ok(Facts {
            now,
            upgrade_strategy: self.group.spec.upgrade_strategy,
            replaced: siblings.replaced_by(csv),
            replacement: siblings.replacement_of(csv),
            newest: siblings.newest_after(csv),
            hold,
            requirements: requirements(csv, observed, &role_names(csv)),
            owner_conflict: observe::owner_conflict(csv, siblings, observed, &deployments),
            invalid_strategy: observe::invalid_strategy(csv),
            invalid_webhook: invalid_webhook.map(|error| error.to_string()),
            certificate_due: certificates.values().any(is_due),
            health: health(csv, workloads, &deployments),
            api_services_available: observe::are_apis_available(csv, observed),
            webhooks_installed: observe::are_webhooks_installed(csv, &conversions, observed, cx).await?,
        })
    }

    /// Applies the Services, webhooks, conversions and APIServices.
    async fn serve(&self, certificates: &Certificates, observed: &ClusterObjects) -> Result<()> {
        if certificates.is_empty() {
            return Ok(());
        }
        let mut servers = desired::servers(self.csv, self.group, certificates);
        for server in &mut servers {
            observe::avoid_foreign_binding(self.csv, server, self.cx).await?;
        }
        self.apply(servers).await?;
        let certificate = |deployment: &str| certificates.get(deployment).cloned().flatten();
        for (crd, conversion) in conversions(self.csv, certificate).unwrap_or_default() {
            let Some(definition) = observed.definitions.get(&crd) else { continue };
            // The API server adds the port and other defaults.
            let known = definition.spec.conversion.as_ref();
            if known.is_some_and(|known| super::write::has_fields(known, &conversion)) {
                continue;
            }
            if definition.spec.preserve_unknown_fields == Some(true) {
                return Err(Error::from(format!(
                    "CRD {crd}: spec.preserveUnknownFields must be false for a conversion webhook"
                ))
                .terminal());
            }
            let patch = json!({"spec": {"conversion": conversion}});
            self.identity.patch_definition(self.cx, definition, &patch).await?;
        }
        Ok(())
    }

    /// Issues certificates, and applies all objects of the operator.
    async fn install(
        &self,
        mut certificates: Certificates,
        config: Option<&crate::api::SubscriptionConfig>,
        observed: &ClusterObjects,
    ) -> Result<Action> {
        let (csv, cx) = (self.csv, self.cx);
        let issued = match self.issue(&mut certificates).await {
            Ok(issued) => issued,
            Err(error) => return self.failed(error).await,
        };
        let applied = async {
            self.serve(&certificates, observed).await?;
            self.apply(desired::workloads(csv, config, &certificates)).await?;
            let wanted: Vec<&str> =
                csv.spec.details().deployments.iter().map(|deployment| deployment.name.as_str()).collect();
            for deployment in owned_deployments(csv, cx).await? {
                if !wanted.contains(&deployment.name_any().as_str()) {
                    cx.delete(&deployment).await?;
                }
            }
            Ok(())
        };
        if let Err(error) = applied.await {
            return self.failed(error).await;
        }
        let mut wanted = csv.status.clone();
        if let Some(rotate_at) = issued {
            wanted.certs_last_updated = Some(Time(cx.now()));
            wanted.certs_rotate_at = Some(Time(rotate_at));
        }
        let message = "waiting for install components to report healthy";
        status::enter(&mut wanted, Phase::Installing, "InstallSucceeded", message, cx.now());
        write_status(csv, &wanted, cx).await
    }

    /// Issues the certificates that are missing or due; returns the time at which they have to be replaced.
    async fn issue(&self, certificates: &mut Certificates) -> Result<Option<flyball_core::time::Timestamp>> {
        let (now, namespace) = (self.cx.now(), self.csv.namespace().unwrap_or_default());
        let mut renewal = None;
        for (deployment, certificate) in certificates {
            if certificate.as_ref().is_some_and(|known| !known.is_due(now)) {
                // Its owner may be the version that is being replaced.
                let known = certificate.as_ref().map(|known| known.secret(self.csv, deployment));
                self.apply(known.into_iter().collect()).await?;
                continue;
            }
            let new = ServingCertificate::issue(deployment, &namespace, now)?;
            self.apply(vec![new.secret(self.csv, deployment)]).await?;
            renewal = renewal.max(new.renewal());
            *certificate = Some(new);
        }
        Ok(renewal)
    }

    /// Records a failure that the API server will return again; other errors are retried.
    async fn failed(&self, error: Error) -> Result<Action> {
        if !is_refusal(&error) {
            return Err(error);
        }
        let denied = error.status().is_some_and(kube::core::Status::is_forbidden);
        let message = format!("install strategy failed: {error}");
        let reason = if denied { "InstallComponentFailedNoRetry" } else { "InstallComponentFailed" };
        enter(self.csv, Phase::Failed, reason, &message, None, self.cx).await
    }

    /// Puts back what was edited, and applies the roles for users of the APIs; returns an explanation if the API server
    /// refuses these roles, without which the operator runs as well.
    async fn maintain(&self, observed: &ClusterObjects, workloads: Vec<Value>) -> Result<Option<String>> {
        let crds = observed.definitions.iter().map(|(name, definition)| (name, definition.uid()));
        let services = observed.api_services.iter().map(|(name, service)| (name, service.uid()));
        let uids = crds.chain(services).filter_map(|(name, uid)| Some((name.clone(), uid?))).collect();
        // They give rights in all namespaces: an account that has them may pass them on.
        let roles = self.apply(api_roles(self.csv, &uids)).await;
        self.apply(workloads).await?;
        match roles {
            Err(error) if is_refusal(&error) => Ok(Some(error.to_string())),
            applied => applied.map(|()| None),
        }
    }
}

/// Returns true if the API server will refuse the request again.
fn is_refusal(error: &Error) -> bool {
    error.status().is_some_and(|status| matches!(status.code, 400 | 403 | 422))
}

/// Returns true if the components of an operator exist.
fn is_running(csv: &ClusterServiceVersion) -> bool {
    matches!(csv.status.phase, Phase::Installing | Phase::Succeeded)
}

async fn owned_deployments(csv: &ClusterServiceVersion, cx: &Cx) -> Result<Vec<Deployment>> {
    cx.list_by::<ByOwner<Deployment>>(&name_of(csv)).await
}

async fn set_finalizer(csv: &ClusterServiceVersion, wanted: bool, cx: &Cx) -> Result<()> {
    let mut finalizers: Vec<&str> =
        csv.finalizers().iter().map(String::as_str).filter(|name| *name != labels::CSV_CLEANUP).collect();
    let mut metadata = json!({});
    if wanted {
        finalizers.push(labels::CSV_CLEANUP);
        metadata["labels"] = json!({labels::MANAGED: "true"});
    }
    metadata["finalizers"] = json!(finalizers);
    merge_patch(cx, csv, "", &json!({"metadata": metadata})).await?;
    Ok(())
}

/// Changes the phase, and reports it as an event.
async fn enter(
    csv: &ClusterServiceVersion,
    phase: Phase,
    reason: &str,
    message: &str,
    requirements: Option<Vec<RequirementStatus>>,
    cx: &Cx,
) -> Result<Action> {
    let mut wanted = csv.status.clone();
    // OLM shows requirements once they were checked.
    if let Some(requirements) = requirements.filter(|_| csv.status.phase != Phase::None) {
        wanted.requirement_status = requirements;
    }
    status::enter(&mut wanted, phase, reason, message, cx.now());
    write_status(csv, &wanted, cx).await
}

async fn write_status(
    csv: &ClusterServiceVersion,
    wanted: &crate::api::ClusterServiceVersionStatus,
    cx: &Cx,
) -> Result<Action> {
    merge_patch(cx, csv, "status", &status::patch(wanted)).await?;
    cx.event(match wanted.phase {
        Phase::Failed => Event::warning(&wanted.reason, &wanted.message),
        _ => Event::normal(&wanted.reason, &wanted.message),
    });
    let is_denied = wanted.reason == "InstallComponentFailedNoRetry";
    Ok(Action::requeue_after(if is_denied { PERMISSION_PERIOD } else { NEXT_STEP }))
}

/// Returns the controller of ClusterServiceVersions.
pub(super) fn controller() -> Controller<impl Reconcile> {
    let mut controller = Controller::new(ClusterServiceVersions::default())
        .while_deleting()
        .owns::<ClusterServiceVersion>()
        .owns::<MutatingWebhookConfiguration>()
        .owns::<ValidatingWebhookConfiguration>()
        .owns::<APIService>()
        .owns::<ClusterRole>()
        .owns::<ClusterRoleBinding>()
        .owns::<RoleBinding>()
        .owns::<Deployment>();
    for kind in kinds() {
        controller = controller.dynamic(&kind).owns();
    }
    let controller = watch_components(controller);
    controller
        .allows(rule(crate::api::GROUP, &["clusterserviceversions", "clusterserviceversions/status"], &["patch"]))
        .allows(rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["patch"]))
        // Roles of operators may have permissions that the manager does not have.
        .allows(rule("rbac.authorization.k8s.io", &["roles", "clusterroles"], &["bind", "escalate"]))
        .allows(rule("", &["serviceaccounts"], &["impersonate"]))
}

/// Declares the objects whose changes concern ClusterServiceVersions.
fn watch_components(controller: Controller<ClusterServiceVersions>) -> Controller<ClusterServiceVersions> {
    fn owned<T: Resource>(controller: Controller<ClusterServiceVersions>) -> Controller<ClusterServiceVersions> {
        controller.index::<ByOwner<T>>().watches::<T>(|object, _| Ok(owners(object.meta())))
    }
    fn beside<T: Resource>(controller: Controller<ClusterServiceVersions>) -> Controller<ClusterServiceVersions> {
        controller.watches_by_key::<T>(|key, caches| caches.keys::<ClusterServiceVersion>(key.namespace()))
    }
    let controller = owned::<Deployment>(controller);
    let controller = owned::<Service>(controller);
    let controller = owned::<Secret>(controller);
    let controller = owned::<Role>(controller);
    let controller = owned::<RoleBinding>(controller);
    let controller = owned::<ClusterRole>(controller);
    let controller = owned::<ClusterRoleBinding>(controller);
    let controller = owned::<MutatingWebhookConfiguration>(controller);
    let controller = owned::<ValidatingWebhookConfiguration>(controller);
    let controller = beside::<ServiceAccount>(controller);
    let controller = beside::<OperatorCondition>(controller);
    let controller = beside::<Subscription>(controller);
    let controller = beside::<ClusterServiceVersion>(controller);
    let all = |_: &ObjectKey, caches: &flyball::Caches| originals(caches);
    controller
        .index::<CopiesOf>()
        .index::<ByOwner<APIService>>()
        // Those of a chain, and the original of a copy.
        .watches::<ClusterServiceVersion>(|csv, _| {
            Ok(csv.copied_from().map(|from| ObjectKey::new(Some(from), &csv.name_any())).into_iter().collect())
        })
        .watches_by_key::<OperatorGroup>(all)
        .watches_by_key::<Namespace>(all)
        .watches_by_key::<OlmConfig>(all)
        .filter::<OperatorGroup>(group_changes())
        .filter::<Namespace>(Predicate::labels())
        .filter::<Definition>(definition_changes())
        .refers_to::<Definition>(|csv| {
            let crds = csv.spec.crds.owned.iter().chain(&csv.spec.crds.required);
            crds.map(|crd| ObjectKey::new(None, &crd.name)).collect()
        })
        .refers_to::<APIService>(|csv| {
            let apis = csv.spec.api_services.owned.iter().chain(&csv.spec.api_services.required);
            apis.map(|api| ObjectKey::new(None, &api.api_service_name())).collect()
        })
}

/// Returns the ClusterServiceVersions in the namespaces with OperatorGroups: originals are nowhere else, unless they
/// have failed.
fn originals(caches: &flyball::Caches) -> Result<Vec<ObjectKey>> {
    let mut keys = Vec::new();
    let mut namespaces: Vec<ObjectKey> = caches.keys::<OperatorGroup>(None)?;
    namespaces.dedup_by(|one, other| one.namespace() == other.namespace());
    for group in namespaces {
        keys.extend(caches.keys::<ClusterServiceVersion>(group.namespace())?);
    }
    Ok(keys)
}
