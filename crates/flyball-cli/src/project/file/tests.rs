use super::*;

const REDIS: &str = "# Written by `flyball init` and `flyball create`, which read and extend it.
layout: flyball/1
domain: acme.io
projectName: redis-operator
repo: github.com/acme/redis-operator
resources:
- group: cache.acme.io
  version: v1alpha1
  kind: Redis
  plural: redis
  namespaced: true
  resource: true
  controller: true
  webhooks:
    validation: true
  team: storage
- group: apps
  version: v1
  kind: Deployment
  plural: deployments
  namespaced: true
  resource: false
  controller: true
  foreign: true
color: blue
";

#[test]
fn project_file_round_trips() {
    let project = Project::parse(REDIS).unwrap();
    assert_eq!(project.resources[0].api_kind(), "cache.acme.io/v1alpha1 Redis");
    assert!(project.resource("apps", "v1", "Deployment").unwrap().foreign);
    assert_eq!(project.text().unwrap(), REDIS);
    assert_eq!(Project::new(Path::new("."), "a", "b.c", ProjectType::Rust, None).text().unwrap().lines().count(), 4);
}

#[test]
fn projects_of_other_tools_are_recognized() {
    assert!(is_of_another_tool("layout:\n- helm.sdk.operatorframework.io/v1\nversion: \"3\"\n"));
    assert!(is_of_another_tool("layout: go.kubebuilder.io/v3\n"));
    assert!(!is_of_another_tool(REDIS) && !is_of_another_tool("layout: flyball/2\n") && !is_of_another_tool("{"));
}

#[test]
fn invalid_fields_are_named() {
    for (from, to, expected) in [
        ("layout: flyball/1", "layout: go.kubebuilder.io/v4", "expected \"flyball/1\""),
        ("domain: acme.io\n", "", "missing field `domain`"),
        ("domain: acme.io", "domain: acme_io", "domain \"acme_io\" is invalid"),
        ("projectName: redis-operator", "projectName: tokio", "projectName \"tokio\" is invalid"),
        ("kind: Redis", "kind: redis", "kind \"redis\" is invalid: a kind begins with a capital letter"),
        ("version: v1alpha1", "version: 1.0", "version \"1.0\" is invalid: expected a version such as v1"),
        ("plural: redis", "plural: Redis", "plural \"Redis\" is invalid"),
        ("controller: true", "controller: perhaps", "controller"),
        ("resources:", "resources: [", "line"),
        (
            "- group: apps\n  version: v1\n  kind: Deployment",
            "- group: cache.acme.io\n  version: v1alpha1\n  kind: Redis",
            "twice",
        ),
    ] {
        let error = Project::parse(&REDIS.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(expected), "{from} -> {to}: {error}");
    }
}

#[test]
fn group_may_omit_the_domain() {
    let project = Project::parse(REDIS).unwrap();
    for (named, whole) in [
        ("cache", "cache.acme.io"),
        ("cache.acme.io", "cache.acme.io"),
        ("acme.io", "acme.io"),
        ("cert.example.org", "cert.example.org"),
        ("", ""),
    ] {
        assert_eq!(project.group(named), whole);
    }
}

#[test]
fn names_are_validated() {
    for (version, good) in [
        ("v1", true),
        ("v1alpha1", true),
        ("v12beta3", true),
        ("v0", false),
        ("v1alpha", false),
        ("1", false),
        ("v1gamma1", false),
        ("", false),
    ] {
        assert_eq!(names::version(version).is_ok(), good, "{version}");
    }
    for (kind, plural) in [
        ("Redis", "redises"),
        ("VmGroup", "vmgroups"),
        ("Policy", "policies"),
        ("Gateway", "gateways"),
        ("Box", "boxes"),
        ("Batch", "batches"),
    ] {
        assert_eq!(names::pluralize(kind), plural);
        assert!(names::kind(kind).is_ok() && names::plural(plural).is_ok());
    }
    assert!(names::kind("Größe").is_err() && names::kind("Vm-Group").is_err() && names::kind("").is_err());
}
