//! Charts of a watches.yaml: their templates before an operator that runs is replaced, and their CRDs.

use crate::cluster::apply;
use crate::error::{Error, Result};
use crate::operator::program::Program;
use flyball_chart::{Capabilities, Chart, Release, Values};
use flyball_helm::Watches;
use serde_json::Value;
use std::path::Path;

/// Refuses templates that cannot be rendered with a sample of the project. A kind without a sample is not checked: its
/// chart may require values.
pub(super) fn check(watches: &Path) -> Result<()> {
    // The operator itself reports errors of the file and of the chart.
    let Ok(read) = Watches::read(watches) else { return Ok(()) };
    let samples = apply::read(&read.directory().join("config/samples")).unwrap_or_default();
    for watch in read.entries() {
        let api_version = watch.kind.api_version();
        let Ok(chart) = Chart::open_as(&watch.chart, watch.helm_version) else { continue };
        let is_sample = |sample: &&Value| sample["apiVersion"] == *api_version && sample["kind"] == *watch.kind.kind;
        for sample in samples.iter().filter(is_sample) {
            let mut values = Values::from(sample["spec"].as_object().cloned().unwrap_or_default());
            let _ = watch.override_in(&mut values);
            let name = sample["metadata"]["name"].as_str().unwrap_or_default();
            let release =
                Release { name: name.to_owned(), namespace: "default".to_owned(), revision: 1, is_upgrade: false };
            match chart.render(&values, &release, &Capabilities::of(watch.helm_version)) {
                Err(error) if error.is_in_templates() => {
                    return Err(Error::new(format!("cannot render the chart with sample {name}: {error}")));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Returns the names of the CRDs that the charts of a program install, and that outlive their releases.
pub(crate) fn lasting_definitions(program: &Program) -> Vec<String> {
    // The operator itself reports errors of the file and of the chart.
    let of = |path: &Path| flyball_helm::definitions_of_charts(&Watches::read(path).ok()?).ok();
    match program {
        Program::Watches(path) => of(path).unwrap_or_default(),
        Program::File(_) | Program::Lifecycle => Vec::new(),
    }
}
