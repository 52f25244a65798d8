//! Charts from URLs, repositories and registries: `flyball helm pull`, `show`, `dependency`, and `--chart`.

use crate::registry::{AUTH, Manner, Registry, sha256};
use crate::watches::archive;
use crate::web_server::{Page, WebServer};
use crate::{CommandOutput, Home};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::process::Stdio;

/// `Chart.yaml` of the chart whose dependencies Helm 4.2.3 resolved, with the URL of its repository.
const SITE: &str = r#"apiVersion: v2
name: site
version: 3.1.0
description: part "site"
dependencies:
- name: cache
  version: ">=1.0.0 <1.9"
  repository: http://127.0.0.1:18099
  condition: cache.enabled,global.cache
  tags: [fast, "a&b"]
  import-values:
  - data
  - child: a.b
    parent: c
- name: queue
  version: ~0.4
  repository: http://127.0.0.1:18099
  alias: jobs
- name: local
  version: 0.x
  repository: file://../local
"#;
/// The lock that Helm 4.2.3 wrote, without digest and time.
const LOCK: &str = "dependencies:
- name: cache
  repository: http://127.0.0.1:18099
  version: 1.3.0+build.5
- name: queue
  repository: http://127.0.0.1:18099
  version: 0.4.2
- name: local
  repository: file://../local
  version: 0.7.0
";
/// The digest in that lock.
const DIGEST: &str = "sha256:8e6419050d4a3291f026110a40835af0dc6b08d2f90777b76ee84b4e586e2980";
const VALUES: &str = "size: 1\n";

fn metadata(name: &str, version: &str) -> String {
    format!("apiVersion: v2\nname: {name}\nversion: {version}\ndescription: part \"{name}\"\n")
}

/// Returns the archive of a chart.
fn packed(name: &str, version: &str) -> Vec<u8> {
    let map = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}-{{{{ .Values.size }}}}}}\n");
    archive(&[
        (&format!("{name}/Chart.yaml"), metadata(name, version).as_bytes()),
        (&format!("{name}/values.yaml"), VALUES.as_bytes()),
        (&format!("{name}/README.md"), b"# Read me\n"),
        (&format!("{name}/crds/page.yaml"), b"kind: CustomResourceDefinition\n"),
        (&format!("{name}/templates/map.yaml"), map.as_bytes()),
    ])
}

/// Serves charts with their index, as `helm repo index` writes it.
fn repository(charts: &[(&str, &str)]) -> WebServer {
    let server = WebServer::start();
    let mut names: Vec<&str> = charts.iter().map(|(name, _)| *name).collect();
    names.dedup();
    let mut index = "apiVersion: v1\nentries:\n".to_owned();
    for name in names {
        let _ = writeln!(index, "  {name}:");
        for (_, version) in charts.iter().filter(|(of, _)| *of == name) {
            let (file, bytes) = (format!("{name}-{version}.tgz"), packed(name, version));
            let digest = sha256(&bytes).replace("sha256:", "");
            let _ = writeln!(index, "  - created: \"2026-11-26T11:29:18.597486135Z\"\n    digest: {digest}");
            let _ = writeln!(index, "    name: {name}\n    urls:\n    - {file}\n    version: {version}");
            server.put(&format!("/{file}"), Page::File(bytes));
        }
    }
    server.put("/index.yaml", Page::File(index.into_bytes()));
    server
}

fn caches() -> WebServer {
    let versions = ["1.0.0", "1.2.3", "1.3.0+build.5", "1.9.3", "2.0.0-rc.1"];
    let mut charts: Vec<(&str, &str)> = versions.iter().map(|version| ("cache", *version)).collect();
    charts.extend([("queue", "0.4.2"), ("queue", "0.5.0")]);
    repository(&charts)
}

impl Home {
    fn entries(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(folder)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }

    fn write_chart(&self, folder: &str, metadata: &str) {
        let folder = self.0.join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("Chart.yaml"), metadata).unwrap();
        fs::write(folder.join("values.yaml"), VALUES).unwrap();
    }

    /// Runs a command with a text as its standard input.
    pub(crate) fn run_with_input(&self, args: &[&str], input: &str) -> CommandOutput {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        CommandOutput::of(&child.wait_with_output().unwrap())
    }
}

