package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/internal/browsertest"
)

// hostile is an answer of a server that the page must show as it is.
const hostile = `<img src=x onerror="window.pwned = 1"><script>window.pwned = 1</script>`

// axeViolations is what axe-core, whose program is a file, finds on the page.
func axeViolations(t *testing.T, b *browsertest.Browser, program string) (found []string) {
	t.Helper()
	source, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	b.Eval(string(source)+"\n;0", nil)
	b.Eval(`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => v.impact + " " + v.id + ": " + v.nodes.map(n => n.html).join(" ").slice(0, 300)))`, &found)
	return found
}

// TestServePageSendsWhatWasChosen: a request of the page has the policy, the budget and the adapter that a person has
// chosen, and nothing else, so that the server's own rule holds, as that of short prompts. A lossy server is called so.
func TestServePageSendsWhatWasChosen(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string
		lossy string // what the page says of the server
		title string // of an answer where nothing was chosen
	}{
		{"lossless", nil, "", "full cache"},
		{"lossy", []string{"--policy", "snapkv", "--budget", "25%"}, "This server is lossy: snapkv at 25% leaves out a part of prompts of 256 tokens and more, so that answers may differ from the full cache's.", "snapkv at 25%"},
		{"lossy, short prompts, too", []string{"--policy", "streamingllm", "--budget", "8", "--full-below", "0"}, "This server is lossy: streamingllm at 8 entries leaves out a part of every prompt, so that answers may differ from the full cache's.", "streamingllm at 8 entries"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := browsertest.Start(t)
			_, url, _ := serveProgram(t, c.args...)
			b.Open(url, 1280, "light")
			b.Until(`document.querySelector("#model").textContent !== ""`)
			var told string
			if b.Eval(`document.querySelector("#lossy").hidden ? "" : document.querySelector("#lossy").textContent`, &told); told != c.lossy {
				t.Errorf("the page says %q, want %q", told, c.lossy)
			}
			b.Eval(`window.real = window.fetch; window.fetch = (u, o) => { if (o.body) window.sent = JSON.stringify(JSON.parse(o.body).eviction); return real(u, o); }; 0`, nil)
			choose := func(policy string) {
				b.Eval(fmt.Sprintf(`document.querySelector("#policy").value = %q; document.querySelector("#policy").dispatchEvent(new Event("change")); 0`, policy), nil)
			}
			for turn, step := range []struct {
				do   func()
				want string
			}{
				{func() {}, `{"kept":true}`},
				{func() { choose("snapkv") }, `{"policy":"snapkv","kept":true}`},
				{func() {
					b.Eval(`document.querySelector("#budget").value = 10; document.querySelector("#budget").dispatchEvent(new Event("input")); 0`, nil)
				}, `{"policy":"snapkv","budget":"10%","kept":true}`},
				{func() { choose("full") }, `{"policy":"full","kept":true}`},
				{func() { choose("") }, `{"kept":true}`},
			} {
				step.do()
				b.Eval(`document.querySelector("#message").focus()`, nil)
				b.Type("never karl lantern")
				b.Press("Enter", 0)
				b.Until(fmt.Sprintf(`document.querySelectorAll(".turn").length === %d && document.querySelector("#stop").disabled`, turn+1))
				var sent, title, kept string
				b.Eval(`window.sent`, &sent)
				b.Eval(`document.querySelector(".answer h3").textContent`, &title)
				b.Eval(`document.querySelector(".turn .amount").textContent`, &kept)
				if sent != step.want || title != c.title {
					t.Errorf("turn %d: sent %s under %q, want %s under %q", turn, sent, title, step.want, c.title)
				}
				if whole := strings.Contains(kept, "(100%)"); whole == slices.Contains(c.args, "--full-below") {
					t.Errorf("a short prompt: %s", kept)
				}
			}
			b.Check(func(asked string) bool { return strings.HasPrefix(asked, "data:") || strings.HasPrefix(asked, url+"/") })
		})
	}
}

