//! `flyball image build`.

use super::{DIRECTORY, size};
use crate::cluster::connection::block_on;
use crate::error::{Error, Result, ResultExt};
use crate::files::WATCHES;
use crate::image::base::{BUNDLES, Base, BaseName};
use crate::image::elf::Elf;
use crate::image::files::{self, ImageFile};
use crate::image::inventory::{self, BuildOrigin};
use crate::image::layout::Layout;
use crate::image::libraries;
use crate::image::platform::{PLATFORMS, Platform, Target, parse};
use crate::image::project::{self, Package, Project};
use crate::image::reference::{self, Reference};
use crate::image::{Blob, Contents, Image, ProjectFiles, attachment, digest, epoch, index};
use crate::operator::program::{Build, Program, check_project};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_labeled, print_line};
use clap::Args;
use flyball_ansible::AnsibleRequirement;
use flyball_core::time::{Timestamp, rfc3339};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Build a container image of the project in this directory
///
/// The image contains the program, the trusted CA certificates of this machine and an unprivileged user. The build is
/// reproducible. An SBOM and a provenance statement are attached.
///
/// In a project with a watches.yaml, the program is flyball itself, and the image also contains watches.yaml, charts,
/// roles, playbooks, CRDs and samples. Roles that need Python also need --base.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball image build
  flyball image build --tag registry.example.com/team/site-operator:1.0
  flyball image build --platform linux/amd64,linux/arm64
  flyball image build --program ./site-operator --tag site-operator:test
  flyball image build --base registry.example.com/ansible:1.0    for roles that need ansible-playbook