#[test]
fn charts_are_pulled_from_a_repository() {
    let (home, server) = (Home::new("charts-pull"), caches());
    let url = server.url.as_str();
    let pull = |more: &[&str]| home.run(&[&["helm", "pull", "--repo", url, "cache"], more].concat());
    let output = pull(&[]).ok();
    assert_eq!((output.out.as_str(), output.err.as_str()), ("", ""));
    assert_eq!(fs::read(home.0.join("cache-1.9.3.tgz")).unwrap(), packed("cache", "1.9.3"));
    pull(&["--version", "^1.2 <1.9"]).ok();
    pull(&["--devel"]).ok();
    assert_eq!(home.entries("."), ["cache-1.3.0+build.5.tgz", "cache-1.9.3.tgz", "cache-2.0.0-rc.1.tgz"]);
    pull(&["--version", "^3"]).fails_with(&[&format!("Error: no version of cache in {url} matches ^3; newest: 1.9.3")]);
    pull(&["--version", "new"]).fails_with(&["\"new\" is neither a version nor a constraint", "hint: use a version"]);
    home.run(&["helm", "pull", "--repo", url, "cach"])
        .fails_with(&[&format!("chart cach not found in {url}"), "similar charts: cache"]);

    pull(&["--untar", "--untardir", "charts"]).ok();
    assert_eq!(home.entries("charts/cache"), ["Chart.yaml", "README.md", "crds", "templates", "values.yaml"]);
    assert_eq!(fs::read_to_string(home.0.join("charts/cache/Chart.yaml")).unwrap(), metadata("cache", "1.9.3"));
    pull(&["--untar", "--untardir", "charts"])
        .fails_with(&["failed to untar: a file or directory with the name charts/cache already exists"]);
    fs::create_dir(home.0.join("to")).unwrap();
    home.run(&["helm", "pull", &format!("{url}/queue-0.4.2.tgz"), "-d", "to"]).ok();
    assert_eq!(home.entries("to"), ["queue-0.4.2.tgz"]);
    pull(&["-d", "nowhere"]).fails_with(&["directory nowhere not found"]);
    home.run(&["helm", "pull", "--repo", &format!("{url}/none"), "cache"]).fails_with(&[
        &format!("{url}/none/index.yaml is not available (404 Not Found)"),
        "is a chart repository with an index.yaml",
    ]);
}

#[test]
fn other_content_than_listed_is_rejected() {
    let (home, server) = (Home::new("charts-digest"), caches());
    let pull = ["helm", "pull", "--repo", &server.url, "queue"];
    server.put("/queue-0.5.0.tgz", Page::File(packed("queue", "0.5.1")));
    home.run(&pull).fails_with(&["the archive of queue 0.5.0 has digest sha256:", "lists ", "nothing was written"]);
    server.put("/index.yaml", Page::File(b"<html>no index</html>".into()));
    home.run(&pull).fails_with(&["has no chart index"]);
    server.put("/page.tgz", Page::File(b"<html>log in</html>".into()));
    home.run(&["helm", "pull", &format!("{}/page.tgz", server.url)]).fails_with(&["page.tgz is not a chart archive"]);
    let outside = archive(&[("site/../../evil", b"x"), ("site/Chart.yaml", metadata("site", "1.0.0").as_bytes())]);
    server.put("/up.tgz", Page::File(outside));
    home.run(&["helm", "pull", "--untar", &format!("{}/up.tgz", server.url)])
        .fails_with(&["chart illegally references parent directory"]);
    server.put("/name.tgz", Page::File(archive(&[("a/Chart.yaml", b"name: ../evil\nversion: 1.0.0\n")])));
    home.run(&["helm", "pull", "--untar", &format!("{}/name.tgz", server.url)])
        .fails_with(&["name \"../evil\" in Chart.yaml is not a file name"]);
    assert!(home.entries(".").is_empty());
}

