//! Charts as `.tgz`: extracted in memory, within limits, and without files outside of the chart's directory.
//!
//! The limits apply to the whole chart: nested archives of subcharts share them.

use super::{ChartError, File};
use flate2::read::MultiGzDecoder;
use std::io::Read;
use std::sync::Arc;

/// Size limit of a file, as in Helm.
pub(super) const MAX_FILE_BYTES: u64 = 5 << 20;
/// Size limit of all files, as in Helm.
pub(super) const MAX_CHART_BYTES: u64 = 100 << 20;
/// Limit of files of a chart with its subcharts.
const MAX_FILES: usize = 50_000;

/// The remaining limits for the archives of a chart.
#[derive(Debug)]
pub(super) struct ArchiveBudget {
    bytes: u64,
    /// Size of the archives, including headers.
    raw: u64,
    files: usize,
}

impl ArchiveBudget {
    pub(super) fn new() -> Self {
        Self { bytes: MAX_CHART_BYTES, raw: MAX_CHART_BYTES * 2, files: MAX_FILES }
    }
}

pub(super) fn files(bytes: &[u8], budget: &mut ArchiveBudget) -> Result<Vec<File>, ChartError> {
    let invalid = |message: String| ChartError::Archive(message);
    let read_error = |error: std::io::Error| invalid(error.to_string());
    let mut files = Vec::new();
    let mut archive = tar::Archive::new(MultiGzDecoder::new(bytes).take(budget.raw));
    for entry in archive.entries().map_err(read_error)? {
        let mut entry = entry.map_err(read_error)?;
        budget.files = budget
            .files
            .checked_sub(1)
            .ok_or_else(|| invalid(format!("decompressed chart has more than {MAX_FILES} files")))?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let path = inner_path(&name).map_err(invalid)?;
        let size = entry.size();
        if size > budget.bytes {
            return Err(invalid(format!("decompressed chart is larger than the maximum file size {MAX_CHART_BYTES}")));
        }
        if size > MAX_FILE_BYTES {
            let message =
                format!("decompressed chart file {name:?} is larger than the maximum file size {MAX_FILE_BYTES}");
            return Err(invalid(message));
        }
        budget.bytes -= size;
        let mut data = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        entry.read_to_end(&mut data).map_err(read_error)?;
        files.push(File { path, data: without_mark(&data) });
    }
    budget.raw = archive.into_inner().limit();
    if files.is_empty() {
        return Err(invalid("no files in chart archive".to_owned()));
    }
    Ok(files)
}

/// Returns the path relative to the chart's directory.
fn inner_path(name: &str) -> Result<String, String> {
    let delimiter = if name.contains('\\') { '\\' } else { '/' };
    let mut parts = name.split(delimiter);
    if parts.next() == Some("Chart.yaml") {
        return Err("chart yaml not in base directory".to_owned());
    }
    let rest: Vec<&str> = parts.collect();
    if rest.first() == Some(&"") && rest.len() > 1 {
        return Err("chart illegally contains absolute paths".to_owned());
    }
    let mut clean: Vec<&str> = Vec::new();
    for part in rest {
        match part {
            "" | "." => {}
            ".." => {
                if clean.pop().is_none() {
                    return Err("chart illegally references parent directory".to_owned());
                }
            }
            part => clean.push(part),
        }
    }
    if clean.is_empty() {
        return Err(format!("chart illegally contains content outside the base directory: {name:?}"));
    }
    if clean[0].len() == 2 && clean[0].ends_with(':') && clean.len() > 1 {
        return Err("chart contains illegally named files".to_owned());
    }
    Ok(clean.join("/"))
}

/// Removes a byte order mark.
pub(super) fn without_mark(data: &[u8]) -> Arc<[u8]> {
    Arc::from(data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data))
}
