"""Requests with the kubeconfig of `flyball explore`, of Python's standard library only."""

import json
import os
import urllib.request

with open(os.environ["KUBECONFIG"]) as file:
    config = json.load(file)
SERVER = config["clusters"][0]["cluster"]["server"]
TOKEN = config["users"][0]["user"]["token"]


def call(method, path, body=None, content_type="application/json"):
    headers = {"Authorization": "Bearer " + TOKEN, "Content-Type": content_type}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + path, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=5) as response:
        return json.load(response)
