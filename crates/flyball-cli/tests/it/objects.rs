//! `flyball apply` and `flyball get`: a cluster without kubectl.

use crate::dev::LineReader;
use crate::{CommandOutput, Home};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::Stdio;

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: sites, singular: site, kind: Site, shortNames: [st], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Title, type: string, jsonPath: .spec.title}
    - {name: Size, type: integer, jsonPath: .spec.size, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {title: {type: string}, size: {type: integer, maximum: 9}}}
";

const SITE: &str = "
apiVersion: example.com/v1
kind: Site
metadata: {name: a, labels: {tier: front}}
spec: {title: Hello, size: 3}
";

impl Home {
    fn feed(&self, args: &[&str], input: &str) -> CommandOutput {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        CommandOutput::of(&child.wait_with_output().unwrap())
    }
}

#[test]
fn files_are_applied_and_objects_listed() {
    let home = Home::new("objects");
    home.run(&["cluster", "up", "--quiet"]).ok();
    // The definition follows its objects in the file, but is applied first.
    fs::create_dir(home.0.join("config")).unwrap();
    fs::write(home.0.join("config/a-site.yaml"), SITE).unwrap();
    fs::write(home.0.join("config/b-definition.yml"), DEFINITION).unwrap();
    home.feed(&["apply", "--filename", "-", "--dry-run=server", "--server-side"], DEFINITION).ok();
    let dry = home.feed(&["apply", "-f", "-", "--dry-run"], DEFINITION).ok();
    assert_eq!(dry.out, "CustomResourceDefinition sites.example.com created (dry run)\n");
    let applied = ["apply", "-f", "config"];
    assert_eq!(
        home.run(&applied).ok().out,
        "CustomResourceDefinition sites.example.com created\nSite default/a created\n"
    );
    let again = "CustomResourceDefinition sites.example.com unchanged\nSite default/a unchanged\n";
    assert_eq!(home.run(&applied).ok().out, again);
    let names = "customresourcedefinition.apiextensions.k8s.io/sites.example.com\nsite.example.com/a\n";
    assert_eq!(home.run(&["apply", "-f", "config", "-o", "name", "--force-conflicts"]).ok().out, names);
    let larger = home.feed(&["apply", "-f", "-", "-o", "json"], &SITE.replace("size: 3", "size: 4")).ok();
    let larger: Value = serde_json::from_str(&larger.out).unwrap();
    assert_eq!(larger, serde_json::json!([{"object": "Site default/a", "outcome": "changed"}]));

    // Of several, those that are right are applied.
    let both = SITE.replace("size: 3", "size: 10") + "---" + &SITE.replace("name: a", "name: b");
    let output = home.feed(&["apply", "-f", "-"], &both);
    assert_eq!((output.code, output.out.as_str()), (Some(1), "Site default/b created\n"));
    assert!(output.err.contains("spec.size") && output.err.contains("failed to apply 1 of 2 objects"), "{output:?}");

    assert_eq!(home.run(&["get", "sites"]).ok().out, "NAME   TITLE\na      Hello\nb      Hello\n");
    assert_eq!(home.run(&["get", "st", "a", "-o", "wide"]).ok().out, "NAME   TITLE   SIZE\na      Hello   4\n");
    let everywhere = home.run(&["get", "Site", "-A"]).ok().out;
    assert_eq!(everywhere, "NAMESPACE   NAME   TITLE\ndefault     a      Hello\ndefault     b      Hello\n");
    assert_eq!(
        home.run(&["get", "sites", "-l", "tier=front", "-o", "name"]).ok().out,
        "site.example.com/a\nsite.example.com/b\n"
    );
    let none = home.run(&["get", "sites.example.com", "-l", "tier!=front"]).ok();
    assert_eq!((none.out.as_str(), none.err.as_str()), ("", "note: no sites.example.com found in namespace default\n"));
    let one: Value = serde_json::from_str(&home.run(&["get", "site", "a", "-o", "json"]).ok().out).unwrap();
    assert_eq!(
        (&one["kind"], &one["spec"]["size"], &one["metadata"]["managedFields"]),
        (&"Site".into(), &4.into(), &Value::Null)
    );
    let list: Value = serde_json::from_str(&home.run(&["get", "sites,namespaces", "-o", "json"]).ok().out).unwrap();
    assert_eq!(
        (&list["kind"], &list["items"][0]["kind"], &list["items"][2]["kind"]),
        (&"List".into(), &"Site".into(), &"Namespace".into())
    );
    let output = home.run(&["get", "site/a", "ns/default", "st/none", "site/b"]);
    assert!(output.out.starts_with("NAME   TITLE\na      Hello\nb      Hello\n\nNAME "), "{output:?}");
    output.fails_with(&["sites.example.com \"none\" not found (NotFound)"]);
    let named = ["get", "sites", "--field-selector", "metadata.name=b", "-o", "name"];
    assert_eq!(home.run(&named).ok().out, "site.example.com/b\n");
    let all = home.run(&["get", "all"]).ok().out;
    assert!(all.contains("kubernetes   ClusterIP") && all.contains("a      Hello"), "{all}");
}

