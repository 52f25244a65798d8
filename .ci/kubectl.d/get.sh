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

# Watches, which end when they have shown what they should.
"$program" get cm -w --output-watch-events -l tier=a >"$work/watched" 2>&1 & watching=$!
"$program" get cm cm-1 --watch-only -o name >"$work/only" 2>&1 & only=$!
shown "$work/watched" "ADDED * cm-1"
# Only a write tells that a watch has begun which shows nothing of what was there before.
for i in {1..50}; do
  ok annotate annotate cm cm-1 seen=$i --overwrite
  ! grep -q configmap/cm-1 "$work/only" || break
done
shown "$work/only" "configmap/cm-1"
ok labeled label cm cm-1 tier=c --overwrite
shown "$work/watched" "MODIFIED * cm-1"
shown "$work/watched" "DELETED * cm-1"
kill $watching $only; wait $watching $only 2>/dev/null || true