Programs are linked statically: for a musl target such as x86_64-unknown-linux-musl if it is installed,
otherwise with glibc.")]
pub(super) struct BuildArgs {
    /// Platforms, separated by commas; defaults to this machine's
    #[arg(long, value_delimiter = ',', value_parser = parse)]
    platform: Vec<&'static Platform>,
    /// Name of the image; defaults to the package's name and version
    #[arg(short, long, value_name = "REF")]
    tag: Option<Reference>,
    /// Directory for the image, in OCI layout
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    out: PathBuf,
    /// Use a prebuilt program instead of the project in this directory; once for each platform. With a watches.yaml, a
    /// flyball instead of this one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bin", "profile", "platform"])]
    program: Vec<PathBuf>,
    /// Base image: a reference, or a directory in OCI layout; defaults to an empty image
    #[arg(long, value_name = "REF|DIR")]
    base: Option<BaseName>,
    /// Binary target of the project, if it has several
    #[arg(long)]
    bin: Option<String>,
    /// Cargo profile
    #[arg(long, default_value = "release")]
    profile: String,
    /// CA certificates for the image, in PEM; defaults to those that this machine trusts
    #[arg(long, value_name = "FILE")]
    ca_certificates: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// A program for an image, and its metadata.
struct BuiltProgram {
    platform: &'static Platform,
    name: String,
    program: Vec<u8>,
    package: Package,
    contents: Vec<(Package, Vec<Package>)>,
    libraries: Vec<ImageFile>,
    target: Option<&'static str>,
    lock: Option<String>,
}

/// The built image.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BuiltImage {
    name: String,
    folder: PathBuf,
    digest: String,
    platforms: Vec<PlatformImage>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PlatformImage {
    platform: &'static str,
    digest: String,
    /// Bytes that are pulled, besides those of a base.
    compressed: u64,
    program: u64,
    /// Digests of the referrers: SBOM and provenance.
    attached: Vec<String>,
}

pub(crate) fn cmd_build(args: BuildArgs) -> Result<()> {
    block_on(async {
        let epoch = epoch()?;
        let certificates = certificates(args.ca_certificates.as_deref())?;
        let (parts, project) = match Program::here() {
            Some(program) => {
                let (parts, project) = watches_programs(&args, &program).await?;
                (parts, Some(project))
            }
            None if args.program.is_empty() => {
                check_project()?;
                (build(&args).await?, None)
            }
            None => (read_programs(&args.program, args.base.is_some())?, None),
        };
        let image = build_image(&args, &parts, project.as_ref(), &certificates, epoch).await?;
        match args.output {
            Some(output) => output.print(&image)?,
            None => print(&image),
        }
        Ok(())
    })
}

fn print(built: &BuiltImage) {
    print_line(&format!("{} {}", paint(Style::Good, "image"), paint(Style::Strong, &built.name)));
    print_line(&format!("  {:<11} {}", "digest", built.digest));
    for one in &built.platforms {
        print_line(&format!(
            "  {:<11} {} compressed, program {}",
            one.platform,
            size(one.compressed),
            size(one.program)
        ));
    }
    print_line(&format!("  {:<11} {}", "directory", built.folder.display()));
    print_line(&format!("  {:<11} flyball image push {}", "next", built.name));
}

fn certificates(named: Option<&Path>) -> Result<Vec<u8>> {
    let found = named.or_else(|| BUNDLES.iter().map(Path::new).find(|path| path.is_file()));
    let path = found
        .ok_or_else(|| Error::new("no CA certificates found on this machine").hint("pass --ca-certificates FILE"))?;
    let read = fs::read(path).context(format!("cannot read {}", path.display()))?;
    match String::from_utf8_lossy(&read).contains("-----BEGIN CERTIFICATE-----") {
        true => Ok(read),
        false => Err(Error::new(format!("{} contains no PEM certificates", path.display()))),
    }
}

/// Reads prebuilt programs.
fn read_programs(programs: &[PathBuf], has_base: bool) -> Result<Vec<BuiltProgram>> {
    let mut parts: Vec<BuiltProgram> = Vec::new();
    for path in programs {
        let program = fs::read(path).context(format!("cannot read {}", path.display()))?;
        let platform = platform(path, &program, has_base)?;
        if parts.iter().any(|part| part.platform == platform) {
            return Err(Error::new(format!("{} is a second program for platform {}", path.display(), platform.name)));
        }
        let package = project::prebuilt_package(path);
        let contents = vec![(package.clone(), Vec::new())];
        let name = parts.first().map_or_else(|| package.name.clone(), |first| first.name.clone());
        parts.push(BuiltProgram {
            platform,
            name,
            program,
            package,
            contents,
            libraries: Vec::new(),
            target: None,
            lock: None,
        });
    }
    Ok(parts)
}

/// Reads the project of a watches.yaml, and the program that runs it.
async fn watches_programs(args: &BuildArgs, program: &Program) -> Result<(Vec<BuiltProgram>, ProjectFiles)> {
    let name = program.describe(&[], &BTreeMap::new()).await?.name;
    if args.base.is_none()
        && let Some(requirement) = program.ansible_requirements().first()
    {
        let AnsibleRequirement { runs, feature, .. } = requirement;
        return Err(Error::new(format!("{runs} needs ansible-core ({feature}), and the image has none"))
            .hint("pass an image that contains it: --base REF, see docs/image.md"));
    }
    let folder = format!("opt/{name}");
    let project = ProjectFiles {
        files: files::project_files(Path::new("."), &program.entries(), &folder)?,
        args: vec!["operate".to_owned(), format!("/{folder}/{WATCHES}")],
        // Ansible writes temporary files to the home directory.
        variables: if program.has_roles() { vec![("HOME", "/tmp".to_owned())] } else { Vec::new() },
        folder,
    };
    let mut parts = match &args.program[..] {
        [] => vec![own_program(args)?],
        programs => read_programs(programs, args.base.is_some())?,
    };
    for part in &mut parts {
        let (operator, flyball) = project::watches_packages(&name);
        part.name = "flyball".to_owned();
        part.contents = vec![(operator.clone(), vec![flyball.clone()]), (flyball, Vec::new())];
        part.package = operator;
    }
    Ok((parts, project))
}

/// Reads this program, with its libraries if it is dynamically linked and the image has no base.
fn own_program(args: &BuildArgs) -> Result<BuiltProgram> {
    let path = std::env::current_exe().context("cannot find the path of flyball")?;
    let program = fs::read(&path).context(format!("cannot read {}", path.display()))?;
    let platform = platform(&path, &program, true)
        .map_err(|error| error.hint("pass a flyball program for Linux: --program FILE, once for each platform"))?;
    if args.platform.iter().any(|wanted| *wanted != platform) {
        return Err(Error::new(format!("this flyball is for platform {}", platform.name))
            .hint("pass a flyball program for each platform: --program FILE"));
    }
    let loader = Elf::read(&program).and_then(|elf| elf.loader).filter(|_| args.base.is_none());
    let libraries = loader.map(|loader| libraries::shared_libraries(&path, &loader)).transpose()?.unwrap_or_default();
    let package = project::prebuilt_package(&path);
    let contents = Vec::new();
    Ok(BuiltProgram {
        platform,
        name: package.name.clone(),
        program,
        package,
        contents,
        libraries,
        target: None,
        lock: None,
    })
}

/// Returns the platform of a program, which must be statically linked unless the image has libraries.
fn platform(path: &Path, program: &[u8], has_libraries: bool) -> Result<&'static Platform> {
    let elf = Elf::read(program).ok_or_else(|| {
        Error::new(format!("{} is not a Linux executable", path.display()))
            .hint("build it for a target such as x86_64-unknown-linux-musl")
    })?;
    if elf.needs_loader && !has_libraries {
        return Err(Error::new(format!("{} is dynamically linked, and the image has no libraries", path.display()))
            .hint(
                "build it for a musl target such as x86_64-unknown-linux-musl, or with -C target-feature=+crt-static",
            ));
    }
    let platform = PLATFORMS.iter().find(|platform| platform.machine == elf.machine);
    platform.ok_or_else(|| Error::new(format!("{} is built for an unsupported architecture", path.display())))
}

