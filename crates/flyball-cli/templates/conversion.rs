
impl TryFrom<super::{{hub}}::{{type}}> for {{type}} {
    type Error = serde_json::Error;

    /// Converts from the storage version. The versions are still equal: map fields here when they differ.
    fn try_from(stored: super::{{hub}}::{{type}}) -> Result<Self, Self::Error> {
        serde_json::from_value(serde_json::to_value(stored)?)
    }
}

impl TryFrom<{{type}}> for super::{{hub}}::{{type}} {
    type Error = serde_json::Error;

    /// Converts to the storage version. Keep fields without an equivalent in an annotation, so that no data is lost.
    fn try_from(object: {{type}}) -> Result<Self, Self::Error> {
        serde_json::from_value(serde_json::to_value(object)?)
    }
}
