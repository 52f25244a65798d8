//! The commands `helm template` and `helm lint` as functions: arguments in, text out.

mod cluster;
mod flags;
mod idle;
mod lint;
mod values;

pub use cluster::{Cluster, ClusterFlags};
pub use flags::{AccessArgs, ChartPathArgs, parse as parse_flags};
pub use lint::{LintArgs, LintReport, LintedChart, lint};
pub use values::ValueArgs;

use crate::chart::load_message;
use crate::context::{Budget, RenderContext};
use crate::quote::quote;
use crate::template::exec::Templates;
use crate::template::node::Source;
use crate::value::Value;
use crate::{Capabilities, Chart, HelmVersion, Lookup, Release, RenderError, RenderOptions, RenderedChart, Seed};
use cluster::DryRunFlags;
use flyball_core::Clock;
use idle::{IdleFlags, warning};
use std::path::Path;
use std::rc::Rc;
use values::values;

/// The arguments of `helm template`. See <https://helm.sh/docs/helm/helm_template/>.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TemplateArgs {
    /// Release name and chart, or only the chart
    #[arg(value_name = "[NAME] CHART")]
    pub args: Vec<String>,
    /// Flags of values.
    #[command(flatten)]
    pub values: ValueArgs,
    /// Namespace of the release; defaults to HELM_NAMESPACE, and to that of the context of the kubeconfig
    #[arg(short, long)]
    pub namespace: Option<String>,
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
    /// Write the output to files in this directory
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<String>,
    /// Write the files to a subdirectory with the release's name
    #[arg(long)]
    pub release_name: bool,
    /// Render as Helm 3 or as Helm 4 does
    #[arg(long, value_name = "VERSION", default_value = "3")]
    pub helm_version: HelmVersion,
    /// Print output that is not YAML as well
    #[arg(long)]
    pub debug: bool,
    /// Download missing subcharts before the chart is rendered
    #[arg(long)]
    pub dependency_update: bool,
    #[arg(long, hide = true)]
    enable_dns: bool,
    #[arg(long, hide = true)]
    post_renderer: Option<String>,
    #[arg(long, hide = true, allow_hyphen_values = true)]
    post_renderer_args: Vec<String>,
    /// Flags that select the source of the chart.
    #[command(flatten)]
    pub path: ChartPathArgs,
    /// Flags that select the cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    dry_run: DryRunFlags,
    #[command(flatten)]
    idle: IdleFlags,
}

impl TemplateArgs {
    /// Parses the arguments after `helm template`.
    ///
    /// # Errors
    ///
    /// Fails if a flag is unknown or lacks its value; or with the help text, if requested.
    pub fn parse(arguments: &[String]) -> Result<TemplateArgs, String> {
        flags::parse(arguments)
    }

    /// Rejects flags that are not supported.
    fn check_supported(&self) -> Result<(), String> {
        let [flag, reason] = if self.post_renderer.is_some() || !self.post_renderer_args.is_empty() {
            ["--post-renderer", "other programs are not run; pipe the output into the program"]
        } else if self.enable_dns {
            ["--enable-dns", "the network is not used; getHostByName returns an empty string"]
        } else {
            return Ok(());
        };
        Err(format!("{flag} is not supported: {reason}"))
    }
}

/// Output of `helm template`: text, log and files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// Text for standard output.
    pub text: String,
    /// Warnings for standard error.
    pub warnings: Vec<String>,
    /// The files for `--output-dir`, by path, in the order of writing.
    pub files: Vec<(String, String)>,
    /// The error, if the text is output that is not YAML.
    pub error: Option<String>,
}

impl Output {
    /// Writes the files; paths are relative to a directory.
    ///
    /// # Errors
    ///
    /// Returns the message of the operating system, with the path.
    pub fn write_files(&self, folder: &Path) -> Result<(), String> {
        for (path, text) in &self.files {
            let file = folder.join(path);
            let created = file.parent().map_or(Ok(()), std::fs::create_dir_all);
            created
                .and_then(|()| std::fs::write(&file, text))
                .map_err(|error| format!("open {path}: {}", load_message(&error)))?;
        }
        Ok(())
    }
}

const DEFAULT_NAMESPACE: &str = "default";
const CRDS_WARNING: &str =
    "This chart or one of its subcharts contains CRDs. Rendering may fail or contain inaccuracies.";

