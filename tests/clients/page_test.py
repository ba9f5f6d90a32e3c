"""The built-in page in a headless Chromium: send, stream, stop, tools, keys, the engine view. No error may reach its console.

--images DIR keeps screenshots of the chat and of the engine view there.
"""
import argparse
import json
import math
import os
import pathlib
import sys
import threading
import time
import unittest

from server import Server, ServerTest, need

need("websocket")
from browser import Browser, BrowserError  # noqa: E402

IDLE = "!document.body.classList.contains('running')"
READY = "document.querySelector('#status').dataset.state === 'ready'"
ANSWER = ".message.assistant:last-of-type"
TOOLS = """[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
  "properties": {"city": {"type": "string", "enum": ["Bergen", "Lima"]}}, "required": ["city"], "additionalProperties": false}}}]"""


class PageTest(ServerTest):
    def setUp(self):
        self.browser = self.enterContext(Browser())
        self.open()

    def open(self):
        """Opens the page. Its chats go on for as many tokens as they may, whatever the model, and take the fields of
        `window.more`, for which the page has no switch."""
        self.browser.open(self.server.url + "/")
        self.browser.run("""(() => { const plain = window.fetch; window.more = () => ({}); window.fetch = (path, options) => {
            if (path !== 'v1/chat/completions') return plain(path, options);
            const body = JSON.parse(options.body);
            return plain(path, {...options, body: JSON.stringify({...body, ignore_eos: true, ...window.more(body)})}); }; })()""")

    def tearDown(self):
        self.assertEqual(self.browser.problems, self.expected_problems())
        strangers = [address for address in self.browser.requested if not address.startswith((self.server.url, "data:", "about:"))]
        self.assertEqual(strangers, [])

    def expected_problems(self):
        return []

    def set(self, name, value):
        """Gives a field of the settings a value, as typing does."""
        self.browser.run(f"""(() => {{ const field = document.querySelector('#settings-form').elements[{name!r}];
            field[field.type === 'checkbox' ? 'checked' : 'value'] = {json.dumps(value)};
            field.dispatchEvent(new Event('input', {{bubbles: true}})); }})()""")

    def send(self, text):
        self.browser.wait(READY)
        self.browser.run("document.querySelector('#prompt').focus()")
        self.browser.type(text)
        self.browser.press("Enter")


