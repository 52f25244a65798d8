//! Rules for subcharts and for dependencies in `Chart.yaml`.

use super::source::Source;
use super::{Lint, Severity};
use crate::chart::Chart;
use crate::helm::HelmVersion;
use std::collections::BTreeSet;

pub(super) fn check(source: &Source, helm: HelmVersion, lint: &mut Lint) {
    let chart = match source.load(helm) {
        Ok(chart) => chart,
        Err(error) => {
            let message = helm.go_types(&error.to_string());
            lint.rule(Severity::Error, "", Err(format!("unable to load chart\n\t{message}")));
            return;
        }
    };
    lint.warnings.extend(chart.warnings().iter().cloned());
    let own = |chart: &Chart| chart.dependencies().iter().map(|child| child.name().to_owned()).collect::<Vec<_>>();
    let (there, named) = (own(&chart), &chart.metadata().dependencies);
    let unnamed = there.iter().filter(|name| !named.iter().any(|dependency| dependency.name == **name));
    let missing = named.iter().map(|dependency| &dependency.name).filter(|name| !there.contains(name));
    let mut keys = BTreeSet::new();
    let key = named.iter().map(|one| if one.alias.is_empty() { &one.name } else { &one.alias });
    let twice = key.filter(|key| !keys.insert(*key));
    let path = source.absolute_path.as_str();
    lint.rule(Severity::Error, path, none("chart metadata is missing these dependencies", unnamed));
    lint.rule(Severity::Error, path, none("multiple dependencies with name or alias", twice));
    lint.rule(Severity::Warning, path, none("chart directory is missing these dependencies", missing));
}

fn none<'n>(problem: &str, names: impl Iterator<Item = &'n String>) -> Result<(), String> {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { Ok(()) } else { Err(format!("{problem}: {}", names.join(","))) }
}
