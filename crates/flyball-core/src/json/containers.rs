//! Visits of the lists and maps of a JSON document, without its scalars.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A visitor of a list or a map. It reads the elements with [`Containers`] of its own, or ignores them.
pub trait ContainerVisitor<'de>: Sized {
    /// Visits a list.
    fn visit_list<A: SeqAccess<'de>>(self, access: A) -> Result<(), A::Error>;

    /// Visits a map.
    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<(), A::Error>;
}

/// Deserializes a value for a [`ContainerVisitor`]; scalars are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Containers<V>(pub V);

impl<'de, V: ContainerVisitor<'de>> DeserializeSeed<'de> for Containers<V> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, V: ContainerVisitor<'de>> Visitor<'de> for Containers<V> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<(), A::Error> {
        self.0.visit_list(access)
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<(), A::Error> {
        self.0.visit_map(access)
    }
}
