//! `flyball init --helm`, `init --ansible` and `create api` in such projects.

use crate::dev::LineReader;
use crate::olm::until;
use crate::scaffold::{edit, files};
use crate::{CommandOutput, Home};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const REDIS: &str = "create api --group cache --version v1alpha1 --kind Redis";

impl Home {
    /// Runs a command line in a project and expects it to succeed.
    #[track_caller]
    fn succeed(&self, project: &str, line: &str) -> String {
        self.within(&self.0.join(project), line).ok().out
    }

    fn watched_project(&self, flags: &str) -> PathBuf {
        self.succeed("", &format!("init {flags} --domain acme.io redis-operator"));
        self.0.join("redis-operator")
    }
}

/// Returns the chart of a sample.
fn memcached() -> PathBuf {
    let sample = "../../samples/memcached-helm/helm-charts/memcached";
    Path::new(env!("CARGO_MANIFEST_DIR")).join(sample).canonicalize().unwrap()
}

/// Returns an archive with these paths, also those that `tar` rejects.
pub(crate) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, data) in files {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append(&header, *data).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// Returns the file of a project with the CRD of its only kind.
fn definition(project: &Path, name: &str) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(project.join("config/crd/bases").join(name)).unwrap()).unwrap()
}

fn spec_schema(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
}

#[test]
fn new_project_is_valid_before_its_first_kind() {
    let home = Home::new("watches-init");
    home.run(&["cluster", "up", "--quiet"]).ok();
    for (flag, of) in [
        ("--helm", "helm"),
        ("--ansible", "ansible"),
        ("--plugins=helm.sdk.operatorframework.io/v1", "helm"),
        ("--plugins ansible", "ansible"),
    ] {
        let output = home.succeed("", &format!("init {flag} --name redis-operator {of}"));
        // As with operator-sdk.
        let requirements = if of == "ansible" { "created requirements.yml\n" } else { "" };
        let expected = format!(
            "created .gitignore\ncreated PROJECT\ncreated README.md\n{requirements}created watches.yaml\n\n\
             Created project redis-operator. Next, in {of}:\n  \
             flyball create api --group cache --version v1alpha1 --kind Redis\n"
        );
        assert_eq!(output, expected);
        let project = fs::read_to_string(home.0.join(of).join("PROJECT")).unwrap();
        assert!(
            project.ends_with(&format!("domain: example.com\nprojectName: redis-operator\ntype: {of}\n")),
            "{project}"
        );
        let output = home.succeed(of, "doctor");
        assert!(output.contains("+ project: redis-operator in watches.yaml\n- kinds: none\n"), "{output}");
        home.succeed(of, "lint");
        assert!(home.succeed(of, "render").contains("name: redis-operator-controller-manager"));
        fs::remove_dir_all(home.0.join(of)).unwrap();
    }
}

#[test]
fn role_for_ansible_is_described_without_ansible() {
    let home = Home::new("watches-copy");
    let folder = home.watched_project("--ansible");
    home.within(&folder, REDIS).ok();
    let tasks = "- name: copy\n  ansible.builtin.copy: {content: x, dest: /tmp/x}\n";
    fs::write(folder.join("roles/redis/tasks/main.yml"), tasks).unwrap();
    for line in ["manifests", "rbac", "render", "lint", "describe operator"] {
        home.within(&folder, line).ok();
    }
    fs::write(home.0.join("ca.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    home.within(&folder, "image build --ca-certificates=../ca.pem").fails_with(&[
        "role redis needs ansible-core (module ansible.builtin.copy), and the image has none",
        "--base REF, see docs/image.md",
    ]);
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.within(&folder, "run").fails_with(&[
        "roles/redis/tasks/main.yml:1: task \"copy\": module ansible.builtin.copy needs ansible-playbook, which is not \
         on the PATH",
        "pip install ansible-core kubernetes",
        "ansible-galaxy collection install -r requirements.yml",
    ]);
    let output = home.within(&folder, "doctor");
    assert!(
        output.out.contains(
            "x ansible-playbook: not installed, but role redis needs it (module ansible.builtin.copy)\n    pip install \
             ansible-core kubernetes"
        ),
        "{output:?}"
    );
    let requirements = fs::read_to_string(folder.join("requirements.yml")).unwrap();
    assert!(["kubernetes.core", "operator_sdk.util"].iter().all(|name| requirements.contains(name)), "{requirements}");
}