/// Helm's hint for errors in templates.
const ADVICE: &str = "\n\nUse --debug flag to render out invalid YAML";

/// Runs `helm template`; paths are relative to a directory. Flags that need a cluster fail without one.
///
/// # Errors
///
/// Returns Helm's message, without the prefix `Error: `.
pub fn template(
    args: &TemplateArgs,
    folder: &Path,
    clock: Clock,
    seed: Seed,
    cluster: Option<&dyn Cluster>,
) -> Result<Output, String> {
    let helm = args.helm_version;
    args.cluster.check(helm)?;
    let mut warnings = args.idle.check(helm)?;
    let used = args.dry_run.cluster_use(helm)?;
    warnings.extend(used.warnings);
    let mut capabilities = Capabilities::of(helm);
    if let Some(version) = &args.kube_version {
        capabilities
            .set_kube_version(version)
            .map_err(|message| format!("invalid kube version '{version}': {message}"))?;
    }
    args.check_supported()?;
    capabilities.add_api_versions(args.api_versions.iter().cloned());
    let (name, chart) = name_and_chart(args, &clock, &seed)?;
    let path = folder.join(chart.trim());
    if !path.exists() || (args.path.repo.is_some() && helm == HelmVersion::V4) {
        return Err(missing(chart.trim(), args.path.repo.as_deref()));
    }
    if args.path.access.verify {
        return Err(match path.is_dir() {
            true => "unpacked charts cannot be verified".to_owned(),
            false => "--verify is not supported: signature verification is not supported".to_owned(),
        });
    }
    let values = values(&args.values, helm, folder)?;
    let chart = Chart::open_as(&path, helm).map_err(|error| error.to_string())?;
    warnings.extend(chart.warnings().iter().cloned());
    if chart.metadata().chart_type == "library" {
        return Err("library charts are not installable".to_owned());
    }
    if chart.metadata().deprecated {
        warnings.push(helm.choose("WARNING: This chart is deprecated".to_owned(), warning("this chart is deprecated")));
    }
    chart.check_dependencies_as(helm)?;
    let connected = || cluster.ok_or("a cluster is needed for --validate and --dry-run=server");
    let validating = if used.validates { Some(connected()?) } else { None };
    let looked_up: Option<&dyn Lookup> = if used.looks_up { Some(connected()?) } else { None };
    if let Some(cluster) = validating {
        let prefix = helm.choose("Kubernetes", "cluster reachability check failed: kubernetes");
        let found = cluster.capabilities(helm);
        capabilities = found.map_err(|error| format!("{prefix} cluster unreachable: {error}"))?;
        if helm == HelmVersion::V4 && !args.idle.skip_crds && !chart.crds().is_empty() {
            warnings.push(warning(CRDS_WARNING));
        }
    }
    let namespace = args.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let release = Release { name, namespace, revision: 1, is_upgrade: args.is_upgrade };
    release.check_name().map_err(|message| format!("{}{message}", helm.choose("", "release name check failed: ")))?;
    let options = RenderOptions {
        clock,
        seed,
        cluster: looked_up,
        skip_schema_validation: args.skip_schema_validation,
        sub_notes: args.render_subchart_notes,
        keeps_invalid_output: args.debug,
        ..RenderOptions::default()
    };
    let rendered = match chart.render_with(&values, &release, &capabilities, &options) {
        Err(error) if error.is_in_templates() && args.debug => {
            let output = if let RenderError::Manifest { output, .. } = &error { output.trim() } else { "" };
            let text = format!("{output}\n");
            return Ok(Output { text, warnings, files: Vec::new(), error: Some(error.to_string()) });
        }
        Err(error) if error.is_in_templates() => return Err(format!("{error}{ADVICE}")),
        rendered => rendered.map_err(|error| error.to_string())?,
    };
    warnings.extend(rendered.warnings.iter().cloned());
    if let Some(cluster) = validating {
        cluster::validate(cluster, args, &chart, &rendered, &release)?;
    }
    let (mut text, files) = match &args.output_dir {
        None => (print(args, &chart, &rendered), Vec::new()),
        Some(folder) => print_files(args, folder, &release.name, &chart, &rendered),
    };
    if !args.show_only.is_empty() {
        text = only(&text, &args.show_only)?;
    }
    Ok(Output { text, warnings, files, error: None })
}

