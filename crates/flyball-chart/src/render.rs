//! Rendering of charts: coalesces and validates values, executes templates, and splits their output into manifests and
//! hooks.

mod brief;
pub(crate) mod coalesce;
mod dependencies;
mod headers;
mod manifests;
mod order;
mod outline;
mod override_value;
mod trace;

pub use headers::{Header, is_test_hook};
pub(crate) use manifests::split;
pub use outline::difference as outline_difference;
pub use override_value::override_value;

use crate::capabilities::Capabilities;
use crate::chart::{Chart, File, schema};
use crate::context::{Budget, FailedCalls, Lookup, RenderContext};
use crate::helm::HelmVersion;
use crate::memory;
use crate::message;
use crate::release::Release;
use crate::seed::Seed;
use crate::template::exec::Templates;
use crate::template::include::without_no_value;
use crate::template::node::Source;
use crate::text::{Text, lossy};
use crate::value::{Map, MapKind, Value};
use crate::values::Values;
use coalesce::{Nulls, coalesce};
use flyball_core::Clock;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// A rendered chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RenderedChart {
    /// Manifests, in installation order.
    pub manifests: Vec<Manifest>,
    /// Hooks, in Helm's order of kinds; not part of the installed manifests.
    pub hooks: Vec<Hook>,
    /// Rendered `templates/NOTES.txt`; empty if the chart has none.
    pub notes: String,
    /// Warnings, as logged by Helm.
    pub warnings: Vec<String>,
}

/// A document of a template's output.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The template: `chart/templates/x.yaml`.
    pub path: String,
    /// The text of the document.
    pub text: String,
    /// The parsed document; null if the document has only comments.
    pub object: serde_json::Value,
    /// The outline; `None` if the document contains no data and is its own outline.
    outline: Option<serde_json::Value>,
}

impl Manifest {
    /// Returns the document with [placeholders](crate::outline_difference) instead of untrusted data. Null if the
    /// structure of the document depends on the data.
    pub fn outline(&self) -> &serde_json::Value {
        self.outline.as_ref().unwrap_or(&self.object)
    }
}

/// A manifest that is applied at a point of the release's lifecycle. See <https://helm.sh/docs/topics/charts_hooks/>.
#[derive(Debug, Clone, PartialEq)]
pub struct Hook {
    /// The object.
    pub manifest: Manifest,
    /// The events that run it.
    pub events: Vec<HookEvent>,
    /// The weight: lower weights run first.
    pub weight: i32,
    /// The delete policies; the default is deletion before the next one is created.
    pub delete_policies: Vec<DeletePolicy>,
}

/// The event that runs a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are Helm's own words")]
pub enum HookEvent {
    PreInstall,
    PostInstall,
    PreDelete,
    PostDelete,
    PreUpgrade,
    PostUpgrade,
    PreRollback,
    PostRollback,
    Test,
}

/// The policy that deletes a hook's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Helm's own words")]
pub enum DeletePolicy {
    BeforeHookCreation,
    HookSucceeded,
    HookFailed,
}

/// An error of a rendering, with Helm's message.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The values for a subchart are not a mapping.
    #[error("{0}")]
    Values(String),
    /// The values violate the schema.
    #[error("values don't meet the specifications of the schema(s) in the following chart(s):\n{0}")]
    Schema(String),
    /// The chart does not support this version of Kubernetes.
    #[error("chart requires kubeVersion: {wanted} which is incompatible with Kubernetes {actual}")]
    KubeVersion {
        /// Constraint in `Chart.yaml`.
        wanted: String,
        /// Version of the cluster.
        actual: String,
    },
    /// A template cannot be parsed, calls `fail` or `required`, or exceeds the budget.
    #[error("{0}")]
    Template(String),
    /// A template fails.
    #[error("{shown}")]
    Execution {
        /// The message on one line, in the format of Helm 3.
        message: String,
        /// The message in the format of the version of Helm: with several lines for Helm 4.
        shown: String,
        /// The calls that led to the error.
        calls: Box<FailedCalls>,
    },
    /// The dependencies of the chart cannot be processed with the values.
    #[error("chart dependencies processing failed: {0}")]
    Dependencies(String),
    /// The output of a template is not valid YAML, or not an object.
    #[error("YAML parse error on {path}: {message}")]
    Manifest {
        /// The template.
        path: String,
        /// The problem.
        message: String,
        /// The output of all templates, if [requested](RenderOptions::keeps_invalid_output).
        output: String,
    },
}

