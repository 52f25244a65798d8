//! `flyball bundle publish`: adds a bundle to a checkout of community operators, and pushes its image.

use super::{findings, read_bundle, validate};
use crate::cluster::connection::block_on;
use crate::error::{Error, Result, ResultExt};
use crate::image::data::DataImage;
use crate::image::files::ImageFile;
use crate::image::reference::Reference;
use crate::image::registry::{Purpose, Registry};
use crate::render::output::Output;
use crate::render::terminal::{Style, one_line, paint, print_line};
use clap::Args;
use flyball_files::Replace;
use flyball_lifecycle::Files;
use flyball_lifecycle::manifests::BundleFolder;
use serde::Serialize;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Add a bundle to a checkout of community operators, or push it as an image
///
/// The bundle must be valid. A version that is published already is not changed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball bundle publish operators/site-operator/1.0.0 --to ../community-operators
  flyball bundle publish operators/site-operator/1.0.0 --image quay.io/team/site-operator-bundle:1.0.0

After --to, commit and open a pull request:
  git -C ../community-operators checkout -b site-operator-1.0.0
  git -C ../community-operators add operators/site-operator
  git -C ../community-operators commit --signoff -m 'operator site-operator (1.0.0)'")]
pub(super) struct PublishArgs {
    /// Folder with manifests and metadata
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Checkout of a repository with the folder operators, such as k8s-operatorhub/community-operators
    #[arg(long, value_name = "DIR", required_unless_present = "image")]
    to: Option<PathBuf>,
    /// Name of the image of the bundle
    #[arg(long, value_name = "REF")]
    image: Option<Reference>,
    /// Use HTTP without TLS; defaults to true only for a registry on this machine
    #[arg(long)]
    insecure: bool,
    /// Reviewer of the operator on GitHub, for ci.yaml of a new operator; may be repeated
    #[arg(long = "reviewer", value_name = "NAME")]
    reviewers: Vec<String>,
    /// Write and push nothing
    #[arg(long)]
    dry_run: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Result of the command.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    name: String,
    dry_run: bool,
    /// Files in the checkout.
    files: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

pub(super) fn cmd_publish(args: &PublishArgs) -> Result<()> {
    let (files, bundle) = read_bundle(&args.folder)?;
    let name = bundle.manifests.name().to_owned();
    block_on(async {
        let found = validate::all_findings(&bundle).await?;
        if let Some(error) = findings::failure(&found, &name, false) {
            findings::print(&found);
            return Err(error.hint("a bundle with errors is not published; correct it first"));
        }
        let mut report = Report { name, dry_run: args.dry_run, files: Vec::new(), image: None, digest: None };
        if let Some(checkout) = &args.to {
            report.files = add_to(checkout, &files, &bundle, args)?;
        }
        if let Some(reference) = &args.image {
            let image = DataImage::new(&image_files(&files), &bundle.annotations.to_map())?;
            if !args.dry_run {
                let plain = args.insecure || reference.is_loopback();
                let mut registry = Registry::connect(reference, plain, Purpose::Push).await?;
                image.push(&mut registry, &reference.tag).await?;
            }
            (report.image, report.digest) = (Some(reference.to_string()), Some(image.digest().to_owned()));
        }
        print(&report, args)
    })
}

fn print(report: &Report, args: &PublishArgs) -> Result<()> {
    if let Some(output) = args.output {
        return output.print(report);
    }
    let dry = if args.dry_run { " (dry run)" } else { "" };
    for file in &report.files {
        print_line(&format!("{} {}{dry}", one_line(file), paint(Style::Good, "written")));
    }
    if let (Some(image), Some(digest)) = (&report.image, &report.digest) {
        print_line(&format!("{} {}{dry}", paint(Style::Good, "pushed"), paint(Style::Strong, image)));
        print_line(&format!("  {:<8} {digest}", "digest"));
    }
    Ok(())
}

/// Returns the files of the image of a bundle, in the folders of its labels.
fn image_files(files: &Files) -> Vec<ImageFile> {
    let is_part = |path: &str| ["manifests/", "metadata/", "tests/"].iter().any(|folder| path.starts_with(folder));
    let parts = files.iter().filter(|(path, _)| is_part(path));
    parts
        .map(|(path, content)| ImageFile { path: path.to_owned(), is_executable: false, bytes: content.to_vec() })
        .collect()
}

/// Copies a bundle into `operators/PACKAGE/VERSION` of a checkout, and returns the paths of its files.
fn add_to(checkout: &Path, files: &Files, bundle: &BundleFolder, args: &PublishArgs) -> Result<Vec<String>> {
    let operators = checkout.join("operators");
    if !operators.is_dir() {
        return Err(Error::new(format!("{} has no folder operators", checkout.display()))
            .hint("clone your fork of https://github.com/k8s-operatorhub/community-operators"));
    }
    let package = operators.join(folder_name("package", &bundle.annotations.package)?);
    let folder = package.join(folder_name("version", bundle.manifests.version())?);
    check_graph(&package, bundle)?;
    let mut written = Vec::new();
    for (path, content) in files.iter() {
        let target = folder.join(path);
        match fs::read(&target) {
            Ok(published) if published == content => continue,
            Ok(_) => {
                return Err(Error::new(format!("{} is published with another content", target.display()))
                    .hint("a published bundle is not changed; create a bundle with a higher version"));
            }
            Err(_) => written.push((target, content.to_vec())),
        }
    }
    let ci = package.join("ci.yaml");
    if !ci.exists() {
        written.push((ci, ci_file(&args.reviewers).into_bytes()));
    }
    let paths = written.iter().map(|(path, _)| path.display().to_string()).collect();
    if !args.dry_run {
        for (path, content) in written {
            let what = || format!("cannot write {}", path.display());
            fs::create_dir_all(path.parent().unwrap_or(checkout)).context(what())?;
            Replace::default().write(&path, &content).context(what())?;
        }
    }
    Ok(paths)
}

/// Returns a field of the bundle that names a folder. It must not lead to another folder.
fn folder_name<'b>(field: &str, name: &'b str) -> Result<&'b str> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(name),
        _ => Err(Error::new(format!("the {field} {name:?} of the bundle cannot be the name of a folder"))
            .hint("correct the bundle; names of packages are DNS names, versions are semantic versions")),
    }
}

