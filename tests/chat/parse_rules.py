"""The reading of answers once more, by the rules of protocol spec 3.2 alone, for whole texts."""
import json

MARK = "｜DSML｜"
SPACE = " \t\n\r\f\v"
WORDS = ("calls", "tool_calls", "toolcalls", "function_calls")


def tags(slash, *names):
    return [f"<{slash}{MARK}{space}{name}" for name in names for space in (" ", "")]


WRAPPERS = tags("", *(word + ">" for word in WORDS))
CLOSERS = tags("/", *(word + ">" for word in WORDS))
MARKED_INVOKES = tags("", 'invoke name="')
INVOKES = MARKED_INVOKES + ['<invoke name="']
PARAMETERS = tags("", 'parameter name="') + ['<parameter name="']
INVOKE_CLOSERS = tags("/", "invoke>")
BEHIND_WRAPPER = [f"<{MARK}", f"</{MARK}", '<invoke name="', '<parameter name="']
END_OF_VALUE = f"</{MARK}"


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def read_json(text):
    """The value of strict JSON as a list of one; [] for what is none."""
    def refuse(constant):
        raise ValueError(constant)
    try:
        return [json.loads(text, parse_constant=refuse)]
    except ValueError:
        return []


def tag_at(text, at, options):
    return next((option for option in options if text.startswith(option, at)), None)


def may_become(text, at, options):
    """The rest of the text is the beginning of a tag."""
    return any(option.startswith(text[at:]) for option in options)


def find_tag(text, at, options):
    """Where the next tag, or at the end the beginning of one, stands, and the tag: None for a beginning."""
    while (at := text.find("<", at)) >= 0:
        tag = tag_at(text, at, options)
        if tag or may_become(text, at, options):
            return at, tag
        at += 1
    return len(text), None


def before_newlines(text, begin, at):
    """`at` without the up to two newlines in front of it, which are those of a block."""
    for _ in range(2):
        if at > begin and text[at - 1] == "\n":
            at -= 1
    return at


class Call:
    def __init__(self, name, tools):
        self.name, self.arguments, self.complete, self.keys = name, "", False, []
        function = next((tool["function"] for tool in tools if tool["function"]["name"] == name), {})
        parameters = function.get("parameters") or {}
        self.properties = parameters.get("properties")

    def add(self, key, text):
        self.arguments += ("{" if not self.keys else ", ") + dumps(key) + ": " + text
        self.keys.append(key)

    def add_members(self, members):
        for key, value in members.items():
            if key not in self.keys:
                self.add(key, dumps(value))

    def close(self):
        self.arguments += "}" if self.keys else "{}"
        self.complete = True

    def holds(self, key, kind):
        """Whether the value has to be whole before anything of it is certain."""
        return kind != "true" or self.unwraps(key)

    def unwraps(self, key):
        return not self.keys and key in ("arguments", "input") and self.properties is not None and key not in self.properties

    def add_value(self, key, kind, text):
        if key in self.keys:
            return
        value = read_json(text)
        if self.unwraps(key) and value and isinstance(value[0], dict) and all(name in self.properties for name in value[0]):
            return self.add_members(value[0])
        types = ((self.properties or {}).get(key) or {}).get("type", "any")
        types = [types] if isinstance(types, str) else types
        is_json = bool(value) and kind != "true"
        if is_json and not isinstance(value[0], str) and set(types) <= {"string", "null"} and "string" in types:
            is_json = "null" in types and value[0] is None
        self.add(key, text.strip(" \t\n\r") if is_json else dumps(text))


def read_key(text, at):
    """Key, kind ("true", "false" or "" without the attribute) and where the value begins; None: malformed."""
    marker = text.find(MARK, at)
    limit = marker if marker >= 0 else len(text)
    attribute = at
    while 0 <= (attribute := text.find('" string="', attribute)) < limit:
        for kind in ("true", "false"):
            value = attribute + len('" string="') + len(kind) + 2
            if text[:value].endswith(f'" string="{kind}">'):
                return text[at:attribute], kind, value
        attribute += 1
    end = text.find('">', at, limit)
    return None if end < 0 else (text[at:end], "", end + 2)


