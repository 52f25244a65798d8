//! The command `helm template`: arguments in, text out.

use crate::chart::load_message;
use crate::quote::quote;
use crate::template::exec::Templates;
use crate::template::node::Source;
use crate::value::Value;
use crate::world::{Budget, World};
use crate::{Capabilities, Chart, Release, RenderOptions, Rendered, Seed, Values};
use flyball_core::Clock;
use std::path::Path;
use std::rc::Rc;

/// `helm template` as a program of its own, which knows the words for flags that it has not.
#[derive(clap::Parser)]
#[command(disable_version_flag = true, no_binary_name = true, name = "template")]
struct Program {
    #[command(flatten)]
    args: TemplateArgs,
}

/// The arguments of `helm template`. See <https://helm.sh/docs/helm/helm_template/>.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TemplateArgs {
    /// Release name and chart, or only the chart
    #[arg(value_name = "[NAME] CHART")]
    pub args: Vec<String>,
    /// YAML file with values
    #[arg(short = 'f', long = "values", value_name = "FILE", value_delimiter = ',')]
    pub values: Vec<String>,
    /// Set values, such as a.b=c,d={e,f}
    #[arg(long, value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub set: Vec<String>,
    /// Set a string value
    #[arg(long, value_name = "KEY=TEXT", allow_hyphen_values = true)]
    pub set_string: Vec<String>,
    /// Set a value to the content of a file
    #[arg(long, value_name = "KEY=FILE", allow_hyphen_values = true)]
    pub set_file: Vec<String>,
    /// Set a JSON value
    #[arg(long, value_name = "KEY=JSON", allow_hyphen_values = true)]
    pub set_json: Vec<String>,
    /// Set a literal string value
    #[arg(long, value_name = "KEY=TEXT", allow_hyphen_values = true)]
    pub set_literal: Vec<String>,
    /// Namespace of the release
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// Template for the release name
    #[arg(long, value_name = "TEMPLATE")]
    pub name_template: Option<String>,
    /// Generate the release name
    #[arg(short, long)]
    pub generate_name: bool,
    /// Render for an upgrade
    #[arg(long)]
    pub is_upgrade: bool,
    /// Include the files in crds
    #[arg(long)]
    pub include_crds: bool,
    /// Omit hooks
    #[arg(long)]
    pub no_hooks: bool,
    /// Omit test hooks
    #[arg(long)]
    pub skip_tests: bool,
    /// Include the notes of subcharts
    #[arg(long)]
    pub render_subchart_notes: bool,
    /// Do not validate values against the schema
    #[arg(long)]
    pub skip_schema_validation: bool,
    /// Kubernetes version
    #[arg(long, value_name = "VERSION")]
    pub kube_version: Option<String>,
    /// Further API versions of the cluster
    #[arg(short, long, value_name = "VERSION", value_delimiter = ',')]
    pub api_versions: Vec<String>,
    /// Print only the output of these templates
    #[arg(short, long, value_name = "TEMPLATE")]
    pub show_only: Vec<String>,
}

impl TemplateArgs {
    /// Reads what stands behind `helm template` on a command line.
    ///
    /// # Errors
    /// A flag is unknown or lacks its value; or help was asked for, which is the message then.
    pub fn parse(arguments: &[String]) -> Result<TemplateArgs, String> {
        use clap::Parser;
        use clap::error::{ContextKind, ErrorKind};
        Program::try_parse_from(arguments).map(|program| program.args).map_err(|error| {
            match (error.kind(), error.get(ContextKind::InvalidArg)) {
                (ErrorKind::UnknownArgument, Some(flag)) => {
                    let flag = flag.to_string();
                    match flag.strip_prefix('-').filter(|short| !short.starts_with('-')) {
                        Some(short) => format!("unknown shorthand flag: '{short}' in -{short}"),
                        None => format!("unknown flag: {flag}"),
                    }
                }
                (ErrorKind::InvalidValue, Some(flag)) => {
                    let flag = flag.to_string();
                    format!("flag needs an argument: {}", flag.split(' ').next().unwrap_or(&flag))
                }
                _ => error.to_string(),
            }
        })
    }
}

/// Output of `helm template`: the text and the log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// Text for standard output.
    pub text: String,
    /// Warnings for standard error.
    pub warnings: Vec<String>,
}

/// Helm's hint for errors in templates.
const ADVICE: &str = "\n\nUse --debug flag to render out invalid YAML";

