//! `flyball image`.

use crate::proxy::Proxy;
use crate::registry::{AUTH, Manner, Registry, sha256};
use crate::{CommandOutput, Home};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A minimal program for a machine type; with an interpreter, it is dynamically linked.
fn program(machine: u8, interpreter: bool) -> Vec<u8> {
    let mut file = vec![0; 64 + 56];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    (file[18], file[32], file[54], file[56]) = (machine, 64, 56, 1);
    file[64] = if interpreter { 3 } else { 1 };
    file
}

const CERTIFICATES: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

/// A home with programs for two platforms, and certificates.
fn prepared(test: &str) -> Home {
    let home = Home::new(test);
    fs::create_dir(home.0.join("arm64")).unwrap();
    for (path, machine, interpreter) in [("op", 62, false), ("arm64/op", 183, false), ("linked", 62, true)] {
        fs::write(home.0.join(path), program(machine, interpreter)).unwrap();
    }
    fs::write(home.0.join("ca.pem"), CERTIFICATES).unwrap();
    home
}

fn build(home: &Home, more: &[&str]) -> CommandOutput {
    home.run(&[&["image", "build", "--program=op", "--ca-certificates=ca.pem"], more].concat())
}

fn json_at(folder: &Path, digest: &Value) -> Value {
    let hex = digest.as_str().unwrap().strip_prefix("sha256:").unwrap();
    let bytes = fs::read(folder.join("blobs/sha256").join(hex)).unwrap();
    assert_eq!(sha256(&bytes), format!("sha256:{hex}"));
    serde_json::from_slice(&bytes).unwrap()
}

/// Returns the files of a layer with their modes and contents, in their order.
fn layer_files(folder: &Path, digest: &Value) -> Vec<(String, Vec<u8>)> {
    let layer = fs::read(folder.join("blobs/sha256").join(&digest.as_str().unwrap()["sha256:".len()..])).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&layer[..]));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        (format!("{:o} {}", entry.header().mode().unwrap(), entry.path().unwrap().display()), bytes)
    };
    archive.entries().unwrap().map(read).collect()
}

/// Returns the first image of a layout: its manifest and its configuration.
fn first_image(folder: &Path) -> (Value, Value) {
    let top: Value = serde_json::from_slice(&fs::read(folder.join("index.json")).unwrap()).unwrap();
    let index = json_at(folder, &top["manifests"][0]["digest"]);
    let manifest = json_at(folder, &index["manifests"][0]["digest"]);
    let config = json_at(folder, &manifest["config"]["digest"]);
    (manifest, config)
}

