//! The list of all built-in kinds, by group in the order in which discovery names them.

use super::kind::{Checks, Kind, Subresource as Sub, Verbs};
use super::{
    access, admission_policy, apps, attachment, batch, certificate, config, defaults, device, event, flow, job,
    namespace, network, node, pod, policy, printers, quota, registration, scaling, scaling_v1, service, storage,
    webhook, workload,
};
use flyball_core::names::{dns_label, path_segment};
use flyball_schema::notation::Library;
use flyball_schema::schema::Root;
use std::sync::LazyLock;

const fn kind(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind::new(group, version, kind, plural)
}

const CORE: &str = "";
const ADMISSION: &str = "admissionregistration.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const DEVICES: &str = "resource.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const EXTENSIONS: &str = "api-extensions";

/// All built-in kinds.
#[rustfmt::skip]
pub(crate) static KINDS: &[Kind] = &[
    kind(CORE, "v1", "Binding", "bindings").verbs(Verbs::CreateOnly),
    kind(CORE, "v1", "ComponentStatus", "componentstatuses").printed(printers::cluster::component).short(&["cs"]).cluster().verbs(Verbs::ReadOnly),
    kind(CORE, "v1", "ConfigMap", "configmaps").printed(printers::configuration::config_map).checks(Checks::Whole).validate(config::config_map).short(&["cm"]),
    kind(CORE, "v1", "Endpoints", "endpoints").printed(printers::network::endpoints).default(defaults::endpoints).checks(Checks::Whole).validate(network::endpoints).short(&["ep"]).create_on_update(),
    kind(CORE, "v1", "Event", "events").printed(printers::event::core).checks(Checks::Once).validate(event::validate_core).short(&["ev"]).create_on_update().fields(event::CORE_FIELDS, event::field),
    kind(CORE, "v1", "LimitRange", "limitranges").default(defaults::limit_range).validate(quota::limit_range).short(&["limits"]).create_on_update(),
    kind(CORE, "v1", "Namespace", "namespaces").printed(printers::cluster::namespace).validate(policy::namespace).checks(Checks::Whole).short(&["ns"]).cluster().verbs(Verbs::NoCollection)
        .subresources(&[Sub::FINALIZE, Sub::STATUS]).name_rule(dns_label).deleted_as_object()
        .paths(&["status.phase"]).default(namespace::default).prepare(namespace::prepare),
    kind(CORE, "v1", "Node", "nodes").printed(printers::cluster::node).default(defaults::node).checks(Checks::Whole).prepare(|node, _, _, _| policy::unite_pod_cidrs(node)).validate(policy::node).short(&["no"]).cluster().subresources(&[Sub::NODE_PROXY, Sub::STATUS])
        .fields(&["spec.unschedulable"], node::unschedulable),
    kind(CORE, "v1", "PersistentVolumeClaim", "persistentvolumeclaims").printed(printers::storage::claim).default(defaults::claim).checks(Checks::Whole).prepare(storage::prepare_claim).validate(storage::validate_claim).short(&["pvc"]).subresources(&[Sub::STATUS]).deleted_as_object(),
    kind(CORE, "v1", "PersistentVolume", "persistentvolumes").printed(printers::storage::volume).default(defaults::volume).checks(Checks::Whole).prepare(storage::prepare_volume).warn(storage::warn_of_volume).validate(storage::validate_volume).short(&["pv"]).cluster().subresources(&[Sub::STATUS]).deleted_as_object(),
    kind(CORE, "v1", "Pod", "pods").printed(printers::pod::pod).default(pod::default).checks(Checks::Whole).warn(pod::warn).prepare(pod::prepare).validate(pod::validate).short(&["po"]).category("all").generation().deleted_as_object()
        .subresources(&[Sub::ATTACH, Sub::BINDING, Sub::EPHEMERAL, Sub::EVICTION, Sub::EXEC, Sub::LOG, Sub::PORT_FORWARD, Sub::POD_PROXY, Sub::RESIZE, Sub::STATUS])
        .paths(&["spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
                 "status.phase", "status.podIP", "status.nominatedNodeName"]),
    kind(CORE, "v1", "PodTemplate", "podtemplates").printed(printers::workload::pod_template).default(workload::pod_template).warn(apps::warn_of_pod_template).validate(apps::pod_template).generation().deleted_as_object(),
    kind(CORE, "v1", "ReplicationController", "replicationcontrollers").printed(printers::workload::replication_controller).default(workload::replication_controller).warn(apps::warn).validate(apps::replication_controller).short(&["rc"]).category("all").generation()
        .subresources(&[Sub::SCALE, Sub::STATUS]).paths(&["status.replicas"]),
    kind(CORE, "v1", "ResourceQuota", "resourcequotas").printed(printers::configuration::resource_quota).validate(quota::resource_quota).short(&["quota"]).subresources(&[Sub::STATUS]).deleted_as_object(),
    kind(CORE, "v1", "Secret", "secrets").printed(printers::configuration::secret).default(defaults::secret).warn(config::warn_of_secret).checks(Checks::Whole).validate(config::secret).paths(&["type"]),
    kind(CORE, "v1", "ServiceAccount", "serviceaccounts").printed(printers::configuration::named).checks(Checks::Whole).warn(config::warn_of_account).short(&["sa"]).subresources(&[Sub::TOKEN]).deleted_as_object(),
    kind(CORE, "v1", "Service", "services").printed(printers::network::service).default(service::default).name_rule(dns_label).warn(service::warn).prepare(service::prepare).validate(service::validate).short(&["svc"]).category("all").create_on_update().deleted_as_object()
        .subresources(&[Sub::SERVICE_PROXY, Sub::STATUS]).paths(&["spec.clusterIP", "spec.type"]),

    kind("apiregistration.k8s.io", "v1", "APIService", "apiservices").printed(printers::cluster::api_service).default(registration::default).prepare(registration::prepare).validate(registration::validate).checks(Checks::Whole).category(EXTENSIONS).cluster().subresources(&[Sub::STATUS]),

    kind("apps", "v1", "ControllerRevision", "controllerrevisions").printed(printers::workload::controller_revision).checks(Checks::Whole).validate(apps::controller_revision),
    kind("apps", "v1", "DaemonSet", "daemonsets").printed(printers::workload::daemon_set).default(workload::daemon_set).warn(apps::warn).prepare(apps::prepare_daemon_set).validate(apps::daemon_set).short(&["ds"]).category("all").generation().subresources(&[Sub::STATUS]),
    kind("apps", "v1", "Deployment", "deployments").printed(printers::workload::deployment).default(workload::deployment).warn(apps::warn_of_deployment).validate(apps::deployment).short(&["deploy"]).category("all").generation().subresources(&[Sub::SCALE, Sub::STATUS]),
    kind("apps", "v1", "ReplicaSet", "replicasets").printed(printers::workload::replica_set).default(workload::replica_set).warn(apps::warn).validate(apps::replica_set).short(&["rs"]).category("all").generation().subresources(&[Sub::SCALE, Sub::STATUS]),
    kind("apps", "v1", "StatefulSet", "statefulsets").printed(printers::workload::stateful_set).default(workload::stateful_set).name_rule(dns_label).prepare(apps::prepare_stateful_set).warn(apps::warn_of_stateful_set).validate(apps::stateful_set).short(&["sts"]).category("all").generation().subresources(&[Sub::SCALE, Sub::STATUS]),

    kind("events.k8s.io", "v1", "Event", "events").printed(printers::event::new).checks(Checks::Once).validate(event::validate_new).short(&["ev"]).create_on_update().fields(event::NEW_FIELDS, event::field)
        .stored_as(CORE, event::to_core, event::from_core),

    kind(AUTHENTICATION, "v1", "SelfSubjectReview", "selfsubjectreviews").cluster().verbs(Verbs::CreateOnly),
    kind(AUTHENTICATION, "v1", "TokenReview", "tokenreviews").cluster().verbs(Verbs::CreateOnly),

    kind(AUTHORIZATION, "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews").verbs(Verbs::CreateOnly),
    kind(AUTHORIZATION, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews").cluster().verbs(Verbs::CreateOnly),
    kind(AUTHORIZATION, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews").cluster().verbs(Verbs::CreateOnly),
    kind(AUTHORIZATION, "v1", "SubjectAccessReview", "subjectaccessreviews").cluster().verbs(Verbs::CreateOnly),

    kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers").printed(printers::scaling::autoscaler).default(defaults::autoscaler).validate(scaling::validate).short(&["hpa"]).category("all").subresources(&[Sub::STATUS]),
    kind("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers").printed(printers::scaling::first_version).default(defaults::first_autoscaler).validate(scaling::validate_v1).short(&["hpa"]).category("all").subresources(&[Sub::STATUS])
        .stored_as("autoscaling", scaling_v1::to_v2, scaling_v1::from_v2),

    kind("batch", "v1", "CronJob", "cronjobs").printed(printers::workload::cron_job).default(workload::cron_job).warn(batch::warn_of_cron_job).validate(batch::cron_job).short(&["cj"]).category("all").generation().subresources(&[Sub::STATUS]),
    kind("batch", "v1", "Job", "jobs").printed(printers::workload::job).default(workload::job).checks(Checks::Whole).warn(batch::warn_of_job).prepare(batch::prepare_job).validate(batch::job).category("all").generation().subresources(&[Sub::STATUS])
        .fields(&["status.successful"], job::successful),

    kind("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests").printed(printers::configuration::signing_request).prepare(certificate::prepare).validate(certificate::signing_request).short(&["csr"]).cluster()
        .subresources(&[Sub::APPROVAL, Sub::STATUS]).paths(&["spec.signerName"]),

    kind(NETWORKING, "v1", "IngressClass", "ingressclasses").printed(printers::network::ingress_class).default(defaults::ingress_class).checks(Checks::Whole).validate(network::ingress_class).cluster().generation(),
    kind(NETWORKING, "v1", "Ingress", "ingresses").printed(printers::network::ingress).checks(Checks::Whole).warn(network::warn_of_ingress).validate(network::ingress).short(&["ing"]).generation().subresources(&[Sub::STATUS]),
    kind(NETWORKING, "v1", "IPAddress", "ipaddresses").printed(printers::network::ip_address).short(&["ip"]).cluster(),
    kind(NETWORKING, "v1", "NetworkPolicy", "networkpolicies").printed(printers::network::network_policy).default(defaults::network_policy).warn(network::warn_of_policy).validate(network::network_policy).short(&["netpol"]).generation(),
    kind(NETWORKING, "v1", "ServiceCIDR", "servicecidrs").printed(printers::network::service_cidr).cluster().subresources(&[Sub::STATUS]),

    kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets").printed(printers::workload::disruption_budget).checks(Checks::Once).validate(policy::disruption_budget).short(&["pdb"]).generation().versioned_updates().subresources(&[Sub::STATUS]),

    kind(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings").printed(printers::configuration::role_binding).default(defaults::role_binding).checks(Checks::Whole).validate(access::cluster_role_binding).cluster().create_on_update().name_rule(path_segment),
    kind(RBAC, "v1", "ClusterRole", "clusterroles").checks(Checks::Whole).validate(access::cluster_role).cluster().create_on_update().name_rule(path_segment),
    kind(RBAC, "v1", "RoleBinding", "rolebindings").printed(printers::configuration::role_binding).default(defaults::role_binding).checks(Checks::Whole).validate(access::role_binding).create_on_update().name_rule(path_segment),
    kind(RBAC, "v1", "Role", "roles").checks(Checks::Whole).validate(access::role).create_on_update().name_rule(path_segment),

    kind(STORAGE, "v1", "CSIDriver", "csidrivers").printed(printers::storage::csi_driver).default(defaults::csi_driver).validate(attachment::driver).cluster().versioned_updates().deleted_as_object(),
    kind(STORAGE, "v1", "CSINode", "csinodes").printed(printers::storage::csi_node).validate(attachment::node).cluster().versioned_updates().deleted_as_object(),
    kind(STORAGE, "v1", "CSIStorageCapacity", "csistoragecapacities").versioned_updates(),
    kind(STORAGE, "v1", "StorageClass", "storageclasses").printed(printers::storage::storage_class).default(defaults::storage_class).checks(Checks::Whole).validate(storage::validate_class).short(&["sc"]).cluster().deleted_as_object(),
    kind(STORAGE, "v1", "VolumeAttachment", "volumeattachments").printed(printers::storage::attachment).validate(attachment::attachment).cluster().versioned_updates().deleted_as_object().subresources(&[Sub::STATUS]),
    kind(STORAGE, "v1", "VolumeAttributesClass", "volumeattributesclasses").printed(printers::storage::attributes_class).short(&["vac"]).cluster().deleted_as_object(),

    kind(ADMISSION, "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies").validate(admission_policy::mutating).printed(printers::configuration::mutating_policy).default(defaults::admission_policy).category(EXTENSIONS).cluster().generation().versioned_updates(),
    kind(ADMISSION, "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings").validate(admission_policy::mutating_binding).printed(printers::configuration::policy_binding).default(defaults::policy_binding).category(EXTENSIONS).cluster().generation().versioned_updates(),
    kind(ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations").printed(printers::configuration::webhooks).default(defaults::mutating_webhooks).validate(webhook::mutating).category(EXTENSIONS).cluster().generation().versioned_updates(),
    kind(ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies").validate(admission_policy::validating).printed(printers::configuration::validating_policy).default(defaults::admission_policy).category(EXTENSIONS).cluster().generation().versioned_updates()
        .subresources(&[Sub::STATUS]),
    kind(ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings").validate(admission_policy::validating_binding).printed(printers::configuration::policy_binding).default(defaults::policy_binding).category(EXTENSIONS).cluster().generation().versioned_updates(),
    kind(ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations").printed(printers::configuration::webhooks).default(defaults::validating_webhooks).validate(webhook::validating).category(EXTENSIONS).cluster().generation().versioned_updates(),

    kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions").short(&["crd", "crds"]).category(EXTENSIONS).cluster()
        .generation().versioned_updates().deleted_as_object().subresources(&[Sub::STATUS])
        .default(crate::custom::default).prepare(crate::custom::prepare).validate(crate::custom::validate).warn(crate::custom::warn),

    kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses").printed(printers::configuration::priority_class).default(defaults::priority_class).prepare(policy::prepare_priority_class).validate(policy::priority_class).short(&["pc"]).cluster(),

    kind("coordination.k8s.io", "v1", "Lease", "leases").printed(printers::configuration::lease).prepare(policy::prepare_lease).validate(policy::lease).create_on_update().versioned_updates(),

    kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses").printed(printers::configuration::runtime_class).validate(policy::runtime_class).checks(Checks::Whole).cluster().create_on_update().versioned_updates(),

    kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices").printed(printers::network::endpoint_slice).default(defaults::endpoint_slice).warn(network::warn_of_slice).validate(network::endpoint_slice).generation(),

    kind(FLOW, "v1", "FlowSchema", "flowschemas").printed(printers::flow::schema).default(flow::default_schema).checks(Checks::Whole).validate(flow::schema).cluster().generation().subresources(&[Sub::STATUS]),
    kind(FLOW, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations").printed(printers::flow::level).default(flow::default_level).checks(Checks::Whole).validate(flow::level).cluster().generation().subresources(&[Sub::STATUS]),

    kind(DEVICES, "v1", "DeviceClass", "deviceclasses").printed(printers::configuration::named).checks(Checks::Whole).validate(device::class::validate).cluster().generation().deleted_as_object(),
    kind(DEVICES, "v1", "ResourceClaim", "resourceclaims").printed(printers::device::claim).default(device::claim::default).prepare(device::claim::prepare).checks(Checks::Whole).validate(device::claim::validate).deleted_as_object().subresources(&[Sub::STATUS]),
    kind(DEVICES, "v1", "ResourceClaimTemplate", "resourceclaimtemplates").printed(printers::configuration::named).default(device::template::default).validate(device::template::validate).deleted_as_object(),
    kind(DEVICES, "v1", "ResourceSlice", "resourceslices").printed(printers::device::slice).prepare(device::slice::prepare).warn(device::slice::warn).validate(device::slice::validate).cluster().generation().deleted_as_object()
        .paths(&["spec.driver", "spec.nodeName"]),
];

/// Kinds of what is sent to subresources and of what they show.
pub(crate) static ACTIONS: &[Kind] = &[
    kind("autoscaling", "v1", "Scale", "scales"),
    kind(AUTHENTICATION, "v1", "TokenRequest", "tokenrequests"),
    kind(CORE, "v1", "Binding", "bindings"),
    kind(CORE, "v1", "NodeProxyOptions", "nodeproxyoptions"),
    kind(CORE, "v1", "PodAttachOptions", "podattachoptions"),
    kind(CORE, "v1", "PodExecOptions", "podexecoptions"),
    kind(CORE, "v1", "PodPortForwardOptions", "podportforwardoptions"),
    kind(CORE, "v1", "PodProxyOptions", "podproxyoptions"),
    kind(CORE, "v1", "ServiceProxyOptions", "serviceproxyoptions"),
    kind("policy", "v1", "Eviction", "evictions"),
];

/// The types of all built-in kinds.
pub(crate) fn library() -> &'static Library {
    macro_rules! types {
        ($($file:literal)*) => { &[$(include_str!(concat!("types/", $file, ".types"))),*] };
    }
    static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
        Library::read(types! {
            "admissionregistration.k8s.io.v1" "apiextensions.k8s.io.v1" "apiregistration.k8s.io.v1" "apps.v1"
            "authentication.k8s.io.v1" "authorization.k8s.io.v1" "autoscaling.v1" "autoscaling.v2" "batch.v1"
            "certificates.k8s.io.v1" "coordination.k8s.io.v1" "core.v1" "discovery.k8s.io.v1" "events.k8s.io.v1"
            "flowcontrol.apiserver.k8s.io.v1" "networking.k8s.io.v1" "node.k8s.io.v1" "policy.v1" "rbac.authorization.k8s.io.v1"
            "resource.k8s.io.v1" "scheduling.k8s.io.v1"
            "storage.k8s.io.v1"
        })
    });
    &LIBRARY
}

/// Returns the schema of a built-in kind, by which strategic merge patches find their way; none if it is no built-in kind.
pub fn built_in_schema(api_version: &str, kind: &str) -> Option<Root> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or((CORE, api_version));
    let known = KINDS.iter().find(|known| (known.group, known.version, known.kind) == (group, version, kind))?;
    library().get(&known.package(), known.kind)
}