#[test]
fn operator_of_roles_is_found_from_a_subdirectory_and_has_their_flags() {
    let home = Home::new("watches-flags");
    let folder = home.watched_project("--ansible");
    home.within(&folder, REDIS).ok();
    for folder in [&folder, &folder.join("roles/redis")] {
        let help = home.within(folder, "run -- --help").ok().out;
        assert!(help.contains("Usage: redis-operator ") && help.contains("--max-concurrent-reconciles"), "{help}");
    }
    let args = ["operate", "redis-operator/watches.yaml", "describe", "--reconcile-period=5m", "--executor=built-in"];
    assert!(home.run(&args).ok().out.contains("redises.v1alpha1.cache.acme.io"));
    assert_eq!(home.run(&[&args[..3], &["--ansible-verbosity=8"]].concat()).code, Some(2));
}

#[test]
fn broken_project_file_is_found_by_doctor() {
    let home = Home::new("watches-broken");
    let folder = home.watched_project("--helm");
    fs::write(folder.join("PROJECT"), "layout: flyball/1\nlayout: flyball/1\n").unwrap();
    let output = home.within(&folder, "doctor");
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.out.contains("duplicate mapping key: layout not allowed here"), "{output:?}");
    assert!(!output.out.contains("DuplicateKeyPolicy"), "{output:?}");
}

#[test]
fn new_chart_is_a_kind() {
    let home = Home::new("watches-helm");
    let folder = home.watched_project("--helm");
    let expected = "changed PROJECT
created config/crd/bases/cache.acme.io_redises.yaml
created config/samples/cache_v1alpha1_redis.yaml
created helm-charts/redis/.helmignore
created helm-charts/redis/Chart.yaml
created helm-charts/redis/templates/NOTES.txt
created helm-charts/redis/templates/_helpers.tpl
created helm-charts/redis/templates/deployment.yaml
created helm-charts/redis/templates/service.yaml
created helm-charts/redis/templates/serviceaccount.yaml
created helm-charts/redis/values.yaml
created tests/e2e/level_1_install_redis/00-assert.yaml
created tests/e2e/level_1_install_redis/00-install.yaml
created tests/e2e/level_1_install_redis/01-delete.yaml
created tests/e2e/level_1_install_redis/01-errors.yaml
changed watches.yaml

Next: flyball run --samples
";
    assert_eq!(home.within(&folder, REDIS).ok().out, expected);
    let output = home.within(&folder, "helm lint helm-charts/redis --strict").ok().out;
    assert!(!output.contains("[WARNING]") && !output.contains("[ERROR]"), "{output}");
    home.within(&folder, "lint").ok();
    let text = home.within(&folder, "render").ok().out;
    assert!(text.contains("name: redises.cache.acme.io\n"), "{text}");
    // All of its manifests are generated, and none of its own files is.
    let before = files(&folder);
    home.within(&folder, "manifests").ok();
    let after = files(&folder);
    assert!(before.iter().all(|(path, text)| after[path] == *text));
    assert!(folder.join("config/rbac/role.yaml").is_file() && folder.join("config/manager/manager.yaml").is_file());

    let crd = definition(&folder, "cache.acme.io_redises.yaml");
    let properties = &spec_schema(&crd)["properties"];
    assert_eq!(properties["replicaCount"], json!({"type": "integer", "description": "Number of pods."}));
    assert_eq!(properties["resources"]["x-kubernetes-preserve-unknown-fields"], true);
    assert!(spec_schema(&crd)["x-kubernetes-preserve-unknown-fields"].is_null());
    let sample = fs::read_to_string(folder.join("config/samples/cache_v1alpha1_redis.yaml")).unwrap();
    assert!(sample.contains("\n  # Number of pods.\n  replicaCount: 1\n"), "{sample}");
    let sample: Value = serde_saphyr::from_str(&sample).unwrap();
    let values = fs::read_to_string(folder.join("helm-charts/redis/values.yaml")).unwrap();
    assert_eq!(sample["spec"], serde_saphyr::from_str::<Value>(&values).unwrap());

    let before = files(&folder);
    for (line, words) in [
        (REDIS, ["cache.acme.io/v1alpha1 Redis already exists in the project", "--force"]),
        (&REDIS.replace("cache", "more"), ["helm-charts/redis already exists", "--force"]),
        (&REDIS.replace("cache", "\"\""), ["--group", "is invalid"]),
        (&format!("{REDIS}2 --controller"), ["project redis-operator is of type Helm", "drop --controller"]),
        (&format!("{REDIS}2 --namespaced=false"), ["Redis2 cannot be cluster-scoped", "drop --namespaced"]),
    ] {
        let output = home.within(&folder, line);
        assert!(output.code != Some(0) && words.iter().all(|word| output.err.contains(word)), "{line}: {output:?}");
    }
    assert_eq!(files(&folder), before);
    edit(&folder.join("helm-charts/redis/values.yaml"), "replicaCount: 1", "replicaCount: 7");
    home.within(&folder, &format!("{REDIS} --force")).ok();
    assert_eq!(files(&folder), before);
    home.within(&folder, "create api --group cache --version v1 --kind Site -o json").ok();
    let watches = fs::read_to_string(folder.join("watches.yaml")).unwrap();
    let entries: Vec<Value> = serde_saphyr::from_str(&watches).unwrap();
    assert_eq!(
        entries[1],
        json!({"group": "cache.acme.io", "version": "v1", "kind": "Site", "chart": "helm-charts/site", "helmVersion": 4})
    );
    assert!(watches.starts_with("# Maps") && watches.ends_with("# +flyball:watch\n"), "{watches}");
}