#[test]
fn image_of_a_role_has_flyball_and_the_project() {
    let home = prepared("image-role");
    home.run(&["init", "--ansible", "--group", "cache", "--version", "v1", "--kind", "Redis", "redis-operator"]).ok();
    let folder = home.0.join("redis-operator");
    let build = |more: &[&str]| {
        let args = ["image", "build", "--program=../op", "--ca-certificates=../ca.pem", "-o=json"];
        let mut command = home.command(&[&args, more].concat());
        CommandOutput::of(&command.current_dir(&folder).output().unwrap())
    };
    let built: Value = serde_json::from_str(&build(&["--out=../one"]).ok().out).unwrap();
    assert_eq!(built["name"], "redis-operator:latest");
    build(&["--out=../again"]).ok();
    let index = |name: &str| fs::read(home.0.join(name).join("index.json")).unwrap();
    assert_eq!(index("one"), index("again"));
    let (manifest, config) = first_image(&home.0.join("one"));
    let config = &config["config"];
    let watches = "/opt/redis-operator/watches.yaml";
    assert_eq!(config["Entrypoint"], json!(["/flyball", "operate", watches]));
    assert_eq!((&config["User"], &config["WorkingDir"]), (&json!("65532:65532"), &json!("/opt/redis-operator")));
    assert_eq!(config["Env"], json!(["HOME=/tmp"]));
    let program = layer_files(&home.0.join("one"), &manifest["layers"][0]["digest"]);
    assert!(program.iter().any(|(path, bytes)| path == "755 flyball" && *bytes == self::program(62, false)));
    let files: Vec<String> =
        layer_files(&home.0.join("one"), &manifest["layers"][1]["digest"]).into_iter().map(|(path, _)| path).collect();
    for path in
        ["watches.yaml", "PROJECT", "roles/redis/tasks/main.yml", "config/crd/bases/cache.example.com_redises.yaml"]
    {
        assert!(files.contains(&format!("644 opt/redis-operator/{path}")), "{path}: {files:?}");
    }
    assert!(!files.iter().any(|path| path.ends_with(".md") || path.contains("gitkeep")), "{files:?}");
    fs::write(folder.join("roles/redis/defaults/main.yml"), "replicas: 2\n").unwrap();
    let changed: Value = serde_json::from_str(&build(&["--out=../two"]).ok().out).unwrap();
    assert_ne!(changed["digest"], built["digest"]);
    let (other, _) = first_image(&home.0.join("two"));
    assert_eq!(other["layers"][0], manifest["layers"][0], "the layer of the program is shared");

    // The layers of a base are below.
    let base = home.run(&["image", "build", "--program=op", "--ca-certificates=ca.pem", "--tag=base:1", "--out=base"]);
    base.ok();
    build(&["--out=../based", "--base=../base"]).ok();
    let (below, _) = first_image(&home.0.join("base"));
    let (based, config) = first_image(&home.0.join("based"));
    assert_eq!(based["layers"].as_array().unwrap().len(), 3);
    assert_eq!(based["layers"][0], below["layers"][0]);
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 3);
    let added = layer_files(&home.0.join("based"), &based["layers"][1]["digest"]);
    let has = |name: &str| added.iter().any(|(path, _)| path.ends_with(name));
    assert_eq!(["flyball", "ca-certificates.crt", "passwd", "group"].map(has), [true, true, false, false]);
    assert_eq!(based["annotations"]["org.opencontainers.image.base.name"], "../base");
    let registry = Registry::start(Manner::Open);
    let name = format!("{}/team/base:1", registry.address);
    home.run(&["image", "push", &name, "--from=base"]).ok();
    build(&["--out=../pulled", &format!("--base={name}")]).ok();
    assert_eq!(first_image(&home.0.join("pulled")).0["layers"], based["layers"]);
    build(&["--base=../base", "--program=../arm64/op"]).fails_with(&["has no image for platform linux/arm64"]);
    home.run(&["image", "push", &format!("{}/team/redis:1", registry.address), "--from=pulled"]).ok();

    let sbom = CommandOutput::of(&home.command(&["image", "sbom"]).current_dir(&folder).output().unwrap());
    sbom.fails_with(&["an SBOM lists the crates of a Rust program", "flyball image build"]);
    std::os::unix::fs::symlink("/etc/hostname", folder.join("roles/redis/files")).unwrap();
    build(&[]).fails_with(&["is a symbolic link to a file outside of the project", "copy the file"]);
}

#[test]
#[cfg(target_os = "linux")]
fn image_of_a_chart_runs_with_its_own_files_only() {
    let home = prepared("image-chart");
    home.run(&["init", "--helm", "--group", "cache", "--version", "v1", "--kind", "Redis", "redis-operator"]).ok();
    let args = ["image", "build", "--ca-certificates=../ca.pem", "--out=../one"];
    let mut command = home.command(&args);
    CommandOutput::of(&command.current_dir(home.0.join("redis-operator")).output().unwrap()).ok();
    let (manifest, config) = first_image(&home.0.join("one"));
    let root = home.0.join("root");
    for layer in manifest["layers"].as_array().unwrap() {
        for (file, bytes) in layer_files(&home.0.join("one"), &layer["digest"]) {
            let (mode, path) = file.split_once(' ').unwrap();
            let path = root.join(path);
            if file.ends_with('/') {
                fs::create_dir_all(path).unwrap();
                continue;
            }
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(u32::from_str_radix(mode, 8).unwrap())).unwrap();
        }
    }
    let entrypoint: Vec<&str> =
        config["config"]["Entrypoint"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let mut command = std::process::Command::new("unshare");
    command.args(["--map-root-user", "chroot"]).arg(&root).args(&entrypoint).arg("describe");
    let described = CommandOutput::of(&command.env_clear().output().unwrap());
    if described.err.contains("unshare") {
        eprintln!("skipped: this machine has no user namespaces: {}", described.err);
        return;
    }
    let described: Value = serde_json::from_str(&described.ok().out).unwrap();
    assert_eq!(described["name"], "redis-operator");
}

