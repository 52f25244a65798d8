//! Rules for `Chart.yaml`.

use super::source::{Entry, Source};
use super::{Lint, Severity, addresses, strict};
use crate::chart::Metadata;
use crate::helm::HelmVersion;
use crate::quote::quote;
use crate::semver::{Constraints, Version};
use crate::yaml::{self, Data};

const FILE: &str = "Chart.yaml";

pub(super) fn check(source: &Source, helm: HelmVersion, lint: &mut Lint) {
    let is_directory = source.entry(FILE) == Some(Entry::Folder);
    let not_file = if is_directory { Err("should be a file, not a directory".to_owned()) } else { Ok(()) };
    lint.rule(Severity::Error, FILE, not_file);
    let read = source.read(FILE).and_then(|text| {
        let data = yaml::read(&text).map_err(|error| error.to_string())?;
        let metadata = Metadata::of(&data).map_err(|error| helm.go_types(&error.to_string()))?;
        Ok((text, data, metadata))
    });
    let (text, data, metadata) = match read {
        Ok(read) => read,
        Err(message) => {
            lint.rule(Severity::Error, FILE, Err(format!("unable to parse YAML\n\t{message}")));
            return;
        }
    };
    let mut rule = |severity, outcome| lint.rule(severity, FILE, outcome);
    if helm == HelmVersion::V4 {
        let strict = strict::check(&text, &data);
        rule(Severity::Warning, strict.map_err(|m| format!("failed to strictly parse chart metadata file\n\t{m}")));
    }
    rule(Severity::Error, name(&metadata));
    rule(Severity::Error, api_version(&metadata));
    rule(Severity::Error, string(&data, "version"));
    rule(Severity::Error, version(&metadata));
    rule(Severity::Error, string(&data, "appVersion"));
    rule(Severity::Error, maintainers(&metadata, &data));
    rule(Severity::Error, sources(&metadata));
    rule(Severity::Info, if metadata.icon.is_empty() { Err("icon is recommended".to_owned()) } else { Ok(()) });
    rule(Severity::Error, icon(&metadata));
    rule(Severity::Error, chart_type(&metadata));
    rule(Severity::Error, dependencies(&metadata));
    if helm == HelmVersion::V4 {
        rule(Severity::Warning, strict_version(&metadata));
    }
}

fn name(metadata: &Metadata) -> Result<(), String> {
    let name = metadata.name.as_str();
    match name {
        "" => Err("name is required".to_owned()),
        // Go's `filepath.Base` drops trailing slashes.
        _ if name.contains('/') && name != "/" => Err(format!("chart name {} is invalid", quote(name.as_bytes()))),
        _ => Ok(()),
    }
}

fn api_version(metadata: &Metadata) -> Result<(), String> {
    const VALID: &str = "The value must be either \"v1\" or \"v2\"";
    match metadata.api_version.as_str() {
        "v1" | "v2" => Ok(()),
        "" => Err(format!("apiVersion is required. {VALID}")),
        other => Err(format!("apiVersion '{other}' is not valid. {VALID}")),
    }
}

fn string(data: &Data, key: &str) -> Result<(), String> {
    let Data::Map(fields) = data else { return Ok(()) };
    let is = match fields.get(key) {
        None | Some(Data::Str(_)) => return Ok(()),
        Some(Data::Null) => "<nil>",
        Some(Data::Bool(_)) => "bool",
        Some(Data::Int(_) | Data::Uint(_) | Data::Float(_)) => "float64",
        Some(Data::List(_)) => "[]interface {}",
        Some(Data::Map(_)) => "map[string]interface {}",
    };
    Err(format!("{key} should be of type string but it's of type {is}"))
}

fn version(metadata: &Metadata) -> Result<(), String> {
    const MIN_VERSION: &str = "0.0.0-0";
    let text = &metadata.version;
    if text.is_empty() {
        return Err("version is required".to_owned());
    }
    let version = Version::parse(text).map_err(|_| format!("version '{text}' is not a valid SemVer"))?;
    match Constraints::parse(&format!(">{MIN_VERSION}")) {
        Ok(constraint) if !constraint.allow(&version) => {
            Err(format!("version {version} is less than or equal to {MIN_VERSION}"))
        }
        _ => Ok(()),
    }
}

fn strict_version(metadata: &Metadata) -> Result<(), String> {
    let text = &metadata.version;
    let numbers = text.split(['-', '+']).next().unwrap_or(text);
    let is_strict = Version::parse(text).is_ok() && !text.starts_with('v') && numbers.split('.').count() == 3;
    if is_strict { Ok(()) } else { Err(format!("version '{text}' is not a valid SemVerV2")) }
}

fn maintainers(metadata: &Metadata, data: &Data) -> Result<(), String> {
    let fields = if let Data::Map(fields) = data { Some(fields) } else { None };
    let items = fields.and_then(|fields| fields.get("maintainers"));
    let is_null = |at: usize| matches!(items, Some(Data::List(items)) if items.get(at) == Some(&Data::Null));
    for (at, maintainer) in metadata.maintainers.iter().enumerate() {
        let (name, email, url) = (&maintainer.name, &maintainer.email, &maintainer.url);
        if is_null(at) {
            return Err("a maintainer entry is empty".to_owned());
        }
        if name.is_empty() {
            return Err("each maintainer requires a name".to_owned());
        }
        if !email.is_empty() && !addresses::is_email(email) {
            return Err(format!("invalid email '{email}' for maintainer '{name}'"));
        }
        if !url.is_empty() && !addresses::is_url(url) {
            return Err(format!("invalid url '{url}' for maintainer '{name}'"));
        }
    }
    Ok(())
}

fn sources(metadata: &Metadata) -> Result<(), String> {
    match metadata.sources.iter().find(|source| !addresses::is_request_url(source)) {
        Some(source) => Err(format!("invalid source URL '{source}'")),
        None => Ok(()),
    }
}

fn icon(metadata: &Metadata) -> Result<(), String> {
    let icon = &metadata.icon;
    match icon.is_empty() || addresses::is_request_url(icon) {
        true => Ok(()),
        false => Err(format!("invalid icon URL '{icon}'")),
    }
}

fn chart_type(metadata: &Metadata) -> Result<(), String> {
    let version = &metadata.api_version;
    match metadata.chart_type.is_empty() || version == "v2" {
        true => Ok(()),
        false => Err(format!("chart type is not valid in apiVersion '{version}'. It is valid in apiVersion 'v2'")),
    }
}

fn dependencies(metadata: &Metadata) -> Result<(), String> {
    let version = &metadata.api_version;
    match metadata.dependencies.is_empty() || version == "v2" {
        true => Ok(()),
        false => Err(format!(
            "dependencies are not valid in the Chart file with apiVersion '{version}'. They are valid in apiVersion 'v2'"
        )),
    }
}
