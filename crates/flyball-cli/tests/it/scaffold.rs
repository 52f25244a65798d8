//! `flyball init`, `create` and `doctor`. `.ci/docs` compiles the generated projects and runs their tests.

use crate::{CommandOutput, Home};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

impl Home {
    /// Begins a project and returns its directory.
    fn project(&self) -> PathBuf {
        self.run(&["init", "--domain", "acme.io", "redis-operator"]).ok();
        self.0.join("redis-operator")
    }

    /// Runs a command in a directory.
    pub(crate) fn within(&self, folder: &Path, line: &str) -> CommandOutput {
        let words: Vec<&str> = line.split_whitespace().collect();
        CommandOutput::of(&self.command(&words).current_dir(folder).output().unwrap())
    }
}

/// Returns all files below a directory with their contents.
pub(crate) fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read_to_string(&path).unwrap());
        }
    }
    found
}

pub(crate) fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from} in {text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

const REDIS: &str = "--group cache --version v1alpha1 --kind Redis";

#[test]
fn project_is_created_in_an_empty_folder() {
    let home = Home::new("init");
    let folder = home.0.join("redis-operator");
    fs::create_dir_all(folder.join(".git")).unwrap();
    fs::write(folder.join(".gitignore"), "/mine\n").unwrap();
    let output = home.within(&folder, "init --domain acme.io --repo github.com/acme/redis-operator").ok();
    let expected = "created .dockerignore
created Cargo.toml
created Dockerfile
created PROJECT
created README.md
created src/lib.rs
created src/main.rs

Created project redis-operator. Next:
  flyball create api --group cache --version v1alpha1 --kind Redis
";
    assert_eq!(output.out, expected);
    assert!(output.err.contains("cargo not found; install it from https://rustup.rs"), "{output:?}");
    let written = files(&folder);
    assert_eq!(written[&folder.join(".gitignore")], "/mine\n");
    let expected = "# Written by `flyball init` and `flyball create`, which read and extend it.
layout: flyball/1
domain: acme.io
projectName: redis-operator
repo: github.com/acme/redis-operator
";
    assert_eq!(written[&folder.join("PROJECT")], expected);
    let manifest = &written[&folder.join("Cargo.toml")];
    assert!(manifest.contains("repository = \"https://github.com/acme/redis-operator\"\n"), "{manifest}");
    let version = env!("CARGO_PKG_VERSION");
    for name in ["flyball", "flyball-cluster"] {
        let begins = format!("\n{name} = {{ git = \"https://github.com/flyball-dev/flyball\", ");
        assert!(manifest.contains(&begins) && manifest.contains(&format!("version = \"{version}\"")), "{manifest}");
    }
    assert!(!manifest.contains("= \"/") && !manifest.contains("path ="), "{manifest}");

    home.within(&folder, "init --domain acme.io").fails_with(&["redis-operator/PROJECT already exists", "create api"]);
    fs::remove_file(folder.join("PROJECT")).unwrap();
    home.within(&folder, "init --domain acme.io")
        .fails_with(&["is not empty: it contains Cargo.toml", "new directory"]);
}

#[test]
fn library_dependency_follows_the_flags() {
    let home = Home::new("init-library");
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    std::os::unix::fs::symlink(&tree, home.0.join("flyball")).unwrap();
    let (url, at) = ("https://git.example.com/flyball", tree.display().to_string());
    // From a directory of the project's own that is two below the tree's parent.
    let folder = home.0.canonicalize().unwrap().join("ops/redis");
    let common = folder.components().zip(tree.components()).take_while(|(one, other)| one == other).count();
    let down: PathBuf = tree.components().skip(common).collect();
    let relative = format!("{}{}", "../".repeat(folder.components().count() - common), down.display());
    for (flags, variable, expected) in [
        (vec!["--flyball-git", url], "", format!("{{ git = \"{url}\" }}")),
        (vec!["--flyball-git", url, "--flyball-rev", "v1"], &*at, format!("{{ git = \"{url}\", rev = \"v1\" }}")),
        (vec!["--flyball-rev", "v1"], "", "{ git = \"https://github.com/flyball-dev/flyball\", rev = \"v1\" }".into()),
        (vec!["--flyball-version", "0.9.1"], &*at, "{ version = \"0.9.1\" }".into()),
        (vec!["--flyball-path", &at], "", format!("{{ path = \"{at}/crates/flyball\" }}")),
        (vec!["--flyball-path", "flyball"], "", format!("{{ path = \"{relative}/crates/flyball\" }}")),
        (vec![], &*at, format!("{{ path = \"{at}/crates/flyball\" }}")),
    ] {
        let mut command = home.command(&[&["init", "--domain", "acme.io", "ops/redis"], &flags[..]].concat());
        CommandOutput::of(&command.env("FLYBALL_PATH", variable).output().unwrap()).ok();
        let folder = home.0.join("ops/redis");
        let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(text.contains(&format!("\nflyball = {expected}\n")), "{flags:?}: {text}");
        assert_eq!(folder.join("Cargo.lock").exists(), expected.contains("path"), "{flags:?}");
        fs::remove_dir_all(folder).unwrap();
    }
    home.run(&["init", "--domain", "acme.io", "--flyball-git", &format!("{url}#v1"), "--flyball-rev", "v2", "new"]);
    assert!(!home.0.join("new").exists());
}

/// Returns the files below a directory of this repository that end in this.
fn sources(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_built = path.file_name().is_some_and(|name| name == "target");
        match path.is_dir() {
            true if !is_built => sources(&path, end, found),
            false if path.to_string_lossy().ends_with(end) => found.push(path),
            _ => {}
        }
    }
}

