# wait, and delete with its propagation policies.
create_test_namespace delete
create_deployment() { expect_ok created create deployment "$1" --image=nginx:1 --replicas=2; wait_for_output "2" get deployment "$1" -o 'jsonpath={.status.replicas}'; }
create_deployment background
expect_ok deleted delete deployment background
wait_for_output "No resources found" get pods,replicasets -l app=background
create_deployment foreground
expect_ok deleted delete deployment foreground --cascade=foreground
expect_exact "" get pods,replicasets -l app=foreground -o name
create_deployment orphan
expect_ok deleted delete deployment orphan --cascade=orphan
expect_ok "orphan" get replicasets -l app=orphan
wait_for_output "[]" get replicasets -l app=orphan -o 'jsonpath=[{..ownerReferences[*].name}]'
replica_set=$("$program" get replicasets -l app=orphan -o name)
expect_ok deleted delete "$replica_set" --cascade=orphan
expect_ok "orphan" get pods -l app=orphan
expect_ok "deleted" delete pods -l app=orphan --grace-period=0 --force; expect_output "Immediate deletion does not wait"

expect_ok created create configmap held
expect_ok patched patch configmap held --type=merge -p '{"metadata":{"finalizers":["example.com/hold"]}}'
expect_ok deleted delete configmap held --wait=false
expect_exit 1 "timed out" wait --for=delete configmap/held --timeout=1s
expect_ok "held" get configmap held
expect_ok patched patch configmap held --type=merge -p '{"metadata":{"finalizers":null}}'
expect_ok "" wait --for=delete configmap/held --timeout=10s
expect_ok "" delete configmap held --ignore-not-found
expect_error NotFound delete configmap held

for i in 1 2 3; do expect_ok created create configmap gone-$i; done
expect_ok labeled label configmap gone-1 gone-2 which=these
expect_ok "deleted (server dry run)" delete configmap gone-1 --dry-run=server
expect_ok "deleted (dry run)" delete configmap gone-1 --dry-run=client
expect_ok 'configmap "gone-2" deleted' delete configmap -l which=these
expect_ok deleted delete configmap --field-selector=metadata.name=gone-3
expect_error NotFound get configmap gone-3
expect_ok created create configmap raw
expect_ok '"status":"Success"' delete --raw "/api/v1/namespaces/$ns/configmaps/raw"
expect_ok created create secret generic s
expect_ok 'secret "s" deleted' delete secret --all
expect_error "resource(s) were provided, but no name was specified" delete configmap

expect_ok created run waiter --image=nginx:1
expect_exit 1 "timed out waiting for the condition" wait --for=condition=Ready pod/waiter --timeout=1s
"$program" wait --for=condition=Ready pod/waiter --timeout=20s >"$work/waited" 2>&1 & waiting=$!
mark_pods_ready run=waiter
wait $waiting || fail "wait fails: $(cat "$work/waited")"
expect_ok "condition met" wait --for='jsonpath={.status.phase}=Running' pod/waiter --timeout=5s
expect_ok "condition met" wait --for=condition=Ready=true pods --all --timeout=5s
if version_at_least 31; then expect_ok "condition met" wait --for=create pod/waiter --timeout=5s; fi
if version_at_least 28; then expect_ok "condition met" wait --for='jsonpath={.status.phase}' pod/waiter --timeout=5s; fi
expect_error NotFound wait --for=condition=Ready pod/none --timeout=1s
expect_ok "" delete pod waiter --grace-period=0 --force
