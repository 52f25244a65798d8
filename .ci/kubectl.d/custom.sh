# Custom resources, from definition to deletion; printer columns and the scale subresource.
create_test_namespace custom
expect_ok created apply -f samples/crontab/definition.yaml
expect_ok "condition met" wait --for=condition=Established crd/crontabs.stable.example.com --timeout=10s
expect_ok "crontab.stable.example.com/my-new-cron-object created" apply -f samples/crontab/cron.yaml
expect_ok unchanged apply -f samples/crontab/cron.yaml
expect_ok "my-new-cron-object" get ct
expect_ok "cronSpec: '* * * * */5'" get ct my-new-cron-object -o yaml
expect_exact "my-awesome-cron-image" get ct my-new-cron-object -o 'jsonpath={.spec.image}'
expect_ok "crontabs * ct * stable.example.com/v1" api-resources --api-group=stable.example.com
wait_for_output "cronSpec" explain ct.spec --recursive
expect_ok "my-awesome-cron-image" describe ct my-new-cron-object
expect_ok patched patch ct my-new-cron-object --type=merge -p '{"spec":{"replicas":2}}'
expect_ok patched patch ct my-new-cron-object --type=json -p '[{"op":"replace","path":"/spec/replicas","value":3}]'
expect_exact 3 get ct my-new-cron-object -o 'jsonpath={.spec.replicas}'
expect_error 'Invalid value: "integer"' patch ct my-new-cron-object --type=merge -p '{"spec":{"cronSpec":5}}'
expect_ok labeled label ct my-new-cron-object tier=a
expect_ok "my-new-cron-object" get ct -l tier=a
sed 's/my-awesome/my-other/' samples/crontab/cron.yaml >"$work/edited.yaml"
expect_exit 1 "+  image: my-other-cron-image" diff -f "$work/edited.yaml"
EDIT='s/my-awesome/my-edited/' expect_ok edited edit ct my-new-cron-object
expect_ok serverside-applied apply --server-side --force-conflicts -f "$work/edited.yaml"
expect_exact "my-other-cron-image" get ct my-new-cron-object -o 'jsonpath={.spec.image}'
expect_ok "created" create -f <(sed 's/name: my.*/generateName: cron-/' samples/crontab/cron.yaml)
expect_ok "deleted" delete ct --all
expect_ok 'unknown field "spec.imge"' apply --validate=warn -f <(sed 's/image:/imge:/' samples/crontab/cron.yaml)
expect_error 'unknown field "spec.imge"' apply --validate=strict -f <(sed 's/image:/imge:/' samples/crontab/cron.yaml)
expect_ok deleted delete -f samples/crontab/definition.yaml
expect_error 'unknown field "spec.versions[0].schema.openAPISchema"' \
  apply -f <(sed 's/openAPIV3Schema/openAPISchema/' samples/crontab/definition.yaml)

expect_ok serverside-applied apply --server-side -f samples/vmgroup/definition.json
expect_ok "condition met" wait --for=condition=Established crd/vmgroups.vm.codeconnect.vmworld.com --timeout=10s
expect_ok created apply -f samples/vmgroup/vg-1.yaml
expect_ok LAST_MESSAGE get vg
expect_ok scaled scale vg/vg-1 --replicas=5
expect_ok "condition met" wait --for='jsonpath={.spec.replicas}=5' vg/vg-1 --timeout=5s
expect_error spec.cpu patch vg vg-1 --type=merge -p '{"spec":{"cpu":5}}'
expect_ok patched patch vg vg-1 --subresource=status --type=merge -p '{"status":{"phase":"RUNNING"}}'
expect_ok RUNNING get vg vg-1
expect_ok deleted delete vg vg-1
expect_ok deleted delete -f samples/vmgroup/definition.json
