# Pods that run, on simulated nodes: where the cluster is one of ours, so that nodes can be added to it.
if [ -n "$flyball" ]; then
  namespace running
  step="flyball cluster node add"
  out=$("$flyball" cluster node add --quiet --name-prefix sim --count 2 2>&1) || fail "exit code $?"
  ok created create deployment running --image=nginx:1 --replicas=4
  ok 'successfully rolled out' rollout status deployment/running --timeout=30s
  ok "condition met" wait --for=condition=Available deployment/running --timeout=5s
  ok "condition met" wait --for=condition=Ready pod -l app=running --timeout=5s
  ok Running get pods -o wide; has sim-1 sim-2
  ok "image updated" set image deployment/running nginx=nginx:2
  ok 'successfully rolled out' rollout status deployment/running --timeout=30s
  ok drained drain sim-1 --pod-selector=app=running --timeout=60s
  ok 'successfully rolled out' rollout status deployment/running --timeout=30s
  same "sim-2 sim-2 sim-2 sim-2" get pods -l app=running --field-selector=spec.nodeName=sim-2 -o 'jsonpath={.items[*].spec.nodeName}'
  ok uncordoned uncordon sim-1
  ok created create job once --image=busybox:1
  ok "condition met" wait --for=condition=Complete job/once --timeout=30s
  step="flyball cluster node remove"
  out=$("$flyball" cluster node remove --all 2>&1) || fail "exit code $?"
  has "removed 2 nodes"
fi