#[test]
fn responses_and_redirects_are_bounded() {
    let (home, server) = (Home::new("charts-bounds"), WebServer::start());
    let pull = |path: &str| home.run(&["helm", "pull", &format!("{}{path}", server.url)]);
    let index = |path: &str| home.run(&["helm", "pull", "--repo", &format!("{}{path}", server.url), "site"]);
    server.put("/sized/index.yaml", Page::Sized((64 << 20) + 1));
    server.put("/endless/index.yaml", Page::Endless(80 << 20));
    server.put("/huge.tgz", Page::Sized(1 << 40));
    index("/sized").fails_with(&["is larger than 64 MiB"]);
    index("/endless").fails_with(&["is larger than 64 MiB"]);
    pull("/huge.tgz").fails_with(&["is larger than 100 MiB"]);
    server.put("/around.tgz", Page::Redirect("/around.tgz".into()));
    server.requests();
    pull("/around.tgz").fails_with(&["redirects more than 5 times"]);
    assert_eq!(server.requests().len(), 6);
    server.put("/plain.tgz", Page::Redirect("http://charts.example.com/site.tgz".into()));
    pull("/plain.tgz").fails_with(&["http://charts.example.com/site.tgz has no TLS", "hint: use https"]);
    server.put("/file.tgz", Page::Redirect("file:///etc/passwd".into()));
    pull("/file.tgz").fails_with(&["unsupported scheme file"]);
    server.put("/moved.tgz", Page::Redirect("cache-1.0.0.tgz".into()));
    server.put("/cache-1.0.0.tgz", Page::File(packed("cache", "1.0.0")));
    pull("/moved.tgz").ok();
    // The file name is that of the request, as with Helm.
    assert_eq!(home.entries("."), ["moved.tgz"]);
}

#[test]
fn credentials_stay_with_their_server() {
    let (home, server, other) = (Home::new("charts-credentials"), WebServer::start(), WebServer::start());
    let chart = packed("site", "1.0.0");
    let index = format!(
        "apiVersion: v1\nentries:\n  site:\n  - version: 1.0.0\n    urls: [\"{}/site.tgz\"]\n  near:\n  - version: \
         1.0.0\n    urls: [near.tgz]\n  led:\n  - version: 1.0.0\n    urls: [led.tgz]\n",
        other.url
    );
    server.put("/index.yaml", Page::Secret(index.into()));
    server.put("/near.tgz", Page::Secret(chart.clone()));
    server.put("/led.tgz", Page::Redirect(format!("{}/site.tgz", other.url)));
    other.put("/site.tgz", Page::File(chart));
    let pull = |name: &str| {
        let login = ["--username", "me", "--password-stdin"];
        let args = [&["helm", "pull", "--repo", &server.url, name], &login[..]].concat();
        home.run_with_input(&args, "secret\n").ok();
    };
    home.run(&["helm", "pull", "--repo", &server.url, "site"])
        .fails_with(&["(401 Unauthorized)", "hint: pass credentials: --username NAME --password-stdin"]);
    server.requests();
    ["site", "near", "led"].into_iter().for_each(pull);
    assert_eq!(server.requests(), ["/index.yaml*", "/index.yaml*", "/near.tgz*", "/index.yaml*", "/led.tgz*"]);
    assert_eq!(other.requests(), ["/site.tgz", "/site.tgz"]);
    let refused = home.run(&["helm", "pull", "--repo", &server.url, "site", "--username", "me", "--password", "wrong"]);
    refused.fails_with(&["(401 Unauthorized)", "check --username"]);
    assert!(!refused.err.contains("wrong"));
    let with_login = server.url.replace("http://", "http://me:secret@");
    let refused = home.run(&["helm", "pull", "--repo", &with_login, "site"]);
    refused.fails_with(&["contains credentials", "--password-stdin"]);
    assert!(!refused.err.contains("secret"));
}

#[test]
fn credentials_are_for_one_server_of_subcharts() {
    let (home, server, other) = (Home::new("charts-login"), WebServer::start(), WebServer::start());
    let index = "apiVersion: v1\nentries:\n  cache:\n  - version: 1.0.0\n    urls: [cache.tgz]\n";
    for server in [&server, &other] {
        server.put("/index.yaml", Page::Secret(index.into()));
        server.put("/cache.tgz", Page::Secret(packed("cache", "1.0.0")));
    }
    let write = |more: &str| {
        let own = format!("- {{name: cache, version: 1.0.0, repository: \"{}\"}}\n", server.url);
        home.write_chart("site", &format!("{}dependencies:\n{own}{more}", metadata("site", "1.0.0")));
    };
    let run = |command: &str| {
        let args = ["helm", "dependency", command, "site", "--username", "me", "--password-stdin"];
        home.run_with_input(&args, "secret\n")
    };
    write("");
    run("update").ok();
    assert_eq!(server.requests(), ["/index.yaml*", "/cache.tgz*"]);
    let lock = home.0.join("site/Chart.lock");
    let locked = fs::read_to_string(&lock).unwrap();

    write(&format!("- {{name: cache, alias: more, version: 1.0.0, repository: \"{}\"}}\n", other.url));
    run("update").fails_with(&["--username is for one server, but the dependencies are on 2", &other.url, "helm pull"]);
    assert_eq!(fs::read_to_string(&lock).unwrap(), locked);
    fs::remove_file(&lock).unwrap();
    run("build").fails_with(&["--username is for one server"]);
    assert_eq!((server.requests(), other.requests()), (vec![], vec![]));
}

