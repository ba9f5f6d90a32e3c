"""The prompt encoding of DeepSeek-V4.1 once more, by the rules of protocol spec 2 alone and with Python's own JSON."""
import copy
import json

HOW_TO_CALL = (
    "## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke tools by writing a \"<｜DSML｜ calls>\" block like the "
    "following:\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"$TOOL_NAME\">\n<｜DSML｜ parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE"
    "</｜DSML｜ parameter>\n...\n</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"$TOOL_NAME2\">\n...\n</｜DSML｜ invoke>\n</｜DSML｜ calls>\n\nString parameters "
    "should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set "
    "`string=\"false\"`.\n\nIf thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any "
    "tool calls or final response.\n\nOtherwise, output directly after </think> with tool calls or final response.\n\n### Available Tool Schemas\n\n")
FOLLOW = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"
FORMAT = "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def function_of(tool):
    """The function of a tool, its namespace in its name (2.4)."""
    function = copy.deepcopy(tool["function"])
    inner = function.pop("namespace", None)
    space = tool.get("namespace", inner)
    if space is None:
        return function
    if "::" not in function["name"]:
        function["name"] = (space if isinstance(space, str) else space["name"]) + "::" + function["name"]
    if isinstance(space, dict) and space.get("description"):
        own = function.get("description")
        function["description"] = space["description"] + ("\n" + own if own else "")
    return function


def text_of(content):
    """The content of a message that is not a user's: its text alone (2.8)."""
    if isinstance(content, list):
        return "\n\n".join(part["text"] for part in content if part["type"] == "text")
    return content or ""


def block_text(block):
    if block["type"] == "text":
        return block["text"]
    if block["type"] != "tool_result":
        return f"[Unsupported {block['type']}]"
    content = block["content"]
    return "<tool_result>" + ("\n\n".join(map(block_text, content)) if isinstance(content, list) else content or "") + "</tool_result>"


def merged(messages):
    """User messages and tool results that follow each other are one turn (2.6)."""
    turns = []
    for message in messages:
        before = turns[-1] if turns and turns[-1]["role"] == "user" else None
        if message["role"] == "tool":
            if before is None:
                before = {"role": "user", "blocks": []}
                turns.append(before)
            before["blocks"].append({"type": "tool_result", "id": message.get("tool_call_id") or "", "content": text_of(message.get("content"))})
        elif message["role"] == "user":
            content = message.get("content")
            blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
            if before is not None and not before.get("task"):
                before["blocks"] += blocks
            else:
                turns.append({**message, "blocks": list(blocks)})
        else:
            turns.append({**message, "content": text_of(message.get("content"))})
    return turns


def sort_results(turns):
    order = {}
    for turn in turns:
        if turn["role"] == "assistant" and turn.get("tool_calls"):
            order = {call["id"]: place for place, call in enumerate(turn["tool_calls"])}
        elif turn["role"] == "user":
            places = [place for place, block in enumerate(turn["blocks"]) if block["type"] == "tool_result"]
            results = sorted((turn["blocks"][place] for place in places), key=lambda block: order.get(block["id"], 0))
            for place, result in zip(places, results):
                turn["blocks"][place] = result


def arguments_of(call):
    """Arguments as an object, whatever they are (2.7)."""
    given = call["function"]["arguments"]
    value = given
    for _ in range(2):
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                break
    return value if isinstance(value, dict) else {"arguments": given}


def calls_text(calls):
    invokes = []
    for call in calls:
        parameters = (f'<｜DSML｜ parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">'
                      f"{value if isinstance(value, str) else dumps(value)}</｜DSML｜ parameter>" for key, value in arguments_of(call).items())
        invokes.append(f'<｜DSML｜ invoke name="{call["function"]["name"]}">\n' + "\n".join(parameters) + "\n</｜DSML｜ invoke>")
    return "\n\n<｜DSML｜ calls>\n" + "\n".join(invokes) + "\n</｜DSML｜ calls>"


def last_opener(turns):
    return max((i for i, turn in enumerate(turns) if turn["role"] == "user" or (turn["role"] == "system" and i > 0)), default=-1)


def render(messages, tools, thinking, effort, drop, end):
    """The prompt. `end`: "reference", "generate", "none" (no header) or "continue"."""
    messages = copy.deepcopy(messages)
    if tools:
        if messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": ""})
        messages[0]["tools"] = messages[0].get("tools", []) + tools
    turns = merged(messages)
    sort_results(turns)
    drop = drop and not any(turn.get("tools") for turn in turns)
    last = last_opener(turns)
    text = "<｜begin▁of▁sentence｜>" + ("<｜System｜>" if thinking or turns[0]["role"] == "system" else "")
    if thinking:
        text += f"Reasoning Effort: {effort} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
    for i, turn in enumerate(turns):
        is_last = i == len(turns) - 1
        header_at = None
        goes_on = is_last and turn["role"] == "assistant" and (end == "continue" or (end == "generate" and turn.get("wo_eos")))
        if turn["role"] == "system":
            text += ("<｜System｜>" if i > 0 else "") + turn["content"]
            if turn.get("tools"):
                text += "\n\n" + HOW_TO_CALL + "\n".join(dumps(function_of(tool)) for tool in turn["tools"]) + FOLLOW
            if turn.get("response_format"):
                text += "\n\n" + FORMAT + dumps(turn["response_format"])
        elif turn["role"] == "user":
            text += "<｜User｜>" + "\n\n".join(map(block_text, turn["blocks"]))
        elif turn["role"] == "latest_reminder":
            text += "<｜latest_reminder｜>" + turn["content"]
        else:
            if thinking and not (i > 0 and turns[i - 1].get("task")) and (not drop or i > last):
                text += turn.get("reasoning_content") or ""
                if not (goes_on and not turn["content"] and not turn.get("tool_calls")):
                    text += "</think>"
            text += turn["content"] + (calls_text(turn["tool_calls"]) if turn.get("tool_calls") else "")
            if not turn.get("wo_eos") and not goes_on:
                text += "<｜end▁of▁sentence｜>"
        if not is_last and turns[i + 1]["role"] not in ("assistant", "latest_reminder"):
            continue
        opens = turn["role"] == "user" or (turn["role"] == "system" and i > 0)
        if turn.get("task"):
            if turn["task"] == "action":
                text += "<｜Assistant｜>" + ("<think>" if thinking else "</think>")
            text += f"<｜{turn['task']}｜>"
        elif opens:
            header_at = len(text)
            text += "<｜Assistant｜>" + ("<think>" if thinking and (not drop or i >= last) else "</think>")
    if end == "none" and header_at is not None:
        text = text[:header_at]
    if end == "generate" and header_at is None and not goes_on and not turns[-1].get("task"):
        text += "<｜Assistant｜>" + ("<think>" if thinking else "</think>")
    return text