#[test]
fn image_is_reproducible_and_minimal() {
    let home = prepared("image");
    let output = build(&home, &["--tag=registry.example.com/team/op:1.0"]).ok();
    assert!(output.out.starts_with("image registry.example.com/team/op:1.0\n  digest      sha256:"), "{output:?}");
    assert!(output.out.contains("  linux/amd64 "), "{output:?}");
    let once: Value = serde_json::from_str(&build(&home, &["--out=one", "-o=json"]).ok().out).unwrap();
    let both: Value =
        serde_json::from_str(&build(&home, &["--program=arm64/op", "--out=two", "--tag=op:2", "-o=json"]).ok().out)
            .unwrap();
    let again: Value = serde_json::from_str(&build(&home, &["--out=again", "-o=json"]).ok().out).unwrap();
    assert_eq!((&once["digest"], &once["name"]), (&again["digest"], &json!("op:latest")));
    assert_eq!(once["platforms"][0]["digest"], both["platforms"][0]["digest"]);
    let index = |folder: &str| fs::read(home.0.join(folder).join("index.json")).unwrap();
    assert_eq!(index("one"), index("again"));

    let folder = home.0.join("two");
    let top: Value = serde_json::from_slice(&index("two")).unwrap();
    assert_eq!(top["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], "2");
    assert_eq!(top["manifests"][0]["annotations"]["io.containerd.image.name"], "docker.io/library/op:2");
    let index = json_at(&folder, &top["manifests"][0]["digest"]);
    let platforms: Vec<&Value> =
        index["manifests"].as_array().unwrap().iter().map(|one| &one["platform"]["architecture"]).collect();
    assert_eq!(platforms, ["amd64", "arm64"]);
    let manifest = json_at(&folder, &index["manifests"][0]["digest"]);
    let config = json_at(&folder, &manifest["config"]["digest"]);
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"], json!(["/op"]));
    assert_eq!((&config["created"], &config["os"]), (&json!("1970-01-01T00:00:00Z"), &json!("linux")));

    let layer = manifest["layers"][0]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let layer = fs::read(folder.join("blobs/sha256").join(layer)).unwrap();
    let mut archive = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&layer[..]), &mut archive).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"], json!([sha256(&archive)]));
    let mut archive = tar::Archive::new(&archive[..]);
    let mut files = Vec::new();
    for entry in archive.entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 0));
        files.push(format!("{:o} {}", header.mode().unwrap(), entry.path().unwrap().display()));
    }
    assert_eq!(
        files,
        [
            "755 etc/",
            "644 etc/group",
            "644 etc/passwd",
            "755 etc/ssl/",
            "755 etc/ssl/certs/",
            "644 etc/ssl/certs/ca-certificates.crt",
            "755 op"
        ]
    );

    // Two documents are attached to each platform's image.
    let attached = top["manifests"].as_array().unwrap();
    assert_eq!(attached.len(), 5);
    let materials = json_at(&folder, &attached[1]["digest"]);
    assert_eq!(materials["artifactType"], "application/vnd.cyclonedx+json");
    assert_eq!(materials["subject"]["digest"], index["manifests"][0]["digest"]);
    assert_eq!(json_at(&folder, &materials["layers"][0]["digest"])["bomFormat"], "CycloneDX");
    let statement = json_at(&folder, &attached[2]["digest"]);
    let statement = json_at(&folder, &statement["layers"][0]["digest"]);
    assert_eq!(statement["predicateType"], "https://slsa.dev/provenance/v1");
    let subject = index["manifests"][0]["digest"].as_str().unwrap();
    assert_eq!(format!("sha256:{}", statement["subject"][0]["digest"]["sha256"].as_str().unwrap()), subject);

    let mut later = home.command(&["image", "build", "--program=op", "--ca-certificates=ca.pem", "-o=json"]);
    let later = CommandOutput::of(&later.env("SOURCE_DATE_EPOCH", "1700000000").output().unwrap()).ok();
    assert_ne!(serde_json::from_str::<Value>(&later.out).unwrap()["digest"], once["digest"]);
}