impl RenderError {
    /// Returns the message, shortened to a limit with the cause first.
    pub fn brief(&self) -> String {
        match self {
            RenderError::Execution { message, calls, .. } => brief::brief(message, Some(calls)),
            other => brief::brief(&other.to_string(), None),
        }
    }

    /// Returns true if the templates, and not the values, caused the error.
    pub fn is_in_templates(&self) -> bool {
        !matches!(self, RenderError::Values(_) | RenderError::Dependencies(_) | RenderError::Schema(_))
    }
}

/// Inputs of a rendering in addition to values.
#[derive(Clone)]
pub struct RenderOptions<'c> {
    /// Clock of `now`.
    pub clock: Clock,
    /// Seed of `randAlpha` and similar functions.
    pub seed: Seed,
    /// The cluster for `lookup`; without one, `lookup` finds no objects.
    pub cluster: Option<&'c dyn Lookup>,
    /// Disables validation with `values.schema.json`.
    pub skip_schema_validation: bool,
    /// Appends the notes of subcharts to the notes.
    pub sub_notes: bool,
    /// Limits of the rendering.
    pub budget: Budget,
    /// Allows `tpl` to evaluate text of [untrusted values](Values::untrusted) and of the cluster. Authors of such text
    /// can then run templates.
    pub evaluates_data: bool,
    /// Adds the output of the templates to [`RenderError::Manifest`].
    pub keeps_invalid_output: bool,
}

impl Default for RenderOptions<'_> {
    fn default() -> Self {
        Self {
            clock: Clock::new(|| jiff::Timestamp::UNIX_EPOCH),
            seed: Seed::default(),
            cluster: None,
            skip_schema_validation: false,
            sub_notes: false,
            budget: Budget::trusted(),
            evaluates_data: false,
            keeps_invalid_output: false,
        }
    }
}

impl std::fmt::Debug for RenderOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RenderOptions")
            .field("skip_schema_validation", &self.skip_schema_validation)
            .finish_non_exhaustive()
    }
}

const NOTES: &str = "NOTES.txt";

/// Stack size for a rendering, independent of the caller's remaining stack: values may be nested a thousand levels
/// deep.
const STACK: usize = 32 << 20;

impl Chart {
    /// Renders the chart, like `helm template`.
    ///
    /// Without options, the clock is fixed and random values are always the same; see [`Chart::render_with`].
    ///
    /// # Errors
    ///
    /// Returns Helm's message if a template cannot be parsed or fails, values violate the schema, or output is not
    /// YAML.
    pub fn render(
        &self,
        values: &Values,
        release: &Release,
        capabilities: &Capabilities,
    ) -> Result<RenderedChart, RenderError> {
        self.render_with(values, release, capabilities, &RenderOptions::default())
    }

    /// Renders the chart with a clock, a seed and a cluster for `lookup`.
    ///
    /// # Errors
    ///
    /// See [`Chart::render`].
    pub fn render_with(
        &self,
        values: &Values,
        release: &Release,
        capabilities: &Capabilities,
        options: &RenderOptions<'_>,
    ) -> Result<RenderedChart, RenderError> {
        stacker::grow(STACK, || render(self, values, release, capabilities, options))
    }
}

