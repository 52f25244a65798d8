# describe, for many kinds; events.
namespace describe
k create -f - <<Y
apiVersion: v1
kind: Event
metadata: {name: told}
involvedObject: {apiVersion: v1, kind: ConfigMap, name: settings, namespace: $ns}
type: Warning
reason: Strange
message: something is strange
lastTimestamp: 2026-01-01T00:00:00Z
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
---
apiVersion: v1
kind: LimitRange
metadata: {name: range}
spec: {limits: [{type: Container, default: {cpu: 200m}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed}
spec: {podSelector: {}, policyTypes: [Ingress]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec: {accessModes: [ReadWriteOnce], storageClassName: none-such, resources: {requests: {storage: 1Gi}}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: held}
spec: {holderIdentity: me, leaseDurationSeconds: 15}
Y
has "event/told created" "lease.coordination.k8s.io/held created"
for made in "deployment web --image=nginx:1 --port=80" "cronjob tick --image=busybox --schedule=@daily" \
  "job once --image=busybox" "service clusterip front --tcp=80" "ingress way --rule=example.com/*=front:80" \
  "quota limits --hard=secrets=5" "poddisruptionbudget guard --selector=app=web --min-available=1" \
  "secret generic login --from-literal=user=admin" "serviceaccount robot" "role reader --verb=get --resource=pods" \
  "rolebinding readers --role=reader --user=jane"; do ok created create $made; done
ok autoscaled autoscale deployment web --max=3
until_ok "web-" get pods
ok "Image: nginx:1" describe deployment web; has "RollingUpdateStrategy" "25% max unavailable" "Available"
ok "Controlled By: Deployment/web" describe replicaset -l app=web
ok "Controlled By: ReplicaSet/web" describe pods -l app=web; has "Node: <none>" "QoS Class: Burstable"
ok "Schedule: @daily" describe cronjob tick
ok "Parallelism: 1" describe job once
ok "TargetPort: 80/TCP" describe service front
ok "example.com" describe ingress way
ok "secrets" describe quota limits
ok "200m 200m" describe limitrange range
ok "Min available: 1" describe pdb guard
ok "user: 5 bytes" describe secret login; lacks admin
ok "a:" describe configmap settings
ok "Tokens:" describe serviceaccount robot
ok "pods" describe role reader
ok "User jane" describe rolebinding readers
ok "Policy Types: Ingress" describe networkpolicy closed
ok "Status: Pending" describe pvc claim
ok "Holder Identity: me" describe lease held
ok "Deployment/web" describe hpa web
ok "limits" describe namespace "$ns"
ok "Non-Resource URLs" describe clusterrole system:discovery
ok "system:masters" describe clusterrolebinding cluster-admin
ok "Value: 2000000000" describe priorityclass system-cluster-critical
ok "Name: kubernetes" describe service/kubernetes -n default
ok "Image: nginx:1" describe deployments
refused 'configmaps "none" not found' describe configmap none

ok "something is strange" events
ok "Strange" events --for=configmap/settings
ok "Strange" events --types=Warning
ok "No events found" events --for=configmap/none
ok "$ns" events -A
ok "reason: Strange" events -o yaml --types=Warning
ok "Strange" get events --field-selector=involvedObject.name=settings,type=Warning
