package figures

import (
	"bytes"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

func TestFormatOf(t *testing.T) {
	for path, want := range map[string]Format{"a.png": PNG, "x/b.SVG": SVG, "c.d.pdf": PDF} {
		if got, err := FormatOf(path); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"a.jpg", "a", "png", "a.png/b", ""} {
		if _, err := FormatOf(path); err == nil || !strings.Contains(err.Error(), ".png, .svg or .pdf") {
			t.Errorf("%s: error %v, want one that names the three", path, err)
		}
	}
}

// TestWrite: every format has its signature and the text, and the same bytes every time.
func TestWrite(t *testing.T) {
	picture := func(f Format) string {
		var b bytes.Buffer
		err := Write(&b, f, 5*vg.Centimeter, 4*vg.Centimeter, 100, func(c draw.Canvas) {
			p := New()
			p.Title.Text = "naïve <b> 日"
			p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
			AddGrid(p)
			p.Draw(c)
		})
		if err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for f, begin := range map[Format]string{PNG: "\x89PNG\r\n", SVG: "<?xml", PDF: "%PDF-"} {
		one, two := picture(f), picture(f)
		if !strings.HasPrefix(one, begin) || one != two {
			t.Errorf("%s begins with %q; the same twice: %v", f, one[:8], one == two)
		}
	}
	if page := picture(SVG); !strings.Contains(page, ">naïve &lt;b&gt; 日<") || !strings.Contains(page, svgFonts) || strings.Contains(page, svgFont) {
		t.Error("SVG: the text or its fonts are not there")
	}
	if err := Write(new(bytes.Buffer), "gif", 10, 10, 72, func(draw.Canvas) {}); err == nil {
		t.Error("gif: want an error")
	}
}
