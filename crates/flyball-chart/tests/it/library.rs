//! Tests of the library: charts from archives, a cluster for `lookup`, seeds, and limits.

use flate2::Compression;
use flate2::write::GzEncoder;
use flyball_chart::{Capabilities, Chart, Lookup, Release, RenderOptions, RenderedChart, Seed, Values};
use flyball_core::Rng;
use serde_json::{Value, json};

const CHART: &str = "apiVersion: v2\nname: demo\nversion: 1.2.3\nappVersion: 1.16\n";

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        // A malicious archive: names are not validated here.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        archive.append(&header, text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

fn chart(template: &str) -> Chart {
    let bytes =
        archive(&[("demo/Chart.yaml", CHART), ("demo/templates/a.yaml", template), ("demo/crds/c.yaml", "kind: C")]);
    Chart::from_archive(&bytes).unwrap()
}

fn release() -> Release {
    Release { name: "r".to_owned(), namespace: "ns".to_owned(), revision: 2, is_upgrade: true }
}

fn render(template: &str, options: &RenderOptions<'_>) -> Result<RenderedChart, String> {
    let capabilities = Capabilities::default();
    chart(template)
        .render_with(&Values::default(), &release(), &capabilities, options)
        .map_err(|error| error.to_string())
}

#[test]
fn archive_is_read_as_a_chart() {
    let chart = chart("kind: A");
    assert_eq!((chart.name(), chart.version(), chart.app_version()), ("demo", "1.2.3", Some("1.16")));
    assert_eq!(chart.crds()[0].path, "demo/crds/c.yaml");
}

#[test]
fn archive_paths_outside_its_folder_are_rejected() {
    for (path, complaint) in [
        ("demo/../../etc/passwd", "chart illegally references parent directory"),
        ("demo//etc/passwd", "chart illegally contains absolute paths"),
        ("Chart.yaml", "chart yaml not in base directory"),
    ] {
        assert_eq!(Chart::from_archive(&archive(&[(path, "x")])).unwrap_err().to_string(), complaint);
    }
    assert!(Chart::from_archive(b"no archive").is_err());
}

#[test]
fn nested_archives_share_the_size_limit() {
    let large = " ".repeat(5 << 20);
    let inner = |name: &str| {
        let chart = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        let files: Vec<(String, &str)> = (0..7).map(|at| (format!("{name}/f{at}"), large.as_str())).collect();
        let mut files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let description = format!("{name}/Chart.yaml");
        files.push((&description, &chart));
        archive(&files)
    };
    let outer = |count: usize| {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut add = |path: &str, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, path, bytes).unwrap();
        };
        add("demo/Chart.yaml", CHART.as_bytes());
        for at in 0..count {
            add(&format!("demo/charts/c{at}.tgz"), &inner(&format!("c{at}")));
        }
        Chart::from_archive(&archive.into_inner().unwrap().finish().unwrap())
    };
    assert!(outer(2).is_ok());
    let error = outer(3).unwrap_err().to_string();
    assert!(error.contains("decompressed chart is larger than the maximum file size"), "{error}");
}

struct Cluster;

impl Lookup for Cluster {
    fn lookup(&self, version: &str, kind: &str, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        match (version, kind, namespace, name) {
            ("v1", "Secret", "ns", "known") => Ok(Some(json!({"data": {"n": 3, "p": "cHc="}}))),
            ("v1", "Secret", ..) => Ok(None),
            _ => Err(format!("no kind {kind}")),
        }
    }
}

#[test]
fn lookup_reads_from_the_cluster() {
    let options = RenderOptions { cluster: Some(&Cluster), ..RenderOptions::default() };
    let template = "v: {{ (lookup \"v1\" \"Secret\" .Release.Namespace \"known\").data | toJson }}\n\
                    w: {{ lookup \"v1\" \"Secret\" \"ns\" \"other\" | toJson }}";
    let rendered = render(template, &options).unwrap();
    assert_eq!(rendered.manifests[0].object, json!({"v": {"n": 3, "p": "cHc="}, "w": {}}));
    let error = render("{{ lookup \"v1\" \"Nope\" \"\" \"\" }}", &options).unwrap_err();
    assert!(error.ends_with("error calling lookup: no kind Nope"), "{error}");
}

#[test]
fn certificates_and_characters_of_untrusted_values_are_data() {
    let template = "{{ $ca := genCA \"a\" 1 }}cert: {{ printf \"{{ fail \\\"evaluated\\\" }}\\n%s\" $ca.Cert | b64enc }}\n\
                    key: {{ $ca.Key | b64enc }}\nnumber: 123";
    let values = render(template, &RenderOptions::default()).unwrap().manifests[0].object.clone();
    let values = Values::untrusted(values.as_object().unwrap().clone());
    let template = "{{ $ca := buildCustomCert .Values.cert .Values.key }}a: {{ tpl $ca.Cert . | quote }}\n\
                    b: {{ printf \"%v\" $ca | quote }}\nc: {{ toYaml $ca | quote }}\nd: {{ toJson (list $ca) | quote }}\n\
                    e: {{ printf \"%#U\" .Values.number | quote }}\nf: {{ printf \"%c\" (dict \"a\" .Values.number) | quote }}";
    let rendered = chart(template)
        .render_with(&values, &release(), &Capabilities::default(), &RenderOptions::default())
        .map_err(|error| error.to_string());
    let manifest = &rendered.unwrap().manifests[0];
    for (field, text) in manifest.object.as_object().unwrap() {
        let (text, outline) = (text.as_str().unwrap(), manifest.outline()[field].as_str().unwrap());
        let part = if matches!(field.as_str(), "e" | "f") { "{" } else { "{{ fail" };
        assert!(text.contains(part) && !outline.contains(part), "{field}: {text}, {outline}");
    }
}

#[test]
fn random_values_follow_the_seed() {
    let draw = |seed| {
        let options = RenderOptions { seed: Seed::from_rng(&Rng::from_seed(seed)), ..RenderOptions::default() };
        render("v: {{ randAlphaNum 20 }}-{{ uuidv4 }}-{{ genPrivateKey \"ed25519\" | sha256sum }}", &options).unwrap()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn endless_templates_are_aborted() {
    for template in [
        "{{ define \"x\" }}{{ template \"x\" }}{{ end }}{{ template \"x\" }}",
        "{{ define \"x\" }}{{ include \"x\" . }}{{ end }}{{ include \"x\" . }}",
        "{{ tpl .Chart.Name . }}{{ $t := dict \"t\" \"{{ tpl .t . }}\" }}{{ tpl $t.t $t }}",
        "{{ repeat 2000000000 \"x\" }}",
        "{{ until 2000000000 }}",
        "{{ printf \"%2000000000d\" 1 | indent 2000000000 }}",
        "{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ mustToJson $d }}",
        "{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ deepCopy $d }}",
        &format!("{{{{ {}1", "(".repeat(100_000)),
        &format!("v: {}", "[".repeat(100_000)),
    ] {
        assert!(render(template, &RenderOptions::default()).is_err(), "{template:.80}");
    }
}