#[test]
fn unsupported_flags_are_refused() {
    let home = Home::new("charts-flags");
    for (flags, words) in [
        ("--cert-file a", ["--cert-file is not supported", "helm pull --cert-file"]),
        ("--insecure-skip-tls-verify", ["--insecure-skip-tls-verify is not supported", "--ca-file"]),
        ("--pass-credentials", ["--pass-credentials is not supported", "one server only"]),
        ("--username me", ["--username needs a password", "--password-stdin"]),
        ("--ca-file nowhere", ["--ca-file: cannot read nowhere", ""]),
        ("--plain-http", ["--plain-http: registry.example.com is not on this machine", "with TLS"]),
        ("--colour", ["unknown flag: --colour", ""]),
    ] {
        let line = format!("helm pull oci://registry.example.com/site {flags}");
        home.within(&home.0, &line).fails_with(&words);
    }
    for (line, word) in [
        ("helm pull stable/site", "Error: repo stable not found"),
        ("helm show chart stable/site", "path \"stable/site\" not found"),
        ("helm dependency build nowhere", "could not find nowhere"),
    ] {
        home.within(&home.0, line).fails_with(&[word]);
    }
}

/// Puts a chart into a registry.
fn push(registry: &Registry, tag: &str, chart: &[u8], config: &str) -> String {
    let (config_digest, layer) = (sha256(b"{}"), sha256(chart));
    let manifest = json!({
        "schemaVersion": 2,
        "config": {"mediaType": config, "digest": config_digest, "size": 2},
        "layers": [{
            "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": layer, "size": chart.len(),
        }],
    })
    .to_string();
    let mut state = registry.state.lock().unwrap();
    state.blobs.insert(layer, chart.to_vec().into());
    let digest = sha256(manifest.as_bytes());
    for name in [digest.clone(), tag.replace('+', "_")] {
        state.manifests.insert(name, (String::new(), manifest.clone().into()));
    }
    digest
}

const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";

