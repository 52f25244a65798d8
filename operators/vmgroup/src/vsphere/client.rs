use super::session::{InvalidHost, Session, decode};
use super::wire::{ManagedObject, Properties, Traversal, property_request};
use super::{CloneSpec, Contents, Credentials, Error, Result, Transport, Vcenter, Vm};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Location of groups in vCenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Datacenter; may be absent if there is only one.
    pub datacenter: Option<String>,
    /// Folder of the groups' folders, at the top of the datacenter's virtual machines. It is created if it is missing.
    pub folder: String,
    /// Path of the resource pool that machines are cloned to, below the datacenter's hosts, such as
    /// `cluster-1/Resources`; may be absent if there is only one cluster or host.
    pub resource_pool: Option<String>,
}

impl Default for Site {
    fn default() -> Self {
        Self { datacenter: None, folder: "vm-operator".into(), resource_pool: None }
    }
}

/// Timeouts of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Timeout of a call.
    pub call: Duration,
    /// Timeout for the end of a task. The task continues afterwards.
    pub task: Duration,
    /// Polling interval of a task.
    pub poll: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { call: Duration::from_secs(30), task: Duration::from_secs(600), poll: Duration::from_millis(500) }
    }
}

/// A client of vCenter's VI/JSON API.
pub struct Client {
    session: Session,
    site: Site,
    timing: Timing,
}

impl Client {
    /// Creates a client. It connects and logs in on the first call.
    pub fn new(
        credentials: Credentials,
        site: Site,
        timing: Timing,
        transport: Transport,
    ) -> std::result::Result<Self, InvalidHost> {
        Ok(Self { session: Session::new(credentials, timing.call, transport)?, site, timing })
    }

    /// Collects properties of all objects in reach, page by page.
    async fn properties(
        &self,
        start: &ManagedObject,
        traversal: Traversal,
        properties: &[(&str, &[&str])],
    ) -> Result<Vec<Properties>> {
        const METHOD: &str = "RetrievePropertiesEx";
        let collector = &self.session.content().await?.property_collector;
        let body = property_request(start, traversal, properties);
        let mut page = self.session.call(collector, METHOD, &body).await?;
        let mut found = Vec::new();
        loop {
            for content in page["objects"].as_array().map_or(&[][..], Vec::as_slice) {
                // Skipping malformed objects could make a folder appear empty and cause its deletion.
                let malformed = || Error::Malformed { method: METHOD, what: "an object without a reference".into() };
                found.push(Properties::from_value(content).ok_or_else(malformed)?);
            }
            let Some(token) = page["token"].as_str() else { return Ok(found) };
            let body = json!({"_typeName": "ContinueRetrievePropertiesExRequestType", "token": token});
            page = self.session.call(collector, "ContinueRetrievePropertiesEx", &body).await?;
        }
    }

    /// Follows names from parent to child.
    async fn walk(&self, start: &ManagedObject, path: &[&str]) -> Result<Option<ManagedObject>> {
        const METHOD: &str = "FindChild";
        let index = &self.session.content().await?.search_index;
        let mut entity = start.clone();
        for name in path {
            let body = json!({"_typeName": "FindChildRequestType", "entity": entity, "name": name});
            match self.session.call(index, METHOD, &body).await? {
                Value::Null => return Ok(None),
                child => entity = decode(METHOD, child)?,
            }
        }
        Ok(Some(entity))
    }

    /// Finds a folder of the datacenter: the folder of its virtual machines or of its hosts.
    async fn datacenter_folder(&self, folder: &str) -> Result<ManagedObject> {
        let root = &self.session.content().await?.root_folder;
        let all = self.properties(root, Traversal::Below, &[("Datacenter", &["name", folder])]).await?;
        let named: Vec<&Properties> = match &self.site.datacenter {
            Some(name) => all.iter().filter(|d| d.text("name") == Some(name)).collect(),
            None => all.iter().collect(),
        };
        match named[..] {
            [one] => one.reference(folder),
            _ => None,
        }
        .ok_or_else(|| Error::Site {
            what: "name one datacenter by --datacenter or VC_DATACENTER",
            found: all.iter().filter_map(|d| d.text("name")).map(Into::into).collect(),
        })
    }

    async fn resource_pool(&self) -> Result<ManagedObject> {
        let hosts = self.datacenter_folder("hostFolder").await?;
        let pool = match &self.site.resource_pool {
            Some(path) => self.walk(&hosts, &segments(path)).await?.filter(|found| found.kind == "ResourcePool"),
            None => None,
        };
        if let Some(pool) = pool {
            return Ok(pool);
        }
        let all = self.properties(&hosts, Traversal::Below, &[("ComputeResource", &["name", "resourcePool"])]).await?;
        match &all[..] {
            [one] if self.site.resource_pool.is_none() => one.reference("resourcePool"),
            _ => None,
        }
        .ok_or_else(|| Error::Site {
            what: "name one resource pool by --resource-pool or VC_RESOURCE_POOL",
            found: all.iter().filter_map(|c| c.text("name")).map(|name| format!("{name}/Resources")).collect(),
        })
    }

