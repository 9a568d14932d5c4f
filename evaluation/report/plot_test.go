package report

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/atomicfile"
	"glimpse/internal/figures"
)

// decode reads a PNG and checks its size in pixels.
func decode(t *testing.T, path string, width, height int) image.Image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if size := img.Bounds().Size(); size != image.Pt(width, height) {
		t.Errorf("%s: %v pixels, want %dx%d", path, size, width, height)
	}
	return img
}

// inked counts the pixels of exactly each colour.
func inked(img image.Image, inks ...color.Color) []int {
	rgba := image.NewRGBA(img.Bounds())
	draw.Draw(rgba, rgba.Bounds(), img, image.Point{}, draw.Src)
	byColor := make(map[[4]byte]int)
	for pixel := range slices.Chunk(rgba.Pix, 4) {
		byColor[[4]byte(pixel)]++
	}
	counts := make([]int, len(inks))
	for i, ink := range inks {
		c := color.RGBAModel.Convert(ink).(color.RGBA)
		counts[i] = byColor[[4]byte{c.R, c.G, c.B, c.A}]
	}
	return counts
}

// plotFile writes a plot to a file, which on an error stays as it was.
func plotFile[T any](path string, plot func(io.Writer, figures.Format, T) error, of T) error {
	return atomicfile.Write(path, func(w io.Writer) error { return plot(w, figures.PNG, of) })
}

func TestPlotAccuracy(t *testing.T) {
	many := slices.Clone(sixPolicies)
	for i := range 20 {
		many = append(many, fmt.Sprintf("policy%d", i))
	}
	var bounds []string // references are named however many there are
	for i := range 10 {
		bounds = append(bounds, fmt.Sprintf("oracle(top=%d)", i))
	}
	cases := []struct {
		name          string
		rows          []evaluation.Row
		width, height int
		lines         int
	}{
		{"six policies", sampleRows(nineTasks, []int{16, 32, 64, 128}, sixPolicies), 1400, 840, 6},
		{"one budget", sampleRows(nineTasks, []int{64}, sixPolicies[:2]), 1400, 840, 2},
		{"one policy, no full cache", sampleRows(nineTasks, []int{64, 128}, sixPolicies[:1])[9:], 1400, 840, 1},
		{"one task", sampleRows(nineTasks[:1], []int{1, 1000000}, sixPolicies[:2]), 1400, 840, 2},
		{"of many policies ten are in colour", sampleRows(nineTasks[:1], []int{64, 128}, many), 1400, 840, 10},
		{"long legends get more height", sampleRows(nineTasks[:1], []int{64, 128}, append(slices.Clone(many), bounds...)), 1400, 939, 10},
		{"neighbouring budgets", sampleRows(nineTasks[:1], []int{64, 65, 66, 4096}, sixPolicies[:2]), 1400, 840, 2},
		{"several lengths", func() []evaluation.Row {
			rows := sampleRows(nineTasks[:2], []int{64, 128}, sixPolicies[:2])
			for _, r := range slices.Clone(rows) {
				r.Tokens = 1024
				rows = append(rows, r)
			}
			return rows
		}(), 1400, 840, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "accuracy.png")
			if err := plotFile(path, PlotAccuracy, c.rows); err != nil {
				t.Fatal(err)
			}
			img := decode(t, path, c.width, c.height)
			colored := min(c.lines, 6) // without black, which text has too
			for i, n := range inked(img, figures.Colors[:colored]...) {
				if n < 100 {
					t.Errorf("%d pixels of the colour of line %d, want a line", n, i)
				}
			}
			if n := inked(img, figures.Faint)[0]; (n > 400) != (c.lines == 10) {
				t.Errorf("%d grey pixels of lines without a name", n)
			}
		})
	}
}

// A perfect accuracy without errors has no range of its own.
func TestPlotAccuracyOfConstantRows(t *testing.T) {
	for _, accuracy := range []float64{0, 0.5, 1} {
		rows := sampleRows(nineTasks[:2], []int{16, 32}, sixPolicies[:2])
		for i := range rows {
			rows[i].Score, rows[i].StdErr = &accuracy, new(0.0)
		}
		path := filepath.Join(t.TempDir(), "accuracy.png")
		if err := plotFile(path, PlotAccuracy, rows); err != nil {
			t.Fatalf("accuracy %v: %v", accuracy, err)
		}
		decode(t, path, 1400, 840)
	}
}

