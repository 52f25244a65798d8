//! `flyball catalog serve`: serves a catalog over gRPC.

use super::{ImageFlags, count};
use crate::catalog::reference;
use crate::cluster::connection::block_on_threads;
use crate::error::{Error, Result, ResultExt};
use crate::operator::process::stop_signal;
use crate::render::output::Output;
use crate::render::terminal::{one_line, print_labeled, print_line};
use clap::Args;
use flyball_lifecycle::content::Content;
use flyball_lifecycle::grpc::{Service, serve};
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Serve a catalog over gRPC, for CatalogSources with an address
///
/// Offers the registry API that OLM's catalogs have, and gRPC's health protocol, without TLS. Packages with problems
/// are skipped; `flyball catalog validate` lists them.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball catalog serve catalog/
  flyball catalog serve quay.io/team/catalog:latest --listen 0.0.0.0:50051

A CatalogSource with `sourceType: grpc` and `address: HOST:50051` reads it.")]
pub(super) struct ServeArgs {
    /// Folder or image of the catalog
    #[arg(value_name = "REF")]
    reference: String,
    /// Address and port; port 0 selects a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:50051")]
    listen: SocketAddr,
    #[command(flatten)]
    images: ImageFlags,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// The served catalog and its address.
#[derive(Serialize)]
struct Report {
    address: String,
    packages: usize,
    bundles: usize,
}

pub(super) fn cmd_serve(args: &ServeArgs) -> Result<()> {
    block_on_threads(async {
        let stop = stop_signal()?;
        let content = Content::new(reference::load(&args.reference, args.images.images()).await?);
        if content.packages().next().is_none() {
            let error = Error::new(format!("{} has no valid packages", args.reference));
            return Err(error.hint(format!("list the problems: flyball catalog validate {}", args.reference)));
        }
        for package in content.problems().packages() {
            print_labeled("warning", &format!("skipped package {}, which is invalid", one_line(package)));
        }
        let listener = TcpListener::bind(args.listen).await.context(format!("cannot listen on {}", args.listen));
        let listener = listener.map_err(|error| error.hint("pass another address: --listen 127.0.0.1:0"))?;
        let address = listener.local_addr().context("the listener has no address")?.to_string();
        let bundles = content.packages().map(|package| package.bundles.len()).sum();
        let report = Report { address, packages: content.packages().count(), bundles };
        match args.output {
            Some(output) => output.print_next(&report)?,
            None => {
                let (packages, bundles) = (count(report.packages, "package"), count(report.bundles, "bundle"));
                print_line(&format!("serving {packages} with {bundles} at {}", report.address));
            }
        }
        serve(Service::new(Arc::new(content)), listener, stop).await;
        Ok(())
    })
}
