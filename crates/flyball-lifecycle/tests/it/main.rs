//! Tests against what OLM does: the choices of its resolver, its protocol, its API and its controllers.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may panic, and print differences")]

mod aggregation;
mod architecture;
mod behavior;
mod conversion;
mod crash_points;
mod crashes;
mod diagnosis;
mod extension;
mod fixture;
mod groups;
mod grpc;
mod images;
mod install;
mod interleaving;
mod large;
mod old_packages;
mod plans;
mod problems;
mod reconnection;
mod recorded;
mod rights;
mod rollback;
mod rollout;
mod servers;
mod shared_definitions;
mod shared_objects;
mod subscriptions;
mod tenant;
mod upgrade;
mod walks;
mod webhooks;
