//! The parts of a cluster that a user may not read, such as the administrator of a namespace.
//!
//! Commands do without them, and say what is missing.

use crate::error::Result;
use crate::render::terminal::{Style, one_line, paint, print_line};
use serde::Serialize;

/// The parts that were not read, each with its consequence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct Unread(Vec<String>);

impl Unread {
    /// Returns what was read. If the permission is missing, records the part, and returns an empty value.
    pub(in crate::commands) fn or_default<T: Default>(&mut self, part: &str, read: Result<T>) -> Result<T> {
        Ok(self.or_none(part, read)?.unwrap_or_default())
    }

    /// Returns what was read. If the permission is missing, records the part, and returns `None`.
    pub(in crate::commands) fn or_none<T>(&mut self, part: &str, read: Result<T>) -> Result<Option<T>> {
        match read {
            Err(error) if error.is_forbidden() => {
                self.add(part);
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    pub(super) fn add(&mut self, part: &str) {
        if !self.0.iter().any(|known| known == part) {
            self.0.push(part.to_owned());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn print(&self) {
        for part in &self.0 {
            print_line(&paint(Style::Faint, &one_line(&format!("not permitted to read {part}"))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ResultExt;
    use kube::core::Status;

    fn refused(code: u16) -> Result<usize> {
        let status = Status { code, message: "no".to_owned(), ..Status::default() };
        Err(kube::Error::Api(Box::new(status))).context("cannot list pods")
    }

    #[test]
    fn only_missing_permissions_are_tolerated() {
        let mut unread = Unread::default();
        assert_eq!(unread.or_default("pods", refused(403)).unwrap(), 0);
        assert_eq!(unread.or_none("pods", refused(403)).unwrap(), None);
        assert_eq!(unread.or_none("nodes", Ok(1)).unwrap(), Some(1));
        assert!(unread.or_none("nodes", refused(500)).is_err());
        assert_eq!(unread, Unread(vec!["pods".to_owned()]));
    }
}
