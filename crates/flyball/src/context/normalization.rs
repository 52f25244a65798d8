//! Values that the API server stores in another form than they were applied, such as `1000m` as `1`.

use crate::cache::StoreId;
use flyball_core::ObjectKey;
use flyball_core::json::{self, RawJson};
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Digests of applied objects and of their stored form, for objects that the API server normalizes.
#[derive(Debug, Default)]
pub(crate) struct NormalizationCache(BTreeMap<Application, (u64, u64)>);

/// The cache of an object, its key, and a subresource of it or `""`.
type Application = (StoreId, ObjectKey, &'static str);

/// Limit of entries; beyond it, the cache is cleared, which costs one request without effect for each object.
const MAX_ENTRIES: usize = 100_000;

impl NormalizationCache {
    /// Records that applying `desired` resulted in `live`.
    pub(crate) fn record(
        &mut self,
        store: StoreId,
        key: &ObjectKey,
        subresource: &'static str,
        desired: &Value,
        live: RawJson<'_>,
    ) -> serde_json::Result<()> {
        if self.0.len() >= MAX_ENTRIES {
            self.0.clear();
        }
        self.0.insert((store, key.clone(), subresource), (digest(desired), digest(&stored(desired, live)?)));
        Ok(())
    }

    /// Returns true if `live` is still the result of applying `desired`.
    pub(crate) fn contains(
        &self,
        store: StoreId,
        key: &ObjectKey,
        subresource: &'static str,
        desired: &Value,
        live: RawJson<'_>,
    ) -> bool {
        let known = self.0.get(&(store, key.clone(), subresource));
        let is_stored = |digested: u64| stored(desired, live).is_ok_and(|stored| digested == digest(&stored));
        known.is_some_and(|known| known.0 == digest(desired) && is_stored(known.1))
    }
}

/// Returns the values of `live` at the paths of `desired`.
fn stored(desired: &Value, live: RawJson<'_>) -> serde_json::Result<Value> {
    json::decode_like(live.0, desired)
}

/// Hashes a value. The hash is kept in memory only, so it may differ between releases.
fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn normalized_values_are_recognized_until_they_drift() {
        let (key, mut cache) = (ObjectKey::new(None, "a"), NormalizationCache::default());
        let desired = json!({"spec": {"cpu": "1000m"}});
        let live = |cpu: &str, status: u32| json!({"spec": {"cpu": cpu, "more": 1}, "status": status}).to_string();
        let [first, later, drifted] = [live("1", 1), live("1", 2), live("2", 1)];
        assert!(!cache.contains(0, &key, "", &desired, RawJson(&first)));
        cache.record(0, &key, "", &desired, RawJson(&first)).unwrap();
        assert!(cache.contains(0, &key, "", &desired, RawJson(&later)));
        assert!(!cache.contains(0, &key, "", &desired, RawJson(&drifted)));
        assert!(!cache.contains(0, &key, "", &json!({"spec": {"cpu": "2000m"}}), RawJson(&first)));
        assert!(!cache.contains(0, &key, "status", &desired, RawJson(&first)));
    }
}
