//! Install modes: the sets of target namespaces that an operator supports.

use crate::api::{InstallMode, InstallModeType};
use std::collections::BTreeMap;

/// The install modes of a ClusterServiceVersion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstallModes(BTreeMap<InstallModeType, bool>);

/// A set of target namespaces that an operator does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedModes {
    /// A mode is declared twice.
    #[error("InstallMode list contains duplicates, cannot make set: {0}")]
    Duplicate(String),
    /// There are no target namespaces.
    #[error("operatorgroup has invalid selected namespaces, cannot configure to watch zero namespaces")]
    NoTargets,
    /// All namespaces and others are targets.
    #[error("operatorgroup has invalid selected namespaces, NamespaceAll found when |selected namespaces| > 1")]
    AllAndOthers,
    /// The mode is not supported.
    #[error("{mode} InstallModeType not supported, cannot configure to watch {what}")]
    Unsupported {
        /// The required mode.
        mode: InstallModeType,
        /// The target namespaces.
        what: String,
    },
}

impl InstallModes {
    /// Reads the modes of a ClusterServiceVersion.
    ///
    /// # Errors
    ///
    /// When a mode is declared twice.
    pub fn new(modes: &[InstallMode]) -> Result<Self, UnsupportedModes> {
        let mut set = BTreeMap::new();
        for mode in modes {
            if set.insert(mode.mode, mode.supported).is_some() {
                let text = |mode: &InstallMode| format!("{{{} {}}}", mode.mode, mode.supported);
                let modes: Vec<String> = modes.iter().map(text).collect();
                return Err(UnsupportedModes::Duplicate(format!("[{}]", modes.join(" "))));
            }
        }
        Ok(Self(set))
    }

    /// Returns true if only the mode `AllNamespaces` is supported.
    pub fn is_singleton(&self) -> bool {
        self.0.iter().all(|(mode, supported)| *supported == (*mode == InstallModeType::AllNamespaces))
    }

    /// Checks that an operator in a namespace can watch the target namespaces; one empty name means all.
    ///
    /// # Errors
    ///
    /// When it cannot; the message is that of OLM.
    pub fn check(&self, namespace: &str, targets: &[String]) -> Result<(), UnsupportedModes> {
        let requires = |mode: InstallModeType, what: String| match self.0.get(&mode) {
            Some(true) => Ok(()),
            _ => Err(UnsupportedModes::Unsupported { mode, what }),
        };
        match targets {
            [] => Err(UnsupportedModes::NoTargets),
            [all] if all.is_empty() => requires(InstallModeType::AllNamespaces, "all namespaces".into()),
            [own] if own == namespace => requires(InstallModeType::OwnNamespace, "own namespace".into()),
            [_] => requires(InstallModeType::SingleNamespace, "one namespace".into()),
            many if many.iter().any(String::is_empty) => Err(UnsupportedModes::AllAndOthers),
            many => {
                requires(InstallModeType::MultiNamespace, format!("{} namespaces", many.len()))?;
                match many.iter().any(|target| target == namespace) {
                    true => requires(InstallModeType::OwnNamespace, "own namespace".into()),
                    false => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_checked_against_the_modes() {
        let mode = |mode, supported| InstallMode { mode, supported };
        let modes = InstallModes::new(&[
            mode(InstallModeType::OwnNamespace, true),
            mode(InstallModeType::SingleNamespace, false),
            mode(InstallModeType::MultiNamespace, false),
        ])
        .unwrap();
        let check = |targets: &[&str], expected: &str| {
            let targets: Vec<String> = targets.iter().map(|&target| target.to_owned()).collect();
            let answer = modes.check("own", &targets).map_or_else(|error| error.to_string(), |()| String::new());
            assert_eq!(answer, expected);
        };
        check(&["own"], "");
        check(&["other"], "SingleNamespace InstallModeType not supported, cannot configure to watch one namespace");
        check(&[""], "AllNamespaces InstallModeType not supported, cannot configure to watch all namespaces");
        check(&["own", "b"], "MultiNamespace InstallModeType not supported, cannot configure to watch 2 namespaces");
        check(&[], "operatorgroup has invalid selected namespaces, cannot configure to watch zero namespaces");
        let twice = InstallModes::new(&[mode(InstallModeType::OwnNamespace, true); 2]);
        assert!(matches!(twice, Err(UnsupportedModes::Duplicate(_))));
    }
}
