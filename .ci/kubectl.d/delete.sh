# wait, and delete with what depends on it.
namespace delete
set_of() { ok created create deployment "$1" --image=nginx:1 --replicas=2; until_ok "2" get deployment "$1" -o 'jsonpath={.status.replicas}'; }
set_of background
ok deleted delete deployment background
until_ok "No resources found" get pods,replicasets -l app=background
set_of foreground
ok deleted delete deployment foreground --cascade=foreground
same "" get pods,replicasets -l app=foreground -o name
set_of orphan
ok deleted delete deployment orphan --cascade=orphan
ok "orphan" get replicasets -l app=orphan
until_ok "[]" get replicasets -l app=orphan -o 'jsonpath=[{..ownerReferences[*].name}]'
replica_set=$("$program" get replicasets -l app=orphan -o name)
ok deleted delete "$replica_set" --cascade=orphan
ok "orphan" get pods -l app=orphan
ok "deleted" delete pods -l app=orphan --grace-period=0 --force; has "Immediate deletion does not wait"

ok created create configmap held
ok patched patch configmap held --type=merge -p '{"metadata":{"finalizers":["example.com/hold"]}}'
ok deleted delete configmap held --wait=false
exits 1 "timed out" wait --for=delete configmap/held --timeout=1s
ok "held" get configmap held
ok patched patch configmap held --type=merge -p '{"metadata":{"finalizers":null}}'
ok "" wait --for=delete configmap/held --timeout=10s
ok "" delete configmap held --ignore-not-found
refused NotFound delete configmap held

for i in 1 2 3; do ok created create configmap gone-$i; done
ok labeled label configmap gone-1 gone-2 which=these
ok "deleted (server dry run)" delete configmap gone-1 --dry-run=server
ok "deleted (dry run)" delete configmap gone-1 --dry-run=client
ok 'configmap "gone-2" deleted' delete configmap -l which=these
ok deleted delete configmap --field-selector=metadata.name=gone-3
refused NotFound get configmap gone-3
ok created create configmap raw
ok '"status":"Success"' delete --raw "/api/v1/namespaces/$ns/configmaps/raw"
ok created create secret generic s
ok 'secret "s" deleted' delete secret --all
refused "resource(s) were provided, but no name was specified" delete configmap

ok created run waiter --image=nginx:1
exits 1 "timed out waiting for the condition" wait --for=condition=Ready pod/waiter --timeout=1s
"$program" wait --for=condition=Ready pod/waiter --timeout=20s >"$work/waited" 2>&1 & waiting=$!
ready run=waiter
wait $waiting || fail "wait fails: $(cat "$work/waited")"
ok "condition met" wait --for='jsonpath={.status.phase}=Running' pod/waiter --timeout=5s
ok "condition met" wait --for=condition=Ready=true pods --all --timeout=5s
if since 31; then ok "condition met" wait --for=create pod/waiter --timeout=5s; fi
if since 28; then ok "condition met" wait --for='jsonpath={.status.phase}' pod/waiter --timeout=5s; fi
refused NotFound wait --for=condition=Ready pod/none --timeout=1s
ok "" delete pod waiter --grace-period=0 --force
