//! Ansible operators on control planes that run in the tests themselves.

mod failures;
mod memcached;
mod project;
mod shop;
mod visitors;
mod watches;