def read_parameters(text, at, call, stopped):
    """From behind the opener of a call to behind its end. Returns where to go on; None: nothing more comes."""
    first = True
    while True:
        while at < len(text) and text[at] in SPACE:
            at += 1
        if at == len(text):
            return call.close() if stopped else None
        if text[at] == "{" and first:
            first = False
            end = text.find(END_OF_VALUE, at)
            body = read_json(text[at:end] if end >= 0 else text[at:])
            is_object = bool(body) and isinstance(body[0], dict)
            if is_object and (end >= 0 or stopped):
                call.add_members(body[0])
            if end < 0:
                return call.close() if stopped and is_object else None
            at = end
            continue
        options = PARAMETERS + INVOKE_CLOSERS + INVOKES + CLOSERS
        tag = tag_at(text, at, options)
        if tag is None and may_become(text, at, options):
            return call.close() if stopped else None
        first = False
        if tag in INVOKE_CLOSERS or tag in INVOKES:
            call.close()
            return at + len(tag) if tag in INVOKE_CLOSERS else at
        if tag in CLOSERS:
            return call.close()
        if tag is None:
            at = text.find("<", at + 1) if "<" in text[at + 1:] else len(text)
            continue
        at += len(tag)
        found = read_key(text, at)
        if found is None:
            continue
        key, kind, at = found
        end = text.find(END_OF_VALUE, at)
        if end < 0:
            if not call.holds(key, kind) and key not in call.keys:
                rest = text[at:]
                held = max((n for n in range(len(END_OF_VALUE)) if rest.endswith(END_OF_VALUE[:n])), default=0)
                call.add(key, dumps(rest[:len(rest) - held])[:-1])
            return None
        call.add_value(key, kind, text[at:end])
        at = text.find(">", end)
        if at < 0:
            return call.close() if stopped else None
        word = text[end + len(END_OF_VALUE):at].strip(SPACE)
        at += 1
        if word == "invoke":
            call.close()
            return at
        if word in WORDS:
            return call.close()


def read_calls(text, at, tools, stopped):
    calls = []
    while at is not None:
        at, tag = find_tag(text, at, INVOKES + CLOSERS)
        if tag is None or tag in CLOSERS:
            break
        at += len(tag)
        quote, newline = text.find('"', at), text.find("\n", at)
        if quote < 0 or 0 <= newline < quote or len(text[at:quote].encode()) > 256:
            continue
        end = text.find(">", quote + 1)
        if end < 0:
            break
        calls.append(Call(text[at:quote], tools))
        at = end + 1
        if end > quote + 1 and text[end - 1] == "/":
            calls[-1].close()
        else:
            at = read_parameters(text, at, calls[-1], stopped)
    return [[call.name, call.arguments, call.complete] for call in calls]


def parse(text, start, with_calls, tools, stopped):
    """{"reasoning", "content", "calls": [[name, arguments, complete]]} of a whole answer."""
    out = {"reasoning": "", "content": "", "calls": []}
    state, at = start, 0
    options = ["<think>", "</think>"] + (WRAPPERS + MARKED_INVOKES if with_calls else [])
    while True:
        tag_begin, tag = find_tag(text, at, options)
        calls_at = tag_begin if tag in MARKED_INVOKES else None
        held = tag is None and with_calls and text.startswith(f"<{MARK}", tag_begin)
        if tag in WRAPPERS:
            behind = tag_begin + len(tag)
            while behind < len(text) and text[behind] in SPACE:
                behind += 1
            if tag_at(text, behind, BEHIND_WRAPPER):
                calls_at = behind
            elif may_become(text, behind, BEHIND_WRAPPER):
                held = True
            else:  # it was quoted
                out[state] += text[at:tag_begin + len(tag)]
                at = tag_begin + len(tag)
                continue
        if held or calls_at is not None:
            out[state] += text[at:before_newlines(text, at, tag_begin)]
            out["calls"] = [] if held else read_calls(text, calls_at, tools, stopped)
            return out
        if tag is None:
            out[state] += text[at:]
            return out
        out[state] += text[at:tag_begin]
        at = tag_begin + len(tag)
        if tag == "</think>":
            state = "content"
        elif not out["content"].strip(SPACE):
            state = "reasoning"
