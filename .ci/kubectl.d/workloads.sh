# Workloads: scale, autoscale, expose and rollout.
create_test_namespace workloads
expect_ok created create deployment web --image=nginx:1 --replicas=2 --port=80
wait_for_output "web-* 2 " get replicasets
wait_for_output "2" get deployment web -o 'jsonpath={.status.replicas}'
expect_exit 1 "timed out waiting" rollout status deployment/web --timeout=1s
mark_pods_ready app=web
expect_ok 'successfully rolled out' rollout status deployment/web --timeout=20s
expect_ok "2/2" get deployment web
expect_ok 'deployment "web" successfully rolled out' rollout status deployment/web --watch=false

expect_ok annotate annotate deployment web kubernetes.io/change-cause=second
expect_ok "image updated" set image deployment/web nginx=nginx:2
wait_for_output "2 * second" rollout history deployment/web
expect_ok "Image: nginx:1" rollout history deployment/web --revision=1
expect_ok "nginx:2" rollout history deployment/web --revision=2 -o yaml
expect_error "unable to find the specified revision" rollout history deployment/web --revision=9
expect_ok "rolled back" rollout undo deployment/web
expect_exact "nginx:1" get deployment web -o 'jsonpath={..image}'
wait_for_output "3" rollout history deployment/web
expect_ok "rolled back" rollout undo deployment/web --to-revision=2
expect_exact "nginx:2" get deployment web -o 'jsonpath={..image}'
expect_ok "nginx" rollout undo deployment/web --to-revision=3 --dry-run=client
expect_ok "paused" rollout pause deployment/web
expect_error "already paused" rollout pause deployment/web
expect_error "can't restart paused deployment" rollout restart deployment/web
expect_error 'cannot rollback a paused deployment' rollout undo deployment/web
expect_ok "resumed" rollout resume deployment/web
expect_error "is not paused" rollout resume deployment/web
expect_ok "restarted" rollout restart deployment/web
run_kubectl get deployment web -o yaml; expect_output "kubectl.kubernetes.io/restartedAt"

expect_ok "scaled" scale deployment/web --replicas=3
expect_exact 3 get deployment web -o 'jsonpath={.spec.replicas}'
expect_ok "scaled" scale deployment web --current-replicas=3 --replicas=1
expect_error "Expected replicas to be 9, was 1" scale deployment web --current-replicas=9 --replicas=2
expect_error "Expected resource version to be 1, was " scale deployment web --resource-version=1 --replicas=2
expect_ok "scaled" scale deployment --all --replicas=2
expect_error "could not find the requested resource" scale configmap kube-root-ca.crt --replicas=2
expect_ok "autoscaled" autoscale deployment web --min=1 --max=5 --cpu-percent=70
expect_exact "1 5" get hpa web -o 'jsonpath={.spec.minReplicas} {.spec.maxReplicas}'
expect_ok "Deployment/web" get hpa
expect_ok "service/web exposed" expose deployment web --port=8080 --target-port=80
expect_exact "8080 80 web" get service web -o 'jsonpath={.spec.ports[0].port} {.spec.ports[0].targetPort} {.spec.selector.app}'
expect_ok "service/node exposed" expose service web --name=node --port=80 --type=NodePort
pod=$("$program" get pods -l app=web -o name | head -1)
expect_ok "exposed" expose "$pod" --name=one --port=80

# StatefulSets and DaemonSets.
run_kubectl create -f - <<Y
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: "db:1"}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: "agent:1"}]}
Y
expect_output "statefulset.apps/db created" "daemonset.apps/agent created"
for pod in db-0 db-1; do wait_for_output $pod get pods; mark_pods_ready app=db; done
expect_ok "roll" rollout status statefulset/db --timeout=20s
expect_ok "image updated" set image statefulset/db db=db:2
wait_for_output "2" rollout history statefulset/db
expect_ok "db:1" rollout history statefulset/db --revision=1
expect_ok "rolled back" rollout undo statefulset/db
expect_ok "scaled" scale statefulset db --replicas=0
expect_ok "restarted" rollout restart daemonset/agent
wait_for_output "1" rollout history daemonset/agent
