//! A simulated vCenter.
//!
//! It responds to the VI/JSON requests of [`Client`](crate::vsphere::Client) like a vCenter. It is a function from
//! request to response: [`Simulator::transport`] connects it to a client in the same process, [`Simulator::serve`] to a
//! socket.
//!
//! Request → `faults` → `api` (methods) → `inventory` (state) → `collector` (responses). All other modules are plain
//! state with the time as an argument. With paused tokio time, runs are deterministic: identifiers are counted, maps
//! are sorted, and due tasks end at the next access, in the order in which they were due.

mod api;
mod collector;
mod fault;
mod inventory;
mod request;
mod response;
mod server;
mod task;

pub use fault::{Fault, Faults};
pub use inventory::SimulatedVm;
pub use task::TaskTimes;

use crate::vsphere::{Credentials, Transport};
use api::Api;
use http::{Request, Response};
use hyper::body::Bytes;
use inventory::Machine;
use parking_lot::{Mutex, MutexGuard};
use response::Problem;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service};

/// The only account.
const USER: &str = "administrator@vsphere.local";
const PASSWORD: &str = "simulated";

/// Settings of a simulated vCenter.
#[derive(Clone, Debug)]
pub struct Options {
    /// Durations of tasks.
    pub tasks: TaskTimes,
    /// Idle timeout of a session.
    pub session_idle: Duration,
    /// Page size: maximum number of objects in a response.
    pub page: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { tasks: TaskTimes::default(), session_idle: Duration::from_secs(30 * 60), page: 100 }
    }
}

/// A simulated vCenter; clones share the state.
///
/// It has one datacenter, one cluster and, in the folder `vm-operator`, the template `vm-operator-template`.
#[derive(Clone)]
pub struct Simulator(Arc<SimulatorState>);

struct SimulatorState {
    started: Instant,
    state: Mutex<State>,
}

struct State {
    api: Api,
    faults: Faults,
    calls: BTreeMap<String, u64>,
}

impl Simulator {
    /// Creates a vCenter whose clock starts now.
    pub fn new(options: Options) -> Self {
        let state = State { api: Api::new(options), faults: Faults::default(), calls: BTreeMap::new() };
        Self(Arc::new(SimulatorState { started: Instant::now(), state: Mutex::new(state) }))
    }

    /// Returns valid credentials, with a host that does not exist.
    pub fn credentials() -> Credentials {
        Credentials { host: "vcenter.invalid".into(), user: USER.into(), password: PASSWORD.into() }
    }

    /// Creates a transport to the simulator.
    pub fn transport(&self) -> Transport {
        BoxCloneSyncService::new(self.clone())
    }

    /// Injects faults into all further calls.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Ends all sessions.
    pub fn end_sessions(&self) {
        self.state().api.sessions.clear();
    }

    /// Lists the virtual machines, without templates, in the order of creation.
    pub fn vms(&self) -> Vec<SimulatedVm> {
        self.state().api.inventory.vms()
    }

    /// Lists the groups' folders.
    pub fn folders(&self) -> Vec<String> {
        self.state().api.inventory.group_folders()
    }

    /// Powers a machine off, independently of the operator; returns true if it exists.
    pub fn power_off(&self, vm: &str) -> bool {
        let inventory = &mut self.state().api.inventory;
        inventory.vm(vm).map(|vm| inventory.set_power(&vm, false)).is_some()
    }

    /// Removes a machine or template, independently of the operator; returns true if it exists.
    pub fn remove(&self, vm: &str) -> bool {
        let inventory = &mut self.state().api.inventory;
        inventory.vm(vm).map(|vm| inventory.remove(&vm)).is_some()
    }

    /// Adds a template.
    pub fn add_template(&self, name: &str) {
        self.state().api.inventory.add_template(name);
    }

    /// Adds a foreign virtual machine to a group's folder; returns true if the folder exists.
    pub fn add_vm(&self, folder: &str, name: &str) -> bool {
        let machine = Machine { powered_on: true, template: false, cpus: 1, memory_mib: 512 };
        let inventory = &mut self.state().api.inventory;
        inventory.folder(folder).is_some_and(|folder| inventory.create_vm(&folder, name, machine).is_ok())
    }

    /// Returns the number of calls by method.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.state().calls.clone()
    }

    /// Returns the maximum number of tasks that ran concurrently.
    pub fn peak_tasks(&self) -> usize {
        self.state().api.tasks.peak()
    }

    /// Locks the state and applies finished tasks.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.state.lock();
        state.api.advance(self.0.started.elapsed());
        state
    }

    async fn respond(self, request: Request<Bytes>) -> Result<Response<Bytes>, BoxError> {
        let fault = {
            let mut state = self.state();
            let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            *state.calls.entry(method).or_default() += 1;
            state.faults.next()
        };
        match fault {
            None => Ok(self.handle(&request)),
            Some(Fault::LostRequest) => Err("connection reset before the request arrived".into()),
            Some(Fault::LostResponse) => {
                self.handle(&request);
                Err("connection reset before the response arrived".into())
            }
            Some(Fault::Status(status)) => Ok(response::status(status)),
            Some(Fault::Rejection(name)) => Ok(response::fault(&Problem::Named(name))),
            Some(Fault::FailedTask(name)) => {
                self.state().api.tasks.fail_next(Some(name));
                let response = self.handle(&request);
                self.state().api.tasks.fail_next(None);
                Ok(response)
            }
            Some(Fault::EndOfSessions) => {
                self.end_sessions();
                Ok(self.handle(&request))
            }
            Some(Fault::Delay(delay)) => {
                let response = self.handle(&request);
                tokio::time::sleep(delay).await;
                Ok(response)
            }
        }
    }

    fn handle(&self, request: &Request<Bytes>) -> Response<Bytes> {
        self.state().api.handle(self.0.started.elapsed(), request)
    }
}

impl Service<Request<Bytes>> for Simulator {
    type Response = Response<Bytes>;
    type Error = BoxError;
    type Future = futures_util::future::BoxFuture<'static, Result<Response<Bytes>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin(self.clone().respond(request))
    }
}