#[test]
fn charts_are_pulled_from_a_registry() {
    let (home, registry) = (Home::new("charts-oci"), Registry::start(Manner::Bearer));
    let mut digests = Vec::new();
    for version in ["1.2.0", "1.3.0+build.5", "2.0.0-rc.1"] {
        digests.push(push(&registry, version, &packed("site", version), CONFIG));
    }
    push(&registry, "latest", &packed("site", "9.9.9"), CONFIG);
    let config = home.0.join(".login.json");
    let auths = json!({"auths": {registry.address.as_str(): {"auth": AUTH}}});
    fs::write(&config, auths.to_string()).unwrap();
    let reference = format!("oci://{}/team/site", registry.address);
    let run =
        |args: &[&str]| CommandOutput::of(&home.command(args).env("HELM_REGISTRY_CONFIG", &config).output().unwrap());
    home.run(&["helm", "pull", &reference]).fails_with(&["requires authentication to pull from team/site"]);
    let output = run(&["helm", "pull", &reference]).ok();
    let label = reference.replace("oci://", "");
    assert_eq!(output.err, format!("Pulled: {label}:1.3.0+build.5\nDigest: {}\n", digests[1]));
    assert_eq!(fs::read(home.0.join("site-1.3.0+build.5.tgz")).unwrap(), packed("site", "1.3.0+build.5"));
    run(&["helm", "pull", &reference, "--version", "1.2.0"]).ok();
    run(&["helm", "pull", &format!("{reference}:1.2.0@{}", digests[0])]).ok();
    run(&["helm", "pull", &reference, "--version", ">1.5-0"]).ok();
    let by_digest = format!("{reference}@{}", digests[0]);
    run(&["helm", "pull", &by_digest]).ok();
    assert!(home.0.join(format!("site@{}.tgz", digests[0].replace(':', "-"))).is_file());
    let login = ["--username", "me", "--password-stdin"];
    let args = [&["helm", "show", "chart", &reference], &login[..]].concat();
    let shown = home.run_with_input(&args, "secret").ok().out;
    assert!(shown.contains("version: 1.3.0+build.5\n"), "{shown}");

    run(&["helm", "pull", &reference, "--version", "^3"])
        .fails_with(&[&format!("no version of {reference} matches ^3; newest: 1.3.0+build.5")]);
    run(&["helm", "pull", &reference, "--version", "1.2.1"])
        .fails_with(&[&format!("no version of {reference} matches =1.2.1; newest: 1.3.0+build.5")]);
    run(&["helm", "pull", &format!("{reference}:1.2.0@{}", digests[1])]).fails_with(&["has digest", &digests[1]]);
    run(&["helm", "pull", &by_digest.replace("sha256:", "sha512:")]).fails_with(&["expected @sha256:DIGEST"]);
    push(&registry, "4.0.0", b"x", "application/vnd.oci.image.config.v1+json");
    run(&["helm", "pull", &reference, "--version", "4.0.0"]).fails_with(&["is not a chart: its config has media type"]);
    registry.state.lock().unwrap().blobs.insert(sha256(&packed("site", "1.2.0")), "changed".into());
    run(&["helm", "pull", &reference, "--version", "1.2.0"]).fails_with(&["returned content that does not match"]);
    assert!(registry.state.lock().unwrap().requests.iter().all(|request| !request.contains("push")));
}

#[test]
fn parts_of_a_chart_are_shown_as_by_helm() {
    let (home, server) = (Home::new("charts-show"), caches());
    let show = |part: &str| home.run(&["helm", "show", part, "--repo", &server.url, "queue"]).ok().out;
    let chart = "apiVersion: v2\ndescription: part \"queue\"\nname: queue\nversion: 0.5.0\n\n";
    let (values, readme) = ("size: 1\n\n", "# Read me\n\n");
    let crds = "---\nkind: CustomResourceDefinition\n\n";
    assert_eq!((show("chart").as_str(), show("values").as_str()), (chart, values));
    assert_eq!((show("readme").as_str(), show("crds").as_str()), (readme, crds));
    assert_eq!(show("all"), format!("{chart}---\n{values}---\n{readme}{crds}"));
    home.write_chart("site", SITE);
    let shown = home.run(&["helm", "show", "chart", "site"]).ok().out;
    let imports = "  import-values:\n  - data\n  - child: a.b\n    parent: c\n  name: cache\n";
    assert!(shown.contains(imports) && shown.contains("  version: '>=1.0.0 <1.9'\n"), "{shown}");
    home.run(&["helm", "show", "values", "site", "--jsonpath", "{.a}"]).fails_with(&["--jsonpath is not supported"]);
}

#[test]
fn fetched_charts_are_rendered_and_linted() {
    let (home, server) = (Home::new("charts-render"), caches());
    let url = format!("{}/queue-0.4.2.tgz", server.url);
    let rendered = home.run(&["helm", "template", "a", "queue", "--repo", &server.url, "--version", "0.4.x"]).ok().out;
    assert!(rendered.contains("# Source: queue/templates/map.yaml\n") && rendered.contains("{name: queue-1}"));
    assert_eq!(home.run(&["helm", "template", "a", &url]).ok().out, rendered);
    let linted = home.run(&["helm", "lint", &url, "--helm-rules-only"]).ok().out;
    assert!(linted.starts_with(&format!("==> Linting {url}\n")), "{linted}");
    assert!(home.entries(".").is_empty(), "temporary files remain: {:?}", home.entries("."));
    home.run(&["helm", "template", "a", &url, "--verify"]).fails_with(&["failed to fetch the provenance file: "]);
}

