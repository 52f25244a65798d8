//! `flyball why`: explains which change gave an object its state, or why no reconcile happens.

use crate::cluster::connection::{Connection, ConnectionArgs, block_on};
use crate::cluster::kinds::Kinds;
use crate::error::Result;
use crate::render::output::Output;
use crate::render::terminal::print_line;
use crate::why::{OperatorArgs, Question, investigate, parse_target};
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
  flyball why site/blog -o json --operator http://127.0.0.1:8080

See also: flyball trace, the history of an object and of all objects below it.")]
pub(crate) struct WhyArgs {
    /// Object as KIND/NAME or KIND NAME, and optionally the path of a field
    #[arg(required = true, num_args = 1..=3, value_name = "OBJECT [FIELD]")]
    target: Vec<String>,
    /// Explain why the object is not reconciled
    #[arg(long)]
    not: bool,
    #[command(flatten)]
    operators: OperatorArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

pub(crate) fn cmd_why(args: &WhyArgs) -> Result<()> {
    let (kind, name, field) = parse_target(&args.target)?;
    let question = match (field, args.not) {
        (Some(_), true) => {
            return Err(crate::error::Error::usage("--not explains an object: it cannot be combined with a field"));
        }
        (Some(field), false) => Question::Field(field),
        (None, true) => Question::Not,
        (None, false) => Question::Object,
    };
    block_on(async {
        let Connection { client, server, namespace } = args.connection.connect().await?;
        let kinds = Kinds::discover(&client).await?;
        let kind = kinds.resolve(&kind)?[0];
        let target = (kind, &*namespace, &*name);
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
