// Package browsertest drives a headless Chromium in tests of pages.
package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// browserVar names a headless Chromium; the tests that need one are left out without it.
const browserVar = "GLIMPSE_CHROMIUM"

// Browser is a page of a Chromium.
type Browser struct {
	t   *testing.T
	ctx context.Context

	mu      sync.Mutex
	trouble []string // errors of the console
	asked   []string // addresses of requests
}

// Start starts the Chromium that GLIMPSE_CHROMIUM names, and ends it with the test, which is left out where there is none.
func Start(t *testing.T) *Browser {
	t.Helper()
	program := os.Getenv(browserVar)
	if program == "" {
		t.Skipf("%s names no Chromium: lab/peers/check_report.sh and scripts/check_page.sh install one and run this", browserVar)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("hide-scrollbars", true))...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &Browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatalf("%s=%s: %v", browserVar, program, err)
	}
	return b
}

func (b *Browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled, *runtime.EventExceptionThrown, *log.EventEntryAdded:
		text, err := json.Marshal(e)
		b.trouble = append(b.trouble, fmt.Sprintf("%T %s %v", e, text, err))
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	}
}

// must is for what a browser does unless it is broken.
func (b *Browser) must(what string, err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// Open loads a page at a width of the window in the light or the dark scheme.
func (b *Browser) Open(url string, width int, scheme string) {
	b.t.Helper()
	b.Resize(width, scheme)
	b.must(url, chromedp.Do(b.ctx, chromedp.Navigate(url)))
}

// Resize gives the window a width, and the light or the dark scheme.
func (b *Browser) Resize(width int, scheme string) {
	b.t.Helper()
	viewport := []chromedp.EmulateViewportOption{chromedp.EmulateScale(1)}
	if width < 600 {
		viewport = append(viewport, chromedp.EmulateMobile)
	}
	b.must("window", chromedp.Do(b.ctx, chromedp.EmulateViewport(int64(width), 900, viewport...)))
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.must("scheme", err)
}

// Eval runs an expression of JavaScript.
func (b *Browser) Eval(expression string, result any) {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[json.RawMessage](expression, chromedp.EvalAwaitPromise))
	if err == nil && result != nil {
		err = json.Unmarshal(value, result)
	}
	b.must(expression, err)
}

// Point moves the pointer to the middle of the element that a selector finds first.
func (b *Browser) Point(selector string) {
	b.t.Helper()
	var at struct{ X, Y float64 }
	b.Eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.scrollIntoView({block: "center", behavior: "instant"}); const r = e.getBoundingClientRect(); return {X: r.x + r.width / 2, Y: r.y + r.height / 2}; })()`, selector), &at)
	b.must(selector, chromedp.Do(b.ctx, chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at.X, at.Y)))
}

// Screenshot is the whole page, or what of it is below a height, as a PNG.
func (b *Browser) Screenshot(clip map[string]float64) []byte {
	b.t.Helper()
	params := page.CaptureScreenshotParams{CaptureBeyondViewport: new(true)}
	if clip != nil {
		params.Clip = &page.Viewport{X: clip["x"], Y: clip["y"], Width: clip["width"], Height: clip["height"], Scale: clip["scale"]}
	}
	shot, err := chromedp.Call(b.ctx, page.CaptureScreenshot, params)
	b.must("screenshot", err)
	return shot.Data
}

// Press presses a key as a person does, with 8 for Shift: "Enter", "Tab", "Escape", "ArrowRight".
func (b *Browser) Press(key string, modifiers int) {
	b.t.Helper()
	keys := map[string]string{"Enter": kb.Enter, "Tab": kb.Tab, "Escape": kb.Escape, "ArrowRight": kb.ArrowRight, "ArrowLeft": kb.ArrowLeft, " ": " "}
	b.must(key, chromedp.Do(b.ctx, chromedp.KeyEvent(keys[key], chromedp.KeyModifiers(chromedp.Modifier(modifiers)))))
}

// Type writes a text where the focus is.
func (b *Browser) Type(text string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, input.InsertText, input.InsertTextParams{Text: text})
	b.must(text, err)
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
