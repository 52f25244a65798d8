//! Schedules that are kept as regression tests, one on a line of `explore.txt`: a name, a colon and the schedule.

use crate::error::{Error, Result, ResultExt};
use flyball_explore::Schedule;
use flyball_files::Replace;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Name of the file, in the directory of the project.
pub(crate) const FILE: &str = "explore.txt";
/// First line of the file.
const HEAD: &str = "# Schedules of faults that `flyball explore` tries first: NAME: SCHEDULE\n";

/// Reads the schedules of a file; none if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Vec<String>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.context(format!("cannot read {}", path.display()))?,
    };
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let schedule = |(number, line): (usize, &str)| {
        let wrong = |why: String| Error::usage(format!("{} line {number}: {why}", path.display()));
        let (_, schedule) = line.split_once(": ").ok_or_else(|| wrong("expected NAME: SCHEDULE".to_owned()))?;
        schedule.parse::<Schedule>().map_err(|error| wrong(error.to_string()))?;
        Ok(schedule.to_owned())
    };
    lines.map(schedule).collect()
}

/// Adds schedules to a file, under a name and numbers. Those that it has are not added again.
pub(crate) fn add(path: &Path, name: &str, schedules: &[String]) -> Result<usize> {
    let known = read(path)?;
    let mut text = fs::read_to_string(path).unwrap_or_else(|_| HEAD.to_owned());
    let new: Vec<&String> = schedules.iter().filter(|schedule| !known.contains(schedule)).collect();
    for (number, schedule) in (1..).zip(&new) {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        text += &format!("{name}{suffix}: {schedule}\n");
    }
    if !new.is_empty() {
        Replace::default().write(path, &text).context(format!("cannot write {}", path.display()))?;
    }
    Ok(new.len())
}

/// Checks the name of a kept schedule.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !text.is_empty() && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("expected letters, digits, dashes and underscores".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::private::PrivateDirectory;

    #[test]
    fn schedules_are_kept_once() {
        let folder = PrivateDirectory::new("flyball-kept-test").unwrap();
        let path = folder.path().join(FILE);
        assert_eq!(read(&path).unwrap(), Vec::<String>::new());
        let schedules = ["default; seed=1; step:2 restart", "default; seed=1; get:pods/a#1 reset"].map(str::to_owned);
        assert_eq!(add(&path, "leak", &schedules).unwrap(), 2);
        assert_eq!(add(&path, "leak", &schedules[..1]).unwrap(), 0);
        assert_eq!(read(&path).unwrap(), schedules);
        assert!(fs::read_to_string(&path).unwrap().contains("\nleak-2: default; "));
        fs::write(&path, "leak: default; step:2 fly\n").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("fly"), "{error}");
    }
}