#[test]
fn conditions_of_all_kinds_are_map_lists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in ["../operators", "flyball-cli/templates", "flyball-cli/examples", "flyball/examples"] {
        sources(&crates.join(folder), ".rs", &mut files);
    }
    let mut declared = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (at, _) in text.match_indices("conditions: Vec<Condition>,") {
            let attributes = &text[text[..at].rfind("///").unwrap_or(0)..at];
            let is_map =
                attributes.contains(r#""x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]"#);
            assert!(is_map, "{}: {attributes}", file.display());
            declared += 1;
        }
    }
    assert!(declared >= 7, "{declared}");
}

#[test]
fn libraries_do_not_select_the_kubernetes_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let table = |text: &str, name: &str| {
        let after = text.split(&format!("\n[{name}]\n")).nth(1).unwrap_or_default().to_owned();
        let table = after.split("\n[").next().unwrap_or_default().to_owned();
        table.lines().filter(|line| line.starts_with("k8s-openapi")).map(str::to_owned).collect::<String>()
    };
    assert!(!table(&read("Cargo.toml"), "workspace.dependencies").contains("v1_"));
    for library in ["flyball", "flyball-ansible", "flyball-cluster", "flyball-helm"] {
        let text = read(&format!("crates/{library}/Cargo.toml"));
        assert_eq!(table(&text, "dependencies"), "k8s-openapi.workspace = true", "{library}");
        assert!(table(&text, "dev-dependencies").contains("features = [\"v1_36\"]"), "{library}");
    }
    for library in ["flyball-chart", "flyball-core", "flyball-schema", "flyball-server"] {
        assert!(!read(&format!("crates/{library}/Cargo.toml")).contains("k8s-openapi"), "{library}");
    }
}

#[test]
fn invalid_project_names_are_rejected() {
    let home = Home::new("init-bad");
    for (line, words) in [
        ("init", "--domain"),
        ("init --domain acme_io", "'--domain <DOMAIN>': \"acme_io\" is invalid: a lowercase RFC 1123 subdomain"),
        ("init --domain -", "is invalid"),
        ("init --domain acme.io --name tokio", "the name is a Rust keyword or the name of a dependency"),
        ("init --domain acme.io --name Redis", "\"Redis\" is invalid"),
        ("init --domain acme.io --repo redis", "expected a repository such as github.com/acme/redis-operator"),
        ("init --domain acme.io --flyball-path a --flyball-git b", "cannot be used with"),
        ("init --domain acme.io --flyball-version 1 --flyball-rev b", "cannot be used with"),
        ("init --domain acme.io --flyball-version latest", "expected a version such as 0.1.0"),
        ("init --domain acme.io --flyball-git u#a --flyball-rev b", "differs from --flyball-rev b"),
    ] {
        let output = home.within(&home.0, line);
        assert_eq!(output.code, Some(2), "{line}: {output:?}");
        assert!(output.err.contains(words), "{line}: {output:?}");
    }
    home.run(&["init", "--domain", "acme.io", "My Operator"]).fails_with(&[
        "the directory's name is not a project name: \"My Operator\" is invalid",
        "--name redis-operator",
    ]);
    home.run(&["init", "--domain", "acme.io", "--flyball-path", "/tmp", "new"])
        .fails_with(&["/tmp is not a Flyball source tree", "--flyball-git URL"]);
    // The directory is not writable for any user.
    home.run(&["init", "--domain", "acme.io", "/proc/operator"])
        .fails_with(&["cannot write /proc/operator/", "nothing was written"]);
    fs::write(home.0.join("file"), "").unwrap();
    home.run(&["init", "--domain", "acme.io", "file"]).fails_with(&["file is a file, not a directory"]);
    assert!(!home.0.join("new").exists() && !home.0.join("My Operator").exists());
}

