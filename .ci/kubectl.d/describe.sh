# describe for many kinds, and events.
create_test_namespace describe
run_kubectl create -f - <<Y
apiVersion: v1
kind: Event
metadata: {name: warning}
involvedObject: {apiVersion: v1, kind: ConfigMap, name: settings, namespace: $ns}
type: Warning
reason: Unhealthy
message: probe failed
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
expect_output "event/warning created" "lease.coordination.k8s.io/held created"
for arguments in "deployment web --image=nginx:1 --port=80" "cronjob tick --image=busybox --schedule=@daily" \
  "job once --image=busybox" "service clusterip front --tcp=80" "ingress main --rule=example.com/*=front:80" \
  "quota limits --hard=secrets=5" "poddisruptionbudget guard --selector=app=web --min-available=1" \
  "secret generic login --from-literal=user=admin" "serviceaccount robot" "role reader --verb=get --resource=pods" \
  "rolebinding readers --role=reader --user=jane"; do expect_ok created create $arguments; done
expect_ok autoscaled autoscale deployment web --max=3
wait_for_output "web-" get pods
expect_ok "Image: nginx:1" describe deployment web; expect_output "RollingUpdateStrategy" "25% max unavailable" "Available"
expect_ok "Controlled By: Deployment/web" describe replicaset -l app=web
expect_ok "Controlled By: ReplicaSet/web" describe pods -l app=web; expect_output "Node: <none>" "QoS Class: Burstable"
expect_ok "Schedule: @daily" describe cronjob tick
expect_ok "Parallelism: 1" describe job once
expect_ok "TargetPort: 80/TCP" describe service front
expect_ok "example.com" describe ingress main
expect_ok "secrets" describe quota limits
expect_ok "200m 200m" describe limitrange range
expect_ok "Min available: 1" describe pdb guard
expect_ok "user: 5 bytes" describe secret login; expect_absent admin
expect_ok "a:" describe configmap settings
expect_ok "Tokens:" describe serviceaccount robot
expect_ok "pods" describe role reader
expect_ok "User jane" describe rolebinding readers
expect_ok "Policy Types: Ingress" describe networkpolicy closed
expect_ok "Status: Pending" describe pvc claim
expect_ok "Holder Identity: me" describe lease held
expect_ok "Deployment/web" describe hpa web
expect_ok "limits" describe namespace "$ns"
expect_ok "Non-Resource URLs" describe clusterrole system:discovery
expect_ok "system:masters" describe clusterrolebinding cluster-admin
expect_ok "Value: 2000000000" describe priorityclass system-cluster-critical
expect_ok "Name: kubernetes" describe service/kubernetes -n default
expect_ok "Image: nginx:1" describe deployments
expect_error 'configmaps "none" not found' describe configmap none

expect_ok "probe failed" events
expect_ok "Unhealthy" events --for=configmap/settings
expect_ok "Unhealthy" events --types=Warning
expect_ok "No events found" events --for=configmap/none
expect_ok "$ns" events -A
expect_ok "reason: Unhealthy" events -o yaml --types=Warning
expect_ok "Unhealthy" get events --field-selector=involvedObject.name=settings,type=Warning
