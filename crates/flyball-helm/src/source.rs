//! The chart of an entry: what it renders for a custom resource, and which kinds it may render.

use crate::digest::sha256;
use crate::discovery;
use crate::error::OperatorError;
use crate::extensions::Extensions;
use crate::kinds::Kinds;
use crate::lookup::{LookupResults, Lookups, MAX_RENDERINGS, Visibility};
use crate::record;
use crate::rendering::Slots;
use crate::resources::Resource;
use crate::storage;
use crate::watches::Watch;
use crate::yaml;
use flyball::{Clock, Context, Error, Result};
use flyball_chart::{
    Budget, Capabilities, Chart, DeletePolicy, Header, HelmVersion, Hook, HookEvent, Release, RenderError,
    RenderOptions, RenderedChart, Seed, Values,
};
use flyball_core::time::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Reconcile period of a release whose chart uses `lookup`, unless `watches.yaml` sets one; as in the operator-sdk.
const PERIOD: Duration = Duration::from_secs(60);
/// Name and namespace of the release when a chart is rendered at startup.
const DEFAULT_RELEASE: (&str, &str) = ("release-name", "default");

/// A release to render.
#[derive(Debug)]
pub(crate) struct RenderRequest {
    pub(crate) values: Values,
    pub(crate) release: Release,
    pub(crate) seed: Seed,
    pub(crate) at: Timestamp,
    /// `tpl` evaluates text of the custom resource.
    pub(crate) evaluates: bool,
    /// The objects that `lookup` finds.
    pub(crate) visibility: Visibility,
}

/// The same with owned data.
struct Job {
    chart: Arc<Chart>,
    request: RenderRequest,
    capabilities: Capabilities,
    lookup_results: LookupResults,
}

impl Job {
    fn render(&self, budget: Budget) -> Result<RenderedChart, RenderError> {
        let RenderRequest { values, release, seed, at, evaluates, .. } = &self.request;
        let (at, seed) = (*at, seed.clone());
        let options = RenderOptions {
            clock: Clock::new(move || at),
            seed,
            cluster: Some(&self.lookup_results),
            budget,
            evaluates_data: *evaluates,
            ..RenderOptions::default()
        };
        self.chart.render_with(values, release, &self.capabilities, &options)
    }
}

/// A chart and the settings of its releases.
#[derive(Debug)]
pub(crate) struct Source {
    chart: Arc<Chart>,
    helm: HelmVersion,
    digest: String,
    definitions: Vec<CustomResourceDefinition>,
    /// The same before decoding.
    crds: Vec<Resource>,
    templates: Vec<String>,
    /// A template calls `lookup`.
    looks_up: bool,
    /// A template uses `.Capabilities`.
    uses_capabilities: bool,
}

impl Source {
    /// Loads the chart of an entry.
    pub(crate) fn open(watch: &Watch) -> Result<Self, OperatorError> {
        let failed =
            |source| OperatorError::Chart { chart: watch.chart.clone(), kind: watch.kind.kind.to_string(), source };
        let chart = Chart::open_as(&watch.chart, watch.helm_version).map_err(failed)?;
        let (mut definitions, mut crds) = (Vec::new(), Vec::new());
        for file in chart.crds() {
            let wrong =
                |problem: String| crate::error::DefinitionError::Yaml { file: file.path.clone().into(), problem };
            let documents = yaml::documents(&file.text).map_err(wrong)?;
            for document in documents.into_iter().filter(|document| document["kind"] == "CustomResourceDefinition") {
                crds.extend(Resource::of(&file.path, &document).map_err(|error| wrong(error.to_string()))?);
                definitions.push(serde_json::from_value(document).map_err(|error| wrong(error.to_string()))?);
            }
        }
        let digest = digest_of(&chart);
        let mut templates = Vec::new();
        add_templates(&chart, &mut templates);
        let contains = |name: &str| templates.iter().any(|text| text.contains(name));
        let (looks_up, uses_capabilities) = (contains("lookup"), contains(".Capabilities"));
        let (chart, helm) = (Arc::new(chart), watch.helm_version);
        Ok(Self { chart, helm, digest, definitions, crds, templates, looks_up, uses_capabilities })
    }

    /// Returns the digest of the chart.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the CRDs in the chart's directory `crds`.
    pub(crate) fn definitions(&self) -> &[CustomResourceDefinition] {
        &self.definitions
    }

    /// Returns the CRDs in the chart's directory `crds`, not decoded.
    pub(crate) fn crds(&self) -> &[Resource] {
        &self.crds
    }

    /// Returns the version of Helm that the chart is rendered with.
    pub(crate) fn helm(&self) -> HelmVersion {
        self.helm
    }

