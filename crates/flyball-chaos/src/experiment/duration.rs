//! Durations in files, such as `30s`.

use flyball_core::time::{format_duration, parse_unsigned_duration};
use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::time::Duration;

pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    serializer.serialize_str(&format_duration(nanos))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_unsigned_duration(&text).ok_or_else(|| D::Error::custom("expected a duration such as 30s"))
}

pub(super) mod optional {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}
