//! `flyball render`: prints the objects that `flyball deploy` applies.

use crate::cluster::connection::block_on;
use crate::error::Result;
use crate::operator::installation::{Installation, TargetArgs};
use crate::operator::overlay::{OverlayArgs, parse_image};
use crate::render::output::Output;
use crate::render::terminal::print_line;
use crate::render::yaml;
use clap::Args;

/// Print the objects that `flyball deploy` applies, without a cluster
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball render --image registry.example.com/site-operator:1.0 > operator.yaml
  flyball render --namespace sites --name-prefix team-a- --patch env.yaml

A strategic merge patch is an object with the changed fields; its name may omit the prefix. A JSON patch has the form
  {target: {kind: Deployment}, patch: [{op: replace, path: /spec/replicas, value: 2}]}")]
pub(crate) struct RenderArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Namespace of the operator; defaults to the name prefix followed by `system`
    #[arg(short, long)]
    namespace: Option<String>,
    /// Image of the operator
    #[arg(long, value_name = "REF", value_parser = parse_image)]
    image: Option<String>,
    #[command(flatten)]
    overlay: OverlayArgs,
    /// Include ServiceMonitor, PrometheusRule and dashboard
    #[arg(long)]
    monitoring: bool,
    /// Output format; defaults to YAML
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

pub(crate) fn cmd_render(args: &RenderArgs) -> Result<()> {
    let installation = block_on(Installation::load(&args.target, args.namespace.as_deref(), args.image.as_deref()))?;
    let mut objects = installation.objects(args.monitoring);
    args.overlay.apply(&mut objects, &installation.target)?;
    match args.output {
        Some(Output::Json) => {
            Output::Json.print(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects}))
        }
        Some(Output::Yaml) | None => {
            let documents: Vec<String> = objects.iter().map(yaml::write).collect();
            print_line(documents.join("---\n").trim_end());
            Ok(())
        }
    }
}