/// Builds the project for each platform.
async fn build(args: &BuildArgs) -> Result<Vec<BuiltProgram>> {
    let mut platforms: Vec<&'static Platform> = Vec::new();
    for &platform in &args.platform {
        if !platforms.contains(&platform) {
            platforms.push(platform);
        }
    }
    if platforms.is_empty() {
        platforms.push(Platform::host()?);
    }
    // Check all targets first, since a build takes minutes.
    let targets: Vec<Target> = platforms.iter().map(|platform| platform.target()).collect::<Result<_>>()?;
    let mut parts = Vec::new();
    for (platform, target) in platforms.into_iter().zip(targets) {
        if target.is_gnu {
            let note = format!("no musl target is installed for {}; linking glibc statically", platform.name);
            print_labeled("note", &note);
        }
        let project = Project::load(Some(target.name)).await?;
        let build = Build {
            bin: args.bin.clone(),
            profile: Some(args.profile.clone()),
            target: Some(target.name.into()),
            variables: variables(target, &args.profile, &project.workspace_root),
            ..Build::default()
        };
        let built = build.artifact().await.map_err(|error| match Platform::host() {
            Ok(host) if host == platform => error,
            _ => error
                .hint(format!(
                    "cross-compiling for {} needs a linker, and a C compiler if a crate contains C code",
                    platform.name
                ))
                .hint(format!("set the linker with CARGO_TARGET_{}_LINKER", env_name(target.name))),
        });
        let (path, id) = built?;
        let program = fs::read(&path).context(format!("cannot read {}", path.display()))?;
        self::platform(&path, &program, false)?;
        let package = project.package(&id)?;
        let lock = fs::read(project.workspace_root.join("Cargo.lock")).ok().map(|lock| digest(&lock));
        parts.push(BuiltProgram {
            platform,
            name: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            program,
            contents: project.program_packages(&id)?,
            package,
            libraries: Vec::new(),
            target: Some(target.name),
            lock,
        });
    }
    Ok(parts)
}

/// Converts a name for an environment variable.
fn env_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

/// Returns the environment for cargo: small, static and reproducible programs.
fn variables(target: Target, profile: &str, workspace: &Path) -> BTreeMap<String, String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let mut flags = Vec::new();
    if target.is_gnu {
        flags.push("-C target-feature=+crt-static".to_owned());
    }
    for (folder, shown) in [(home.as_deref(), "/cargo"), (Some(workspace), "/src")] {
        // Flags are separated by spaces.
        let folder = folder.map(|folder| folder.display().to_string()).filter(|folder| !folder.contains(' '));
        flags.extend(folder.map(|folder| format!("--remap-path-prefix={folder}={shown}")));
    }
    // RUSTFLAGS replaces the flags of a target.
    let (name, before) = match std::env::var("RUSTFLAGS") {
        Ok(before) => ("RUSTFLAGS".to_owned(), before + " "),
        Err(_) => (format!("CARGO_TARGET_{}_RUSTFLAGS", env_name(target.name)), String::new()),
    };
    let stripped = (format!("CARGO_PROFILE_{}_STRIP", env_name(profile)), "symbols".to_owned());
    [(name, before + &flags.join(" ")), stripped].into()
}