fn render(
    chart: &Chart,
    values: &Values,
    release: &Release,
    capabilities: &Capabilities,
    options: &RenderOptions<'_>,
) -> Result<RenderedChart, RenderError> {
    let _bounds = (memory::Scope::new(options.budget.bytes), message::Scope::new(options.budget.message));
    let mut chart = chart.clone();
    let mut log = Vec::new();
    let helm = capabilities.helm();
    dependencies::process(&mut chart, values.as_map(), &mut log).map_err(|message| match helm {
        HelmVersion::V3 => RenderError::Values(message),
        HelmVersion::V4 => RenderError::Dependencies(message),
    })?;
    let all = coalesce(&chart, values.as_map(), Nulls::Delete, &mut log).map_err(RenderError::Values)?;
    if !options.skip_schema_validation {
        schema::validate(&chart, &all).map_err(RenderError::Schema)?;
    }
    let wanted = &chart.metadata.kube_version;
    if !wanted.is_empty() && !crate::semver::is_compatible(wanted, capabilities.kube_version()) {
        let actual = capabilities.git_version().to_owned();
        return Err(RenderError::KubeVersion { wanted: wanted.clone(), actual });
    }
    let scope = scope(&chart, all, values, Value::map(release_value(release)), capabilities);
    let (clock, budget) = (options.clock.clone(), options.budget.clone());
    let context = RenderContext::new(clock, &options.seed, options.cluster, budget, options.evaluates_data).of(helm);
    let files = scope.execute(&context)?;
    let mut rendered = manifests::collect(&files, &context, &mut log).map_err(|error| match error {
        RenderError::Manifest { path, message, .. } if options.keeps_invalid_output => {
            RenderError::Manifest { path, message, output: join(&files) }
        }
        error => error,
    })?;
    let own_notes = format!("{}/templates/{NOTES}", chart.name());
    let notes = files.iter().filter(|(path, _)| path.ends_with(NOTES) && (options.sub_notes || **path == own_notes));
    let notes: Vec<String> = notes.map(|(_, text)| lossy(text).into_owned()).collect();
    rendered.notes = notes.join("\n");
    rendered.warnings = log;
    Ok(rendered)
}

/// Joins the output of the templates.
fn join(files: &BTreeMap<String, Text>) -> String {
    let files = files.iter().filter(|(_, text)| !text.trim_ascii().is_empty());
    files.map(|(path, text)| format!("---\n# Source: {path}\n{}\n", lossy(text))).collect()
}

/// The result of rendering a chart for the linter.
#[derive(Default)]
pub(crate) struct LintOutput {
    /// Outputs of the templates; empty if there is an error, or if the values do not match the subcharts.
    pub(crate) files: Option<BTreeMap<String, Text>>,
    pub(crate) error: Option<RenderError>,
    pub(crate) log: Vec<String>,
    /// True if `required` or `fail` would have stopped an installation.
    pub(crate) is_incomplete: bool,
    /// Objects, including hooks.
    pub(crate) manifests: Vec<Manifest>,
    /// Outputs that are not objects, by path, with the reason.
    pub(crate) problems: Vec<(String, String)>,
}

/// Renders a chart like `helm lint`: ignores its constraint on the Kubernetes version, and disables `required` and
/// `fail`.
pub(crate) fn lint_templates(
    chart: &Chart,
    values: &Values,
    release: &Release,
    capabilities: &Capabilities,
    options: &RenderOptions<'_>,
) -> LintOutput {
    stacker::grow(STACK, || {
        let _bounds = (memory::Scope::new(options.budget.bytes), message::Scope::new(options.budget.message));
        let mut linted = LintOutput::default();
        let mut chart = chart.clone();
        let Some(all) = lint_values(&mut chart, values, &mut linted.log) else { return linted };
        if !options.skip_schema_validation
            && let Err(message) = schema::validate(&chart, &all)
        {
            linted.error = Some(RenderError::Schema(message));
            return linted;
        }
        let mut release = release_value(release);
        // There is no installation.
        release.insert("IsInstall".to_owned(), Value::Bool(false));
        let scope = scope(&chart, all, values, Value::map(release), capabilities);
        let (clock, budget) = (options.clock.clone(), options.budget.clone());
        let context = RenderContext::new(clock, &options.seed, None, budget, false).of(capabilities.helm()).linting();
        let executed = scope.execute(&context);
        let missing = context.take_missing();
        linted.is_incomplete = !missing.is_empty();
        linted.log.extend(missing);
        match executed {
            Ok(files) => linted.collect(files, &context),
            Err(error) => linted.error = Some(error),
        }
        linted
    })
}

