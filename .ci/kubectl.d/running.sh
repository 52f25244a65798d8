# Pods on simulated nodes; only an embedded control plane can add these.
if [ -n "$flyball" ]; then
  create_test_namespace running
  step="flyball cluster node add"
  out=$("$flyball" cluster node add --quiet --name-prefix sim --count 2 2>&1) || fail "exit code $?"
  expect_ok created create deployment running --image=nginx:1 --replicas=4
  expect_ok 'successfully rolled out' rollout status deployment/running --timeout=30s
  expect_ok "condition met" wait --for=condition=Available deployment/running --timeout=5s
  expect_ok "condition met" wait --for=condition=Ready pod -l app=running --timeout=5s
  expect_ok Running get pods -o wide; expect_output sim-1 sim-2
  expect_ok "image updated" set image deployment/running nginx=nginx:2
  expect_ok 'successfully rolled out' rollout status deployment/running --timeout=30s
  expect_ok drained drain sim-1 --pod-selector=app=running --timeout=60s
  expect_ok 'successfully rolled out' rollout status deployment/running --timeout=30s
  expect_exact "sim-2 sim-2 sim-2 sim-2" get pods -l app=running --field-selector=spec.nodeName=sim-2 -o 'jsonpath={.items[*].spec.nodeName}'
  expect_ok uncordoned uncordon sim-1
  expect_ok created create job once --image=busybox:1
  expect_ok "condition met" wait --for=condition=Complete job/once --timeout=30s
  step="flyball cluster node remove"
  out=$("$flyball" cluster node remove --all 2>&1) || fail "exit code $?"
  expect_output "removed 2 nodes"
fi