    async fn create_child(&self, parent: &ManagedObject, name: &str) -> Result<ManagedObject> {
        const METHOD: &str = "CreateFolder";
        let body = json!({"_typeName": "CreateFolderRequestType", "name": name});
        match self.session.call(parent, METHOD, &body).await {
            Err(Error::DuplicateName { object: Some(object), .. }) if object.kind == "Folder" => Ok(object),
            response => decode(METHOD, response?),
        }
    }

    /// Starts a task and waits for its end.
    async fn run(&self, object: &ManagedObject, method: &'static str, body: Value) -> Result<()> {
        let task: ManagedObject = decode(method, self.session.call(object, method, &body).await?)?;
        tracing::debug!(%object, method, %task, "task started");
        let deadline = Instant::now() + self.timing.task;
        loop {
            let found = self.properties(&task, Traversal::Itself, &[("Task", &["info"])]).await?;
            let info = found.first().map_or(&Value::Null, |task| task.get("info"));
            match info["state"].as_str() {
                Some("success") => return Ok(()),
                Some("error") => {
                    let error = &info["error"];
                    let fault = Error::from_fault(&error["fault"], error["localizedMessage"].as_str());
                    return Err(fault.unwrap_or(Error::Malformed { method, what: "an error without a fault".into() }));
                }
                _ if Instant::now() >= deadline => return Err(Error::StillRunning { task }),
                _ => tokio::time::sleep(self.timing.poll).await,
            }
        }
    }
}

fn segments(path: &str) -> Vec<&str> {
    path.split('/').filter(|name| !name.is_empty()).collect()
}

impl Vcenter for Client {
    async fn find_folder(&self, name: &str) -> Result<Option<ManagedObject>> {
        let machines = self.datacenter_folder("vmFolder").await?;
        let found = self.walk(&machines, &[&self.site.folder, name]).await?;
        Ok(found.filter(|found| found.kind == "Folder"))
    }

    async fn create_folder(&self, name: &str) -> Result<ManagedObject> {
        let machines = self.datacenter_folder("vmFolder").await?;
        let parent = self.create_child(&machines, &self.site.folder).await?;
        self.create_child(&parent, name).await
    }

    async fn destroy_folder(&self, folder: &ManagedObject) -> Result<()> {
        self.run(folder, "Destroy_Task", json!({})).await
    }

    async fn contents(&self, folder: &ManagedObject) -> Result<Contents> {
        let properties: &[(&str, &[&str])] =
            &[("ManagedEntity", &[]), ("VirtualMachine", &["name", "runtime.powerState"])];
        let (vms, others): (Vec<Properties>, Vec<Properties>) = self
            .properties(folder, Traversal::Children, properties)
            .await?
            .into_iter()
            .partition(|child| child.object.kind == "VirtualMachine");
        let vms = vms.into_iter().map(|vm| Vm {
            name: vm.text("name").unwrap_or_default().into(),
            powered_on: vm.text("runtime.powerState") == Some("poweredOn"),
            object: vm.object,
        });
        Ok(Contents { vms: vms.collect(), others: others.len() })
    }

    async fn find_templates(&self, template: &str) -> Result<Vec<ManagedObject>> {
        let machines = self.datacenter_folder("vmFolder").await?;
        if template.contains('/') {
            let found = self.walk(&machines, &segments(template)).await?;
            return Ok(found.into_iter().filter(|found| found.kind == "VirtualMachine").collect());
        }
        let all = self.properties(&machines, Traversal::Below, &[("VirtualMachine", &["name"])]).await?;
        Ok(all.into_iter().filter(|vm| vm.text("name") == Some(template)).map(|vm| vm.object).collect())
    }

    async fn clone_vm(&self, template: &ManagedObject, spec: &CloneSpec<'_>) -> Result<()> {
        let pool = self.resource_pool().await?;
        let body = json!({
            "_typeName": "CloneVMRequestType",
            "folder": spec.folder,
            "name": spec.name,
            "spec": {
                "_typeName": "VirtualMachineCloneSpec",
                "location": {"_typeName": "VirtualMachineRelocateSpec", "pool": pool},
                "config": {
                    "_typeName": "VirtualMachineConfigSpec",
                    "numCPUs": spec.hardware.cpus,
                    "memoryMB": spec.hardware.memory_mib,
                },
                "powerOn": true,
                "template": false,
            },
        });
        self.run(template, "CloneVM_Task", body).await
    }

    async fn power_on(&self, vm: &ManagedObject) -> Result<()> {
        self.run(vm, "PowerOnVM_Task", json!({})).await
    }

    async fn power_off(&self, vm: &ManagedObject) -> Result<()> {
        self.run(vm, "PowerOffVM_Task", json!({})).await
    }

    async fn destroy_vm(&self, vm: &ManagedObject) -> Result<()> {
        self.run(vm, "Destroy_Task", json!({})).await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("site", &self.site).field("timing", &self.timing).finish_non_exhaustive()
    }
}