/// Returns the settings of a new operator in the pipeline of the repository: upgrades follow `replaces`.
fn ci_file(reviewers: &[String]) -> String {
    let list: String = reviewers.iter().map(|name| format!("  - {name}\n")).collect();
    let list = if list.is_empty() { " []\n".to_owned() } else { format!("\n{list}") };
    format!("---\nupdateGraph: replaces-mode\nreviewers:{list}")
}

/// Checks that the bundle that this one replaces is published.
fn check_graph(package: &Path, bundle: &BundleFolder) -> Result<()> {
    let replaces = bundle.manifests.csv()["spec"]["replaces"].as_str().unwrap_or_default();
    let mut published = Vec::new();
    for path in crate::files::entries(package)?.into_iter().filter(|path| path.join("manifests").is_dir()) {
        if let Ok((_, other)) = read_bundle(&path) {
            published.push(other.manifests.name().to_owned());
        }
    }
    let others: Vec<&String> = published.iter().filter(|name| *name != bundle.manifests.name()).collect();
    if replaces.is_empty() || others.iter().any(|name| *name == replaces) {
        return Ok(());
    }
    let names: Vec<&str> = others.iter().map(|name| name.as_str()).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(Error::new(format!("spec.replaces names {replaces}, which is not published in {}", package.display()))
        .hint(format!("published: {known}; create the bundle with another --replaces")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_a_checkout_are_not_left() {
        for name in ["site", "1.0.0", "cert.manager"] {
            assert_eq!(folder_name("package", name).unwrap(), name);
        }
        for name in ["", ".", "..", "../site", "site/..", "/etc", "site/"] {
            assert!(folder_name("package", name).is_err(), "{name}");
        }
    }
}
