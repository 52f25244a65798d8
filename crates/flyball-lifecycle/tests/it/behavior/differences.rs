//! Deliberate differences from OLM. `docs/olm.md` contains the same list: those of replays, those that the comparison
//! leaves out, and those that other tests show.

/// A difference in some scenarios. It has to occur in each of them.
pub(crate) struct Difference {
    /// The scenarios, by number.
    pub(crate) scenarios: &'static [&'static str],
    /// Pattern of the key of the object.
    pub(crate) object: &'static str,
    /// Pattern of the path in the object; `sequence` for a missing state, `until`, `removed`, `absent` or `new`.
    pub(crate) path: &'static str,
    /// The situation, as in the docs, which give the reason.
    pub(crate) situation: &'static str,
}

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        scenarios: &["06", "10"],
        object: r"ClusterServiceVersion (default|kube-.*|olm|demo-b)/(clash|front|pool|hooked)\..*",
        path: "absent|sequence|removed",
        situation: "CSVs of all namespaces",
    },
    Difference {
        scenarios: &["06", "06b"],
        object: "ClusterRole pool-reader",
        path: r"/metadata/labels/olm\.owner\.(kind|namespace)",
        situation: "ClusterRoles in a bundle",
    },
    Difference {
        scenarios: &["06", "06b"],
        object: "Subscription .*-demo-olm",
        path: r"/status/conditions\[\]|sequence",
        situation: "Generated Subscriptions of a complete InstallPlan",
    },
    Difference {
        scenarios: &["06"],
        object: "Subscription .*-demo-olm",
        path: "new",
        situation: "The InstallPlan of a Subscription is deleted",
    },
    Difference {
        scenarios: &["03b", "07", "14"],
        object: "ClusterServiceVersion .*",
        path: "/status/requirementStatus.*",
        situation: "Rules in `status.requirementStatus`",
    },
    Difference {
        scenarios: &["04"],
        object: r"ClusterServiceVersion demo-a/memo\.v2\.1\.0",
        path: r"/metadata/annotations/olm\.operatorGroup",
        situation: "Two OperatorGroups in a namespace",
    },
    Difference {
        scenarios: &["04"],
        object: "Subscription demo-a/memo",
        path: r"new|/status/conditions\[\]|/status/conditions\[ResolutionFailed\]/message",
        situation: "A namespace has no OperatorGroup, or several",
    },
    Difference {
        scenarios: &["04"],
        object: r"step|OperatorGroup demo-a/group|ClusterServiceVersion demo-a/memo\.v2\.1\.0",
        path: "until|new|sequence",
        situation: "A second OperatorGroup is deleted, a group is created for a failed CSV",
    },
    Difference {
        scenarios: &["10"],
        object: "Secret .*-service-cert",
        path: r"/metadata/annotations/openshift\.io/owning-component",
        situation: "Secrets with certificates",
    },
    Difference {
        scenarios: &["10"],
        object: r"ClusterServiceVersion demo-a/hooked\.v1\.0\.0",
        path: "sequence",
        situation: "CSV with webhooks",
    },
    Difference {
        scenarios: &["10"],
        object: r"ValidatingWebhookConfiguration vgate\..*",
        path: "removed|new",
        situation: "Roles, bindings, service accounts or webhook configurations are deleted or edited",
    },
    Difference {
        scenarios: &["10"],
        object: "RoleBinding kube-system/.*-auth-reader",
        path: "removed",
        situation: "Binding `…-auth-reader` in `kube-system`",
    },
    Difference {
        scenarios: &["17a", "17b"],
        object: r"ClusterServiceVersion demo-a/memo\..*|(OperatorCondition|Role|RoleBinding) demo-a/memo\.v(1\.9|3\.0)\.0",
        path: "absent|sequence|/status/(message|phase|reason)",
        situation: "A CRD of a bundle is refused",
    },
    Difference {
        scenarios: &["17a", "17b"],
        object: "InstallPlan demo-a/install-<2>",
        path: r"sequence|/status/plan\[.*\]/status",
        situation: "A CRD of a bundle is refused",
    },
    Difference {
        scenarios: &["17a", "17b"],
        object: r"Operator memo\.demo-a|OperatorGroup demo-a/group|ClusterRole olm\.og\.group\..*",
        path: r"/status/components/refs\[\]|/metadata/annotations/olm\.providedAPIs|/aggregationRule/.*|sequence|absent|new|/rules.*",
        situation: "A CRD of a bundle is refused",
    },
    Difference {
        scenarios: &["17a", "17b"],
        object: "Subscription demo-a/memo",
        path: r"sequence|/status/(conditions\[\]|installedCSV|state)",
        situation: "A CRD of a bundle is refused",
    },
    Difference {
        scenarios: &["07"],
        object: "Subscription demo-a/(memo|broken|worn)",
        path: "sequence|/status/.*",
        situation: "A Subscription cannot be satisfied",
    },
    Difference {
        scenarios: &["07"],
        object: r"InstallPlan demo-a/install-<[234]>|Operator (memo|worn)\.demo-a",
        path: r"sequence|new|/metadata/labels.*|/metadata/ownerReferences\[\]|/spec/clusterServiceVersionNames\[\]|/status/.*",
        situation: "A Subscription cannot be satisfied",
    },
    Difference {
        scenarios: &["07"],
        object: r"step|.* rags\.demo\.flyball\.dev.*|.* demo-a/worn[.-].*|OperatorGroup demo-a/group|ClusterRole olm\.og\.group\..*",
        path: "until|new|sequence|absent|removed",
        situation: "A Subscription cannot be satisfied",
    },
    Difference {
        scenarios: &["07", "13"],
        object: r"Operator (memo|broken)\.demo-a",
        path: "removed|absent",
        situation: "An Operator loses its last component",
    },
    Difference {
        scenarios: &["15"],
        object: "CatalogSource .*",
        path: "sequence|/status/(message|reason)",
        situation: "A catalog cannot be loaded",
    },
    Difference {
        scenarios: &["15"],
        object: "Subscription w-.*",
        path: "sequence|new|/status/.*",
        situation: "A catalog cannot be loaded",
    },
    Difference {
        scenarios: &["15"],
        object: r"step|.* w-cat/.*|Operator worn\.w-cat|.* rags\.demo\.flyball\.dev.*|ClusterRole olm\.og\.group\..*",
        path: r"until|new|sequence|absent|removed|/status/components/refs\[\]",
        situation: "A catalog cannot be loaded",
    },
];

