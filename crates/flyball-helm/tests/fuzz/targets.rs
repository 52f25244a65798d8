//! The inputs: `watches.yaml`, and the Secrets of releases.

use crate::engine;
use flate2::Compression;
use flate2::write::GzEncoder;
use flyball_helm::Watches;
use flyball_helm::storage::Revision;
use serde_json::json;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A target: returns a short description of the outcome.
pub(crate) struct Target {
    seeds: fn() -> Vec<String>,
    play: fn(&[u8]) -> String,
}

impl engine::Target for Target {
    type World = ();

    fn seeds(&self) -> Vec<Vec<u8>> {
        (self.seeds)().into_iter().map(String::into_bytes).collect()
    }

    async fn open(&self) {}

    async fn play(&self, (): &mut (), input: &[u8]) -> String {
        (self.play)(input)
    }
}

const CHART: &str = "apiVersion: v2\nname: site\nversion: 0.1.0\n";
const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {text: {{ .Values.text | quote }}}\n";

/// The first words of a message.
fn outline(message: &str) -> String {
    let words = message.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() > 1);
    words.take(12).collect::<Vec<_>>().join(" ")
}

/// The first words of an error and its sources.
fn outline_of<T, E: Error + 'static>(result: &Result<T, E>) -> String {
    let Err(error) = result else { return "taken".into() };
    let errors = std::iter::successors(Some(error as &dyn Error), |error| Error::source(*error));
    outline(&errors.map(|error| format!("{error} ")).collect::<String>())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Payloads of release Secrets, which anyone who may write Secrets can change.
pub(crate) fn releases() -> Target {
    Target {
        seeds: || {
            vec![
                json!({"name": "blue", "namespace": "tenant", "version": 1, "manifest": "---\na: b\n", "info": {
                    "first_deployed": "2026-01-01T00:00:00Z", "last_deployed": "2026-01-01T00:00:00.1+02:00", "deleted": "", "status": "deployed",
                }, "chart": {"metadata": {"name": "site", "version": "1", "apiVersion": "v2"}, "templates": [{"name": "a", "data": "AAE="}]},
                    "config": {"a": 1}, "hooks": [{"name": "h", "events": ["pre-install"]}], "labels": {"a": "b"}}).to_string(),
                json!({"name": "", "version": -1, "info": null}).to_string(),
            ]
        },
        play: |input| {
            use base64::prelude::{BASE64_STANDARD, Engine};
            let mut output = outline_of(&Revision::decode(input));
            for payload in [gzip(input), input.to_vec()] {
                let decoded = Revision::decode(BASE64_STANDARD.encode(payload).as_bytes());
                output += &outline_of(&decoded);
                if let Ok(revision) = decoded {
                    // A decoded payload can be encoded and decoded again.
                    Revision::decode(&revision.encode().unwrap()).unwrap();
                }
            }
            output
        },
    }
}

/// A `watches.yaml`, with a chart beside it.
pub(crate) fn watches_yaml() -> Target {
    Target {
        seeds: || {
            [
                "- {group: web.example.com, version: v1, kind: Site, chart: charts/site}\n",
                "- group: web.example.com\n  version: v1\n  kind: Site\n  chart: charts/site\n  overrideValues: {a.b: $HOME, 'c[0]': '${PATH}'}\n  watchDependentResources: false\n  reconcilePeriod: 1h30m\n  selector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}\n  dryRunOption: server\n  maxConcurrentReconciles: 3\n",
                "- {group: '', version: v1, kind: ConfigMap, chart: ../charts/site}\n- {group: a, version: b, kind: C, chart: /}\n",
                "- &a {group: a.b, version: v1, kind: K, chart: charts/site}\n- *a\n",
            ]
            .map(str::to_owned)
            .to_vec()
        },
        play: |input| {
            let folder = project();
            let text = String::from_utf8_lossy(input);
            let watches = Watches::parse(&text, &folder.join("watches.yaml"), |name| Some(name.to_lowercase()));
            let Ok(watches) = &watches else { return outline_of(&watches) };
            // No entry names a sensitive file outside of the project.
            flyball_helm::operator(watches).map_or_else(|error| outline(&error.to_string()), |_| "taken".into())
        },
    }
}

/// The directory of a project with one chart.
fn project() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz").join("helm-project");
    let chart = folder.join("charts/site");
    if !chart.join("templates/page.yaml").exists() {
        std::fs::create_dir_all(chart.join("templates")).unwrap();
        std::fs::write(chart.join("Chart.yaml"), CHART).unwrap();
        std::fs::write(chart.join("templates/page.yaml"), PAGE).unwrap();
    }
    folder
}
