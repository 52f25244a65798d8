//! Subcharts of a chart: `charts/` and `Chart.lock`, as `helm dependency` keeps them.
//!
//! A chart of a project names its subcharts by constraints. An update resolves them to versions, downloads these, and
//! writes the lock; a build downloads the versions in the lock. Nothing is written before all subcharts are there.

use super::access::Access;
use super::archive::{self, Archive, MAX_ARCHIVE_BYTES, is_file_name};
use super::index::Index;
use super::oci::{OciChart, SCHEME};
use super::range::{self, Range};
use super::source::check_repository;
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::print_line;
use flyball_chart::{Chart, Dependency, Lock};
use flyball_core::Clock;
use flyball_files::Replace;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use url::Url;

mod list;

pub(crate) use list::list;

/// Prefix of repositories that are directories.
const FILE: &str = "file://";
/// Limit of the subcharts that a chart names.
const MAX_DEPENDENCIES: usize = 1_000;
/// Files and directories that mark the root of a project.
const ROOTS: [&str; 2] = ["PROJECT", ".git"];

/// Origin of a subchart.
#[derive(Debug)]
enum Origin {
    /// The directory `charts/`.
    Vendored,
    /// Another directory of the project.
    Folder(PathBuf),
    Repository(String),
    Registry(OciChart),
}

/// The subcharts of a chart.
pub(crate) struct Dependencies<'a> {
    access: &'a Access,
    folder: PathBuf,
    chart: Chart,
    /// Indices that were downloaded, by URL.
    indices: BTreeMap<String, Index>,
}

impl<'a> Dependencies<'a> {
    /// Opens a chart in a directory.
    ///
    /// # Errors
    ///
    /// If there is none, or it names too many subcharts.
    pub(crate) fn open(access: &'a Access, folder: &Path) -> Result<Self> {
        let shown = folder.display();
        if !fs::metadata(folder).context(format!("could not find {shown}"))?.is_dir() {
            return Err(Error::new("only unpacked charts can be updated").hint(format!("unpack it: tar xzf {shown}")));
        }
        let chart = Chart::open(folder).context(format!("cannot load the chart in {shown}"))?;
        let count = chart.metadata().dependencies.len();
        if count > MAX_DEPENDENCIES {
            return Err(Error::new(format!("{shown} has {count} dependencies, more than {MAX_DEPENDENCIES}")));
        }
        Ok(Self { access, folder: folder.to_owned(), chart, indices: BTreeMap::new() })
    }

    /// Resolves the constraints again, downloads the subcharts, and writes the lock if it changed.
    ///
    /// # Errors
    ///
    /// If a subchart is not available. Nothing is written then.
    pub(crate) async fn update(&mut self) -> Result<()> {
        let required = self.chart.metadata().dependencies.clone();
        if required.is_empty() {
            return Ok(());
        }
        self.check_login(&required)?;
        if required.iter().any(|dependency| dependency.repository.starts_with("http")) {
            print_line("Getting updates for unmanaged Helm repositories...");
        }
        let mut locked = Vec::new();
        for dependency in &required {
            let version = self.resolve(dependency).await.map_err(|error| with_dependency(error, dependency))?;
            locked.push(Dependency::locked(&dependency.name, &dependency.repository, &version));
        }
        self.download(&locked).await?;
        let digest = Lock::digest_of(&required, &locked).context(self.dependencies_file().display().to_string())?;
        if self.read_lock()?.is_some_and(|lock| lock.digest == digest) {
            return Ok(());
        }
        let generated = Clock::system().now().to_string();
        self.write_lock(&Lock { generated, digest, dependencies: locked })
    }