#[test]
fn objects_are_deleted_by_name_selector_and_file() {
    let home = Home::new("delete");
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.feed(&["apply", "-f", "-"], DEFINITION).ok();
    let site = |name: &str| SITE.replace("name: a", &format!("name: {name}"));
    let sites = || home.run(&["get", "sites", "-o", "name"]).ok().out.replace("site.example.com/", "");
    let apply = || home.feed(&["apply", "-f", "-"], &["a", "b", "c", "d"].map(site).join("---")).ok();
    let delete = |line: &str| home.run(&[&["delete"], &line.split(' ').collect::<Vec<_>>()[..]].concat());
    apply();

    assert_eq!(delete("sites a --dry-run=server").ok().out, "Site default/a deleted (dry run)\n");
    assert_eq!(delete("site a").ok().out, "Site default/a deleted\n");
    assert_eq!(delete("st/b site/c -o name").ok().out, "site.example.com/b\nsite.example.com/c\n");
    assert_eq!(sites(), "d\n");
    let output = delete("sites d none");
    assert_eq!(output.out, "Site default/d deleted\n");
    output.fails_with(&["error: sites.example.com \"none\" not found (NotFound)\n"]);
    assert_eq!(delete("sites none --ignore-not-found").ok().out, "");
    assert_eq!(delete("sites -l tier=front").ok().err, "note: no sites found\n");
    apply();
    assert_eq!(delete("sites -l tier!=front").ok().out, "");
    assert_eq!(delete("sites -l tier=front -n other").ok().out, "");
    assert_eq!(sites(), "a\nb\nc\nd\n");
    for line in ["sites", "sites a --all", "sites a -l tier=front", "-f a -l tier=front", "--all"] {
        assert_eq!(delete(line).code, Some(2), "{line}");
    }
    assert_eq!(delete("sites --all -A").ok().out.lines().count(), 4);

    // A finalizer holds an object; only the wait fails.
    let blocked = site("a").replace("labels:", "finalizers: [example.com/hold], labels:");
    home.feed(&["apply", "-f", "-"], &blocked).ok();
    delete("site/a --timeout 0s").fails_with(&[
        "timed out after 0 s waiting for Site default/a to be deleted: it has finalizer example.com/hold",
        "--wait=false",
    ]);
    delete("site/a --wait=false").ok();
    home.feed(&["apply", "-f", "-"], &blocked.replace("[example.com/hold]", "[]")).ok();

    // The definition of a file is deleted after what it defines.
    fs::create_dir(home.0.join("config")).unwrap();
    fs::write(home.0.join("config/a.yaml"), DEFINITION).unwrap();
    fs::write(home.0.join("config/b.yaml"), site("e")).unwrap();
    home.run(&["apply", "-f", "config"]).ok();
    let output = delete("-f config").ok();
    assert_eq!(output.out, "Site default/e deleted\nCustomResourceDefinition sites.example.com deleted\n");
    delete("-f config").fails_with(&["the cluster has no kind Site", "sites.example.com\" not found"]);
    assert_eq!(delete("-f config --ignore-not-found").ok().out, "");
}

