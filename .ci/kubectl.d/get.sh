# get in all its output formats.
create_test_namespace get
for i in 1 2 3; do expect_ok created create configmap cm-$i --from-literal=n=$((10 - i)); done
expect_ok labeled label configmap cm-1 tier=a
expect_ok labeled label configmap cm-2 tier=b
expect_ok created run pod-1 --image=nginx:1
expect_ok "NAME * DATA * AGE" get configmaps
expect_ok "NODE * NOMINATED NODE * READINESS GATES" get pods -o wide
expect_ok "name: cm-1" get cm cm-1 -o yaml
expect_ok '"name": "cm-1"' get cm cm-1 -o json
expect_exact "configmap/cm-1" get cm/cm-1 -o name
expect_exact "9 8 7" get cm cm-1 cm-2 cm-3 -o 'jsonpath={.items[*].data.n}'
expect_exact "cm-1" get cm -o 'jsonpath={.items[?(@.data.n=="9")].metadata.name}'
printf '{.data.n}' >"$work/path"; expect_exact "9" get cm cm-1 -o "jsonpath-file=$work/path"
expect_ok '"9"' get cm cm-1 -o 'jsonpath-as-json={.data.n}'
expect_exact "cm-1:9 " get cm -l tier=a -o 'go-template={{range .items}}{{.metadata.name}}:{{.data.n}} {{end}}'
printf '{{.data.n}}' >"$work/template"; expect_exact "9" get cm cm-1 -o "go-template-file=$work/template"
expect_ok $'WHAT   N\ncm-1   9' get cm cm-1 -o custom-columns=WHAT:.metadata.name,N:.data.n
printf 'WHAT\n.metadata.name\n' >"$work/columns"; expect_ok "cm-1" get cm cm-1 -o "custom-columns-file=$work/columns"
expect_exact $'cm-3\ncm-2\ncm-1' get cm cm-1 cm-2 cm-3 --sort-by=.data.n --no-headers -o custom-columns=:.metadata.name
expect_ok "$ns" get cm -A
expect_ok "kube-root-ca.crt" get cm --chunk-size=1
expect_ok "tier=a" get cm cm-1 --show-labels
expect_ok "TIER" get cm -L tier
expect_exact "configmap/cm-2" get cm -l 'tier notin (a),tier' -o name
expect_exact "configmap/cm-3" get cm --field-selector=metadata.name=cm-3 -o name
expect_error '"data" is not a known field selector' get cm --field-selector=data=1
expect_ok "pod/pod-1" get pod,cm
expect_ok "configmap/cm-1" get cm cm-1 --show-kind
expect_ok "cm-1" get cm/cm-1 pods/pod-1
expect_ok "cm-1" get cm cm-1 --server-print=false
expect_ok "" get cm none --ignore-not-found
expect_ok "No resources found" get jobs
expect_error 'configmaps "none" not found' get cm none
expect_error 'the server doesn'"'"'t have a resource type "nothings"' get nothings
expect_ok "Pending" get pod pod-1 --subresource=status
expect_ok '"kind":"ConfigMapList"' get --raw "/api/v1/namespaces/$ns/configmaps?limit=1"
expect_ok "ok" get --raw /readyz
expect_ok "pod/pod-1" get all
expect_error "NotFound" get --raw /api/v1/namespaces/none-such

# Watches; they are stopped after their expected output.
"$program" get cm -w --output-watch-events -l tier=a >"$work/watched" 2>&1 & watching=$!
"$program" get cm cm-1 --watch-only -o name >"$work/only" 2>&1 & watching_only=$!
wait_for_file "$work/watched" "ADDED * cm-1"
# --watch-only omits existing objects: writes show when the watch has started.
for i in {1..50}; do
  expect_ok annotate annotate cm cm-1 seen=$i --overwrite
  ! grep -q configmap/cm-1 "$work/only" || break
done
wait_for_file "$work/only" "configmap/cm-1"
expect_ok labeled label cm cm-1 tier=c --overwrite
wait_for_file "$work/watched" "MODIFIED * cm-1"
wait_for_file "$work/watched" "DELETED * cm-1"
kill $watching $watching_only; wait $watching $watching_only 2>/dev/null || true