// TestServePageDocumentInABrowser: a text that is dropped, chosen or pasted is compressed with a bar that goes to its end, under what is
// chosen; questions are asked behind it by its name, alone, until it is taken away. Where the policy has none, the page says why, and
// a pasted text stays.
func TestServePageDocumentInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	_, url, _ := serveProgram(t)
	b.Open(url, 1280, "light")
	b.Until(`document.querySelector("#model").textContent !== ""`)
	text := func(selector string) (text string) {
		t.Helper()
		b.Eval(fmt.Sprintf(`document.querySelector(%q).textContent`, selector), &text)
		return text
	}
	b.Eval(fmt.Sprintf(`window.report = %q; window.sent = [];
		window.real = window.fetch; window.fetch = (u, o) => { if (o.method !== "GET") sent.push([o.method, u, o.body && JSON.parse(o.body)]); return real(u, o); };
		window.given = (text, name) => { const t = new DataTransfer(); name ? t.items.add(new File([text], name)) : t.items.add(text, "text/plain"); return t; };
		window.choose = (policy, budget) => { for (const [id, value, type] of [["policy", policy, "change"], ["budget", budget, "input"]]) { const e = document.getElementById(id); e.value = value; e.dispatchEvent(new Event(type)); } };
		window.widths = []; new MutationObserver(all => all.forEach(m => widths.push(m.oldValue))).observe(document.querySelector("#document .bar div"), {attributeFilter: ["style"], attributeOldValue: true}); 0`,
		strings.Repeat("never karl lantern away farm ", 240)), nil)
	idle := func(shown bool) {
		t.Helper()
		b.Until(fmt.Sprintf(`document.querySelector("#stop").disabled && document.querySelector("#document").hidden === %v`, !shown))
	}

	// A policy that decides while it decodes.
	b.Eval(`choose("tova", 10); const e = document.querySelector("#message"); e.focus(); e.dispatchEvent(new ClipboardEvent("paste", {clipboardData: given(report), bubbles: true, cancelable: true})); 0`, nil)
	b.Until(`document.querySelector("#message").value === report && document.querySelector("#stop").disabled`)
	if got := text("#status.bad"); !strings.HasPrefix(got, "A document wants another policy. eviction.policy: policy tova: it decides while it decodes") {
		t.Errorf("under tova: %q", got)
	}
	trouble := b.Trouble()
	if len(trouble) != 1 || !strings.Contains(trouble[0], "status of 400") {
		t.Errorf("console: %s", trouble)
	}
	b.Eval(`document.querySelector("#message").value = ""; choose("snapkv", 10); 0`, nil)

	// One is dropped, and asked.
	b.Eval(`document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: given(report, "report.txt"), bubbles: true, cancelable: true})); 0`, nil)
	b.Until(`!!document.querySelector("#document.ready")`)
	idle(true)
	var widths []string
	if b.Eval(`widths`, &widths); !slices.Contains(widths, "width: 100%;") {
		t.Errorf("the bar was at %q", widths)
	}
	var ask struct {
		Text, Eviction string
		Stream         bool
	}
	b.Eval(`(({text, eviction, stream}) => ({Text: text, Eviction: JSON.stringify(eviction), Stream: stream}))(sent.at(-1)[2])`, &ask)
	if !strings.HasPrefix(ask.Text, "never karl lantern away farm never") || !ask.Stream || ask.Eviction != `{"policy":"snapkv","budget":"10%","kept":true}` {
		t.Errorf("the document was sent as %.200v", ask)
	}
	if title, amount, facts := text("#document h2"), text("#document .amount"), text("#document .facts"); title != "report.txt" || !strings.HasSuffix(amount, "entries per head (10%)") || !strings.Contains(facts, " tokens in ") || !strings.Contains(facts, " of memory, full ") {
		t.Errorf("the document is shown as %q, %q, %q", title, amount, facts)
	}
	var shown struct {
		Tokens, Shades int
		Open, Free     bool
	}
	b.Eval(`(() => { const all = [...document.querySelectorAll("#document .tokens span")]; return {Tokens: all.length, Shades: new Set(all.map(s => s.className)).size, Open: document.querySelector("#document details").open, Free: document.querySelector("#policy").matches(":enabled")}; })()`, &shown)
	if shown.Tokens < 1200 || shown.Shades < 2 || shown.Open || shown.Free {
		t.Errorf("what is left: %+v", shown)
	}
	question := func(turns int) (eviction string) {
		t.Helper()
		b.Eval(`document.querySelector("#message").focus()`, nil)
		b.Type("never karl lantern")
		b.Press("Enter", 0)
		b.Until(fmt.Sprintf(`document.querySelector("#stop").disabled && (document.querySelectorAll(".turn .kept.ready").length === %d || document.querySelector("#status").className === "bad")`, turns))
		if got := text("#status"); got != "" && got != `The answer is cut at 1,024 tokens: "Go on" has it written further.` {
			t.Fatalf("question %d: %s", turns, got)
		}
		b.Eval(`JSON.stringify(sent.at(-1)[2].eviction)`, &eviction)
		return eviction
	}
	name := text("#document .facts")
	name = name[strings.LastIndex(name, " ")+1:]
	if got := question(1); !strings.HasPrefix(name, "ctx-") || got != `{"context":"`+name+`"}` {
		t.Errorf("asked with %s, want the context %s", got, name)
	}
	b.Eval(`document.querySelector(".compare.ready").click()`, nil)
	b.Until(`!!document.querySelector(".answer.full .facts")?.textContent.includes("words")`)
	var whole bool
	if b.Eval(`sent.at(-1)[2].messages[0].content === report + "\n\nnever karl lantern"`, &whole); !whole {
		t.Error("the full cache was asked without the document")
	}
	for _, shot := range []struct {
		width  int
		scheme string
		open   bool
	}{{1280, "light", false}, {1280, "dark", true}, {320, "light", true}} {
		b.Resize(shot.width, shot.scheme)
		b.Eval(fmt.Sprintf(`document.querySelector("#document details").open = %v; scrollTo(0, 0)`, shot.open), nil)
		var wide int
		if b.Eval(`document.documentElement.scrollWidth`, &wide); wide > shot.width {
			t.Errorf("%d pixels wide, want %d", wide, shot.width)
		}
		if shots := os.Getenv("GLIMPSE_SHOTS"); shots != "" {
			if err := os.WriteFile(filepath.Join(shots, fmt.Sprintf("document-%d-%s.png", shot.width, shot.scheme)), b.Screenshot(nil), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}

	// It is taken away, and another one is chosen, which is no text.
	b.Eval(`document.querySelector("#take-away").click()`, nil)
	idle(false)
	var gone string
	if b.Eval(`JSON.stringify(sent.at(-1))`, &gone); gone != `["DELETE","/v1/contexts/`+name+`",null]` {
		t.Errorf("sent %s", gone)
	}
	if got := question(2); got != `{"policy":"snapkv","budget":"10%","kept":true}` {
		t.Errorf("without a document: %s", got)
	}
	b.Eval(`document.querySelector("#file").files = given(new Uint8Array([255, 0]), "picture.png").files; document.querySelector("#file").dispatchEvent(new Event("change")); 0`, nil)
	b.Until(`document.querySelector("#status").textContent === "picture.png is not a text in UTF-8."`)
	b.Check(func(asked string) bool { return strings.HasPrefix(asked, "data:") || strings.HasPrefix(asked, url+"/") })
}

// TestServePageInABrowser uses the page of evict serve as a person does: a key, a message, its answer and what was kept, the
// budget, the full cache, stop and clear, by keys alone. Nothing is asked of other hosts, nothing moves that was there, and
// it fits a phone in both schemes. GLIMPSE_SHOTS=DIR keeps pictures; GLIMPSE_SHOTS_MODEL and GLIMPSE_SHOTS_MESSAGE are those of them.
func TestServePageInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("correct-horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, url, _ := serveProgram(t, "--keys", keys, "--policy", "lookaheadkv", "--full-below", "0", "--heads", "equal")
	servers := []string{url}
	b.Open(url, 1280, "light")

	text := func(selector string) (text string) {
		t.Helper()
		b.Eval(fmt.Sprintf(`document.querySelector(%q).textContent`, selector), &text)
		return text
	}
	send := func(message string) {
		b.Type(message)
		b.Press("Enter", 0)
	}
	idle := func(turns int) {
		t.Helper()
		b.Until(fmt.Sprintf(`document.querySelectorAll(".turn").length === %d && document.querySelector("#stop").disabled`, turns))
	}
	// refused takes requests that ended in a status from the console.
	refused := func(status string) {
		t.Helper()
		trouble := b.Trouble()
		for _, e := range trouble {
			if !strings.Contains(e, "the server responded with a status of "+status) {
				t.Errorf("console: %s", e)
			}
		}
		if len(trouble) == 0 {
			t.Errorf("no request ended in %s", status)
		}
	}
	// long has the answers that follow written to so many tokens.
	long := func(tokens int) {
		b.Eval(fmt.Sprintf(`window.real ??= window.fetch; window.fetch = (u, o) => real(u, {...o, body: JSON.stringify({...JSON.parse(o.body), ignore_eos: true, max_tokens: %d})}); 0`, tokens), nil)
	}
	tabTo := func(id string) {
		t.Helper()
		for range 30 {
			var at string
			if b.Eval(`document.activeElement.id || document.activeElement.className`, &at); at == id {
				var outline string
				if b.Eval(`getComputedStyle(document.activeElement).outlineStyle`, &outline); outline == "none" {
					t.Errorf("the focus on %s is not seen", id)
				}
				return
			}
			b.Press("Tab", 0)
		}
		t.Fatalf("tabs do not lead to %s", id)
	}

	// A wrong key, the right one.
	b.Until(`document.activeElement.id === "key"`)
	send("wrong")
	b.Until(`document.querySelector("#status").textContent.includes("key")`)
	b.Until(`document.activeElement.id === "key" && document.activeElement.value === ""`)
	send("correct-horse")
	b.Until(`document.querySelector("#login").hidden && document.activeElement.id === "message"`)
	if got := text("#model"); got != "glimpse-reference" {
		t.Errorf("the model is %q", got)
	}
	var stored string
	if b.Eval(`JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])`, &stored); stored != `[{"glimpse-api-key":"correct-horse"},{},""]` {
		t.Errorf("the browser keeps %s", stored)
	}
	refused("401") // without the key, and with a wrong one
	b.Eval(`window.shift = 0; new PerformanceObserver(l => l.getEntries().forEach(e => { if (!e.hadRecentInput) window.shift += e.value; })).observe({type: "layout-shift"})`, nil)

	// A line, a message, its answer and what was kept.
	b.Type("never karl")
	b.Press("Enter", 8)
	send("lantern")
	idle(1)
	if got := text(".asked"); got != "never karl\nlantern" {
		t.Errorf("asked %q", got)
	}
	if got := text(".answer .answered"); got != "away farm lantern" {
		t.Errorf("answered %q", got)
	}
	if got := text(".answer .facts"); !strings.Contains(got, "tokens/s, first after ") {
		t.Errorf("speed: %q", got)
	}
	kept := func(turn string) (tokens int, sum float64) {
		var shares []float64
		b.Eval(fmt.Sprintf(`[...document.querySelectorAll("%s .tokens span")].map(s => parseFloat(s.title.match(/kept by (\d+)%%/)[1]) / 100)`, turn), &shares)
		for _, s := range shares {
			sum += s
		}
		return len(shares), sum
	}
	if n, sum := kept(".turn"); n != 9 || math.Abs(sum-4) > 0.05*9 || !strings.HasPrefix(text(".turn .amount"), "4 of 9 entries per head (44%)") {
		t.Errorf("%d tokens of which %v are kept: %q", n, sum, text(".turn .amount"))
	}
	var darker bool
	b.Eval(`(() => { const all = [...document.querySelectorAll(".tokens span")], of = s => getComputedStyle(s).backgroundColor; return new Set(all.map(of)).size > 1; })()`, &darker)
	if !darker {
		t.Error("tokens that are kept look like those that are not")
	}

	// By keys alone: the full cache beside it, another budget, the next turn.
	tabTo("compare ready")
	b.Press(" ", 0)
	b.Until(`document.querySelectorAll(".answer").length === 2 && document.querySelector("#stop").disabled`)
	if got := text(".answer.full .answered"); got == "" || !strings.Contains(text(".answer.full .facts"), "words") {
		t.Errorf("the full cache: %q, %q", got, text(".answer.full .facts"))
	}
	tabTo("budget")
	b.Eval(`document.querySelector("#budget").value = 98`, nil)
	b.Press("ArrowRight", 0)
	b.Press("ArrowRight", 0)
	if got := text("#share"); got != "100%" {
		t.Errorf("the budget is %q", got)
	}
	tabTo("message")
	send("never karl lantern")
	idle(2)
	if n, sum := kept(".turn:last-child"); n <= 9 || sum != float64(n) {
		t.Errorf("at 100%% %v of %d tokens are kept", sum, n)
	}
	send("<b>markup</b>") // no word of the model
	b.Until(`!!document.querySelector("#status.bad")?.textContent.includes("vocabulary")`)
	b.Eval(`document.querySelector("#message").select()`, nil)
	refused("400")
	if got := text(".turn:last-child .asked"); got != "<b>markup</b>" {
		t.Errorf("asked %q", got)
	}

	// Escape stops a long answer, and the conversation goes on.
	long(3900)
	send("never karl lantern")
	b.Until(`document.querySelector(".turn:last-child .answer .answered").textContent.length > 100`)
	b.Press("Escape", 0)
	idle(4)
	if got := text(".turn:last-child .answer .facts"); got != "stopped" {
		t.Errorf("after Escape: %q", got)
	}

	// What a model says is text.
	b.Eval(fmt.Sprintf(`window.fetch = async () => new Response("data: " + JSON.stringify({choices: [{delta: {content: %q}}]}) + "\n\ndata: " + JSON.stringify({choices: [], usage: {prompt_tokens: 1, completion_tokens: 1,
		prompt_tokens_details: {cached_tokens: 0}, eviction: {kept_entries: 1, kept_bytes: 1, full_bytes: 1, read_entries: 1, prefill_ms: 1, tokens_per_s: 1, tokens: [[%q, 1]]}}}) + "\n\ndata: [DONE]\n")`, hostile, hostile), nil)
	send("hostile")
	idle(5)
	var pwned bool
	b.Eval(`window.pwned !== undefined || document.querySelectorAll("img, main script").length > 0`, &pwned)
	if pwned || text(".turn:last-child .answer .answered") != hostile || text(".turn:last-child .tokens") != hostile {
		t.Errorf("an answer is markup: %v, %q, %q", pwned, text(".turn:last-child .answer .answered"), text(".turn:last-child .tokens"))
	}

	// A prompt that is too long to be shown is answered without.
	b.Eval(`window.fetch = (u, o) => JSON.parse(o.body).eviction.kept ? Promise.resolve(Response.json({error: {message: "too long", param: "eviction.kept"}}, {status: 400})) : real(u, o); 0`, nil)
	b.Eval(`document.querySelector("#clear").click()`, nil)
	send("never karl lantern")
	idle(1)
	if got := text(".answer .answered") + ", " + text(".turn .tokens"); got != "away lantern, The prompt is too long to be shown." { // at 100%
		t.Errorf("a long prompt: %q", got)
	}
	var shift float64
	if b.Eval(`window.shift`, &shift); shift > 0 {
		t.Errorf("what was there moved: layout shift %v", shift)
	}
	var nameless []string
	b.Eval(`[...document.querySelectorAll("button, input, select, textarea")].filter(e => !(e.labels?.length || e.ariaLabel || e.textContent.trim())).map(e => e.outerHTML)`, &nameless)
	if len(nameless) > 0 {
		t.Errorf("without a label: %q", nameless)
	}
	tabTo("clear")
	b.Press("Enter", 0)
	b.Until(`document.querySelectorAll(".turn").length === 0 && document.activeElement.id === "message"`)

	shots, message := os.Getenv("GLIMPSE_SHOTS"), os.Getenv("GLIMPSE_SHOTS_MESSAGE")
	if message == "" {
		message = "never karl lantern never karl"
	}
	if model := os.Getenv("GLIMPSE_SHOTS_MODEL"); model != "" {
		_, url, _ = serveProgram(t, "--model", model, "--policy", "snapkv", "--budget", "25%", "--full-below", "0")
		servers = append(servers, url)
	}
	for _, width := range []int{1440, 800, 320} {
		for _, scheme := range []string{"light", "dark"} {
			b.Eval(`localStorage.clear()`, nil) // the chats of before
			b.Open(url, width, scheme)
			b.Until(`document.querySelector("#model").textContent !== ""`)
			b.Eval(`document.querySelector("#message").focus()`, nil)
			long(80)
			send(message)
			b.Until(`document.querySelector(".tokens span") !== null`)
			var moved float64
			b.Eval(`new Promise(done => new PerformanceObserver(l => done(l.getEntries().reduce((sum, e) => sum + e.value, 0))).observe({type: "layout-shift", buffered: true}) || setTimeout(done, 100, 0))`, &moved)
			if moved > 0.01 {
				t.Errorf("at %d pixels what was there moved: layout shift %v", width, moved)
			}
			b.Eval(`document.querySelector(".compare.ready").click()`, nil)
			b.Until(`!!document.querySelector(".answer.full .facts")?.textContent.includes("words")`)
			var wide int
			if b.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
				t.Errorf("%d pixels wide, want %d", wide, width)
			}
			var cut []string // what hangs over the edge though the page does not scroll
			b.Eval(`[...document.querySelectorAll("body *")].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))`, &cut)
			if len(cut) > 0 {
				t.Errorf("at %d pixels over the edge: %q", width, cut)
			}
			var light int
			b.Eval(`Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0])`, &light)
			if (light > 128) != (scheme == "light") {
				t.Errorf("%s: the background is %d of 255", scheme, light)
			}
			if program := os.Getenv("GLIMPSE_AXE"); program != "" { // see lab/peers/check_axe.sh
				b.Eval(`document.querySelector("#more").click()`, nil)
				if found := axeViolations(t, b, program); len(found) > 0 {
					t.Errorf("at %d pixels, %s: %q", width, scheme, found)
				}
				b.Eval(`document.querySelector("#more").click()`, nil)
			}
			if shots != "" {
				b.Eval(`scrollTo(0, document.documentElement.scrollHeight)`, nil) // with the message's field below all
				if err := os.WriteFile(filepath.Join(shots, fmt.Sprintf("page-%d-%s.png", width, scheme)), b.Screenshot(nil), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	b.Check(func(asked string) bool {
		return strings.HasPrefix(asked, "data:") || slices.ContainsFunc(servers, func(url string) bool { return strings.HasPrefix(asked, url+"/") })
	})
}
