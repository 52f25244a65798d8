# get, in all its outputs.
namespace get
for i in 1 2 3; do ok created create configmap cm-$i --from-literal=n=$((10 - i)); done
ok labeled label configmap cm-1 tier=a
ok labeled label configmap cm-2 tier=b
ok created run pod-1 --image=nginx:1
ok "NAME * DATA * AGE" get configmaps
ok "NODE * NOMINATED NODE * READINESS GATES" get pods -o wide
ok "name: cm-1" get cm cm-1 -o yaml
ok '"name": "cm-1"' get cm cm-1 -o json
same "configmap/cm-1" get cm/cm-1 -o name
same "9 8 7" get cm cm-1 cm-2 cm-3 -o 'jsonpath={.items[*].data.n}'
same "cm-1" get cm -o 'jsonpath={.items[?(@.data.n=="9")].metadata.name}'
printf '{.data.n}' >"$work/path"; same "9" get cm cm-1 -o "jsonpath-file=$work/path"
ok '"9"' get cm cm-1 -o 'jsonpath-as-json={.data.n}'
same "cm-1:9 " get cm -l tier=a -o 'go-template={{range .items}}{{.metadata.name}}:{{.data.n}} {{end}}'
printf '{{.data.n}}' >"$work/template"; same "9" get cm cm-1 -o "go-template-file=$work/template"
ok $'WHAT   N\ncm-1   9' get cm cm-1 -o custom-columns=WHAT:.metadata.name,N:.data.n
printf 'WHAT\n.metadata.name\n' >"$work/columns"; ok "cm-1" get cm cm-1 -o "custom-columns-file=$work/columns"
same $'cm-3\ncm-2\ncm-1' get cm cm-1 cm-2 cm-3 --sort-by=.data.n --no-headers -o custom-columns=:.metadata.name
ok "$ns" get cm -A
ok "kube-root-ca.crt" get cm --chunk-size=1
ok "tier=a" get cm cm-1 --show-labels
ok "TIER" get cm -L tier
same "configmap/cm-2" get cm -l 'tier notin (a),tier' -o name
same "configmap/cm-3" get cm --field-selector=metadata.name=cm-3 -o name
refused '"data" is not a known field selector' get cm --field-selector=data=1
ok "pod/pod-1" get pod,cm
ok "configmap/cm-1" get cm cm-1 --show-kind
ok "cm-1" get cm/cm-1 pods/pod-1
ok "cm-1" get cm cm-1 --server-print=false
ok "" get cm none --ignore-not-found
ok "No resources found" get jobs
refused 'configmaps "none" not found' get cm none
refused 'the server doesn'"'"'t have a resource type "nothings"' get nothings
ok "Pending" get pod pod-1 --subresource=status
ok '"kind":"ConfigMapList"' get --raw "/api/v1/namespaces/$ns/configmaps?limit=1"
ok "ok" get --raw /readyz
ok "pod/pod-1" get all
refused "NotFound" get --raw /api/v1/namespaces/none-such

# Watches end with the time that they are given.
ok "" get cm -o name --request-timeout=5s
"$program" get cm -w --output-watch-events -l tier=a --request-timeout=2s >"$work/watched" 2>&1 & watching=$!
"$program" get cm cm-1 --watch-only -o name --request-timeout=2s >"$work/only" 2>&1 & only=$!
sleep 1
ok annotated annotate cm cm-1 seen=yes
ok labeled label cm cm-1 tier=c --overwrite
wait $watching || true; wait $only || true
step="get -w" out=$(cat "$work/watched"); has "ADDED * cm-1" "MODIFIED * cm-1" "DELETED * cm-1"
step="get --watch-only" out=$(cat "$work/only"); has "configmap/cm-1"