class Page(PageTest):
    def test_the_policy_allows_the_page_and_nothing_else(self):
        self.browser.wait(READY)
        self.assertEqual(self.browser.text("h1"), "Folio")
        self.assertTrue(self.browser.run("fetch('https://example.org/').then(() => false, () => true)"))
        blocked = self.browser.run("""(() => { try { document.body.innerHTML = '<b>x</b>'; return false; } catch { return true; } })()""")
        self.assertTrue(blocked, "the page may write HTML")
        self.browser.requested = [address for address in self.browser.requested if "example.org" not in address]
        blocked = [problem for problem in self.browser.problems if "example.org" in problem or "TrustedHTML" in problem]
        self.assertEqual(self.browser.problems, blocked)
        self.browser.problems.clear()

    def test_send_and_stream(self):
        self.set("thinking", False)
        self.set("max_tokens", 200)
        self.send("Name a <b>colour</b>.")
        self.assertEqual(self.browser.text(".message.user .bubble"), "Name a <b>colour</b>.")
        lengths = set()
        while not self.browser.run(IDLE):
            lengths.add(len(self.browser.text(ANSWER + " .prose") or ""))
        self.assertGreater(len(lengths), 3, "the answer did not come in parts")
        self.browser.wait(IDLE)
        self.assertRegex(self.browser.text(ANSWER + " .stats"), r"\d+ tokens · .* tok/s · first after")
        self.assertRegex(self.browser.text("#meter"), r"context \d+ of 4,096")
        # The next turn has this one in its prompt; the conversation outlives a reload.
        self.send("Another.")
        self.browser.wait("document.querySelectorAll('.message.assistant .stats').length === 2 && " + IDLE)
        self.open()
        self.browser.wait("document.querySelectorAll('.message').length === 4")
        self.browser.press("n", "KeyN", alt=True)
        self.browser.wait("document.querySelectorAll('.message').length === 0")

    def test_thinking_is_folded(self):
        self.set("max_tokens", 30)
        self.send("Think.")
        self.browser.wait("document.querySelector('.message.assistant .stats')?.textContent && " + IDLE)
        self.assertFalse(self.browser.run("document.querySelector('.reasoning').open"))
        self.assertTrue(self.browser.run("document.querySelector('.thoughts').textContent"))
        self.assertIn("cut at the token limit", self.browser.text(ANSWER + " .stats"))

    def test_stop_by_key_and_by_button(self):
        self.set("thinking", False)
        for stop in (lambda: self.browser.press("Escape"), lambda: self.browser.click("#stop")):
            self.browser.press("n", "KeyN", alt=True)
            self.send("Go on for long.")
            self.browser.wait("document.querySelector('.message.assistant .prose')?.textContent.length > 0")
            stop()
            self.browser.wait(IDLE)
            self.assertIn("stopped", self.browser.text(ANSWER + " .stats"))
            self.assert_idle()

    def test_a_tool_call_is_shown_and_answered(self):
        self.set("thinking", False)
        self.set("temperature", 0)
        self.set("max_tokens", 600)
        self.set("tools", TOOLS)
        self.browser.run("""void (window.more = ({messages}) => ({
            tool_choice: messages.at(-1).role === 'tool' ? 'none' : 'required', parallel_tool_calls: false}))""")
        self.send("Rain?")
        self.browser.wait("document.querySelector('.results textarea') !== null")
        self.assertIn("get_weather", self.browser.text(".call h3"))
        self.assertRegex(self.browser.text(".call pre"), r'"city": "(Bergen|Lima)"')
        self.browser.run("document.querySelector('.results textarea').focus()")
        self.browser.type("No.")
        self.browser.click(".results button")
        self.browser.wait("document.querySelectorAll('.message.assistant').length === 2 && " + IDLE)
        self.assertEqual(self.browser.text(".message.tool pre"), "No.")

    def test_bad_settings_are_said_where_they_are(self):
        self.set("tools", "{")
        self.send("Hello.")
        self.browser.wait("!document.querySelector('#settings').hidden")
        self.assertTrue(self.browser.text("#tools-error"))
        self.assertIn("no JSON array", self.browser.text(".failure"))

    def test_the_engine_view_is_live(self):
        self.browser.press("2", "Digit2", alt=True)
        self.browser.wait("document.querySelector('#view-engine').hidden === false")
        request = {"messages": [{"role": "user", "content": "word " * 200}], "max_tokens": 1500, "ignore_eos": True}
        threads = [threading.Thread(target=self.server.post, args=("/v1/chat/completions", request)) for _ in range(6)]
        for thread in threads:
            thread.start()
        number = "document.querySelector('.tile[aria-label=\"{}\"] .number').textContent"
        self.browser.wait(number.format("Requests") + " === '6'")
        self.browser.wait("/Up .* pages of 128 tokens/.test(document.querySelector('#engine-note').textContent)")
        self.browser.wait("parseFloat(" + number.format("Generation") + ") > 0")
        self.browser.wait("/[1-9]\\d* in use/.test(document.querySelector('canvas[aria-label^=\"Pages\"]').ariaLabel)")
        self.assertIn("6 in use", self.browser.run("document.querySelector('canvas[aria-label^=\"States\"]').ariaLabel"))
        self.browser.wait("/model [0-9.]+ (ms|µs|s)/.test(document.querySelector('canvas[aria-label^=\"Step time\"]').ariaLabel)")
        # Something is drawn, and an arrow key points at a moment.
        self.assertTrue(self.browser.run("""(() => { const c = document.querySelector('canvas[aria-label^="Tokens"]');
            return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v > 0); })()"""))
        self.browser.run("document.querySelector('canvas[aria-label^=\"Tokens\"]').focus()")
        self.browser.press("ArrowLeft")
        self.browser.wait("document.activeElement.parentElement.querySelector('.when').textContent.endsWith('s ago')")
        for thread in threads:
            thread.join()
        self.browser.wait(number.format("Requests") + " === '0'")
        self.browser.wait("/half[0-9.]+ (ms|s)/.test(document.querySelector('section[aria-label=\"Time to first token\"]').textContent)")

    def test_keyboard_and_colours(self):
        self.browser.run("document.activeElement.blur()")
        self.browser.press("?")
        self.browser.wait("document.querySelector('#help-dialog').open")
        self.browser.press("Escape")
        background = "getComputedStyle(document.body).backgroundColor"
        light = self.browser.run(background)
        self.browser.colours("dark")
        self.browser.wait(f"{background} !== {light!r}")
        self.browser.click("#toggle-theme")  # light, whatever the system prefers
        self.browser.wait(f"{background} === {light!r}")
        nameless = self.browser.run("""[...document.querySelectorAll('button, input, select, textarea')]
            .filter((e) => !(e.innerText || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML)""")
        self.assertEqual(nameless, [])

    def test_a_small_screen(self):
        self.browser.call("Emulation.setDeviceMetricsOverride", width=360, height=640, deviceScaleFactor=1, mobile=True)
        for view in ("1", "2"):
            self.browser.press(view, f"Digit{view}", alt=True)
            self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), 360)


