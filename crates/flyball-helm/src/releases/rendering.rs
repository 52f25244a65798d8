//! Rendering of the desired revision, and verification that a stored revision is what the chart renders.
//!
//! Takes the inputs of a reconcile, and writes nothing. Clients with access to Secrets can change revisions, so a
//! revision is used only if the chart renders the same.

use super::rollback::restored_revision;
use super::{Plan, Request};
use crate::lookup::{Lookups, Visibility};
use crate::resources::{self, Owner};
use crate::source::RenderRequest;
use crate::storage::{Info, Revision, State};
use crate::verified::is_same;
use flyball::{Context, Error, Result};
use flyball_chart::{HelmVersion, Release, Seed, Values};
use flyball_core::time::{Timestamp, rfc3339};
use kube::core::DynamicObject;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The inputs of a rendering besides chart and values.
pub(super) struct Rendering {
    pub(super) version: u32,
    pub(super) seed: Seed,
    pub(super) at: Timestamp,
    pub(super) visibility: Visibility,
}

impl Plan<'_> {
    /// Returns true if the revision in a Secret equals what the chart renders from the same inputs; `None` if all
    /// slots are occupied.
    ///
    /// Revisions that this process rendered are not rendered again.
    pub(super) async fn is_rendered_by_chart(
        &self,
        cx: &Context<DynamicObject>,
        request: &Request<'_>,
        version: u32,
        revision: &Revision,
        seed: &Seed,
    ) -> Result<Option<bool>> {
        let Owner { release, namespace, .. } = request.owner;
        if self.verified.has(namespace, release, revision) {
            return Ok(Some(true));
        }
        // A rollback installed what the chart rendered for an earlier revision.
        let version = if revision.info.rollback_revision > 0 { restored_revision(revision) } else { version };
        let is_rendered_by_chart =
            self.renders(cx, request, version, revision, seed, |rendered| is_same(revision, rendered));
        let Some((is_rendered_by_chart, lookups)) = is_rendered_by_chart.await? else { return Ok(None) };
        if is_rendered_by_chart {
            self.verified.add(namespace, release, revision, lookups);
        }
        Ok(Some(is_rendered_by_chart))
    }

    /// Renders what the revision in a Secret should contain; `None` if all slots are occupied.
    pub(super) async fn render_again(
        &self,
        cx: &Context<DynamicObject>,
        request: &Request<'_>,
        version: u32,
        revision: &Revision,
        seed: &Seed,
        visibility: Visibility,
    ) -> Result<Option<(Revision, Lookups)>> {
        // The passing of time alone does not make a new revision.
        let at = revision.info.last_deployed.parse().unwrap_or_else(|_| cx.now());
        self.candidate(cx, request, Some(revision), Rendering { version, seed: seed.clone(), at, visibility }).await
    }

    /// Returns true if the chart, with the current results of `lookup`, renders a revision that passes a check, and
    /// returns the lookups; `None` if all slots are occupied.
    ///
    /// A chart may omit an object because `lookup` finds it. That alone is no reason to delete it, which would be a
    /// reason to create it again.
    pub(super) async fn renders(
        &self,
        cx: &Context<DynamicObject>,
        request: &Request<'_>,
        version: u32,
        revision: &Revision,
        seed: &Seed,
        check: impl Fn(&Revision) -> bool,
    ) -> Result<Option<(bool, Vec<Lookups>)>> {
        let rendered = self.render_again(cx, request, version, revision, seed, Visibility::All).await?;
        let Some((rendered, of_all)) = rendered else { return Ok(None) };
        if check(&rendered) {
            return Ok(Some((true, vec![of_all])));
        }
        if !self.source.looks_up() {
            return Ok(Some((false, Vec::new())));
        }
        let (manifest, other) = (rendered.manifest, revision.manifest.clone());
        if !self.slots.offload(move || resources::has_fewer_objects(&manifest, &other)).await? {
            return Ok(Some((false, Vec::new())));
        }
        let rendered = self.render_again(cx, request, version, revision, seed, Visibility::OfOthers).await?;
        Ok(rendered.map(|(rendered, of_others)| (check(&rendered), vec![of_all, of_others])))
    }

    /// Returns true if the templates, with the current results of `lookup`, still render the installed objects. Renders
    /// them only if these results have changed.
    pub(super) async fn matches_deployed(
        &self,
        cx: &Context<DynamicObject>,
        request: &Request<'_>,
        version: u32,
        deployed: &Revision,
        seed: &Seed,
    ) -> bool {
        let Owner { release, namespace, .. } = request.owner;
        if self.are_lookups_current(cx, &request.owner).await {
            return true;
        }
        // As at the deployment: neither the number of the next revision nor an upgrade makes a new revision.
        let is_same = |rendered: &Revision| rendered.manifest == deployed.manifest;
        match self.renders(cx, request, version, deployed, seed, is_same).await {
            Ok(Some((true, lookups))) => {
                self.verified.add(namespace, release, deployed, lookups);
                true
            }
            // Without a free slot, changes are found by the next reconcile.
            Ok(None) => true,
            Ok(Some((false, _))) | Err(_) => false,
        }
    }

    /// Returns true if the lookups of the last rendering still have the same answers.
    async fn are_lookups_current(&self, cx: &Context<DynamicObject>, owner: &Owner<'_>) -> bool {
        let lookups = self.verified.lookups(owner.namespace, owner.release);
        for lookups in &lookups {
            if !lookups.are_current(cx, self.kinds, owner.namespace, owner.release).await.unwrap_or(false) {
                return false;
            }
        }
        !lookups.is_empty()
    }

    /// Renders the desired revision.
    pub(super) async fn candidate(
        &self,
        cx: &Context<DynamicObject>,
        request: &Request<'_>,
        deployed: Option<&Revision>,
        Rendering { version, seed, at, visibility }: Rendering,
    ) -> Result<Option<(Revision, Lookups)>> {
        let Owner { release, namespace, .. } = request.owner;
        // Later renderings only have the recorded time.
        let at = rfc3339(at).parse().unwrap_or(at);
        // Every revision after the first is an upgrade, even if the first is rendered again.
        let is_upgrade = version > 1;
        let target = Release { name: release.into(), namespace: namespace.into(), revision: version, is_upgrade };
        target.check_name().map_err(|problem| Error::from(problem).terminal())?;
        let (values, evaluates) = (request.values.clone(), self.watch.evaluate_templates);
        let render_request = RenderRequest { values, release: target, seed, at, evaluates, visibility };
        let rendered = self.source.render(cx, self.kinds, self.slots, render_request).await?;
        let Some((rendered, lookups)) = rendered else { return Ok(None) };
        let (structure_from_values, helm) = (self.watch.structure_from_values, self.source.helm());
        let now = rfc3339(at);
        let first = deployed.map(|revision| revision.info.first_deployed.clone()).filter(|first| !first.is_empty());
        let (state, description) = match is_upgrade {
            true => (State::PendingUpgrade, "Preparing upgrade"),
            false => (State::PendingInstall, "Initial install underway"),
        };
        let mut revision = Revision {
            name: release.into(),
            info: Info {
                first_deployed: first.unwrap_or_else(|| now.clone()),
                last_deployed: now,
                deleted: (helm == HelmVersion::V3).then(String::new),
                description: description.into(),
                status: state,
                notes: rendered.notes.clone(),
                ..Info::default()
            },
            chart: self.source.stored(),
            config: request.values.as_map().clone(),
            manifest: String::new(),
            hooks: Vec::new(),
            version,
            namespace: namespace.into(),
            apply_method: if helm == HelmVersion::V4 { "ssa".into() } else { String::new() },
            other: Map::new(),
        };
        let kinds = Arc::clone(self.kinds);
        let finish = move || {
            crate::isolation::check(&rendered, &kinds, &revision.namespace, structure_from_values)?;
            let texts = rendered.manifests.iter().map(|manifest| (manifest.path.as_str(), manifest.text.as_str()));
            revision.manifest = resources::manifest(texts);
            revision.hooks = crate::source::stored_hooks(&rendered.hooks, helm);
            // All objects must be valid before anything is written.
            crate::install::check(&revision, &kinds, &revision.namespace)?;
            Ok::<_, resources::ManifestError>(revision)
        };
        let revision = self.slots.offload(finish).await?.map_err(|error| Error::from(error).terminal())?;
        Ok(Some((revision, lookups)))
    }

    /// Returns the values of a custom resource: its spec, overridden by `overrideValues` in `watches.yaml`.
    pub(super) fn request<'a>(&self, object: &DynamicObject, owner: Owner<'a>) -> Result<Request<'a>> {
        let spec = match &object.data["spec"] {
            Value::Object(spec) => spec.clone(),
            Value::Null => Map::new(),
            _ => return Err(Error::from("spec must be an object: it contains the chart's values").terminal()),
        };
        let spec =
            self.extensions.values(object, spec).map_err(|error| error.context("cannot map the spec to values"))?;
        let values = self.values(spec)?;
        let inputs = self.source.inputs(&values, self.watch);
        Ok(Request { owner, values, inputs, options: super::options(object, self.watch) })
    }

    /// Overrides values by `overrideValues` in `watches.yaml`.
    pub(super) fn values(&self, values: Map<String, Value>) -> Result<Values> {
        let mut values = Values::untrusted(values);
        self.watch.override_in(&mut values).map_err(|(path, error)| {
            Error::from(error).context(format_args!("overrideValues.{path} in watches.yaml")).terminal()
        })?;
        Ok(values)
    }
}
