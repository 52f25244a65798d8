# Authentication and authorization: auth, tokens and certificates.
create_test_namespace rights
robot=system:serviceaccount:$ns:robot
expect_ok created create serviceaccount robot
expect_ok created create role reader --verb=get,list --resource=configmaps
expect_ok created create rolebinding reader --role=reader --serviceaccount="$ns:robot"
expect_ok yes auth can-i get configmaps --as="$robot"
expect_exit 1 no auth can-i delete configmaps --as="$robot"
expect_exit 1 no auth can-i get configmaps --as="$robot" -n default
expect_exit 1 no auth can-i get pods --subresource=log --as="$robot"
expect_ok yes auth can-i '*' '*'
expect_exit 1 "" auth can-i -q delete configmaps --as="$robot"
expect_ok "configmaps" auth can-i --list --as="$robot"; expect_output "selfsubjectaccessreviews.authorization.k8s.io" "[get list]"
expect_ok yes auth can-i get /healthz --as="$robot"
expect_exit 1 no auth can-i get pods --as=jane --as-group=developers
expect_error "Forbidden" get secrets --as="$robot"; expect_output "User \"$robot\" cannot list resource \"secrets\" in API group \"\" in the namespace \"$ns\""
if version_at_least 28; then expect_ok "system:masters" auth whoami; expect_ok "$robot" auth whoami --as="$robot" -o 'jsonpath={.status.userInfo.username}'; fi
"$program" get role reader -o yaml | sed 's/configmaps/services/' >"$work/role.yaml"
expect_ok "role.rbac.authorization.k8s.io/reader reconciled" auth reconcile -f "$work/role.yaml"
expect_ok yes auth can-i get services --as="$robot"
expect_ok yes auth can-i get configmaps --as="$robot"
expect_ok "reconciled" auth reconcile -f "$work/role.yaml" --remove-extra-permissions
expect_exit 1 no auth can-i get configmaps --as="$robot"

expect_ok . create token robot --duration=20m; token=$out
"$program" config view --raw --minify -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$work/ca.crt"
server=$("$program" config view --minify -o 'jsonpath={.clusters[0].cluster.server}')
as_robot=(--kubeconfig=/dev/null --server="$server" --certificate-authority="$work/ca.crt" --namespace="$ns")
expect_ok "No resources found" get services "${as_robot[@]}" --token="$token"
expect_error "Forbidden" get secrets "${as_robot[@]}" --token="$token"
expect_error "Unauthorized" get services "${as_robot[@]}" --token="${token}x"
expect_ok created create configmap bound
expect_error "supported --bound-object-kind values are" create token robot --bound-object-kind=ConfigMap --bound-object-name=bound
expect_ok created run holder --image=nginx:1 --overrides='{"spec":{"serviceAccountName":"robot"}}'
expect_ok . create token robot --bound-object-kind=Pod --bound-object-name=holder
expect_ok deleted delete serviceaccount robot

# A certificate signing request with the subject CN=jane, O=developers.
jane=LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIZ01JR0dBZ0VBTUNReERUQUxCZ05WQkFNTUJHcGhibVV4RXpBUkJnTlZCQW9NQ21SbG\
RtVnNiM0JsY25NdwpXVEFUQmdjcWhrak9QUUlCQmdncWhrak9QUU1CQndOQ0FBUUFmeitBZk1UQjJBSU9wRmV3blN5YldQeG1QeG5xCkRNeERsRmJma3Yw\
cDhxMjloMk0zclBwcnViK2dBZGxPdFZ6YmtNNHVseFpaOE9aRmNGQ1BlVjBob0FBd0NnWUkKS29aSXpqMEVBd0lEU1FBd1JnSWhBTmQrWHQ2dTA1VWVKN0\
hqek9JdVFnaUx3N0VzZWtXUzZrVHF1MzdRRG1qSwpBaUVBaVYraS8wVDFrN3cxNG1WL3d5MUJ1blJwN1hwaEIyUWRPVmZvMVpwOElXND0KLS0tLS1FTkQg\
Q0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==
for name in "$ns" "$ns-no"; do
  run_kubectl create -f - <<Y
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: $name}
spec:
  request: $jane
  signerName: example.com/signer
  usages: [digital signature, client auth]
Y
  expect_output "created"
done
expect_ok Pending get csr "$ns"
expect_ok approved certificate approve "$ns"
expect_ok denied certificate deny "$ns-no"
expect_ok Approved get csr "$ns"
expect_ok Denied get csr "$ns-no"
expect_ok deleted delete csr "$ns" "$ns-no"
