//! Buggy operators that the explorer must find, and their fixed twins, about which it must be silent.
//!
//! Each operator has the bug of a widely used one, is written with the ordinary API, and differs from its twin in a
//! constant. [`suite`] explores them.

mod accidental_retry;
mod empty_field;
mod finalizers;
mod forgotten_restart;
mod interrupted_resize;
mod lasting_label;
mod life_after_finalizer;
mod objects;
mod restless_status;
mod shrinking_volume;
mod stale_tombstone;
mod stuck_finalizer;
mod suite;
mod surplus_pods;
mod two_leaders;