#[test]
fn invalid_image_inputs_are_named() {
    let home = prepared("noimage");
    fs::write(home.0.join("script"), "#!/bin/sh\n").unwrap();
    fs::create_dir(home.0.join("full")).unwrap();
    fs::write(home.0.join("full/letter"), "dear").unwrap();
    let with = |args: &[&str]| home.run(&[&["image", "build", "--ca-certificates=ca.pem"], args].concat());
    with(&["--program=linked"]).fails_with(&["linked is dynamically linked", "musl"]);
    with(&["--program=script"]).fails_with(&["script is not a Linux executable"]);
    with(&["--program=nothing"]).fails_with(&["cannot read nothing"]);
    with(&["--program=op", "--program=op"]).fails_with(&["op is a second program for platform linux/amd64"]);
    with(&["--program=op", "--out=full"]).fails_with(&["full is not an image layout", "--out DIR"]);
    assert!(home.0.join("full/letter").exists());
    home.run(&["image", "build", "--program=op", "--ca-certificates=op"])
        .fails_with(&["op contains no PEM certificates"]);
    for wrong in [["--platform=linux/vax"], ["--tag=Op"], ["--tag=op:a b"]] {
        assert_eq!(with(&wrong).code, Some(2), "{wrong:?}");
    }
    let mut odd = home.command(&["image", "build", "--program=op", "--ca-certificates=ca.pem"]);
    CommandOutput::of(&odd.env("SOURCE_DATE_EPOCH", "today").output().unwrap())
        .fails_with(&["SOURCE_DATE_EPOCH=today"]);
    home.run(&["image", "push", "localhost:1/op"])
        .fails_with(&["no image found in target/image", "flyball image build"]);
}

fn push(home: &Home, registry: &Registry) -> CommandOutput {
    home.run(&["image", "push", &format!("{}/team/op:1", registry.address)])
}

#[test]
fn image_is_pushed_with_its_attachments() {
    let home = prepared("push");
    let built: Value = serde_json::from_str(&build(&home, &["--program=arm64/op", "-o=json"]).ok().out).unwrap();
    for manner in [Manner::Open, Manner::Old] {
        let registry = Registry::start(manner);
        let output = push(&home, &registry).ok();
        assert!(output.out.contains(&format!("pushed {}/team/op:1\n  digest   ", registry.address)), "{output:?}");
        {
            let state = registry.state.lock().unwrap();
            assert_eq!(sha256(&state.manifests["1"].1), built["digest"].as_str().unwrap());
            for platform in built["platforms"].as_array().unwrap() {
                assert!(state.manifests.contains_key(platform["digest"].as_str().unwrap()));
                let tag = platform["digest"].as_str().unwrap().replace(':', "-");
                let listed: Vec<Value> = state.manifests.get(&tag).map_or(Vec::new(), |(_, index)| {
                    serde_json::from_slice::<Value>(index).unwrap()["manifests"].as_array().unwrap().clone()
                });
                let digests: Vec<&Value> = listed.iter().map(|one| &one["digest"]).collect();
                match manner {
                    Manner::Old => {
                        assert_eq!(&digests, &platform["attached"].as_array().unwrap().iter().collect::<Vec<_>>())
                    }
                    _ => assert!(digests.is_empty()),
                }
            }
        }
        let before = registry.state.lock().unwrap().requests.len();
        let again = push(&home, &registry).ok();
        assert!(again.out.contains("  sent     0.0 KiB, "), "{again:?}");
        let state = registry.state.lock().unwrap();
        assert!(!state.requests[before..].iter().any(|request| request.contains("uploads")), "{:?}", state.requests);
    }
}

