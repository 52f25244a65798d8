//! `{{kind}}` on a control plane that runs in the test itself: see `flyball_cluster::testing`.

{{uses}}

const SAMPLE: &str = include_str!("../config/samples/{{file}}");