/// Differences that the comparison leaves out, because they occur in most scenarios: `reduce` and `is_optional`.
pub(crate) const NORMALIZED: &[&str] =
    &["CatalogSources and OperatorGroups", "`status.components.refs` of an Operator", "An upgrade is in progress"];

/// Differences in situations that no recording contains, each with a test that shows it.
pub(crate) const TESTED: &[(&str, &str)] = &[
    ("The rules of a role are edited", "objects_that_are_edited_or_deleted_are_put_back"),
    ("The only OperatorGroup is deleted", "membership_follows_the_groups_of_the_namespace"),
    (
        "The CSV that replaces another is deleted before it succeeds",
        "upgrade_is_taken_back_if_the_new_version_is_deleted",
    ),
    ("Invalid webhooks, conflicts of owners", "causes_that_remain_do_not_return_to_pending"),
    (
        "A Deployment that is not available differs from the CSV",
        "installation_that_someone_else_changes_keeps_its_phase",
    ),
    ("CSV created by hand", "operator_has_only_the_rights_of_its_bundle"),
    (
        "A CatalogSource outside of the manager's namespace names a ConfigMap without the label `olm.flyball.dev/catalog`",
        "tenant_cannot_write_the_catalog_of_an_administrator",
    ),
    (
        "A CatalogSource without this label names a Service or pod outside of the manager's namespace, as address or as \
         registry of a tag",
        "tenant_chooses_no_server_of_a_catalog",
    ),
    (
        "A user without the permission to create Deployments in the namespace sets `spec.config` of a Subscription",
        "configuration_requires_the_permission_to_deploy",
    ),
    ("Webhook rules with `validatingwebhookconfigurations`", "webhook_that_reviews_the_manager_is_refused"),
    (
        "The APIs of an operator that has run are taken by another OperatorGroup",
        "operator_that_has_run_keeps_its_deployments_in_a_conflict",
    ),
    ("A finalizer holds a copied CSV", "finalizer_of_a_copy_does_not_hold_the_original"),
    ("The label `olm.copiedFrom` of a copy is removed", "copy_without_its_label_is_not_installed"),
    ("Operators (`operators.operators.coreos.com`)", "number_of_operators_is_limited"),
    ("Servers of the same name in two namespaces", "servers_of_the_same_name_in_two_namespaces_do_not_share_rights"),
    (
        "Deployments of the same name of two operators in a namespace",
        "deployment_of_another_operator_is_not_taken_over",
    ),
    ("An installation lacks permissions or is invalid", "service_account_of_the_group_limits_what_is_installed"),
    ("Pod templates", "pods_get_annotations_and_the_name_of_the_condition"),
    ("The channel has a newer version, but no upgrade of the installed one", "missing_upgrade_path_is_a_condition"),
    ("An object of a plan for several Subscriptions is rejected", "refused_crd_holds_up_no_other_operator_of_the_plan"),
    (
        "A CSV that is being replaced has lost a requirement, as after a rollback to a CRD with fewer versions",
        "operator_with_conversion_is_upgraded_taken_back_and_removed",
    ),
    (
        "A Subscription is deleted while its InstallPlan is executed",
        "uninstallation_at_any_request_of_a_plan_leaves_nothing",
    ),
    ("A CSV without a Subscription", "new_subscription_adopts_the_installed_version_and_upgrades_it"),
    ("A waiting plan is resolved again with another result", "another_choice_replaces_the_waiting_plan"),
];