class Hostile(PageTest):
    """What a model writes is text, whatever it looks like."""

    def test_markup_of_a_model_stays_text(self):
        texts = ["<img src=x onerror=alert(1)>", "[a](javascript:alert(1))", "**<script>alert(1)</script>**", "```html\n<b>x</b>\n```",
                 "| a | b |\n|---|---|\n| <i>c</i> | d |", "`" * 5000, "*" * 5000, "- " * 3000, "> " * 2000, "[" * 5000]
        self.browser.wait(READY)
        for text in texts:
            made = self.browser.run(f"""import('/markdown.js').then(({{renderMarkdown}}) => {{
                const box = document.createElement('div'); const start = performance.now();
                box.append(...renderMarkdown({text!r}));
                return [box.querySelectorAll('img, script, b, i, a[href^="javascript"]').length, performance.now() - start]; }})""")
            self.assertEqual(made[0], 0, text[:60])
            self.assertLess(made[1], 2000, text[:60])

    def test_markdown(self):
        cases = {
            "a **b** `c` *d*": "<p>a <strong>b</strong> <code>c</code> <em>d</em></p>",
            "snake_case_name and 2 * 3 * 4": "<p>snake_case_name and 2 * 3 * 4</p>",
            "# T\ntext": "<h3>T</h3><p>text</p>",
            "1. a\n2. b\n   - c": "<ol start=\"1\"><li>a</li><li>b<ul><li>c</li></ul></li></ol>",
            "see https://a.org/x.": "<p>see <a href=\"https://a.org/x\" target=\"_blank\" rel=\"noopener noreferrer\">https://a.org/x</a>.</p>",
            "> q\n\n---": "<blockquote><p>q</p></blockquote><hr>",
            "an open `tick and **star": "<p>an open `tick and **star</p>",
        }
        self.browser.wait(READY)
        for text, expected in cases.items():
            made = self.browser.run(f"""import('/markdown.js').then(({{renderMarkdown}}) => {{
                const box = document.createElement('div'); box.append(...renderMarkdown({text!r})); return box.innerHTML; }})""")
            self.assertEqual(made, expected)


class Key(PageTest):
    flags = ("--api-key", "secret")

    def expected_problems(self):
        return [problem for problem in self.browser.problems if "401" in problem]  # the browser logs every refusal

    def test_the_page_asks_for_a_key(self):
        self.browser.wait("document.querySelector('#key-dialog').open")
        self.browser.press("Escape")
        self.browser.wait("document.querySelector('#status-text').textContent === 'key needed'")
        self.set("max_tokens", 5)
        self.browser.run("document.querySelector('#prompt').focus()")
        self.browser.type("Hello.")
        self.browser.press("Enter")
        for key in ("wrong", "secret"):
            self.browser.wait("document.querySelector('#key-dialog').open")
            self.browser.run("document.querySelector('#key-input').focus()")
            self.browser.type(key)
            self.browser.press("Enter")
            self.browser.wait("!document.querySelector('#key-dialog').open || !document.querySelector('#key-refused').hidden")
        self.browser.wait("document.querySelector('.message.assistant .stats')?.textContent")
        self.assertNotIn("secret", self.browser.run("JSON.stringify(localStorage)"))


def take_images(folder):
    """Pictures of both views, of the trained model under some load."""
    questions = ["What is a lighthouse?", "Use the word harbour in a sentence.", "What is a synonym of quick?", "What is an island?"]
    model = pathlib.Path(os.environ["FOLIO_SOURCE_DIR"]) / "models" / "folio-tiny"
    with Server("--model", model, "--max-model-len", 2048, "--max-num-seqs", 24) as server, Browser(1280, 800) as browser:
        browser.open(server.url + "/")
        browser.wait(READY)
        for question in questions[:2]:
            browser.run("document.querySelector('#settings-form').elements.temperature.value = 0")
            browser.run("document.querySelector('#prompt').focus()")
            browser.type(question)
            browser.press("Enter")
            browser.wait("document.querySelector('.message.assistant:last-of-type .stats')?.textContent && " + IDLE)
        browser.run("document.querySelector('.reasoning summary')?.click()")
        browser.screenshot(folder / "page-chat.png")
        stop = time.monotonic() + 70

        def load(seed):
            while time.monotonic() < stop:
                words = " ".join(questions * (1 + 4 * (seed % 4)))
                server.post("/v1/chat/completions", {"messages": [{"role": "system", "content": words}, {"role": "user", "content": str(seed)}],
                                                     "max_tokens": 200 + 100 * (seed % 5), "ignore_eos": True, "seed": seed})
                time.sleep(1 + 2 * (seed % 3) * abs(math.sin(time.monotonic() / 9)))

        threads = [threading.Thread(target=load, args=(seed,)) for seed in range(14)]
        browser.press("2", "Digit2", alt=True)
        for thread in threads:
            thread.start()
            time.sleep(0.5)
        time.sleep(52)
        browser.screenshot(folder / "page-engine.png")
        browser.colours("dark")
        time.sleep(1.5)
        browser.screenshot(folder / "page-engine-dark.png")
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=pathlib.Path)
    arguments, rest = parser.parse_known_args()
    if arguments.images:
        take_images(arguments.images)
    else:
        try:
            Browser().close()
        except BrowserError as error:
            print(f"skipped: {error}", file=sys.stderr)
            sys.exit(77)
        unittest.main(argv=sys.argv[:1] + rest)
