use super::*;
use vmgroup::simulator::{Fault, Faults};
use vmgroup::vsphere::{CloneSpec, Credentials, Error as VcenterError, ManagedObject, Vcenter};

#[tokio::test(start_paused = true)]
async fn ended_sessions_are_replaced() {
    let simulator = Simulator::new(options());
    let client = client(simulator.transport());
    client.create_folder("a").await.unwrap();
    simulator.end_sessions();
    client.create_folder("b").await.unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    client.create_folder("c").await.unwrap();
    assert_eq!((simulator.folders().len(), simulator.calls()["Login"]), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_share_one_login() {
    let simulator = Simulator::new(options());
    let client = client(simulator.transport());
    let all = || futures_util::future::join_all((0..5).map(|_| client.find_folder("a")));
    assert!(all().await.iter().all(Result::is_ok));
    simulator.end_sessions();
    assert!(all().await.iter().all(Result::is_ok));
    assert_eq!(simulator.calls()["Login"], 2);
}

#[tokio::test(start_paused = true)]
async fn rejected_credentials_are_not_disclosed() {
    let simulator = Simulator::new(options());
    let wrong = Credentials { user: "eve".into(), password: "hunter2".into(), ..Simulator::credentials() };
    let client = Client::new(wrong, Site::default(), Timing::default(), simulator.transport()).unwrap();
    let error = client.find_folder("a").await.unwrap_err();
    assert!(matches!(error, VcenterError::InvalidLogin));
    let text = format!("{error} {error:?} {client:?}");
    assert!(!text.contains("hunter2") && !text.contains("eve"), "{text}");
    assert!(client.find_folder("a").await.is_err());
    assert_eq!(simulator.calls()["Login"], 1, "an account must not be locked by trying again");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(client.find_folder("a").await.is_err());
    assert_eq!(simulator.calls()["Login"], 2);
}

#[tokio::test(start_paused = true)]
async fn unreachable_vcenter_is_named() {
    let simulator = Simulator::new(options());
    simulator.set_faults(Faults::Always(Fault::LostRequest));
    let error = client(simulator.transport()).find_folder("a").await.unwrap_err();
    assert_eq!(error.to_string(), "cannot reach vCenter at vcenter.invalid");
    let slow = Fault::Delay(Duration::from_secs(31));
    simulator.set_faults(Faults::Always(slow));
    let error = client(simulator.transport()).find_folder("a").await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "no response to RetrieveServiceContent within 30s");
}

#[tokio::test(start_paused = true)]
async fn results_are_read_by_page() {
    let simulator = Simulator::new(Options { page: 2, ..options() });
    let client = client(simulator.transport());
    let folder = client.create_folder("a").await.unwrap();
    assert!((0..7).all(|n| simulator.add_vm("a", &format!("vm-{n}"))));
    assert_eq!(client.contents(&folder).await.unwrap().vms.len(), 7);
    assert_eq!(simulator.calls()["ContinueRetrievePropertiesEx"], 3);
}

#[tokio::test(start_paused = true)]
async fn existing_folder_is_found_instead_of_created() {
    let client = client(Simulator::new(options()).transport());
    let created = client.create_folder("a").await.unwrap();
    assert_eq!(client.create_folder("a").await.unwrap(), created);
    assert_eq!(client.find_folder("a").await.unwrap(), Some(created));
    assert_eq!(client.find_folder("b").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn faults_of_tasks_are_typed() {
    let simulator = Simulator::new(options());
    let client = client(simulator.transport());
    let folder = client.create_folder("a").await.unwrap();
    let template = client.find_templates("vm-operator-template").await.unwrap().remove(0);
    let spec = CloneSpec { folder: &folder, name: "vm", hardware: Hardware { cpus: 1, memory_mib: 1024 } };
    client.clone_vm(&template, &spec).await.unwrap();
    let error = client.clone_vm(&template, &spec).await.unwrap_err();
    assert!(matches!(error, VcenterError::DuplicateName { name, object: Some(_) } if name == "vm"));
    let vm = client.contents(&folder).await.unwrap().vms.remove(0);
    let error = client.power_on(&vm.object).await.unwrap_err();
    assert_eq!(error.to_string(), "the virtual machine is poweredOn");
    let error = client.power_on(&ManagedObject::new("VirtualMachine", "vm-999")).await.unwrap_err();
    assert_eq!(error.to_string(), "VirtualMachine vm-999 does not exist");
}

#[tokio::test(start_paused = true)]
async fn missing_site_is_reported_with_the_available_ones() {
    let simulator = Simulator::new(options());
    let site = Site { datacenter: Some("dc-2".into()), ..Site::default() };
    let lost = Client::new(Simulator::credentials(), site, Timing::default(), simulator.transport()).unwrap();
    let error = lost.find_folder("a").await.unwrap_err();
    assert_eq!(error.to_string(), "name one datacenter by --datacenter or VC_DATACENTER; vCenter has dc-1");
    let site = Site { resource_pool: Some("cluster-2/Resources".into()), ..Site::default() };
    let lost = Client::new(Simulator::credentials(), site, Timing::default(), simulator.transport()).unwrap();
    let folder = lost.create_folder("a").await.unwrap();
    let spec = CloneSpec { folder: &folder, name: "vm", hardware: Hardware { cpus: 1, memory_mib: 1024 } };
    let error = lost.clone_vm(&ManagedObject::new("VirtualMachine", "vm-1"), &spec).await.unwrap_err();
    let message = "name one resource pool by --resource-pool or VC_RESOURCE_POOL; vCenter has cluster-1/Resources";
    assert_eq!(error.to_string(), message);
}

#[tokio::test]
async fn simulator_serves_a_socket() {
    let tasks = TaskTimes { clone: Duration::ZERO, power: Duration::ZERO, destroy: Duration::ZERO };
    let simulator = Simulator::new(Options { tasks, ..options() });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(simulator.clone().serve(listener));
    let credentials = Credentials { host, ..Simulator::credentials() };
    let transport = vmgroup::vsphere::https(true).unwrap();
    let client = Client::new(credentials, Site::default(), Timing::default(), transport).unwrap();
    let groups = Groups::new(client, 3);
    assert!(settle(&groups, &group(4), Goal::Present).await.is_empty());
    assert_eq!(simulator.vms().len(), 4);
    assert!(settle(&groups, &group(4), Goal::Absent).await.is_empty());
    assert_eq!(simulator.folders().len(), 0);
    server.abort();
}
