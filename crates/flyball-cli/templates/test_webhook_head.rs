//! Tests of the webhooks of `{{kind}}`, on a control plane in the test process.

{{uses}}

const SAMPLE: &str = include_str!("../config/samples/{{file}}");