func TestPlotAccuracyIsTheSameForTheSameRows(t *testing.T) {
	rows := sampleRows(nineTasks, []int{16, 32}, sixPolicies)
	dir := t.TempDir()
	var first []byte
	for i := range 2 {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := plotFile(path, PlotAccuracy, rows); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = data
		} else if !bytes.Equal(data, first) {
			t.Errorf("plot %d differs from the first", i)
		}
	}
}

func TestPlotAccuracyRefuses(t *testing.T) {
	full := sampleRows(nineTasks, nil, nil)
	incomplete := sampleRows(nineTasks, []int{16, 32}, sixPolicies)
	incomplete = slices.Delete(incomplete, 30, 31)
	var tooMany []evaluation.Row
	for i := range maxPanels + 1 {
		tooMany = append(tooMany, evaluation.Row{Policy: fmt.Sprint("p", i), Budget: eviction.Pairs(8), Task: "a", Samples: 1, Score: new(0.5)})
	}
	cases := []struct {
		name string
		rows []evaluation.Row
		want string
	}{
		{"nothing", nil, "no rows with a budget"},
		{"full cache only", full, "no rows with a budget"},
		{"a policy lacks a task", incomplete, `snapkv at budget 16: no row for task "chain" at 512 tokens`},
		{"too many policies", tooMany, "49 policies, want at most 48"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "accuracy.png")
			if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
				t.Fatal(err)
			}
			err := plotFile(path, PlotAccuracy, c.rows)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != "old" {
				t.Errorf("the file that was there holds %q (%v) after the error", data, err)
			}
		})
	}
	rows := sampleRows(nineTasks, []int{16}, sixPolicies)
	if err := plotFile(filepath.Join(t.TempDir(), "missing", "a.png"), PlotAccuracy, rows); err == nil {
		t.Error("no error for a folder that does not exist")
	}
}

// needleCells is a full grid; accuracy falls with the position of the policy.
func needleCells(policies []string, tokens []int, depths int) (cells []NeedleCell) {
	for i, policy := range policies {
		for _, n := range tokens {
			for d := range depths {
				cells = append(cells, NeedleCell{Policy: policy, Tokens: n, Depth: float64(d) / float64(max(1, depths-1)),
					Accuracy: 1 - float64(i)/float64(len(policies)), Samples: 10})
			}
		}
	}
	return cells
}

func TestPlotNeedle(t *testing.T) {
	lengths := []int{512, 1000, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072}
	cases := []struct {
		name          string
		cells         []NeedleCell
		width, height int
	}{
		{"one cell", needleCells(sixPolicies[:1], lengths[:1], 1), 690, 500},
		{"two panels", needleCells(sixPolicies[:2], lengths, 11), 1150, 500},
		{"four panels", needleCells(sixPolicies[:4], lengths, 5), 1150, 900},
		{"five panels leave a gap", needleCells(sixPolicies[:5], lengths, 5), 1610, 900},
		{"a row per policy, a column per budget", func() (cells []NeedleCell) {
			for _, c := range needleCells([]string{"full", "snapkv", "lookaheadkv/shipped"}, lengths, 5) {
				for _, c.Budget = range []string{"64", "5%", "10%", "20%"} {
					if c.Policy == "full" {
						c.Budget = ""
					}
					c.Metric = "contains"
					if cells = append(cells, c); c.Policy == "full" {
						break
					}
				}
			}
			return cells
		}(), 2070, 1300},
		{"finest grid", needleCells(sixPolicies[:1], func() (n []int) {
			for i := range maxNeedleSteps {
				n = append(n, 100+i)
			}
			return n
		}(), maxNeedleSteps), 690, 500},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "needle.png")
			if err := plotFile(path, PlotNeedle, c.cells); err != nil {
				t.Fatal(err)
			}
			img := decode(t, path, c.width, c.height)
			// The edges of letters have a few pixels of that grey, the smallest cell of
			// all but the finest grid has 900.
			if n := inked(img, figures.NotMeasured)[0]; n > 400 {
				t.Errorf("%d grey pixels, though every cell was measured", n)
			}
		})
	}
}

