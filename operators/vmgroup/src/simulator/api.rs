use super::collector::collect;
use super::inventory::{Inventory, Machine};
use super::request::{CloneVm, ContinueRetrieveProperties, CreateFolder, FindChild, Login, RetrieveProperties};
use super::response::{self, Problem};
use super::task::{Effect, Tasks};
use super::{Options, PASSWORD, USER};
use crate::vsphere::ManagedObject;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const SESSION_HEADER: HeaderName = HeaderName::from_static("vmware-api-session-id");

/// Maximum number of incomplete paged responses.
const OPEN_PAGES: usize = 100;

/// The methods and the login sessions.
#[derive(Debug)]
pub(super) struct Api {
    options: Options,
    pub(super) inventory: Inventory,
    pub(super) tasks: Tasks,
    /// Sessions by key, with the time of their last call.
    pub(super) sessions: BTreeMap<String, Duration>,
    /// The remaining pages of responses, by the number in their token.
    pages: BTreeMap<u64, Vec<Value>>,
    issued: u64,
}

/// The reason of a rejected call.
enum Rejection {
    Status(StatusCode),
    Fault(Problem),
}

impl From<Problem> for Rejection {
    fn from(problem: Problem) -> Self {
        Self::Fault(problem)
    }
}

impl From<serde_json::Error> for Rejection {
    fn from(_: serde_json::Error) -> Self {
        Self::Status(StatusCode::BAD_REQUEST)
    }
}

impl Api {
    pub(super) fn new(options: Options) -> Self {
        let tasks = Tasks::new(options.tasks);
        Self {
            options,
            inventory: Inventory::new(),
            tasks,
            sessions: BTreeMap::new(),
            pages: BTreeMap::new(),
            issued: 0,
        }
    }

    /// Advances the state to a time.
    pub(super) fn advance(&mut self, now: Duration) {
        self.tasks.advance(&mut self.inventory, now);
    }

    /// Handles a request: `POST /sdk/vim25/{release}/{type}/{id}/{method}`.
    pub(super) fn handle(&mut self, now: Duration, request: &Request<Bytes>) -> Response<Bytes> {
        let path: Vec<&str> = request.uri().path().split('/').collect();
        let response = match path[..] {
            ["", "sdk", "vim25", _, kind, id, method] if request.method() == Method::POST => {
                self.call(now, &ManagedObject::new(kind, id), method, request)
            }
            _ => Err(Rejection::Status(StatusCode::NOT_FOUND)),
        };
        response.unwrap_or_else(|rejection| match rejection {
            Rejection::Status(status) => response::status(status),
            Rejection::Fault(problem) => response::fault(&problem),
        })
    }

    fn call(
        &mut self,
        now: Duration,
        object: &ManagedObject,
        method: &str,
        request: &Request<Bytes>,
    ) -> Result<Response<Bytes>, Rejection> {
        let body = request.body().as_ref();
        let value = match (object.kind.as_str(), method) {
            ("ServiceInstance", "RetrieveServiceContent") => self.service_content(),
            ("SessionManager", "Login") => return self.log_in(now, &serde_json::from_slice(body)?),
            (kind, method) => {
                self.check_session(now, request.headers())?;
                self.call_in_session(now, kind, object, method, body)?
            }
        };
        Ok(response::value(&value))
    }

    fn call_in_session(
        &mut self,
        now: Duration,
        kind: &str,
        object: &ManagedObject,
        method: &str,
        body: &[u8],
    ) -> Result<Value, Rejection> {
        let inventory = &mut self.inventory;
        Ok(match (kind, method) {
            ("PropertyCollector", "RetrievePropertiesEx") => {
                let request: RetrieveProperties = serde_json::from_slice(body)?;
                let mut found = Vec::new();
                for filter in &request.spec_set {
                    found.extend(collect(inventory, &self.tasks, filter)?);
                }
                self.page(found)
            }
            ("PropertyCollector", "ContinueRetrievePropertiesEx") => {
                let request: ContinueRetrieveProperties = serde_json::from_slice(body)?;
                let page = request.token.strip_prefix("page-").and_then(|number| number.parse().ok());
                let rest =
                    page.and_then(|number| self.pages.remove(&number)).ok_or(Problem::Named("InvalidProperty"))?;
                self.page(rest)
            }
            ("SearchIndex", "FindChild") => {
                let request: FindChild = serde_json::from_slice(body)?;
                inventory.get(&request.entity)?;
                json!(inventory.child(&request.entity, &request.name).map(|child| &child.object))
            }
            ("Folder", "CreateFolder") => {
                let request: CreateFolder = serde_json::from_slice(body)?;
                json!(inventory.create_folder(object, &request.name)?)
            }
            ("VirtualMachine", "CloneVM_Task") => self.clone_vm(now, object, serde_json::from_slice(body)?)?,
            ("VirtualMachine", "PowerOnVM_Task") => {
                json!(self.tasks.start(inventory, now, object, Effect::Power { on: true })?)
            }
            ("VirtualMachine", "PowerOffVM_Task") => {
                json!(self.tasks.start(inventory, now, object, Effect::Power { on: false })?)
            }
            ("VirtualMachine" | "Folder", "Destroy_Task") => {
                json!(self.tasks.start(inventory, now, object, Effect::Destroy)?)
            }
            _ => return Err(Rejection::Status(StatusCode::NOT_FOUND)),
        })
    }

