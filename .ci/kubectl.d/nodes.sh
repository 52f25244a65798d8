# Nodes and pods. Nothing runs here, so what reaches into a container is refused, and says why.
namespace nodes
node=$ns
k create -f - <<Y
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "$node", "labels": {"kubernetes.io/hostname": "$node"}}}
Y
has "node/$node created"
ok "$node" get nodes
ok cordoned cordon "$node"
ok "SchedulingDisabled" get node "$node"
ok "already cordoned" cordon "$node"
ok uncordoned uncordon "$node"
ok tainted taint node "$node" key=value:NoSchedule
refused "already has key taint(s) with same effect(s) and --overwrite is false" taint node "$node" key=value:NoSchedule
ok modified taint node "$node" key=other:NoSchedule --overwrite
ok "key=other:NoSchedule" describe node "$node"
ok untainted taint node "$node" key-
refused "key:NoSchedule" taint node "$node" key:NoSchedule-

ok created run waiting --image=nginx:1
ok created run bound --image=nginx:1 --overrides="{\"spec\":{\"nodeName\":\"$node\"}}"
ok "$node" get pod bound -o wide
ok "" logs waiting
refused "does not have a host assigned" exec waiting -- date
refused "" attach waiting --pod-running-timeout=1s
refused "pod is not running. Current status=Pending" port-forward pod/waiting 8080:80
refused "" cp "$work/config" "$ns/waiting:/tmp/a"
refused "" logs bound
refused "" exec bound -- date
refused "container none is not valid for pod bound" logs bound -c none
refused 'pods "none" not found' logs none
ok "Defaulting debug container name" debug bound --image=busybox
same "busybox" get pod bound -o 'jsonpath={.spec.ephemeralContainers[0].image}'
ok "" debug bound --image=busybox --copy-to=copy
ok "busybox" get pod copy -o 'jsonpath={.spec.containers[*].image}'
refused "Metrics API not available" top pods
refused "Metrics API not available" top nodes

refused "declare no controller (use --force to override)" drain "$node"
ok "evicted" drain "$node" --force --grace-period=0 --timeout=20s; has "drained"
refused NotFound get pod bound
ok created create poddisruptionbudget guard --selector=run=guarded --min-available=1
ok created run guarded --image=nginx:1 --overrides="{\"spec\":{\"nodeName\":\"$node\"}}"
ready run=guarded
until_ok "0" get pdb guard -o 'jsonpath={.status.disruptionsAllowed}'
refused "violate the pod's disruption budget" drain "$node" --force --grace-period=0 --timeout=2s
ok "deleted" drain "$node" --force --grace-period=0 --disable-eviction --timeout=20s
ok "deleted" delete node "$node"