    pub(crate) fn chart_name(&self) -> &str {
        self.chart.name()
    }

    /// Returns the reconcile period of releases.
    pub(crate) fn period(&self) -> Option<Duration> {
        self.looks_up.then_some(PERIOD)
    }

    /// Returns true if the chart calls `lookup`.
    pub(crate) fn looks_up(&self) -> bool {
        self.looks_up
    }

    /// Returns the record of the chart in a revision.
    pub(crate) fn stored(&self) -> Value {
        record::of(&self.chart)
    }

    /// Returns the digest of all inputs of a revision, except answers of `lookup`.
    pub(crate) fn inputs(&self, values: &Values, watch: &Watch) -> String {
        let values = Value::Object(values.as_map().clone()).to_string();
        let mut texts = vec![self.digest.as_bytes(), values.as_bytes()];
        if watch.evaluate_templates {
            texts.push(b"evaluateTemplates");
        }
        if watch.structure_from_values {
            texts.push(b"structureFromValues");
        }
        if self.helm == HelmVersion::V4 {
            texts.push(b"helmVersion 4");
        }
        sha256(&texts)
    }

    /// Renders a release with this seed for random values and this time, and returns the lookups of its templates.
    /// Returns `None` if all slots are occupied.
    pub(crate) async fn render(
        &self,
        cx: &Context<DynamicObject>,
        kinds: &Arc<Kinds>,
        slots: &Slots,
        request: RenderRequest,
    ) -> Result<Option<(RenderedChart, Lookups)>> {
        let capabilities = match self.uses_capabilities {
            true => discovery::capabilities(cx, self.helm).await?,
            false => Capabilities::of(self.helm),
        };
        let Release { name, namespace, .. } = &request.release;
        tracing::debug!(release = name, namespace, "rendering the chart");
        let lookup_results = LookupResults::new(Arc::clone(kinds), namespace, name, request.visibility);
        let mut job = Job { chart: Arc::clone(&self.chart), request, capabilities, lookup_results };
        for _ in 0..MAX_RENDERINGS {
            let (back, rendered) = slots.run(job, Job::render).await?;
            job = back;
            let Some(rendered) = rendered else { return Ok(None) };
            // A missing answer may be the cause of a template error.
            if !job.lookup_results.fetch(cx).await? {
                // The inputs of the template do not change, so a retry cannot succeed.
                let rendered = rendered.map_err(|error| Error::from(error.brief()).terminal())?;
                return Ok(Some((rendered, job.lookup_results.lookups())));
            }
        }
        Err(Error::from(format!("the chart still makes new lookups after {MAX_RENDERINGS} renderings")).terminal())
    }

    /// Determines the kinds that releases of the chart may consist of.
    pub(crate) fn kinds(
        &self,
        watch: &Watch,
        extensions: &Extensions,
        definitions: &[CustomResourceDefinition],
        samples: &[Value],
    ) -> Kinds {
        let mut kinds = Kinds::defined_by(definitions);
        for text in &self.templates {
            kinds.add_literal(text);
            kinds.add_lookups(text);
        }
        kinds.add_headers(&self.headers(watch));
        if !self.crds.is_empty() {
            kinds.add_crds();
        }
        let of_kind = |sample: &&Value| {
            sample["kind"] == *watch.kind.kind && sample["apiVersion"] == *watch.kind.api_version().to_string()
        };
        let no_sample = Value::Null;
        for sample in samples.iter().filter(of_kind).chain([&no_sample]) {
            let spec = sample["spec"].as_object().cloned().unwrap_or_default();
            let mapped = serde_json::from_value(sample.clone()).map(|object| extensions.values(&object, spec.clone()));
            let values = mapped.ok().and_then(Result::ok).unwrap_or(spec);
            let text = |field: &str| sample["metadata"][field].as_str();
            let (name, namespace) =
                (text("name").unwrap_or(DEFAULT_RELEASE.0), text("namespace").unwrap_or(DEFAULT_RELEASE.1));
            self.add_kinds_of(watch, values, name, namespace, &mut kinds);
        }
        kinds
    }

    /// Returns the versions and kinds that templates compute, with the values of the entry.
    fn headers(&self, watch: &Watch) -> Vec<Header> {
        let mut values = Values::default();
        // An error is logged with the kinds of the default values.
        let _ = watch.override_in(&mut values);
        let (name, namespace) = DEFAULT_RELEASE;
        let release = Release { name: name.into(), namespace: namespace.into(), revision: 1, is_upgrade: false };
        self.chart.headers(&values, &release, &Capabilities::of(self.helm))
    }

