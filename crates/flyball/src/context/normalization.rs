//! Values that the API server stores in another form than they were applied in, such as `1000m` as `1`.

use crate::cache::StoreId;
use crate::json::{self, Raw};
use flyball_core::ObjectKey;
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What became of values that the API server stores in other words than they were given.
#[derive(Debug, Default)]
pub(crate) struct Rephrased(BTreeMap<Place, (u64, u64)>);

/// The cache of an object, its key, and a subresource of it or `""`.
type Place = (StoreId, ObjectKey, &'static str);

/// Beyond so many objects all is forgotten, which costs each of them one request that changes nothing.
const REMEMBERED: usize = 100_000;

impl Rephrased {
    /// Remembers that applying `desired` made `live` of it.
    pub(crate) fn learn(
        &mut self,
        store: StoreId,
        key: &ObjectKey,
        subresource: &'static str,
        desired: &Value,
        live: Raw<'_>,
    ) -> serde_json::Result<()> {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert((store, key.clone(), subresource), (digest(desired), digest(&stored(desired, live)?)));
        Ok(())
    }

    /// Tells whether `live` is still what applying the same `desired` made of it.
    pub(crate) fn knows(
        &self,
        store: StoreId,
        key: &ObjectKey,
        subresource: &'static str,
        desired: &Value,
        live: Raw<'_>,
    ) -> bool {
        let known = self.0.get(&(store, key.clone(), subresource));
        let is_stored = |digested: u64| stored(desired, live).is_ok_and(|stored| digested == digest(&stored));
        known.is_some_and(|known| known.0 == digest(desired) && is_stored(known.1))
    }
}

/// Returns what stands in `live` in the places that `desired` names.
fn stored(desired: &Value, live: Raw<'_>) -> serde_json::Result<Value> {
    json::decode_like(live.0, desired)
}

/// Makes a number of a value. It is kept in memory only, so it may differ from release to release.
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
    fn rephrased_values_are_recognised_until_they_drift() {
        let (key, mut rephrased) = (ObjectKey::new(None, "a"), Rephrased::default());
        let desired = json!({"spec": {"cpu": "1000m"}});
        let live = |cpu: &str, status: u32| json!({"spec": {"cpu": cpu, "more": 1}, "status": status}).to_string();
        let [first, later, drifted] = [live("1", 1), live("1", 2), live("2", 1)];
        assert!(!rephrased.knows(0, &key, "", &desired, Raw(&first)));
        rephrased.learn(0, &key, "", &desired, Raw(&first)).unwrap();
        assert!(rephrased.knows(0, &key, "", &desired, Raw(&later)));
        assert!(!rephrased.knows(0, &key, "", &desired, Raw(&drifted)));
        assert!(!rephrased.knows(0, &key, "", &json!({"spec": {"cpu": "2000m"}}), Raw(&first)));
        assert!(!rephrased.knows(0, &key, "status", &desired, Raw(&first)));
    }
}