async fn build_image(
    args: &BuildArgs,
    parts: &[BuiltProgram],
    project: Option<&ProjectFiles>,
    certificates: &[u8],
    epoch: Timestamp,
) -> Result<BuiltImage> {
    let Some(first) = parts.first() else { return Err(Error::new("no platform given")) };
    let built_here = args.program.is_empty() && project.is_none();
    let revision = if built_here || project.is_some() { project::revision().await } else { None };
    let compiler = if built_here { project::compiler().await } else { None };
    let created = rfc3339(epoch);
    let labels = project::labels(&first.package, revision.as_deref(), &created);
    let title = if project.is_some() { &first.package.name } else { &first.name };
    let tag = match &args.tag {
        Some(tag) => tag.clone(),
        None => format!("{title}:{}", first.package.version.replace('+', "-")).parse().map_err(|why| {
            Error::new(format!("the package name is not an image name: {why}")).hint("pass --tag REF")
        })?,
    };
    let name = args.tag.as_ref().map_or_else(|| format!("{title}:{}", tag.tag), ToString::to_string);

    let (mut blobs, mut images, mut attached, mut platforms) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        let base = match &args.base {
            Some(name) => Some(Base::read(name, part.platform).await?),
            None => None,
        };
        let mut labels = labels.clone();
        if let Some(base) = &base {
            labels.insert("org.opencontainers.image.base.name".into(), base.name.clone());
            labels.insert("org.opencontainers.image.base.digest".into(), base.digest.clone());
        }
        let contents = Contents {
            name: &part.name,
            program: &part.program,
            libraries: &part.libraries,
            certificates,
            replaces_certificates: args.ca_certificates.is_some(),
            labels: &labels,
            base: base.as_ref(),
            project,
        };
        let image = Image::new(part.platform, &contents, epoch)?;
        let origin = BuildOrigin {
            name: &name,
            platform: part.platform.name,
            target: part.target,
            profile: built_here.then_some(args.profile.as_str()),
            compiler: compiler.as_deref(),
            source: part.package.repository.as_deref(),
            revision: revision.as_deref(),
            lock: part.lock.as_deref(),
            program: &digest(&part.program),
        };
        let subject = &image.manifest.descriptor;
        let documents = [
            (inventory::SBOM_TYPE, inventory::sbom(&part.package, &part.contents, &created)),
            (inventory::PROVENANCE_TYPE, inventory::provenance(subject, &origin)),
        ];
        let mut digests = Vec::new();
        for (kind, document) in &documents {
            let attachment_blobs = attachment(kind, document, subject, epoch);
            digests.extend(attachment_blobs.last().map(|manifest| manifest.descriptor.digest.clone()));
            attached.extend(attachment_blobs.last().map(|manifest| manifest.descriptor.clone()));
            blobs.extend(attachment_blobs);
        }
        platforms.push(PlatformImage {
            platform: image.platform.name,
            digest: subject.digest.clone(),
            compressed: image.own,
            program: image.program,
            attached: digests,
        });
        blobs.extend(image.blobs.iter().cloned());
        blobs.push(image.manifest.clone());
        images.push(image);
    }
    let index: Blob = index(&images, &labels);
    let mut named = index.descriptor.clone();
    named.annotations.insert(reference::NAME.into(), tag.tag.clone());
    named.annotations.insert(reference::FULL_NAME.into(), tag.to_string());
    blobs.push(index);
    let digest = named.digest.clone();
    let manifests: Vec<_> = [named].into_iter().chain(attached).collect();
    Layout::write(&args.out, &blobs, &manifests)?;
    Ok(BuiltImage { name, folder: args.out.clone(), digest, platforms })
}
