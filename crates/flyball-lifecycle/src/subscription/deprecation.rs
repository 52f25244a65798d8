//! Deprecated packages, channels and bundles, as the catalog of a Subscription declares them.

use super::conditions::{BUNDLE_DEPRECATED, CHANNEL_DEPRECATED, DEPRECATED, PACKAGE_DEPRECATED, set_or_remove};
use super::view::View;
use crate::contents::CatalogContents;
use flyball::Context;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Sets the conditions of the Subscriptions with an installed version.
pub(super) fn report(view: &mut View, contents: &CatalogContents, cx: &Context<Namespace>) {
    let now = Time(cx.now());
    for index in 0..view.subscriptions.len() {
        let tracked = &view.subscriptions[index];
        let (spec, installed) = (&tracked.object.spec, tracked.status.installed_csv.clone());
        // While the content is unknown, the conditions stay as they are.
        let Some(content) = view.source_of(&tracked.object).and_then(|source| contents.state(source).content) else {
            continue;
        };
        let package = content.package(&spec.package).filter(|_| !installed.is_empty());
        let channel = package.and_then(|package| {
            let name = if spec.channel.is_empty() { &package.default_channel } else { &spec.channel };
            package.channels.get(name)
        });
        let bundle = package.and_then(|package| package.bundles.get(&installed));
        let texts = [
            (
                PACKAGE_DEPRECATED,
                package.and_then(|of| Some(format!("olm.package/{}: {}", of.name, of.deprecation.as_ref()?))),
            ),
            (
                CHANNEL_DEPRECATED,
                channel.and_then(|of| Some(format!("olm.channel/{}: {}", of.name, of.deprecation.as_ref()?))),
            ),
            (
                BUNDLE_DEPRECATED,
                bundle.and_then(|of| Some(format!("olm.bundle/{}: {}", of.name(), of.deprecation.as_ref()?))),
            ),
        ];
        let all: Vec<String> = texts.iter().filter_map(|(_, text)| text.clone()).collect();
        let summary = (!all.is_empty()).then(|| all.join("; "));
        let status = &mut view.subscriptions[index].status;
        for (kind, text) in texts.into_iter().chain([(DEPRECATED, summary)]) {
            set_or_remove(status, kind, text.map(|text| ("", text)), &now);
        }
    }
}