#[test]
fn subcharts_are_resolved_as_by_helm() {
    let (home, server) = (Home::new("charts-update"), caches());
    let at_server = |text: &str| text.replace("http://127.0.0.1:18099", &server.url);
    home.write_chart("local", &metadata("local", "0.7.0"));
    home.write_chart("site", &at_server(SITE));
    fs::create_dir(home.0.join("site/charts")).unwrap();
    fs::write(home.0.join("site/charts/cache-1.0.0.tgz"), packed("cache", "1.0.0")).unwrap();
    let output = home.run(&["helm", "dependency", "update", "site"]).ok().out;
    let expected = at_server(
        "Getting updates for unmanaged Helm repositories...\n...Successfully got an update from the \
         \"http://127.0.0.1:18099\" chart repository\nSaving 3 \
         charts\nDownloading cache from repo http://127.0.0.1:18099\nDownloading queue from repo \
         http://127.0.0.1:18099\nDeleting outdated charts\n",
    );
    assert_eq!(output, expected);
    let archives = ["cache-1.3.0+build.5.tgz", "local-0.7.0.tgz", "queue-0.4.2.tgz"];
    assert_eq!(home.entries("site/charts"), archives);
    let lock = fs::read_to_string(home.0.join("site/Chart.lock")).unwrap();
    assert!(lock.starts_with(&at_server(LOCK)) && lock.contains("\ngenerated: \"20"), "{lock}");
    let wide = server.url.len();
    let row = |name: &str, version: &str, repository: &str, status: &str| {
        format!("{name:<5}\t{version:<12}\t{repository:<wide$}\t{status:<6}\n")
    };
    let table = [
        row("NAME", "VERSION", "REPOSITORY", "STATUS"),
        row("cache", ">=1.0.0 <1.9", &server.url, "ok"),
        row("queue", "~0.4", &server.url, "ok"),
        row("local", "0.x", "file://../local", "ok"),
    ];
    assert_eq!(home.run(&["helm", "dep", "ls", "site"]).ok().out, table.concat() + "\n");
    // The lock remains if nothing changed.
    home.run(&["helm", "dep", "up", "site"]).ok();
    assert_eq!(fs::read_to_string(home.0.join("site/Chart.lock")).unwrap(), lock);

    fs::remove_dir_all(home.0.join("site/charts")).unwrap();
    home.run(&["helm", "dependency", "build", "site"]).ok();
    assert_eq!(home.entries("site/charts"), archives);
    fs::remove_dir_all(home.0.join("site/charts")).unwrap();
    home.run(&["helm", "template", "site"]).fails_with(&["missing in charts/ directory"]);
    home.run(&["helm", "template", "site", "--dependency-update"]).ok();
    assert_eq!(home.entries("site/charts"), archives);
    home.run(&["helm", "template", "site", "--set", "cache.enabled=true"]).ok();
    home.write_chart("site", &at_server(&SITE.replace("~0.4", "~0.5")));
    home.run(&["helm", "dependency", "build", "site"]).fails_with(&[
        "the lock file (Chart.lock) is out of sync with the dependencies file (Chart.yaml)",
        "hint: flyball helm dependency update site",
    ]);
    let listed = home.run(&["helm", "dependency", "list", "site"]).ok().out;
    assert!(listed.contains("wrong version"), "{listed}");
}

#[test]
fn lock_of_helm_is_up_to_date() {
    let home = Home::new("charts-lock");
    home.write_chart("local", &metadata("local", "0.7.0"));
    home.write_chart("site", SITE);
    let lock = format!("{LOCK}digest: {DIGEST}\ngenerated: \"2026-11-26T11:29:28.815368422Z\"\n");
    fs::write(home.0.join("site/Chart.lock"), &lock).unwrap();
    // Nothing listens there; a lock that is out of date would be found first.
    home.run(&["helm", "dependency", "build", "site"]).fails_with(&["dependency cache: cannot reach 127.0.0.1:18099"]);
    fs::write(home.0.join("site/Chart.lock"), lock.replace("0.4.2", "0.4.3")).unwrap();
    home.run(&["helm", "dependency", "build", "site"]).fails_with(&["is out of sync"]);
    assert_eq!(home.entries("site"), ["Chart.lock", "Chart.yaml", "values.yaml"]);
}