// The first length is left, the first depth on top, and what was not measured grey.
func TestPlotNeedlePutsCellsInTheirPlaces(t *testing.T) {
	cells := []NeedleCell{ // in no order; (1024 tokens, depth 1) is missing
		{Policy: "p", Tokens: 1024, Depth: 0, Accuracy: 0, Samples: 1},
		{Policy: "p", Tokens: 512, Depth: 1, Accuracy: 0.5, Samples: 1},
		{Policy: "p", Tokens: 512, Depth: 0, Accuracy: 1, Samples: 1},
	}
	path := filepath.Join(t.TempDir(), "needle.png")
	if err := plotFile(path, PlotNeedle, cells); err != nil {
		t.Fatal(err)
	}
	img := decode(t, path, 690, 500)
	shade := func(accuracy float64) color.Color {
		c, err := figures.Shades.At(accuracy)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const left, right, above, below = 200, 420, 150, 330 // inside the four cells
	for _, c := range []struct {
		name string
		x, y int
		want color.Color
	}{
		{"512 tokens, depth 0", left, above, shade(1)},
		{"1024 tokens, depth 0", right, above, shade(0)},
		{"512 tokens, depth 1", left, below, shade(0.5)},
		{"not measured", right, below, figures.NotMeasured},
	} {
		r, g, b, _ := img.At(c.x, c.y).RGBA()
		wr, wg, wb, _ := c.want.RGBA()
		if r>>8 != wr>>8 || g>>8 != wg>>8 || b>>8 != wb>>8 {
			t.Errorf("%s: colour %x %x %x, want %x %x %x", c.name, r>>8, g>>8, b>>8, wr>>8, wg>>8, wb>>8)
		}
	}
}

func TestPlotNeedleRefuses(t *testing.T) {
	valid := NeedleCell{Policy: "p", Tokens: 512, Depth: 0.5, Accuracy: 0.5, Samples: 1}
	with := func(change func(*NeedleCell)) []NeedleCell {
		bad := valid
		bad.Depth = 0.75
		change(&bad)
		return []NeedleCell{valid, bad}
	}
	var tooMany, tooLong []NeedleCell
	for i := range 200 {
		tooMany = append(tooMany, NeedleCell{Policy: fmt.Sprint(i), Tokens: 1, Samples: 1})
		tooLong = append(tooLong, NeedleCell{Policy: "p", Tokens: 1 + i, Samples: 1})
	}
	cases := []struct {
		name  string
		cells []NeedleCell
		want  string
	}{
		{"nothing", nil, "no cells"},
		{"NaN accuracy", with(func(c *NeedleCell) { c.Accuracy = math.NaN() }), "cell 1"},
		{"accuracy in percent", with(func(c *NeedleCell) { c.Accuracy = 50 }), "accuracy: got 50"},
		{"NaN depth", with(func(c *NeedleCell) { c.Depth = math.NaN() }), "depth: got NaN"},
		{"depth in percent", with(func(c *NeedleCell) { c.Depth = 50 }), "depth: got 50"},
		{"no tokens", with(func(c *NeedleCell) { c.Tokens = 0 }), "tokens: got 0"},
		{"no samples", with(func(c *NeedleCell) { c.Samples = 0 }), "samples: got 0"},
		{"no policy", with(func(c *NeedleCell) { c.Policy = "" }), "policy"},
		{"budget", with(func(c *NeedleCell) { c.Budget = "a\nb" }), "budget: got"},
		{"repeated cell", []NeedleCell{valid, valid}, "cell 1: a second one of p at 512 tokens, depth 0.5"},
		{"too many policies", tooMany, "more than 48 policies"},
		{"too many lengths", tooLong, "200 prompt lengths"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "needle.png")
			err := plotFile(path, PlotNeedle, c.cells)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if _, err := os.Stat(path); err == nil {
				t.Error("a plot was written in spite of the error")
			}
		})
	}
}

