//! The webhooks of `{{kind}}`, asked by a control plane that runs in the test itself.

{{uses}}

const SAMPLE: &str = include_str!("../config/samples/{{file}}");
