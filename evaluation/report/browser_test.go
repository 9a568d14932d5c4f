package report

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// browserVar names a headless Chromium; the tests that need one are left out without it.
const browserVar = "GLIMPSE_CHROMIUM"

// browser is a page of a Chromium that is driven over a pipe (the DevTools protocol), which
// needs no library for the one test that there is.
type browser struct {
	t       *testing.T
	in      io.Writer
	session string

	mu      sync.Mutex
	next    int
	answers map[int]chan message
	loaded  chan bool
	trouble []string // errors of the console
	asked   []string // addresses of requests
}

type message struct {
	ID      int             `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct{ Message string }
	Session string `json:"sessionId"`
}

// openBrowser starts the Chromium that browserVar names. Where CI asks for it and it is not
// there, the test fails.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	program := os.Getenv(browserVar)
	if program == "" {
		t.Skipf("%s names no Chromium: scripts/check_report.sh installs one and runs this", browserVar)
	}
	profile, err := os.MkdirTemp("", "glimpse-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, program, "--remote-debugging-pipe", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--hide-scrollbars", "--user-data-dir="+profile)
	toRead, toWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromRead, fromWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{toRead, fromWrite} // descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s=%s: %v", browserVar, program, err)
	}
	toRead.Close()
	fromWrite.Close()
	b := &browser{t: t, in: toWrite, answers: make(map[int]chan message), loaded: make(chan bool, 8)}
	go b.listen(fromRead)
	t.Cleanup(func() {
		b.session = ""
		b.call("Browser.close", nil, nil)
		cmd.Wait()
		cancel()
		toWrite.Close()
		fromRead.Close()
		os.RemoveAll(profile)
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) listen(from io.Reader) {
	r := bufio.NewReader(from)
	for {
		raw, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(raw[:len(raw)-1], &m); err != nil {
			continue
		}
		b.mu.Lock()
		switch m.Method {
		case "":
			if answer := b.answers[m.ID]; answer != nil {
				answer <- m
				delete(b.answers, m.ID)
			}
		case "Page.loadEventFired":
			b.loaded <- true
		case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
			b.trouble = append(b.trouble, string(m.Params))
		case "Network.requestWillBeSent":
			var p struct{ Request struct{ URL string } }
			json.Unmarshal(m.Params, &p)
			b.asked = append(b.asked, p.Request.URL)
		}
		b.mu.Unlock()
	}
}

// call is a command and its answer.
func (b *browser) call(method string, params any, result any) {
	b.t.Helper()
	answer := make(chan message, 1)
	b.mu.Lock()
	b.next++
	id := b.next
	b.answers[id] = answer
	b.mu.Unlock()
	if params == nil {
		params = struct{}{}
	}
	text, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" {
		text, err = json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(time.Minute):
		b.t.Fatalf("%s: no answer", method)
	}
}

// open loads a page at a width of the window in the light or the dark scheme.
func (b *browser) open(page string, width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.call("Page.navigate", map[string]any{"url": "file://" + page}, nil)
	select {
	case <-b.loaded:
	case <-time.After(time.Minute):
		b.t.Fatal("the page does not load")
	}
}

// eval runs an expression of JavaScript.
func (b *browser) eval(expression string, result any) {
	b.t.Helper()
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if e := out.ExceptionDetails; e != nil {
		b.t.Fatalf("%s: %s %s", expression, e.Text, e.Exception.Description)
	}
	if result != nil {
		if err := json.Unmarshal(out.Result.Value, result); err != nil {
			b.t.Fatalf("%s: %v: %s", expression, err, out.Result.Value)
		}
	}
}

// point moves the pointer to the middle of what a selector finds first.
func (b *browser) point(selector string) {
	b.t.Helper()
	var at struct{ X, Y float64 }
	b.eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.scrollIntoView({block: "center", behavior: "instant"}); const r = e.getBoundingClientRect(); return {X: r.x + r.width / 2, Y: r.y + r.height / 2}; })()`, selector), &at)
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": at.X, "y": at.Y}, nil)
}

// screenshot is the whole page, or what of it is below a height, as a PNG.
func (b *browser) screenshot(clip map[string]float64) []byte {
	b.t.Helper()
	params := map[string]any{"format": "png", "captureBeyondViewport": true}
	if clip != nil {
		params["clip"] = clip
	}
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", params, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}

// check fails for errors of the console and for requests other than for the page.
func (b *browser) check() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.trouble {
		b.t.Errorf("console: %s", e)
	}
	for _, url := range b.asked {
		if !strings.HasPrefix(url, "file://") || !strings.HasSuffix(url, ".html") {
			b.t.Errorf("request for %.200s", url)
		}
	}
}

// TestScreenshots writes pictures of a page, for people to look at:
// GLIMPSE_PAGE=report.html GLIMPSE_SHOTS=DIR.
func TestScreenshots(t *testing.T) {
	page, dir := os.Getenv("GLIMPSE_PAGE"), os.Getenv("GLIMPSE_SHOTS")
	if page == "" || dir == "" {
		t.Skip("GLIMPSE_PAGE and GLIMPSE_SHOTS name no page and folder")
	}
	b := openBrowser(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1440, 390} {
			b.open(page, width, scheme)
			b.eval(`document.querySelectorAll("section").forEach(s => { const d = s.querySelector(":scope > details"); if (d) d.open = true; })`, nil)
			var height float64
			b.eval("document.documentElement.scrollHeight", &height)
			for i, top := 0, 0.0; top < height; i, top = i+1, top+1600 {
				shot := b.screenshot(map[string]float64{"x": 0, "y": top, "width": float64(width), "height": min(1600, height-top), "scale": 1})
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%02d.png", scheme, width, i)), shot, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	b.check()
}
