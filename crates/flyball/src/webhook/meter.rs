//! Decoding of typed objects with limited memory.
//!
//! A typed object may be far larger than its text: `{}` in a list of volumes takes 3 KiB, since all kinds of volumes
//! are fields of one struct. The types are the operator's, so no factor is right for all of them. Instead, a
//! deserializer around that of the object sees the type of each value before it is decoded, and charges its size.
//!
//! Sizes are upper bounds for types that derive their `Deserialize`. Values that serde buffers, for flattened fields
//! and for untagged and internally tagged enums, are charged for each map and list in them: their types are not known
//! while they are read.

use serde::de::{Deserialize, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde_json::Value;
use std::any::type_name;
use std::cell::Cell;
use std::fmt;

/// Overhead of an allocation, in bytes.
const ALLOCATION_BYTES: usize = 32;
/// Size of an unknown type, with its share of the list that contains it. It cannot be much smaller: the largest types
/// of Kubernetes' API in lists have 3.4 KiB (`PersistentVolume`) and 3.2 KiB (`Volume`), and `{}` is one of them.
const UNKNOWN_TYPE_BYTES: usize = 4 << 10;
/// Minimum capacity of a list, if its items are not large.
const MIN_LIST_CAPACITY: usize = 4;
/// Size of a growing list in relation to its items: the previous buffer is half as large as the next one.
const GROWTH: usize = 3;
/// Number of entries in the first node of a map, with its header.
const FIRST_ENTRIES: usize = 12;
/// Size of a growing map in relation to its entries.
const MAP_GROWTH: usize = 4;

/// The memory that a review uses, and its limit.
#[derive(Debug)]
pub(super) struct Meter {
    limit: Cell<usize>,
    /// The limit for objects that follow those of the request.
    limit_with_old: usize,
    used: Cell<usize>,
    peak: Cell<usize>,
    is_exceeded: Cell<bool>,
}

/// The limit of memory is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object takes too much memory")]
pub(super) struct MemoryLimitExceeded;

impl Meter {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: Cell::new(limit),
            limit_with_old: limit,
            used: Cell::new(0),
            peak: Cell::new(0),
            is_exceeded: Cell::new(false),
        }
    }

    /// Raises the limit once [`begin_old`](Self::begin_old) is called.
    pub(super) fn with_old(self, limit_with_old: usize) -> Self {
        Self { limit_with_old, ..self }
    }

    /// Begins to charge a stored object, whose memory does not count for the limit of others.
    pub(super) fn begin_old(&self) {
        self.limit.set(self.limit_with_old);
    }

    /// Charges a number of bytes.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), MemoryLimitExceeded> {
        let used = self.used.get().saturating_add(bytes);
        if used > self.limit.get() {
            self.is_exceeded.set(true);
            return Err(MemoryLimitExceeded);
        }
        self.used.set(used);
        self.peak.set(self.peak.get().max(used));
        Ok(())
    }

    /// Runs a function that frees its memory, except for its result.
    pub(super) fn temporarily<T>(&self, run: impl FnOnce() -> T) -> T {
        let before = self.used.get();
        let result = run();
        self.used.set(before);
        result
    }

    /// Returns the bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used.get()
    }

    /// Returns the largest number of bytes that were in use.
    pub(super) fn peak(&self) -> usize {
        self.peak.get()
    }

    /// Returns true if a charge failed, even if its error was ignored.
    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// Decodes a value.
    pub(super) fn decode<'de, T: Deserialize<'de>>(&self, value: &'de Value) -> serde_json::Result<T> {
        MeteredPart::new(self, value).weigh(size_of::<T>())?;
        T::deserialize(MeteredPart { known: size_of::<T>(), ..MeteredPart::new(self, value) })
    }
}

/// A part of serde's data model that charges a meter.
struct MeteredPart<'m, I> {
    meter: &'m Meter,
    inner: I,
    /// Size of the value to decode, as charged: a larger one is in a box.
    known: usize,
    /// True within a value that is buffered or that describes itself.
    is_within_any: bool,
    /// Bytes to charge for a list or map.
    container: usize,
    /// Number of items or entries.
    count: usize,
    is_map: bool,
}