#[test]
fn version_is_added_to_a_kind() {
    let home = Home::new("watches-version");
    for (flags, name) in [("--helm", "helm"), ("--ansible", "ansible")] {
        home.succeed(
            "",
            &format!("init {flags} --domain acme.io --group cache --version v1alpha1 --kind Redis {name}"),
        );
        let folder = home.0.join(name);
        let output = home.within(&folder, &REDIS.replace("v1alpha1", "v1")).ok().out;
        let expected = "changed PROJECT\nchanged config/crd/bases/cache.acme.io_redises.yaml\n\
                        created config/samples/cache_v1_redis.yaml\nchanged watches.yaml\n";
        assert!(output.starts_with(expected), "{output}");
        let crd = definition(&folder, "cache.acme.io_redises.yaml");
        let versions = crd["spec"]["versions"].as_array().unwrap();
        let stored: Vec<(&Value, &Value)> = versions.iter().map(|one| (&one["name"], &one["storage"])).collect();
        assert_eq!(stored, [(&json!("v1"), &json!(true)), (&json!("v1alpha1"), &json!(false))]);
        let watches = fs::read_to_string(folder.join("watches.yaml")).unwrap();
        assert!(watches.contains("  version: v1\n") && !watches.contains("v1alpha1"), "{watches}");
        let sample = fs::read_to_string(folder.join("config/samples/cache_v1_redis.yaml")).unwrap();
        assert!(sample.starts_with("apiVersion: cache.acme.io/v1\n"), "{sample}");
        home.within(&folder, "lint").ok();
        home.within(&folder, &REDIS.replace("v1alpha1", "v1")).fails_with(&["already exists in the project"]);
    }
}

#[test]
fn new_role_is_a_kind() {
    let home = Home::new("watches-ansible");
    let folder = home.watched_project("--ansible --group cache --version v1alpha1 --kind Redis");
    home.within(&folder, "lint").ok();
    home.within(&folder, "manifests").ok();
    let role = fs::read_to_string(folder.join("config/rbac/role.yaml")).unwrap();
    assert!(role.contains("- deployments\n") && !role.contains("'*'"), "{role}");
    let crd = definition(&folder, "cache.acme.io_redises.yaml");
    let expected = json!({"type": "integer", "description": "Port that the container listens on."});
    assert_eq!(spec_schema(&crd)["properties"]["containerPort"], expected);
    let sample = fs::read_to_string(folder.join("config/samples/cache_v1alpha1_redis.yaml")).unwrap();
    assert!(sample.ends_with("  # Port that the container listens on.\n  containerPort: 8080\n"), "{sample}");
    home.within(&folder, &format!("{REDIS}2 --chart {}", memcached().display()))
        .fails_with(&["project redis-operator is of type Ansible and has no charts", "init --helm"]);
}

/// Returns the files in a directory, with their paths inside it.
fn inner(folder: &Path) -> Vec<(PathBuf, String)> {
    let all = files(folder).into_iter();
    all.map(|(path, text)| (path.strip_prefix(folder).unwrap().to_owned(), text)).collect()
}

