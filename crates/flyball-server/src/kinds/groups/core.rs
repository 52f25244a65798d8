//! Kinds of the core group.

use crate::kinds::kind::{Checks, Deletion, Kind, Subresource as Sub, Verbs};
use crate::kinds::{
    apps, config, defaults, event, namespace, network, node, pod, policy, printers, quota, service, storage, workload,
};
use flyball_core::names::dns_label;

const GROUP: &str = "";

pub(super) const KINDS: &[Kind] = &[
    Kind::new(GROUP, "v1", "Binding", "bindings").verbs(Verbs::CreateOnly),
    Kind::new(GROUP, "v1", "ComponentStatus", "componentstatuses")
        .printed(printers::cluster::component)
        .short(&["cs"])
        .cluster()
        .verbs(Verbs::ReadOnly),
    Kind::new(GROUP, "v1", "ConfigMap", "configmaps")
        .printed(printers::configuration::config_map)
        .checks(Checks::Whole)
        .validate(config::config_map)
        .short(&["cm"]),
    Kind::new(GROUP, "v1", "Endpoints", "endpoints")
        .registry_path("services/endpoints")
        .deprecated(network::ENDPOINTS_DEPRECATION)
        .printed(printers::network::endpoints)
        .default(defaults::endpoints)
        .checks(Checks::Whole)
        .validate(network::endpoints)
        .short(&["ep"])
        .create_on_update(),
    Kind::new(GROUP, "v1", "Event", "events")
        .printed(printers::event::core)
        .checks(Checks::Once)
        .validate(event::validate_core)
        .short(&["ev"])
        .create_on_update()
        .fields(event::CORE_FIELDS, event::field),
    Kind::new(GROUP, "v1", "LimitRange", "limitranges")
        .default(defaults::limit_range)
        .validate(quota::limit_range)
        .short(&["limits"])
        .create_on_update(),
    Kind::new(GROUP, "v1", "Namespace", "namespaces")
        .deletion(Deletion { outlives: namespace::is_held, mark: namespace::mark, ..Deletion::AT_ONCE })
        .printed(printers::cluster::namespace)
        .validate(policy::namespace)
        .checks(Checks::Whole)
        .short(&["ns"])
        .cluster()
        .verbs(Verbs::NoCollection)
        .subresources(&[Sub::FINALIZE, Sub::STATUS])
        .name_rule(dns_label)
        .deleted_as_object()
        .paths(&["status.phase"])
        .default(namespace::default)
        .prepare(namespace::prepare),
    Kind::new(GROUP, "v1", "Node", "nodes")
        .registry_path("minions")
        .created_with_status()
        .printed(printers::cluster::node)
        .default(defaults::node)
        .checks(Checks::Whole)
        .prepare(|node, _, _, _| policy::unite_pod_cidrs(node))
        .validate(policy::node)
        .short(&["no"])
        .cluster()
        .subresources(&[Sub::NODE_PROXY, Sub::STATUS])
        .fields(&["spec.unschedulable"], node::unschedulable),
    Kind::new(GROUP, "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
        .printed(printers::storage::claim)
        .default(defaults::claim)
        .checks(Checks::Whole)
        .prepare(storage::prepare_claim)
        .validate(storage::validate_claim)
        .short(&["pvc"])
        .subresources(&[Sub::STATUS])
        .deleted_as_object(),
    Kind::new(GROUP, "v1", "PersistentVolume", "persistentvolumes")
        .printed(printers::storage::volume)
        .default(defaults::volume)
        .checks(Checks::Whole)
        .prepare(storage::prepare_volume)
        .warn(storage::warn_of_volume)
        .validate(storage::validate_volume)
        .short(&["pv"])
        .cluster()
        .subresources(&[Sub::STATUS])
        .deleted_as_object(),
    Kind::new(GROUP, "v1", "Pod", "pods")
        .deletion(Deletion { grace: Some(pod::grace), ..Deletion::AT_ONCE })
        .printed(printers::pod::pod)
        .default(pod::default)
        .checks(Checks::Whole)
        .warn(pod::warn)
        .prepare(pod::prepare)
        .validate(pod::validate)
        .short(&["po"])
        .category("all")
        .generation()
        .deleted_as_object()
        .subresources(&[
            Sub::ATTACH,
            Sub::BINDING,
            Sub::EPHEMERAL,
            Sub::EVICTION,
            Sub::EXEC,
            Sub::LOG,
            Sub::PORT_FORWARD,
            Sub::POD_PROXY,
            Sub::RESIZE,
            Sub::STATUS,
        ])
        .paths(&[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]),
    Kind::new(GROUP, "v1", "PodTemplate", "podtemplates")
        .printed(printers::workload::pod_template)
        .default(workload::pod_template)
        .warn(apps::warn_of_pod_template)
        .validate(apps::pod_template)
        .generation()
        .deleted_as_object(),
    Kind::new(GROUP, "v1", "ReplicationController", "replicationcontrollers")
        .deletion(Deletion { orphans: true, ..Deletion::AT_ONCE })
        .scale_selector(".spec.selector")
        .registry_path("controllers")
        .printed(printers::workload::replication_controller)
        .default(workload::replication_controller)
        .warn(apps::warn)
        .validate(apps::replication_controller)
        .short(&["rc"])
        .category("all")
        .generation()
        .subresources(&[Sub::SCALE, Sub::STATUS])
        .paths(&["status.replicas"]),
    Kind::new(GROUP, "v1", "ResourceQuota", "resourcequotas")
        .printed(printers::configuration::resource_quota)
        .validate(quota::resource_quota)
        .short(&["quota"])
        .subresources(&[Sub::STATUS])
        .deleted_as_object(),
    Kind::new(GROUP, "v1", "Secret", "secrets")
        .printed(printers::configuration::secret)
        .default(defaults::secret)
        .warn(config::warn_of_secret)
        .checks(Checks::Whole)
        .validate(config::secret)
        .paths(&["type"]),
    Kind::new(GROUP, "v1", "ServiceAccount", "serviceaccounts")
        .printed(printers::configuration::named)
        .checks(Checks::Whole)
        .warn(config::warn_of_account)
        .short(&["sa"])
        .subresources(&[Sub::TOKEN])
        .deleted_as_object(),
    Kind::new(GROUP, "v1", "Service", "services")
        .given_addresses()
        .registry_path("services/specs")
        .printed(printers::network::service)
        .default(service::default)
        .name_rule(dns_label)
        .warn(service::warn)
        .prepare(service::prepare)
        .validate(service::validate)
        .short(&["svc"])
        .category("all")
        .create_on_update()
        .deleted_as_object()
        .subresources(&[Sub::SERVICE_PROXY, Sub::STATUS])
        .paths(&["spec.clusterIP", "spec.type"]),
];
