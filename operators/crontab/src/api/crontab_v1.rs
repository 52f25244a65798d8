//! Types of `CronTab` in `stable.example.com/v1`, generated from the schema of a CRD of another project.
#![allow(clippy::doc_lazy_continuation, clippy::doc_overindented_list_items, rustdoc::all)]

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Desired state of a `CronTab`.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "stable.example.com",
    version = "v1",
    kind = "CronTab",
    plural = "crontabs",
    namespaced,
    schema = "disabled",
    doc = "A CronTab"
)]
#[serde(rename_all = "camelCase")]
pub struct CronTabSpec {
    /// `cronSpec`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron_spec: Option<String>,
    /// `image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}
