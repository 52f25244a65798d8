//! Rules of Helm 4 for the files of `crds/`.

use super::source::{Entry, Source};
use super::templates::Head;
use super::{Lint, Severity};
use crate::chart::Chart;
use crate::helm::HelmVersion;
use crate::yaml;

const DIRECTORY: &str = "crds/";

pub(super) fn check(source: &Source, lint: &mut Lint) {
    let Some(entry) = source.entry("crds") else { return };
    let is_directory = if entry == Entry::Folder { Ok(()) } else { Err("not a directory".to_owned()) };
    if !lint.rule(Severity::Error, DIRECTORY, is_directory) {
        return;
    }
    let chart = match source.load(HelmVersion::V4) {
        Ok(chart) => chart,
        Err(error) => {
            lint.rule(Severity::Error, DIRECTORY, Err(HelmVersion::V4.go_types(&error.to_string())));
            return;
        }
    };
    lint.warnings.extend(chart.warnings().iter().cloned());
    check_chart(&chart, lint);
}

/// Checks the files of a chart and of its subcharts. Stops at the first file that is not YAML, and returns false.
fn check_chart(chart: &Chart, lint: &mut Lint) -> bool {
    for file in chart.crd_files() {
        for document in yaml::documents(&file.data) {
            let head = document.and_then(|text| Head::read(text, HelmVersion::V4));
            let head = match head {
                Ok(head) => head,
                Err(message) => {
                    return lint.rule(Severity::Error, &file.path, Err(format!("unable to parse YAML: {message}")));
                }
            };
            let Some(head) = head else { continue };
            let problem = |is: bool, text: &str| if is { Ok(()) } else { Err(text.to_owned()) };
            let is_group = head.api_version.starts_with("apiextensions.k8s.io");
            let is_kind = head.kind == "CustomResourceDefinition";
            let group = problem(is_group, "apiVersion is not in 'apiextensions.k8s.io'");
            lint.rule(Severity::Error, &file.path, group);
            let kind = problem(is_kind, "object kind is not 'CustomResourceDefinition'");
            lint.rule(Severity::Error, &file.path, kind);
        }
    }
    chart.dependencies().iter().all(|child| check_chart(child, lint))
}