#[test]
fn existing_role_is_copied_unchanged() {
    let home = Home::new("watches-role");
    let role = Path::new(env!("CARGO_MANIFEST_DIR")).join("../flyball-ansible/tests/projects/visitors/roles/visitors");
    let folder = home.watched_project("--ansible");
    let create = format!("create api --group web --version v1 --kind VisitorsApp --role {}", role.display());
    home.within(&folder, &create).ok();
    assert_eq!(inner(&folder.join("roles/visitors")), inner(&role));
    let watches = fs::read_to_string(folder.join("watches.yaml")).unwrap();
    assert!(watches.contains("  kind: VisitorsApp\n  role: visitors\n"), "{watches}");
    let sample = fs::read_to_string(folder.join("config/samples/web_v1_visitorsapp.yaml")).unwrap();
    assert!(sample.ends_with("  namespace: default\n  size: 1\n  title: 'Visitors Dashboard'\n"), "{sample}");
    let crd = definition(&folder, "web.acme.io_visitorsapps.yaml");
    let spec = spec_schema(&crd);
    assert_eq!(spec["properties"]["size"]["type"], "integer");
    assert_eq!(spec["x-kubernetes-preserve-unknown-fields"], true);
    home.within(&folder, "lint").ok();
    home.within(&folder, "test --suite cluster").ok();

    // A role of the project stays as it is.
    home.within(&folder, "create api --group web --version v1 --kind Visitors").fails_with(&["--role roles/visitors"]);
    home.within(&folder, "create api --group web --version v1 --kind Visitors --role roles/visitors").ok();
    assert_eq!(inner(&folder.join("roles/visitors")), inner(&role));
    let other = create.replace("--kind VisitorsApp", "--kind Other");
    home.within(&folder, &other).fails_with(&["roles/visitors already exists", "nothing was written"]);
    let no_role = "create api --group web --version v1 --kind Other --role config";
    home.within(&folder, no_role).fails_with(&["--role config: the directory has no tasks/main.yml"]);
    home.succeed("", "init --helm other");
    home.within(&home.0.join("other"), &create).fails_with(&["project other is of type Helm and has no roles"]);
}

#[test]
fn existing_chart_is_copied_unchanged() {
    let home = Home::new("watches-chart");
    let chart = memcached();
    let folder = home.watched_project(&format!("--helm --chart {}", chart.display()));
    let original = inner(&chart);
    assert_eq!(inner(&folder.join("helm-charts/memcached")), original);
    let watches = fs::read_to_string(folder.join("watches.yaml")).unwrap();
    let entry = "- group: charts.acme.io\n  version: v1alpha1\n  kind: Memcached\n  chart: helm-charts/memcached\n  \
                 helmVersion: 4\n";
    assert!(watches.contains(entry), "{watches}");
    // Fields with a default are not required.
    let crd = definition(&folder, "charts.acme.io_memcacheds.yaml");
    let spec = spec_schema(&crd);
    assert_eq!(spec["properties"]["antiAffinity"]["enum"], json!(["soft", "hard", "none"]));
    assert_eq!((&spec["required"], &spec["x-kubernetes-preserve-unknown-fields"]), (&Value::Null, &true.into()));

    let files: Vec<(String, &String)> =
        original.iter().map(|(path, text)| (format!("any/{}", path.display()), text)).collect();
    let mut entries: Vec<(&str, &[u8])> = files.iter().map(|(path, text)| (path.as_str(), text.as_bytes())).collect();
    entries.push(("any/.git/config", b"[core]\n"));
    entries.push(("any/files/logo", b"\xff\xfe\x00"));
    fs::write(home.0.join("m.tgz"), archive(&entries)).unwrap();
    let other = "init --helm --chart m.tgz --group cache --version v1 --kind Cache other";
    home.succeed("", other);
    let copied = home.0.join("other/helm-charts/memcached");
    assert_eq!(fs::read(copied.join("files/logo")).unwrap(), b"\xff\xfe\x00");
    assert!(!copied.join(".git").exists());
    fs::remove_dir_all(copied.join("files")).unwrap();
    assert_eq!(inner(&copied), original);
    home.succeed("other", "lint");

    // A value that the chart requires has no default.
    let schema = r#"{"type": "object", "required": ["name", "size"], "properties": {"name": {"type": "string"}}}"#;
    let metadata = b"apiVersion: v2\nname: site\nversion: 1.0.0\n";
    let chart: [(&str, &[u8]); 3] =
        [("a/Chart.yaml", metadata), ("a/values.yaml", b"size: 1\n"), ("a/values.schema.json", schema.as_bytes())];
    fs::write(home.0.join("s.tgz"), archive(&chart)).unwrap();
    let output = home.within(&home.0.join("other"), "create api --chart ../s.tgz").ok();
    let note = "note: config/samples/charts_v1alpha1_site.yaml is invalid: spec.name: Required value; edit it";
    assert!(output.err.contains(note), "{output:?}");

    // A chart is not replaced in parts.
    fs::write(copied.join("templates/own.yaml"), "").unwrap();
    home.within(&home.0.join("other"), "create api --chart ../m.tgz")
        .fails_with(&["helm-charts/memcached already exists", "--force"]);
    home.within(&home.0.join("other"), "create api --chart ../m.tgz --force").fails_with(&[
        "helm-charts/memcached/templates/own.yaml is not in the new chart",
        "delete helm-charts/memcached",
    ]);
    // The chart of the project itself may have two kinds.
    home.succeed("other", "create api --chart helm-charts/memcached");
    assert!(copied.join("templates/own.yaml").exists());
}