// TestNeedleCells: rows by length and depth are cells, with what tells them apart.
func TestNeedleCells(t *testing.T) {
	at := func(length, depth string) []evaluation.Group {
		return []evaluation.Group{{Key: "length", Value: length}, {Key: "depth", Value: depth}}
	}
	row := func(policy, budget, task string, groups []evaluation.Group) evaluation.Row {
		r := evaluation.Row{Policy: policy, Task: task, Groups: groups, Metric: "contains", Score: new(0.5), Samples: 2, Model: "m"}
		if budget != "" {
			var err error
			if r.Budget, err = eviction.ParseBudget(budget); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
	cell := func(policy, budget string, tokens int, depth float64) NeedleCell {
		return NeedleCell{Policy: policy, Budget: budget, Tokens: tokens, Depth: depth, Accuracy: 0.5, Samples: 2, Metric: "contains"}
	}
	for name, c := range map[string]struct {
		rows []evaluation.Row
		want []NeedleCell
	}{
		"one budget": {[]evaluation.Row{row("full", "", "niah", nil), row("full", "", "niah", at("512", "0.25")), row("snapkv", "64", "niah", at("512", "1")), row("snapkv", "64", "niah", at("512", "1")[:1])},
			[]NeedleCell{cell("full", "", 512, 0.25), cell("snapkv", "", 512, 1)}},
		"two budgets": {[]evaluation.Row{row("full", "", "niah", at("512", "0")), row("snapkv", "64", "niah", at("512", "0")), row("snapkv", "10%", "niah", at("512", "0"))},
			[]NeedleCell{cell("full", "", 512, 0), cell("snapkv", "64", 512, 0), cell("snapkv", "10%", 512, 0)}},
		"two tasks":    {[]evaluation.Row{row("snapkv", "64", "niah", at("512", "0")), row("snapkv", "64", "single", at("512", "0"))}, []NeedleCell{cell("snapkv (niah)", "", 512, 0), cell("snapkv (single)", "", 512, 0)}},
		"other groups": {[]evaluation.Row{row("snapkv", "64", "niah", []evaluation.Group{{Key: "length", Value: "easy"}, {Key: "depth", Value: "1"}}), row("snapkv", "64", "niah", []evaluation.Group{{Key: "kind", Value: "1"}, {Key: "depth", Value: "1"}})}, nil},
	} {
		if got := NeedleCells(NeedleMaps(c.rows)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestPlotNeedleExplainsGrey: the words are there where there is a grey cell, and only there.
func TestPlotNeedleExplainsGrey(t *testing.T) {
	all := needleCells(sixPolicies[:1], []int{128, 256}, 2)
	for _, missing := range []bool{false, true} {
		cells := all
		if missing {
			cells = all[1:]
		}
		var page bytes.Buffer
		if err := PlotNeedle(&page, figures.SVG, cells); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(page.String(), ">no data<"); got != missing {
			t.Errorf("with a cell missing %v: explained %v", missing, got)
		}
	}
}

// TestPlotSweepHighlights: of many lines ten are named, the others share a grey and a name.
func TestPlotSweepHighlights(t *testing.T) {
	for _, rates := range []int{10, 13} {
		var rows []evaluation.Row
		var points []checkpoints.SweepPoint
		for i := range rates {
			for _, n := range []int{8, 32} {
				name := fmt.Sprintf("a%d-%d", i, n)
				points = append(points, checkpoints.SweepPoint{Name: name, Rows: n, Modules: "all", LearningRate: float64(i+1) / 1000})
				rows = append(rows, evaluation.Row{Model: "m", Policy: "lookaheadkv", Adapter: name, Task: "copy", Tokens: 512, Budget: eviction.Pairs(64), Samples: 4, Metric: evaluation.MetricExactAnswer, Score: new(float64(i) / 20)})
			}
		}
		var page bytes.Buffer
		if err := PlotSweep(&page, figures.SVG, rows, points); err != nil {
			t.Fatal(err)
		}
		named := strings.Count(page.String(), ">LoRA on all, rate ")
		others := strings.Contains(page.String(), ">3 others<")
		if named != 10 || others != (rates > 10) || strings.Contains(page.String(), "rate 0.001<") != (rates == 10) {
			t.Errorf("of %d lines %d are named, others %v, the worst named %v", rates, named, others, strings.Contains(page.String(), "rate 0.001<"))
		}
	}
}