#[test]
fn push_authenticates_at_the_registry() {
    let home = prepared("auth");
    build(&home, &[]).ok();
    fs::create_dir(home.0.join(".docker")).unwrap();
    let config = |text: &Value| fs::write(home.0.join(".docker/config.json"), text.to_string()).unwrap();
    for manner in [Manner::Basic, Manner::Bearer] {
        let registry = Registry::start(manner);
        let address = &registry.address;
        let _ = fs::remove_file(home.0.join(".docker/config.json"));
        let output = push(&home, &registry);
        output.fails_with(&["requires authentication to push to team/op", "docker login", address]);
        assert!(!output.err.contains("is a registry running"), "{output:?}");
        // d3Jvbmc6c2VjcmV0 is wrong:secret.
        config(&json!({"auths": {address: {"auth": "d3Jvbmc6c2VjcmV0"}}}));
        let output = push(&home, &registry);
        output.fails_with(&["refused user wrong to push to team/op", ".docker/config.json"]);
        assert!(!output.err.contains("secret") && !output.err.contains("d3Jv"), "{output:?}");
        config(&json!({"auths": {address: {"auth": AUTH}}}));
        push(&home, &registry).ok();
    }

    // A program that keeps secrets.
    let registry = Registry::start(Manner::Bearer);
    let helper = home.0.join("docker-credential-box");
    let script = format!(
        "#!/bin/sh\nread server\n[ \"$1 $server\" = 'get {}' ] || {{ echo credentials not found in native keychain; exit 1; }}\n\
         echo '{{\"ServerURL\": \"x\", \"Username\": \"me\", \"Secret\": \"secret\"}}'\n",
        registry.address
    );
    fs::write(&helper, script).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    let push = |name: &str| {
        config(&json!({"credHelpers": {&registry.address: name}}));
        let mut command = home.command(&["-vvv", "image", "push", &format!("{}/team/op:1", registry.address)]);
        CommandOutput::of(&command.env("PATH", &home.0).output().unwrap())
    };
    let output = push("box").ok();
    assert!(
        !output.err.contains("secret") && !output.err.contains("ticket") && !output.err.contains(AUTH),
        "{output:?}"
    );
    push("lost").fails_with(&["cannot run docker-credential-lost for", "config.json"]);
    push("../box").fails_with(&["invalid credential helper name"]);
    fs::write(home.0.join(".docker/config.json"), "{\"auths\": \"secret\"").unwrap();
    let output = home.run(&["image", "push", &format!("{}/team/op:1", registry.address)]);
    output.fails_with(&["config.json is not a Docker configuration"]);
    assert!(!output.err.contains("secret"), "{output:?}");
}

/// Writes a new key pair as `openssl` does: `NAME.key` and `NAME.pub`.
fn key_pair(home: &Home, name: &str) {
    use base64::prelude::{BASE64_STANDARD, Engine};
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
    let random = ring::rand::SystemRandom::new();
    let private = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, private.as_ref(), &random).unwrap();
    let algorithm =
        b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\0";
    let public = [algorithm, pair.public_key().as_ref()].concat();
    for (ending, kind, der) in [("key", "PRIVATE", private.as_ref()), ("pub", "PUBLIC", &public)] {
        let text = BASE64_STANDARD.encode(der);
        let text = format!("-----BEGIN {kind} KEY-----\n{text}\n-----END {kind} KEY-----\n");
        fs::write(home.0.join(format!("{name}.{ending}")), text).unwrap();
    }
}

