package report

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/internal/browsertest"
)

// TestPageInABrowser opens the page in a headless Chromium: no error, no request, every chart
// has marks, the tables have the numbers, tabs, tips and shades work, no text of the run is
// markup, and the page is there in both schemes, also on a narrow screen.
func TestPageInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	r := build(t, Options{Samples: 9, Title: evil}, stored())
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, []byte(html(t, r)), 0o644); err != nil {
		t.Fatal(err)
	}
	b.Open("file://"+path, 1280, "light")

	var pwned bool
	var images, scripts int
	b.Eval(`window.pwned !== undefined`, &pwned)
	b.Eval(`document.images.length`, &images)
	b.Eval(`[...document.scripts].filter(s => s.type === "").length`, &scripts)
	if pwned || images != 0 || scripts != 1 {
		t.Errorf("text of the run is at work: %v, %d images, %d scripts", pwned, images, scripts)
	}
	var title string
	b.Eval(`document.querySelector("h1").textContent`, &title)
	if title != evil {
		t.Errorf("title %q, want %q", title, evil)
	}

	var empty []string
	b.Eval(`[...document.querySelectorAll(".chart svg")].filter(s => s.querySelectorAll("circle, rect").length === 0).map(s => s.getAttribute("aria-label"))`, &empty)
	var charts, marks int
	b.Eval(`document.querySelectorAll(".chart svg").length`, &charts)
	b.Eval(`document.querySelectorAll("#s1-quality .series").length`, &marks)
	if len(empty) > 0 || charts < 10 || marks != 5 {
		t.Errorf("%d charts, without marks: %q; %d series of quality, want 5", charts, empty, marks)
	}
	var outside []string // what the drawing area cuts off
	b.Eval(`[...document.querySelectorAll(".chart svg")].flatMap(s => { const v = s.viewBox.baseVal; return [...s.querySelectorAll("circle, rect, text")].filter(e => { const x = e.getBBox(); return !e.getAttribute("transform") && (x.x < -1 || x.y < -1 || x.x + x.width > v.width + 1 || x.y + x.height > v.height + 1); }).map(e => e.outerHTML); })`, &outside)
	for _, o := range outside {
		t.Errorf("outside of its chart: %.200s", o)
	}

	var means [][]string
	b.Eval(`[...document.querySelectorAll("#s1-overview tbody tr")].map(r => [...r.children].map(c => c.textContent.trim()))`, &means)
	for _, want := range [][]string{{"snapkv", "75.0", "100.0"}, {"judgeq/mine", "50.0", "50.0"}} {
		if !slices.ContainsFunc(means, func(l []string) bool {
			return len(l) == 3 && l[0] == want[0] && strings.Contains(l[1], want[1]) && strings.HasPrefix(l[2], want[2])
		}) {
			t.Errorf("means %q lack %q", means, want)
		}
	}
	var best []string
	b.Eval(`[...document.querySelectorAll("#s1-overview td.best")].map(c => c.parentElement.firstElementChild.textContent.trim() + " " + getComputedStyle(c).fontWeight)`, &best)
	if !slices.Equal(best, []string{"snapkv 700", "snapkv 700"}) {
		t.Errorf("best: %q", best)
	}

	// Tabs: the other budget is chosen everywhere in the article, and nowhere else.
	var shown []string
	b.Eval(`document.querySelectorAll("#s1-scores .tabbar button")[1].click(); [...document.querySelectorAll("#s1 .tab, #s2 .tab")].filter(t => t.checkVisibility()).map(t => t.closest("article").id + " " + t.dataset.name)`, &shown)
	if len(shown) < 6 || slices.ContainsFunc(shown, func(s string) bool { return s != "s1 B = 32" && s != "s2 B = 16" }) {
		t.Errorf("tabs that are shown: %q", shown)
	}

	// Tips: the nearest mark, a bar, a token.
	tip := func(selector string) (text string) {
		b.Point(selector)
		b.Eval(`new Promise(done => requestAnimationFrame(() => done(document.querySelector("#tip").hidden ? "" : document.querySelector("#tip").textContent)))`, &text)
		return text
	}
	if got := tip(`#s1-quality .series[data-name="random"] circle`); got != "random, B = 16: 0.0 ±3.0 %" {
		t.Errorf("tip of a mark: %q", got)
	}
	var lit []string
	b.Eval(`[...new Set([...document.querySelectorAll(".series.on")].map(s => s.dataset.name))]`, &lit)
	if !slices.Equal(lit, []string{"random"}) {
		t.Errorf("series that stand out: %q", lit)
	}
	if got := tip(`#s2-heat .tab:not([hidden]) rect`); got != "snapkv, 512 tokens, depth 0 %: 0.0 % (1 sample)" {
		t.Errorf("tip of a cell: %q", got)
	}
	b.Eval(`document.querySelector("#s1-kept details").open = true`, nil)
	var shades []string
	b.Eval(`[...document.querySelectorAll("#s1-kept .prompt i")].map(i => i.className + i.textContent)`, &shades)
	if want := []string{"k0<b>", "k8 of", "k2</script>", "k0\n", "k5" + evil}; !slices.Equal(shades, want) {
		t.Errorf("tokens %q, want %q", shades, want)
	}
	if got := tip("#s1-kept .prompt i:nth-of-type(2)"); got != "position 1: kept by 100% of the heads" {
		t.Errorf("tip of a token: %q", got)
	}
	b.Eval(`(() => { const s = document.querySelectorAll("#s1-kept select")[1]; s.value = "B = 32"; s.dispatchEvent(new Event("change")); })()`, nil)
	b.Eval(`[...document.querySelectorAll("#s1-kept .prompt i")].map(i => i.className)`, &shades)
	if want := []string{"k8", "k8", "k8", "k8", "k0"}; !slices.Equal(shades, want) {
		t.Errorf("shades at the other budget %q, want %q", shades, want)
	}

	// The look: nothing hangs over the edge, and the pictures are not blank.
	for _, c := range []struct {
		width  int
		scheme string
		dark   bool
	}{{1440, "light", false}, {1440, "dark", true}, {390, "light", false}, {390, "dark", true}} {
		b.Open("file://"+path, c.width, c.scheme)
		var wide int
		b.Eval(`document.documentElement.scrollWidth`, &wide)
		if wide > c.width {
			t.Errorf("%s at %d: the page is %d pixels wide", c.scheme, c.width, wide)
		}
		shot, err := png.Decode(bytes.NewReader(b.Screenshot(nil)))
		if err != nil {
			t.Fatal(err)
		}
		inked, dark := coverage(shot)
		if inked < 0.01 || dark != c.dark {
			t.Errorf("%s at %d: %.1f%% of the picture differ from its background, which is dark: %v", c.scheme, c.width, 100*inked, dark)
		}
	}
	b.Check(ofReport)
}

