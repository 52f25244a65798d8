# Changes to existing objects: edit, patch, label, annotate and set.
create_test_namespace change
expect_ok created create deployment web --image=nginx:1
expect_ok created create configmap settings --from-literal=a=1
EDIT='s/a: "1"/a: "2"/' expect_ok "configmap/settings edited" edit configmap settings
EDIT='s/nothing/x/' expect_ok "Edit cancelled, no changes made" edit configmap settings
expect_exact 2 get configmap settings -o 'jsonpath={.data.a}'
EDIT='s/replicas: 1/replicas: 2/' expect_ok "deployment.apps/web edited" edit deployment web
EDIT='s/nginx:1/nginx:2/' expect_ok '"image":"nginx:2"' edit deployment web --output-patch

expect_ok patched patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"nginx","env":[{"name":"A","value":"b"}]}]}}}}'
expect_exact "nginx:2 b" get deployment web -o 'jsonpath={..image} {..env[0].value}'
expect_ok patched patch configmap settings --type=merge -p '{"data":{"a":null,"b":"3"}}'
expect_exact '{"b":"3"}' get configmap settings -o 'jsonpath={.data}'
expect_ok patched patch configmap settings --type=json -p '[{"op":"test","path":"/data/b","value":"3"},{"op":"add","path":"/data/c","value":"4"}]'
expect_error "the server rejected our request due to an error in our request" patch configmap settings --type=json -p '[{"op":"test","path":"/data/b","value":"9"}]'
printf 'data: {d: "5"}' >"$work/patch.yaml"; expect_ok patched patch configmap settings --patch-file="$work/patch.yaml"
expect_ok "patched (no change)" patch configmap settings --patch-file="$work/patch.yaml"
expect_ok 'd: "6"' patch configmap settings -p '{"data":{"d":"6"}}' --dry-run=server -o yaml
expect_ok 'd: "6"' patch configmap settings -p '{"data":{"d":"6"}}' --dry-run=client -o yaml
expect_exact 5 get configmap settings -o 'jsonpath={.data.d}'
"$program" get configmap settings -o yaml >"$work/settings.yaml"
expect_ok 'e: "7"' patch --local -f "$work/settings.yaml" -p '{"data":{"e":"7"}}' -o yaml
expect_ok patched patch deployment web --subresource=status --type=merge -p '{"status":{"collisionCount":3}}'
expect_exact 3 get deployment web -o 'jsonpath={.status.collisionCount}'
expect_ok patched patch deployment web --subresource=scale --type=merge -p '{"spec":{"replicas":1}}'
expect_error "spec.replicas: Invalid value" patch deployment web -p '{"spec":{"replicas":-1}}'
expect_error 'unrecognized type: int32' patch deployment web -p '{"spec":{"replicas":"many"}}'

expect_ok labeled label configmap settings tier=a
expect_error "'tier' already has a value (a), and --overwrite is false" label configmap settings tier=b
expect_ok labeled label configmap settings tier=b --overwrite
expect_exact "tier=b" label configmap settings --list
expect_ok labeled label configmaps --all every=one
expect_ok unlabeled label configmaps -l tier=b tier-
expect_ok "not labeled" label configmap settings none-
expect_error "a valid label must be" label configmap settings bad=-x-
expect_ok labeled label configmap settings a=b --resource-version="$("$program" get configmap settings -o 'jsonpath={.metadata.resourceVersion}')"
expect_error "the object has been modified" label configmap settings a=c --overwrite --resource-version=1
expect_ok annotate annotate configmap settings note=a
expect_error "already has a value (a)" annotate configmap settings note=b
expect_ok annotate annotate configmap settings note=b --overwrite
expect_ok "note=b" annotate configmap settings --list
expect_ok annotate annotate configmap settings note-
expect_ok "annotate* (server dry run)" annotate configmap settings x=y --dry-run=server

expect_ok "image updated" set image deployment/web nginx=nginx:3
expect_exact "nginx:3" get deployment web -o 'jsonpath={..image}'
expect_error 'unable to find container named "none"' set image deployment/web none=nginx:3
expect_ok "env updated" set env deployment/web COLOR=red
expect_ok "COLOR=red" set env deployment/web --list
expect_ok "env updated" set env deployment/web --from=configmap/settings --prefix=S_
expect_exact "settings" get deployment web -o 'jsonpath={..env[?(@.name=="S_B")].valueFrom.configMapKeyRef.name}'
expect_ok "env updated" set env deployment/web COLOR-
expect_ok "resource requirements updated" set resources deployment web --limits=cpu=200m,memory=64Mi --requests=cpu=100m
expect_exact "100m 64Mi" get deployment web -o 'jsonpath={..requests.cpu} {..limits.memory}'
expect_ok "serviceaccount updated" set serviceaccount deployment web default
expect_ok created create service clusterip front --tcp=80
expect_ok "selector updated" set selector service front app=other
expect_exact other get service front -o 'jsonpath={.spec.selector.app}'
expect_ok created create rolebinding readers --clusterrole=view --user=a
expect_ok "subjects updated" set subject rolebinding readers --user=b
