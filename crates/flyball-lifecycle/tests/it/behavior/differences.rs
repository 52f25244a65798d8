//! Deliberate differences from OLM. `docs/olm.md` contains the same list.

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
