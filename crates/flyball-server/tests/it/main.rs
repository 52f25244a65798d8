//! Integration tests of the embedded API server, in process: no other program, no socket but for webhooks.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admission_rules;
mod architecture;
mod autoscalers;
mod bounds;
mod connections;
mod corpus;
mod crash;
mod crd_rules;
mod definitions;
mod dynamic_resources;
mod evictions;
mod facts;
mod fairness;
mod flow_control;
mod growth;
mod identity;
mod impersonation;
mod managed_fields;
mod mutations;
mod names;
mod parameters;
mod patches;
mod paths;
mod reads;
mod request_rules;
mod resizes;
mod reviews;
mod rights;
mod robustness;
mod send;
mod signing_requests;
mod storage_versions;
mod system_roles;
mod webhook;
mod webhook_responses;