// ofReport: a report asks for nothing but itself.
func ofReport(url string) bool {
	return strings.HasPrefix(url, "file://") && strings.HasSuffix(url, ".html")
}

// coverage is the share of pixels that are not of the colour of the first, and whether that
// is dark.
func coverage(m image.Image) (inked float64, dark bool) {
	bounds := m.Bounds()
	r, g, bl, _ := m.At(bounds.Min.X, bounds.Min.Y).RGBA()
	n := 0
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			if pr, pg, pb, _ := m.At(x, y).RGBA(); pr != r || pg != g || pb != bl {
				n++
			}
		}
	}
	return float64(n) / float64(bounds.Dx()*bounds.Dy()), r+g+bl < 3*0x8000
}

// TestScreenshots writes pictures of a page, for people to look at:
// GLIMPSE_PAGE=report.html GLIMPSE_SHOTS=DIR.
func TestScreenshots(t *testing.T) {
	page, dir := os.Getenv("GLIMPSE_PAGE"), os.Getenv("GLIMPSE_SHOTS")
	if page == "" || dir == "" {
		t.Skip("GLIMPSE_PAGE and GLIMPSE_SHOTS name no page and folder")
	}
	b := browsertest.Start(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1440, 390} {
			b.Open("file://"+page, width, scheme)
			b.Eval(`document.querySelectorAll("section").forEach(s => { const d = s.querySelector(":scope > details"); if (d) d.open = true; })`, nil)
			var height float64
			b.Eval("document.documentElement.scrollHeight", &height)
			for i, top := 0, 0.0; top < height; i, top = i+1, top+1600 {
				shot := b.Screenshot(map[string]float64{"x": 0, "y": top, "width": float64(width), "height": min(1600, height-top), "scale": 1})
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%02d.png", scheme, width, i)), shot, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	b.Check(ofReport)
}
