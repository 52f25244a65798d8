//! External systems of an operator: simulators whose calls are a port, like the requests to the API server.

use crate::fault::Fault;
use crate::hub::{Hub, RESTART};
use crate::site::Port;
use flyball_cluster::Program;
use flyball_core::{Clock, Rng};
use serde_json::Value;
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// A simulated external system, created for each run.
pub trait External: Any + Send + Sync {
    /// Returns the objects in the system, by a name that is equal in all runs. Random values and times must not be
    /// part of them. They are compared with those of an undisturbed run.
    fn objects(&self) -> BTreeMap<String, Value>;
}

/// The parts of a run that an external system uses.
#[derive(Clone, Debug)]
pub struct ExternalContext {
    /// The clock, which follows tokio's time.
    pub clock: Clock,
    /// The source of randomness.
    pub rng: Rng,
}

/// Constructor of an external system, called for each run.
pub(crate) type MakeExternal = dyn Fn(&ExternalContext) -> Arc<dyn External> + Send + Sync;

/// Constructor of the program of simulated containers, called for each run.
pub(crate) type MakeProgram = dyn Fn() -> Arc<dyn Program> + Send + Sync;

/// A call of an external system that failed by an injected fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call had no effect, and the system is temporarily unavailable.
    #[error("503 Service Unavailable (injected)")]
    Unavailable,
    /// The call had its effect, but its response is lost.
    #[error("the connection was reset (injected)")]
    Lost,
    /// The system does not know the object yet, although it exists.
    #[error("404 Not Found (injected)")]
    NotFound,
}

struct CurrentRun {
    hub: Arc<Hub>,
    systems: Vec<Arc<dyn External>>,
}

thread_local! {
    /// The run of this thread: each has a thread of its own.
    static CURRENT: RefCell<Option<CurrentRun>> = const { RefCell::new(None) };
}

/// Sets the run of this thread until the guard is dropped.
pub(crate) fn enter(hub: Arc<Hub>, systems: Vec<Arc<dyn External>>) -> Guard {
    CURRENT.set(Some(CurrentRun { hub, systems }));
    Guard
}

/// Ends the run of this thread when it is dropped.
pub(crate) struct Guard;

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The systems may use the thread-local value while they are dropped.
        drop(CURRENT.take());
    }
}

/// Returns the external system of this type in the current run, for the constructor of an operator.
///
/// # Panics
///
/// Outside of a run, or if [`Explorer::external`](crate::Explorer::external) created no system of the type.
pub fn external<T: External>() -> Arc<T> {
    let found = CURRENT.with_borrow(|current| {
        let systems = current.iter().flat_map(|run| &run.systems);
        systems.cloned().find_map(|system| {
            let system: Arc<dyn Any + Send + Sync> = system;
            system.downcast::<T>().ok()
        })
    });
    found.unwrap_or_else(|| panic!("Explorer::external created no {}", std::any::type_name::<T>()))
}

impl Port {
    /// Calls an external system. Outside of a run, this only awaits the future.
    ///
    /// Simulators wrap each of their calls, so that it is a site: `external:NAME#N`. The name identifies call and
    /// object, such as `inventory.clone/web-1`.
    ///
    /// # Errors
    ///
    /// If a fault is injected.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use flyball_explore::Port;
    ///
    /// let created = Port::call("inventory.create/web-1", async { "web-1" }).await;
    /// assert_eq!(created, Ok("web-1"));
    /// # });
    /// ```
    pub async fn call<T>(name: impl Into<String>, call: impl Future<Output = T>) -> Result<T, CallError> {
        let Some(hub) = CURRENT.with_borrow(|current| current.as_ref().map(|run| run.hub.clone())) else {
            return Ok(call.await);
        };
        let (site, faults) = hub.cross(0, Self::External, name.into());
        hub.trace(format_args!("{site}"), b"");
        let flight = hub.begin_request();
        let result = perform(&hub, &faults, call).await;
        drop(flight);
        hub.trace(format_args!("{site} {}", if result.is_ok() { "ok" } else { "failed" }), b"");
        if hub.is_exhausted() {
            std::future::pending::<()>().await;
        }
        result
    }
}

/// Performs a call with faults.
async fn perform<T>(hub: &Hub, faults: &[Fault], call: impl Future<Output = T>) -> Result<T, CallError> {
    hub.latency(Duration::from_millis(1)).await;
    hub.count(false, String::new);
    for fault in faults {
        match fault {
            Fault::Delay(seconds) => wait(hub, *seconds).await,
            Fault::Fail => return Err(CallError::Unavailable),
            Fault::Absence => return Err(CallError::NotFound),
            Fault::CrashBefore => crash(hub).await,
            Fault::CrashLoop(times) => {
                hub.schedule_crashes(0, *times);
                crash(hub).await;
            }
            Fault::Terminate => hub.terminate(0),
            _ => {}
        }
    }
    let result = call.await;
    for fault in faults {
        match fault {
            Fault::DelayResponse(seconds) => wait(hub, *seconds).await,
            Fault::LoseResponse => return Err(CallError::Lost),
            Fault::CrashAfter => crash(hub).await,
            _ => {}
        }
    }
    Ok(result)
}

async fn wait(hub: &Hub, seconds: u32) {
    let time = Duration::from_secs(seconds.into());
    hub.lasts(time);
    sleep(time).await;
}

/// Crashes the operator, which never receives the response.
async fn crash(hub: &Hub) {
    hub.crash(0, RESTART);
    std::future::pending().await
}
