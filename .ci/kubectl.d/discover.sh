# What there is: versions, resources, explanations; and what kubectl does without a server.
k version; has "Server Version"
ok "apps/v1" api-versions
ok "deployments * deploy * apps/v1 * true * Deployment" api-resources
ok "VERBS" api-resources -o wide
ok "deployments.apps" api-resources -o name --api-group=apps
ok "namespaces" api-resources --namespaced=false; lacks "deployments"
ok "pods" api-resources --verbs=list,get,watch; lacks "tokenreviews"
ok "deployments" api-resources --categories=all; lacks "configmaps"
ok "bindings" api-resources --sort-by=name --cached=false
ok "is running at*https://" cluster-info
ok "NodeList" cluster-info dump --namespaces=default
ok "Cluster info dumped to" cluster-info dump --output-directory="$work/dump"
test -s "$work/dump/nodes.json" || fail "no nodes.json"

ok "FIELDS" explain deployments
ok "VERSION:  *v1" explain deployment.spec.strategy
ok "maxSurge" explain deployments.spec --recursive
ok "containers" explain pods.spec --api-version=v1
ok "FIELDS" explain cronjobs --api-version=batch/v1
ok "FIELDS" explain pods --output=plaintext-openapiv2
refused 'field "none" does not exist' explain pods.spec.none
refused "the server doesn't have a resource type" explain nothings

ok "current-context" config view
ok "certificate-authority-data: DATA+OMITTED" config view
k config view --raw --minify; lacks "DATA+OMITTED"
ok "" config current-context; context=$out
ok "$context" config get-contexts
ok "$context" config get-contexts -o name
ok "" config get-clusters; cluster=$(tail -1 <<<"$out")
ok "NAME" config get-users
ok 'Context "other" created' config set-context other --cluster="$cluster" --user=nobody --namespace=default
ok "renamed" config rename-context other another
ok 'Switched to context "another"' config use-context another
ok 'Switched to context' config use-context "$context"
ok 'User "nobody" set' config set-credentials nobody --token=none
exits 1 "Unauthorized" get namespaces --user=nobody --context=another --insecure-skip-tls-verify=false
ok "deleted context another" config delete-context another
ok "deleted user nobody" config delete-user nobody
ok 'Cluster "far" set' config set-cluster far --server=https://127.0.0.1:1
ok "deleted cluster far" config delete-cluster far
ok "unset" config unset contexts.none

ok "bash completion" completion bash
ok "zsh completion" completion zsh
ok "fish completion" completion fish
ok "pods" __complete get po
ok "The following options" options
refused 'unknown command "convert"' convert -f nothing.yaml
k plugin list; lacks "panic"
