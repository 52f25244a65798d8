# Reports events of ansible-playbook: one line of JSON per event, in the format of ansible-runner, after the run's secret.
import json

from ansible.plugins.callback import CallbackBase
from flyball_guard import RUN, note

DOCUMENTATION = """
name: flyball
type: stdout
short_description: events as lines of JSON
description: [One line of JSON for each event.]
"""


# Length limit of a message, so that a line stays within the limit of the reader.
MAX_MESSAGE = 8192


def message_of(result):
    # `message` is set by include_vars, `reason` by include_tasks, and by the modules for Kubernetes beside `msg`.
    message = result.get("message") or result.get("msg") or result.get("reason")
    if not isinstance(message, str):
        return message
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
        res = {key: result._result[key] for key in ("changed", "period") if key in result._result}
        res["msg"] = message_of(result._result)
        if task.no_log:
            res = {"msg": "the output has been hidden due to the fact that 'no_log: true' was specified for this result"}
        self.report(event, task=task.get_name(), task_action=task.action, res=res, **data)

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