#[test]
fn image_is_verified_with_its_signing_key() {
    let home = prepared("signed");
    let built: Value = serde_json::from_str(&build(&home, &["--tag=op:1", "-o=json"]).ok().out).unwrap();
    let registry = Registry::start(Manner::Open);
    let name = format!("{}/team/op:1", registry.address);
    for key in ["image", "second", "other"] {
        key_pair(&home, key);
    }
    let push = |key: &str| home.run(&["image", "push", &name, &format!("--sign-key={key}"), "-o=json"]);
    let verify = |key: &str| home.run(&["image", "verify", &name, &format!("--key={key}")]);

    home.run(&["image", "push", &name]).ok();
    verify("image.pub").fails_with(&["has no signature by the key image.pub", "--sign-key FILE"]);
    let signed: Value = serde_json::from_str(&push("image.key").ok().out).unwrap();
    // The index, the image of one platform, and the two documents about it.
    assert_eq!(signed["signed"].as_array().unwrap().len(), 4);
    assert_eq!(signed["signed"][0], built["digest"]);
    assert!(verify("image.pub").ok().out.contains(built["digest"].as_str().unwrap()));
    verify("other.pub").fails_with(&["has no signature by the key other.pub"]);

    // A key signs once, and other signatures are kept.
    let layers = || {
        let state = registry.state.lock().unwrap();
        let tag = format!("{}.sig", built["digest"].as_str().unwrap().replace(':', "-"));
        let manifest: Value = serde_json::from_slice(&state.manifests[&tag].1).unwrap();
        manifest["layers"].as_array().unwrap().len()
    };
    push("second.key").ok();
    push("image.key").ok();
    assert_eq!(layers(), 2);
    verify("image.pub").ok();
    verify("second.pub").ok();

    // Another image under the same name is not covered.
    fs::write(home.0.join("ca.pem"), "-----BEGIN CERTIFICATE-----\nother\n").unwrap();
    build(&home, &["--tag=op:1"]).ok();
    home.run(&["image", "push", &name]).ok();
    verify("image.pub").fails_with(&["has no signature"]);
    // Neither is one with a copied signature.
    {
        let mut state = registry.state.lock().unwrap();
        let stolen = state.manifests[&format!("{}.sig", built["digest"].as_str().unwrap().replace(':', "-"))].clone();
        let tag = format!("{}.sig", sha256(&state.manifests["1"].1).replace(':', "-"));
        state.manifests.insert(tag, stolen);
    }
    verify("image.pub").fails_with(&["has no signature"]);

    push("image.pub").fails_with(&["image.pub is not a usable private key", "openssl genpkey"]);
    verify("image.key").fails_with(&["image.key is not an ECDSA P-256 public key", "openssl pkey"]);
}

#[test]
fn failing_registry_is_named() {
    let home = prepared("refused");
    build(&home, &[]).ok();
    let refusing = Registry::start(Manner::Refuses);
    push(&home, &refusing).fails_with(&[
        &refusing.address,
        "did not accept the manifest sha256:",
        "(400 Bad Request): MANIFEST_INVALID: no index is taken here",
        "hint:",
    ]);
    home.run(&["image", "push", "127.0.0.1:1/op"])
        .fails_with(&["cannot reach 127.0.0.1:1", "check that a registry listens at 127.0.0.1:1"]);
    home.run(&["image", "push", "--insecure=false", "127.0.0.1:1/op"])
        .fails_with(&["cannot reach", "check the name of the registry, and HTTPS_PROXY"]);
    // Damaged content is not pushed.
    let open = Registry::start(Manner::Open);
    let blobs = home.0.join("target/image/blobs/sha256");
    for blob in fs::read_dir(blobs).unwrap() {
        fs::write(blob.unwrap().path(), "x").unwrap();
    }
    push(&home, &open).fails_with(&["is corrupt", "flyball image build"]);
}

#[test]
fn registry_is_reached_through_the_proxy_of_the_environment() {
    let home = prepared("push-proxy");
    build(&home, &[]).ok();
    let (registry, proxy) = (Registry::start(Manner::Open), Proxy::start());
    let port = registry.address.rsplit(':').next().unwrap();
    let name = format!("registry.test:{port}/team/op:1");
    let push = |variables: &[(&str, &str)]| {
        let mut command = home.command(&["image", "push", "--insecure", &name]);
        CommandOutput::of(&command.envs(variables.iter().copied()).output().unwrap())
    };
    push(&[("HTTP_PROXY", &proxy.url)]).ok();
    assert!(registry.state.lock().unwrap().manifests.contains_key("1"));
    let tunnels = proxy.tunnels();
    assert!(
        !tunnels.is_empty() && tunnels.iter().all(|target| *target == format!("registry.test:{port}")),
        "{tunnels:?}"
    );
    push(&[("HTTP_PROXY", &proxy.url), ("NO_PROXY", "registry.test")]).fails_with(&["cannot reach registry.test"]);
    // The image on this machine is loaded, regardless of its name.
    let direct = format!("{}/team/op:2", registry.address);
    let mut command = home.command(&["image", "push", &direct]);
    CommandOutput::of(&command.env("ALL_PROXY", "http://127.0.0.1:1").output().unwrap()).ok();
    assert_eq!(proxy.tunnels(), [""; 0]);
}