#[test]
fn unusable_charts_are_named() {
    let home = Home::new("watches-bad");
    let folder = home.watched_project("--helm");
    let metadata = |more: &str| format!("apiVersion: v2\nname: site\nversion: 1.0.0\n{more}");
    let write = |path: &str, files: &[(&str, &str)]| {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
        fs::write(folder.join(path), archive(&files)).unwrap();
    };
    let library = metadata("type: library\n");
    let lacking = metadata("dependencies: [{name: db, version: 1.0.0, repository: 'https://example.com'}]\n");
    write("library.tgz", &[("a/Chart.yaml", &library)]);
    write("lacking.tgz", &[("a/Chart.yaml", &lacking)]);
    write("digit.tgz", &[("a/Chart.yaml", &metadata("").replace("site", "7up"))]);
    write("name.tgz", &[("a/Chart.yaml", &metadata("").replace("site", "'a b'"))]);
    write("none.tgz", &[("a/values.yaml", "a: 1\n")]);
    write("up.tgz", &[("a/Chart.yaml", &metadata("")), ("a/../../../evil", "x")]);
    write("absolute.tgz", &[("a/Chart.yaml", &metadata("")), ("a//evil", "x")]);
    fs::write(folder.join("text.tgz"), "text").unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    fs::create_dir_all(folder.join("helm-charts")).unwrap();
    let before = files(&folder.join("helm-charts"));
    for (chart, words) in [
        ("library.tgz", ["chart site has type library in Chart.yaml", "type application"]),
        ("lacking.tgz", ["missing in charts/ directory: db", "flyball helm dependency update lacking.tgz"]),
        ("digit.tgz", ["the name of chart 7up is not a kind name", "--kind Site"]),
        ("name.tgz", ["name \"a b\" in Chart.yaml", "rename the chart"]),
        ("none.tgz", ["Chart.yaml file is missing", "with a Chart.yaml"]),
        ("empty", ["Chart.yaml file is missing", "with a Chart.yaml"]),
        ("text.tgz", ["does not appear to be a gzipped archive", "helm package"]),
        ("up.tgz", ["chart illegally references parent directory", "up.tgz"]),
        ("absolute.tgz", ["chart illegally contains absolute paths", "absolute.tgz"]),
        ("nowhere", ["chart nowhere not found", "a .tgz"]),
        ("./nowhere", ["path \"./nowhere\" not found", "with a Chart.yaml"]),
        ("http://example.com/site-1.tgz", ["http://example.com/site-1.tgz has no TLS", "use https"]),
    ] {
        home.within(&folder, &format!("create api --chart {chart}")).fails_with(&words);
    }
    assert_eq!(files(&folder.join("helm-charts")), before);
    assert!(!folder.join("config").exists() && !folder.join("evil").exists() && !home.0.join("evil").exists());
    fs::write(folder.join("watches.yaml"), "[{group: a.io, version: v1, kind: Site, chart: empty}]\n").unwrap();
    home.within(&folder, REDIS)
        .fails_with(&["cannot add cache.acme.io/v1alpha1 Redis to watches.yaml", "- group: cache.acme.io"]);
    assert!(!folder.join("helm-charts/redis").exists());
}