/// Selects subcharts and merges the values over those of the chart, twice, like Helm. `None` if they do not match.
fn lint_values(
    chart: &mut Chart,
    values: &Values,
    log: &mut Vec<String>,
) -> Option<serde_json::Map<String, serde_json::Value>> {
    dependencies::process(chart, values.as_map(), log).ok()?;
    let all = coalesce(chart, values.as_map(), Nulls::Delete, log).ok()?;
    coalesce(chart, &all, Nulls::Delete, log).ok()
}

impl LintOutput {
    fn collect(&mut self, files: BTreeMap<String, Text>, context: &RenderContext<'_>) {
        for (path, text) in &files {
            let one = BTreeMap::from([(path.clone(), text.clone())]);
            match manifests::collect(&one, context, &mut Vec::new()) {
                Ok(rendered) => {
                    self.manifests.extend(rendered.manifests);
                    self.manifests.extend(rendered.hooks.into_iter().map(|hook| hook.manifest));
                }
                Err(RenderError::Manifest { path, message, .. }) => self.problems.push((path, message)),
                Err(other) => self.problems.push((path.clone(), other.to_string())),
            }
        }
        self.files = Some(files);
    }
}

/// Returns the templates with their contexts.
fn scope(
    chart: &Chart,
    all: serde_json::Map<String, serde_json::Value>,
    values: &Values,
    mut release: Value,
    capabilities: &Capabilities,
) -> Scope {
    let mut scope = Scope { helm: capabilities.helm(), templates: BTreeMap::new() };
    let all = serde_json::Value::Object(all);
    let all = match values.trusted() {
        None => Value::from(&all),
        Some(trusted) => {
            release = release.to_data();
            // If these cannot be merged over the chart's values, no value is trusted.
            let trusted = coalesce(chart, trusted, Nulls::Delete, &mut Vec::new()).unwrap_or_default();
            Value::untrusted(&all, Some(&serde_json::Value::Object(trusted)))
        }
    };
    let Value::Map(all) = all else { unreachable!("a JSON object becomes a map") };
    scope.chart(chart, chart.name(), true, &all, &release, &capabilities.to_value());
    scope
}

