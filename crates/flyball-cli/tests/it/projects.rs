//! The life cycle of projects of charts and roles: `run`, `rbac`, `test`, and the layout of operator-sdk.

use crate::dev::LineReader;
use crate::scaffold::edit;
use crate::{CommandOutput, Home};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Creates a project with one kind.
fn project(home: &Home, flags: &str, name: &str, kind: &str) -> PathBuf {
    home.within(&home.0, &format!("init {flags} --domain acme.io --group cache --version v1 --kind {kind} {name}"))
        .ok();
    home.0.join(name)
}

fn write(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn run(home: &Home, folder: &Path) -> LineReader {
    let mut command = home.command(&["run", "--samples", "--", "--metrics-addr=0", "--health-addr=0"]);
    command.current_dir(folder);
    LineReader::new(command)
}

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-more\ndata: {}\n";

#[test]
fn saved_charts_and_roles_take_effect() {
    let home = Home::new("projects-run");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let web = project(&home, "--helm", "web-operator", "Web");
    let mut operator = run(&home, &web);
    operator.until("reconciled outcome=");
    // A new file of the chart with a new kind of objects.
    write(&web, "helm-charts/web/templates/more.yaml", CONFIG_MAP);
    operator.until("stopping the previous program");
    // The previous program finishes its reconcile.
    operator.until("starting operator");
    operator.until("reconciled outcome=");
    home.run(&["get", "configmap", "web-sample-more"]).ok();
    // An invalid template does not stop the operator, nor does an invalid chart or file.
    write(&web, "helm-charts/web/templates/more.yaml", "{{ fail \"not today\" }}\n");
    operator.until("cannot render the chart with sample web-sample");
    operator.until("the operator continues; waiting for a file change");
    write(&web, "helm-charts/web/templates/more.yaml", CONFIG_MAP);
    operator.until("stopping the previous program");
    operator.until("starting operator");
    fs::write(web.join("watches.yaml"), "- {group: cache.acme.io, version: v1, kind: Web, chart: nowhere}\n").unwrap();
    operator.until("no chart directory or archive at");
    operator.until("the operator continues; waiting for a file change");
    fs::write(web.join("watches.yaml"), "- {group: cache.acme.io, version: v1, kind: Web, chart: helm-charts/web}\n")
        .unwrap();
    operator.until("stopping the previous program");
    operator.until("starting operator");
    operator.stop();

    let site = project(&home, "--ansible", "site-operator", "Site");
    let mut operator = run(&home, &site);
    operator.until("reconciled outcome=");
    edit(&site.join("roles/site/tasks/main.yml"), "replicas: \"{{ size }}\"", "replicas: 3");
    operator.until("stopping the previous program");
    // The previous program finishes its reconcile.
    operator.until("starting operator");
    operator.until("reconciled outcome=");
    let deployment = home.run(&["get", "deployment", "site-sample", "-o", "json"]).ok().out;
    assert_eq!(serde_json::from_str::<Value>(&deployment).unwrap()["spec"]["replicas"], 3);
    operator.stop();

    // The first start must succeed.
    fs::write(site.join("watches.yaml"), "- {group: cache.acme.io, version: v1, kind: Site, role: nowhere}\n").unwrap();
    home.within(&site, "run").fails_with(&["role nowhere not found"]);
}

#[test]
fn permissions_are_compared_with_the_roles_of_the_project() {
    let home = Home::new("projects-rbac");
    let folder = project(&home, "--ansible", "site-operator", "Site");
    let roles = home.within(&folder, "rbac -o json").ok().out;
    let roles: Value = serde_json::from_str(&roles).unwrap();
    let names: Vec<&str> =
        roles["items"].as_array().unwrap().iter().map(|role| role["metadata"]["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"site-operator-manager-role"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("viewer")), "roles of users are not the operator's: {names:?}");
    home.within(&folder, "rbac --check").fails_with(&["cannot read config/rbac", "flyball manifests"]);
    home.within(&folder, "manifests").ok();
    // The CRD is in one file.
    let crds = fs::read_to_string(folder.join("config/crd/kustomization.yaml")).unwrap();
    assert!(crds.contains("- bases/cache.acme.io_sites.yaml\n"), "{crds}");
    assert!(!folder.join("config/crd/cache.acme.io_sites.yaml").exists());
    let output = home.within(&folder, "rbac --check").ok().out;
    assert_eq!(output, "all granted permissions are used, none are missing\n");

    let role = folder.join("config/rbac/role.yaml");
    let text = fs::read_to_string(&role).unwrap();
    let (_, text) = text.split_once('\n').unwrap();
    let mut own: Value = serde_saphyr::from_str(text).unwrap();
    let rules = own["rules"].as_array_mut().unwrap();
    let deployments = rules.iter_mut().find(|rule| rule["resources"] == json!(["deployments"])).unwrap();
    let verbs = deployments["verbs"].as_array_mut().unwrap();
    verbs.retain(|verb| verb != "patch");
    verbs.push("deletecollection".into());
    rules.push(json!({"apiGroups": ["batch"], "resources": ["*"], "verbs": ["get"]}));
    rules.push(json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["*"]}));
    fs::write(&role, own.to_string()).unwrap();
    let output = home.within(&folder, "rbac --check");
    output.fails_with(&["1 permission is missing in config/rbac", "flyball rbac"]);
    assert_eq!(
        output.out,
        "missing patch deployments.apps\nunused  deletecollection deployments.apps\nunused  get *.batch\n\
         wide    * events.events.k8s.io: list the resources and verbs\n"
    );
    let json: Value = serde_json::from_str(&home.within(&folder, "rbac --check -o json").out).unwrap();
    assert_eq!(json["missing"], json!(["patch deployments.apps"]));
}

#[test]
fn scaffolded_cases_pass_and_failures_are_explained() {
    let home = Home::new("projects-test");
    for (flags, name, kind) in [("--helm", "web-operator", "Web"), ("--ansible", "site-operator", "Site")] {
        let folder = project(&home, flags, name, kind);
        let output = home.within(&folder, "test --suite cluster --junit junit.xml --rbac").ok();
        assert!(output.out.contains(&format!("case level_1_install_{} ... ok\n", kind.to_lowercase())), "{output:?}");
        let (_, summary) = output.out.split_once("cluster   1        0        0\n").unwrap();
        assert!(summary.starts_with(&format!("permissions of {name}\n")), "{output:?}");
        assert!(!summary.contains("missing") && !summary.contains("unused  patch deployments.apps"), "{output:?}");
        let junit = fs::read_to_string(folder.join("junit.xml")).unwrap();
        assert!(junit.contains("classname=\"cluster: tests/e2e\"/>"), "{junit}");
        let levels = home.within(&folder, "levels").ok().out;
        assert!(levels.ends_with("Level reached: 1\n"), "{levels}");
    }
    let folder = home.0.join("site-operator");
    fs::remove_dir_all(folder.join("tests/e2e/level_1_install_site")).unwrap();
    write(
        &folder,
        "kuttl-test.yaml",
        "apiVersion: kuttl.dev/v1beta1\nkind: TestSuite\ntestDirs: [e2e]\ntimeout: 60\nparallel: 4\n",
    );
    let site = "apiVersion: cache.acme.io/v1\nkind: Site\nmetadata:\n  name: one\nspec:\n  size: 2\n";
    write(&folder, "e2e/scale/00-install.yaml", site);
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: one\nspec:\n  replicas: ";
    write(&folder, "e2e/scale/00-assert.yaml", &format!("{deployment}2\n"));
    write(&folder, "e2e/scale/01-scale.yaml", &site.replace("size: 2", "size: 3"));
    // By labels, of any name.
    let labelled = "apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {app.kubernetes.io/instance: one}\nstatus:\n  phase: Running\n";
    write(&folder, "e2e/scale/01-assert.yaml", &format!("{deployment}3\n---\n{labelled}"));
    let step = "apiVersion: kuttl.dev/v1beta1\nkind: TestStep\ncommands:\n- script: flyball get site one -n $NAMESPACE\n\
                delete:\n- {apiVersion: v1, kind: Pod, labels: {none: such}}\n";
    write(&folder, "e2e/scale/02-step.yaml", step);
    write(&folder, "e2e/bad/00-install.yaml", site);
    let timeout = "apiVersion: kuttl.dev/v1beta1\nkind: TestAssert\ntimeout: 3\n---\n";
    let list = "  template:\n    spec:\n      containers:\n      - name: other\n";
    write(&folder, "e2e/bad/00-assert.yaml", &format!("{timeout}{deployment}7\n{list}"));
    write(&folder, "e2e/bad/00-errors.yaml", "apiVersion: apps/v1\nkind: Deployment\n");
    let output = home.within(&folder, "test --suite cluster");
    output.fails_with(&["1 of 2 tests failed"]);
    let expected = "case bad ... FAILED\nstep 0 (install): after 3 s:\n\
                    e2e/bad/00-assert.yaml: Deployment test-0-bad/one differs\n  \
                    spec.replicas: expected 7, actual: 2\n  \
                    spec.template.spec.containers[0].name: expected \"other\", actual: \"site\"\n\
                    e2e/bad/00-errors.yaml: Deployment test-0-bad/one exists, but must not\n";
    assert!(output.out.contains(expected), "{output:?}");
    assert!(output.out.contains("case scale ... ok\n"), "{output:?}");

    write(&folder, "e2e/scale/02-step.yaml", "apiVersion: kuttl.dev/v1beta1\nkind: TestStep\ncommand: []\n");
    home.within(&folder, "test")
        .fails_with(&["e2e/scale/02-step.yaml: TestStep is not valid", "unknown field `command`"]);
}

/// Writes a project as operator-sdk 1.42 lays it out.
fn of_operator_sdk(home: &Home, plugin: &str) -> PathBuf {
    let folder = home.0.join(format!("{plugin}-project"));
    write(
        &folder,
        "PROJECT",
        &format!(
            "# Code generated by tool. DO NOT EDIT.\ndomain: example.com\nlayout:\n- {plugin}.sdk.operatorframework.io/v1\n\
             plugins:\n  manifests.sdk.operatorframework.io/v2: {{}}\n  scorecard.sdk.operatorframework.io/v2: {{}}\n\
             projectName: nginx-operator\nresources:\n- api:\n    crdVersion: v1\n    namespaced: true\n  domain: example.com\n  \
             group: demo\n  kind: Nginx\n  version: v1alpha1\nversion: \"3\"\n"
        ),
    );
    let (field, value) = if plugin == "helm" { ("chart", "helm-charts/nginx") } else { ("role", "nginx") };
    write(
        &folder,
        "watches.yaml",
        &format!(
            "# Use the 'create api' subcommand to add watches to this file.\n- group: demo.example.com\n  version: v1alpha1\n  \
             kind: Nginx\n  {field}: {value}\n#+kubebuilder:scaffold:watch\n"
        ),
    );
    write(&folder, "Dockerfile", "FROM quay.io/operator-framework/helm-operator:v1.42.0\n");
    write(&folder, "Makefile", "run:\n");
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: nginxes.demo.example.com\n\
        spec:\n  group: demo.example.com\n  names: {kind: Nginx, listKind: NginxList, plural: nginxes, singular: nginx}\n  \
        scope: Namespaced\n  versions:\n  - name: v1alpha1\n    served: true\n    storage: true\n    subresources: {status: {}}\n    \
        schema:\n      openAPIV3Schema:\n        type: object\n        properties:\n          \
        spec: {type: object, x-kubernetes-preserve-unknown-fields: true}\n          \
        status: {type: object, x-kubernetes-preserve-unknown-fields: true}\n";
    write(&folder, "config/crd/bases/demo.example.com_nginxes.yaml", definition);
    write(&folder, "config/crd/kustomization.yaml", "resources:\n- bases/demo.example.com_nginxes.yaml\n");
    let sample = "apiVersion: demo.example.com/v1alpha1\nkind: Nginx\nmetadata:\n  name: nginx-sample\nspec:\n  replicaCount: 1\n";
    write(&folder, "config/samples/demo_v1alpha1_nginx.yaml", sample);
    write(&folder, "config/samples/kustomization.yaml", "resources:\n- demo_v1alpha1_nginx.yaml\n");
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: manager-role\nrules:\n\
        - apiGroups: [\"\"]\n  resources: [secrets, services]\n  verbs: ['*']\n\
        - apiGroups: [apps]\n  resources: [deployments, daemonsets]\n  verbs: [create, delete, get, list, patch, update, watch]\n";
    write(&folder, "config/rbac/role.yaml", role);
    let binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: manager-rolebinding\n\
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: manager-role}\n\
        subjects: [{kind: ServiceAccount, name: controller-manager, namespace: system}]\n";
    write(&folder, "config/rbac/role_binding.yaml", binding);
    let container = "containers: [{name: nginx, image: 'nginx:1.27'}]";
    let deployment = |name: &str, replicas: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\nspec:\n  replicas: {replicas}\n  \
             selector: {{matchLabels: {{app: nginx}}}}\n  template: {{metadata: {{labels: {{app: nginx}}}}, spec: {{{container}}}}}\n"
        )
    };
    match plugin {
        "helm" => {
            write(&folder, "helm-charts/nginx/Chart.yaml", "apiVersion: v2\nname: nginx\nversion: 0.1.0\n");
            write(&folder, "helm-charts/nginx/values.yaml", "replicaCount: 1\n");
            let template = deployment("{{ .Release.Name }}", "{{ .Values.replicaCount }}");
            write(&folder, "helm-charts/nginx/templates/deployment.yaml", &template);
        }
        _ => {
            let definition = deployment("'{{ ansible_operator_meta.name }}'", "'{{ replica_count }}'");
            let indented: String = definition.lines().map(|line| format!("      {line}\n")).collect();
            let indented =
                indented.replace("  name: '", "  namespace: '{{ ansible_operator_meta.namespace }}'\n        name: '");
            write(
                &folder,
                "roles/nginx/tasks/main.yml",
                &format!("---\n- kubernetes.core.k8s:\n    definition:\n{indented}"),
            );
            write(&folder, "roles/nginx/defaults/main.yml", "replica_count: 1\n");
            write(&folder, "requirements.yml", "collections: [{name: kubernetes.core, version: 2.4.0}]\n");
        }
    }
    let assert =
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: nginx-sample\nstatus:\n  readyReplicas: 1\n";
    write(&folder, "tests/e2e/nginx/00-install.yaml", sample);
    write(&folder, "tests/e2e/nginx/00-assert.yaml", assert);
    folder
}

