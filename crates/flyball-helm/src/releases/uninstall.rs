//! Uninstallation of a release whose custom resource is deleted.

use super::Plan;
use super::convergence::contents_size;
use crate::annotation::RELEASE;
use crate::delete_hooks;
use crate::history::{self, Contents, History};
use crate::install::Progress;
use crate::lookup::Visibility;
use crate::resources::Owner;
use crate::status::WaitReason;
use crate::storage::{Revision, State};
use flyball::{Context, Event, Result};
use kube::core::DynamicObject;

impl Plan<'_> {
    /// Advances the uninstallation. Hooks that the chart does not render are skipped.
    pub(super) async fn uninstall(
        &self,
        object: &DynamicObject,
        owner: Owner<'_>,
        cx: &Context<DynamicObject>,
        waits: bool,
    ) -> Result<Progress> {
        let mut history = History::read(cx, &owner).await?;
        if !history.is_owned(&owner) {
            // Otherwise the custom resource never took over the release, for example because it was always paused.
            // The status of an uninstalled release has no revision.
            if let Some(known) = object.data["status"]["release"]["revision"].as_u64()
                && history.revisions.is_empty()
                && history.other_owner.is_none()
            {
                if history.is_behind(cx, &owner, known).await? {
                    return Ok(Progress::Waits(WaitReason::Cache));
                }
                report_unknown_objects(cx, owner.release);
            }
            return Ok(Progress::Done);
        }
        let Some(Contents { deployed, newer }) = self.contents(cx, &mut history).await? else {
            return Ok(Progress::Waits(WaitReason::MemoryToRead));
        };
        if !self.slots.may_hold(&self.share, contents_size(object, [newer.as_ref(), deployed.as_ref()])) {
            return Ok(Progress::Waits(WaitReason::Memory));
        }
        let Some(mut revision) = newer.or(deployed) else {
            // The release belongs to another chart, or its Secrets are deleted.
            if history.problems.is_empty() || history.other_chart.is_some() {
                return Ok(Progress::Done);
            }
            let problems = history.problems.join("; ");
            let text = format!(
                "no revision is valid, so the objects of the release are unknown: {problems}: delete these Secrets to end \
                 the deletion, then the objects that remain with the annotation {RELEASE}: {}",
                owner.release
            );
            return Err(text.into());
        };
        // Its revisions are deleted one by one, and this one last.
        history.claim(cx, &owner).await?;
        let Some(mut last) = history.last().cloned() else { return Ok(Progress::Done) };
        let annotations = last.annotations();
        let is_verified = self.verified.has(owner.namespace, owner.release, &revision);
        if !is_verified && revision.hooks.iter().any(delete_hooks::is_delete_hook) {
            let seed = annotations.seed.clone().unwrap_or_default();
            let rendered = match self.request(object, owner) {
                Ok(request) => self.render_again(cx, &request, last.version, &revision, &seed, Visibility::All).await,
                Err(error) => Err(error),
            };
            let rendered = match rendered {
                Ok(Some((rendered, _))) => rendered,
                Ok(None) => return Ok(Progress::Waits(WaitReason::Slot)),
                Err(error) if error.downcast_ref::<kube::Error>().is_some() => return Err(error),
                // The chart renders nothing for these values.
                Err(_) => Revision::default(),
            };
            let replace = move || (delete_hooks::replace_unverified(&mut revision, &rendered), revision);
            let skipped;
            (skipped, revision) = self.slots.offload(replace).await?;
            if !skipped.is_empty() {
                report_skipped(cx, &revision.name, &skipped);
                if revision.info.status == State::Uninstalling {
                    // So they are reported once.
                    last = history::update(cx, self.slots, &last, &revision, &annotations).await?;
                }
            }
        }
        self.operation(cx, object, owner, history, last, revision, annotations).uninstall(waits).await
    }
}

/// Publishes an event about a release whose Secrets are deleted. Kubernetes deletes the objects with an owner.
fn report_unknown_objects(cx: &Context<DynamicObject>, release: &str) {
    let note = format!(
        "The Secrets of release {release} were deleted, so its deletion hooks do not run, and its objects in other \
         namespaces, cluster-scoped ones and kept ones remain: find them by the annotation {RELEASE}: {release}"
    );
    tracing::warn!(release, "{note}");
    cx.event(Event::warning("ReleaseSecretsDeleted", note));
}

/// Publishes an event about hooks that are not run.
fn report_skipped(cx: &Context<DynamicObject>, release: &str, hooks: &[String]) {
    let names = hooks.join(", ");
    tracing::warn!(release, hooks = names, "hooks skipped: the chart does not render them");
    let note = format!(
        "Hooks {names} of release {release} were not run: the chart does not render them for this custom resource"
    );
    cx.event(Event::warning("HooksSkipped", note));
}
