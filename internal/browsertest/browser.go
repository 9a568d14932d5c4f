// Package browsertest drives a headless Chromium in tests of pages.
package browsertest

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// browserVar names a headless Chromium; the tests that need one are left out without it.
const browserVar = "GLIMPSE_CHROMIUM"

// Browser is a page of a Chromium that is driven over a pipe (the DevTools protocol), which
// needs no library for the few tests that there are.
type Browser struct {
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

// Start starts the Chromium that GLIMPSE_CHROMIUM names, and ends it with the test, which is left out where there is none.
func Start(t *testing.T) *Browser {
	t.Helper()
	program := os.Getenv(browserVar)
	if program == "" {
		t.Skipf("%s names no Chromium: scripts/check_report.sh and scripts/check_page.sh install one and run this", browserVar)
	}
	profile, err := os.MkdirTemp("", "glimpse-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
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
	b := &Browser{t: t, in: toWrite, answers: make(map[int]chan message), loaded: make(chan bool, 8)}
	go b.listen(fromRead)
	t.Cleanup(func() {
		b.session = ""
		b.Call("Browser.close", nil, nil)
		cmd.Wait()
		cancel()
		toWrite.Close()
		fromRead.Close()
		os.RemoveAll(profile)
	})
	var target struct{ TargetID string }
	b.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		b.Call(domain+".enable", nil, nil)
	}
	return b
}

func (b *Browser) listen(from io.Reader) {
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

// Call is a command of the protocol and its answer, which result takes unless it is nil.
func (b *Browser) Call(method string, params any, result any) {
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

// Open loads a page at a width of the window in the light or the dark scheme.
func (b *Browser) Open(url string, width int, scheme string) {
	b.t.Helper()
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.Call("Page.navigate", map[string]any{"url": url}, nil)
	select {
	case <-b.loaded:
	case <-time.After(time.Minute):
		b.t.Fatal("the page does not load")
	}
}

// Eval runs an expression of JavaScript.
func (b *Browser) Eval(expression string, result any) {
	b.t.Helper()
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	b.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if e := out.ExceptionDetails; e != nil {
		b.t.Fatalf("%s: %s %s", expression, e.Text, e.Exception.Description)
	}
	if result != nil {
		if err := json.Unmarshal(out.Result.Value, result); err != nil {
			b.t.Fatalf("%s: %v: %s", expression, err, out.Result.Value)
		}
	}
}

// Point moves the pointer to the middle of what a selector finds first.
func (b *Browser) Point(selector string) {
	b.t.Helper()
	var at struct{ X, Y float64 }
	b.Eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.scrollIntoView({block: "center", behavior: "instant"}); const r = e.getBoundingClientRect(); return {X: r.x + r.width / 2, Y: r.y + r.height / 2}; })()`, selector), &at)
	b.Call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": at.X, "y": at.Y}, nil)
}

// Screenshot is the whole page, or what of it is below a height, as a PNG.
func (b *Browser) Screenshot(clip map[string]float64) []byte {
	b.t.Helper()
	params := map[string]any{"format": "png", "captureBeyondViewport": true}
	if clip != nil {
		params["clip"] = clip
	}
	var shot struct{ Data string }
	b.Call("Page.captureScreenshot", params, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}

// Press presses a key as a person does, with 8 for Shift: "Enter", "Tab", "Escape", "ArrowRight".
func (b *Browser) Press(key string, modifiers int) {
	b.t.Helper()
	code := map[string]int{"Enter": 13, "Tab": 9, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, " ": 32}[key]
	press := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
	if text := map[string]string{"Enter": "\r", " ": " "}[key]; text != "" {
		press["text"] = text
	}
	b.Call("Input.dispatchKeyEvent", press, nil)
	b.Call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}, nil)
}

// Type writes a text where the focus is.
func (b *Browser) Type(text string) {
	b.t.Helper()
	b.Call("Input.insertText", map[string]string{"text": text}, nil)
}

// Until waits for an expression of JavaScript to be true.
func (b *Browser) Until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var is bool
		if b.Eval(expression, &is); is {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("30 s have passed and it is not so: %s", expression)
		}
	}
}

// Trouble takes the errors of the console so far.
func (b *Browser) Trouble() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.trouble
	b.trouble = nil
	return out
}

// Check fails for errors of the console and for requests other than those that may be.
func (b *Browser) Check(may func(url string) bool) {
	b.t.Helper()
	for _, e := range b.Trouble() {
		b.t.Errorf("console: %s", e)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range b.asked {
		if !may(url) {
			b.t.Errorf("request for %.200s", url)
		}
	}
}