#[test]
fn projects_of_operator_sdk_work_unchanged() {
    for plugin in ["helm", "ansible"] {
        let home = Home::new(&format!("projects-sdk-{plugin}"));
        home.run(&["cluster", "up", "--quiet"]).ok();
        fs::write(home.0.join("ca.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        let folder = of_operator_sdk(&home, plugin);
        let before = crate::scaffold::files(&folder);
        let mut operator = run(&home, &folder);
        operator.until("reconciled outcome=");
        operator.stop();
        home.run(&["get", "deployment", "nginx-sample"]).ok();

        let output = home.within(&folder, "test --suite cluster").ok();
        assert!(output.out.contains("case nginx ... ok\n"), "{output:?}");
        let output = home.within(&folder, "rbac --check");
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.out.contains("missing watch nginxes.demo.example.com\n"), "{output:?}");
        assert!(output.out.contains("unused  get daemonsets.apps\n"), "{output:?}");
        assert!(home.within(&folder, "doctor").ok().out.contains("project: nginx-operator in watches.yaml"));
        let rendered = home.within(&folder, "render --image registry.example.com/nginx:1").ok().out;
        assert!(rendered.contains("image: registry.example.com/nginx:1\n"), "{rendered}");
        // Files of the project are kept.
        let output = home.within(&folder, "manifests").ok().out;
        assert!(output.contains("config/rbac/role.yaml kept: not generated by flyball\n"), "{output}");
        let after = crate::scaffold::files(&folder);
        assert!(before.iter().all(|(path, text)| after[path] == *text));
        let output = home.within(&folder, "image build --ca-certificates ../ca.pem --out ../image").ok().out;
        assert!(output.starts_with("image nginx-operator:latest\n"), "{output}");
        home.within(&folder, "create api --group a --version v1 --kind B")
            .fails_with(&["operator-sdk", "layout: flyball/1"]);
    }
}

#[test]
fn kinds_of_a_role_may_be_cluster_scoped() {
    let home = Home::new("projects-cluster");
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.run(&["init", "--ansible", "--domain", "acme.io", "quota-operator"]).ok();
    let folder = home.0.join("quota-operator");
    home.within(&folder, "create api --group cache --version v1 --kind Tenant --namespaced=false").ok();
    let crd = fs::read_to_string(folder.join("config/crd/bases/cache.acme.io_tenants.yaml")).unwrap();
    assert!(crd.contains("scope: Cluster\n"), "{crd}");
    let mut operator = run(&home, &folder);
    operator.until("reconciled outcome=");
    let namespace = CommandOutput::of(&home.command(&["get", "namespace", "tenant-sample"]).output().unwrap());
    namespace.ok();
    operator.stop();
    home.within(&folder, "test --suite cluster").ok();
}

#[test]
fn charts_and_roles_are_deployed_and_removed() {
    let home = Home::new("projects-deploy");
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.run(&["cluster", "node", "add"]).ok();
    for (flags, name, kind) in [("--helm", "web-operator", "Web"), ("--ansible", "site-operator", "Site")] {
        let folder = project(&home, flags, name, kind);
        home.within(&folder, "deploy --image registry.example.com/operator:1").ok();
        let (namespace, manager) = (format!("{name}-system"), format!("{name}-controller-manager"));
        let output = home.run(&["get", "deployment", &manager, "-n", &namespace, "-o", "json"]).ok().out;
        let pod = &serde_json::from_str::<Value>(&output).unwrap()["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "registry.example.com/operator:1");
        // `ansible-playbook` writes to /tmp; the root file system is read-only.
        let mounts = &pod["containers"][0]["volumeMounts"];
        let memory = &pod["containers"][0]["resources"]["limits"]["memory"];
        match flags {
            "--ansible" => assert_eq!((&mounts[0]["mountPath"], memory), (&json!("/tmp"), &json!("768Mi"))),
            _ => assert_eq!((mounts, memory), (&Value::Null, &json!("256Mi"))),
        }
        home.within(&folder, "undeploy --yes").ok();
        assert_eq!(home.run(&["get", "deployment", &manager, "-n", &namespace]).code, Some(1));
        home.within(&folder, "install").ok();
        home.within(&folder, "uninstall --yes").ok();
    }
}
