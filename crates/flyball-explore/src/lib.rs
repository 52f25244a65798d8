//! Explorer of fault schedules: finds the faults that an operator does not tolerate, shrinks them, and replays them.
//!
//! An [`Explorer`] runs an operator thousands of times against a simulated control plane, each time with other faults:
//! crashes, lost responses, late and stale caches, conflicts, partitions, changes by others. A fault is injected at a
//! [`Site`] with a stable name, so that a [`Schedule`] is one line of text that repeats a run exactly. Rules judge each
//! run, see [`Oracle`].
//!
//! The crate builds on `flyball-cluster`, and uses the public API of operators only.

mod actions;
mod campaign;
mod catalog;
mod cost;
mod crossing;
mod driver;
mod evaluate;
mod exploration;
mod explorer;
mod external;
mod fault;
mod frozen;
mod history;
mod hub;
mod oracle;
mod pace;
mod port;
mod process;
mod progress_file;
mod reference;
mod report;
mod run;
mod scenario;
mod schedule;
mod search;
mod shrink;
mod site;
mod stage;
mod state;
mod stream;
mod subject;
mod trace;
mod trial;
mod webhook;
mod world;

pub use catalog::{CATALOG, CatalogEntry, InjectionMethod, table};
pub use cost::Cost;
pub use crossing::Crossing;
pub use exploration::{Budget, BudgetError, Progress};
pub use explorer::Explorer;
pub use external::{CallError, External, ExternalContext, external};
pub use fault::{Fault, FaultError};
pub use history::Actor;
pub use oracle::Oracle;
pub use process::OperatorCommand;
pub use report::{CoverageRow, Finding, Report};
pub use scenario::Scenario;
pub use schedule::{Injection, Schedule, ScheduleError};
pub use site::{Port, Site, SiteError};
pub use world::World;
