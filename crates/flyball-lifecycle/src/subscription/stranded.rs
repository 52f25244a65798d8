//! Installed versions without an upgrade, although their channel has a newer one.
//!
//! OLM has no successor for them either, and reports nothing.

use super::conditions::{UPGRADE_PATH_MISSING, set_or_remove};
use super::view::{Tracked, View};
use crate::content::Content;
use crate::contents::CatalogContents;
use crate::version::parse_tolerant;
use flyball::Context;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Sets the condition of Subscriptions with an installed version.
pub(super) fn report(view: &mut View, contents: &CatalogContents, cx: &Context<Namespace>) {
    let now = Time(cx.now());
    for index in 0..view.subscriptions.len() {
        let tracked = &view.subscriptions[index];
        // While the content is unknown, the condition stays as it is.
        let Some(content) = view.source_of(&tracked.object).and_then(|source| contents.state(source).content) else {
            continue;
        };
        let why = problem(view, tracked, &content).map(|problem| ("NoSuccessor", problem));
        set_or_remove(&mut view.subscriptions[index].status, UPGRADE_PATH_MISSING, why, &now);
    }
}

/// Returns the reason why the installed version cannot become the newest one of its channel.
pub(super) fn problem(view: &View, tracked: &Tracked, content: &Content) -> Option<String> {
    let (spec, installed) = (&tracked.object.spec, &tracked.status.installed_csv);
    let version = &view.csvs.get(installed)?.spec.version;
    let package = content.package(&spec.package)?;
    let name = if spec.channel.is_empty() { &package.default_channel } else { &spec.channel };
    let channel = package.channels.get(name)?;
    let head = channel.head.as_ref().filter(|head| *head != installed)?;
    let is_newer = parse_tolerant(&package.bundles.get(head)?.version) > parse_tolerant(version);
    (is_newer && !channel.has_upgrade(installed, version)).then(|| {
        format!(
            "channel {name} contains {head}, but no upgrade of {installed}: none of its entries that can be installed \
             replaces or skips it, or has a skipRange with {version}"
        )
    })
}