#[test]
fn unusable_projects_and_commands_are_named() {
    let home = Home::new("watches-commands");
    for (line, words) in [
        ("init --helm --ansible a", "cannot be used with"),
        ("init --ansible --chart a b", "cannot be used with"),
        ("init --helm --flyball-path . a", "cannot be used with"),
        ("init --domain acme.io --chart a b", "need --helm or --ansible"),
        ("init --helm --kind Redis a", "required without a terminal: --group, --version"),
        ("init", "--domain"),
    ] {
        let output = home.within(&home.0, line);
        assert!(output.code == Some(2) && output.err.contains(words), "{line}: {output:?}");
    }
    assert!(!home.0.join("a").exists());
    home.run(&["create", "api"]).fails_with(&["no Flyball project found", "--helm or --ansible"]);
    fs::write(home.0.join("watches.yaml"), "").unwrap();
    home.run(&["create", "api"]).fails_with(&[
        "no Flyball project found",
        "write a file PROJECT",
        "type: helm or ansible",
    ]);
    for flags in ["--domain acme.io", "--helm", "--ansible", "--helm --chart nowhere"] {
        home.within(&home.0, &format!("init {flags}"))
            .fails_with(&["is not empty: it contains watches.yaml", "new directory"]);
    }

    let folder = home.watched_project("--helm");
    let webhook = "create webhook --group cache --version v1 --kind Redis --validation";
    home.within(&folder, webhook).fails_with(&["project redis-operator is of type Helm", "operator in Rust"]);
    home.run(&["init", "--domain", "acme.io", "rust"]).ok();
    home.within(&home.0.join("rust"), "create api --chart a")
        .fails_with(&["project rust is of type Rust", "init --helm"]);
    for (line, hint) in [
        ("helm-operator run --watches-file watches.yaml", "use flyball run, in the directory of watches.yaml"),
        ("ansible-operator run", "use flyball run, in the directory of watches.yaml"),
        ("run --local", "use flyball run"),
        ("add api --kind Redis", "use flyball create api"),
        ("generate k8s", "use cargo build"),
        ("generate bundle --version 1.0.0", "use flyball bundle create --image IMAGE"),
        ("run bundle registry.example.com/bundle:1.0", "flyball olm install"),
        ("docker-build IMG=a", "use flyball image build --tag IMAGE"),
        ("make docker-push", "use flyball image push IMAGE"),
        ("make deploy IMG=a", "use flyball deploy"),
        ("helm install site ./site", "use flyball create api --chart CHART"),
        ("helm upgrade site ./site --install", "use flyball apply"),
        ("helm uninstall site", "use flyball delete"),
        ("helm repo add stable https://charts.example.com", "use --repo URL"),
        // Other errors are those of clap.
        ("depoly", "'deploy'"),
        ("run --locall", "unexpected argument '--locall'"),
    ] {
        let output = home.within(&folder, line);
        assert!(output.code == Some(2) && output.err.contains(hint), "{line}: {output:?}");
    }
}

#[test]
fn doctor_names_file_field_and_remedy() {
    let home = Home::new("watches-doctor");
    let folder = home.watched_project("--helm");
    for (text, problem, remedy) in [
        (
            "- {group: a.io, version: v1, kind: Site}\n",
            "watches.yaml: entry 1 (Site): required: chart, role or playbook",
            "add chart: helm-charts/NAME, role: NAME or playbook: FILE to the entry",
        ),
        (
            "- {group: a.io, version: v1, kind: Site, chart: helm-charts/no}\n",
            "watches.yaml: entry 1 (Site): chart: no chart directory or archive at ./helm-charts/no",
            "set its path relative to this file",
        ),
        ("kind: Site\n", "watches.yaml: must be a list of entries", "begin each entry with - group:"),
    ] {
        fs::write(folder.join("watches.yaml"), text).unwrap();
        let output = home.within(&folder, "doctor");
        let found = output.out.split_once("x watches.yaml: ").unwrap_or_else(|| panic!("{output:?}")).1;
        assert!(found.contains(problem) && found.contains(remedy), "{found}");
    }
    fs::remove_file(folder.join("watches.yaml")).unwrap();
    let output = home.within(&folder, "doctor").out;
    let missing = "x watches.yaml: not found in this directory; PROJECT is that of a project of type Helm\n";
    assert!(output.starts_with(missing) && !output.contains("cargo"), "{output}");
}

