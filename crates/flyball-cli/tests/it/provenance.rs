//! Provenance files of charts. The files in `data/provenance` were signed by `gpg --clearsign`.

use crate::registry::{Manner, Registry, sha256};
use crate::web_server::{Page, WebServer};
use crate::{CommandOutput, Home};
use serde_json::json;
use std::fs;
use std::path::Path;

const CHART: &[u8] = include_bytes!("data/provenance/cache-1.2.3.tgz");
const PROVENANCE: &[u8] = include_bytes!("data/provenance/cache-1.2.3.tgz.prov");

/// Returns true if the program that checks signatures is installed.
fn has_gpgv() -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|folder| folder.join("gpgv").is_file())
}

/// Runs a command that finds the program.
fn run(home: &Home, args: &[&str]) -> CommandOutput {
    CommandOutput::of(&home.command(args).env("PATH", std::env::var_os("PATH").unwrap()).output().unwrap())
}

fn keys(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/data/provenance").join(name).display().to_string()
}

/// Serves the chart, with its provenance file if there is one.
fn repository(chart: &[u8], provenance: Option<&[u8]>) -> WebServer {
    let server = WebServer::start();
    let digest = sha256(chart);
    let index = format!(
        "apiVersion: v1\nentries:\n  cache:\n  - {{name: cache, version: 1.2.3, digest: '{digest}', urls: [cache-1.2.3.tgz]}}\n"
    );
    server.put("/index.yaml", Page::File(index.into_bytes()));
    server.put("/cache-1.2.3.tgz", Page::File(chart.to_vec()));
    if let Some(provenance) = provenance {
        server.put("/cache-1.2.3.tgz.prov", Page::File(provenance.to_vec()));
    }
    server
}

#[test]
fn signed_charts_are_verified() {
    if !has_gpgv() {
        return;
    }
    let (home, signers) = (Home::new("provenance"), keys("signers.gpg"));
    let server = repository(CHART, Some(PROVENANCE));
    let url = format!("{}/cache-1.2.3.tgz", server.url);
    let verify = ["--verify", "--keyring", &signers];
    let pull = |args: &[&str]| run(&home, &[&["helm", "pull"], args].concat());
    let output = pull(&[&["cache", "--repo", &server.url][..], &verify].concat()).ok();
    let expected = format!(
        "Signed by: Chart Signer <signer@example.com>\nUsing Key With Fingerprint: \
         3A4BE55927AE13E2120B2D7A3D6F708CDD0959DE\nChart Hash Verified: {}\n",
        sha256(CHART)
    );
    assert_eq!(output.out, expected);
    assert_eq!(fs::read(home.0.join("cache-1.2.3.tgz.prov")).unwrap(), PROVENANCE);

    // The archive and its provenance file are on this machine now.
    let show = |args: &[&str]| run(&home, &[&["helm", "show", "chart"], args].concat());
    show(&[&["cache-1.2.3.tgz"][..], &verify].concat()).ok();
    let template = ["helm", "template", "a", "cache-1.2.3.tgz"];
    assert!(run(&home, &[&template[..], &verify].concat()).ok().out.contains("size: \"3\""));
    run(&home, &[&["init", "--helm", "--chart", &url, "cache-operator"][..], &verify].concat()).ok();
    assert!(home.0.join("cache-operator/helm-charts/cache/Chart.yaml").is_file());
    fs::copy(home.0.join("cache-1.2.3.tgz"), home.0.join("renamed.tgz")).unwrap();
    fs::copy(home.0.join("cache-1.2.3.tgz.prov"), home.0.join("renamed.tgz.prov")).unwrap();
    for (args, words) in [
        (vec!["renamed.tgz", "--verify", "--keyring", &signers], "for a file named \"renamed.tgz\""),
        (
            vec!["cache-1.2.3.tgz", "--verify", "--keyring", &keys("others.gpg")],
            "no valid signature in the provenance file: key ",
        ),
        (vec!["cache-1.2.3.tgz", "--verify", "--keyring", "nowhere"], "keyring nowhere not found"),
        (vec!["cache-1.2.3.tgz", "--verify"], "pubring.gpg not found"),
        (vec!["cache-operator/helm-charts/cache", "--verify"], "unpacked charts cannot be verified"),
    ] {
        show(&args).fails_with(&[words]);
    }

    // Without a provenance file, or with another archive or text, nothing is written.
    let text = String::from_utf8(PROVENANCE.to_vec()).unwrap();
    let other = CHART.iter().copied().chain([0]).collect::<Vec<u8>>();
    for (chart, provenance, words) in [
        (CHART, None, "failed to fetch the provenance file: "),
        (CHART, Some(text.replace("1.2.3", "1.2.4")), "the text was changed after it was signed"),
        (CHART, Some("hello\n".to_owned()), "no valid signature in the provenance file: "),
        (&other, Some(text.clone()), "sha256 sum does not match for cache-1.2.3.tgz: "),
    ] {
        let server = repository(chart, provenance.as_deref().map(str::as_bytes));
        let url = format!("{}/cache-1.2.3.tgz", server.url);
        pull(&[&[url.as_str(), "--destination", "cache-operator"][..], &verify].concat()).fails_with(&[words]);
        assert!(!home.0.join("cache-operator/cache-1.2.3.tgz").exists());
    }
}

#[test]
fn provenance_files_are_kept_without_verifying_them() {
    let home = Home::new("provenance-kept");
    let server = repository(CHART, None);
    let url = format!("{}/cache-1.2.3.tgz", server.url);
    let output = home.run(&["helm", "pull", &url, "--prov"]).ok();
    assert!(output.err.contains("warning: no provenance file of cache-1.2.3.tgz: "), "{output:?}");
    server.put("/cache-1.2.3.tgz.prov", Page::File(b"unsigned".to_vec()));
    home.run(&["helm", "pull", &url, "--prov"]).ok();
    assert_eq!(fs::read(home.0.join("cache-1.2.3.tgz.prov")).unwrap(), b"unsigned");
}

#[test]
fn provenance_files_come_from_registries() {
    let (home, registry) = (Home::new("provenance-oci"), Registry::start(Manner::Open));
    let layers: Vec<_> = [
        ("application/vnd.cncf.helm.chart.content.v1.tar+gzip", CHART),
        ("application/vnd.cncf.helm.chart.provenance.v1.prov", PROVENANCE),
    ]
    .map(|(kind, bytes)| json!({"mediaType": kind, "digest": sha256(bytes), "size": bytes.len()}))
    .into();
    let config = json!({"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": sha256(b"{}"), "size": 2});
    let push = |tag: &str, layers: &[serde_json::Value]| {
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers}).to_string();
        let mut state = registry.state.lock().unwrap();
        for bytes in [CHART, PROVENANCE] {
            state.blobs.insert(sha256(bytes), bytes.to_vec().into());
        }
        state.manifests.insert(tag.to_owned(), (String::new(), manifest.into()));
    };
    push("1.2.3", &layers);
    push("1.2.4", &layers[..1]);
    let reference = format!("oci://{}/team/cache", registry.address);
    let pull = |version: &str, flags: &[&str]| {
        run(&home, &[&["helm", "pull", &reference, "--version", version], flags].concat())
    };
    pull("1.2.3", &["--prov"]).ok();
    assert_eq!(fs::read(home.0.join("cache-1.2.3.tgz.prov")).unwrap(), PROVENANCE);
    pull("1.2.4", &["--verify"]).fails_with(&["was pushed without a provenance file"]);
    if has_gpgv() {
        pull("1.2.3", &["--verify", "--keyring", &keys("signers.gpg")]).ok();
    }
}
