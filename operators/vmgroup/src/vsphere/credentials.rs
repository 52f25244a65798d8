use std::fmt;

/// Address of vCenter and credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Host, `host:port` or URL.
    pub host: String,
    /// Name of the user.
    pub user: String,
    /// Password of the user.
    pub password: String,
}

/// Required variables of [`Credentials`] that are absent or empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("missing {}; set them in the environment, from the keys of a Secret for instance", .0.join(", "))]
pub struct MissingVariables(pub Vec<&'static str>);

impl Credentials {
    /// Variables of the environment, and keys of the Secret, with the credentials.
    pub const VARIABLES: [&'static str; 3] = ["VC_HOST", "VC_USER", "VC_PASS"];

    /// Reads the credentials from the environment.
    pub fn from_env() -> Result<Self, MissingVariables> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// Reads the credentials from a source with values for [`Self::VARIABLES`], such as a Secret.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, MissingVariables> {
        // Values from files often end in a line break.
        let value = |name| lookup(name).map(|v| v.trim_end_matches(['\r', '\n']).to_owned()).filter(|v| !v.is_empty());
        match Self::VARIABLES.map(value) {
            [Some(host), Some(user), Some(password)] => Ok(Self { host, user, password }),
            found => {
                let missing = Self::VARIABLES.into_iter().zip(found).filter(|(_, value)| value.is_none());
                Err(MissingVariables(missing.map(|(name, _)| name).collect()))
            }
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("host", &self.host).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(set: &[(&str, &str)], missing: &[&str]) {
        let found = Credentials::from_lookup(|name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).into()));
        match found {
            Ok(_) => assert!(missing.is_empty()),
            Err(MissingVariables(names)) => assert_eq!(names, missing),
        }
    }

    #[test]
    fn every_missing_variable_is_named_at_once() {
        check(&[("VC_HOST", "vc"), ("VC_USER", "u"), ("VC_PASS", "p")], &[]);
        check(&[], &["VC_HOST", "VC_USER", "VC_PASS"]);
        check(&[("VC_USER", "u"), ("VC_PASS", "")], &["VC_HOST", "VC_PASS"]);
        check(&[("VC_HOST", "\n"), ("VC_USER", "u"), ("VC_PASS", "p")], &["VC_HOST"]);
    }

    #[test]
    fn debug_output_hides_user_and_password() {
        let credentials = Credentials { host: "vc".into(), user: "admin".into(), password: "secret".into() };
        assert_eq!(format!("{credentials:?}"), r#"Credentials { host: "vc", .. }"#);
    }
}