    /// Downloads the subcharts in the lock; without a lock, updates.
    ///
    /// # Errors
    ///
    /// If the lock is out of date, or a subchart is not available. Nothing is written then.
    pub(crate) async fn build(&mut self) -> Result<()> {
        let Some(lock) = self.read_lock()? else { return self.update().await };
        let required = &self.chart.metadata().dependencies;
        let mut digests = vec![Lock::digest_of(required, &lock.dependencies)];
        if self.is_first_version() {
            digests.push(Lock::legacy_digest_of(required));
        }
        let digests = digests.into_iter().collect::<Result<Vec<_>, _>>();
        if !digests.context(self.dependencies_file().display().to_string())?.contains(&lock.digest) {
            let (lock, file) = self.file_names();
            return Err(Error::new(format!(
                "the lock file ({lock}) is out of sync with the dependencies file ({file}). Please update the \
                 dependencies"
            ))
            .hint(format!("flyball helm dependency update {}", self.folder.display())));
        }
        if lock.dependencies.len() > MAX_DEPENDENCIES {
            return Err(Error::new(format!("the lock has more than {MAX_DEPENDENCIES} dependencies")));
        }
        self.check_login(required.iter().chain(&lock.dependencies))?;
        self.download(&lock.dependencies).await
    }

    /// Refuses credentials for several servers: the chart names the repositories, and may be untrusted.
    fn check_login<'d>(&self, dependencies: impl IntoIterator<Item = &'d Dependency>) -> Result<()> {
        if !self.access.has_login() {
            return Ok(());
        }
        let urls = dependencies.into_iter().filter_map(|dependency| Url::parse(&dependency.repository).ok());
        let urls = urls.filter(|url| matches!(url.scheme(), "http" | "https"));
        let origins: BTreeSet<String> = urls.map(|url| url.origin().ascii_serialization()).collect();
        if origins.len() < 2 {
            return Ok(());
        }
        let shown: Vec<&str> = origins.iter().map(String::as_str).take(5).collect();
        let what = format!("--username is for one server, but the dependencies are on {}", origins.len());
        Err(Error::new(format!("{what}: {}", shown.join(", ")))
            .hint("remove the repositories of the others, and download their charts into charts/: flyball helm pull"))
    }

    fn is_first_version(&self) -> bool {
        self.chart.metadata().api_version == "v1"
    }

    /// Returns the names of the lock, and of the file with the dependencies.
    fn file_names(&self) -> (&'static str, &'static str) {
        match self.is_first_version() {
            true => ("requirements.lock", "requirements.yaml"),
            false => ("Chart.lock", "Chart.yaml"),
        }
    }

    fn dependencies_file(&self) -> PathBuf {
        self.folder.join(self.file_names().1)
    }

    fn lock_file(&self) -> PathBuf {
        self.folder.join(self.file_names().0)
    }

    fn read_lock(&self) -> Result<Option<Lock>> {
        let (file, path) = (self.file_names().0, self.lock_file());
        let text = match fs::metadata(&path) {
            Err(_) => return Ok(None),
            Ok(found) if found.len() > MAX_ARCHIVE_BYTES as u64 => {
                return Err(Error::new(format!("{} is too large", path.display())));
            }
            Ok(_) => fs::read(&path).context(format!("cannot read {}", path.display()))?,
        };
        let lock = Lock::read(file, &text).context(format!("{} is invalid", path.display()));
        lock.map(Some).map_err(|error| error.hint(format!("flyball helm dependency update {}", self.folder.display())))
    }

    fn write_lock(&self, lock: &Lock) -> Result<()> {
        let path = self.lock_file();
        if path.is_symlink() {
            return Err(Error::new(format!("{} is a symbolic link, which is not followed", path.display()))
                .hint("replace it with a file"));
        }
        Replace::default().write(&path, lock.to_yaml()).context(format!("cannot write {}", path.display()))
    }

    /// Finds the origin of a subchart.
    fn origin(&self, dependency: &Dependency) -> Result<Origin> {
        let Dependency { name, repository, .. } = dependency;
        if !is_file_name(name) {
            return Err(Error::new(format!("{name:?} is not a chart name")));
        }
        if repository.is_empty() {
            return Ok(Origin::Vendored);
        }
        if let Some(path) = repository.strip_prefix(FILE) {
            return self.resolve_file_url(path).map(Origin::Folder);
        }
        check_repository(repository)?;
        if repository.starts_with(SCHEME) {
            return OciChart::parse(&format!("{}/{name}", repository.trim_end_matches('/')), None)
                .map(Origin::Registry);
        }
        Ok(Origin::Repository(repository.clone()))
    }

    /// Returns a directory of the project that a `file://` URL names.
    fn resolve_file_url(&self, path: &str) -> Result<PathBuf> {
        let joined = self.folder.join(path);
        let what = || format!("directory {} not found", joined.display());
        let folder = joined.canonicalize().context(what())?;
        let chart = self.folder.canonicalize().context(format!("cannot find {}", self.folder.display()))?;
        let root = root_of(&chart);
        if !folder.starts_with(&root) {
            return Err(Error::new(format!("{} is outside of the project in {}", folder.display(), root.display()))
                .hint("copy the chart into the project"));
        }
        if !folder.is_dir() {
            return Err(Error::new(format!("{} is not a directory", folder.display()))
                .hint("unpack the chart, or move the archive to charts/ and remove the repository"));
        }
        Ok(folder)
    }

    /// Resolves the constraint on a subchart.
    async fn resolve(&mut self, dependency: &Dependency) -> Result<String> {
        let range = Range::parse(&dependency.version)?;
        match self.origin(dependency)? {
            Origin::Vendored => {
                self.check_vendored(dependency)?;
                Ok(dependency.version.clone())
            }
            Origin::Folder(folder) => {
                let chart = Chart::open(&folder).context(format!("cannot load {}", folder.display()))?;
                let of = format!("{} in {}", dependency.name, dependency.repository);
                range.select(&[chart.version()], &of, |version| version).map(|version| (*version).to_owned())
            }
            Origin::Repository(repository) => {
                let index = self.index(&repository).await?;
                Ok(index.select(&dependency.name, &range)?.version.clone())
            }
            Origin::Registry(chart) => chart.resolve(self.access, false, &range).await,
        }
    }

    /// Returns the index of a repository, which is downloaded once.
    async fn index(&mut self, repository: &str) -> Result<&Index> {
        let key = repository.trim_end_matches('/').to_owned();
        if !self.indices.contains_key(&key) {
            let index = Index::fetch(self.access, repository).await?;
            print_line(&format!("...Successfully got an update from the {repository:?} chart repository"));
            self.indices.insert(key.clone(), index);
        }
        Ok(&self.indices[&key])
    }

    /// Checks a subchart in `charts/`.
    fn check_vendored(&self, dependency: &Dependency) -> Result<()> {
        let path = self.folder.join("charts").join(&dependency.name);
        let chart = Chart::open(&path).context(format!("cannot load {}", path.display()));
        let chart =
            chart.map_err(|error| error.hint("set the repository of the dependency, or copy the chart there"))?;
        let range = Range::parse(&dependency.version)?;
        match range.allows(chart.version()) {
            true => Ok(()),
            false => {
                Err(Error::new(format!("{} has version {}, not {}", path.display(), chart.version(), range.text()))
                    .hint("change the version in Chart.yaml, or replace the directory"))
            }
        }
    }

    /// Downloads the locked versions, and replaces the archives in `charts/` by them.
    async fn download(&mut self, locked: &[Dependency]) -> Result<()> {
        print_line(&format!("Saving {} charts", locked.len()));
        let mut archives: BTreeMap<String, Archive> = BTreeMap::new();
        let mut keys = BTreeSet::new();
        let mut size = 0;
        for dependency in locked {
            let Dependency { name, repository, version, .. } = dependency;
            if repository.is_empty() {
                print_line(&format!(
                    "Dependency {name} did not declare a repository. Assuming it exists in the charts directory"
                ));
            } else if !keys.insert((repository, name, version)) {
                print_line(&format!("Already downloaded {name} from repo {repository}"));
                continue;
            } else if !repository.starts_with(FILE) {
                print_line(&format!("Downloading {name} from repo {repository}"));
            }
            let archive = self.fetch(dependency).await.map_err(|error| with_dependency(error, dependency))?;
            let Some(archive) = archive else { continue };
            if archive.name != *name {
                return Err(with_dependency(
                    Error::new(format!("{repository} returned chart {} instead", archive.name)),
                    dependency,
                ));
            }
            size += archive.bytes.len();
            if size > MAX_ARCHIVE_BYTES {
                let limit = MAX_ARCHIVE_BYTES >> 20;
                return Err(with_dependency(
                    Error::new(format!("all subcharts together are larger than {limit} MiB")),
                    dependency,
                ));
            }
            archives.insert(archive.file.clone(), archive);
        }
        self.replace(locked, &archives)
    }

    /// Fetches a locked version; `None` if it is in `charts/`.
    async fn fetch(&mut self, dependency: &Dependency) -> Result<Option<Archive>> {
        let Dependency { name, version, .. } = dependency;
        match self.origin(dependency)? {
            Origin::Vendored => self.check_vendored(dependency).map(|()| None),
            Origin::Folder(folder) => {
                let archive = archive::pack(&folder)?;
                match range::is_same(&archive.version, version) {
                    true => Ok(Some(archive)),
                    false => Err(Error::new(format!("{} has version {}", folder.display(), archive.version))
                        .hint(format!("flyball helm dependency update {}", self.folder.display()))),
                }
            }
            Origin::Repository(repository) => {
                let access = self.access;
                let index = self.index(&repository).await?;
                let same = index.releases(name)?.iter().find(|release| range::is_same(&release.version, version));
                let release = match same {
                    Some(release) => release,
                    None => index.select(name, &Range::parse(version)?)?,
                };
                index.download(access, name, release).await.map(Some)
            }
            Origin::Registry(chart) => chart.fetch(self.access, false, &Range::parse(version)?).await.map(Some),
        }
    }

    /// Writes the archives into `charts/`, and removes others.
    fn replace(&self, locked: &[Dependency], archives: &BTreeMap<String, Archive>) -> Result<()> {
        let charts = self.folder.join("charts");
        if !fs::symlink_metadata(&charts).is_ok_and(|found| found.is_dir()) {
            fs::create_dir(&charts).context(format!("{:?} is not a directory", charts.display().to_string()))?;
        }
        for archive in archives.values() {
            archive.save(&charts)?;
        }
        print_line("Deleting outdated charts");
        let is_vendored = |name: &str| locked.iter().any(|one| one.repository.is_empty() && one.name == name);
        for path in crate::files::generated::list(&charts)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if archives.contains_key(&*name) {
                continue;
            }
            match Chart::open(&path) {
                Err(error) => {
                    print_line(&format!("Could not verify {} for deletion: {error} (Skipping)", path.display()));
                }
                Ok(chart) if is_vendored(chart.name()) => {}
                Ok(_) => fs::remove_file(&path).context(format!("cannot delete {}", path.display()))?,
            }
        }
        Ok(())
    }
}

/// Adds the name of a subchart to an error.
fn with_dependency(error: Error, dependency: &Dependency) -> Error {
    error.within(&format!("dependency {}", dependency.name))
}

/// Returns the project that a chart belongs to: the next directory above with a project file, else the chart's parent.
fn root_of(chart: &Path) -> PathBuf {
    let is_root = |folder: &&Path| ROOTS.iter().any(|name| folder.join(name).exists());
    let parent = chart.parent().filter(|parent| parent.components().any(|part| matches!(part, Component::Normal(_))));
    chart.ancestors().find(is_root).or(parent).unwrap_or(chart).to_owned()
}
