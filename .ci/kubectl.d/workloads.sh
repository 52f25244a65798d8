# Workloads: scale, autoscale, expose, rollout.
namespace workloads
ok created create deployment web --image=nginx:1 --replicas=2 --port=80
until_ok "web-* 2 " get replicasets
until_ok "2" get deployment web -o 'jsonpath={.status.replicas}'
exits 1 "timed out waiting" rollout status deployment/web --timeout=1s
ready app=web
ok 'successfully rolled out' rollout status deployment/web --timeout=20s
ok "2/2" get deployment web
ok 'deployment "web" successfully rolled out' rollout status deployment/web --watch=false

ok annotate annotate deployment web kubernetes.io/change-cause=second
ok "image updated" set image deployment/web nginx=nginx:2
until_ok "2 * second" rollout history deployment/web
ok "Image: nginx:1" rollout history deployment/web --revision=1
ok "nginx:2" rollout history deployment/web --revision=2 -o yaml
refused "unable to find the specified revision" rollout history deployment/web --revision=9
ok "rolled back" rollout undo deployment/web
same "nginx:1" get deployment web -o 'jsonpath={..image}'
until_ok "3" rollout history deployment/web
ok "rolled back" rollout undo deployment/web --to-revision=2
same "nginx:2" get deployment web -o 'jsonpath={..image}'
ok "nginx" rollout undo deployment/web --to-revision=3 --dry-run=client
ok "paused" rollout pause deployment/web
refused "already paused" rollout pause deployment/web
refused "can't restart paused deployment" rollout restart deployment/web
refused 'cannot rollback a paused deployment' rollout undo deployment/web
ok "resumed" rollout resume deployment/web
refused "is not paused" rollout resume deployment/web
ok "restarted" rollout restart deployment/web
k get deployment web -o yaml; has "kubectl.kubernetes.io/restartedAt"

ok "scaled" scale deployment/web --replicas=3
same 3 get deployment web -o 'jsonpath={.spec.replicas}'
ok "scaled" scale deployment web --current-replicas=3 --replicas=1
refused "Expected replicas to be 9, was 1" scale deployment web --current-replicas=9 --replicas=2
refused "Expected resource version to be 1, was " scale deployment web --resource-version=1 --replicas=2
ok "scaled" scale deployment --all --replicas=2
refused "could not find the requested resource" scale configmap kube-root-ca.crt --replicas=2
ok "autoscaled" autoscale deployment web --min=1 --max=5 --cpu-percent=70
same "1 5" get hpa web -o 'jsonpath={.spec.minReplicas} {.spec.maxReplicas}'
ok "Deployment/web" get hpa
ok "service/web exposed" expose deployment web --port=8080 --target-port=80
same "8080 80 web" get service web -o 'jsonpath={.spec.ports[0].port} {.spec.ports[0].targetPort} {.spec.selector.app}'
ok "service/node exposed" expose service web --name=node --port=80 --type=NodePort
pod=$("$program" get pods -l app=web -o name | head -1)
ok "exposed" expose "$pod" --name=one --port=80

# Stateful and daemon sets.
k create -f - <<Y
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
has "statefulset.apps/db created" "daemonset.apps/agent created"
for pod in db-0 db-1; do until_ok $pod get pods; ready app=db; done
ok "roll" rollout status statefulset/db --timeout=20s
ok "image updated" set image statefulset/db db=db:2
until_ok "2" rollout history statefulset/db
ok "db:1" rollout history statefulset/db --revision=1
ok "rolled back" rollout undo statefulset/db
ok "scaled" scale statefulset db --replicas=0
ok "restarted" rollout restart daemonset/agent
until_ok "1" rollout history daemonset/agent
