package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/internal/browsertest"
)

// page is the page of a server that is ready, with what tests do there.
type page struct {
	*browsertest.Browser
	url string
}

func openPage(t *testing.T, args ...string) page {
	t.Helper()
	b := browsertest.Start(t)
	_, url, _ := serveProgram(t, args...)
	p := page{b, url}
	p.open(1280)
	return p
}

func (p page) open(width int) {
	p.Open(p.url, width, "light")
	p.Until(`document.querySelector("#model").textContent !== ""`)
}

// send asks something and waits for so many turns.
func (p page) send(text string, turns int) {
	p.Eval(fmt.Sprintf(`document.querySelector("#message").value = %q; document.querySelector("#composer").requestSubmit(); 0`, text), nil)
	p.idle(turns)
}

func (p page) idle(turns int) {
	p.Until(fmt.Sprintf(`document.querySelectorAll(".turn").length === %d && document.querySelector("#stop").disabled`, turns))
}

// fits checks that nothing is wider than a desk's window or a phone's, and keeps pictures of it as GLIMPSE_SHOTS says.
func (p page) fits(t *testing.T, name string) {
	t.Helper()
	for _, width := range []int{390, 1280} {
		p.Resize(width, "light")
		var wide int
		if p.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
			t.Errorf("%s is %d pixels wide, want %d", name, wide, width)
		}
		if shots := os.Getenv("GLIMPSE_SHOTS"); shots != "" {
			if err := os.WriteFile(filepath.Join(shots, fmt.Sprintf("%s-%d.png", name, width)), p.Screenshot(nil), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (p page) text(selector string) (text string) {
	p.Eval(fmt.Sprintf(`document.querySelector(%q)?.textContent`, selector), &text)
	return text
}

// answer has the page's next requests answered with parts of a stream.
func (p page) answer(parts ...any) {
	var body strings.Builder
	for _, part := range parts {
		data, _ := json.Marshal(part) // of maps and texts
		fmt.Fprintf(&body, "data: %s\n\n", data)
	}
	p.Eval(fmt.Sprintf(`window.real ||= window.fetch; window.sent = []; window.fetch = async (u, o) => { sent.push(JSON.parse(o.body)); return new Response(%q); }; 0`, body.String()+"data: [DONE]\n"), nil)
}

type fields = map[string]any

func said(delta fields, reason any) fields {
	return fields{"choices": []any{fields{"delta": delta, "finish_reason": reason}}}
}

var usageOfPage = fields{"choices": []any{}, "usage": fields{"prompt_tokens": 3, "completion_tokens": 7, "prompt_tokens_details": fields{"cached_tokens": 0},
	"eviction": fields{"kept_entries": 2, "kept_bytes": 1, "full_bytes": 2, "read_entries": 2, "prefill_ms": 1, "tokens_per_s": 1, "tokens": [][2]any{{"a", 1}, {"b", 0.5}, {"c", 0}}}}}

// TestServePageMarkdownInABrowser: answers are shown as Markdown, without a way for them to be HTML, and their code can be copied.
func TestServePageMarkdownInABrowser(t *testing.T) {
	p := openPage(t)
	for name, c := range map[string]struct{ text, want string }{
		"words":           {"one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"},
		"emphasis":        {"**a** *b* __c__ _d_ ~~e~~ `f` snake_case_name 2 * 3 * 4", "<p><strong>a</strong> <em>b</em> <strong>c</strong> <em>d</em> <del>e</del> <code>f</code> snake_case_name 2 * 3 * 4</p>"},
		"escapes":         {`\*a\* \<b>`, `<p>*a* \&lt;b&gt;</p>`},
		"headings":        {"# a\n### b #", "<h4>a</h4><h6>b</h6>"},
		"lists":           {"- a\n- b\n  - c\n\n3. d\n4. e", `<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><ol start="3"><li>d</li><li>e</li></ol>`},
		"a quote":         {"> a\n> b", "<blockquote><p>a\nb</p></blockquote>"},
		"a rule":          {"a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"},
		"HTML":            {hostile, "<p>" + strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(hostile) + "</p>"},
		"HTML in code":    {"`<b>`", "<p><code>&lt;b&gt;</code></p>"},
		"bad links":       {"[a](javascript:alert(1)) [b](data:text/html,c) [d](/e)", "<p>[a](javascript:alert(1)) [b](data:text/html,c) [d](/e)</p>"},
		"a bad reference": {`[a](http://x/" onclick="y)`, `<p>[a](<a href="http://x/" target="_blank" rel="noopener noreferrer nofollow">http://x/</a>" onclick="y)</p>`},
		"a link":          {"[a **b**](https://example.org/c_(d))", `<p><a href="https://example.org/c_(d)" target="_blank" rel="noopener noreferrer nofollow">a <strong>b</strong></a></p>`},
		"an address":      {"see https://example.org/a_b.", `<p>see <a href="https://example.org/a_b" target="_blank" rel="noopener noreferrer nofollow">https://example.org/a_b</a>.</p>`},
		"an image":        {"![a](https://example.org/b.png)", `<p>!<a href="https://example.org/b.png" target="_blank" rel="noopener noreferrer nofollow">a</a></p>`},
		"open marks":      {"**a `b [c](", "<p>**a `b [c](</p>"},
		"nothing":         {"", ""},
	} {
		var got string
		p.Eval(fmt.Sprintf(`import("/page/markdown.js").then(m => { const e = document.createElement("div"); e.append(...m.render(%q)); return e.innerHTML; })`, c.text), &got)
		if got != c.want {
			t.Errorf("%s: %q is\n%s, want\n%s", name, c.text, got, c.want)
		}
	}
	var slow []string // what takes long to be read
	p.Eval(`import("/page/markdown.js").then(m => ["*", "**a ", "[", "- ", "> ", "| ", "__a ", "[a](", "1. a\n  "].filter(s => { const begin = performance.now(); m.render(s.repeat(4000)); return performance.now() - begin > 2000; }))`, &slow)
	if len(slow) > 0 {
		t.Errorf("these take long: %q", slow)
	}

	p.answer(said(fields{"reasoning_content": "I think."}, nil), said(fields{"content": "Some code:\n\n```go\nfmt.Print(\"<b>\")\n```\n\n| a | b |\n|---|--:|\n| 1 | 2 |"}, "stop"), usageOfPage)
	p.send("show me", 1)
	if code, head := p.text(".answer pre code"), p.text(".code-head span"); code != `fmt.Print("<b>")` || head != "go" {
		t.Errorf("code %q of %q", code, head)
	}
	if cell := p.text(".answer td.right"); cell != "2" {
		t.Errorf("a cell of the table is %q", cell)
	}
	var folded bool
	if p.Eval(`(d => !d.hidden && !d.open && d.textContent.includes("I think."))(document.querySelector(".answer details"))`, &folded); !folded {
		t.Error("thoughts are not folded")
	}
	p.fits(t, "markdown")
	p.Eval(`navigator.clipboard.writeText = async text => { window.copied = text; }; document.querySelector(".code-head .copy").click(); 0`, nil)
	p.Until(`document.querySelector(".code-head .copy").textContent === "Copied"`)
	var copied string
	if p.Eval(`copied`, &copied); copied != `fmt.Print("<b>")` {
		t.Errorf("copied %q", copied)
	}
	p.Eval(`document.querySelector(".copy-all").click()`, nil)
	if p.Eval(`copied`, &copied); !strings.HasPrefix(copied, "Some code:\n\n```go") {
		t.Errorf("copied %q", copied)
	}
	p.Check(func(asked string) bool {
		return strings.HasPrefix(asked, "data:") || strings.HasPrefix(asked, p.url+"/")
	})
}

// TestServePageGoesOnInABrowser: how far a prompt has run is shown, an answer that is cut is called so and goes on where it ended, and
// what the drawer says is sent.
func TestServePageGoesOnInABrowser(t *testing.T) {
	p := openPage(t)
	progress := func(n int) fields {
		return fields{"choices": []any{}, "prompt_progress": fields{"total": 400, "cache": 0, "processed": n, "time_ms": 4000 * n / 400}}
	}
	p.Eval(`window.read = []; new MutationObserver(() => read.push(document.querySelector("#status").textContent)).observe(document.querySelector("#status"), {childList: true});
		document.querySelector("#policy").value = "snapkv"; document.querySelector("#policy").dispatchEvent(new Event("change"));
		document.querySelector("#system").value = "Be short."; document.querySelector("#temperature").value = "0.5"; document.querySelector("#most-tokens").value = "7"; 0`, nil)
	p.answer(progress(100), progress(400), said(fields{"content": "one two"}, "length"), usageOfPage)
	p.send("count", 1)
	var read []string
	if p.Eval(`read`, &read); !slices.Contains(read, "100 of 400 tokens of the prompt are read, 3 s left.") {
		t.Errorf("the status was %q", read)
	}
	if facts := p.text(".answer .facts"); !strings.HasSuffix(facts, "Cut at 7 tokens") || !strings.Contains(p.text("#status"), "Go on") {
		t.Errorf("a cut answer: %q, %q", facts, p.text("#status"))
	}
	p.fits(t, "cut")
	p.Eval(`document.querySelector("#more").click()`, nil)
	p.fits(t, "drawer")
	request := func() (sent string) {
		p.Eval(`(b => JSON.stringify([b.messages, b.temperature, b.max_tokens, b.top_p ?? null, b.return_progress]))(sent[0])`, &sent)
		return sent
	}
	if got := request(); got != `[[{"role":"system","content":"Be short."},{"role":"user","content":"count"}],0.5,7,null,true]` {
		t.Errorf("sent %s", got)
	}
	p.open(1280) // as after a reload
	p.Until(`document.querySelector(".go-on")?.hidden === false`)
	var offered bool
	if p.Eval(`!!document.querySelector(".compare.ready")`, &offered); !offered {
		t.Error("after a reload the full cache is not offered")
	}
	p.Eval(`document.querySelector("#temperature").value = "0.5"; document.querySelector("#most-tokens").value = "7"; 0`, nil)
	p.answer(said(fields{"content": " three"}, "stop"), usageOfPage)
	p.Eval(`document.querySelector(".go-on").click()`, nil)
	p.Until(`document.querySelector("#stop").disabled && document.querySelector(".answered").textContent === "one two three"`)
	if got := request(); got != `[[{"role":"system","content":"Be short."},{"role":"user","content":"count"},{"role":"assistant","content":"one two"}],0.5,7,null,true]` {
		t.Errorf("went on with %s", got)
	}
	var hidden bool
	if p.Eval(`document.querySelector(".go-on").hidden`, &hidden); !hidden {
		t.Error("an answer that has ended may go on")
	}
	p.answer(said(fields{"content": "yes"}, "stop"), usageOfPage)
	p.send("more", 2)
	if got := request(); !strings.HasPrefix(got, `[[{"role":"system","content":"Be short."},{"role":"user","content":"count"},{"role":"assistant","content":"one two three"},{"role":"user","content":"more"}]`) {
		t.Errorf("the next message was sent as %s", got)
	}
}

// TestServePageKeepsChatsInABrowser: chats are there after a reload, with what was kept; others begin, are opened and are deleted; policies
// are grouped, with a sentence each, and bounds are not offered.
func TestServePageKeepsChatsInABrowser(t *testing.T) {
	p := openPage(t)
	p.send("never karl lantern", 1)
	p.send("away farm", 2)
	log := p.text("#log")
	p.open(1280)
	p.Until(`document.querySelectorAll(".turn").length === 2`)
	if again := p.text("#log"); again != log || !strings.Contains(log, "entries per head") {
		t.Errorf("after a reload:\n%q, want\n%q", again, log)
	}
	p.send("never karl", 3) // goes on with what was said
	var messages int
	if p.Eval(`JSON.parse(localStorage["glimpse-chats"])[0].messages.length`, &messages); messages != 6 {
		t.Errorf("%d messages after three turns, want 6", messages)
	}
	p.Eval(`document.querySelector("#clear").click()`, nil)
	p.send("lantern karl", 1)
	titles := func() (titles []string) {
		p.Eval(`[...document.querySelectorAll("#chats .open")].map(b => b.textContent + (b.ariaCurrent ? "!" : ""))`, &titles)
		return titles
	}
	if got := titles(); !slices.Equal(got, []string{"lantern karl!", "never karl lantern"}) {
		t.Errorf("chats: %q", got)
	}
	p.Eval(`document.querySelectorAll("#chats .open")[1].click()`, nil)
	p.idle(3)
	p.Eval(`document.querySelectorAll("#chats li button:last-child")[1].click()`, nil)
	p.Until(`document.querySelectorAll(".turn").length === 0`)
	if got := titles(); !slices.Equal(got, []string{"lantern karl"}) {
		t.Errorf("after one was deleted: %q", got)
	}

	var groups []struct {
		Label    string
		Policies []string
	}
	p.Eval(`[...document.querySelectorAll("#policy optgroup")].map(g => ({Label: g.label, Policies: [...g.children].map(o => o.value)}))`, &groups)
	var labels, all []string
	for _, g := range groups {
		labels, all = append(labels, g.Label), append(all, g.Policies...)
	}
	if !slices.Equal(labels, []string{"Recommended", "Learned", "By score, before the answer", "While the answer is written"}) || groups[0].Policies[0] != "full" {
		t.Errorf("groups: %+v", groups)
	}
	for name, want := range map[string]bool{"snapkv": true, "lookaheadkv": true, "judgeq": true, "tova": true, "oracle": false, "random": false, "exact-topk": false, "duoattention": false} {
		if slices.Contains(all, name) != want {
			t.Errorf("%s is offered: %t, want %t", name, !want, want)
		}
	}
	about := p.text("#about")
	for _, name := range all {
		p.Eval(fmt.Sprintf(`document.querySelector("#policy").value = %q; document.querySelector("#policy").dispatchEvent(new Event("change")); 0`, name), nil)
		if next := p.text("#about"); next == "" || next == about && name != "full" {
			t.Errorf("%s has no sentence of its own: %q", name, next)
		} else {
			about = next
		}
	}
	p.Check(func(asked string) bool {
		return strings.HasPrefix(asked, "data:") || strings.HasPrefix(asked, p.url+"/")
	})
}