/// Runs `helm template`; paths are relative to a folder.
///
/// # Errors
/// Helm's message, without `Error: ` before it.
pub fn template(args: &TemplateArgs, folder: &Path, clock: Clock, seed: Seed) -> Result<Output, String> {
    let mut capabilities = Capabilities::default();
    if let Some(version) = &args.kube_version {
        capabilities
            .set_kube_version(version)
            .map_err(|message| format!("invalid kube version '{version}': {message}"))?;
    }
    capabilities.add_api_versions(args.api_versions.iter().cloned());
    let (name, chart) = name_and_chart(args, &clock, &seed)?;
    let path = folder.join(chart.trim());
    if !path.exists() {
        return Err(missing(chart.trim()));
    }
    let values = values(args, folder)?;
    let chart = Chart::open(&path).map_err(|error| error.to_string())?;
    let mut warnings = chart.warnings().to_vec();
    if chart.metadata().chart_type == "library" {
        return Err("library charts are not installable".to_owned());
    }
    if chart.metadata().deprecated {
        warnings.push("WARNING: This chart is deprecated".to_owned());
    }
    chart.check_dependencies()?;
    let release = Release { name, namespace: args.namespace.clone(), revision: 1, is_upgrade: args.is_upgrade };
    release.check_name()?;
    let options = RenderOptions {
        clock,
        seed,
        skip_schema_validation: args.skip_schema_validation,
        sub_notes: args.render_subchart_notes,
        ..RenderOptions::default()
    };
    let rendered = chart.render_with(&values, &release, &capabilities, &options).map_err(|error| {
        let advice = if error.is_in_templates() { ADVICE } else { "" };
        format!("{error}{advice}")
    })?;
    warnings.extend(rendered.warnings.iter().cloned());
    let text = print(args, &chart, &rendered);
    let text = if args.show_only.is_empty() { text } else { only(&text, &args.show_only)? };
    Ok(Output { text, warnings })
}

fn missing(chart: &str) -> String {
    if chart.starts_with(['/', '.']) {
        return format!("path {} not found", quote(chart.as_bytes()));
    }
    match chart.split_once('/') {
        Some((repository, _)) => format!("repo {repository} not found"),
        None => format!("non-absolute URLs should be in form of repo_name/path_to_chart, got: {chart}"),
    }
}

fn name_and_chart<'a>(args: &'a TemplateArgs, clock: &Clock, seed: &Seed) -> Result<(String, &'a str), String> {
    match args.args.as_slice() {
        [] => {
            Err("\"helm template\" requires at least 1 argument\n\nUsage:  helm template [NAME] [CHART] [flags]"
                .to_owned())
        }
        [chart] => match &args.name_template {
            Some(text) => Ok((generated_name(text, clock, seed)?, chart)),
            None => Ok(("release-name".to_owned(), chart)),
        },
        [name, chart] => {
            if args.generate_name {
                return Err("cannot set --generate-name and also specify a name".to_owned());
            }
            if args.name_template.is_some() {
                return Err("cannot set --name-template and also specify a name".to_owned());
            }
            Ok((name.clone(), chart))
        }
        [_, _, rest @ ..] => Err(format!("expected at most two arguments, unexpected arguments: {}", rest.join(", "))),
    }
}

fn generated_name(text: &str, clock: &Clock, seed: &Seed) -> Result<String, String> {
    let world = World::new(clock.clone(), seed, None, Budget::trusted(), false);
    let mut templates = Templates::default();
    templates.add(Source::new("name-template", text), &world)?;
    let out = Rc::new(templates).execute(&world, "name-template", Value::Nil)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn values(args: &TemplateArgs, folder: &Path) -> Result<Values, String> {
    let mut values = Values::default();
    let read =
        |path: &str| std::fs::read(folder.join(path)).map_err(|error| format!("open {path}: {}", load_message(&error)));
    for file in &args.values {
        values.merge_yaml(file, &read(file)?).map_err(|error| error.to_string())?;
    }
    for argument in &args.set_json {
        values.set_json(argument).map_err(|error| error.to_string())?;
    }
    for argument in &args.set {
        values.set(argument).map_err(|error| error.to_string())?;
    }
    for argument in &args.set_string {
        values.set_string(argument).map_err(|error| error.to_string())?;
    }
    for argument in &args.set_file {
        values.set_file(argument, &read).map_err(|error| error.to_string())?;
    }
    for argument in &args.set_literal {
        values.set_literal(argument).map_err(|error| error.to_string())?;
    }
    Ok(values)
}

fn print(args: &TemplateArgs, chart: &Chart, rendered: &Rendered) -> String {
    let mut text = String::new();
    let mut document = |path: &str, body: &str| text.push_str(&format!("---\n# Source: {path}\n{body}\n"));
    if args.include_crds {
        chart.crds().iter().for_each(|crd| document(&crd.path, &crd.text));
    }
    rendered.manifests.iter().for_each(|manifest| document(&manifest.path, &manifest.text));
    let mut out = format!("{}\n", text.trim());
    if !args.no_hooks {
        for hook in &rendered.hooks {
            if !(args.skip_tests && hook.events.contains(&crate::HookEvent::Test)) {
                out.push_str(&format!("---\n# Source: {}\n{}\n", hook.manifest.path, hook.manifest.text));
            }
        }
    }
    out
}

/// Returns the output of the requested templates, in the order of the request.
fn only(text: &str, wanted: &[String]) -> Result<String, String> {
    let documents: Vec<String> = crate::render::split(text.as_bytes())
        .into_iter()
        .map(|document| String::from_utf8_lossy(document).into_owned())
        .collect();
    let source = |document: &str| {
        let line = document.lines().find_map(|line| line.split_once("# Source: "))?.1;
        line.split_once('/').map(|(_, path)| path.to_owned())
    };
    let mut out = String::new();
    for pattern in wanted {
        let mut is_missing = true;
        for document in &documents {
            if source(document).is_some_and(|path| crate::glob::path_match(pattern, &path) == Some(true)) {
                out.push_str(&format!("---\n{document}\n"));
                is_missing = false;
            }
        }
        if is_missing {
            return Err(format!("could not find template {pattern} in chart"));
        }
    }
    Ok(out)
}
