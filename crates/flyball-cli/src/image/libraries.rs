//! Shared libraries of a dynamically linked program on this machine, for images without a base.

use super::files::ImageFile;
use crate::error::{Error, Result, ResultExt};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Reads the loader of a program and the libraries that it loads, at their own paths.
///
/// The loader itself lists them, see <https://man7.org/linux/man-pages/man8/ld.so.8.html>.
pub(crate) fn shared_libraries(program: &Path, loader: &str) -> Result<Vec<ImageFile>> {
    let what = || format!("cannot list the libraries of {}", program.display());
    let listed = Command::new(loader).arg("--list").arg(program).output().context(what())?;
    if !listed.status.success() {
        let why = String::from_utf8_lossy(&listed.stderr).trim().to_owned();
        return Err(Error::new(format!("{}: {why}", what())).hint("use a statically linked flyball: --program FILE"));
    }
    let text = String::from_utf8_lossy(&listed.stdout);
    let mut paths: Vec<&str> = text.lines().filter_map(path_of).chain([loader]).collect();
    paths.sort_unstable();
    paths.dedup();
    let file = |path: &str| {
        let bytes = fs::read(path).context(format!("cannot read library {path}"))?;
        Ok(ImageFile { path: path.trim_start_matches('/').to_owned(), is_executable: true, bytes })
    };
    paths.into_iter().map(file).collect()
}

/// Returns the path in a line such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f…)`.
fn path_of(line: &str) -> Option<&str> {
    let path = line.split(" => ").last()?.trim().split(" (").next()?;
    path.starts_with('/').then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_libraries_are_read() {
        assert_eq!(path_of("\tlibc.so.6 => /lib/x86/libc.so.6 (0x00007f)"), Some("/lib/x86/libc.so.6"));
        assert_eq!(path_of("\t/lib64/ld-linux.so.2 (0x00007f)"), Some("/lib64/ld-linux.so.2"));
        assert_eq!(path_of("\tlinux-vdso.so.1 (0x00007f)"), None);
    }
}