    fn service_content(&self) -> Value {
        let singleton = |kind, id| json!(ManagedObject::new(kind, id));
        json!({
            "_typeName": "ServiceContent",
            "rootFolder": self.inventory.root(),
            "propertyCollector": singleton("PropertyCollector", "propertyCollector"),
            "about": {
                "_typeName": "AboutInfo",
                "name": "VMware vCenter Server",
                "fullName": "VMware vCenter Server 8.0.1 (simulated)",
                "vendor": "Flyball",
                "version": "8.0.1",
                "build": "0",
                "osType": "linux-x64",
                "productLineId": "vpx",
                "apiType": "VirtualCenter",
                "apiVersion": "8.0.1.0",
            },
            "sessionManager": singleton("SessionManager", "SessionManager"),
            "searchIndex": singleton("SearchIndex", "SearchIndex"),
        })
    }

    fn log_in(&mut self, now: Duration, login: &Login) -> Result<Response<Bytes>, Rejection> {
        if (login.user_name.as_str(), login.password.as_str()) != (USER, PASSWORD) {
            return Err(Problem::Named("InvalidLogin").into());
        }
        let key = self.issue("session");
        let user = json!({"_typeName": "UserSession", "key": key, "userName": USER, "fullName": USER});
        let mut response = response::value(&user);
        response.headers_mut().extend(HeaderValue::try_from(&key).map(|key| (SESSION_HEADER, key)));
        self.sessions.insert(key, now);
        Ok(response)
    }

    fn check_session(&mut self, now: Duration, headers: &HeaderMap) -> Result<(), Rejection> {
        let idle = self.options.session_idle;
        self.sessions.retain(|_, last| now.saturating_sub(*last) <= idle);
        let key = headers.get(SESSION_HEADER).and_then(|key| key.to_str().ok());
        let last = key.and_then(|key| self.sessions.get_mut(key)).ok_or(Problem::Named("NotAuthenticated"))?;
        *last = now;
        Ok(())
    }

    /// Returns the first page of objects, and stores the rest for further requests.
    fn page(&mut self, mut objects: Vec<Value>) -> Value {
        let rest = objects.split_off(self.options.page.max(1).min(objects.len()));
        let mut page = json!({"_typeName": "RetrieveResult", "objects": objects});
        if !rest.is_empty() {
            page["token"] = self.issue("page").into();
            self.pages.insert(self.issued, rest);
            if self.pages.len() > OPEN_PAGES {
                self.pages.pop_first();
            }
        }
        page
    }

    fn clone_vm(&mut self, now: Duration, source: &ManagedObject, request: CloneVm) -> Result<Value, Rejection> {
        let CloneVm { folder, name, spec } = request;
        let source_vm =
            self.inventory.get(source)?.machine.clone().ok_or(Rejection::Status(StatusCode::BAD_REQUEST))?;
        self.inventory.get(&folder)?;
        match &spec.location.pool {
            Some(pool) => self.inventory.get(pool).map(|_| ())?,
            None if source_vm.template => return Err(Problem::Named("InvalidArgument").into()),
            None => {}
        }
        let machine = Machine {
            powered_on: spec.power_on,
            template: spec.template,
            cpus: spec.config.cpus.unwrap_or(source_vm.cpus),
            memory_mib: spec.config.memory_mib.unwrap_or(source_vm.memory_mib),
        };
        Ok(json!(self.tasks.start(&self.inventory, now, source, Effect::Clone { folder, name, machine })?))
    }

    fn issue(&mut self, what: &str) -> String {
        self.issued += 1;
        format!("{what}-{}", self.issued)
    }
}