fn missing(chart: &str, repository: Option<&str>) -> String {
    let scheme = chart.split_once("://").map(|(scheme, _)| scheme);
    if repository.is_some() || matches!(scheme, Some("http" | "https" | "oci")) {
        return format!("charts are not fetched: download {chart} first, and pass the directory or the archive");
    }
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
    let context = RenderContext::new(clock.clone(), seed, None, Budget::trusted(), false);
    let mut templates = Templates::default();
    templates.add(Source::new("name-template", text), &context)?;
    let out = Rc::new(templates).execute(&context, "name-template", Value::Nil)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn print(args: &TemplateArgs, chart: &Chart, rendered: &RenderedChart) -> String {
    // CRDs can have megabytes, and a growing buffer would need a second copy.
    let mut size = rendered.manifests.iter().map(document_size).sum();
    size += printed_hooks(args, rendered).map(|hook| document_size(&hook.manifest)).sum::<usize>();
    if args.include_crds {
        chart.visit_crds(&mut |path, body| size += path.len() + body.len() + DOCUMENT_SIZE);
    }
    let mut text = String::with_capacity(size);
    if args.include_crds {
        chart.visit_crds(&mut |path, body| document(&mut text, path, body));
    }
    rendered.manifests.iter().for_each(|manifest| document(&mut text, &manifest.path, &manifest.text));
    // Each document begins with a separator, so only the end can contain white space.
    text.truncate(text.trim_end().len());
    text.push('\n');
    for hook in printed_hooks(args, rendered) {
        document(&mut text, &hook.manifest.path, &hook.manifest.text);
    }
    text
}

/// Bytes of a document in addition to its path and its text.
const DOCUMENT_SIZE: usize = 16;

fn document_size(manifest: &crate::Manifest) -> usize {
    manifest.path.len() + manifest.text.len() + DOCUMENT_SIZE
}

fn document(into: &mut String, path: &str, body: &str) {
    for part in ["---\n# Source: ", path, "\n", body, "\n"] {
        into.push_str(part);
    }
}

/// Returns the output of Helm with `--output-dir`, and the files.
fn print_files(
    args: &TemplateArgs,
    folder: &str,
    release: &str,
    chart: &Chart,
    rendered: &RenderedChart,
) -> (String, Vec<(String, String)>) {
    let mut text = String::new();
    let mut files: Vec<(String, String)> = Vec::new();
    let mut write = |folder: &str, path: &str, body: &str| {
        let file = format!("{folder}/{path}");
        text.push_str(&format!("wrote {file}\n"));
        match files.iter_mut().find(|(other, _)| *other == file) {
            Some((_, written)) => document(written, path, body),
            None => {
                let mut written = String::new();
                document(&mut written, path, body);
                files.push((file, written));
            }
        }
    };
    if args.include_crds {
        chart.visit_crds(&mut |path, body| write(folder, path, body));
    }
    let inner = if args.release_name { format!("{folder}/{release}") } else { folder.to_owned() };
    rendered.manifests.iter().for_each(|manifest| write(&inner, &manifest.path, &manifest.text));
    printed_hooks(args, rendered).for_each(|hook| write(&inner, &hook.manifest.path, &hook.manifest.text));
    text.push('\n');
    (text, files)
}

fn printed_hooks<'r>(args: &TemplateArgs, rendered: &'r RenderedChart) -> impl Iterator<Item = &'r crate::Hook> {
    let (none, no_tests) = (args.no_hooks, args.skip_tests);
    let is_test = |hook: &crate::Hook| hook.events.contains(&crate::HookEvent::Test);
    rendered.hooks.iter().filter(move |hook| !(none || no_tests && is_test(hook)))
}

/// Returns the output of the requested templates, in the order of the request.
fn only(text: &str, patterns: &[String]) -> Result<String, String> {
    let documents: Vec<String> = crate::render::split(text.as_bytes())
        .into_iter()
        .map(|document| String::from_utf8_lossy(document).into_owned())
        .collect();
    let source = |document: &str| {
        let line = document.lines().find_map(|line| line.split_once("# Source: "))?.1;
        line.split_once('/').map(|(_, path)| path.to_owned())
    };
    let mut out = String::new();
    for pattern in patterns {
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