    /// Adds the kinds of a release with these values.
    fn add_kinds_of(&self, watch: &Watch, values: Map<String, Value>, name: &str, namespace: &str, kinds: &mut Kinds) {
        let mut values = Values::from(values);
        if let Err((path, error)) = watch.override_in(&mut values) {
            tracing::warn!(kind = %watch.kind, %error, "cannot set overrideValues.{path}");
        }
        let release = Release { name: name.into(), namespace: namespace.into(), revision: 1, is_upgrade: false };
        let rendered = match self.chart.render(&values, &release, &Capabilities::of(self.helm)) {
            Ok(rendered) => rendered,
            // A chart may require values without defaults.
            Err(error) => {
                return tracing::debug!(kind = %watch.kind, name, %error, "cannot render the chart at startup");
            }
        };
        // The operator needs no permissions for tests, which it does not run.
        let hooks = rendered.hooks.iter().filter(|hook| hook.events.iter().any(|event| *event != HookEvent::Test));
        let hooks = hooks.map(|hook| &hook.manifest);
        let objects = rendered.manifests.iter().chain(hooks).filter(|manifest| !manifest.object.is_null());
        let found: Vec<Resource> =
            objects.filter_map(|manifest| Resource::of(&manifest.path, &manifest.object).ok()).flatten().collect();
        kinds.add_rendered(&found, namespace);
    }
}

/// Adds the texts of the templates of a chart and of its subcharts.
fn add_templates(chart: &Chart, found: &mut Vec<String>) {
    found.extend(chart.templates().iter().map(|file| String::from_utf8_lossy(&file.data).into_owned()));
    chart.dependencies().iter().for_each(|subchart| add_templates(subchart, found));
}

/// Hashes the content of a chart, with its subcharts.
fn digest_of(chart: &Chart) -> String {
    let own = record::of(chart).to_string();
    let subcharts: Vec<String> = chart.dependencies().iter().map(digest_of).collect();
    let texts: Vec<&[u8]> = [&own].into_iter().chain(&subcharts).map(|text| text.as_bytes()).collect();
    sha256(&texts)
}

/// Returns the record of hooks in a revision, in the form of a version of Helm.
pub(crate) fn stored_hooks(hooks: &[Hook], helm: HelmVersion) -> Vec<storage::Hook> {
    let before_run = (helm == HelmVersion::V3).then(String::new);
    let stored = |hook: &Hook| storage::Hook {
        name: hook.manifest.object["metadata"]["name"].as_str().unwrap_or_default().into(),
        kind: hook.manifest.object["kind"].as_str().unwrap_or_default().into(),
        path: hook.manifest.path.clone(),
        manifest: hook.manifest.text.clone(),
        events: hook.events.iter().map(|event| event_word(*event).to_owned()).collect(),
        last_run: storage::HookExecution {
            started_at: before_run.clone(),
            completed_at: before_run.clone(),
            phase: String::new(),
        },
        weight: hook.weight,
        delete_policies: hook.delete_policies.iter().map(|policy| policy_word(*policy).to_owned()).collect(),
        other: match helm {
            HelmVersion::V3 => Map::new(),
            HelmVersion::V4 => output_log_policies(&hook.manifest.object),
        },
    };
    hooks.iter().map(stored).collect()
}

/// Returns Helm 4's record of the policies that select the hooks whose logs `helm` prints.
fn output_log_policies(object: &Value) -> Map<String, Value> {
    let text = object["metadata"]["annotations"]["helm.sh/hook-output-log-policy"].as_str().unwrap_or_default();
    let words = text.split(',').map(|word| word.trim().to_lowercase());
    let policies: Vec<Value> = words.filter(|word| !word.is_empty()).map(Value::from).collect();
    let field = (!policies.is_empty()).then(|| ("output_log_policies".to_owned(), policies.into()));
    field.into_iter().collect()
}

fn event_word(event: HookEvent) -> &'static str {
    match event {
        HookEvent::PreInstall => "pre-install",
        HookEvent::PostInstall => "post-install",
        HookEvent::PreDelete => "pre-delete",
        HookEvent::PostDelete => "post-delete",
        HookEvent::PreUpgrade => "pre-upgrade",
        HookEvent::PostUpgrade => "post-upgrade",
        HookEvent::PreRollback => "pre-rollback",
        HookEvent::PostRollback => "post-rollback",
        HookEvent::Test => "test",
    }
}

fn policy_word(policy: DeletePolicy) -> &'static str {
    match policy {
        DeletePolicy::BeforeHookCreation => "before-hook-creation",
        DeletePolicy::HookSucceeded => "hook-succeeded",
        DeletePolicy::HookFailed => "hook-failed",
    }
}
