# Nodes and pods. No kubelet runs here, so exec, attach, port-forward and logs are rejected with a reason.
create_test_namespace nodes
node=$ns
run_kubectl create -f - <<Y
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "$node", "labels": {"kubernetes.io/hostname": "$node"}}}
Y
expect_output "node/$node created"
expect_ok "$node" get nodes
expect_ok cordoned cordon "$node"
expect_ok "SchedulingDisabled" get node "$node"
expect_ok "already cordoned" cordon "$node"
expect_ok uncordoned uncordon "$node"
expect_ok tainted taint node "$node" key=value:NoSchedule
expect_error "already has key taint(s) with same effect(s) and --overwrite is false" taint node "$node" key=value:NoSchedule
expect_ok modified taint node "$node" key=other:NoSchedule --overwrite
expect_ok "key=other:NoSchedule" describe node "$node"
expect_ok untainted taint node "$node" key-
expect_error "key:NoSchedule" taint node "$node" key:NoSchedule-

expect_ok created run waiting --image=nginx:1
expect_ok created run bound --image=nginx:1 --overrides="{\"spec\":{\"nodeName\":\"$node\"}}"
expect_ok "$node" get pod bound -o wide
expect_ok "" logs waiting
expect_error "does not have a host assigned" exec waiting -- date
expect_error "" attach waiting --pod-running-timeout=1s
expect_error "pod is not running. Current status=Pending" port-forward pod/waiting 8080:80
expect_error "" cp "$work/config" "$ns/waiting:/tmp/a"
expect_error "" logs bound
expect_error "" exec bound -- date
expect_error "container none is not valid for pod bound" logs bound -c none
expect_error 'pods "none" not found' logs none
expect_ok "Defaulting debug container name" debug bound --image=busybox
expect_exact "busybox" get pod bound -o 'jsonpath={.spec.ephemeralContainers[0].image}'
expect_ok "" debug bound --image=busybox --copy-to=copy
expect_ok "busybox" get pod copy -o 'jsonpath={.spec.containers[*].image}'
expect_error "Metrics API not available" top pods
expect_error "Metrics API not available" top nodes

expect_error "declare no controller (use --force to override)" drain "$node"
expect_ok "evicted" drain "$node" --force --grace-period=0 --timeout=20s; expect_output "drained"
expect_error NotFound get pod bound
expect_ok created create poddisruptionbudget guard --selector=run=guarded --min-available=1
expect_ok created run guarded --image=nginx:1 --overrides="{\"spec\":{\"nodeName\":\"$node\"}}"
mark_pods_ready run=guarded
wait_for_output "0" get pdb guard -o 'jsonpath={.status.disruptionsAllowed}'
expect_error "violate the pod's disruption budget" drain "$node" --force --grace-period=0 --timeout=2s
expect_ok "deleted" drain "$node" --force --grace-period=0 --disable-eviction --timeout=20s
expect_ok "deleted" delete node "$node"