#[test]
fn only_the_entry_with_a_locked_vault_is_out_of_service() {
    let home = Home::new("watches-locked");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let folder = home.watched_project("--ansible");
    home.within(&folder, REDIS).ok();
    home.within(&folder, "create api --group cache --version v1alpha1 --kind Stand").ok();
    fs::create_dir_all(folder.join("roles/stand/vars")).unwrap();
    fs::write(folder.join("roles/stand/vars/main.yml"), "$ANSIBLE_VAULT;1.1;AES256\n3164\n").unwrap();
    let problem = "watches.yaml: entry 2 (Stand): roles/stand/vars/main.yml: encrypted by ansible-vault";
    home.within(&folder, "manifests").fails_with(&[problem, "set vaultPasswordFile"]);
    let mut command = home.command(&["run", "--samples", "--", "--metrics-addr=0", "--health-addr=0"]);
    command.current_dir(&folder);
    let mut operator = LineReader::new(command);
    operator.until("entry 2 (Stand): ");
    until(&home, "get redises -o yaml", |output| output.out.contains("Awaiting next reconciliation"));
    until(&home, "get stands -o yaml", |output| output.out.contains("set vaultPasswordFile"));
    operator.stop();
}

#[test]
fn scaffolded_operators_run() {
    let home = Home::new("watches-run");
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.run(&["cluster", "node", "add"]).ok();
    let chart = memcached();
    for (name, flags, plural, state) in [
        ("web", "--helm --group cache --version v1 --kind Web", "webs", "deployed"),
        ("site", "--ansible --group cache --version v1 --kind Site", "sites", "Awaiting next reconciliation"),
        ("mem", &format!("--helm --chart {}", chart.display()), "memcacheds", "deployed"),
    ] {
        home.succeed("", &format!("init {flags} {name}"));
        let mut command = home.command(&["run", "--samples", "--", "--metrics-addr=0", "--health-addr=0"]);
        command.current_dir(home.0.join(name));
        let mut operator = LineReader::new(command);
        operator.until("reconciled outcome=");
        let output = CommandOutput::of(&home.command(&["get", plural]).output().unwrap()).ok().out;
        assert!(output.contains(state), "{name}: {output}");
        operator.stop();
    }
    // The CRD of a new chart has all of its fields.
    let bad = "apiVersion: cache.example.com/v1\nkind: Web\nmetadata: {name: bad}\nspec: {replicas: 2}\n";
    fs::write(home.0.join("bad.yaml"), bad).unwrap();
    let output = home.run(&["apply", "-f", "bad.yaml"]);
    assert!(output.err.contains("spec.replicas"), "{output:?}");
}

#[test]
fn run_restarts_a_chart_only_for_its_inputs() {
    let home = Home::new("watches-inputs");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let folder = home.watched_project("--helm");
    home.within(&folder, REDIS).ok();
    let mut command = home.command(&["run", "--", "--metrics-addr=0", "--health-addr=0"]);
    command.current_dir(&folder);
    let mut operator = LineReader::new(command);
    operator.until("starting operator=");
    let templates = folder.join("helm-charts/redis/templates");
    let template = fs::read_dir(&templates).unwrap().map(|entry| entry.unwrap().path());
    let template = template.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).min().unwrap();
    fs::create_dir_all(folder.join(".git")).unwrap();
    fs::create_dir_all(folder.join("target")).unwrap();
    for other in ["README.md", ".git/index", "target/a.yaml", ".watches.yaml.swp", "watches.yaml~", "4913"] {
        fs::write(folder.join(other), "changed").unwrap();
    }
    fs::write(folder.join("helm-charts/redis/README.md"), "changed").unwrap();
    fs::write(templates.join(".page.yaml.swp"), "changed").unwrap();
    fs::write(templates.join("page.yaml~"), "changed").unwrap();
    let text = fs::read_to_string(&template).unwrap();
    fs::write(&template, format!("{text}# edited\n")).unwrap();
    operator.until(&format!("{} changed", template.strip_prefix(&folder).unwrap().display()));
    let changes = operator.all.iter().filter(|line| line.ends_with(" changed")).count();
    assert_eq!(changes, 1, "{:#?}", operator.all);
    operator.until("starting operator=");
    operator.stop();
}