#[test]
fn subcharts_come_from_a_registry_and_the_project() {
    let (home, registry) = (Home::new("charts-places"), Registry::start(Manner::Open));
    push(&registry, "1.2.0", &packed("queue", "1.2.0"), CONFIG);
    home.write_chart("elsewhere/local", &metadata("local", "0.7.0"));
    fs::create_dir_all(home.0.join("project/helm-charts")).unwrap();
    fs::write(home.0.join("project/PROJECT"), "").unwrap();
    home.write_chart("project/lib/local", &metadata("local", "0.7.0"));
    let site = "project/helm-charts/site";
    let update = |dependencies: &str| {
        home.write_chart(site, &format!("{}dependencies:\n{dependencies}", metadata("site", "1.0.0")));
        home.run(&["helm", "dependency", "update", site])
    };
    let oci = format!("- {{name: queue, version: ^1, repository: \"oci://{}/team\"}}\n", registry.address);
    update(&format!("{oci}- {{name: local, version: 0.7.0, repository: file://../../lib/local}}\n")).ok();
    assert_eq!(home.entries(&format!("{site}/charts")), ["local-0.7.0.tgz", "queue-1.2.0.tgz"]);
    let lock = fs::read_to_string(home.0.join(site).join("Chart.lock")).unwrap();
    assert!(lock.contains("  version: 1.2.0\n- name: local\n"), "{lock}");
    for (dependency, words) in [
        (
            "{name: local, version: 0.x, repository: file://../../../elsewhere/local}",
            ["outside of the project", "copy"],
        ),
        ("{name: local, version: 0.x, repository: file:///etc}", ["outside of the project", "copy"]),
        ("{name: local, version: 1.x, repository: file://../../lib/local}", ["matches 1.x", "newest: 0.7.0"]),
        ("{name: queue, version: 1.x, repository: \"@stable\"}", ["@stable is an alias", "the URL of the repository"]),
        ("{name: queue, version: 1.x, repository: \"alias:stable\"}", ["alias:stable is an alias", "helm repo list"]),
        ("{name: queue, version: 1.x, repository: stable}", ["is not the URL of a repository", "oci://"]),
        ("{name: queue, version: 1.x, repository: http://a.example.com}", ["has no TLS", "use https"]),
        ("{name: queue, version: 1.x}", ["charts/queue", "set the repository"]),
        ("{name: ../queue, version: 1.x}", ["\"../queue\" is not a chart name", "dependency ../queue"]),
        ("{name: queue, version: one, repository: oci://a.io}", ["neither a version nor a constraint", "queue"]),
    ] {
        update(&format!("- {dependency}\n")).fails_with(&words);
    }
    let kept = home.entries(&format!("{site}/charts"));
    assert_eq!(kept, ["local-0.7.0.tgz", "queue-1.2.0.tgz"]);
    // The name in the archive is what the parent refers to.
    push(&registry, "1.3.0", &packed("other", "1.3.0"), CONFIG);
    update(&oci).fails_with(&["dependency queue: ", "returned chart other instead"]);
}

#[test]
fn kinds_are_created_from_fetched_charts() {
    let (home, server) = (Home::new("charts-init"), caches());
    let url = server.url.as_str();
    home.run(&["init", "--helm", "--chart", "cache", "--chart-repo", url, "--chart-version", "~1.2", "one"]).ok();
    let chart = fs::read_to_string(home.0.join("one/helm-charts/cache/Chart.yaml")).unwrap();
    assert_eq!(chart, metadata("cache", "1.2.3"));
    assert!(fs::read_to_string(home.0.join("one/watches.yaml")).unwrap().contains("kind: Cache\n"));
    let of_sdk =
        format!("create api --helm-chart queue --helm-chart-repo {url} --helm-chart-version 0.4.2 --kind Jobs");
    home.within(&home.0.join("one"), &of_sdk).ok();
    assert_eq!(home.entries("one/helm-charts"), ["cache", "queue"]);
    let failed = home.run(&["init", "--helm", "--chart", "cache", "--chart-repo", url, "--chart-version", "^7", "two"]);
    failed.fails_with(&["--chart cache: no version of cache in", "matches ^7; newest: 1.9.3"]);
    assert!(!home.0.join("two").exists());
    let usage = home.run(&["init", "--helm", "--chart-repo", url, "two"]);
    assert!(usage.code == Some(2) && usage.err.contains("--chart <CHART>"), "{usage:?}");
}
