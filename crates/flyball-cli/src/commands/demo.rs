//! placeholder
use crate::error::Result;
use clap::Args;
/// Show
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {}
pub(crate) fn cmd_demo(_: DemoArgs) -> Result<()> { Ok(()) }