impl<'m, I> MeteredPart<'m, I> {
    fn new(meter: &'m Meter, inner: I) -> Self {
        Self { meter, inner, known: 0, is_within_any: false, container: 0, count: 0, is_map: false }
    }

    /// Replaces the inner part.
    fn with<J>(&self, inner: J) -> MeteredPart<'m, J> {
        let Self { meter, known, is_within_any, container, count, is_map, .. } = *self;
        MeteredPart { meter, inner, known, is_within_any, container, count, is_map }
    }

    /// Replaces the inner part by one that decodes a value of type `T`.
    fn of<T, J>(&self, inner: J) -> MeteredPart<'m, J> {
        MeteredPart { known: size_of::<T>(), container: 0, count: 0, is_map: false, ..self.with(inner) }
    }

    fn weigh<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        self.meter.charge(bytes).map_err(E::custom)
    }

    fn split(self) -> (I, MeteredPart<'m, ()>) {
        let rest = self.with(());
        (self.inner, rest)
    }
}

/// Forwards methods of a deserializer. A value that is larger than the one that contains it is in a box.
macro_rules! deserialize {
    ($($method:ident($($name:ident: $type:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.visitor(visitor, stringify!($method))?;
            self.inner.$method($($name,)* visitor)
        }
    )*};
}

impl<'m, D> MeteredPart<'m, D> {
    fn visitor<'de, V: Visitor<'de>, E: serde::de::Error>(
        &self,
        visitor: V,
        method: &str,
    ) -> Result<MeteredPart<'m, V>, E> {
        let size = size_of::<V::Value>();
        if size > self.known {
            self.weigh::<E>(size + ALLOCATION_BYTES)?;
        }
        let is_any = method == "deserialize_any";
        // The tree of a value is charged by its entries and items.
        let is_tree = type_name::<V::Value>() == type_name::<Value>();
        Ok(MeteredPart {
            known: self.known.max(size),
            container: if is_any && self.is_within_any && !is_tree { UNKNOWN_TYPE_BYTES } else { 0 },
            is_within_any: self.is_within_any || is_any,
            is_map: method == "deserialize_map" || is_any,
            ..self.with(visitor)
        })
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for MeteredPart<'_, D> {
    type Error = D::Error;

    deserialize! {
        deserialize_any(); deserialize_bool(); deserialize_char(); deserialize_str(); deserialize_string();
        deserialize_i8(); deserialize_i16(); deserialize_i32(); deserialize_i64(); deserialize_i128();
        deserialize_u8(); deserialize_u16(); deserialize_u32(); deserialize_u64(); deserialize_u128();
        deserialize_f32(); deserialize_f64(); deserialize_bytes(); deserialize_byte_buf(); deserialize_option();
        deserialize_unit(); deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str); deserialize_seq(); deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize); deserialize_map();
        deserialize_struct(name: &'static str, fields: &'static [&'static str]);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier(); deserialize_ignored_any();
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Forwards methods of a visitor for values of fixed size.
macro_rules! visit {
    ($($method:ident($type:ty);)*) => {$(
        fn $method<E: serde::de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

/// Forwards methods of a visitor for values with a length.
macro_rules! visit_text {
    ($($method:ident($type:ty);)*) => {$(
        fn $method<E: serde::de::Error>(self, value: $type) -> Result<V::Value, E> {
            // Names of fields become numbers.
            if size_of::<V::Value>() >= size_of::<&str>() {
                self.weigh::<E>(value.len() + ALLOCATION_BYTES)?;
            }
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for MeteredPart<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool(bool); visit_char(char); visit_f32(f32); visit_f64(f64);
        visit_i8(i8); visit_i16(i16); visit_i32(i32); visit_i64(i64); visit_i128(i128);
        visit_u8(u8); visit_u16(u16); visit_u32(u32); visit_u64(u64); visit_u128(u128);
    }

    visit_text! {
        visit_str(&str); visit_borrowed_str(&'de str); visit_string(String);
        visit_bytes(&[u8]); visit_borrowed_bytes(&'de [u8]); visit_byte_buf(Vec<u8>);
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let (visitor, rest) = self.split();
        visitor.visit_some(rest.with(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let (visitor, rest) = self.split();
        visitor.visit_newtype_struct(rest.with(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.weigh::<A::Error>(self.container)?;
        let (visitor, rest) = self.split();
        visitor.visit_seq(rest.with(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.weigh::<A::Error>(self.container)?;
        let (visitor, rest) = self.split();
        visitor.visit_map(rest.with(entries))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        let (visitor, rest) = self.split();
        visitor.visit_enum(rest.with(variant))
    }
}

// The length of a list is unknown: it grows by items that are charged.
impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for MeteredPart<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let growth = if self.count == 0 && size_of::<S::Value>() <= 1024 { MIN_LIST_CAPACITY } else { GROWTH };
        let seed = self.of::<S::Value, _>(ChargedSeed { seed, bytes: growth * size_of::<S::Value>() });
        self.count += 1;
        self.inner.next_element_seed(seed)
    }
}

// Fields of a struct are part of it, entries of a map are not.
impl<'de, A: MapAccess<'de>> MapAccess<'de> for MeteredPart<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let bytes = self.entry::<S::Value>();
        self.inner.next_key_seed(self.of::<S::Value, _>(ChargedSeed { seed, bytes }))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let bytes = self.entry::<S::Value>();
        self.count += 1;
        let seed = self.of::<S::Value, _>(ChargedSeed { seed, bytes });
        self.inner.next_value_seed(seed)
    }
}

impl<A> MeteredPart<'_, A> {
    /// Returns the bytes that a key or value of this type adds to a map.
    fn entry<T>(&self) -> usize {
        match self.count {
            _ if !self.is_map => 0,
            0 => FIRST_ENTRIES * size_of::<T>(),
            _ => MAP_GROWTH * size_of::<T>(),
        }
    }
}

/// A seed that charges a value before it decodes it, if there is one.
struct ChargedSeed<S> {
    seed: S,
    bytes: usize,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for MeteredPart<'_, ChargedSeed<S>> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.weigh::<D::Error>(self.inner.bytes)?;
        let (charged, rest) = self.split();
        charged.seed.deserialize(rest.with(deserializer))
    }
}

impl<'de, 'm, A: EnumAccess<'de>> EnumAccess<'de> for MeteredPart<'m, A> {
    type Error = A::Error;
    type Variant = MeteredPart<'m, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (access, rest) = self.split();
        let (value, variant) = access.variant_seed(rest.of::<S::Value, _>(ChargedSeed { seed, bytes: 0 }))?;
        Ok((value, rest.with(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for MeteredPart<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let (access, rest) = self.split();
        access.newtype_variant_seed(rest.of::<S::Value, _>(ChargedSeed { seed, bytes: 0 }))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let (access, rest) = self.split();
        access.tuple_variant(len, rest.with(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let (access, rest) = self.split();
        access.struct_variant(fields, rest.with(visitor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};
    use serde::Deserialize;
    use serde_json::json;
    use std::collections::{BTreeMap, HashMap};

    /// Decodes a value, and returns the memory that was charged.
    fn charged<T: serde::de::DeserializeOwned>(value: &Value) -> usize {
        let meter = Meter::new(usize::MAX);
        meter.decode::<T>(value).unwrap();
        meter.peak()
    }

    fn many(item: &Value) -> Value {
        vec![item.clone(); 1000].into()
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Flat {
        #[serde(flatten)]
        spec: PodSpec,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i32),
        Spec(Box<PodSpec>),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "type")]
    enum Tagged {
        Spec { pod: Box<PodSpec> },
        Empty,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    enum External {
        Unit,
        One(Box<Container>),
        Pair(u8, char),
        Fields { a: Option<u8>, b: Option<String> },
    }

    #[test]
    fn charges_cover_the_sizes_of_typed_values() {
        let volumes = json!({"containers": [], "volumes": many(&json!({"name": ""}))});
        let least = 1000 * size_of::<Volume>();
        assert!(charged::<PodSpec>(&volumes) >= least);
        assert!(charged::<Flat>(&volumes) >= least, "flattened");
        assert!(charged::<Either>(&volumes) >= least, "untagged");
        let empty_volumes = json!({"containers": [], "volumes": many(&json!({}))});
        assert!(charged::<Flat>(&empty_volumes) >= least, "flattened, without entries");
        assert!(charged::<Tagged>(&json!({"type": "Spec", "pod": volumes})) >= least, "tagged");
        let empty = many(&json!({}));
        assert!(charged::<Vec<Option<PodSpec>>>(&many(&Value::Null)) >= 1000 * size_of::<PodSpec>(), "null");
        assert!(charged::<Vec<Box<PodSpec>>>(&empty) >= 1000 * size_of::<PodSpec>(), "boxed");
        assert!(charged::<Vec<Option<Box<PodSpec>>>>(&empty) >= 1000 * size_of::<PodSpec>(), "optional and boxed");
        let externals = many(&json!({"One": {"name": ""}}));
        assert!(charged::<Vec<External>>(&externals) >= 1000 * size_of::<Container>(), "boxed in a variant");
        let map: Value = (0..1000).map(|n| (n.to_string(), json!({}))).collect::<serde_json::Map<_, _>>().into();
        assert!(charged::<BTreeMap<String, PodSpec>>(&map) >= 2000 * size_of::<PodSpec>());
        assert!(charged::<HashMap<String, PodSpec>>(&map) >= 2000 * size_of::<PodSpec>());
        assert!(charged::<Vec<BTreeMap<String, u8>>>(&many(&json!({"a": 1}))) >= 1000 * 11 * 24, "nodes of maps");
        assert!(charged::<Value>(&many(&json!({"a": 1}))) >= 1000 * 640, "trees");
    }

    #[test]
    fn decoding_stops_at_the_limit() {
        let meter = Meter::new(1 << 20);
        let volumes = json!({"spec": {"containers": [], "volumes": many(&json!({}))}});
        let error = meter.decode::<Pod>(&volumes).unwrap_err();
        assert!(error.to_string().contains("too much memory") && meter.is_exceeded(), "{error}");
        assert!(meter.peak() <= 1 << 20);
        assert_eq!(meter.temporarily(|| meter.charge(1 << 21)), Err(MemoryLimitExceeded));
    }

    #[test]
    fn metered_values_equal_others() {
        fn check<T: serde::de::DeserializeOwned + PartialEq + fmt::Debug>(value: &Value) {
            let plain = T::deserialize(value).map_err(|error| error.to_string());
            let metered = Meter::new(usize::MAX).decode::<T>(value).map_err(|error| error.to_string());
            assert_eq!(metered, plain, "{value}");
        }
        let port = json!({"containerPort": 80, "protocol": "TCP"});
        let probe = json!({"httpGet": {"port": "http"}, "periodSeconds": 3});
        let container = json!({"name": "a", "ports": [port], "readinessProbe": probe, "unknown": [{}],
            "resources": {"limits": {"cpu": "1"}}});
        let spec = json!({"containers": [container], "nodeSelector": {"a": "b"}, "hostNetwork": true});
        let fields = json!({"f:metadata": {".": {}, "f:name": {}}});
        let metadata = json!({"name": "p", "managedFields": [{"manager": "m", "fieldsV1": fields}]});
        check::<Pod>(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}));
        check::<Pod>(&json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": 1}}));
        check::<Pod>(&json!({"apiVersion": "v2", "kind": "Pod"}));
        check::<Flat>(&spec);
        check::<Either>(&spec);
        check::<Either>(&json!(7));
        check::<Tagged>(&json!({"type": "Spec", "pod": spec}));
        check::<Tagged>(&json!({"type": "Empty"}));
        check::<Tagged>(&json!({"type": "Other"}));
        for value in [
            json!("Unit"),
            json!({"One": container}),
            json!({"Pair": [1, "x"]}),
            json!({"Pair": [1]}),
            json!({"Fields": {"a": 1, "b": null}}),
            json!({"Fields": [1, "b"]}),
        ] {
            check::<External>(&value);
        }
        check::<(u8, Option<f64>, BTreeMap<i32, bool>)>(&json!([1, 0.5, {"7": true}]));
        check::<[u8; 2]>(&json!([1, 2, 3]));
        check::<Value>(&metadata);
    }
}
