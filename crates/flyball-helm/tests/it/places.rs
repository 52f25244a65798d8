//! Objects outside of the namespace of their custom resource, which may only set scalars in them.

use crate::project::{WATCHES, apply_site, condition, operator_of, project, sites};
use flyball_cluster::testing::{Setup, Test};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, ListParams};
use std::path::PathBuf;

/// Without quotes, and with common ways to render maps and lists of values.
const BINDING: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {{ .Release.Namespace }}-{{ .Release.Name }}\n\
                       rules:\n- {apiGroups: [\"\"], resources: [pods], verbs: [get]}\n---\n\
                       apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  \
                       name: {{ .Release.Namespace }}-{{ .Release.Name }}\n  annotations:\n    owner: {{ .Values.owner }}-owner\n    \
                       {{- toYaml .Values.annotations | nindent 4 }}\n\
                       roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: \"{{ .Release.Namespace }}-{{ .Release.Name }}\"}\n\
                       subjects:\n{{- range .Values.groups }}\n- kind: Group\n  apiGroup: rbac.authorization.k8s.io\n  name: {{ . | quote }}\n{{- end }}\n\
                       - kind: User\n  apiGroup: rbac.authorization.k8s.io\n  name: {{ .Values.user }}\n";
const VALUES: &str = "user: nobody\nowner: nobody\ngroups: []\nannotations: {purpose: none}\n";

fn site(name: &str, watches: &str) -> PathBuf {
    project(
        name,
        &[
            ("watches.yaml", watches),
            ("charts/site/templates/binding.yaml", BINDING),
            ("charts/site/values.yaml", VALUES),
        ],
    )
}

fn test_of(folder: PathBuf) -> Setup {
    Test::of(operator_of(folder)).allows_changes_of::<ClusterRole>().allows_changes_of::<ClusterRoleBinding>()
}

/// Returns the subjects of a site's binding.
async fn subjects(test: &Test, site: &str) -> Vec<String> {
    let name = format!("{}-{site}", test.namespace());
    let binding = Api::<ClusterRoleBinding>::all(test.client()).get_opt(&name).await.expect("the server answers");
    let subjects = binding.and_then(|binding| binding.subjects).unwrap_or_default();
    subjects.into_iter().map(|subject| format!("{} {}", subject.kind, subject.name)).collect()
}

#[tokio::test(start_paused = true)]
async fn values_are_scalars_in_objects_of_other_namespaces() {
    let test = test_of(site("places", WATCHES)).start().await;
    // Common uses of scalars, loops and maps of the chart work.
    let plain = "{user: jane, owner: jane, groups: [a, 'b: {c}'], annotations: {purpose: \"two\\nlines\"}}";
    apply_site(&test, "plain", plain).await;
    let intruder = "kind: User\\n  apiGroup: rbac.authorization.k8s.io\\n  name: mallory";
    let refused = [
        ("item", format!("{{user: \"jane\\n- {intruder}\"}}"), ".subjects"),
        ("field", "{user: \"jane\\n  namespace: x\"}".to_owned(), ".subjects[0]"),
        ("map", "{user: '{a: b}'}".to_owned(), ".subjects[0].name"),
        ("nothing", "{user: '~'}".to_owned(), ".subjects[0].name"),
        ("outer", "{owner: \"jane\\nx:\\n    z: y\"}".to_owned(), "."),
        ("comment", "{owner: 'jane #'}".to_owned(), ".metadata.annotations.owner"),
        ("more", "{annotations: {helm.sh/resource-policy: keep}}".to_owned(), ".metadata.annotations"),
    ];
    for (name, spec, _) in &refused {
        apply_site(&test, name, spec).await;
    }
    test.assert_converges().await;
    assert_eq!(subjects(&test, "plain").await, ["Group a", "Group b: {c}", "User jane"]);
    for (name, _, field) in refused {
        assert_eq!(subjects(&test, name).await, [""; 0], "{name}");
        let failed = condition(&sites(&test), name, "ReleaseFailed").await;
        let expected = format!(
            "site/templates/binding.yaml renders ClusterRoleBinding {}-{name} in no namespace, where a value of the custom resource is \
             more than a scalar in {field}: ",
            test.namespace()
        );
        assert!(failed.contains(&expected) && failed.contains("structureFromValues"), "{name}: {failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn structure_from_values_must_be_enabled() {
    let watches = WATCHES.replace("chart:", "structureFromValues: true, chart:");
    let test = test_of(site("places-open", &watches)).start().await;
    apply_site(&test, "blue", "{user: \"jane\\n  apiGroup: rbac.authorization.k8s.io\\n- kind: Group\\n  name: all\\n  apiGroup: rbac.authorization.k8s.io\", annotations: {more: a}}").await;
    // The chart still determines kind and namespace.
    apply_site(&test, "kind", "{user: \"jane\\nkind: ClusterRole\"}").await;
    test.assert_converges().await;
    assert_eq!(subjects(&test, "blue").await, ["User jane", "Group all"]);
    let failed = condition(&sites(&test), "kind", "ReleaseFailed").await;
    assert!(failed.contains("determined by the custom resource"), "{failed}");
}

/// A Role and a binding in a common form, and a Secret whose type is not quoted.
const RIGHTS: &str = "{{- if .Values.rbac }}\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: {{ .Release.Name }}\n  \
                      namespace: {{ .Release.Namespace }}\n  labels: {{- toYaml .Values.labels | nindent 4 }}\nrules:\n\
                      - {apiGroups: [\"\"], resources: [pods], verbs: [get]}\n---\napiVersion: rbac.authorization.k8s.io/v1\n\
                      kind: RoleBinding\nmetadata:\n  name: {{ .Release.Name }}\n  labels: {{- toYaml .Values.labels | nindent 4 }}\n\
                      roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .Release.Name }}}\nsubjects:\n- kind: ServiceAccount\n  \
                      name: {{ .Values.account }}\n{{- end }}\n";
const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Release.Name }}\n  annotations: {{- toYaml .Values.labels | nindent 4 }}\n\
                      type: {{ .Values.type | default \"Opaque\" }}\n";

#[tokio::test(start_paused = true)]
async fn values_create_nothing_that_grants_permissions() {
    let folder = project(
        "places-rights",
        &[
            ("charts/site/templates/rights.yaml", RIGHTS),
            ("charts/site/templates/secret.yaml", SECRET),
            ("charts/site/values.yaml", "rbac: true\naccount: app\nlabels: {}\n"),
        ],
    );
    let test = Test::of(operator_of(folder)).start().await;
    apply_site(&test, "plain", "{account: app, labels: {team: blue}, type: example.com/own}").await;
    let binding = "Opaque\\n---\\napiVersion: rbac.authorization.k8s.io/v1\\nkind: RoleBinding\\nmetadata: {name: pwn}\\n\
                   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\\n\
                   subjects: [{kind: ServiceAccount, name: mal}]";
    let token = "labels: {kubernetes.io/service-account.name: default}";
    let refused = [
        ("binding", format!("{{type: \"{binding}\"}}"), "secret.yaml renders RoleBinding pwn"),
        ("list", format!("{{type: \"{binding}\", rbac: false}}"), "secret.yaml renders RoleBinding pwn"),
        (
            "token",
            format!("{{type: kubernetes.io/service-account-token, {token}}}"),
            "secret.yaml renders Secret token",
        ),
        ("subject", "{account: \"app\\n- kind: ServiceAccount\\n  name: mal\"}".to_owned(), ".subjects"),
    ];
    for (name, spec, _) in &refused {
        apply_site(&test, name, spec).await;
    }
    test.assert_converges().await;
    for (name, _, expected) in refused {
        let failed = condition(&sites(&test), name, "ReleaseFailed").await;
        assert!(failed.contains(expected) && failed.contains("grant permissions"), "{name}: {failed}");
    }
    assert!(test.api::<Role>().get_opt("plain").await.expect("the server answers").is_some());
    assert!(test.api::<Secret>().get_opt("token").await.expect("the server answers").is_none());
    let bindings = test.api::<RoleBinding>().list(&ListParams::default()).await.expect("the server answers").items;
    let names: Vec<String> = bindings.into_iter().filter_map(|binding| binding.metadata.name).collect();
    assert_eq!(names, ["plain"]);
}