fn release_value(release: &Release) -> BTreeMap<String, Value> {
    let entries = [
        ("Name", Value::str(&release.name)),
        ("Namespace", Value::str(&release.namespace)),
        ("IsUpgrade", Value::Bool(release.is_upgrade)),
        ("IsInstall", Value::Bool(!release.is_upgrade)),
        ("Revision", Value::int(release.revision.into())),
        ("Service", Value::str("Helm")),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A template with its context.
struct Template {
    text: String,
    data: Map,
    base_path: String,
}

/// The templates of a chart and its subcharts, each with its own values.
struct Scope {
    helm: HelmVersion,
    templates: BTreeMap<String, Template>,
}

impl Scope {
    /// Adds a chart's templates; returns its part of the parent's context.
    fn chart(
        &mut self,
        chart: &Chart,
        path: &str,
        is_root: bool,
        values: &Map,
        release: &Value,
        capabilities: &Value,
    ) -> Value {
        let bytes = |file: &File| (file.path.clone(), Value::Bytes(Arc::clone(&file.data)));
        let files = chart.files.iter().map(bytes).collect();
        let values = Map { kind: MapKind::Values(self.helm), entries: Rc::clone(&values.entries) };
        let mut children = BTreeMap::new();
        for child in &chart.dependencies {
            // A subchart's values are the parent's map at its name, not a copy: changes are visible to the parent.
            let inner = match values.get(child.name()) {
                Some(Value::Map(inner)) => inner,
                _ => Map::empty(MapKind::Values(self.helm)),
            };
            let path = format!("{path}/charts/{}", child.name());
            children.insert(child.name().to_owned(), self.chart(child, &path, false, &inner, release, capabilities));
        }
        let entries = [
            ("Chart", chart.metadata.to_value(is_root, self.helm)),
            ("Files", Value::Map(Map::new(MapKind::Files, files))),
            ("Release", release.clone()),
            ("Capabilities", capabilities.clone()),
            ("Values", Value::Map(values)),
            ("Subcharts", Value::map(children)),
        ];
        let entries = entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let data = Map::new(MapKind::Any, entries);
        let is_library = chart.metadata.chart_type == "library";
        for file in &chart.templates {
            let name = file.path.rsplit('/').next().unwrap_or(&file.path);
            if is_library && !name.starts_with('_') {
                continue;
            }
            let template = Template {
                text: lossy(&file.data).into_owned(),
                data: Map { kind: MapKind::Values(self.helm), ..data.clone() },
                base_path: format!("{path}/templates"),
            };
            self.templates.insert(format!("{path}/{}", file.path), template);
        }
        Value::Map(data)
    }

    /// Executes all templates except partials.
    fn execute(self, context: &RenderContext<'_>) -> Result<BTreeMap<String, Text>, RenderError> {
        // Nested charts are parsed first, so that definitions of the parent replace those of its subcharts.
        let mut order: Vec<(String, Template)> = self.templates.into_iter().collect();
        order.sort_by(|(one, _), (other, _)| {
            let key = |path: &str| path.matches('/').count();
            (key(other), other).cmp(&(key(one), one))
        });
        let mut templates = Templates::default();
        for (path, template) in &mut order {
            templates
                .add(Source::new(path, std::mem::take(&mut template.text)), context)
                .map_err(|message| RenderError::Template(parse_error(&message)))?;
        }
        let templates = Rc::new(templates);
        let mut rendered = BTreeMap::new();
        for (path, template) in order {
            let name = path.rsplit('/').next().unwrap_or(&path);
            if name.starts_with('_') {
                continue;
            }
            let about = [("Name", Value::str(&path)), ("BasePath", Value::str(&template.base_path))];
            let about = about.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            template.data.set("Template", Value::Map(Map::new(MapKind::Values(self.helm), about)));
            let out = templates
                .execute(context, &path, Value::Map(template.data))
                .map_err(|message| execution_error(message, context.take_failed_calls(), self.helm))?;
            rendered.insert(path, without_no_value(out));
        }
        Ok(rendered)
    }
}

/// Returns the location of a parse error and the last of its causes, as Helm reports them.
fn parse_error(message: &str) -> String {
    let parts: Vec<&str> = message.split(": ").collect();
    match parts.as_slice() {
        [_, location, .., last] => format!("parse error at ({location}): {last}"),
        _ => message.to_owned(),
    }
}

/// Messages of `fail` and `required` are shown without their call stack. As in Helm, marks in the text delimit them.
fn execution_error(message: String, calls: FailedCalls, helm: HelmVersion) -> RenderError {
    let (start, end) = crate::functions::FAILURE;
    let mut parts = message.splitn(3, ": ");
    if let (Some(_), Some(location), Some(rest)) = (parts.next(), parts.next(), parts.next())
        && let Some(from) = rest.find(start)
        && let Some(to) = rest.rfind(end)
    {
        let reason = &rest[from + start.len()..to];
        return RenderError::Template(format!("execution error at ({location}): {reason}"));
    }
    let shown = match helm {
        HelmVersion::V3 => message.clone(),
        HelmVersion::V4 => trace::trace(&message),
    };
    RenderError::Execution { message, shown, calls: Box::new(calls) }
}