#[test]
fn changes_are_watched() {
    let home = Home::new("watch");
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.feed(&["apply", "-f", "-"], DEFINITION).ok();
    home.feed(&["apply", "-f", "-"], SITE).ok();
    let watch = |more: &str| LineReader::new(home.command(&more.split(' ').collect::<Vec<_>>()));
    let mut table = watch("get sites -w");
    table.until("Hello");
    let mut front = watch("get sites -w -o json -l tier=front");
    let mut one = watch("get sites a -w -o name");
    let mut yaml = watch("get sites -w -o yaml");
    front.until("Hello");
    one.until("site.example.com/a");
    yaml.until("title: Hello");
    let other = SITE.replace("tier: front", "tier: back").replace("name: a", "name: a-long-name");
    home.feed(&["apply", "-f", "-"], &other).ok();
    table.until("a-long-name");
    home.feed(&["apply", "-f", "-"], &SITE.replace("Hello", "Good morning")).ok();
    table.until("Good morning");
    assert_eq!(table.all, ["NAME   TITLE", "a      Hello", "a-long-name   Hello", "a             Good morning"]);
    front.until("Good morning");
    let versions: Vec<Value> = front.all.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(versions.len(), 2, "{versions:#?}");
    for site in &versions {
        assert_eq!((&site["kind"], &site["metadata"]["name"]), (&"Site".into(), &"a".into()));
        assert_eq!(site["metadata"]["managedFields"], Value::Null);
    }
    one.until("site.example.com/a");
    assert_eq!(one.all.len(), 2, "{:#?}", one.all);
    yaml.until("title: Good morning");
    assert_eq!(yaml.all.iter().filter(|line| *line == "---").count(), 3, "{:#?}", yaml.all);
    for mut watching in [table, front, one, yaml] {
        watching.child.kill().unwrap();
        watching.child.wait().unwrap();
    }

    // It ends when the pipe is closed.
    let mut unread = home.spawn(&["get", "sites", "--watch"]);
    drop(unread.stdout.take());
    home.feed(&["apply", "-f", "-"], SITE).ok();
    assert_eq!(unread.wait().unwrap().code(), Some(0));
    home.run(&["get", "sites,pods", "-w"]).fails_with(&["--watch takes one kind or one object"]);
    home.run(&["get", "sites", "a", "b", "-w"]).fails_with(&["--watch takes one kind or one object"]);
    home.run(&["get", "sites", "none", "-w"]).fails_with(&["sites.example.com \"none\" not found"]);
}

#[test]
fn invalid_or_missing_objects_are_named() {
    let home = Home::new("objects-wrong");
    home.run(&["get", "pods"]).fails_with(&["no cluster to connect to", "flyball cluster up"]);
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.run(&["get", "podz"]).fails_with(&["no kind \"podz\"", "did you mean pods?"]);
    home.run(&["get", "frobnicators"]).fails_with(&["no kind", "flyball get crds"]);
    assert_eq!(
        home.run(&["get", "pod", "none"]).err,
        "error: pods \"none\" not found (NotFound)\nhint: list the existing ones: flyball get pods -n default\n"
    );
    assert_eq!(home.run(&["get", "pod", "none", "--ignore-not-found"]).ok().out, "");
    assert_eq!(home.run(&["get", "pods", "none", "-l", "a=b"]).code, Some(2));
    assert_eq!(home.run(&["get", "pods", "a/b"]).code, Some(2));
    home.run(&["get", "pod", "none", "-A"]).fails_with(&["choose a namespace with -n"]);
    home.run(&["apply", "-f", "https://example.com/a.yaml"]).fails_with(&["is a URL", "download and review it"]);
    home.run(&["apply", "-f", "nowhere.yaml"]).fails_with(&["cannot read nowhere.yaml"]);
    let output = home.feed(&["apply", "-f", "-"], "a: [");
    assert_eq!(output.err, "error: standard input is not valid YAML: unclosed bracket '[' at line 1, column 4\n");
    let dead = "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], \
                users: [{name: a, user: {}}], contexts: [{name: a, context: {cluster: a, user: a}}]}";
    fs::write(home.0.join("dead"), dead).unwrap();
    let output = home.run(&["get", "pods", "--kubeconfig", "dead"]);
    output.fails_with(&["error: the cluster did not respond: cannot connect to http://127.0.0.1:1/: "]);
    assert_eq!(output.err.matches("127.0.0.1:1").count(), 1, "{output:?}");
    home.feed(&["apply", "-f", "-"], "").fails_with(&["no objects found in -"]);
    home.feed(&["apply", "-f", "-"], "{kind: Pod}").fails_with(&["error: Pod: apiVersion is missing"]);
    for (object, error) in [
        ("{apiVersion: v1}", "an object: kind is missing"),
        ("{apiVersion: v1, kind: Pod}", "Pod: metadata.name is missing"),
    ] {
        home.feed(&["apply", "-f", "-"], object).fails_with(&[error, "generateName cannot be applied"]);
    }
    home.feed(&["apply", "-f", "-"], SITE)
        .fails_with(&["the cluster has no kind Site in example.com/v1", "flyball get crds"]);
    assert_eq!(home.run(&["apply"]).code, Some(2));
}

#[test]
fn completion_scripts_are_printed() {
    let home = Home::new("completion");
    for shell in ["bash", "zsh", "fish"] {
        let script = home.run(&["completion", shell]).ok().out;
        assert!(script.contains("cluster") && script.contains("levels"), "{shell}: {script}");
    }
    assert_eq!(home.run(&["completion", "abacus"]).code, Some(2));
}