#[test]
fn image_is_loaded_to_simulated_nodes() {
    let home = prepared("load");
    build(&home, &["--tag=op:1"]).ok();
    home.run(&["image", "load", "--cluster=other"]).fails_with(&[
        "cluster other not found",
        "flyball cluster up --name other",
        "kind or k3d",
    ]);
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.run(&["image", "load"]).fails_with(&["cluster flyball has no nodes", "flyball cluster node add"]);
    home.run(&["cluster", "node", "add", "--count=2"]).ok();
    let output = home.run(&["image", "load"]).ok();
    assert_eq!(output.out, "loaded docker.io/library/op:1 to 2 nodes of cluster flyball\n");
    home.run(&["image", "load"]).ok();
    let node: Value = serde_json::from_str(&home.run(&["get", "node", "node-0", "-o=json"]).out)
        .or_else(|_| serde_json::from_str(&home.run(&["get", "node", "node-1", "-o=json"]).ok().out))
        .unwrap();
    let images = node["status"]["images"].as_array().unwrap();
    assert_eq!((images.len(), &images[0]["names"][1]), (1, &json!("docker.io/library/op:1")));

    // Other clusters load it with their own tool.
    let kind = home.0.join("kind");
    let script = "#!/bin/sh\n[ \"$1 $2\" = 'get clusters' ] && { echo work; exit; }\necho \"$1 $2 $4 $5\"; /bin/cp \"$3\" got.tar\n";
    fs::write(&kind, script).unwrap();
    fs::set_permissions(&kind, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = home.command(&["image", "load", "--cluster=work"]);
    let output = CommandOutput::of(&command.env("PATH", &home.0).output().unwrap()).ok();
    assert_eq!(output.out, "load image-archive --name work\nloaded docker.io/library/op:1 to cluster work, by kind\n");
    let archive = fs::read(home.0.join("got.tar")).unwrap();
    let mut archive = tar::Archive::new(&archive[..]);
    let files: Vec<String> =
        archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
    assert_eq!((files[0].as_str(), files[1].as_str(), files.len()), ("oci-layout", "index.json", 8));
}

#[test]
fn sbom_of_this_program_lists_its_dependencies() {
    // Cargo finds its own home in the environment.
    let mut command = Command::new(env!("CARGO_BIN_EXE_flyball"));
    command.args(["image", "sbom", "--package", "flyball-cli"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = CommandOutput::of(&command.output().unwrap());
    let document: Value = serde_json::from_str(&output.ok().out).unwrap();
    assert_eq!(document["bomFormat"], "CycloneDX");
    let components = document["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|component| component["name"] == name);
    for dependency in ["flyball", "flyball-server", "tokio", "rustls"] {
        assert!(named(dependency).is_some(), "{dependency}");
    }
    let tokio = named("tokio").unwrap();
    assert_eq!(tokio["hashes"][0]["alg"], "SHA-256", "{tokio}");
    assert!(tokio["licenses"][0]["expression"].is_string(), "{tokio}");
    // A macro runs in the compiler.
    assert!(named("serde_derive").is_none());
    let edges = document["dependencies"].as_array().unwrap();
    let refs: Vec<_> = components.iter().map(|component| &component["bom-ref"]).collect();
    let listed = |edge: &Value| refs.contains(&edge) || *edge == document["metadata"]["component"]["bom-ref"];
    for edge in edges {
        assert!(listed(&edge["ref"]), "{edge}");
        assert!(edge["dependsOn"].as_array().into_iter().flatten().all(listed), "{edge}");
    }
}
