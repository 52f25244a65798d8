//! Types of `{{kind}}` in `{{api_version}}`, generated from the schema of a CRD of another project.
#![allow(clippy::doc_lazy_continuation, clippy::doc_overindented_list_items, rustdoc::all)]

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Desired state of {{a_kind}}.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "{{group}}",
    version = "{{version}}",
    kind = "{{kind}}",
{{attributes}}    schema = "disabled",
    doc = "{{A_kind}}"
)]
{{types}}
