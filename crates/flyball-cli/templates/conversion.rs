
impl TryFrom<super::{{hub}}::{{type}}> for {{type}} {
    type Error = serde_json::Error;

    /// Shows an object as it is stored. Say here what becomes of fields in which the two differ; as yet they are alike.
    fn try_from(stored: super::{{hub}}::{{type}}) -> Result<Self, Self::Error> {
        serde_json::from_value(serde_json::to_value(stored)?)
    }
}

impl TryFrom<{{type}}> for super::{{hub}}::{{type}} {
    type Error = serde_json::Error;

    /// Stores an object. What the stored version has no field for is best kept in an annotation, so that nothing is lost.
    fn try_from(shown: {{type}}) -> Result<Self, Self::Error> {
        serde_json::from_value(serde_json::to_value(shown)?)
    }
}
