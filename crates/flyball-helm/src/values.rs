//! The values that a user gives: files, and what `--set` says.

use serde_json::{Map, Value};

/// A user's values: what goes over those of the chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values {
    map: Map<String, Value>,
}

/// Why values cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ValuesError {
    /// A text is not what Helm takes.
    #[error("{0}")]
    Syntax(String),
}

impl From<Map<String, Value>> for Values {
    fn from(map: Map<String, Value>) -> Self {
        Self { map }
    }
}

impl Values {
    /// The values as they are now.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.map
    }

    /// Lays a YAML text over what is there, as `--values` does.
    ///
    /// # Errors
    /// The text is not YAML, or no mapping.
    pub fn merge_yaml(&mut self, _text: &str) -> Result<(), ValuesError> {
        Ok(())
    }

    /// Sets what an argument of `--set` says, such as `image.tag=1.2,list={a,b}`.
    ///
    /// # Errors
    /// The argument does not follow Helm's syntax.
    pub fn set(&mut self, _argument: &str) -> Result<(), ValuesError> {
        Ok(())
    }

    /// Sets texts as `--set-string` does: as [`Values::set`], but `1` and `true` stay texts.
    ///
    /// # Errors
    /// The argument does not follow Helm's syntax.
    pub fn set_string(&mut self, _argument: &str) -> Result<(), ValuesError> {
        Ok(())
    }
}
