use super::*;

#[tokio::test(start_paused = true)]
async fn group_gets_a_folder_and_running_machines() {
    let (simulator, groups) = world();
    assert!(settle(&groups, &group(3), Goal::Present).await.is_empty());
    assert_eq!(simulator.folders(), ["default-vg-1"]);
    assert_eq!(
        names(&simulator),
        group(3).vm_names().take(3).collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    );
    for vm in simulator.vms() {
        assert!(vm.powered_on && vm.folder == "default-vg-1" && vm.cpus == 1 && vm.memory_mib == 1024, "{vm:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn converged_group_is_not_changed() {
    let (simulator, groups) = world();
    settle(&groups, &group(3), Goal::Present).await;
    let before = (simulator.vms(), simulator.calls());
    assert!(pass(&groups, &group(3), Goal::Present).await.unwrap());
    assert_eq!(simulator.vms(), before.0);
    let called: Vec<String> =
        simulator.calls().into_iter().filter(|(name, n)| before.1.get(name) != Some(n)).map(|c| c.0).collect();
    assert_eq!(called, ["FindChild", "RetrievePropertiesEx"]);
}

#[tokio::test(start_paused = true)]
async fn scaling_keeps_the_machines_with_the_lowest_numbers() {
    let (simulator, groups) = world();
    settle(&groups, &group(3), Goal::Present).await;
    let three = names(&simulator);
    settle(&groups, &group(5), Goal::Present).await;
    assert_eq!(names(&simulator).len(), 5);
    assert!(three.iter().all(|name| names(&simulator).contains(name)));
    settle(&groups, &group(2), Goal::Present).await;
    let mut first: Vec<String> = group(2).vm_names().take(2).collect();
    first.sort();
    assert_eq!(names(&simulator), first);
}

#[tokio::test(start_paused = true)]
async fn plans_describe_their_operations() {
    let (simulator, groups) = world();
    let describe = async |n: usize| groups.plan(&group(n)).await.unwrap().to_string();
    assert_eq!(describe(5).await, "creating 5 virtual machines");
    settle(&groups, &group(3), Goal::Present).await;
    assert_eq!(describe(2).await, "deleting 1 virtual machine");
    assert!(simulator.power_off(&group(3).vm_names().next().unwrap()));
    assert_eq!(describe(3).await, "powering on 1 virtual machine");
    assert_eq!(describe(9).await, "powering on 1 virtual machine, creating 6 virtual machines");
    assert_eq!(groups.plan(&group(3)).await.unwrap().running, 2);
}

#[tokio::test(start_paused = true)]
async fn powered_off_machine_is_powered_on() {
    let (simulator, groups) = world();
    settle(&groups, &group(3), Goal::Present).await;
    let before = simulator.vms();
    assert!(simulator.power_off(&before[1].name));
    settle(&groups, &group(3), Goal::Present).await;
    assert_eq!(simulator.vms(), before);
}

#[tokio::test(start_paused = true)]
async fn removed_machine_is_recreated() {
    let (simulator, groups) = world();
    settle(&groups, &group(3), Goal::Present).await;
    let before = sorted(&simulator);
    assert!(simulator.remove(&before[0].name));
    settle(&groups, &group(3), Goal::Present).await;
    assert_eq!(sorted(&simulator), before);
}

#[tokio::test(start_paused = true)]
async fn existing_machines_keep_their_size() {
    let (simulator, groups) = world();
    settle(&groups, &group(1), Goal::Present).await;
    let larger = Group { hardware: Hardware { cpus: 4, memory_mib: 8192 }, ..group(2) };
    settle(&groups, &larger, Goal::Present).await;
    let sizes: Vec<(i64, i64)> = simulator.vms().iter().map(|vm| (vm.cpus, vm.memory_mib)).collect();
    assert_eq!(sizes, [(1, 1024), (4, 8192)]);
}

#[tokio::test(start_paused = true)]
async fn at_most_three_operations_run_over_all_groups() {
    let (simulator, groups) = world();
    let many: Vec<Group> =
        (0..6).map(|n| Group { name: format!("vg-{n}"), uid: format!("uid-{n}"), ..group(4) }).collect();
    futures_util::future::join_all(many.iter().map(|g| settle(&groups, g, Goal::Present))).await;
    assert_eq!((simulator.vms().len(), simulator.peak_tasks()), (24, 3));
    futures_util::future::join_all(many.iter().map(|g| settle(&groups, g, Goal::Absent))).await;
    assert_eq!((simulator.vms().len(), simulator.folders().len(), simulator.peak_tasks()), (0, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn plan_that_waited_is_not_carried_out() {
    let tasks = TaskTimes { clone: Duration::from_secs(60), ..options().tasks };
    let simulator = Simulator::new(Options { tasks, ..options() });
    let groups = Groups::new(client(simulator.transport()), 3);
    settle(&groups, &group(3), Goal::Present).await;
    let other = Group { name: "vg-2".into(), ..group(3) };
    let (create, delete) = (groups.plan(&other).await.unwrap(), groups.plan(&group(1)).await.unwrap());
    let (created, deleted) = tokio::join!(groups.carry_out(&create), groups.carry_out(&delete));
    assert_eq!((created.unwrap(), deleted.unwrap()), (Progress::Made, Progress::Awaited));
    assert_eq!(simulator.vms().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn teardown_removes_machines_then_the_folder() {
    let (simulator, groups) = world();
    settle(&groups, &group(5), Goal::Present).await;
    let mut remaining = Vec::new();
    while !pass(&groups, &group(5), Goal::Absent).await.unwrap() {
        remaining.push((simulator.vms().len(), simulator.folders().len()));
    }
    assert_eq!(remaining, [(2, 1), (0, 1), (0, 0)]);
    assert!(pass(&groups, &group(5), Goal::Absent).await.unwrap(), "a second teardown has no operations");
}

#[tokio::test(start_paused = true)]
async fn foreign_machines_are_not_changed() {
    let (simulator, groups) = world();
    settle(&groups, &group(1), Goal::Present).await;
    assert!(simulator.add_vm("default-vg-1", "somebody-elses"));
    settle(&groups, &group(2), Goal::Present).await;
    assert_eq!(simulator.vms().len(), 3);
    settle(&groups, &group(2), Goal::Absent).await;
    assert_eq!((names(&simulator), simulator.folders().len()), (vec!["somebody-elses".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn groups_with_the_same_folder_do_not_interfere() {
    let (simulator, groups) = world();
    let one = Group { namespace: "a-b".into(), name: "c".into(), ..group(2) };
    let other = Group { namespace: "a".into(), name: "b-c".into(), ..group(3) };
    settle(&groups, &one, Goal::Present).await;
    settle(&groups, &other, Goal::Present).await;
    assert_eq!((simulator.folders(), simulator.vms().len()), (vec!["a-b-c".to_owned()], 5));
    settle(&groups, &one, Goal::Absent).await;
    assert_eq!((simulator.folders().len(), simulator.vms().len()), (1, 3));
    settle(&groups, &other, Goal::Absent).await;
    assert_eq!((simulator.folders().len(), simulator.vms().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn missing_template_is_a_permanent_error() {
    let (simulator, groups) = world();
    let wrong = Group { template: "no-such-template".into(), ..group(2) };
    let error = pass(&groups, &wrong, Goal::Present).await.unwrap_err();
    assert_eq!(error.to_string(), r#"vCenter has no template "no-such-template""#);
    assert!(error.is_permanent());
    simulator.add_template("no-such-template");
    assert!(settle(&groups, &wrong, Goal::Present).await.is_empty());
    assert_eq!(simulator.vms().len(), 2);

    let machine = simulator.vms().remove(0).name;
    assert!(simulator.remove("no-such-template") && simulator.power_off(&machine));
    let wrong = Group { replicas: 3, ..wrong };
    assert!(!pass(&groups, &wrong, Goal::Present).await.unwrap());
    assert!(simulator.vms().iter().all(|vm| vm.powered_on), "existing machines keep running");
    let plan = groups.plan(&wrong).await.unwrap();
    assert!(plan.running == 2 && plan.obstacle.is_some_and(|error| error.is_permanent()));
}

#[tokio::test(start_paused = true)]
async fn template_may_be_specified_by_path() {
    let (simulator, groups) = world();
    simulator.add_template("twice");
    settle(&groups, &Group { template: "vm-operator/twice".into(), ..group(1) }, Goal::Present).await;
    assert!(simulator.add_vm("default-vg-1", "twice"));
    let error = pass(&groups, &Group { template: "twice".into(), ..group(2) }, Goal::Present).await.unwrap_err();
    assert_eq!(error.to_string(), r#"vCenter has 2 virtual machines named "twice": specify a path"#);
}

#[tokio::test(start_paused = true)]
async fn names_invalid_in_vcenter_are_rejected_in_advance() {
    let (simulator, groups) = world();
    let error = groups.plan(&Group { name: "x".repeat(73), ..group(1) }).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().ends_with("is longer than vCenter's limit of 80 characters"));
    assert!(simulator.folders().is_empty());
}
