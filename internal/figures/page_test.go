package figures

import (
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

func TestSpread(t *testing.T) {
	got := spread([]vg.Length{10, 11, 12, 90, 99}, 10, 0, 100)
	if want := []vg.Length{10, 20, 30, 90, 100}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := spread([]vg.Length{95, 96, 97}, 10, 0, 100); !slices.Equal(got, []vg.Length{80, 90, 100}) {
		t.Errorf("at the end: %v", got)
	}
}

// TestInline: series are groups, marks circles with their tips, inks variables, the upper left corner
// the origin, names upright or turned, and no text is markup.
func TestInline(t *testing.T) {
	const evil = `"><script>`
	series := NewSeries(evil, 1, []Point{{0, 1, 0.5, 1.5, evil + "1"}, {1, 2, 2, 2, "two"}}).ForPage()
	svg := Inline(200, 100, evil, func(c draw.Canvas) {
		p := New()
		p.BackgroundColor = nil
		AddSeries(p, NewLegend(), series, NewSeries("grey", Other, series.Points).ForPage())
		p.Add(EndLabels{series})
		p.Y.Label.Text = "turned"
		p.Draw(c)
		Bars{{Name: "x", Color: Faint, At: 50, Tip: "bar"}}.Plot(c, NewBars(Bars{{}}))
	})
	escaped := "&#34;&gt;&lt;script&gt;"
	for _, want := range []string{
		`<svg viewBox="0 0 200 100" width="250" height="125"`, `aria-label="` + escaped + `"`, `<g class="series c1" data-name="` + escaped + `">`, `stroke="var(--c1)"`,
		`data-tip="` + escaped + `1"/>`, `data-tip="two"/>`, `fill="var(--c1)" textLength="40.5" lengthAdjust="spacingAndGlyphs">` + escaped + `</text>`, `rotate(-90)" font-size="10" textLength="28.4" lengthAdjust="spacingAndGlyphs">turned</text>`, `data-tip="bar"/>`, `<g class="series other" data-name="grey">`,
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(svg, "<script") || strings.Contains(svg, "NaN") || strings.Count(svg, "<circle ") != 4 || strings.Count(svg, "<rect ") != 1 {
		t.Errorf("got\n%s", svg)
	}
	if strings.Index(svg, `data-name="grey"`) > strings.Index(svg, `class="series c1"`) {
		t.Error("the grey series lies above the one in colour")
	}
	if got := short(vg.Length(math.Copysign(0, -1))); got != "0" {
		t.Errorf("negative zero: %s", got)
	}
}
