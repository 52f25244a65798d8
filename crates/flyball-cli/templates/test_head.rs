//! Tests of `{{kind}}` on a control plane in the test process, see `flyball_cluster::testing`.

{{uses}}

const SAMPLE: &str = include_str!("../config/samples/{{file}}");
