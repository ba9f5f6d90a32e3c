"""Conversations as text in the published prompt format (protocol spec 2): what training sees and what is evaluated.

Only what the training conversations need: leading system message with tools or a response format, user turns, tool
results, assistant turns with reasoning and calls. Reasoning of earlier turns is kept when there are tools, else dropped.
"""

import json

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
SYSTEM, USER, ASSISTANT, THINK, END_THINK, DSML = (
    "<｜System｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
)
EFFORTS = {"low": 50, "high": 75, "max": 100}

_TOOLS = """## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

{schemas}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def calls_block(calls):
    """calls: [(name, {key: value})]."""
    invokes = []
    for name, arguments in calls:
        lines = [
            f'<{DSML} parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">'
            f"{value if isinstance(value, str) else dumps(value)}</{DSML} parameter>"
            for key, value in arguments.items()
        ]
        invokes.append(f'<{DSML} invoke name="{name}">\n' + "\n".join(lines) + f"\n</{DSML} invoke>")
    return f"<{DSML} calls>\n" + "\n".join(invokes) + f"\n</{DSML} calls>"


def render(turns, thinking=False, effort=75, system=None, tools=None, response_format=None, open_turn=False):
    """turns: list of ("user", text), ("tool", [results]) and ("assistant", text, reasoning, calls). With `open_turn` the
    text ends with the header of the answer to come."""
    out = [BOS]
    has_system = system is not None or tools or response_format
    if thinking or has_system:
        out.append(SYSTEM)
    if thinking:
        out.append(
            f"Reasoning Effort: {effort} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
        )
    if has_system:
        out.append(system or "")
        if tools:
            out.append("\n\n" + _TOOLS.replace("{schemas}", "\n".join(dumps(t) for t in tools)))
        if response_format:
            out.append(
                "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
                + dumps(response_format)
            )
    last = max(i for i, turn in enumerate(turns) if turn[0] != "assistant")
    for i, turn in enumerate(turns):
        if turn[0] == "assistant":
            _, text, reasoning, calls = turn
            if thinking and (tools or i > last):
                out.append((reasoning or "") + END_THINK)
            out.append(text + ("\n\n" + calls_block(calls) if calls else "") + EOS)
            continue
        content = turn[1] if turn[0] == "user" else "\n\n".join(f"<tool_result>{r}</tool_result>" for r in turn[1])
        out.append(USER + content)
        if i + 1 < len(turns) or open_turn:
            out.append(ASSISTANT + (THINK if thinking and (tools or i >= last) else END_THINK))
    return "".join(out)
