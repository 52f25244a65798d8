# proxy, with curl as its client.
if command -v curl >/dev/null; then
  step="kubectl proxy" out=""
  : >"$work/proxy"
  "$program" proxy --port=0 >"$work/proxy" 2>&1 & proxy=$!
  for i in {1..50}; do port=$(sed -n 's/.*127.0.0.1:\([0-9]*\)$/\1/p' "$work/proxy"); [ -z "$port" ] || break; sleep 0.1; done
  [ -n "$port" ] || fail "failed to start: $(cat "$work/proxy")"
  step="curl through kubectl proxy"
  out=$(curl -sS "http://127.0.0.1:$port/api/v1/namespaces/default"); expect_output '"name"*"default"'
  out=$(curl -sS "http://127.0.0.1:$port/readyz"); expect_output ok
  out=$(curl -sS -X POST -H 'Content-Type: application/json' -d '{"metadata":{"name":"BAD"}}' "http://127.0.0.1:$port/api/v1/namespaces/default/configmaps?dryRun=All")
  expect_output '"code"*422'
  kill $proxy; wait $proxy 2>/dev/null || true
fi
