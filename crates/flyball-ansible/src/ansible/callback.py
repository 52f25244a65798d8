# Reports events of ansible-playbook: one line of JSON per event, in the format of ansible-runner, after the run's secret.
import json

from ansible.plugins.callback import CallbackBase
from flyball_guard import IS_RESTRICTED, RUN, note

DOCUMENTATION = """
name: flyball
type: stdout
short_description: events as lines of JSON
description: [One line of JSON for each event.]
"""


# Length limit of a message, so that a line stays within the limit of the reader.
MAX_MESSAGE = 8192
# Those of the name of a task, which users may influence, and of a period.
MAX_NAME = 256
MAX_PERIOD = 64


def message_of(result):
    # `message` is set by include_vars, `reason` by include_tasks, and by the modules for Kubernetes beside `msg`.
    message = result.get("message") or result.get("msg") or result.get("reason")
    if not isinstance(message, str):
        text = json.dumps(message, default=str)
        return message if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE]
    # These append the body of an error response.
    prefix, brace, body = message.partition("{")
    try:
        status = json.loads(brace + body)
        if status["kind"] == "Status":
            message = prefix + status["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return message[:MAX_MESSAGE]


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "flyball"

    def report(self, event, **data):
        print("\n" + RUN["secret"] + json.dumps({"event": event, "event_data": data}, default=str), flush=True)

    def result(self, event, result, **data):
        task = result._task
        res = {"changed": bool(result._result["changed"])} if "changed" in result._result else {}
        if "period" in result._result:
            res["period"] = str(result._result["period"])[: MAX_PERIOD + 1]
        res["msg"] = message_of(result._result)
        if task.no_log:
            res = {"msg": "the output has been hidden due to the fact that 'no_log: true' was specified for this result"}
        self.report(event, task=task.get_name()[:MAX_NAME], task_action=task.action[:MAX_NAME], res=res, **data)

    def v2_playbook_on_start(self, playbook):
        self.report("playbook_on_start", is_restricted=IS_RESTRICTED)

    def v2_playbook_on_task_start(self, task, is_conditional):
        note(task)

    def v2_playbook_on_handler_task_start(self, task):
        note(task)

    def v2_runner_on_ok(self, result):
        self.result("runner_on_ok", result)

    def v2_runner_on_skipped(self, result):
        self.result("runner_on_skipped", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.result("runner_on_failed", result, ignore_errors=bool(ignore_errors))

    def v2_runner_on_unreachable(self, result):
        self.result("runner_on_unreachable", result)

    def v2_playbook_on_stats(self, stats):
        names = ("ok", "changed", "failures", "dark", "skipped", "rescued", "ignored")
        self.report("playbook_on_stats", **{name: dict(getattr(stats, name)) for name in names})
