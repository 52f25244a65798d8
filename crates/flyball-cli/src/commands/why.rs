//! `flyball why`: explains which change gave an object its state, or why no reconcile happens.

use crate::cluster::connection::{Connection, ConnectionArgs, block_on};
use crate::cluster::kinds::Kinds;
use crate::error::{Error, Result};
use crate::render::output::Output;
use crate::render::terminal::print_line;
use crate::why::{OperatorArgs, Question, investigate, parse_target, print_timeline};
use clap::Args;

/// Explain which change, by whom, gave an object or a field its current value, or why no reconcile happens
///
/// Follows the causes of the last write, across operators, to the user or program that made the first change. Operators
/// that are built with Flyball record the causes of their reconciles. For other controllers, the command uses managed
/// fields and owner references, which every cluster has.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball why pod/web-7c9-x                     what last changed the object
  flyball why deployment/web spec.replicas      who set the field, and why
  flyball why site/blog --not                   why no reconcile happens: paused, in backoff, filtered, not leading …
  flyball why site/blog --timeline              the history of the object and of all objects below it
  flyball why site/blog --timeline --watch      the same, every second until interrupted
  flyball why site/blog -o json --operator http://127.0.0.1:8080")]
pub(crate) struct WhyArgs {
    /// Object as KIND/NAME or KIND NAME, and optionally the path of a field
    #[arg(required = true, num_args = 1..=3, value_name = "OBJECT [FIELD]")]
    target: Vec<String>,
    /// Explain why the object is not reconciled
    #[arg(long)]
    not: bool,
    /// Print the history of the object, its owners and all objects below it: Deployment, ReplicaSet, Pod, scheduled,
    /// running. It uses owner references, conditions, events and managed fields, and no ledger
    #[arg(long, conflicts_with_all = ["not", "operators"])]
    timeline: bool,
    /// Refresh the timeline every second until interrupted
    #[arg(short, long, requires = "timeline")]
    watch: bool,
    #[command(flatten)]
    operators: OperatorArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

impl WhyArgs {
    /// Returns the flag that asks about a whole object.
    fn flag_of_object(&self) -> Option<&'static str> {
        match (self.not, self.timeline) {
            (true, _) => Some("--not"),
            (_, true) => Some("--timeline"),
            (false, false) => None,
        }
    }
}

pub(crate) fn cmd_why(args: &WhyArgs) -> Result<()> {
    let (kind, name, field) = parse_target(&args.target)?;
    if let (Some(_), Some(flag)) = (&field, args.flag_of_object()) {
        return Err(Error::usage(format!("{flag} is about an object: it cannot be combined with a field")));
    }
    let question = match (field, args.not) {
        (Some(field), false) => Question::Field(field),
        (_, true) => Question::Not,
        (None, false) => Question::Object,
    };
    block_on(async {
        let Connection { client, server, namespace } = args.connection.connect().await?;
        let kinds = Kinds::discover(&client).await?;
        let kind = kinds.resolve(&kind)?[0];
        let target = (kind, &*namespace, &*name);
        if args.timeline {
            return print_timeline(&client, &kinds, target, args.watch, args.output).await;
        }
        let answer = investigate((&client, &server), &kinds, target, &args.operators, &question).await?;
        match args.output {
            Some(output) => output.print(&answer),
            None => {
                answer.lines(&question).iter().for_each(|line| print_line(line));
                Ok(())
            }
        }
    })
}
