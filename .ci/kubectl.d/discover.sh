# Discovery (versions, resources, explain), and commands that need no server.
run_kubectl version; expect_output "Server Version"
expect_ok "apps/v1" api-versions
expect_ok "deployments * deploy * apps/v1 * true * Deployment" api-resources
expect_ok "VERBS" api-resources -o wide
expect_ok "deployments.apps" api-resources -o name --api-group=apps
expect_ok "namespaces" api-resources --namespaced=false; expect_absent "deployments"
expect_ok "pods" api-resources --verbs=list,get,watch; expect_absent "tokenreviews"
expect_ok "deployments" api-resources --categories=all; expect_absent "configmaps"
expect_ok "bindings" api-resources --sort-by=name --cached=false
expect_ok "is running at*https://" cluster-info
expect_ok "NodeList" cluster-info dump --namespaces=default
expect_ok "Cluster info dumped to" cluster-info dump --output-directory="$work/dump"
test -s "$work/dump/nodes.json" || fail "no nodes.json"

expect_ok "FIELDS" explain deployments
expect_ok "VERSION:  *v1" explain deployment.spec.strategy
expect_ok "maxSurge" explain deployments.spec --recursive
expect_ok "containers" explain pods.spec --api-version=v1
expect_ok "FIELDS" explain cronjobs --api-version=batch/v1
expect_ok "FIELDS" explain pods --output=plaintext-openapiv2
expect_error 'field "none" does not exist' explain pods.spec.none
expect_error "the server doesn't have a resource type" explain nothings

expect_ok "current-context" config view
expect_ok "certificate-authority-data: DATA+OMITTED" config view
run_kubectl config view --raw --minify; expect_absent "DATA+OMITTED"
expect_ok "" config current-context; context=$out
expect_ok "$context" config get-contexts
expect_ok "$context" config get-contexts -o name
expect_ok "" config get-clusters; cluster=$(tail -1 <<<"$out")
expect_ok "NAME" config get-users
expect_ok 'Context "other" created' config set-context other --cluster="$cluster" --user=nobody --namespace=default
expect_ok "renamed" config rename-context other another
expect_ok 'Switched to context "another"' config use-context another
expect_ok 'Switched to context' config use-context "$context"
expect_ok 'User "nobody" set' config set-credentials nobody --token=none
expect_exit 1 "Unauthorized" get namespaces --user=nobody --context=another --insecure-skip-tls-verify=false
expect_ok "deleted context another" config delete-context another
expect_ok "deleted user nobody" config delete-user nobody
expect_ok 'Cluster "far" set' config set-cluster far --server=https://127.0.0.1:1
expect_ok "deleted cluster far" config delete-cluster far
expect_ok "unset" config unset contexts.none

expect_ok "bash completion" completion bash
expect_ok "zsh completion" completion zsh
expect_ok "fish completion" completion fish
expect_ok "pods" __complete get po
expect_ok "The following options" options
expect_error 'unknown command "convert"' convert -f nothing.yaml
run_kubectl plugin list; expect_absent "panic"