#[test]
fn project_in_a_workspace_inherits_shared_settings() {
    let home = Home::new("init-member");
    let shared = "[workspace]\nmembers = [\"a\"]\n\n[workspace.package]\nedition = \"2024\"\n\n[workspace.dependencies]\nkube = \"5\"\n\n[workspace.lints.rust]\n";
    fs::write(home.0.join("Cargo.toml"), shared).unwrap();
    home.run(&["init", "--domain", "acme.io", "--flyball-git", "https://example.com/flyball#v1", "operators/redis"])
        .ok();
    let text = fs::read_to_string(home.0.join("Cargo.toml")).unwrap();
    assert!(text.starts_with("[workspace]\nmembers = [\"a\", \"operators/redis\"]\n"), "{text}");
    let folder = home.0.join("operators/redis");
    assert!(!folder.join("Cargo.lock").exists());
    let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for line in [
        "edition.workspace = true",
        "kube = { workspace = true, features = [\"derive\"] }",
        "flyball = { git = \"https://example.com/flyball\", rev = \"v1\" }",
        "[lints]\nworkspace = true",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn kinds_are_added_and_edits_kept() {
    let home = Home::new("create");
    let folder = home.project();
    let output = home.within(&folder, &format!("create api {REDIS}")).ok();
    let expected = "changed PROJECT
created config/samples/cache_v1alpha1_redis.yaml
created src/api/redis_v1alpha1.rs
created src/controllers/redis.rs
changed src/lib.rs
created tests/redis.rs

Next: cargo test
";
    assert_eq!(output.out, expected);
    home.within(&folder, &format!("create api {REDIS}"))
        .fails_with(&["cache.acme.io/v1alpha1 Redis already exists in the project", "--force"]);

    let lib = folder.join("src/lib.rs");
    edit(&lib, "/// Returns the operator with all of its CRDs, controllers and webhooks.", "/// Mine.");
    edit(
        &folder.join("src/api/redis_v1alpha1.rs"),
        "pub message: String,",
        "pub message: String,\n    /// Mine.\n    pub size: u8,",
    );
    let before = files(&folder);
    home.within(&folder.join("src"), "create api --group cache --version v1 --kind Tenant --namespaced=false").ok();
    // Flags that a further version does not support are rejected, and nothing is written.
    let more = "create api --group cache --version v1 --kind Redis";
    home.within(&folder, &format!("{more} --controller")).fails_with(&[
        "Redis has one controller, for its storage version cache.acme.io/v1alpha1 Redis",
        "drop --controller; it reconciles objects of all versions",
    ]);
    home.within(&folder, &format!("{more} --resource=false")).fails_with(&["drop --resource=false"]);
    home.within(&folder, more).ok();
    let output = home.within(&folder, &format!("create webhook {REDIS} --defaulting --validation -o json")).ok();
    let output: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(output[2]["file"], "tests/redis_webhook.rs");
    home.within(&folder, "create api --group apps --version v1 --kind Deployment").ok();

    let after = files(&folder);
    for (path, text) in before.iter().filter(|(path, _)| !path.ends_with("PROJECT")) {
        let mut lines = after[path].lines();
        assert!(text.lines().all(|line| lines.any(|kept| kept == line)), "{}", path.display());
    }
    let text = &after[&lib];
    let expected = "/// Mine.
pub fn operator() -> Operator {
    Operator::new(env!(\"CARGO_PKG_NAME\"))
        .version(env!(\"CARGO_PKG_VERSION\"))
        .crd(api::redis_v1alpha1::Redis::crd())
        .controller(controllers::redis::controller())
        .crd(api::tenant_v1::Tenant::crd())
        .controller(controllers::tenant::controller())
        .crd(api::redis_v1::Redis::crd())
        .webhook(webhooks::redis::webhook())
        .controller(controllers::deployment::controller())
    // +flyball:operator
}
";
    assert!(text.ends_with(expected), "{text}");
    let second = &after[&folder.join("src/api/redis_v1.rs")];
    assert!(second.contains("version = \"v1\"") && second.contains("pub size: u8,"), "{second}");
    assert!(second.contains("impl TryFrom<super::redis_v1alpha1::Redis> for Redis"), "{second}");
    // The samples of both versions are applied together.
    let sample = &after[&folder.join("config/samples/cache_v1_redis.yaml")];
    assert!(
        sample.contains("apiVersion: cache.acme.io/v1\n") && sample.contains("name: redis-sample-v1\n"),
        "{sample}"
    );
    let test = &after[&folder.join("tests/redis_v1.rs")];
    assert!(test.contains(".get(\"redis-sample-v1\")"), "{test}");
    let project = &after[&folder.join("PROJECT")];
    assert!(
        project.contains("  webhooks:\n    defaulting: true\n    validation: true\n    conversion: true\n"),
        "{project}"
    );
    assert!(project.ends_with("  controller: true\n  foreign: true\n"), "{project}");
}

#[test]
fn missing_marker_is_named_and_nothing_is_written() {
    let home = Home::new("anchors");
    let folder = home.project();
    edit(&folder.join("src/lib.rs"), "    // +flyball:api\n", "");
    edit(&folder.join("src/lib.rs"), "    // +flyball:operator\n", "");
    let before = files(&folder);
    home.within(&folder, &format!("create api {REDIS}")).fails_with(&[
        "the line `// +flyball:api` is missing in src/lib.rs",
        "pub mod redis_v1alpha1;",
        "the line `// +flyball:operator` is missing in src/lib.rs",
        ".controller(controllers::redis::controller())",
    ]);
    assert_eq!(files(&folder), before);
    // Who adds the lines by hand can go on.
    edit(
        &folder.join("src/lib.rs"),
        "    //! Custom resources: one module for each version of a kind.\n",
        "    //! Mine.\n\n    pub mod redis_v1alpha1;\n",
    );
    edit(
        &folder.join("src/lib.rs"),
        "        .version(env!(\"CARGO_PKG_VERSION\"))\n",
        "        .version(env!(\"CARGO_PKG_VERSION\"))\n        .crd(api::redis_v1alpha1::Redis::crd())\n        .controller(controllers::redis::controller())\n",
    );
    home.within(&folder, &format!("create api {REDIS}")).ok();
}

#[test]
fn existing_files_are_kept() {
    let home = Home::new("in-the-way");
    let folder = home.project();
    fs::create_dir(folder.join("tests")).unwrap();
    fs::write(folder.join("tests/redis.rs"), "// mine\n").unwrap();
    let before = files(&folder);
    home.within(&folder, &format!("create api {REDIS}"))
        .fails_with(&["tests/redis.rs already exists", "nothing was written"]);
    assert_eq!(files(&folder), before);
    home.within(&folder, &format!("create api {REDIS} --force")).ok();
    // A file where a directory has to be is found out when half is written.
    fs::write(folder.join("src/webhooks"), "").unwrap();
    let before = files(&folder);
    home.within(&folder, &format!("create webhook {REDIS} --validation")).fails_with(&["src/webhooks"]);
    home.within(&folder, "create api --group cache --version v1 --kind Redis").fails_with(&["src/webhooks"]);
    assert_eq!(files(&folder), before);
}

#[test]
fn usage_errors_exit_with_2_and_others_with_1() {
    let home = Home::new("create-bad");
    home.within(&home.0, &format!("create api {REDIS}")).fails_with(&["no Flyball project found", "flyball init"]);
    let folder = home.project();
    for (line, words) in [
        ("create api --group cache", "required without a terminal: --version, --kind"),
        ("create api --group Cache --version v1 --kind Redis", "\"Cache\" is invalid"),
        ("create api --group cache --version 1 --kind Redis", "expected a version such as v1, v1beta1 or v1alpha1"),
        ("create api --group cache --version v1 --kind redis", "a kind begins with a capital letter"),
        ("create api --group cache --version v1 --kind Red-is", "a kind consists of letters and digits"),
        ("create api --group cache --version v1 --kind Redis --plural Redis", "\"Redis\" is invalid"),
        ("create webhook --group cache --version v1 --kind Redis", "--defaulting, --validation, --conversion"),
        ("add api --kind Redis", "use flyball create api"),
        ("add controller", "--resource=false"),
        ("generate k8s", "use cargo build"),
    ] {
        let output = home.within(&folder, line);
        assert_eq!(output.code, Some(2), "{line}: {output:?}");
        assert!(output.err.contains(words), "{line}: {output:?}");
    }
    home.within(&folder, &format!("create api {REDIS} --resource=false"))
        .fails_with(&["needs its types, which do not exist"]);
    home.within(&folder, &format!("create api {REDIS} --resource=false --controller=false"))
        .fails_with(&["nothing to create"]);
    home.within(&folder, &format!("create webhook {REDIS} --validation"))
        .fails_with(&["cache.acme.io/v1alpha1 Redis not found in the project; it has no kinds", "create it first"]);
    // The error suggests the kind in another version or group.
    home.within(&folder, "create webhook --group apps --version v1beta1 --kind Deployment --validation")
        .fails_with(&["hint: for Deployment, pass --group apps --version v1 --kind Deployment\n", "--crd FILE|NAME"]);
    let output = home.within(&folder, "create webhook --group= --version v1 --kind Redis --validation");
    output.fails_with(&["v1 Redis not found in the project", "--crd FILE|NAME"]);
    assert!(!output.err.contains("create api"), "{output:?}");
    home.within(&folder, &format!("create api {REDIS} --controller=false")).ok();
    home.within(&folder, "create webhook --group= --version v1 --kind Redis --validation")
        .fails_with(&["hint: for Redis, pass --group cache.acme.io --version v1alpha1 --kind Redis\n"]);
    home.within(&folder, "create api --group cache --version v1 --kind Redis --namespaced=false")
        .fails_with(&["cache.acme.io/v1alpha1 Redis has a different plural or scope"]);
    home.within(&folder, &format!("create webhook {REDIS} --conversion"))
        .fails_with(&["has no other version", "--version v1"]);
    home.within(&folder, &format!("create api {REDIS} --resource=false")).ok();
    fs::write(folder.join("PROJECT"), "layout: [").unwrap();
    home.within(&folder, &format!("create api {REDIS}")).fails_with(&["redis-operator/PROJECT", "version control"]);
}

#[test]
fn webhooks_are_created_for_foreign_kinds() {
    let home = Home::new("webhooks-of-others");
    let folder = home.project();
    let run = |line: &str| home.within(&folder, line);
    let output = run("create webhook --group= --version v1 --kind Pod --validation --defaulting").ok();
    assert!(
        output.out.starts_with(
            "changed PROJECT\nchanged src/lib.rs\ncreated src/webhooks/pod.rs\ncreated tests/pod_webhook.rs\n"
        ),
        "{output:?}"
    );
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    let code = read("src/webhooks/pod.rs");
    assert!(code.contains("use k8s_openapi::api::core::v1::Pod;") && code.contains("pub fn validate("), "{code}");
    assert!(read("src/lib.rs").contains("    .webhook(webhooks::pod::webhook())"));
    run("create webhook --group core --version v1 --kind Pod --validation")
        .fails_with(&["already has a validation webhook"]);
    run("create webhook --group apps --version v1 --kind Deployment --validation").ok();
    assert!(read("src/webhooks/deployment.rs").contains("use k8s_openapi::api::apps::v1::Deployment;"));
    run("create webhook --group= --version v1 --kind Pod --conversion").fails_with(&["is not defined by this project"]);

    // With a controller first, or afterwards.
    run("create api --group= --version v1 --kind ConfigMap").ok();
    run("create webhook --group core --version v1 --kind ConfigMap --defaulting").ok();
    run("create api --group core --version v1 --kind Pod").ok();
    assert_eq!(read("PROJECT").matches("kind: Pod").count(), 1);

    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/crontab/definition.yaml");
    run(&format!("create webhook --crd {} --validation", sample.display())).ok();
    let code = read("src/webhooks/crontab.rs");
    assert!(code.contains("use crate::api::crontab_v1::CronTab;"), "{code}");
    assert!(folder.join("config/foreign/crontabs.stable.example.com.yaml").exists());
    run("create webhook --group stable.example.com --version v1 --kind CronTab --defaulting").ok();

    // A group with a dot is whole.
    let errors = [
        "cert.example.org/v1 Issuer not found in the project; it has",
        "create it first: flyball create api --group cert.example.org --version v1 --kind Issuer",
        "--crd FILE|NAME",
    ];
    run("create webhook --group cert.example.org --version v1 --kind Issuer --validation").fails_with(&errors);
    run("create api --group cert.example.org --version v1 --kind Issuer").ok();
    run("create webhook --group cert.example.org --version v1 --kind Issuer --validation").ok();
    assert!(read("PROJECT").contains("group: cert.example.org\n"));
}

#[test]
fn types_of_foreign_kinds_follow_their_definition() {
    let home = Home::new("foreign");
    let folder = home.project();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/crontab/definition.yaml");
    let output = home.within(&folder, &format!("create api --crd {}", sample.display())).ok();
    let expected = "changed PROJECT
created config/foreign/crontabs.stable.example.com.yaml
created src/api/crontab_v1.rs
created src/controllers/crontab.rs
changed src/lib.rs
created tests/crontab.rs
";
    assert!(output.out.starts_with(expected), "{output:?}");
    let types = fs::read_to_string(folder.join("src/api/crontab_v1.rs")).unwrap();
    assert!(types.contains("    pub cron_spec: Option<String>,\n"), "{types}");
    home.within(&folder, "create api --crd nothing.yaml").fails_with(&["file nothing.yaml not found"]);
    let text = fs::read_to_string(&sample).unwrap().replace("openAPIV3Schema", "openAPISchema");
    fs::write(folder.join("printed.yaml"), text).unwrap();
    home.within(&folder, "create api --crd printed.yaml").fails_with(&["has no openAPIV3Schema, but openAPISchema"]);

    home.run(&["cluster", "up", "--quiet"]).ok();
    // A common form in tutorials, which the API server also rejects.
    home.within(&folder, "apply -f printed.yaml").fails_with(&["openAPISchema"]);
    home.run(&["apply", "-f", &sample.display().to_string()]).ok();
    home.within(&folder, "create api --crd crontabs.stable.example.com --version v1")
        .fails_with(&["already exists in the project"]);

    // Errors of the project are found, regardless of the machine.
    fs::remove_file(folder.join("src/controllers/crontab.rs")).unwrap();
    let old = "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n";
    fs::write(folder.join("config/old.yaml"), old).unwrap();
    let output = home.within(&folder, "doctor");
    for words in [
        "x file: src/controllers/crontab.rs not found",
        "x manifest: apiextensions.k8s.io/v1beta1 CustomResourceDefinition is not served by Kubernetes v1.",
        "use apiextensions.k8s.io/v1, which this cluster serves, in config/old.yaml",
        "+ cluster: version v1.",
    ] {
        assert!(output.out.contains(words), "{words}: {output:?}");
    }
    assert!(output.code == Some(1) && output.err.contains("problems found"), "{output:?}");
    let output = home.within(&home.0, "doctor --kubeconfig none -o json");
    let findings: Vec<Value> = serde_json::from_str(&output.out).unwrap();
    let state =
        |about: &str| findings.iter().find(|one| one["about"] == about).map(|one| one["state"].clone()).unwrap();
    assert_eq!((state("project"), state("cluster"), output.code), ("absent".into(), "wrong".into(), Some(1)));
}

#[test]
fn project_without_rust_code_needs_no_compiler() {
    let home = Home::new("doctor-watches");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let folder = home.0.join("site");
    fs::create_dir_all(folder.join("roles/site/tasks")).unwrap();
    fs::create_dir_all(folder.join("config/scorecard")).unwrap();
    fs::write(folder.join("roles/site/tasks/main.yml"), "- debug: {msg: hello}\n").unwrap();
    fs::write(folder.join("watches.yaml"), "- {group: a.io, version: v1, kind: Site, role: site}\n").unwrap();
    fs::write(folder.join("config/scorecard/patch.yaml"), "- {op: add, path: /stages, value: []}\n").unwrap();
    let output = home.within(&folder, "doctor").ok();
    let expected = "in watches.yaml
+ kinds: sites.v1.a.io
- ansible-playbook: not installed
    optional, for roles with modules that are not built in: pip install ansible-core kubernetes
- CRD: sites.a.io is not in config/crd
    add its CustomResourceDefinition there, or apply it to the cluster before the operator runs
+ cluster: version v1.";
    assert!(
        output.out.contains(expected) && !output.out.contains("rust") && !output.out.contains("cargo"),
        "{output:?}"
    );
    assert!(output.out.ends_with("+ manifests: every kind in config is served\n"), "{output:?}");
    fs::write(folder.join("watches.yaml"), "- {group: a.io, version: v1, kind: Site, role: none}\n").unwrap();
    let output = home.within(&folder, "doctor");
    output.fails_with(&["1 problem found"]);
    assert!(output.out.contains("x watches.yaml: cannot create the operator: watches.yaml: entry 1 (Site): role"));
}
